//! The builder of an environment for Conductor workflows.

use std::sync::Arc;
use std::time::Duration;

use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::settings::{THREAD_COUNT_MAX, resolve};
use longhaul_conductor_sdk::worker::AnyWorker;
use longhaul_protocol::Timestamp;
use tokio::sync::Mutex;

use super::fakes::{self, Calls, FakeTask};
use super::{ConductorEnvironment, StartError};
use crate::Embedded;
use crate::testing::builder::BEGIN;

/// Builds a [`ConductorEnvironment`]; see [`ConductorEnvironment::builder`].
#[derive(Debug)]
#[must_use = "an environment does nothing until it is started"]
pub struct Builder {
    workers: Vec<AnyWorker>,
    calls: Arc<Calls>,
    begin: Timestamp,
    longest_wait: Duration,
    most_jumps: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            workers: Vec::new(),
            calls: Arc::default(),
            begin: BEGIN,
            longest_wait: Duration::from_secs(3650 * 86_400),
            most_jumps: 10_000,
        }
    }

    /// Adds a worker. Its settings come from code only: environment variables do not affect tests.
    pub fn worker(mut self, worker: AnyWorker) -> Self {
        self.workers.push(worker);
        self
    }

    /// Adds a fake worker with an outcome for each task, in order. The last outcome repeats.
    ///
    /// # Panics
    /// If there is no outcome.
    pub fn fake(self, task_type: &str, outcomes: impl IntoIterator<Item = FakeTask>) -> Self {
        let worker = fakes::worker(task_type, outcomes, &self.calls);
        self.worker(worker)
    }

    /// Sets the time at which the environment begins: 2026-01-01T00:00:00Z by default.
    pub fn begin(mut self, begin: Timestamp) -> Self {
        self.begin = begin;
        self
    }

    /// Sets the longest time that one wait lets pass: ten years by default.
    pub fn longest_wait(mut self, limit: Duration) -> Self {
        self.longest_wait = limit;
        self
    }

    /// Sets how often one wait moves the clock: 10,000 times by default.
    pub fn most_jumps(mut self, limit: u32) -> Self {
        self.most_jumps = limit;
        self
    }

    /// Opens a server and registers the definitions of workers that ask for it.
    ///
    /// # Errors
    /// [`StartError`] if the server cannot be opened, or a setting of a worker is not valid.
    pub async fn start(self) -> Result<ConductorEnvironment, StartError> {
        let server = Embedded::builder().manual_clock(self.begin).open().await?;
        let clock = server
            .clock
            .clone()
            .expect("the server was opened with a manual clock");
        let client = server.conductor();
        let mut runners = Vec::new();
        for worker in self.workers {
            let worker = self.calls.record(worker, &clock);
            // The environment waits for the server instead of letting it wait, and runs whatever is due.
            let code = worker.code_settings().clone();
            let code = code.poll_timeout(Duration::ZERO);
            let code = code.thread_count(THREAD_COUNT_MAX);
            let resolved = resolve(worker.task_type(), &code, &|_| None)?;
            let events = EventDispatcher::silent();
            let runner = TaskRunner::with_settings(worker, client.tasks(), events, resolved);
            let runner = runner.registering(client.metadata(), client.schemas());
            runner.register_task_definition().await;
            runners.push(runner);
        }
        Ok(ConductorEnvironment {
            host: server.host.clone(),
            transport: server.transport(),
            server,
            client,
            clock,
            calls: self.calls,
            runners: Mutex::new(runners),
            longest_wait: self.longest_wait,
            most_jumps: self.most_jumps,
        })
    }
}
