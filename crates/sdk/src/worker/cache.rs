//! A cache of runs between two of their tasks.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::metrics::Counters;
use crate::workflow::Execution;

/// A cache of at most `capacity` runs. The least recently used run is evicted first.
pub(super) struct Cache {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: HashMap<String, (u64, Execution)>,
    /// Run ids in the order in which they were added.
    order: BTreeMap<u64, String>,
    clock: u64,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
        }
    }

    /// Removes and returns a run. A run has one open task at a time, so there is one user.
    pub(super) fn take(&self, run_id: &str) -> Option<Execution> {
        let mut state = self.state.lock();
        let (used, execution) = state.runs.remove(run_id)?;
        state.order.remove(&used);
        Some(execution)
    }

    /// Adds a run. Returns whether the cache keeps it.
    pub(super) fn put(&self, run_id: &str, execution: Execution, counters: &Counters) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let evicted = {
            let mut state = self.state.lock();
            state.clock += 1;
            let clock = state.clock;
            state.order.insert(clock, run_id.to_owned());
            let replaced = state.runs.insert(run_id.to_owned(), (clock, execution));
            if let Some((used, _)) = &replaced {
                state.order.remove(used);
            }
            let oldest = (state.runs.len() > self.capacity)
                .then(|| state.order.pop_first())
                .flatten();
            oldest.and_then(|(_, run_id)| state.runs.remove(&run_id))
        };
        // Dropping the future may run user code, so it is dropped after the lock is released.
        if evicted.is_some() {
            counters.cache_evictions.add();
        }
        true
    }

    pub(super) fn holds_any(&self) -> bool {
        self.capacity > 0
    }
}
