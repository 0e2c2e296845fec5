//! The bounds of an evaluation and of the pool of script processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds on one evaluation, and on how many run and wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor time of one evaluation.
    pub cpu: Duration,
    /// Time on the clock of one evaluation, without the time it waits for a process.
    pub wall: Duration,
    /// Memory of one evaluation inside the script engine, with the input.
    pub memory_bytes: u64,
    /// Stack of the script engine. It bounds how deep calls nest.
    pub stack_bytes: usize,
    /// Size of a script and its input together.
    pub input_bytes: usize,
    /// Size of a result as JSON.
    pub result_bytes: usize,
    /// Script processes. Each evaluates one script at a time.
    pub processes: usize,
    /// Evaluations that may wait for a process. One more is refused as busy.
    pub waiting: usize,
    /// How long an evaluation may wait for a process before it is refused as busy.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: Duration::from_secs(1),
            wall: Duration::from_secs(4),
            memory_bytes: 64 << 20,
            // Some thousand nested calls of a small function.
            stack_bytes: 1 << 20,
            // The input becomes objects inside `memory_bytes`, several times as large as its text.
            input_bytes: 8 << 20,
            // Larger than any task output that a definition should pass on.
            result_bytes: 4 << 20,
            // A trivial script takes a fraction of a millisecond. The second process keeps short scripts going beside one long script.
            processes: 2,
            // More than the runs that a server decides at a time.
            waiting: 1024,
            // With two endless scripts running, each waiting one would take its own second. A caller learns soon that this is the case.
            patience: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the bytes that all waiting evaluations may hold together: many small ones, or a few of the largest size.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.input_bytes.saturating_mul(8)
    }

    /// Returns the size of the largest frame to a script process. JSON writes one byte of a script as at most six.
    pub(crate) fn request_bytes(&self) -> usize {
        self.input_bytes
            .saturating_mul(6)
            .saturating_add(FRAME_ROOM)
    }

    /// Returns the size of the largest frame from a script process.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.result_bytes.saturating_add(FRAME_ROOM)
    }
}

/// Room in a frame for everything besides the script, the input or the result; an error text has its own bound below it.
const FRAME_ROOM: usize = 64 << 10;
