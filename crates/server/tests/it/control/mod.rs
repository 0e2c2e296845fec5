//! The control plane, a file per resource as in the server.

mod discovery;
mod messages;
mod namespaces;
mod probes;
mod requests;
mod search_attributes;
mod task_queues;
mod workers;
mod workflows;
