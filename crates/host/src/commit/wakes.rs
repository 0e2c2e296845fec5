//! Hints after a commit: polls waiting for a queue, callers waiting for a run, the alarm loop. Losing one costs latency, never
//! correctness. A waiter registers before it checks, so nothing is missed in between.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::RunChange;
use longhaul_engine::change::{TaskRow, TaskStatus};
use longhaul_engine::session::Session;
use longhaul_protocol::id::{RunId, TaskId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::idle::IdleTracker;
use crate::matching::dispatch::{Dispatch, Granted};
use crate::matching::poll_dedup::Polls;
use crate::metrics::Metrics;
use crate::sweeps::alarms::NextCheck;
use crate::sweeps::outbox::Outbox;

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
    pub(crate) idle: IdleTracker,
    worker_stale_seconds: u64,
    /// Rows of leased tasks: reports arrive by task id, and this saves a read for each.
    leased: Mutex<HashMap<TaskId, TaskRow>>,
    watched: Mutex<HashMap<RunId, Watched>>,
}

struct Watched {
    changed: Arc<Notify>,
    watchers: usize,
}

impl Wakes {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        dispatch: Dispatch,
        worker_stale_seconds: u64,
    ) -> Self {
        Self {
            dispatch,
            run_check: NextCheck::default(),
            session_check: NextCheck::default(),
            polls: Arc::default(),
            metrics,
            outbox: Outbox::default(),
            idle: IdleTracker::default(),
            worker_stale_seconds,
            leased: Mutex::default(),
            watched: Mutex::default(),
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
        if !change.events.is_empty()
            && let Some(watched) = self.watched.lock().get(&change.spec.run_id)
        {
            watched.changed.notify_waiters();
        }
    }

    /// Records a durable task row.
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
        let leased = self.leased.lock().remove(&row.task_id);
        self.polls.released(&row.task_id);
        self.dispatch.update(row);
        if let Some(leased) = leased {
            self.dispatch.lease_ended(&leased);
        }
    }

    /// Keeps the row of a leased task; returns the one before it. Beyond the limit only rows that count against a cap are kept.
    fn keep_leased(&self, row: &TaskRow) -> Option<TaskRow> {
        let mut leased = self.leased.lock();
        if leased.len() >= LEASED_ROWS_MAX
            && !leased.contains_key(&row.task_id)
            && self.dispatch.is_unlimited()
        {
            return None;
        }
        leased.insert(row.task_id.clone(), row.clone())
    }

    /// Returns the row of a leased task, if this process has it.
    pub(crate) fn leased_row(&self, task_id: &TaskId) -> Option<TaskRow> {
        self.leased.lock().get(task_id).cloned()
    }

    /// Watches a run for new events. Register first, check second, wait third.
    pub(crate) fn watch(self: &Arc<Self>, run_id: &RunId) -> Watch {
        let mut watched = self.watched.lock();
        let entry = watched.entry(run_id.clone()).or_insert_with(|| Watched {
            changed: Arc::default(),
            watchers: 0,
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
