//! A keeper is a thread that owns one script process and gives it one job at a time.
//!
//! A thread and not a task: starting, killing and reaping a process block, and they must work whatever async runtime the callers use, also
//! while that runtime shuts down.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::frame::{Outcome, Reply};
use super::process::{Lost, Process};
use super::queue::{Job, Queue};
use super::{Failure, Limit};

/// How much later than the script engine the parent acts on the time limit. The engine's own interrupt keeps the process, a kill does not.
const GRACE: Duration = Duration::from_secs(1);

/// A process can die between two jobs, for example by the kernel when memory is short. Scripts change nothing outside, so the job is
/// repeated once with a new process.
const TRIES: u32 = 2;

/// Starts a keeper.
pub(super) fn start(queue: Arc<Queue>) -> io::Result<()> {
    let keeper = Keeper {
        queue,
        process: None,
    };
    std::thread::Builder::new()
        .name("script-keeper".to_owned())
        .spawn(move || keeper.run())
        .map(|_| ())
}

struct Keeper {
    queue: Arc<Queue>,
    process: Option<Process>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.discard();
        self.queue.keeper_ended();
    }
}

impl Keeper {
    fn run(mut self) {
        while let Some(job) = self.queue.next() {
            let Job {
                frame,
                until,
                reply,
            } = job;
            let result = if reply.is_closed() || Instant::now() > until {
                Err(Failure::Busy)
            } else {
                self.evaluate(&frame)
            };
            // The keeper is free before its caller goes on, so that the caller's next job finds it free. The caller may have given up.
            self.queue.job_ended();
            let _ = reply.send(result);
        }
    }

    fn evaluate(&mut self, frame: &[u8]) -> Result<Value, Failure> {
        let mut reason = String::new();
        for _ in 0..TRIES {
            let mut process = self.take_process().map_err(Failure::Unavailable)?;
            let until = Instant::now() + self.queue.limits.wall + GRACE;
            let lost = match process.exchange(frame, until) {
                Ok(bytes) => return self.finish(process, &bytes),
                Err(lost) => lost,
            };
            let id = process.id();
            let status = process.end();
            self.queue.process_ended(id);
            if let Lost::Late = lost {
                return Err(Failure::Limit(Limit::Wall(self.queue.limits.wall)));
            }
            let signal = status.and_then(|status| status.signal());
            if let Some(limit) = self.limit_of(signal) {
                return Err(Failure::Limit(limit));
            }
            reason = format!("the script process ended ({lost:?}, {status:?})");
            tracing::warn!(%reason, "a script process is replaced");
        }
        Err(Failure::Unavailable(reason))
    }

    /// Returns the limit that a signal of the kernel means. Processor time has a signal of its own, an allocation that fails outside the
    /// script engine aborts, and a stack that grows into its guard page is a bad access.
    fn limit_of(&self, signal: Option<i32>) -> Option<Limit> {
        let limits = &self.queue.limits;
        match Signal::try_from(signal?).ok()? {
            Signal::SIGXCPU => Some(Limit::Cpu(limits.cpu)),
            Signal::SIGABRT => Some(Limit::Memory(limits.memory_bytes)),
            Signal::SIGSEGV | Signal::SIGBUS => Some(Limit::Stack(limits.stack_bytes)),
            _ => None,
        }
    }

    /// Returns the warm process, or starts one.
    fn take_process(&mut self) -> Result<Process, String> {
        if let Some(process) = self.process.take() {
            return Ok(process);
        }
        let process = Process::start(&self.queue.limits)?;
        self.queue.process_began(process.id());
        Ok(process)
    }

    /// Reads an answer, and keeps the process if it can be used again.
    fn finish(&mut self, process: Process, bytes: &[u8]) -> Result<Value, Failure> {
        self.process = Some(process);
        let reply: Reply = match serde_json::from_slice(bytes) {
            Ok(reply) => reply,
            Err(error) => {
                self.discard();
                let reason = format!("the answer of the script process is not valid: {error}");
                return Err(Failure::Unavailable(reason));
            }
        };
        if reply.retires {
            self.discard();
        }
        match reply.outcome {
            Outcome::Value(value) => Ok(value),
            Outcome::Thrown { message, line } => Err(Failure::Script { message, line }),
            Outcome::Limit(limit) => Err(Failure::Limit(limit)),
        }
    }

    fn discard(&mut self) {
        if let Some(process) = self.process.take() {
            let id = process.id();
            drop(process);
            self.queue.process_ended(id);
        }
    }
}
