//! Calls of a workflow: activities, timers, children, selections, recorded values.

mod activities;
mod activity_timeouts;
mod children;
mod local_activities;
mod payloads;
mod recorded_values;
mod selections;
mod timers;
