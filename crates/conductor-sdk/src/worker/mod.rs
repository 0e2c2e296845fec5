//! Workers: code that runs the tasks of one type.
//!
//! A [`Worker`] runs as futures, a [`BlockingWorker`] on threads, and the setting `thread_count` says how many tasks run at once. Most
//! workers are made of a function, with [`async_function`] or [`function`].

mod context;
mod failure;
mod function;
pub(crate) mod input;
mod outcome;

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_protocol::conductor::{Task, TaskDef};
use serde_json::Value;

pub use context::TaskContext;
pub(crate) use context::{Additions, log};
pub use failure::{NonRetryable, TaskFailure, TaskResponse};
pub use function::{IntoOutcome, async_function, function};
pub use outcome::{Outcome, TaskInProgress};

use crate::schema::WorkerSchema;
use crate::settings::CodeSettings;

/// Runs the tasks of one type as futures: for work that waits, such as requests to other services.
pub trait Worker: Send + Sync + 'static {
    /// Returns the task type.
    fn task_type(&self) -> &str;

    /// Runs one task.
    fn execute(&self, task: Arc<Task>) -> impl Future<Output = TaskResponse<Outcome>> + Send;

    /// Returns the settings that the program sets. Environment variables replace them.
    fn settings(&self) -> CodeSettings {
        CodeSettings::new()
    }

    /// Returns the template of the task definition that is registered. Its name is replaced by the task type.
    fn task_definition(&self) -> Option<TaskDef> {
        None
    }

    /// Returns the JSON Schema of the input, which is registered with the task definition.
    fn input_schema(&self) -> Option<Value> {
        None
    }

    /// Returns the JSON Schema of the output, which is registered with the task definition.
    fn output_schema(&self) -> Option<Value> {
        None
    }
}

/// Runs the tasks of one type on threads: for work that computes, or that calls code which blocks.
pub trait BlockingWorker: Send + Sync + 'static {
    /// Returns the task type.
    fn task_type(&self) -> &str;

    /// Runs one task. It may block.
    ///
    /// # Errors
    /// The reason why the task failed.
    fn execute(&self, task: &Task) -> TaskResponse<Outcome>;

    /// Returns the settings that the program sets. Environment variables replace them.
    fn settings(&self) -> CodeSettings {
        CodeSettings::new()
    }

    /// Returns the template of the task definition that is registered. Its name is replaced by the task type.
    fn task_definition(&self) -> Option<TaskDef> {
        None
    }

    /// Returns the JSON Schema of the input, which is registered with the task definition.
    fn input_schema(&self) -> Option<Value> {
        None
    }

    /// Returns the JSON Schema of the output, which is registered with the task definition.
    fn output_schema(&self) -> Option<Value> {
        None
    }
}

/// How the tasks of a worker run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerKind {
    /// On threads.
    Sync,
    /// As futures.
    Async,
}

type ExecuteAsync =
    Arc<dyn Fn(Arc<Task>) -> BoxFuture<'static, TaskResponse<Outcome>> + Send + Sync>;
type ExecuteSync = Arc<dyn Fn(&Task) -> TaskResponse<Outcome> + Send + Sync>;

/// A worker of either kind. Cheap to clone.
#[derive(Clone)]
pub struct AnyWorker {
    pub(crate) task_type: Arc<str>,
    pub(crate) settings: CodeSettings,
    pub(crate) task_definition: Option<TaskDef>,
    pub(crate) input_schema: Option<WorkerSchema>,
    pub(crate) output_schema: Option<WorkerSchema>,
    pub(crate) execute: Execute,
}

/// The function of a worker.
#[derive(Clone)]
pub(crate) enum Execute {
    Async(ExecuteAsync),
    Sync(ExecuteSync),
}

impl AnyWorker {
    /// A worker that runs as futures.
    pub fn new(worker: impl Worker) -> Self {
        let worker = Arc::new(worker);
        Self {
            task_type: worker.task_type().into(),
            settings: worker.settings(),
            task_definition: worker.task_definition(),
            input_schema: worker.input_schema().map(WorkerSchema::Given),
            output_schema: worker.output_schema().map(WorkerSchema::Given),
            execute: Execute::Async(Arc::new(move |task| {
                let worker = Arc::clone(&worker);
                Box::pin(async move { worker.execute(task).await })
            })),
        }
    }

    /// A worker that runs on threads.
    pub fn blocking(worker: impl BlockingWorker) -> Self {
        Self {
            task_type: worker.task_type().into(),
            settings: worker.settings(),
            task_definition: worker.task_definition(),
            input_schema: worker.input_schema().map(WorkerSchema::Given),
            output_schema: worker.output_schema().map(WorkerSchema::Given),
            execute: Execute::Sync(Arc::new(move |task| worker.execute(task))),
        }
    }

    /// Returns the task type.
    #[must_use]
    pub fn task_type(&self) -> &str {
        &self.task_type
    }

    /// Returns the settings that the program sets.
    pub fn code_settings(&self) -> &CodeSettings {
        &self.settings
    }

    /// Calls a function with each task before the worker gets it. For tests and logs.
    #[must_use]
    pub fn inspect(mut self, inspect: impl Fn(&Task) + Send + Sync + 'static) -> Self {
        self.execute = match self.execute {
            Execute::Async(execute) => Execute::Async(Arc::new(move |task| {
                inspect(&task);
                execute(task)
            })),
            Execute::Sync(execute) => Execute::Sync(Arc::new(move |task| {
                inspect(task);
                execute(task)
            })),
        };
        self
    }

    /// Returns how the tasks run.
    #[must_use]
    pub fn kind(&self) -> RunnerKind {
        match self.execute {
            Execute::Async(_) => RunnerKind::Async,
            Execute::Sync(_) => RunnerKind::Sync,
        }
    }
}

impl fmt::Debug for AnyWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyWorker({:?}, {:?})", self.task_type, self.kind())
    }
}
