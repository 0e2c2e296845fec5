//! A server, a client and a worker for one scenario, and helpers that wait for a condition.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_embedded::Embedded;
use longhaul_host::{Config, Host};
use longhaul_sdk::testing::Replayer;
use longhaul_sdk::worker::{Ended, WorkerBuilder, WorkerError};
use longhaul_sdk::{
    ActivityContext, Cancelled, Client, Worker, WorkerHandle, WorkflowCall, WorkflowHandle,
};
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::sqlite::Sqlite;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Longer than any scenario takes. It is reached only if something hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The pause between two checks of [`eventually`].
const PAUSE: Duration = Duration::from_millis(5);

/// Calls `check` until it returns a value, and returns that value. Panics after [`DEADLINE`].
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let checking = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(DEADLINE, checking)
        .await
        .unwrap_or_else(|_| panic!("did not happen within {DEADLINE:?}: {what}"))
}

/// Waits until `condition` holds. Panics after [`DEADLINE`].
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    eventually(what, async || condition().then_some(())).await;
}

/// Sends heartbeats until the server asks the activity to stop. Panics after [`DEADLINE`].
pub(crate) async fn heartbeats_until_stopped(ctx: &ActivityContext) -> Cancelled {
    let beating = async {
        loop {
            if let Err(cancelled) = ctx.heartbeat().await {
                return cancelled;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(DEADLINE, beating)
        .await
        .expect("the server asks the activity to stop")
}

/// A list to which activities add lines, and on which tests wait.
#[derive(Default)]
pub(crate) struct Log {
    lines: Mutex<Vec<String>>,
    added: Notify,
}

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.lines.lock().push(line.into());
        self.added.notify_waiters();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    pub(crate) fn clear(&self) {
        self.lines.lock().clear();
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines
            .lock()
            .iter()
            .filter(|found| *found == line)
            .count()
    }

    /// Waits until the log contains the line. Panics after [`DEADLINE`].
    pub(crate) async fn wait_for(&self, line: &str) {
        let waiting = async {
            loop {
                let added = self.added.notified();
                if self.count(line) > 0 {
                    return;
                }
                added.await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .unwrap_or_else(|_| panic!("`{line}` was not logged: {:?}", self.lines()));
    }
}

/// The task queue of every scenario. Each scenario has its own server.
pub(crate) const QUEUE: &str = "scenario";

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) replayer: Replayer,
    server: Server,
    started: AtomicU32,
    _folder: tempfile::TempDir,
}

enum Server {
    Embedded(Embedded),
    Http { host: Host, serving: JoinHandle<()> },
}

impl Stage {
    /// Starts a server in this process, on a file.
    pub(crate) async fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Embedded::open(folder.path().join("embedded.db"))
            .await
            .unwrap();
        Self::new(server.client(), Server::Embedded(server), folder)
    }

    /// Starts a server that is reached over HTTP.
    pub(crate) async fn http() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path().join("http.db")).unwrap();
        let host = Host::start(std::sync::Arc::new(store), Config::default())
            .await
            .unwrap();
        let router = App::new(host.clone(), Auth::open(), Options::default()).router();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        let client = Client::connect(&format!("http://{address}")).await.unwrap();
        Self::new(client, Server::Http { host, serving }, folder)
    }

    fn new(client: Client, server: Server, folder: tempfile::TempDir) -> Self {
        Self {
            client,
            replayer: Replayer::new(),
            server,
            started: AtomicU32::new(0),
            _folder: folder,
        }
    }

    /// Returns a builder for a worker with few pollers.
    pub(crate) fn worker(&self) -> WorkerBuilder {
        Worker::builder(&self.client, QUEUE)
            .workflow_pollers(2)
            .activity_pollers(2)
    }

    pub(crate) async fn start<R: Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> WorkflowHandle<R> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        self.client
            .start(call)
            .id(format!("w-{number}"))
            .queue(QUEUE)
            .await
            .unwrap()
    }

    /// Starts a workflow and waits for its result.
    pub(crate) async fn run<R: DeserializeOwned + Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> R {
        let handle = self.start(call).await;
        let result = tokio::time::timeout(DEADLINE, handle.result())
            .await
            .expect("the workflow ends")
            .unwrap();
        self.check(&handle).await;
        result
    }

    /// Waits until a run has at least `count` events of a type.
    pub(crate) async fn until<R>(
        &self,
        handle: &WorkflowHandle<R>,
        event_type: &str,
        count: usize,
    ) {
        until_events(handle, event_type, count).await;
    }

    /// Checks that the code replays the history that it wrote.
    pub(crate) async fn check<R>(&self, handle: &WorkflowHandle<R>) {
        let export = handle.export().await.unwrap().to_string();
        if let Err(error) = self.replayer.replay(&export) {
            panic!("{} does not replay: {error}\n{export}", handle.id());
        }
    }

    pub(crate) async fn stop(self) {
        match self.server {
            Server::Embedded(server) => server.stop().await,
            Server::Http { host, serving } => {
                host.begin_stop();
                serving.abort();
                host.stop().await;
            }
        }
    }
}

/// Waits until a run has at least `count` events of a type.
pub(crate) async fn until_events<R>(handle: &WorkflowHandle<R>, event_type: &str, count: usize) {
    eventually(&format!("{count} x {event_type}"), async || {
        let events = types(handle).await;
        let found = events.iter().filter(|found| *found == event_type).count();
        (found >= count).then_some(())
    })
    .await;
}

/// Returns the types of all events of a run.
pub(crate) async fn types<R>(handle: &WorkflowHandle<R>) -> Vec<String> {
    let events = handle.history().all().await.unwrap();
    events.into_iter().map(|event| event.event_type).collect()
}

/// A running worker.
pub(crate) struct Running {
    pub(crate) handle: WorkerHandle,
    task: JoinHandle<Result<Ended, WorkerError>>,
}

impl Running {
    /// Starts a worker and waits until it is registered.
    pub(crate) async fn start(worker: WorkerBuilder) -> Self {
        let worker = worker.build();
        let handle = worker.handle();
        let task = tokio::spawn(worker.run());
        until("the worker registers", || {
            handle.metrics().registrations > 0
        })
        .await;
        Self { handle, task }
    }

    pub(crate) async fn stop(self) -> Ended {
        self.handle.shut_down();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Ended {
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .expect("the worker ends")
            .unwrap()
            .unwrap()
    }
}

/// Runs scenarios on both kinds of server. A scenario takes a stage and returns it.
#[macro_export]
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let stage = $crate::stage::Stage::embedded().await;
                Box::pin(super::$name(stage)).await.stop().await;
            })+
        }
        mod http {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let stage = $crate::stage::Stage::http().await;
                Box::pin(super::$name(stage)).await.stop().await;
            })+
        }
    };
}
