//! What matching knows of sessions: their rows as committed, the attempts that run in them, the tasks on their way to a worker,
//! and which lanes wait for them. A copy like everything in matching: a claim is decided on what is stored, and a claim that was
//! refused corrects the copy.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_engine::session::{Attempt, Session, Status, standing};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, SessionId, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::QueueKey;

use super::session_queues::{LaneKey, Serves};

/// A session id in its namespace.
pub(super) type SessionKey = (Namespace, SessionId);

#[derive(Default)]
pub(super) struct Book {
    entries: HashMap<SessionKey, Entry>,
    /// Sessions that are active, by their owner.
    held: HashMap<(Namespace, WorkerId), BTreeSet<SessionId>>,
    /// Sessions of which what is stored and what is known here did not agree; looked at again shortly.
    doubtful: BTreeSet<SessionKey>,
}

#[derive(Default)]
struct Entry {
    row: Known,
    attempts: BTreeMap<TaskId, Attempt>,
    /// Handed to a poll and not leased yet.
    taken: BTreeMap<TaskId, WorkerId>,
    lanes: BTreeSet<(QueueKey, LaneKey)>,
}

#[derive(Default)]
enum Known {
    /// Never seen: whoever asks first learns what is stored.
    #[default]
    No,
    Missing,
    Row(Box<Session>),
}

impl Book {
    /// Takes note of a committed row; what is older than what is known is passed over.
    pub(super) fn put(&mut self, session: &Session) {
        let key = (session.namespace.clone(), session.session_id.clone());
        let entry = self.entries.entry(key.clone()).or_default();
        if let Known::Row(known) = &entry.row {
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
        entry.row = Known::Row(Box::new(session.clone()));
        self.tidy(&key);
    }

    /// What a refused claim found in the store.
    pub(super) fn learn(&mut self, key: &SessionKey, session: Option<&Session>) {
        match session {
            Some(session) => self.put(session),
            None => {
                if let Some(entry) = self.entries.get_mut(key)
                    && matches!(entry.row, Known::No)
                {
                    entry.row = Known::Missing;
                }
            }
        }
    }

    /// Takes note of a task's row: a leased one is an attempt, any other is none.
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

    /// A task is on its way to this worker.
    pub(super) fn take(&mut self, key: &SessionKey, task_id: &TaskId, worker_id: &WorkerId) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.taken.insert(task_id.clone(), worker_id.clone());
    }

    /// It was leased, or came to nothing.
    pub(super) fn settle(&mut self, key: &SessionKey, task_id: &TaskId) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.taken.remove(task_id);
            self.tidy(key);
        }
    }

    pub(super) fn add_lane(&mut self, key: &SessionKey, queue: &QueueKey, lane: &LaneKey) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.lanes.insert((queue.clone(), lane.clone()));
    }

    pub(super) fn drop_lane(&mut self, key: &SessionKey, queue: &QueueKey, lane: &LaneKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.lanes.remove(&(queue.clone(), lane.clone()));
            self.tidy(key);
        }
    }

    /// The lanes that wait for a session.
    pub(super) fn lanes(&self, key: &SessionKey) -> Vec<(QueueKey, LaneKey)> {
        let entry = self.entries.get(key);
        entry.map_or_else(Vec::new, |entry| entry.lanes.iter().cloned().collect())
    }

    /// Whom a lane with these options serves now.
    pub(super) fn serves(
        &self,
        key: &SessionKey,
        options: &WorkerSessionOptions,
        now: Timestamp,
    ) -> Serves {
        let Some(entry) = self.entries.get(key) else {
            return Serves::Anyone;
        };
        let row = match &entry.row {
            // One claim tells what is stored.
            Known::No if entry.taken.is_empty() => return Serves::Anyone,
            Known::No => return Serves::Nobody(None),
            Known::Missing => None,
            Known::Row(session) => Some(&**session),
        };
        let mut attempts: Vec<Attempt> = entry.attempts.values().cloned().collect();
        let taken = entry.taken.iter();
        let leased_soon = taken.filter(|(task_id, _)| !entry.attempts.contains_key(*task_id));
        attempts.extend(leased_soon.map(|(task_id, owner)| Attempt {
            task_id: task_id.clone(),
            owner: owner.clone(),
            lease_expires_at: Timestamp::MAX,
        }));
        match Serves::from(standing(row, options, &attempts, now)) {
            // Whoever takes the first task gets the session; the others wait for that.
            Serves::Anyone if !entry.taken.is_empty() => Serves::Nobody(None),
            serves => serves,
        }
    }

    /// Whether the worker holds as many sessions as it may.
    pub(super) fn is_full(&self, namespace: &Namespace, worker_id: &WorkerId, max: u64) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let owner = (namespace.clone(), worker_id.clone());
        let held = self.held.get(&owner).map_or(0, BTreeSet::len);
        held as u64 >= max
    }

    /// Workers that hold an active session.
    pub(super) fn owners(&self) -> Vec<(Namespace, WorkerId)> {
        self.held.keys().cloned().collect()
    }

    pub(super) fn doubt(&mut self, key: SessionKey) {
        self.doubtful.insert(key);
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubtful.is_empty()
    }

    pub(super) fn take_doubts(&mut self) -> BTreeSet<SessionKey> {
        std::mem::take(&mut self.doubtful)
    }

    /// Forgets a session that nobody waits for and nothing can change.
    fn tidy(&mut self, key: &SessionKey) {
        let is_done = self.entries.get(key).is_some_and(|entry| {
            let is_over = match &entry.row {
                Known::No | Known::Missing => true,
                Known::Row(session) => session.is_final(),
            };
            is_over && entry.attempts.is_empty() && entry.taken.is_empty() && entry.lanes.is_empty()
        });
        if is_done {
            self.entries.remove(key);
        }
    }
}
