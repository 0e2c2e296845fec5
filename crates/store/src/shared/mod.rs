//! What several servers on one store need besides its rows: hints about each other's commits, and a way to share out work. Nothing
//! here decides. A lost hint costs time. If two servers take the same work, the version of its run accepts one commit.

pub mod hints;

use futures::stream::BoxStream;
use longhaul_engine::change::TaskRow;
use longhaul_engine::queue::{self, PollFilter};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{RunId, TaskId, WorkerId};

pub use self::hints::Hints;
use crate::{Due, DueLimits, QueueKey, StoreFuture};
pub use longhaul_engine::queue::CLASSES_MAX;

/// Tasks of sessions that one look returns for a queue.
pub const IN_SESSION_MAX: usize = 1000;

/// A store that other servers use too. Each value of it is one server.
pub trait Shared: Send + Sync + 'static {
    /// Sends hints to the other servers, and returns at once. The store itself announces what commits write: runs, sessions and
    /// documents.
    fn announce(&self, hints: Hints);

    /// Returns the hints of other servers from now on. They may be lost, late, repeated, or out of order.
    fn hints(&self) -> BoxStream<'static, Hints>;

    /// Looks for everything that this server waits for: a bounded number of statements, whatever waits.
    fn look<'a>(&'a self, look: &'a Look) -> StoreFuture<'a, Looked>;

    /// As [`RunStore::due`](crate::RunStore::due), without the runs and sessions that another server took a moment ago. What is
    /// returned is taken by this server until `until`, or until its time changes.
    fn take_due(&self, now: Timestamp, limits: DueLimits, until: Timestamp)
    -> StoreFuture<'_, Due>;
}

/// What a server waits for.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub now: Timestamp,
    /// Until then other servers leave the found tasks to this one. This is no lease: the server that claims a task first has it.
    pub reserved_until: Timestamp,
    pub queues: Vec<Wanted>,
    /// Tasks that this server has in memory, or is about to lease. They are not found again.
    pub known: Vec<TaskId>,
    /// Tasks that became available later than this are left to the server that made them: it gives them to its own polls, or offers
    /// them to the others. `None` if all tasks are for this server.
    pub young_since: Option<Timestamp>,
    /// Tasks that other servers offered, of whatever age.
    pub offered: Vec<TaskId>,
    /// Tasks that were left to this server, and that it leaves to the others.
    pub released: Vec<TaskId>,
    /// Polls whose reply may have been given by another server.
    pub polls: Vec<PollId>,
    /// Watched runs, with the versions that this server knows.
    pub runs: Vec<(RunId, u64)>,
}

impl Look {
    /// Returns whether nothing is waited for.
    pub fn is_for_nothing(&self) -> bool {
        self.queues.is_empty() && self.polls.is_empty() && self.runs.is_empty()
    }
}

/// The polls that wait for tasks of one queue.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub queue: QueueKey,
    /// What they accept, and how many tasks each of them.
    pub polls: Vec<(PollFilter, usize)>,
}

impl Wanted {
    /// Returns how many tasks the polls wait for.
    pub fn count(&self) -> usize {
        self.polls.iter().map(|(_, count)| count).sum()
    }

    /// Returns every task type that a poll names; `None` if one of them accepts all.
    pub(crate) fn types(&self) -> Option<Vec<&str>> {
        let mut types = Vec::new();
        for (filter, _) in &self.polls {
            if filter.types.is_empty() {
                return None;
            }
            types.extend(filter.types.iter().map(String::as_str));
        }
        types.sort_unstable();
        types.dedup();
        Some(types)
    }

    /// Returns the tasks of these that are taken for the polls. They are in the order of matching.
    pub(crate) fn select(&self, candidates: Vec<TaskRow>) -> Vec<TaskRow> {
        queue::select(&self.polls, candidates)
    }
}

/// Identifies a poll by what its worker sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PollId {
    pub queue: QueueKey,
    pub worker_id: WorkerId,
    pub request_id: String,
}

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// Ready tasks that are left to this server for a moment.
    pub tasks: Vec<TaskRow>,
    /// Ready tasks of sessions that the workers hold or may begin. Other servers may have them too.
    pub in_sessions: Vec<TaskRow>,
    /// Tasks that are leased by one of the polls.
    pub leased: Vec<TaskRow>,
    /// Watched runs that have another version, and that version.
    pub runs: Vec<(RunId, u64)>,
}
