//! Writes in the form that the writer thread needs: every JSON body is already text. Encoding happens on the caller's thread,
//! because there are many callers and one writer.

use std::sync::Arc;

use longhaul_engine::change::{Changes, RunChange};
use longhaul_engine::session::Session;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId};

use crate::encode::{Bodies, json};
use crate::{DocumentChange, Error, shape};

/// What a step of a purge counts for in a batch.
const PURGED_BYTES: usize = crate::PURGED_BYTES_MAX as usize;

/// A request to the writer.
pub(super) enum Write {
    Commit(Box<Commit>),
    PruneSessions {
        namespace: Namespace,
        ended_before: Timestamp,
    },
    RemoveRun {
        run_id: RunId,
        version: u64,
    },
    PurgeRemoved,
    /// Changes nothing that is ever read: tests whether the disk accepts a write.
    Trial,
}

impl Write {
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Commit(commit) => commit.size,
            // A step of a purge is as much work as a batch of its own.
            Self::PurgeRemoved => PURGED_BYTES,
            Self::PruneSessions { .. } | Self::RemoveRun { .. } | Self::Trial => 0,
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

impl Commit {
    pub(super) fn encode(changes: Arc<Changes>) -> Result<Self, Error> {
        shape::check(&changes)?;
        shape::refuse_caps(&changes)?;
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
