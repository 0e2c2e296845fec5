//! The beginning of a definition run.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::{Object, WorkflowTimeoutPolicy};
use longhaul_protocol::history::{EventPayload, ExecutionStarted};
use longhaul_protocol::id::{Namespace, RunId, TaskId, TaskQueue};
use longhaul_protocol::{Ids, Payload, Timestamp};
use serde_json::Map;

use crate::RunChange;
use crate::change::InstanceChange;
use crate::conductor::definition::Snapshot;
use crate::conductor::execution::state::Execution;
use crate::conductor::execution::value::measured;
use crate::conductor::expression::EventMember;
use crate::conductor::input::workflow_input;
use crate::limits::Limits;
use crate::run::draft::Draft;
use crate::run::family::child::Parent;
use crate::run::start::fresh_core;
use crate::run::state::{Part, PartKey, Program, Routing, Spec, Status};

/// A definition run that does not exist yet.
#[derive(Clone, Debug)]
pub struct NewExecution {
    pub namespace: Namespace,
    pub snapshot: Arc<Snapshot>,
    pub input: Object,
    pub correlation_id: Option<String>,
    /// 0 to 99, higher first.
    pub priority: u8,
    pub task_to_domain: Arc<BTreeMap<String, String>>,
    pub idempotency_key: Option<String>,
    pub created_by: Option<String>,
    /// How many runs are above this one.
    pub depth: u32,
    pub parent: Option<Box<Parent>>,
}

/// Returns the new run, before its first pass. Its alarm is due at once, so that the pass is made even if the caller is lost. The
/// ids of its events are taken from `ids`.
pub fn create(
    new: &NewExecution,
    run_id: &RunId,
    ids: &mut Ids,
    now: Timestamp,
    limits: &Limits,
) -> RunChange {
    let definition = new.snapshot.definition();
    let spec = Spec {
        namespace: new.namespace.clone(),
        workflow_id: run_id.as_str().into(),
        run_id: run_id.clone(),
        run_number: 1,
        program: Program::Definition,
        workflow_type: definition.name.clone(),
        task_queue: TaskQueue::from(""),
        arguments: Payload::empty_list(),
        started_at: now,
        business_key: new.correlation_id.clone(),
        run_timeout_seconds: None,
        execution_timeout_seconds: None,
        run_deadline_at: None,
        execution_deadline_at: None,
        continued_from: None,
        parent: new.parent.clone(),
        routing: Routing::default(),
        declared: Map::new(),
    };
    let mut core = fresh_core(now);
    core.status = Status::Running;
    core.execution = Some(Box::new(Execution {
        version: definition.version,
        snapshot: new.snapshot.hash().into(),
        correlation_id: new.correlation_id.clone(),
        idempotency_key: new.idempotency_key.clone(),
        created_by: new.created_by.clone(),
        priority: new.priority,
        task_to_domain: Arc::clone(&new.task_to_domain),
        depth: new.depth,
        last_seq: 0,
        open_tasks: 0,
        backlog: Vec::new(),
        is_new: true,
        paused: false,
        last_retried_at: None,
        deadline_at: deadline(&new.snapshot, now),
        reason: None,
        failed: Vec::new(),
        permitted_failures: Vec::new(),
        has_dynamic_fork: false,
        updated_at: now,
    }));
    let mut draft = Draft::new_run(Arc::new(spec), core, ids.clone(), now, limits);
    draft.instance = Some(InstanceChange::Create);
    let (input, bytes) = measured(workflow_input(
        new.input.clone(),
        &definition.input_template,
    ));
    let (variables, variable_bytes) = measured(definition.variables.clone());
    let parent = new.parent.as_deref();
    let sequence = draft.append(EventPayload::ExecutionStarted(Box::new(ExecutionStarted {
        name: definition.name.clone(),
        version: definition.version,
        snapshot: new.snapshot.hash().into(),
        input: Arc::clone(&input),
        variables: (!definition.variables.is_empty()).then(|| Arc::clone(&variables)),
        correlation_id: new.correlation_id.clone(),
        priority: new.priority,
        task_to_domain: BTreeMap::clone(&new.task_to_domain),
        parent_run_id: parent.map(|parent| parent.run_id.clone()),
        parent_task_id: parent.map(|parent| TaskId::from(parent.call_id.as_str())),
    })));
    let input = draft.keep(&input, bytes, sequence, EventMember::Input);
    draft.put(PartKey::Input, Part::Value(input));
    if !definition.variables.is_empty() {
        let variables = draft.keep(&variables, variable_bytes, sequence, EventMember::Variables);
        draft.put(PartKey::Variables, Part::Value(variables));
    }
    *ids = draft.ids.clone();
    *draft.into_change().0
}

/// Returns when a run that begins, or goes on, now times out.
pub(crate) fn deadline(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let definition = snapshot.definition();
    let seconds = u64::try_from(definition.timeout_seconds)
        .ok()
        .filter(|seconds| *seconds > 0)?;
    (definition.timeout_policy == WorkflowTimeoutPolicy::TimeOutWorkflow)
        .then(|| now.plus_seconds(seconds))
}
