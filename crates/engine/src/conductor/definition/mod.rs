//! The compiled form of a workflow definition.
//!
//! A run keeps the definition that it began with. [`Snapshot::compile`] completes a definition with everything that was found when
//! the run began (task definitions, schemas, versions of sub-workflows), and indexes its nodes in a [`Tree`]. A snapshot is stored as the
//! completed definition under the hash of its text, and all runs of one definition share one copy.
//!
//! [`needs`] lists what must be looked up before compiling, [`operator`] has the operators with their own members, and [`kind`] the
//! facts that depend only on the type of a node.

pub mod kind;
pub mod needs;
pub mod operator;
pub(crate) mod schemas;
mod snapshot;
#[cfg(test)]
mod tests;
mod tree;

pub use needs::{effective_task_def, needed_sub_workflows, needed_task_defs};
pub use operator::{DynamicFork, Loop, Operator, SubWorkflow, SubWorkflowVersion, Switch};
pub use schemas::{SchemaKey, Schemas, needed_schemas, needed_task_schemas, with_schemas};
pub use snapshot::{CompileError, Lookups, Snapshot};
pub use tree::{ListId, Node, NodeId, Owner, Tree, bare_reference, reference_in_loop};
