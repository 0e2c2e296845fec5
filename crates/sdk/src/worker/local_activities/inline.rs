//! Local activities that the server hears of with the completion (Profile I). Attempts, pauses and timeouts live in this process; the
//! lease of the workflow task is renewed before every attempt, after every heartbeat and in between.

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
use crate::activity::{Beat, Heart};
use crate::error::Failure;
use crate::transport::RequestError;
use crate::workflow::{Execution, FailedLocal, LocalCall, Outcome, ReplayError};

/// The most attempts and heartbeats one call may tell.
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
        // What happens to other calls meanwhile would stand before this story in the history, and behind it in this process.
        if execution.journal().waits_beside_local_calls() {
            return Err(Stopped::Replay(ReplayError::LocalBesideOthers));
        }
        let stories = calls.iter().map(|call| tell(shared, task, call));
        let stories: Vec<Story> = join_all(stories)
            .await
            .into_iter()
            .collect::<Result<_, RequestError>>()
            .map_err(Stopped::LeaseLost)?;
        // In the order of the calls, as the history will have them.
        for (call, story) in calls.iter().zip(stories) {
            let (command, outcome) = story.finish(call);
            execution.resolve_local(call.sequence, command, outcome)?;
        }
    }
}

/// What the author asked for, as the descriptor has it.
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

/// All attempts of one call.
struct Story {
    attempts: Vec<Value>,
    end: End,
}

enum End {
    Completed(Payload),
    Failed(Failure),
    TimedOut(&'static str, String),
}

/// Runs a call to its end. An error means that the lease cannot be trusted any more.
async fn tell(
    shared: &Arc<Shared>,
    task: &WorkflowTask,
    call: &LocalCall,
) -> Result<Story, RequestError> {
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
    let mut beats_left = HEARTBEATS_MAX;
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
        let beats = Arc::new(Beats {
            lease: lease.clone(),
            began,
            timeout: policy.heartbeat_timeout.map(Duration::from_secs),
            told: Mutex::new(Told {
                beats: Vec::new(),
                last: began,
                silent: false,
                left: beats_left,
                too_many: false,
            }),
        });
        let context = attempt.context(shared, task, Box::new(HeartOf(beats.clone())));
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
        let told = beats.end();
        beats_left = told.left;
        let whole_passed = whole.is_some_and(|whole| whole <= Instant::now());
        let end = match ran {
            _ if told.too_many => End::Failed(
                Failure::of_type(
                    "TooManyHeartbeats",
                    "a local activity may tell 1000 heartbeats",
                )
                .non_retryable(),
            ),
            Ran::DeadlinePassed | Ran::Returned(_) if whole_passed => End::TimedOut(
                "schedule_to_close",
                "all attempts together took too long".to_owned(),
            ),
            _ if told.silent => End::TimedOut(
                "heartbeat",
                "the attempt was silent for too long".to_owned(),
            ),
            Ran::DeadlinePassed => {
                End::TimedOut("start_to_close", "the attempt took too long".to_owned())
            }
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
            "heartbeats": told.beats,
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
            return Ok(Story { attempts, end });
        }
        lease.keep(pause).await?;
    }
    unreachable!("a story ends with its last attempt")
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

impl Story {
    /// The command that tells it, and what the code sees of it: the same as a replay of the recorded events would.
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

/// The lease of the workflow task, without which nothing here counts.
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
                "the lease was not renewed".to_owned(),
            ))
        }
    }

    /// Waits with the lease held.
    async fn keep(&self, pause: Duration) -> Result<(), RequestError> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            tokio::time::sleep_until(until.min(Instant::now() + RENEWAL)).await;
            self.renew().await?;
        }
        Ok(())
    }
}

/// The heartbeats of one attempt.
struct Beats {
    lease: Arc<Lease>,
    began: Instant,
    timeout: Option<Duration>,
    told: Mutex<Told>,
}

#[derive(Clone)]
struct Told {
    beats: Vec<Value>,
    last: Instant,
    silent: bool,
    left: usize,
    too_many: bool,
}

impl Beats {
    fn end(&self) -> Told {
        let mut told = self.told.lock();
        self.check_silence(&mut told);
        told.clone()
    }

    fn check_silence(&self, told: &mut Told) {
        let now = Instant::now();
        if self
            .timeout
            .is_some_and(|timeout| now - told.last >= timeout)
        {
            told.silent = true;
        }
        told.last = now;
    }
}

struct HeartOf(Arc<Beats>);

impl Heart for HeartOf {
    fn beat(&self, details: Option<Value>) -> BoxFuture<'_, Beat> {
        Box::pin(async move {
            let beats = &self.0;
            {
                let mut told = beats.told.lock();
                beats.check_silence(&mut told);
                if told.silent {
                    return Beat::Stop;
                }
                if told.left == 0 {
                    told.too_many = true;
                    return Beat::Stop;
                }
                told.left -= 1;
                let elapsed = u64::try_from(beats.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                let mut beat = json!({"elapsed_ms": elapsed});
                if let Some(details) = details {
                    beat["details"] = if details.is_object() {
                        details
                    } else {
                        json!({"details": details})
                    };
                }
                told.beats.push(beat);
            }
            match beats.lease.renew().await {
                Ok(()) => Beat::GoOn,
                Err(error) => {
                    *beats.lease.lost.lock() = Some(error);
                    Beat::Stop
                }
            }
        })
    }
}
