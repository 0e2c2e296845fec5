//! Matching of tasks that other servers hand out too: what the waiting polls want, and what a look found for them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_engine::change::{Cap, CapScope, TaskRow, TaskStatus};
use longhaul_engine::queue::{PollFilter, Withheld};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskId};
use longhaul_store::{PollId, QueueKey, Wanted};

use super::queue::Waiter;
use super::{Dispatch, Origin, ReadyTask, State, queue_of};
use crate::cluster::looks::NewTasks;
use crate::matching::admission::Throttle;

/// Tasks that are taken for one queue at once.
const WANTED_MAX: usize = 1000;

/// Tasks that a look leaves out. Far above what claims are on their way at once.
const KNOWN_MAX: usize = 10_000;

/// A queue whose leases are at their cap is tried again after this, if no hint comes earlier.
const WITHHELD_SECONDS: u64 = 1;

/// Leases that are being granted. Those whose commits failed stay behind, and all are forgotten when there are this many.
const GRANTING_MAX: usize = 100_000;

/// Which waiting polls are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polls {
    All,
    /// Those that the store was not asked for yet.
    Unchecked,
}

/// The polls whose reply may have been given by another server, and what records that the store was asked.
#[derive(Default)]
pub(crate) struct UncheckedPolls {
    pub(crate) ids: Vec<PollId>,
    is_checked: Vec<Arc<AtomicBool>>,
}

impl UncheckedPolls {
    /// Records that the store was asked.
    pub(crate) fn check(&self) {
        for is_checked in &self.is_checked {
            is_checked.store(true, Ordering::Relaxed);
        }
    }
}

impl Dispatch {
    /// Returns what the polls wait for, of these queues or of all. A look for it begins.
    pub(crate) fn wanted(
        &self,
        queues: Option<&HashSet<QueueKey>>,
        new_tasks: NewTasks,
    ) -> Vec<Wanted> {
        let mut state = self.state.lock();
        state.quiet.begin(new_tasks);
        state.claimed.clear();
        let waiting = state.queues.iter().filter(|(key, queue)| {
            !queue.waiters.is_empty() && queues.is_none_or(|queues| queues.contains(key))
        });
        let wanted = waiting.map(|(key, queue)| {
            let mut polls: Vec<(PollFilter, usize)> = Vec::new();
            let mut left = WANTED_MAX;
            for waiter in &queue.waiters {
                let count = waiter.asked.count.min(left);
                left -= count;
                if count == 0 {
                    break;
                }
                let same = polls
                    .iter_mut()
                    .find(|(filter, _)| is_same(filter, &waiter.filter));
                match same {
                    Some((_, of_all)) => *of_all += count,
                    None => polls.push((waiter.filter.clone(), count)),
                }
            }
            Wanted {
                queue: key.clone(),
                polls,
            }
        });
        wanted.collect()
    }

    /// Returns the tasks of these queues that are here or on their way to a lease, if nothing else keeps a look from finding them. A server
    /// that is not alone has taken them.
    pub(crate) fn known(&self, wanted: &[Wanted]) -> Vec<TaskId> {
        let state = self.state.lock();
        if !state.is_alone || wanted.is_empty() {
            return Vec::new();
        }
        let queues: HashSet<&QueueKey> = wanted.iter().map(|wanted| &wanted.queue).collect();
        let here = state.tasks_of(|queue| queues.contains(queue));
        let known = here.chain(&state.claiming).take(KNOWN_MAX);
        known.cloned().collect()
    }

    /// Returns the tasks that are left to other servers from now on.
    pub(crate) fn take_released(&self) -> Vec<TaskId> {
        std::mem::take(&mut self.state.lock().released)
    }

    /// Records whether other servers are alive.
    pub(crate) fn set_alone(&self, is_alone: bool) {
        self.state.lock().is_alone = is_alone;
    }

    /// Records that a task is on its way to a lease.
    pub(crate) fn begin_claim(&self, task_id: &TaskId) {
        if self.is_shared {
            self.state.lock().claiming.insert(task_id.clone());
        }
    }

    /// Records that the claim of a task ended, or that it was given up.
    pub(crate) fn end_claim(&self, task_id: &TaskId) {
        if !self.is_shared {
            return;
        }
        let mut state = self.state.lock();
        if let Some(task_id) = state.claiming.take(task_id)
            && state.quiet.is_looking()
        {
            state.claimed.insert(task_id);
        }
    }

    /// Returns the bounds that the lease of a task must keep. It is about to be granted by this server.
    pub(crate) fn caps_of_lease(&self, row: &TaskRow) -> Vec<Cap> {
        if row.status != TaskStatus::Leased {
            return Vec::new();
        }
        let mut state = self.state.lock();
        state.note_grant(row);
        state.caps_of_lease(row)
    }

    /// Returns whether the end of this task's lease may make room under a cap.
    pub(crate) fn has_lease_caps(&self, row: &TaskRow) -> bool {
        !self.state.lock().caps_of_lease(row).is_empty()
    }

    /// Returns the waiting polls that have ids: all, or those that the store was not asked for yet.
    pub(crate) fn waiting_polls(&self, extent: Polls) -> UncheckedPolls {
        let state = self.state.lock();
        let mut polls = UncheckedPolls::default();
        for (key, queue) in &state.queues {
            for Waiter { filter, asked, .. } in &queue.waiters {
                let Some(request_id) = &asked.request_id else {
                    continue;
                };
                if extent == Polls::Unchecked && asked.is_checked() {
                    continue;
                }
                polls.ids.push(PollId {
                    queue: key.clone(),
                    worker_id: filter.worker_id.clone(),
                    request_id: request_id.clone(),
                });
                polls.is_checked.push(Arc::clone(&asked.is_checked));
            }
        }
        polls
    }

    /// Returns whether a look for such a poll found nothing a moment ago, and nothing has come since.
    pub(crate) fn is_quiet(
        &self,
        queue: &QueueKey,
        filter: &PollFilter,
        new_tasks: NewTasks,
    ) -> bool {
        let state = self.state.lock();
        state.quiet.is_quiet(queue, filter, new_tasks)
    }

    /// Records that another server offers new tasks of a queue, or room in it.
    pub(crate) fn note_offered(&self, queue: &QueueKey, tasks: &BTreeSet<TaskId>) {
        let mut state = self.state.lock();
        state.quiet.disturb(queue);
        state.offered.add(queue, tasks, self.clock.now());
    }

    /// Returns the new tasks of these queues that other servers offered.
    pub(crate) fn offered(&self, wanted: &[Wanted]) -> Vec<TaskId> {
        let now = self.clock.now();
        let offered = &mut self.state.lock().offered;
        let tasks = wanted.iter();
        let tasks = tasks.flat_map(|wanted| offered.of(&wanted.queue, now));
        tasks.collect()
    }

    /// Records that a queue may have a task that this server does not have.
    pub(crate) fn disturb(&self, queue: &QueueKey) {
        self.state.lock().quiet.disturb(queue);
    }

    /// Records that any queue may have such tasks.
    pub(crate) fn disturb_all(&self) {
        self.state.lock().quiet.disturb_all();
    }

    /// Returns whether a poll waits for tasks of the queue.
    pub(crate) fn is_waited_for(&self, queue: &QueueKey) -> bool {
        self.state.lock().is_waited_for(queue)
    }

    /// Adds the tasks that a look for these polls found. The look has ended.
    pub(crate) fn add_found(&self, wanted: &[Wanted], rows: &[TaskRow]) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let rows = rows.iter().filter(|row| !state.is_claimed(&row.task_id));
        let rows: Vec<&TaskRow> = rows.collect();
        let found: HashSet<QueueKey> = rows.iter().map(|row| queue_of(row)).collect();
        let empty = wanted.iter();
        let empty = empty.filter(|wanted| !found.contains(&wanted.queue));
        state.quiet.end(empty);
        for row in rows {
            state.offered.remove(&queue_of(row), &row.task_id);
            state.offer(queue_of(row), ReadyTask::from(row), Origin::Fetched, now);
        }
        if state.is_alone {
            // Tasks that are here have waited for the result of the look: older ones may have been in the store.
            for wanted in wanted {
                state.pump(&wanted.queue, now);
            }
        }
    }

    /// Hands a task to the poll that leases it: another server granted it, and the reply was lost.
    pub(crate) fn hand_again(&self, row: &TaskRow) {
        let mut state = self.state.lock();
        let queue = queue_of(row);
        let Some(entry) = state.queues.get_mut(&queue) else {
            return;
        };
        let place = entry.waiters.iter().position(|waiter| {
            Some(&waiter.filter.worker_id) == row.lease_owner.as_ref()
                && waiter.asked.request_id.is_some()
                && waiter.asked.request_id == row.poll_request_id
        });
        let Some(waiter) = place.and_then(|place| entry.waiters.remove(place)) else {
            return;
        };
        state.ended_waiting(&queue.namespace);
        state.leases.reserve(&queue);
        // If the poll ended just now, its worker polls again.
        if waiter.hand.send(ReadyTask::from(row)).is_err() {
            state.leases.end_reservation(&queue);
        }
    }

    /// Puts a task back and reserves the one that another server leased to the same poll.
    pub(crate) fn swap(&self, queue: &QueueKey, task: ReadyTask, row: &TaskRow) -> ReadyTask {
        let reservation = task.reservation();
        self.end_reservation(queue, &reservation, Some(task));
        self.state.lock().leases.reserve(queue);
        ReadyTask::from(row)
    }

    /// Removes the tasks that are left to this server no longer.
    pub(crate) fn remove_expired(&self) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        while let Some((at, _)) = state.expiries.first()
            && *at <= now
            && let Some((_, task_id)) = state.expiries.pop_first()
        {
            if let Some((queue, _)) = state.places.get(&task_id) {
                let queue = queue.clone();
                state.quiet.disturb(&queue);
            }
            state.withdraw(&task_id);
        }
    }

    /// Withholds the tasks of a queue for a moment: a cap on leases is reached. What was taken of it is left to all servers, because a
    /// lease may end at any of them. The caller asks for a look, which does that.
    pub(crate) fn withhold(&self, queue: &QueueKey, withheld: Withheld) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let until = now.plus_seconds(WITHHELD_SECONDS);
        state.queue(queue, now).withheld = Some((withheld, until));
        if state.is_alone {
            return;
        }
        let here: Vec<TaskId> = state.tasks_of(|other| other == queue).cloned().collect();
        for task_id in here {
            state.withdraw(&task_id);
            state.released.push(task_id);
        }
        state.quiet.disturb(queue);
    }

    /// Tries queues again that were withheld, of one namespace or those whose time has come.
    pub(crate) fn try_withheld(&self, namespace: Option<&Namespace>) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let queues: Vec<QueueKey> = state
            .queues
            .iter()
            .filter(|(key, queue)| {
                queue
                    .withheld
                    .is_some_and(|(_, until)| until <= now || namespace == Some(&key.namespace))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for queue in queues {
            if let Some(entry) = state.queues.get_mut(&queue) {
                entry.withheld = None;
            }
            state.pump(&queue, now);
        }
    }
}

impl State {
    /// Returns whether the best task for such a poll is here, if any task is. A server that is alone has tasks which it did not look for,
    /// and the store may have older ones.
    pub(super) fn has_all_for(&self, queue: &QueueKey, filter: &PollFilter) -> bool {
        !self.is_alone || self.quiet.is_quiet(queue, filter, NewTasks::All)
    }

    /// Returns the tasks that wait here, of some queues.
    fn tasks_of(&self, is_meant: impl Fn(&QueueKey) -> bool) -> impl Iterator<Item = &TaskId> {
        let here = self.places.iter();
        let here = here.filter(move |(_, (queue, _))| is_meant(queue));
        here.map(|(task_id, _)| task_id)
    }

    /// Returns whether a task that a look found is on its way to a lease, or has one by now.
    fn is_claimed(&self, task_id: &TaskId) -> bool {
        self.claiming.contains(task_id) || self.claimed.contains(task_id)
    }

    /// Returns the bounds on leases that count this task.
    fn caps_of_lease(&mut self, row: &TaskRow) -> Vec<Cap> {
        let (namespace, kind) = (row.namespace.clone(), row.kind);
        let mut caps = Vec::new();
        if !self.leases.is_unlimited() {
            let of_queue = self.leases.caps(&queue_of(row));
            caps.extend(of_queue.max_active_leases.map(|max| Cap {
                scope: CapScope::Queue(namespace.clone(), kind, row.queue.clone()),
                max,
            }));
            caps.extend(of_queue.max_active_leases_per_namespace.map(|max| Cap {
                scope: CapScope::Namespace(namespace.clone(), kind),
                max,
            }));
        }
        let limits = row.start_limits.filter(|limits| limits.in_progress > 0);
        caps.extend(limits.map(|limits| Cap {
            scope: CapScope::TaskDef(namespace, row.type_name.clone()),
            max: limits.in_progress.into(),
        }));
        caps
    }

    /// Records that this server is about to grant a lease. Its row is written by other servers too, when the worker reports there.
    fn note_grant(&mut self, row: &TaskRow) {
        if self.granting.len() >= GRANTING_MAX {
            self.granting.clear();
        }
        self.granting.insert(row.task_id.clone(), row.attempt);
    }

    /// Returns whether this server granted the lease, and forgets it: a lease is counted once.
    pub(super) fn is_granted_here(&mut self, row: &TaskRow) -> bool {
        !self.is_shared || self.granting.remove(&row.task_id) == Some(row.attempt)
    }

    /// Returns what withholds the tasks of a queue now.
    pub(super) fn admit(&mut self, queue: &QueueKey, now: Timestamp) -> Result<(), Throttle> {
        let withheld = self.queues.get(queue).and_then(|queue| queue.withheld);
        if let Some((cap, until)) = withheld
            && now < until
        {
            return Err(Throttle { cap, room_at: None });
        }
        if self.is_shared {
            self.admit_shares(queue, now)
        } else {
            self.leases.admit(queue, now)
        }
    }
}

/// Returns whether two polls accept the same.
fn is_same(one: &PollFilter, other: &PollFilter) -> bool {
    one.worker_id == other.worker_id
        && one.build_id == other.build_id
        && one.types == other.types
        && one.capabilities == other.capabilities
}
