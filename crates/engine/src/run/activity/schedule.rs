//! Activities: scheduling, retries and the task rows. Claims are in `claim`, the reports of workers in `report` and `heartbeat`,
//! deadlines in `timeout`.

use longhaul_protocol::history::{
    ActivityCall, ActivityRetryScheduled, ActivityScheduled, ActivitySnapshot, EventPayload,
    GroupKeys, LimitBreach, PAYLOAD_CODEC,
};
use longhaul_protocol::id::{ActivityAttemptId, TaskId, TaskQueue};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::ScheduleActivity;
use longhaul_protocol::{Payload, Timestamp};

use crate::change::{ActivityEnd, ClosedTask, StoredReply, TaskKind, TaskRow, TaskStatus};
use crate::limits;
use crate::run::draft::{Activities, Draft};
use crate::run::state::{
    Activity, Part, PartKey, PastAttempt, Resume, RetryPolicy, Run, Spec, retry_policy,
};

/// Number of finished attempts of one activity that are kept, so that a late report can be distinguished from an unknown one.
const PAST_ATTEMPTS_MAX: usize = 16;

/// The deadlines of an activity.
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
    /// Returns whether a worker holds it.
    pub(crate) fn is_running(&self) -> bool {
        let attempt = self.attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.lease_expires_at.is_some())
    }

    /// Returns the keys that every event of this call repeats.
    pub(crate) fn call(&self) -> ActivityCall {
        ActivityCall {
            activity_execution_id: self.execution_id.clone(),
            activity_type: self.activity_type.clone(),
            activity_class: self.activity_type.clone(),
            sequence: self.sequence,
            cancellation_policy: self.cancellation_policy,
            group: GroupKeys(self.group.clone()),
            local: None,
        }
    }

    pub(crate) fn resume(&self, event_type: &str) -> Resume {
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

    /// Ends the right of the current attempt to report.
    pub(crate) fn retire_attempt(&mut self) {
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

    /// Returns all deadlines, including those of the run.
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

impl Activities<'_, '_> {
    /// Applies `schedule_activity`.
    pub(crate) fn schedule(
        &mut self,
        sequence: CommandSeq,
        command: &ScheduleActivity,
    ) -> Result<(), LimitBreach> {
        limits::check(
            "pending_activity_count",
            self.draft.core.open.activities + 1,
            self.draft.limits.pending_activities,
        )?;
        let retry = RetryPolicy::of_activity(command);
        let after =
            |seconds: Option<u64>| seconds.map(|seconds| self.draft.now.plus_seconds(seconds));
        let activity = Activity {
            sequence,
            activity_type: command.activity_type.clone(),
            queue: self.draft.activity_queue(command),
            worker_session: command.worker_session.clone(),
            cancellation_policy: command.cancellation_policy,
            stop_requested: false,
            scheduled_at: self.draft.now,
            available_at: self.draft.now,
            offered: true,
            attempt_count: 0,
            attempt: None,
            past_attempts: Vec::new(),
            schedule_deadline_at: after(command.schedule_to_start_timeout),
            schedule_to_close_deadline_at: after(command.schedule_to_close_timeout),
            group: command.group.clone(),
            retry,
            execution_id: self.draft.ids.mint(),
            task_id: self.draft.ids.mint(),
        };
        self.draft.groups().join(
            sequence,
            "activity",
            Some(&command.activity_type),
            command.group.as_ref(),
            activity.execution_id.as_str(),
        );
        let arguments = command
            .arguments
            .clone()
            .unwrap_or_else(Payload::empty_list);
        self.draft.append(EventPayload::ActivityScheduled(Box::new(
            ActivityScheduled {
                call: activity.call(),
                activity: ActivitySnapshot {
                    id: activity.execution_id.clone(),
                    idempotency_key: activity.execution_id.clone(),
                    sequence,
                    activity_type: activity.activity_type.clone(),
                    class: activity.activity_type.clone(),
                    execution_mode: None,
                    local_activity: false,
                    status: "pending",
                    attempt_count: 0,
                    payload_codec: PAYLOAD_CODEC,
                    queue: Some(activity.queue.to_string()),
                    retry_policy: activity.retry.as_ref().map(RetryPolicy::to_json),
                    worker_session: activity.worker_session.clone(),
                    arguments: arguments.clone(),
                    created_at: None,
                },
            },
        )));
        self.draft.core.open.activities += 1;
        self.draft
            .put(PartKey::Arguments(sequence), Part::Arguments(arguments));
        self.put(activity);
        Ok(())
    }

    /// Stores the activity and writes the row of its open task for matching.
    pub(crate) fn put(&mut self, activity: Activity) {
        let leased = activity
            .attempt
            .as_ref()
            .is_some_and(|attempt| attempt.lease_expires_at.is_some());
        let status = match (leased, activity.offered) {
            (true, _) => TaskStatus::Leased,
            (false, true) => TaskStatus::Ready,
            (false, false) => TaskStatus::Scheduled,
        };
        let row = self.draft.activity_row(&activity, status, None);
        self.draft.tasks.insert(row.task_id.clone(), row);
        self.draft.put(
            PartKey::Activity(activity.sequence),
            Part::Activity(Box::new(activity)),
        );
    }

    /// Ends the current task of the activity; a retry may continue the activity itself.
    pub(crate) fn close_task(
        &mut self,
        activity: &Activity,
        status: TaskStatus,
        end: ActivityEnd,
        reply: Option<StoredReply>,
    ) {
        let closed = ClosedTask {
            reply,
            attempts: activity.attempts_of_current_task(),
            activity_status: Some(end),
            stopped: false,
        };
        let row = self.draft.activity_row(activity, status, Some(closed));
        self.draft.tasks.insert(row.task_id.clone(), row);
    }

    /// Removes the activity after its end, whatever its outcome.
    pub(crate) fn remove(&mut self, sequence: CommandSeq) {
        self.draft.remove(PartKey::Activity(sequence));
        self.draft.remove(PartKey::Arguments(sequence));
        self.draft.core.open.activities = self.draft.core.open.activities.saturating_sub(1);
    }

    /// Schedules the next attempt and returns its task. `why` fills the fields of the event that differ between retries.
    pub(crate) fn retry(
        &mut self,
        mut activity: Activity,
        (at, backoff): (Timestamp, u64),
        why: impl FnOnce(&mut ActivityRetryScheduled),
    ) -> TaskId {
        let attempt_id = activity.attempt.as_ref().map(|attempt| attempt.id.clone());
        let next: TaskId = self.draft.ids.mint();
        let mut event = ActivityRetryScheduled {
            call: activity.call(),
            activity_attempt_id: attempt_id.clone(),
            retry_task_id: Some(next.clone()),
            retry_of_task_id: Some(activity.task_id.clone()),
            retry_available_at: Some(at),
            retry_backoff_seconds: backoff,
            retry_after_attempt_id: attempt_id,
            retry_after_attempt: activity.attempt_count,
            retry_reason: "failure",
            max_attempts: retry_policy::max_attempts(activity.retry.as_ref()),
            retry_policy: activity.retry.as_ref().map(RetryPolicy::to_json),
            timeout_kind: None,
            exception_type: None,
            exception_class: None,
            message: None,
            code: None,
        };
        why(&mut event);
        self.draft
            .inform(EventPayload::ActivityRetryScheduled(Box::new(event)));
        activity.retire_attempt();
        activity.task_id = next.clone();
        activity.available_at = at;
        activity.offered = at <= self.draft.now;
        let to_start = activity
            .retry
            .as_ref()
            .and_then(|retry| retry.schedule_to_start_timeout);
        activity.schedule_deadline_at = to_start.map(|seconds| at.plus_seconds(seconds));
        self.put(activity);
        next
    }
}

impl Draft<'_> {
    /// Returns the queue of the call, else that of its session, else that of the run.
    fn activity_queue(&self, command: &ScheduleActivity) -> TaskQueue {
        let session = command.worker_session.as_deref();
        let named = command
            .queue
            .as_deref()
            .or_else(|| session.and_then(|session| session.queue.as_deref()));
        named.map_or_else(|| self.spec.task_queue.clone(), TaskQueue::from)
    }

    pub(crate) fn activity_row(
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
            required_capability: None,
            held_for: None,
            worker_session: activity.worker_session.clone(),
            compatibility: routing.compatibility.clone(),
            sequence: activity.sequence,
            attempt: activity.attempt_count,
            lease_owner: lease.map(|attempt| attempt.owner.clone()),
            lease_expires_at: lease.and_then(|attempt| attempt.lease_expires_at),
            poll_request_id: lease.and_then(|attempt| attempt.poll_request_id.clone()),
            closed: closed.map(Box::new),
            start_limits: None,
            started_at: None,
            found_by: None,
        }
    }

    /// Returns when another attempt may start, if the policy, the deadline and the number of attempts allow one.
    pub(crate) fn retry_at(&self, activity: &Activity) -> Option<(Timestamp, u64)> {
        if activity.stop_requested {
            return None;
        }
        retry_policy::next_attempt_at(
            activity.retry.as_ref(),
            activity.attempt_count,
            self.now,
            activity.schedule_to_close_deadline_at,
        )
    }

    /// Returns the workflow task that this decision created, if any.
    pub(crate) fn created_workflow_task(&self, before: &Run) -> Option<&TaskId> {
        let task = self.core.workflow_task.as_ref()?;
        (before
            .core
            .workflow_task
            .as_ref()
            .is_none_or(|old| old.id != task.id))
        .then_some(&task.id)
    }
}
