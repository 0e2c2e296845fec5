//! Activities: scheduling, claims, and the reports of their workers (engine.md §6). Deadlines are in `activity_timeout`.
//!
//! Lease expiry alone does not close an attempt: until the next claim its worker may still report. The fence therefore
//! looks at attempts, and at the owner last, because a published worker stops on an owner mismatch.

use std::sync::Arc;

use longhaul_protocol::history::{
    ActivityCall, ActivityCompleted, ActivityFailed, ActivityHeartbeatRecorded,
    ActivityRetryScheduled, ActivityScheduled, ActivitySnapshot, ActivityStarted, EventPayload,
    GroupKeys, LimitBreach, PAYLOAD_CODEC,
};
use longhaul_protocol::id::{ActivityAttemptId, TaskId, TaskQueue, WorkerId};
use longhaul_protocol::workflow_command::ScheduleActivity;
use longhaul_protocol::{Payload, Reason, Timestamp};
use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::state::{
    Activity, Attempt, Closed, Part, PartKey, PastAttempt, Resume, RetryPolicy, Run, Spec, Status,
};
use crate::change::{ClosedTask, Report, TaskKind, TaskRow, TaskStatus, Verb};
use crate::rejection::{RunClosed, activity_reason};
use crate::{Command, Decision, Moment, Rejection, limits};

/// How many finished attempts of one activity are remembered, so that a late report is told from an unknown one.
const PAST_ATTEMPTS_MAX: usize = 16;

/// A worker asks for an activity task.
#[derive(Clone, Debug)]
pub struct ClaimActivityTask {
    pub task_id: TaskId,
    pub sequence: u64,
    pub worker_id: WorkerId,
    pub poll_request_id: Option<String>,
}

/// A leased activity task.
#[derive(Clone, Debug)]
pub struct ActivityClaim {
    pub spec: Arc<Spec>,
    pub activity: Activity,
    pub attempt: Attempt,
    pub lease_expires_at: Timestamp,
    pub arguments: Payload,
}

/// Who reports, and on what.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The task's row; it tells what a finished task answers.
    pub row: Box<TaskRow>,
    pub attempt_id: ActivityAttemptId,
    pub owner: WorkerId,
}

/// The activity succeeded.
#[derive(Clone, Debug)]
pub struct CompleteActivity {
    pub reporter: Reporter,
    pub result: Payload,
}

/// The attempt failed.
#[derive(Clone, Debug)]
pub struct FailActivity {
    pub reporter: Reporter,
    pub failure: Failure,
}

/// A failure as the worker reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    pub message: String,
    pub failure_type: Option<String>,
    pub class: Option<String>,
    pub code: Option<Value>,
    pub non_retryable: bool,
    /// Stored verbatim beside its codec.
    pub details: Option<Payload>,
    /// Details that were no payload, and what the worker sent for people only.
    pub diagnostics: Option<Value>,
    pub runtime_diagnostics: Option<Value>,
}

/// The worker is alive, or asks whether it should go on.
#[derive(Clone, Debug)]
pub struct HeartbeatActivity {
    pub reporter: Reporter,
    pub beat: Beat,
}

/// What a heartbeat does.
#[derive(Clone, Debug, PartialEq)]
pub enum Beat {
    /// Renews the lease and stores the progress, if any.
    Renew { progress: Option<Value> },
    /// Only looks.
    Look,
}

/// The answer to a complete or fail, as it is also given to a repeat of the same call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub body: Value,
    pub duplicate: bool,
}

/// The answer to a heartbeat or a status call.
#[derive(Clone, Debug, PartialEq)]
pub struct Pulse {
    pub can_continue: bool,
    pub cancel_requested: bool,
    pub recorded: bool,
    pub reason: Option<Reason>,
    pub lease_expires_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub task_status: TaskStatus,
    pub attempt_status: &'static str,
    pub activity_status: &'static str,
    pub run_status: Status,
    pub closed: Option<Closed>,
    pub deadlines: Deadlines,
}

/// When an activity must be where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    pub schedule_to_start: Option<Timestamp>,
    pub start_to_close: Option<Timestamp>,
    pub schedule_to_close: Option<Timestamp>,
    pub heartbeat: Option<Timestamp>,
    pub run: Option<Timestamp>,
    pub execution: Option<Timestamp>,
}

impl Activity {
    /// Attempts the policy allows; None is without limit.
    pub(super) fn max_attempts(&self) -> Option<u64> {
        self.retry
            .as_ref()
            .map_or(Some(1), |retry| retry.max_attempts)
    }

    /// Seconds to wait after attempt `number`.
    pub(super) fn backoff_seconds(&self, number: u64) -> u64 {
        let list = self
            .retry
            .as_ref()
            .map_or(&[][..], |retry| &retry.backoff_seconds);
        let place = usize::try_from(number.saturating_sub(1))
            .unwrap_or(usize::MAX)
            .min(list.len().saturating_sub(1));
        list.get(place).copied().unwrap_or(0)
    }

    /// The keys every event of this call repeats.
    pub(super) fn call(&self) -> ActivityCall {
        ActivityCall {
            activity_execution_id: self.execution_id.clone(),
            activity_type: self.activity_type.clone(),
            activity_class: self.activity_type.clone(),
            sequence: self.sequence,
            cancellation_policy: self.cancellation_policy.clone(),
            group: GroupKeys(self.group.clone()),
        }
    }

    pub(super) fn resume(&self, event_type: &str) -> Resume {
        Resume {
            workflow_wait_kind: Some("activity".to_owned()),
            open_wait_id: Some(format!("activity:{}", self.execution_id)),
            resume_source_kind: Some("activity_execution".to_owned()),
            resume_source_id: Some(self.execution_id.to_string()),
            activity_execution_id: Some(self.execution_id.clone()),
            activity_attempt_id: self.attempt.as_ref().map(|attempt| attempt.id.clone()),
            activity_type: Some(self.activity_type.clone()),
            workflow_sequence: Some(self.sequence),
            workflow_event_type: Some(event_type.to_owned()),
            ..Resume::default()
        }
    }

    /// The current attempt may no longer report.
    pub(super) fn retire_attempt(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.past_attempts.push(PastAttempt {
                id: attempt.id,
                task_id: self.task_id.clone(),
            });
            if self.past_attempts.len() > PAST_ATTEMPTS_MAX {
                self.past_attempts.remove(0);
            }
        }
    }

    fn attempts_of_current_task(&self) -> Vec<ActivityAttemptId> {
        let past = self
            .past_attempts
            .iter()
            .filter(|past| past.task_id == self.task_id)
            .map(|past| past.id.clone());
        past.chain(self.attempt.iter().map(|attempt| attempt.id.clone()))
            .collect()
    }

    /// All deadlines, with those of the run.
    pub fn deadlines(&self, spec: &Spec) -> Deadlines {
        let attempt = self.attempt.as_ref();
        Deadlines {
            schedule_to_start: self.schedule_deadline_at,
            start_to_close: attempt.and_then(|attempt| attempt.close_deadline_at),
            schedule_to_close: self.schedule_to_close_deadline_at,
            heartbeat: attempt.and_then(|attempt| attempt.heartbeat_deadline_at),
            run: spec.run_deadline_at,
            execution: spec.execution_deadline_at,
        }
    }
}

impl Draft<'_> {
    /// `schedule_activity`.
    pub(super) fn schedule_activity(
        &mut self,
        sequence: u64,
        command: &ScheduleActivity,
    ) -> Result<(), LimitBreach> {
        limits::check(
            "pending_activity_count",
            self.core.open.activities + 1,
            self.limits.pending_activities,
        )?;
        self.join_group(
            sequence,
            "activity",
            Some(&command.activity_type),
            command.group.as_ref(),
        );
        let retry = retry_snapshot(command);
        let after = |seconds: Option<u64>| seconds.map(|seconds| self.now.plus_seconds(seconds));
        let activity = Activity {
            sequence,
            activity_type: command.activity_type.clone(),
            queue: command
                .queue
                .as_deref()
                .map_or_else(|| self.spec.task_queue.clone(), TaskQueue::from),
            cancellation_policy: command.cancellation_policy.clone(),
            scheduled_at: self.now,
            available_at: self.now,
            offered: true,
            attempt_count: 0,
            attempt: None,
            past_attempts: Vec::new(),
            schedule_deadline_at: after(command.schedule_to_start_timeout),
            schedule_to_close_deadline_at: after(command.schedule_to_close_timeout),
            group: command.group.clone(),
            retry,
            execution_id: self.ids.mint(),
            task_id: self.ids.mint(),
        };
        let arguments = command
            .arguments
            .clone()
            .unwrap_or_else(Payload::empty_list);
        self.append(EventPayload::ActivityScheduled(Box::new(
            ActivityScheduled {
                call: activity.call(),
                activity: ActivitySnapshot {
                    id: activity.execution_id.clone(),
                    idempotency_key: activity.execution_id.clone(),
                    sequence,
                    activity_type: activity.activity_type.clone(),
                    class: activity.activity_type.clone(),
                    local_activity: false,
                    status: "pending",
                    attempt_count: 0,
                    payload_codec: PAYLOAD_CODEC,
                    queue: activity.queue.to_string(),
                    retry_policy: activity.retry.as_ref().map(snapshot_json),
                    arguments: arguments.clone(),
                },
            },
        )));
        self.core.open.activities += 1;
        self.put(PartKey::Arguments(sequence), Part::Arguments(arguments));
        self.put_activity(activity);
        Ok(())
    }

    /// Stores the activity and shows its open task to the matching side.
    pub(super) fn put_activity(&mut self, activity: Activity) {
        let leased = activity
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.lease_expires_at.is_some());
        let status = match (leased, activity.offered) {
            (true, _) => TaskStatus::Leased,
            (false, true) => TaskStatus::Ready,
            (false, false) => TaskStatus::Scheduled,
        };
        let row = self.activity_row(&activity, status, None);
        self.tasks.insert(row.task_id.clone(), row);
        self.put(
            PartKey::Activity(activity.sequence),
            Part::Activity(Box::new(activity)),
        );
    }

    pub(super) fn activity_row(
        &self,
        activity: &Activity,
        status: TaskStatus,
        closed: Option<ClosedTask>,
    ) -> TaskRow {
        let routing = &self.spec.routing;
        let lease = activity
            .attempt
            .as_ref()
            .filter(|attempt| attempt.lease_expires_at.is_some());
        TaskRow {
            task_id: activity.task_id.clone(),
            run_id: self.spec.run_id.clone(),
            namespace: self.spec.namespace.clone(),
            workflow_id: self.spec.workflow_id.clone(),
            kind: TaskKind::Activity,
            queue: activity.queue.clone(),
            type_name: activity.activity_type.clone(),
            status,
            available_at: activity.available_at,
            priority: routing.priority,
            fairness_key: routing.fairness_key.clone(),
            fairness_weight: routing.fairness_weight,
            compatibility: routing.compatibility.clone(),
            sequence: activity.sequence,
            attempt: activity.attempt_count,
            lease_owner: lease.map(|attempt| attempt.owner.clone()),
            lease_expires_at: lease.and_then(|attempt| attempt.lease_expires_at),
            poll_request_id: lease.and_then(|attempt| attempt.poll_request_id.clone()),
            closed: closed.map(Box::new),
        }
    }

    /// Ends the activity's current task; the activity itself may live on in a retry.
    pub(super) fn close_activity_task(
        &mut self,
        activity: &Activity,
        status: TaskStatus,
        outcome: &str,
        report: Option<Report>,
    ) {
        let closed = ClosedTask {
            report,
            attempts: activity.attempts_of_current_task(),
            activity_status: Some(outcome.to_owned()),
        };
        let row = self.activity_row(activity, status, Some(closed));
        self.tasks.insert(row.task_id.clone(), row);
    }

    /// The activity is over, whatever its outcome.
    pub(super) fn drop_activity(&mut self, sequence: u64) {
        self.remove(PartKey::Activity(sequence));
        self.remove(PartKey::Arguments(sequence));
        self.core.open.activities = self.core.open.activities.saturating_sub(1);
    }

    /// When another attempt may start, if the policy, the deadline and the number of attempts allow one.
    pub(super) fn retry_at(&self, activity: &Activity) -> Option<(Timestamp, u64)> {
        if activity
            .max_attempts()
            .is_some_and(|max| activity.attempt_count >= max)
        {
            return None;
        }
        let backoff = activity.backoff_seconds(activity.attempt_count);
        let at = self.now.plus_seconds(backoff);
        (activity
            .schedule_to_close_deadline_at
            .is_none_or(|deadline| at < deadline))
        .then_some((at, backoff))
    }

    /// Schedules the next attempt and returns its task. `why` fills the event beyond what is the same for all retries.
    pub(super) fn retry_activity(
        &mut self,
        mut activity: Activity,
        (at, backoff): (Timestamp, u64),
        why: impl FnOnce(&mut ActivityRetryScheduled),
    ) -> TaskId {
        let attempt_id = activity.attempt.as_ref().map(|attempt| attempt.id.clone());
        let mut event = ActivityRetryScheduled {
            call: activity.call(),
            activity_attempt_id: attempt_id.clone(),
            retry_task_id: self.ids.mint(),
            retry_of_task_id: activity.task_id.clone(),
            retry_available_at: at,
            retry_backoff_seconds: backoff,
            retry_after_attempt_id: attempt_id,
            retry_after_attempt: activity.attempt_count,
            retry_reason: "failure",
            max_attempts: activity.max_attempts(),
            retry_policy: activity.retry.as_ref().map(snapshot_json),
            timeout_kind: None,
            exception_type: None,
            exception_class: None,
            message: None,
            code: None,
        };
        why(&mut event);
        let task_id = event.retry_task_id.clone();
        self.append(EventPayload::ActivityRetryScheduled(Box::new(event)));
        activity.retire_attempt();
        activity.task_id = task_id.clone();
        activity.available_at = at;
        activity.offered = at <= self.now;
        let to_start = activity
            .retry
            .as_ref()
            .and_then(|retry| retry.schedule_to_start_timeout);
        activity.schedule_deadline_at = to_start.map(|seconds| at.plus_seconds(seconds));
        self.put_activity(activity);
        task_id
    }

    /// The workflow task that this decision created, if any.
    fn created_workflow_task(&self, before: &Run) -> Option<&TaskId> {
        let task = self.core.workflow_task.as_ref()?;
        (before
            .core
            .workflow_task
            .as_ref()
            .is_none_or(|old| old.id != task.id))
        .then_some(&task.id)
    }
}

fn retry_snapshot(command: &ScheduleActivity) -> Option<RetryPolicy> {
    let timeouts = [
        command.start_to_close_timeout,
        command.schedule_to_start_timeout,
        command.schedule_to_close_timeout,
        command.heartbeat_timeout,
    ];
    if command.retry_policy.is_none() && timeouts.iter().all(Option::is_none) {
        return None;
    }
    let policy = command.retry_policy.clone().unwrap_or_default();
    Some(RetryPolicy {
        snapshot_version: 1,
        max_attempts: policy.max_attempts.unwrap_or(Some(1)),
        backoff_seconds: policy.backoff_seconds,
        start_to_close_timeout: command.start_to_close_timeout,
        schedule_to_start_timeout: command.schedule_to_start_timeout,
        schedule_to_close_timeout: command.schedule_to_close_timeout,
        heartbeat_timeout: command.heartbeat_timeout,
        non_retryable_error_types: policy.non_retryable_error_types,
    })
}

fn snapshot_json(retry: &RetryPolicy) -> Value {
    serde_json::to_value(retry).expect("a retry policy is plain data")
}

impl Command for ClaimActivityTask {
    type Reply = ActivityClaim;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<ActivityClaim> {
        let not_claimable = |reason| Err(Rejection::NotClaimable { reason });
        if run.core.closed.is_some() {
            return Decision {
                changes: crate::Changes::default(),
                reply: not_claimable(Reason::RunClosed),
            };
        }
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            return draft.finish(not_claimable(Reason::RunClosed));
        }
        let Some(activity) = draft
            .activity(self.sequence)
            .filter(|activity| activity.task_id == self.task_id)
            .cloned()
        else {
            return Decision::reject(Rejection::NotClaimable {
                reason: Reason::TaskNotReady,
            });
        };
        if let Some(attempt) = &activity.attempt
            && let Some(expires_at) = attempt
                .lease_expires_at
                .filter(|expires_at| *expires_at > moment.now)
        {
            let same_poll = attempt.owner == self.worker_id
                && self.poll_request_id.is_some()
                && attempt.poll_request_id == self.poll_request_id;
            return if same_poll {
                Decision::unchanged(claim_view(&draft, &activity, attempt.clone(), expires_at))
            } else {
                Decision::reject(Rejection::NotClaimable {
                    reason: Reason::LeasedByOther,
                })
            };
        }
        if activity.available_at > moment.now {
            return Decision::reject(Rejection::NotClaimable {
                reason: Reason::NotDue,
            });
        }
        // A deadline that passed wins over another delivery.
        if draft.expire_activity(self.sequence) {
            return draft.finish(not_claimable(Reason::TaskNotReady));
        }
        let claim = draft.grant_activity(activity, self);
        draft.finish(Ok(claim))
    }
}

impl Draft<'_> {
    fn grant_activity(
        &mut self,
        mut activity: Activity,
        claim: &ClaimActivityTask,
    ) -> ActivityClaim {
        activity.retire_attempt();
        activity.attempt_count += 1;
        let attempt_id = self.ids.mint();
        let lease_expires_at = self.now.plus_seconds(self.limits.activity_lease_seconds);
        let timeout = |pick: fn(&RetryPolicy) -> Option<u64>| {
            activity
                .retry
                .as_ref()
                .and_then(pick)
                .map(|seconds| self.now.plus_seconds(seconds))
        };
        let attempt = Attempt {
            id: attempt_id,
            number: activity.attempt_count,
            owner: claim.worker_id.clone(),
            started_at: self.now,
            lease_expires_at: Some(lease_expires_at),
            close_deadline_at: timeout(|retry| retry.start_to_close_timeout),
            heartbeat_deadline_at: timeout(|retry| retry.heartbeat_timeout),
            last_heartbeat_at: None,
            recorded_heartbeat_at: None,
            progress: None,
            poll_request_id: claim.poll_request_id.clone(),
        };
        activity.schedule_deadline_at = None;
        self.append(EventPayload::ActivityStarted(ActivityStarted {
            call: activity.call(),
            activity_attempt_id: attempt.id.clone(),
            attempt_number: attempt.number,
            lease_expires_at,
        }));
        activity.attempt = Some(attempt.clone());
        self.put_activity(activity.clone());
        claim_view(self, &activity, attempt, lease_expires_at)
    }
}

fn claim_view(
    draft: &Draft<'_>,
    activity: &Activity,
    attempt: Attempt,
    lease_expires_at: Timestamp,
) -> ActivityClaim {
    let arguments = match draft.part(PartKey::Arguments(activity.sequence)) {
        Some(Part::Arguments(arguments)) => arguments.clone(),
        _ => Payload::empty_list(),
    };
    ActivityClaim {
        spec: Arc::clone(&draft.spec),
        activity: activity.clone(),
        attempt,
        lease_expires_at,
        arguments,
    }
}

/// Where a report stands after the fence.
enum Fenced {
    Current(Box<Activity>, Attempt),
    Duplicate(Value),
    Refused(Rejection),
}

impl Reporter {
    /// The order is the protocol's (worker-protocol §8.5): task, attempt, stored outcome, run, attempt current, owner.
    fn fence(&self, run: &Run, verb: Option<Verb>) -> Fenced {
        let activity = run.activity(self.row.sequence);
        let open = activity.filter(|activity| activity.task_id == self.row.task_id);
        let current = open
            .and_then(|activity| activity.attempt.as_ref())
            .filter(|attempt| attempt.id == self.attempt_id);
        let mut verdict = None;
        if current.is_none() {
            verdict = Some(match &self.row.closed {
                Some(closed) if closed.attempts.contains(&self.attempt_id) => {
                    if let Some(report) = &closed.report
                        && Some(report.verb) == verb
                        && report.owner == self.owner
                        && report.attempt_id.as_ref() == Some(&self.attempt_id)
                    {
                        return Fenced::Duplicate(report.answer.clone());
                    }
                    let reported = closed
                        .report
                        .as_ref()
                        .is_some_and(|report| report.attempt_id.as_ref() == Some(&self.attempt_id));
                    if reported || closed.activity_status.as_deref() == Some("completed") {
                        Rejection::AttemptClosed
                    } else {
                        Rejection::StaleAttempt
                    }
                }
                _ => self.unknown_here(activity, open),
            });
            if matches!(
                verdict,
                Some(Rejection::AttemptNotFound | Rejection::TaskMismatch)
            ) {
                return Fenced::Refused(verdict.expect("just matched"));
            }
        }
        if let Some(closed) = &run.core.closed {
            return Fenced::Refused(Rejection::RunClosed(Box::new(RunClosed {
                status: run.core.status,
                closed: closed.clone(),
                task_status: self.row.status,
                lease_owner: self.row.lease_owner.clone(),
                lease_expires_at: self.row.lease_expires_at,
            })));
        }
        match (verdict, open, current) {
            (None, Some(activity), Some(attempt)) if attempt.owner == self.owner => {
                Fenced::Current(Box::new(activity.clone()), attempt.clone())
            }
            (None, _, Some(attempt)) => Fenced::Refused(Rejection::LeaseOwnerMismatch {
                owner: attempt.owner.clone(),
            }),
            (verdict, _, _) => Fenced::Refused(verdict.unwrap_or(Rejection::StaleAttempt)),
        }
    }

    /// An attempt that this task's finished row does not know: an earlier one of the open activity, or nobody's.
    fn unknown_here(&self, activity: Option<&Activity>, open: Option<&Activity>) -> Rejection {
        let past = activity.and_then(|activity| {
            activity
                .past_attempts
                .iter()
                .find(|past| past.id == self.attempt_id)
        });
        match past {
            Some(past) if past.task_id == self.row.task_id => Rejection::StaleAttempt,
            Some(_) => Rejection::TaskMismatch,
            None if open.is_none()
                && activity
                    .and_then(|a| a.attempt.as_ref())
                    .is_some_and(|attempt| attempt.id == self.attempt_id) =>
            {
                Rejection::TaskMismatch
            }
            None => Rejection::AttemptNotFound,
        }
    }

    fn report(&self, verb: Verb, answer: &Value) -> Report {
        Report {
            verb,
            owner: self.owner.clone(),
            attempt: 0,
            attempt_id: Some(self.attempt_id.clone()),
            answer: answer.clone(),
        }
    }

    fn answer(
        &self,
        outcome: &str,
        reason: Option<Reason>,
        next_task_id: Option<&TaskId>,
    ) -> Value {
        json!({
            "task_id": self.row.task_id,
            "activity_attempt_id": self.attempt_id,
            "outcome": outcome,
            "recorded": true,
            "reason": reason.map(Reason::as_str),
            "next_task_id": next_task_id,
        })
    }
}

impl Command for CompleteActivity {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let (activity, attempt) = match fence_report(&self.reporter, run, Verb::Complete, moment) {
            Ok(current) => current,
            Err(decision) => return decision,
        };
        let mut draft = Draft::of(run, moment);
        if let Err(limit) = limits::check(
            "payload_size",
            self.result.blob().len() as u64,
            moment.limits.payload_bytes,
        ) {
            let failure = Failure {
                message: format!(
                    "The activity's result is larger than a payload may be: {} bytes of base64, {} allowed.",
                    limit.value, limit.configured
                ),
                failure_type: Some("StructuralLimitExceeded".to_owned()),
                non_retryable: true,
                ..Failure::default()
            };
            draft.fail_activity(&activity, &attempt, &failure, Some(limit));
            let answer = self.reporter.answer(
                "failed",
                Some(Reason::StructuralLimitExceeded),
                draft.created_workflow_task(run),
            );
            draft.close_activity_task(
                &activity,
                TaskStatus::Completed,
                "failed",
                Some(self.reporter.report(Verb::Complete, &answer)),
            );
            return draft.finish(Ok(Answer {
                body: answer,
                duplicate: false,
            }));
        }
        draft.append(EventPayload::ActivityCompleted(ActivityCompleted {
            call: activity.call(),
            activity_attempt_id: attempt.id.clone(),
            attempt_number: attempt.number,
            result: self.result.clone(),
            payload_codec: PAYLOAD_CODEC,
        }));
        draft.drop_activity(activity.sequence);
        draft.resolve(
            activity.group.as_ref(),
            false,
            activity.resume("ActivityCompleted"),
        );
        let answer = self
            .reporter
            .answer("completed", None, draft.created_workflow_task(run));
        draft.close_activity_task(
            &activity,
            TaskStatus::Completed,
            "completed",
            Some(self.reporter.report(Verb::Complete, &answer)),
        );
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }
}

impl Command for FailActivity {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let (activity, attempt) = match fence_report(&self.reporter, run, Verb::Fail, moment) {
            Ok(current) => current,
            Err(decision) => return decision,
        };
        let mut draft = Draft::of(run, moment);
        let listed = activity.retry.as_ref().is_some_and(|retry| {
            retry.non_retryable_error_types.iter().any(|name| {
                self.failure.failure_type.as_ref() == Some(name)
                    || self.failure.class.as_ref() == Some(name)
            })
        });
        let failure = Failure {
            non_retryable: self.failure.non_retryable || listed,
            ..self.failure.clone()
        };
        let retry = if failure.non_retryable {
            None
        } else {
            draft.retry_at(&activity)
        };
        let mut answer;
        match retry {
            Some(at) => {
                let next = draft.retry_activity((*activity).clone(), at, |event| {
                    event.exception_type.clone_from(&failure.failure_type);
                    event.exception_class.clone_from(&failure.class);
                    event.message = Some(failure.message.clone());
                    event.code.clone_from(&failure.code);
                });
                answer = self.reporter.answer("failed", None, Some(&next));
            }
            None => {
                draft.fail_activity(&activity, &attempt, &failure, None);
                answer = self
                    .reporter
                    .answer("failed", None, draft.created_workflow_task(run));
            }
        }
        answer["retry_scheduled"] = json!(retry.is_some());
        draft.close_activity_task(
            &activity,
            TaskStatus::Completed,
            "failed",
            Some(self.reporter.report(Verb::Fail, &answer)),
        );
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }
}

/// The shared beginning of complete and fail: either the current attempt, or the finished decision.
fn fence_report(
    reporter: &Reporter,
    run: &Run,
    verb: Verb,
    moment: Moment<'_>,
) -> Result<(Box<Activity>, Attempt), Decision<Answer>> {
    match reporter.fence(run, Some(verb)) {
        Fenced::Duplicate(body) => Err(Decision::unchanged(Answer {
            body,
            duplicate: true,
        })),
        Fenced::Refused(rejection) => Err(Decision::reject(rejection)),
        Fenced::Current(activity, attempt) => {
            let mut draft = Draft::of(run, moment);
            if draft.time_out_if_due() {
                let closed = draft.core.closed.clone().expect("the run was just closed");
                let rejection = Rejection::RunClosed(Box::new(RunClosed {
                    status: draft.core.status,
                    closed,
                    task_status: TaskStatus::Cancelled,
                    lease_owner: None,
                    lease_expires_at: None,
                }));
                return Err(draft.finish(Err(rejection)));
            }
            Ok((activity, attempt))
        }
    }
}

impl Draft<'_> {
    /// The activity failed for good.
    fn fail_activity(
        &mut self,
        activity: &Activity,
        attempt: &Attempt,
        failure: &Failure,
        limit: Option<LimitBreach>,
    ) {
        let mut exception = Map::new();
        exception.insert("message".to_owned(), json!(failure.message));
        exception.insert("non_retryable".to_owned(), json!(failure.non_retryable));
        if let Some(failure_type) = &failure.failure_type {
            exception.insert("type".to_owned(), json!(failure_type));
        }
        if let Some(code) = &failure.code {
            exception.insert("code".to_owned(), code.clone());
        }
        if let Some(details) = &failure.details {
            exception.insert("details".to_owned(), json!(details.blob()));
            exception.insert("details_payload_codec".to_owned(), json!(PAYLOAD_CODEC));
        }
        if let Some(diagnostics) = &failure.diagnostics {
            exception.insert("diagnostics".to_owned(), diagnostics.clone());
        }
        if let Some(diagnostics) = &failure.runtime_diagnostics {
            exception.insert("runtime_diagnostics".to_owned(), diagnostics.clone());
        }
        let failure_id = self.ids.mint();
        self.append(EventPayload::ActivityFailed(Box::new(ActivityFailed {
            call: activity.call(),
            activity_attempt_id: attempt.id.clone(),
            attempt_number: attempt.number,
            failure_id,
            failure_category: if limit.is_some() {
                "structural_limit"
            } else {
                "activity"
            },
            non_retryable: failure.non_retryable,
            exception_type: failure.failure_type.clone(),
            exception_class: failure.class.clone(),
            message: failure.message.clone(),
            code: failure.code.clone(),
            exception,
            limit,
        })));
        self.drop_activity(activity.sequence);
        self.resolve(
            activity.group.as_ref(),
            true,
            activity.resume("ActivityFailed"),
        );
    }
}

impl Command for HeartbeatActivity {
    type Reply = Pulse;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Pulse> {
        let (activity, attempt) = match self.reporter.fence(run, None) {
            Fenced::Current(activity, attempt) => (activity, attempt),
            Fenced::Duplicate(_) => {
                return Decision::unchanged(self.stopped(run, Reason::AttemptClosed));
            }
            Fenced::Refused(rejection) => {
                let reason = match &rejection {
                    Rejection::RunClosed(closed) => activity_reason(closed.closed.reason),
                    Rejection::StaleAttempt | Rejection::AttemptClosed => rejection.reason(),
                    _ => return Decision::reject(rejection),
                };
                return Decision::unchanged(self.stopped(run, reason));
            }
        };
        let Beat::Renew { progress } = &self.beat else {
            return Decision::unchanged(healthy(run, &activity, &attempt, false));
        };
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            let pulse = self.stopped_by(
                draft.core.status,
                draft.core.closed.clone(),
                Reason::RunClosed,
            );
            return draft.finish(Ok(pulse));
        }
        let (activity, attempt) = draft.renew_activity(*activity, attempt, progress.as_ref());
        draft.finish(Ok(healthy(run, &activity, &attempt, true)))
    }
}

impl HeartbeatActivity {
    fn stopped(&self, run: &Run, reason: Reason) -> Pulse {
        self.stopped_by(run.core.status, run.core.closed.clone(), reason)
    }

    fn stopped_by(&self, run_status: Status, closed: Option<Closed>, reason: Reason) -> Pulse {
        let by_run = closed
            .as_ref()
            .is_some_and(|closed| closed.reason.was_stopped());
        let run_closed = closed.is_some();
        Pulse {
            can_continue: false,
            cancel_requested: by_run,
            recorded: false,
            reason: Some(reason),
            lease_expires_at: None,
            last_heartbeat_at: None,
            task_status: if run_closed {
                TaskStatus::Cancelled
            } else {
                self.reporter.row.status
            },
            attempt_status: if run_closed { "cancelled" } else { "expired" },
            activity_status: if run_closed { "cancelled" } else { "running" },
            run_status,
            closed,
            deadlines: Deadlines::default(),
        }
    }
}

fn healthy(run: &Run, activity: &Activity, attempt: &Attempt, recorded: bool) -> Pulse {
    Pulse {
        can_continue: true,
        cancel_requested: false,
        recorded,
        reason: None,
        lease_expires_at: attempt.lease_expires_at,
        last_heartbeat_at: attempt.last_heartbeat_at,
        task_status: if attempt.lease_expires_at.is_some() {
            TaskStatus::Leased
        } else {
            TaskStatus::Ready
        },
        attempt_status: "running",
        activity_status: "running",
        run_status: run.core.status,
        closed: None,
        deadlines: activity.deadlines(&run.spec),
    }
}

impl Draft<'_> {
    /// An accepted heartbeat. One that comes after the lease ran out, and before the next claim, takes the task back.
    fn renew_activity(
        &mut self,
        mut activity: Activity,
        mut attempt: Attempt,
        progress: Option<&Value>,
    ) -> (Activity, Attempt) {
        let lease_expires_at = self.now.plus_seconds(self.limits.activity_lease_seconds);
        attempt.lease_expires_at = Some(lease_expires_at);
        attempt.last_heartbeat_at = Some(self.now);
        let timeout = activity
            .retry
            .as_ref()
            .and_then(|retry| retry.heartbeat_timeout);
        attempt.heartbeat_deadline_at = timeout.map(|seconds| self.now.plus_seconds(seconds));
        let changed = progress.is_some() && attempt.progress.as_ref() != progress;
        let quiet_until = attempt
            .recorded_heartbeat_at
            .map(|at| at.plus_seconds(self.limits.heartbeat_event_seconds));
        if changed {
            attempt.progress = progress.cloned();
        }
        // History has a budget: a chatty activity writes at most one event per interval unless it has something new to say.
        if changed || quiet_until.is_none_or(|until| until <= self.now) {
            attempt.recorded_heartbeat_at = Some(self.now);
            self.append(EventPayload::ActivityHeartbeatRecorded(
                ActivityHeartbeatRecorded {
                    call: activity.call(),
                    activity_attempt_id: attempt.id.clone(),
                    attempt_number: attempt.number,
                    heartbeat_at: self.now,
                    lease_expires_at,
                    progress: attempt.progress.clone(),
                },
            ));
        }
        activity.attempt = Some(attempt.clone());
        self.put_activity(activity.clone());
        (activity, attempt)
    }
}
