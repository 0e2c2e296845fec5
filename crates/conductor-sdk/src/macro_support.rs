//! Called by generated code only; not a stable API.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

pub use inventory;
use longhaul_protocol::conductor::Task;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::schema::{self, Presence, WorkerSchema};
use crate::worker::{AnyWorker, Execute, Outcome, TaskResponse, input};

/// Makes a worker that the program declares with the attribute.
#[derive(Debug)]
pub struct Declared(pub fn() -> AnyWorker);

inventory::collect!(Declared);

/// Returns the declared workers, in the order of their task types.
pub(crate) fn declared() -> Vec<AnyWorker> {
    let declared = inventory::iter::<Declared>.into_iter();
    let mut workers: Vec<_> = declared.map(|declared| (declared.0)()).collect();
    // The order in which the linker leaves them is not always the same.
    workers.sort_by(|one, other| one.task_type().cmp(other.task_type()));
    workers
}

/// Makes a worker of an async function of a task.
pub fn asynchronous<F, W>(task_type: &str, function: F) -> AnyWorker
where
    F: Fn(Arc<Task>) -> W + Send + Sync + 'static,
    W: Future<Output = TaskResponse<Outcome>> + Send + 'static,
{
    let execute = move |task| {
        let work: futures::future::BoxFuture<'static, _> = Box::pin(function(task));
        work
    };
    AnyWorker::made(task_type, Execute::Async(Arc::new(execute)))
}

/// Makes a worker of a function of a task.
pub fn synchronous<F>(task_type: &str, function: F) -> AnyWorker
where
    F: Fn(&Task) -> TaskResponse<Outcome> + Send + Sync + 'static,
{
    AnyWorker::made(task_type, Execute::Sync(Arc::new(function)))
}

/// Reads a parameter from the input of a task.
///
/// # Errors
/// A failure that names the parameter.
pub fn parameter<T: DeserializeOwned>(task: &Task, name: &str) -> TaskResponse<T> {
    input::parameter(&task.input_data, name)
}

/// Reads a parameter that has a default.
///
/// # Errors
/// A failure that names the parameter.
pub fn parameter_or<T: DeserializeOwned>(
    task: &Task,
    name: &str,
    default: impl FnOnce() -> T,
) -> TaskResponse<T> {
    if task
        .input_data
        .get(name)
        .is_none_or(serde_json::Value::is_null)
    {
        return Ok(default());
    }
    parameter(task, name)
}

/// Asks which traits a type has. The question is put as a method call on `&Probe`: the compiler takes the method of `Probe` if the type
/// has the trait, and otherwise the method of `&Probe`. This works for concrete types only.
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Probe<T> {
    /// Creates a probe of the type.
    #[must_use]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for Probe<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Probe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Probe<{}>", std::any::type_name::<T>())
    }
}

/// The schema of a type.
#[derive(Clone, Copy, Debug)]
pub struct TypeSchema(schema::TypeSchema);

/// The answer for a type that has a schema.
pub trait WithSchema {
    /// Returns the schema.
    fn schema(&self) -> Option<TypeSchema>;
}

impl<T: JsonSchema> WithSchema for Probe<T> {
    fn schema(&self) -> Option<TypeSchema> {
        Some(TypeSchema(schema::of::<T>()))
    }
}

/// The answer for a type that has no schema.
pub trait WithoutSchema {
    /// Returns `None`.
    fn schema(&self) -> Option<TypeSchema>;
}

impl<T> WithoutSchema for &Probe<T> {
    fn schema(&self) -> Option<TypeSchema> {
        None
    }
}

/// The answer for an `Option`.
pub trait IsOption {
    /// Returns true.
    fn is_option(&self) -> bool;
}

impl<T> IsOption for Probe<Option<T>> {
    fn is_option(&self) -> bool {
        true
    }
}

/// The answer for a type that is not an `Option`.
pub trait IsNoOption {
    /// Returns false.
    fn is_option(&self) -> bool;
}

impl<T> IsNoOption for &Probe<T> {
    fn is_option(&self) -> bool {
        false
    }
}

/// A parameter of a function.
#[derive(Clone, Debug)]
pub struct Parameter(schema::Parameter);

impl Parameter {
    /// A parameter that the input must have, unless its type is an `Option`.
    #[must_use]
    pub fn new(name: &'static str, schema: Option<TypeSchema>, is_option: bool) -> Self {
        let presence = if is_option {
            Presence::Nullable
        } else {
            Presence::Required
        };
        Self(schema::Parameter {
            name,
            schema: schema.map(|schema| schema.0),
            presence,
        })
    }

    /// The parameter has a default.
    #[must_use]
    pub fn defaulted(mut self) -> Self {
        if self.0.presence == Presence::Required {
            self.0.presence = Presence::Defaulted;
        }
        self
    }
}

/// Adds the schemas that follow from the signature of the function.
#[must_use]
pub fn described(
    mut worker: AnyWorker,
    parameters: Vec<Parameter>,
    output: Option<TypeSchema>,
) -> AnyWorker {
    let parameters = parameters.into_iter().map(|parameter| parameter.0);
    worker.input_schema = Some(WorkerSchema::Parameters(parameters.collect()));
    worker.output_schema = output.map(|output| WorkerSchema::Output(output.0));
    worker
}
