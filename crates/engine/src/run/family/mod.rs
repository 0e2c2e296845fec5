//! Runs that belong together: children and parents, the outbox between them, and continue-as-new.

pub mod child;
pub(crate) mod conversion;
pub mod outbox;

pub(crate) mod continue_as_new;
