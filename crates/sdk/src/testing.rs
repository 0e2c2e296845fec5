//! Replays recorded histories against the current code.
//!
//! Before you deploy new code, export the histories of open runs with
//! [`WorkflowHandle::export`](crate::WorkflowHandle::export) (or `GET /api/workflows/{id}/runs/{run}/history/export`) and replay
//! them with a [`Replayer`]. It finds code that would make another call than the recorded one.
//!
//! To run workflows in a test, with a server in the same process and a clock that jumps over every wait, use
//! `longhaul_embedded::testing`.

use std::collections::HashMap;
use std::fmt;

use longhaul_protocol::{Payload, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::definition::{Workflow, WorkflowDefinition};
use crate::error::Ending;
use crate::workflow::{Execution, HistoryEvent, ReplayError, RunInfo};

/// Replays histories against workflow code.
#[derive(Clone, Debug, Default)]
pub struct Replayer {
    workflows: HashMap<String, WorkflowDefinition>,
}

/// The result of a successful replay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The workflow type.
    pub workflow_type: String,
    /// The workflow id, if the history has it.
    pub workflow_id: String,
    /// The number of replayed events.
    pub events: u64,
    /// The state of the run at the end of its history, such as `completed` or `open`.
    pub ending: String,
}

/// Why a replay failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFailure {
    /// The text is not a history.
    #[error("the text is not a history: {0}")]
    Unreadable(String),
    /// The replayer has no workflow of this type.
    #[error("the replayer has no workflow `{0}`; add it with `.workflow::<..>()`")]
    UnknownWorkflow(String),
    /// The code does not match the history.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The code makes the recorded calls, but ends in another way.
    #[error("the history ends with {history}, but the code {code}")]
    OtherEnd {
        /// The end in the history.
        history: String,
        /// The end of the code.
        code: String,
    },
}

impl Replayer {
    /// Creates a replayer without workflows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function with `#[workflow]`.
    #[must_use]
    pub fn workflow<W: Workflow>(self) -> Self {
        self.workflow_definition(W::definition())
    }

    /// Adds a workflow definition.
    #[must_use]
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.workflows
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Replays one history: an export, or an object with `workflow` and `history`.
    ///
    /// # Errors
    /// [`ReplayFailure::Unreadable`] if the text is not a history, [`ReplayFailure::UnknownWorkflow`] if the replayer does not have
    /// the workflow, and [`ReplayFailure::Replay`] or [`ReplayFailure::OtherEnd`] if the code does not match the history.
    pub fn replay(&self, history: &str) -> Result<Replayed, ReplayFailure> {
        let recorded = Recorded::read(history)?;
        let Some(definition) = self.workflows.get(&recorded.info.workflow_type) else {
            return Err(ReplayFailure::UnknownWorkflow(recorded.info.workflow_type));
        };
        let mut execution = Execution::new(definition, recorded.info.clone(), recorded.arguments);
        execution.apply(&recorded.events)?;
        let ending = compare_end(&execution, &recorded.events)?;
        Ok(Replayed {
            workflow_type: recorded.info.workflow_type,
            workflow_id: recorded.info.workflow_id,
            events: execution.applied(),
            ending,
        })
    }
}

/// Checks the structure of a history without code: events are numbered without gaps, calls are numbered in order, and there is at
/// most one end. Returns the number of events.
///
/// # Errors
/// [`ReplayFailure::Unreadable`] if the text is not a history, and [`ReplayFailure::Replay`] if its structure is wrong.
pub fn check_soundness(history: &str) -> Result<u64, ReplayFailure> {
    let recorded = Recorded::read(history)?;
    let damaged = |event: &HistoryEvent, problem: String| {
        ReplayFailure::Replay(ReplayError::Damaged {
            position: event.sequence,
            event_type: event.event_type.clone(),
            problem,
        })
    };
    let mut newest_call = 0;
    let mut ended = false;
    for (index, event) in recorded.events.iter().enumerate() {
        if event.sequence != index as u64 + 1 {
            return Err(damaged(event, format!("it is at position {}", index + 1)));
        }
        if let Some(sequence) = event.opens_call()? {
            if sequence <= newest_call {
                let problem = format!("it opens call {sequence} after call {newest_call}");
                return Err(damaged(event, problem));
            }
            newest_call = sequence;
        }
        if is_end(&event.event_type) {
            if ended {
                return Err(damaged(event, "the run had already ended".to_owned()));
            }
            ended = true;
        }
    }
    Ok(recorded.events.len() as u64)
}

fn is_end(event_type: &str) -> bool {
    matches!(
        event_type,
        "WorkflowCompleted"
            | "WorkflowFailed"
            | "WorkflowContinuedAsNew"
            | "WorkflowCancelled"
            | "WorkflowTerminated"
            | "WorkflowTimedOut"
    )
}

/// Compares the recorded end of a run with the end of the code. Returns a name for it.
fn compare_end(execution: &Execution, events: &[HistoryEvent]) -> Result<String, ReplayFailure> {
    let other = |history: &str, code: String| {
        Err(ReplayFailure::OtherEnd {
            history: history.to_owned(),
            code,
        })
    };
    let code = match execution.outcome() {
        None => "is still waiting".to_owned(),
        Some(Ok(result)) => format!("returns {}", AsJson(result)),
        Some(Err(error)) => match &error.0 {
            Ending::Failed { failure, .. } => format!("fails: {failure}"),
            Ending::Cancelled => "ends as cancelled".to_owned(),
            Ending::ContinueAsNew(_) => "continues as new".to_owned(),
        },
    };
    let end = events.iter().find(|event| is_end(&event.event_type));
    let Some(end) = end else {
        return Ok(if execution.outcome().is_some() {
            code
        } else {
            "open".to_owned()
        });
    };
    match (end.event_type.as_str(), execution.outcome()) {
        ("WorkflowCompleted", Some(Ok(result))) => {
            let recorded: Completed = end.read()?;
            let recorded = recorded.output.unwrap_or_else(Payload::null);
            if recorded.decode().ok() != result.decode().ok() {
                return other(&format!("the result {}", AsJson(&recorded)), code);
            }
            Ok("completed".to_owned())
        }
        ("WorkflowFailed", Some(Err(error))) if error.failure().is_some() => {
            Ok("failed".to_owned())
        }
        // The server fails a run that exceeds a limit, independently of its code.
        ("WorkflowFailed", _) if end.payload.get().contains("structural_limit") => {
            Ok("failed".to_owned())
        }
        ("WorkflowContinuedAsNew", Some(Err(error)))
            if matches!(error.0, Ending::ContinueAsNew(_)) =>
        {
            Ok("continued as new".to_owned())
        }
        ("WorkflowCancelled", _) => Ok("cancelled".to_owned()),
        ("WorkflowTerminated", _) => Ok("terminated".to_owned()),
        ("WorkflowTimedOut", _) => Ok("timed out".to_owned()),
        (recorded, _) => other(recorded, code),
    }
}

#[derive(Deserialize)]
struct Completed {
    #[serde(default, deserialize_with = "crate::workflow::either_form")]
    output: Option<Payload>,
}

/// Formats a payload as JSON.
struct AsJson<'a>(&'a Payload);

impl fmt::Display for AsJson<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.display() {
            Ok(json) => write!(out, "{json}"),
            Err(error) => write!(out, "an unreadable value ({error})"),
        }
    }
}

/// A history with the identity and the arguments of its run.
struct Recorded {
    info: RunInfo,
    arguments: Payload,
    events: Vec<HistoryEvent>,
}

/// An export bundle, or an object with `workflow` and `history`.
#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    workflow: Value,
    #[serde(default)]
    payloads: Value,
    history_events: Option<Vec<RawEvent>>,
    history: Option<Vec<RawEvent>>,
}

/// An event whose fields may be missing, as in hand-written histories.
#[derive(Deserialize)]
struct RawEvent {
    id: Option<String>,
    sequence: Option<u64>,
    event_type: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    payload: Box<RawValue>,
    recorded_at: Option<Timestamp>,
}

impl Recorded {
    fn read(text: &str) -> Result<Self, ReplayFailure> {
        let unreadable = |problem: String| ReplayFailure::Unreadable(problem);
        let bundle: Bundle =
            serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
        let raw = bundle.history_events.or(bundle.history).ok_or_else(|| {
            unreadable("it has neither `history_events` nor `history`".to_owned())
        })?;
        let mut events = Vec::with_capacity(raw.len());
        for (index, event) in raw.into_iter().enumerate() {
            let position = index as u64 + 1;
            events.push(HistoryEvent {
                id: event.id.unwrap_or_default(),
                sequence: event.sequence.unwrap_or(position),
                event_type: event
                    .event_type
                    .or(event.kind)
                    .ok_or_else(|| unreadable(format!("event {position} has no type")))?,
                payload: event.payload,
                recorded_at: event.recorded_at.unwrap_or_default(),
            });
        }
        let text = |keys: &[&str]| -> String {
            let found = keys.iter().find_map(|key| bundle.workflow[*key].as_str());
            found.unwrap_or_default().to_owned()
        };
        let info = RunInfo {
            workflow_type: text(&["workflow_type", "type"]),
            workflow_id: text(&["instance_id", "workflow_id"]),
            run_id: text(&["run_id"]),
            task_queue: text(&["queue", "task_queue"]),
            namespace: text(&["namespace"]),
        };
        if info.workflow_type.is_empty() {
            return Err(unreadable(
                "it does not contain its workflow type".to_owned(),
            ));
        }
        Ok(Self {
            arguments: arguments(&bundle.workflow, &bundle.payloads).map_err(unreadable)?,
            info,
            events,
        })
    }
}

/// Returns the arguments of the run: a blob in an export, plain JSON or a blob in the other form.
fn arguments(workflow: &Value, payloads: &Value) -> Result<Payload, String> {
    let blob = payloads["arguments"]["data"].as_str();
    if let Some(blob) = blob.or_else(|| workflow["input"].as_str()) {
        return Payload::from_blob(blob).map_err(|error| error.to_string());
    }
    match &workflow["input"] {
        Value::Null => Ok(Payload::empty_list()),
        input if input["blob"].is_string() => {
            Payload::from_blob(input["blob"].as_str().unwrap_or_default())
                .map_err(|error| error.to_string())
        }
        input => {
            let value = longhaul_protocol::payload::from_json(&input.to_string())
                .map_err(|error| error.to_string())?;
            Payload::encode(&value).map_err(|error| error.to_string())
        }
    }
}
