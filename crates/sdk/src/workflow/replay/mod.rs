//! Replay: history in, workflow commands out. `execution` drives the workflow code, `journal` connects its calls with the history,
//! `event` reads events, and `replay_error` describes code that does not match its history.

pub(crate) mod event;
pub(crate) mod execution;
pub(crate) mod journal;
pub(crate) mod replay_error;
