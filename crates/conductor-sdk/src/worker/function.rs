//! Workers made of a function.

use std::sync::Arc;

use longhaul_protocol::conductor::{Task, TaskDef};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AnyWorker, Execute, Outcome, TaskInProgress, TaskResponse, input};
use crate::schema::{self, WorkerSchema};
use crate::settings::CodeSettings;

/// What the function of a worker may return: every value that JSON can hold, [`TaskInProgress`], or an [`Outcome`] for a function that
/// returns the one or the other.
pub trait IntoOutcome {
    /// Returns the outcome.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    fn into_outcome(self) -> TaskResponse<Outcome>;
}

impl<T: Serialize> IntoOutcome for T {
    fn into_outcome(self) -> TaskResponse<Outcome> {
        Outcome::output(&self)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> TaskResponse<Outcome> {
        Ok(self)
    }
}

impl IntoOutcome for TaskInProgress {
    fn into_outcome(self) -> TaskResponse<Outcome> {
        Ok(self.into())
    }
}

/// Makes a worker of an async function. The input of a task is read as the parameter of the function.
///
/// ```
/// use longhaul_conductor_sdk::settings::CodeSettings;
/// use longhaul_conductor_sdk::worker::async_function;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Charge {
///     order_id: String,
///     cents: i64,
/// }
///
/// let worker = async_function("charge", async |charge: Charge| {
///     Ok(format!("{} paid {} cents", charge.order_id, charge.cents))
/// })
/// .settings(CodeSettings::new().thread_count(20));
/// # let _ = worker;
/// ```
pub fn async_function<I, O, F, W>(task_type: &str, function: F) -> AnyWorker
where
    I: DeserializeOwned + Send,
    O: IntoOutcome,
    F: Fn(I) -> W + Send + Sync + 'static,
    W: Future<Output = TaskResponse<O>> + Send + 'static,
{
    let execute = move |task: Arc<Task>| {
        let work = read_input(&task).map(&function);
        let work: futures::future::BoxFuture<'static, _> =
            Box::pin(async move { work?.await?.into_outcome() });
        work
    };
    AnyWorker::made(task_type, Execute::Async(Arc::new(execute)))
}

/// Makes a worker of a function that may block. The input of a task is read as the parameter of the function.
pub fn function<I, O, F>(task_type: &str, function: F) -> AnyWorker
where
    I: DeserializeOwned,
    O: IntoOutcome,
    F: Fn(I) -> TaskResponse<O> + Send + Sync + 'static,
{
    let execute = move |task: &Task| function(read_input(task)?)?.into_outcome();
    AnyWorker::made(task_type, Execute::Sync(Arc::new(execute)))
}

impl AnyWorker {
    pub(crate) fn made(task_type: &str, execute: Execute) -> Self {
        Self {
            task_type: task_type.into(),
            settings: CodeSettings::new(),
            task_definition: None,
            input_schema: None,
            output_schema: None,
            execute,
        }
    }

    /// Sets the settings of the program. Environment variables replace them.
    #[must_use]
    pub fn settings(mut self, settings: CodeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the template of the task definition that is registered. Its name is replaced by the task type.
    #[must_use]
    pub fn task_definition(mut self, definition: TaskDef) -> Self {
        self.task_definition = Some(definition);
        self
    }

    /// Sets the JSON Schema of the input. It is registered unchanged with the task definition.
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input_schema = Some(WorkerSchema::Given(schema));
        self
    }

    /// Sets the JSON Schema of the output. It is registered unchanged with the task definition.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(WorkerSchema::Given(schema));
        self
    }

    /// Makes the JSON Schema of the input from the type that is read from it. The setting `strict_schema` applies to it.
    #[must_use]
    pub fn input_schema_of<T: JsonSchema>(mut self) -> Self {
        self.input_schema = Some(WorkerSchema::Input(schema::of::<T>()));
        self
    }

    /// Makes the JSON Schema of the output from the type that the function returns. The setting `strict_schema` applies to it.
    #[must_use]
    pub fn output_schema_of<T: JsonSchema>(mut self) -> Self {
        self.output_schema = Some(WorkerSchema::Output(schema::of::<T>()));
        self
    }
}

/// Reads the input of a task.
fn read_input<I: DeserializeOwned>(task: &Task) -> TaskResponse<I> {
    let given = Value::Object(task.input_data.clone());
    input::read(&given, "").map_err(|error| {
        super::TaskFailure::new(format!("the input of the task does not fit: {error}"))
    })
}
