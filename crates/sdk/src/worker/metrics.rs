//! What a worker counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Counters of a running worker.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        /// What a worker has counted since it was made.
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

/// One number that grows.
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
    /// Polls that ended without a task.
    polls_empty,
    /// Polls the server held back because a limit was reached.
    polls_throttled,
    /// Polls that failed, for whatever reason, and were repeated.
    polls_failed,
    /// Workflow tasks answered.
    workflow_tasks,
    /// Workflow tasks that could not be answered: the code and the history do not fit, or the code panicked.
    workflow_tasks_failed,
    /// Tasks whose lease was lost before the answer: another worker has them.
    leases_lost,
    /// Tasks whose run was cancelled or terminated meanwhile.
    runs_cancelled,
    /// Runs found in memory.
    cache_hits,
    /// Runs replayed from the beginning of their history.
    cache_misses,
    /// Runs dropped from memory to make room.
    cache_evictions,
    /// Activities that returned a result.
    activities_completed,
    /// Attempts of activities that failed.
    activities_failed,
    /// Attempts that were told to stop.
    activities_cancelled,
    /// Attempts of local activities.
    local_activities,
    /// Queries answered.
    queries,
    /// Updates handled.
    updates,
    /// Updates looked at by a validator.
    validations,
    /// Sessions renewed in the background.
    session_renewals,
    /// Times the worker had to register again.
    registrations,
}
