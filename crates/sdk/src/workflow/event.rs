//! The history of a run as a worker reads it. Payloads of events are parsed when they are needed.

use longhaul_protocol::payload::CODEC;
use longhaul_protocol::{Payload, Timestamp};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::replay_error::ReplayError;

/// One event of a history.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct HistoryEvent {
    /// The id, unique on the server. Empty in hand-written histories.
    #[serde(default)]
    pub id: String,
    /// The position in the history, from 1.
    pub sequence: u64,
    /// The type of the event, such as `ActivityCompleted`.
    pub event_type: String,
    /// The payload, as JSON.
    pub payload: Box<RawValue>,
    /// The time when it was recorded.
    pub recorded_at: Timestamp,
}

impl HistoryEvent {
    /// Returns the number of the call that it opens, if it opens one.
    pub(crate) fn opens_call(&self) -> Result<Option<u64>, ReplayError> {
        Ok(super::call::CallKind::opened_by(self)?.map(|(_, facts)| facts.sequence))
    }

    /// Parses the payload into a type with the fields that the caller needs.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ReplayError> {
        serde_json::from_str(self.payload.get()).map_err(|error| ReplayError::Damaged {
            position: self.sequence,
            event_type: self.event_type.clone(),
            problem: error.to_string(),
        })
    }
}

/// The fields of events that open or resolve a call. Each event has some of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallFacts {
    pub(super) sequence: u64,
    pub(super) activity_type: Option<String>,
    pub(super) activity_execution_id: Option<String>,
    pub(super) execution_mode: Option<String>,
    pub(super) timer_kind: Option<String>,
    pub(super) child_workflow_type: Option<String>,
    pub(super) child_workflow_instance_id: Option<String>,
    pub(super) child_workflow_run_id: Option<String>,
    pub(super) condition_key: Option<String>,
    pub(super) change_id: Option<String>,
    pub(super) version: Option<i32>,
    #[serde(deserialize_with = "either_form")]
    pub(super) result: Option<Payload>,
    #[serde(deserialize_with = "either_form")]
    pub(super) output: Option<Payload>,
    pub(super) payload_codec: Option<String>,
    pub(super) activity: Option<SnapshotFacts>,
    pub(super) failure_category: Option<String>,
    pub(super) exception_type: Option<String>,
    pub(super) exception_class: Option<String>,
    pub(super) message: Option<String>,
    pub(super) code: Option<serde_json::Value>,
    pub(super) non_retryable: Option<bool>,
    pub(super) timeout_kind: Option<String>,
    pub(super) attempt_number: Option<u64>,
    pub(super) workflow_command_id: Option<String>,
    pub(super) closed_reason: Option<String>,
    pub(super) exception: Option<ExceptionFacts>,
}

/// The recorded options of an activity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotFacts {
    pub(super) retry_policy: Option<serde_json::Value>,
}

/// Reads a payload that is an envelope, or the bare text of its blob.
pub(crate) fn either_form<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Payload>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Blob(String),
        Envelope { codec: String, blob: String },
    }
    let (codec, blob) = match Option::<Form>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Form::Blob(blob)) => (CODEC.to_owned(), blob),
        Some(Form::Envelope { codec, blob }) => (codec, blob),
    };
    if codec != CODEC {
        return Err(D::Error::custom(format!(
            "payloads have the codec `{codec}`; this worker reads `{CODEC}`"
        )));
    }
    Payload::from_blob(&blob)
        .map(Some)
        .map_err(D::Error::custom)
}

/// The stable part of a recorded exception.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExceptionFacts {
    pub(super) details: Option<serde_json::Value>,
}

impl CallFacts {
    /// Returns the value attached to a failure: an envelope, or the bare text of its blob.
    pub(super) fn details(&self) -> Option<Payload> {
        match self.exception.as_ref()?.details.as_ref()? {
            serde_json::Value::String(blob) => Payload::from_blob(blob).ok(),
            other => serde_json::from_value(other.clone()).ok(),
        }
    }
}

/// `SignalReceived`.
#[derive(Debug, Deserialize)]
pub(super) struct SignalFacts {
    pub(super) signal_name: String,
    #[serde(default, deserialize_with = "either_form")]
    pub(super) arguments: Option<Payload>,
}

/// `UpdateAccepted` and `UpdateApplied`.
#[derive(Debug, Deserialize)]
pub(super) struct UpdateFacts {
    pub(super) update_id: String,
    pub(super) update_name: String,
    #[serde(default, deserialize_with = "either_form")]
    pub(super) arguments: Option<Payload>,
}

/// `UpdateCompleted`; only the id is used.
#[derive(Debug, Deserialize)]
pub(super) struct UpdateIdentity {
    pub(super) update_id: String,
}

/// `CooperativeCancellationRequested`.
#[derive(Debug, Deserialize)]
pub(super) struct CancellationFacts {
    pub(super) reason: Option<String>,
}
