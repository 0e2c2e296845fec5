//! Runs in memory, bounded in number and bytes. A copy of the stored runs: dropping a run costs one read, never more. Each change
//! updates the weight of its run by what it adds and removes, so only a read of a whole run walks all of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_engine::RunChange;
use longhaul_engine::change::Replaced;
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
    /// Another server changed the run since. The copy is what was stored at its version.
    is_stale: bool,
    /// What the newest change replaced, in case its commit is refused. One is enough: if other servers write too, a decision waits for
    /// the commit before it.
    replaced: Option<Replaced>,
    /// The number of the newest change.
    changes: u64,
}

impl CellState {
    /// Takes the copy out, if there is one, and forgets what belongs to it. All its changes must be stored.
    pub(crate) fn take_copy(&mut self) -> Option<Box<Run>> {
        self.tail = None;
        self.is_stale = false;
        self.replaced = None;
        self.run.take().map(Box::new)
    }

    /// Replaces the copy by what is stored.
    pub(crate) fn put_stored(&mut self, run: Option<Run>) {
        self.take_copy();
        self.run = run;
    }

    /// Returns whether the store has to be read before a decision.
    pub(crate) fn must_read(&self) -> bool {
        self.run.is_none() || self.is_stale
    }

    /// Returns the number of the newest change.
    pub(crate) fn newest_change(&self) -> u64 {
        self.changes
    }

    /// Applies a change that can be undone. Returns its new weight, given its weight before.
    fn apply_undoably(&mut self, change: &RunChange, weight_before: u64) -> u64 {
        self.changes += 1;
        let Some(run) = self.run.take() else {
            return self.apply(change, weight_before);
        };
        let removed = weight_replaced(&run, change);
        let (run, replaced) = change.apply_to(run);
        self.run = Some(run);
        self.replaced = Some(replaced);
        (weight_before + weight_added(change)).saturating_sub(removed)
    }

    /// Undoes a change whose commit was refused. The copy is then as it was stored, and older than what is stored now.
    fn undo(&mut self, number: u64) {
        if number != self.changes {
            // The next decision noticed the refusal first, and was based on what is stored.
            return;
        }
        let Some(replaced) = self.replaced.take() else {
            return;
        };
        self.run = self.run.take().map(|run| replaced.restore(run));
        self.tail = None;
        self.is_stale = true;
    }

    /// Applies a change to the run. Returns its new weight, given its weight before.
    fn apply(&mut self, change: &RunChange, weight_before: u64) -> u64 {
        let before = self.run.take();
        let removed = before.as_ref().map(|run| weight_replaced(run, change));
        let run = change.apply(before);
        let weight_now = match removed {
            None => weight_of_run(&run),
            Some(removed) => (weight_before + weight_added(change)).saturating_sub(removed),
        };
        self.run = Some(run);
        weight_now
    }
}

/// Returns the weight of what a change replaces in a run.
fn weight_replaced(run: &Run, change: &RunChange) -> u64 {
    let parts = change.parts.iter();
    let replaced = parts.filter_map(|(key, _)| run.parts.get(key));
    weight(&run.core) + replaced.map(weight).sum::<u64>()
}

/// Returns the weight of what a change adds to a run.
fn weight_added(change: &RunChange) -> u64 {
    let parts = change.parts.iter();
    let added = parts.filter_map(|(_, part)| part.as_ref());
    weight(&change.core) + added.map(weight).sum::<u64>()
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
            tail: Some(commit.clone()),
            ..CellState::default()
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

    /// As [`Self::apply`]. If the commit is refused because another server was first, the change is undone.
    pub(crate) fn apply_undoably(&self, cell: &Cell, state: &mut CellState, change: &RunChange) {
        let before = cell.weight.load(Ordering::Relaxed);
        let now = state.apply_undoably(change, before);
        self.weigh(cell, now);
    }

    /// Undoes a change whose commit was refused because another server was first.
    pub(crate) fn undo(&self, cell: &Cell, state: &mut CellState, number: u64) {
        state.undo(number);
        self.reloaded(cell, state);
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

    /// Marks a copy that is older than this version, unless it is in use. One in use is checked by its commit.
    pub(crate) fn mark_older(&self, run_id: &RunId, version: u64) {
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
            state.is_stale = true;
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
