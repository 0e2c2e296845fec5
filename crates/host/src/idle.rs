//! Whether anything can happen without time passing. For tests that move the clock: they move it when the answer is no.
//!
//! These act in a host: requests, which the caller counts; the sweeps of runs and of sessions, which report here when they
//! wait; the outbox; and tasks that the server runs itself, which count as work. The holder of a lease may act at any time, so leases are listed by task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_engine::run::advance_time::next_due;
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;
use longhaul_store::{DueLimits, LeaseFilter};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::Host;
use crate::error::Result;

/// The sweeps that keep a host busy: of runs and of sessions.
const SWEEPS: usize = 2;

/// After this, matching checks uncertain sessions again (`sweeps/sessions.rs`).
const RECHECK_SECONDS: u64 = 1;

/// A host in which nothing happens before [`Idle::due_at`], except requests and reports of lease holders.
#[derive(Clone, Debug)]
pub struct Idle {
    /// Polls that wait for a task. A poll in flight that is not among these may be about to get one.
    pub polls_waiting: usize,
    /// Tasks whose holders have not reported yet.
    pub leased: Vec<TaskId>,
    /// The next time at which time itself causes something: a timer, a timeout, the end of a back-off or of a lease.
    pub due_at: Option<Timestamp>,
}

/// Counts the sweeps that are working now.
pub(crate) struct IdleTracker {
    working: AtomicUsize,
    changed: Notify,
}

impl Default for IdleTracker {
    fn default() -> Self {
        Self {
            // A sweep that has not begun has all of its work left.
            working: AtomicUsize::new(SWEEPS),
            changed: Notify::new(),
        }
    }
}

impl IdleTracker {
    /// Runs the wait of a sweep. The sweep counts as working again before the wait returns.
    pub(crate) async fn during<T>(&self, waiting: impl Future<Output = T>) -> T {
        struct Back<'a>(&'a AtomicUsize);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.working.fetch_sub(1, Ordering::SeqCst);
        let _back = Back(&self.working);
        self.notify();
        waiting.await
    }

    /// Counts as work until the returned value is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.working.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    /// Notifies waiters that something may have become idle.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }
}

/// Something in the host that works.
pub(crate) struct Busy(Arc<IdleTracker>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::SeqCst);
        self.0.notify();
    }
}

impl Host {
    /// Returns a snapshot if the host is idle, otherwise `None`. For tests.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn idle(&self) -> Result<Option<Idle>> {
        let store = &self.inner.store;
        let all = DueLimits {
            runs: usize::MAX,
            sessions: usize::MAX,
        };
        let timed = store.due(Timestamp::MAX, all).await?;
        let mut due: Vec<Timestamp> = timed
            .sessions
            .iter()
            .filter_map(Session::deadline)
            .collect();
        // Alarms may be early. If a test moves the clock there are few runs, and each is checked.
        for run_id in timed.runs {
            if let Some(run) = self.inner.executor.read(&run_id).await? {
                due.extend(next_due(&run, self.inner.executor.moment()));
            }
        }
        // Read from the store: hints after commits can arrive out of order.
        let leased = store
            .leased_tasks(&LeaseFilter::default(), usize::MAX)
            .await?;
        let (wakes, now) = (&self.inner.wakes, self.now());
        if wakes.dispatch.has_set_aside() {
            due.push(now.plus_seconds(RECHECK_SECONDS));
        }
        due.extend(wakes.dispatch.window_room_at());
        let due_at = due.into_iter().min();
        // The next checks first: a sweep that starts to work in between is seen as working.
        let moves = wakes.run_check.is_due(now)
            || wakes.session_check.is_due(now)
            || wakes.idle.working.load(Ordering::SeqCst) > 0
            || !wakes.outbox.is_empty()
            || due_at.is_some_and(|at| at <= now);
        // A poll of the server's own that got a task is followed by work.
        let is_waited_for = |queue: &_| wakes.dispatch.is_waited_for(queue);
        let Some(own_polls) = self.inner.own_polls.waiting(is_waited_for) else {
            return Ok(None);
        };
        let waiting = wakes.dispatch.waiting() + self.inner.queries.dispatch.waiting();
        Ok((!moves).then(|| Idle {
            polls_waiting: waiting.saturating_sub(own_polls),
            leased: leased.into_iter().map(|row| row.task_id).collect(),
            due_at,
        }))
    }

    /// Resolves when something has become idle since this was called. For tests: enable it, call [`Self::idle`], then wait.
    pub fn became_idle(&self) -> Notified<'_> {
        self.inner.wakes.idle.changed.notified()
    }
}
