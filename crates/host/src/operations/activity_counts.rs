//! Activities in numbers, for operators: the open ones, read from the open runs, and events since the server started, counted as
//! they were committed. Local activities are counted separately from those that wait in queues.

use std::collections::HashMap;

use longhaul_engine::RunChange;
use longhaul_engine::run::state::{Part, Program, Run};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::Event;
use longhaul_protocol::id::Namespace;
use longhaul_store::{RunFilter, StatusFilter};
use parking_lot::Mutex;

use crate::error::Result;
use crate::views::ActivityTasks;

/// Open runs that are read; beyond them the numbers are marked as incomplete.
const RUNS_MAX: usize = 10_000;

/// Runs read at a time.
const PAGE: usize = 500;

/// The latest position of the marker of a local activity; arguments, which can be long, come after it.
const MARKER_BYTES_MAX: usize = 4096;

/// Open activities, and past events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityCounts {
    pub queued: OpenActivities,
    pub local: OpenActivities,
    /// Open ones that had an earlier attempt.
    pub retrying: u64,
    /// Open ones past a deadline that is not applied yet.
    pub timeout_overdue: u64,
    /// The most attempts of an open one.
    pub max_attempt_count: u64,
    pub queued_totals: ActivityTotals,
    pub local_totals: ActivityTotals,
    /// Whether every open run was read.
    pub is_whole: bool,
}

/// Activities that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenActivities {
    pub pending: u64,
    pub running: u64,
}

/// Counted since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActivityTotals {
    pub scheduled: u64,
    pub attempts: u64,
    pub failed_attempts: u64,
}

#[derive(Default)]
pub(crate) struct Totals {
    by_namespace: Mutex<HashMap<Namespace, (ActivityTotals, ActivityTotals)>>,
}

impl Totals {
    /// Counts a commit, and calls `on_local` for each count of a local activity.
    pub(crate) fn committed(&self, change: &RunChange, on_local: impl Fn(&'static str)) {
        let mut activity = change
            .events
            .iter()
            .filter(|event| event.event_type.starts_with("Activity"))
            .peekable();
        if activity.peek().is_none() {
            return;
        }
        let mut by_namespace = self.by_namespace.lock();
        let (queued, local) = match by_namespace.get_mut(&change.spec.namespace) {
            Some(totals) => totals,
            None => by_namespace
                .entry(change.spec.namespace.clone())
                .or_default(),
        };
        for event in activity {
            if is_local(event) {
                if let Some(kind) = local.count(event) {
                    on_local(kind);
                }
            } else {
                queued.count(event);
            }
        }
    }

    fn of(&self, namespace: &Namespace) -> (ActivityTotals, ActivityTotals) {
        self.by_namespace
            .lock()
            .get(namespace)
            .copied()
            .unwrap_or_default()
    }
}

fn is_local(event: &Event) -> bool {
    let payload = event.payload.get(..MARKER_BYTES_MAX);
    payload
        .unwrap_or(&event.payload)
        .contains(r#""execution_mode":"local""#)
}

impl ActivityTotals {
    /// Returns what it was counted as, if it was.
    fn count(&mut self, event: &Event) -> Option<&'static str> {
        let (counter, kind) = match event.event_type {
            "ActivityScheduled" => (&mut self.scheduled, "scheduled"),
            "ActivityStarted" => (&mut self.attempts, "attempts"),
            "ActivityRetryScheduled" | "ActivityFailed" | "ActivityTimedOut" => {
                (&mut self.failed_attempts, "failed_attempts")
            }
            _ => return None,
        };
        *counter += 1;
        Some(kind)
    }
}

impl OpenActivities {
    pub fn open(&self) -> u64 {
        self.pending + self.running
    }

    fn count(&mut self, is_running: bool) {
        if is_running {
            self.running += 1;
        } else {
            self.pending += 1;
        }
    }
}

impl ActivityCounts {
    fn look(&mut self, run: &Run, now: Timestamp) {
        let passed = |deadline: Option<Timestamp>| deadline.is_some_and(|at| at <= now);
        for part in run.parts.values() {
            let (attempts, is_running, overdue) = match part {
                Part::Activity(activity) => {
                    let attempt = activity.attempt.as_ref();
                    self.queued.count(attempt.is_some());
                    let overdue = passed(activity.schedule_to_close_deadline_at)
                        || passed(activity.schedule_deadline_at)
                        || attempt.is_some_and(|attempt| {
                            passed(attempt.close_deadline_at)
                                || passed(attempt.heartbeat_deadline_at)
                        });
                    (activity.attempt_count, attempt.is_some(), overdue)
                }
                Part::LocalActivity(local) => {
                    let attempt = local.attempt.as_ref();
                    self.local.count(attempt.is_some());
                    let overdue = passed(local.schedule_to_close_deadline_at)
                        || attempt.is_some_and(|attempt| {
                            passed(attempt.close_deadline_at)
                                || passed(attempt.heartbeat_deadline_at)
                        });
                    (local.attempt_count, attempt.is_some(), overdue)
                }
                _ => continue,
            };
            self.retrying += u64::from(attempts > u64::from(is_running));
            self.timeout_overdue += u64::from(overdue);
            self.max_attempt_count = self.max_attempt_count.max(attempts);
        }
    }
}

impl ActivityTasks<'_> {
    /// Returns the activities of a namespace in numbers.
    pub async fn counts(self, namespace: &Namespace) -> Result<ActivityCounts> {
        let mut counts = ActivityCounts::default();
        (counts.queued_totals, counts.local_totals) =
            self.host.inner.wakes.metrics.activities.of(namespace);
        let now = self.host.now();
        let mut after = None;
        let mut left = RUNS_MAX;
        while left > 0 {
            let limit = left.min(PAGE);
            let filter = RunFilter {
                namespace: namespace.clone(),
                program: Some(Program::Code),
                workflow_type: None,
                status: Some(StatusFilter::Running),
                condition: None,
                after: after.take(),
                limit,
            };
            let page = self.host.inner.store.list_runs(&filter).await?;
            for row in &page {
                if let Some(run) = self.host.inner.executor.read(&row.run_id).await? {
                    counts.look(&run, now);
                }
            }
            if page.len() < limit {
                counts.is_whole = true;
                break;
            }
            left -= page.len();
            after = page.last().map(|row| (row.started_at, row.run_id.clone()));
        }
        Ok(counts)
    }
}
