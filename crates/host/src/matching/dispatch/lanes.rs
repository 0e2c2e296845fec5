//! Ready tasks of one queue whose starts are limited. A lane holds the tasks of one definition name with the same limits. A lane that
//! is withheld is not searched until there may be room, so its tasks cost a poll nothing, whatever their number.

use std::collections::BTreeMap;

use longhaul_engine::queue::StartLimits;

use super::ReadyTask;
use super::session_queues::{Order, order_of};

/// Tasks of one definition name with the same limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneKey {
    pub(super) name: String,
    pub(super) limits: StartLimits,
}

impl LaneKey {
    /// Returns the lane of a task, if its starts are limited.
    pub(super) fn of(task: &ReadyTask) -> Option<Self> {
        task.limits.map(|limits| Self {
            name: task.requirements.type_name.clone(),
            limits,
        })
    }
}

#[derive(Default)]
struct Lane {
    tasks: BTreeMap<Order, ReadyTask>,
    is_withheld: bool,
}

/// The lanes of one queue.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneKey, Lane>,
    /// The lanes that are not withheld, in the order of their best tasks.
    open: BTreeMap<Order, LaneKey>,
    len: usize,
}

impl Lanes {
    /// Returns the number of tasks.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a task to its lane.
    pub(super) fn insert(&mut self, key: &LaneKey, task: ReadyTask) {
        self.change(key, |lane| {
            lane.tasks.insert(order_of(&task), task);
        });
        self.len += 1;
    }

    /// Removes a task.
    pub(super) fn remove(&mut self, key: &LaneKey, order: &Order) -> Option<ReadyTask> {
        let mut removed = None;
        self.change(key, |lane| removed = lane.tasks.remove(order));
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Returns the lane that has the best task of those that are not withheld.
    pub(super) fn best(&self) -> Option<(&LaneKey, &ReadyTask)> {
        let (order, key) = self.open.first_key_value()?;
        let task = self.lanes.get(key)?.tasks.get(order)?;
        Some((key, task))
    }

    /// Leaves a lane out until [`Self::reopen`].
    pub(super) fn withhold(&mut self, key: &LaneKey) {
        self.change(key, |lane| lane.is_withheld = true);
    }

    /// Searches all lanes again.
    pub(super) fn reopen_all(&mut self) {
        let withheld = self.lanes.iter().filter(|(_, lane)| lane.is_withheld);
        let withheld: Vec<LaneKey> = withheld.map(|(key, _)| key.clone()).collect();
        for key in withheld {
            self.change(&key, |lane| lane.is_withheld = false);
        }
    }

    /// Searches the lanes of a definition name again.
    pub(super) fn reopen(&mut self, name: &str) {
        let first = LaneKey {
            name: name.to_owned(),
            limits: StartLimits::default(),
        };
        let of_name: Vec<LaneKey> = self
            .lanes
            .range(first..)
            .take_while(|(key, _)| key.name == name)
            .filter(|(_, lane)| lane.is_withheld)
            .map(|(key, _)| key.clone())
            .collect();
        for key in of_name {
            self.change(&key, |lane| lane.is_withheld = false);
        }
    }

    /// Changes a lane and its place among the open ones together.
    fn change(&mut self, key: &LaneKey, change: impl FnOnce(&mut Lane)) {
        let lane = match self.lanes.get_mut(key) {
            Some(lane) => lane,
            None => self.lanes.entry(key.clone()).or_default(),
        };
        let place = |lane: &Lane| {
            let best = lane.tasks.first_key_value().filter(|_| !lane.is_withheld);
            best.map(|(order, _)| order.clone())
        };
        let before = place(lane);
        change(lane);
        let after = place(lane);
        if lane.tasks.is_empty() {
            self.lanes.remove(key);
        }
        if before != after {
            if let Some(before) = before {
                self.open.remove(&before);
            }
            if let Some(after) = after {
                self.open.insert(after, key.clone());
            }
        }
    }
}
