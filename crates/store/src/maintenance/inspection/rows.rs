//! Rows as they are stored, for a check. Nothing is parsed: what cannot be parsed is a problem of its row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::change::CommandRow;
use longhaul_engine::inspection::{
    Before, ChildCall, History, Problem, ProblemKind, RecordedEvent, open_tasks, part_matches,
};
use longhaul_engine::run::state::{Core, Part, PartKey, Program, Run, Spec};
use longhaul_protocol::Timestamp;
use longhaul_protocol::json::from_stored;
use serde::de::DeserializeOwned;

/// Columns by their names, `table.column`, as text. `None` is null.
pub(crate) type Columns = Vec<(&'static str, Option<String>)>;

/// The rows that a run is read from.
#[derive(Debug, Default)]
pub(crate) struct RunBase {
    pub(crate) run_id: String,
    pub(crate) version: Option<i64>,
    pub(crate) state: Option<String>,
    pub(crate) spec: Option<String>,
    /// Keys and bodies.
    pub(crate) parts: Vec<(String, String)>,
}

/// All rows of a run.
#[derive(Debug, Default)]
pub(crate) struct RunRows {
    pub(crate) run_id: String,
    pub(crate) version: Option<i64>,
    /// The run, if its specification and its state can be read.
    pub(crate) run: Option<Run>,
    /// What could not be read of it.
    pub(crate) unread: Vec<Problem>,
    pub(crate) columns: Columns,
    /// The stored alarms, by the columns that have one.
    pub(crate) alarms: Vec<(&'static str, Option<i64>)>,
    pub(crate) history: History,
    /// The rows of the tasks that are open in the run.
    pub(crate) tasks: Vec<(String, String)>,
    pub(crate) commands: Vec<CommandRows>,
    /// Request ids of the workflow that name this run or are named by its commands: id, run and number.
    pub(crate) requests: Vec<(String, String, i64)>,
    pub(crate) attributes: Vec<AttributeRow>,
    /// Rows of this workflow with this number, the one before and the one after, each with its run.
    pub(crate) numbers: Vec<(i64, Option<String>)>,
    /// Whether the snapshot of its definition is stored; `None` for a run of code.
    pub(crate) has_snapshot: Option<bool>,
    /// The run before it, if it has one.
    pub(crate) before: Option<BeforeRows>,
    /// The calls of children in the history of its parent; `None` for a run without a parent.
    pub(crate) parent_calls: Option<Arc<Vec<ChildCall>>>,
}

/// The rows of the run before another one, as far as the next one depends on it.
#[derive(Debug, Default)]
pub(crate) struct BeforeRows {
    pub(crate) state: Option<String>,
    pub(crate) spec: Option<String>,
    pub(crate) commands: Vec<CommandRows>,
    /// Types and payloads of the events about messages.
    pub(crate) events: Vec<(String, String)>,
}

/// An external command: its number and its body.
#[derive(Debug)]
pub(crate) struct CommandRows {
    pub(crate) sequence: i64,
    pub(crate) body: String,
}

/// A row of the index of search attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttributeRow {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) value: String,
    pub(crate) namespace: String,
    pub(crate) list_status: String,
    pub(crate) started_at: i64,
}

/// A task.
#[derive(Debug)]
pub(crate) struct TaskRows {
    pub(crate) task_id: String,
    pub(crate) columns: Columns,
    pub(crate) body: String,
    /// Whether its run is stored.
    pub(crate) has_run: bool,
    /// The open tasks of its run, if the task is open and the run can be read.
    pub(crate) run: Option<Arc<OpenTasks>>,
}

/// The tasks that are open in a run.
#[derive(Debug)]
pub(crate) struct OpenTasks {
    pub(crate) is_closed: bool,
    pub(crate) ids: BTreeSet<String>,
}

/// A session.
#[derive(Debug)]
pub(crate) struct SessionRows {
    pub(crate) namespace: String,
    pub(crate) session_id: String,
    pub(crate) columns: Columns,
    pub(crate) body: String,
}

/// A document: kind, namespace, name and qualifier, version, body.
#[derive(Debug)]
pub(crate) struct DocumentRows {
    pub(crate) key: [String; 4],
    pub(crate) version: i64,
    pub(crate) body: String,
}

/// An idempotency key: namespace, workflow type and key, and the run that has it.
#[derive(Debug)]
pub(crate) struct KeyRows {
    pub(crate) key: [String; 3],
    pub(crate) run_id: String,
    /// The namespace, the workflow type and the state of the run, if it is stored.
    pub(crate) run: Option<(String, String, String)>,
}

/// The rows that are read because other rows name them.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) program: Program,
    pub(crate) task_ids: Vec<String>,
    /// The hash of the snapshot of a definition run.
    pub(crate) snapshot: Option<String>,
    /// The parent of a run of code.
    pub(crate) parent: Option<String>,
}

impl RunRows {
    /// Returns the rows of a run without those that belong to it.
    pub(crate) fn new(base: &RunBase) -> Self {
        let mut unread = Vec::new();
        let run = base.parse(&mut unread);
        Self {
            run_id: base.run_id.clone(),
            version: base.version,
            run,
            unread,
            ..Self::default()
        }
    }

    /// Returns what to read next. A run that cannot be parsed names nothing.
    pub(crate) fn wanted(&self) -> Wanted {
        let Some(run) = &self.run else {
            return Wanted::default();
        };
        let execution = run.core.execution.as_ref();
        let parent = run.spec.parent.as_deref();
        Wanted {
            program: run.spec.program,
            task_ids: open_tasks(run)
                .iter()
                .map(|task| task.id.to_string())
                .collect(),
            snapshot: execution.map(|execution| execution.snapshot.to_string()),
            // The tasks of a definition run name their children.
            parent: parent
                .filter(|_| run.spec.program == Program::Code)
                .map(|parent| parent.run_id.to_string()),
        }
    }
}

impl BeforeRows {
    /// Parses the run. Returns `None` if its rows cannot be parsed, which is a problem of that run.
    pub(crate) fn parse(&self) -> Option<Before> {
        let mut ignored = Vec::new();
        let spec = parse::<Spec>("the specification", self.spec.as_deref(), &mut ignored)?;
        let core = parse::<Core>("the state", self.state.as_deref(), &mut ignored)?;
        let commands: Option<Vec<_>> = self.commands.iter().map(CommandRows::parse).collect();
        let events = self
            .events
            .iter()
            .map(|(event_type, payload)| RecordedEvent {
                sequence: 0,
                id: "",
                event_type,
                recorded_at: Timestamp::default(),
                workflow_task_id: None,
                payload,
            });
        Some(Before::new(spec, core, commands?, events))
    }
}

impl RunBase {
    /// Returns the open tasks of the run, if it can be parsed.
    pub(crate) fn open_tasks(&self) -> Option<Arc<OpenTasks>> {
        let run = self.parse(&mut Vec::new())?;
        let tasks = open_tasks(&run).into_iter();
        Some(Arc::new(OpenTasks {
            is_closed: run.core.closed.is_some(),
            ids: tasks.map(|task| task.id.to_string()).collect(),
        }))
    }

    /// Parses the run. Parts that cannot be parsed are left out. Returns `None` if the specification or the state cannot.
    pub(crate) fn parse(&self, problems: &mut Vec<Problem>) -> Option<Run> {
        let spec = parse::<Spec>("the specification", self.spec.as_deref(), problems);
        let core = parse::<Core>("the state", self.state.as_deref(), problems);
        let mut parts = BTreeMap::new();
        for (key, body) in &self.parts {
            let Some(part) = parse::<Part>(&format!("part {key}"), Some(body), problems) else {
                continue;
            };
            match key.parse::<PartKey>() {
                Ok(key) if part_matches(key, &part) => {
                    parts.insert(key, part);
                }
                Ok(_) => {
                    let detail = format!("part {key} has a body of another kind");
                    problems.push(Problem::new(ProblemKind::PartDiffers, detail));
                }
                Err(error) => {
                    problems.push(Problem::new(ProblemKind::UnreadableRow, error.to_string()));
                }
            }
        }
        let version = self.version.unwrap_or_default().cast_unsigned();
        Some(Run::new(version, Arc::new(spec?), core?, parts))
    }
}

impl CommandRows {
    fn parse(&self) -> Option<CommandRow> {
        from_stored(&self.body).ok()
    }

    /// Returns the request id of a command, if it can be parsed and has one.
    pub(crate) fn request_id(&self) -> Option<String> {
        self.parse()?.request_id
    }
}

/// Parses a body. A missing or unreadable one is a problem.
pub(crate) fn parse<T: DeserializeOwned>(
    what: &str,
    body: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let Some(body) = body else {
        let detail = format!("{what} is not stored");
        problems.push(Problem::new(ProblemKind::RowMissing, detail));
        return None;
    };
    match from_stored(body) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            let detail = format!("{what} cannot be read: {error}");
            problems.push(Problem::new(ProblemKind::UnreadableRow, detail));
            None
        }
    }
}

/// Adds a problem for each column that is not as expected. Columns without an expectation are not compared.
pub(crate) fn compare(
    columns: &Columns,
    expected: &BTreeMap<&'static str, Option<String>>,
    kind: ProblemKind,
    problems: &mut Vec<Problem>,
) {
    for (name, stored) in columns {
        let column = name.rsplit('.').next().unwrap_or(name);
        let Some(expected) = expected.get(column) else {
            continue;
        };
        if stored != expected {
            let shown = |value: &Option<String>| match value {
                Some(text) => format!("`{text}`"),
                None => "null".to_owned(),
            };
            let detail = format!(
                "{name} is {} and should be {}",
                shown(stored),
                shown(expected)
            );
            problems.push(Problem::new(kind, detail));
        }
    }
}
