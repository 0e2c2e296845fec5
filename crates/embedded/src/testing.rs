//! A test environment for workflows: a server, a worker and a clock in the process of the test. A workflow that sleeps for a
//! month ends in milliseconds, activities are real or faked, and every closed run is replayed when the environment stops.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_embedded::testing::{FakeOutcome, TestEnvironment};
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
//! /// An activity of another program.
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
//!     .fake_outcomes("ship", [
//!         FakeOutcome::Fails(Failure::new("no van")),
//!         FakeOutcome::Returns("parcel-1".to_owned()),
//!     ])
//!     .start()
//!     .await?;
//!
//! // Without a payment, a month passes in milliseconds.
//! assert_eq!(env.run(checkout("pen".to_owned())).await?, "never paid");
//!
//! // With a payment after an hour.
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
//! // Replays every closed run, and panics if the code does not match a history it wrote.
//! env.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How time passes
//!
//! The clock moves only while a test waits for a result ([`TestEnvironment::run`], [`TestHandle::result`]) or moves it
//! ([`TestEnvironment::advance`]). While a test waits for a result and all other work is done, the clock jumps to the next due
//! time of the server: a timer, a timeout, the end of a back-off. Time never jumps while a request is in flight, a task is being
//! processed or an activity runs. A real activity that waits for the test must be released by the test. To let an attempt hang
//! until it times out, use [`FakeOutcome::Never`].
//!
//! If a workflow can never end, the wait fails with an error that names what it and the other open workflows wait for
//! ([`RunError::Stuck`]). The same happens if a workflow never stops using timers, or if its code panics or is not deterministic.
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
pub mod conductor;
mod fakes;
mod skipping;
mod stuck;

pub use builder::Builder;
pub use fakes::{Call, FakeOutcome};
pub use stuck::{Stuck, Why};

use skipping::Shared;

/// The task queue of the worker.
const QUEUE: &str = "test";

/// Why an environment could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot be opened.
    #[error(transparent)]
    Server(#[from] crate::Error),
    /// The server refused the worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The worker ended immediately.
    #[error("the worker of the test environment ended immediately")]
    Ended,
    /// The server failed during the start.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why a workflow has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow could not be started.
    #[error(transparent)]
    Start(#[from] client::StartError),
    /// The workflow ended without a result, or the result has another type.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// The workflow does not end.
    #[error(transparent)]
    Stuck(Box<Stuck>),
    /// The environment was stopped.
    #[error("the test environment was stopped")]
    Stopped,
    /// The server failed.
    #[error("the server of the test environment failed: {0}")]
    Server(#[from] longhaul_host::Error),
}

/// Why the replay of the closed runs failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The code does not match the history.
    #[error("workflow `{workflow_id}` ({workflow_type}) is not deterministic: {failure}")]
    #[non_exhaustive]
    Diverged {
        /// The workflow id.
        workflow_id: String,
        /// The workflow type.
        workflow_type: String,
        /// The difference.
        failure: ReplayFailure,
    },
    /// The histories could not be fetched.
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
    /// Returns a builder. Add workflows and activities to it.
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

    /// Returns a client of the server, for example to start a workflow with options. Pass its handles to [`Self::handle`].
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the task queue of the worker.
    #[must_use]
    pub fn queue(&self) -> &'static str {
        QUEUE
    }

    /// Returns the time of the environment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.host.now()
    }

    /// Starts a workflow with a generated id.
    ///
    /// # Errors
    /// [`client::StartError`] if the server refuses the start, or if an argument cannot be encoded.
    pub async fn start<R: Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> Result<TestHandle<R>, client::StartError> {
        let handle = self.client.start(call).queue(QUEUE).await?;
        Ok(self.handle(handle))
    }

    /// Starts a workflow, lets time pass until it closes, and returns its result.
    ///
    /// # Errors
    /// [`RunError::Start`] if it could not be started, [`RunError::Result`] if it ended without a result, and
    /// [`RunError::Stuck`] if it does not end.
    pub async fn run<R: DeserializeOwned + Send + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> Result<R, RunError> {
        self.start(call).await?.result().await
    }

    /// Converts a handle into one whose [`result`](TestHandle::result) lets time pass.
    pub fn handle<R>(&self, handle: WorkflowHandle<R>) -> TestHandle<R> {
        TestHandle {
            handle,
            shared: self.shared.clone(),
        }
    }

    /// Moves the clock forward, from one due time to the next, and waits until all work that became due is done.
    ///
    /// It waits for running activities before and after. To move the clock while an activity runs, use
    /// [`Self::advance_at_once`].
    ///
    /// # Panics
    /// If the server fails.
    pub async fn advance(&self, time: Duration) {
        let target = crate::after(self.now(), time);
        if let Err(error) = self.shared.pass(target).await {
            panic!("the clock could not be moved: {error}");
        }
    }

    /// Moves the clock without waiting. Use it while an activity runs.
    pub fn advance_at_once(&self, time: Duration) {
        self.shared.clock.advance_to(crate::after(self.now(), time));
    }

    /// Waits until all work that is due is done.
    ///
    /// # Panics
    /// If the server fails.
    pub async fn settle(&self) {
        self.advance(Duration::ZERO).await;
    }

    /// Returns every attempt of an activity, real or fake, in the order in which they began.
    ///
    /// # Panics
    /// If the environment has no such activity.
    #[must_use]
    pub fn calls(&self, activity: &str) -> Vec<Call> {
        self.shared.fakes.calls(activity)
    }

    /// Replays every closed run. Returns the number of runs.
    ///
    /// # Errors
    /// [`ReplayError::Diverged`] if the code of a run does not match its history, and [`ReplayError::Client`] if a history could
    /// not be fetched.
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
                    // A workflow of another worker.
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

    /// Replays every closed run, then stops. Running tasks are dropped.
    ///
    /// # Panics
    /// If the code of a closed run does not match its history. [`Self::replay`] returns an error instead.
    pub async fn stop(mut self) {
        let replayed = self.replay().await;
        self.shared.fakes.end();
        self.shared.worker.shut_down();
        // Its result does not matter any more.
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

/// A workflow in a [`TestEnvironment`]: a [`WorkflowHandle`] whose [`result`](Self::result) lets time pass.
pub struct TestHandle<R> {
    handle: WorkflowHandle<R>,
    shared: Arc<Shared>,
}

impl<R: DeserializeOwned> TestHandle<R> {
    /// Lets time pass until the workflow closes, and returns its result. Follows a workflow that continues as new.
    ///
    /// # Errors
    /// [`RunError::Result`] if the workflow ended without a result, [`RunError::Stuck`] if it does not end, and
    /// [`RunError::Stopped`] if the environment was stopped.
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
