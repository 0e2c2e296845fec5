//! Evaluations that wait for a process, and the keepers that take them. Bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{Failure, Limits, keeper};

/// One evaluation, as a frame for a script process.
pub(super) struct Job {
    pub(super) frame: Vec<u8>,
    /// The moment after which the caller gets `Busy` instead of a process.
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<Result<Value, Failure>>,
}

/// The waiting evaluations of a pool.
pub(super) struct Queue {
    pub(super) limits: Limits,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Threads that own a process each.
    keepers: usize,
    /// Keepers without a job: they wait for one, or are about to.
    idle: usize,
    closed: bool,
    /// Ids of the running processes.
    processes: Vec<u32>,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Adds a job, and starts a keeper if all of them are busy and another one is allowed.
    pub(super) fn push(self: &Arc<Self>, job: Job) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if !self.has_room(&state, &job) {
            // Callers that gave up leave their jobs behind.
            state.jobs.retain(|job| !job.reply.is_closed());
            state.bytes = state.jobs.iter().map(|job| job.frame.len()).sum();
            if !self.has_room(&state, &job) {
                return Err(Failure::Busy);
            }
        }
        state.bytes += job.frame.len();
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.keepers < self.processes() {
            match keeper::start(Arc::clone(self)) {
                Ok(()) => {
                    state.keepers += 1;
                    state.idle += 1;
                }
                Err(error) if state.keepers == 0 => {
                    // No thread would ever take the job.
                    state.jobs.clear();
                    state.bytes = 0;
                    return Err(Failure::Unavailable(format!(
                        "the thread of a script process does not start: {error}"
                    )));
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn has_room(&self, state: &State, job: &Job) -> bool {
        let free = state.idle + self.processes().saturating_sub(state.keepers);
        let fits =
            state.jobs.is_empty() || state.bytes + job.frame.len() <= self.limits.waiting_bytes();
        fits && state.jobs.len() < free + self.limits.waiting
    }

    /// Returns the number of processes: at least one, or nothing would ever be evaluated.
    fn processes(&self) -> usize {
        self.limits.processes.max(1)
    }

    /// Waits for the next job. Returns `None` when the pool is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.bytes -= job.frame.len();
                state.idle -= 1;
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Notes that a keeper has finished its job.
    pub(super) fn job_ended(&self) {
        self.state.lock().idle += 1;
    }

    /// Ends the keepers and their processes. Waiting callers get an error.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a keeper ended, so that the next job may start another one.
    pub(super) fn keeper_ended(&self) {
        self.state.lock().keepers -= 1;
    }

    pub(super) fn process_began(&self, id: u32) {
        self.state.lock().processes.push(id);
    }

    pub(super) fn process_ended(&self, id: u32) {
        self.state.lock().processes.retain(|known| *known != id);
    }

    /// Returns the ids of the running processes.
    pub(super) fn process_ids(&self) -> Vec<u32> {
        self.state.lock().processes.clone()
    }
}
