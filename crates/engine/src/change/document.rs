//! Registry documents: small records that are written seldom and read often, such as namespaces, workers and definitions. The engine
//! does not read their bodies. A document has a version, and a change names the version it is based on.

use longhaul_protocol::Timestamp;

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
    /// Changes with every definition of a namespace, so that a copy of them is compared by one read.
    DefinitionStamp,
    /// Reacts to messages of an event.
    EventHandler,
    /// What an event handler did with a message. It exists if and only if that is done.
    EventExecution,
    /// The output of a task, for later tasks with the same key. A slot of a table of fixed size.
    ReusableOutput,
    /// The tags of a definition or of an event handler.
    Tags,
    /// A live server, and what it alone knows.
    Server,
    /// A question to a worker that passes from one server to another. Lost with the database's memory, and so are the kinds after it.
    Question,
    /// What servers used and hold of a rate that they share.
    Rate,
    /// Whose turn a job is that one server does for all.
    Turn,
}

impl DocumentKind {
    pub const ALL: [Self; 17] = [
        Self::Namespace,
        Self::SearchAttribute,
        Self::Worker,
        Self::Rollout,
        Self::TaskDef,
        Self::WorkflowDef,
        Self::Snapshot,
        Self::Schema,
        Self::DefinitionStamp,
        Self::EventHandler,
        Self::EventExecution,
        Self::ReusableOutput,
        Self::Tags,
        Self::Server,
        Self::Question,
        Self::Rate,
        Self::Turn,
    ];

    /// Returns the kind of a word in the table.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Returns whether a crash of the database may lose such documents.
    pub fn is_volatile(self) -> bool {
        matches!(self, Self::Question | Self::Rate | Self::Turn)
    }

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
            Self::DefinitionStamp => "definition_stamp",
            Self::EventHandler => "event_handler",
            Self::EventExecution => "event_execution",
            Self::ReusableOutput => "reusable_output",
            Self::Tags => "tags",
            Self::Server => "server",
            Self::Question => "question",
            Self::Rate => "rate",
            Self::Turn => "turn",
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
    /// Distinguishes documents of one name, such as the builds of a queue. Empty where a name is enough.
    pub qualifier: String,
}

/// A document as it is stored: JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub key: DocumentKey,
    pub version: u64,
    pub body: String,
}

/// A new, changed or deleted document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentChange {
    pub key: DocumentKey,
    /// The version that must be stored; `None` if there must be no document.
    pub base_version: Option<u64>,
    /// The version after this change.
    pub version: u64,
    /// `None` deletes the document.
    pub body: Option<String>,
    /// Whether other servers need not hear of it.
    pub is_quiet: bool,
}

impl DocumentChange {
    /// Returns the change that creates a document. Its first version is the time, so that a document which was deleted and created
    /// again never has a version that the earlier one had.
    pub fn create(key: DocumentKey, body: String, now: Timestamp) -> Self {
        Self {
            key,
            base_version: None,
            version: now.as_micros().max(1).unsigned_abs(),
            body: Some(body),
            is_quiet: false,
        }
    }

    /// Returns the change that replaces a document.
    pub fn replace(key: DocumentKey, base_version: u64, body: String) -> Self {
        Self {
            key,
            base_version: Some(base_version),
            version: base_version + 1,
            body: Some(body),
            is_quiet: false,
        }
    }

    /// Returns the change that deletes a document.
    pub fn delete(key: DocumentKey, base_version: u64) -> Self {
        Self {
            key,
            base_version: Some(base_version),
            version: base_version + 1,
            body: None,
            is_quiet: false,
        }
    }

    /// Returns the change without hints to other servers.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.is_quiet = true;
        self
    }
}
