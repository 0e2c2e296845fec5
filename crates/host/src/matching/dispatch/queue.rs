//! One task queue in memory: its ready tasks in the order of matching, and the polls that wait for one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_engine::queue::{Fairness, PollFilter, Withheld};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;
use tokio::sync::oneshot;

use super::lanes::Lanes;
use super::ready_task::ReadyTask;
use super::session_queues::SessionQueues;
use crate::matching::rate::Rate;

/// Ready tasks of one fairness class, oldest first. Tasks arrive in order, which leaves the nodes of the map half empty; a box keeps
/// the empty half small.
pub(super) type Class = BTreeMap<(Timestamp, TaskId), Box<ReadyTask>>;

/// Priority, fairness class, then age.
pub(super) type QueuePlace = (u8, Option<String>, Timestamp, TaskId);

#[derive(Default)]
pub(super) struct Queue {
    /// Priority tier → fairness class → oldest first.
    pub(super) tiers: BTreeMap<u8, BTreeMap<Option<String>, Class>>,
    pub(super) len: usize,
    /// Tasks that must run in a session.
    pub(super) session_queues: SessionQueues,
    /// Tasks whose starts are limited.
    pub(super) lanes: Lanes,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) fairness: Fairness,
    pub(super) added: Rate,
    pub(super) dispatched: Rate,
    /// The store holds ready tasks that are not here.
    pub(super) truncated: bool,
    /// The same for tasks of sessions.
    pub(super) session_queues_truncated: bool,
    /// A cap withholds the tasks until then, or until a lease ends.
    pub(super) withheld: Option<(Withheld, Timestamp)>,
}

/// What a poll asks for besides the tasks that it accepts.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// How many tasks it takes at once.
    pub(crate) count: usize,
    /// The id that its worker gave it.
    pub(crate) request_id: Option<String>,
    /// Whether the store was asked for a task that another server gave to the same poll.
    pub(crate) is_checked: Arc<AtomicBool>,
}

impl Asked {
    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Relaxed)
    }
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            count: 1,
            request_id: None,
            is_checked: Arc::default(),
        }
    }
}

pub(super) struct Waiter {
    pub(super) number: u64,
    pub(super) filter: PollFilter,
    pub(super) asked: Asked,
    pub(super) hand: oneshot::Sender<ReadyTask>,
}

impl Queue {
    /// Returns whether a matching task is here.
    pub(super) fn has(&self, filter: &PollFilter, is_full: bool) -> bool {
        self.session_queues.best(filter, is_full).is_some()
            || self.lanes.len() > 0
            || self
                .tiers
                .values()
                .flat_map(BTreeMap::values)
                .flat_map(BTreeMap::values)
                .any(|task| filter.accepts(&task.requirements))
    }

    /// Returns the best matching task that needs no session: lowest priority number, then the class that was served least for its
    /// weight, then age.
    pub(super) fn best(&self, filter: &PollFilter, now: Timestamp) -> Option<&ReadyTask> {
        for classes in self.tiers.values() {
            let mut candidates = classes.values().filter_map(|class| {
                class
                    .values()
                    .map(AsRef::as_ref)
                    .find(|task: &&ReadyTask| filter.accepts(&task.requirements))
            });
            let first = candidates.next();
            let best = candidates.fold(first, |best, task| match best {
                Some(other) if !self.fairness.prefers(&task.rank, &other.rank, now) => Some(other),
                _ => Some(task),
            });
            if best.is_some() {
                return best;
            }
        }
        None
    }

    /// Returns the order of the ready tasks, and the recent dispatches of each class.
    pub(super) fn view(&self, now: Timestamp) -> FairnessView {
        let tier = |(priority, classes): (&u8, &BTreeMap<Option<String>, Class>)| PriorityTier {
            priority: *priority,
            classes: classes
                .iter()
                .map(|(key, class)| FairnessClass {
                    fairness_key: key.clone(),
                    ready: class.len(),
                    fairness_weight: class
                        .values()
                        .next()
                        .map_or(1, |task| task.rank.fairness_weight),
                })
                .collect(),
        };
        FairnessView {
            tiers: self.tiers.iter().map(tier).collect(),
            recent: self.fairness.recent(now),
        }
    }

    /// Returns whether something is ready here.
    pub(super) fn has_tasks(&self) -> bool {
        self.len + self.session_queues.len() + self.lanes.len() > 0
    }

    /// Returns whether no poll waits here and nothing is ready.
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && !self.has_tasks()
    }

    /// Returns whether something happened here in the last minute.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        self.added.last_minute(now) > 0 || self.dispatched.last_minute(now) > 0
    }

    pub(super) fn remove(&mut self, place: &QueuePlace) -> Option<ReadyTask> {
        let classes = self.tiers.get_mut(&place.0)?;
        let mut removed = None;
        if let Some(class) = classes.get_mut(&place.1) {
            removed = class.remove(&(place.2, place.3.clone())).map(|task| *task);
            self.len -= usize::from(removed.is_some());
            if class.is_empty() {
                classes.remove(&place.1);
            }
        }
        if classes.is_empty() {
            self.tiers.remove(&place.0);
        }
        removed
    }
}

/// The order of the ready tasks of one kind.
#[derive(Clone, Debug, Default)]
pub struct FairnessView {
    /// The most urgent first.
    pub tiers: Vec<PriorityTier>,
    /// The recent dispatches of each class, decayed.
    pub recent: Vec<(Option<String>, f64)>,
}

#[derive(Clone, Debug)]
pub struct PriorityTier {
    pub priority: u8,
    pub classes: Vec<FairnessClass>,
}

#[derive(Clone, Debug)]
pub struct FairnessClass {
    pub fairness_key: Option<String>,
    pub ready: usize,
    pub fairness_weight: u32,
}
