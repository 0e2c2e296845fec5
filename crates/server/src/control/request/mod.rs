//! The parts of a request that handlers read beside its body: path segments, URL parameters and where it came from.

pub(super) mod origin;
pub(super) mod path;
pub(super) mod url_parameters;
