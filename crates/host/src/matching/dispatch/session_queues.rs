//! Ready tasks of one queue that must run in a session. A session queue holds the tasks with the same admission to a session, and a
//! poll only searches session queues that can serve some worker: tasks that wait for another worker, or for none, cost a poll
//! nothing, whatever their number.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_engine::queue::PollFilter;
use longhaul_engine::session::{Refusal, SessionAdmission};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{SessionId, TaskId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;

use super::ReadyTask;

/// Tasks of one session with the same conditions of admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SessionQueueKey {
    pub(super) session_id: SessionId,
    requirements: Arc<[String]>,
    create_if_missing: bool,
    allow_reacquire_after_failure: bool,
}

impl SessionQueueKey {
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
    (
        task.rank.priority,
        task.rank.available_at,
        task.task_id.clone(),
    )
}

struct SessionQueue {
    /// The options of its first task; those of the others admit the same workers.
    options: Arc<WorkerSessionOptions>,
    tasks: BTreeMap<Order, ReadyTask>,
    eligible: EligibleWorkers,
}

/// Which workers a session queue can serve now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EligibleWorkers {
    Any,
    Only(WorkerId),
    None(Option<Box<Refusal>>),
}

impl From<SessionAdmission> for EligibleWorkers {
    fn from(standing: SessionAdmission) -> Self {
        match standing {
            SessionAdmission::Free => Self::Any,
            SessionAdmission::Held(owner) => Self::Only(owner),
            SessionAdmission::Blocked(refusal) => Self::None(Some(refusal)),
        }
    }
}

/// The session queues of one queue; those that can serve a worker in order of their best task.
#[derive(Default)]
pub(super) struct SessionQueues {
    session_queues: HashMap<SessionQueueKey, SessionQueue>,
    anyone: BTreeMap<Arc<[String]>, BTreeMap<Order, SessionQueueKey>>,
    only: HashMap<WorkerId, BTreeMap<Order, SessionQueueKey>>,
    len: usize,
}

impl SessionQueues {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether any task could go to some worker.
    pub(super) fn can_serve(&self) -> bool {
        !self.anyone.is_empty() || !self.only.is_empty()
    }

    /// Returns the number of tasks that no worker can lease now.
    pub(super) fn blocked(&self) -> usize {
        let blocked = self.session_queues.values();
        blocked
            .filter(|session_queue| {
                matches!(session_queue.eligible, EligibleWorkers::None(Some(_)))
            })
            .map(|session_queue| session_queue.tasks.len())
            .sum()
    }

    /// Puts a task in its session queue; returns whether the session queue is new and its workers must be computed.
    pub(super) fn insert(&mut self, key: &SessionQueueKey, task: ReadyTask) -> bool {
        let options = task.session.clone().expect("the task belongs to a session");
        let is_new = !self.session_queues.contains_key(key);
        self.change(key, |session_queues| {
            let session_queue = session_queues
                .entry(key.clone())
                .or_insert_with(|| SessionQueue {
                    options,
                    tasks: BTreeMap::new(),
                    eligible: EligibleWorkers::None(None),
                });
            session_queue.tasks.insert(order_of(&task), task);
        });
        self.len += 1;
        is_new
    }

    /// Removes a task; returns whether its session queue is removed with it.
    pub(super) fn remove(
        &mut self,
        key: &SessionQueueKey,
        order: &Order,
    ) -> (Option<ReadyTask>, bool) {
        let mut removed = None;
        self.change(key, |session_queues| {
            if let Some(session_queue) = session_queues.get_mut(key) {
                removed = session_queue.tasks.remove(order);
                if session_queue.tasks.is_empty() {
                    session_queues.remove(key);
                }
            }
        });
        self.len -= usize::from(removed.is_some());
        (removed, !self.session_queues.contains_key(key))
    }

    /// Sets the workers that the session queue serves.
    pub(super) fn update_eligible(
        &mut self,
        key: &SessionQueueKey,
        eligible: impl FnOnce(&WorkerSessionOptions) -> EligibleWorkers,
    ) {
        self.change(key, |session_queues| {
            if let Some(session_queue) = session_queues.get_mut(key) {
                session_queue.eligible = eligible(&session_queue.options);
            }
        });
    }

    /// Returns whether the session queue would serve this worker now.
    pub(super) fn would_serve(
        &self,
        key: &SessionQueueKey,
        filter: &PollFilter,
        is_full: bool,
    ) -> bool {
        self.session_queues
            .get(key)
            .is_some_and(|session_queue| match &session_queue.eligible {
                EligibleWorkers::Any => !is_full && has_all(filter, &key.requirements),
                EligibleWorkers::Only(owner) => {
                    *owner == filter.worker_id && has_all(filter, &key.requirements)
                }
                EligibleWorkers::None(_) => false,
            })
    }

    /// Returns the best task for this worker. `is_full` means that it may begin no further session.
    pub(super) fn best(
        &self,
        filter: &PollFilter,
        is_full: bool,
    ) -> Option<(&SessionQueueKey, &ReadyTask)> {
        let anyone = self
            .anyone
            .iter()
            .filter(|(requirements, _)| !is_full && has_all(filter, requirements))
            .map(|(_, session_queues)| session_queues);
        let only = self.only.get(&filter.worker_id);
        anyone
            .chain(only)
            .filter_map(|session_queues| {
                session_queues.values().find_map(|key| {
                    let session_queue = self.session_queues.get(key)?;
                    has_all(filter, &key.requirements)
                        .then(|| {
                            session_queue
                                .tasks
                                .values()
                                .find(|task| filter.accepts(&task.requirements))
                        })
                        .flatten()
                        .map(|task| (key, task))
                })
            })
            .min_by_key(|(_, task)| order_of(task))
    }

    /// Changes a session queue and its place in the indexes together.
    fn change(
        &mut self,
        key: &SessionQueueKey,
        change: impl FnOnce(&mut HashMap<SessionQueueKey, SessionQueue>),
    ) {
        if let Some((place, order)) = self.place(key) {
            match place {
                EligibleWorkers::Any => {
                    let Some(session_queues) = self.anyone.get_mut(&key.requirements) else {
                        unreachable!("an indexed session_queue is in its index")
                    };
                    session_queues.remove(&order);
                    if session_queues.is_empty() {
                        self.anyone.remove(&key.requirements);
                    }
                }
                EligibleWorkers::Only(owner) => {
                    let Some(session_queues) = self.only.get_mut(&owner) else {
                        unreachable!("an indexed session_queue is in its index")
                    };
                    session_queues.remove(&order);
                    if session_queues.is_empty() {
                        self.only.remove(&owner);
                    }
                }
                EligibleWorkers::None(_) => {}
            }
        }
        change(&mut self.session_queues);
        if let Some((place, order)) = self.place(key) {
            let index = match place {
                EligibleWorkers::Any => self
                    .anyone
                    .entry(Arc::clone(&key.requirements))
                    .or_default(),
                EligibleWorkers::Only(owner) => self.only.entry(owner).or_default(),
                EligibleWorkers::None(_) => return,
            };
            index.insert(order, key.clone());
        }
    }

    /// Returns the workers that the session queue serves, and the order of its best task.
    fn place(&self, key: &SessionQueueKey) -> Option<(EligibleWorkers, Order)> {
        let session_queue = self.session_queues.get(key)?;
        let (order, _) = session_queue.tasks.first_key_value()?;
        Some((session_queue.eligible.clone(), order.clone()))
    }
}

fn has_all(filter: &PollFilter, requirements: &[String]) -> bool {
    requirements
        .iter()
        .all(|requirement| filter.capabilities.contains(requirement))
}
