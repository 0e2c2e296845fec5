//! Into and out of the queues: a ready task goes to the poll that has waited longest for such a task, or waits in its queue. The
//! best task goes first, and no more than the caps allow.

use longhaul_engine::queue::PollFilter;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;
use longhaul_store::QueueKey;

use super::queue::{QueuePlace, Waiter};
use super::state::{Place, State};
use super::{
    FETCHED_WHEN_FULL, READY_PER_QUEUE_MAX, RESERVED_SECONDS, ReadyTask, Reservation,
    session_queues,
};
use crate::matching::starts::StartName;

impl State {
    pub(super) fn offer(&mut self, key: QueueKey, task: ReadyTask, origin: Origin, now: Timestamp) {
        if self.places.contains_key(&task.task_id) {
            return;
        }
        if self.is_shared && origin != Origin::Question {
            let expiry = now.plus_seconds(RESERVED_SECONDS);
            self.expiries.insert((expiry, task.task_id.clone()));
        }
        if task.session.is_some() {
            self.offer_in_session(&key, task, origin, now);
            return;
        }
        if task.limits.is_some() {
            self.offer_limited(&key, task, origin, now);
            return;
        }
        if !self.leases.is_unlimited() {
            // Older tasks may be withheld here: the best one goes first.
            self.insert(key.clone(), task, origin, now);
            self.pump(&key, now);
            return;
        }
        let mut task = task;
        while let Some(waiter) = self.waiter_for(&key, &task) {
            self.ended_waiting(&key.namespace);
            match waiter.hand.send(task) {
                Ok(()) => return,
                // The poll ended just now.
                Err(back) => task = back,
            }
        }
        self.insert(key, task, origin, now);
    }

    /// Removes and returns the poll that has waited longest for such a task.
    pub(super) fn waiter_for(&mut self, key: &QueueKey, task: &ReadyTask) -> Option<Waiter> {
        let waiters = &mut self.queues.get_mut(key)?.waiters;
        let place = waiters
            .iter()
            .position(|waiter| waiter.filter.accepts(&task.requirements))?;
        waiters.remove(place)
    }

    /// Hands out the tasks that may be leased, to the polls that have waited longest.
    pub(super) fn pump(&mut self, key: &QueueKey, now: Timestamp) {
        loop {
            if self.admit(key, now).is_err() {
                let queue = self.queues.get(key);
                if queue.is_some_and(|queue| !queue.waiters.is_empty() && queue.has_tasks()) {
                    self.want_shares(key, now);
                }
                return;
            }
            let waiting = self.queues.get(key).map_or(0, |queue| queue.waiters.len());
            let handed = (0..waiting).find_map(|place| {
                let waiter = self.queues.get(key)?.waiters.get(place)?;
                let filter = waiter.filter.clone();
                Some((place, self.pick(key, &filter, now)?))
            });
            let Some((place, task)) = handed else {
                return;
            };
            let waiter = self
                .queues
                .get_mut(key)
                .and_then(|queue| queue.waiters.remove(place))
                .expect("the poll was just found");
            self.ended_waiting(&key.namespace);
            match waiter.hand.send(task) {
                Ok(()) => self.leases.reserve(key),
                // The poll ended just now.
                Err(back) if back.session.is_some() => {
                    self.end_reservation(key, &back.reservation(), now);
                    self.offer_in_session(key, back, Origin::Fetched, now);
                }
                Err(back) if back.limits.is_some() => {
                    self.end_start(key, &back.reservation());
                    self.put_in_lane(key, back, Origin::Fetched, now);
                }
                Err(back) => self.insert(key.clone(), back, Origin::Fetched, now),
            }
        }
    }

    /// Caps apply to all queues of a namespace, so a free lease of one may serve another.
    pub(super) fn pump_namespace(&mut self, key: &QueueKey, now: Timestamp) {
        let waiting: Vec<QueueKey> = self
            .queues
            .iter()
            .filter(|(other, queue)| {
                other.namespace == key.namespace
                    && other.kind == key.kind
                    && queue.len + queue.session_queues.len() + queue.lanes.len() > 0
                    && !queue.waiters.is_empty()
            })
            .map(|(other, _)| other.clone())
            .collect();
        for other in waiting {
            self.pump(&other, now);
        }
    }

    pub(super) fn insert(
        &mut self,
        key: QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) {
        let has_room = self.has_room();
        let is_question = task.requirements.validates.is_some() || !self.is_stored;
        let origin = if is_question {
            Origin::Question
        } else {
            origin
        };
        match self.queues.get_mut(&key) {
            // If a poll waits, the task is handed over soon.
            Some(queue)
                if !origin.may_enter(
                    queue.len,
                    READY_PER_QUEUE_MAX,
                    has_room || !queue.waiters.is_empty(),
                ) =>
            {
                queue.truncated = true;
                return;
            }
            None if !origin.may_enter(0, READY_PER_QUEUE_MAX, has_room) => {
                self.is_partial = true;
                return;
            }
            Some(_) | None => {}
        }
        self.ready_bytes += task.bytes();
        let queue = self.queue(&key, now);
        let place: QueuePlace = (
            task.rank.priority,
            task.rank.fairness_key.clone(),
            task.rank.available_at,
            task.task_id.clone(),
        );
        let class = queue
            .tiers
            .entry(place.0)
            .or_default()
            .entry(place.1.clone())
            .or_default();
        class.insert((place.2, place.3.clone()), Box::new(task));
        queue.len += 1;
        let task_id = place.3.clone();
        self.places.insert(task_id, (key, Place::Plain(place)));
    }

    pub(super) fn withdraw(&mut self, task_id: &TaskId) {
        let Some((key, place)) = self.places.remove(task_id) else {
            return;
        };
        match place {
            Place::Plain(place) => {
                let queue = self.queues.get_mut(&key);
                if let Some(task) = queue.and_then(|queue| queue.remove(&place)) {
                    self.ready_bytes -= task.bytes();
                }
            }
            Place::InSession(session_queue, order) => {
                self.remove_from_session_queue(&key, &session_queue, &order);
            }
            Place::InLane(lane, order) => {
                let queue = self.queues.get_mut(&key);
                if let Some(task) = queue.and_then(|queue| queue.lanes.remove(&lane, &order)) {
                    self.ready_bytes -= task.bytes();
                }
            }
        }
    }

    /// Takes the best matching task out of the queue.
    pub(super) fn pick(
        &mut self,
        key: &QueueKey,
        filter: &PollFilter,
        now: Timestamp,
    ) -> Option<ReadyTask> {
        let lane = self.admitted_lane(key, now);
        let queue = self.queues.get(key)?;
        let plain = queue.best(filter, now);
        if let (Some(lane), Some((_, limited))) = (lane, queue.lanes.best())
            && plain.is_none_or(|plain| {
                queue
                    .fairness
                    .goes_first(limited.order(), plain.order(), now)
            })
        {
            return self.take_from_lane(key, &lane);
        }
        // Without session tasks nothing more is checked.
        let in_session = queue
            .session_queues
            .can_serve()
            .then(|| queue.session_queues.best(filter, self.is_full(key, filter)))
            .flatten();
        let goes_first = match (plain, in_session) {
            (Some(plain), Some((_, task))) => {
                queue.fairness.goes_first(task.order(), plain.order(), now)
            }
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if let Some((session_queue, task)) = in_session.filter(|_| goes_first) {
            let (session_queue, order) = (session_queue.clone(), session_queues::order_of(task));
            return self.take_from_session_queue(
                key,
                &session_queue,
                &order,
                &filter.worker_id,
                now,
            );
        }
        let task = plain?.clone();
        self.withdraw(&task.task_id);
        Some(task)
    }

    /// Ends the reservation of a task. Returns the name of its task definition if that has room for another task now.
    pub(super) fn end_reservation(
        &mut self,
        queue: &QueueKey,
        reservation: &Reservation,
        now: Timestamp,
    ) -> Option<StartName> {
        if let Some(options) = &reservation.session {
            self.end_session_reservation(queue, &reservation.task_id, options, now);
        }
        self.end_start(queue, reservation)
    }
}

/// Why a task is offered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It became ready: it may stay in the store if memory is full.
    Commit,
    /// A poll requested it from the store, or was about to get it: some are kept although memory is full, or the poll would repeat
    /// its request without end.
    Fetched,
    /// It is not stored: it must be kept, and another limit bounds those.
    Question,
}

impl Origin {
    /// Returns whether a task may enter a queue that holds `len` tasks and may hold `max`.
    pub(super) fn may_enter(self, len: usize, max: usize, has_room: bool) -> bool {
        match self {
            Self::Question => true,
            Self::Commit => has_room && len < max,
            Self::Fetched => len < max && (has_room || len < FETCHED_WHEN_FULL),
        }
    }
}
