//! Rows in the form that tables have: JSON bodies as text, and the words of statuses. Encoding happens on the caller's thread, because
//! there are many callers and few writers.

use longhaul_engine::change::{RunChange, TaskStatus};
use longhaul_engine::conductor::execution::view::status_of;
use longhaul_engine::run::state::{Core, Status};
use longhaul_engine::visibility::{Kind, Term, indexed};
use longhaul_protocol::history::Event;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Error, thin};

/// Bodies of one run's rows, in the order of the rows.
pub(crate) struct Bodies {
    /// Only a new run writes its specification.
    pub(crate) spec: Option<String>,
    pub(crate) state: String,
    pub(crate) parts: Vec<Part>,
    pub(crate) tasks: Vec<String>,
    pub(crate) commands: Vec<String>,
    /// The index rows of its search attributes; `None` leaves the index as it is.
    pub(crate) attributes: Option<Vec<Entry>>,
}

pub(crate) struct Part {
    pub(crate) key: String,
    /// `None` deletes the part.
    pub(crate) body: Option<String>,
}

/// The columns of an event.
pub(crate) struct EventColumns<'a> {
    pub(crate) sequence: i64,
    pub(crate) id: &'a str,
    pub(crate) event_type: &'a str,
    pub(crate) recorded_at: i64,
    pub(crate) workflow_task_id: Option<&'a str>,
    pub(crate) workflow_command_id: Option<&'a str>,
    pub(crate) principal: Option<&'a str>,
    pub(crate) payload: &'a str,
}

impl<'a> EventColumns<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        Self {
            sequence: signed(event.sequence),
            id: event.id.as_str(),
            event_type: event.event_type,
            recorded_at: event.recorded_at.as_micros(),
            workflow_task_id: event.workflow_task_id.as_ref().map(|id| id.as_str()),
            workflow_command_id: event.workflow_command_id.as_ref().map(|id| id.as_str()),
            principal: event.principal.as_deref(),
            payload: &event.payload,
        }
    }
}

/// One index row of a search attribute.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) term: Term,
}

/// Returns the index rows of a run's attributes.
pub(crate) fn entries(attributes: &Map<String, Value>) -> Vec<Entry> {
    attributes
        .iter()
        .flat_map(|(name, value)| {
            indexed(value).into_iter().map(|(kind, term)| Entry {
                name: name.clone(),
                kind,
                term,
            })
        })
        .collect()
}

impl Bodies {
    /// Encodes the rows, and adds their bytes to `size`.
    pub(crate) fn encode(change: &RunChange, size: &mut usize) -> Result<Self, Error> {
        // Destructured by name, so that a new kind of row cannot be forgotten here. The instance, the key, the deleted tasks
        // and commands, and the logs are written from the change itself.
        let RunChange {
            spec,
            base_version,
            core,
            parts,
            events,
            tasks,
            deleted_tasks: _,
            commands,
            deleted_commands: _,
            instance: _,
            key_claim: _,
            sets_search_attributes,
            logs,
            // Kept in documents of their own.
            outputs: _,
        } = change;
        let bodies = Self {
            spec: base_version.is_none().then(|| json(&**spec)).transpose()?,
            state: json(core)?,
            parts: parts
                .iter()
                .map(|(key, part)| {
                    Ok(Part {
                        key: key.to_string(),
                        body: part.as_ref().map(thin::encode).transpose()?,
                    })
                })
                .collect::<Result<_, Error>>()?,
            tasks: tasks.iter().map(json).collect::<Result<_, _>>()?,
            commands: commands
                .iter()
                .map(thin::encode_command)
                .collect::<Result<_, _>>()?,
            attributes: sets_search_attributes.then(|| entries(&core.search_attributes)),
        };
        let parts = bodies.parts.iter().filter_map(|part| part.body.as_ref());
        let texts = bodies
            .spec
            .iter()
            .chain([&bodies.state])
            .chain(parts)
            .chain(&bodies.tasks)
            .chain(&bodies.commands);
        *size += texts.map(String::len).sum::<usize>();
        *size += events
            .iter()
            .map(|event| event.payload.len())
            .sum::<usize>();
        let lines = logs.iter().filter_map(|(_, line)| line.as_ref());
        *size += lines.map(|line| line.text.len()).sum::<usize>();
        Ok(bodies)
    }
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::Corrupt(format!("a row cannot be written as JSON: {error}")))
}

/// Returns the status that lists filter by: one of five for a run of code, one of six for a definition run.
pub(crate) fn list_status(core: &Core) -> &'static str {
    match core.execution {
        Some(_) => status_of(core).as_str(),
        None => code_status(core.status),
    }
}

/// Returns one of the five statuses of a run of code.
pub(crate) fn code_status(status: Status) -> &'static str {
    match status {
        Status::Pending | Status::Running | Status::Waiting => "running",
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "cancelled",
        Status::Terminated => "terminated",
    }
}

/// Returns the stored status. Unlike the names on the wire, these distinguish a task that is ready later from one that is ready
/// now.
pub(crate) fn task_status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Scheduled => "scheduled",
        TaskStatus::Ready => "ready",
        TaskStatus::Leased => "leased",
        TaskStatus::Completed => "completed",
        TaskStatus::Failed => "failed",
        TaskStatus::Cancelled => "cancelled",
    }
}

/// Converts a count for SQL. Versions, sequences and limits stay far below the bound in practice; a caller's "no limit" may not.
pub(crate) fn signed(count: impl Into<u64>) -> i64 {
    i64::try_from(count.into()).unwrap_or(i64::MAX)
}

/// Returns when the run closed.
pub(crate) fn closed_at(change: &RunChange) -> Option<i64> {
    let closed = change.core.closed.as_ref();
    closed.map(|closed| closed.at.as_micros())
}

/// Returns the correlation id of a definition run.
pub(crate) fn correlation_id(change: &RunChange) -> Option<&str> {
    change.core.execution.as_ref()?.correlation_id.as_deref()
}

/// Returns the run that started this definition run.
pub(crate) fn parent_id(change: &RunChange) -> Option<&str> {
    change.core.execution.as_ref()?;
    let parent = change.spec.parent.as_deref()?;
    Some(parent.workflow_id.as_str())
}
