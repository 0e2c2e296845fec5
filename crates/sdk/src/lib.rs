//! Durable workflows in Rust: workflow code, workers and a client for the Durable Workflow protocol.
//!
//! A workflow is an `async` function that may run for months. A server records every step of it. When the process of the
//! workflow dies, another process continues the function where it was. Work with side effects goes into activities.
//! **An activity has one attempt by default**: a failed attempt is repeated only if the call has a [`RetryPolicy`].
//!
//! ```
//! use longhaul_embedded::Embedded;
//! use longhaul_sdk::{ActivityResult, Worker, WorkflowContext, WorkflowResult, activity, workflow};
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
//! // A server in this process. For a server elsewhere: `Client::connect("http://…")`.
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
//! [`#[activity]`](macro@activity) and [`#[workflow]`](macro@workflow) create three things with the name of the function:
//!
//! * `greet(name)` is a *call*: a [`WorkflowCall`] or [`ActivityCall`]. It runs nothing; pass it to
//!   [`Client::start`], [`WorkflowContext::child`] or [`WorkflowContext::activity`].
//! * `greet` is also a *type*, to register with a worker: `.workflow::<greet>()`.
//! * `greet::run(ctx, name)` is the *body* as written. For activities, `compose::run(name)` lets a unit test call the function
//!   without a server.
//!
//! ```
//! # use longhaul_sdk::{ActivityContext, ActivityResult, Failure, activity};
//! /// Has the name `card.charge` in every language. It blocks, so it runs on a thread for blocking code.
//! #[activity(name = "card.charge")]
//! fn charge(ctx: ActivityContext, cents: u64) -> ActivityResult<String> {
//!     if cents == 0 {
//!         return Err(Failure::of_type("NothingToCharge", "the amount is zero").non_retryable());
//!     }
//!     // The key is the same for every attempt. Use it to make the charge idempotent.
//!     Ok(ctx.idempotency_key().to_owned())
//! }
//!
//! assert_eq!(charge(5).name(), "card.charge");
//! ```
//!
//! Messages are constants that a workflow and its callers share. A [`Signal`] is delivered in order and has no answer. A
//! [`Query`] reads state. An [`Update`] changes state and has an answer; a [`ValidatedUpdate`] has a validator, too. The arguments
//! of a message are one value, or a tuple.
//!
//! `#[workflow(signals(..), queries(..), updates(..))]` lists the messages of a workflow; the worker registers this list with the
//! server. The workflow sets a handler for every listed query and update, before its first `.await`. Handlers borrow the
//! [`State`] of the workflow.
//!
//! ```
//! # use longhaul_sdk::{Query, Signal, State, Update, WorkflowContext, WorkflowResult, workflow};
//! const ADD: Update<(String, u32), u32> = Update::new("add");
//! const TOTAL: Query<(), u32> = Query::new("total");
//! const CHECK_OUT: Signal<()> = Signal::new("check_out");
//!
//! #[workflow(signals(CHECK_OUT), queries(TOTAL), updates(ADD))]
//! async fn cart(ctx: WorkflowContext) -> WorkflowResult<u32> {
//!     let total = State::new(0);
//!     ctx.on_query(&TOTAL, &total, |total, ()| *total);
//!     ctx.on_update(&ADD, &total, |total, (_item, cents)| {
//!         *total += cents;
//!         Ok(*total)
//!     });
//!     ctx.signals(&CHECK_OUT).recv().await?;
//!     Ok(total.get())
//! }
//! ```
//!
//! Without macros, and for code in other languages, use [`WorkflowDefinition::new`], [`ActivityDefinition::new`],
//! [`WorkflowCall::named`] and [`ActivityCall::named`].
//!
//! Arguments and results are types that serde can serialize and deserialize; [`payload`] has the mapping. To add an argument to a
//! function later, add an `Option` at the end: callers that do not know it leave it out.
//!
//! # Durations
//!
//! Every call takes a [`Duration`](std::time::Duration). The protocol counts whole seconds, so **a duration is rounded up to whole
//! seconds, never down**, and a timeout or lease is at least one second. No call fails because a duration is not a whole number of
//! seconds. This holds for sleeps, timeouts, the pauses between attempts, sessions, polls and the timeouts of the client.
//!
//! # Clients
//!
//! A [`Client`] acts in one namespace of one server. It starts workflows and finds them again. A [`WorkflowHandle`] has the
//! operations on one workflow:
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
//! [`WorkflowHandle::result`] waits until the workflow closes, with one long poll, and follows a workflow that continues as new.
//! If the server cannot be reached or asks for a retry, a request is repeated if that is safe. Every refusal keeps the
//! machine-readable reason and the whole response of the server ([`transport::Refusal`]).
//!
//! Lists ([`Client::list`]), histories ([`WorkflowHandle::history`]), search attributes, workers and task queues are plain typed
//! data. The cargo feature `schedules` adds schedules, for servers that have schedules; longhaul does not yet.
//!
//! To run a server in your own process, use the crate `longhaul-embedded`.
//!
//! # Testing
//!
//! `longhaul_embedded::testing::TestEnvironment` is a server, a worker and a clock in the process of the test. While the test
//! waits for a result and all other work is done, the clock jumps to the next timer, timeout or retry. Activities are real or
//! faked, their calls are recorded, and every closed run is replayed at the end.
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
//! Before you deploy new code, replay histories of production against it with [`testing::Replayer`].

#![warn(missing_docs)]

// The macros write absolute paths, which must also resolve in this crate.
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
    Activity, ActivityCall, ActivityDefinition, Query, Signal, Update, ValidatedUpdate, Workflow,
    WorkflowCall, WorkflowDefinition,
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
