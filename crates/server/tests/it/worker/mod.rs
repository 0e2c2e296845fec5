//! The worker plane as raw HTTP: what worker-protocol.md says a worker may send and gets back.

mod activities;
mod children;
mod local_activities;
mod polling;
mod query_tasks;
mod registrations;
mod requests;
mod sessions;
mod updates;
mod workflow_tasks;
