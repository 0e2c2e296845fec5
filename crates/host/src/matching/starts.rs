//! Counts what the limits of task definitions count: tasks of a definition name that are in progress or on their way to a worker, and
//! recent starts; over all runs, queues and domains of a namespace. The rules are in `engine::queue`.
//!
//! Kept in memory and restored from stored leases at start. Starts of tasks that ended before a restart are not restored.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_engine::queue::{RecentStarts, StartLimits, StartUsage, StartWithheld};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskId};
use longhaul_store::QueueKey;

use crate::matching::shares::{RateKey, ShareTable};

/// Names without anything to count are removed after this many changes, or as many as there are names.
const TIDY_AFTER_CHANGES: usize = 1024;

/// A definition name in a namespace.
pub(crate) type StartName = (Namespace, String);

/// Counts by definition name.
pub(crate) struct StartCounter {
    /// Whether the tasks at other servers count too. Then commits count those in progress, and shares bound starts.
    is_shared: bool,
    names: HashMap<Namespace, HashMap<String, NameUse>>,
    /// When windows of names have room again.
    room: BTreeSet<(Timestamp, StartName)>,
    changes: usize,
}

#[derive(Default)]
struct NameUse {
    tasks: HashMap<TaskId, TaskUse>,
    /// Tasks that are on their way and not leased yet.
    on_the_way: u64,
    recent: RecentStarts,
    /// Queues with tasks of this name that were withheld, in the order in which they are served again.
    withheld: VecDeque<QueueKey>,
    listed: HashSet<QueueKey>,
}

#[derive(Default)]
struct TaskUse {
    is_on_the_way: bool,
    /// The attempt that a worker has.
    leased: Option<u64>,
}

impl NameUse {
    fn is_nothing(&self, now: Timestamp) -> bool {
        self.tasks.is_empty() && self.withheld.is_empty() && self.recent.is_over(now)
    }
}

impl StartCounter {
    pub(crate) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            names: HashMap::new(),
            room: BTreeSet::new(),
            changes: 0,
        }
    }

    fn find(&mut self, namespace: &Namespace, name: &str) -> Option<&mut NameUse> {
        self.names.get_mut(namespace)?.get_mut(name)
    }

    fn entry(&mut self, namespace: &Namespace, name: &str) -> &mut NameUse {
        if self.find(namespace, name).is_none() {
            let names = self.names.entry(namespace.clone()).or_default();
            names.insert(name.to_owned(), NameUse::default());
        }
        self.find(namespace, name).expect("it was just added")
    }

    /// Applies a committed row of a task. Returns whether a task of its name is in progress no longer.
    pub(crate) fn note(&mut self, row: &TaskRow, now: Timestamp) -> bool {
        if row.status != TaskStatus::Leased {
            return self.ended(row, now);
        }
        if self.is_shared {
            // Another server may end the lease, so it is not recorded. The share of the rate counts the start.
            return false;
        }
        let used = self.entry(&row.namespace, &row.type_name);
        let task = used.tasks.entry(row.task_id.clone()).or_default();
        if task.leased == Some(row.attempt) {
            return false;
        }
        if task.leased.is_none() && task.is_on_the_way {
            used.on_the_way -= 1;
        }
        task.leased = Some(row.attempt);
        if let Some(limits) = row.start_limits.filter(StartLimits::has_rate) {
            let started_at = row.started_at.unwrap_or(now);
            used.recent.count(started_at, limits.window_seconds);
        }
        false
    }

    fn ended(&mut self, row: &TaskRow, now: Timestamp) -> bool {
        let Some(used) = self.find(&row.namespace, &row.type_name) else {
            return false;
        };
        let Some(task) = used.tasks.get_mut(&row.task_id) else {
            return false;
        };
        if task.leased.take().is_none() {
            return false;
        }
        if task.is_on_the_way {
            used.on_the_way += 1;
        } else {
            used.tasks.remove(&row.task_id);
        }
        self.tidy(now);
        true
    }

    /// Checks whether one more task may start. If not, the queue is listed to be served again when there is room.
    pub(crate) fn admit(
        &mut self,
        queue: &QueueKey,
        name: &str,
        limits: &StartLimits,
        shares: &mut ShareTable,
        now: Timestamp,
    ) -> Result<(), StartWithheld> {
        let is_shared = self.is_shared;
        let used = self.entry(&queue.namespace, name);
        let withheld = if is_shared {
            let rate = RateKey::of_starts(&queue.namespace, name, limits);
            let lacking = rate.filter(|key| !shares.is_available(key, used.on_the_way, now));
            let Some(key) = lacking else { return Ok(()) };
            shares.want(&key, queue, now);
            StartWithheld::Share
        } else {
            let usage = StartUsage {
                in_progress: used.tasks.len() as u64,
                on_the_way: used.on_the_way,
                recent: &used.recent,
            };
            match limits.admit(&usage, now) {
                Ok(()) => return Ok(()),
                Err(withheld) => withheld,
            }
        };
        if used.listed.insert(queue.clone()) {
            used.withheld.push_back(queue.clone());
        }
        if let StartWithheld::Starts { room_at } = withheld {
            let name = (queue.namespace.clone(), name.to_owned());
            self.room.insert((room_at, name));
        }
        Err(withheld)
    }

    /// Counts a task on its way to a worker.
    pub(crate) fn reserve(&mut self, namespace: &Namespace, name: &str, task_id: &TaskId) {
        let used = self.entry(namespace, name);
        let task = used.tasks.entry(task_id.clone()).or_default();
        if !task.is_on_the_way && task.leased.is_none() {
            used.on_the_way += 1;
        }
        task.is_on_the_way = true;
    }

    /// Ends the count of a task that was leased, or could not be. Returns whether it is in progress no longer.
    pub(crate) fn end_reservation(
        &mut self,
        namespace: &Namespace,
        name: &str,
        task_id: &TaskId,
    ) -> bool {
        let Some(used) = self.find(namespace, name) else {
            return false;
        };
        let Some(task) = used.tasks.get_mut(task_id) else {
            return false;
        };
        if !std::mem::take(&mut task.is_on_the_way) || task.leased.is_some() {
            return false;
        }
        used.on_the_way -= 1;
        used.tasks.remove(task_id);
        true
    }

    /// Returns how many tasks of a name are on their way to a worker.
    pub(crate) fn on_the_way(&self, namespace: &Namespace, name: &str) -> u64 {
        let used = self.names.get(namespace).and_then(|names| names.get(name));
        used.map_or(0, |used| used.on_the_way)
    }

    /// Returns the number of queues of a name that wait to be served again.
    pub(crate) fn withheld_queues(&mut self, (namespace, name): &StartName) -> usize {
        self.find(namespace, name)
            .map_or(0, |used| used.withheld.len())
    }

    /// Removes and returns the queue of a name that is served next.
    pub(crate) fn next_withheld(&mut self, (namespace, name): &StartName) -> Option<QueueKey> {
        let used = self.find(namespace, name)?;
        let queue = used.withheld.pop_front()?;
        used.listed.remove(&queue);
        Some(queue)
    }

    /// Returns whether tasks of a name in this queue were withheld since it was last served.
    pub(crate) fn is_withheld(&mut self, (namespace, name): &StartName, queue: &QueueKey) -> bool {
        self.find(namespace, name)
            .is_some_and(|used| used.listed.contains(queue))
    }

    /// Removes and returns a name whose window has room again.
    pub(crate) fn next_room(&mut self, now: Timestamp) -> Option<StartName> {
        if self.room_at()? > now {
            return None;
        }
        self.room.pop_first().map(|(_, name)| name)
    }

    /// Returns when the next window has room again.
    pub(crate) fn room_at(&self) -> Option<Timestamp> {
        self.room.first().map(|(at, _)| *at)
    }

    fn tidy(&mut self, now: Timestamp) {
        self.changes += 1;
        let names: usize = self.names.values().map(HashMap::len).sum();
        if self.changes > names.max(TIDY_AFTER_CHANGES) {
            self.changes = 0;
            for names in self.names.values_mut() {
                names.retain(|_, used| !used.is_nothing(now));
            }
            self.names.retain(|_, names| !names.is_empty());
        }
    }
}
