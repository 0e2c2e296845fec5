//! Short helpers for a host, a worker and a workflow.

use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::change::TaskOutcome;
use longhaul_engine::run::activity::claim::ActivityClaim;
use longhaul_engine::run::start::{DuplicatePolicy, Start, Started};
use longhaul_engine::run::state::Routing;
use longhaul_host::api::{AttemptIdentity, ExecutionOutput, ExecutionReport, TaskHolder};
use longhaul_host::clock::ManualClock;
use longhaul_host::{
    BatchPoll, Config, Existing, Host, LeasedWorkflowTask, Poll, Polled, Result, StartExecution,
    WorkerRow,
};
use longhaul_protocol::conductor::{Object, ResultStatus, TaskDef, WorkflowDef, read};
use longhaul_protocol::id::{Namespace, TaskQueue, WorkerId, WorkflowId};
use longhaul_protocol::workflow_command::{WorkflowCommand, parse_commands};
use longhaul_protocol::{Payload, Timestamp};
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use serde_json::{Map, Value, json};

pub(crate) struct Setup {
    pub(crate) host: Host,
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn Store>,
}

pub(crate) fn namespace() -> Namespace {
    Namespace::from("default")
}

/// Returns a host with worker `w1` on queue `q`.
pub(crate) async fn setup() -> Setup {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    let host = open(&store, &clock).await;
    register(&host, "w1").await;
    Setup { host, clock, store }
}

pub(crate) async fn open(store: &Arc<dyn Store>, clock: &ManualClock) -> Host {
    Host::start_with_clock(
        Arc::clone(store),
        Config::default(),
        Arc::new(clock.clone()),
    )
    .await
    .unwrap()
}

pub(crate) async fn register(host: &Host, worker: &str) {
    host.workers().register(registration(worker)).await.unwrap();
}

pub(crate) fn registration(worker: &str) -> WorkerRow {
    WorkerRow {
        namespace: namespace(),
        worker_id: WorkerId::from(worker),
        task_queue: TaskQueue::from("q"),
        runtime: "python".to_owned(),
        sdk_version: None,
        build_id: None,
        supported_workflow_types: Vec::new(),
        supported_activity_types: Vec::new(),
        workflow_definition_fingerprints: Map::new(),
        workflow_command_contracts: Map::new(),
        capabilities: Vec::new(),
        capability_manifest: Map::new(),
        max_concurrent_workflow_tasks: 10,
        max_concurrent_activity_tasks: 10,
        max_concurrent_worker_sessions: 10,
        task_slots: None,
        process_metrics: None,
        registered_at: Timestamp::from_micros(0),
        last_heartbeat_at: Timestamp::from_micros(0),
        updated_at: Timestamp::from_micros(0),
    }
}

pub(crate) fn start_of(workflow_id: &str) -> Start {
    Start {
        namespace: namespace(),
        workflow_id: WorkflowId::from(workflow_id),
        workflow_type: "order".to_owned(),
        task_queue: TaskQueue::from("q"),
        arguments: Payload::empty_list(),
        business_key: None,
        memo: None,
        search_attributes: Map::new(),
        run_timeout_seconds: None,
        execution_timeout_seconds: None,
        routing: Routing::default(),
        duplicate_policy: DuplicatePolicy::Fail,
        declared: Map::new(),
        principal: None,
        context: None,
    }
}

pub(crate) fn poll_of(worker: &str, request_id: Option<&str>, seconds: u64) -> Poll {
    Poll {
        namespace: namespace(),
        worker_id: WorkerId::from(worker),
        task_queue: TaskQueue::from("q"),
        build_id: None,
        poll_request_id: request_id.map(str::to_owned),
        timeout: Duration::from_secs(seconds),
    }
}

pub(crate) fn commands(json: Value) -> Vec<WorkflowCommand> {
    parse_commands(&json).unwrap()
}

pub(crate) fn holder(task: &LeasedWorkflowTask) -> TaskHolder {
    TaskHolder {
        namespace: namespace(),
        task_id: task.claim.task_id.clone(),
        owner: task.claim.owner.clone(),
        attempt: task.claim.attempt,
        principal: None,
    }
}

pub(crate) fn report(claim: &ActivityClaim) -> AttemptIdentity {
    AttemptIdentity {
        namespace: namespace(),
        task_id: claim.activity.task_id.clone(),
        attempt_id: claim.attempt.id.clone(),
        owner: claim.attempt.owner.clone(),
        principal: None,
    }
}

impl Setup {
    pub(crate) async fn start(&self, workflow_id: &str) -> Started {
        self.host
            .workflows()
            .start(start_of(workflow_id))
            .await
            .unwrap()
    }

    /// Returns the next workflow task; panics if there is none.
    pub(crate) async fn task(&self) -> LeasedWorkflowTask {
        leased(
            self.host
                .workflow_tasks()
                .poll(&poll_of("w1", None, 30), 500)
                .await,
        )
    }

    pub(crate) async fn activity(&self) -> ActivityClaim {
        leased(
            self.host
                .activity_tasks()
                .poll(&poll_of("w1", None, 30))
                .await,
        )
    }

    pub(crate) async fn complete(&self, task: &LeasedWorkflowTask, json: Value) -> TaskOutcome {
        self.host
            .workflow_tasks()
            .complete(&holder(task), commands(json))
            .await
            .unwrap()
            .outcome
    }

    /// Returns whether a task is ready now.
    pub(crate) async fn has_task(&self) -> bool {
        let polled = self
            .host
            .workflow_tasks()
            .poll(&poll_of("w1", None, 0), 500)
            .await
            .unwrap();
        matches!(polled, Polled::Leased(_))
    }
}

/// Registers a task `t` with these settings, and a workflow `w` of tasks `t` with these references.
pub(crate) async fn define(host: &Host, settings: Value, references: &[&str]) {
    let mut task = json!({"name": "t"});
    task.as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    let definitions = host.definitions();
    let task: TaskDef = read(task).unwrap();
    definitions
        .put_tasks(&namespace(), vec![task])
        .await
        .unwrap();
    let task = |reference: &&str| json!({"name": "t", "taskReferenceName": reference});
    let tasks: Vec<Value> = references.iter().map(task).collect();
    let workflow: WorkflowDef = read(json!({"name": "w", "tasks": tasks})).unwrap();
    definitions
        .put_workflows(&namespace(), vec![workflow], Existing::Replace)
        .await
        .unwrap();
}

/// Starts the workflow `w`.
pub(crate) async fn start_execution(host: &Host) {
    let start = StartExecution {
        name: "w".to_owned(),
        ..StartExecution::default()
    };
    host.executions().start(&namespace(), start).await.unwrap();
}

/// Returns a poll for up to ten tasks that does not wait.
pub(crate) fn batch_of(task_type: &str) -> BatchPoll {
    BatchPoll {
        namespace: namespace(),
        task_type: task_type.to_owned(),
        domain: None,
        worker_id: Some("w".to_owned()),
        count: 10,
        timeout: Duration::ZERO,
    }
}

/// Returns the report that a task of a definition run is completed.
pub(crate) fn completed() -> ExecutionReport {
    ExecutionReport::Status {
        status: ResultStatus::Completed,
        output: ExecutionOutput::Replace(Object::new()),
        reason: None,
        worker_id: Some("w".to_owned()),
        callback_after_seconds: 0,
        logs: Vec::new(),
    }
}

pub(crate) fn leased<T>(polled: Result<Polled<T>>) -> T {
    match polled.unwrap() {
        Polled::Leased(task) => task,
        Polled::Empty | Polled::Throttled(_) => panic!("a task was expected"),
    }
}
