//! Matching of tasks that must run in a session: into and out of session queues, and which polls are served when a session changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::queue::PollFilter;
use longhaul_engine::session::{Attempt, Session};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, SessionId, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::QueueKey;

use super::session_index::SessionKey;
use super::session_queues::{EligibleWorkers, SessionQueueKey, order_of};
use super::{Dispatch, Origin, Place, ReadyTask, State};

/// Tasks of sessions kept in memory per queue. Counted separately, so that they do not displace other tasks.
pub(crate) const READY_IN_SESSION_MAX: usize = 50_000;

impl Dispatch {
    /// Serves the polls that wait for committed sessions again.
    pub(crate) fn sessions_changed(&self, sessions: &[Session]) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for session in sessions {
            state.sessions.put(session);
            let key = (session.namespace.clone(), session.session_id.clone());
            state.update_eligible(&key, now);
        }
        // A worker that holds one session less may begin another, on every queue that it polls.
        for session in sessions {
            state.serve_namespace(&session.namespace, now);
        }
    }

    /// Handles a task that was taken from its queue and refused by its session. `stored` is the row of the session. If the worker
    /// would be served again at once, the session queue is set aside until something changes, or for a short time.
    pub(crate) fn refused(
        &self,
        queue: &QueueKey,
        task: ReadyTask,
        stored: Option<&Session>,
        filter: &PollFilter,
    ) {
        let Some(options) = task.session.clone() else {
            return;
        };
        let mut state = self.state.lock();
        let now = self.clock.now();
        let key = (queue.namespace.clone(), options.session_id.clone());
        let session_queue = SessionQueueKey::of(&options);
        state.sessions.end_reservation(&key, &task.task_id);
        state.put_in_session_queue(queue, task, Origin::Fetched, now);
        state.sessions.learn(&key, stored);
        state.update_eligible(&key, now);
        let is_full =
            state
                .sessions
                .is_full(&queue.namespace, &filter.worker_id, filter.max_sessions);
        if let Some(entry) = state.queues.get_mut(queue)
            && entry
                .session_queues
                .would_serve(&session_queue, filter, is_full)
        {
            entry
                .session_queues
                .update_eligible(&session_queue, |_| EligibleWorkers::None(None));
            state.sessions.set_aside(key);
        }
        state.serve(queue, now);
    }

    /// Updates the waiting polls of a worker that registered again: they accept exactly what it can do now.
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
            .filter(|waiter| waiter.filter.worker_id == *worker_id);
        for waiter in own {
            waiter.filter.capabilities = Arc::clone(capabilities);
            waiter.filter.max_sessions = max_sessions;
        }
        state.serve(queue, now);
    }

    /// Checks again what was set aside.
    pub(crate) fn look_again(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        for key in state.sessions.take_set_aside() {
            state.update_eligible(&key, now);
            state.serve_namespace(&key.0, now);
        }
    }

    /// Returns whether something was set aside.
    pub(crate) fn has_set_aside(&self) -> bool {
        self.state.lock().sessions.has_set_aside()
    }

    /// Applies what is stored of a session that other servers use too.
    pub(crate) fn session_read(
        &self,
        namespace: &Namespace,
        session_id: &SessionId,
        stored: Option<&Session>,
        attempts: Vec<Attempt>,
    ) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let key = (namespace.clone(), session_id.clone());
        state.sessions.learn(&key, stored);
        state.sessions.replace_attempts(&key, attempts);
        state.update_eligible(&key, now);
        state.serve_namespace(namespace, now);
    }

    /// Returns some sessions that ready tasks wait for.
    pub(crate) fn sessions_waited_for(&self, limit: usize) -> Vec<(Namespace, SessionId)> {
        let state = self.state.lock();
        let waited_for = state.sessions.waited_for();
        waited_for.take(limit).cloned().collect()
    }

    /// Returns whether matching has a copy of the session.
    pub(crate) fn knows_session(&self, namespace: &Namespace, session_id: &SessionId) -> bool {
        let key = (namespace.clone(), session_id.clone());
        self.state.lock().sessions.knows(&key)
    }

    /// Returns whether matching has an older copy of the session.
    pub(crate) fn has_older_session(&self, session: &Session) -> bool {
        self.state.lock().sessions.has_older(session)
    }

    /// Returns the number of sessions in memory.
    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().sessions.len()
    }

    /// Returns the namespaces of the sessions in memory.
    pub(crate) fn session_namespaces(&self) -> BTreeSet<Namespace> {
        self.state.lock().sessions.namespaces()
    }

    /// Returns the workers that hold an active session.
    pub(crate) fn session_owners(&self) -> Vec<(Namespace, WorkerId)> {
        self.state.lock().sessions.owners()
    }

    /// Returns the number of ready tasks whose session admits no worker now.
    pub(crate) fn blocked_in_session(&self) -> usize {
        let state = self.state.lock();
        let queues = state.queues.values();
        queues.map(|queue| queue.session_queues.blocked()).sum()
    }
}

impl State {
    /// Records the row of a task that belongs to a session.
    pub(super) fn note_attempt(&mut self, row: &TaskRow, now: Timestamp) {
        let Some(options) = &row.worker_session else {
            return;
        };
        let key = (row.namespace.clone(), options.session_id.clone());
        self.sessions.note(&key, row);
        self.update_eligible(&key, now);
        for (queue, _) in self.sessions.session_queues(&key) {
            self.serve(&queue, now);
        }
    }

    /// Offers a ready task that must run in a session.
    pub(super) fn offer_in_session(
        &mut self,
        queue: &QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) {
        if let Some(key) = self.put_in_session_queue(queue, task, origin, now) {
            self.update_eligible(&key, now);
        }
        self.serve(queue, now);
    }

    /// Puts the task in its session queue; returns the key of the session if the session queue is new.
    fn put_in_session_queue(
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
        if !origin.may_enter(entry.session_queues.len(), READY_IN_SESSION_MAX, has_room) {
            entry.session_queues_truncated = true;
            return None;
        }
        let session_queue = SessionQueueKey::of(&options);
        let place = Place::InSession(session_queue.clone(), order_of(&task));
        let task_id = task.task_id.clone();
        let is_new = entry.session_queues.insert(&session_queue, task);
        self.ready_bytes += bytes;
        self.places.insert(task_id, (queue.clone(), place));
        let key = (queue.namespace.clone(), options.session_id.clone());
        is_new.then(|| {
            self.sessions.add_session_queue(&key, queue, &session_queue);
            key
        })
    }

    /// Takes a task out of its session queue.
    pub(super) fn remove_from_session_queue(
        &mut self,
        queue: &QueueKey,
        session_queue: &SessionQueueKey,
        order: &super::session_queues::Order,
    ) -> Option<ReadyTask> {
        let entry = self.queues.get_mut(queue)?;
        let (task, is_gone) = entry.session_queues.remove(session_queue, order);
        self.ready_bytes -= task.as_ref().map_or(0, ReadyTask::bytes);
        if is_gone {
            let key = (queue.namespace.clone(), session_queue.session_id.clone());
            self.sessions.drop_session_queue(&key, queue, session_queue);
        }
        task
    }

    /// Takes the task for this worker out of its session queue, and records it as on its way.
    pub(super) fn take_from_session_queue(
        &mut self,
        queue: &QueueKey,
        session_queue: &SessionQueueKey,
        order: &super::session_queues::Order,
        worker_id: &WorkerId,
        now: Timestamp,
    ) -> Option<ReadyTask> {
        let key = (queue.namespace.clone(), session_queue.session_id.clone());
        self.sessions.take(&key, &order.2, worker_id);
        let task = self.remove_from_session_queue(queue, session_queue, order);
        self.places.remove(&order.2);
        self.update_eligible(&key, now);
        task
    }

    /// Ends the reservation of a session task that was leased, or goes back.
    pub(super) fn end_session_reservation(
        &mut self,
        queue: &QueueKey,
        task_id: &TaskId,
        options: &WorkerSessionOptions,
        now: Timestamp,
    ) {
        let key = (queue.namespace.clone(), options.session_id.clone());
        self.sessions.end_reservation(&key, task_id);
        self.update_eligible(&key, now);
        for (queue, _) in self.sessions.session_queues(&key) {
            self.serve(&queue, now);
        }
    }

    /// Recomputes which workers the session queues of a session serve.
    fn update_eligible(&mut self, key: &SessionKey, now: Timestamp) {
        for (queue, session_queue) in self.sessions.session_queues(key) {
            let sessions = &self.sessions;
            if let Some(entry) = self.queues.get_mut(&queue) {
                entry
                    .session_queues
                    .update_eligible(&session_queue, |options| {
                        sessions.eligible(key, options, now)
                    });
            }
        }
    }

    /// Serves waiting polls of every queue of the namespace that holds tasks of sessions.
    fn serve_namespace(&mut self, namespace: &Namespace, now: Timestamp) {
        let queues: Vec<QueueKey> = self
            .queues
            .iter()
            .filter(|(key, queue)| {
                key.namespace == *namespace
                    && queue.session_queues.can_serve()
                    && !queue.waiters.is_empty()
            })
            .map(|(key, _)| key.clone())
            .collect();
        for queue in queues {
            self.serve(&queue, now);
        }
    }

    /// Hands tasks of sessions to the matching polls that have waited longest.
    fn serve(&mut self, queue: &QueueKey, now: Timestamp) {
        loop {
            let can_serve = self
                .queues
                .get(queue)
                .is_some_and(|entry| !entry.waiters.is_empty() && entry.session_queues.can_serve());
            if !can_serve {
                return;
            }
            if self.admit(queue, now).is_err() {
                self.want_shares(queue, now);
                return;
            }
            let Some(entry) = self.queues.get(queue) else {
                return;
            };
            let found = entry
                .waiters
                .iter()
                .enumerate()
                .find_map(|(place, waiter)| {
                    let filter = &waiter.filter;
                    let (session_queue, task) = entry
                        .session_queues
                        .best(filter, self.is_full(queue, filter))?;
                    Some((
                        place,
                        session_queue.clone(),
                        order_of(task),
                        filter.worker_id.clone(),
                    ))
                });
            let Some((place, session_queue, order, worker_id)) = found else {
                return;
            };
            let Some(task) =
                self.take_from_session_queue(queue, &session_queue, &order, &worker_id, now)
            else {
                return;
            };
            let waiter = self
                .queues
                .get_mut(queue)
                .and_then(|entry| entry.waiters.remove(place))
                .expect("the poll was just found");
            self.ended_waiting(&queue.namespace);
            match waiter.hand.send(task) {
                Ok(()) => self.leases.reserve(queue),
                // The poll ended just now.
                Err(back) => {
                    let key = (queue.namespace.clone(), session_queue.session_id.clone());
                    self.sessions.end_reservation(&key, &back.task_id);
                    self.put_in_session_queue(queue, back, Origin::Fetched, now);
                    self.update_eligible(&key, now);
                }
            }
        }
    }

    /// Returns whether the worker may begin no further session.
    pub(super) fn is_full(&self, queue: &QueueKey, filter: &PollFilter) -> bool {
        // Sessions may end at other servers. Then the claim decides.
        !self.is_shared
            && self
                .sessions
                .is_full(&queue.namespace, &filter.worker_id, filter.max_sessions)
    }
}
