//! Workers: builds, sticky execution, restarts, sessions.

mod rollouts;
mod sticky;
mod worker_restarts;
mod worker_sessions;
