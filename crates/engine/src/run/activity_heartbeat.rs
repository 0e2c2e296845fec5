//! Heartbeats of an activity's worker, and its question whether to go on (engine.md §6.6).

use longhaul_protocol::history::{ActivityHeartbeatRecorded, EventPayload};
use longhaul_protocol::{Reason, Timestamp};
use serde_json::Value;

use super::activity::Deadlines;
use super::activity_report::{Fenced, Reporter};
use super::activity_stop::StopOrder;
use super::draft::Draft;
use super::state::{Activity, Attempt, Closed, Run, Status};
use crate::change::TaskStatus;
use crate::rejection::activity_reason;
use crate::{Command, Decision, Moment, Rejection};

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
    /// What the worker needs to say that its callback stopped.
    pub stop_order: Option<StopOrder>,
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
                // Mistakes of the caller are refused; news about the attempt is an answer.
                let reason = match &rejection {
                    Rejection::RunClosed(closed) => activity_reason(closed.closed.reason),
                    Rejection::StaleAttempt
                    | Rejection::AttemptClosed
                    | Rejection::ActivityCancelled => rejection.reason(),
                    Rejection::AttemptNotFound
                    | Rejection::TaskMismatch
                    | Rejection::LeaseOwnerMismatch { .. }
                    | Rejection::TaskNotFound
                    | Rejection::NotClaimable { .. }
                    | Rejection::RunTimedOut { .. }
                    | Rejection::TaskNotLeased { .. }
                    | Rejection::LeaseExpired { .. }
                    | Rejection::AttemptMismatch { .. }
                    | Rejection::InvalidCommands { .. }
                    | Rejection::VersionMarkerConflict { .. }
                    | Rejection::RunNotActive { .. }
                    | Rejection::NotCurrent
                    | Rejection::RunNotClosed
                    | Rejection::AlreadyStarted { .. }
                    | Rejection::OtherWorkflowType { .. }
                    | Rejection::InvalidSearchAttributes { .. }
                    | Rejection::LimitExceeded(_)
                    | Rejection::RequestIdConflict { .. }
                    | Rejection::UnknownSignal { .. }
                    | Rejection::InvalidSignalArguments { .. }
                    | Rejection::NotCooperative
                    | Rejection::ActiveClaimNotCooperative { .. }
                    | Rejection::CancellationMismatch
                    | Rejection::MessageIdentityConflict { .. }
                    | Rejection::LocalActivityRefused { .. }
                    | Rejection::UpdateRefused(_) => {
                        return Decision::reject(rejection);
                    }
                };
                return Decision::unchanged(self.stopped(run, reason));
            }
        };
        if activity.stop_requested {
            return Decision::unchanged(self.stopped(run, Reason::ActivityCancelled));
        }
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
        let mut pulse = self.stopped_by(run.core.status, run.core.closed.clone(), reason);
        let said = self
            .reporter
            .row
            .closed
            .as_ref()
            .is_some_and(|closed| closed.stopped);
        pulse.stop_order = run
            .core
            .cancellation
            .as_deref()
            .filter(|_| pulse.cancel_requested)
            .map(|cancellation| StopOrder::of(cancellation, said));
        pulse
    }

    fn stopped_by(&self, run_status: Status, closed: Option<Closed>, reason: Reason) -> Pulse {
        let by_run = closed
            .as_ref()
            .is_some_and(|closed| closed.reason.was_stopped());
        let given_up = reason == Reason::ActivityCancelled;
        let over = closed.is_some() || given_up;
        Pulse {
            can_continue: false,
            cancel_requested: by_run || given_up,
            recorded: false,
            reason: Some(reason),
            lease_expires_at: None,
            last_heartbeat_at: None,
            task_status: if over {
                TaskStatus::Cancelled
            } else {
                self.reporter.row.status
            },
            attempt_status: if over { "cancelled" } else { "expired" },
            activity_status: if over { "cancelled" } else { "running" },
            run_status,
            closed,
            deadlines: Deadlines::default(),
            stop_order: None,
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
        stop_order: None,
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
                    lease_expires_at: Some(lease_expires_at),
                    progress: attempt.progress.clone(),
                },
            ));
        }
        activity.attempt = Some(attempt.clone());
        self.put_activity(activity.clone());
        (activity, attempt)
    }
}
