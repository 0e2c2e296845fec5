//! QuestionTable: tasks with a waiting caller that are never stored. There are two kinds, queries and validations of updates, with one
//! life cycle: asked, leased to one worker, answered once; or ended when the caller stops waiting.
//!
//! Nothing here touches a run. A restart drops all questions: the connections of the callers are closed too. Ended questions are
//! kept for a while, without their payloads, so that a late or repeated report gets the right refusal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longhaul_engine::run::state::Spec;
use longhaul_protocol::id::{Namespace, TaskId, TaskQueue, WorkerId};
use longhaul_protocol::{Payload, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::matching::dispatch::READY_PER_QUEUE_MAX;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    Query,
    UpdateValidation,
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

/// A worker's right to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionLease {
    pub owner: WorkerId,
    pub attempt: u64,
    pub leased_at: Timestamp,
    pub expires_at: Timestamp,
    pub(crate) poll_request_id: Option<String>,
}

impl QuestionLease {
    /// Returns a lease that begins now.
    pub(crate) fn grant(
        kind: QuestionKind,
        owner: &WorkerId,
        attempt: u64,
        poll_request_id: Option<&str>,
        times: QuestionTimes,
        limits: &QuestionLimits,
        now: Timestamp,
    ) -> Self {
        Self {
            owner: owner.clone(),
            attempt,
            leased_at: now,
            // Never longer than the caller waits: both SDKs refuse such a lease.
            expires_at: match kind {
                QuestionKind::Query => times.deadline_at,
                QuestionKind::UpdateValidation => now
                    .plus_seconds(limits.validation_lease_seconds)
                    .min(times.deadline_at),
            },
            poll_request_id: poll_request_id.map(str::to_owned),
        }
    }

    /// Returns whether this poll has the lease.
    pub(crate) fn is_of_poll(
        &self,
        owner: &WorkerId,
        poll_request_id: Option<&str>,
        now: Timestamp,
    ) -> bool {
        self.owner == *owner
            && poll_request_id.is_some()
            && self.poll_request_id.as_deref() == poll_request_id
            && now < self.expires_at
    }
}

/// When a question was asked and until when its caller waits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QuestionTimes {
    pub admitted_at: Timestamp,
    pub deadline_at: Timestamp,
}

/// The worker that reports on a question.
#[derive(Clone, Debug)]
pub struct QuestionHolder {
    pub namespace: Namespace,
    pub task_id: TaskId,
    pub owner: WorkerId,
    pub attempt: u64,
}

/// The answer of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionAnswer {
    /// The result of a query; an approved update has none.
    Done(Option<QueryResult>),
    Failed(QuestionFailure),
}

/// The result of a query: the copy for people and the authoritative payload, both as the worker sent them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueryResult {
    pub shown: Value,
    pub envelope: Payload,
}

/// Why a worker could not answer, or what its validator found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QuestionFailure {
    pub message: String,
    pub reason: Option<String>,
    pub failure_type: Option<String>,
    pub validation_errors: Map<String, Value>,
}

/// The progress of a question when its time ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutStage {
    NotClaimed,
    Executing,
}

impl TimeoutStage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotClaimed => "not_claimed",
            Self::Executing => "executing",
        }
    }
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

/// Why a worker's report on a question is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionRefusal {
    NotFound,
    NotLeased,
    /// It already has a different answer.
    Answered,
    OwnerMismatch,
    AttemptMismatch {
        current: u64,
    },
    LeaseExpired,
    /// The caller no longer waits.
    TimedOut,
}

enum QuestionState {
    Pending,
    Leased(QuestionLease),
    Answered {
        by: QuestionLease,
        is_failure: bool,
        /// Held until the caller takes it.
        answer: Option<QuestionAnswer>,
    },
    TimedOut(TimeoutStage),
    WorkerLost,
}

struct Entry {
    queue_key: QuestionQueue,
    /// `None` once it has ended: payloads are not kept.
    question: Option<Arc<Question>>,
    times: QuestionTimes,
    /// The attempt of the newest lease; 0 before the first.
    attempt: u64,
    state: QuestionState,
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
        state.entries.insert(
            task_id.clone(),
            Entry {
                queue_key,
                question: Some(Arc::new(question)),
                times: QuestionTimes {
                    admitted_at: now,
                    deadline_at: now.plus_seconds(timeout),
                },
                attempt: 0,
                state: QuestionState::Pending,
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
        entry.is_some_and(|entry| {
            matches!(
                entry.state,
                QuestionState::Pending | QuestionState::Leased(_)
            )
        })
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
        let entry = state.entries.get_mut(task_id)?;
        if now >= entry.times.deadline_at {
            return None;
        }
        let lease = match &entry.state {
            QuestionState::Leased(lease) if lease.is_of_poll(owner, poll_request_id, now) => {
                lease.clone()
            }
            QuestionState::Pending => {
                entry.attempt += 1;
                let (kind, attempt) = (entry.queue_key.kind, entry.attempt);
                QuestionLease::grant(
                    kind,
                    owner,
                    attempt,
                    poll_request_id,
                    entry.times,
                    limits,
                    now,
                )
            }
            QuestionState::Leased(_)
            | QuestionState::Answered { .. }
            | QuestionState::TimedOut(_)
            | QuestionState::WorkerLost => return None,
        };
        let question = Arc::clone(entry.question.as_ref()?);
        let times = entry.times;
        let changed = Arc::clone(&entry.changed);
        state.set(task_id, QuestionState::Leased(lease.clone()));
        // From now on the caller waits for the end of the lease.
        changed.notify_one();
        Some((question, lease, times))
    }

    /// Returns what the caller should do now. Ends the question if its time is over.
    pub(crate) fn look(&self, task_id: &TaskId, now: Timestamp) -> WaitStatus {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(task_id) else {
            return WaitStatus::Over(Outcome::TimedOut(TimeoutStage::NotClaimed));
        };
        let deadline = entry.times.deadline_at;
        let kind = entry.queue_key.kind;
        let ended = match &mut entry.state {
            QuestionState::Answered { answer, .. } => {
                return match answer.take() {
                    Some(answer) => WaitStatus::Over(Outcome::Answered(answer)),
                    None => WaitStatus::Over(Outcome::TimedOut(TimeoutStage::Executing)),
                };
            }
            QuestionState::TimedOut(stage) => return WaitStatus::Over(Outcome::TimedOut(*stage)),
            QuestionState::WorkerLost => return WaitStatus::Over(Outcome::WorkerLost),
            QuestionState::Pending if now >= deadline => {
                QuestionState::TimedOut(TimeoutStage::NotClaimed)
            }
            QuestionState::Leased(_) if now >= deadline => {
                QuestionState::TimedOut(TimeoutStage::Executing)
            }
            QuestionState::Leased(lease)
                if kind == QuestionKind::UpdateValidation && now >= lease.expires_at =>
            {
                QuestionState::WorkerLost
            }
            QuestionState::Leased(lease) => {
                return WaitStatus::Until(lease.expires_at.min(deadline));
            }
            QuestionState::Pending => return WaitStatus::Until(deadline),
        };
        let outcome = match ended {
            QuestionState::TimedOut(stage) => Outcome::TimedOut(stage),
            _ => Outcome::WorkerLost,
        };
        state.set(task_id, ended);
        WaitStatus::Over(outcome)
    }

    /// Returns a question that no worker has.
    pub(crate) fn pending_question(
        &self,
        task_id: &TaskId,
    ) -> Option<(Arc<Question>, QuestionTimes)> {
        let state = self.state.lock();
        let entry = state.entries.get(task_id)?;
        let is_pending = matches!(entry.state, QuestionState::Pending);
        let question = entry.question.as_ref().filter(|_| is_pending)?;
        Some((Arc::clone(question), entry.times))
    }

    /// Records a lease that another server granted.
    pub(crate) fn learn_lease(&self, task_id: &TaskId, lease: &QuestionLease) {
        self.learn(task_id, |entry| {
            entry.attempt = lease.attempt;
            QuestionState::Leased(lease.clone())
        });
    }

    /// Records an answer that another server accepted.
    pub(crate) fn learn_answer(
        &self,
        task_id: &TaskId,
        by: &QuestionLease,
        answer: QuestionAnswer,
    ) {
        self.learn(task_id, |entry| {
            entry.attempt = by.attempt;
            QuestionState::Answered {
                by: by.clone(),
                is_failure: matches!(answer, QuestionAnswer::Failed(_)),
                answer: Some(answer),
            }
        });
    }

    /// Records that the worker of a question left another server.
    pub(crate) fn learn_loss(&self, task_id: &TaskId) {
        self.learn(task_id, |_| QuestionState::WorkerLost);
    }

    /// Records that no worker has the question any more. Returns whether one had.
    pub(crate) fn release_one(&self, task_id: &TaskId) -> bool {
        let is_leased = {
            let state = self.state.lock();
            let entry = state.entries.get(task_id);
            entry.is_some_and(|entry| matches!(entry.state, QuestionState::Leased(_)))
        };
        if is_leased {
            self.learn(task_id, |_| QuestionState::Pending);
        }
        is_leased
    }

    /// Sets the state of an open question, and wakes its caller.
    fn learn(&self, task_id: &TaskId, next: impl FnOnce(&mut Entry) -> QuestionState) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(task_id) else {
            return;
        };
        let is_open = matches!(
            entry.state,
            QuestionState::Pending | QuestionState::Leased(_)
        );
        if !is_open {
            return;
        }
        let next = next(entry);
        let changed = Arc::clone(&entry.changed);
        state.set(task_id, next);
        changed.notify_one();
    }

    /// Ends a question whose caller no longer waits.
    pub(crate) fn abandon(&self, task_id: &TaskId) {
        let mut state = self.state.lock();
        let stage = match state.entries.get(task_id).map(|entry| &entry.state) {
            Some(QuestionState::Pending) => TimeoutStage::NotClaimed,
            Some(QuestionState::Leased(_)) => TimeoutStage::Executing,
            _ => return,
        };
        state.set(task_id, QuestionState::TimedOut(stage));
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
        let is_failure = matches!(answer, QuestionAnswer::Failed(_));
        let entry = state.held(kind, holder).ok_or(QuestionRefusal::NotFound)?;
        let lease = match &entry.state {
            QuestionState::Answered {
                by,
                is_failure: was_failure,
                ..
            } => {
                check_holder(by, holder)?;
                return if *was_failure == is_failure {
                    Ok(true)
                } else {
                    Err(QuestionRefusal::Answered)
                };
            }
            state => check_lease(state, holder, entry.times, now)?.clone(),
        };
        let changed = Arc::clone(&entry.changed);
        state.set(
            &holder.task_id,
            QuestionState::Answered {
                by: lease,
                is_failure,
                answer: Some(answer),
            },
        );
        changed.notify_one();
        Ok(false)
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
        let entry = state.held(kind, holder).ok_or(QuestionRefusal::NotFound)?;
        match &entry.state {
            QuestionState::Answered { by, is_failure, .. } => {
                check_holder(by, holder)?;
                Ok(Held {
                    lease: by.clone(),
                    times: entry.times,
                    status: if *is_failure { "failed" } else { "completed" },
                    refusal: Some(QuestionRefusal::NotLeased),
                })
            }
            state => {
                let lease = check_lease(state, holder, entry.times, now)?.clone();
                Ok(Held {
                    lease,
                    times: entry.times,
                    status: "leased",
                    refusal: None,
                })
            }
        }
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
                entry.queue_key.namespace == *namespace
                    && matches!(&entry.state, QuestionState::Leased(lease) if lease.owner == *worker_id)
            })
            .map(|(task_id, _)| task_id.clone())
            .collect();
        let mut released = Vec::new();
        for task_id in held {
            let entry = &state.entries[&task_id];
            let changed = Arc::clone(&entry.changed);
            let (next, question) = match entry.queue_key.kind {
                QuestionKind::Query => (QuestionState::Pending, entry.question.clone()),
                QuestionKind::UpdateValidation => (QuestionState::WorkerLost, None),
            };
            state.set(&task_id, next);
            changed.notify_one();
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

/// A question for one worker.
#[derive(Clone, Debug)]
pub struct Held {
    pub lease: QuestionLease,
    pub times: QuestionTimes,
    pub status: &'static str,
    /// Why the worker should stop.
    pub refusal: Option<QuestionRefusal>,
}

impl State {
    /// Returns the entry that a holder reports on, in its own namespace.
    fn held(&self, kind: QuestionKind, holder: &QuestionHolder) -> Option<&Entry> {
        let entry = self.entries.get(&holder.task_id)?;
        (entry.queue_key.kind == kind && entry.queue_key.namespace == holder.namespace)
            .then_some(entry)
    }

    /// Sets the state of a question. The only place that does, so that the count of pending ones is right.
    fn set(&mut self, task_id: &TaskId, state: QuestionState) {
        let Some(entry) = self.entries.get_mut(task_id) else {
            return;
        };
        let was_pending = matches!(entry.state, QuestionState::Pending);
        let is_pending = matches!(state, QuestionState::Pending);
        if !matches!(state, QuestionState::Pending | QuestionState::Leased(_)) {
            entry.question = None;
        }
        entry.state = state;
        if was_pending == is_pending {
            return;
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
    }

    /// Removes questions that are old enough. An open question is never that old.
    fn sweep(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.removals.first()
            && *at <= now
            && let Some((_, task_id)) = self.removals.pop_first()
        {
            self.set(&task_id, QuestionState::WorkerLost);
            self.entries.remove(&task_id);
        }
    }
}

pub(crate) fn check_holder(
    lease: &QuestionLease,
    holder: &QuestionHolder,
) -> Result<(), QuestionRefusal> {
    if lease.owner != holder.owner {
        return Err(QuestionRefusal::OwnerMismatch);
    }
    if lease.attempt != holder.attempt {
        return Err(QuestionRefusal::AttemptMismatch {
            current: lease.attempt,
        });
    }
    Ok(())
}

fn check_lease<'a>(
    state: &'a QuestionState,
    holder: &QuestionHolder,
    times: QuestionTimes,
    now: Timestamp,
) -> Result<&'a QuestionLease, QuestionRefusal> {
    match state {
        QuestionState::TimedOut(_) => Err(QuestionRefusal::TimedOut),
        QuestionState::Pending | QuestionState::Leased(_) if now >= times.deadline_at => {
            Err(QuestionRefusal::TimedOut)
        }
        QuestionState::WorkerLost => Err(QuestionRefusal::LeaseExpired),
        QuestionState::Pending | QuestionState::Answered { .. } => Err(QuestionRefusal::NotLeased),
        QuestionState::Leased(lease) => {
            check_holder(lease, holder)?;
            if now >= lease.expires_at {
                return Err(QuestionRefusal::LeaseExpired);
            }
            Ok(lease)
        }
    }
}
