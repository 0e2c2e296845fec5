//! The beginning of a definition run.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::conductor::{
    IdempotencyStrategy, Object, WorkflowDef, WorkflowTimeoutPolicy,
};
use longhaul_protocol::history::{EventPayload, ExecutionStarted};
use longhaul_protocol::id::{Namespace, RunId, TaskId, TaskQueue};
use longhaul_protocol::{Ids, Payload, Timestamp};
use serde_json::{Map, json};

use crate::change::{Changes, InstanceChange, KeyClaim};
use crate::conductor::definition::Snapshot;
use crate::conductor::execution::lookup::{Lookup, LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::schema::check_input;
use crate::conductor::execution::state::{CalledDefinition, Execution};
use crate::conductor::execution::value::measured;
use crate::conductor::expression::EventMember;
use crate::conductor::input::workflow_input;
use crate::conductor::limits::CLASSIFIER_CHARS_MAX;
use crate::limits::Limits;
use crate::run::draft::Draft;
use crate::run::family::child::Parent;
use crate::run::family::conversion;
use crate::run::start::fresh_core;
use crate::run::state::{Part, PartKey, Program, Routing, Run, Spec, Status};
use crate::{Decision, Moment, Rejection, RunChange};

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
    /// The claim of the key. The key of a sub-workflow is shown and not claimed.
    pub key_claim: Option<KeyClaim>,
    pub created_by: Option<String>,
    /// How many runs are above this one.
    pub depth: u32,
    pub parent: Option<Box<Parent>>,
}

/// A definition run that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedExecution {
    pub run_id: RunId,
    /// The first pass reached its bound; the rest is left to the next transaction.
    pub has_work: bool,
    /// The first pass wrote messages to other runs.
    pub has_messages: bool,
}

/// Decides the start of a run together with its first pass: both are one commit.
pub fn start(
    new: &NewExecution,
    moment: Moment<'_>,
    found: &LookupResults,
) -> Step<StartedExecution> {
    let mut ids = Ids::new(moment.now, moment.entropy);
    let run_id: RunId = ids.mint_uuid();
    let template = &new.snapshot.definition().input_template;
    let input = || Ok(workflow_input(new.input.clone(), template));
    match check_input(&new.snapshot, input, found) {
        Ok(Ok(())) => {}
        Ok(Err(mismatch)) => return Step::Decided(Decision::reject(mismatch.into())),
        Err(needs) => return Step::Needs(needs),
    }
    let begin = || -> Try<Draft<'_>> {
        let draft = draft(new, &run_id, ids, moment.now, moment.limits);
        Pass::new(draft, found)?.run()
    };
    let draft = match begin() {
        Ok(draft) => draft,
        Err(needs) => return Step::Needs(needs),
    };
    let has_work = draft.is_open() && !draft.execution().backlog.is_empty();
    let (run, children) = draft.into_change();
    let mut parts = run.parts.iter();
    let has_messages = parts.any(|(key, _)| matches!(key, PartKey::Outbox(_)));
    let created = std::iter::once(*run).chain(children).collect();
    Step::Decided(Decision {
        changes: Changes {
            created,
            ..Changes::default()
        },
        reply: Ok(StartedExecution {
            run_id,
            has_work,
            has_messages,
        }),
    })
}

/// What a start does whose idempotency key belongs to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// It starts nothing and returns that run.
    Existing,
    /// It starts a run that takes the key.
    Replace,
}

/// Decides about a start whose idempotency key belongs to a run.
///
/// # Errors
/// [`Rejection::KeyTaken`] if the strategy refuses a second run.
pub fn use_key(strategy: IdempotencyStrategy, earlier: &Run) -> Result<KeyUse, Rejection> {
    match strategy {
        IdempotencyStrategy::ReturnExisting => Ok(KeyUse::Existing),
        IdempotencyStrategy::FailOnRunning if earlier.core.closed.is_some() => Ok(KeyUse::Replace),
        IdempotencyStrategy::Fail | IdempotencyStrategy::FailOnRunning => {
            Err(Rejection::KeyTaken {
                run_id: earlier.run_id().clone(),
            })
        }
    }
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
    let draft = draft(new, run_id, ids.clone(), now, limits);
    *ids = draft.ids.clone();
    *draft.into_change().0
}

/// Returns the draft of a new run.
fn draft<'l>(
    new: &NewExecution,
    run_id: &RunId,
    ids: Ids,
    now: Timestamp,
    limits: &'l Limits,
) -> Draft<'l> {
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
        failed_references: String::new(),
        failed_names: Vec::new(),
        classifier: classifier(definition),
        has_dynamic_fork: false,
        exclusive_joins: Vec::new(),
        last_message: 0,
        life: 0,
        restarted_at: None,
        first_seq: 0,
        called: None,
        updated_at: now,
    }));
    let mut draft = Draft::new_run(Arc::new(spec), core, ids, now, limits);
    draft.instance = Some(InstanceChange::Create);
    draft.key_claim.clone_from(&new.key_claim);
    record_start(&mut draft, definition, new.input.clone());
    draft
}

/// Records the beginning of a run, whose state names the snapshot of this definition.
fn record_start(draft: &mut Draft<'_>, definition: &WorkflowDef, input: Object) {
    let (input, bytes) = measured(workflow_input(input, &definition.input_template));
    let (variables, variable_bytes) = measured(definition.variables.clone());
    let spec = Arc::clone(&draft.spec);
    let parent = spec.parent.as_deref();
    let execution = draft.execution();
    let sequence = draft.append(EventPayload::ExecutionStarted(Box::new(ExecutionStarted {
        name: definition.name.clone(),
        version: definition.version,
        snapshot: Arc::clone(&execution.snapshot),
        input: Arc::clone(&input),
        variables: (!definition.variables.is_empty()).then(|| Arc::clone(&variables)),
        correlation_id: execution.correlation_id.clone(),
        priority: execution.priority,
        task_to_domain: BTreeMap::clone(&execution.task_to_domain),
        parent_run_id: parent.map(|parent| parent.run_id.clone()),
        parent_task_id: parent.map(|parent| TaskId::from(parent.call_id.as_str())),
    })));
    let input = draft.keep(&input, bytes, sequence, EventMember::Input);
    draft.put(PartKey::Input, Part::Value(input));
    if !definition.variables.is_empty() {
        let variables = draft.keep(&variables, variable_bytes, sequence, EventMember::Variables);
        draft.put(PartKey::Variables, Part::Value(variables));
    }
}

/// Returns the state of a run that code starts. Its first pass finds the definition.
pub(crate) fn called(definition: CalledDefinition, now: Timestamp) -> Execution {
    Execution {
        version: definition.version.unwrap_or(0),
        snapshot: "".into(),
        correlation_id: None,
        idempotency_key: None,
        created_by: None,
        priority: 0,
        task_to_domain: Arc::default(),
        depth: 0,
        last_seq: 0,
        open_tasks: 0,
        backlog: Vec::new(),
        is_new: true,
        paused: false,
        last_retried_at: None,
        deadline_at: None,
        reason: None,
        failed: Vec::new(),
        permitted_failures: Vec::new(),
        failed_references: String::new(),
        failed_names: Vec::new(),
        classifier: None,
        has_dynamic_fork: false,
        exclusive_joins: Vec::new(),
        last_message: 0,
        life: 0,
        restarted_at: None,
        first_seq: 0,
        called: Some(definition),
        updated_at: now,
    }
}

/// Gives a run that code started its definition and its input. Returns the snapshot, and why the run cannot go on, if it cannot: then
/// its definition has no tasks, because a record of a run always has one.
pub(crate) fn begin_called(
    draft: &mut Draft<'_>,
    called: &CalledDefinition,
    found: &LookupResults,
) -> Try<(Arc<Snapshot>, Option<String>)> {
    let CalledDefinition { name, version } = called;
    let (snapshot, mut problem) = match found.definitions.get(&(name.clone(), *version)) {
        None => {
            return Err(vec![Lookup::Definition {
                name: name.clone(),
                version: *version,
            }]);
        }
        Some(Some(snapshot)) => (Arc::clone(snapshot), None),
        Some(None) => {
            let shown = version.map_or_else(|| "null".to_owned(), |version| version.to_string());
            let problem = format!("No such workflow defined. name={name}, version={shown}");
            let empty = json!({"name": name, "version": version.unwrap_or(1), "tasks": []});
            let text: Arc<str> = empty.to_string().into();
            match found.inline.get(&text) {
                None => return Err(vec![Lookup::Inline(text)]),
                Some(Ok(snapshot)) => (Arc::clone(snapshot), Some(problem)),
                Some(Err(_)) => return Err(vec![Lookup::Inline(text)]),
            }
        }
    };
    let input = conversion::input(&draft.spec.arguments).unwrap_or_else(|error| {
        problem = Some(format!("The arguments cannot be read: {error}"));
        Object::new()
    });
    let (now, definition) = (draft.now, snapshot.definition());
    let execution = draft.execution_mut();
    execution.called = None;
    execution.snapshot = snapshot.hash().into();
    execution.version = definition.version;
    execution.deadline_at = deadline(&snapshot, now);
    execution.classifier = classifier(definition);
    record_start(draft, definition, input);
    Ok((snapshot, problem))
}

/// Returns what kind of workflow a definition calls itself in its metadata.
pub(crate) fn classifier(definition: &WorkflowDef) -> Option<String> {
    let word = definition.metadata.get("classifier")?.as_str()?;
    let word: String = word.chars().take(CLASSIFIER_CHARS_MAX).collect();
    (!word.is_empty()).then_some(word)
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
