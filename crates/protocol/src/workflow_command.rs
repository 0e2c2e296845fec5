//! What a worker returns from a workflow task: a list of workflow commands, checked for shape here and against the run's
//! state in the engine. Every error names `commands.{i}.{field}`, and one bad command refuses the whole list.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::UpdateId;
use crate::parallel_group::Group;
use crate::payload::Payload;
use crate::worker_session::WorkerSessionOptions;

mod fields;
mod local_activity;

use fields::Fields;
pub use local_activity::{
    CleanupProof, LocalActivityCall, LocalEnd, LocalFailure, LocalTimeout, REPORTED_ATTEMPTS_MAX,
    REPORTED_HEARTBEATS_MAX, RecordLocalActivity, ReportedAttempt, ReportedHeartbeat,
    ReportedRetry, parse_descriptor,
};

/// Field path → what is wrong with it.
pub type FieldErrors = BTreeMap<String, Vec<String>>;

/// Longest activity type, signal name, change id.
pub const NAME_BYTES_MAX: usize = 255;

/// One instruction of a completion.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "each is explained where the engine applies it; the names are the protocol's"
)]
pub enum WorkflowCommand {
    ScheduleActivity(Box<ScheduleActivity>),
    RecordLocalActivity(Box<RecordLocalActivity>),
    /// Only in a checkpoint of a group: the call is recorded, and its attempts follow.
    PrepareLocalActivity(Box<LocalActivityCall>),
    StartTimer {
        delay_seconds: u64,
        group: Option<Group>,
    },
    StartChildWorkflow(Box<StartChildWorkflow>),
    OpenConditionWait(Box<OpenConditionWait>),
    OpenSignalWait {
        signal_name: String,
        timeout_seconds: Option<u64>,
        group: Option<Group>,
    },
    RecordSideEffect {
        result: Payload,
    },
    RecordVersionMarker {
        change_id: String,
        version: i32,
        min_supported: i32,
        max_supported: i32,
    },
    UpsertSearchAttributes {
        attributes: Map<String, Value>,
        attribute_types: Option<Map<String, Value>>,
    },
    UpsertMemo {
        entries: Payload,
    },
    CompleteUpdate {
        update_id: UpdateId,
        result: Option<Payload>,
    },
    FailUpdate(Box<FailUpdate>),
    CancelSelectionOperation(Box<SelectionMember>),
    CompleteWorkflow {
        result: Option<Payload>,
    },
    FailWorkflow(Box<FailWorkflow>),
    ContinueAsNew {
        arguments: Option<Payload>,
        workflow_type: Option<String>,
        queue: Option<String>,
    },
}

/// An activity call.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct ScheduleActivity {
    pub activity_type: String,
    pub arguments: Option<Payload>,
    pub queue: Option<String>,
    pub retry_policy: Option<CommandRetryPolicy>,
    pub start_to_close_timeout: Option<u64>,
    pub schedule_to_start_timeout: Option<u64>,
    pub schedule_to_close_timeout: Option<u64>,
    pub heartbeat_timeout: Option<u64>,
    pub cancellation_policy: Option<CancellationPolicy>,
    pub worker_session: Option<Box<WorkerSessionOptions>>,
    pub group: Option<Group>,
}

/// Retries as the command asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct CommandRetryPolicy {
    /// Absent means one attempt, null means without limit.
    pub max_attempts: Option<Option<u64>>,
    pub backoff_seconds: Vec<u64>,
    pub non_retryable_error_types: Vec<String>,
}

/// A wait for a predicate that only the worker can evaluate.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct OpenConditionWait {
    pub condition_key: Option<String>,
    pub condition_definition_fingerprint: Option<String>,
    pub condition_wait_occurrence_id: Option<String>,
    pub timeout_seconds: Option<u64>,
    pub group: Option<Group>,
}

/// A call of another workflow.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct StartChildWorkflow {
    pub workflow_type: String,
    pub arguments: Option<Payload>,
    pub queue: Option<String>,
    pub parent_close_policy: ParentClosePolicy,
    pub cancellation_policy: Option<CancellationPolicy>,
    pub retry_policy: Option<CommandRetryPolicy>,
    pub execution_timeout_seconds: Option<u64>,
    pub run_timeout_seconds: Option<u64>,
    pub group: Option<Group>,
}

/// What happens to an open child when its parent closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum ParentClosePolicy {
    #[default]
    Abandon,
    RequestCancel,
    Terminate,
    /// Cooperative: the child is asked to clean up.
    RequestCancellation,
}

impl ParentClosePolicy {
    /// The word of the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abandon => "abandon",
            Self::RequestCancel => "request_cancel",
            Self::Terminate => "terminate",
            Self::RequestCancellation => "request_cancellation",
        }
    }
}

/// What happens to a call that a delivered cancellation interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum CancellationPolicy {
    TryCancel,
    WaitCancellationCompleted,
    Abandon,
}

impl CancellationPolicy {
    /// The word of the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TryCancel => "try_cancel",
            Self::WaitCancellationCompleted => "wait_cancellation_completed",
            Self::Abandon => "abandon",
        }
    }
}

/// An update's handler failed.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct FailUpdate {
    pub update_id: UpdateId,
    pub message: String,
    pub exception_type: Option<String>,
    pub exception_class: Option<String>,
    pub non_retryable: bool,
}

/// One member of a selection, as both SDKs name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct SelectionMember {
    pub selection_group_id: String,
    /// A string, or an integer from 0.
    pub member_key: Value,
    pub member_index: u64,
    pub member_base_sequence: u64,
    pub member_size: u64,
    pub operation_kind: String,
    pub operation_identity: String,
}

/// The workflow's own failure.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct FailWorkflow {
    pub message: String,
    pub exception_type: Option<String>,
    pub exception_class: Option<String>,
    pub exception: Option<Map<String, Value>>,
    pub non_retryable: bool,
    pub failed_step_sequence: Option<u64>,
    pub failed_activity_execution_id: Option<String>,
}

impl WorkflowCommand {
    /// Whether it closes the run.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::CompleteWorkflow { .. } | Self::FailWorkflow(_) | Self::ContinueAsNew { .. } => {
                true
            }
            Self::ScheduleActivity(_)
            | Self::RecordLocalActivity(_)
            | Self::PrepareLocalActivity(_)
            | Self::StartTimer { .. }
            | Self::StartChildWorkflow(_)
            | Self::OpenConditionWait(_)
            | Self::OpenSignalWait { .. }
            | Self::RecordSideEffect { .. }
            | Self::RecordVersionMarker { .. }
            | Self::UpsertSearchAttributes { .. }
            | Self::UpsertMemo { .. }
            | Self::CompleteUpdate { .. }
            | Self::FailUpdate(_)
            | Self::CancelSelectionOperation(_) => false,
        }
    }

    /// Whether it takes a command sequence of its own. The others speak about something that is recorded already.
    pub fn is_call(&self) -> bool {
        !matches!(
            self,
            Self::CompleteUpdate { .. } | Self::FailUpdate(_) | Self::CancelSelectionOperation(_)
        ) && !self.is_terminal()
    }

    /// The group the call belongs to.
    pub fn group(&self) -> Option<&Group> {
        match self {
            Self::ScheduleActivity(activity) => activity.group.as_ref(),
            Self::PrepareLocalActivity(call) => call.group.as_ref(),
            Self::StartTimer { group, .. } | Self::OpenSignalWait { group, .. } => group.as_ref(),
            Self::StartChildWorkflow(child) => child.group.as_ref(),
            Self::OpenConditionWait(wait) => wait.group.as_ref(),
            Self::RecordLocalActivity(_)
            | Self::RecordSideEffect { .. }
            | Self::RecordVersionMarker { .. }
            | Self::UpsertSearchAttributes { .. }
            | Self::UpsertMemo { .. }
            | Self::CompleteUpdate { .. }
            | Self::FailUpdate(_)
            | Self::CancelSelectionOperation(_)
            | Self::CompleteWorkflow { .. }
            | Self::FailWorkflow(_)
            | Self::ContinueAsNew { .. } => None,
        }
    }

    /// Every payload it carries, for the size limit.
    pub fn payloads(&self) -> Vec<&Payload> {
        match self {
            Self::ScheduleActivity(activity) => activity.arguments.iter().collect(),
            Self::RecordLocalActivity(local) => {
                let result = match &local.end {
                    LocalEnd::Completed { result } => Some(result),
                    LocalEnd::Failed(_) | LocalEnd::TimedOut(..) | LocalEnd::Cancelled(_) => None,
                };
                std::iter::once(&local.call.arguments)
                    .chain(result)
                    .collect()
            }
            Self::PrepareLocalActivity(call) => vec![&call.arguments],
            Self::RecordSideEffect { result } => vec![result],
            Self::UpsertMemo { entries } => vec![entries],
            Self::StartChildWorkflow(child) => child.arguments.iter().collect(),
            Self::CompleteWorkflow { result } => result.iter().collect(),
            Self::ContinueAsNew { arguments, .. } => arguments.iter().collect(),
            // An oversized result fails its update only (engine.md §2.7).
            Self::CompleteUpdate { .. }
            | Self::FailUpdate(_)
            | Self::CancelSelectionOperation(_)
            | Self::StartTimer { .. }
            | Self::OpenConditionWait(_)
            | Self::OpenSignalWait { .. }
            | Self::RecordVersionMarker { .. }
            | Self::UpsertSearchAttributes { .. }
            | Self::FailWorkflow(_) => Vec::new(),
        }
    }
}

/// Checks the shape of a whole list: known types, required fields, payload frames, one terminal command at the end.
///
/// # Errors
/// Every offending field with its messages; nothing of the list may then be applied.
pub fn parse_commands(commands: &Value) -> Result<Vec<WorkflowCommand>, FieldErrors> {
    parse(commands, BatchKind::Completion)
}

/// As [`parse_commands`], for what is recorded before a local activity runs: nothing in it closes the run. A group may hold
/// local calls.
///
/// # Errors
/// Every offending field with its messages.
pub fn parse_checkpoint(
    commands: &Value,
    is_group: bool,
) -> Result<Vec<WorkflowCommand>, FieldErrors> {
    let kind = if is_group {
        BatchKind::GroupCheckpoint
    } else {
        BatchKind::Checkpoint
    };
    parse(commands, kind)
}

/// What a list of commands is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchKind {
    Completion,
    Checkpoint,
    GroupCheckpoint,
}

fn parse(commands: &Value, kind: BatchKind) -> Result<Vec<WorkflowCommand>, FieldErrors> {
    let Value::Array(list) = commands else {
        return Err(BTreeMap::from([(
            "commands".to_owned(),
            vec!["must be a list of commands".to_owned()],
        )]));
    };
    let mut errors = FieldErrors::new();
    if list.is_empty() {
        add(
            &mut errors,
            "commands".to_owned(),
            "must hold at least one command",
        );
    }
    let mut parsed = Vec::with_capacity(list.len());
    for (index, command) in list.iter().enumerate() {
        let mut fields = Fields {
            at: format!("commands.{index}"),
            map: command.as_object(),
            errors: &mut errors,
        };
        let command = if kind == BatchKind::GroupCheckpoint
            && command.get("type").and_then(Value::as_str) == Some("prepare_local_activity")
        {
            let before = fields.errors.len();
            let call = fields.local_call(local_activity::Profile::Durable);
            call.filter(|_| fields.errors.len() == before)
                .map(|call| WorkflowCommand::PrepareLocalActivity(Box::new(call)))
        } else {
            fields.command()
        };
        if let Some(command) = command {
            if command.is_terminal() && kind != BatchKind::Completion {
                add(
                    &mut errors,
                    format!("commands.{index}.type"),
                    "a checkpoint does not close the run",
                );
            } else if command.is_terminal() && index + 1 != list.len() {
                add(
                    &mut errors,
                    format!("commands.{index}.type"),
                    "a command that closes the run must be the only one and come last",
                );
            }
            parsed.push(command);
        }
    }
    if errors.is_empty() {
        Ok(parsed)
    } else {
        Err(errors)
    }
}

fn add(errors: &mut FieldErrors, path: String, message: impl Into<String>) {
    errors.entry(path).or_default().push(message.into());
}

#[cfg(test)]
mod tests;
