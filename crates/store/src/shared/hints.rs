//! Hints from one server to the others: what it committed, and where it has work for them.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{Changes, DocumentKey, DocumentKind, TaskKind};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskId};
use serde::{Deserialize, Serialize};

use crate::QueueKey;

/// Things that may be listed. Beyond it a receiver looks by itself.
const LISTED_MAX: usize = 4096;

/// Tasks of one queue in one item: about two kilobytes, a part of a text.
const TASKS_PER_ITEM: usize = 50;

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Runs, with their newest versions.
    pub runs: BTreeMap<RunId, u64>,
    /// Queues in which the others should look, with the new tasks there that no poll of the sender waits for.
    pub queues: BTreeMap<QueueKey, BTreeSet<TaskId>>,
    pub sessions: BTreeSet<(Namespace, SessionId)>,
    pub documents: BTreeSet<DocumentKey>,
    /// More changed than is listed, or hints were lost.
    pub is_incomplete: bool,
    /// When the oldest of it was announced, by the clock of the sender.
    pub sent_at: Option<Timestamp>,
}

impl Hints {
    /// Returns the hint that something was missed.
    pub fn incomplete() -> Self {
        Self {
            is_incomplete: true,
            ..Self::default()
        }
    }

    /// Returns the hint that a queue may have room or a task for the polls of others, and which new task that is.
    pub fn of_queue(queue: QueueKey, task: Option<TaskId>) -> Self {
        Self {
            queues: BTreeMap::from([(queue, task.into_iter().collect())]),
            ..Self::default()
        }
    }

    /// Returns what a commit changed. Quiet documents are left out.
    pub fn of(changes: &Changes) -> Self {
        let runs = changes
            .runs()
            .filter(|change| change.base_version.is_some())
            .map(|change| (change.spec.run_id.clone(), change.version()));
        let sessions = changes.sessions.iter();
        let documents = changes.documents.iter().filter(|change| !change.is_quiet);
        Self {
            // A new run is in no copy of another server.
            runs: runs.collect(),
            sessions: sessions
                .map(|session| (session.namespace.clone(), session.session_id.clone()))
                .collect(),
            documents: documents.map(|change| change.key.clone()).collect(),
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.is_incomplete && self.len() == 0
    }

    fn len(&self) -> usize {
        let tasks: usize = self.queues.values().map(BTreeSet::len).sum();
        self.runs.len() + self.queues.len() + tasks + self.sessions.len() + self.documents.len()
    }

    /// Adds other hints. If they become too many, only that is kept.
    pub fn merge(&mut self, other: Self) {
        for (run_id, version) in other.runs {
            let known = self.runs.entry(run_id).or_default();
            *known = version.max(*known);
        }
        for (queue, tasks) in other.queues {
            self.queues.entry(queue).or_default().extend(tasks);
        }
        self.sessions.extend(other.sessions);
        self.documents.extend(other.documents);
        self.is_incomplete |= other.is_incomplete;
        self.sent_at = [self.sent_at, other.sent_at].into_iter().flatten().min();
        if self.len() > LISTED_MAX {
            *self = Self {
                sent_at: self.sent_at,
                ..Self::incomplete()
            };
        }
    }

    /// Writes the hints as texts of at most `bytes_max` bytes, at most `texts_max` of them. If they do not fit, one text says so.
    pub(crate) fn to_texts(&self, sender: &str, bytes_max: usize, texts_max: usize) -> Vec<String> {
        let head = |items: Vec<Item>| Message {
            sender: sender.to_owned(),
            sent_at: self.sent_at.map(Timestamp::as_micros),
            items,
        };
        let written = |message: &Message| serde_json::to_string(message).unwrap_or_default();
        let room = bytes_max.saturating_sub(written(&head(Vec::new())).len());
        let mut texts: Vec<Vec<Item>> = Vec::new();
        let mut used = usize::MAX;
        for item in self.items() {
            // The comma between two items.
            let bytes = serde_json::to_string(&item).map_or(usize::MAX, |text| text.len() + 1);
            if bytes > room {
                texts.clear();
                break;
            }
            if used.saturating_add(bytes) > room {
                texts.push(Vec::new());
                used = 0;
            }
            used += bytes;
            if let Some(text) = texts.last_mut() {
                text.push(item);
            }
        }
        if texts.is_empty() || texts.len() > texts_max {
            texts = vec![vec![Item::More]];
        }
        let texts = texts.into_iter().map(|items| written(&head(items)));
        texts.collect()
    }

    /// Reads a text of another server. Returns `None` if this server sent it. What cannot be read is a hint that something was missed.
    pub(crate) fn from_text(text: &str, own: &str) -> Option<Self> {
        let Ok(message) = serde_json::from_str::<Message>(text) else {
            return Some(Self::incomplete());
        };
        if message.sender == own {
            return None;
        }
        let mut hints = Self {
            sent_at: message.sent_at.map(Timestamp::from_micros),
            ..Self::default()
        };
        for item in message.items {
            match item {
                Item::Run(run_id, version) => {
                    hints.runs.insert(run_id, version);
                }
                Item::Queue(namespace, kind, queue, tasks) => match kind_of(&kind) {
                    Some(kind) => {
                        let queue = QueueKey {
                            namespace,
                            kind,
                            queue: queue.into(),
                        };
                        hints.queues.entry(queue).or_default().extend(tasks);
                    }
                    None => hints.is_incomplete = true,
                },
                Item::Session(namespace, session_id) => {
                    hints.sessions.insert((namespace, session_id));
                }
                Item::Document(kind, namespace, name, qualifier) => {
                    // An unknown kind is one of a newer release. This one has no copy of it.
                    if let Some(kind) = DocumentKind::from_text(&kind) {
                        hints.documents.insert(DocumentKey {
                            kind,
                            namespace,
                            name,
                            qualifier,
                        });
                    }
                }
                Item::More => hints.is_incomplete = true,
            }
        }
        Some(hints)
    }

    fn items(&self) -> impl Iterator<Item = Item> + '_ {
        let runs = self.runs.iter();
        let runs = runs.map(|(run_id, version)| Item::Run(run_id.clone(), *version));
        let queues = self.queues.iter().flat_map(|(queue, tasks)| {
            let tasks: Vec<TaskId> = tasks.iter().cloned().collect();
            let mut chunks: Vec<Vec<TaskId>> =
                tasks.chunks(TASKS_PER_ITEM).map(<[_]>::to_vec).collect();
            if chunks.is_empty() {
                chunks.push(Vec::new());
            }
            chunks.into_iter().map(|tasks| {
                let kind = queue.kind.as_str().to_owned();
                Item::Queue(
                    queue.namespace.clone(),
                    kind,
                    queue.queue.to_string(),
                    tasks,
                )
            })
        });
        let sessions = self.sessions.iter();
        let sessions = sessions.map(|(namespace, id)| Item::Session(namespace.clone(), id.clone()));
        let documents = self.documents.iter().cloned().map(|key| {
            let kind = key.kind.as_str().to_owned();
            Item::Document(kind, key.namespace, key.name, key.qualifier)
        });
        let more = self.is_incomplete.then_some(Item::More);
        runs.chain(queues)
            .chain(sessions)
            .chain(documents)
            .chain(more)
    }
}

/// The form of a text. Servers of another release read it too: an unknown item makes it unreadable, and then they look by themselves.
#[derive(Serialize, Deserialize)]
struct Message {
    #[serde(rename = "s")]
    sender: String,
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    sent_at: Option<i64>,
    #[serde(rename = "i")]
    items: Vec<Item>,
}

#[derive(Serialize, Deserialize)]
enum Item {
    #[serde(rename = "r")]
    Run(RunId, u64),
    #[serde(rename = "q")]
    Queue(Namespace, String, String, Vec<TaskId>),
    #[serde(rename = "s")]
    Session(Namespace, SessionId),
    #[serde(rename = "d")]
    Document(String, String, String, String),
    #[serde(rename = "m")]
    More,
}

fn kind_of(text: &str) -> Option<TaskKind> {
    let kinds = [TaskKind::Workflow, TaskKind::Activity, TaskKind::Execution];
    kinds.into_iter().find(|kind| kind.as_str() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueKey {
        QueueKey {
            namespace: "default".into(),
            kind: TaskKind::Activity,
            queue: name.into(),
        }
    }

    fn hints() -> Hints {
        Hints {
            runs: BTreeMap::from([("run-1".into(), 7)]),
            queues: BTreeMap::from([(queue("a\u{0}b"), BTreeSet::from([TaskId::from("t")]))]),
            sessions: BTreeSet::from([("default".into(), "s".into())]),
            documents: BTreeSet::from([DocumentKey {
                kind: DocumentKind::Worker,
                namespace: "default".to_owned(),
                name: "w\"1".to_owned(),
                qualifier: String::new(),
            }]),
            is_incomplete: false,
            sent_at: Some(Timestamp::from_micros(5)),
        }
    }

    #[test]
    fn hints_are_read_as_they_were_written() {
        let texts = hints().to_texts("one", 8000, 4);
        assert_eq!(texts.len(), 1);
        assert!(!texts[0].contains('\0'));
        assert_eq!(Hints::from_text(&texts[0], "two"), Some(hints()));
        assert_eq!(
            Hints::from_text(&texts[0], "one"),
            None,
            "a server knows its own commits"
        );
    }

    #[test]
    fn many_hints_take_several_texts_and_too_many_only_say_so() {
        let mut many = Hints::default();
        for number in 0..100 {
            many.runs.insert(format!("run-{number}").into(), number);
        }
        let texts = many.to_texts("one", 500, 20);
        assert!(texts.len() > 1);
        let mut read = Hints::default();
        for text in &texts {
            assert!(text.len() <= 500, "{}", text.len());
            read.merge(Hints::from_text(text, "two").unwrap());
        }
        assert_eq!(read, many);
        let texts = many.to_texts("one", 500, 2);
        let read: Vec<_> = texts
            .iter()
            .map(|text| Hints::from_text(text, "two"))
            .collect();
        assert_eq!(read, [Some(Hints::incomplete())]);
    }

    #[test]
    fn the_tasks_of_a_queue_are_split_over_several_texts() {
        let mut many = Hints::default();
        for number in 0..200 {
            let task = Some(format!("task-{number:03}").into());
            many.merge(Hints::of_queue(queue("q"), task));
        }
        let texts = many.to_texts("one", 1500, 20);
        assert!(texts.len() > 1);
        let mut read = Hints::default();
        for text in &texts {
            read.merge(Hints::from_text(text, "two").unwrap());
        }
        assert_eq!(read, many);
    }

    #[test]
    fn a_hint_that_is_longer_than_a_text_only_says_so() {
        let long = Hints::of_queue(queue(&"q".repeat(600)), None);
        let texts = long.to_texts("one", 500, 20);
        assert_eq!(texts.len(), 1);
        assert_eq!(
            Hints::from_text(&texts[0], "two"),
            Some(Hints::incomplete())
        );
    }

    #[test]
    fn an_unreadable_text_is_something_missed() {
        for text in ["", "{}", r#"{"s":"one","i":[{"x":1}]}"#] {
            assert_eq!(Hints::from_text(text, "two"), Some(Hints::incomplete()));
        }
    }

    #[test]
    fn merged_hints_have_the_newest_version_of_a_run() {
        let mut merged = Hints::default();
        for version in [3, 9, 4] {
            merged.merge(Hints {
                runs: BTreeMap::from([("run-1".into(), version)]),
                ..Hints::default()
            });
        }
        assert_eq!(merged.runs[&RunId::from("run-1")], 9);
    }
}
