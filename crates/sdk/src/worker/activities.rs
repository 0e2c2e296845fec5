//! Runs one activity task: the function, its heartbeats, and the report.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_protocol::Payload;
use serde_json::{Value, json};

use super::api::{Refused, understand};
use super::shared::Shared;
use super::wire::ActivityTask;
use crate::activity::{ActivityContext, ActivityInfo, Beat, Heart};
use crate::definition::RunActivity;
use crate::error::Failure;

/// How long a lease lasts when the server does not say, and the shortest pause between two renewals.
const RENEWAL: Duration = Duration::from_secs(60);

/// Processes a task from beginning to end. Never fails: what goes wrong is reported, logged and counted.
pub(super) async fn process(shared: &Arc<Shared>, task: ActivityTask) {
    let heart = RemoteHeart {
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
        .map(|session| shared.sessions.hold(session, false));
    let context = ActivityContext::new(
        info(shared, &task),
        Box::new(heart),
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
            "payloads of codec `{}`; this worker reads `avro`",
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
        // The author beats: a beat from here would hide a function that hangs.
        return running.await;
    }
    tokio::pin!(running);
    loop {
        tokio::select! {
            outcome = &mut running => return outcome,
            () = tokio::time::sleep(RENEWAL) => {
                // Keeps the lease; a cancelled context is what the function sees of it.
                let _seen_by_the_function = context.heartbeat().await;
            }
        }
    }
}

/// Runs a function with its panics caught.
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
                "an attempt of an activity failed"
            );
            body["failure"] = failure_body(failure);
            "fail"
        }
    };
    let answer = shared
        .api
        .report(&["activity-tasks", &task.task_id, verb], &body)
        .await;
    let Err(error) = answer else {
        return;
    };
    match understand(&error) {
        Refused::RunCancelled => {
            shared.counters.runs_cancelled.add();
            tracing::info!(
                task_id = task.task_id,
                "the activity was cancelled; its outcome is dropped"
            );
        }
        Refused::LeaseLost => {
            shared.counters.leases_lost.add();
            tracing::warn!(task_id = task.task_id, %error, "the attempt is not this worker's any more");
        }
        Refused::Said | Refused::Unknown => {
            tracing::error!(task_id = task.task_id, %error, "the outcome of an activity was not recorded");
        }
    }
}

/// The failure surface that every language of the protocol understands.
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

/// Takes an activity's heartbeats to the server.
struct RemoteHeart {
    shared: Arc<Shared>,
    task_id: String,
    attempt_id: String,
    lease_owner: String,
}

impl Heart for RemoteHeart {
    fn beat(&self, details: Option<Value>) -> BoxFuture<'_, Beat> {
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
                Ok(beaten) if beaten.can_continue && !beaten.cancel_requested => Beat::GoOn,
                Ok(beaten) => {
                    tracing::info!(
                        task_id = self.task_id,
                        reason = beaten.reason,
                        "the activity must stop"
                    );
                    Beat::Stop
                }
                Err(error) => match understand(&error) {
                    // The server may be back before the lease is over.
                    Refused::Unknown => Beat::GoOn,
                    Refused::RunCancelled | Refused::LeaseLost | Refused::Said => Beat::Stop,
                },
            }
        })
    }
}
