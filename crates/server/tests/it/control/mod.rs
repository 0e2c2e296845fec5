//! The control plane, a file per resource as in the server.

mod commands;
mod discovery;
mod examples;
mod gates;
mod history;
mod isolation;
mod namespaces;
mod queries;
mod reads;
mod search_attributes;
mod start;
mod task_queues;
mod validators;
mod visibility;
mod workers;
