//! The rows of a batch. Each row is written once, as the last commit of the batch left it.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{DocumentChange, DocumentKey, LogKey, LogLine, RunChange, TaskRow};
use longhaul_engine::run::state::{Part, PartKey};
use longhaul_engine::session::Session;

use super::Commit;
use super::checks::{Known, StoredRun};
use crate::encode::{Bodies, Entry, EventColumns, closed_at, list_status};

/// A request id of a workflow: namespace, workflow id, request id. Also an idempotency key: namespace, workflow type, key.
type Name<'a> = (&'a str, &'a str, &'a str);

/// A part of a run.
pub(super) struct PartRow<'a> {
    pub(super) body: &'a str,
    /// The text that a search looks into.
    pub(super) searched: Option<String>,
    /// The version of the run that wrote it.
    pub(super) version: u64,
}

/// A deleted command: its workflow, its run and its number.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeletedCommand<'a> {
    pub(super) namespace: &'a str,
    pub(super) workflow_id: &'a str,
    pub(super) run_id: &'a str,
    pub(super) sequence: u64,
}

/// The rows of a batch by their keys. `None` deletes a row.
#[derive(Default)]
pub(super) struct Rows<'a> {
    /// New runs, each as its first commit wrote it, with its specification.
    pub(super) created: BTreeMap<&'a str, (&'a RunChange, &'a str)>,
    /// The newest state of each run.
    pub(super) states: BTreeMap<&'a str, (&'a RunChange, &'a str)>,
    /// Runs whose list columns change.
    pub(super) moved: BTreeSet<&'a str>,
    pub(super) alarms: BTreeMap<&'a str, Option<i64>>,
    pub(super) parts: BTreeMap<(&'a str, &'a str), Option<PartRow<'a>>>,
    /// Events, each with its run.
    pub(super) events: Vec<(&'a str, EventColumns<'a>)>,
    /// Tasks whose rows are deleted. One that is written again has a row in `tasks` too.
    pub(super) deleted_tasks: BTreeSet<&'a str>,
    pub(super) tasks: BTreeMap<&'a str, (&'a TaskRow, &'a str)>,
    pub(super) logs: BTreeMap<(&'a str, LogKey), Option<&'a LogLine>>,
    pub(super) commands: BTreeMap<(&'a str, u64), Option<&'a str>>,
    pub(super) deleted: BTreeSet<DeletedCommand<'a>>,
    pub(super) requests: BTreeMap<Name<'a>, (&'a str, u64)>,
    pub(super) keys: BTreeMap<Name<'a>, &'a str>,
    /// Runs whose search attributes are written again.
    pub(super) attributes: BTreeMap<&'a str, &'a [Entry]>,
    pub(super) sessions: BTreeMap<(&'a str, &'a str), (&'a Session, &'a str)>,
    pub(super) documents: BTreeMap<&'a DocumentKey, &'a DocumentChange>,
}

impl<'a> Rows<'a> {
    /// Adds an accepted commit. `known` is what was stored before it.
    pub(super) fn add(&mut self, commit: &'a Commit, known: &Known) {
        for (change, bodies) in commit.runs() {
            self.add_run(change, bodies, known.run(change));
        }
        for (session, body) in commit.sessions() {
            let key = (session.namespace.as_str(), session.session_id.as_str());
            self.sessions.insert(key, (session, body));
        }
        for change in &commit.changes.documents {
            self.documents.insert(&change.key, change);
        }
    }

    fn add_run(&mut self, change: &'a RunChange, bodies: &'a Bodies, before: Option<&StoredRun>) {
        let run_id = change.spec.run_id.as_str();
        let alarm = change.core.alarm.map(|at| at.as_micros());
        if let Some(spec) = &bodies.spec {
            self.created.insert(run_id, (change, spec));
        } else if before.is_some_and(|before| {
            before.list_status != list_status(&change.core) || before.closed_at != closed_at(change)
        }) {
            self.moved.insert(run_id);
        }
        if before.and_then(|before| before.alarm) != alarm {
            self.alarms.insert(run_id, alarm);
        }
        self.states.insert(run_id, (change, &bodies.state));
        for ((key, part), row) in change.parts.iter().zip(&bodies.parts) {
            let body = row.body.as_deref().map(|body| PartRow {
                body,
                searched: searched(*key, part.as_ref()),
                version: change.version(),
            });
            self.parts.insert((run_id, &row.key), body);
        }
        let events = change.events.iter();
        self.events
            .extend(events.map(|event| (run_id, EventColumns::of(event))));
        for task_id in &change.deleted_tasks {
            self.tasks.remove(task_id.as_str());
            self.deleted_tasks.insert(task_id.as_str());
        }
        for (task, body) in change.tasks.iter().zip(&bodies.tasks) {
            self.tasks.insert(task.task_id.as_str(), (task, body));
        }
        for (key, line) in &change.logs {
            self.logs.insert((run_id, *key), line.as_ref());
        }
        self.add_commands(change, bodies);
        if let Some(entries) = &bodies.attributes {
            self.attributes.insert(run_id, entries);
        }
        if let Some(claim) = &change.key_claim {
            let spec = &change.spec;
            let key = (spec.namespace.as_str(), &*spec.workflow_type, &*claim.key);
            self.keys.insert(key, run_id);
        }
    }

    fn add_commands(&mut self, change: &'a RunChange, bodies: &'a Bodies) {
        let spec = &change.spec;
        let (namespace, workflow_id) = (spec.namespace.as_str(), spec.workflow_id.as_str());
        let run_id = spec.run_id.as_str();
        for sequence in &change.deleted_commands {
            let sequence = sequence.get();
            self.commands.insert((run_id, sequence), None);
            self.requests
                .retain(|_, command| *command != (run_id, sequence));
            self.deleted.insert(DeletedCommand {
                namespace,
                workflow_id,
                run_id,
                sequence,
            });
        }
        for (command, body) in change.commands.iter().zip(&bodies.commands) {
            let sequence = command.sequence.get();
            self.commands.insert((run_id, sequence), Some(body));
            if let Some(request_id) = &command.request_id {
                let name = (namespace, workflow_id, request_id.as_str());
                self.requests.insert(name, (run_id, sequence));
            }
        }
    }
}

/// Returns the text of an input or an output that a search looks into.
pub(super) fn searched(key: PartKey, part: Option<&Part>) -> Option<String> {
    match (key, part) {
        (PartKey::Input | PartKey::Output, Some(Part::Value(stored))) => {
            let value = stored.get().ok()?;
            Some(value.to_string().to_ascii_lowercase())
        }
        _ => None,
    }
}
