//! The worker plane as raw HTTP: what a worker may send, and the responses.

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
