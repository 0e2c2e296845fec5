//! The life of a question, in the memory of the server that asked or in a document that other servers see: asked, leased to one worker,
//! answered once; or ended when its caller stops waiting. The rules are the same in both places.

use longhaul_protocol::id::{Namespace, TaskId, WorkerId};
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::questions::table::QuestionLimits;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    Query,
    UpdateValidation,
}

/// A worker's right to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionLease {
    pub owner: WorkerId,
    pub attempt: u64,
    pub leased_at: Timestamp,
    pub expires_at: Timestamp,
    pub(crate) poll_request_id: Option<String>,
}

impl QuestionLease {
    /// Returns whether this poll has the lease.
    fn is_of_poll(&self, owner: &WorkerId, poll_request_id: Option<&str>, now: Timestamp) -> bool {
        self.owner == *owner
            && poll_request_id.is_some()
            && self.poll_request_id.as_deref() == poll_request_id
            && now < self.expires_at
    }
}

/// When a question was asked and until when its caller waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QuestionTimes {
    pub admitted_at: Timestamp,
    pub deadline_at: Timestamp,
}

/// The worker that reports on a question.
#[derive(Clone, Debug)]
pub struct QuestionHolder {
    pub namespace: Namespace,
    pub task_id: TaskId,
    pub owner: WorkerId,
    pub attempt: u64,
}

/// The answer of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionAnswer {
    /// The result of a query; an approved update has none.
    Done(Option<QueryResult>),
    Failed(QuestionFailure),
}

/// The result of a query: the copy for people and the authoritative payload, both as the worker sent them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueryResult {
    pub shown: Value,
    pub envelope: Payload,
}

/// Why a worker could not answer, or what its validator found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QuestionFailure {
    pub message: String,
    pub reason: Option<String>,
    pub failure_type: Option<String>,
    pub validation_errors: Map<String, Value>,
}

/// The progress of a question when its time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutStage {
    NotClaimed,
    Executing,
}

impl TimeoutStage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotClaimed => "not_claimed",
            Self::Executing => "executing",
        }
    }
}

/// Why a worker's report on a question is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionRefusal {
    NotFound,
    NotLeased,
    /// It already has a different answer.
    Answered,
    OwnerMismatch,
    AttemptMismatch {
        current: u64,
    },
    LeaseExpired,
    /// The caller no longer waits.
    TimedOut,
}

/// Whether and how a question ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionState {
    Pending,
    Leased(QuestionLease),
    Answered {
        by: QuestionLease,
        is_failure: bool,
        /// Until the caller has it.
        answer: Option<Box<QuestionAnswer>>,
    },
    TimedOut(TimeoutStage),
    WorkerLost,
}

/// How far a question is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) kind: QuestionKind,
    pub(crate) times: QuestionTimes,
    /// The attempt of the newest lease; 0 before the first.
    attempt: u64,
    state: QuestionState,
}

impl Progress {
    /// Returns the progress of a question that was just asked.
    pub(crate) fn new(kind: QuestionKind, times: QuestionTimes) -> Self {
        Self {
            kind,
            times,
            attempt: 0,
            state: QuestionState::Pending,
        }
    }

    pub(crate) fn state(&self) -> &QuestionState {
        &self.state
    }

    /// Returns whether it is leased or may still be leased.
    pub(crate) fn is_open(&self) -> bool {
        matches!(
            self.state,
            QuestionState::Pending | QuestionState::Leased(_)
        )
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.state, QuestionState::Pending)
    }

    /// Returns whether this worker has it.
    pub(crate) fn is_leased_to(&self, worker_id: &WorkerId) -> bool {
        matches!(&self.state, QuestionState::Leased(lease) if lease.owner == *worker_id)
    }

    /// Leases it, or returns the lease that the same poll got before. Returns `None` if it cannot be leased.
    pub(crate) fn lease(
        &mut self,
        owner: &WorkerId,
        poll_request_id: Option<&str>,
        limits: &QuestionLimits,
        now: Timestamp,
    ) -> Option<QuestionLease> {
        if now >= self.times.deadline_at {
            return None;
        }
        match &self.state {
            QuestionState::Leased(lease) if lease.is_of_poll(owner, poll_request_id, now) => {
                Some(lease.clone())
            }
            QuestionState::Pending => {
                self.attempt += 1;
                let lease = QuestionLease {
                    owner: owner.clone(),
                    attempt: self.attempt,
                    leased_at: now,
                    // Never longer than the caller waits: both SDKs refuse such a lease.
                    expires_at: match self.kind {
                        QuestionKind::Query => self.times.deadline_at,
                        QuestionKind::UpdateValidation => now
                            .plus_seconds(limits.validation_lease_seconds)
                            .min(self.times.deadline_at),
                    },
                    poll_request_id: poll_request_id.map(str::to_owned),
                };
                self.state = QuestionState::Leased(lease.clone());
                Some(lease)
            }
            QuestionState::Leased(_)
            | QuestionState::Answered { .. }
            | QuestionState::TimedOut(_)
            | QuestionState::WorkerLost => None,
        }
    }

    /// Accepts a worker's answer; returns true if it repeats the accepted one.
    pub(crate) fn answer(
        &mut self,
        holder: &QuestionHolder,
        answer: QuestionAnswer,
        now: Timestamp,
    ) -> Result<bool, QuestionRefusal> {
        let is_failure = matches!(answer, QuestionAnswer::Failed(_));
        if let QuestionState::Answered {
            by,
            is_failure: was_failure,
            ..
        } = &self.state
        {
            check_holder(by, holder)?;
            return if *was_failure == is_failure {
                Ok(true)
            } else {
                Err(QuestionRefusal::Answered)
            };
        }
        let by = self.lease_of(holder, now)?.clone();
        self.state = QuestionState::Answered {
            by,
            is_failure,
            answer: Some(Box::new(answer)),
        };
        Ok(false)
    }

    /// Returns the present lease, if the holder still has it.
    pub(crate) fn held(
        &self,
        holder: &QuestionHolder,
        now: Timestamp,
    ) -> Result<Held, QuestionRefusal> {
        if let QuestionState::Answered { by, is_failure, .. } = &self.state {
            check_holder(by, holder)?;
            return Ok(Held {
                lease: by.clone(),
                times: self.times,
                status: if *is_failure { "failed" } else { "completed" },
                refusal: Some(QuestionRefusal::NotLeased),
            });
        }
        Ok(Held {
            lease: self.lease_of(holder, now)?.clone(),
            times: self.times,
            status: "leased",
            refusal: None,
        })
    }

    /// Ends the lease of a worker that left: a query goes to the next worker, a validation is lost.
    pub(crate) fn release(&mut self, worker_id: &WorkerId) {
        if self.is_leased_to(worker_id) {
            self.state = match self.kind {
                QuestionKind::Query => QuestionState::Pending,
                QuestionKind::UpdateValidation => QuestionState::WorkerLost,
            };
        }
    }

    /// Ends a question if its time is over: the caller waits no longer, or the worker holds it longer than allowed.
    pub(crate) fn pass_time(&mut self, now: Timestamp) {
        if self.is_open() && now >= self.times.deadline_at {
            self.abandon();
        }
        if let QuestionState::Leased(lease) = &self.state
            && self.kind == QuestionKind::UpdateValidation
            && now >= lease.expires_at
        {
            self.state = QuestionState::WorkerLost;
        }
    }

    /// Ends a question whose caller no longer waits.
    pub(crate) fn abandon(&mut self) {
        match self.state {
            QuestionState::Pending => {
                self.state = QuestionState::TimedOut(TimeoutStage::NotClaimed);
            }
            QuestionState::Leased(_) => {
                self.state = QuestionState::TimedOut(TimeoutStage::Executing);
            }
            QuestionState::Answered { .. }
            | QuestionState::TimedOut(_)
            | QuestionState::WorkerLost => {}
        }
    }

    /// Removes and returns the answer, for the caller.
    pub(crate) fn take_answer(&mut self) -> Option<QuestionAnswer> {
        match &mut self.state {
            QuestionState::Answered { answer, .. } => answer.take().map(|answer| *answer),
            _ => None,
        }
    }

    /// Records what another server decided about an open question.
    pub(crate) fn learn(&mut self, state: QuestionState) {
        if let QuestionState::Leased(lease) | QuestionState::Answered { by: lease, .. } = &state {
            self.attempt = lease.attempt;
        }
        self.state = state;
    }

    /// Ends a question that is kept no longer.
    pub(crate) fn lose(&mut self) {
        self.state = QuestionState::WorkerLost;
    }

    fn lease_of(
        &self,
        holder: &QuestionHolder,
        now: Timestamp,
    ) -> Result<&QuestionLease, QuestionRefusal> {
        match &self.state {
            QuestionState::TimedOut(_) => Err(QuestionRefusal::TimedOut),
            QuestionState::Pending | QuestionState::Leased(_) if now >= self.times.deadline_at => {
                Err(QuestionRefusal::TimedOut)
            }
            QuestionState::WorkerLost => Err(QuestionRefusal::LeaseExpired),
            QuestionState::Pending | QuestionState::Answered { .. } => {
                Err(QuestionRefusal::NotLeased)
            }
            QuestionState::Leased(lease) => {
                check_holder(lease, holder)?;
                if now >= lease.expires_at {
                    return Err(QuestionRefusal::LeaseExpired);
                }
                Ok(lease)
            }
        }
    }
}

/// A question for one worker.
#[derive(Clone, Debug)]
pub struct Held {
    pub lease: QuestionLease,
    pub times: QuestionTimes,
    pub status: &'static str,
    /// Why the worker should stop.
    pub refusal: Option<QuestionRefusal>,
}

fn check_holder(lease: &QuestionLease, holder: &QuestionHolder) -> Result<(), QuestionRefusal> {
    if lease.owner != holder.owner {
        return Err(QuestionRefusal::OwnerMismatch);
    }
    if lease.attempt != holder.attempt {
        return Err(QuestionRefusal::AttemptMismatch {
            current: lease.attempt,
        });
    }
    Ok(())
}
