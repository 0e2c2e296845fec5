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
        Ok(crate::workflow::call::CallKind::opened_by(self)?.map(|(_, facts)| facts.sequence))
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
    pub(crate) sequence: u64,
    pub(crate) activity_type: Option<String>,
    pub(crate) activity_execution_id: Option<String>,
    pub(crate) execution_mode: Option<String>,
    pub(crate) timer_kind: Option<String>,
    pub(crate) child_workflow_type: Option<String>,
    pub(crate) child_workflow_instance_id: Option<String>,
    pub(crate) child_workflow_run_id: Option<String>,
    pub(crate) condition_key: Option<String>,
    pub(crate) change_id: Option<String>,
    pub(crate) version: Option<i32>,
    #[serde(deserialize_with = "either_form")]
    pub(crate) result: Option<Payload>,
    #[serde(deserialize_with = "either_form")]
    pub(crate) output: Option<Payload>,
    pub(crate) payload_codec: Option<String>,
    pub(crate) activity: Option<SnapshotFacts>,
    pub(crate) failure_category: Option<String>,
    pub(crate) exception_type: Option<String>,
    pub(crate) exception_class: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) code: Option<serde_json::Value>,
    pub(crate) non_retryable: Option<bool>,
    pub(crate) timeout_kind: Option<String>,
    pub(crate) attempt_number: Option<u64>,
    pub(crate) workflow_command_id: Option<String>,
    pub(crate) closed_reason: Option<String>,
    pub(crate) exception: Option<ExceptionFacts>,
}

/// The recorded options of an activity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotFacts {
    pub(crate) retry_policy: Option<serde_json::Value>,
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
    pub(crate) details: Option<serde_json::Value>,
}

impl CallFacts {
    /// Returns the value attached to a failure: an envelope, or the bare text of its blob.
    pub(crate) fn details(&self) -> Option<Payload> {
        match self.exception.as_ref()?.details.as_ref()? {
            serde_json::Value::String(blob) => Payload::from_blob(blob).ok(),
            other => serde_json::from_value(other.clone()).ok(),
        }
    }
}

/// `SignalReceived`.
#[derive(Debug, Deserialize)]
pub(crate) struct SignalFacts {
    pub(crate) signal_name: String,
    #[serde(default, deserialize_with = "either_form")]
    pub(crate) arguments: Option<Payload>,
}

/// `UpdateAccepted` and `UpdateApplied`.
#[derive(Debug, Deserialize)]
pub(crate) struct UpdateFacts {
    pub(crate) update_id: String,
    pub(crate) update_name: String,
    #[serde(default, deserialize_with = "either_form")]
    pub(crate) arguments: Option<Payload>,
}

/// `UpdateCompleted`; only the id is used.
#[derive(Debug, Deserialize)]
pub(crate) struct UpdateIdentity {
    pub(crate) update_id: String,
}

/// `CooperativeCancellationRequested`.
#[derive(Debug, Deserialize)]
pub(crate) struct CancellationFacts {
    pub(crate) reason: Option<String>,
}
