//! The names of fields in queries and sort orders of definition runs.

use super::ExecutionField;
use super::order::SortField;
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

    /// Returns the field to sort by.
    pub(super) fn into_sort_field(self) -> SortField {
        match self {
            Self::Status => SortField::Status,
            Self::Text(field) | Self::Number(field) | Self::Time(field) => SortField::Field(field),
        }
    }
}
