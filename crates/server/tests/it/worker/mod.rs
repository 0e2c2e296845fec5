//! The worker plane as raw HTTP: what worker-protocol.md says a worker may send and gets back.

mod activities;
mod bad_input;
mod child_events;
mod claims;
mod closed_runs;
mod closes;
mod commands;
mod completions;
mod draining;
mod events;
mod examples;
mod failures;
mod gates;
mod heartbeats;
mod history;
mod outages;
mod payloads;
mod polls;
mod query_tasks;
mod registrations;
mod resume_context;
mod retries;
mod steps;
mod tasks;
mod throttling;
mod update_events;
