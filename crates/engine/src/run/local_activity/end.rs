//! How an attempt ends and what follows: the result, another attempt after a back-off, or the end of the call. A deadline can also
//! end one, whichever worker holds the task.

use longhaul_protocol::history::{
    ActivityCancelled, ActivityCompleted, ActivityFailed, ActivityRetryScheduled, ActivityTimedOut,
    EventPayload, LimitBreach, PAYLOAD_CODEC,
};
use longhaul_protocol::id::{CommandId, EventId, TaskId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{LocalFailure, LocalTimeout};
use longhaul_protocol::{Payload, Timestamp};
use serde_json::{Map, Value};

use super::{EventStatus, LocalActivity, LocalAttempt, RetryTask};
use crate::change::TaskStatus;
use crate::limits;
use crate::run::draft::{Draft, LocalActivities, earliest};
use crate::run::state::{Part, PartKey, RetryPolicy, WorkflowTask, retry_policy};
use crate::run::wait::group::CallEnd;

/// Why another attempt will follow.
pub(crate) struct Why {
    pub(crate) reason: &'static str,
    pub(crate) attempt_status: &'static str,
    pub(crate) timeout_kind: Option<LocalTimeout>,
    pub(crate) failure: LocalFailure,
    pub(crate) recovery: Option<Value>,
}

impl Why {
    pub(crate) fn failure(failure: LocalFailure) -> Self {
        Self {
            reason: "failure",
            attempt_status: "failed",
            timeout_kind: None,
            failure,
            recovery: None,
        }
    }

    pub(crate) fn timeout(local: &LocalActivity, kind: LocalTimeout) -> Self {
        Self {
            reason: "timeout",
            attempt_status: "failed",
            timeout_kind: Some(kind),
            failure: LocalFailure {
                message: timeout_message(local, kind),
                ..LocalFailure::default()
            },
            recovery: None,
        }
    }
}

/// The event that ended an attempt.
pub(crate) struct Written {
    pub(crate) event_id: EventId,
    pub(crate) event_type: &'static str,
    /// The task of the next attempt.
    pub(crate) retry_task: Option<TaskId>,
}

impl LocalActivity {
    /// Returns when another attempt may begin, if attempts are left and the deadline of the call allows it.
    pub(crate) fn retry_at(&self, now: Timestamp) -> Option<(Timestamp, u64)> {
        retry_policy::next_attempt_at(
            self.retry.as_ref(),
            self.attempt_count,
            now,
            self.schedule_to_close_deadline_at,
        )
    }

    /// Returns the deadline that has passed; of several, the most important one.
    pub(crate) fn passed_deadline(&self, now: Timestamp) -> Option<LocalTimeout> {
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= now);
        if passed(self.schedule_to_close_deadline_at) {
            return Some(LocalTimeout::ScheduleToClose);
        }
        let attempt = self.attempt.as_ref()?;
        if passed(attempt.heartbeat_deadline_at) {
            Some(LocalTimeout::Heartbeat)
        } else if passed(attempt.close_deadline_at) {
            Some(LocalTimeout::StartToClose)
        } else {
            None
        }
    }

    /// Returns the next time at which something happens to it without a call. A retry waits for the end of a lease.
    pub(crate) fn next_due(&self, is_leased: bool) -> Option<Timestamp> {
        let mut due = self.schedule_to_close_deadline_at;
        if let Some(attempt) = &self.attempt {
            due = earliest(due, attempt.close_deadline_at);
            due = earliest(due, attempt.heartbeat_deadline_at);
        }
        let retry = self.retry_task.as_ref();
        let waiting = retry.filter(|task| !task.offered && !is_leased);
        earliest(due, waiting.map(|task| task.available_at))
    }
}

impl LocalActivities<'_, '_> {
    pub(crate) fn put(&mut self, local: LocalActivity) {
        self.draft.put(
            PartKey::LocalActivity(local.sequence),
            Part::LocalActivity(Box::new(local)),
        );
    }

    /// Removes the call after its end, whatever its outcome.
    fn remove(&mut self, local: &LocalActivity) {
        if let Some(task) = &local.retry_task {
            let row = self.draft.retry_row(local, task, TaskStatus::Cancelled);
            self.draft.tasks.insert(row.task_id.clone(), row);
        }
        self.draft.remove(PartKey::LocalActivity(local.sequence));
        self.draft.core.open.local_activities =
            self.draft.core.open.local_activities.saturating_sub(1);
    }

    /// Completes the attempt; a result that is too large is a failure instead.
    pub(crate) fn complete(
        &mut self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        result: &Payload,
    ) -> Written {
        let size = result.blob().len() as u64;
        if let Err(limit) = limits::check("payload_size", size, self.draft.limits.payload_bytes) {
            let failure = LocalFailure {
                message: format!(
                    "The activity's result is larger than a payload may be: {size} bytes of base64, {} allowed.",
                    limit.configured
                ),
                exception_type: Some("StructuralLimitExceeded".to_owned()),
                non_retryable: true,
            };
            return self.fail(local, attempt, &failure, Some(limit), None);
        }
        self.draft
            .append(EventPayload::ActivityCompleted(ActivityCompleted {
                call: local.call(
                    &attempt.task_id,
                    EventStatus::closed("completed", "completed", self.draft.now),
                ),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                result: result.clone(),
                payload_codec: PAYLOAD_CODEC,
            }));
        let written = self.draft.written("ActivityCompleted", None);
        self.end(local, CallEnd::Completed);
        written
    }

    /// Fails the attempt: another one follows if the policy allows it.
    pub(crate) fn fail_or_retry(
        &mut self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        failure: &LocalFailure,
    ) -> Written {
        let listed = local.retry.as_ref().is_some_and(|retry| {
            let name = failure.exception_type.as_ref();
            name.is_some_and(|name| retry.non_retryable_error_types.contains(name))
        });
        let failure = LocalFailure {
            non_retryable: failure.non_retryable || listed,
            ..failure.clone()
        };
        match local
            .retry_at(self.draft.now)
            .filter(|_| !failure.non_retryable)
        {
            Some(at) => self.retry(local, at, Why::failure(failure)),
            None => self.fail(local, attempt, &failure, None, None),
        }
    }

    /// Applies a passed deadline: `schedule_to_close` ends the call, the others are retried.
    pub(crate) fn time_out_or_retry(
        &mut self,
        local: &LocalActivity,
        kind: LocalTimeout,
        recovery: Option<Value>,
    ) -> Written {
        let retry = local
            .retry_at(self.draft.now)
            .filter(|_| kind != LocalTimeout::ScheduleToClose && local.attempt.is_some());
        match retry {
            Some(at) => {
                let why = Why {
                    recovery,
                    ..Why::timeout(local, kind)
                };
                self.retry(local, at, why)
            }
            None => self.time_out(local, kind, recovery),
        }
    }

    /// Schedules the next attempt as a workflow task of its own.
    pub(crate) fn retry(
        &mut self,
        local: &LocalActivity,
        (at, backoff): (Timestamp, u64),
        why: Why,
    ) -> Written {
        let mut local = local.clone();
        let attempt = local.attempt.as_ref();
        let attempt_id = attempt.map(|attempt| attempt.id.clone());
        let of_task = attempt.map(|attempt| attempt.task_id.clone());
        let next: TaskId = self.draft.ids.mint();
        let mut call = local.call(
            of_task.as_ref().unwrap_or(&next),
            EventStatus::retrying(why.attempt_status, self.draft.now),
        );
        if let Some(keys) = &mut call.local {
            keys.local_recovery = why.recovery;
        }
        self.draft
            .append(EventPayload::ActivityRetryScheduled(Box::new(
                ActivityRetryScheduled {
                    call,
                    activity_attempt_id: attempt_id.clone(),
                    retry_task_id: Some(next.clone()),
                    retry_of_task_id: of_task,
                    retry_available_at: Some(at),
                    retry_backoff_seconds: backoff,
                    retry_after_attempt_id: attempt_id,
                    retry_after_attempt: local.attempt_count,
                    retry_reason: why.reason,
                    max_attempts: retry_policy::max_attempts(local.retry.as_ref()),
                    retry_policy: local.retry.as_ref().map(RetryPolicy::to_json),
                    timeout_kind: why.timeout_kind.map(LocalTimeout::as_str),
                    exception_type: why.failure.exception_type,
                    exception_class: None,
                    message: Some(why.failure.message),
                    code: None,
                },
            )));
        local.retire_attempt();
        let task = RetryTask {
            id: next.clone(),
            available_at: at,
            offered: false,
            attempt: 0,
            last_reply: None,
        };
        let row = self.draft.retry_row(&local, &task, TaskStatus::Scheduled);
        self.draft.tasks.insert(row.task_id.clone(), row);
        local.retry_task = Some(task);
        self.put(local);
        self.draft.written("ActivityRetryScheduled", Some(next))
    }

    /// Fails the call for good.
    pub(crate) fn fail(
        &mut self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        failure: &LocalFailure,
        limit: Option<LimitBreach>,
        recovery: Option<Value>,
    ) -> Written {
        let attempt_status = if recovery.is_some() {
            "expired"
        } else {
            "failed"
        };
        let mut call = local.call(
            &attempt.task_id,
            EventStatus::closed("failed", attempt_status, self.draft.now),
        );
        if let Some(keys) = &mut call.local {
            keys.local_recovery = recovery;
        }
        let failure_id = self.draft.ids.mint();
        self.draft
            .append(EventPayload::ActivityFailed(Box::new(ActivityFailed {
                call,
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                failure_id,
                failure_category: if limit.is_some() {
                    "structural_limit"
                } else {
                    "application"
                },
                non_retryable: failure.non_retryable,
                exception_type: failure.exception_type.clone(),
                exception_class: None,
                message: failure.message.clone(),
                code: None,
                exception: Map::new(),
                limit,
            })));
        let written = self.draft.written("ActivityFailed", None);
        self.end(local, CallEnd::Failed);
        written
    }

    fn time_out(
        &mut self,
        local: &LocalActivity,
        kind: LocalTimeout,
        recovery: Option<Value>,
    ) -> Written {
        let attempt = local.attempt.as_ref();
        let task_id = attempt.map_or_else(
            || {
                let retry = local.retry_task.as_ref();
                retry.map_or_else(|| self.draft.ids.mint(), |task| task.id.clone())
            },
            |attempt| attempt.task_id.clone(),
        );
        let mut call = local.call(
            &task_id,
            EventStatus::closed("failed", "failed", self.draft.now),
        );
        if let Some(keys) = &mut call.local {
            keys.local_recovery = recovery;
        }
        let failure_id = self.draft.ids.mint();
        self.draft
            .append(EventPayload::ActivityTimedOut(Box::new(ActivityTimedOut {
                call,
                activity_attempt_id: attempt
                    .map(|attempt| attempt.id.clone())
                    .or_else(|| local.past_attempts.last().map(|past| past.id.clone())),
                attempt_number: local.attempt_count,
                failure_id,
                failure_category: "timeout",
                timeout_kind: kind.as_str(),
                message: timeout_message(local, kind),
                exception_class: None,
                schedule_deadline_at: None,
                close_deadline_at: attempt.and_then(|attempt| attempt.close_deadline_at),
                schedule_to_close_deadline_at: local.schedule_to_close_deadline_at,
                heartbeat_deadline_at: attempt.and_then(|attempt| attempt.heartbeat_deadline_at),
            })));
        let written = self.draft.written("ActivityTimedOut", None);
        self.end(local, CallEnd::Failed);
        written
    }

    /// Ends the call. The worker that reports continues under its lease, so no wake is needed.
    fn end(&mut self, local: &LocalActivity, end: CallEnd) {
        self.remove(local);
        let resolved_by = self.draft.core.last_history_sequence;
        self.draft
            .groups()
            .resolve_member(local.group.as_ref(), end, resolved_by);
    }

    /// Ends the claim of the worker: the task is finished, and everything that waited behind its lease is handled.
    pub(crate) fn release_claim(&mut self, task: &WorkflowTask) {
        let made_progress = !self.draft.events.is_empty();
        let unseen = self.draft.unseen();
        self.draft.signals().flush_buffered();
        self.draft.timers().fire_overdue_wait_timeouts();
        self.draft
            .workflow_task()
            .close(TaskStatus::Completed, None);
        self.draft
            .workflow_task()
            .end_plain(task, unseen, made_progress);
    }

    /// Applies a passed deadline that no worker reported; returns whether there was one. The lease of its worker ends, because the
    /// worker will find its attempt gone and will not report on the task.
    pub(crate) fn expire(&mut self, sequence: CommandSeq) -> bool {
        let Some(local) = self.draft.local(sequence).cloned() else {
            return false;
        };
        let Some(kind) = local.passed_deadline(self.draft.now) else {
            return false;
        };
        let task = self.draft.core.workflow_task.clone();
        let claim = task.filter(|task| {
            task.lease.is_some()
                && local
                    .attempt
                    .as_ref()
                    .is_some_and(|attempt| attempt.is_under(task))
        });
        let written = self.time_out_or_retry(&local, kind, None);
        if written.retry_task.is_none() {
            self.draft
                .workflow_task()
                .wake(local.resume(Some(written.event_type)));
        }
        if let Some(task) = claim {
            self.release_claim(&task);
        }
        true
    }
}

impl Draft<'_> {
    fn written(&self, event_type: &'static str, retry_task: Option<TaskId>) -> Written {
        let event = self.events.last().expect("the event was just written");
        Written {
            event_id: event.id.clone(),
            event_type,
            retry_task,
        }
    }

    /// Records that the call ends with its run, or with the call that a cancellation interrupted.
    pub(crate) fn cancel_local(&mut self, sequence: CommandSeq, command_id: Option<&CommandId>) {
        let Some(local) = self.local(sequence).cloned() else {
            return;
        };
        let attempt = local.attempt.as_ref();
        let retry = local.retry_task.as_ref();
        let task_id = attempt
            .map(|attempt| attempt.task_id.clone())
            .or_else(|| retry.map(|task| task.id.clone()))
            .or_else(|| self.core.workflow_task.as_ref().map(|task| task.id.clone()))
            .unwrap_or_else(|| self.ids.mint());
        let call = local.call(
            &task_id,
            EventStatus::closed("cancelled", "cancelled", self.now),
        );
        self.append(EventPayload::ActivityCancelled(ActivityCancelled {
            call,
            workflow_command_id: command_id.cloned(),
            activity_attempt_id: attempt.map(|attempt| attempt.id.clone()),
            attempt_number: attempt.map(|attempt| attempt.number),
            cancelled_at: self.now,
        }));
        self.local_activities().remove(&local);
    }

    /// Closes open local activities without events, as a run that ends by itself does.
    pub(crate) fn close_locals(&mut self) {
        for local in self.locals() {
            self.local_activities().remove(&local);
        }
    }

    /// Applies the deadlines of every local activity.
    pub(crate) fn elapse_locals(&mut self) {
        if self.core.open.local_activities == 0 {
            return;
        }
        for local in self.locals() {
            self.local_activities().expire(local.sequence);
        }
    }
}

fn timeout_message(local: &LocalActivity, kind: LocalTimeout) -> String {
    format!(
        "Local activity {} {} deadline expired.",
        local.activity_type,
        kind.as_str().replace('_', "-")
    )
}
