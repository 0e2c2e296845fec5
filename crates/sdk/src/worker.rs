//! Workers run workflows and activities.
//!
//! A worker polls one task queue for as many tasks as it has free slots, and reports their outcomes. It survives lost
//! connections and restarts of the server. A panic in user code ends one task, not the worker. When it is asked to stop, it
//! takes no new tasks, finishes the ones it has, closes its sessions and deregisters.

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

/// Runs the workflows and activities of one task queue. Created with [`Worker::builder`].
pub struct Worker {
    shared: Arc<Shared>,
    registration: Arc<Registration>,
    limits: Limits,
    handle: WorkerHandle,
}

/// Limits and timeouts of a worker.
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
#[non_exhaustive]
pub enum Ended {
    /// Its own program called [`WorkerHandle::shut_down`].
    ShutDown,
    /// An operator drains its build: it must take no more tasks.
    Drained,
}

/// Why a worker could not start.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the worker could not register: {0}")]
pub struct WorkerError(#[from] RequestError);

/// Stops a running worker and reads its counters. Cheap to clone.
#[derive(Clone)]
pub struct WorkerHandle {
    shared: Arc<Shared>,
    stop: CancellationToken,
    drained: CancellationToken,
}

impl WorkerHandle {
    /// Asks the worker to finish its tasks and end.
    pub fn shut_down(&self) {
        self.stop.cancel();
    }

    /// Returns its counters.
    pub fn metrics(&self) -> WorkerMetrics {
        self.shared.counters.read()
    }

    /// Returns the number of tasks that it is processing: workflow tasks, activities, queries and update validations.
    pub fn running_tasks(&self) -> usize {
        self.shared.running.tasks()
    }

    /// Returns a future that completes when the worker finishes a task after this call.
    pub fn task_ended(&self) -> Notified<'_> {
        self.shared.running.ended.notified()
    }

    /// Returns its worker id.
    pub fn worker_id(&self) -> &str {
        &self.shared.api.worker_id
    }

    /// Returns a session that can be opened before any activity needs it.
    pub fn session(&self, options: WorkerSessionOptions) -> WorkerSession {
        WorkerSession {
            shared: self.shared.clone(),
            options,
        }
    }
}

impl Worker {
    /// Returns a builder for a worker of a task queue.
    pub fn builder(client: &Client, queue: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder::new(client.connection().clone(), queue.into())
    }

    /// Returns a handle that stops the worker and reads its counters.
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Runs until `signal` completes, then finishes its tasks.
    ///
    /// # Errors
    /// [`WorkerError`] if the server cannot be reached at the start, or refuses the registration.
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

    /// Runs until [`WorkerHandle::shut_down`] is called or an operator drains its build.
    ///
    /// # Errors
    /// [`WorkerError`] if the server cannot be reached at the start, or refuses the registration.
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
            "worker started"
        );
        let abort = CancellationToken::new();
        // When this future is dropped, everything it has started ends.
        let _end_with_this_future = (stop.clone().drop_guard(), abort.clone().drop_guard());
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
                "gave up tasks that did not finish within the drain timeout"
            );
            abort.cancel();
            tasks.wait().await;
        }
        renewing.abort();
        alive.abort();
        sessions::close_all(&self.shared, "worker_shutdown").await;
        if let Err(error) = self.shared.api.deregister().await {
            tracing::warn!(%error, "could not deregister the worker");
        }
        Ok(if self.handle.drained.is_cancelled() {
            Ended::Drained
        } else {
            Ended::ShutDown
        })
    }
}
