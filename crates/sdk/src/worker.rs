//! Workers: processes that run workflows and activities.
//!
//! A worker polls one task queue, for as many tasks at once as it has room for, and reports what became of them. It outlives
//! lost connections and restarts of the server; panics of user code end one task, never the worker. Asked to stop, it takes no
//! new tasks, finishes those it has, closes its sessions and says goodbye.

mod activities;
mod api;
mod builder;
mod cache;
mod local_activities;
mod metrics;
mod poll;
mod questions;
mod registration;
mod sessions;
mod shared;
mod wire;
mod workflow_tasks;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

pub use builder::WorkerBuilder;
pub use metrics::WorkerMetrics;
pub use sessions::{SessionError, WorkerSession};

use api::TaskQueueKind;
use poll::Pollers;
use registration::Registration;
use shared::Shared;

use crate::client::Client;
use crate::transport::RequestError;
use crate::workflow::WorkerSessionOptions;

/// See the module. Made by [`Worker::builder`].
pub struct Worker {
    shared: Arc<Shared>,
    registration: Arc<Registration>,
    limits: Limits,
    handle: WorkerHandle,
}

/// How much a worker does at once, and how long it waits.
#[derive(Clone, Debug)]
struct Limits {
    workflow_tasks: usize,
    activities: usize,
    workflow_pollers: usize,
    activity_pollers: usize,
    poll: Duration,
    drain: Duration,
}

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to, by its own program.
    ShutDown,
    /// An operator is draining its build: it must take no more work.
    Drained,
}

/// Why a worker could not begin.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the worker could not register: {0}")]
pub struct WorkerError(#[from] RequestError);

/// Stops a running worker, and looks at it. Cheap to clone.
#[derive(Clone)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
    stop: CancellationToken,
    drained: CancellationToken,
}

impl WorkerHandle {
    /// Asks the worker to finish what it has and end.
    pub fn shut_down(&self) {
        self.stop.cancel();
    }

    /// What it has counted so far.
    pub fn metrics(&self) -> WorkerMetrics {
        self.shared.counters.read()
    }

    /// How many tasks it has in hand: workflow tasks, activities and questions.
    pub fn running_tasks(&self) -> usize {
        self.shared.running.tasks()
    }

    /// Resolves when a task that it has in hand ends after this was called.
    pub fn task_ended(&self) -> Notified<'_> {
        self.shared.running.ended.notified()
    }

    /// The id it registers under.
    pub fn worker_id(&self) -> &str {
        &self.shared.api.worker_id
    }

    /// A session to open by hand.
    pub fn session(&self, options: WorkerSessionOptions) -> WorkerSession {
        WorkerSession {
            shared: self.shared.clone(),
            options,
        }
    }
}

impl Worker {
    /// A worker for a task queue, with workflows and activities to add.
    pub fn builder(client: &Client, queue: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder::new(client.connection().clone(), queue.into())
    }

    /// Stops and watches the worker from elsewhere.
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Works until `signal` is ready, then finishes what it has.
    ///
    /// # Errors
    /// When the server refuses the registration.
    pub async fn run_until(self, signal: impl Future<Output = ()>) -> Result<Ended, WorkerError> {
        let handle = self.handle();
        let running = self.run();
        tokio::pin!(running, signal);
        tokio::select! {
            ended = &mut running => return ended,
            () = &mut signal => handle.shut_down(),
        }
        running.await
    }

    /// Works until [`WorkerHandle::shut_down`] is called or an operator drains its build.
    ///
    /// # Errors
    /// When the server refuses the registration.
    pub async fn run(self) -> Result<Ended, WorkerError> {
        let stop = self.handle.stop.clone();
        let registered = tokio::select! {
            registered = self.registration.register(&self.shared) => registered,
            () = stop.cancelled() => return Ok(Ended::ShutDown),
        };
        registered?;
        tracing::info!(
            worker_id = self.shared.api.worker_id,
            task_queue = self.shared.queue,
            workflows = self.shared.workflows.len(),
            activities = self.shared.activities.len(),
            "the worker is running"
        );
        let abort = CancellationToken::new();
        // Whoever drops this future ends everything that it started.
        let _end_with_us = (stop.clone().drop_guard(), abort.clone().drop_guard());
        let tasks = TaskTracker::new();
        let pollers = Pollers {
            shared: self.shared.clone(),
            registration: self.registration.clone(),
            stop: stop.clone(),
            drained: self.handle.drained.clone(),
            abort: abort.clone(),
            tasks: tasks.clone(),
            hold: self.limits.poll,
        };
        let polling = TaskTracker::new();
        let limits = &self.limits;
        if !self.shared.workflows.is_empty() {
            pollers.start(
                &polling,
                TaskQueueKind::Workflow,
                limits.workflow_pollers,
                limits.workflow_tasks,
            );
            pollers.start(&polling, TaskQueueKind::Query, 1, limits.workflow_tasks);
        }
        if !self.shared.activities.is_empty() {
            pollers.start(
                &polling,
                TaskQueueKind::Activity,
                limits.activity_pollers,
                limits.activities,
            );
        }
        let alive = self
            .registration
            .clone()
            .stay_registered(self.shared.clone());
        let alive = AbortOnDropHandle::new(tokio::spawn(alive));
        let renewing = sessions::renew_in_background(self.shared.clone());
        let renewing = AbortOnDropHandle::new(tokio::spawn(renewing));

        polling.close();
        polling.wait().await;
        tasks.close();
        if tokio::time::timeout(limits.drain, tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = tasks.len(),
                "tasks that are not done in time are given up"
            );
            abort.cancel();
            tasks.wait().await;
        }
        renewing.abort();
        alive.abort();
        sessions::close_all(&self.shared, "worker_shutdown").await;
        if let Err(error) = self.shared.api.deregister().await {
            tracing::warn!(%error, "the worker could not deregister");
        }
        Ok(if self.handle.drained.is_cancelled() {
            Ended::Drained
        } else {
            Ended::ShutDown
        })
    }
}
