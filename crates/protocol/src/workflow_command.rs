//! The workflow commands that a worker returns from a workflow task.
//!
//! This module checks their shape; the engine checks them against the state of the run. Every error names
//! `commands.{i}.{field}`, and one bad command refuses the whole list.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::UpdateId;
use crate::parallel_group::Group;
use crate::payload::Payload;
use crate::sequence::CommandSeq;
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

/// The most bytes of an activity type, signal name or change id.
pub const NAME_BYTES_MAX: usize = 255;

/// One instruction of a completion.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowCommand {
    /// Puts an activity task on a queue.
    ScheduleActivity(Box<ScheduleActivity>),
    /// Records a local activity that has already ended.
    RecordLocalActivity(Box<RecordLocalActivity>),
    /// Records the call of a local activity before its first attempt. Only a checkpoint of a group may contain it.
    PrepareLocalActivity(Box<LocalActivityCall>),
    /// Starts a timer.
    StartTimer {
        /// Seconds until the timer fires; 0 fires at once.
        delay_seconds: u64,
        /// The parallel group of the call, if it has one.
        group: Option<Group>,
    },
    /// Starts another workflow as a child of this run.
    StartChildWorkflow(Box<StartChildWorkflow>),
    /// Waits until a predicate of the workflow code is true.
    OpenConditionWait(Box<OpenConditionWait>),
    /// Waits for a signal.
    OpenSignalWait {
        /// The name of the signal.
        signal_name: String,
        /// How long the wait lasts at most; absent means without limit.
        timeout_seconds: Option<u64>,
        /// The parallel group of the call, if it has one.
        group: Option<Group>,
    },
    /// Records a value, so that every replay reads the same one.
    RecordSideEffect {
        /// The value.
        result: Payload,
    },
    /// Records which version of changed workflow code the run uses.
    RecordVersionMarker {
        /// The name of the change in the workflow code.
        change_id: String,
        /// The version that the run uses.
        version: i32,
        /// The oldest version that the code supports.
        min_supported: i32,
        /// The newest version that the code supports.
        max_supported: i32,
    },
    /// Changes search attributes of the run.
    UpsertSearchAttributes {
        /// The new values by name; null removes an attribute.
        attributes: Map<String, Value>,
        /// Type names of some of these attributes.
        attribute_types: Option<Map<String, Value>>,
    },
    /// Changes entries of the memo.
    UpsertMemo {
        /// A map of the new entries; null removes an entry.
        entries: Payload,
    },
    /// Returns the result of an accepted update.
    CompleteUpdate {
        /// The update.
        update_id: UpdateId,
        /// The value that the handler returned.
        result: Option<Payload>,
    },
    /// Reports that the handler of an accepted update failed.
    FailUpdate(Box<FailUpdate>),
    /// Cancels a member of a selection that another member has decided.
    CancelSelectionOperation(Box<SelectionMember>),
    /// Closes the run with a result.
    CompleteWorkflow {
        /// The value that the workflow returned.
        result: Option<Payload>,
    },
    /// Closes the run with a failure.
    FailWorkflow(Box<FailWorkflow>),
    /// Closes the run and starts the next run of the same workflow.
    ContinueAsNew {
        /// The arguments of the next run.
        arguments: Option<Payload>,
        /// The workflow type of the next run; absent means the same type.
        workflow_type: Option<String>,
        /// The task queue of the next run; absent means the same queue.
        queue: Option<String>,
    },
}

/// A call of an activity that any worker of a queue may run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleActivity {
    /// The registered name of the activity code.
    pub activity_type: String,
    /// The argument list, as one payload.
    pub arguments: Option<Payload>,
    /// The task queue; absent means the queue of the run.
    pub queue: Option<String>,
    /// The retry policy of the call, if it has one.
    pub retry_policy: Option<CommandRetryPolicy>,
    /// Seconds that one attempt may take.
    pub start_to_close_timeout: Option<u64>,
    /// Seconds that an attempt may wait for a worker.
    pub schedule_to_start_timeout: Option<u64>,
    /// Seconds that the call may take over all attempts.
    pub schedule_to_close_timeout: Option<u64>,
    /// Seconds that may pass between two heartbeats.
    pub heartbeat_timeout: Option<u64>,
    /// What a delivered cancellation does to the call; absent means the default of its kind.
    pub cancellation_policy: Option<CancellationPolicy>,
    /// The worker session that the activity must run in, if any.
    pub worker_session: Option<Box<WorkerSessionOptions>>,
    /// The parallel group of the call, if it has one.
    pub group: Option<Group>,
}

/// The retry policy of a call, as the command states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRetryPolicy {
    /// The allowed number of attempts. Absent means one attempt, null means without limit.
    pub max_attempts: Option<Option<u64>>,
    /// Seconds to wait before each retry; the last value repeats.
    pub backoff_seconds: Vec<u64>,
    /// Error types that are never retried.
    pub non_retryable_error_types: Vec<String>,
}

/// A wait until a predicate is true. Only the worker can evaluate the predicate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenConditionWait {
    /// The name that the workflow code gives the condition.
    pub condition_key: Option<String>,
    /// A hash of the predicate; replay compares it with the code.
    pub condition_definition_fingerprint: Option<String>,
    /// The name that the worker gives this wait; its events repeat it.
    pub condition_wait_occurrence_id: Option<String>,
    /// How long the wait lasts at most; absent means without limit.
    pub timeout_seconds: Option<u64>,
    /// The parallel group of the call, if it has one.
    pub group: Option<Group>,
}

/// A call of another workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartChildWorkflow {
    /// The registered name of the child's code.
    pub workflow_type: String,
    /// The argument list, as one payload.
    pub arguments: Option<Payload>,
    /// The task queue of the child; absent means the queue of the parent.
    pub queue: Option<String>,
    /// What happens to the child if the parent closes first.
    pub parent_close_policy: ParentClosePolicy,
    /// What a delivered cancellation does to the call; absent means the default of its kind.
    pub cancellation_policy: Option<CancellationPolicy>,
    /// The retry policy of the call, if it has one.
    pub retry_policy: Option<CommandRetryPolicy>,
    /// The time limit of the whole chain of runs, in seconds.
    pub execution_timeout_seconds: Option<u64>,
    /// The time limit of one run, in seconds.
    pub run_timeout_seconds: Option<u64>,
    /// The parallel group of the call, if it has one.
    pub group: Option<Group>,
}

/// What happens to an open child when its parent closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentClosePolicy {
    /// The child runs on.
    #[default]
    Abandon,
    /// The child is cancelled at once.
    RequestCancel,
    /// The child is terminated.
    Terminate,
    /// The child gets a cooperative cancellation request and can clean up.
    RequestCancellation,
}

impl ParentClosePolicy {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abandon => "abandon",
            Self::RequestCancel => "request_cancel",
            Self::Terminate => "terminate",
            Self::RequestCancellation => "request_cancellation",
        }
    }
}

/// What happens to a pending call when a cancellation is delivered to the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancellationPolicy {
    /// The call is asked to stop, and the workflow does not wait for it.
    TryCancel,
    /// The call is asked to stop, and the workflow waits until it has ended.
    WaitCancellationCompleted,
    /// The call runs on, and the workflow ignores its end.
    Abandon,
}

impl CancellationPolicy {
    /// Returns the wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TryCancel => "try_cancel",
            Self::WaitCancellationCompleted => "wait_cancellation_completed",
            Self::Abandon => "abandon",
        }
    }
}

/// The failure of an update handler.
#[derive(Clone, Debug, PartialEq)]
pub struct FailUpdate {
    /// The update that failed.
    pub update_id: UpdateId,
    /// The error text.
    pub message: String,
    /// The portable name of the error; retry policies match it.
    pub exception_type: Option<String>,
    /// The class of the error in the language that raised it.
    pub exception_class: Option<String>,
    /// Whether the failure forbids further attempts, whatever the retry policy allows.
    pub non_retryable: bool,
}

/// One alternative of a selection, identified as both published SDKs do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectionMember {
    /// The parallel group that is a selection.
    pub selection_group_id: String,
    /// The name of the member: a string, or an integer from 0.
    pub member_key: Value,
    /// The place among the members, from 0.
    pub member_index: u64,
    /// The command sequence of the member's first call.
    pub member_base_sequence: CommandSeq,
    /// How many calls the member has.
    pub member_size: u64,
    /// The kind of its call, or `group`.
    pub operation_kind: String,
    /// The id of its call, such as an activity execution id.
    pub operation_identity: String,
}

/// The failure of a workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailWorkflow {
    /// The error text.
    pub message: String,
    /// The portable name of the error; retry policies match it.
    pub exception_type: Option<String>,
    /// The class of the error in the language that raised it.
    pub exception_class: Option<String>,
    /// The whole error as a JSON object, as the worker sent it.
    pub exception: Option<Map<String, Value>>,
    /// Whether the failure forbids further attempts, whatever the retry policy allows.
    pub non_retryable: bool,
    /// The command sequence of the step that failed.
    pub failed_step_sequence: Option<CommandSeq>,
    /// The activity that failed.
    pub failed_activity_execution_id: Option<String>,
}

impl WorkflowCommand {
    /// Whether the command closes the run.
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

    /// Whether the command takes a command sequence of its own. The others refer to something that is already recorded.
    pub fn is_call(&self) -> bool {
        !matches!(
            self,
            Self::CompleteUpdate { .. } | Self::FailUpdate(_) | Self::CancelSelectionOperation(_)
        ) && !self.is_terminal()
    }

    /// The parallel group that the call belongs to.
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

    /// Returns every payload of the command that counts towards the size limit of the run.
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
            // An oversized result of an update fails that update only, not the run.
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

/// Parses the commands of a completion. Checks known types, required fields and payload frames, and that only the last
/// command closes the run.
///
/// # Errors
/// Every offending field with its messages; nothing of the list may then be applied.
pub fn parse_commands(commands: &Value) -> Result<Vec<WorkflowCommand>, FieldErrors> {
    parse(commands, BatchKind::Completion)
}

/// What the commands of a checkpoint are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointKind {
    /// The commands before a local call.
    Prefix,
    /// A parallel group, which may contain local calls.
    Group,
}

/// Parses the commands of a checkpoint, which are recorded before a local activity runs. No command may close the run.
///
/// # Errors
/// Every offending field with its messages.
pub fn parse_checkpoint(
    commands: &Value,
    kind: CheckpointKind,
) -> Result<Vec<WorkflowCommand>, FieldErrors> {
    parse(commands, BatchKind::Checkpoint(kind))
}

/// The request that a list of commands came with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BatchKind {
    Completion,
    Checkpoint(CheckpointKind),
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
            "must contain at least one command",
        );
    }
    let mut parsed = Vec::with_capacity(list.len());
    for (index, command) in list.iter().enumerate() {
        let mut fields = Fields {
            at: format!("commands.{index}"),
            map: command.as_object(),
            errors: &mut errors,
        };
        let command = if kind == BatchKind::Checkpoint(CheckpointKind::Group)
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
