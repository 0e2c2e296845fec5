//! Typed builders of workflow definitions and task definitions.
//!
//! A [`WorkflowDefBuilder`] collects nodes, checks them, and returns a [`WorkflowDef`] that the server accepts. Each operator has a
//! function that makes its [`Node`]: [`simple`], [`switch`], [`fork`], [`do_while`] and so on. Nodes are joined to lists with `then`.
//! An [`Expression`] refers to a value of the run, such as [`workflow_input`] or the output of a node. A [`TaskDefBuilder`] makes the
//! [`TaskDef`] with retries, time-outs and limits. Members that no method sets can be changed in what `build` returns.
//!
//! The example takes an order, charges it, and sends each item:
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_conductor_sdk::definition::*;
//!
//! # fn main() -> Result<(), DefinitionError> {
//! let charge = TaskDefBuilder::new("charge_card")
//!     .retries(5)
//!     .retry_logic(RetryLogic::ExponentialBackoff)
//!     .retry_delay(Duration::from_secs(2))
//!     .timeout(Duration::from_secs(60), TimeoutPolicy::Retry)
//!     .build()?;
//!
//! let reserve = simple("reserve_stock", "reserve").input("items", workflow_input("items"));
//! let is_reserved = reserve.output("reserved");
//! let send = simple("send_item", "send").input("item", loop_item("each_item"));
//!
//! let definition = WorkflowDefBuilder::new("order")
//!     .version(2)
//!     .owner_email("orders@example.com")
//!     .timeout(Duration::from_secs(3600), WorkflowTimeoutPolicy::TimeOutWorkflow)
//!     .then(reserve)
//!     .then(switch("is_reserved", is_reserved).case(
//!         false,
//!         terminate("sold_out", TerminationStatus::Failed).reason("the stock is empty"),
//!     ))
//!     .then(simple("charge_card", "charge").task_definition(charge))
//!     .then(for_each("each_item", workflow_input("items"), send))
//!     .output("receipt", output_of("charge", "receipt"))
//!     .build()?;
//!
//! assert_eq!(definition.tasks.len(), 4);
//! # Ok(())
//! # }
//! ```

mod branch;
mod call;
mod check;
mod error;
mod expression;
mod node;
mod plain;
mod repeat;
mod steps;
mod task_def;
#[cfg(test)]
mod tests;
mod workflow_def;

pub use longhaul_protocol::conductor::{
    IdempotencyStrategy, RetryLogic, TaskDef, TimeoutPolicy, WorkflowDef, WorkflowTask,
    WorkflowTimeoutPolicy,
};

pub use branch::{DynamicFork, Fork, Switch, dynamic_fork, fork, fork_each, switch, switch_script};
pub use call::{
    Http, StartWorkflow, SubWorkflow, event, http, start_workflow, sub_workflow,
    sub_workflow_inline,
};
pub use error::{DefinitionError, Place};
pub use expression::{
    Expression, environment, input_of, loop_item, loop_iteration, output_of, secret, variable,
    workflow_input, workflow_member,
};
pub use node::{Kind, Node, Plain};
pub use plain::{
    Terminate, TerminationStatus, dynamic, human, inline, jq, noop, raw, set_variable, simple,
    terminate, wait, wait_for, wait_until,
};
pub use repeat::{Loop, do_times, do_while, for_each};
pub use steps::Steps;
pub use task_def::TaskDefBuilder;
pub use workflow_def::WorkflowDefBuilder;
