//! A watch over native code that has no interrupt check and no bound on memory.
//!
//! A second thread looks at the clock and at the memory of the process while the work runs, and ends the process by the signal that the
//! parent reads as the limit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};

use super::budget::cpu_used;
use super::sandbox::Meter;
use crate::script::frame::Outcome;
use crate::script::{Limit, Limits};

/// How often the watch looks. A program allocates some ten megabytes meanwhile.
const WATCH_EVERY: Duration = Duration::from_millis(5);

/// Does work under the watch. A panic is an error of the work.
pub(super) fn watched(
    limits: &Limits,
    meter: &Meter,
    work: impl FnOnce() -> Outcome<Vec<u8>>,
) -> Outcome<Vec<u8>> {
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watching =
            std::thread::Builder::new().spawn_scoped(scope, move || watch(limits, meter, &ended));
        if watching.is_err() {
            return Outcome::Limit(Limit::Memory(limits.memory_bytes));
        }
        let outcome = catch_unwind(AssertUnwindSafe(work));
        drop(end);
        outcome.unwrap_or_else(|_| Outcome::Thrown {
            message: "the interpreter failed".to_owned(),
            line: None,
        })
    })
}

/// Ends the process when the work has used up its processor time or its memory. Returns when the work has ended.
fn watch(limits: &Limits, meter: &Meter, ended: &mpsc::Receiver<()>) {
    let cpu_end = cpu_used().saturating_add(limits.cpu);
    let memory_end = meter
        .current()
        .map_or(u64::MAX, |now| now.saturating_add(limits.memory_bytes));
    while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(WATCH_EVERY) {
        if cpu_used() >= cpu_end {
            let _ = raise(Signal::SIGXCPU);
        }
        if meter.current().is_ok_and(|now| now > memory_end) {
            std::process::abort();
        }
    }
}
