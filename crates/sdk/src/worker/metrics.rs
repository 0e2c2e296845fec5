//! The counters of a worker.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The counters of a running worker.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        /// A snapshot of the counters of a worker.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct WorkerMetrics {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> WorkerMetrics {
                WorkerMetrics {
                    $($name: self.$name.0.load(Ordering::Relaxed),)+
                }
            }
        }
    };
}

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

counters! {
    /// Polls sent.
    polls,
    /// Polls that returned no task.
    polls_empty,
    /// Polls that the server throttled because a limit was reached.
    polls_throttled,
    /// Polls that failed.
    polls_failed,
    /// Workflow tasks completed.
    workflow_tasks,
    /// Workflow tasks that failed, because the code does not match the history or panicked.
    workflow_tasks_failed,
    /// Tasks whose lease was lost before the report.
    leases_lost,
    /// Tasks whose run was cancelled or terminated before the report.
    runs_cancelled,
    /// Workflow tasks whose run was in the cache.
    cache_hits,
    /// Workflow tasks whose run was replayed from the beginning.
    cache_misses,
    /// Runs evicted from the cache.
    cache_evictions,
    /// Activities that returned a result.
    activities_completed,
    /// Attempts of activities that failed.
    activities_failed,
    /// Attempts of activities that the server asked to stop.
    activities_cancelled,
    /// Attempts of local activities.
    local_activities,
    /// Queries answered.
    queries,
    /// Updates handled.
    updates,
    /// Updates validated.
    validations,
    /// Sessions renewed in the background.
    session_renewals,
    /// Registrations of the worker.
    registrations,
}
