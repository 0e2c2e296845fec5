//! Whether a worker may still report on an attempt of an activity. Complete, fail, heartbeat, status and the acknowledgement of a
//! stop begin here.
//!
//! Lease expiry alone does not close an attempt: until the next claim its worker may still report. The fence therefore checks
//! attempts first, and the owner last, because a published worker stops on an owner mismatch.

use longhaul_protocol::id::{ActivityAttemptId, Namespace, TaskId, WorkerId};

use crate::change::{
    ActivityEnd, ActivityOutcome, ActivityReported, ClosedTask, StoredReply, TaskOutcome,
    TaskReply, TaskRow, Verb,
};
use crate::rejection::RunClosed;
use crate::run::draft::Draft;
use crate::run::state::{Activity, Attempt, Part, Run};
use crate::{Decision, Moment, Rejection};

/// The attempt that a worker reports on, as the worker names it.
#[derive(Clone, Debug)]
pub struct AttemptIdentity {
    pub namespace: Namespace,
    pub task_id: TaskId,
    pub attempt_id: ActivityAttemptId,
    pub owner: WorkerId,
    /// The authenticated caller, as JSON text. It is recorded with the events and rows of the report.
    pub principal: Option<String>,
}

/// The worker that reports on an attempt, and the task's row. The row has the stored reply of a finished task.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub named: AttemptIdentity,
    pub row: Box<TaskRow>,
}

/// Why a worker may not report on an attempt.
#[derive(Clone, Debug)]
pub(crate) enum FenceRefusal {
    AttemptNotFound,
    TaskMismatch,
    OwnerMismatch { owner: WorkerId },
    StaleAttempt,
    AttemptClosed,
    ActivityCancelled,
    RunClosed(Box<RunClosed>),
}

impl From<FenceRefusal> for Rejection {
    fn from(refusal: FenceRefusal) -> Self {
        match refusal {
            FenceRefusal::AttemptNotFound => Self::AttemptNotFound,
            FenceRefusal::TaskMismatch => Self::TaskMismatch,
            FenceRefusal::OwnerMismatch { owner } => Self::LeaseOwnerMismatch { owner },
            FenceRefusal::StaleAttempt => Self::StaleAttempt,
            FenceRefusal::AttemptClosed => Self::AttemptClosed,
            FenceRefusal::ActivityCancelled => Self::ActivityCancelled,
            FenceRefusal::RunClosed(closed) => Self::RunClosed(closed),
        }
    }
}

/// The activity and the attempt that the caller runs.
type Current<'a> = (&'a Activity, &'a Attempt);

impl Reporter {
    /// Returns the current attempt, if the caller runs it. The protocol fixes the order of the checks: attempt, run, owner.
    pub(crate) fn current<'a>(&self, run: &'a Run) -> Result<Current<'a>, FenceRefusal> {
        let activity = run.activity(self.row.sequence);
        let open = activity.filter(|activity| activity.task_id == self.row.task_id);
        let current = open.and_then(|activity| {
            let attempt = activity.attempt.as_ref()?;
            (attempt.id == self.named.attempt_id).then_some((activity, attempt))
        });
        let Some((activity, attempt)) = current else {
            let past = self.past_attempt(run, activity)?;
            return Err(self.closed_run(run).unwrap_or(past));
        };
        if let Some(refusal) = self.closed_run(run) {
            return Err(refusal);
        }
        if attempt.owner != self.named.owner {
            return Err(FenceRefusal::OwnerMismatch {
                owner: attempt.owner.clone(),
            });
        }
        Ok((activity, attempt))
    }

    fn closed_run(&self, run: &Run) -> Option<FenceRefusal> {
        let closed = run.core.closed.as_ref()?;
        Some(FenceRefusal::RunClosed(Box::new(RunClosed {
            status: run.core.status,
            closed: closed.clone(),
            task_status: self.row.status,
            lease_owner: self.row.lease_owner.clone(),
            lease_expires_at: self.row.lease_expires_at,
        })))
    }

    /// Returns the stored reply to the same report.
    fn stored(&self, verb: Verb) -> Option<&StoredReply> {
        let closed = self.closed_task()?;
        closed.reply.as_ref().filter(|stored| {
            stored.verb == verb
                && stored.owner == self.named.owner
                && self.is_reply_to_attempt(stored)
        })
    }

    /// Returns the finished task, if the attempt belongs to it.
    fn closed_task(&self) -> Option<&ClosedTask> {
        let closed = self.row.closed.as_deref()?;
        closed
            .attempts
            .contains(&self.named.attempt_id)
            .then_some(closed)
    }

    fn is_reply_to_attempt(&self, stored: &StoredReply) -> bool {
        stored.attempt_id.as_ref() == Some(&self.named.attempt_id)
    }

    /// Returns why an attempt that is not current may no longer report. An attempt that this task never had is an error at once.
    fn past_attempt(
        &self,
        run: &Run,
        activity: Option<&Activity>,
    ) -> Result<FenceRefusal, FenceRefusal> {
        let Some(closed) = self.closed_task() else {
            return self.unknown_here(run, activity);
        };
        let reported = closed.reply.as_ref();
        Ok(
            if reported.is_some_and(|stored| self.is_reply_to_attempt(stored)) {
                FenceRefusal::AttemptClosed
            } else if closed.activity_status == Some(ActivityEnd::Cancelled) {
                FenceRefusal::ActivityCancelled
            } else {
                FenceRefusal::StaleAttempt
            },
        )
    }

    /// Handles an attempt that is not in the finished row of the task: an earlier one of this task, one of another task of the run,
    /// or an unknown one.
    fn unknown_here(
        &self,
        run: &Run,
        activity: Option<&Activity>,
    ) -> Result<FenceRefusal, FenceRefusal> {
        let of_this_task = |activity: &Activity| {
            activity
                .past_attempts
                .iter()
                .any(|past| past.id == self.named.attempt_id && past.task_id == self.row.task_id)
        };
        let of_any_task = |activity: &Activity| {
            let current = activity.attempt.as_ref().map(|attempt| &attempt.id);
            let past = activity.past_attempts.iter().map(|past| &past.id);
            current
                .into_iter()
                .chain(past)
                .any(|id| *id == self.named.attempt_id)
        };
        if activity.is_some_and(of_this_task) {
            return Ok(FenceRefusal::StaleAttempt);
        }
        let mut activities = run.parts.values().filter_map(Part::as_activity);
        Err(if activities.any(of_any_task) {
            FenceRefusal::TaskMismatch
        } else {
            FenceRefusal::AttemptNotFound
        })
    }

    /// Begins a complete or fail: returns the current attempt with a draft, or the finished decision.
    pub(crate) fn authorize_report<'a>(
        &self,
        run: &'a Run,
        verb: Verb,
        moment: Moment<'a>,
    ) -> Result<(Draft<'a>, &'a Activity, &'a Attempt), Box<Decision<TaskReply>>> {
        let (activity, attempt) = match self.current(run) {
            Ok(current) => current,
            Err(refusal) => {
                return Err(Box::new(match self.stored(verb) {
                    Some(stored) => {
                        Decision::unchanged(TaskReply::repeated(stored.outcome.clone()))
                    }
                    None => Decision::reject(refusal.into()),
                }));
            }
        };
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            let closed = Rejection::RunClosed(Box::new(draft.just_closed()));
            return Err(Box::new(draft.finish(Err(closed))));
        }
        draft.cause.principal.clone_from(&self.named.principal);
        Ok((draft, activity, attempt))
    }

    pub(crate) fn stored_reply(&self, verb: Verb, outcome: &TaskOutcome) -> StoredReply {
        StoredReply {
            verb,
            owner: self.named.owner.clone(),
            attempt: 0,
            attempt_id: Some(self.named.attempt_id.clone()),
            outcome: outcome.clone(),
            diagnosis: None,
        }
    }

    pub(crate) fn outcome(
        &self,
        outcome: ActivityOutcome,
        next_task_id: Option<&TaskId>,
    ) -> ActivityReported {
        ActivityReported {
            task_id: self.row.task_id.clone(),
            activity_attempt_id: self.named.attempt_id.clone(),
            outcome,
            limit: None,
            next_task_id: next_task_id.cloned(),
            retry_scheduled: None,
        }
    }
}
