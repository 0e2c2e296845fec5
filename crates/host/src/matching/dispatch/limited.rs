//! Matching of tasks whose starts are limited by their task definition: into and out of lanes, and which polls are served when there
//! is room again.

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::queue::{PollFilter, StartWithheld};
use longhaul_protocol::Timestamp;
use longhaul_store::QueueKey;

use super::lanes::LaneKey;
use super::session_queues::order_of;
use super::{Dispatch, Origin, Place, READY_PER_QUEUE_MAX, ReadyTask, Reservation, State};
use crate::matching::starts::StartName;

impl Dispatch {
    /// Takes the best matching ready task without waiting. Only memory is searched.
    pub(crate) fn take_ready(&self, queue: &QueueKey, filter: &PollFilter) -> Option<ReadyTask> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.admit(queue, now).ok()?;
        let task = state.pick(queue, filter, now)?;
        state.leases.reserve(queue);
        Some(task)
    }

    /// Serves the polls that wait for tasks whose windows have room again. Returns when the next window has.
    pub(crate) fn serve_windows(&self) -> Option<Timestamp> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        while let Some(name) = state.starts.next_room(now) {
            state.serve_name(&name, now);
        }
        state.starts.room_at()
    }

    /// Returns when the next window of a task definition has room again.
    pub(crate) fn window_room_at(&self) -> Option<Timestamp> {
        self.state.lock().starts.room_at()
    }
}

impl State {
    /// Applies a committed row to the counts of its definition name.
    pub(super) fn note_start(&mut self, row: &TaskRow, now: Timestamp) {
        if row.kind == TaskKind::Execution && self.starts.note(row, now) {
            let name = (row.namespace.clone(), row.type_name.clone());
            self.serve_name(&name, now);
        }
    }

    /// Offers a ready task whose starts are limited.
    pub(super) fn offer_limited(
        &mut self,
        queue: &QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) {
        self.put_in_lane(queue, task, origin, now);
        self.serve_lanes(queue, now);
    }

    /// Puts the task in its lane, or leaves it in the store if memory is full.
    pub(super) fn put_in_lane(
        &mut self,
        queue: &QueueKey,
        task: ReadyTask,
        origin: Origin,
        now: Timestamp,
    ) {
        let Some(key) = LaneKey::of(&task) else {
            return;
        };
        let has_room = self.has_room();
        let bytes = task.bytes();
        let entry = self.queue(queue, now);
        let has_room = has_room || !entry.waiters.is_empty();
        if !origin.may_enter(entry.len + entry.lanes.len(), READY_PER_QUEUE_MAX, has_room) {
            entry.truncated = true;
            return;
        }
        let place = Place::InLane(key.clone(), order_of(&task));
        let task_id = task.task_id.clone();
        entry.lanes.insert(&key, task);
        self.ready_bytes += bytes;
        self.places.insert(task_id, (queue.clone(), place));
    }

    /// Returns the lane whose best task may start now. Lanes that may not are withheld until there is room.
    pub(super) fn admitted_lane(&mut self, queue: &QueueKey, now: Timestamp) -> Option<LaneKey> {
        let entry = self.queues.get_mut(queue)?;
        if self.is_shared {
            // Few lanes are here, and a share may be free by now.
            entry.lanes.reopen_all();
        }
        while let Some((key, _)) = entry.lanes.best() {
            let key = key.clone();
            match self
                .starts
                .admit(queue, &key.name, &key.limits, &mut self.shares, now)
            {
                Ok(()) => return Some(key),
                Err(withheld) => {
                    entry.lanes.withhold(&key);
                    if let StartWithheld::Starts { room_at } = withheld {
                        self.window_check.set_no_later_than(room_at);
                    }
                }
            }
        }
        None
    }

    /// Takes the best task out of a lane, and records it as on its way.
    pub(super) fn take_from_lane(&mut self, queue: &QueueKey, key: &LaneKey) -> Option<ReadyTask> {
        let entry = self.queues.get_mut(queue)?;
        let (_, task) = entry.lanes.best().filter(|(best, _)| *best == key)?;
        let order = order_of(task);
        let task = entry.lanes.remove(key, &order)?;
        self.ready_bytes -= task.bytes();
        self.places.remove(&task.task_id);
        let (namespace, name) = (&queue.namespace, &key.name);
        self.starts.reserve(namespace, name, &task.task_id);
        Some(task)
    }

    /// Ends the count of a task on its way. Returns its name if there is room for another now.
    pub(super) fn end_start(
        &mut self,
        queue: &QueueKey,
        reservation: &Reservation,
    ) -> Option<StartName> {
        let name = reservation.name.as_ref()?;
        let namespace = &queue.namespace;
        self.starts
            .end_reservation(namespace, name, &reservation.task_id)
            .then(|| (namespace.clone(), name.clone()))
    }

    /// Serves the queues with withheld tasks of a name, until one is withheld again.
    pub(super) fn serve_name(&mut self, name: &StartName, now: Timestamp) {
        for _ in 0..self.starts.withheld_queues(name) {
            let Some(queue) = self.starts.next_withheld(name) else {
                return;
            };
            if let Some(entry) = self.queues.get_mut(&queue) {
                entry.lanes.reopen(&name.1);
            }
            self.serve_lanes(&queue, now);
            if self.starts.is_withheld(name, &queue) {
                return;
            }
        }
    }

    /// Hands tasks of lanes to the polls that have waited longest. Workers of these tasks accept every task of their queue.
    pub(super) fn serve_lanes(&mut self, queue: &QueueKey, now: Timestamp) {
        while self.is_waited_for(queue) && self.admit(queue, now).is_ok() {
            let Some(key) = self.admitted_lane(queue, now) else {
                return;
            };
            let Some(task) = self.take_from_lane(queue, &key) else {
                return;
            };
            let entry = self.queues.get_mut(queue);
            let Some(waiter) = entry.and_then(|entry| entry.waiters.pop_front()) else {
                return;
            };
            self.ended_waiting(&queue.namespace);
            match waiter.hand.send(task) {
                Ok(()) => self.leases.reserve(queue),
                // The poll ended just now.
                Err(back) => {
                    self.end_start(queue, &back.reservation());
                    self.put_in_lane(queue, back, Origin::Fetched, now);
                }
            }
        }
    }

    /// Returns whether a poll waits for tasks of the queue.
    pub(super) fn is_waited_for(&self, queue: &QueueKey) -> bool {
        let entry = self.queues.get(queue);
        entry.is_some_and(|entry| !entry.waiters.is_empty())
    }
}
