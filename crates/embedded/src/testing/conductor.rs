//! A test environment for Conductor workflows: a server, workers and a clock in the process of the test. A definition that waits for
//! a month ends in milliseconds, and workers are real or faked.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_conductor_sdk::definition::{TaskDefBuilder, WorkflowDefBuilder, output_of, simple, wait_for};
//! use longhaul_conductor_sdk::model::{RetryLogic, WorkflowStatus};
//! use longhaul_conductor_sdk::worker_task;
//! use longhaul_embedded::testing::conductor::{ConductorEnvironment, FakeTask};
//! use serde_json::json;
//!
//! #[worker_task("price")]
//! async fn price(item: String) -> usize {
//!     item.len() * 100
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let env = ConductorEnvironment::builder()
//!     .worker(price::worker())
//!     .fake("ship", [FakeTask::Fails("no van".to_owned()), FakeTask::Returns(json!({"parcel": 1}))])
//!     .start()
//!     .await?;
//! let ship = TaskDefBuilder::new("ship")
//!     .retries(3)
//!     .retry_logic(RetryLogic::Fixed)
//!     .retry_delay(Duration::from_secs(3600))
//!     .build()?;
//! env.client().metadata().register_tasks(&[ship]).await?;
//! let order = WorkflowDefBuilder::new("order")
//!     .then(simple("price", "price").input("item", "${workflow.input.item}"))
//!     .then(wait_for("month", Duration::from_secs(30 * 86_400)))
//!     .then(simple("ship", "ship"))
//!     .output("price", output_of("price", "result"))
//!     .build()?;
//! env.client().metadata().register_workflow(&order).await?;
//!
//! let ended = env.run("order", json!({"item": "pen"})).await?;
//! assert_eq!(ended.status, WorkflowStatus::Completed);
//! assert_eq!(ended.output["price"], 300);
//!
//! let shipped = env.calls("ship");
//! assert_eq!(shipped.len(), 2);
//! assert_eq!(shipped[0].at.micros_until(shipped[1].at), 3600 * 1_000_000);
//! env.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How time passes
//!
//! The clock of the server moves only while a test waits for a workflow ([`ConductorEnvironment::run`],
//! [`ConductorEnvironment::ended`]) or moves it ([`ConductorEnvironment::advance`]). The workers poll only then, too. The clock jumps to
//! the next due time when no task can be polled, no worker runs and the server has nothing to do. A worker that waits in real time is
//! waited for. To let a task hang until it times out, use [`FakeTask::Never`].
//!
//! If a workflow can never end, the wait fails with an error that names what it waits for ([`RunError::Stuck`]).

mod builder;
mod fakes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use longhaul_conductor_sdk::Client;
use longhaul_conductor_sdk::model::{Object, StartWorkflowRequest, Workflow};
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::settings::SettingsError;
use longhaul_conductor_sdk::transport::RequestError;
use longhaul_host::clock::ManualClock;
use longhaul_host::{Host, Idle};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, WorkflowId};
use serde_json::Value;
use tokio::sync::Mutex;

use super::stuck::{Stuck, Why};
use crate::traffic::Counts;
use crate::{Embedded, EmbeddedTransport};
use fakes::Calls;

pub use builder::Builder;
pub use fakes::{FakeTask, TaskCall};

/// Why an environment could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot be opened.
    #[error(transparent)]
    Server(#[from] crate::Error),
    /// A setting of a worker is not valid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Why a workflow did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server refused a request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The workflow does not end.
    #[error(transparent)]
    Stuck(Box<Stuck>),
    /// The server failed.
    #[error("the server of the test environment failed: {0}")]
    Server(#[from] longhaul_host::Error),
}

/// A server, workers and a clock for one test. See the [module](self).
pub struct ConductorEnvironment {
    server: Embedded,
    client: Client,
    host: Host,
    transport: EmbeddedTransport,
    clock: ManualClock,
    calls: Arc<Calls>,
    /// Only one wait lets time pass.
    runners: Mutex<Vec<TaskRunner>>,
    longest_wait: Duration,
    most_jumps: u32,
}

/// A point at which no work is left to do at the current time.
struct Still {
    counts: Counts,
    due_at: Option<Timestamp>,
}

impl ConductorEnvironment {
    /// Returns a builder. Add workers to it.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns the clients of the server: to register definitions, to start and control workflows.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the time of the environment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.host.now()
    }

    /// Starts a workflow, lets time pass until it ends, and returns it with its tasks.
    ///
    /// # Errors
    /// [`RunError::Request`] if it could not be started, and [`RunError::Stuck`] if it does not end.
    ///
    /// # Panics
    /// If the input is not an object.
    pub async fn run(&self, name: &str, input: Value) -> Result<Workflow, RunError> {
        let id = self.start(name, input).await?;
        self.ended(&id).await
    }

    /// Starts the newest version of a workflow. Returns its id.
    ///
    /// # Errors
    /// The server refused the start.
    ///
    /// # Panics
    /// If the input is not an object.
    pub async fn start(&self, name: &str, input: Value) -> Result<String, RequestError> {
        let input: Object = match input {
            Value::Object(input) => input,
            other => panic!("the input of a workflow is an object, not {other}"),
        };
        let request = StartWorkflowRequest {
            name: name.to_owned(),
            input,
            ..StartWorkflowRequest::default()
        };
        self.client.workflows().start(&request).await
    }

    /// Lets time pass until a workflow ends. Returns it with its tasks.
    ///
    /// # Errors
    /// [`RunError::Request`] if there is no such workflow, and [`RunError::Stuck`] if it does not end.
    pub async fn ended(&self, workflow_id: &str) -> Result<Workflow, RunError> {
        let limit = u64::try_from(self.longest_wait.as_micros()).unwrap_or(u64::MAX);
        let (begin, mut jumps) = (self.now(), 0);
        loop {
            let still = self.still().await?;
            let workflow = self.client.workflows().get(workflow_id).await?;
            if workflow.status.is_terminal() {
                return Ok(workflow);
            }
            let why = match still.due_at {
                None => Why::NothingDue,
                Some(at) if begin.micros_until(at) > limit => Why::TooLong(self.longest_wait),
                Some(_) if jumps == self.most_jumps => Why::TooManyJumps(jumps),
                Some(at) => {
                    let counts = still.counts.after_requests(1);
                    jumps += u32::from(self.jump(counts, at));
                    continue;
                }
            };
            let (namespace, id) = (Namespace::from("default"), WorkflowId::from(workflow_id));
            let stuck = Stuck::describe(&self.host, None, &namespace, &id, why).await?;
            return Err(RunError::Stuck(Box::new(stuck)));
        }
    }

    /// Moves the clock forward, from one due time to the next, and does all work that becomes due.
    ///
    /// # Panics
    /// If the server fails.
    pub async fn advance(&self, time: Duration) {
        let target = crate::after(self.now(), time);
        loop {
            let still = match self.still().await {
                Ok(still) => still,
                Err(error) => panic!("the clock could not be moved: {error}"),
            };
            if self.now() >= target {
                return;
            }
            let to = still.due_at.map_or(target, |at| at.min(target));
            self.jump(still.counts, to);
        }
    }

    /// Does all work that is due, without moving the clock.
    ///
    /// # Panics
    /// If the server fails.
    pub async fn settle(&self) {
        self.advance(Duration::ZERO).await;
    }

    /// Returns every task of this type that a worker or a fake got, in order.
    ///
    /// # Panics
    /// If the environment has no worker of this type.
    #[must_use]
    pub fn calls(&self, task_type: &str) -> Vec<TaskCall> {
        self.calls.of(task_type)
    }

    /// Stops the server. Tasks that hang are dropped.
    pub async fn stop(self) {
        self.runners.lock().await.clear();
        self.server.stop().await;
    }

    /// Lets the workers do everything that can be done at the current time.
    async fn still(&self) -> Result<Still, RunError> {
        let mut runners = self.runners.lock().await;
        loop {
            let (counts, idle) = self.idle().await?;
            let mut begun = 0;
            for runner in runners.iter_mut() {
                begun += runner.poll_now().await;
            }
            if begun == 0 {
                let polls = u64::try_from(runners.len()).unwrap_or(u64::MAX);
                let counts = counts.after_requests(polls);
                if self.transport.traffic().counts() == counts {
                    let due_at = idle.due_at;
                    return Ok(Still { counts, due_at });
                }
            }
            self.finish_tasks(&mut runners).await;
        }
    }

    /// Waits until the server has nothing to do before its next due time.
    async fn idle(&self) -> Result<(Counts, Idle), RunError> {
        loop {
            // Registered before the check, so that no change after it is missed.
            let became_idle = self.host.became_idle();
            let ended = self.transport.traffic().ended();
            tokio::pin!(became_idle, ended);
            became_idle.as_mut().enable();
            ended.as_mut().enable();
            let counts = self.transport.traffic().counts();
            if counts.others == 0
                && let Some(idle) = self.host.idle().await?
            {
                return Ok((counts, idle));
            }
            tokio::select! {
                () = became_idle => {}
                () = ended => {}
            }
        }
    }

    /// Waits until no worker runs, except those that hang.
    async fn finish_tasks(&self, runners: &mut [TaskRunner]) {
        loop {
            let hung = self.calls.hung();
            tokio::pin!(hung);
            hung.as_mut().enable();
            let running: usize = runners.iter().map(TaskRunner::running).sum();
            if running <= self.calls.hanging() {
                return;
            }
            let busy = runners.iter_mut().filter(|runner| runner.running() > 0);
            let ended = select_all(busy.map(|runner| Box::pin(runner.task_ended())));
            tokio::select! {
                _ = ended => {}
                () = hung => {}
            }
        }
    }

    /// Moves the clock, unless a request began or ended since the check. Returns whether it moved.
    fn jump(&self, counts: Counts, to: Timestamp) -> bool {
        let traffic = self.transport.traffic();
        traffic.if_still(counts, || self.clock.advance_to(to))
    }
}

impl fmt::Debug for ConductorEnvironment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ConductorEnvironment")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
