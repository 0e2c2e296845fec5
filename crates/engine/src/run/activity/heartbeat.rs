//! Heartbeats of an activity's worker, and its status calls, which ask whether to continue.

use longhaul_protocol::history::{ActivityHeartbeatRecorded, EventPayload};
use longhaul_protocol::id::TaskQueue;
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_protocol::{Reason, Timestamp};
use serde_json::Value;

use crate::change::TaskStatus;
use crate::rejection::activity_reason;
use crate::run::activity::fence::{FenceRefusal, Reporter};
use crate::run::activity::schedule::Deadlines;
use crate::run::activity::stop::StopOrder;
use crate::run::draft::{Activities, Draft};
use crate::run::state::{Activity, Attempt, Closed, Run, Status};
use crate::session::{self, Owner, Refusal, Session};
use crate::{Changes, Command, Decision, Moment};

/// The worker is alive, or asks whether to continue.
#[derive(Clone, Debug)]
pub struct HeartbeatActivity {
    pub reporter: Reporter,
    pub request: HeartbeatRequest,
    /// The session that the activity runs in, as it is stored.
    pub session: Option<Box<StoredSession>>,
}

/// The row of a session and whether its owner is alive.
#[derive(Clone, Debug)]
pub struct StoredSession {
    pub session: Option<Session>,
    pub owner: Owner,
}

/// What a heartbeat does.
#[derive(Clone, Debug, PartialEq)]
pub enum HeartbeatRequest {
    /// Renews the lease and stores the progress, if any.
    Renew { progress: Option<Value> },
    /// Reads the state and changes nothing.
    Status,
}

/// The reply to a heartbeat or a status call.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatReply {
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
    /// Identifies the stop that the worker must acknowledge when its callback has stopped.
    pub stop_order: Option<StopOrder>,
    /// The session it runs in: as renewed, or as it was when it refused.
    pub session: Option<Box<SessionHeartbeat>>,
}

/// A session in the reply to a heartbeat, with the options of the activity's author.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionHeartbeat {
    pub options: WorkerSessionOptions,
    pub queue: TaskQueue,
    pub session: Option<Session>,
}

impl Command for HeartbeatActivity {
    type Reply = HeartbeatReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<HeartbeatReply> {
        let (activity, attempt) = match self.reporter.current(run) {
            Ok(current) => current,
            // Errors of the caller are refused; news about the attempt is a reply.
            Err(refusal) => {
                let reason = match &refusal {
                    FenceRefusal::RunClosed(closed) => activity_reason(closed.closed.reason),
                    FenceRefusal::StaleAttempt => Reason::StaleAttempt,
                    FenceRefusal::AttemptClosed => Reason::AttemptClosed,
                    FenceRefusal::ActivityCancelled => Reason::ActivityCancelled,
                    FenceRefusal::AttemptNotFound
                    | FenceRefusal::TaskMismatch
                    | FenceRefusal::OwnerMismatch { .. } => {
                        return Decision::reject(refusal.into());
                    }
                };
                return self.stop(run, self.stopped(run, reason), moment);
            }
        };
        if activity.stop_requested {
            let reply = self.stopped(run, Reason::ActivityCancelled);
            return self.stop(run, reply, moment);
        }
        let HeartbeatRequest::Renew { progress } = &self.request else {
            let mut reply = healthy(run, activity, attempt);
            if !self.session_is_usable(moment.now) {
                reply.can_continue = false;
                reply.reason = Some(Reason::WorkerSessionUnavailable);
            }
            reply.session = self.session_state(None);
            return Decision::unchanged(reply);
        };
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            let reply = self.stopped_by(
                draft.core.status,
                draft.core.closed.clone(),
                Reason::RunClosed,
            );
            return draft.finish(Ok(reply));
        }
        let renewed = match self.renew_session(moment.now).transpose() {
            Ok(renewed) => renewed,
            // Nothing is recorded: the attempt is redelivered rather than failed.
            Err(refusal) => {
                let mut reply = healthy(run, activity, attempt);
                reply.can_continue = false;
                reply.reason = Some(refusal.reason());
                reply.session = self.session_state(refusal.session().cloned());
                return Decision::unchanged(reply);
            }
        };
        let (activity, attempt) =
            draft
                .activities()
                .renew(activity.clone(), attempt.clone(), progress.as_ref());
        let mut reply = healthy(run, &activity, &attempt);
        reply.recorded = true;
        reply.session = self.session_state(renewed.clone());
        let mut decision = draft.finish(Ok(reply));
        decision.changes.sessions.extend(renewed);
        decision
    }
}

impl HeartbeatActivity {
    /// Returns the reply that makes the worker stop. Its session is still renewed while it cleans up, unless another attempt
    /// replaced it.
    fn stop(
        &self,
        run: &Run,
        mut reply: HeartbeatReply,
        moment: Moment<'_>,
    ) -> Decision<HeartbeatReply> {
        let renews = reply.cancel_requested
            && matches!(self.request, HeartbeatRequest::Renew { .. })
            && self.was_last(run);
        let renewed = renews
            .then(|| self.renew_session(moment.now))
            .flatten()
            .and_then(Result::ok);
        reply.session = self.session_state(renewed.clone());
        Decision {
            changes: Changes::of_sessions(renewed.into_iter().collect()),
            reply: Ok(reply),
        }
    }

    /// Returns whether the attempt of the reporter is the newest of its task.
    fn was_last(&self, run: &Run) -> bool {
        let row = &self.reporter.row;
        let open = run
            .activity(row.sequence)
            .and_then(|activity| activity.attempt.as_ref())
            .map(|attempt| (&attempt.id, &attempt.owner));
        let ended = row.closed.as_ref().and_then(|closed| {
            let attempt_id = closed.attempts.last()?;
            Some((attempt_id, row.lease_owner.as_ref()?))
        });
        open.or(ended) == Some((&self.reporter.named.attempt_id, &self.reporter.named.owner))
    }

    /// Renews the session with the activity's own lease time; returns `None` if the activity runs in no session.
    fn renew_session(&self, now: Timestamp) -> Option<Result<Session, Refusal>> {
        let options = self.reporter.row.worker_session.as_ref()?;
        let stored = self.session.as_ref()?;
        Some(session::renew(
            stored.session.as_ref(),
            stored.owner,
            &self.reporter.named.owner,
            Some(options.lease_seconds()),
            now,
        ))
    }

    fn session_is_usable(&self, now: Timestamp) -> bool {
        let in_session = self.reporter.row.worker_session.is_some();
        !in_session
            || self.session.as_ref().is_some_and(|stored| {
                let session = stored.session.as_ref();
                session::is_usable(session, stored.owner, &self.reporter.named.owner, now)
            })
    }

    /// Returns the session as just written, or else as stored.
    fn session_state(&self, newer: Option<Session>) -> Option<Box<SessionHeartbeat>> {
        let row = &self.reporter.row;
        let options = row.worker_session.as_ref()?;
        let stored = self.session.as_ref();
        Some(Box::new(SessionHeartbeat {
            options: (**options).clone(),
            queue: row.queue.clone(),
            session: newer.or_else(|| stored.and_then(|stored| stored.session.clone())),
        }))
    }

    fn stopped(&self, run: &Run, reason: Reason) -> HeartbeatReply {
        let mut reply = self.stopped_by(run.core.status, run.core.closed.clone(), reason);
        let stopped = self
            .reporter
            .row
            .closed
            .as_ref()
            .is_some_and(|closed| closed.stopped);
        reply.stop_order = run
            .core
            .cancellation
            .as_deref()
            .filter(|_| reply.cancel_requested)
            .map(|cancellation| StopOrder::of(cancellation, stopped));
        reply
    }

    fn stopped_by(
        &self,
        run_status: Status,
        closed: Option<Closed>,
        reason: Reason,
    ) -> HeartbeatReply {
        let by_run = closed
            .as_ref()
            .is_some_and(|closed| closed.reason.was_stopped());
        let given_up = reason == Reason::ActivityCancelled;
        let over = closed.is_some() || given_up;
        HeartbeatReply {
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
            session: None,
        }
    }
}

fn healthy(run: &Run, activity: &Activity, attempt: &Attempt) -> HeartbeatReply {
    HeartbeatReply {
        can_continue: true,
        cancel_requested: false,
        recorded: false,
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
        session: None,
    }
}

impl Activities<'_, '_> {
    /// Applies an accepted heartbeat. If the lease has run out and the task has not been claimed again, the heartbeat takes the
    /// task back.
    fn renew(
        &mut self,
        mut activity: Activity,
        mut attempt: Attempt,
        progress: Option<&Value>,
    ) -> (Activity, Attempt) {
        let lease_expires_at = self
            .draft
            .now
            .plus_seconds(self.draft.limits.activity_lease_seconds);
        attempt.lease_expires_at = Some(lease_expires_at);
        attempt.last_heartbeat_at = Some(self.draft.now);
        let timeout = activity
            .retry
            .as_ref()
            .and_then(|retry| retry.heartbeat_timeout);
        attempt.heartbeat_deadline_at = timeout.map(|seconds| self.draft.now.plus_seconds(seconds));
        let quiet_until = attempt
            .recorded_heartbeat_at
            .map(|at| at.plus_seconds(self.draft.limits.heartbeat_event_seconds));
        if progress.is_some() {
            attempt.progress = progress.cloned();
        }
        // History has a budget: a chatty activity writes at most one event per interval, with its newest progress.
        if quiet_until.is_none_or(|until| until <= self.draft.now)
            && self.draft.has_room_to_inform()
        {
            attempt.recorded_heartbeat_at = Some(self.draft.now);
            self.draft.append(EventPayload::ActivityHeartbeatRecorded(
                ActivityHeartbeatRecorded {
                    call: activity.call(),
                    activity_attempt_id: attempt.id.clone(),
                    attempt_number: attempt.number,
                    heartbeat_at: self.draft.now,
                    lease_expires_at: Some(lease_expires_at),
                    progress: attempt.progress.clone(),
                },
            ));
        }
        activity.attempt = Some(attempt.clone());
        self.put(activity.clone());
        (activity, attempt)
    }
}
