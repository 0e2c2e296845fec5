//! What a decision on a definition run may need besides the run: the result of a script, a large value, a definition, the comparison
//! of a value with a schema. A decision
//! that lacks something lists it; the host finds it and decides again with the same [`Moment`](crate::Moment).

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::TaskDef;
use longhaul_protocol::id::{RunId, WorkflowId};
use serde_json::Value;

use crate::Decision;
use crate::conductor::definition::Snapshot;
use crate::conductor::expression::ValueRef;

/// The outcome of one step of a command.
#[derive(Debug)]
pub enum Step<R> {
    Decided(Decision<R>),
    /// The decision needs these first.
    Needs(Vec<Lookup>),
}

/// Something outside of the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// The snapshot with this hash.
    Snapshot(Arc<str>),
    /// A value of this run that is stored in an event.
    Value(ValueRef),
    /// The result of a script.
    Script(Script),
    /// Whether a workflow has this id.
    Instance(WorkflowId),
    /// The results of a jq program.
    Jq(Script),
    /// How a value differs from a schema.
    Comparison(Comparison),
    /// The registered definition of a task, with the schemas that it enforces.
    TaskDef(String),
    /// A registered workflow, compiled; without a version the newest.
    Definition { name: String, version: Option<i32> },
    /// A definition that is given as a value, compiled.
    Inline(Arc<str>),
    /// The run that has an idempotency key.
    KeyOwner(KeyOfWorkflow),
    /// The output that an earlier task of this name and key left.
    Output(OutputKey),
}

/// A script or a jq program with its input, both as text: the same text has the same result within one decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Script {
    pub source: Arc<str>,
    /// A JSON object, which a script sees as `$`.
    pub input: Arc<str>,
}

/// A JSON Schema and a value, both as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Comparison {
    pub schema: Arc<str>,
    pub value: Arc<str>,
}

/// An idempotency key of the starts of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyOfWorkflow {
    /// The name of the workflow.
    pub name: String,
    pub key: String,
}

/// What tasks must have in common to share an output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputKey {
    /// The name of the task definition.
    pub name: String,
    pub key: String,
}

/// The run that has an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    pub run_id: RunId,
    /// It has not ended.
    pub is_open: bool,
}

/// Why a script or a comparison has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFailure {
    pub message: String,
    /// A limit was reached, so that another attempt may succeed.
    pub is_retriable: bool,
}

/// What the host has found so far.
#[derive(Clone, Debug, Default)]
pub struct LookupResults {
    pub snapshots: BTreeMap<Arc<str>, Arc<Snapshot>>,
    pub values: BTreeMap<ValueRef, Arc<Value>>,
    pub scripts: BTreeMap<Script, Result<Value, ScriptFailure>>,
    /// Differences that were found; none if the value matches.
    pub comparisons: BTreeMap<Comparison, Result<Vec<String>, ScriptFailure>>,
    /// `None` if there is no such definition.
    pub task_defs: BTreeMap<String, Option<Arc<TaskDef>>>,
    pub definitions: BTreeMap<(String, Option<i32>), Option<Arc<Snapshot>>>,
    /// `Err` has the reason why the definition cannot be used.
    pub inline: BTreeMap<Arc<str>, Result<Arc<Snapshot>, String>>,
    /// `None` if there is no output that has not expired.
    pub outputs: BTreeMap<OutputKey, Option<Arc<Value>>>,
    /// `None` if no run has the key.
    pub key_owners: BTreeMap<KeyOfWorkflow, Option<KeyOwner>>,
    /// Queues `domain:type` that a worker polled a moment ago.
    pub polled: Vec<String>,
    /// Whether workflows with these ids exist.
    pub instances: BTreeMap<WorkflowId, bool>,
    /// The results of jq programs.
    pub jq: BTreeMap<Script, Result<Vec<Value>, ScriptFailure>>,
    /// What a decision may use without asking.
    pub environment: EnvironmentValues,
}

/// Values that expressions may use, from the environment of the server.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentValues {
    /// `${workflow.env.NAME}`
    pub of_workflows: Arc<BTreeMap<String, String>>,
    /// `${NAME}`
    pub named: Arc<BTreeMap<String, String>>,
}
