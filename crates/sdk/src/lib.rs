//! Durable workflows in Rust: workflow code, workers and a client for the Durable Workflow protocol.
//!
//! A workflow is an `async` function that may run for months. Whatever it waits for is recorded by a server before the
//! workflow hears of it; when its process dies, another one takes the function up where it was. What touches the world goes
//! into activities, which are retried until they succeed or are given up.
//!
//! ```
//! use longhaul_embedded::Embedded;
//! use longhaul_sdk::{ActivityResult, WorkflowContext, Worker, WorkflowResult, activity, workflow};
//!
//! #[activity]
//! async fn compose(name: String) -> ActivityResult<String> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! #[workflow]
//! async fn greet(ctx: WorkflowContext, name: String) -> WorkflowResult<String> {
//!     Ok(ctx.activity(compose(name)).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A server in this process; `Client::connect("http://…")` for one elsewhere.
//! let server = Embedded::in_memory().await?;
//! let client = server.client();
//! let worker = Worker::builder(&client, "greetings")
//!     .workflow::<greet>()
//!     .activity::<compose>()
//!     .build();
//! let stop = worker.handle();
//! let working = tokio::spawn(worker.run());
//!
//! let handle = client.start(greet("Ada".to_owned())).id("greeting-1").queue("greetings").await?;
//! assert_eq!(handle.result().await?, "Hello, Ada!");
//!
//! stop.shut_down();
//! working.await??;
//! # Ok(())
//! # }
//! ```
//!
//! # Definitions
//!
//! [`#[activity]`](macro@activity) and [`#[workflow]`](macro@workflow) make three things of a function, all of its name: a
//! function that makes a *call* (`compose(name)` is an [`ActivityCall`]), a *type* to register with a worker
//! (`.activity::<compose>()`), and on that type the *body* as it was written (`compose::run(name)`), so that a unit test
//! needs no server.
//!
//! ```
//! # use longhaul_sdk::{ActivityContext, ActivityResult, Failure, activity};
//! /// Known as `card.charge` to every language; blocks, so it runs on a thread of its own.
//! #[activity(name = "card.charge")]
//! fn charge(ctx: ActivityContext, cents: u64) -> ActivityResult<String> {
//!     if cents == 0 {
//!         return Err(Failure::of_type("NothingToCharge", "the amount is zero").non_retryable());
//!     }
//!     // The same for every attempt: let the other side use it to do things once.
//!     Ok(ctx.idempotency_key().to_owned())
//! }
//!
//! assert_eq!(charge(5).name(), "card.charge");
//! ```
//!
//! Messages are constants that a workflow and its callers share. [`Signal`]s are taken in order, [`Query`]s are answered
//! from state and change nothing, [`Update`]s change state and are answered. Their arguments are one value, or a tuple.
//!
//! ```
//! # use longhaul_sdk::{WorkflowContext, Query, Signal, Update, WorkflowResult, workflow};
//! const ADD: Update<(String, u32), u32> = Update::new("add");
//! const TOTAL: Query<(), u32> = Query::new("total");
//! const CHECK_OUT: Signal<()> = Signal::new("check_out");
//!
//! #[workflow(signals(CHECK_OUT), queries(TOTAL), updates(ADD))]
//! async fn cart(ctx: WorkflowContext) -> WorkflowResult<u32> {
//!     let total = ctx.state(0);
//!     ctx.on_query(&TOTAL, { let total = total.clone(); move |()| total.get() });
//!     ctx.on_update(&ADD, {
//!         let total = total.clone();
//!         move |(_item, cents)| Ok(total.update(|total| { *total += cents; *total }))
//!     });
//!     ctx.signals(&CHECK_OUT).recv().await?;
//!     Ok(total.get())
//! }
//! ```
//!
//! Without macros, and for code of another language, [`WorkflowDefinition::new`], [`ActivityDefinition::new`],
//! [`WorkflowCall::named`] and [`ActivityCall::named`] do the same by name.
//!
//! Arguments and results are whatever serde can write and read; [`payload`] has the mapping. A function that may get a new
//! argument later takes it as an `Option` at the end: callers that do not know it yet leave it out.
//!
//! # Clients
//!
//! A [`Client`] is one namespace of one server. It starts workflows and finds them again; a [`WorkflowHandle`] talks to one:
//!
//! ```no_run
//! # use longhaul_sdk::{Client, Query, Signal, Update, WorkflowCall};
//! # const ADD: Update<(String, u32), u32> = Update::new("add");
//! # const TOTAL: Query<(), u32> = Query::new("total");
//! # const CHECK_OUT: Signal<()> = Signal::new("check_out");
//! # fn cart() -> WorkflowCall<u32> { WorkflowCall::named("cart") }
//! use std::time::Duration;
//!
//! use longhaul_sdk::client::{ResultError, StartError};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("http://127.0.0.1:8080").namespace("shop").connect().await?;
//!
//! let start = client.start(cart()).id("cart-ada").queue("carts").execution_timeout(Duration::from_secs(86_400));
//! let cart = match start.await {
//!     Ok(handle) => handle,
//!     Err(StartError::AlreadyStarted { .. }) => client.workflow("cart-ada"),
//!     Err(error) => return Err(error.into()),
//! };
//! let total = cart.update(&ADD, ("pen".to_owned(), 250)).await?;
//! assert_eq!(cart.query(&TOTAL, ()).await?, total);
//! cart.signal(&CHECK_OUT, ()).await?;
//! match cart.result().await {
//!     Ok(total) => println!("checked out at {total}"),
//!     Err(ResultError::Failed(failure)) => println!("{failure}"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`WorkflowHandle::result`] waits as long as it takes, without polling, and follows a workflow that continues as new.
//! Requests are repeated when the server cannot be reached or asks for it, and only those that may be: what is said twice is
//! done once. Every refusal keeps the server's machine-readable reason and its whole answer ([`transport::Refusal`]).
//!
//! Lists ([`Client::list`]), histories ([`WorkflowHandle::history`]), search attributes, workers and task queues are plain
//! typed data. The cargo feature `schedules` adds schedules, for servers that have schedules; longhaul does not yet.
//!
//! Programs that want no server beside them run one in their own process: crate `longhaul-embedded`.
//!
//! # Testing
//!
//! `longhaul_embedded::testing::TestEnvironment` is a server, a worker and a clock in the process of the test. While the test
//! waits for a result and nothing can happen without time passing, the clock jumps to the next timer, timeout or retry.
//! Activities are real or faked, their calls are written down, and every finished run is replayed at the end.
//!
//! ```
//! # use std::time::Duration;
//! # use longhaul_sdk::{ActivityResult, WorkflowContext, WorkflowResult, activity, workflow};
//! use longhaul_embedded::testing::TestEnvironment;
//!
//! # #[activity]
//! # async fn remind(name: String) -> ActivityResult<u32> { Ok(1) }
//! #[workflow]
//! async fn reminder(ctx: WorkflowContext, name: String) -> WorkflowResult<u32> {
//!     ctx.sleep(Duration::from_secs(30 * 86_400)).await?;
//!     Ok(ctx.activity(remind(name)).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let env = TestEnvironment::builder()
//!     .workflow::<reminder>()
//!     .fake("remind", |(name,): (String,)| Ok(name.len()))
//!     .start()
//!     .await?;
//! assert_eq!(env.run(reminder("Ada".to_owned())).await?, 3);
//! assert_eq!(env.calls("remind").len(), 1);
//! env.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Histories of production are replayed against new code before it is deployed with [`testing::Replayer`].

#![warn(missing_docs)]

// The macros write whole paths, also in this crate.
extern crate self as longhaul_sdk;

pub mod activity;
pub mod client;
mod connection;
pub mod definition;
mod duration;
pub mod error;
#[doc(hidden)]
pub mod macro_support;
pub mod payload;
pub mod testing;
pub mod transport;
pub mod worker;
pub mod workflow;

pub use activity::ActivityContext;
pub use client::{Client, WorkflowHandle};
pub use definition::{
    Activity, ActivityCall, ActivityDefinition, Query, Signal, Update, Workflow, WorkflowCall,
    WorkflowDefinition,
};
pub use error::{
    ActivityError, ActivityFailure, ActivityResult, Cancelled, ChildError, Failure, FailureKind,
    TimeoutKind, WorkflowError, WorkflowResult,
};
pub use longhaul_macros::{activity, workflow};
pub use worker::{Worker, WorkerHandle};
pub use workflow::{
    CancellationPolicy, LocalActivityOptions, ParentClosePolicy, RetryPolicy, Saga, State,
    WorkerSessionOptions, WorkflowContext,
};

/// The earlier name of [`WorkflowContext`].
#[deprecated(note = "renamed to `WorkflowContext`")]
pub type Context = WorkflowContext;
