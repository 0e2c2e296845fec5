//! A worker claims an activity task. Every claim is a new attempt with a new id; the previous attempt may no longer report.

use std::sync::Arc;

use longhaul_protocol::history::{ActivityStarted, EventPayload};
use longhaul_protocol::id::{TaskId, WorkerId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::{Payload, Reason, Timestamp};

use crate::run::draft::{Activities, Draft};
use crate::run::state::{Activity, Attempt, Part, PartKey, RetryPolicy, Run, Spec};
use crate::session::{self, Acquired, Admission, Session};
use crate::{Command, Decision, Moment, Rejection};

/// A worker claims an activity task.
#[derive(Clone, Debug)]
pub struct ClaimActivityTask {
    pub task_id: TaskId,
    pub sequence: CommandSeq,
    pub worker_id: WorkerId,
    pub poll_request_id: Option<String>,
    /// The inputs for the rules of the session, for a task that must run in one.
    pub admission: Option<Box<Admission>>,
}

/// A leased activity task.
#[derive(Clone, Debug)]
pub struct ActivityClaim {
    pub spec: Arc<Spec>,
    pub activity: Activity,
    pub attempt: Attempt,
    pub lease_expires_at: Timestamp,
    pub arguments: Payload,
    /// The session it runs in, as it is now.
    pub session: Option<Box<Session>>,
    /// How the claim acquired the session; `None` if the claim is a repeat.
    pub acquired: Option<session::Outcome>,
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
                let mut claim = claim_view(&draft, &activity, attempt.clone(), expires_at);
                claim.session = self.stored_session();
                Decision::unchanged(claim)
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
        // A passed deadline takes precedence over another delivery.
        if draft.activities().expire(self.sequence) {
            return draft.finish(not_claimable(Reason::TaskNotReady));
        }
        // Last, so that a refused claim does not acquire a session.
        let acquired = match self.enter_session(run, &activity, moment.now) {
            Ok(acquired) => acquired,
            Err(rejection) => return Decision::reject(rejection),
        };
        let mut claim = draft.activities().grant(activity, self);
        let (mut sessions, mut caps) = (Vec::new(), Vec::new());
        if let Some(acquired) = acquired {
            let applicant = self
                .admission
                .as_ref()
                .map(|admission| &admission.applicant);
            caps.extend(applicant.and_then(|applicant| acquired.cap(applicant)));
            claim.acquired = Some(acquired.outcome);
            claim.session = Some(Box::new(acquired.session.clone()));
            sessions.push(acquired.session);
        }
        let mut decision = draft.finish(Ok(claim));
        decision.changes.sessions = sessions;
        decision.changes.add_caps(caps);
        decision
    }
}

impl ClaimActivityTask {
    /// Admits the worker to the session that the activity must run in.
    fn enter_session(
        &self,
        run: &Run,
        activity: &Activity,
        now: Timestamp,
    ) -> Result<Option<Acquired>, Rejection> {
        let Some(options) = &activity.worker_session else {
            return Ok(None);
        };
        let Some(admission) = &self.admission else {
            return Err(Rejection::NotClaimable {
                reason: Reason::TaskNotReady,
            });
        };
        let acquired = session::acquire(
            admission,
            &run.spec.namespace,
            options,
            &activity.queue,
            Some(&self.task_id),
            now,
        );
        acquired
            .map(Some)
            .map_err(|refusal| Rejection::SessionRefused(Box::new(refusal)))
    }

    fn stored_session(&self) -> Option<Box<Session>> {
        let session = self.admission.as_ref()?.session.clone();
        session.map(Box::new)
    }
}

impl Activities<'_, '_> {
    fn grant(&mut self, mut activity: Activity, claim: &ClaimActivityTask) -> ActivityClaim {
        activity.retire_attempt();
        activity.attempt_count += 1;
        let attempt_id = self.draft.ids.mint();
        let lease_expires_at = self
            .draft
            .now
            .plus_seconds(self.draft.limits.activity_lease_seconds);
        let timeout = |pick: fn(&RetryPolicy) -> Option<u64>| {
            activity
                .retry
                .as_ref()
                .and_then(pick)
                .map(|seconds| self.draft.now.plus_seconds(seconds))
        };
        let attempt = Attempt {
            id: attempt_id,
            number: activity.attempt_count,
            owner: claim.worker_id.clone(),
            started_at: self.draft.now,
            lease_expires_at: Some(lease_expires_at),
            close_deadline_at: timeout(|retry| retry.start_to_close_timeout),
            heartbeat_deadline_at: timeout(|retry| retry.heartbeat_timeout),
            last_heartbeat_at: None,
            recorded_heartbeat_at: None,
            progress: None,
            poll_request_id: claim.poll_request_id.clone(),
        };
        activity.schedule_deadline_at = None;
        self.draft
            .inform(EventPayload::ActivityStarted(ActivityStarted {
                call: activity.call(),
                activity_attempt_id: attempt.id.clone(),
                attempt_number: attempt.number,
                lease_expires_at,
                worker_attempt_id: None,
            }));
        activity.attempt = Some(attempt.clone());
        self.put(activity.clone());
        claim_view(self.draft, &activity, attempt, lease_expires_at)
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
        session: None,
        acquired: None,
    }
}
