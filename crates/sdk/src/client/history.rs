//! Events of a run (control-plane.md §11.1), read or followed.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Error, WorkflowHandle, breathe};
use crate::transport::Plane;

/// The most events that fit a page.
const PAGE_SIZE_MAX: &str = "1000";

/// One fact about a run. Facts are numbered from 1 without gaps and never change.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct HistoryEvent {
    /// Its number.
    pub sequence: u64,
    /// Its id.
    pub id: String,
    /// What happened, such as `ActivityCompleted`.
    pub event_type: String,
    /// When.
    pub timestamp: Timestamp,
    /// Who caused it, if somebody outside did.
    pub principal: Option<Value>,
    /// The particulars.
    #[serde(default)]
    pub payload: Map<String, Value>,
}

impl HistoryEvent {
    /// Whether the run is over with it.
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
#[must_use = "a history is not read until it is asked for"]
pub struct History {
    handle: WorkflowHandle,
    after: u64,
}

#[derive(Deserialize)]
struct Answer {
    events: Vec<HistoryEvent>,
    next_page_token: Option<String>,
}

impl History {
    pub(super) fn new(handle: WorkflowHandle) -> Self {
        Self { handle, after: 0 }
    }

    /// Leaves out the events up to this number.
    pub fn after(mut self, sequence: u64) -> Self {
        self.after = sequence;
        self
    }

    /// The events there are now, oldest first.
    pub fn events(self) -> impl Stream<Item = Result<HistoryEvent, Error>> + Send {
        self.pages(false)
    }

    /// The events there are and those to come, until the run is over.
    pub fn follow(self) -> impl Stream<Item = Result<HistoryEvent, Error>> + Send {
        self.pages(true)
    }

    /// The events there are now, in one list.
    ///
    /// # Errors
    /// There is no such workflow or run.
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
            let Answer {
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

    /// Waits for the end of the run, but not for ever, and on some servers for the next event only. Whether there is something new.
    pub(super) async fn wait_for_close(&self, after: u64) -> Result<bool, Error> {
        let answer = fetch(&self.handle, after, Wait::ForClose).await?;
        Ok(!answer.events.is_empty())
    }
}

/// What the server may hold the answer for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    No,
    ForEvent,
    ForClose,
}

async fn fetch(handle: &WorkflowHandle, after: u64, wait: Wait) -> Result<Answer, Error> {
    let asked_at = Instant::now();
    let run_id = handle.known_run_id().await?;
    let segments = ["workflows", handle.id(), "runs", &run_id, "history"];
    let page_size = if wait == Wait::ForClose {
        "1"
    } else {
        PAGE_SIZE_MAX
    };
    // A page token is the last number seen; callers may write their own.
    let token = (after > 0).then(|| STANDARD.encode(after.to_string()));
    let answer = handle
        .client()
        .connection()
        .get(Plane::Control, &segments)
        .query("page_size", Some(page_size))
        .query("next_page_token", token.as_deref())
        .query("wait_new_event", (wait != Wait::No).then_some("1"))
        .query("wait_for_close", (wait == Wait::ForClose).then_some("1"))
        .send::<Answer>()
        .await?;
    if wait != Wait::No && answer.events.is_empty() {
        breathe(asked_at).await;
    }
    Ok(answer)
}
