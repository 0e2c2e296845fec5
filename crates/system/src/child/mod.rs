//! A script process: it reads a request, evaluates the script, writes the answer, until its input ends.
//!
//! This runs instead of `main`, inside the hook. The parent holds the other end of the input, so the process ends with its parent.

mod budget;
mod convert;
mod engine;
mod jq;
mod natives;
mod sandbox;
mod schema;
mod thrown;
mod watch;

use std::io;

use crate::script::{Limits, frame};

/// Stack beside the part that the script engine may use, for native calls that begin at its end and for the conversion of results.
const STACK_RESERVE: usize = 1 << 20;

/// Serves requests until the input ends. Returns the exit code.
pub(crate) fn run() -> i32 {
    match serve() {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

fn serve() -> io::Result<()> {
    let first = frame::read(&mut io::stdin().lock(), frame::LIMITS_BYTES_MAX)?;
    let limits: Limits = serde_json::from_slice(&first)?;
    let meter = sandbox::enter(&limits)?;
    // A thread has a stack of a known size; the first thread's depends on the system. A panic ends the thread and not the caller.
    let thread = std::thread::Builder::new()
        .stack_size(limits.stack_bytes.saturating_add(STACK_RESERVE))
        .spawn(move || engine::serve(&limits, meter))?;
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the script thread ended")))
}
