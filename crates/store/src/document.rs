//! Registry documents: small records that are written seldom and read often, such as namespaces, search attribute definitions,
//! workers and rollouts. All kinds share one table and a handful of store methods; [`Record`] gives each its Rust type.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::rollout::Rollout;
use longhaul_protocol::conductor::{SchemaDef, TaskDef, WorkflowDef};
use longhaul_protocol::id::Namespace;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, NamespaceRow, SearchAttributeRow, Store, WorkerRow};

/// What a document describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKind {
    Namespace,
    SearchAttribute,
    Worker,
    Rollout,
    /// The definition of a task of definition runs.
    TaskDef,
    /// A version of the definition of a definition run.
    WorkflowDef,
    /// The definition that runs began with, by its hash.
    Snapshot,
    /// A version of a schema for the input or output of tasks and workflows.
    Schema,
}

impl DocumentKind {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::SearchAttribute => "search_attribute",
            Self::Worker => "worker",
            Self::Rollout => "rollout",
            Self::TaskDef => "task_def",
            Self::WorkflowDef => "workflow_def",
            Self::Snapshot => "snapshot",
            Self::Schema => "schema",
        }
    }
}

/// The key of a document. Lists are in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    pub kind: DocumentKind,
    /// Empty for a document that belongs to no namespace.
    pub namespace: String,
    pub name: String,
    /// Tells documents of one name apart, such as the builds of a queue. Empty where a name is enough.
    pub qualifier: String,
}

/// A document as it is stored: JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub key: DocumentKey,
    pub body: String,
}

/// What must be stored under the key for a write to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything, or nothing.
    Any,
    /// Nothing: the write creates the document.
    Absent,
    /// A document: the write replaces it.
    Present,
}

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

/// Documents by their Rust types.
impl dyn Store + '_ {
    /// Writes a record. [`Error::Conflict`] if something else than `expected` is stored.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn put<R: Record>(&self, record: &R, expected: Expected) -> Result<(), Error> {
        let (namespace, name, qualifier) = record.key_parts();
        let body = serde_json::to_string(record)
            .map_err(|error| Error::Corrupt(format!("{name} cannot be written: {error}")))?;
        let document = Document {
            key: key::<R>(&namespace, &name, &qualifier),
            body,
        };
        self.put_document(document, expected).await
    }

    /// Deletes a record. Returns whether there was one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete<R: Record>(
        &self,
        namespace: &Namespace,
        name: &str,
    ) -> Result<bool, Error> {
        let key = key::<R>(namespace.as_str(), name, "");
        self.delete_document(&key).await
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

    /// Deletes one of several records of a name. Returns whether there was one.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_qualified<R: Record>(
        &self,
        namespace: &Namespace,
        name: &str,
        qualifier: &str,
    ) -> Result<bool, Error> {
        let key = key::<R>(namespace.as_str(), name, qualifier);
        self.delete_document(&key).await
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

fn key<R: Record>(namespace: &str, name: &str, qualifier: &str) -> DocumentKey {
    DocumentKey {
        kind: R::KIND,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        qualifier: qualifier.to_owned(),
    }
}

fn read<R: Record>(document: &Document) -> Result<R, Error> {
    serde_json::from_str(&document.body).map_err(|error| {
        let DocumentKey { kind, name, .. } = &document.key;
        Error::Corrupt(format!("{} {name} is unreadable: {error}", kind.as_str()))
    })
}
