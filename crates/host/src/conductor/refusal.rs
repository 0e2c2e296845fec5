//! Refusals of operations on definitions and definition runs.

use longhaul_engine::conductor::validate::Violation;
use longhaul_protocol::Reason;

/// Why an operation is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConductorRefusal {
    #[error("Validation failed, check below errors for detail.")]
    InvalidDefinition(Vec<Violation>),
    #[error("Workflow with {name}.{version} already exists!")]
    DefinitionExists { name: String, version: i32 },
    #[error("No such workflow defined. name={name}, version={}", shown(*version))]
    NoSuchDefinition { name: String, version: Option<i32> },
    /// The definition names something that does not exist.
    #[error("{0}")]
    DefinitionUnusable(String),
    #[error("No such workflow found by id: {0}")]
    NoSuchExecution(String),
    /// The search or list is malformed, or its answer would be too large.
    #[error("{0}")]
    BadSearch(String),
    #[error("Task not found for taskId: {0}")]
    NoSuchTask(String),
    #[error("Task {task_id} is not a task of workflow {workflow_id}")]
    TaskOfOtherWorkflow {
        task_id: String,
        workflow_id: String,
    },
    #[error("Task {task_id} is not a task of workflow {workflow_id} or of its sub-workflows")]
    NoTaskToRerun {
        task_id: String,
        workflow_id: String,
    },
    #[error("Found no blocked task in workflow {workflow_id} to signal")]
    NoBlockedTask { workflow_id: String },
    #[error("Found no running task {reference} of workflow {workflow_id} to update")]
    NoOpenTask {
        workflow_id: String,
        reference: String,
    },
}

fn shown(version: Option<i32>) -> String {
    version.map_or_else(|| "null".to_owned(), |version| version.to_string())
}

impl ConductorRefusal {
    /// Returns the machine-readable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::InvalidDefinition(_) => Reason::DefinitionInvalid,
            Self::BadSearch(_) | Self::NoTaskToRerun { .. } => Reason::ValidationFailed,
            Self::DefinitionExists { .. } => Reason::DefinitionAlreadyExists,
            Self::NoSuchDefinition { .. } | Self::DefinitionUnusable(_) => {
                Reason::DefinitionNotFound
            }
            Self::NoSuchExecution(_) => Reason::RunNotFound,
            Self::NoBlockedTask { .. } => Reason::TaskNotFound,
            Self::NoSuchTask(_) | Self::TaskOfOtherWorkflow { .. } | Self::NoOpenTask { .. } => {
                Reason::TaskNotFound
            }
        }
    }
}
