//! The history of a run.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Error, WorkflowHandle, pause_if_not_held};
use crate::transport::Plane;

/// The largest page.
const PAGE_SIZE_MAX: &str = "1000";

/// One event of a run. Events are numbered from 1 without gaps, and never change.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct HistoryEvent {
    /// The number of the event.
    pub sequence: u64,
    /// The id of the event.
    pub id: String,
    /// The type of the event, such as `ActivityCompleted`.
    pub event_type: String,
    /// The time of the event.
    pub timestamp: Timestamp,
    /// The caller that caused the event, if there is one.
    pub principal: Option<Value>,
    /// The fields of the event.
    #[serde(default)]
    pub payload: Map<String, Value>,
}

impl HistoryEvent {
    /// Returns whether the event closes the run.
    #[must_use]
    pub fn closes_run(&self) -> bool {
        matches!(
            self.event_type.as_str(),
            "WorkflowCompleted"
                | "WorkflowFailed"
                | "WorkflowCancelled"
                | "WorkflowTerminated"
                | "WorkflowTimedOut"
                | "WorkflowContinuedAsNew"
        )
    }
}

/// The events of one run.
#[derive(Clone, Debug)]
#[must_use = "a history is not fetched until it is read"]
pub struct History {
    handle: WorkflowHandle,
    after: u64,
}

#[derive(Deserialize)]
struct Reply {
    events: Vec<HistoryEvent>,
    next_page_token: Option<String>,
}

impl History {
    pub(super) fn new(handle: WorkflowHandle) -> Self {
        Self { handle, after: 0 }
    }

    /// Skips the events up to this number.
    pub fn after(mut self, sequence: u64) -> Self {
        self.after = sequence;
        self
    }

    /// Returns the current events, oldest first.
    pub fn events(self) -> impl Stream<Item = Result<HistoryEvent, Error>> + Send {
        self.pages(false)
    }

    /// Returns the current events, then new ones as they are recorded, until the run closes.
    pub fn follow(self) -> impl Stream<Item = Result<HistoryEvent, Error>> + Send {
        self.pages(true)
    }

    /// Returns the current events in one list.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow or run does not exist, or if the server cannot be reached.
    pub async fn all(self) -> Result<Vec<HistoryEvent>, Error> {
        self.events().try_collect().await
    }

    fn pages(self, follow: bool) -> impl Stream<Item = Result<HistoryEvent, Error>> + Send {
        let begin = Some((self.handle, self.after));
        stream::try_unfold(begin, move |state| async move {
            let Some((handle, after)) = state else {
                return Ok::<_, Error>(None);
            };
            let run_id = handle.known_run_id().await?;
            let handle = handle.of_run(run_id);
            let Reply {
                events,
                next_page_token,
            } = fetch(
                &handle,
                after,
                if follow { Wait::ForEvent } else { Wait::No },
            )
            .await?;
            let is_closed = events.last().is_some_and(HistoryEvent::closes_run);
            let goes_on = if follow {
                !is_closed
            } else {
                next_page_token.is_some() && !events.is_empty()
            };
            let last = events.last().map_or(after, |event| event.sequence);
            let rest = goes_on.then_some((handle, last));
            Ok(Some((stream::iter(events).map(Ok), rest)))
        })
        .try_flatten()
    }

    /// Waits until the run closes, at most as long as the server holds the request. Some servers only wait for the next event.
    /// Returns whether there are new events.
    pub(super) async fn wait_for_close(&self, after: u64) -> Result<bool, Error> {
        let reply = fetch(&self.handle, after, Wait::ForClose).await?;
        Ok(!reply.events.is_empty())
    }
}

/// What the server waits for before it responds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    No,
    ForEvent,
    ForClose,
}

async fn fetch(handle: &WorkflowHandle, after: u64, wait: Wait) -> Result<Reply, Error> {
    let asked_at = Instant::now();
    let run_id = handle.known_run_id().await?;
    let segments = ["workflows", handle.id(), "runs", &run_id, "history"];
    let page_size = if wait == Wait::ForClose {
        "1"
    } else {
        PAGE_SIZE_MAX
    };
    // A page token is the last event number; clients may create their own.
    let token = (after > 0).then(|| STANDARD.encode(after.to_string()));
    let reply = handle
        .client()
        .connection()
        .get(Plane::Control, &segments)
        .query("page_size", Some(page_size))
        .query("next_page_token", token.as_deref())
        .query("wait_new_event", (wait != Wait::No).then_some("1"))
        .query("wait_for_close", (wait == Wait::ForClose).then_some("1"))
        .send::<Reply>()
        .await?;
    if wait != Wait::No && reply.events.is_empty() {
        pause_if_not_held(asked_at).await;
    }
    Ok(reply)
}
