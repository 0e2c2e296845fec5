//! The context of a workflow: everything that workflow code may call.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use longhaul_protocol::{Payload, Timestamp};
use rand::rngs::SmallRng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::activity::ActivityCallBuilder;
use super::call::{CallFuture, CallKind, Outcome};
use super::child::ChildWorkflowCallBuilder;
use super::handler::{UpdateHandler, Validate};
use super::local::LocalActivityCallBuilder;
use super::replay::execution::Tasks;
use super::replay::journal::{Journal, RunInfo};
use super::replay::replay_error::MessageKind;
use super::scope::{ScopeId, ScopeKind, Scopes};
use super::session::{Session, WorkerSessionOptions};
use super::state::State;
use super::wait::Wait;
use crate::definition::{ActivityCall, Query, Signal, Update, ValidatedUpdate, WorkflowCall};
use crate::duration::seconds;
use crate::error::{Cancelled, ContinueAsNew, Ending, Failure, WorkflowError};
use crate::payload::{self, Error as PayloadError};

/// The context of a workflow. Everything a workflow waits for or changes goes through it. Cheap to clone.
///
/// Workflow code runs again whenever a worker replays the run, so it must be deterministic: it must not read the clock, draw
/// random numbers, do I/O or depend on the order of a hash map. Use [`now`](Self::now), [`random`](Self::random) and
/// [`side_effect`](Self::side_effect) instead, or an activity.
#[derive(Clone)]
pub struct WorkflowContext {
    journal: Arc<Journal>,
    tasks: Arc<Tasks>,
}

impl fmt::Debug for WorkflowContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("WorkflowContext")
            .field(&self.journal.info)
            .finish()
    }
}

impl WorkflowContext {
    pub(super) fn new(journal: Arc<Journal>, tasks: Arc<Tasks>) -> Self {
        Self { journal, tasks }
    }

    /// Returns the ids, the type and the task queue of this run.
    pub fn info(&self) -> &RunInfo {
        &self.journal.info
    }

    /// Returns the time of the event that the code reacts to. It is the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.journal.with(|state| state.now)
    }

    /// Returns a generator of random numbers that are the same in every replay.
    pub fn random(&self) -> SmallRng {
        self.journal.random()
    }

    /// Returns the number of events in the history when this piece of code began to run.
    pub fn history_length(&self) -> u64 {
        self.journal.with(|state| state.history_length)
    }

    /// Returns whether the history is so long that the workflow should [continue as new](Self::continue_as_new).
    pub fn continue_as_new_suggested(&self) -> bool {
        self.journal.with(|state| state.continue_as_new_suggested)
    }

    // Calls.

    /// Calls an activity. Await the call, or [start](ActivityCallBuilder::start) it and await it later.
    ///
    /// **An activity has one attempt by default.** Add [`.retry(..)`](ActivityCallBuilder::retry) to repeat failed attempts.
    pub fn activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> ActivityCallBuilder<R> {
        ActivityCallBuilder::new(self.journal.clone(), call)
    }

    /// Calls an activity in the process of this worker, without a queue. For short steps.
    ///
    /// **A local activity has one attempt by default**, too.
    pub fn local_activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> LocalActivityCallBuilder<R> {
        LocalActivityCallBuilder::new(self.journal.clone(), call)
    }

    /// Starts another workflow as a child of this one.
    pub fn child<R: DeserializeOwned + 'static>(
        &self,
        call: WorkflowCall<R>,
    ) -> ChildWorkflowCallBuilder<R> {
        ChildWorkflowCallBuilder::new(self.journal.clone(), call)
    }

    /// Returns a session. Activities called through it run on the same worker.
    #[must_use]
    pub fn session(&self, options: WorkerSessionOptions) -> Session {
        Session {
            journal: self.journal.clone(),
            options,
        }
    }

    /// Waits for the duration, rounded up to whole seconds.
    ///
    /// # Errors
    /// [`Cancelled`] if the workflow is cancelled during the wait.
    pub fn sleep(
        &self,
        duration: Duration,
    ) -> impl Future<Output = Result<(), Cancelled>> + Send + use<> {
        let command = json!({"type": "start_timer", "delay_seconds": seconds(duration)});
        CallFuture::new(
            self.journal.clone(),
            CallKind::Timer,
            command,
            |_, outcome| {
                if matches!(outcome, Outcome::Interrupted) {
                    Err(Cancelled)
                } else {
                    Ok(())
                }
            },
        )
    }

    /// Waits for `future`, at most for the duration, rounded up to whole seconds. Returns `None` after the timeout. The timeout
    /// ends with the future.
    ///
    /// # Errors
    /// [`Cancelled`] if the workflow is cancelled during the wait.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<Option<F::Output>, Cancelled> {
        // A wait whose condition never holds. Unlike a timer, it is closed when it is not needed any more.
        let clock = Wait::<()>::new(self.journal.clone(), "timeout".to_owned(), || None)
            .timeout_seconds(seconds(duration));
        match super::select::select(std::pin::pin!(future), clock).await {
            super::select::Either::First(output) => Ok(Some(output)),
            super::select::Either::Second(ended) => ended.map(|_| None),
        }
    }

    /// Waits until a condition on the workflow's own state holds. The condition is evaluated after every event.
    pub fn wait_until(&self, condition: impl FnMut() -> bool + Send + 'static) -> WaitUntil {
        let mut condition = condition;
        WaitUntil(Wait::new(
            self.journal.clone(),
            "condition".to_owned(),
            move || condition().then_some(()),
        ))
    }

    /// Runs a future concurrently with the rest of the workflow. It ends with the workflow.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let (sender, receiver) = oneshot::channel();
        self.tasks.spawn(Box::pin(async move {
            // The handle may have been dropped.
            let _handle_dropped = sender.send(future.await);
        }));
        JoinHandle(receiver)
    }

    // Messages.

    /// Returns the signals of one name, in the order in which the server accepted them.
    ///
    /// If the workflow lists other signals but not this one, the server would refuse it, and the workflow task fails with an
    /// error that names the list.
    pub fn signals<T: DeserializeOwned>(&self, signal: &Signal<T>) -> Signals<T> {
        self.journal
            .check_listed(MessageKind::Signal, signal.name());
        Signals {
            journal: self.journal.clone(),
            name: signal.name().to_owned(),
            value: PhantomData,
        }
    }

    /// Sets the handler of a query. It gets the state and the arguments, and returns the answer. It makes no calls.
    ///
    /// ```
    /// # use longhaul_sdk::{Query, State, WorkflowContext};
    /// const TOTAL: Query<(), u32> = Query::new("total");
    /// # fn example(ctx: WorkflowContext) {
    /// let total = State::new(0);
    /// ctx.on_query(&TOTAL, &total, |total, ()| *total);
    /// # }
    /// ```
    ///
    /// Set handlers before the first `.await`, so that they are there when the first message comes: otherwise the workflow
    /// task fails with an error that names the message. It also fails if `#[workflow(queries(..))]` does not list the query.
    pub fn on_query<S, A, R>(
        &self,
        query: &Query<A, R>,
        state: &State<S>,
        handler: impl Fn(&S, A) -> R + Send + Sync + 'static,
    ) where
        S: Send + 'static,
        A: DeserializeOwned,
        R: Serialize,
    {
        let state = state.clone();
        let handle = Arc::new(move |arguments: &Payload| {
            let arguments = payload::from_arguments(arguments)?;
            let answer = state.with(|state| handler(state, arguments));
            Ok(payload::to_payload(&answer)?)
        });
        self.journal.check_listed(MessageKind::Query, query.name());
        self.journal.with(|state| {
            state
                .handlers
                .queries
                .insert(query.name().to_owned(), handle)
        });
    }

    /// Sets the handler of an update. It gets the state and the arguments, changes the state and returns the answer. It makes
    /// no calls and is not `async`.
    ///
    /// ```
    /// # use longhaul_sdk::{State, Update, WorkflowContext};
    /// const ADD: Update<u32, u32> = Update::new("add");
    /// # fn example(ctx: WorkflowContext) {
    /// let total = State::new(0);
    /// ctx.on_update(&ADD, &total, |total, cents| {
    ///     *total += cents;
    ///     Ok(*total)
    /// });
    /// # }
    /// ```
    ///
    /// As with [`on_query`](Self::on_query), set it before the first `.await`, and list it in `#[workflow(updates(..))]`.
    pub fn on_update<S, A, R>(
        &self,
        update: &Update<A, R>,
        state: &State<S>,
        handler: impl Fn(&mut S, A) -> Result<R, Failure> + Send + Sync + 'static,
    ) where
        S: Send + 'static,
        A: DeserializeOwned,
        R: Serialize,
    {
        self.set_update_handler(update.name(), state, handler, None);
    }

    /// Sets the validator and the handler of an update. The validator is called first, and changes nothing. If it returns an
    /// error, the caller gets that error and the update has no effect.
    ///
    /// As with [`on_query`](Self::on_query), set them before the first `.await`, and list the update in
    /// `#[workflow(updates(..))]`.
    pub fn on_validated_update<S, A, R>(
        &self,
        update: &ValidatedUpdate<A, R>,
        state: &State<S>,
        validator: impl Fn(&S, &A) -> Result<(), Failure> + Send + Sync + 'static,
        handler: impl Fn(&mut S, A) -> Result<R, Failure> + Send + Sync + 'static,
    ) where
        S: Send + 'static,
        A: DeserializeOwned,
        R: Serialize,
    {
        let validated = state.clone();
        let validate = Arc::new(move |arguments: &Payload| {
            let arguments = payload::from_arguments::<A>(arguments)?;
            validated.with(|state| validator(state, &arguments))
        });
        self.set_update_handler(update.name(), state, handler, Some(validate));
    }

    fn set_update_handler<S: Send + 'static, A: DeserializeOwned, R: Serialize>(
        &self,
        name: &str,
        state: &State<S>,
        handler: impl Fn(&mut S, A) -> Result<R, Failure> + Send + Sync + 'static,
        validate: Option<Validate>,
    ) {
        let state = state.clone();
        let handle = Arc::new(move |arguments: &Payload| {
            let arguments = payload::from_arguments(arguments)?;
            let answer = state.update(|state| handler(state, arguments))?;
            Ok(payload::to_payload(&answer)?)
        });
        self.journal.check_listed(MessageKind::Update, name);
        self.journal.with(|state| {
            state
                .handlers
                .updates
                .insert(name.to_owned(), UpdateHandler { handle, validate })
        });
    }

    // Recorded values.

    /// Calls `code` once in the life of the run and records its result. A replay returns the recorded result. The code must be
    /// quick and must not fail; use an activity for anything else.
    ///
    /// # Errors
    /// [`payload::Error`](crate::payload::Error) if the value cannot be encoded as a payload, or if the recorded value is not
    /// a `T`.
    pub fn side_effect<T: Serialize + DeserializeOwned>(
        &self,
        code: impl FnOnce() -> T,
    ) -> Result<T, PayloadError> {
        let mut fresh = None;
        let recorded = self.journal.record(CallKind::SideEffect, || {
            let value = code();
            let result = payload::to_payload(&value);
            let recorded = result
                .as_ref()
                .map_or_else(|_| Payload::null(), Clone::clone);
            fresh = Some(result.map(|_| value));
            json!({"type": "record_side_effect", "result": recorded})
        });
        match (fresh, recorded) {
            (Some(value), _) => value,
            (None, Some(facts)) => {
                payload::from_payload(&facts.result.unwrap_or_else(Payload::null))
            }
            (None, None) => payload::from_payload(&Payload::null()),
        }
    }

    /// Returns whether this run takes the new path of a change. It is true for runs that reach this call for the first time with
    /// the new code.
    pub fn patched(&self, change: &str) -> bool {
        self.journal.version(change, -1, 1) >= 1
    }

    /// Returns the version of a change that this run uses. It is -1 for runs that passed this place before the change had a
    /// version.
    pub fn version(&self, change: &str, min_supported: i32, max_supported: i32) -> i32 {
        self.journal.version(change, min_supported, max_supported)
    }

    /// Sets search attributes. A null value removes the attribute.
    pub fn upsert_search_attributes(&self, attributes: Map<String, Value>) {
        if !attributes.is_empty() {
            self.journal.record(
                CallKind::SearchAttributes,
                || json!({"type": "upsert_search_attributes", "attributes": attributes}),
            );
        }
    }

    /// Sets entries of the memo. A null value removes the entry.
    ///
    /// # Errors
    /// [`payload::Error`](crate::payload::Error) if the entries cannot be encoded as a payload.
    pub fn upsert_memo<T: Serialize>(&self, entries: &T) -> Result<(), PayloadError> {
        let entries = payload::to_payload(entries)?;
        self.journal.record(
            CallKind::Memo,
            || json!({"type": "upsert_memo", "entries": entries}),
        );
        Ok(())
    }

    // Ending.

    /// Ends this run and starts a new run of the same workflow, with an empty history. Return its result:
    /// `return ctx.continue_as_new(call);`
    ///
    /// # Errors
    /// Always. The error tells the worker to end the run.
    pub fn continue_as_new<R, T>(&self, call: WorkflowCall<R>) -> Result<T, WorkflowError> {
        Err(WorkflowError(Ending::ContinueAsNew(Box::new(
            ContinueAsNew {
                call: call.call,
                queue: None,
            },
        ))))
    }

    /// Returns whether the cancellation of the workflow was requested.
    pub fn is_cancelled(&self) -> bool {
        self.journal
            .with(|state| state.scopes.is_cancelled(Scopes::ROOT))
    }

    /// Returns the reason that the caller gave for the cancellation.
    pub fn cancellation_reason(&self) -> Option<String> {
        self.journal.with(|state| state.cancellation_reason.clone())
    }

    /// Waits until the cancellation of the workflow is requested.
    pub async fn cancelled(&self) {
        if !self.is_cancelled() {
            let journal = self.journal.clone();
            let wait = Wait::new(self.journal.clone(), "cancelled".to_owned(), move || {
                journal
                    .with(|state| state.scopes.is_cancelled(Scopes::ROOT))
                    .then_some(())
            });
            let _either_way = wait.await;
        }
    }

    /// Returns a scope whose calls can be cancelled together.
    pub fn cancellation_scope(&self) -> CancellationScope {
        CancellationScope {
            journal: self.journal.clone(),
            scope: self.journal.open_scope(ScopeKind::Plain),
        }
    }

    /// Runs work to its end even if the workflow is cancelled during it. The first call after it is then cancelled.
    pub async fn shielded<F: Future + Send>(&self, work: F) -> F::Output {
        let scope = self.journal.open_scope(ScopeKind::Shielded);
        let inner = Scoped {
            journal: self.journal.clone(),
            scope,
            future: Box::pin(async move {
                // The server delivers a cancellation at an open call. For shielded work, this wait is that call.
                let _delivery_point =
                    Wait::<()>::new(self.journal.clone(), "shield".to_owned(), || None).open();
                work.await
            }),
        };
        inner.await
    }
}

/// A wait for a condition; see [`WorkflowContext::wait_until`].
#[must_use = "a wait does nothing until it is awaited"]
pub struct WaitUntil(Wait<()>);

impl WaitUntil {
    /// Names the condition. Operators see the name.
    pub fn named(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Waits at most for the duration, rounded up to whole seconds. Returns whether the condition holds.
    ///
    /// # Errors
    /// [`Cancelled`] if the workflow is cancelled during the wait.
    pub async fn timeout(self, duration: Duration) -> Result<bool, Cancelled> {
        let wait = self.0.timeout_seconds(seconds(duration));
        Ok(wait.await?.is_some())
    }
}

impl IntoFuture for WaitUntil {
    type Output = Result<(), Cancelled>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.0.await.map(|_| ()) })
    }
}

/// Signals of one name; see [`WorkflowContext::signals`].
pub struct Signals<T> {
    journal: Arc<Journal>,
    name: String,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + 'static> Signals<T> {
    /// Returns the next signal if one has arrived. A signal whose arguments are not a `T` is skipped and logged.
    pub fn try_recv(&self) -> Option<T> {
        take_signal(&self.journal, &self.name)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// [`Cancelled`] if the workflow is cancelled during the wait.
    pub async fn recv(&self) -> Result<T, Cancelled> {
        self.wait().await?.ok_or(Cancelled)
    }

    /// Waits for the next signal, at most for the duration, rounded up to whole seconds. Returns `None` after the timeout.
    ///
    /// # Errors
    /// [`Cancelled`] if the workflow is cancelled during the wait.
    pub async fn recv_timeout(&self, duration: Duration) -> Result<Option<T>, Cancelled> {
        self.wait().timeout_seconds(seconds(duration)).await
    }

    fn wait(&self) -> Wait<T> {
        let (journal, name) = (self.journal.clone(), self.name.clone());
        Wait::new(
            self.journal.clone(),
            format!("signal:{}", self.name),
            move || take_signal(&journal, &name),
        )
    }
}

fn take_signal<T: DeserializeOwned>(journal: &Journal, name: &str) -> Option<T> {
    loop {
        let arguments = journal.with(|state| state.signals.get_mut(name)?.pop_front())?;
        match payload::from_arguments(&arguments) {
            Ok(value) => return Some(value),
            Err(error) => tracing::warn!(
                workflow_id = journal.info.workflow_id,
                signal = name,
                %error,
                "skipped a signal whose arguments have another type than the workflow expects"
            ),
        }
    }
}

/// A future that runs concurrently with the workflow; see [`WorkflowContext::spawn`]. Dropping the handle does not stop it.
pub struct JoinHandle<T>(oneshot::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<T> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            // It ends without a value only if it panicked, and then the whole replay ends.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

/// Calls that can be cancelled together; see [`WorkflowContext::cancellation_scope`].
#[derive(Clone)]
pub struct CancellationScope {
    journal: Arc<Journal>,
    scope: ScopeId,
}

impl CancellationScope {
    /// Runs work inside the scope.
    pub async fn run<F: Future + Send>(&self, work: F) -> F::Output {
        Scoped {
            journal: self.journal.clone(),
            scope: self.scope,
            future: Box::pin(work),
        }
        .await
    }

    /// Cancels every open call of the scope, and every call made in it later. Activities that have begun are not stopped.
    pub fn cancel(&self) {
        self.journal.cancel(self.scope);
    }
}

/// Polls a future with its scope as the current one.
struct Scoped<'a, T> {
    journal: Arc<Journal>,
    scope: ScopeId,
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
}

impl<T> Future for Scoped<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<T> {
        let enter = |scope| {
            self.journal
                .with(|state| std::mem::replace(&mut state.scopes.current, scope))
        };
        let outer = enter(self.scope);
        let polled = self.future.as_mut().poll(context);
        self.journal.with(|state| state.scopes.current = outer);
        polled
    }
}
