//! The requests of a worker, and the meaning of their refusals.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Delivered, HeartbeatResponse, HistoryPage, Polled, Registered, WorkflowTask};
use crate::connection::{Connection, Repeat};
use crate::transport::{Plane, RequestError};
use crate::workflow::merge;

/// The kinds of tasks that a worker polls for.
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

/// The requests of one worker to one server.
#[derive(Clone, Debug)]
pub(super) struct Api {
    pub(super) connection: Connection,
    pub(super) worker_id: String,
}

/// The time that a poll may take beyond the time for which the server holds it.
const POLL_GRACE: Duration = Duration::from_secs(10);

impl Api {
    async fn post<R: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &Value,
    ) -> Result<R, RequestError> {
        let mut path = vec!["worker"];
        path.extend(segments);
        // Every report of a worker is idempotent, so it may be repeated.
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
            // The poll loop decides when to poll again.
            .repeat(Repeat::Never)
            .timeout(hold + POLL_GRACE)
            .json(body)
            .send()
            .await
    }

    /// Fetches one more page of the history of a task.
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

    /// Sends a report about a workflow task.
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
    ) -> Result<HeartbeatResponse, RequestError> {
        self.post(&["activity-tasks", task_id, "heartbeat"], body)
            .await
    }

    /// Sends a report about an activity, query or validation task.
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

/// Returns the fields that identify the claim of a workflow task in a report.
pub(super) fn claim(task: &WorkflowTask) -> Value {
    json!({
        "lease_owner": task.lease_owner,
        "workflow_task_attempt": task.workflow_task_attempt,
    })
}

/// The meaning of a refused report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The run was cancelled or terminated.
    RunCancelled,
    /// The run is closed, or another worker has the task.
    LeaseLost,
    /// The server refused the content of the report.
    Rejected,
    /// There was no response, or the server failed.
    Unknown,
}

/// Returns the meaning of a refused report.
pub(super) fn classify(error: &RequestError) -> Refused {
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
        _ => Refused::Rejected,
    }
}
