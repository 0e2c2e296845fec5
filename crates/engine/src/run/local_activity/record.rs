//! `record_local_activity`: a call that is reported after its end and written at once. The report contains durations only, so the
//! times are computed backwards from now: the last attempt closes now.

use longhaul_protocol::Timestamp;
use longhaul_protocol::history::{
    ActivityCancelled, ActivityCompleted, ActivityFailed, ActivityHeartbeatRecorded,
    ActivityRetryScheduled, ActivityTimedOut, EventPayload, PAYLOAD_CODEC,
};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{
    LocalEnd, LocalFailure, LocalTimeout, RecordLocalActivity, ReportedAttempt, ReportedRetry,
};
use serde_json::{Map, Value};

use super::{Claim, EventStatus, LocalActivity, LocalAttempt};
use crate::run::draft::LocalActivities;
use crate::run::state::{RetryPolicy, retry_policy};

impl LocalActivities<'_, '_> {
    /// Writes a finished local activity. It leaves nothing open.
    pub(crate) fn record(&mut self, sequence: CommandSeq, command: &RecordLocalActivity) {
        let moments = moments(self.draft.now, &command.attempts);
        let begin = moments
            .first()
            .map_or(self.draft.now, |(started, _)| *started);
        let call = &command.call;
        let mut local = LocalActivity {
            sequence,
            execution_id: self.draft.ids.mint(),
            activity_type: call.activity_type.clone(),
            retry: RetryPolicy::of_local_activity(call),
            cancellation_policy: call.cancellation_policy,
            cleanup: None,
            group: None,
            scheduled_at: begin,
            attempt_count: 0,
            attempt: None,
            past_attempts: Vec::new(),
            arguments_hash: 0,
            retry_task: None,
            claimed_retry: None,
            receipt: None,
            schedule_to_close_deadline_at: call
                .schedule_to_close_timeout
                .map(|seconds| begin.plus_seconds(seconds)),
        };
        let claim = self.draft.held_claim();
        self.write_scheduled(&local, call, &claim.task_id);
        for (report, (started_at, closed_at)) in command.attempts.iter().zip(moments) {
            let attempt = self.reported_attempt(&mut local, &claim, report, started_at);
            self.write_started(&local, &attempt);
            self.write_reported_heartbeats(&mut local, report);
            if let Some(retry) = &report.retry {
                self.write_reported_retry(&local, retry, closed_at);
            } else {
                self.write_reported_end(&local, &command.end, closed_at);
            }
        }
    }

    fn reported_attempt(
        &mut self,
        local: &mut LocalActivity,
        claim: &Claim,
        report: &ReportedAttempt,
        started_at: Timestamp,
    ) -> LocalAttempt {
        let policy = |pick: fn(&RetryPolicy) -> Option<u64>| {
            let seconds = local.retry.as_ref().and_then(pick)?;
            Some(started_at.plus_seconds(seconds))
        };
        let attempt = LocalAttempt {
            id: self.draft.ids.mint(),
            number: local.attempt_count + 1,
            task_id: claim.task_id.clone(),
            task_attempt: claim.attempt,
            owner: claim.owner.clone(),
            worker_attempt_id: report.attempt_id.clone(),
            started_at,
            lease_expires_at: claim.expires_at,
            last_heartbeat_at: None,
            close_deadline_at: policy(|retry| retry.start_to_close_timeout),
            heartbeat_deadline_at: policy(|retry| retry.heartbeat_timeout),
            progress: None,
            recorded_heartbeat: None,
            fenced: false,
            stopped: false,
        };
        local.attempt_count = attempt.number;
        local.attempt = Some(attempt.clone());
        attempt
    }

    fn write_reported_heartbeats(&mut self, local: &mut LocalActivity, report: &ReportedAttempt) {
        let timeout = local
            .retry
            .as_ref()
            .and_then(|retry| retry.heartbeat_timeout);
        for heartbeat in &report.heartbeats {
            let Some(attempt) = &mut local.attempt else {
                return;
            };
            let at = later(attempt.started_at, heartbeat.elapsed_ms);
            attempt.last_heartbeat_at = Some(at);
            attempt.heartbeat_deadline_at = timeout.map(|seconds| at.plus_seconds(seconds));
            let (activity_attempt_id, attempt_number) = (attempt.id.clone(), attempt.number);
            let task_id = attempt.task_id.clone();
            self.draft.append(EventPayload::ActivityHeartbeatRecorded(
                ActivityHeartbeatRecorded {
                    call: local.call(&task_id, EventStatus::RUNNING),
                    activity_attempt_id,
                    attempt_number,
                    heartbeat_at: at,
                    lease_expires_at: None,
                    progress: heartbeat.details.clone().map(Value::Object),
                },
            ));
        }
    }

    fn write_reported_retry(
        &mut self,
        local: &LocalActivity,
        retry: &ReportedRetry,
        closed_at: Timestamp,
    ) {
        let Some(attempt) = &local.attempt else {
            return;
        };
        let attempt_id = Some(attempt.id.clone());
        self.draft
            .append(EventPayload::ActivityRetryScheduled(Box::new(
                ActivityRetryScheduled {
                    call: local.call(&attempt.task_id, EventStatus::retrying("failed", closed_at)),
                    activity_attempt_id: attempt_id.clone(),
                    retry_task_id: None,
                    retry_of_task_id: None,
                    retry_available_at: None,
                    retry_backoff_seconds: retry.backoff_seconds,
                    retry_after_attempt_id: attempt_id,
                    retry_after_attempt: local.attempt_count,
                    retry_reason: retry.retry_reason,
                    max_attempts: retry_policy::max_attempts(local.retry.as_ref()),
                    retry_policy: local.retry.as_ref().map(RetryPolicy::to_json),
                    timeout_kind: retry.timeout_kind.map(LocalTimeout::as_str),
                    exception_type: retry.failure.exception_type.clone(),
                    exception_class: None,
                    message: Some(retry.failure.message.clone()),
                    code: None,
                },
            )));
    }

    fn write_reported_end(&mut self, local: &LocalActivity, end: &LocalEnd, at: Timestamp) {
        let Some(attempt) = &local.attempt else {
            return;
        };
        let call = |state| local.call(&attempt.task_id, state);
        let event = match end {
            LocalEnd::Completed { result } => EventPayload::ActivityCompleted(ActivityCompleted {
                call: call(EventStatus::closed("completed", "completed", at)),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                result: result.clone(),
                payload_codec: PAYLOAD_CODEC,
            }),
            LocalEnd::Failed(failure) => self.failed(local, attempt, failure, at),
            LocalEnd::TimedOut(kind, failure) => {
                EventPayload::ActivityTimedOut(Box::new(ActivityTimedOut {
                    call: call(EventStatus::closed("failed", "failed", at)),
                    activity_attempt_id: Some(attempt.id.clone()),
                    attempt_number: attempt.number,
                    failure_id: self.draft.ids.mint(),
                    failure_category: "timeout",
                    timeout_kind: kind.as_str(),
                    message: failure.message.clone(),
                    exception_class: failure.exception_type.clone(),
                    schedule_deadline_at: None,
                    close_deadline_at: attempt.close_deadline_at,
                    schedule_to_close_deadline_at: local.schedule_to_close_deadline_at,
                    heartbeat_deadline_at: attempt.heartbeat_deadline_at,
                }))
            }
            LocalEnd::Cancelled(_) => EventPayload::ActivityCancelled(ActivityCancelled {
                call: call(EventStatus::closed("cancelled", "cancelled", at)),
                workflow_command_id: None,
                activity_attempt_id: Some(attempt.id.clone()),
                attempt_number: Some(attempt.number),
                cancelled_at: at,
            }),
        };
        self.draft.append(event);
    }

    /// Records the failure exactly as the worker showed it to the workflow, without additions.
    pub(crate) fn failed(
        &mut self,
        local: &LocalActivity,
        attempt: &LocalAttempt,
        failure: &LocalFailure,
        at: Timestamp,
    ) -> EventPayload {
        EventPayload::ActivityFailed(Box::new(ActivityFailed {
            call: local.call(
                &attempt.task_id,
                EventStatus::closed("failed", "failed", at),
            ),
            activity_attempt_id: attempt.id.clone(),
            attempt_number: attempt.number,
            failure_id: self.draft.ids.mint(),
            failure_category: "application",
            non_retryable: failure.non_retryable,
            exception_type: failure.exception_type.clone(),
            exception_class: None,
            message: failure.message.clone(),
            code: None,
            exception: Map::new(),
            limit: None,
        }))
    }
}

/// Returns when each attempt started and closed, the first attempt first.
fn moments(now: Timestamp, attempts: &[ReportedAttempt]) -> Vec<(Timestamp, Timestamp)> {
    let mut moments = Vec::with_capacity(attempts.len());
    let mut closed_at = now;
    for (place, attempt) in attempts.iter().enumerate().rev() {
        let last_heartbeat = attempt
            .heartbeats
            .last()
            .map_or(0, |heartbeat| heartbeat.elapsed_ms);
        let started_at = earlier(closed_at, attempt.duration_ms.max(last_heartbeat));
        moments.push((started_at, closed_at));
        let backoff = place
            .checked_sub(1)
            .and_then(|before| attempts[before].retry.as_ref())
            .map_or(0, |retry| retry.backoff_seconds);
        closed_at = earlier(started_at, backoff.saturating_mul(1000));
    }
    moments.reverse();
    moments
}

fn earlier(at: Timestamp, milliseconds: u64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_sub(micros(milliseconds)).max(0))
}

fn later(at: Timestamp, milliseconds: u64) -> Timestamp {
    Timestamp::from_micros(at.as_micros().saturating_add(micros(milliseconds))).min(Timestamp::MAX)
}

fn micros(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds)
        .unwrap_or(i64::MAX)
        .saturating_mul(1000)
}
