//! Ready tasks of one queue that must run in a session. A lane holds the tasks that a session admits alike, and only lanes that
//! somebody could be served from are looked at: what waits for another worker, or for nobody, costs a poll nothing, however
//! much of it there is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_engine::session::{Refusal, SessionAdmission};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{SessionId, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;

use super::{Appetite, ReadyTask};

/// Tasks of one session with the same conditions of admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LaneKey {
    pub(super) session_id: SessionId,
    requirements: Arc<[String]>,
    create_if_missing: bool,
    allow_reacquire_after_failure: bool,
}

impl LaneKey {
    pub(super) fn of(options: &WorkerSessionOptions) -> Self {
        let mut requirements = options.requirements.clone();
        requirements.sort_unstable();
        Self {
            session_id: options.session_id.clone(),
            requirements: requirements.into(),
            create_if_missing: options.create_if_missing(),
            allow_reacquire_after_failure: options.allow_reacquire_after_failure(),
        }
    }
}

/// Priority, then age.
pub(super) type Order = (u8, Timestamp, TaskId);

pub(super) fn order_of(task: &ReadyTask) -> Order {
    (task.priority, task.available_at, task.task_id.clone())
}

struct Lane {
    /// Of its first task; the others' agree in what admission asks.
    options: Arc<WorkerSessionOptions>,
    tasks: BTreeMap<Order, ReadyTask>,
    serves: Serves,
}

/// Whom a lane can serve now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Serves {
    Anyone,
    Only(WorkerId),
    Nobody(Option<Box<Refusal>>),
}

impl From<SessionAdmission> for Serves {
    fn from(standing: SessionAdmission) -> Self {
        match standing {
            SessionAdmission::Free => Self::Anyone,
            SessionAdmission::Held(owner) => Self::Only(owner),
            SessionAdmission::Blocked(refusal) => Self::Nobody(Some(refusal)),
        }
    }
}

/// The lanes of one queue, those that can be served from in order of their best task.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<LaneKey, Lane>,
    anyone: BTreeMap<Arc<[String]>, BTreeMap<Order, LaneKey>>,
    only: HashMap<WorkerId, BTreeMap<Order, LaneKey>>,
    len: usize,
}

impl Lanes {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether any task could go to somebody.
    pub(super) fn can_serve(&self) -> bool {
        !self.anyone.is_empty() || !self.only.is_empty()
    }

    /// Tasks that can go to nobody now.
    pub(super) fn blocked(&self) -> usize {
        let blocked = self.lanes.values();
        blocked
            .filter(|lane| matches!(lane.serves, Serves::Nobody(Some(_))))
            .map(|lane| lane.tasks.len())
            .sum()
    }

    /// Puts a task in its lane; whether the lane is new and must be told whom it serves.
    pub(super) fn insert(&mut self, key: &LaneKey, task: ReadyTask) -> bool {
        let options = task.session.clone().expect("a task of a session");
        let is_new = !self.lanes.contains_key(key);
        self.change(key, |lanes| {
            let lane = lanes.entry(key.clone()).or_insert_with(|| Lane {
                options,
                tasks: BTreeMap::new(),
                serves: Serves::Nobody(None),
            });
            lane.tasks.insert(order_of(&task), task);
        });
        self.len += 1;
        is_new
    }

    /// Takes a task out; whether its lane is gone with it.
    pub(super) fn remove(&mut self, key: &LaneKey, order: &Order) -> (Option<ReadyTask>, bool) {
        let mut removed = None;
        self.change(key, |lanes| {
            if let Some(lane) = lanes.get_mut(key) {
                removed = lane.tasks.remove(order);
                if lane.tasks.is_empty() {
                    lanes.remove(key);
                }
            }
        });
        self.len -= usize::from(removed.is_some());
        (removed, !self.lanes.contains_key(key))
    }

    /// Says anew whom the lane serves.
    pub(super) fn restand(
        &mut self,
        key: &LaneKey,
        serves: impl FnOnce(&WorkerSessionOptions) -> Serves,
    ) {
        self.change(key, |lanes| {
            if let Some(lane) = lanes.get_mut(key) {
                lane.serves = serves(&lane.options);
            }
        });
    }

    /// Whether the lane would serve this worker now.
    pub(super) fn would_serve(&self, key: &LaneKey, appetite: &Appetite, is_full: bool) -> bool {
        self.lanes.get(key).is_some_and(|lane| match &lane.serves {
            Serves::Anyone => !is_full && has_all(appetite, &key.requirements),
            Serves::Only(owner) => {
                *owner == appetite.worker_id && has_all(appetite, &key.requirements)
            }
            Serves::Nobody(_) => false,
        })
    }

    /// The best task for this worker. `is_full` says that it may begin no further session.
    pub(super) fn best(
        &self,
        appetite: &Appetite,
        is_full: bool,
    ) -> Option<(&LaneKey, &ReadyTask)> {
        let anyone = self
            .anyone
            .iter()
            .filter(|(requirements, _)| !is_full && has_all(appetite, requirements))
            .map(|(_, lanes)| lanes);
        let only = self.only.get(&appetite.worker_id);
        anyone
            .chain(only)
            .filter_map(|lanes| {
                lanes.values().find_map(|key| {
                    let lane = self.lanes.get(key)?;
                    has_all(appetite, &key.requirements)
                        .then(|| lane.tasks.values().find(|task| appetite.takes(task)))
                        .flatten()
                        .map(|task| (key, task))
                })
            })
            .min_by_key(|(_, task)| order_of(task))
    }

    /// Changes a lane and its place in the indexes together.
    fn change(&mut self, key: &LaneKey, change: impl FnOnce(&mut HashMap<LaneKey, Lane>)) {
        if let Some((place, order)) = self.place(key) {
            match place {
                Serves::Anyone => {
                    let Some(lanes) = self.anyone.get_mut(&key.requirements) else {
                        unreachable!("an indexed lane is in its index")
                    };
                    lanes.remove(&order);
                    if lanes.is_empty() {
                        self.anyone.remove(&key.requirements);
                    }
                }
                Serves::Only(owner) => {
                    let Some(lanes) = self.only.get_mut(&owner) else {
                        unreachable!("an indexed lane is in its index")
                    };
                    lanes.remove(&order);
                    if lanes.is_empty() {
                        self.only.remove(&owner);
                    }
                }
                Serves::Nobody(_) => {}
            }
        }
        change(&mut self.lanes);
        if let Some((place, order)) = self.place(key) {
            let index = match place {
                Serves::Anyone => self
                    .anyone
                    .entry(Arc::clone(&key.requirements))
                    .or_default(),
                Serves::Only(owner) => self.only.entry(owner).or_default(),
                Serves::Nobody(_) => return,
            };
            index.insert(order, key.clone());
        }
    }

    /// Whom the lane serves, and the order of its best task.
    fn place(&self, key: &LaneKey) -> Option<(Serves, Order)> {
        let lane = self.lanes.get(key)?;
        let (order, _) = lane.tasks.first_key_value()?;
        Some((lane.serves.clone(), order.clone()))
    }
}

fn has_all(appetite: &Appetite, requirements: &[String]) -> bool {
    requirements
        .iter()
        .all(|requirement| appetite.capabilities.contains(requirement))
}
