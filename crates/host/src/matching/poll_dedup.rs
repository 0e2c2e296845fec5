//! Long polls and their idempotency. A repeated poll with the same request id gets the reply of the first: the same task while its
//! lease is valid. Without this a lost response makes a task wait until its lease expires.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_protocol::id::{RunId, SessionId, TaskId, WorkerId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_store::QueueKey;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Replies to polls that are kept while their leases are valid, about a kilobyte each. Beyond that the oldest are dropped: if such a
/// reply is lost, the task becomes ready again when its lease ends.
const GRANTS_MAX: usize = 50_000;

/// Identifies polls that are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PollKey {
    pub(crate) queue: QueueKey,
    pub(crate) worker_id: WorkerId,
    pub(crate) request_id: String,
}

/// The task in the reply to a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimTarget {
    pub(crate) task_id: TaskId,
    pub(crate) run_id: RunId,
    pub(crate) sequence: CommandSeq,
    /// The session that it must run in.
    pub(crate) session_id: Option<SessionId>,
}

#[derive(Clone)]
enum Entry {
    /// The first of them still waits; the channel closes when it is done.
    Waiting(watch::Receiver<()>),
    ClaimTarget(ClaimTarget),
}

/// Polls in flight and the leases in their replies.
#[derive(Default)]
pub(crate) struct Polls {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<PollKey, Entry>,
    by_task: HashMap<TaskId, PollKey>,
    /// Granted tasks in the order in which they came. Some are gone already.
    order: VecDeque<TaskId>,
}

/// What a poll should do next.
pub(crate) enum DedupOutcome {
    /// It is the first with this id.
    First(FirstPoll),
    /// Wait for the first, then check again.
    After(watch::Receiver<()>),
    /// The first got this task.
    Again(ClaimTarget),
}

/// The poll that others with the same id wait for. Dropping it without a grant releases them.
pub(crate) struct FirstPoll {
    polls: Arc<Polls>,
    key: PollKey,
    granted: bool,
    _done: watch::Sender<()>,
}

impl Polls {
    pub(crate) fn enter(self: &Arc<Self>, key: &PollKey) -> DedupOutcome {
        let mut state = self.state.lock();
        match state.entries.get(key) {
            Some(Entry::Waiting(done)) => DedupOutcome::After(done.clone()),
            Some(Entry::ClaimTarget(granted)) => DedupOutcome::Again(granted.clone()),
            None => {
                let (sender, done) = watch::channel(());
                state.entries.insert(key.clone(), Entry::Waiting(done));
                DedupOutcome::First(FirstPoll {
                    polls: Arc::clone(self),
                    key: key.clone(),
                    granted: false,
                    _done: sender,
                })
            }
        }
    }

    /// Removes a grant whose lease has ended.
    pub(crate) fn remove(&self, key: &PollKey) {
        let mut state = self.state.lock();
        if let Some(Entry::ClaimTarget(granted)) = state.entries.get(key) {
            let task_id = granted.task_id.clone();
            state.by_task.remove(&task_id);
            state.entries.remove(key);
        }
    }

    /// Makes a poll whose task could not be leased the first with its id again, unless another replaced it.
    pub(crate) fn regain(self: &Arc<Self>, key: &PollKey) -> Option<FirstPoll> {
        self.remove(key);
        match self.enter(key) {
            DedupOutcome::First(first) => Some(first),
            DedupOutcome::After(_) | DedupOutcome::Again(_) => None,
        }
    }

    /// Removes the grant of a task that its poll no longer leases.
    pub(crate) fn released(&self, task_id: &TaskId) {
        let mut state = self.state.lock();
        if let Some(key) = state.by_task.remove(task_id) {
            state.entries.remove(&key);
        }
    }

    /// Restores the grant of a stored lease after a restart.
    pub(crate) fn restore(&self, row: &TaskRow) {
        let (Some(owner), Some(request_id)) = (&row.lease_owner, &row.poll_request_id) else {
            return;
        };
        let queue = QueueKey {
            namespace: row.namespace.clone(),
            kind: row.kind,
            queue: row.queue.clone(),
        };
        let key = PollKey {
            queue,
            worker_id: owner.clone(),
            request_id: request_id.clone(),
        };
        self.state.lock().grant(key, ClaimTarget::of(row));
    }
}

impl ClaimTarget {
    /// Returns the task of a row.
    pub(crate) fn of(row: &TaskRow) -> Self {
        Self {
            task_id: row.task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: row.sequence,
            session_id: session_of(row),
        }
    }
}

/// Returns the session that a task must run in.
pub(crate) fn session_of(row: &TaskRow) -> Option<SessionId> {
    let options = row.worker_session.as_ref()?;
    Some(options.session_id.clone())
}

impl State {
    fn grant(&mut self, key: PollKey, granted: ClaimTarget) {
        if !self.by_task.contains_key(&granted.task_id) {
            self.make_room();
            self.order.push_back(granted.task_id.clone());
        }
        // A task has one lease: a poll that was bound to it before without success is removed.
        if let Some(before) = self.by_task.insert(granted.task_id.clone(), key.clone())
            && before != key
        {
            self.entries.remove(&before);
        }
        self.entries.insert(key, Entry::ClaimTarget(granted));
    }
}

impl State {
    /// Drops the oldest grants if there is no room for another. Another server may have ended their leases.
    fn make_room(&mut self) {
        while self.by_task.len() >= GRANTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(key) = self.by_task.remove(&oldest) {
                self.entries.remove(&key);
            }
        }
        // Grants that ended left their ids behind.
        if self.order.len() > 2 * GRANTS_MAX.max(self.by_task.len()) {
            let by_task = &self.by_task;
            self.order.retain(|task_id| by_task.contains_key(task_id));
        }
    }
}

impl FirstPoll {
    /// Binds the poll to a task: from now on the same poll gets this one.
    pub(crate) fn grant(mut self, granted: ClaimTarget) -> PollKey {
        self.granted = true;
        self.polls.state.lock().grant(self.key.clone(), granted);
        self.key.clone()
    }
}

impl Drop for FirstPoll {
    fn drop(&mut self) {
        if !self.granted {
            self.polls.state.lock().entries.remove(&self.key);
        }
    }
}
