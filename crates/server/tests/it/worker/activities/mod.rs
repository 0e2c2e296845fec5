//! Activity tasks.

mod heartbeats;
mod reports;
mod retries;
