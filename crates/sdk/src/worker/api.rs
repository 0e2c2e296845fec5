//! The calls of the worker plane, and what their refusals mean to a worker.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Beaten, Delivered, HistoryPage, Polled, Registered, WorkflowTask};
use crate::connection::{Connection, Repeat};
use crate::transport::{Plane, RequestError};
use crate::workflow::merge;

/// Kinds of tasks a worker polls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskQueueKind {
    Workflow,
    Activity,
    Query,
}

impl TaskQueueKind {
    fn resource(self) -> &'static str {
        match self {
            Self::Workflow => "workflow-tasks",
            Self::Activity => "activity-tasks",
            Self::Query => "query-tasks",
        }
    }
}

/// The worker plane of one server, in one worker's name.
#[derive(Clone, Debug)]
pub(super) struct Api {
    pub(super) connection: Connection,
    pub(super) worker_id: String,
}

/// How much longer than the server may hold a poll its answer may take.
const POLL_GRACE: Duration = Duration::from_secs(10);

impl Api {
    async fn post<R: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &Value,
    ) -> Result<R, RequestError> {
        let mut path = vec!["worker"];
        path.extend(segments);
        // Every report of a worker is idempotent.
        self.connection
            .post(Plane::Worker, &path)
            .repeat(Repeat::Freely)
            .json(body)
            .send()
            .await
    }

    pub(super) async fn register(&self, body: &Value) -> Result<Registered, RequestError> {
        self.post(&["register"], body).await
    }

    pub(super) async fn heartbeat(&self, body: &Value) -> Result<Value, RequestError> {
        self.post(&["heartbeat"], body).await
    }

    pub(super) async fn deregister(&self) -> Result<Value, RequestError> {
        self.connection
            .delete(Plane::Worker, &["worker", "registrations", &self.worker_id])
            .repeat(Repeat::Freely)
            .send()
            .await
    }

    pub(super) async fn poll(
        &self,
        kind: TaskQueueKind,
        body: &Value,
        hold: Duration,
    ) -> Result<Polled, RequestError> {
        self.connection
            .post(Plane::Worker, &["worker", kind.resource(), "poll"])
            // The loop around it decides when to poll again.
            .repeat(Repeat::Never)
            .timeout(hold + POLL_GRACE)
            .json(body)
            .send()
            .await
    }

    /// One more page of a task's history.
    pub(super) async fn history(
        &self,
        task: &WorkflowTask,
        token: &str,
        page_size: Option<u64>,
    ) -> Result<HistoryPage, RequestError> {
        let mut body = claim(task);
        body["next_history_page_token"] = json!(token);
        body["accept_history_encoding"] = json!("gzip");
        if let Some(page_size) = page_size {
            body["history_page_size"] = json!(page_size);
        }
        self.post(&["workflow-tasks", &task.task_id, "history"], &body)
            .await
    }

    /// A report about a workflow task.
    pub(super) async fn workflow_task<R: DeserializeOwned>(
        &self,
        task: &WorkflowTask,
        verb: &[&str],
        keys: Value,
    ) -> Result<R, RequestError> {
        let mut body = claim(task);
        merge(&mut body, keys);
        let mut path = vec!["workflow-tasks", task.task_id.as_str()];
        path.extend(verb);
        self.post(&path, &body).await
    }

    pub(super) async fn deliver_cancellation(
        &self,
        task: &WorkflowTask,
        keys: Value,
    ) -> Result<Delivered, RequestError> {
        self.workflow_task(task, &["deliver-cancellation"], keys)
            .await
    }

    pub(super) async fn activity_heartbeat(
        &self,
        task_id: &str,
        body: &Value,
    ) -> Result<Beaten, RequestError> {
        self.post(&["activity-tasks", task_id, "heartbeat"], body)
            .await
    }

    /// A report about an activity, query or validation task.
    pub(super) async fn report(
        &self,
        segments: &[&str],
        body: &Value,
    ) -> Result<Value, RequestError> {
        self.post(segments, body).await
    }

    pub(super) async fn session(
        &self,
        session_id: Option<&str>,
        verb: Option<&str>,
        body: &Value,
    ) -> Result<Value, RequestError> {
        let mut path = vec!["sessions"];
        path.extend(session_id);
        path.extend(verb);
        self.post(&path, body).await
    }

    pub(super) async fn close_session(
        &self,
        session_id: &str,
        body: &Value,
    ) -> Result<Value, RequestError> {
        self.connection
            .delete(Plane::Worker, &["worker", "sessions", session_id])
            .repeat(Repeat::Freely)
            .json(body)
            .send()
            .await
    }
}

/// The keys that say whose claim a report belongs to.
pub(super) fn claim(task: &WorkflowTask) -> Value {
    json!({
        "lease_owner": task.lease_owner,
        "workflow_task_attempt": task.workflow_task_attempt,
    })
}

/// What a refused report means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The run was cancelled or terminated: the task is nobody's any more.
    RunCancelled,
    /// The run is closed, or another worker has the task.
    LeaseLost,
    /// The server did not like what was said.
    Said,
    /// No answer came, or none that can be understood.
    Unknown,
}

pub(super) fn understand(error: &RequestError) -> Refused {
    let Some(refusal) = error.refusal() else {
        return Refused::Unknown;
    };
    let stopped = refusal.body()["cancel_requested"]
        .as_bool()
        .unwrap_or(false);
    match refusal.reason() {
        _ if stopped => Refused::RunCancelled,
        "run_cancelled" | "run_terminated" | "activity_cancelled" | "task_cancelled" => {
            Refused::RunCancelled
        }
        "run_closed"
        | "run_timed_out"
        | "task_not_found"
        | "task_not_leased"
        | "lease_expired"
        | "lease_owner_mismatch"
        | "workflow_task_attempt_mismatch"
        | "attempt_not_found"
        | "stale_attempt"
        | "attempt_closed"
        | "activity_not_running"
        | "task_mismatch"
        | "workflow_claim_not_found"
        | "workflow_claim_mismatch"
        | "workflow_claim_expired"
        | "run_deadline_expired"
        | "stale_worker_registration" => Refused::LeaseLost,
        _ if refusal.status() >= 500 => Refused::Unknown,
        _ => Refused::Said,
    }
}
