//! Matching: who is given which ready task. In memory there is a copy of what the store holds as ready, filled from commits and
//! at start; a claim is decided on the run, so a stale entry here costs one refused claim and nothing else.
//!
//! A task is handed to exactly one waiting poll, so a new task wakes one worker and not all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, TaskId, WorkerId};
use longhaul_store::QueueKey;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::fairness::Fairness;
use crate::questions::{Question, QuestionKind};
use crate::rate::Rate;

/// Ready tasks of one queue kept in memory. More are left in the store and fetched when these are gone.
pub(crate) const READY_PER_QUEUE_MAX: usize = 50_000;

/// Polls that may wait at once, over all queues. A parked poll costs a few kilobytes; this bounds them to some hundred MB.
const WAITING_POLLS_MAX: usize = 50_000;

/// A ready task as matching sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadyTask {
    pub(crate) task_id: TaskId,
    pub(crate) run_id: RunId,
    pub(crate) sequence: u64,
    pub(crate) available_at: Timestamp,
    priority: u8,
    type_name: String,
    compatibility: Option<String>,
    required_capability: Option<String>,
    held_for: Option<WorkerId>,
    fairness_key: Option<String>,
    fairness_weight: u32,
    /// The update to validate, when this is no stored task but a question (`questions.rs`).
    validates: Option<String>,
}

/// Workflow types with the updates they validate.
pub(crate) type Validators = BTreeSet<(String, String)>;

/// What a worker takes.
#[derive(Clone, Debug)]
pub(crate) struct Appetite {
    /// Empty means every type.
    pub(crate) types: std::sync::Arc<Vec<String>>,
    pub(crate) build_id: Option<String>,
    /// Empty means that it is given no validation.
    pub(crate) validators: std::sync::Arc<Validators>,
    pub(crate) capabilities: std::sync::Arc<Vec<String>>,
    pub(crate) worker_id: WorkerId,
}

impl Appetite {
    fn takes(&self, task: &ReadyTask) -> bool {
        let type_fits = match &task.validates {
            None => self.types.is_empty() || self.types.contains(&task.type_name),
            Some(update) => self
                .validators
                .contains(&(task.type_name.clone(), update.clone())),
        };
        let able = task
            .required_capability
            .as_ref()
            .is_none_or(|capability| self.capabilities.contains(capability));
        let free = task
            .held_for
            .as_ref()
            .is_none_or(|worker_id| *worker_id == self.worker_id);
        type_fits
            && able
            && free
            && build_fits(task.compatibility.as_deref(), self.build_id.as_deref())
    }
}

/// Whether a worker of that build may have a task with that pin; `*` may have all.
pub(crate) fn build_fits(pinned: Option<&str>, build: Option<&str>) -> bool {
    match (pinned, build) {
        (None, _) => true,
        (Some(pinned), Some(build)) => pinned == build || build == "*",
        (Some(_), None) => false,
    }
}

#[derive(Default)]
pub(crate) struct Dispatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: HashMap<QueueKey, Queue>,
    /// Where each ready task stands, so that it can be taken out by id.
    places: HashMap<TaskId, (QueueKey, Place)>,
    waiting: usize,
    next_waiter: u64,
}

/// Ready tasks of one fairness class, oldest first.
type Class = BTreeMap<(Timestamp, TaskId), ReadyTask>;

/// Priority, fairness class, then age.
type Place = (u8, Option<String>, Timestamp, TaskId);

#[derive(Default)]
struct Queue {
    /// Priority tier → fairness class → oldest first.
    tiers: BTreeMap<u8, BTreeMap<Option<String>, Class>>,
    len: usize,
    waiters: VecDeque<Waiter>,
    fairness: Fairness,
    added: Rate,
    dispatched: Rate,
    /// The store holds ready tasks that are not here.
    truncated: bool,
}

struct Waiter {
    number: u64,
    appetite: Appetite,
    hand: oneshot::Sender<ReadyTask>,
}

/// What a poll finds when it asks.
pub(crate) enum Found {
    Task(ReadyTask),
    /// Nothing here, but the store may have more.
    AskStore,
    Wait(Ticket),
    /// Too many polls wait already.
    Full,
}

/// A place in the line. Dropping it leaves the line; a task that was handed over in that moment goes back.
pub(crate) struct Ticket {
    pub(crate) handed: oneshot::Receiver<ReadyTask>,
    queue: QueueKey,
    number: u64,
}

impl Dispatch {
    /// A committed row: a ready task is offered, any other is taken out.
    pub(crate) fn update(&self, row: &TaskRow) {
        let mut state = self.state.lock();
        if row.status == TaskStatus::Ready {
            let key = queue_of(row);
            // A task that waits here may now be for others: it is looked at anew.
            let known = state.places.contains_key(&row.task_id);
            state.withdraw(&row.task_id);
            if !known {
                state.queues.entry(key.clone()).or_default().added.count();
            }
            state.offer(key, ReadyTask::from(row));
        } else {
            state.withdraw(&row.task_id);
        }
    }

    /// A lease was granted; a renewal is none.
    pub(crate) fn count_lease(&self, row: &TaskRow) {
        self.state
            .lock()
            .queues
            .entry(queue_of(row))
            .or_default()
            .dispatched
            .count();
    }

    /// Tasks that became ready, and leases granted, in the last minute.
    pub(crate) fn last_minute(&self, queue: &QueueKey) -> (u64, u64) {
        let state = self.state.lock();
        state.queues.get(queue).map_or((0, 0), |queue| {
            (queue.added.last_minute(), queue.dispatched.last_minute())
        })
    }

    /// A task that was taken but not leased goes back.
    pub(crate) fn give_back(&self, queue: &QueueKey, task: ReadyTask) {
        self.state.lock().offer(queue.clone(), task);
    }

    /// Tasks read from the store. `complete` says that these are all there are.
    pub(crate) fn fill(&self, queue: &QueueKey, rows: &[TaskRow], complete: bool) {
        let mut state = self.state.lock();
        state.queues.entry(queue.clone()).or_default().truncated = !complete;
        for row in rows {
            state.offer(queue.clone(), ReadyTask::from(row));
        }
    }

    /// Takes the best fitting ready task, or a place in the line.
    pub(crate) fn take(&self, queue: &QueueKey, appetite: &Appetite, now: Timestamp) -> Found {
        let mut state = self.state.lock();
        let entry = state.queues.entry(queue.clone()).or_default();
        if let Some(task) = entry.pick(appetite, now) {
            state.places.remove(&task.task_id);
            return Found::Task(task);
        }
        if entry.truncated && entry.len == 0 {
            return Found::AskStore;
        }
        if state.waiting >= WAITING_POLLS_MAX {
            return Found::Full;
        }
        state.waiting += 1;
        state.next_waiter += 1;
        let number = state.next_waiter;
        let (hand, handed) = oneshot::channel();
        let entry = state.queues.entry(queue.clone()).or_default();
        entry.waiters.push_back(Waiter {
            number,
            appetite: appetite.clone(),
            hand,
        });
        Found::Wait(Ticket {
            handed,
            queue: queue.clone(),
            number,
        })
    }

    /// Leaves the line.
    pub(crate) fn leave(&self, mut ticket: Ticket) {
        let mut state = self.state.lock();
        let waiters = state
            .queues
            .get_mut(&ticket.queue)
            .map(|queue| &mut queue.waiters);
        if let Some(waiters) = waiters
            && let Some(place) = waiters
                .iter()
                .position(|waiter| waiter.number == ticket.number)
        {
            waiters.remove(place);
            state.waiting -= 1;
        }
        // Handed over while leaving: the next in line gets it.
        if let Ok(task) = ticket.handed.try_recv() {
            state.offer(ticket.queue, task);
        }
    }

    /// Takes out a task that nobody may have any more.
    pub(crate) fn withdraw(&self, task_id: &TaskId) {
        self.state.lock().withdraw(task_id);
    }

    /// Polls that wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// A lease was granted: counted for fairness.
    pub(crate) fn dispatched(&self, queue: &QueueKey, task: &ReadyTask, now: Timestamp) {
        if task.fairness_key.is_some() || task.fairness_weight != 1 {
            let mut state = self.state.lock();
            let entry = state.queues.entry(queue.clone()).or_default();
            entry.fairness.count(task.fairness_key.as_deref(), now);
        }
    }
}

impl State {
    fn offer(&mut self, key: QueueKey, task: ReadyTask) {
        if self.places.contains_key(&task.task_id) {
            return;
        }
        let queue = self.queues.entry(key.clone()).or_default();
        let mut task = task;
        while let Some(place) = queue
            .waiters
            .iter()
            .position(|waiter| waiter.appetite.takes(&task))
        {
            let waiter = queue
                .waiters
                .remove(place)
                .expect("the place was just found");
            self.waiting -= 1;
            match waiter.hand.send(task) {
                Ok(()) => return,
                // The poll ended in this moment.
                Err(back) => task = back,
            }
        }
        // A question is in no store to be read again from; its own limit bounds those.
        if queue.len >= READY_PER_QUEUE_MAX && task.validates.is_none() {
            queue.truncated = true;
            return;
        }
        let place: Place = (
            task.priority,
            task.fairness_key.clone(),
            task.available_at,
            task.task_id.clone(),
        );
        let class = queue
            .tiers
            .entry(place.0)
            .or_default()
            .entry(place.1.clone())
            .or_default();
        class.insert((place.2, place.3.clone()), task);
        queue.len += 1;
        self.places.insert(place.3.clone(), (key, place));
    }

    fn withdraw(&mut self, task_id: &TaskId) {
        let Some((key, place)) = self.places.remove(task_id) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.remove(&place);
        }
    }
}

impl Queue {
    /// The best task that fits: lowest priority number, then the class that was served least for its weight, then age.
    fn pick(&mut self, appetite: &Appetite, now: Timestamp) -> Option<ReadyTask> {
        let mut best = None;
        for classes in self.tiers.values() {
            let mut candidates = classes
                .values()
                .filter_map(|class| class.values().find(|task| appetite.takes(task)));
            let first = candidates.next();
            best = candidates.fold(first, |best, task| match best {
                Some(other) if !self.fairness.prefers(task.order(), other.order(), now) => {
                    Some(other)
                }
                _ => Some(task),
            });
            if best.is_some() {
                break;
            }
        }
        let task = best?.clone();
        self.remove(&(
            task.priority,
            task.fairness_key.clone(),
            task.available_at,
            task.task_id.clone(),
        ));
        Some(task)
    }

    fn remove(&mut self, place: &Place) {
        let Some(classes) = self.tiers.get_mut(&place.0) else {
            return;
        };
        if let Some(class) = classes.get_mut(&place.1) {
            if class.remove(&(place.2, place.3.clone())).is_some() {
                self.len -= 1;
            }
            if class.is_empty() {
                classes.remove(&place.1);
            }
        }
        if classes.is_empty() {
            self.tiers.remove(&place.0);
        }
    }
}

fn queue_of(row: &TaskRow) -> QueueKey {
    QueueKey {
        namespace: row.namespace.clone(),
        kind: row.kind,
        queue: row.queue.clone(),
    }
}

impl ReadyTask {
    /// A question that somebody waits for: ahead of everything that is stored.
    pub(crate) fn question(task_id: TaskId, question: &Question, now: Timestamp) -> Self {
        let run = &question.run;
        let validates = match question.kind {
            QuestionKind::Query => None,
            QuestionKind::UpdateValidation => Some(question.name.clone()),
        };
        Self {
            task_id,
            run_id: run.run_id.clone(),
            sequence: 0,
            available_at: now,
            priority: 0,
            type_name: run.workflow_type.clone(),
            compatibility: run.routing.compatibility.clone(),
            fairness_key: None,
            fairness_weight: 1,
            required_capability: question.required_capability.map(str::to_owned),
            held_for: None,
            validates,
        }
    }

    /// Fairness class, weight and age.
    fn order(&self) -> (Option<&str>, u32, Timestamp) {
        (
            self.fairness_key.as_deref(),
            self.fairness_weight,
            self.available_at,
        )
    }
}

impl From<&TaskRow> for ReadyTask {
    fn from(row: &TaskRow) -> Self {
        Self {
            task_id: row.task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: row.sequence,
            available_at: row.available_at,
            priority: row.priority,
            type_name: row.type_name.clone(),
            compatibility: row.compatibility.clone(),
            required_capability: row.required_capability.clone(),
            held_for: row.held_for.clone(),
            fairness_key: row.fairness_key.clone(),
            fairness_weight: row.fairness_weight,
            validates: None,
        }
    }
}
