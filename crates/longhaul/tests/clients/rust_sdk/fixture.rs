//! A server, a client and workers of the Rust SDK on one task queue.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_workflow::{
    Client, Result, Value, Worker, WorkflowDescription, WorkflowHandle, WorkflowResultOptions,
    WorkflowStartOptions,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{DEADLINE, History, Server, ServerOptions, eventually};

/// The only task queue: every test has a server of its own.
pub(crate) const QUEUE: &str = "rust";

/// A stopping worker waits for its open polls, so they must be short.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) client: Client,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(ServerOptions::new()).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Self {
        let server = options.start().await;
        let client = Client::new(server.url()).expect("a client");
        Self { server, client }
    }

    /// Starts a worker with the handlers that `register` adds.
    pub(crate) fn worker(&self, register: impl FnOnce(&mut Worker)) -> RunningWorker {
        self.worker_with_id("worker-1", register)
    }

    pub(crate) fn worker_with_id(
        &self,
        id: &str,
        register: impl FnOnce(&mut Worker),
    ) -> RunningWorker {
        let mut worker = new_worker(self.client.clone(), id);
        register(&mut worker);
        RunningWorker::start(worker)
    }

    pub(crate) async fn start_workflow(
        &self,
        workflow_type: &str,
        id: &str,
        input: Value,
    ) -> WorkflowHandle {
        self.start_workflow_with(workflow_type, id, WorkflowStartOptions::new(), input)
            .await
    }

    pub(crate) async fn start_workflow_with(
        &self,
        workflow_type: &str,
        id: &str,
        options: WorkflowStartOptions,
        input: Value,
    ) -> WorkflowHandle {
        let started = self
            .client
            .start_workflow_with_options(workflow_type, QUEUE, id, options, input)
            .await;
        started.expect("the workflow starts")
    }

    /// Starts a workflow under its type's name and waits for its result.
    pub(crate) async fn run(&self, workflow_type: &str, input: Value) -> Value {
        let handle = self
            .start_workflow(workflow_type, workflow_type, input)
            .await;
        result(&handle).await.expect("the workflow completes")
    }

    /// The history of the workflow's current run.
    pub(crate) async fn history(&self, workflow_id: &str) -> History {
        let control = self.server.control();
        let runs = control.run_ids(workflow_id).await;
        control
            .history(workflow_id, runs.last().expect("a run"))
            .await
    }

    /// Returns the history of a closed run after checking it.
    pub(crate) async fn closed_history(&self, workflow_id: &str) -> History {
        let history = self.history(workflow_id).await;
        history.assert_sound();
        history
    }

    /// Waits until the current run has at least `count` events of a type.
    pub(crate) async fn wait_for_events(
        &self,
        workflow_id: &str,
        event_type: &str,
        count: usize,
    ) -> History {
        eventually(
            &format!("{count} × {event_type} in {workflow_id}"),
            || async {
                let history = self.history(workflow_id).await;
                (history.count(event_type) >= count).then_some(history)
            },
        )
        .await
    }

    pub(crate) async fn describe(&self, workflow_id: &str) -> WorkflowDescription {
        self.client
            .describe_workflow(workflow_id)
            .await
            .expect("a description")
    }

    pub(crate) async fn signal(&self, workflow_id: &str, name: &str, input: Value) {
        self.client
            .signal_workflow(workflow_id, name, input)
            .await
            .expect("the signal is accepted");
    }
}

/// A worker without handlers that stops quickly.
pub(crate) fn new_worker(client: Client, id: &str) -> Worker {
    Worker::new(client, QUEUE)
        .worker_id(id)
        .poll_timeout(POLL_TIMEOUT)
}

/// Waits for the outcome of the workflow's current run chain.
pub(crate) async fn result(handle: &WorkflowHandle) -> Result<Value> {
    handle.result(result_options()).await
}

pub(crate) fn result_options() -> WorkflowResultOptions {
    WorkflowResultOptions {
        poll_interval: Duration::from_millis(20),
        timeout: DEADLINE,
    }
}

/// A worker in a task of its own. Dropping it fails the test if the worker had already ended by itself.
pub(crate) struct RunningWorker {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    ended: Arc<Mutex<Option<Result<()>>>>,
}

impl RunningWorker {
    pub(crate) fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = Arc::new(Mutex::new(None));
        let outcome = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            let shutdown = async {
                // An error means that the sender was dropped with the handle: no caller will ask for a shutdown.
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let result = Box::pin(worker.run_until(shutdown)).await;
            *outcome.lock().expect("no panic while held") = Some(result);
        });
        Self {
            task,
            stop: Some(stop),
            ended,
        }
    }

    /// Graceful shutdown: finish what is leased, deregister, end without an error.
    pub(crate) async fn stop(mut self) {
        let result = self.finish().await;
        result.expect("the worker stops cleanly");
    }

    /// Waits until the worker ends by itself. Returns its result.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        timeout(DEADLINE, &mut self.task)
            .await
            .expect("the worker ends by itself")
            .expect("the worker does not panic");
        let ended = self.ended.lock().expect("no panic while held").take();
        ended.expect("an ended worker has a result")
    }

    /// Stops the worker if it still runs. Returns its result.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            // The receiver is gone if the worker has already ended; its result has the reason.
            let _already_ended = stop.send(());
        }
        timeout(DEADLINE, &mut self.task)
            .await
            .expect("the worker ends")
            .expect("the worker does not panic");
        self.ended
            .lock()
            .expect("no panic while held")
            .take()
            .expect("an ended worker has a result")
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.task.abort();
        let ended = self.ended.lock().expect("no panic while held").take();
        match ended {
            Some(result) if std::thread::panicking() => {
                eprintln!("the worker had ended by itself: {result:?}")
            }
            Some(result) => panic!("the worker ended by itself: {result:?}"),
            None => {}
        }
    }
}
