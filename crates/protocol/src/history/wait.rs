//! Timers, signals and conditions: what a workflow waits for (engine.md §5.4 to §5.6).

use serde::Serialize;

use super::GroupKeys;
use crate::id::{CommandId, RunId, SignalId, TimerId, UpdateId, WaitId, WorkflowId};
use crate::payload::Payload;
use crate::time::Timestamp;

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
