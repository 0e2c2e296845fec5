//! Worker sessions: the operations of workers and operators by session id. The rules are in `engine::session`; this module reads
//! rows, decides, commits and notifies the waiting polls. Admission of activities is in `activity_tasks`, changes over time in
//! `sweeps/sessions`.
//!
//! Locks are taken in the order worker, session, run. They prevent conflicts; the version of the row decides.

use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::session::{
    self, Acquired, Admission, Applicant, Attempt, Outcome, Owner, Refusal, Session, Status,
};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, SessionId, TaskQueue, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::{LeaseFilter, LeasedIn, SessionFilter};
use tokio::sync::OwnedMutexGuard;

use crate::commit::locks::Locks;
use crate::error::{Error, Result};
use crate::registry::workers::RegisteredWorker;
use crate::views::Sessions;

/// As for runs: losing that often in a row means something is wrong.
const CONFLICT_RETRIES: usize = 8;

/// Shared state of sessions.
#[derive(Default)]
pub(crate) struct SessionLocks {
    workers: Locks<(Namespace, WorkerId)>,
    sessions: Locks<(Namespace, SessionId)>,
}

impl SessionLocks {
    /// Locks the worker and then the session, so that no other admission of the worker and nothing on the session is decided
    /// meanwhile.
    pub(crate) async fn lock_both(
        &self,
        namespace: &Namespace,
        worker_id: &WorkerId,
        session_id: &SessionId,
    ) -> (OwnedMutexGuard<()>, OwnedMutexGuard<()>) {
        let worker = self.lock_worker(namespace, worker_id).await;
        (worker, self.lock_session(namespace, session_id).await)
    }

    pub(crate) async fn lock_worker(
        &self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> OwnedMutexGuard<()> {
        let name = (namespace.clone(), worker_id.clone());
        self.workers.lock(&name).await
    }

    pub(crate) async fn lock_session(
        &self,
        namespace: &Namespace,
        session_id: &SessionId,
    ) -> OwnedMutexGuard<()> {
        let name = (namespace.clone(), session_id.clone());
        self.sessions.lock(&name).await
    }
}

/// A session with the state of its holder.
#[derive(Clone, Debug)]
pub struct SessionView {
    pub session: Session,
    /// The registration of the owner; `None` if it no longer exists.
    pub holder: Option<Holder>,
    pub active_activity_count: u64,
}

/// The worker that a session names as owner.
#[derive(Clone, Debug)]
pub struct Holder {
    pub task_queue: TaskQueue,
    pub status: &'static str,
    pub last_heartbeat_at: Timestamp,
    pub is_stale: bool,
}

/// The outcome of an explicit call.
#[derive(Clone, Debug)]
pub struct SessionReceipt {
    /// `created`, `reused`, `reacquired`, `heartbeat_recorded`, `closed` or `already_closed`.
    pub outcome: &'static str,
    pub view: SessionView,
}

/// A refusal with the session at that time.
#[derive(Clone, Debug)]
pub struct SessionRefused {
    pub refusal: Refusal,
    pub view: Option<SessionView>,
}

/// One page of sessions.
#[derive(Clone, Debug)]
pub struct SessionList {
    pub sessions: Vec<SessionView>,
    /// Where the next page begins, if there is one.
    pub next: Option<(Timestamp, SessionId)>,
    pub counts: SessionCounts,
}

/// Sessions of a namespace by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts(Vec<(Status, u64)>);

impl SessionCounts {
    pub fn of(&self, status: Status) -> u64 {
        let found = self.0.iter().find(|(of, _)| *of == status);
        found.map_or(0, |(_, count)| *count)
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
}

impl Sessions<'_> {
    /// Creates a session for a worker, or renews it, or takes it over.
    pub async fn create(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
        options: &WorkerSessionOptions,
    ) -> Result<SessionReceipt> {
        let worker = self.host.workers().registered(namespace, worker_id).await?;
        let registered = &worker.row.task_queue;
        let queue = options
            .queue
            .as_deref()
            .map_or_else(|| registered.clone(), TaskQueue::from);
        if queue != *registered {
            let refusal = Refusal::QueueMismatch {
                registered: registered.clone(),
                requested: queue,
            };
            return Err(self.refused(refusal).await);
        }
        self.host.matching().refuse_draining(&worker)?;
        let _locks = self
            .host
            .inner
            .sessions
            .lock_both(namespace, worker_id, &options.session_id)
            .await;
        for _ in 0..CONFLICT_RETRIES {
            let admission = self
                .admission(namespace, &options.session_id, worker_id)
                .await?;
            let now = self.host.now();
            let acquired = session::acquire(&admission, namespace, options, &queue, None, now);
            let (Acquired { session, outcome }, cap) = match acquired {
                Ok(acquired) => {
                    let cap = acquired.cap(&admission.applicant);
                    (acquired, cap)
                }
                Err(refusal) => {
                    self.note_refusal(namespace, &options.session_id, &refusal);
                    return Err(self.refused(refusal).await);
                }
            };
            let commit = self
                .host
                .inner
                .executor
                .commit_sessions(vec![session.clone()], cap);
            if commit.await? {
                self.note_acquisition(&session, outcome);
                return self.receipt(outcome.as_str(), session).await;
            }
        }
        Err(Error::Contended)
    }

    /// Renews a session for its holder.
    pub async fn heartbeat(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
        session_id: &SessionId,
        lease_seconds: Option<u64>,
    ) -> Result<SessionReceipt> {
        let _lock = self
            .host
            .inner
            .sessions
            .lock_session(namespace, session_id)
            .await;
        for _ in 0..CONFLICT_RETRIES {
            let (stored, owner) = self.stored(namespace, session_id).await?;
            let now = self.host.now();
            match session::renew(stored.as_ref(), owner, worker_id, lease_seconds, now) {
                Ok(session) if self.write(&session).await? => {
                    self.host.inner.wakes.metrics.session("renewed");
                    return self.receipt("heartbeat_recorded", session).await;
                }
                Ok(_) => {}
                Err(refusal) => return Err(self.refused(refusal).await),
            }
        }
        Err(Error::Contended)
    }

    /// Ends a session for good, for its holder.
    pub async fn close(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
        session_id: &SessionId,
        reason: Option<&str>,
    ) -> Result<SessionReceipt> {
        let _lock = self
            .host
            .inner
            .sessions
            .lock_session(namespace, session_id)
            .await;
        for _ in 0..CONFLICT_RETRIES {
            let (stored, owner) = self.stored(namespace, session_id).await?;
            match session::close(stored.as_ref(), owner, worker_id, self.host.now()) {
                Ok(Some(session)) if self.write(&session).await? => {
                    self.host.inner.wakes.metrics.session("closed");
                    tracing::info!(%namespace, %session_id, %worker_id, reason, "session closed");
                    return self.receipt("closed", session).await;
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    let session = stored.ok_or(Error::Internal)?;
                    return self.receipt("already_closed", session).await;
                }
                Err(refusal) => return Err(self.refused(refusal).await),
            }
        }
        Err(Error::Contended)
    }

    /// Returns one page of sessions as they are now.
    pub async fn list(self, filter: &SessionFilter) -> Result<SessionList> {
        self.sweep().await?;
        let namespace = &filter.namespace;
        let more = SessionFilter {
            limit: filter.limit + 1,
            ..filter.clone()
        };
        let mut rows = self.host.inner.store.list_sessions(&more).await?;
        let next = if rows.len() > filter.limit {
            rows.truncate(filter.limit);
            rows.last()
                .map(|row| (row.updated_at, row.session_id.clone()))
        } else {
            None
        };
        let leased = LeaseFilter::in_sessions(namespace, LeasedIn::AnySession);
        let store = &self.host.inner.store;
        let attempts = store.leased_tasks(&leased, usize::MAX).await?;
        let mut sessions = Vec::with_capacity(rows.len());
        for session in rows {
            let own = attempts.iter().filter(|row| {
                let options = row.worker_session.as_ref();
                options.is_some_and(|options| options.session_id == session.session_id)
            });
            let own: Vec<Attempt> = own.filter_map(attempt).collect();
            sessions.push(self.view(session, &own).await?);
        }
        Ok(SessionList {
            sessions,
            next,
            counts: self.counts(namespace).await?,
        })
    }

    /// Returns one session as it is now.
    pub async fn get(self, namespace: &Namespace, session_id: &SessionId) -> Result<SessionView> {
        self.refresh(namespace, session_id).await?;
        let stored = self.host.inner.store.session(namespace, session_id).await?;
        let session = stored.ok_or_else(|| Error::SessionNotFound(session_id.clone()))?;
        self.shown(session).await
    }

    /// Returns the number of sessions of a namespace by status, as they are now.
    pub async fn count(self, namespace: &Namespace) -> Result<SessionCounts> {
        self.sweep().await?;
        self.counts(namespace).await
    }

    async fn counts(self, namespace: &Namespace) -> Result<SessionCounts> {
        let counts = self.host.inner.store.session_counts(namespace).await?;
        Ok(SessionCounts(counts))
    }

    /// Returns the stored inputs for an admission of this worker.
    pub(crate) async fn admission(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
        worker_id: &WorkerId,
    ) -> Result<Admission> {
        let (session, owner) = self.stored(namespace, session_id).await?;
        let worker = self.host.workers().registered(namespace, worker_id).await?;
        let attempts = self.attempts(namespace, session_id).await?;
        Ok(Admission {
            session,
            owner,
            applicant: self.applicant(&worker).await?,
            attempts: attempts.iter().filter_map(attempt).collect(),
        })
    }

    /// Reads a session again for matching: other servers use it too.
    pub(crate) async fn read_again(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
    ) -> Result<()> {
        let session = self.host.inner.store.session(namespace, session_id).await?;
        let attempts = self.attempts(namespace, session_id).await?;
        let attempts = attempts.iter().filter_map(attempt).collect();
        let wakes = &self.host.inner.wakes;
        wakes.wake_sessions(session.as_slice());
        wakes
            .dispatch
            .session_read(namespace, session_id, session.as_ref(), attempts);
        Ok(())
    }

    /// Returns the leased tasks of a session.
    pub(crate) async fn attempts(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
    ) -> Result<Vec<TaskRow>> {
        let session = LeasedIn::Session(session_id.clone());
        let leased = LeaseFilter::in_sessions(namespace, session);
        let store = &self.host.inner.store;
        Ok(store.leased_tasks(&leased, usize::MAX).await?)
    }

    /// Returns the active sessions that name the worker as owner.
    pub(crate) async fn held(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<Vec<Session>> {
        let held = SessionFilter {
            namespace: namespace.clone(),
            status: Some(Status::Active),
            queue: None,
            owner: Some(worker_id.clone()),
            after: None,
            limit: usize::MAX,
        };
        Ok(self.host.inner.store.list_sessions(&held).await?)
    }

    /// Returns the worker for the session rules.
    pub(crate) async fn applicant(self, worker: &RegisteredWorker) -> Result<Applicant> {
        let row = &worker.row;
        let holds = self.held(&row.namespace, &row.worker_id).await?;
        Ok(Applicant {
            worker_id: row.worker_id.clone(),
            task_queue: row.task_queue.clone(),
            capabilities: Arc::clone(&worker.capabilities),
            max_sessions: row.max_concurrent_worker_sessions,
            holds,
        })
    }

    /// Returns the row of a session, and whether its owner is alive.
    pub(crate) async fn stored(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
    ) -> Result<(Option<Session>, Owner)> {
        let session = self.host.inner.store.session(namespace, session_id).await?;
        let owner = match &session {
            Some(session) => self.owner_of(session).await?,
            None => Owner::Gone,
        };
        Ok((session, owner))
    }

    pub(crate) async fn owner_of(self, session: &Session) -> Result<Owner> {
        let known = self
            .host
            .workers()
            .known(&session.namespace, &session.lease_owner)
            .await?;
        let is_live =
            known.is_some_and(|known| !self.host.workers().is_stale(&known, self.host.now()));
        Ok(if is_live { Owner::Live } else { Owner::Gone })
    }

    /// Updates the status of a session to now; returns whether it changed.
    pub(crate) async fn refresh(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
    ) -> Result<bool> {
        let _lock = self
            .host
            .inner
            .sessions
            .lock_session(namespace, session_id)
            .await;
        for _ in 0..CONFLICT_RETRIES {
            let (stored, owner) = self.stored(namespace, session_id).await?;
            let now = self.host.now();
            let Some(session) = stored.and_then(|stored| stored.refreshed(owner, now)) else {
                return Ok(false);
            };
            if self.write(&session).await? {
                let why = session.failure_reason.map_or("", |why| why.as_str());
                self.host
                    .inner
                    .wakes
                    .metrics
                    .session(session.status.as_str());
                tracing::info!(
                    %namespace, %session_id, worker_id = %session.lease_owner, status = session.status.as_str(), why,
                    "session lost"
                );
                return Ok(true);
            }
        }
        Err(Error::Contended)
    }

    /// Fails the sessions of a worker whose id another process now uses: the sessions of the first one are lost.
    pub(crate) async fn fail_all(self, namespace: &Namespace, worker_id: &WorkerId) -> Result<()> {
        for held in self.held(namespace, worker_id).await? {
            let session_id = &held.session_id;
            let _lock = self
                .host
                .inner
                .sessions
                .lock_session(namespace, session_id)
                .await;
            for _ in 0..CONFLICT_RETRIES {
                let stored = self.host.inner.store.session(namespace, session_id).await?;
                let own = stored.filter(|session| session.lease_owner == *worker_id);
                let Some(failed) = own.and_then(|session| session.failed(self.host.now())) else {
                    break;
                };
                if self.write(&failed).await? {
                    self.host.inner.wakes.metrics.session("failed");
                    tracing::info!(%namespace, %session_id, %worker_id, "session failed: another process replaced its owner");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Orphans the sessions of a worker that left, at once.
    pub(crate) async fn orphan_all(
        self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Result<()> {
        for held in self.held(namespace, worker_id).await? {
            self.refresh(namespace, &held.session_id).await?;
        }
        Ok(())
    }

    /// Commits one session; returns false if another commit came first.
    async fn write(self, session: &Session) -> Result<bool> {
        self.host
            .inner
            .executor
            .commit_sessions(vec![session.clone()], None)
            .await
    }

    pub(crate) fn note_acquisition(self, session: &Session, outcome: Outcome) {
        self.host.inner.wakes.metrics.session(outcome.as_str());
        if outcome != Outcome::Reused {
            tracing::info!(
                namespace = %session.namespace, session_id = %session.session_id, worker_id = %session.lease_owner,
                outcome = outcome.as_str(), "worker acquired the session"
            );
        }
    }

    pub(crate) fn note_refusal(
        self,
        namespace: &Namespace,
        session_id: &SessionId,
        refusal: &Refusal,
    ) {
        let reason = refusal.reason().as_str();
        self.host.inner.wakes.metrics.session_refused(reason);
        tracing::debug!(%namespace, %session_id, reason, "session refused the worker");
    }

    async fn receipt(self, outcome: &'static str, session: Session) -> Result<SessionReceipt> {
        let view = self.shown(session).await?;
        Ok(SessionReceipt { outcome, view })
    }

    async fn refused(self, refusal: Refusal) -> Error {
        let view = match refusal.session().cloned() {
            Some(session) => self.shown(session).await.map(Some),
            None => Ok(None),
        };
        match view {
            Ok(view) => Error::Session(Box::new(SessionRefused { refusal, view })),
            Err(error) => error,
        }
    }

    async fn shown(self, session: Session) -> Result<SessionView> {
        let attempts = self
            .attempts(&session.namespace, &session.session_id)
            .await?;
        let attempts: Vec<Attempt> = attempts.iter().filter_map(attempt).collect();
        self.view(session, &attempts).await
    }

    async fn view(self, session: Session, attempts: &[Attempt]) -> Result<SessionView> {
        let known = self
            .host
            .workers()
            .known(&session.namespace, &session.lease_owner)
            .await?;
        let holder = known.map(|known| {
            let view = self.host.workers().view(&known);
            Holder {
                status: view.status(),
                is_stale: view.is_stale,
                last_heartbeat_at: view.row.last_heartbeat_at,
                task_queue: view.row.task_queue,
            }
        });
        Ok(SessionView {
            active_activity_count: session::running(&session, attempts, self.host.now()),
            holder,
            session,
        })
    }
}

/// Returns the row of a leased task as an attempt inside its session.
pub(crate) fn attempt(row: &longhaul_engine::change::TaskRow) -> Option<Attempt> {
    Some(Attempt {
        task_id: row.task_id.clone(),
        owner: row.lease_owner.clone()?,
        lease_expires_at: row.lease_expires_at?,
    })
}
