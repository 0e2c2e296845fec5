//! Local activities whose attempts are written down as they happen (Profile D).
//!
//! The order of events in the history decides what the code sees, here as everywhere: an outcome is reported first, and the code
//! goes on when the history has it.

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
use crate::activity::{Beat, Heart};
use crate::error::Failure;
use crate::transport::RequestError;
use crate::workflow::{Execution, HistoryEvent, LocalCall, LocalPhase, ReplayError};

/// The server's clock decides whether a deadline has passed; a function is dropped a little later here, so that it has there.
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
        runner.begin_what_can(execution).await?;
        let ended = match runner.running.next().await {
            Some(ended) if ended.may_be_tried_again() && !runner.running.is_empty() => {
                // Another attempt ends this claim, and with it everything that runs under it: that waits until nothing does.
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

/// An attempt that is over.
struct Ended {
    sequence: u64,
    attempt_id: String,
    ran: Ran,
    /// The server refused a call for this attempt: it is not this worker's any more.
    lost: Option<RequestError>,
    /// The workflow was asked to end.
    stopped: bool,
}

impl Ended {
    fn may_be_tried_again(&self) -> bool {
        self.lost.is_none()
            && !self.stopped
            && match &self.ran {
                Ran::Returned(Ok(_)) => false,
                Ran::Returned(Err(failure)) => !failure.is_non_retryable(),
                Ran::DeadlinePassed => true,
            }
    }
}

/// The answer to `checkpoint`.
#[derive(Debug, Deserialize)]
struct Checkpointed {
    #[serde(default)]
    history_events: Option<Vec<HistoryEvent>>,
    #[serde(default)]
    next_history_page_token: Option<String>,
}

/// The answer to `prepare`.
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

/// The answer to `outcome` and `recover`.
#[derive(Debug, Deserialize)]
struct Settled {
    claim_released: bool,
    #[serde(default)]
    history_events: Option<Vec<HistoryEvent>>,
    #[serde(default)]
    next_history_page_token: Option<String>,
}

/// The answer to `control` and `heartbeat`.
#[derive(Debug, Deserialize)]
struct Pulse {
    stop_required: bool,
}

impl Runner<'_> {
    /// Begins every call that this claim may begin, in the order the code made them.
    async fn begin_what_can(&mut self, execution: &mut Execution) -> Result<(), Stopped> {
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
                // The pause is not over, and another task will tell when it is.
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
        let pulse = Arc::new(PulseTaker {
            shared: self.claim.shared.clone(),
            path: self.claim.path(&[&attempt.attempt_id]),
            claim: api::claim(self.claim.task),
            stopped: AtomicBool::new(false),
            lost: Mutex::new(None),
        });
        let context = attempt.context(
            self.claim.shared,
            self.claim.task,
            Box::new(Heartbeats(pulse.clone())),
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
                        if pulse.renew().await == Beat::Stop {
                            context.cancel();
                        }
                    }
                }
            };
            Ended {
                sequence,
                attempt_id,
                ran,
                lost: pulse.lost.lock().take(),
                stopped: pulse.stopped.load(Ordering::Relaxed),
            }
        }));
        Ok(())
    }

    /// An attempt could not begin.
    async fn not_prepared(
        &mut self,
        execution: &mut Execution,
        call: &LocalCall,
        error: RequestError,
    ) -> Result<(), Stopped> {
        match error.refusal().map_or("", |refusal| refusal.reason()) {
            // The server has taken the task back and will give it out when there is something to do.
            "local_activity_retry_not_due" | "local_activity_deadline_expired" => {
                Err(Stopped::Released)
            }
            "cancellation_requested" => self.claim.deliver(execution, call.sequence).await,
            _ => Err(error.into()),
        }
    }

    /// An attempt began under an earlier claim and nobody knows how it ended.
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
        match self.claim.call::<Settled>(&["recover"], keys).await {
            Ok(settled) => self.claim.settled(execution, settled).await,
            Err(error) => match error.refusal().map_or("", |refusal| refusal.reason()) {
                // It may still be running: look again later.
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
            .call::<Settled>(&[&ended.attempt_id, "outcome"], keys)
            .await
        {
            Ok(settled) => {
                self.in_flight.remove(&ended.sequence);
                self.claim.settled(execution, settled).await
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

/// A claim on a workflow task, and the calls made under it.
#[derive(Clone, Copy)]
struct Claim<'a> {
    shared: &'a Arc<Shared>,
    task: &'a WorkflowTask,
}

impl Claim<'_> {
    /// Records the calls made before a local one, so that its number is known; beside them the waits that are still open.
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
        let told: Checkpointed = self.call(&["checkpoint"], keys).await?;
        let news = (told.history_events, told.next_history_page_token);
        self.catch_up(execution, news).await
    }

    async fn settled(&self, execution: &mut Execution, settled: Settled) -> Result<(), Stopped> {
        if settled.claim_released {
            return Err(Stopped::Released);
        }
        let news = (settled.history_events, settled.next_history_page_token);
        self.catch_up(execution, news).await
    }

    /// The workflow was asked to end while a local call was open: it hears of it there.
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

    /// Lets the code see what the history has gained: what came with an answer, and what must be asked for.
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

/// Renews the lease of an attempt, and takes its heartbeats to the server.
struct PulseTaker {
    shared: Arc<Shared>,
    path: Vec<String>,
    claim: Value,
    stopped: AtomicBool,
    lost: Mutex<Option<RequestError>>,
}

impl PulseTaker {
    async fn renew(&self) -> Beat {
        self.send("control", "renew_lease", json!(true)).await
    }

    async fn send(&self, verb: &str, key: &str, value: Value) -> Beat {
        let mut body = self.claim.clone();
        body[key] = value;
        let mut path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        path.push(verb);
        let answer = self.shared.api.report(&path, &body).await;
        let pulse = answer.and_then(|answer| {
            serde_json::from_value::<Pulse>(answer)
                .map_err(|error| RequestError::Malformed(error.to_string()))
        });
        match pulse {
            Ok(pulse) if !pulse.stop_required => Beat::GoOn,
            Ok(_) => {
                self.stopped.store(true, Ordering::Relaxed);
                Beat::Stop
            }
            Err(error) => {
                // A lease that cannot be confirmed is no lease: the function stops, and nothing is reported.
                *self.lost.lock() = Some(error);
                Beat::Stop
            }
        }
    }
}

struct Heartbeats(Arc<PulseTaker>);

impl Heart for Heartbeats {
    fn beat(&self, details: Option<Value>) -> BoxFuture<'_, Beat> {
        let progress = details.map_or_else(|| json!({}), |details| json!({"details": details}));
        Box::pin(async move { self.0.send("heartbeat", "progress", progress).await })
    }
}
