//! Reports of a worker that runs an attempt: heartbeats, progress and the end. Only the lease of the workflow task counts; an
//! attempt that is no longer current may not report.

use longhaul_protocol::history::{ActivityHeartbeatRecorded, EventPayload};
use longhaul_protocol::id::{ActivityAttemptId, ActivityExecutionId, CommandId, EventId, TaskId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::LocalFailure;
use longhaul_protocol::{Payload, Reason, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::end::Written;
use super::prepare::Cleanup;
use super::{EventStatus, LocalActivity, LocalAttempt, RecordedHeartbeat, authorize, refused};
use crate::run::activity::stop::StopAcknowledged;
use crate::run::cancellation::Cancellation;
use crate::run::draft::{Draft, LocalActivities};
use crate::run::state::{Run, Status, WorkflowTask};
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment, Rejection};

/// The attempt, and the worker that reports on it.
#[derive(Clone, Debug)]
pub struct AttemptHolder {
    pub holder: Holder,
    pub attempt_id: ActivityAttemptId,
}

/// The worker wants to keep the attempt, or reports its progress.
#[derive(Clone, Debug)]
pub struct HeartbeatLocalActivity {
    pub attempt: AttemptHolder,
    pub request: LocalHeartbeatRequest,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LocalHeartbeatRequest {
    /// Renews the leases and asks whether to continue; not in history.
    Control,
    /// A heartbeat of the activity's code.
    Heartbeat { progress: Option<Value> },
}

/// Whether the attempt may continue.
#[derive(Clone, Debug)]
pub struct LocalHeartbeatReply {
    /// Set when the worker must stop: the run was asked to end.
    pub stop: Option<Box<Cancellation>>,
    pub execution_id: ActivityExecutionId,
    pub attempt: LocalAttempt,
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    pub heartbeat_event_id: Option<EventId>,
    pub cleanup: Option<Cleanup>,
    pub run_status: Status,
    pub now: Timestamp,
}

/// The attempt has ended.
#[derive(Clone, Debug)]
pub struct EndLocalAttempt {
    pub attempt: AttemptHolder,
    pub report: LocalReport,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LocalReport {
    Completed(Payload),
    Failed(LocalFailure),
}

/// How an attempt ended; kept for a repeat of the call that ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedAttempt {
    pub sequence: CommandSeq,
    pub workflow_task_id: TaskId,
    pub workflow_task_attempt: u64,
    pub execution_id: ActivityExecutionId,
    pub attempt_id: ActivityAttemptId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_attempt_id: Option<String>,
    pub event_id: EventId,
    pub event_type: String,
    pub recorded_at: Timestamp,
    /// Set when a retry follows: the claim has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// The function of the worker has stopped after a cancellation.
#[derive(Clone, Debug)]
pub struct AcknowledgeLocalStop {
    pub attempt: AttemptHolder,
    pub request_id: CommandId,
}

impl AttemptHolder {
    /// Returns the attempt that this caller may report on: it is current, it runs under this claim, and the claim is valid.
    fn find<'a, R>(
        &self,
        run: &'a Run,
        moment: Moment<'a>,
    ) -> Result<(Draft<'a>, WorkflowTask, LocalActivity, LocalAttempt), Decision<R>> {
        let draft = Draft::of(run, moment);
        let current = draft.locals().into_iter().find_map(|local| {
            let attempt = local.attempt.clone()?;
            (attempt.id == self.attempt_id).then_some((attempt, local))
        });
        let was_one = draft.locals().iter().any(|local| {
            local
                .past_attempts
                .iter()
                .any(|past| past.id == self.attempt_id)
        });
        if was_one {
            return Err(refused(Reason::StaleActivityAttempt));
        }
        let (draft, task) = authorize(&self.holder, run, moment)?;
        let Some((attempt, local)) = current else {
            return Err(refused(Reason::ActivityAttemptNotFound));
        };
        if !attempt.is_under(&task) {
            return Err(refused(Reason::StaleActivityAttempt));
        }
        Ok((draft, *task, local, attempt))
    }
}

impl Command for HeartbeatLocalActivity {
    type Reply = LocalHeartbeatReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<LocalHeartbeatReply> {
        let (mut draft, task, mut local, mut attempt) = match self.attempt.find(run, moment) {
            Ok(found) => found,
            Err(decision) => return decision,
        };
        let reply = |draft: &Draft<'_>, local: &LocalActivity, attempt: &LocalAttempt| {
            LocalHeartbeatReply {
                stop: None,
                execution_id: local.execution_id.clone(),
                attempt: attempt.clone(),
                schedule_to_close_deadline_at: local.schedule_to_close_deadline_at,
                heartbeat_event_id: None,
                cleanup: draft.cleanup(local.cleanup.as_ref()).ok().flatten(),
                run_status: draft.core.status,
                now: draft.now,
            }
        };
        if let Some(cancellation) = draft.interrupting(&local) {
            let mut reply = reply(&draft, &local, &attempt);
            reply.stop = Some(cancellation);
            if attempt.fenced {
                return Decision::unchanged(reply);
            }
            attempt.fenced = true;
            local.attempt = Some(attempt);
            draft.local_activities().put(local);
            return draft.finish(Ok(reply));
        }
        if draft.local_activities().expire(local.sequence) {
            return draft.finish(Err(Rejection::LocalActivityRefused {
                reason: Reason::LocalActivityDeadlineExpired,
            }));
        }
        attempt.lease_expires_at = draft.local_activities().renew_claim(&task).expires_at;
        let mut event_id = None;
        if let LocalHeartbeatRequest::Heartbeat { progress } = &self.request {
            attempt.last_heartbeat_at = Some(draft.now);
            let timeout = local
                .retry
                .as_ref()
                .and_then(|retry| retry.heartbeat_timeout);
            if let Some(seconds) = timeout {
                let deadline = draft.now.plus_seconds(seconds);
                attempt.heartbeat_deadline_at = Some(draft.earlier_of_cleanup(&local, deadline));
            }
            if progress.is_some() {
                attempt.progress.clone_from(progress);
            }
            local.attempt = Some(attempt.clone());
            let recorded = match attempt.recorded_heartbeat.clone() {
                Some(recorded) if draft.is_recent(&recorded) => recorded,
                Some(_) | None => {
                    if let Err(limit) = draft.check_own_events(1) {
                        return Decision::reject(Rejection::LimitExceeded(limit));
                    }
                    draft.local_activities().write_heartbeat(&local, &attempt)
                }
            };
            event_id = Some(recorded.event_id.clone());
            attempt.recorded_heartbeat = Some(recorded);
        }
        local.attempt = Some(attempt.clone());
        let mut reply = reply(&draft, &local, &attempt);
        reply.heartbeat_event_id = event_id;
        draft.local_activities().put(local);
        draft.finish(Ok(reply))
    }
}

impl Command for EndLocalAttempt {
    type Reply = EndedAttempt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<EndedAttempt> {
        let holder = &self.attempt.holder;
        let earlier = run.ended_before(holder, |ended| ended.attempt_id == self.attempt.attempt_id);
        if let Some(ended) = earlier {
            return Decision::unchanged(ended);
        }
        let (mut draft, task, local, attempt) = match self.attempt.find(run, moment) {
            Ok(found) => found,
            Err(decision) => return decision,
        };
        if draft.interrupting(&local).is_some() {
            return refused(Reason::CancellationRequested);
        }
        // A report that arrives after the deadline is late, whatever its content.
        let written = match (local.passed_deadline(draft.now), &self.report) {
            (Some(kind), _) => draft
                .local_activities()
                .time_out_or_retry(&local, kind, None),
            (None, LocalReport::Completed(result)) => {
                draft.local_activities().complete(&local, &attempt, result)
            }
            (None, LocalReport::Failed(failure)) => draft
                .local_activities()
                .fail_or_retry(&local, &attempt, failure),
        };
        let ended = draft
            .local_activities()
            .end_attempt(&task, &local, &attempt, written);
        draft.finish(Ok(ended))
    }
}

impl Command for AcknowledgeLocalStop {
    type Reply = StopAcknowledged;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply> {
        let request = run
            .core
            .cancellation
            .as_deref()
            .filter(|cancellation| cancellation.request_id == self.request_id);
        let Some(cancellation) = request else {
            return Decision::reject(Rejection::CancellationMismatch);
        };
        let acknowledged = StopAcknowledged {
            duplicate: false,
            event_id: cancellation.event_id.clone(),
        };
        let mut draft = Draft::of(run, moment);
        let current = draft.locals().into_iter().find(|local| {
            let attempt = local.attempt.as_ref();
            attempt.is_some_and(|attempt| attempt.id == self.attempt.attempt_id)
        });
        // The call may have ended meanwhile: then there is nothing to record.
        let Some(mut local) = current else {
            return Decision::unchanged(acknowledged.repeated());
        };
        match &mut local.attempt {
            Some(attempt) if !attempt.stopped => attempt.stopped = true,
            _ => return Decision::unchanged(acknowledged.repeated()),
        }
        draft.local_activities().put(local);
        draft.finish(Ok(acknowledged))
    }
}

impl Run {
    /// Returns how the attempt of this caller ended before, if it did.
    pub(crate) fn ended_before(
        &self,
        holder: &Holder,
        same: impl Fn(&EndedAttempt) -> bool,
    ) -> Option<EndedAttempt> {
        let task = self.core.workflow_task.as_ref();
        let under_lease = task.map_or(&[][..], |task| &task.local_receipts);
        let kept = self
            .parts
            .values()
            .filter_map(|part| part.as_local().and_then(|local| local.receipt.as_deref()));
        let mut known = under_lease.iter().chain(kept);
        let ended = known.find(|ended| {
            ended.workflow_task_id == *holder.task_id()
                && ended.workflow_task_attempt == holder.named.attempt
                && same(ended)
        })?;
        Some(EndedAttempt {
            duplicate: true,
            ..ended.clone()
        })
    }
}

impl LocalActivities<'_, '_> {
    fn write_heartbeat(
        &mut self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
    ) -> RecordedHeartbeat {
        self.draft.append(EventPayload::ActivityHeartbeatRecorded(
            ActivityHeartbeatRecorded {
                call: local.call(&attempt.task_id, EventStatus::RUNNING),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                heartbeat_at: self.draft.now,
                lease_expires_at: Some(attempt.lease_expires_at),
                progress: attempt.progress.clone(),
            },
        ));
        RecordedHeartbeat {
            at: self.draft.now,
            event_id: self
                .draft
                .events
                .last()
                .expect("the event was just written")
                .id
                .clone(),
        }
    }

    /// Returns the reply to the caller. With a retry the claim ends; otherwise the worker reads history again and continues.
    pub(crate) fn end_attempt(
        &mut self,
        task: &WorkflowTask,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        written: Written,
    ) -> EndedAttempt {
        let ended = EndedAttempt {
            sequence: local.sequence,
            workflow_task_id: task.id.clone(),
            workflow_task_attempt: task.attempt,
            execution_id: local.execution_id.clone(),
            attempt_id: attempt.id.clone(),
            worker_attempt_id: attempt.worker_attempt_id.clone(),
            event_id: written.event_id,
            event_type: written.event_type.to_owned(),
            recorded_at: self.draft.core.last_event_at,
            retry_task_id: written.retry_task,
            duplicate: false,
        };
        if ended.retry_task_id.is_some() {
            if let Some(mut local) = self.draft.local(local.sequence).cloned() {
                local.receipt = Some(Box::new(ended.clone()));
                self.put(local);
            }
            self.release_claim(task);
        } else {
            self.mark_refreshed();
            if let Some(task) = &mut self.draft.core.workflow_task {
                task.local_receipts.push(ended.clone());
            }
        }
        ended
    }
}

impl Draft<'_> {
    /// Returns the request that stops this call, unless the call cleans up after it.
    fn interrupting(&self, local: &LocalActivity) -> Option<Box<Cancellation>> {
        let cancellation = self.core.cancellation.clone()?;
        (local.cleanup.is_none()).then_some(cancellation)
    }

    /// Returns whether it is too early to write another heartbeat event of the attempt.
    fn is_recent(&self, recorded: &RecordedHeartbeat) -> bool {
        let interval = self.limits.heartbeat_event_seconds;
        recorded.at.plus_seconds(interval) > self.now
    }
}
