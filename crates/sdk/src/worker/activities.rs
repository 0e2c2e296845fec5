//! Processes one activity task: runs the function, sends heartbeats, and reports the outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_protocol::Payload;
use serde_json::{Value, json};

use super::api::{Refused, classify};
use super::sessions::Hold;
use super::shared::Shared;
use super::wire::ActivityTask;
use crate::activity::{ActivityContext, ActivityInfo, HeartbeatReply, HeartbeatSink};
use crate::definition::RunActivity;
use crate::error::Failure;

/// The pause between two renewals of the lease while a function without a heartbeat timeout runs.
const RENEWAL: Duration = Duration::from_secs(60);

/// Processes a task. Errors are reported to the server, logged and counted.
pub(super) async fn process(shared: &Arc<Shared>, task: ActivityTask) {
    let heartbeats = HeartbeatSender {
        shared: shared.clone(),
        task_id: task.task_id.clone(),
        attempt_id: task.activity_attempt_id.clone(),
        lease_owner: task.lease_owner.clone(),
    };
    let session = task
        .worker_session
        .as_ref()
        .filter(|session| {
            session
                .lease_owner
                .as_deref()
                .is_none_or(|owner| owner == task.lease_owner)
        })
        .filter(|session| {
            session
                .status
                .as_deref()
                .is_none_or(|status| status == "active")
        })
        .map(|session| shared.sessions.hold(session, Hold::Continued));
    let context = ActivityContext::new(
        info(shared, &task),
        Box::new(heartbeats),
        session,
        shared.data.clone(),
    );
    let outcome = run(shared, &task, &context).await;
    if context.is_cancelled() {
        shared.counters.activities_cancelled.add();
    }
    report(shared, &task, &outcome).await;
}

fn info(shared: &Arc<Shared>, task: &ActivityTask) -> ActivityInfo {
    ActivityInfo {
        workflow_id: task.workflow_id.clone().unwrap_or_default(),
        run_id: task.run_id.clone().unwrap_or_default(),
        activity_type: task.activity_type.clone(),
        idempotency_key: task.activity_execution_id.clone(),
        task_id: task.task_id.clone(),
        attempt_id: task.activity_attempt_id.clone(),
        attempt_number: task.attempt_number,
        task_queue: task
            .task_queue
            .clone()
            .unwrap_or_else(|| shared.queue.clone()),
        namespace: shared.api.connection.namespace.to_string(),
        deadline: task.deadlines.as_ref().and_then(|deadlines| {
            deadlines
                .start_to_close
                .into_iter()
                .chain(deadlines.schedule_to_close)
                .min()
        }),
        local: false,
    }
}

async fn run(
    shared: &Arc<Shared>,
    task: &ActivityTask,
    context: &ActivityContext,
) -> Result<Payload, Failure> {
    if task.payload_codec != longhaul_protocol::payload::CODEC {
        let problem = format!(
            "payloads have the codec `{}`; this worker reads `avro`",
            task.payload_codec
        );
        return Err(Failure::of_type("UnsupportedCodec", problem).non_retryable());
    }
    let Some(definition) = shared.activities.get(task.activity_type.as_str()) else {
        let problem = format!("this worker has no activity `{}`", task.activity_type);
        return Err(Failure::of_type("UnknownActivityType", problem).non_retryable());
    };
    let arguments = task.arguments.clone().unwrap_or_else(Payload::empty_list);
    let running = call(&definition.run, context.clone(), arguments);
    if task.heartbeat_timeout.is_some() {
        // The function sends its own heartbeats: a heartbeat from here would hide a function that hangs.
        return running.await;
    }
    tokio::pin!(running);
    loop {
        tokio::select! {
            outcome = &mut running => return outcome,
            () = tokio::time::sleep(RENEWAL) => {
                // Renews the lease. The function reads the result from its context.
                let _read_from_context = context.heartbeat().await;
            }
        }
    }
}

/// Runs a function. A panic becomes a failure.
pub(super) async fn call(
    run: &Arc<RunActivity>,
    context: ActivityContext,
    arguments: Payload,
) -> Result<Payload, Failure> {
    let run = run.clone();
    let guarded = AssertUnwindSafe(async move { run(context, arguments).await });
    match guarded.catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => Err(Failure::panicked("the activity", &*panic)),
    }
}

async fn report(shared: &Arc<Shared>, task: &ActivityTask, outcome: &Result<Payload, Failure>) {
    let mut body = json!({
        "activity_attempt_id": task.activity_attempt_id,
        "lease_owner": task.lease_owner,
    });
    let verb = match outcome {
        Ok(result) => {
            shared.counters.activities_completed.add();
            body["result"] = json!(result);
            "complete"
        }
        Err(failure) => {
            shared.counters.activities_failed.add();
            tracing::info!(
                activity_type = task.activity_type,
                workflow_id = task.workflow_id,
                attempt = task.attempt_number,
                %failure,
                "activity attempt failed"
            );
            body["failure"] = failure_body(failure);
            "fail"
        }
    };
    let response = shared
        .api
        .report(&["activity-tasks", &task.task_id, verb], &body)
        .await;
    let Err(error) = response else {
        return;
    };
    match classify(&error) {
        Refused::RunCancelled => {
            shared.counters.runs_cancelled.add();
            tracing::info!(
                task_id = task.task_id,
                "dropped the outcome of a cancelled activity"
            );
        }
        Refused::LeaseLost => {
            shared.counters.leases_lost.add();
            tracing::warn!(task_id = task.task_id, %error, "dropped the outcome of an activity attempt whose lease was lost");
        }
        Refused::Rejected | Refused::Unknown => {
            tracing::error!(task_id = task.task_id, %error, "could not report the outcome of an activity");
        }
    }
}

/// Returns the failure as the protocol writes it.
pub(super) fn failure_body(failure: &Failure) -> Value {
    let mut body = json!({
        "message": failure.message,
        "type": failure.exception_type,
        "non_retryable": failure.non_retryable,
    });
    if let Some(code) = failure.code {
        body["code"] = json!(code);
    }
    if let Some(details) = &failure.details {
        body["details"] = json!(details);
    }
    body
}

/// Sends the heartbeats of an activity to the server.
struct HeartbeatSender {
    shared: Arc<Shared>,
    task_id: String,
    attempt_id: String,
    lease_owner: String,
}

impl HeartbeatSink for HeartbeatSender {
    fn heartbeat(&self, details: Option<Value>) -> BoxFuture<'_, HeartbeatReply> {
        Box::pin(async move {
            let mut body = json!({
                "activity_attempt_id": self.attempt_id,
                "lease_owner": self.lease_owner,
            });
            if let Some(details) = details {
                body["details"] = details;
            }
            match self
                .shared
                .api
                .activity_heartbeat(&self.task_id, &body)
                .await
            {
                Ok(response) if response.can_continue && !response.cancel_requested => {
                    HeartbeatReply::Continue
                }
                Ok(response) => {
                    tracing::info!(
                        task_id = self.task_id,
                        reason = response.reason,
                        "the server asked the activity to stop"
                    );
                    HeartbeatReply::Stop
                }
                Err(error) => match classify(&error) {
                    // The server may be available again before the lease expires.
                    Refused::Unknown => HeartbeatReply::Continue,
                    Refused::RunCancelled | Refused::LeaseLost | Refused::Rejected => {
                        HeartbeatReply::Stop
                    }
                },
            }
        })
    }
}
