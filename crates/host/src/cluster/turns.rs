//! Jobs that one server does for all, each time another one if it comes first. A volatile document has the time of the next turn, and
//! where the job continues. A server that stops during its turn delays the job by one interval.

use std::borrow::Cow;

use longhaul_protocol::Timestamp;
use longhaul_store::{DocumentKey, DocumentKind, Error as StoreError, Record, document};
use serde::{Deserialize, Serialize};

use crate::Host;
use crate::error::Result;
use crate::sweeps::audit::AuditPlace;

/// The name of the audit of open runs.
const AUDIT: &str = "audit";

/// Whose turn the audit was, and when the next one is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TurnRow {
    job: String,
    server_id: String,
    next_at: Timestamp,
    place: AuditPlace,
}

impl Record for TurnRow {
    const KIND: DocumentKind = DocumentKind::Turn;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        ("".into(), self.job.as_str().into(), "".into())
    }
}

/// Why a turn was not taken.
enum Unchanged {
    NotYet,
    Failed(StoreError),
}

impl From<StoreError> for Unchanged {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn key() -> DocumentKey {
    document::key::<TurnRow>("", AUDIT, "")
}

impl Host {
    /// Takes the turn to audit runs, and returns where the audit continues. Returns `None` if a server had its turn less than the
    /// interval ago.
    pub(crate) async fn take_audit_turn(
        &self,
        interval_seconds: u64,
    ) -> Result<Option<AuditPlace>> {
        let now = self.now();
        let take = |turn: Option<TurnRow>| {
            if turn.as_ref().is_some_and(|turn| turn.next_at > now) {
                return Err(Unchanged::NotYet);
            }
            Ok(Some(TurnRow {
                job: AUDIT.to_owned(),
                server_id: self.server_id().to_owned(),
                next_at: now.plus_seconds(interval_seconds),
                place: turn.map(|turn| turn.place).unwrap_or_default(),
            }))
        };
        match self.inner.store.change_quietly(key(), now, take).await {
            Ok(turn) => Ok(turn.map(|turn| turn.place)),
            Err(Unchanged::NotYet) => Ok(None),
            Err(Unchanged::Failed(error)) => Err(error.into()),
        }
    }

    /// Records where the audit continues, unless another server has had a turn since.
    pub(crate) async fn end_audit_turn(&self, place: AuditPlace) -> Result<()> {
        let end = |turn: Option<TurnRow>| {
            let own = turn.filter(|turn| turn.server_id == self.server_id());
            let turn = own.ok_or(Unchanged::NotYet)?;
            Ok(Some(TurnRow {
                place: place.clone(),
                ..turn
            }))
        };
        match self
            .inner
            .store
            .change_quietly(key(), self.now(), end)
            .await
        {
            Ok(_) | Err(Unchanged::NotYet) => Ok(()),
            Err(Unchanged::Failed(error)) => Err(error.into()),
        }
    }
}
