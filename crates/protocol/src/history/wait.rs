//! Events of timers, signals and conditions.

use serde::Serialize;

use super::GroupKeys;
use crate::id::{CommandId, RunId, SignalId, TimerId, UpdateId, WaitId, WorkflowId};
use crate::payload::Payload;
use crate::sequence::CommandSeq;
use crate::time::Timestamp;

/// The payload of `TimerScheduled`, `TimerFired` and `TimerCancelled`.
#[derive(Clone, Debug, Serialize)]
pub struct TimerPayload {
    /// Identifies the timer.
    pub timer_id: TimerId,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The delay that the command asked for.
    pub delay_seconds: u64,
    /// When the timer is due.
    pub fire_at: Timestamp,
    /// When it fired; only in `TimerFired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired_at: Option<Timestamp>,
    /// When it was cancelled; only in `TimerCancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled_at: Option<Timestamp>,
    /// `condition_timeout` or `signal_timeout` for the time limit of a wait; absent for a plain timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_kind: Option<&'static str>,
    /// The condition wait that the timer limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_wait_id: Option<WaitId>,
    /// The name that the workflow code gives the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_key: Option<String>,
    /// A hash of the predicate; replay compares it with the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_definition_fingerprint: Option<String>,
    /// The signal wait that the timer limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_wait_id: Option<WaitId>,
    /// The name of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_name: Option<String>,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// An accepted signal.
#[derive(Clone, Debug, Serialize)]
pub struct SignalReceived {
    /// The external command that caused the event.
    pub workflow_command_id: CommandId,
    /// Identifies the accepted signal.
    pub signal_id: SignalId,
    /// The workflow that the run belongs to.
    pub workflow_instance_id: WorkflowId,
    /// The run that this history belongs to.
    pub workflow_run_id: RunId,
    /// The name of the signal.
    pub signal_name: String,
    /// The open wait of that name, or `signal-command:{command}`.
    pub signal_wait_id: WaitId,
    /// The argument list, as one payload.
    pub arguments: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// The command sequence of the newest open wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_sequence: Option<CommandSeq>,
}

/// A recorded wait for a signal.
#[derive(Clone, Debug, Serialize)]
pub struct SignalWaitOpened {
    /// The name of the signal.
    pub signal_name: String,
    /// Identifies the wait.
    pub signal_wait_id: WaitId,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// How long the wait lasts at most; absent means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// The signal that ended a wait.
#[derive(Clone, Debug, Serialize)]
pub struct SignalApplied {
    /// The external command that caused the event.
    pub workflow_command_id: CommandId,
    /// Identifies the accepted signal.
    pub signal_id: SignalId,
    /// The name of the signal.
    pub signal_name: String,
    /// The wait that ended.
    pub signal_wait_id: WaitId,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// The argument list of the signal, as one payload.
    pub value: Payload,
    /// The codec of the payloads in this event; always `avro`.
    pub payload_codec: &'static str,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
}

/// The payload of `ConditionWaitOpened` and `ConditionWaitSatisfied`.
#[derive(Clone, Debug, Serialize)]
pub struct ConditionWait {
    /// Identifies the wait.
    pub condition_wait_id: WaitId,
    /// The name that the worker gave this wait, repeated on all its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_wait_occurrence_id: Option<String>,
    /// The name that the workflow code gives the condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_key: Option<String>,
    /// A hash of the predicate; replay compares it with the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition_definition_fingerprint: Option<String>,
    /// The command sequence of the call in the workflow code.
    pub sequence: CommandSeq,
    /// How long the wait lasts at most; absent means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The timer that limits the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<TimerId>,
    /// The signal after which the condition became true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_signal_id: Option<SignalId>,
    /// The name of that signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_name: Option<String>,
    /// The update after which the condition became true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_update_id: Option<UpdateId>,
    /// The parallel group of the call, if it has one.
    #[serde(flatten)]
    pub group: GroupKeys,
}
