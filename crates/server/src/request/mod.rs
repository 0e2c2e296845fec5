//! The parts of a request that handlers read: body, headers, path segments and URL parameters.

pub(crate) mod body;
pub(crate) mod headers;
pub(crate) mod path;
pub(crate) mod url_parameters;
