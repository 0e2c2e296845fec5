//! Hints after a commit: polls waiting for a queue, callers waiting for a run, the alarm loop. Losing one costs latency, never
//! correctness. A waiter registers before it checks, so nothing is missed in between.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use longhaul_engine::RunChange;
use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_engine::session::Session;
use longhaul_protocol::id::{RunId, TaskId};
use longhaul_store::{Hints as StoreHints, QueueKey, Store};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::looks::{Looks, NewTasks};
use crate::idle::IdleTracker;
use crate::matching::dispatch::{Dispatch, Granted, Offered};
use crate::matching::poll_dedup::Polls;
use crate::metrics::Metrics;
use crate::sweeps::alarms::NextCheck;
use crate::sweeps::outbox::Outbox;
use crate::sweeps::removals::Removed;

/// Rows of leased tasks kept in memory, about a kilobyte each. More than workers usually hold at once; a report about another task
/// costs one read.
const LEASED_ROWS_MAX: usize = 50_000;

/// Sends hints about committed changes to everything that waits.
pub(crate) struct Wakes {
    pub(crate) dispatch: Dispatch,
    pub(crate) run_check: NextCheck,
    /// When sessions are swept next.
    pub(crate) session_check: NextCheck,
    pub(crate) polls: Arc<Polls>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) outbox: Outbox,
    pub(crate) removed: Removed,
    pub(crate) idle: Arc<IdleTracker>,
    worker_stale_seconds: u64,
    /// Rows of leased tasks: reports arrive by task id, and this saves a read for each.
    leased: Mutex<LeasedRows>,
    watched: Mutex<HashMap<RunId, Watched>>,
    /// The store, if other servers use it too.
    shared: Option<Arc<dyn Store>>,
    /// Looks at that store which were asked for.
    pub(crate) looks: Looks,
}

struct Watched {
    changed: Arc<Notify>,
    watchers: usize,
    /// The newest version that this server knows; 0 if none.
    version: u64,
}

/// Rows of leased tasks. Another server may have ended a lease, so the oldest rows are dropped for new ones.
#[derive(Default)]
struct LeasedRows {
    rows: HashMap<TaskId, TaskRow>,
    /// In the order in which they came. Some are gone already. Empty unless the oldest are dropped.
    order: VecDeque<TaskId>,
}

impl LeasedRows {
    /// Keeps a row. Drops the oldest rows if there is no room for another.
    fn insert_dropping(&mut self, row: &TaskRow) -> Option<TaskRow> {
        if !self.rows.contains_key(&row.task_id) {
            self.make_room();
            self.order.push_back(row.task_id.clone());
        }
        self.rows.insert(row.task_id.clone(), row.clone())
    }

    fn make_room(&mut self) {
        while self.rows.len() >= LEASED_ROWS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.rows.remove(&oldest);
        }
        // Rows that ended left their ids behind.
        if self.order.len() > 2 * LEASED_ROWS_MAX {
            let rows = &self.rows;
            self.order.retain(|task_id| rows.contains_key(task_id));
        }
    }
}

impl Wakes {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        dispatch: Dispatch,
        worker_stale_seconds: u64,
        shared: Option<Arc<dyn Store>>,
    ) -> Self {
        Self {
            dispatch,
            run_check: NextCheck::default(),
            session_check: NextCheck::default(),
            polls: Arc::default(),
            metrics,
            outbox: Outbox::default(),
            removed: Removed::default(),
            idle: Arc::default(),
            worker_stale_seconds,
            leased: Mutex::default(),
            watched: Mutex::default(),
            shared,
            looks: Looks::default(),
        }
    }

    /// Sends hints about the sessions that a durable commit changed.
    pub(crate) fn wake_sessions(&self, sessions: &[Session]) {
        if sessions.is_empty() {
            return;
        }
        self.dispatch.sessions_changed(sessions);
        for session in sessions {
            if let Some(deadline) = session.deadline() {
                // Its owner may become silent before that.
                let silent = session.updated_at.plus_seconds(self.worker_stale_seconds);
                self.session_check.set_no_later_than(deadline.min(silent));
            }
        }
    }

    /// Sends hints about the changes of a durable commit to a run. Called in the order of the run's versions (`hints.rs`).
    pub(crate) fn wake_run(&self, change: &RunChange) {
        self.metrics.committed(change);
        self.outbox.note(change);
        if let Some(alarm) = change.core.alarm {
            self.run_check.set_no_later_than(alarm);
        }
        for row in &change.tasks {
            self.show(row);
        }
        let mut watched = self.watched.lock();
        if let Some(watched) = watched.get_mut(&change.spec.run_id) {
            watched.version = watched.version.max(change.version());
            if !change.events.is_empty() {
                watched.changed.notify_waiters();
            }
        }
    }

    /// Wakes the watchers of a run that another server changed.
    pub(crate) fn wake_watchers(&self, run_id: &RunId, version: u64) {
        let mut watched = self.watched.lock();
        if let Some(watched) = watched.get_mut(run_id)
            && watched.version < version
        {
            watched.version = version;
            watched.changed.notify_waiters();
        }
    }

    /// Returns the watched runs, with the newest versions that this server knows.
    pub(crate) fn watched_runs(&self) -> Vec<(RunId, u64)> {
        let watched = self.watched.lock();
        watched
            .iter()
            .map(|(run_id, watched)| (run_id.clone(), watched.version))
            .collect()
    }

    /// Records a durable task row. A ready task that no poll waits for here is announced to the other servers.
    pub(crate) fn show(&self, row: &TaskRow) {
        if row.status == TaskStatus::Leased {
            let before = self.keep_leased(row);
            match before {
                None => self.dispatch.count_lease(row, Granted::First),
                Some(before) if before.attempt != row.attempt => {
                    self.dispatch.count_lease(row, Granted::Again);
                }
                Some(_) => {}
            }
            self.dispatch.update(row);
            return;
        }
        let leased = self.leased.lock().rows.remove(&row.task_id);
        self.polls.released(&row.task_id);
        let offered = self.dispatch.update(row);
        if let Some(leased) = &leased {
            self.dispatch.lease_ended(leased);
        }
        if let Some(shared) = self.shared.as_ref().and_then(|store| store.shared()) {
            let queue = QueueKey {
                namespace: row.namespace.clone(),
                kind: row.kind,
                queue: row.queue.clone(),
            };
            let frees_room = self.dispatch.has_lease_caps(row);
            if frees_room {
                self.dispatch.try_withheld(Some(&row.namespace));
                self.dispatch.disturb(&queue);
                if self.dispatch.is_waited_for(&queue) {
                    self.looks.ask(&queue, NewTasks::All);
                }
            }
            if let Some(options) = &row.worker_session
                && row.status != TaskStatus::Ready
            {
                // Its end makes room in the session, at every server.
                let session = (row.namespace.clone(), options.session_id.clone());
                shared.announce(StoreHints {
                    sessions: BTreeSet::from([session]),
                    ..StoreHints::default()
                });
            }
            let new = (offered == Offered::ToOthers).then(|| row.task_id.clone());
            if new.is_some() || frees_room {
                shared.announce(StoreHints::of_queue(queue, new));
            }
        }
    }

    /// Keeps the row of a leased task; returns the one before it. Beyond the limit only rows that count against a cap are kept.
    fn keep_leased(&self, row: &TaskRow) -> Option<TaskRow> {
        let mut leased = self.leased.lock();
        if self.shared.is_some() {
            return leased.insert_dropping(row);
        }
        if leased.rows.len() >= LEASED_ROWS_MAX
            && !leased.rows.contains_key(&row.task_id)
            && self.dispatch.is_unlimited()
        {
            return None;
        }
        leased.rows.insert(row.task_id.clone(), row.clone())
    }

    /// Returns the row of a leased task, if this process has it.
    pub(crate) fn leased_row(&self, task_id: &TaskId) -> Option<TaskRow> {
        self.leased.lock().rows.get(task_id).cloned()
    }

    /// Watches a run for new events. Register first, check second, wait third.
    pub(crate) fn watch(self: &Arc<Self>, run_id: &RunId) -> Watch {
        let mut watched = self.watched.lock();
        let entry = watched.entry(run_id.clone()).or_insert_with(|| Watched {
            changed: Arc::default(),
            watchers: 0,
            version: 0,
        });
        entry.watchers += 1;
        Watch {
            wakes: Arc::clone(self),
            run_id: run_id.clone(),
            changed: Arc::clone(&entry.changed),
        }
    }
}

/// A registered watch of one run.
pub(crate) struct Watch {
    wakes: Arc<Wakes>,
    run_id: RunId,
    pub(crate) changed: Arc<Notify>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.wakes.watched.lock();
        if let Some(entry) = watched.get_mut(&self.run_id) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                watched.remove(&self.run_id);
            }
        }
    }
}
