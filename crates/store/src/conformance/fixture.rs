//! Rows to commit: small, valid, and different wherever a column could be mixed up with another.

use std::sync::Arc;

use longhaul_engine::change::{
    Changes, CommandRow, InstanceChange, RunChange, TaskKind, TaskRow, TaskStatus,
};
use longhaul_engine::run::state::{Closed, ClosedReason, Core, Part, PartKey, Run, Spec};
use longhaul_protocol::history::Event;
use longhaul_protocol::id::{Namespace, RunId, WorkflowId};
use longhaul_protocol::{Payload, Timestamp};
use serde_json::{Value, json};

use crate::{Error, Store};

/// Returns a time: seconds after a fixed morning.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_791_860_000_000_007 + seconds * 1_000_000)
}

pub fn namespace(name: &str) -> Namespace {
    name.into()
}

/// Returns the specification of run `number` of a workflow in the namespace `default`, started at second `number`.
pub fn spec(workflow_id: &str, number: u64) -> Spec {
    serde_json::from_value(json!({
        "namespace": "default",
        "workflow_id": workflow_id,
        "run_id": format!("run-{workflow_id}-{number}"),
        "run_number": number,
        "workflow_type": "order",
        "task_queue": "orders",
        "arguments": Payload::empty_list(),
        "started_at": at(number.cast_signed()),
        "routing": {"priority": 5, "fairness_weight": 1},
    }))
    .unwrap()
}

pub fn core() -> Core {
    serde_json::from_value(json!({
        "status": "pending",
        "last_history_sequence": 0,
        "last_command_sequence": 0,
        "handled_sequence": 0,
        "history_size_bytes": 0,
        "history_fan_out": 0,
        "last_event_at": at(0),
        "instance_command_sequence": 1,
        "open": {"activities": 0, "timers": 0, "unseen_signals": 0},
    }))
    .unwrap()
}

/// Returns the start of a run with its first event.
pub fn start(spec: Spec) -> RunChange {
    let instance = match spec.run_number {
        1 => InstanceChange::Create,
        run_number => InstanceChange::MoveCurrent { run_number },
    };
    let mut change = RunChange {
        spec: Arc::new(spec),
        base_version: None,
        core: core(),
        parts: Vec::new(),
        events: Vec::new(),
        tasks: Vec::new(),
        deleted_tasks: Vec::new(),
        commands: Vec::new(),
        deleted_commands: Vec::new(),
        instance: Some(instance),
        key_claim: None,
        sets_search_attributes: true,
        logs: Vec::new(),
        outputs: Vec::new(),
    };
    push_event(&mut change, "WorkflowStarted");
    change
}

/// Returns an empty change of this run.
pub fn next(run: &Run) -> RunChange {
    RunChange {
        spec: Arc::clone(&run.spec),
        base_version: Some(run.version),
        core: run.core.clone(),
        parts: Vec::new(),
        events: Vec::new(),
        tasks: Vec::new(),
        deleted_tasks: Vec::new(),
        commands: Vec::new(),
        deleted_commands: Vec::new(),
        instance: None,
        key_claim: None,
        sets_search_attributes: false,
        logs: Vec::new(),
        outputs: Vec::new(),
    }
}

/// Appends an event at the end of the run's history.
pub fn push_event(change: &mut RunChange, event_type: &'static str) {
    let sequence = change.core.last_history_sequence.next();
    change.core.last_history_sequence = sequence;
    change.core.last_event_at = at(sequence.get().cast_signed());
    change.events.push(Event {
        id: format!("event-{}-{sequence}", change.spec.run_id).into(),
        sequence,
        event_type,
        payload: format!(r#"{{"sequence":{sequence}}}"#),
        recorded_at: at(sequence.get().cast_signed()),
        workflow_task_id: None,
        workflow_command_id: None,
        principal: None,
    });
}

pub fn close(change: &mut RunChange, reason: ClosedReason) {
    push_event(change, "Closed");
    change.core.status = reason.status();
    let closed_at = at(1000 + change.core.last_history_sequence.get().cast_signed());
    change.core.closed = Some(Closed {
        reason,
        at: closed_at,
        note: None,
        continued_to: None,
        archived: None,
    });
}

/// Returns an activity task of the run on the queue `orders`.
pub fn task(change: &RunChange, task_id: &str, status: TaskStatus) -> TaskRow {
    let mut task: TaskRow = serde_json::from_value(json!({
        "task_id": task_id,
        "run_id": change.spec.run_id,
        "namespace": change.spec.namespace,
        "workflow_id": change.spec.workflow_id,
        "kind": "activity",
        "queue": "orders",
        "type_name": "charge",
        "status": status,
        "available_at": at(0),
        "priority": 5,
        "fairness_weight": 1,
        "sequence": 1,
        "attempt": 0,
    }))
    .unwrap();
    if status == TaskStatus::Leased {
        task.lease_owner = Some("worker-1".into());
        task.lease_expires_at = Some(at(60));
        task.attempt = 1;
    }
    task
}

pub fn command(sequence: u64, request_id: Option<&str>) -> CommandRow {
    let mut command: CommandRow = serde_json::from_value(json!({
        "command_id": format!("command-{sequence}"),
        "sequence": sequence,
        "type": "signal",
        "target_scope": "instance",
        "status": "accepted",
        "outcome": "signal_received",
        "at": at(sequence.cast_signed()),
    }))
    .unwrap();
    command.request_id = request_id.map(str::to_owned);
    command
}

pub fn timer(number: u64, delay_seconds: u64) -> (PartKey, Option<Part>) {
    let timer = json!({"timer": {
        "id": format!("timer-{number}"),
        "sequence": number,
        "delay_seconds": delay_seconds,
        "fire_at": at(delay_seconds.cast_signed()),
        "kind": "plain",
    }});
    (PartKey::Timer(number.into()), Some(part(timer)))
}

pub fn part(body: Value) -> Part {
    serde_json::from_value(body).unwrap()
}

pub async fn commit(store: &dyn Store, run: RunChange) -> Result<(), Error> {
    store
        .commit(Arc::new(Changes {
            run: Some(Box::new(run)),
            ..Changes::default()
        }))
        .await
}

/// Commits a change that must succeed, and returns the run after it.
pub async fn advance(store: &dyn Store, run: &Run, change: RunChange) -> Run {
    let after = change.apply(Some(run.clone()));
    commit(store, change).await.unwrap();
    after
}

/// Commits the start of a workflow's first run.
pub async fn create(store: &dyn Store, workflow_id: &str) -> Run {
    let change = start(spec(workflow_id, 1));
    let run = change.apply(None);
    commit(store, change).await.unwrap();
    run
}

pub async fn load(store: &dyn Store, run_id: &RunId) -> Option<Run> {
    store.run(run_id).await.unwrap()
}

/// Returns the current run of the workflow and its number.
pub async fn current(store: &dyn Store, workflow_id: &str) -> Option<(RunId, u64)> {
    let workflow_id = WorkflowId::from(workflow_id);
    let instance = store
        .instance(&namespace("default"), &workflow_id)
        .await
        .unwrap();
    instance.map(|instance| (instance.current_run_id, instance.run_count))
}

pub fn is_conflict(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Conflict))
}

/// Every kind of task, for loops over both.
pub const KINDS: [TaskKind; 3] = [TaskKind::Workflow, TaskKind::Activity, TaskKind::Execution];
