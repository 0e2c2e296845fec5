//! A test environment for workflows: a server, a worker and a clock in the test's own process. A workflow that sleeps for a
//! month ends in milliseconds, activities are real or faked, and every finished run is replayed when the environment stops.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_embedded::testing::{Answer, TestEnvironment};
//! use longhaul_sdk::{ActivityCall, ActivityResult, WorkflowContext, Failure, RetryPolicy, Signal, WorkflowResult};
//! use longhaul_sdk::{activity, workflow};
//!
//! const PAID: Signal<u64> = Signal::new("paid");
//!
//! #[activity]
//! async fn price(item: String) -> ActivityResult<u64> {
//!     Ok(item.len() as u64 * 100)
//! }
//!
//! /// Lives in another program.
//! fn ship(item: &str) -> ActivityCall<String> {
//!     ActivityCall::named("ship").argument(item)
//! }
//!
//! #[workflow(signals(PAID))]
//! async fn checkout(ctx: WorkflowContext, item: String) -> WorkflowResult<String> {
//!     let price = ctx.activity(price(item.clone())).await?;
//!     let paid = ctx.signals(&PAID).recv_timeout(Duration::from_secs(30 * 86_400)).await?;
//!     if paid.is_none_or(|paid| paid < price) {
//!         return Ok("never paid".to_owned());
//!     }
//!     let retry = RetryPolicy::attempts(3).backoff([Duration::from_secs(3600)]);
//!     Ok(ctx.activity(ship(&item)).retry(retry).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let env = TestEnvironment::builder()
//!     .workflow::<checkout>()
//!     .activity::<price>()
//!     .fake_answers("ship", [
//!         Answer::Fails(Failure::new("no van")),
//!         Answer::Returns("parcel-1".to_owned()),
//!     ])
//!     .start()
//!     .await?;
//!
//! // Nobody pays: a month passes at once.
//! assert_eq!(env.run(checkout("pen".to_owned())).await?, "never paid");
//!
//! // Somebody pays after an hour.
//! let handle = env.start(checkout("pen".to_owned())).await?;
//! env.advance(Duration::from_secs(3600)).await;
//! handle.signal(&PAID, 300).await?;
//! assert_eq!(handle.result().await?, "parcel-1");
//!
//! let shipped = env.calls("ship");
//! assert_eq!(shipped.len(), 2);
//! assert_eq!(shipped[0].arguments::<(String,)>(), ("pen".to_owned(),));
//! assert_eq!(shipped[0].at.micros_until(shipped[1].at), 3600 * 1_000_000);
//!
//! // Replays every finished run, and panics if the code does not fit a history it wrote.
//! env.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How time passes
//!
//! The clock stands still until a test waits for a result ([`TestEnvironment::run`], [`TestHandle::result`]) or moves it
//! ([`TestEnvironment::advance`]). While a result is waited for and nothing can happen without time passing, the clock jumps
//! to the next moment that matters to the server: a timer, a timeout, the end of a back-off. Time never jumps while a request
//! is in flight, a task is being answered or an activity runs, however long that takes; a real activity that waits for the
//! test must be let go by it. An attempt that hangs until a timeout ends it is [`Answer::Never`].
//!
//! A workflow that will never end is not waited for: the error names what it and the other open workflows wait for
//! ([`RunError::Stuck`]). So is one that goes in circles, or whose code panics or is not deterministic.
//!
//! Workers renew the leases of worker sessions in real time: a session ends when time jumps over its lease.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkflowId};
use longhaul_sdk::client::{self, ResultError};
use longhaul_sdk::testing::{ReplayFailure, Replayer};
use longhaul_sdk::worker::{Ended, WorkerError};
use longhaul_sdk::{Client, Worker, WorkflowCall, WorkflowHandle};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use crate::Embedded;

mod builder;
mod fakes;
mod skipping;
mod stuck;

pub use builder::Builder;
pub use fakes::{Answer, Call};
pub use stuck::{Stuck, Why};

use skipping::Shared;

/// The queue of the environment's worker.
const QUEUE: &str = "test";

/// Why an environment could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot be opened.
    #[error(transparent)]
    Server(#[from] crate::Error),
    /// The server refuses the worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The worker ended at once.
    #[error("the worker of the test environment ended at once")]
    Ended,
    /// Nothing came to rest.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why there is no result of a workflow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] client::StartError),
    /// It ended without a result, or with one of another type.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// It does not end.
    #[error(transparent)]
    Stuck(Box<Stuck>),
    /// The environment was stopped.
    #[error("the test environment was stopped")]
    Stopped,
    /// The server failed.
    #[error("the server of the test environment failed: {0}")]
    Server(#[from] longhaul_host::Error),
}

/// A finished run whose history its own code does not fit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The code and the history part.
    #[error("workflow `{workflow_id}` ({workflow_type}) is not deterministic: {failure}")]
    #[non_exhaustive]
    Diverged {
        /// The workflow.
        workflow_id: String,
        /// Its type.
        workflow_type: String,
        /// Where they part, and how.
        failure: ReplayFailure,
    },
    /// The histories could not be read.
    #[error(transparent)]
    Client(#[from] client::Error),
}

/// A server, a worker and a clock for one test. See the [module](self).
pub struct TestEnvironment {
    server: Option<Embedded>,
    client: Client,
    shared: Arc<Shared>,
    worker: JoinHandle<Result<Ended, WorkerError>>,
    replayer: Replayer,
}

impl TestEnvironment {
    /// An environment with workflows and activities to add.
    pub fn builder() -> Builder {
        Builder::new()
    }

    async fn begin(
        server: Embedded,
        worker: Worker,
        shared: Arc<Shared>,
        replayer: Replayer,
    ) -> Result<Self, StartError> {
        let mut env = Self {
            client: server.client(),
            server: Some(server),
            worker: tokio::spawn(worker.run()),
            shared,
            replayer,
        };
        tokio::select! {
            still = env.shared.still() => {
                still?;
            }
            ended = &mut env.worker => {
                ended.map_err(|_| StartError::Ended)??;
                return Err(StartError::Ended);
            }
        }
        Ok(env)
    }

    /// A client of the server, for everything else: starts with options, lists, schedules. Give handles that it makes to
    /// [`Self::handle`].
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The task queue of the worker.
    #[must_use]
    pub fn queue(&self) -> &'static str {
        QUEUE
    }

    /// The time in the environment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.host.now()
    }

    /// Starts a workflow under an id that is made up.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn start<R: Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> Result<TestHandle<R>, client::StartError> {
        let handle = self.client.start(call).queue(QUEUE).await?;
        Ok(self.handle(handle))
    }

    /// Starts a workflow and lets time pass until it ends.
    ///
    /// # Errors
    /// It could not be started, it failed, or it does not end.
    pub async fn run<R: DeserializeOwned + Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> Result<R, RunError> {
        self.start(call).await?.result().await
    }

    /// A handle whose [`result`](TestHandle::result) lets time pass.
    pub fn handle<R>(&self, handle: WorkflowHandle<R>) -> TestHandle<R> {
        TestHandle {
            handle,
            shared: self.shared.clone(),
        }
    }

    /// Lets so much time pass, from one due moment to the next, and waits until what that brought about is done.
    ///
    /// Activities that run are waited for before and after; for time to pass meanwhile, use [`Self::advance_at_once`].
    ///
    /// # Panics
    /// The server failed.
    pub async fn advance(&self, time: Duration) {
        let target = crate::after(self.now(), time);
        if let Err(error) = self.shared.pass(target).await {
            panic!("time could not pass: {error}");
        }
    }

    /// Moves the clock and waits for nothing: for time that passes while an activity runs.
    pub fn advance_at_once(&self, time: Duration) {
        self.shared.clock.advance_to(crate::after(self.now(), time));
    }

    /// Waits until nothing can happen without time passing.
    ///
    /// # Panics
    /// The server failed.
    pub async fn settle(&self) {
        self.advance(Duration::ZERO).await;
    }

    /// Every attempt of an activity so far, real or fake, in the order they began.
    ///
    /// # Panics
    /// The environment has no such activity.
    #[must_use]
    pub fn calls(&self, activity: &str) -> Vec<Call> {
        self.shared.fakes.calls(activity)
    }

    /// Replays every finished run of the environment's workflows. How many there are.
    ///
    /// # Errors
    /// The code of one does not fit its history.
    pub async fn replay(&self) -> Result<usize, ReplayError> {
        let mut replayed = 0;
        let mut token: Option<String> = None;
        loop {
            let page = self.client.list().page(token.as_deref()).await?;
            for run in page.items {
                if run.closed_at.is_none() {
                    continue;
                }
                let handle = self.client.workflow::<()>(run.workflow_id.as_str());
                let export = handle.of_run(run.run_id).export().await?;
                match self.replayer.replay(&export.to_string()) {
                    Ok(_) => replayed += 1,
                    // Somebody else's, on another queue.
                    Err(ReplayFailure::UnknownWorkflow(_)) => {}
                    Err(failure) => {
                        return Err(ReplayError::Diverged {
                            workflow_id: run.workflow_id,
                            workflow_type: run.workflow_type,
                            failure,
                        });
                    }
                }
            }
            token = page.next_page_token;
            if token.is_none() {
                return Ok(replayed);
            }
        }
    }

    /// Replays every finished run once more, then stops. Tasks that are still running are given up.
    ///
    /// # Panics
    /// The code of a finished run does not fit its history. [`Self::replay`] asks without a panic.
    pub async fn stop(mut self) {
        let replayed = self.replay().await;
        self.shared.fakes.end();
        self.shared.worker.shut_down();
        // However it ended: it is over.
        let _ended = (&mut self.worker).await;
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        if let Err(error) = replayed {
            panic!("{error}");
        }
    }
}

impl Drop for TestEnvironment {
    fn drop(&mut self) {
        self.shared.fakes.end();
        self.worker.abort();
    }
}

impl fmt::Debug for TestEnvironment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TestEnvironment")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// A workflow in a [`TestEnvironment`]: a [`WorkflowHandle`] that lets time pass while its result is waited for.
pub struct TestHandle<R> {
    handle: WorkflowHandle<R>,
    shared: Arc<Shared>,
}

impl<R: DeserializeOwned> TestHandle<R> {
    /// Lets time pass until the workflow ends, also through runs that it continues as.
    ///
    /// # Errors
    /// It failed, or it does not end.
    pub async fn result(&self) -> Result<R, RunError> {
        if self.shared.skips {
            let namespace = Namespace::from(self.handle.client().namespace());
            let workflow_id = WorkflowId::from(self.handle.id());
            self.shared
                .pass_until_closed(&namespace, &workflow_id)
                .await?;
        }
        Ok(self.handle.result().await?)
    }
}

impl<R> Deref for TestHandle<R> {
    type Target = WorkflowHandle<R>;

    fn deref(&self) -> &Self::Target {
        &self.handle
    }
}

impl<R> Clone for TestHandle<R> {
    fn clone(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<R> fmt::Debug for TestHandle<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(out)
    }
}
