//! Matching of tasks that must run in a session: into lanes, out of lanes, and who is served when a session changes.

use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::QueueKey;

use super::session_index::SessionKey;
use super::session_queues::{LaneKey, Serves, order_of};
use super::{Appetite, Dispatch, Origin, Place, ReadyTask, State};

/// Tasks of sessions kept in memory per queue. Apart from the others, so that none of those is left out for them.
pub(crate) const READY_IN_SESSION_MAX: usize = 50_000;

impl Dispatch {
    /// Committed sessions: whoever waits for them is served anew.
    pub(crate) fn sessions_changed(&self, sessions: &[Session]) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for session in sessions {
            state.book.put(session);
            let key = (session.namespace.clone(), session.session_id.clone());
            state.restand(&key, now);
        }
        // A worker that holds one session less may begin another, on whatever queue it polls.
        for session in sessions {
            state.serve_namespace(&session.namespace, now);
        }
    }

    /// A task that was taken from its queue was refused by its session. `stored` is the session's row. Where the worker would be
    /// served again at once, the lane is set aside until something changes, or for a moment.
    pub(crate) fn refused(
        &self,
        queue: &QueueKey,
        task: ReadyTask,
        stored: Option<&Session>,
        appetite: &Appetite,
    ) {
        let Some(options) = task.session.clone() else {
            return;
        };
        let mut state = self.state.lock();
        let now = self.clock.now();
        let key = (queue.namespace.clone(), options.session_id.clone());
        let lane = LaneKey::of(&options);
        state.book.settle(&key, &task.task_id);
        state.put_in_lane(queue, task, Origin::Fetched, now);
        state.book.learn(&key, stored);
        state.restand(&key, now);
        let is_full =
            state
                .book
                .is_full(&queue.namespace, &appetite.worker_id, appetite.max_sessions);
        if let Some(entry) = state.queues.get_mut(queue)
            && entry.lanes.would_serve(&lane, appetite, is_full)
        {
            entry.lanes.restand(&lane, |_| Serves::Nobody(None));
            state.book.doubt(key);
        }
        state.serve(queue, now);
    }

    /// A worker registered again: its polls that wait already may have what it can do now, and nothing else.
    pub(crate) fn worker_changed(
        &self,
        queue: &QueueKey,
        worker_id: &WorkerId,
        capabilities: &Arc<Vec<String>>,
        max_sessions: u64,
    ) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let Some(entry) = state.queues.get_mut(queue) else {
            return;
        };
        let own = entry
            .waiters
            .iter_mut()
            .filter(|waiter| waiter.appetite.worker_id == *worker_id);
        for waiter in own {
            waiter.appetite.capabilities = Arc::clone(capabilities);
            waiter.appetite.max_sessions = max_sessions;
        }
        state.serve(queue, now);
    }

    /// Looks again at what was set aside.
    pub(crate) fn look_again(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for key in state.book.take_doubts() {
            state.restand(&key, now);
            state.serve_namespace(&key.0, now);
        }
    }

    /// Whether something was set aside.
    pub(crate) fn has_doubts(&self) -> bool {
        self.state.lock().book.has_doubts()
    }

    /// Workers that hold an active session.
    pub(crate) fn session_owners(&self) -> Vec<(Namespace, WorkerId)> {
        self.state.lock().book.owners()
    }

    /// Ready tasks whose session lets nobody in now.
    pub(crate) fn blocked_in_session(&self) -> usize {
        let state = self.state.lock();
        let queues = state.queues.values();
        queues.map(|queue| queue.lanes.blocked()).sum()
    }
}

impl State {
    /// Takes note of a task's row that belongs to a session.
    pub(super) fn note_attempt(&mut self, row: &TaskRow, now: Timestamp) {
        let Some(options) = &row.worker_session else {
            return;
        };
        let key = (row.namespace.clone(), options.session_id.clone());
        self.book.note(&key, row);
        self.restand(&key, now);
        for (queue, _) in self.book.lanes(&key) {
            self.serve(&queue, now);
        }
    }

    /// A ready task that must run in a session.
    pub(super) fn offer_in_session(
        &mut self,
        queue: &QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) {
        if let Some(key) = self.put_in_lane(queue, task, origin, now) {
            self.restand(&key, now);
        }
        self.serve(queue, now);
    }

    /// Puts the task in its lane; the session's key when the lane is new.
    fn put_in_lane(
        &mut self,
        queue: &QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) -> Option<SessionKey> {
        let options = Arc::clone(task.session.as_ref()?);
        let has_room = self.has_room();
        let bytes = task.bytes();
        let entry = self.queue(queue, now);
        let has_room = has_room || !entry.waiters.is_empty();
        if !origin.may_enter(entry.lanes.len(), READY_IN_SESSION_MAX, has_room) {
            entry.lanes_truncated = true;
            return None;
        }
        let lane = LaneKey::of(&options);
        let place = Place::Lane(lane.clone(), order_of(&task));
        let task_id = task.task_id.clone();
        let is_new = entry.lanes.insert(&lane, task);
        self.ready_bytes += bytes;
        self.places.insert(task_id, (queue.clone(), place));
        let key = (queue.namespace.clone(), options.session_id.clone());
        is_new.then(|| {
            self.book.add_lane(&key, queue, &lane);
            key
        })
    }

    /// Takes a task out of its lane.
    pub(super) fn remove_from_lane(
        &mut self,
        queue: &QueueKey,
        lane: &LaneKey,
        order: &super::session_queues::Order,
    ) -> Option<ReadyTask> {
        let entry = self.queues.get_mut(queue)?;
        let (task, is_gone) = entry.lanes.remove(lane, order);
        self.ready_bytes -= task.as_ref().map_or(0, ReadyTask::bytes);
        if is_gone {
            let key = (queue.namespace.clone(), lane.session_id.clone());
            self.book.drop_lane(&key, queue, lane);
        }
        task
    }

    /// The task goes to this worker: out of its lane, and noted as on its way.
    pub(super) fn take_from_lane(
        &mut self,
        queue: &QueueKey,
        lane: &LaneKey,
        order: &super::session_queues::Order,
        worker_id: &WorkerId,
        now: Timestamp,
    ) -> Option<ReadyTask> {
        let key = (queue.namespace.clone(), lane.session_id.clone());
        self.book.take(&key, &order.2, worker_id);
        let task = self.remove_from_lane(queue, lane, order);
        self.places.remove(&order.2);
        self.restand(&key, now);
        task
    }

    /// A task of a session was leased, or goes back.
    pub(super) fn settle_in_session(
        &mut self,
        queue: &QueueKey,
        task_id: &TaskId,
        options: &WorkerSessionOptions,
        now: Timestamp,
    ) {
        let key = (queue.namespace.clone(), options.session_id.clone());
        self.book.settle(&key, task_id);
        self.restand(&key, now);
        for (queue, _) in self.book.lanes(&key) {
            self.serve(&queue, now);
        }
    }

    /// Says anew whom the lanes of a session serve.
    fn restand(&mut self, key: &SessionKey, now: Timestamp) {
        for (queue, lane) in self.book.lanes(key) {
            let book = &self.book;
            if let Some(entry) = self.queues.get_mut(&queue) {
                entry
                    .lanes
                    .restand(&lane, |options| book.serves(key, options, now));
            }
        }
    }

    /// Serves waiting polls of every queue of the namespace that holds tasks of sessions.
    fn serve_namespace(&mut self, namespace: &Namespace, now: Timestamp) {
        let queues: Vec<QueueKey> = self
            .queues
            .iter()
            .filter(|(key, queue)| {
                key.namespace == *namespace && queue.lanes.can_serve() && !queue.waiters.is_empty()
            })
            .map(|(key, _)| key.clone())
            .collect();
        for queue in queues {
            self.serve(&queue, now);
        }
    }

    /// Hands tasks of sessions to the polls that wait longest for such.
    fn serve(&mut self, queue: &QueueKey, now: Timestamp) {
        loop {
            let Some(entry) = self.queues.get(queue) else {
                return;
            };
            if entry.waiters.is_empty()
                || !entry.lanes.can_serve()
                || self.ledger.admit(queue, now).is_err()
            {
                return;
            }
            let found = entry
                .waiters
                .iter()
                .enumerate()
                .find_map(|(place, waiter)| {
                    let appetite = &waiter.appetite;
                    let (lane, task) = entry.lanes.best(appetite, self.is_full(queue, appetite))?;
                    Some((
                        place,
                        lane.clone(),
                        order_of(task),
                        appetite.worker_id.clone(),
                    ))
                });
            let Some((place, lane, order, worker_id)) = found else {
                return;
            };
            let Some(task) = self.take_from_lane(queue, &lane, &order, &worker_id, now) else {
                return;
            };
            let waiter = self
                .queues
                .get_mut(queue)
                .and_then(|entry| entry.waiters.remove(place))
                .expect("the place was just found");
            self.ended_waiting(&queue.namespace);
            match waiter.hand.send(task) {
                Ok(()) => self.ledger.reserve(queue),
                // The poll ended in this moment.
                Err(back) => {
                    let key = (queue.namespace.clone(), lane.session_id.clone());
                    self.book.settle(&key, &back.task_id);
                    self.put_in_lane(queue, back, Origin::Fetched, now);
                    self.restand(&key, now);
                }
            }
        }
    }

    /// Whether the worker may begin no further session.
    pub(super) fn is_full(&self, queue: &QueueKey, appetite: &Appetite) -> bool {
        self.book
            .is_full(&queue.namespace, &appetite.worker_id, appetite.max_sessions)
    }
}
