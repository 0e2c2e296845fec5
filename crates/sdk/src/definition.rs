//! What workers register and callers name: activities, workflows, and the messages a workflow understands.
//!
//! The attribute macros write these for plain functions. Whoever dislikes macros, or holds state in a closure, makes a
//! [`WorkflowDefinition`] or [`ActivityDefinition`] by hand, and an [`ActivityCall`] or [`WorkflowCall`] by name: that is
//! also how code of another language is called.

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

/// A workflow that the `#[workflow]` macro made from a function.
pub trait Workflow: 'static {
    /// What it returns.
    type Output: DeserializeOwned + 'static;

    /// How a worker runs it.
    fn definition() -> WorkflowDefinition;
}

/// An activity that the `#[activity]` macro made from a function.
pub trait Activity: 'static {
    /// What it returns.
    type Output: DeserializeOwned + 'static;

    /// How a worker runs it.
    fn definition() -> ActivityDefinition;
}

type RunWorkflow = dyn Fn(WorkflowContext, Payload) -> BoxFuture<'static, Result<Payload, WorkflowError>>
    + Send
    + Sync;
pub(crate) type RunActivity =
    dyn Fn(ActivityContext, Payload) -> BoxFuture<'static, Result<Payload, Failure>> + Send + Sync;

/// How a worker runs workflows of one type.
#[derive(Clone)]
pub struct WorkflowDefinition {
    pub(crate) name: Cow<'static, str>,
    pub(crate) run: Arc<RunWorkflow>,
    pub(crate) signals: Vec<Cow<'static, str>>,
    pub(crate) queries: Vec<Cow<'static, str>>,
    pub(crate) updates: Vec<Cow<'static, str>>,
    pub(crate) validators: Vec<Cow<'static, str>>,
}

impl WorkflowDefinition {
    /// A workflow from a function of its context and a tuple of arguments.
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
            signals: Vec::new(),
            queries: Vec::new(),
            updates: Vec::new(),
            validators: Vec::new(),
        }
    }

    /// Declares a signal. Once one is declared, the server refuses signals of other names.
    #[must_use]
    pub fn signal<T>(mut self, signal: &Signal<T>) -> Self {
        self.signals.push(signal.name.clone());
        self
    }

    /// Declares a query. Once one is declared, the server refuses queries of other names.
    #[must_use]
    pub fn query<A, R>(mut self, query: &Query<A, R>) -> Self {
        self.queries.push(query.name.clone());
        self
    }

    /// Declares an update. Once one is declared, the server refuses updates of other names.
    #[must_use]
    pub fn update<A, R>(mut self, update: &Update<A, R>) -> Self {
        self.updates.push(update.name.clone());
        if update.validated {
            self.validators.push(update.name.clone());
        }
        self
    }

    /// The workflow type.
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

/// How a worker runs activities of one type.
#[derive(Clone)]
pub struct ActivityDefinition {
    pub(crate) name: Cow<'static, str>,
    pub(crate) run: Arc<RunActivity>,
}

impl ActivityDefinition {
    /// An activity from a function of its context and a tuple of arguments.
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

    /// An activity that reads its arguments and writes its result by itself: for code that stands in for others.
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

    /// The same activity, with a look at every attempt before it begins.
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

    /// An activity from a function that blocks: it runs on a thread of its own kind.
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
                        Err(_) => Err(Failure::new("the activity's thread was stopped")),
                    },
                }
            }
        })
    }

    /// The activity type.
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
            /// A call by name, without arguments yet; the result type is what the caller expects.
            pub fn named(name: impl Into<Cow<'static, str>>) -> Self {
                Self {
                    call: ErasedCall {
                        name: name.into(),
                        arguments: Ok(Vec::new()),
                    },
                    result: PhantomData,
                }
            }

            /// Adds one argument. A value without a payload form fails the call when it is made.
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

            /// The name it calls.
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
    /// A call of an activity that returns `R`: what a function with `#[activity]` makes. Give it to
    /// [`WorkflowContext::activity`](crate::WorkflowContext::activity).
    ActivityCall
);
call!(
    /// A call of a workflow that returns `R`: what a function with `#[workflow]` makes. Give it to
    /// [`Client::start`](crate::Client::start) or [`WorkflowContext::child`](crate::WorkflowContext::child).
    WorkflowCall
);

macro_rules! message {
    ($(#[$doc:meta])* $name:ident<$($parameter:ident),+> { $($field:ident: $type:ty = $value:expr),* }) => {
        $(#[$doc])*
        pub struct $name<$($parameter),+> {
            pub(crate) name: Cow<'static, str>,
            $(pub(crate) $field: $type,)*
            types: PhantomData<fn() -> ($($parameter,)+)>,
        }

        impl<$($parameter),+> $name<$($parameter),+> {
            /// Names it; usually as a constant that workflow and callers share.
            pub const fn new(name: &'static str) -> Self {
                Self { name: Cow::Borrowed(name), $($field: $value,)* types: PhantomData }
            }

            /// Its name on the wire.
            pub fn name(&self) -> &str {
                &self.name
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
    /// A message to a running workflow, carrying a `T`: one value, or a tuple of arguments.
    Signal<T> {}
);
message!(
    /// A question to a workflow: arguments `A` (one value or a tuple), answer `R`.
    Query<A, R> {}
);
message!(
    /// A change of a running workflow with an answer: arguments `A` (one value or a tuple), answer `R`.
    Update<A, R> { validated: bool = false }
);

impl<A, R> Update<A, R> {
    /// Says that the workflow has a validator for it, which is asked before the update is accepted.
    #[must_use]
    pub const fn validated(mut self) -> Self {
        self.validated = true;
        self
    }
}
