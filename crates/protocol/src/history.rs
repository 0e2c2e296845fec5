//! The events of a run's history: their types and payloads. Frozen: a key is never renamed, retyped or given another
//! meaning; a new shape is a new event type. Keys whose value is absent are left out, never written as null, because
//! both published replayers treat a null in several places as an error.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::group::Group;
use crate::id::{
    ActivityAttemptId, ActivityExecutionId, ChildCallId, CommandId, EventId, FailureId, RunId,
    SignalId, TaskId, TimerId, UpdateId, WaitId, WorkflowId,
};
use crate::payload::Payload;
use crate::time::Timestamp;

mod cancellation;
mod child;
mod selection;
mod update;

pub use cancellation::{
    CooperativeCancellationDelivered, CooperativeCancellationRequested, DeliveryPlace,
};
pub use child::{
    ChildCall, ChildFailure, ChildResult, ChildRetry, ChildRetryPolicy, ChildRunClosed,
    ChildRunStarted, ChildTimeoutPolicy, ChildTiming, ChildWorkflowScheduled,
    ParentClosePolicyDone,
};
pub use selection::{MessageCursorAdvanced, SelectionResolved};
pub use update::{
    UpdateAccepted, UpdateApplied, UpdateCall, UpdateCompleted, UpdateFailure, UpdateRejected,
};

/// The codec tag that stands beside every payload.
pub const PAYLOAD_CODEC: &str = "avro";

/// One recorded fact, ready to be stored: the payload is already the JSON text that is sent to workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Unique over the whole store.
    pub id: EventId,
    /// Position in the run's history, from 1, without gaps.
    pub sequence: u64,
    /// The event type, as on the wire.
    pub event_type: &'static str,
    /// JSON object text.
    pub payload: String,
    /// When it was recorded; never decreases within a run.
    pub recorded_at: Timestamp,
    /// The workflow task whose completion wrote it.
    pub workflow_task_id: Option<TaskId>,
    /// The external command that caused it.
    pub workflow_command_id: Option<CommandId>,
    /// Who caused it, as JSON text; shown by the control plane, never sent to workers.
    pub principal: Option<String>,
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($payload:ty),)+) => {
        /// Every event this release writes.
        #[derive(Clone, Debug, Serialize)]
        #[serde(untagged)]
        pub enum EventPayload {
            $($(#[$doc])* $name($payload),)+
        }

        impl EventPayload {
            /// The event type, as on the wire.
            pub fn event_type(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)+
                }
            }
        }
    };
}

events! {
    /// A start command was accepted on a new run, or was answered with this open run.
    StartAccepted(StartDecided),
    /// A duplicate start was refused while the run was open.
    StartRejected(StartDecided),
    /// The run began.
    WorkflowStarted(Box<WorkflowStarted>),
    /// The workflow returned.
    WorkflowCompleted(WorkflowCompleted),
    /// The workflow failed, or broke a structural limit.
    WorkflowFailed(Box<WorkflowFailed>),
    /// A run or execution deadline passed.
    WorkflowTimedOut(WorkflowTimedOut),
    /// The run ended and another run of the same workflow took over.
    WorkflowContinuedAsNew(WorkflowContinuedAsNew),
    /// A cancel command was accepted.
    CancelRequested(CloseRequested),
    /// A terminate command was accepted.
    TerminateRequested(CloseRequested),
    /// An operator asked for a second look at an open run.
    RepairRequested(RepairRequested),
    /// An operator asked to keep a closed run.
    ArchiveRequested(ArchiveRequested),
    /// The run is kept.
    WorkflowArchived(WorkflowArchived),
    /// The run was cancelled.
    WorkflowCancelled(RunStopped),
    /// The run was terminated.
    WorkflowTerminated(RunStopped),
    /// An activity was scheduled.
    ActivityScheduled(Box<ActivityScheduled>),
    /// An attempt of an activity was leased.
    ActivityStarted(ActivityStarted),
    /// A heartbeat was accepted.
    ActivityHeartbeatRecorded(ActivityHeartbeatRecorded),
    /// An attempt failed or timed out and another will follow.
    ActivityRetryScheduled(Box<ActivityRetryScheduled>),
    /// The activity succeeded.
    ActivityCompleted(ActivityCompleted),
    /// The activity failed for good.
    ActivityFailed(Box<ActivityFailed>),
    /// The activity timed out for good.
    ActivityTimedOut(Box<ActivityTimedOut>),
    /// The activity was closed with its run.
    ActivityCancelled(ActivityCancelled),
    /// A timer was started.
    TimerScheduled(TimerPayload),
    /// A timer fired.
    TimerFired(TimerPayload),
    /// A timer was cancelled.
    TimerCancelled(TimerPayload),
    /// A signal was accepted.
    SignalReceived(SignalReceived),
    /// The workflow began to wait for a signal.
    SignalWaitOpened(SignalWaitOpened),
    /// A signal resolved a recorded wait.
    SignalApplied(SignalApplied),
    /// The workflow began to wait for a condition.
    ConditionWaitOpened(ConditionWait),
    /// The condition became true.
    ConditionWaitSatisfied(ConditionWait),
    /// An update was admitted.
    UpdateAccepted(UpdateAccepted),
    /// An update was refused while the run was open.
    UpdateRejected(UpdateRejected),
    /// An update's handler ran.
    UpdateApplied(UpdateApplied),
    /// An update is over.
    UpdateCompleted(Box<UpdateCompleted>),
    /// A child workflow was asked for.
    ChildWorkflowScheduled(Box<ChildWorkflowScheduled>),
    /// A run of a child began.
    ChildRunStarted(Box<ChildRunStarted>),
    /// The child returned.
    ChildRunCompleted(Box<ChildRunClosed>),
    /// The child failed or timed out for good.
    ChildRunFailed(Box<ChildRunClosed>),
    /// The child was cancelled.
    ChildRunCancelled(Box<ChildRunClosed>),
    /// The child was terminated.
    ChildRunTerminated(Box<ChildRunClosed>),
    /// A child that was open when the run closed was treated as its policy says.
    ParentClosePolicyApplied(ParentClosePolicyDone),
    /// A child's close policy could not be applied.
    ParentClosePolicyFailed(ParentClosePolicyDone),
    /// A member of a selection settled first.
    SelectionResolved(Box<SelectionResolved>),
    /// The workflow gave up a member of a selection.
    SelectionOperationCancelled(Box<crate::workflow_command::SelectionMember>),
    /// Messages of a stream were taken.
    MessageCursorAdvanced(MessageCursorAdvanced),
    /// The workflow was asked to clean up and end.
    CooperativeCancellationRequested(CooperativeCancellationRequested),
    /// That request reached the workflow's code.
    CooperativeCancellationDelivered(CooperativeCancellationDelivered),
    /// A value was recorded once and for all.
    SideEffectRecorded(SideEffectRecorded),
    /// A version of changed code was chosen.
    VersionMarkerRecorded(VersionMarkerRecorded),
    /// Search attributes changed.
    SearchAttributesUpserted(SearchAttributesUpserted),
    /// The memo changed.
    MemoUpserted(MemoUpserted),
}

/// `StartAccepted`, `StartRejected`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct StartDecided {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub workflow_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<&'static str>,
}

/// The run's first event, or its second after `StartAccepted`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowStarted {
    pub workflow_type: String,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_from_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    #[serde(flatten)]
    pub parent: Option<ParentKeys>,
    #[serde(flatten)]
    pub retry: Option<ChildRetry>,
    #[serde(flatten)]
    pub declared: Map<String, Value>,
    pub task_queue: String,
}

/// Which call of which run a child belongs to.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ParentKeys {
    pub parent_workflow_instance_id: WorkflowId,
    pub parent_workflow_run_id: RunId,
    pub parent_sequence: u64,
    pub workflow_link_id: ChildCallId,
    pub child_call_id: ChildCallId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<ChildRetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<ChildTimeoutPolicy>,
}

/// The workflow's result.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowCompleted {
    pub output: Payload,
    pub payload_codec: &'static str,
}

/// Why the workflow failed.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowFailed {
    pub failure_id: FailureId,
    pub source_kind: &'static str,
    pub source_id: RunId,
    pub failure_category: &'static str,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    pub exception: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_step_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_activity_execution_id: Option<String>,
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// Which structural limit was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitBreach {
    /// The limit's name.
    #[serde(rename = "structural_limit_kind")]
    pub kind: &'static str,
    /// What was asked for.
    #[serde(rename = "structural_limit_value")]
    pub value: u64,
    /// What is allowed.
    #[serde(rename = "structural_limit_configured")]
    pub configured: u64,
}

/// A deadline of the run passed.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowTimedOut {
    pub failure_id: FailureId,
    pub timeout_kind: &'static str,
    pub failure_category: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_deadline_at: Option<Timestamp>,
}

/// Where the work goes on.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowContinuedAsNew {
    pub sequence: u64,
    pub continued_to_run_id: RunId,
    pub continued_to_run_number: u64,
    pub workflow_link_id: CommandId,
    pub closed_reason: &'static str,
}

/// `CancelRequested`, `TerminateRequested`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct CloseRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A second look at an open run.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct RepairRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    pub outcome: &'static str,
    pub liveness_state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<&'static str>,
}

/// A closed run is to be kept.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ArchiveRequested {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub command_type: &'static str,
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// It is kept from now on.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct WorkflowArchived {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub archive_command_id: CommandId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `WorkflowCancelled`, `WorkflowTerminated`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct RunStopped {
    pub workflow_command_id: CommandId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub closed_reason: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The keys every event of one activity call repeats.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCall {
    pub activity_execution_id: ActivityExecutionId,
    pub activity_type: String,
    pub activity_class: String,
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancellation_policy: Option<crate::workflow_command::CancellationPolicy>,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// Group metadata flattened into an event; nothing at all for a call outside groups.
#[derive(Clone, Debug, Default)]
pub struct GroupKeys(pub Option<Group>);

impl Serialize for GroupKeys {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(group) => group.keys().serialize(serializer),
            None => Map::<String, Value>::new().serialize(serializer),
        }
    }
}

/// The call and its snapshot, which replay compares with the code.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityScheduled {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity: ActivitySnapshot,
}

/// The activity as the command asked for it: no server default is merged in.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivitySnapshot {
    pub id: ActivityExecutionId,
    pub idempotency_key: ActivityExecutionId,
    pub sequence: u64,
    #[serde(rename = "type")]
    pub activity_type: String,
    pub class: String,
    pub local_activity: bool,
    pub status: &'static str,
    pub attempt_count: u64,
    pub payload_codec: &'static str,
    pub queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    pub arguments: Payload,
}

/// One attempt began.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityStarted {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub lease_expires_at: Timestamp,
}

/// The worker reported progress.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityHeartbeatRecorded {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub heartbeat_at: Timestamp,
    pub lease_expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Value>,
}

/// Another attempt will follow.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityRetryScheduled {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    pub retry_task_id: TaskId,
    pub retry_of_task_id: TaskId,
    pub retry_available_at: Timestamp,
    pub retry_backoff_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_attempt_id: Option<ActivityAttemptId>,
    pub retry_after_attempt: u64,
    pub retry_reason: &'static str,
    pub max_attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
}

/// The activity's result.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCompleted {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub result: Payload,
    pub payload_codec: &'static str,
}

/// The activity's final failure, in the shape every language reads.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityFailed {
    #[serde(flatten)]
    pub call: ActivityCall,
    pub activity_attempt_id: ActivityAttemptId,
    pub attempt_number: u64,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub non_retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_class: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
    pub exception: Map<String, Value>,
    #[serde(flatten)]
    pub limit: Option<LimitBreach>,
}

/// A deadline of the activity passed for good.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityTimedOut {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    pub attempt_number: u64,
    pub failure_id: FailureId,
    pub failure_category: &'static str,
    pub timeout_kind: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub close_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_to_close_deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_deadline_at: Option<Timestamp>,
}

/// The activity ended with its run.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ActivityCancelled {
    #[serde(flatten)]
    pub call: ActivityCall,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_command_id: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_attempt_id: Option<ActivityAttemptId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_number: Option<u64>,
    pub cancelled_at: Timestamp,
}

/// `TimerScheduled`, `TimerFired`, `TimerCancelled`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct TimerPayload {
    pub timer_id: TimerId,
    pub sequence: u64,
    pub delay_seconds: u64,
    pub fire_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_wait_id: Option<WaitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_definition_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_wait_id: Option<WaitId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_name: Option<String>,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// A signal as it came.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SignalReceived {
    pub workflow_command_id: CommandId,
    pub signal_id: SignalId,
    pub workflow_instance_id: WorkflowId,
    pub workflow_run_id: RunId,
    pub signal_name: String,
    pub signal_wait_id: WaitId,
    pub arguments: Payload,
    pub payload_codec: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_sequence: Option<u64>,
}

/// The workflow waits for a signal.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SignalWaitOpened {
    pub signal_name: String,
    pub signal_wait_id: WaitId,
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// The signal that ended a wait.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SignalApplied {
    pub workflow_command_id: CommandId,
    pub signal_id: SignalId,
    pub signal_name: String,
    pub signal_wait_id: WaitId,
    pub sequence: u64,
    pub value: Payload,
    pub payload_codec: &'static str,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// `ConditionWaitOpened`, `ConditionWaitSatisfied`.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct ConditionWait {
    pub condition_wait_id: WaitId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_wait_occurrence_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_definition_fingerprint: Option<String>,
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<TimerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_signal_id: Option<SignalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_update_id: Option<UpdateId>,
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// A recorded value.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SideEffectRecorded {
    pub sequence: u64,
    pub result: Payload,
    pub payload_codec: &'static str,
}

/// A recorded choice of version.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct VersionMarkerRecorded {
    pub sequence: u64,
    pub change_id: String,
    pub version: i32,
    pub min_supported: i32,
    pub max_supported: i32,
}

/// Attributes as sent, and after the merge.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SearchAttributesUpserted {
    pub sequence: u64,
    pub attributes: Map<String, Value>,
    pub merged: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attribute_types: Option<Map<String, Value>>,
}

/// Memo entries as sent, and after the merge.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct MemoUpserted {
    pub sequence: u64,
    pub entries: Payload,
    pub merged: Payload,
}
