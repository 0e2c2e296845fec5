//! Definitions that workers register, calls that callers make, and the messages of a workflow.
//!
//! The attribute macros create these from functions. Without macros, create a [`WorkflowDefinition`] or
//! [`ActivityDefinition`] from a closure, and an [`ActivityCall`] or [`WorkflowCall`] from a name. Calls by name also reach
//! code in other languages.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_protocol::Payload;
use longhaul_protocol::payload::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::ActivityContext;
use crate::error::{Failure, WorkflowError};
use crate::payload::{self, Error as PayloadError};
use crate::workflow::WorkflowContext;

/// Implemented by the type that `#[workflow]` creates for a function.
pub trait Workflow: 'static {
    /// The result type of the function.
    type Output: DeserializeOwned + 'static;

    /// Returns what a worker registers.
    fn definition() -> WorkflowDefinition;
}

/// Implemented by the type that `#[activity]` creates for a function.
pub trait Activity: 'static {
    /// The result type of the function.
    type Output: DeserializeOwned + 'static;

    /// Returns what a worker registers.
    fn definition() -> ActivityDefinition;
}

type RunWorkflow = dyn Fn(WorkflowContext, Payload) -> BoxFuture<'static, Result<Payload, WorkflowError>>
    + Send
    + Sync;
pub(crate) type RunActivity =
    dyn Fn(ActivityContext, Payload) -> BoxFuture<'static, Result<Payload, Failure>> + Send + Sync;

/// A workflow type: its name, its code and its messages.
#[derive(Clone)]
pub struct WorkflowDefinition {
    pub(crate) name: Cow<'static, str>,
    pub(crate) run: Arc<RunWorkflow>,
    pub(crate) messages: Arc<Messages>,
}

/// The messages that a workflow lists, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    pub(crate) signals: Vec<&'static str>,
    pub(crate) queries: Vec<&'static str>,
    pub(crate) updates: Vec<&'static str>,
    /// The updates that have a validator.
    pub(crate) validators: Vec<&'static str>,
    /// The list comes from `#[workflow(..)]`, and is complete.
    pub(crate) from_attribute: bool,
}

impl WorkflowDefinition {
    /// Creates a definition from a function of the context and a tuple of arguments.
    ///
    /// ```
    /// use longhaul_sdk::{WorkflowContext, WorkflowDefinition, WorkflowResult};
    ///
    /// let greet = WorkflowDefinition::new("greet", |_: WorkflowContext, (name,): (String,)| async move {
    ///     WorkflowResult::Ok(format!("Hello, {name}!"))
    /// });
    /// assert_eq!(greet.name(), "greet");
    /// ```
    pub fn new<A, R, F>(
        name: impl Into<Cow<'static, str>>,
        run: impl Fn(WorkflowContext, A) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Future<Output = Result<R, WorkflowError>> + Send + 'static,
    {
        let run = Arc::new(run);
        Self {
            name: name.into(),
            run: Arc::new(move |context, arguments| {
                let arguments = payload::from_arguments::<A>(&arguments);
                let run = run.clone();
                Box::pin(async move {
                    let result = run(context, arguments?).await?;
                    Ok(payload::to_payload(&result)?)
                })
            }),
            messages: Arc::default(),
        }
    }

    /// Lists a signal. Once a workflow lists a signal, the server refuses signals that it does not list.
    #[must_use]
    pub fn signal<T>(mut self, signal: &Signal<T>) -> Self {
        self.list().signals.push(signal.name);
        self
    }

    /// Lists a query. Once a workflow lists a query, the server refuses queries that it does not list.
    #[must_use]
    pub fn query<A, R>(mut self, query: &Query<A, R>) -> Self {
        self.list().queries.push(query.name);
        self
    }

    /// Lists an update. Once a workflow lists an update, the server refuses updates that it does not list.
    #[must_use]
    pub fn update<A, R, V: UpdateKind>(mut self, update: &Update<A, R, V>) -> Self {
        let messages = self.list();
        messages.updates.push(update.name);
        if V::VALIDATED {
            messages.validators.push(update.name);
        }
        self
    }

    /// Makes the list complete: a handler for a query or update that is not listed is an error, even if none is listed.
    #[doc(hidden)]
    #[must_use]
    pub fn from_attribute(mut self) -> Self {
        self.list().from_attribute = true;
        self
    }

    fn list(&mut self) -> &mut Messages {
        Arc::make_mut(&mut self.messages)
    }

    /// Returns the workflow type.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for WorkflowDefinition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WorkflowDefinition")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// An activity type: its name and its code.
#[derive(Clone)]
pub struct ActivityDefinition {
    pub(crate) name: Cow<'static, str>,
    pub(crate) run: Arc<RunActivity>,
}

impl ActivityDefinition {
    /// Creates a definition from a function of the context and a tuple of arguments.
    pub fn new<A, R, F>(
        name: impl Into<Cow<'static, str>>,
        run: impl Fn(ActivityContext, A) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let run = Arc::new(run);
        Self {
            name: name.into(),
            run: Arc::new(move |context, arguments| {
                let arguments = payload::from_arguments::<A>(&arguments);
                let run = run.clone();
                Box::pin(async move {
                    let result = run(context, arguments?).await?;
                    Ok(payload::to_payload(&result)?)
                })
            }),
        }
    }

    /// Creates a definition from a function that takes and returns payloads. For code that handles activities of any type,
    /// such as fakes.
    pub fn of_payloads<F>(
        name: impl Into<Cow<'static, str>>,
        run: impl Fn(ActivityContext, Payload) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Payload, Failure>> + Send + 'static,
    {
        Self {
            name: name.into(),
            run: Arc::new(move |context, arguments| Box::pin(run(context, arguments))),
        }
    }

    /// Calls `look` with the context and the arguments before every attempt.
    #[must_use]
    pub fn inspect(
        self,
        look: impl Fn(&ActivityContext, &Payload) + Send + Sync + 'static,
    ) -> Self {
        let run = self.run;
        Self {
            name: self.name,
            run: Arc::new(move |context, arguments| {
                look(&context, &arguments);
                run(context, arguments)
            }),
        }
    }

    /// Creates a definition from a function that blocks. It runs on a thread for blocking code.
    pub fn blocking<A, R>(
        name: impl Into<Cow<'static, str>>,
        run: impl Fn(ActivityContext, A) -> Result<R, Failure> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let run = Arc::new(run);
        Self::new(name, move |context: ActivityContext, arguments: A| {
            let run = run.clone();
            let thread = tokio::task::spawn_blocking(move || run(context, arguments));
            async move {
                match thread.await {
                    Ok(result) => result,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => Err(Failure::panicked("the activity", &*panic)),
                        Err(_) => Err(Failure::new("the thread of the activity was stopped")),
                    },
                }
            }
        })
    }

    /// Returns the activity type.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for ActivityDefinition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ActivityDefinition")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A type name and arguments, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct ErasedCall {
    pub(crate) name: Cow<'static, str>,
    pub(crate) arguments: Result<Vec<Value>, PayloadError>,
}

impl ErasedCall {
    pub(crate) fn payload(&self) -> Result<Payload, PayloadError> {
        let arguments = self.arguments.clone()?;
        Payload::encode(&Value::Array(arguments))
            .map_err(|error| PayloadError::new(error.to_string()))
    }
}

macro_rules! call {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<R> {
            pub(crate) call: ErasedCall,
            result: PhantomData<fn() -> R>,
        }

        impl<R> $name<R> {
            /// Creates a call by name, without arguments. `R` is the result type that the caller expects.
            pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
                Self {
                    call: ErasedCall {
                        name: name.into(),
                        arguments: Ok(Vec::new()),
                    },
                    result: PhantomData,
                }
            }

            /// Adds one argument. If the value cannot be encoded as a payload, the call fails when it is made.
            #[must_use]
            pub fn argument<T: Serialize>(mut self, argument: T) -> Self {
                if let Ok(arguments) = &mut self.call.arguments {
                    match payload::to_value(&argument) {
                        Ok(value) => arguments.push(value),
                        Err(error) => self.call.arguments = Err(error),
                    }
                }
                self
            }

            /// Returns the name of the called activity or workflow.
            pub fn name(&self) -> &str {
                &self.call.name
            }
        }

        impl<R> Clone for $name<R> {
            fn clone(&self) -> Self {
                Self {
                    call: self.call.clone(),
                    result: PhantomData,
                }
            }
        }

        impl<R> fmt::Debug for $name<R> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.debug_tuple(stringify!($name)).field(&self.call).finish()
            }
        }
    };
}

call!(
    /// A call of an activity that returns `R`. A function with `#[activity]` creates it; pass it to
    /// [`WorkflowContext::activity`](crate::WorkflowContext::activity).
    ActivityCall
);
call!(
    /// A call of a workflow that returns `R`. A function with `#[workflow]` creates it; pass it to
    /// [`Client::start`](crate::Client::start) or [`WorkflowContext::child`](crate::WorkflowContext::child).
    WorkflowCall
);

/// Types that a message carries without owning them.
type Types<T> = PhantomData<fn() -> T>;

macro_rules! message {
    ($(#[$doc:meta])* $name:ident<$($parameter:ident),+>) => {
        $(#[$doc])*
        pub struct $name<$($parameter),+> {
            name: &'static str,
            types: Types<($($parameter,)+)>,
        }

        impl<$($parameter),+> $name<$($parameter),+> {
            /// Creates it from its name. Usually the value of a constant that the workflow and its callers share.
            pub const fn new(name: &'static str) -> Self {
                Self { name, types: PhantomData }
            }

            /// Returns its name on the wire.
            pub fn name(&self) -> &'static str {
                self.name
            }
        }

        impl<$($parameter),+> fmt::Debug for $name<$($parameter),+> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.debug_tuple(stringify!($name)).field(&self.name).finish()
            }
        }
    };
}

message!(
    /// A message to a running workflow that carries a `T`: one value, or a tuple of arguments.
    Signal<T>
);
message!(
    /// A question to a workflow: arguments `A` (one value or a tuple), answer `R`.
    Query<A, R>
);

/// A message that changes a running workflow and has an answer: arguments `A` (one value or a tuple), answer `R`.
///
/// `V` is part of the type, so that a validator cannot be forgotten: an `Update<A, R>` is handled with
/// [`on_update`](crate::WorkflowContext::on_update), a [`ValidatedUpdate<A, R>`](ValidatedUpdate) with
/// [`on_validated_update`](crate::WorkflowContext::on_validated_update).
pub struct Update<A, R, V = Unvalidated> {
    name: &'static str,
    types: Types<(A, R, V)>,
}

/// An [`Update`] with a validator, which decides before the update is accepted.
///
/// ```
/// # use longhaul_sdk::{Update, ValidatedUpdate};
/// const SET_AMOUNT: ValidatedUpdate<u32, u32> = Update::validated("set_amount");
/// ```
pub type ValidatedUpdate<A, R> = Update<A, R, Validated>;

/// Marks an [`Update`] without a validator.
#[derive(Clone, Copy, Debug)]
pub enum Unvalidated {}

/// Marks an [`Update`] with a validator.
#[derive(Clone, Copy, Debug)]
pub enum Validated {}

/// Whether an [`Update`] has a validator: [`Unvalidated`] or [`Validated`].
pub trait UpdateKind: sealed::Sealed {
    #[doc(hidden)]
    const VALIDATED: bool;
}

impl UpdateKind for Unvalidated {
    const VALIDATED: bool = false;
}

impl UpdateKind for Validated {
    const VALIDATED: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Unvalidated {}
    impl Sealed for super::Validated {}
}

impl<A, R> Update<A, R> {
    /// Creates an update without a validator from its name. Usually the value of a constant that the workflow and its callers
    /// share.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            types: PhantomData,
        }
    }
}

impl<A, R> ValidatedUpdate<A, R> {
    /// Creates an update with a validator from its name. Usually the value of a constant that the workflow and its callers
    /// share.
    pub const fn validated(name: &'static str) -> Self {
        Self {
            name,
            types: PhantomData,
        }
    }
}

impl<A, R, V> Update<A, R, V> {
    /// Returns its name on the wire.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl<A, R, V> fmt::Debug for Update<A, R, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Update").field(&self.name).finish()
    }
}
