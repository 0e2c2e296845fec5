//! Workers inside this process, each as a task of the runtime.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use super::HandlerError;
use super::supervise::{Launch, Running, WorkerStatus};
use crate::client::Client;
use crate::configuration::Configuration;
use crate::events::{EventDispatcher, TaskRunnerEventsListener};
use crate::runner::{RunnerControl, TaskRunner};
use crate::settings::Resolved;
use crate::worker::AnyWorker;

pub(super) struct Inside {
    client: Client,
    workers: Vec<(AnyWorker, Resolved)>,
    listeners: Vec<Arc<dyn TaskRunnerEventsListener>>,
}

impl Inside {
    pub(super) fn new(
        configuration: &Configuration,
        workers: Vec<(AnyWorker, Resolved)>,
        listeners: &[Arc<dyn TaskRunnerEventsListener>],
    ) -> Result<Self, HandlerError> {
        Ok(Self {
            client: Client::new(configuration)?,
            workers,
            listeners: listeners.to_vec(),
        })
    }
}

impl Launch for Inside {
    fn workers(&self) -> Vec<WorkerStatus> {
        let workers = self.workers.iter();
        workers.map(|(worker, _)| status_of(worker)).collect()
    }

    fn start(&self, index: usize) -> std::io::Result<Box<dyn Running>> {
        let (worker, resolved) = self.workers[index].clone();
        let mut events = EventDispatcher::builder();
        for listener in &self.listeners {
            events = events.register(Arc::clone(listener));
        }
        let (events, dispatching) = events.start()?;
        let runner = TaskRunner::with_settings(worker, self.client.tasks(), events, resolved)
            .registering(self.client.metadata(), self.client.schemas());
        Ok(Box::new(RunningInside {
            control: runner.control(),
            task: tokio::spawn(async move {
                runner.run().await;
                // Listeners receive all events before the worker counts as ended.
                dispatching.ended().await;
            }),
        }))
    }
}

/// Returns the status of a worker that does not run.
pub(super) fn status_of(worker: &AnyWorker) -> WorkerStatus {
    WorkerStatus {
        task_type: worker.task_type().to_owned(),
        pid: None,
        alive: false,
        restarts: 0,
    }
}

struct RunningInside {
    control: RunnerControl,
    task: JoinHandle<()>,
}

impl Running for RunningInside {
    fn pid(&self) -> Option<u32> {
        Some(std::process::id())
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            match (&mut self.task).await {
                Ok(()) => "it was stopped".to_owned(),
                Err(error) => error.to_string(),
            }
        })
    }

    fn stop(&mut self) {
        self.control.stop();
    }

    fn kill(&mut self) {
        self.task.abort();
    }
}

impl Drop for RunningInside {
    fn drop(&mut self) {
        self.task.abort();
    }
}
