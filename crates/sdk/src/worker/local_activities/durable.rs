//! Local activities whose attempts are recorded as they happen. (The protocol calls this Profile D, "durable".)
//!
//! A lost worker leaves a record of the attempt that it began. An outcome is reported first, and the code continues when the
//! history has it, because the order of events in the history decides what the code sees.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use longhaul_protocol::{Payload, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api;
use super::super::shared::Shared;
use super::super::wire::{CancellationRequest, HistoryPage, WorkflowTask};
use super::super::workflow_tasks::{Stopped, refresh};
use super::attempt::{Attempt, RENEWAL, Ran};
use crate::activity::{HeartbeatReply, HeartbeatSink};
use crate::error::Failure;
use crate::transport::RequestError;
use crate::workflow::{Execution, HistoryEvent, LocalCall, LocalPhase, ReplayError};

/// The server decides by its own clock whether a deadline has passed. The function is dropped a little later here, so that it
/// has passed there.
const AFTER_THE_DEADLINE: Duration = Duration::from_millis(50);

pub(super) async fn run(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    execution: &mut Execution,
) -> Result<(), Stopped> {
    let mut runner = Runner {
        claim: Claim { shared, task },
        running: FuturesUnordered::new(),
        in_flight: HashSet::new(),
        failed: Vec::new(),
    };
    loop {
        runner.begin_calls(execution).await?;
        let ended = match runner.running.next().await {
            Some(ended) if ended.may_be_retried() && !runner.running.is_empty() => {
                // A retry ends this claim, and with it every attempt that runs under it. So it is reported last.
                runner.failed.push(ended);
                continue;
            }
            Some(ended) => ended,
            None => match runner.failed.pop() {
                Some(failed) => failed,
                None => return Ok(()),
            },
        };
        runner.report(execution, ended).await?;
    }
}

struct Runner<'a> {
    claim: Claim<'a>,
    running: FuturesUnordered<BoxFuture<'static, Ended>>,
    in_flight: HashSet<u64>,
    /// Attempts that failed and are not reported yet.
    failed: Vec<Ended>,
}

/// An attempt that has ended.
struct Ended {
    sequence: u64,
    attempt_id: String,
    ran: Ran,
    /// The server refused a request for this attempt: the lease is lost.
    lost: Option<RequestError>,
    /// The cancellation of the workflow was requested.
    stopped: bool,
}

impl Ended {
    /// Returns whether a retry may follow.
    fn may_be_retried(&self) -> bool {
        self.lost.is_none()
            && !self.stopped
            && match &self.ran {
                Ran::Returned(Ok(_)) => false,
                Ran::Returned(Err(failure)) => !failure.is_non_retryable(),
                Ran::DeadlinePassed => true,
            }
    }
}

/// The response to `checkpoint`.
#[derive(Debug, Deserialize)]
struct Checkpointed {
    #[serde(default)]
    history_events: Option<Vec<HistoryEvent>>,
    #[serde(default)]
    next_history_page_token: Option<String>,
}

/// The response to `prepare`.
#[derive(Debug, Deserialize)]
struct Prepared {
    #[serde(default)]
    history_events: Option<Vec<HistoryEvent>>,
    #[serde(default)]
    next_history_page_token: Option<String>,
    activity_execution_id: String,
    activity_attempt_id: String,
    attempt_number: u64,
    server_time: Timestamp,
    start_to_close_deadline_at: Option<Timestamp>,
    schedule_to_close_deadline_at: Option<Timestamp>,
}

/// The response to `outcome` and `recover`.
#[derive(Debug, Deserialize)]
struct OutcomeResponse {
    claim_released: bool,
    #[serde(default)]
    history_events: Option<Vec<HistoryEvent>>,
    #[serde(default)]
    next_history_page_token: Option<String>,
}

/// The response to `control` and `heartbeat`.
#[derive(Debug, Deserialize)]
struct LeaseRenewal {
    stop_required: bool,
}

impl Runner<'_> {
    /// Begins every call that may begin under this claim, in the order in which the code made them.
    async fn begin_calls(&mut self, execution: &mut Execution) -> Result<(), Stopped> {
        for call in execution.journal().open_local_calls() {
            if self.in_flight.contains(&call.sequence) {
                continue;
            }
            match &call.phase {
                LocalPhase::New => {
                    self.claim.checkpoint(execution, call.sequence).await?;
                    self.prepare(execution, call).await?;
                }
                LocalPhase::Retrying { task_id }
                    if task_id.as_deref() == Some(&self.claim.task.task_id) =>
                {
                    self.prepare(execution, call).await?;
                }
                // The pause has not ended. Another workflow task will begin the attempt.
                LocalPhase::Retrying { .. } => {}
                LocalPhase::Started => self.recover(execution, &call).await?,
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, execution: &mut Execution, call: LocalCall) -> Result<(), Stopped> {
        let keys = json!({
            "sequence": call.sequence,
            "worker_attempt_id": format!("{:032x}", rand::random::<u128>()),
            "descriptor": call.descriptor,
            "history_after": execution.applied(),
        });
        let mut prepared: Prepared = match self.claim.call(&["prepare"], keys).await {
            Ok(prepared) => prepared,
            Err(error) => return self.not_prepared(execution, &call, error).await,
        };
        let news = (
            prepared.history_events.take(),
            prepared.next_history_page_token.take(),
        );
        self.claim.catch_up(execution, news).await?;
        let arguments: Option<Payload> =
            serde_json::from_value(call.descriptor["arguments"].clone()).ok();
        let deadline = [
            prepared.start_to_close_deadline_at,
            prepared.schedule_to_close_deadline_at,
        ];
        let attempt = Attempt {
            activity_type: call.activity_type,
            arguments: arguments.unwrap_or_else(Payload::empty_list),
            idempotency_key: prepared.activity_execution_id,
            attempt_id: prepared.activity_attempt_id,
            attempt_number: prepared.attempt_number,
            deadline: deadline.into_iter().flatten().min().map(|deadline| {
                let left = prepared.server_time.micros_until(deadline);
                Instant::now() + Duration::from_micros(left) + AFTER_THE_DEADLINE
            }),
        };
        self.in_flight.insert(call.sequence);
        let lease = Arc::new(AttemptLease {
            shared: self.claim.shared.clone(),
            path: self.claim.path(&[&attempt.attempt_id]),
            claim: api::claim(self.claim.task),
            stopped: AtomicBool::new(false),
            lost: Mutex::new(None),
        });
        let context = attempt.context(
            self.claim.shared,
            self.claim.task,
            Box::new(Heartbeats(lease.clone())),
        );
        let (shared, sequence) = (self.claim.shared.clone(), call.sequence);
        self.running.push(Box::pin(async move {
            let attempt_id = attempt.attempt_id.clone();
            let running = attempt.run(&shared, context.clone());
            tokio::pin!(running);
            let ran = loop {
                tokio::select! {
                    ran = &mut running => break ran,
                    () = tokio::time::sleep(RENEWAL) => {
                        if lease.renew().await == HeartbeatReply::Stop {
                            context.cancel();
                        }
                    }
                }
            };
            Ended {
                sequence,
                attempt_id,
                ran,
                lost: lease.lost.lock().take(),
                stopped: lease.stopped.load(Ordering::Relaxed),
            }
        }));
        Ok(())
    }

    /// Handles a refused `prepare`.
    async fn not_prepared(
        &mut self,
        execution: &mut Execution,
        call: &LocalCall,
        error: RequestError,
    ) -> Result<(), Stopped> {
        match error.refusal().map_or("", |refusal| refusal.reason()) {
            // The server has released the task and dispatches it again when the attempt is due.
            "local_activity_retry_not_due" | "local_activity_deadline_expired" => {
                Err(Stopped::Released)
            }
            "cancellation_requested" => self.claim.deliver(execution, call.sequence).await,
            _ => Err(error.into()),
        }
    }

    /// Recovers an attempt that began under an earlier claim and has no recorded outcome.
    async fn recover(
        &mut self,
        execution: &mut Execution,
        call: &LocalCall,
    ) -> Result<(), Stopped> {
        let keys = json!({
            "sequence": call.sequence,
            "descriptor": call.descriptor,
            "history_after": execution.applied(),
        });
        match self.claim.call::<OutcomeResponse>(&["recover"], keys).await {
            Ok(response) => self.claim.apply_outcome(execution, response).await,
            Err(error) => match error.refusal().map_or("", |refusal| refusal.reason()) {
                // It may still run. The server dispatches the task again later.
                "local_activity_previous_attempt_live" => {
                    Err(Stopped::Replay(ReplayError::Refused {
                        problem: error.to_string(),
                    }))
                }
                "cancellation_requested" => self.claim.deliver(execution, call.sequence).await,
                _ => Err(error.into()),
            },
        }
    }

    async fn report(&mut self, execution: &mut Execution, ended: Ended) -> Result<(), Stopped> {
        if let Some(lost) = ended.lost {
            return Err(Stopped::LeaseLost(lost));
        }
        if ended.stopped {
            self.in_flight.remove(&ended.sequence);
            return self.claim.deliver(execution, ended.sequence).await;
        }
        let report = match &ended.ran {
            Ran::Returned(Ok(result)) => {
                json!({"outcome": "completed", "result": result, "payload_codec": "avro"})
            }
            Ran::Returned(Err(failure)) => failed(failure),
            Ran::DeadlinePassed => failed(&Failure::of_type(
                "LocalActivityTimedOut",
                "the attempt was stopped at its deadline",
            )),
        };
        let keys = json!({"report": report, "history_after": execution.applied()});
        match self
            .claim
            .call::<OutcomeResponse>(&[&ended.attempt_id, "outcome"], keys)
            .await
        {
            Ok(response) => {
                self.in_flight.remove(&ended.sequence);
                self.claim.apply_outcome(execution, response).await
            }
            Err(error) => match error.refusal().map_or("", |refusal| refusal.reason()) {
                "cancellation_requested" => {
                    self.in_flight.remove(&ended.sequence);
                    self.claim.deliver(execution, ended.sequence).await
                }
                _ => Err(error.into()),
            },
        }
    }
}

/// A claim on a workflow task, and the requests made under it.
#[derive(Clone, Copy)]
struct Claim<'a> {
    shared: &'a Arc<Shared>,
    task: &'a WorkflowTask,
}

impl Claim<'_> {
    /// Records the calls that the code made before a local activity, and its open waits.
    async fn checkpoint(&self, execution: &mut Execution, sequence: u64) -> Result<(), Stopped> {
        let (start, commands) = execution.journal().checkpoint_before(sequence);
        if commands.is_empty() {
            return Ok(());
        }
        let keys = json!({
            "checkpoint_id": format!("{}:{}:{sequence}", self.task.task_id, self.task.workflow_task_attempt),
            "start_sequence": start,
            "commands": commands,
            "history_after": execution.applied(),
        });
        let recorded: Checkpointed = self.call(&["checkpoint"], keys).await?;
        let new = (recorded.history_events, recorded.next_history_page_token);
        self.catch_up(execution, new).await
    }

    /// Replays the events that an outcome or recovery recorded. Stops if the claim was released.
    async fn apply_outcome(
        &self,
        execution: &mut Execution,
        response: OutcomeResponse,
    ) -> Result<(), Stopped> {
        if response.claim_released {
            return Err(Stopped::Released);
        }
        let news = (response.history_events, response.next_history_page_token);
        self.catch_up(execution, news).await
    }

    /// Delivers a cancellation request to the code at an open local activity.
    async fn deliver(&self, execution: &mut Execution, sequence: u64) -> Result<(), Stopped> {
        #[derive(Deserialize)]
        struct Renewed {
            cancellation_request: Option<CancellationRequest>,
        }
        let renewed: Renewed = self
            .shared
            .api
            .workflow_task(self.task, &["heartbeat"], json!({}))
            .await?;
        let Some(request) = renewed.cancellation_request else {
            return Err(Stopped::Released);
        };
        let delivered = self
            .shared
            .api
            .deliver_cancellation(
                self.task,
                json!({
                    "request_id": request.request_id,
                    "sequence": sequence,
                    "call_kind": "local_activity",
                    "sequence_span": 1,
                }),
            )
            .await?;
        if !delivered.delivered {
            return Err(Stopped::Released);
        }
        self.catch_up(execution, (None, None)).await
    }

    /// Replays new events: those of the response, or fetched ones.
    async fn catch_up(
        &self,
        execution: &mut Execution,
        (events, token): (Option<Vec<HistoryEvent>>, Option<String>),
    ) -> Result<(), Stopped> {
        if let (Some(events), None) = (&events, &token) {
            return Ok(execution.apply(events)?);
        }
        let from = HistoryPage::rest_after(execution.applied());
        refresh(
            self.shared,
            self.task,
            execution,
            from.next_history_page_token,
        )
        .await
    }

    fn path(&self, rest: &[&str]) -> Vec<String> {
        let before = ["workflow-tasks", &self.task.task_id, "local-activities"];
        before
            .iter()
            .chain(rest)
            .map(|segment| (*segment).to_owned())
            .collect()
    }

    async fn call<R: serde::de::DeserializeOwned>(
        &self,
        rest: &[&str],
        keys: Value,
    ) -> Result<R, RequestError> {
        let mut verb = vec!["local-activities"];
        verb.extend(rest);
        self.shared.api.workflow_task(self.task, &verb, keys).await
    }
}

fn failed(failure: &Failure) -> Value {
    json!({
        "outcome": "failed",
        "message": failure.message(),
        "exception_type": failure.exception_type(),
        "non_retryable": failure.is_non_retryable(),
    })
}

/// The lease of an attempt. Renews it and sends heartbeats.
struct AttemptLease {
    shared: Arc<Shared>,
    path: Vec<String>,
    claim: Value,
    stopped: AtomicBool,
    lost: Mutex<Option<RequestError>>,
}

impl AttemptLease {
    async fn renew(&self) -> HeartbeatReply {
        self.send("control", "renew_lease", json!(true)).await
    }

    async fn send(&self, verb: &str, key: &str, value: Value) -> HeartbeatReply {
        let mut body = self.claim.clone();
        body[key] = value;
        let mut path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        path.push(verb);
        let answer = self.shared.api.report(&path, &body).await;
        let lease = answer.and_then(|answer| {
            serde_json::from_value::<LeaseRenewal>(answer)
                .map_err(|error| RequestError::Malformed(error.to_string()))
        });
        match lease {
            Ok(lease) if !lease.stop_required => HeartbeatReply::Continue,
            Ok(_) => {
                self.stopped.store(true, Ordering::Relaxed);
                HeartbeatReply::Stop
            }
            Err(error) => {
                // Without a confirmed lease the function must stop, and its outcome is not reported.
                *self.lost.lock() = Some(error);
                HeartbeatReply::Stop
            }
        }
    }
}

/// Sends the heartbeats of an attempt.
struct Heartbeats(Arc<AttemptLease>);

impl HeartbeatSink for Heartbeats {
    fn heartbeat(&self, details: Option<Value>) -> BoxFuture<'_, HeartbeatReply> {
        let progress = details.map_or_else(|| json!({}), |details| json!({"details": details}));
        Box::pin(async move { self.0.send("heartbeat", "progress", progress).await })
    }
}
