//! The time of one evaluation, asked by the script engine's interrupt check.
//!
//! One native call may not reach that check for a long time. The kernel's bound on processor time ends the process then, at the next whole
//! second after the limit. It also ends a script whose parent is gone.

use std::cell::Cell;
use std::time::{Duration, Instant};

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::time::{ClockId, clock_gettime};

use crate::script::{Limit, Limits};

/// The time left to the running evaluation.
pub(super) struct Budget {
    cpu: Duration,
    wall: Duration,
    cpu_end: Cell<Duration>,
    wall_end: Cell<Option<Instant>>,
    reached: Cell<Option<Limit>>,
}

impl Budget {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            cpu: limits.cpu,
            wall: limits.wall,
            cpu_end: Cell::new(Duration::MAX),
            wall_end: Cell::new(None),
            reached: Cell::new(None),
        }
    }

    /// Begins an evaluation.
    pub(super) fn start(&self) {
        let cpu_end = cpu_used().saturating_add(self.cpu);
        self.cpu_end.set(cpu_end);
        self.wall_end.set(Instant::now().checked_add(self.wall));
        self.reached.set(None);
        // At least a second later: the interrupt of the script comes first, and the process stays.
        bound_cpu(cpu_end.as_secs().saturating_add(2));
    }

    /// Ends an evaluation: what the process does now is not counted.
    pub(super) fn stop(&self) {
        self.cpu_end.set(Duration::MAX);
        self.wall_end.set(None);
        bound_cpu(RLIM_INFINITY);
    }

    /// Returns whether the evaluation must end, and remembers why.
    pub(super) fn is_spent(&self) -> bool {
        if self.reached.get().is_some() {
            return true;
        }
        if cpu_used() >= self.cpu_end.get() {
            self.reached.set(Some(Limit::Cpu(self.cpu)));
        } else if self.wall_end.get().is_some_and(|end| Instant::now() >= end) {
            self.reached.set(Some(Limit::Wall(self.wall)));
        }
        self.reached.get().is_some()
    }

    /// Returns the limit that the evaluation reached.
    pub(super) fn reached(&self) -> Option<Limit> {
        self.reached.get()
    }
}

/// Returns the processor time that this process has used.
pub(super) fn cpu_used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Sets the whole seconds of processor time after which the kernel ends the process.
fn bound_cpu(seconds: u64) {
    // The bound is the second line of defence; if it cannot be set, the parent's clock remains.
    let _ = setrlimit(Resource::RLIMIT_CPU, seconds, RLIM_INFINITY);
}
