//! The events of a run's history: their types and payloads.
//!
//! The shapes are frozen. A key is never renamed, never changes its type and never gets another meaning; a new shape is a
//! new event type. A key without a value is left out, not written as null, because both published replayers reject null in
//! several places. `docs/protocol/history-events.md` has the rules that all events follow.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::id::{CommandId, EventId, TaskId};
use crate::parallel_group::Group;
use crate::sequence::HistorySeq;
use crate::time::Timestamp;

mod activity;
mod cancellation;
mod child;
mod conductor;
mod local_activity;
mod record;
mod run;
mod selection;
mod update;
mod wait;

pub use activity::{
    ActivityCall, ActivityCancelled, ActivityCompleted, ActivityFailed, ActivityHeartbeatRecorded,
    ActivityRetryScheduled, ActivityScheduled, ActivitySnapshot, ActivityStarted, ActivityTimedOut,
};
pub use cancellation::{
    CooperativeCancellationDelivered, CooperativeCancellationRequested, DeliveryPlace,
};
pub use child::{
    ChildCall, ChildFailure, ChildResult, ChildRetry, ChildRetryPolicy, ChildRunClosed,
    ChildRunStarted, ChildTimeoutPolicy, ChildTiming, ChildWorkflowScheduled,
    ParentClosePolicyDone,
};
pub use conductor::{
    ExecutionEnded, ExecutionMessageReceived, ExecutionPaused, ExecutionReopened, ExecutionStarted,
    ExecutionTaskEnded, ExecutionTaskReopened, ExecutionTaskScheduled, ExecutionTaskStarted,
    ExecutionTaskUpdated, ExecutionVariablesSet,
};
pub use local_activity::{
    EXECUTION_MODE_LOCAL, LocalActivitySnapshot, LocalAttemptSnapshot, LocalKeys,
};
pub use record::{
    MemoUpserted, SearchAttributesUpserted, SideEffectRecorded, VersionMarkerRecorded,
};
pub use run::{
    ArchiveRequested, CloseRequested, LimitBreach, ParentKeys, RepairRequested, RunStopped,
    StartDecided, WorkflowArchived, WorkflowCompleted, WorkflowContinuedAsNew, WorkflowFailed,
    WorkflowStarted, WorkflowTimedOut,
};
pub use selection::{MessageCursorAdvanced, SelectionResolved};
pub use update::{
    UpdateAccepted, UpdateApplied, UpdateCall, UpdateCompleted, UpdateFailure, UpdateRejected,
};
pub use wait::{ConditionWait, SignalApplied, SignalReceived, SignalWaitOpened, TimerPayload};

/// The codec tag beside every payload.
pub const PAYLOAD_CODEC: &str = "avro";

/// One recorded fact, ready to be stored: the payload is already the JSON text that is sent to workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Unique in the whole store.
    pub id: EventId,
    /// Position in the run's history, from 1, without gaps.
    pub sequence: HistorySeq,
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
    /// The caller that caused it, as JSON text; shown by the control plane, never sent to workers.
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
    /// A duplicate start was refused while the run was open. Other servers write it; this one does not.
    StartRejected(StartDecided),
    /// The run began.
    WorkflowStarted(Box<WorkflowStarted>),
    /// The workflow returned.
    WorkflowCompleted(WorkflowCompleted),
    /// The workflow failed or exceeded a structural limit.
    WorkflowFailed(Box<WorkflowFailed>),
    /// A run or execution deadline passed.
    WorkflowTimedOut(WorkflowTimedOut),
    /// The run ended and another run of the same workflow took over.
    WorkflowContinuedAsNew(WorkflowContinuedAsNew),
    /// A cancel command was accepted.
    CancelRequested(CloseRequested),
    /// A terminate command was accepted.
    TerminateRequested(CloseRequested),
    /// An operator repaired an open run.
    RepairRequested(RepairRequested),
    /// An operator archived a closed run.
    ArchiveRequested(ArchiveRequested),
    /// The run is archived.
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
    /// An attempt failed or timed out, and another one will follow.
    ActivityRetryScheduled(Box<ActivityRetryScheduled>),
    /// The activity succeeded.
    ActivityCompleted(ActivityCompleted),
    /// The activity failed for good.
    ActivityFailed(Box<ActivityFailed>),
    /// The activity timed out for good.
    ActivityTimedOut(Box<ActivityTimedOut>),
    /// The activity was cancelled, with its run or alone.
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
    /// An update ended.
    UpdateCompleted(Box<UpdateCompleted>),
    /// A child workflow was scheduled.
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
    /// The run closed and its close policy was applied to an open child.
    ParentClosePolicyApplied(ParentClosePolicyDone),
    /// A child's close policy could not be applied.
    ParentClosePolicyFailed(ParentClosePolicyDone),
    /// A member of a selection ended first.
    SelectionResolved(Box<SelectionResolved>),
    /// The workflow cancelled a member of a selection.
    SelectionOperationCancelled(Box<crate::workflow_command::SelectionMember>),
    /// The workflow consumed messages of a stream.
    MessageCursorAdvanced(MessageCursorAdvanced),
    /// A request that the workflow clean up and end was accepted.
    CooperativeCancellationRequested(CooperativeCancellationRequested),
    /// That request reached the workflow's code.
    CooperativeCancellationDelivered(CooperativeCancellationDelivered),
    /// A value was recorded for all replays.
    SideEffectRecorded(SideEffectRecorded),
    /// A version of changed code was chosen.
    VersionMarkerRecorded(VersionMarkerRecorded),
    /// Search attributes changed.
    SearchAttributesUpserted(SearchAttributesUpserted),
    /// The memo changed.
    MemoUpserted(MemoUpserted),
    /// A definition run began.
    ExecutionStarted(Box<ExecutionStarted>),
    /// A task was added to a definition run.
    ExecutionTaskScheduled(Box<ExecutionTaskScheduled>),
    /// A task of a definition run was handed to a worker, or begun by the server.
    ExecutionTaskStarted(ExecutionTaskStarted),
    /// A task of a definition run got a report and stays open.
    ExecutionTaskUpdated(Box<ExecutionTaskUpdated>),
    /// A task of a definition run ended.
    ExecutionTaskEnded(Box<ExecutionTaskEnded>),
    /// Variables of a definition run changed.
    ExecutionVariablesSet(ExecutionVariablesSet),
    /// A caller pushed a message to a definition run.
    ExecutionMessageReceived(Box<ExecutionMessageReceived>),
    /// A definition run was paused.
    ExecutionPaused(ExecutionPaused),
    /// A definition run goes on.
    ExecutionResumed(ExecutionPaused),
    /// A definition run ended.
    ExecutionEnded(Box<ExecutionEnded>),
    /// A definition run that had ended goes on.
    ExecutionReopened(Box<ExecutionReopened>),
    /// A task of a definition run that had ended is in progress again.
    ExecutionTaskReopened(ExecutionTaskReopened),
}

/// The metadata of a parallel group, flattened into an event. A call outside groups has no keys here.
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
