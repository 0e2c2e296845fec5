//! Outages of the store and bugs of the server: the response is in the worker envelope and has the time of the next try.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use longhaul_engine::change::{Changes, CommandRow, TaskRow};
use longhaul_engine::rollout::Rollout;
use longhaul_engine::run::state::Run;
use longhaul_engine::session::{Session, Status};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskId, WorkerId, WorkflowId};
use longhaul_store::memory::Memory;
use longhaul_store::{
    Error, Instance, LeaseFilter, NamespaceRow, Page, QueueCount, QueueKey, RunFilter, RunSummary,
    SearchAttributeRow, SessionFilter, Store, StoreFuture, StoredEvent, WorkerRow,
};
use serde_json::{Value, json};

use crate::support::{Server, activity_report, complete, decided, every_type, report};

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

/// A store that can fail or panic on request. It affects only the methods that the tests below need.
#[derive(Clone)]
struct Broken {
    memory: Arc<Memory>,
    mode: Arc<AtomicU8>,
}

impl Broken {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), Error> {
        match self.mode.load(Ordering::SeqCst) {
            FAILS => Err(Error::Unavailable("the disk is gone".to_owned())),
            PANICS => panic!("a bug in the store"),
            _ => Ok(()),
        }
    }
}

impl Store for Broken {
    fn commit(&self, changes: Arc<Changes>) -> StoreFuture<'static, ()> {
        match self.check() {
            Ok(()) => self.memory.commit(changes),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    fn is_shared(&self) -> bool {
        // Copies in memory are not trusted then, so that every call reads.
        true
    }

    fn run<'a>(&'a self, run_id: &'a RunId) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move {
            self.check()?;
            self.memory.run(run_id).await
        })
    }

    fn instance<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Option<Instance>> {
        self.memory.instance(namespace, workflow_id)
    }

    fn runs_of<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
    ) -> StoreFuture<'a, Vec<RunSummary>> {
        self.memory.runs_of(namespace, workflow_id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.memory.list_runs(filter)
    }

    fn history<'a>(
        &'a self,
        run_id: &'a RunId,
        after: u64,
        up_to: u64,
        page: Page,
    ) -> StoreFuture<'a, Vec<StoredEvent>> {
        Box::pin(async move {
            self.check()?;
            self.memory.history(run_id, after, up_to, page).await
        })
    }

    fn commands<'a>(
        &'a self,
        run_id: &'a RunId,
        before: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<CommandRow>> {
        self.memory.commands(run_id, before, limit)
    }

    fn command_count<'a>(&'a self, run_id: &'a RunId) -> StoreFuture<'a, u64> {
        self.memory.command_count(run_id)
    }

    fn command<'a>(
        &'a self,
        run_id: &'a RunId,
        sequence: u64,
    ) -> StoreFuture<'a, Option<CommandRow>> {
        self.memory.command(run_id, sequence)
    }

    fn command_by_request<'a>(
        &'a self,
        namespace: &'a Namespace,
        workflow_id: &'a WorkflowId,
        request_id: &'a str,
    ) -> StoreFuture<'a, Option<(RunId, CommandRow)>> {
        self.memory
            .command_by_request(namespace, workflow_id, request_id)
    }

    fn task<'a>(&'a self, task_id: &'a TaskId) -> StoreFuture<'a, Option<TaskRow>> {
        Box::pin(async move {
            self.check()?;
            self.memory.task(task_id).await
        })
    }

    fn ready_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        Box::pin(async move {
            self.check()?;
            self.memory.ready_tasks(queue, limit).await
        })
    }

    fn ready_session_tasks<'a>(
        &'a self,
        queue: &'a QueueKey,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        Box::pin(async move {
            self.check()?;
            self.memory.ready_session_tasks(queue, limit).await
        })
    }

    fn session<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: &'a SessionId,
    ) -> StoreFuture<'a, Option<Session>> {
        self.memory.session(namespace, session_id)
    }

    fn held_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        worker_id: &'a WorkerId,
    ) -> StoreFuture<'a, Vec<Session>> {
        self.memory.held_sessions(namespace, worker_id)
    }

    fn session_attempts<'a>(
        &'a self,
        namespace: &'a Namespace,
        session_id: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        self.memory.session_attempts(namespace, session_id)
    }

    fn due_sessions(&self, now: Timestamp, limit: usize) -> StoreFuture<'_, Vec<Session>> {
        self.memory.due_sessions(now, limit)
    }

    fn next_session_deadline(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.memory.next_session_deadline()
    }

    fn list_sessions<'a>(&'a self, filter: &'a SessionFilter) -> StoreFuture<'a, Vec<Session>> {
        self.memory.list_sessions(filter)
    }

    fn session_counts<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<(Status, u64)>> {
        self.memory.session_counts(namespace)
    }

    fn prune_sessions<'a>(
        &'a self,
        namespace: &'a Namespace,
        ended_before: Timestamp,
    ) -> StoreFuture<'a, bool> {
        self.memory.prune_sessions(namespace, ended_before)
    }

    fn ready_queues(&self) -> StoreFuture<'_, Vec<QueueKey>> {
        self.memory.ready_queues()
    }

    fn leased_tasks<'a>(
        &'a self,
        filter: &'a LeaseFilter,
        limit: usize,
    ) -> StoreFuture<'a, Vec<TaskRow>> {
        self.memory.leased_tasks(filter, limit)
    }

    fn queue_counts<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<QueueCount>> {
        self.memory.queue_counts(namespace)
    }

    fn due_runs(&self, now: Timestamp, limit: usize) -> StoreFuture<'_, Vec<RunId>> {
        self.memory.due_runs(now, limit)
    }

    fn next_alarm(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.memory.next_alarm()
    }

    fn create_namespace<'a>(&'a self, namespace: &'a NamespaceRow) -> StoreFuture<'a, ()> {
        self.memory.create_namespace(namespace)
    }

    fn update_namespace<'a>(&'a self, namespace: &'a NamespaceRow) -> StoreFuture<'a, ()> {
        self.memory.update_namespace(namespace)
    }

    fn define_search_attribute<'a>(
        &'a self,
        attribute: &'a SearchAttributeRow,
    ) -> StoreFuture<'a, ()> {
        self.memory.define_search_attribute(attribute)
    }

    fn delete_search_attribute<'a>(
        &'a self,
        namespace: &'a Namespace,
        name: &'a str,
    ) -> StoreFuture<'a, bool> {
        self.memory.delete_search_attribute(namespace, name)
    }

    fn search_attributes<'a>(
        &'a self,
        namespace: &'a Namespace,
    ) -> StoreFuture<'a, Vec<SearchAttributeRow>> {
        self.memory.search_attributes(namespace)
    }

    fn namespaces(&self) -> StoreFuture<'_, Vec<NamespaceRow>> {
        self.memory.namespaces()
    }

    fn put_worker<'a>(&'a self, worker: &'a WorkerRow) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.check()?;
            self.memory.put_worker(worker).await
        })
    }

    fn delete_worker<'a>(
        &'a self,
        namespace: &'a Namespace,
        worker_id: &'a WorkerId,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            self.check()?;
            self.memory.delete_worker(namespace, worker_id).await
        })
    }

    fn worker<'a>(
        &'a self,
        namespace: &'a Namespace,
        worker_id: &'a WorkerId,
    ) -> StoreFuture<'a, Option<WorkerRow>> {
        self.memory.worker(namespace, worker_id)
    }

    fn workers<'a>(&'a self, namespace: &'a Namespace) -> StoreFuture<'a, Vec<WorkerRow>> {
        self.memory.workers(namespace)
    }

    fn put_rollout<'a>(&'a self, rollout: &'a Rollout) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.check()?;
            self.memory.put_rollout(rollout).await
        })
    }

    fn rollouts(&self) -> StoreFuture<'_, Vec<Rollout>> {
        self.memory.rollouts()
    }
}

async fn server() -> (Server, Broken) {
    let store = Broken {
        memory: Arc::new(Memory::new()),
        mode: Arc::new(AtomicU8::new(WORKS)),
    };
    let on = Arc::new(store.clone());
    let server = Server::on_store(on).await;
    server.register("w", every_type()).await;
    (server, store)
}

/// Checks that a refusal may be retried and has the time of the next try.
fn expect_retryable(refusal: &Value) {
    assert_eq!(refusal["retryable"], true, "{refusal}");
    let after = refusal["retry_after_seconds"].as_u64();
    assert!(
        after.is_some_and(|seconds| (1..=60).contains(&seconds)),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_poll_during_an_outage_may_be_sent_again() {
    let (server, store) = server().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    server.start("second").await;
    store.set(FAILS);
    let wait = json!({"poll_request_id": "p-1"});
    for kind in ["workflow", "activity"] {
        let refusal = server
            .worker("w")
            .poll(kind, wait.clone())
            .refused(503, "backend_unavailable")
            .await;
        expect_retryable(&refusal);
        assert_eq!(refusal["task"], Value::Null);
        assert_eq!(refusal["poll_status"], "backend_unavailable");
        assert_eq!(refusal["outcome"], "unknown");
        assert_eq!(refusal["worker_id"], "w");
        assert_eq!(refusal["task_queue"], "default");
        assert_eq!(refusal["poll_request_id"], "p-1");
        assert_eq!(refusal["retry_same_poll_request_id"], true);
        assert!(refusal["operation"].is_string(), "{refusal}");
    }
    store.set(WORKS);
    for kind in ["workflow", "activity"] {
        let answer = server
            .worker("w")
            .poll(kind, wait.clone())
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], "leased", "{answer}");
    }
}

#[tokio::test]
async fn a_completion_during_an_outage_is_unknown_and_may_be_sent_again() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    store.set(FAILS);
    let refusal = complete(&server, &task, commands.clone())
        .refused(503, "backend_unavailable")
        .await;
    expect_retryable(&refusal);
    assert_eq!(refusal["operation"], "complete_workflow_task");
    assert_eq!(refusal["outcome"], "unknown");
    assert_eq!(refusal["worker_id"], "w");
    assert_eq!(refusal["lease_owner"], "w");
    assert_eq!(refusal["task_id"], task["task_id"]);
    assert_eq!(refusal["workflow_task_attempt"], 1);
    assert!(
        refusal
            .as_object()
            .is_some_and(|body| body.contains_key("task_queue"))
    );
    assert_eq!(refusal["task_queue"], Value::Null);
    store.set(WORKS);
    complete(&server, &task, commands).accepted(200).await;

    let activity = server.worker("w").activity_task().await;
    store.set(FAILS);
    let refusal = activity_report(&server, &activity, "complete", json!({}))
        .refused(503, "backend_unavailable")
        .await;
    expect_retryable(&refusal);
    assert_eq!(refusal["operation"], "complete_activity_task");
    assert_eq!(refusal["outcome"], "unknown");
    assert_eq!(refusal["worker_id"], "w");
    assert_eq!(
        refusal["activity_attempt_id"],
        activity["activity_attempt_id"]
    );
    store.set(WORKS);
    let answer = activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["outcome"], "completed");
}

#[tokio::test]
async fn other_calls_during_an_outage_are_transient_too() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    store.set(FAILS);
    let body = json!({"worker_id": "v", "task_queue": "default", "runtime": "python"});
    let failure = json!({"failure": {"message": "no"}});
    let token = json!({"next_history_page_token": "MA=="});
    for (call, operation) in [
        (server.worker_post("/register", &body), None),
        (
            report(&server, &task, "heartbeat", json!({})),
            Some("heartbeat_workflow_task"),
        ),
        (
            report(&server, &task, "fail", failure),
            Some("fail_workflow_task"),
        ),
        (
            report(&server, &task, "history", token),
            Some("read_workflow_task_history"),
        ),
    ] {
        let refusal = call.refused(503, "backend_unavailable").await;
        expect_retryable(&refusal);
        assert_eq!(refusal["operation"].as_str(), operation);
    }
}

#[tokio::test]
async fn a_bug_is_an_internal_error_in_the_workers_envelope() {
    let (server, store) = server().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    store.set(PANICS);
    for call in [
        report(&server, &task, "heartbeat", json!({})),
        report(
            &server,
            &task,
            "history",
            json!({"next_history_page_token": "MA=="}),
        ),
        complete(&server, &task, json!([{"type": "complete_workflow"}])),
        server.worker("w").poll("activity", json!({})),
    ] {
        let body = call.refused(500, "internal_error").await;
        assert!(body["error_id"].is_string(), "the id is in the log too");
    }
    store.set(WORKS);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}
