//! Questions: tasks with a waiting caller that are never stored. There are two kinds, queries and validations of updates, with one life
//! (`progress.rs`).
//!
//! Nothing here touches a run. A restart drops all questions: the connections of the callers are closed too. Ended questions are
//! kept for a while, without their payloads, so that a late or repeated report gets the right refusal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longhaul_engine::run::state::Spec;
use longhaul_protocol::id::{Namespace, TaskId, TaskQueue, WorkerId};
use longhaul_protocol::{Payload, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::matching::dispatch::READY_PER_QUEUE_MAX;
use crate::questions::progress::{
    Held, Progress, QuestionAnswer, QuestionHolder, QuestionKind, QuestionLease, QuestionRefusal,
    QuestionState, QuestionTimes, TimeoutStage,
};

/// How long questions wait and are kept.
#[derive(Clone, Debug)]
pub struct QuestionLimits {
    /// How long the caller of a query waits. A worker's lease on it ends at the same time.
    pub query_timeout_seconds: u64,
    /// How long the caller of an update waits for its validator.
    pub validation_timeout_seconds: u64,
    /// How long a worker may work on one validation before it counts as lost.
    pub validation_lease_seconds: u64,
    /// How long a question is kept after it was asked.
    pub remembered_seconds: u64,
    /// QuestionTable of one kind that may wait for a worker on one queue.
    pub pending_max: usize,
}

impl QuestionLimits {
    /// The maximum of [`Self::pending_max`]: fewer than a queue in memory holds, because no store backs it.
    pub const PENDING_MAX: usize = READY_PER_QUEUE_MAX - 1;
}

impl Default for QuestionLimits {
    fn default() -> Self {
        // Clients stop waiting after 60 seconds; they should get a reply with the reason before that.
        Self {
            query_timeout_seconds: 45,
            validation_timeout_seconds: 10,
            validation_lease_seconds: 5,
            remembered_seconds: 180,
            pending_max: 1024,
        }
    }
}

/// A question for a worker.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) kind: QuestionKind,
    pub(crate) run: Arc<Spec>,
    /// The query, or the update.
    pub(crate) name: String,
    pub(crate) arguments: Payload,
    /// The capability that a worker needs to replay the run.
    pub(crate) required_capability: Option<&'static str>,
}

/// How a question ended for its caller.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(QuestionAnswer),
    TimedOut(TimeoutStage),
    /// The worker that had it is gone, or held it longer than allowed.
    WorkerLost,
    /// The server stops.
    Stopping,
}

struct Entry {
    queue_key: QuestionQueue,
    /// `None` once it has ended: payloads are not kept.
    question: Option<Arc<Question>>,
    progress: Progress,
    changed: Arc<Notify>,
}

/// Where questions of one kind wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuestionQueue {
    kind: QuestionKind,
    namespace: Namespace,
    queue: TaskQueue,
}

/// Every question that is open or kept.
#[derive(Default)]
pub(crate) struct QuestionTable {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<TaskId, Entry>,
    pending: HashMap<QuestionQueue, usize>,
    /// When each is removed.
    removals: BTreeSet<(Timestamp, TaskId)>,
}

/// The result of a caller's check.
pub(crate) enum WaitStatus {
    /// Check again then, or when something changed.
    Until(Timestamp),
    Over(Outcome),
}

/// Too many questions are waiting already.
pub(crate) struct Full;

impl QuestionTable {
    /// Adds a question.
    pub(crate) fn admit(
        &self,
        task_id: &TaskId,
        question: Question,
        limits: &QuestionLimits,
        now: Timestamp,
    ) -> Result<Arc<Notify>, Full> {
        let mut state = self.state.lock();
        state.sweep(now);
        let queue_key = QuestionQueue {
            kind: question.kind,
            namespace: question.run.namespace.clone(),
            queue: question.run.task_queue.clone(),
        };
        let pending = state.pending.entry(queue_key.clone()).or_default();
        if *pending >= limits.pending_max {
            return Err(Full);
        }
        *pending += 1;
        let timeout = match question.kind {
            QuestionKind::Query => limits.query_timeout_seconds,
            QuestionKind::UpdateValidation => limits.validation_timeout_seconds,
        };
        // A worker that reports a minute late still gets the refusal for lateness.
        let remembered = limits.remembered_seconds.max(timeout + 60);
        let changed = Arc::<Notify>::default();
        state
            .removals
            .insert((now.plus_seconds(remembered), task_id.clone()));
        let times = QuestionTimes {
            admitted_at: now,
            deadline_at: now.plus_seconds(timeout),
        };
        state.entries.insert(
            task_id.clone(),
            Entry {
                queue_key,
                progress: Progress::new(question.kind, times),
                question: Some(Arc::new(question)),
                changed: Arc::clone(&changed),
            },
        );
        Ok(changed)
    }

    /// Returns whether such a question exists or existed.
    pub(crate) fn knows(&self, task_id: &TaskId) -> bool {
        self.state.lock().entries.contains_key(task_id)
    }

    /// Returns whether it is leased or may still be leased.
    pub(crate) fn is_open(&self, task_id: &TaskId) -> bool {
        let state = self.state.lock();
        let entry = state.entries.get(task_id);
        entry.is_some_and(|entry| entry.progress.is_open())
    }

    /// Leases it, or returns the lease that the same poll got before. Returns `None` if it cannot be leased.
    pub(crate) fn lease(
        &self,
        task_id: &TaskId,
        owner: &WorkerId,
        poll_request_id: Option<&str>,
        limits: &QuestionLimits,
        now: Timestamp,
    ) -> Option<(Arc<Question>, QuestionLease, QuestionTimes)> {
        let mut state = self.state.lock();
        let entry = state.entries.get(task_id)?;
        let question = Arc::clone(entry.question.as_ref()?);
        let times = entry.progress.times;
        // From now on the caller waits for the end of the lease.
        let lease = state.change_and_wake(task_id, |progress| {
            progress.lease(owner, poll_request_id, limits, now)
        })?;
        Some((question, lease?, times))
    }

    /// Returns what the caller should do now. Ends the question if its time is over.
    pub(crate) fn look(&self, task_id: &TaskId, now: Timestamp) -> WaitStatus {
        let mut state = self.state.lock();
        let status = state.change(task_id, |progress| {
            progress.pass_time(now);
            let deadline = progress.times.deadline_at;
            match progress.state() {
                QuestionState::Pending => WaitStatus::Until(deadline),
                QuestionState::Leased(lease) => WaitStatus::Until(lease.expires_at.min(deadline)),
                QuestionState::TimedOut(stage) => WaitStatus::Over(Outcome::TimedOut(*stage)),
                QuestionState::WorkerLost => WaitStatus::Over(Outcome::WorkerLost),
                QuestionState::Answered { .. } => WaitStatus::Over(match progress.take_answer() {
                    Some(answer) => Outcome::Answered(answer),
                    None => Outcome::TimedOut(TimeoutStage::Executing),
                }),
            }
        });
        status.unwrap_or(WaitStatus::Over(Outcome::TimedOut(
            TimeoutStage::NotClaimed,
        )))
    }

    /// Returns a question that no worker has.
    pub(crate) fn pending_question(
        &self,
        task_id: &TaskId,
    ) -> Option<(Arc<Question>, QuestionTimes)> {
        let state = self.state.lock();
        let entry = state.entries.get(task_id)?;
        let is_pending = entry.progress.is_pending();
        let question = entry.question.as_ref().filter(|_| is_pending)?;
        Some((Arc::clone(question), entry.progress.times))
    }

    /// Records what another server decided about an open question.
    pub(crate) fn learn(&self, task_id: &TaskId, decided: QuestionState) {
        let mut state = self.state.lock();
        let entry = state.entries.get(task_id);
        if entry.is_some_and(|entry| entry.progress.is_open()) {
            state.change_and_wake(task_id, |progress| progress.learn(decided));
        }
    }

    /// Records that no worker has the question any more. Returns whether one had.
    pub(crate) fn release_one(&self, task_id: &TaskId) -> bool {
        let mut state = self.state.lock();
        let entry = state.entries.get(task_id);
        let is_leased = entry.is_some_and(|entry| {
            let state = entry.progress.state();
            matches!(state, QuestionState::Leased(_))
        });
        if is_leased {
            state.change_and_wake(task_id, |progress| progress.learn(QuestionState::Pending));
        }
        is_leased
    }

    /// Ends a question whose caller no longer waits.
    pub(crate) fn abandon(&self, task_id: &TaskId) {
        self.state.lock().change(task_id, Progress::abandon);
    }

    /// Accepts a worker's answer; returns true if it repeats the accepted one.
    pub(crate) fn answer(
        &self,
        kind: QuestionKind,
        holder: &QuestionHolder,
        answer: QuestionAnswer,
        now: Timestamp,
    ) -> Result<bool, QuestionRefusal> {
        let mut state = self.state.lock();
        state.sweep(now);
        state.held(kind, holder)?;
        let answered = state.change_and_wake(&holder.task_id, |progress| {
            progress.answer(holder, answer, now)
        });
        answered.unwrap_or(Err(QuestionRefusal::NotFound))
    }

    /// Returns the present lease, if the holder still has it.
    pub(crate) fn held(
        &self,
        kind: QuestionKind,
        holder: &QuestionHolder,
        now: Timestamp,
    ) -> Result<Held, QuestionRefusal> {
        let mut state = self.state.lock();
        state.sweep(now);
        state.held(kind, holder)?.progress.held(holder, now)
    }

    /// Releases the questions of a worker that left: they go to the next worker, or are lost. Returns the questions that may be
    /// offered again.
    pub(crate) fn release(
        &self,
        namespace: &Namespace,
        worker_id: &WorkerId,
    ) -> Vec<(TaskId, Option<Arc<Question>>)> {
        let mut state = self.state.lock();
        let held: Vec<TaskId> = state
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry.queue_key.namespace == *namespace && entry.progress.is_leased_to(worker_id)
            })
            .map(|(task_id, _)| task_id.clone())
            .collect();
        let mut released = Vec::new();
        for task_id in held {
            state.change_and_wake(&task_id, |progress| progress.release(worker_id));
            let entry = state.entries.get(&task_id);
            let question = entry.and_then(|entry| entry.question.clone());
            released.push((task_id, question));
        }
        released
    }

    /// Returns the number of questions that wait for a worker.
    pub(crate) fn pending(
        &self,
        kind: QuestionKind,
        namespace: &Namespace,
        queue: &TaskQueue,
    ) -> usize {
        let queue_key = QuestionQueue {
            kind,
            namespace: namespace.clone(),
            queue: queue.clone(),
        };
        self.state
            .lock()
            .pending
            .get(&queue_key)
            .copied()
            .unwrap_or(0)
    }
}

impl State {
    /// Returns the entry that a holder reports on, in its own namespace.
    fn held(&self, kind: QuestionKind, holder: &QuestionHolder) -> Result<&Entry, QuestionRefusal> {
        let entry = self.entries.get(&holder.task_id);
        let own = entry.filter(|entry| {
            entry.queue_key.kind == kind && entry.queue_key.namespace == holder.namespace
        });
        own.ok_or(QuestionRefusal::NotFound)
    }

    /// Changes a question. The only place that does, so that the count of pending ones is right.
    fn change<R>(
        &mut self,
        task_id: &TaskId,
        change: impl FnOnce(&mut Progress) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(task_id)?;
        let was_pending = entry.progress.is_pending();
        let changed = change(&mut entry.progress);
        let is_pending = entry.progress.is_pending();
        if !entry.progress.is_open() {
            entry.question = None;
        }
        if was_pending == is_pending {
            return Some(changed);
        }
        let queue_key = entry.queue_key.clone();
        let pending = self.pending.entry(queue_key.clone()).or_default();
        if is_pending {
            *pending += 1;
        } else {
            *pending -= 1;
        }
        if *pending == 0 {
            self.pending.remove(&queue_key);
        }
        Some(changed)
    }

    /// Changes a question, and wakes its caller.
    fn change_and_wake<R>(
        &mut self,
        task_id: &TaskId,
        change: impl FnOnce(&mut Progress) -> R,
    ) -> Option<R> {
        let changed = self.change(task_id, change);
        if let Some(entry) = self.entries.get(task_id) {
            entry.changed.notify_one();
        }
        changed
    }

    /// Removes questions that are old enough. An open question is never that old.
    fn sweep(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.removals.first()
            && *at <= now
            && let Some((_, task_id)) = self.removals.pop_first()
        {
            self.change(&task_id, Progress::lose);
            self.entries.remove(&task_id);
        }
    }
}
