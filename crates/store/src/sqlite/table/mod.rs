//! Tables beside the runs: external commands, registry documents, idempotency keys, task logs, worker sessions.

pub(super) mod command;
pub(super) mod document;
pub(super) mod key;
pub(super) mod log;
pub(super) mod removal;
pub(super) mod session;
