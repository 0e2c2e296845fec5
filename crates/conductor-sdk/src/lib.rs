//! Conductor workers and clients in Rust.

#![warn(missing_docs)]

pub mod client;
mod configuration;
mod connection;
pub mod definition;
pub mod events;
pub mod handler;
pub mod logging;
#[doc(hidden)]
pub mod macro_support;
pub mod metrics;
pub mod runner;
mod schema;
pub mod settings;
pub mod testing;
pub mod worker;

pub use client::Client;
pub use configuration::{Configuration, ConfigurationError};
pub use handler::TaskHandler;
pub use longhaul_macros::worker_task;
pub use metrics::{MetricsCollector, MetricsSettings};

/// The crate that describes types. Derive its `JsonSchema` for the types of parameters and outputs.
pub use schemars;

/// The records of the API: definitions, tasks, workflows, and requests for them.
pub use longhaul_protocol::conductor as model;

/// The layer below the clients: HTTP, or another way to reach a server.
pub mod transport {
    pub use longhaul_transport::{
        HttpOptions, HttpTransport, Method, Refusal, Request, RequestError, RequestRetry, Response,
        Transport, TransportError,
    };
}
