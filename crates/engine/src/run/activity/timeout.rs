//! Deadlines and leases of activities, by the server's clock. When several have passed, the order is
//! schedule-to-close, schedule-to-start, heartbeat, start-to-close, and only then the lease.

use longhaul_protocol::Timestamp;
use longhaul_protocol::history::{ActivityTimedOut, EventPayload};
use longhaul_protocol::sequence::CommandSeq;

use crate::change::{ActivityEnd, TaskStatus};
use crate::run::draft::{Activities, earliest};
use crate::run::state::Activity;
use crate::run::wait::group::CallEnd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timeout {
    ScheduleToClose,
    ScheduleToStart,
    Heartbeat,
    StartToClose,
}

impl Timeout {
    fn as_str(self) -> &'static str {
        match self {
            Self::ScheduleToClose => "schedule_to_close",
            Self::ScheduleToStart => "schedule_to_start",
            Self::Heartbeat => "heartbeat",
            Self::StartToClose => "start_to_close",
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Self::ScheduleToClose => "schedule-to-close",
            Self::ScheduleToStart => "schedule-to-start",
            Self::Heartbeat => "heartbeat",
            Self::StartToClose => "start-to-close",
        }
    }
}

impl Activity {
    /// Returns the next time at which something happens to it without a call.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let mut due = self.schedule_to_close_deadline_at;
        match &self.attempt {
            Some(attempt) => {
                due = earliest(due, attempt.close_deadline_at);
                due = earliest(due, attempt.heartbeat_deadline_at);
                due = earliest(due, attempt.lease_expires_at);
            }
            None => {
                due = earliest(due, self.schedule_deadline_at);
                if !self.offered {
                    due = earliest(due, Some(self.available_at));
                }
            }
        }
        due
    }

    fn passed_deadline(&self, now: Timestamp) -> Option<Timeout> {
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|deadline| deadline <= now);
        if passed(self.schedule_to_close_deadline_at) {
            return Some(Timeout::ScheduleToClose);
        }
        match &self.attempt {
            None if passed(self.schedule_deadline_at) => Some(Timeout::ScheduleToStart),
            Some(attempt) if passed(attempt.heartbeat_deadline_at) => Some(Timeout::Heartbeat),
            Some(attempt) if passed(attempt.close_deadline_at) => Some(Timeout::StartToClose),
            None | Some(_) => None,
        }
    }
}

impl Activities<'_, '_> {
    /// Applies a passed deadline of the activity; returns whether there was one.
    pub(crate) fn expire(&mut self, sequence: CommandSeq) -> bool {
        let Some(mut activity) = self.draft.activity(sequence).cloned() else {
            return false;
        };
        let Some(timeout) = activity.passed_deadline(self.draft.now) else {
            return false;
        };
        if timeout == Timeout::ScheduleToStart {
            // The wait counts as an attempt although no worker claimed the task; otherwise a queue without workers would retry
            // without end.
            activity.attempt_count += 1;
        }
        let retry = if timeout == Timeout::ScheduleToClose || activity.stop_requested {
            None
        } else {
            self.draft.retry_at(&activity)
        };
        self.close_task(&activity, TaskStatus::Cancelled, ActivityEnd::Failed, None);
        match retry {
            Some(at) => {
                let message = timeout_message(&activity, timeout);
                self.retry(activity, at, |event| {
                    event.retry_reason = "timeout";
                    event.timeout_kind = Some(timeout.as_str());
                    event.message = Some(message);
                });
            }
            None => self.time_out(&activity, timeout),
        }
        true
    }

    fn time_out(&mut self, activity: &Activity, timeout: Timeout) {
        let attempt = activity.attempt.as_ref();
        let only =
            |kind: Timeout, deadline: Option<Timestamp>| deadline.filter(|_| kind == timeout);
        let failure_id = self.draft.ids.mint();
        self.draft
            .append(EventPayload::ActivityTimedOut(Box::new(ActivityTimedOut {
                call: activity.call(),
                activity_attempt_id: attempt.map(|attempt| attempt.id.clone()),
                attempt_number: activity.attempt_count,
                failure_id,
                failure_category: "timeout",
                timeout_kind: timeout.as_str(),
                message: timeout_message(activity, timeout),
                exception_class: None,
                schedule_deadline_at: only(Timeout::ScheduleToStart, activity.schedule_deadline_at),
                close_deadline_at: only(
                    Timeout::StartToClose,
                    attempt.and_then(|attempt| attempt.close_deadline_at),
                ),
                schedule_to_close_deadline_at: only(
                    Timeout::ScheduleToClose,
                    activity.schedule_to_close_deadline_at,
                ),
                heartbeat_deadline_at: only(
                    Timeout::Heartbeat,
                    attempt.and_then(|attempt| attempt.heartbeat_deadline_at),
                ),
            })));
        self.remove(activity.sequence);
        self.draft.groups().resolve(
            activity.group.as_ref(),
            CallEnd::Failed,
            activity.resume("ActivityTimedOut"),
        );
    }

    /// Applies deadlines, expired leases and due retries of every activity.
    pub(crate) fn expire_due(&mut self) {
        let due: Vec<CommandSeq> = self
            .draft
            .open_activities()
            .filter(|activity| activity.next_due().is_some_and(|at| at <= self.draft.now))
            .map(|activity| activity.sequence)
            .collect();
        for sequence in due {
            if self.expire(sequence) {
                continue;
            }
            let Some(mut activity) = self.draft.activity(sequence).cloned() else {
                continue;
            };
            match &mut activity.attempt {
                // The attempt stays current until the next claim: its worker may only be late. An attempt that was asked to stop
                // and whose lease ran out counts as stopped.
                Some(attempt)
                    if activity.stop_requested
                        && attempt
                            .lease_expires_at
                            .is_some_and(|at| at <= self.draft.now) =>
                {
                    self.end_stopped(&activity);
                    continue;
                }
                Some(attempt)
                    if attempt
                        .lease_expires_at
                        .is_some_and(|at| at <= self.draft.now) =>
                {
                    attempt.lease_expires_at = None;
                    activity.available_at = self.draft.now;
                }
                _ => {}
            }
            activity.offered = activity.available_at <= self.draft.now;
            self.put(activity);
        }
    }
}

fn timeout_message(activity: &Activity, timeout: Timeout) -> String {
    format!(
        "Activity {} {} deadline expired.",
        activity.activity_type,
        timeout.in_words()
    )
}
