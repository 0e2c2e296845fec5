//! Admission to a session: the first admitted request creates it, its owner uses it again, and another worker takes it over once
//! its holder is lost. Also the forecast for matching: which worker could lease a waiting task.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskId, TaskQueue, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;

use crate::change::{Cap, CapScope};

use super::{FailureReason, Owner, Refusal, Session, Status, with_options};

/// The worker that requests the session.
#[derive(Clone, Debug)]
pub struct Applicant {
    pub worker_id: WorkerId,
    pub task_queue: TaskQueue,
    pub capabilities: std::sync::Arc<Vec<String>>,
    pub max_sessions: u64,
    /// Sessions that name it as owner and are active in the store.
    pub holds: Vec<Session>,
}

/// An attempt that runs inside the session, by its task's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub task_id: TaskId,
    pub owner: WorkerId,
    pub lease_expires_at: Timestamp,
}

/// The inputs of an admission, all read before the commit that the version of the row guards.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The row as it is stored.
    pub session: Option<Session>,
    /// Whether the owner named in the row is alive.
    pub owner: Owner,
    pub applicant: Applicant,
    /// Leased attempts of the session, of every worker.
    pub attempts: Vec<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    /// Renewed by its owner.
    Reused,
    /// Taken over; everything in the former owner's memory is lost.
    Reacquired,
}

impl Outcome {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Reused => "reused",
            Self::Reacquired => "reacquired",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Acquired {
    pub session: Session,
    pub outcome: Outcome,
}

impl Acquired {
    /// Returns the bound on the sessions of the worker, if this is one more of them.
    pub fn cap(&self, applicant: &Applicant) -> Option<Cap> {
        if self.outcome == Outcome::Reused {
            return None;
        }
        let namespace = self.session.namespace.clone();
        Some(Cap {
            scope: CapScope::WorkerSessions(namespace, applicant.worker_id.clone()),
            max: applicant.max_sessions,
        })
    }
}

/// Acquires the session for the applicant: for an activity task, or explicitly. `queue` is the queue of the session for admission:
/// the activity's, or that of an explicit create.
pub fn acquire(
    admission: &Admission,
    namespace: &Namespace,
    options: &WorkerSessionOptions,
    queue: &TaskQueue,
    task: Option<&TaskId>,
    now: Timestamp,
) -> Result<Acquired, Refusal> {
    let applicant = &admission.applicant;
    applicant.check(options, queue)?;
    let Some(stored) = &admission.session else {
        if !options.create_if_missing() {
            return Err(Refusal::Missing);
        }
        applicant.check_limit(options, now)?;
        return Ok(Acquired {
            session: create(namespace, options, queue, &applicant.worker_id, now),
            outcome: Outcome::Created,
        });
    };
    let seen = stored.seen(admission.owner, now);
    let outcome = if seen.status == Status::Active {
        if seen.lease_owner != applicant.worker_id {
            return Err(Refusal::OwnedByAnother(Box::new(seen)));
        }
        if task.is_some() && is_full(&seen, &admission.attempts, task, now) {
            return Err(Refusal::ActivityLimit(Box::new(seen)));
        }
        Outcome::Reused
    } else {
        may_be_retaken(&seen, options)?;
        applicant.check_limit(options, now)?;
        Outcome::Reacquired
    };
    let taken = Session {
        status: Status::Active,
        lease_owner: applicant.worker_id.clone(),
        lease_expires_at: seen.lease_until(&applicant.worker_id, options.lease_seconds(), now),
        failure_reason: None,
        closed_at: None,
        last_heartbeat_at: now,
        ..stored.rewritten(now)
    };
    Ok(Acquired {
        session: with_options(taken, options, queue),
        outcome,
    })
}

impl Applicant {
    /// Checks the queue first, then the requirements; they are exact strings.
    fn check(&self, options: &WorkerSessionOptions, queue: &TaskQueue) -> Result<(), Refusal> {
        if self.task_queue != *queue {
            return Err(Refusal::QueueMismatch {
                registered: self.task_queue.clone(),
                requested: queue.clone(),
            });
        }
        let missing: Vec<String> = options
            .requirements
            .iter()
            .filter(|requirement| !self.capabilities.contains(requirement))
            .cloned()
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Refusal::RequirementsNotMet { missing })
        }
    }

    /// Checks the number of sessions that the applicant holds besides this one.
    fn check_limit(&self, options: &WorkerSessionOptions, now: Timestamp) -> Result<(), Refusal> {
        let held = self.holds.iter().filter(|session| {
            session.is_held(now)
                && session.lease_owner == self.worker_id
                && session.session_id != options.session_id
        });
        if held.count() as u64 >= self.max_sessions {
            return Err(Refusal::WorkerLimit {
                max: self.max_sessions,
            });
        }
        Ok(())
    }
}

/// Returns whether the session runs its maximum of activities. Attempts of a former owner do not count, nor does the task to be
/// claimed.
fn is_full(session: &Session, attempts: &[Attempt], but: Option<&TaskId>, now: Timestamp) -> bool {
    let others = attempts
        .iter()
        .filter(|attempt| Some(&attempt.task_id) != but);
    count(session, others, now) >= session.max_concurrent_activities
}

/// Returns the number of attempts of the owner that run inside the session.
pub fn running(session: &Session, attempts: &[Attempt], now: Timestamp) -> u64 {
    count(session, attempts.iter(), now)
}

fn count<'a>(
    session: &Session,
    attempts: impl Iterator<Item = &'a Attempt>,
    now: Timestamp,
) -> u64 {
    let running = attempts
        .filter(|attempt| attempt.owner == session.lease_owner && attempt.lease_expires_at > now);
    running.count() as u64
}

/// Checks whether a session without a holder may be taken over: the session and the request must allow it.
fn may_be_retaken(session: &Session, options: &WorkerSessionOptions) -> Result<(), Refusal> {
    if session.status == Status::Closed {
        return Err(Refusal::Closed(Box::new(session.clone())));
    }
    if session.failure_reason == Some(FailureReason::TtlExpired)
        || !session.allow_reacquire_after_failure
        || !options.allow_reacquire_after_failure()
    {
        return Err(Refusal::ReacquireDisallowed(Box::new(session.clone())));
    }
    Ok(())
}

fn create(
    namespace: &Namespace,
    options: &WorkerSessionOptions,
    queue: &TaskQueue,
    worker_id: &WorkerId,
    now: Timestamp,
) -> Session {
    let ttl_expires_at = now.plus_seconds(options.ttl_seconds());
    let blank = Session {
        namespace: namespace.clone(),
        session_id: options.session_id.clone(),
        version: 1,
        connection: None,
        queue: queue.clone(),
        requirements: Vec::new(),
        status: Status::Active,
        lease_owner: worker_id.clone(),
        lease_expires_at: now
            .plus_seconds(options.lease_seconds())
            .min(ttl_expires_at),
        ttl_expires_at,
        closed_at: None,
        failure_reason: None,
        lease_seconds: 1,
        ttl_seconds: 1,
        max_concurrent_activities: 1,
        create_if_missing: true,
        allow_reacquire_after_failure: true,
        last_heartbeat_at: now,
        created_at: now,
        updated_at: now,
    };
    with_options(blank, options, queue)
}

/// Which worker could lease a waiting task of the session, judged by the session alone.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionAdmission {
    /// Any worker of the queue that meets the requirements and may hold one more session.
    Free,
    /// This worker only.
    Held(WorkerId),
    /// No worker now.
    Blocked(Box<Refusal>),
}

/// Returns what matching can expect before a worker polls. `session` is the row, `None` if none exists.
pub fn expected_admission(
    session: Option<&Session>,
    options: &WorkerSessionOptions,
    attempts: &[Attempt],
    now: Timestamp,
) -> SessionAdmission {
    let Some(session) = session else {
        return if options.create_if_missing() {
            SessionAdmission::Free
        } else {
            SessionAdmission::Blocked(Box::new(Refusal::Missing))
        };
    };
    let seen = session.seen(Owner::Live, now);
    if seen.status != Status::Active {
        return match may_be_retaken(&seen, options) {
            Ok(()) => SessionAdmission::Free,
            Err(refusal) => SessionAdmission::Blocked(Box::new(refusal)),
        };
    }
    if is_full(&seen, attempts, None, now) {
        return SessionAdmission::Blocked(Box::new(Refusal::ActivityLimit(Box::new(seen))));
    }
    SessionAdmission::Held(seen.lease_owner)
}

/// Returns why none of these workers can lease a ready task of the session. Returns `None` if one of them could, or if there is no
/// worker to check and the session itself does not prevent it.
pub fn blocked(
    session: Option<&Session>,
    owner: Owner,
    options: &WorkerSessionOptions,
    attempts: &[Attempt],
    workers: &[Applicant],
    now: Timestamp,
) -> Option<Refusal> {
    let seen = session.map(|session| session.seen(owner, now));
    let holder = match expected_admission(seen.as_ref(), options, attempts, now) {
        SessionAdmission::Blocked(refusal) => return Some(*refusal),
        SessionAdmission::Held(holder) => Some(holder),
        SessionAdmission::Free => None,
    };
    let refuses = |worker: &Applicant| {
        let fits = worker.check(options, &worker.task_queue);
        fits.and_then(|()| match holder {
            Some(_) => Ok(()),
            None => worker.check_limit(options, now),
        })
        .err()
    };
    match &holder {
        // Only the holder counts; if it polls a different queue, no worker here may lease the task.
        Some(holder) => match workers.iter().find(|worker| worker.worker_id == *holder) {
            Some(worker) => refuses(worker),
            None => seen.map(|seen| Refusal::OwnedByAnother(Box::new(seen))),
        },
        None => {
            let mut refusals = workers.iter().map(refuses);
            let first = refusals.next()??;
            refusals.all(|refusal| refusal.is_some()).then_some(first)
        }
    }
}
