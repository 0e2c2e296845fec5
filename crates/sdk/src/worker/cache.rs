//! Runs that the worker keeps in memory between two of their tasks.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::metrics::Counters;
use crate::workflow::Execution;

/// At most so many runs; the one that was used longest ago goes first.
pub(super) struct Cache {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    runs: HashMap<String, (u64, Execution)>,
    /// Run ids by when they were put in.
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

    /// Takes a run out. Whoever has it is the only one: a task holds the run's lease.
    pub(super) fn take(&self, run_id: &str) -> Option<Execution> {
        let mut state = self.state.lock();
        let (used, execution) = state.runs.remove(run_id)?;
        state.order.remove(&used);
        Some(execution)
    }

    /// Puts a run in. Whether it is kept.
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
        // User code may run when its future is dropped: not under the lock.
        if evicted.is_some() {
            counters.cache_evictions.add();
        }
        true
    }

    pub(super) fn holds_any(&self) -> bool {
        self.capacity > 0
    }
}
