//! One server per test, workers on it, and transports that misbehave on purpose or only listen.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_embedded::Embedded;
use longhaul_sdk::transport::{Request, Response, RetryPolicy, Transport, TransportError};
use longhaul_sdk::worker::{Ended, WorkerBuilder, WorkerError};
use longhaul_sdk::{Client, Worker, WorkerHandle};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// The queue of every test.
pub(crate) const QUEUE: &str = "q";

/// A server, and maybe a worker on its queue.
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

    /// A worker that runs until the test ends.
    pub(crate) async fn staffed(build: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Self {
        let bench = Self::new().await;
        bench.work(build).await;
        bench
    }

    /// Starts a worker and waits until the server knows it.
    pub(crate) async fn work(&self, build: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Working {
        let worker = build(Worker::builder(&self.client, QUEUE)).build();
        let handle = worker.handle();
        let running = tokio::spawn(worker.run());
        while self.client.worker(handle.worker_id()).await.is_err() {
            tokio::task::yield_now().await;
        }
        Working { handle, running }
    }

    /// A client on a transport around this server's.
    pub(crate) async fn client_over<T: Transport>(
        &self,
        wrap: impl FnOnce(Arc<dyn Transport>) -> T,
    ) -> Client {
        let transport = wrap(Arc::new(self.server.transport()));
        Client::over(transport)
            .retry(quick())
            .connect()
            .await
            .expect("a server that introduces itself")
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

/// Repeats without making a test wait.
pub(crate) fn quick() -> RetryPolicy {
    RetryPolicy::new(4).first_wait(std::time::Duration::from_millis(1))
}

/// What happens to a request on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It does not arrive.
    Lost,
    /// It arrives, and the answer does not.
    AnswerLost,
    /// Somebody in between answers this.
    Answered(u16, &'static str),
}

/// Lets the next requests whose path ends so meet their fates, and lets the others through.
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

    /// How many requests of the path were sent.
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

/// Answers from a list and keeps what was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    pub(crate) asked: Arc<Mutex<Vec<Request>>>,
}

impl Scripted {
    /// A client whose server gives these answers, after it introduced itself.
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
            .retry(RetryPolicy::NEVER)
            .connect()
            .await
            .expect("a server that introduces itself");
        scripted.asked.lock().clear();
        (client, scripted)
    }

    /// Method, path and body of everything asked.
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
            let (status, body) = answer.expect("an answer for every request");
            Ok(Response {
                status,
                body: body.into(),
            })
        })
    }
}
