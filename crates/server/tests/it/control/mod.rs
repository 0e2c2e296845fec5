//! The control plane, a file per resource as in the server.

mod audit;
mod commands;
mod conformance;
mod debug;
mod discovery;
mod examples;
mod export;
mod gates;
mod history;
mod isolation;
mod local_activities;
mod namespaces;
mod queries;
mod reads;
mod rollouts;
mod search_attributes;
mod start;
mod task_queues;
mod validators;
mod visibility;
mod workers;
