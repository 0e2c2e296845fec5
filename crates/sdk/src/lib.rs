//! Durable workflows in Rust: workflow code, workers and a client for the Durable Workflow protocol.

#![warn(missing_docs)]

// The macros write whole paths, also in this crate.
extern crate self as longhaul_sdk;

pub mod activity;
pub mod client;
mod connection;
pub mod definition;
pub mod error;
#[doc(hidden)]
pub mod macro_support;
pub mod payload;
pub mod testing;
pub mod transport;
pub mod worker;
pub mod workflow;

pub use activity::ActivityContext;
pub use client::{Client, WorkflowHandle};
pub use definition::{
    Activity, ActivityCall, ActivityDefinition, Query, Signal, Update, Workflow, WorkflowCall,
    WorkflowDefinition,
};
pub use error::{
    ActivityError, ActivityResult, Cancelled, ChildError, Failure, FailureKind, TimeoutKind,
    WorkflowError, WorkflowResult,
};
pub use longhaul_macros::{activity, workflow};
pub use worker::{Worker, WorkerHandle};
pub use workflow::{
    CancellationPolicy, Context, LocalActivityOptions, ParentClosePolicy, RetryPolicy, Saga, State,
    WorkerSessionOptions,
};
