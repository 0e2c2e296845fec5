//! A worker's right to run several activities that share something in its memory. A session is routing state: a row beside the
//! runs, no event, no history. This module has the row, its changes over time, renewal and close; `acquire` decides which worker
//! may use it. Everything is a function of rows and `now`; the caller commits on the version of the row.
//!
//! What must hold: one owner at a time; the absolute end (`ttl_expires_at`) is set once, at creation; a closed session and one past
//! its absolute end never change again.

use longhaul_protocol::id::{Namespace, SessionId, TaskQueue, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_protocol::{Reason, Timestamp};
use serde::{Deserialize, Serialize};

mod acquire;
#[cfg(test)]
mod tests;

pub use acquire::{
    Acquired, Admission, Applicant, Attempt, Outcome, SessionAdmission, acquire, blocked,
    expected_admission, running,
};

/// The row of one session id in one namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub namespace: Namespace,
    pub session_id: SessionId,
    /// Increases by one with every write, from 1; a commit names the version before its own.
    pub version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    pub queue: TaskQueue,
    pub requirements: Vec<String>,
    pub status: Status,
    /// Kept after the end, so that the refusal of a late call can name the owner.
    pub lease_owner: WorkerId,
    pub lease_expires_at: Timestamp,
    pub ttl_expires_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    pub lease_seconds: u64,
    pub ttl_seconds: u64,
    pub max_concurrent_activities: u64,
    pub create_if_missing: bool,
    pub allow_reacquire_after_failure: bool,
    pub last_heartbeat_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its owner holds the lease.
    Active,
    /// Ended by its owner; final.
    Closed,
    /// Not renewed in time, or at its absolute end.
    Expired,
    /// Another process replaced its owner.
    Failed,
    /// Its owner is silent or no longer registered.
    Orphaned,
}

impl Status {
    pub const ALL: [Self; 5] = [
        Self::Active,
        Self::Closed,
        Self::Expired,
        Self::Failed,
        Self::Orphaned,
    ];

    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Closed => "closed",
            Self::Expired => "expired",
            Self::Failed => "failed",
            Self::Orphaned => "orphaned",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    TtlExpired,
    LeaseExpired,
    WorkerHeartbeatStale,
}

impl FailureReason {
    /// Returns the name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TtlExpired => "ttl_expired",
            Self::LeaseExpired => "lease_expired",
            Self::WorkerHeartbeatStale => "worker_heartbeat_stale",
        }
    }
}

/// Whether the owner named in a row is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Live,
    /// Not registered, or without a heartbeat for too long.
    Gone,
}

/// Why a session was not acquired, renewed or closed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the worker is registered for queue `{registered}`, but the session is for `{requested}`"
    )]
    QueueMismatch {
        registered: TaskQueue,
        requested: TaskQueue,
    },
    #[error("the worker does not have what the session requires: {}", missing.join(", "))]
    RequirementsNotMet { missing: Vec<String> },
    #[error("there is no such session, and the request does not create it")]
    Missing,
    #[error("the worker already holds its maximum of {max} sessions")]
    WorkerLimit { max: u64 },
    #[error("the session is held by worker `{}`", .0.lease_owner)]
    OwnedByAnother(Box<Session>),
    #[error("the session is already running its maximum of {} activities", .0.max_concurrent_activities)]
    ActivityLimit(Box<Session>),
    #[error("the session was closed; use a new id")]
    Closed(Box<Session>),
    #[error("the session has ended or cannot be taken over; use a new id")]
    ReacquireDisallowed(Box<Session>),
    #[error("there is no such session")]
    NotFound,
    #[error("the session is {}, not active", .0.status.as_str())]
    NotActive(Box<Session>),
    #[error("the session belongs to worker `{}`", .0.lease_owner)]
    OwnerMismatch(Box<Session>),
}

impl Refusal {
    pub fn reason(&self) -> Reason {
        match self {
            Self::QueueMismatch { .. } => Reason::SessionQueueMismatch,
            Self::RequirementsNotMet { .. } => Reason::SessionRequirementsNotMet,
            Self::Missing => Reason::SessionMissing,
            Self::WorkerLimit { .. } => Reason::WorkerSessionLimitExceeded,
            Self::OwnedByAnother(_) => Reason::SessionOwnedByAnotherWorker,
            Self::ActivityLimit(_) => Reason::SessionActivityLimitExceeded,
            Self::Closed(_) => Reason::SessionClosed,
            Self::ReacquireDisallowed(_) => Reason::SessionReacquireDisallowed,
            Self::NotFound => Reason::SessionNotFound,
            Self::NotActive(_) => Reason::SessionNotActive,
            Self::OwnerMismatch(_) => Reason::SessionOwnerMismatch,
        }
    }

    /// Returns the session as it was when it refused.
    pub fn session(&self) -> Option<&Session> {
        match self {
            Self::OwnedByAnother(session)
            | Self::ActivityLimit(session)
            | Self::Closed(session)
            | Self::ReacquireDisallowed(session)
            | Self::NotActive(session)
            | Self::OwnerMismatch(session) => Some(session),
            Self::QueueMismatch { .. }
            | Self::RequirementsNotMet { .. }
            | Self::Missing
            | Self::WorkerLimit { .. }
            | Self::NotFound => None,
        }
    }
}

impl Session {
    /// Returns whether the session can no longer change.
    pub fn is_final(&self) -> bool {
        self.status == Status::Closed || self.failure_reason == Some(FailureReason::TtlExpired)
    }

    /// Returns the time at which it became final.
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.status {
            Status::Closed => self.closed_at,
            Status::Active | Status::Expired | Status::Failed | Status::Orphaned => {
                self.is_final().then_some(self.ttl_expires_at)
            }
        }
    }

    /// Returns the next time at which the row changes without a call.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.status {
            _ if self.is_final() => None,
            Status::Active => Some(self.lease_expires_at.min(self.ttl_expires_at)),
            Status::Closed | Status::Expired | Status::Failed | Status::Orphaned => {
                Some(self.ttl_expires_at)
            }
        }
    }

    /// Returns whether it counts against the sessions that its owner may hold.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.status == Status::Active && self.lease_expires_at > now && self.ttl_expires_at > now
    }

    /// Returns the row as it is at `now`, or `None` if nothing changes. The protocol fixes the order: absolute end, lease, owner.
    pub fn refreshed(&self, owner: Owner, now: Timestamp) -> Option<Self> {
        let (status, why) = if self.is_final() {
            return None;
        } else if self.ttl_expires_at <= now {
            (Status::Expired, FailureReason::TtlExpired)
        } else if self.status != Status::Active {
            return None;
        } else if self.lease_expires_at <= now {
            (Status::Expired, FailureReason::LeaseExpired)
        } else if owner == Owner::Gone {
            (Status::Orphaned, FailureReason::WorkerHeartbeatStale)
        } else {
            return None;
        };
        Some(Self {
            status,
            failure_reason: Some(why),
            ..self.rewritten(now)
        })
    }

    /// Returns the failed row after another process replaced the owner: everything in the owner's memory is lost.
    pub fn failed(&self, now: Timestamp) -> Option<Self> {
        self.is_held(now).then(|| Self {
            status: Status::Failed,
            failure_reason: None,
            ..self.rewritten(now)
        })
    }

    /// Returns the row with the next version, for writing.
    fn rewritten(&self, now: Timestamp) -> Self {
        Self {
            version: self.version + 1,
            updated_at: now,
            ..self.clone()
        }
    }

    /// Returns the row as it is at `now`, changed or not.
    fn seen(&self, owner: Owner, now: Timestamp) -> Self {
        self.refreshed(owner, now).unwrap_or_else(|| self.clone())
    }

    /// Returns the end of a lease from `now`, never past the absolute end. For the same owner it never moves back.
    fn lease_until(&self, owner: &WorkerId, seconds: u64, now: Timestamp) -> Timestamp {
        let wanted = now.plus_seconds(seconds);
        let kept = if *owner == self.lease_owner {
            wanted.max(self.lease_expires_at)
        } else {
            wanted
        };
        kept.min(self.ttl_expires_at)
    }
}

/// Renews the lease of the owner. Nothing else of the row changes.
pub fn renew(
    session: Option<&Session>,
    owner: Owner,
    worker_id: &WorkerId,
    lease_seconds: Option<u64>,
    now: Timestamp,
) -> Result<Session, Refusal> {
    let stored = session.ok_or(Refusal::NotFound)?;
    let seen = stored.seen(owner, now);
    if seen.status != Status::Active {
        return Err(Refusal::NotActive(Box::new(seen)));
    }
    if seen.lease_owner != *worker_id {
        return Err(Refusal::OwnerMismatch(Box::new(seen)));
    }
    let seconds = lease_seconds.unwrap_or(seen.lease_seconds);
    Ok(Session {
        lease_expires_at: seen.lease_until(worker_id, seconds, now),
        last_heartbeat_at: now,
        ..seen.rewritten(now)
    })
}

/// Ends the session for good; returns `None` if its owner did so before. A session without a holder can be closed too.
pub fn close(
    session: Option<&Session>,
    owner: Owner,
    worker_id: &WorkerId,
    now: Timestamp,
) -> Result<Option<Session>, Refusal> {
    let stored = session.ok_or(Refusal::NotFound)?;
    let seen = stored.seen(owner, now);
    if seen.lease_owner != *worker_id {
        return Err(Refusal::OwnerMismatch(Box::new(seen)));
    }
    if seen.status == Status::Closed {
        return Ok(None);
    }
    Ok(Some(Session {
        status: Status::Closed,
        closed_at: Some(now),
        failure_reason: None,
        ..stored.rewritten(now)
    }))
}

/// Returns whether a running attempt of that worker may still use its session.
pub fn is_usable(
    session: Option<&Session>,
    owner: Owner,
    worker_id: &WorkerId,
    now: Timestamp,
) -> bool {
    session.is_some_and(|session| {
        session.lease_owner == *worker_id && session.seen(owner, now).status == Status::Active
    })
}

/// Returns the row with the options of an accepted request.
fn with_options(session: Session, options: &WorkerSessionOptions, queue: &TaskQueue) -> Session {
    Session {
        connection: options.connection.clone(),
        queue: queue.clone(),
        requirements: options.requirements.clone(),
        lease_seconds: options.lease_seconds(),
        ttl_seconds: options.ttl_seconds(),
        max_concurrent_activities: options.max_concurrent_activities(),
        create_if_missing: options.create_if_missing(),
        allow_reacquire_after_failure: options.allow_reacquire_after_failure(),
        ..session
    }
}
