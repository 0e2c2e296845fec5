//! Writes in the form that the writer thread needs: every JSON body is already text. Encoding happens on the caller's thread,
//! because there are many callers and one writer.

use std::sync::Arc;

use longhaul_engine::change::{Changes, RunChange, TaskStatus};
use longhaul_engine::conductor::execution::view::status_of;
use longhaul_engine::run::state::{Core, Status};
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use serde::Serialize;

use super::thin;
use super::visibility::index::{self, Entry};
use crate::{DocumentChange, Error, shape};

/// A request to the writer.
pub(super) enum Write {
    Commit(Box<Commit>),
    PruneSessions {
        namespace: Namespace,
        ended_before: Timestamp,
    },
    /// Changes nothing that is ever read: tests whether the disk accepts a write.
    Trial,
}

impl Write {
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Commit(commit) => commit.size,
            Self::PruneSessions { .. } | Self::Trial => 0,
        }
    }
}

/// The changes and their bodies, side by side.
pub(super) struct Commit {
    changes: Arc<Changes>,
    run: Option<Bodies>,
    created: Vec<Bodies>,
    sessions: Vec<String>,
    size: usize,
}

/// Bodies of one run's rows, in the order of the rows.
pub(super) struct Bodies {
    /// Only a new run writes its specification.
    pub(super) spec: Option<String>,
    pub(super) state: String,
    pub(super) parts: Vec<Part>,
    pub(super) tasks: Vec<String>,
    pub(super) commands: Vec<String>,
    /// `None` leaves the index as it is.
    pub(super) attributes: Option<Vec<Entry>>,
}

pub(super) struct Part {
    pub(super) key: String,
    /// `None` deletes the part.
    pub(super) body: Option<String>,
}

impl Commit {
    pub(super) fn encode(changes: Arc<Changes>) -> Result<Self, Error> {
        shape::check(&changes)?;
        let mut size = 0;
        let run = changes
            .run
            .as_ref()
            .map(|change| Bodies::encode(change, &mut size))
            .transpose()?;
        let created = changes
            .created
            .iter()
            .map(|change| Bodies::encode(change, &mut size))
            .collect::<Result<_, _>>()?;
        let sessions: Vec<String> = changes
            .sessions
            .iter()
            .map(json)
            .collect::<Result<_, _>>()?;
        size += sessions.iter().map(String::len).sum::<usize>();
        let documents = changes.documents.iter();
        let bodies = documents.filter_map(|change| change.body.as_ref());
        size += bodies.map(String::len).sum::<usize>();
        Ok(Self {
            changes,
            run,
            created,
            sessions,
            size,
        })
    }

    /// Returns the sessions it writes, each with its body.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (&Session, &str)> {
        let bodies = self.sessions.iter().map(String::as_str);
        self.changes.sessions.iter().zip(bodies)
    }

    /// Returns the documents it writes.
    pub(super) fn documents(&self) -> &[DocumentChange] {
        &self.changes.documents
    }

    /// Returns the runs it writes, each with its bodies.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&RunChange, &Bodies)> {
        let run = self.changes.run.as_deref().zip(self.run.as_ref());
        run.into_iter()
            .chain(self.changes.created.iter().zip(&self.created))
    }
}

impl Bodies {
    fn encode(change: &RunChange, size: &mut usize) -> Result<Self, Error> {
        // Destructured by name, so that a new kind of row cannot be forgotten here. The instance, the key, the deleted commands
        // and the logs are written from the change itself.
        let RunChange {
            spec,
            base_version,
            core,
            parts,
            events,
            tasks,
            commands,
            deleted_commands: _,
            instance: _,
            key_claim: _,
            sets_search_attributes,
            logs,
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
            attributes: sets_search_attributes.then(|| index::entries(&core.search_attributes)),
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

pub(super) fn json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::Corrupt(format!("a row cannot be written as JSON: {error}")))
}

/// Returns the status that lists filter by: one of five for a run of code, one of six for a definition run.
pub(super) fn list_status(core: &Core) -> &'static str {
    match core.execution {
        Some(_) => status_of(core).as_str(),
        None => code_status(core.status),
    }
}

/// Returns one of the five statuses of a run of code.
pub(super) fn code_status(status: Status) -> &'static str {
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
pub(super) fn task_status(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Scheduled => "scheduled",
        TaskStatus::Ready => "ready",
        TaskStatus::Leased => "leased",
        TaskStatus::Completed => "completed",
        TaskStatus::Failed => "failed",
        TaskStatus::Cancelled => "cancelled",
    }
}

/// Converts a count for SQLite. Versions, sequences and limits stay far below the bound in practice; a caller's "no limit" may not.
pub(super) fn signed(count: impl Into<u64>) -> i64 {
    i64::try_from(count.into()).unwrap_or(i64::MAX)
}
