//! Matching: which poll gets which ready task. Memory holds a copy of the ready tasks in the store, filled from commits and at
//! start. A claim is decided on the run, so a stale entry here costs one refused claim and nothing else.
//!
//! A task is handed to exactly one waiting poll, so a new task wakes one worker and not all of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longhaul_engine::change::{TaskKind, TaskRow, TaskStatus};
use longhaul_engine::queue::{Admission, Caps, PollFilter, Usage};
use longhaul_protocol::id::{Namespace, TaskId};
use longhaul_store::{QueueKey, WorkerRow};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::matching::admission::{AdmissionCounter, Throttle};
use crate::matching::shares::ShareTable;
use crate::matching::starts::StartCounter;
use crate::sweeps::alarms::NextCheck;

mod in_session;
mod lanes;
mod limited;
mod offer;
mod offered;
mod queue;
mod quiet;
mod rates;
pub(crate) mod ready_task;
mod session_index;
mod session_queues;
mod shared;
mod state;

pub(crate) use in_session::READY_IN_SESSION_MAX;
pub use queue::FairnessView;
pub(crate) use ready_task::{ReadyTask, Reservation};

pub(crate) use shared::{Polls as PollExtent, UncheckedPolls};

use offer::Origin;
use offered::OfferedTasks;
pub(crate) use queue::Asked;
use queue::Waiter;
use quiet::Quiet;
use session_index::SessionIndex;
use state::{Place, State};

/// Ready tasks of one queue kept in memory, besides those of sessions. More stay in the store and are fetched when these are gone.
pub(crate) const READY_PER_QUEUE_MAX: usize = 50_000;

/// Ready tasks that a poll may fetch from the store although memory is full: enough that a busy queue reads rarely.
pub(crate) const FETCHED_WHEN_FULL: usize = 1000;

/// How long a task of a shared store is left to one server. Long enough for a poll to claim it; a server that stops meanwhile delays
/// it by this.
pub(crate) const RESERVED_SECONDS: u64 = 2;

/// Polls that may wait at once, over all queues. A parked poll costs a few kilobytes; this bounds them to some hundred MB.
const WAITING_POLLS_MAX: usize = 50_000;

/// Where the tasks of a matching come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// They are not stored.
    Memory,
    OwnStore,
    SharedStore,
}

/// What became of a ready task that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It waits here for a poll, or a poll has it.
    Kept,
    /// No poll waits for it here, and other servers may have one.
    ToOthers,
}

/// Whether a task is leased for the first time since it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    First,
    /// Its earlier lease was replaced.
    Again,
}

/// How much of a stored queue was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The store has no others.
    Complete,
    /// The store may have more.
    Truncated,
}

impl Extent {
    /// Returns the extent of a read of at most `max` rows.
    pub(crate) fn of(rows: usize, max: usize) -> Self {
        if rows < max {
            Self::Complete
        } else {
            Self::Truncated
        }
    }
}

pub(crate) struct Dispatch {
    clock: Arc<dyn Clock>,
    poll_caps: PollCaps,
    /// When the window of a task definition has room again.
    pub(crate) window_check: Arc<NextCheck>,
    /// When shares of rates are exchanged next.
    pub(crate) share_check: Arc<NextCheck>,
    share_ended: Notify,
    /// Whether other servers hand out these tasks too.
    is_shared: bool,
    state: Mutex<State>,
}

/// How many polls may wait at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollCaps {
    /// On this server; `None` means as many as it can hold.
    pub max: Option<usize>,
    pub max_per_namespace: Option<usize>,
}

/// The result of a poll's search.
pub(crate) enum Found {
    Task(ReadyTask),
    /// Nothing here, but the store may have more.
    AskStore,
    /// Nothing now. A throttle means that there is work which may not be leased yet.
    Wait(Ticket, Option<Throttle>),
    /// Too many polls are waiting already.
    Full,
}

/// A place in the queue of waiting polls. Dropping it leaves the queue; a task that was handed over at that time goes back.
pub(crate) struct Ticket {
    pub(crate) handed: oneshot::Receiver<ReadyTask>,
    pub(crate) queue: QueueKey,
    number: u64,
}

impl Dispatch {
    /// Returns the matching of stored tasks of which this server has all.
    pub(crate) fn new(clock: Arc<dyn Clock>, admission: Admission, poll_caps: PollCaps) -> Self {
        let leases = AdmissionCounter::new(admission);
        Self::build(clock, leases, poll_caps, Source::OwnStore)
    }

    /// Returns the matching of stored tasks that other servers hand out too.
    pub(crate) fn of_shared_tasks(
        clock: Arc<dyn Clock>,
        admission: Admission,
        poll_caps: PollCaps,
    ) -> Self {
        // Leases are counted by the commits of claims.
        let leases = AdmissionCounter::of_rates(admission);
        Self::build(clock, leases, poll_caps, Source::SharedStore)
    }

    /// Returns the matching of questions, which are not stored: all of them are kept in memory.
    pub(crate) fn of_questions(clock: Arc<dyn Clock>, poll_caps: PollCaps) -> Self {
        let leases = AdmissionCounter::new(Admission::default());
        Self::build(clock, leases, poll_caps, Source::Memory)
    }

    fn build(
        clock: Arc<dyn Clock>,
        leases: AdmissionCounter,
        poll_caps: PollCaps,
        source: Source,
    ) -> Self {
        let window_check = Arc::<NextCheck>::default();
        let share_check = Arc::<NextCheck>::default();
        Self {
            clock,
            poll_caps,
            window_check: Arc::clone(&window_check),
            share_check: Arc::clone(&share_check),
            share_ended: Notify::new(),
            is_shared: source == Source::SharedStore,
            state: Mutex::new(State {
                is_stored: source != Source::Memory,
                is_shared: source == Source::SharedStore,
                is_alone: false,
                claiming: HashSet::new(),
                claimed: HashSet::new(),
                released: Vec::new(),
                offered: OfferedTasks::default(),
                expiries: BTreeSet::new(),
                quiet: Quiet::default(),
                is_partial: false,
                ready_bytes: 0,
                uses: 0,
                queues: HashMap::new(),
                places: HashMap::new(),
                waiting: 0,
                waiting_in: HashMap::new(),
                next_waiter: 0,
                leases,
                starts: StartCounter::new(source == Source::SharedStore),
                shares: ShareTable::new(share_check),
                granting: HashMap::new(),
                window_check,
                sessions: SessionIndex::default(),
            }),
        }
    }

    /// Applies a committed row: a ready task is offered, any other is removed.
    pub(crate) fn update(&self, row: &TaskRow) -> Offered {
        let mut state = self.state.lock();
        if row.worker_session.is_some() {
            state.note_attempt(row, self.clock.now());
        }
        state.note_start(row, self.clock.now());
        if row.status == TaskStatus::Ready {
            let (key, now) = (queue_of(row), self.clock.now());
            // A task that waits here may now be for other workers: it is matched again.
            let known = state.places.contains_key(&row.task_id);
            state.withdraw(&row.task_id);
            if !known && (state.has_room() || state.queues.contains_key(&key)) {
                state.queue(&key, now).added.count(now);
            }
            state.offer(key.clone(), ReadyTask::from(row), Origin::Commit, now);
            if state.is_alone && state.places.contains_key(&row.task_id) {
                // It waits here for a moment. A server that has just started may have a poll for it.
                return Offered::ToOthers;
            }
            if state.is_shared && state.places.contains_key(&row.task_id) {
                state.quiet.disturb(&key);
                // A task of a session stays for a moment: its worker may be about to poll here.
                if row.worker_session.is_none() {
                    if state.is_waited_for(&key) && state.shares.is_asked_for(&key, now) {
                        // A poll gets it when the share arrives.
                        return Offered::Kept;
                    }
                    state.withdraw(&row.task_id);
                }
                return Offered::ToOthers;
            }
        } else {
            state.withdraw(&row.task_id);
        }
        Offered::Kept
    }

    /// Counts a lease that was granted for the first time or again; a renewal does not count, nor does a lease of another server.
    pub(crate) fn count_lease(&self, row: &TaskRow, granted: Granted) {
        let mut state = self.state.lock();
        if !state.is_granted_here(row) {
            return;
        }
        let (key, now) = (queue_of(row), self.clock.now());
        if state.is_shared {
            state.count_in_shares(row, &key, now);
        }
        if granted == Granted::First {
            state.leases.lease(&key);
        }
        state.leases.dispatch(&key, now);
        state.queue(&key, now).dispatched.count(now);
    }

    /// Counts the end of a lease, and hands out the tasks that it withheld.
    pub(crate) fn lease_ended(&self, row: &TaskRow) {
        let mut state = self.state.lock();
        if state.leases.is_unlimited() {
            return;
        }
        let key = queue_of(row);
        state.leases.release(&key);
        state.pump_namespace(&key, self.clock.now());
    }

    /// Returns the caps that apply to a queue and what counts against them.
    pub(crate) fn admission(&self, queue: &QueueKey) -> (Arc<Caps>, Usage) {
        let mut state = self.state.lock();
        let caps = state.leases.caps(queue);
        let usage = state.leases.usage(queue, &caps, self.clock.now());
        (caps, usage)
    }

    /// Returns the ready tasks in memory by priority and fairness class, and the recent dispatches of each class.
    pub(crate) fn fairness(&self, queue: &QueueKey) -> FairnessView {
        let state = self.state.lock();
        let Some(queue) = state.queues.get(queue) else {
            return FairnessView::default();
        };
        queue.view(self.clock.now())
    }

    /// Returns the number of tasks that became ready, and of leases granted, in the last minute.
    pub(crate) fn last_minute(&self, queue: &QueueKey) -> (u64, u64) {
        let (state, now) = (self.state.lock(), self.clock.now());
        state.queues.get(queue).map_or((0, 0), |queue| {
            (
                queue.added.last_minute(now),
                queue.dispatched.last_minute(now),
            )
        })
    }

    /// Ends the reservation of a task that was leased, or goes back.
    pub(crate) fn end_reservation(
        &self,
        queue: &QueueKey,
        taken: &Reservation,
        back: Option<ReadyTask>,
    ) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.leases.end_reservation(queue);
        let has_room = state.end_reservation(queue, taken, now);
        if let Some(task) = back {
            state.offer(queue.clone(), task, Origin::Commit, now);
        }
        if let Some(name) = has_room {
            state.serve_name(&name, now);
        }
        if !state.leases.is_unlimited() {
            state.pump_namespace(queue, now);
        }
    }

    /// Offers a question whose caller waits.
    pub(crate) fn ask(&self, queue: &QueueKey, question: ReadyTask) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.offer(queue.clone(), question, Origin::Question, now);
    }

    /// Returns what withholds ready work from a poll now.
    pub(crate) fn withheld(&self, queue: &QueueKey, filter: &PollFilter) -> Option<Throttle> {
        let mut state = self.state.lock();
        let throttle = state.admit(queue, self.clock.now()).err()?;
        let is_full = state.is_full(queue, filter);
        let queue = state.queues.get(queue)?;
        queue.has(filter, is_full).then_some(throttle)
    }

    /// Adds tasks read from the store.
    pub(crate) fn fill(&self, queue: &QueueKey, rows: &[TaskRow], extent: Extent) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.queue(queue, now).truncated = extent == Extent::Truncated;
        for row in rows {
            state.offer(queue.clone(), ReadyTask::from(row), Origin::Fetched, now);
        }
    }

    /// As [`Self::fill`], for tasks that must run in a session.
    pub(crate) fn fill_session_queues(&self, queue: &QueueKey, rows: &[TaskRow], extent: Extent) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.queue(queue, now).session_queues_truncated = extent == Extent::Truncated;
        for row in rows {
            state.offer(queue.clone(), ReadyTask::from(row), Origin::Fetched, now);
        }
    }

    /// Returns whether more ready tasks may be kept in memory.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().has_room()
    }

    /// Records that the store may hold ready tasks of queues that were never read.
    pub(crate) fn leave_out_rest(&self) {
        self.state.lock().is_partial = true;
    }

    /// Returns whether no lease is limited, so that counting is not needed.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.state.lock().leases.is_unlimited()
    }

    /// Returns the number of queues and ready tasks in memory.
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queues.len(), state.places.len())
    }

    /// Takes the best matching ready task, or a place in the queue of waiting polls.
    pub(crate) fn take(&self, queue: &QueueKey, filter: &PollFilter, asked: &Asked) -> Found {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let throttle = state.admit(queue, now).err();
        let mut withheld = None;
        match throttle {
            None => {
                if state.has_all_for(queue, filter)
                    && let Some(task) = state.pick(queue, filter, now)
                {
                    state.leases.reserve(queue);
                    return Found::Task(task);
                }
            }
            Some(throttle) => {
                let is_full = state.is_full(queue, filter);
                let entry = state.queues.get(queue);
                let has = entry.is_some_and(|entry| entry.has(filter, is_full));
                withheld = has.then_some(throttle);
                if has {
                    state.want_shares(queue, now);
                }
            }
        }
        let entry = state.queue(queue, now);
        if (entry.truncated && entry.len + entry.lanes.len() == 0)
            || (entry.session_queues_truncated && entry.session_queues.len() == 0)
        {
            return Found::AskStore;
        }
        if !self.poll_caps.admit(&state, &queue.namespace) {
            return Found::Full;
        }
        state.began_waiting(&queue.namespace);
        state.next_waiter += 1;
        let number = state.next_waiter;
        let (hand, handed) = oneshot::channel();
        let entry = state.queue(queue, now);
        entry.waiters.push_back(Waiter {
            number,
            filter: filter.clone(),
            asked: asked.clone(),
            hand,
        });
        let ticket = Ticket {
            handed,
            queue: queue.clone(),
            number,
        };
        Found::Wait(ticket, withheld)
    }

    /// Leaves the queue of waiting polls.
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
            state.ended_waiting(&ticket.queue.namespace);
        }
        // Handed over while leaving: the next waiting poll gets it.
        if let Ok(task) = ticket.handed.try_recv() {
            let now = self.clock.now();
            state.leases.end_reservation(&ticket.queue);
            let has_room = state.end_reservation(&ticket.queue, &task.reservation(), now);
            state.offer(ticket.queue, task, Origin::Commit, now);
            if let Some(name) = has_room {
                state.serve_name(&name, now);
            }
        }
    }

    /// Removes a task that no worker may lease any more.
    pub(crate) fn withdraw(&self, task_id: &TaskId) {
        self.state.lock().withdraw(task_id);
    }

    /// Returns whether the task waits here for a poll.
    pub(crate) fn has_task(&self, task_id: &TaskId) -> bool {
        self.state.lock().places.contains_key(task_id)
    }

    /// Returns whether a poll of this worker waits.
    pub(crate) fn is_waited_at(&self, worker: &WorkerRow) -> bool {
        let state = self.state.lock();
        [TaskKind::Workflow, TaskKind::Activity]
            .into_iter()
            .any(|kind| {
                let key = QueueKey {
                    namespace: worker.namespace.clone(),
                    kind,
                    queue: worker.task_queue.clone(),
                };
                let queue = state.queues.get(&key);
                queue.is_some_and(|queue| {
                    let mut waiters = queue.waiters.iter();
                    waiters.any(|waiter| waiter.filter.worker_id == worker.worker_id)
                })
            })
    }

    /// Returns the number of polls that wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Counts a granted lease for fairness.
    pub(crate) fn dispatched(&self, queue: &QueueKey, task: &ReadyTask) {
        if task.rank.fairness_key.is_some() || task.rank.fairness_weight != 1 {
            let (mut state, now) = (self.state.lock(), self.clock.now());
            let entry = state.queue(queue, now);
            entry.fairness.count(task.rank.fairness_key.as_deref(), now);
        }
    }
}

impl PollCaps {
    fn admit(self, state: &State, namespace: &Namespace) -> bool {
        let in_namespace = state.waiting_in.get(namespace).copied().unwrap_or(0);
        state.waiting < self.max.unwrap_or(WAITING_POLLS_MAX).min(WAITING_POLLS_MAX)
            && self.max_per_namespace.is_none_or(|max| in_namespace < max)
    }
}

fn queue_of(row: &TaskRow) -> QueueKey {
    QueueKey {
        namespace: row.namespace.clone(),
        kind: row.kind,
        queue: row.queue.clone(),
    }
}
