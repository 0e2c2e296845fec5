//! A worker begins an attempt: the call and the attempt are in history before the function runs.

use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::id::{ActivityExecutionId, CommandId, EventId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{CleanupProof, LocalActivityCall};
use longhaul_protocol::{Reason, Timestamp};

use super::{Claim, LocalActivity, LocalAttempt, arguments_hash, authorize, refused};
use crate::change::TaskStatus;
use crate::run::draft::{Draft, LocalActivities, earliest};
use crate::run::state::{RetryPolicy, Run, WorkflowTask};
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment, Rejection, limits};

/// The request to begin an attempt.
#[derive(Clone, Debug)]
pub struct PrepareLocalActivity {
    pub holder: Holder,
    pub sequence: CommandSeq,
    pub worker_attempt_id: String,
    pub call: LocalActivityCall,
}

/// An attempt that may run.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub duplicate: bool,
    pub execution_id: ActivityExecutionId,
    pub attempt: LocalAttempt,
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    pub cleanup: Option<Cleanup>,
    pub now: Timestamp,
}

/// The cancellation that a cleanup call belongs to, and its time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    pub request_id: CommandId,
    pub root_request_id: String,
    pub delivery_history_event_id: EventId,
    pub cleanup_deadline_at: Timestamp,
}

impl Command for PrepareLocalActivity {
    type Reply = Prepared;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Prepared> {
        let (mut draft, task) = match authorize(&self.holder, run, moment) {
            Ok(held) => held,
            Err(decision) => return decision,
        };
        if task.is_update() {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        let cleanup = match draft.cleanup(self.call.cancellation_cleanup.as_ref()) {
            Ok(cleanup) => cleanup,
            Err(reason) => return refused(reason),
        };
        let Some(local) = draft.local(self.sequence).cloned() else {
            return self.begin(draft, &task, cleanup);
        };
        if !local.is_call(&self.call) {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        if let Some(attempt) = &local.attempt {
            return if !attempt.is_under(&task) {
                refused(attempt.claim_refusal(moment.now))
            } else if attempt.worker_attempt_id.as_deref() == Some(&self.worker_attempt_id) {
                Decision::unchanged(Prepared {
                    duplicate: true,
                    ..draft.prepared(&local, attempt, cleanup)
                })
            } else {
                refused(Reason::LocalActivityPreviousAttemptUnresolved)
            };
        }
        if draft.local_activities().expire(self.sequence) {
            draft.local_activities().release_claim(&task);
            return draft.finish(Err(Rejection::LocalActivityRefused {
                reason: Reason::LocalActivityDeadlineExpired,
            }));
        }
        if local
            .retry_task
            .as_ref()
            .is_some_and(|retry| retry.available_at > moment.now)
        {
            // Nothing can be done before it is due, and the worker has nothing else to do: it will not report on this task.
            draft.local_activities().release_claim(&task);
            return draft.finish(Err(Rejection::LocalActivityRefused {
                reason: Reason::LocalActivityRetryNotDue,
            }));
        }
        if local.used(&self.worker_attempt_id) {
            return refused(Reason::LocalActivityRetryWorkerAttemptReused);
        }
        self.start(draft, &task, local, cleanup)
    }
}

impl PrepareLocalActivity {
    /// Begins the first attempt of a call that is not recorded yet.
    fn begin(
        &self,
        mut draft: Draft<'_>,
        task: &WorkflowTask,
        cleanup: Option<Cleanup>,
    ) -> Decision<Prepared> {
        let next = draft.core.last_command_sequence.next();
        if self.sequence > next {
            return refused(Reason::LocalActivityCommandPrefixNotRecorded);
        }
        if self.sequence < next || self.call.group.is_some() {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        let kept = kept_waits(task);
        draft.local_activities().consume_under_lease(&kept);
        match draft.schedule_local(self.sequence, &self.call) {
            Ok(local) => self.start(draft, task, local, cleanup),
            Err(limit) => Decision::reject(Rejection::LimitExceeded(limit)),
        }
    }

    fn start(
        &self,
        mut draft: Draft<'_>,
        task: &WorkflowTask,
        local: LocalActivity,
        cleanup: Option<Cleanup>,
    ) -> Decision<Prepared> {
        // Its start, and the retry that may follow; the event of its end is reserved.
        if let Err(limit) = draft.check_own_events(2) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        if self.call.group.is_none() {
            draft.local_activities().clear_receipts();
        }
        let deadline = cleanup.as_ref().map(|cleanup| cleanup.cleanup_deadline_at);
        let claim = draft.local_activities().renew_claim(task);
        let (local, attempt) =
            draft
                .local_activities()
                .start(local, &claim, Some(&self.worker_attempt_id), deadline);
        let prepared = draft.prepared(&local, &attempt, cleanup);
        draft.local_activities().put(local);
        draft.finish(Ok(prepared))
    }
}

/// Returns the condition waits that a checkpoint of this lease sent again.
fn kept_waits(task: &WorkflowTask) -> Vec<CommandSeq> {
    let lease = task.lease.as_ref();
    lease
        .map(|lease| lease.kept_waits.clone())
        .unwrap_or_default()
}

impl LocalActivities<'_, '_> {
    /// Begins the next attempt under this claim. A cleanup attempt ends at the deadline of the cleanup at the latest.
    fn start(
        &mut self,
        mut local: LocalActivity,
        claim: &Claim,
        worker_attempt_id: Option<&str>,
        cleanup_deadline: Option<Timestamp>,
    ) -> (LocalActivity, LocalAttempt) {
        let after = |pick: fn(&RetryPolicy) -> Option<u64>| {
            let seconds = local.retry.as_ref().and_then(pick)?;
            let deadline = self.draft.now.plus_seconds(seconds);
            Some(cleanup_deadline.map_or(deadline, |end| deadline.min(end)))
        };
        let attempt = LocalAttempt {
            id: self.draft.ids.mint(),
            number: local.attempt_count + 1,
            task_id: claim.task_id.clone(),
            task_attempt: claim.attempt,
            owner: claim.owner.clone(),
            worker_attempt_id: worker_attempt_id.map(str::to_owned),
            started_at: self.draft.now,
            lease_expires_at: claim.expires_at,
            last_heartbeat_at: Some(self.draft.now),
            close_deadline_at: after(|retry| retry.start_to_close_timeout),
            // The published client uses this deadline for cleanup if the author set none.
            heartbeat_deadline_at: after(|retry| retry.heartbeat_timeout).or(cleanup_deadline),
            progress: None,
            recorded_heartbeat: None,
            fenced: false,
            stopped: false,
        };
        local.attempt_count = attempt.number;
        local.attempt = Some(attempt.clone());
        local.receipt = None;
        local.claimed_retry = None;
        // The worker that holds the run when the retry is due may begin it: the task of the retry then has nothing left to do.
        if let Some(retry) = local.retry_task.take() {
            let row = self.draft.retry_row(&local, &retry, TaskStatus::Cancelled);
            self.draft.tasks.insert(row.task_id.clone(), row);
        }
        self.write_started(&local, &attempt);
        (local, attempt)
    }
}

impl Draft<'_> {
    /// Records the call; its first attempt follows.
    pub(crate) fn schedule_local(
        &mut self,
        sequence: CommandSeq,
        call: &LocalActivityCall,
    ) -> Result<LocalActivity, LimitBreach> {
        limits::check(
            "pending_activity_count",
            self.core.open.activities + self.core.open.local_activities + 1,
            self.limits.pending_activities,
        )?;
        limits::check(
            "payload_size",
            call.arguments.blob().len() as u64,
            self.limits.payload_bytes,
        )?;
        let claim = self.held_claim();
        let after = |seconds: Option<u64>| seconds.map(|seconds| self.now.plus_seconds(seconds));
        let mut local = LocalActivity {
            sequence,
            execution_id: self.ids.mint(),
            activity_type: call.activity_type.clone(),
            retry: RetryPolicy::of_local_activity(call),
            cancellation_policy: call.cancellation_policy,
            cleanup: call.cancellation_cleanup.clone(),
            group: call.group.clone(),
            scheduled_at: self.now,
            attempt_count: 0,
            attempt: None,
            past_attempts: Vec::new(),
            schedule_to_close_deadline_at: after(call.schedule_to_close_timeout),
            arguments_hash: arguments_hash(&call.arguments),
            retry_task: None,
            claimed_retry: None,
            receipt: None,
        };
        if let Some(proof) = &call.cancellation_cleanup
            && let Ok(Some(cleanup)) = self.cleanup(Some(proof))
        {
            let deadline = local.schedule_to_close_deadline_at;
            local.schedule_to_close_deadline_at =
                deadline.map(|deadline| deadline.min(cleanup.cleanup_deadline_at));
        }
        self.groups().join(
            sequence,
            "activity",
            Some(&local.activity_type),
            local.group.as_ref(),
            local.execution_id.as_str(),
        );
        self.local_activities()
            .write_scheduled(&local, call, &claim.task_id);
        self.core.open.local_activities += 1;
        self.core.last_command_sequence = self.core.last_command_sequence.max(sequence);
        self.local_activities().put(local.clone());
        Ok(local)
    }

    fn prepared(
        &self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        cleanup: Option<Cleanup>,
    ) -> Prepared {
        Prepared {
            duplicate: false,
            execution_id: local.execution_id.clone(),
            attempt: attempt.clone(),
            schedule_to_close_deadline_at: local.schedule_to_close_deadline_at,
            cleanup,
            now: self.now,
        }
    }

    /// Returns what a call may still do in a run that was asked to end: nothing, unless it cleans up after the delivery.
    pub(crate) fn cleanup(&self, proof: Option<&CleanupProof>) -> Result<Option<Cleanup>, Reason> {
        let (cancellation, proof) = match (&self.core.cancellation, proof) {
            (None, None) => return Ok(None),
            (Some(cancellation), Some(proof)) => (cancellation, proof),
            (Some(_), None) => return Err(Reason::CancellationRequested),
            (None, Some(_)) => return Err(Reason::LocalActivityPreparationMismatch),
        };
        let delivered = cancellation.delivered_event_id.as_ref();
        if cancellation.request_id != proof.request_id
            || delivered != Some(&proof.delivery_history_event_id)
        {
            return Err(Reason::CancellationRequested);
        }
        Ok(Some(Cleanup {
            request_id: proof.request_id.clone(),
            root_request_id: cancellation.root_request_id().to_owned(),
            delivery_history_event_id: proof.delivery_history_event_id.clone(),
            cleanup_deadline_at: cancellation.cleanup_deadline_at,
        }))
    }

    /// Returns the time at which a cleanup attempt must have ended.
    pub(crate) fn earlier_of_cleanup(
        &self,
        local: &LocalActivity,
        deadline: Timestamp,
    ) -> Timestamp {
        let cleanup = self.cleanup(local.cleanup.as_ref()).ok().flatten();
        let end = cleanup.map(|cleanup| cleanup.cleanup_deadline_at);
        earliest(Some(deadline), end).unwrap_or(deadline)
    }
}
