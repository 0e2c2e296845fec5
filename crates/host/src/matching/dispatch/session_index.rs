//! The sessions in matching: their rows as committed, the attempts that run in them, the tasks on their way to a worker, and the
//! session queues that wait for them. A copy like everything in matching: a claim is decided on the stored rows, and a refused
//! claim corrects the copy.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_engine::session::{Attempt, Session, Status, expected_admission};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, SessionId, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::QueueKey;

use super::session_queues::{EligibleWorkers, SessionQueueKey};

/// A session id in its namespace.
pub(super) type SessionKey = (Namespace, SessionId);

#[derive(Default)]
pub(super) struct SessionIndex {
    entries: HashMap<SessionKey, Entry>,
    /// Active sessions, by their owner.
    held: HashMap<(Namespace, WorkerId), BTreeSet<SessionId>>,
    /// Sessions whose stored row and copy did not agree; checked again shortly.
    set_aside: BTreeSet<SessionKey>,
}

#[derive(Default)]
struct Entry {
    row: CachedRow,
    attempts: BTreeMap<TaskId, Attempt>,
    /// Handed to a poll and not leased yet.
    taken: BTreeMap<TaskId, WorkerId>,
    session_queues: BTreeSet<(QueueKey, SessionQueueKey)>,
}

#[derive(Default)]
enum CachedRow {
    /// Never seen: the first claim reads the stored row.
    #[default]
    No,
    Missing,
    Row(Box<Session>),
}

impl SessionIndex {
    /// Records a committed row; a row older than the known one is ignored.
    pub(super) fn put(&mut self, session: &Session) {
        let key = (session.namespace.clone(), session.session_id.clone());
        let entry = self.entries.entry(key.clone()).or_default();
        if let CachedRow::Row(known) = &entry.row {
            if known.version > session.version {
                return;
            }
            let owner = (key.0.clone(), known.lease_owner.clone());
            if let Some(held) = self.held.get_mut(&owner) {
                held.remove(&key.1);
                if held.is_empty() {
                    self.held.remove(&owner);
                }
            }
        }
        if session.status == Status::Active {
            let owner = (key.0.clone(), session.lease_owner.clone());
            self.held.entry(owner).or_default().insert(key.1.clone());
        }
        entry.row = CachedRow::Row(Box::new(session.clone()));
        self.tidy(&key);
    }

    /// Replaces the attempts of a session by those that are stored: other servers lease and end some.
    pub(super) fn replace_attempts(&mut self, key: &SessionKey, attempts: Vec<Attempt>) {
        if let Some(entry) = self.entries.get_mut(key) {
            let attempts = attempts.into_iter();
            entry.attempts = attempts
                .map(|attempt| (attempt.task_id.clone(), attempt))
                .collect();
            self.tidy(key);
        }
    }

    /// Returns the sessions that ready tasks wait for.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = &SessionKey> {
        let waiting = self.entries.iter();
        waiting
            .filter(|(_, entry)| !entry.session_queues.is_empty())
            .map(|(key, _)| key)
    }

    pub(super) fn knows(&self, key: &SessionKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns whether an older state of the session is here.
    pub(super) fn has_older(&self, session: &Session) -> bool {
        let key = (session.namespace.clone(), session.session_id.clone());
        let entry = self.entries.get(&key);
        entry.is_some_and(|entry| match &entry.row {
            CachedRow::No | CachedRow::Missing => true,
            CachedRow::Row(known) => known.version < session.version,
        })
    }

    /// Returns the number of sessions here.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the namespaces of the sessions here.
    pub(super) fn namespaces(&self) -> BTreeSet<Namespace> {
        let keys = self.entries.keys();
        keys.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Records the stored row that a refused claim found.
    pub(super) fn learn(&mut self, key: &SessionKey, session: Option<&Session>) {
        match session {
            Some(session) => self.put(session),
            None => {
                if let Some(entry) = self.entries.get_mut(key)
                    && matches!(entry.row, CachedRow::No)
                {
                    entry.row = CachedRow::Missing;
                }
            }
        }
    }

    /// Records the row of a task: a leased one is an attempt, any other is none.
    pub(super) fn note(&mut self, key: &SessionKey, row: &TaskRow) {
        match (row.status, &row.lease_owner, row.lease_expires_at) {
            (TaskStatus::Leased, Some(owner), Some(lease_expires_at)) => {
                let attempt = Attempt {
                    task_id: row.task_id.clone(),
                    owner: owner.clone(),
                    lease_expires_at,
                };
                let entry = self.entries.entry(key.clone()).or_default();
                entry.attempts.insert(row.task_id.clone(), attempt);
            }
            _ => {
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.attempts.remove(&row.task_id);
                    self.tidy(key);
                }
            }
        }
    }

    /// Records a task on its way to this worker.
    pub(super) fn take(&mut self, key: &SessionKey, task_id: &TaskId, worker_id: &WorkerId) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.taken.insert(task_id.clone(), worker_id.clone());
    }

    /// Ends the record of a task that was leased, or could not be.
    pub(super) fn end_reservation(&mut self, key: &SessionKey, task_id: &TaskId) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.taken.remove(task_id);
            self.tidy(key);
        }
    }

    pub(super) fn add_session_queue(
        &mut self,
        key: &SessionKey,
        queue: &QueueKey,
        session_queue: &SessionQueueKey,
    ) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry
            .session_queues
            .insert((queue.clone(), session_queue.clone()));
    }

    pub(super) fn drop_session_queue(
        &mut self,
        key: &SessionKey,
        queue: &QueueKey,
        session_queue: &SessionQueueKey,
    ) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry
                .session_queues
                .remove(&(queue.clone(), session_queue.clone()));
            self.tidy(key);
        }
    }

    /// Returns the session queues that wait for a session.
    pub(super) fn session_queues(&self, key: &SessionKey) -> Vec<(QueueKey, SessionQueueKey)> {
        let entry = self.entries.get(key);
        entry.map_or_else(Vec::new, |entry| {
            entry.session_queues.iter().cloned().collect()
        })
    }

    /// Returns the workers that a session queue with these options serves now.
    pub(super) fn eligible(
        &self,
        key: &SessionKey,
        options: &WorkerSessionOptions,
        now: Timestamp,
    ) -> EligibleWorkers {
        let Some(entry) = self.entries.get(key) else {
            return EligibleWorkers::Any;
        };
        let row = match &entry.row {
            // One claim shows what is stored.
            CachedRow::No if entry.taken.is_empty() => return EligibleWorkers::Any,
            CachedRow::No => return EligibleWorkers::None(None),
            CachedRow::Missing => None,
            CachedRow::Row(session) => Some(&**session),
        };
        let mut attempts: Vec<Attempt> = entry.attempts.values().cloned().collect();
        let taken = entry.taken.iter();
        let leased_soon = taken.filter(|(task_id, _)| !entry.attempts.contains_key(*task_id));
        attempts.extend(leased_soon.map(|(task_id, owner)| Attempt {
            task_id: task_id.clone(),
            owner: owner.clone(),
            lease_expires_at: Timestamp::MAX,
        }));
        match EligibleWorkers::from(expected_admission(row, options, &attempts, now)) {
            // The worker that takes the first task gets the session; the others wait for that.
            EligibleWorkers::Any if !entry.taken.is_empty() => EligibleWorkers::None(None),
            eligible => eligible,
        }
    }

    /// Returns whether the worker holds its maximum of sessions.
    pub(super) fn is_full(&self, namespace: &Namespace, worker_id: &WorkerId, max: u64) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let owner = (namespace.clone(), worker_id.clone());
        let held = self.held.get(&owner).map_or(0, BTreeSet::len);
        held as u64 >= max
    }

    /// Returns the workers that hold an active session.
    pub(super) fn owners(&self) -> Vec<(Namespace, WorkerId)> {
        self.held.keys().cloned().collect()
    }

    pub(super) fn set_aside(&mut self, key: SessionKey) {
        self.set_aside.insert(key);
    }

    pub(super) fn has_set_aside(&self) -> bool {
        !self.set_aside.is_empty()
    }

    pub(super) fn take_set_aside(&mut self) -> BTreeSet<SessionKey> {
        std::mem::take(&mut self.set_aside)
    }

    /// Removes a session that no queue waits for and nothing can change.
    fn tidy(&mut self, key: &SessionKey) {
        let is_done = self.entries.get(key).is_some_and(|entry| {
            let is_over = match &entry.row {
                CachedRow::No | CachedRow::Missing => true,
                CachedRow::Row(session) => session.is_final(),
            };
            is_over
                && entry.attempts.is_empty()
                && entry.taken.is_empty()
                && entry.session_queues.is_empty()
        });
        if is_done {
            self.entries.remove(key);
        }
    }
}
