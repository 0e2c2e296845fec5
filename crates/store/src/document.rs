//! Registry documents by their Rust types: namespaces, search attribute definitions, workers, rollouts, definitions. All kinds share one
//! table and two read methods, and are written by commits. [`Record`] gives each kind its type.
//!
//! A document has a version, and a write names the version it is based on. So a change is a loop: read, decide, write, and again if
//! another server came first. [`change`](#method.change) is that loop.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::change::{Changes, Document, DocumentChange, DocumentKey, DocumentKind};
use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::rollout::Rollout;
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{
    EventExecution, EventHandler, RateLimitConfig, SchemaDef, Tag, TaskDef, WorkflowDef,
};
use longhaul_protocol::id::{Namespace, WorkerId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, NamespaceRow, SearchAttributeRow, Store, WorkerRow};

/// A value that is stored as a document.
pub trait Record: Serialize + DeserializeOwned + Send + Sync {
    const KIND: DocumentKind;

    /// Returns the namespace, the name and the qualifier of its key.
    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>);
}

impl Record for NamespaceRow {
    const KIND: DocumentKind = DocumentKind::Namespace;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        ("".into(), self.name.as_str().into(), "".into())
    }
}

impl Record for SearchAttributeRow {
    const KIND: DocumentKind = DocumentKind::SearchAttribute;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.name.as_str().into(),
            "".into(),
        )
    }
}

impl Record for WorkerRow {
    const KIND: DocumentKind = DocumentKind::Worker;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.worker_id.as_str().into(),
            "".into(),
        )
    }
}

impl Record for Rollout {
    const KIND: DocumentKind = DocumentKind::Rollout;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        // No build id is empty, so the cohort without one comes first.
        let build_id = self.build_id.as_deref().unwrap_or_default();
        (
            self.namespace.as_str().into(),
            self.task_queue.as_str().into(),
            build_id.into(),
        )
    }
}

/// A registered task definition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskDefRow {
    pub namespace: Namespace,
    pub definition: Arc<TaskDef>,
}

impl Record for TaskDefRow {
    const KIND: DocumentKind = DocumentKind::TaskDef;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.definition.name.as_str().into(),
            "".into(),
        )
    }
}

/// A registered version of a workflow definition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkflowDefRow {
    pub namespace: Namespace,
    pub definition: Arc<WorkflowDef>,
}

impl WorkflowDefRow {
    /// Returns the qualifier of a version. Lists are in the order of the versions.
    pub fn qualifier(version: i32) -> String {
        format!("{version:010}")
    }
}

impl Record for WorkflowDefRow {
    const KIND: DocumentKind = DocumentKind::WorkflowDef;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.definition.name.as_str().into(),
            Self::qualifier(self.definition.version).into(),
        )
    }
}

/// A registered version of a schema.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SchemaRow {
    pub namespace: Namespace,
    pub schema: SchemaDef,
}

impl SchemaRow {
    /// Returns the qualifier of a version. Lists are in the order of the versions.
    pub fn qualifier(version: i32) -> String {
        format!("{version:010}")
    }
}

impl Record for SchemaRow {
    const KIND: DocumentKind = DocumentKind::Schema;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.schema.name.as_str().into(),
            Self::qualifier(self.schema.version).into(),
        )
    }
}

/// The definition that runs began with. Its text is the record; runs name it by its hash.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotRow(pub Arc<Snapshot>);

impl Record for SnapshotRow {
    const KIND: DocumentKind = DocumentKind::Snapshot;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        ("".into(), self.0.hash().into(), "".into())
    }
}

/// Is written again with every change of the definitions of a namespace. Its version tells whether a copy of them is current.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DefinitionStampRow {
    pub namespace: Namespace,
}

impl Record for DefinitionStampRow {
    const KIND: DocumentKind = DocumentKind::DefinitionStamp;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (self.namespace.as_str().into(), "".into(), "".into())
    }
}

/// A registered event handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventHandlerRow {
    pub namespace: Namespace,
    pub handler: Arc<EventHandler>,
}

impl Record for EventHandlerRow {
    const KIND: DocumentKind = DocumentKind::EventHandler;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.handler.name.as_str().into(),
            "".into(),
        )
    }
}

/// What an action of an event handler did with a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventExecutionRow {
    pub namespace: Namespace,
    pub execution: EventExecution,
}

impl Record for EventExecutionRow {
    const KIND: DocumentKind = DocumentKind::EventExecution;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.execution.name.as_str().into(),
            self.execution.id.as_str().into(),
        )
    }
}

/// A slot of the table of reusable outputs. A newer output of another key replaces an older one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReusableOutputRow {
    pub namespace: Namespace,
    pub slot: u32,
    /// The name of the task definition.
    pub name: String,
    pub key: String,
    pub output: Arc<serde_json::Value>,
    pub expires_at: Timestamp,
}

impl Record for ReusableOutputRow {
    const KIND: DocumentKind = DocumentKind::ReusableOutput;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        let slot = format!("{:05}", self.slot);
        (self.namespace.as_str().into(), slot.into(), "".into())
    }
}

/// The tags of a definition or of an event handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TagsRow {
    pub namespace: Namespace,
    /// What is tagged: `task`, `workflow` or `event_handler`.
    pub subject: String,
    /// The name of what is tagged.
    pub name: String,
    pub tags: Vec<Tag>,
    /// The rate limit of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimitConfig>,
}

impl Record for TagsRow {
    const KIND: DocumentKind = DocumentKind::Tags;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        (
            self.namespace.as_str().into(),
            self.name.as_str().into(),
            self.subject.as_str().into(),
        )
    }
}

/// A server, as it last showed itself, with what it alone knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRow {
    pub server_id: String,
    /// The release that it runs.
    pub release: String,
    /// What operators call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub process_id: u32,
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    /// Workers that it heard of lately.
    #[serde(default)]
    pub workers: Vec<HeardWorker>,
    /// Queues of definition runs that were polled there lately.
    #[serde(default)]
    pub polled: Vec<PolledQueue>,
}

/// A sign of life of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeardWorker {
    pub namespace: Namespace,
    pub worker_id: WorkerId,
    pub heard_at: Timestamp,
    /// Whether it waits for queries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub polls_queries: bool,
}

/// The newest poll of a queue of definition runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolledQueue {
    pub namespace: Namespace,
    pub task_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    pub at: Timestamp,
}

impl Record for ServerRow {
    const KIND: DocumentKind = DocumentKind::Server;

    fn key_parts(&self) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>) {
        ("".into(), self.server_id.as_str().into(), "".into())
    }
}

/// How often a change of documents is decided again after another write came first. Losing once is ordinary with several servers.
const CHANGE_TRIES: usize = 16;

/// The pause after a lost change is random and at most this, doubled up to six times, if other servers may write. All would lose again
/// if they tried again at the same time.
const CHANGE_PAUSE: Duration = Duration::from_millis(1);
const CHANGE_PAUSE_DOUBLINGS: usize = 6;

/// Documents by their Rust types.
impl dyn Store + '_ {
    /// Changes one record. `change` gets the stored record and returns what it becomes; `None` deletes it. It is called again if another
    /// write comes first. Returns what `change` returned.
    ///
    /// # Errors
    /// What `change` returns, [`Error::Conflict`] if others came first too often, and see [`Error`].
    pub async fn change<R: Record, E: From<Error>>(
        &self,
        key: DocumentKey,
        now: Timestamp,
        mut change: impl FnMut(Option<R>) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        let changed = self.change_all(vec![key], now, |_, record| change(record));
        Ok(changed.await?.into_values().next().flatten())
    }

    /// Changes several records in one commit: all of them, or none. `change` gets the place of the key and the stored record, as in
    /// [`change`](#method.change). Returns the records afterwards by key.
    ///
    /// # Errors
    /// As [`change`](#method.change).
    pub async fn change_all<R: Record, E: From<Error>>(
        &self,
        keys: Vec<DocumentKey>,
        now: Timestamp,
        change: impl FnMut(usize, Option<R>) -> Result<Option<R>, E>,
    ) -> Result<BTreeMap<DocumentKey, Option<R>>, E> {
        self.write(keys, now, false, change).await
    }

    async fn write<R: Record, E: From<Error>>(
        &self,
        keys: Vec<DocumentKey>,
        now: Timestamp,
        is_quiet: bool,
        mut change: impl FnMut(usize, Option<R>) -> Result<Option<R>, E>,
    ) -> Result<BTreeMap<DocumentKey, Option<R>>, E> {
        for lost in 0..CHANGE_TRIES {
            let mut versions = BTreeMap::new();
            let mut after: BTreeMap<DocumentKey, Option<R>> = BTreeMap::new();
            for (place, key) in keys.iter().enumerate() {
                // A key that comes twice is changed twice.
                let before = match after.remove(key) {
                    Some(record) => record,
                    None => {
                        let stored = self.document(key).await?;
                        versions.insert(key, stored.as_ref().map(|document| document.version));
                        stored.as_ref().map(read).transpose()?
                    }
                };
                after.insert(key.clone(), change(place, before)?);
            }
            let mut changes = Vec::new();
            for (key, record) in &after {
                let body = record.as_ref().map(text).transpose()?;
                let key = key.clone();
                changes.extend(match (versions.get(&key).copied().flatten(), body) {
                    (None, None) => None,
                    (None, Some(body)) => Some(DocumentChange::create(key, body, now)),
                    (Some(base), Some(body)) => Some(DocumentChange::replace(key, base, body)),
                    (Some(base), None) => Some(DocumentChange::delete(key, base)),
                });
            }
            if changes.is_empty() {
                return Ok(after);
            }
            if is_quiet {
                changes = changes.into_iter().map(DocumentChange::quietly).collect();
            }
            match self.commit(Arc::new(Changes::of_documents(changes))).await {
                Ok(()) => return Ok(after),
                Err(Error::Conflict) if self.shared().is_some() => {
                    let most = CHANGE_PAUSE * (1 << lost.min(CHANGE_PAUSE_DOUBLINGS));
                    tokio::time::sleep(most.mul_f64(rand::random())).await;
                }
                Err(Error::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Conflict.into())
    }

    /// As [`change`](#method.change), without hints to other servers.
    ///
    /// # Errors
    /// As [`change`](#method.change).
    pub async fn change_quietly<R: Record, E: From<Error>>(
        &self,
        key: DocumentKey,
        now: Timestamp,
        mut change: impl FnMut(Option<R>) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        let changed = self.write(vec![key], now, true, |_, record| change(record));
        Ok(changed.await?.into_values().next().flatten())
    }

    /// Creates a record. Returns false if there is one with its key.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create<R: Record>(&self, record: &R, now: Timestamp) -> Result<bool, Error> {
        let change = DocumentChange::create(key_of(record), text(record)?, now);
        match self
            .commit(Arc::new(Changes::of_documents(vec![change])))
            .await
        {
            Ok(()) => Ok(true),
            Err(Error::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a record, or replaces the stored one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn put<R: Record + Clone>(&self, record: &R, now: Timestamp) -> Result<(), Error> {
        let put = self.change(key_of(record), now, |_| {
            Ok::<_, Error>(Some(record.clone()))
        });
        put.await.map(drop)
    }

    /// Deletes a record. Returns whether there was one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete<R: Record>(&self, key: DocumentKey, now: Timestamp) -> Result<bool, Error> {
        let mut existed = false;
        let delete = self.change::<R, Error>(key, now, |record| {
            existed = record.is_some();
            Ok(None)
        });
        delete.await?;
        Ok(existed)
    }

    /// Returns one record.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get<R: Record>(
        &self,
        namespace: &Namespace,
        name: &str,
    ) -> Result<Option<R>, Error> {
        let key = key::<R>(namespace.as_str(), name, "");
        let found = self.document(&key).await?;
        found.map(|document| read(&document)).transpose()
    }

    /// Returns one of several records of a name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_qualified<R: Record>(
        &self,
        namespace: &Namespace,
        name: &str,
        qualifier: &str,
    ) -> Result<Option<R>, Error> {
        let key = key::<R>(namespace.as_str(), name, qualifier);
        let found = self.document(&key).await?;
        found.map(|document| read(&document)).transpose()
    }

    /// Returns the records of a namespace, or of all, in the order of their keys.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list<R: Record>(&self, namespace: Option<&Namespace>) -> Result<Vec<R>, Error> {
        let found = self
            .documents(R::KIND, namespace.map(Namespace::as_str))
            .await?;
        found.iter().map(read).collect()
    }
}

/// Returns the key of the records of this type with that name.
pub fn key<R: Record>(namespace: &str, name: &str, qualifier: &str) -> DocumentKey {
    DocumentKey {
        kind: R::KIND,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        qualifier: qualifier.to_owned(),
    }
}

/// Returns the key of a record.
pub fn key_of<R: Record>(record: &R) -> DocumentKey {
    let (namespace, name, qualifier) = record.key_parts();
    key::<R>(&namespace, &name, &qualifier)
}

fn text<R: Record>(record: &R) -> Result<String, Error> {
    serde_json::to_string(record)
        .map_err(|error| Error::Corrupt(format!("a record cannot be written: {error}")))
}

fn read<R: Record>(document: &Document) -> Result<R, Error> {
    serde_json::from_str(&document.body).map_err(|error| {
        let DocumentKey { kind, name, .. } = &document.key;
        Error::Corrupt(format!("{} {name} is unreadable: {error}", kind.as_str()))
    })
}
