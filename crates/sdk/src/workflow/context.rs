//! What workflow code may do.

use std::cell::RefCell;
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

use super::activity::CallActivity;
use super::call::{CallFuture, CallKind, Outcome};
use super::child::CallChild;
use super::execution::Tasks;
use super::handler::{UpdateHandler, Validate};
use super::journal::{Journal, RunInfo};
use super::local::LocalActivity;
use super::scope::{ScopeId, Scopes};
use super::session::{Session, WorkerSessionOptions};
use super::state::State;
use super::wait::Wait;
use crate::definition::{ActivityCall, Query, Signal, Update, WorkflowCall};
use crate::duration::seconds;
use crate::error::{ActivityError, Cancelled, ContinueAsNew, Ending, Failure, WorkflowError};
use crate::payload::{self, Error as PayloadError};

thread_local! {
    /// The run whose code is running on this thread.
    static CURRENT: RefCell<Option<Arc<Journal>>> = const { RefCell::new(None) };
}

/// Runs a piece of a workflow's code with its journal at hand.
pub(super) fn entered<T>(journal: &Arc<Journal>, code: impl FnOnce() -> T) -> T {
    let outer = CURRENT.with(|current| current.replace(Some(journal.clone())));
    let result = code();
    CURRENT.with(|current| current.replace(outer));
    result
}

/// A session of the workflow that is running: [`WorkflowContext::session`] for code that has no context at hand.
///
/// # Panics
/// Outside of workflow code.
#[must_use]
pub fn session(options: WorkerSessionOptions) -> Session {
    let journal = CURRENT.with(|current| current.borrow().clone());
    Session {
        journal: journal.expect("a session is opened by workflow code"),
        options,
    }
}

/// The workflow's side of the server: everything a workflow waits for or changes goes through it. Cheap to clone.
///
/// Code between two awaits runs whenever a worker replays the run, so it must do the same each time: no clocks, no random
/// numbers, no I/O, no order of a hash map. What such code needs, the context offers ([`now`](Self::now),
/// [`random`](Self::random), [`side_effect`](Self::side_effect)), or an activity does.
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

    /// Who this run is.
    pub fn info(&self) -> &RunInfo {
        &self.journal.info
    }

    /// The time of the event the code reacts to: the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.journal.with(|state| state.now)
    }

    /// Random numbers that are the same in every replay.
    pub fn random(&self) -> SmallRng {
        self.journal.random()
    }

    /// How many events the history had when the code began to run.
    pub fn history_length(&self) -> u64 {
        self.journal.with(|state| state.history_length)
    }

    /// Whether the history is long enough that the workflow should [continue as new](Self::continue_as_new).
    pub fn continue_as_new_suggested(&self) -> bool {
        self.journal.with(|state| state.continue_as_new_suggested)
    }

    // Calls.

    /// Calls an activity.
    pub fn activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> CallActivity<R> {
        CallActivity::new(self.journal.clone(), call)
    }

    /// Calls an activity in this worker's own process, without a queue: for short steps.
    pub fn local_activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> LocalActivity<R> {
        LocalActivity::new(self.journal.clone(), call)
    }

    /// Calls a local activity with its default options and waits for it.
    ///
    /// # Errors
    /// As the activity fails.
    pub async fn execute_local_activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> Result<R, ActivityError> {
        self.local_activity(call).await
    }

    /// Calls another workflow as a child of this one.
    pub fn child<R: DeserializeOwned + 'static>(&self, call: WorkflowCall<R>) -> CallChild<R> {
        CallChild::new(self.journal.clone(), call)
    }

    /// A session: activities called through it run on the same worker.
    #[must_use]
    pub fn session(&self, options: WorkerSessionOptions) -> Session {
        Session {
            journal: self.journal.clone(),
            options,
        }
    }

    /// Waits. The protocol counts whole seconds; a started one is waited for to its end.
    ///
    /// # Errors
    /// When the workflow is cancelled meanwhile.
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

    /// Waits for `future`, at most for a while. The clock stops with the future.
    ///
    /// # Errors
    /// When the workflow is cancelled while both wait.
    pub async fn timeout<F: Future>(
        &self,
        duration: Duration,
        future: F,
    ) -> Result<Option<F::Output>, Cancelled> {
        // A wait that never comes true: unlike a timer it is closed when nobody needs it any more.
        let clock = Wait::<()>::new(self.journal.clone(), "timeout".to_owned(), || None)
            .timeout_seconds(seconds(duration));
        match super::select::select(std::pin::pin!(future), clock).await {
            super::select::Either::First(output) => Ok(Some(output)),
            super::select::Either::Second(ended) => ended.map(|_| None),
        }
    }

    /// Waits until a condition on the workflow's own state holds. It is looked at after every event.
    pub fn wait_until(&self, condition: impl FnMut() -> bool + Send + 'static) -> WaitUntil {
        let mut condition = condition;
        WaitUntil(Wait::new(
            self.journal.clone(),
            "condition".to_owned(),
            move || condition().then_some(()),
        ))
    }

    /// Runs a future beside the rest of the workflow. It ends with the workflow.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let (sender, receiver) = oneshot::channel();
        self.tasks.spawn(Box::pin(async move {
            // Nobody may wait for it.
            let _unwatched = sender.send(future.await);
        }));
        JoinHandle(receiver)
    }

    // Messages.

    /// The signals of a name, in the order they came.
    pub fn signals<T: DeserializeOwned>(&self, signal: &Signal<T>) -> Signals<T> {
        Signals {
            journal: self.journal.clone(),
            name: signal.name().to_owned(),
            value: PhantomData,
        }
    }

    /// Answers a query from now on. The handler reads state; it makes no calls.
    pub fn on_query<A, R>(
        &self,
        query: &Query<A, R>,
        handler: impl Fn(A) -> R + Send + Sync + 'static,
    ) where
        A: DeserializeOwned,
        R: Serialize,
    {
        let handle = Arc::new(move |arguments: &Payload| {
            let answer = handler(payload::from_arguments(arguments)?);
            Ok(payload::to_payload(&answer)?)
        });
        self.journal.with(|state| {
            state
                .handlers
                .queries
                .insert(query.name().to_owned(), handle)
        });
    }

    /// Answers an update from now on. The handler changes state; it makes no calls.
    pub fn on_update<A, R>(
        &self,
        update: &Update<A, R>,
        handler: impl Fn(A) -> Result<R, Failure> + Send + Sync + 'static,
    ) where
        A: DeserializeOwned,
        R: Serialize,
    {
        self.set_update_handler(update.name(), handler, None);
    }

    /// Answers an update from now on, after a validator has let it in. The validator changes nothing: whoever it refuses is
    /// told why, and the update leaves no trace in the workflow's state. The update must be declared
    /// [`validated`](Update::validated).
    pub fn on_validated_update<A, R>(
        &self,
        update: &Update<A, R>,
        validator: impl Fn(&A) -> Result<(), Failure> + Send + Sync + 'static,
        handler: impl Fn(A) -> Result<R, Failure> + Send + Sync + 'static,
    ) where
        A: DeserializeOwned,
        R: Serialize,
    {
        let validate = Arc::new(move |arguments: &Payload| {
            validator(&payload::from_arguments::<A>(arguments)?)
        });
        self.set_update_handler(update.name(), handler, Some(validate));
    }

    fn set_update_handler<A: DeserializeOwned, R: Serialize>(
        &self,
        name: &str,
        handler: impl Fn(A) -> Result<R, Failure> + Send + Sync + 'static,
        validate: Option<Validate>,
    ) {
        let handle = Arc::new(move |arguments: &Payload| {
            let answer = handler(payload::from_arguments(arguments)?)?;
            Ok(payload::to_payload(&answer)?)
        });
        self.journal.with(|state| {
            state
                .handlers
                .updates
                .insert(name.to_owned(), UpdateHandler { handle, validate })
        });
    }

    /// State that handlers and the workflow share.
    pub fn state<T: Send + 'static>(&self, initial: T) -> State<T> {
        State::new(initial)
    }

    // Recorded values.

    /// Runs `code` once in the life of the run and keeps what it returns. It must be quick and cannot fail; anything more is
    /// an activity.
    ///
    /// # Errors
    /// When the value has no payload form, or another one than it had.
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

    /// Whether this run takes the new path of a change: true for runs that come here first with the new code.
    pub fn patched(&self, change: &str) -> bool {
        self.journal.version(change, -1, 1) >= 1
    }

    /// The version of a change that this run goes by: -1 if it came here before there was any.
    pub fn version(&self, change: &str, min_supported: i32, max_supported: i32) -> i32 {
        self.journal.version(change, min_supported, max_supported)
    }

    /// Sets search attributes; null removes one.
    pub fn upsert_search_attributes(&self, attributes: Map<String, Value>) {
        if !attributes.is_empty() {
            self.journal.record(
                CallKind::SearchAttributes,
                || json!({"type": "upsert_search_attributes", "attributes": attributes}),
            );
        }
    }

    /// Sets entries of the memo; null removes one.
    ///
    /// # Errors
    /// When the entries are not a map with string keys, or have no payload form.
    pub fn upsert_memo<T: Serialize>(&self, entries: &T) -> Result<(), PayloadError> {
        let entries = payload::to_payload(entries)?;
        self.journal.record(
            CallKind::Memo,
            || json!({"type": "upsert_memo", "entries": entries}),
        );
        Ok(())
    }

    // Ending.

    /// Ends this run and starts the next one of the same workflow, with a fresh history. Return what it gives.
    ///
    /// # Errors
    /// Always: that is how a run ends without a result.
    pub fn continue_as_new<R, T>(&self, call: WorkflowCall<R>) -> Result<T, WorkflowError> {
        Err(WorkflowError(Ending::ContinueAsNew(Box::new(
            ContinueAsNew {
                call: call.call,
                queue: None,
            },
        ))))
    }

    /// Whether the workflow was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.journal
            .with(|state| state.scopes.is_cancelled(Scopes::ROOT))
    }

    /// Why it was asked to end, as the caller said it.
    pub fn cancellation_reason(&self) -> Option<String> {
        self.journal.with(|state| state.cancellation_reason.clone())
    }

    /// Waits until the workflow is asked to end.
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

    /// A scope whose calls can be given up together.
    pub fn cancellation_scope(&self) -> CancellationScope {
        CancellationScope {
            journal: self.journal.clone(),
            scope: self.journal.open_scope(false),
        }
    }

    /// Runs work to its end even if the workflow is cancelled meanwhile; the cancellation meets the first call after it.
    pub async fn shielded<F: Future + Send>(&self, work: F) -> F::Output {
        let scope = self.journal.open_scope(true);
        let inner = Scoped {
            journal: self.journal.clone(),
            scope,
            future: Box::pin(async move {
                // The server delivers a cancellation at a call it can name. Behind a shield this wait is that call.
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
    /// A name for the condition, shown to operators.
    pub fn named(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key.into()))
    }

    /// Waits at most for a while, in whole seconds. Whether the condition came true.
    ///
    /// # Errors
    /// When the workflow is cancelled meanwhile.
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
    /// The next signal, if one is there. One that is no `T` is skipped and logged.
    pub fn try_recv(&self) -> Option<T> {
        take_signal(&self.journal, &self.name)
    }

    /// Waits for the next signal.
    ///
    /// # Errors
    /// When the workflow is cancelled meanwhile.
    pub async fn recv(&self) -> Result<T, Cancelled> {
        self.wait().await?.ok_or(Cancelled)
    }

    /// Waits for the next signal, at most for a while, in whole seconds.
    ///
    /// # Errors
    /// When the workflow is cancelled meanwhile.
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
                "a signal of another type was skipped"
            ),
        }
    }
}

/// A future that runs beside the workflow; see [`WorkflowContext::spawn`]. Dropping it leaves the future running.
pub struct JoinHandle<T>(oneshot::Receiver<T>);

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<T> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(value)) => Poll::Ready(value),
            // It ended without a value only if it panicked, and then the whole replay ends.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

/// Calls that can be given up together; see [`WorkflowContext::cancellation_scope`].
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

    /// Gives up every call the scope waits for, and every one it would still make. Activities that have begun run on, unwatched.
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
