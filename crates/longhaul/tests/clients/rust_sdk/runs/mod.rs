//! The life of a run: start, close, cancellation, lists, credentials.

mod access;
mod cancellations;
mod lifecycle;
mod visibility;
