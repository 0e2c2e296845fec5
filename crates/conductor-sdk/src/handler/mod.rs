//! Runs all workers of a program, each in a process of its own, and starts again what died.
//!
//! ```no_run
//! use longhaul_conductor_sdk::{Configuration, TaskHandler, worker_task};
//!
//! #[worker_task("greet", thread_count = 20)]
//! async fn greet(name: String) -> String {
//!     format!("Hello, {name}")
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     TaskHandler::builder(Configuration::from_env()?)
//!         .discover()
//!         .build()?
//!         .run_until(tokio::signal::ctrl_c())
//!         .await?;
//!     Ok(())
//! }
//! ```
//!
//! A process is the same program, started again for one worker: `main` runs in it, too, until the handler starts. So a worker makes its
//! own connections, and one that crashes takes no other with it. A process ends when its parent does.

mod inside;
mod process;
mod supervise;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_transport::TransportError;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::configuration::Configuration;
use crate::events::TaskRunnerEventsListener;
use crate::logging::{self, LoggingError};
use crate::metrics::{MetricsError, MetricsSettings, Place, Reporting};
use crate::settings::{Resolved, SettingsError, resolve_from_environment};
use crate::worker::AnyWorker;
use inside::Inside;
use process::{Processes, role};
use supervise::{Launch, Supervisor};

pub use supervise::{EndedWorker, WorkerStatus};

/// How long a worker may take to end the tasks in hand.
const GRACE_DEFAULT: Duration = Duration::from_secs(30);

/// What separates workers from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Each worker has a process.
    Processes,
    /// All workers share this process. A panic is still one failed task; a crash of the process ends all workers.
    InProcess,
}

/// Why workers cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// There is nothing to run.
    #[error("there are no workers")]
    NoWorkers,
    /// Two workers have the same task type and the same domain.
    #[error("two workers have the task type {task_type:?} in {}", shown(.domain.as_deref()))]
    Duplicate {
        /// The task type.
        task_type: String,
        /// The domain.
        domain: Option<String>,
    },
    /// A setting of a worker is not valid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The address of the server is not valid.
    #[error(transparent)]
    Address(#[from] TransportError),
    /// The process was started for a worker that the program does not have.
    #[error("this process was started for worker {0:?}, which the program does not have")]
    NoSuchWorker(String),
    /// The program cannot start itself again for a worker.
    #[error("the program cannot be started again for a worker: {0}")]
    Program(#[from] std::io::Error),
    /// The metrics cannot be collected or served.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The variables for the log are not valid.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// Workers did not end in time and were killed. Their tasks are left to their response time-outs.
    #[error("workers did not end in time: {}", .0.join(", "))]
    Killed(Vec<String>),
}

fn shown(domain: Option<&str>) -> String {
    match domain {
        Some(domain) => format!("the domain {domain:?}"),
        None => "no domain".to_owned(),
    }
}

/// Builds a [`TaskHandler`].
#[must_use = "a builder does nothing until it is built"]
pub struct TaskHandlerBuilder {
    configuration: Configuration,
    workers: Vec<AnyWorker>,
    listeners: Vec<Arc<dyn TaskRunnerEventsListener>>,
    metrics: Option<MetricsSettings>,
    isolation: Isolation,
    grace: Duration,
}

impl TaskHandlerBuilder {
    /// Adds a worker.
    pub fn worker(mut self, worker: AnyWorker) -> Self {
        self.workers.push(worker);
        self
    }

    /// Adds workers.
    pub fn workers(mut self, workers: impl IntoIterator<Item = AnyWorker>) -> Self {
        self.workers.extend(workers);
        self
    }

    /// Adds all workers that the program declares with [`#[worker_task]`](crate::worker_task).
    pub fn discover(mut self) -> Self {
        self.workers.extend(crate::macro_support::declared());
        self
    }

    /// Adds a listener to the events of all workers. Each process has its own.
    pub fn listener(mut self, listener: impl TaskRunnerEventsListener) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Collects the metrics of all workers and serves them, or writes them to a file. Without this, nothing is counted.
    pub fn metrics(mut self, settings: MetricsSettings) -> Self {
        self.metrics = Some(settings);
        self
    }

    /// Sets what separates workers: processes by default.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets how long a worker may take to end the tasks in hand: 30 seconds by default. What it cannot end is left to the response
    /// time-out of the task.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Checks all workers and their settings, and binds the port of the metrics. Starts nothing.
    ///
    /// # Errors
    /// [`HandlerError`] names the worker and the setting.
    pub fn build(mut self) -> Result<TaskHandler, HandlerError> {
        logging::check()?;
        let role = role()?;
        let status = Arc::default();
        let metrics = self.reporting(role.is_some(), &status)?;
        let listener = metrics.as_ref().and_then(Reporting::listener);
        if let Some(listener) = listener {
            self = self.listener(listener);
        }
        let exchange = metrics.as_ref().and_then(Reporting::exchange);
        let launch: Arc<dyn Launch> = match &role {
            Some(role) => Arc::new(self.child(role)?),
            None if self.isolation == Isolation::InProcess => Arc::new(self.inside()?),
            None => Arc::new(Processes::new(self.resolve()?, exchange)?),
        };
        Ok(TaskHandler {
            is_child: role.is_some(),
            launch,
            grace: self.grace,
            stop: watch::channel(false).0,
            running: JoinSet::new(),
            status,
            metrics,
        })
    }

    /// The metrics of this process, if there are settings for them.
    fn reporting(
        &self,
        is_child: bool,
        status: &Arc<Mutex<Vec<WorkerStatus>>>,
    ) -> Result<Option<Reporting>, MetricsError> {
        let Some(settings) = &self.metrics else {
            return Ok(None);
        };
        let place = match (is_child, self.isolation) {
            (true, _) => match process::metrics_file() {
                Some(file) => Place::Worker(file),
                None => return Ok(None),
            },
            (false, Isolation::Processes) => Place::Parent(Arc::clone(status)),
            (false, Isolation::InProcess) => Place::Alone(Arc::clone(status)),
        };
        Reporting::new(settings, place).map(Some)
    }

    fn resolve(&self) -> Result<Vec<(AnyWorker, Resolved)>, HandlerError> {
        if self.workers.is_empty() {
            return Err(HandlerError::NoWorkers);
        }
        let mut seen = BTreeSet::new();
        let mut resolved = Vec::new();
        for worker in &self.workers {
            let settings = resolve_from_environment(worker.task_type(), &worker.settings)?;
            let domain = settings.settings().domain.clone();
            let task_type = worker.task_type().to_owned();
            if !seen.insert((task_type.clone(), domain.clone())) {
                return Err(HandlerError::Duplicate { task_type, domain });
            }
            resolved.push((worker.clone(), settings));
        }
        Ok(resolved)
    }

    fn inside(&self) -> Result<Inside, HandlerError> {
        Inside::new(&self.configuration, self.resolve()?, &self.listeners)
    }

    /// The worker for which this process was started.
    fn child(&self, role: &str) -> Result<Inside, HandlerError> {
        let found = self.resolve()?.into_iter().enumerate();
        let mut found = found.filter(|(index, (worker, _))| process::name(*index, worker) == role);
        let Some((_, worker)) = found.next() else {
            return Err(HandlerError::NoSuchWorker(role.to_owned()));
        };
        Inside::new(&self.configuration, vec![worker], &self.listeners)
    }
}

/// Runs workers.
pub struct TaskHandler {
    /// This process was started for one worker.
    is_child: bool,
    launch: Arc<dyn Launch>,
    grace: Duration,
    stop: watch::Sender<bool>,
    running: JoinSet<EndedWorker>,
    status: Arc<Mutex<Vec<WorkerStatus>>>,
    metrics: Option<Reporting>,
}

impl TaskHandler {
    /// Returns a builder without workers.
    pub fn builder(configuration: Configuration) -> TaskHandlerBuilder {
        TaskHandlerBuilder {
            configuration,
            workers: Vec::new(),
            listeners: Vec::new(),
            metrics: None,
            isolation: Isolation::Processes,
            grace: GRACE_DEFAULT,
        }
    }

    /// Runs the workers until `stop` is ready, then ends them: they poll no more, and tasks in hand end and are reported.
    ///
    /// `stop` runs in the first process of the program only; see [`Self::start_processes`].
    ///
    /// # Errors
    /// [`HandlerError::Killed`] if workers did not end within the grace period.
    pub async fn run_until(mut self, stop: impl Future) -> Result<(), HandlerError> {
        self.start_processes().await;
        stop.await;
        self.stop_processes();
        let ended = self.join_processes().await;
        let killed = ended.into_iter().filter(|worker| worker.was_killed);
        let killed: Vec<_> = killed.map(|worker| worker.task_type).collect();
        if killed.is_empty() {
            Ok(())
        } else {
            Err(HandlerError::Killed(killed))
        }
    }

    /// Starts all workers. Does nothing if they run already.
    ///
    /// In the process of a worker it does not return: it runs the worker until the first process stops it or ends, and then ends
    /// the process. So what comes after it in `main` happens once.
    pub async fn start_processes(&mut self) {
        if !self.running.is_empty() {
            return;
        }
        self.start();
        if self.is_child {
            process::told_to_end().await;
            self.stop_processes();
            self.join_processes().await;
            std::process::exit(0);
        }
    }

    fn start(&mut self) {
        logging::apply();
        self.stop.send_replace(false);
        *self.status.lock() = self.launch.workers();
        if let Some(metrics) = &mut self.metrics {
            metrics.start();
        }
        for index in 0..self.launch.workers().len() {
            let supervisor = Supervisor {
                launch: Arc::clone(&self.launch),
                index,
                grace: self.grace,
                status: Arc::clone(&self.status),
            };
            self.running.spawn(supervisor.run(self.stop.subscribe()));
        }
    }

    /// Tells all workers to end. A second call does nothing.
    pub fn stop_processes(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all workers have ended, and returns how each did. Then the metrics are written a last time, or their port is closed.
    pub async fn join_processes(&mut self) -> Vec<EndedWorker> {
        let mut ended = Vec::new();
        while let Some(worker) = self.running.join_next().await {
            ended.extend(worker);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.end().await;
        }
        ended
    }

    /// Returns where the metrics are served, if [`MetricsSettings::http_port`] is set. A worker process serves none.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(Reporting::address)
    }

    /// Returns each worker, its process, and how often it was started again.
    #[must_use]
    pub fn worker_status(&self) -> Vec<WorkerStatus> {
        self.status.lock().clone()
    }

    /// Returns whether all workers run.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let status = self.status.lock();
        !status.is_empty() && status.iter().all(|worker| worker.alive)
    }
}

impl std::fmt::Debug for TaskHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskHandler({:?})", self.status.lock())
    }
}

impl std::fmt::Debug for TaskHandlerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TaskHandlerBuilder({:?})", self.workers)
    }
}
