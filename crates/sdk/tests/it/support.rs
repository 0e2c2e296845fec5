//! A server per test, workers on it, and transports that lose, change or record requests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_embedded::Embedded;
use longhaul_sdk::transport::{Request, RequestRetry, Response, Transport, TransportError};
use longhaul_sdk::worker::{Ended, WorkerBuilder, WorkerError};
use longhaul_sdk::{Client, Worker, WorkerHandle};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// The task queue of every test.
pub(crate) const QUEUE: &str = "q";

/// Longer than any test takes. It is reached only if something hangs.
const DEADLINE: Duration = Duration::from_secs(60);

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

/// A server, and possibly workers on its queue.
pub(crate) struct Bench {
    pub(crate) server: Embedded,
    pub(crate) client: Client,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let server = Embedded::in_memory().await.expect("a server in memory");
        let client = server.client();
        Self { server, client }
    }

    /// Starts a server and a worker that runs until the test ends.
    pub(crate) async fn staffed(build: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Self {
        let bench = Self::new().await;
        bench.work(build).await;
        bench
    }

    /// Starts a worker and waits until it is registered.
    pub(crate) async fn work(&self, build: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Working {
        let worker = build(Worker::builder(&self.client, QUEUE)).build();
        let handle = worker.handle();
        let running = tokio::spawn(worker.run());
        eventually("the worker registers", async || {
            self.client.worker(handle.worker_id()).await.ok()
        })
        .await;
        Working { handle, running }
    }

    /// Connects a client over a transport that wraps the transport of this server.
    pub(crate) async fn client_over<T: Transport>(
        &self,
        wrap: impl FnOnce(Arc<dyn Transport>) -> T,
    ) -> Client {
        let transport = wrap(Arc::new(self.server.transport()));
        Client::over(transport)
            .retry(quick())
            .connect()
            .await
            .expect("the client connects")
    }
}

/// A worker in the background.
pub(crate) struct Working {
    handle: WorkerHandle,
    running: JoinHandle<Result<Ended, WorkerError>>,
}

impl Working {
    pub(crate) async fn stop(self) {
        self.handle.shut_down();
        let ended = self.running.await.expect("a worker that does not panic");
        assert_eq!(ended.expect("a registered worker"), Ended::ShutDown);
    }
}

/// Retries with short waits.
pub(crate) fn quick() -> RequestRetry {
    RequestRetry::new(4).first_wait(Duration::from_millis(1))
}

/// What happens to a request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It does not arrive.
    Lost,
    /// It arrives, and its response is lost.
    AnswerLost,
    /// A gateway responds instead.
    Answered(u16, &'static str),
}

/// Applies fates to the next requests whose path ends with `path_end`. Other requests pass.
#[derive(Clone)]
pub(crate) struct Unlucky {
    inner: Arc<dyn Transport>,
    path_end: &'static str,
    fates: Arc<Mutex<VecDeque<Fate>>>,
    seen: Arc<Mutex<usize>>,
}

impl Unlucky {
    pub(crate) fn new(
        inner: Arc<dyn Transport>,
        path_end: &'static str,
        fates: impl IntoIterator<Item = Fate>,
    ) -> Self {
        Self {
            inner,
            path_end,
            fates: Arc::new(Mutex::new(fates.into_iter().collect())),
            seen: Arc::default(),
        }
    }

    /// Returns the number of sent requests of the path.
    pub(crate) fn seen(&self) -> usize {
        *self.seen.lock()
    }
}

impl fmt::Debug for Unlucky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unlucky")
    }
}

impl Transport for Unlucky {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        let fate = if request.path.ends_with(self.path_end) {
            *self.seen.lock() += 1;
            self.fates.lock().pop_front()
        } else {
            None
        };
        Box::pin(async move {
            match fate {
                None => self.inner.send(request).await,
                Some(Fate::Lost) => Err(TransportError::Unreachable("no way there".to_owned())),
                Some(Fate::AnswerLost) => {
                    self.inner.send(request).await?;
                    Err(TransportError::Interrupted("no way back".to_owned()))
                }
                Some(Fate::Answered(status, body)) => Ok(Response {
                    status,
                    body: body.into(),
                }),
            }
        })
    }
}

/// Sends responses from a list and keeps the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// Connects a client to a server with these responses.
    pub(crate) async fn client(
        answers: impl IntoIterator<Item = (u16, serde_json::Value)>,
    ) -> (Client, Self) {
        let hello = serde_json::json!({
            "control_plane": {"version": "2"},
            "worker_protocol": {"version": "1.20", "server_capabilities": {}},
        });
        let scripted = Self::default();
        scripted.answers.lock().extend(
            std::iter::once((200, hello))
                .chain(answers)
                .map(|(status, body)| (status, body.to_string())),
        );
        let client = Client::over(scripted.clone())
            .retry(RequestRetry::NEVER)
            .connect()
            .await
            .expect("the client connects");
        scripted.asked.lock().clear();
        (client, scripted)
    }

    /// Returns the method, path and body of every request.
    pub(crate) fn asked(&self) -> Vec<(&'static str, String, serde_json::Value)> {
        let asked = self.asked.lock();
        asked
            .iter()
            .map(|request| {
                let body = request
                    .body
                    .as_deref()
                    .map_or(serde_json::Value::Null, |body| {
                        serde_json::from_slice(body).expect("a JSON body")
                    });
                (request.method.as_str(), request.path.clone(), body)
            })
            .collect()
    }
}

impl Transport for Scripted {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        self.asked.lock().push(request);
        let answer = self.answers.lock().pop_front();
        Box::pin(async move {
            let (status, body) = answer.expect("a response for every request");
            Ok(Response {
                status,
                body: body.into(),
            })
        })
    }
}
