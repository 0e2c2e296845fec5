//! Records of what the actions of event handlers did. A record exists if and only if its action is done for that message.

use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_engine::change::{DocumentChange, DocumentKey};
use longhaul_engine::conductor::event::EventMessage;
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{
    EventActionType, EventExecution, EventExecutionStatus, EventHandler, Object,
};
use longhaul_protocol::id::Namespace;
use longhaul_store::{Error as StoreError, EventExecutionRow, document};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::views::Events;

/// Records of a namespace that are kept. Older ones are removed from time to time.
const KEPT_MAX: usize = 2000;

/// A record that is younger is kept even above that number: its message may be delivered again after a crash.
const KEPT_SECONDS_MIN: u64 = 600;

/// Above this number the oldest records are removed, however young they are.
const KEPT_AT_ALL_MAX: usize = 20_000;

/// Records that this server writes between two removals of old ones. A removal reads all records of the namespace.
const WRITES_PER_REMOVAL: u64 = 500;

/// The largest payload and output of a record, in bytes of JSON. A larger one is left out, so that records stay small.
const SHOWN_BYTES_MAX: usize = 4096;

/// Records of a page.
const PAGE_MAX: usize = 100;

/// One action of a handler on one message.
pub(crate) struct Attempt {
    namespace: Namespace,
    handler: String,
    event: String,
    message_id: String,
    index: usize,
    action: Option<EventActionType>,
    payload: Option<Object>,
}

/// What became of an action.
pub(crate) struct Done {
    pub(super) status: EventExecutionStatus,
    pub(super) output: Object,
}

impl Done {
    pub(super) fn failed(error: &str) -> Self {
        Self {
            status: EventExecutionStatus::Failed,
            output: super::members(json!({"error": error})),
        }
    }

    pub(super) fn completed(output: Value) -> Self {
        Self {
            status: EventExecutionStatus::Completed,
            output: super::members(output),
        }
    }
}

impl Attempt {
    pub(super) fn new(
        namespace: &Namespace,
        handler: &EventHandler,
        message: &EventMessage,
        index: usize,
    ) -> Self {
        let payload = message.payload.as_object();
        Self {
            namespace: namespace.clone(),
            handler: handler.name.clone(),
            event: message.event.clone(),
            message_id: message.message_id.clone(),
            index,
            action: handler.actions.get(index).and_then(|action| action.action),
            payload: payload.and_then(|payload| shown(payload.clone())),
        }
    }

    fn id(&self) -> String {
        format!("{}_{}", self.message_id, self.index)
    }

    fn key(&self) -> DocumentKey {
        document::key::<EventExecutionRow>(self.namespace.as_str(), &self.handler, &self.id())
    }

    /// Returns the change that writes the record. It fails if there is one.
    pub(super) fn record(&self, done: Done, now: Timestamp) -> Result<DocumentChange> {
        let row = EventExecutionRow {
            namespace: self.namespace.clone(),
            execution: EventExecution {
                id: self.id(),
                message_id: self.message_id.clone(),
                name: self.handler.clone(),
                event: self.event.clone(),
                created: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
                status: done.status,
                action: self.action,
                output: shown(done.output).unwrap_or_default(),
                payload: self.payload.clone(),
            },
        };
        let body = serde_json::to_string(&row).map_err(|_| Error::Internal)?;
        Ok(DocumentChange::create(document::key_of(&row), body, now).quietly())
    }
}

/// Returns an object if it is small enough for a record.
fn shown(object: Object) -> Option<Object> {
    let bytes = Value::Object(object.clone()).to_string().len();
    (bytes <= SHOWN_BYTES_MAX).then_some(object)
}

/// A page of records, newest first.
#[derive(Clone, Debug)]
pub struct RecordPage {
    pub start: usize,
    pub size: usize,
}

impl RecordPage {
    pub fn new(start: usize, size: Option<usize>) -> Self {
        Self {
            start,
            size: size.unwrap_or(PAGE_MAX).min(PAGE_MAX),
        }
    }
}

/// A handler with the number of messages of which records are kept.
#[derive(Clone, Debug)]
pub struct HandlerStats {
    pub name: String,
    pub event: String,
    pub is_active: bool,
    pub actions: usize,
    pub messages: usize,
}

impl Events<'_> {
    pub(super) async fn is_done(self, attempt: &Attempt) -> Result<bool> {
        let stored = self.host.inner.store.document(&attempt.key()).await?;
        Ok(stored.is_some())
    }

    /// Writes the record of an action that was not committed with its record.
    pub(super) async fn record(self, attempt: &Attempt, done: Done) -> Result<()> {
        let change = attempt.record(done, self.host.now())?;
        let changes = longhaul_engine::Changes::of_documents(vec![change]);
        match self.host.inner.store.commit(changes.into()).await {
            // Another delivery of the same message came first.
            Ok(()) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
        self.count_record(attempt);
        Ok(())
    }

    /// Counts a record that was written, and removes old ones from time to time.
    pub(super) fn count_record(self, attempt: &Attempt) {
        static WRITTEN: AtomicU64 = AtomicU64::new(1);
        let written = WRITTEN.fetch_add(1, Ordering::Relaxed);
        if written.is_multiple_of(WRITES_PER_REMOVAL) {
            let (host, namespace) = (self.host.clone(), attempt.namespace.clone());
            self.host.inner.tasks.spawn(async move {
                if let Err(error) = host.events().remove_old_records(&namespace).await {
                    tracing::warn!(%namespace, %error, "old records of event handlers could not be removed");
                }
            });
        }
    }

    /// Removes the oldest records above the number that is kept.
    pub async fn remove_old_records(self, namespace: &Namespace) -> Result<usize> {
        let mut records = self.records(namespace).await?;
        let young = self.host.now().minus_seconds(KEPT_SECONDS_MIN);
        let young = i64::try_from(young.as_millis()).unwrap_or(i64::MAX);
        let is_over = |(place, record): &(usize, EventExecution)| {
            *place >= KEPT_AT_ALL_MAX || (*place >= KEPT_MAX && record.created < young)
        };
        let mut removed = 0;
        for (_, record) in records.drain(..).enumerate().filter(is_over) {
            let (name, id) = (&record.name, &record.id);
            let key = document::key::<EventExecutionRow>(namespace.as_str(), name, id);
            let store = &self.host.inner.store;
            let delete = store.delete::<EventExecutionRow>(key, self.host.now());
            removed += usize::from(delete.await?);
        }
        Ok(removed)
    }

    /// Returns every record of a namespace, newest first.
    async fn records(self, namespace: &Namespace) -> Result<Vec<EventExecution>> {
        let rows = self
            .host
            .inner
            .store
            .list::<EventExecutionRow>(Some(namespace));
        let mut records: Vec<EventExecution> =
            rows.await?.into_iter().map(|row| row.execution).collect();
        records.sort_by(|one, other| {
            let newest_first = other.created.cmp(&one.created);
            newest_first.then_with(|| (&other.id, &other.name).cmp(&(&one.id, &one.name)))
        });
        Ok(records)
    }

    /// Returns a page of the records of a handler, newest first.
    pub async fn executions_of(
        self,
        namespace: &Namespace,
        handler: &str,
        page: &RecordPage,
    ) -> Result<Vec<EventExecution>> {
        let records = self.records(namespace).await?.into_iter();
        let own = records.filter(|record| record.name == handler);
        Ok(own.skip(page.start).take(page.size).collect())
    }

    /// Returns a page of the messages of an event, newest first, each with its records.
    pub async fn messages_of(
        self,
        namespace: &Namespace,
        event: &str,
        page: &RecordPage,
    ) -> Result<Vec<Vec<EventExecution>>> {
        let mut messages: Vec<Vec<EventExecution>> = Vec::new();
        let records = self.records(namespace).await?.into_iter();
        for record in records.filter(|record| record.event == event) {
            let is_same =
                |known: &&mut Vec<EventExecution>| known[0].message_id == record.message_id;
            match messages.iter_mut().find(is_same) {
                Some(message) => message.push(record),
                None => messages.push(vec![record]),
            }
        }
        Ok(messages
            .into_iter()
            .skip(page.start)
            .take(page.size)
            .collect())
    }

    /// Returns the handlers, with the number of messages of which records are kept.
    pub async fn handler_stats(self, namespace: &Namespace) -> Result<Vec<HandlerStats>> {
        let records = self.records(namespace).await?;
        let handlers = self.handlers(namespace).await?;
        Ok(handlers
            .iter()
            .map(|handler| {
                let own = records.iter().filter(|record| record.name == handler.name);
                let messages: std::collections::BTreeSet<&str> =
                    own.map(|record| record.message_id.as_str()).collect();
                HandlerStats {
                    name: handler.name.clone(),
                    event: handler.event.clone(),
                    is_active: handler.active,
                    actions: handler.actions.len(),
                    messages: messages.len(),
                }
            })
            .collect())
    }
}
