//! What matching has in memory: its queues, the places of their tasks, and how much of it there may be.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use longhaul_engine::change::TaskKind;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, TaskId};
use longhaul_store::QueueKey;

use super::lanes::LaneKey;
use super::offered::OfferedTasks;
use super::queue::{Queue, QueuePlace};
use super::quiet::Quiet;
use super::session_index::SessionIndex;
use super::session_queues::{self, SessionQueueKey};
use crate::matching::admission::AdmissionCounter;
use crate::matching::shares::ShareTable;
use crate::matching::starts::StartCounter;
use crate::sweeps::alarms::NextCheck;

/// Bytes of ready tasks and queues kept in memory, over all queues. Some 60,000 tasks; beyond that tasks stay in the store until a
/// worker polls for them.
const READY_BYTES_MAX: u64 = 64 << 20;

/// About how many bytes a queue takes in memory besides its tasks and its name.
const QUEUE_BYTES: u64 = 2048;

/// Queues that are idle but were used in the last minute, kept for their rates and fair shares. More are dropped early.
const RECENT_QUEUES_MAX: usize = 10_000;

/// Idle queues are removed after this many uses of queues, or as many as there are queues: often enough to bound them, and rarely
/// enough to cost each use almost nothing.
const TIDY_AFTER_USES: usize = 1024;

pub(super) struct State {
    /// Whether tasks are copies of stored ones, which can be fetched again.
    pub(super) is_stored: bool,
    /// Whether other servers hand out the tasks of these queues too. Then a task is here only for a moment.
    pub(super) is_shared: bool,
    /// Whether no other server was alive a few seconds ago. Then new tasks wait here for a moment, because no other poll can be waiting.
    pub(super) is_alone: bool,
    /// Tasks on their way to a lease. A look must not find them again.
    pub(super) claiming: HashSet<TaskId>,
    /// Tasks whose claims ended during the look that is on its way. It may have seen them before.
    pub(super) claimed: HashSet<TaskId>,
    /// Tasks that the next look leaves to other servers.
    pub(super) released: Vec<TaskId>,
    /// New tasks that other servers offered.
    pub(super) offered: OfferedTasks,
    /// When tasks that are here for a moment are removed.
    pub(super) expiries: BTreeSet<(Timestamp, TaskId)>,
    /// What the newest looks at a shared store did not find.
    pub(super) quiet: Quiet,
    /// A queue that is idle and known to be empty in the store is not here.
    pub(super) queues: HashMap<QueueKey, Queue>,
    /// The store may hold ready tasks of queues that are not here.
    pub(super) is_partial: bool,
    /// Bytes of the ready tasks here.
    pub(super) ready_bytes: u64,
    /// Uses of queues since idle ones were last removed.
    pub(super) uses: usize,
    /// The place of each ready task, so that it can be removed by id.
    pub(super) places: HashMap<TaskId, (QueueKey, Place)>,
    pub(super) waiting: usize,
    pub(super) waiting_in: HashMap<Namespace, usize>,
    pub(super) next_waiter: u64,
    pub(super) leases: AdmissionCounter,
    pub(super) starts: StartCounter,
    /// Used only if other servers hand out tasks too.
    pub(super) shares: ShareTable,
    /// Leases that this server is about to grant, with their attempts.
    pub(super) granting: HashMap<TaskId, u64>,
    pub(super) window_check: Arc<NextCheck>,
    pub(super) sessions: SessionIndex,
}

/// The place of a ready task in its queue.
pub(super) enum Place {
    Plain(QueuePlace),
    InSession(SessionQueueKey, session_queues::Order),
    InLane(LaneKey, session_queues::Order),
}

impl State {
    pub(super) fn began_waiting(&mut self, namespace: &Namespace) {
        self.waiting += 1;
        *self.waiting_in.entry(namespace.clone()).or_default() += 1;
    }

    pub(super) fn ended_waiting(&mut self, namespace: &Namespace) {
        self.waiting -= 1;
        if let Some(waiting) = self.waiting_in.get_mut(namespace) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting_in.remove(namespace);
            }
        }
    }

    /// Returns the entry of the queue, creating it if it does not exist.
    pub(super) fn queue(&mut self, key: &QueueKey, now: Timestamp) -> &mut Queue {
        self.uses += 1;
        if self.uses > self.queues.len().max(TIDY_AFTER_USES) {
            self.uses = 0;
            self.tidy(now);
        }
        let is_partial = self.is_partial;
        self.queues.entry(key.clone()).or_insert_with(|| Queue {
            truncated: is_partial,
            session_queues_truncated: is_partial && key.kind == TaskKind::Activity,
            ..Queue::default()
        })
    }

    /// Removes queues without waiting polls and without tasks: an unknown queue is empty, or is read at the next poll. Rates and
    /// fair shares of the last minute are kept for a bounded number.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        let is_partial = self.is_partial;
        let mut recent = 0;
        self.queues.retain(|_, queue| {
            let left_out = queue.truncated || queue.session_queues_truncated;
            if !queue.is_idle() || (left_out && !is_partial) {
                return true;
            }
            recent += usize::from(queue.is_recent(now));
            queue.is_recent(now) && recent <= RECENT_QUEUES_MAX
        });
        if self.queues.capacity() > 4 * self.queues.len().max(TIDY_AFTER_USES) {
            self.queues.shrink_to_fit();
            self.places.shrink_to_fit();
        }
    }

    /// Returns whether more ready tasks may be kept.
    pub(super) fn has_room(&self) -> bool {
        let queues = self.queues.len() as u64 * QUEUE_BYTES;
        !self.is_stored || self.ready_bytes + queues < READY_BYTES_MAX
    }
}
