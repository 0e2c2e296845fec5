//! Local activities that are reported with the completion of the workflow task. (The protocol calls this Profile I, "inline".)
//!
//! Attempts, pauses and timeouts exist in this process only. If the worker is lost, the next worker runs the activity again. The
//! lease of the workflow task is renewed before every attempt, after every heartbeat and regularly in between.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use longhaul_protocol::Payload;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api;
use super::super::shared::Shared;
use super::super::wire::WorkflowTask;
use super::super::workflow_tasks::Stopped;
use super::attempt::{Attempt, RENEWAL, Ran};
use crate::activity::{HeartbeatReply, HeartbeatSink};
use crate::error::Failure;
use crate::transport::RequestError;
use crate::workflow::{Execution, FailedLocal, LocalCall, Outcome, ReplayError};

/// The most attempts and heartbeats that the server accepts in the report of one call.
const ATTEMPTS_MAX: u64 = 100;
const HEARTBEATS_MAX: usize = 1000;

pub(super) async fn run(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    execution: &mut Execution,
) -> Result<(), Stopped> {
    loop {
        let calls = execution.journal().open_local_calls();
        if calls.is_empty() {
            return Ok(());
        }
        // Events of other calls would come before this activity in the history, and after it in this process.
        if execution.journal().waits_beside_local_calls() {
            return Err(Stopped::Replay(ReplayError::LocalBesideOthers));
        }
        let runs = calls.iter().map(|call| run_attempts(shared, task, call));
        let runs: Vec<LocalActivityRun> = join_all(runs)
            .await
            .into_iter()
            .collect::<Result<_, RequestError>>()
            .map_err(Stopped::LeaseLost)?;
        // In the order of the calls, as in the history.
        for (call, run) in calls.iter().zip(runs) {
            let (command, outcome) = run.finish(call);
            execution.resolve_local(call.sequence, command, outcome)?;
        }
    }
}

/// The retries and timeouts of a call, from its command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    retry_policy: Retry,
    start_to_close_timeout: Option<u64>,
    schedule_to_close_timeout: Option<u64>,
    heartbeat_timeout: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Retry {
    max_attempts: Option<u64>,
    backoff_seconds: Vec<u64>,
    non_retryable_error_types: Vec<String>,
}

impl Policy {
    fn max_attempts(&self) -> u64 {
        self.retry_policy
            .max_attempts
            .unwrap_or(1)
            .min(ATTEMPTS_MAX)
    }

    fn backoff(&self, attempt: u64) -> u64 {
        let pauses = &self.retry_policy.backoff_seconds;
        let index = usize::try_from(attempt - 1).unwrap_or(usize::MAX);
        pauses.get(index).copied().unwrap_or(0)
    }
}

/// All attempts of one call, and its outcome.
struct LocalActivityRun {
    attempts: Vec<Value>,
    end: End,
}

enum End {
    Completed(Payload),
    Failed(Failure),
    TimedOut(&'static str, String),
}

/// Runs the attempts of a call until one succeeds or no further one is allowed. Fails if the lease could not be renewed.
async fn run_attempts(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    call: &LocalCall,
) -> Result<LocalActivityRun, RequestError> {
    let policy: Policy = serde_json::from_value(call.descriptor.clone()).unwrap_or_default();
    let arguments: Option<Payload> =
        serde_json::from_value(call.descriptor["arguments"].clone()).ok();
    let after =
        |seconds: Option<u64>| seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let whole = after(policy.schedule_to_close_timeout);
    let lease = Arc::new(Lease {
        shared: shared.clone(),
        task_id: task.task_id.clone(),
        claim: api::claim(task),
        lost: Mutex::new(None),
    });
    let mut attempts: Vec<Value> = Vec::new();
    let mut heartbeats_left = HEARTBEATS_MAX;
    for number in 1.. {
        lease.renew().await?;
        let began = Instant::now();
        let own = after(policy.start_to_close_timeout);
        let attempt_id = format!("{:032x}", rand::random::<u128>());
        let attempt = Attempt {
            activity_type: call.activity_type.clone(),
            arguments: arguments.clone().unwrap_or_else(Payload::empty_list),
            idempotency_key: format!("{}:{}", task.run_id, call.sequence),
            attempt_id: attempt_id.clone(),
            attempt_number: number,
            deadline: own.into_iter().chain(whole).min(),
        };
        let heartbeats = Arc::new(AttemptHeartbeats {
            lease: lease.clone(),
            began,
            timeout: policy.heartbeat_timeout.map(Duration::from_secs),
            recorded: Mutex::new(RecordedHeartbeats {
                heartbeats: Vec::new(),
                last: began,
                timed_out: false,
                left: heartbeats_left,
                too_many: false,
            }),
        });
        let context = attempt.context(
            shared,
            task,
            Box::new(HeartbeatRecorder(heartbeats.clone())),
        );
        let running = attempt.run(shared, context.clone());
        tokio::pin!(running);
        let ran = loop {
            tokio::select! {
                ran = &mut running => break ran,
                () = tokio::time::sleep(RENEWAL) => lease.renew().await?,
            }
        };
        if let Some(lost) = lease.lost.lock().take() {
            return Err(lost);
        }
        let recorded = heartbeats.end();
        heartbeats_left = recorded.left;
        let whole_passed = whole.is_some_and(|whole| whole <= Instant::now());
        let end = match ran {
            _ if recorded.too_many => End::Failed(
                Failure::of_type(
                    "TooManyHeartbeats",
                    "a local activity may send at most 1000 heartbeats",
                )
                .non_retryable(),
            ),
            Ran::DeadlinePassed | Ran::Returned(_) if whole_passed => End::TimedOut(
                "schedule_to_close",
                "all attempts together exceeded schedule_to_close".to_owned(),
            ),
            _ if recorded.timed_out => End::TimedOut(
                "heartbeat",
                "the attempt sent no heartbeat in time".to_owned(),
            ),
            Ran::DeadlinePassed => End::TimedOut(
                "start_to_close",
                "the attempt exceeded start_to_close".to_owned(),
            ),
            Ran::Returned(Ok(result)) => End::Completed(result),
            Ran::Returned(Err(failure)) => End::Failed(failure),
        };
        let pause = Duration::from_secs(policy.backoff(number));
        let again = number < policy.max_attempts()
            && whole.is_none_or(|whole| Instant::now() + pause < whole)
            && match &end {
                End::Completed(_) => false,
                End::TimedOut(kind, _) => *kind != "schedule_to_close",
                End::Failed(failure) => {
                    !failure.is_non_retryable()
                        && !policy
                            .retry_policy
                            .non_retryable_error_types
                            .iter()
                            .any(|listed| listed == failure.exception_type())
                }
            };
        let mut report = json!({
            "attempt_id": attempt_id,
            "attempt_number": number,
            "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "heartbeats": recorded.heartbeats,
        });
        end.describe(&mut report);
        if again {
            report["retry_reason"] = json!(if matches!(end, End::TimedOut(..)) {
                "timeout"
            } else {
                "failure"
            });
            report["backoff_seconds"] = json!(pause.as_secs());
        }
        attempts.push(report);
        if !again {
            return Ok(LocalActivityRun { attempts, end });
        }
        lease.keep(pause).await?;
    }
    unreachable!("the loop returns after the last attempt")
}

impl End {
    fn describe(&self, report: &mut Value) {
        match self {
            Self::Completed(_) => report["outcome"] = json!("completed"),
            Self::Failed(failure) => {
                report["outcome"] = json!("failed");
                report["message"] = json!(failure.message());
                report["exception_type"] = json!(failure.exception_type());
                report["non_retryable"] = json!(failure.is_non_retryable());
            }
            Self::TimedOut(kind, message) => {
                report["outcome"] = json!("timed_out");
                report["message"] = json!(message);
                report["timeout_kind"] = json!(kind);
            }
        }
    }
}

impl LocalActivityRun {
    /// Returns the command that reports the attempts, and the outcome that a replay of the recorded events will have.
    fn finish(self, call: &LocalCall) -> (Value, Outcome) {
        let mut command = call.descriptor.clone();
        self.end.describe(&mut command);
        let attempt = self.attempts.len() as u64;
        command["attempts"] = json!(self.attempts);
        let outcome = match self.end {
            End::Completed(result) => {
                command["result"] = json!(result);
                Outcome::Completed(Some(result))
            }
            End::Failed(failure) => Outcome::failed_local(FailedLocal {
                message: failure.message().trim().to_owned(),
                exception_type: Some(failure.exception_type().to_owned()),
                non_retryable: failure.is_non_retryable(),
                timeout_kind: None,
                attempt,
            }),
            End::TimedOut(kind, message) => Outcome::failed_local(FailedLocal {
                message,
                exception_type: None,
                non_retryable: false,
                timeout_kind: Some(kind),
                attempt,
            }),
        };
        (command, outcome)
    }
}

/// The lease of the workflow task.
struct Lease {
    shared: Arc<Shared>,
    task_id: String,
    claim: Value,
    lost: Mutex<Option<RequestError>>,
}

impl Lease {
    async fn renew(&self) -> Result<(), RequestError> {
        let path = ["workflow-tasks", &self.task_id, "heartbeat"];
        let answer = self.shared.api.report(&path, &self.claim).await?;
        if answer["renewed"].as_bool() == Some(true) {
            Ok(())
        } else {
            Err(RequestError::Malformed(
                "the server did not renew the lease".to_owned(),
            ))
        }
    }

    /// Waits for the pause and renews the lease.
    async fn keep(&self, pause: Duration) -> Result<(), RequestError> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            tokio::time::sleep_until(until.min(Instant::now() + RENEWAL)).await;
            self.renew().await?;
        }
        Ok(())
    }
}

/// The heartbeats of one attempt, and their timeout.
struct AttemptHeartbeats {
    lease: Arc<Lease>,
    began: Instant,
    timeout: Option<Duration>,
    recorded: Mutex<RecordedHeartbeats>,
}

#[derive(Clone)]
struct RecordedHeartbeats {
    heartbeats: Vec<Value>,
    last: Instant,
    timed_out: bool,
    left: usize,
    too_many: bool,
}

impl AttemptHeartbeats {
    fn end(&self) -> RecordedHeartbeats {
        let mut recorded = self.recorded.lock();
        self.check_heartbeat_timeout(&mut recorded);
        recorded.clone()
    }

    fn check_heartbeat_timeout(&self, recorded: &mut RecordedHeartbeats) {
        let now = Instant::now();
        if self
            .timeout
            .is_some_and(|timeout| now - recorded.last >= timeout)
        {
            recorded.timed_out = true;
        }
        recorded.last = now;
    }
}

/// Records the heartbeats of an attempt, and renews the lease with each.
struct HeartbeatRecorder(Arc<AttemptHeartbeats>);

impl HeartbeatSink for HeartbeatRecorder {
    fn heartbeat(&self, details: Option<Value>) -> BoxFuture<'_, HeartbeatReply> {
        Box::pin(async move {
            let attempt = &self.0;
            {
                let mut recorded = attempt.recorded.lock();
                attempt.check_heartbeat_timeout(&mut recorded);
                if recorded.timed_out {
                    return HeartbeatReply::Stop;
                }
                if recorded.left == 0 {
                    recorded.too_many = true;
                    return HeartbeatReply::Stop;
                }
                recorded.left -= 1;
                let elapsed =
                    u64::try_from(attempt.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let mut heartbeat = json!({"elapsed_ms": elapsed});
                if let Some(details) = details {
                    heartbeat["details"] = if details.is_object() {
                        details
                    } else {
                        json!({"details": details})
                    };
                }
                recorded.heartbeats.push(heartbeat);
            }
            match attempt.lease.renew().await {
                Ok(()) => HeartbeatReply::Continue,
                Err(error) => {
                    *attempt.lease.lost.lock() = Some(error);
                    HeartbeatReply::Stop
                }
            }
        })
    }
}
