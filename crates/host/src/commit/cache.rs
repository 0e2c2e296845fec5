//! Runs in memory, bounded in number and bytes. A copy of the stored runs: dropping a run costs one read, never more. Each change
//! updates the weight of its run by what it adds and removes, so only a read of a whole run walks all of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_engine::RunChange;
use longhaul_engine::run::state::Run;
use longhaul_protocol::id::RunId;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::commit::hints::{Commit, Hints};
use crate::commit::weight::{weight, weight_of_run};

/// Runs kept in memory, however small they are. More are of little use: a miss costs one read.
const CACHED_RUNS_MAX: usize = 20_000;

/// Bytes of runs kept in memory unless configured: 20,000 ordinary runs of a few kilobytes, or some dozens with large inputs.
pub(crate) const CACHED_BYTES_DEFAULT: u64 = 128 << 20;

pub(crate) struct Cache {
    bytes_max: u64,
    cells: Mutex<Cells>,
}

struct Cells {
    by_run: HashMap<RunId, Arc<Cell>>,
    /// Counts uses, to find the least recently used run.
    clock: u64,
    /// The weight of the runs here.
    bytes: u64,
    /// Runs are dropped above this weight: the limit, or more while runs in use alone exceed it.
    make_room_above: u64,
}

/// One run and its lock.
pub(crate) struct Cell {
    pub(crate) state: AsyncMutex<CellState>,
    pub(crate) hints: Arc<Hints>,
    used: AtomicU64,
    weight: AtomicU64,
}

#[derive(Default)]
pub(crate) struct CellState {
    pub(crate) run: Option<Run>,
    /// The newest commit of this run that this process handed to the store.
    pub(crate) tail: Option<Commit>,
}

impl CellState {
    /// Applies a change to the run. Returns its new weight, given its weight before.
    fn apply(&mut self, change: &RunChange, weight_before: u64) -> u64 {
        let before = self.run.take();
        let parts = change.parts.iter();
        let removed: u64 = match &before {
            Some(run) => {
                let replaced = parts.clone().filter_map(|(key, _)| run.parts.get(key));
                weight(&run.core) + replaced.map(weight).sum::<u64>()
            }
            None => 0,
        };
        let is_new = before.is_none();
        let run = change.apply(before);
        let weight_now = if is_new {
            weight_of_run(&run)
        } else {
            let added = parts.filter_map(|(_, part)| part.as_ref()).map(weight);
            (weight_before + weight(&change.core) + added.sum::<u64>()).saturating_sub(removed)
        };
        self.run = Some(run);
        weight_now
    }
}

impl Cell {
    /// Returns whether this copy can be dropped: it is not in use, and everything that was written to it is known to be durable.
    fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
            && self.hints.is_empty()
            && self.state.try_lock().is_ok_and(|state| {
                let tail = state.tail.as_ref();
                tail.is_none_or(|commit| commit.peek().is_some())
            })
    }
}

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            cells: Mutex::new(Cells {
                by_run: HashMap::new(),
                clock: 0,
                bytes: 0,
                make_room_above: bytes_max,
            }),
        }
    }

    /// Returns the cell of the run, creating it if it does not exist.
    pub(crate) fn cell(&self, run_id: &RunId) -> Arc<Cell> {
        let mut cells = self.cells.lock();
        cells.clock += 1;
        let clock = cells.clock;
        if let Some(cell) = cells.by_run.get(run_id) {
            cell.used.store(clock, Ordering::Relaxed);
            return Arc::clone(cell);
        }
        let dropped = cells.make_room(self.bytes_max);
        let cell = Arc::new(Cell {
            state: AsyncMutex::default(),
            hints: Arc::default(),
            used: AtomicU64::new(clock),
            weight: AtomicU64::new(0),
        });
        cells.by_run.insert(run_id.clone(), Arc::clone(&cell));
        drop(cells);
        drop(dropped);
        cell
    }

    /// Adds a run that a pending commit creates.
    pub(crate) fn add_created(
        &self,
        created: &RunChange,
        commit: &Commit,
        hints: Arc<Hints>,
    ) -> Arc<Cell> {
        let mut state = CellState {
            run: None,
            tail: Some(commit.clone()),
        };
        let weight = state.apply(created, 0);
        let mut cells = self.cells.lock();
        cells.clock += 1;
        let cell = Arc::new(Cell {
            state: AsyncMutex::new(state),
            hints,
            used: AtomicU64::new(cells.clock),
            weight: AtomicU64::new(weight),
        });
        cells.bytes += weight;
        let run_id = created.spec.run_id.clone();
        let replaced = cells.by_run.insert(run_id, Arc::clone(&cell));
        if let Some(replaced) = &replaced {
            cells.lighten(replaced);
        }
        let dropped = cells.make_room(self.bytes_max);
        drop(cells);
        drop((replaced, dropped));
        cell
    }

    /// Applies a change to the cell's run and records its new weight.
    pub(crate) fn apply(&self, cell: &Cell, state: &mut CellState, change: &RunChange) {
        let before = cell.weight.load(Ordering::Relaxed);
        let now = state.apply(change, before);
        self.weigh(cell, now);
    }

    /// Records the weight of a cell that holds a different run than before, or none.
    pub(crate) fn reloaded(&self, cell: &Cell, state: &CellState) {
        self.weigh(cell, state.run.as_ref().map_or(0, weight_of_run));
    }

    fn weigh(&self, cell: &Cell, weight: u64) {
        let before = cell.weight.swap(weight, Ordering::Relaxed);
        if before == weight {
            return;
        }
        let mut cells = self.cells.lock();
        cells.bytes = (cells.bytes + weight).saturating_sub(before);
        let dropped = cells.make_room(self.bytes_max);
        drop(cells);
        drop(dropped);
    }

    /// Drops a copy that is older than this version, unless it is in use. One in use is checked by its commit.
    pub(crate) fn drop_older(&self, run_id: &RunId, version: u64) {
        let Some(cell) = self.cells.lock().by_run.get(run_id).map(Arc::clone) else {
            return;
        };
        let Ok(mut state) = cell.state.try_lock() else {
            return;
        };
        let is_older = state.run.as_ref().is_some_and(|run| run.version < version);
        let is_durable = state
            .tail
            .as_ref()
            .is_none_or(|commit| commit.peek().is_some());
        if is_older && is_durable {
            state.run = None;
            state.tail = None;
            self.reloaded(&cell, &state);
        }
    }

    pub(crate) fn remove(&self, run_id: &RunId) {
        let mut cells = self.cells.lock();
        let removed = cells.by_run.remove(run_id);
        if let Some(removed) = &removed {
            cells.lighten(removed);
        }
        drop(cells);
    }

    /// Returns the number of runs in memory and their weight.
    pub(crate) fn size(&self) -> (usize, u64) {
        let cells = self.cells.lock();
        (cells.by_run.len(), cells.bytes)
    }
}

impl Cells {
    fn lighten(&mut self, removed: &Cell) {
        let weight = removed.weight.load(Ordering::Relaxed);
        self.bytes = self.bytes.saturating_sub(weight);
    }

    /// Drops the least recently used runs if they are too many or too heavy, far enough that it need not be repeated soon. A cell
    /// in use stays. The cell used last stays too: a run that is heavier than the limit would otherwise be read again for every
    /// command. The caller frees the dropped cells, after it has released the lock.
    fn make_room(&mut self, bytes_max: u64) -> Vec<Arc<Cell>> {
        let too_many = self.by_run.len() >= CACHED_RUNS_MAX;
        if !too_many && self.bytes <= self.make_room_above {
            return Vec::new();
        }
        let runs_kept = if too_many {
            CACHED_RUNS_MAX / 2
        } else {
            CACHED_RUNS_MAX
        };
        let bytes_kept = bytes_max - bytes_max / 4;
        let mut used: Vec<(u64, u64)> = self
            .by_run
            .values()
            .map(|cell| {
                let used = cell.used.load(Ordering::Relaxed);
                (used, cell.weight.load(Ordering::Relaxed))
            })
            .collect();
        used.sort_unstable_by_key(|(used, _)| std::cmp::Reverse(*used));
        let mut bytes = 0;
        let too_old = used.iter().enumerate().find_map(|(place, (used, weight))| {
            bytes += weight;
            let is_over = place >= runs_kept || bytes > bytes_kept;
            (place > 0 && is_over).then_some(*used)
        });
        let mut dropped = Vec::new();
        if let Some(too_old) = too_old {
            self.by_run.retain(|_, cell| {
                let stays = cell.used.load(Ordering::Relaxed) > too_old || !cell.is_idle();
                if !stays {
                    dropped.push(Arc::clone(cell));
                }
                stays
            });
        }
        // Computed again from all cells, so that an error in the running sum cannot last.
        let weights = self.by_run.values();
        self.bytes = weights
            .map(|cell| cell.weight.load(Ordering::Relaxed))
            .sum();
        self.make_room_above = bytes_max.max(self.bytes + bytes_max / 4);
        dropped
    }
}
