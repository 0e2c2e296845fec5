//! The names of fields in queries and sort orders of definition runs.

use super::order::SortField;
use super::{ExecutionField, TaskField};
use crate::visibility::condition::Field;

/// The names that a query may use, in the order in which a message lists them.
pub(super) const NAMES: [&str; 16] = [
    "workflowId",
    "workflowType",
    "version",
    "status",
    "correlationId",
    "startTime",
    "endTime",
    "updateTime",
    "priority",
    "parentWorkflowId",
    "createdBy",
    "idempotencyKey",
    "classifier",
    "reasonForIncompletion",
    "failedReferenceTaskNames",
    "event",
];

/// The names that a query for tasks may use.
pub(super) const TASK_NAMES: [&str; 13] = [
    "taskId",
    "taskType",
    "taskDefName",
    "referenceTaskName",
    "workflowId",
    "workflowType",
    "status",
    "correlationId",
    "domain",
    "scheduledTime",
    "startTime",
    "endTime",
    "updateTime",
];

/// A resolved name: its kind and the literals that it accepts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Named {
    Status,
    Text(Field),
    Number(Field),
    /// Compared as milliseconds since the epoch.
    Time(Field),
}

impl Named {
    /// Returns what a name means; `None` if it is unknown.
    pub(super) fn read(name: &str) -> Option<Self> {
        use ExecutionField as Own;
        let text = |field: Own| Self::Text(Field::Execution(field));
        let number = |field: Own| Self::Number(Field::Execution(field));
        Some(match name {
            "workflowId" => Self::Text(Field::RunId),
            "workflowType" => Self::Text(Field::WorkflowType),
            "status" => Self::Status,
            "startTime" => Self::Time(Field::StartTime),
            "endTime" => Self::Time(Field::CloseTime),
            // The second is its name in the documentation of a published client.
            "updateTime" | "modifiedTime" => Self::Time(Field::Execution(Own::UpdateTime)),
            "version" => number(Own::Version),
            "priority" => number(Own::Priority),
            "correlationId" => text(Own::CorrelationId),
            "parentWorkflowId" => text(Own::ParentId),
            "createdBy" => text(Own::CreatedBy),
            "idempotencyKey" => text(Own::IdempotencyKey),
            "classifier" => text(Own::Classifier),
            "reasonForIncompletion" => text(Own::ReasonForIncompletion),
            "failedReferenceTaskNames" => text(Own::FailedReferences),
            "event" => text(Own::Event),
            _ => return None,
        })
    }

    /// Returns what a name means in a search for tasks; `None` if it is unknown.
    pub(super) fn read_of_task(name: &str) -> Option<Self> {
        use TaskField as Own;
        let text = |field: Own| Self::Text(Field::Task(field));
        let time = |field: Own| Self::Time(Field::Task(field));
        Some(match name {
            "taskId" => text(Own::TaskId),
            "taskType" => text(Own::TaskType),
            "taskDefName" => text(Own::DefName),
            "referenceTaskName" => text(Own::Reference),
            "workflowId" => text(Own::WorkflowId),
            "workflowType" => text(Own::WorkflowType),
            "status" => text(Own::Status),
            "correlationId" => text(Own::CorrelationId),
            "domain" => text(Own::Domain),
            "scheduledTime" => time(Own::ScheduledTime),
            "startTime" => time(Own::StartTime),
            "endTime" => time(Own::EndTime),
            "updateTime" => time(Own::UpdateTime),
            _ => return None,
        })
    }

    /// Returns the field to sort by.
    pub(super) fn into_sort_field(self) -> SortField {
        match self {
            Self::Status => SortField::Status,
            Self::Text(field) | Self::Number(field) | Self::Time(field) => SortField::Field(field),
        }
    }
}
