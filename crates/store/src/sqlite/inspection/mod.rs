//! Reads rows for a check (`crate::inspection`), on a connection that cannot write. A page is one read transaction, beside a server.

mod cells;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::inspection::{
    ChildCall, History, Messages, Problem, ProblemKind, RecordedEvent,
};
use longhaul_engine::visibility::Term;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use longhaul_protocol::json::from_stored;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use self::cells::{all, columns, one, shown, text};
use super::open;
use super::visibility::index::sql_value;
use crate::Error;
use crate::inspection::{
    AttributeRow, BeforeRows, CommandRows, DocumentRows, Inspected, KeyRows, ORPHANS_MAX,
    OpenTasks, PAGE_ROWS, RunBase, RunRows, SessionRows, TaskRows,
};

/// Damaged places that are shown. More have the same cause.
const DAMAGES_MAX: u32 = 20;

/// Tables whose rows belong to a run, each with a statement that finds rows without one. A request id and its run have one workflow.
const ORPHANS: [(&str, &str); 8] = [
    ("run_specs", "SELECT DISTINCT run_key FROM run_specs WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    ("workflow_runs", "SELECT DISTINCT run_key FROM workflow_runs WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    ("run_parts", "SELECT DISTINCT run_key FROM run_parts WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    ("events", "SELECT DISTINCT run_key FROM events WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    ("commands", "SELECT DISTINCT run_key FROM commands WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    (
        "requests",
        "SELECT DISTINCT run_key FROM requests q WHERE NOT EXISTS (SELECT 1 FROM runs r
         WHERE r.run_key = q.run_key AND r.namespace = q.namespace AND r.workflow_id = q.workflow_id)",
    ),
    ("run_attributes", "SELECT DISTINCT run_key FROM run_attributes WHERE run_key NOT IN (SELECT run_key FROM runs)"),
    ("task_logs", "SELECT DISTINCT run_key FROM task_logs WHERE run_key NOT IN (SELECT run_key FROM runs)"),
];

/// A database file that is checked.
pub(crate) struct SqliteInspection {
    connection: Connection,
}

impl SqliteInspection {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // The name only: closing a handle on the file would release the locks of a store of this process.
        if !path.exists() {
            return Err(Error::Settings(format!(
                "{} does not exist",
                path.display()
            )));
        }
        let connection = open::reader(path)?;
        open::refuse_other_schema(&connection, path)?;
        Ok(Self { connection })
    }
}

impl Inspected for SqliteInspection {
    async fn schema(&mut self) -> Result<Vec<Problem>, Error> {
        let expected = open::empty()?;
        let mut problems = Vec::new();
        for (name, sql) in objects(&expected)? {
            let found: Option<String> = self
                .connection
                .query_row(
                    "SELECT sql FROM sqlite_schema WHERE name = ?1",
                    [&name],
                    |row| row.get(0),
                )
                .optional()?;
            let word = match found {
                None => "is missing",
                Some(found) if found != sql => "is not that of this release",
                Some(_) => continue,
            };
            problems.push(Problem::new(
                ProblemKind::SchemaDiffers,
                format!("{name} {word}"),
            ));
        }
        let mut check = self
            .connection
            .prepare(&format!("PRAGMA integrity_check({DAMAGES_MAX})"))?;
        let mut rows = check.query([])?;
        while let Some(row) = rows.next()? {
            let line: String = row.get(0)?;
            if line != "ok" {
                problems.push(Problem::new(ProblemKind::FileDamaged, line));
            }
        }
        Ok(problems)
    }

    async fn runs(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&RunRows),
    ) -> Result<Option<String>, Error> {
        let snapshot = self.connection.unchecked_transaction()?;
        let sql = "SELECT run_key FROM runs WHERE run_id > ?1 AND namespace <> '' ORDER BY run_id LIMIT ?2";
        let keys: Vec<i64> = all(&snapshot, sql, params![after, PAGE_ROWS], |row| {
            Ok(row.get(0)?)
        })?;
        let mut last = None;
        let mut calls = Calls::new();
        for run_key in keys {
            let rows = run(&snapshot, run_key, &mut calls)?;
            each(&rows);
            last = Some(rows.run_id);
        }
        Ok(last)
    }

    async fn tasks(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&TaskRows),
    ) -> Result<Option<String>, Error> {
        let snapshot = self.connection.unchecked_transaction()?;
        let sql = "SELECT task_id, status, namespace, kind, queue, priority, available_at, lease_owner, session_id, body
                   FROM tasks WHERE task_id > ?1 ORDER BY task_id LIMIT ?2";
        let names = [
            "tasks.task_id",
            "tasks.status",
            "tasks.namespace",
            "tasks.kind",
            "tasks.queue",
            "tasks.priority",
            "tasks.available_at",
            "tasks.lease_owner",
            "tasks.session_id",
        ];
        let tasks = all(&snapshot, sql, params![after, PAGE_ROWS], |row| {
            Ok((text(row, 0)?, columns(row, 0, &names)?, text(row, 9)?))
        })?;
        let mut last = None;
        // The tasks of a run mostly follow each other.
        let mut runs: BTreeMap<RunId, Option<Arc<OpenTasks>>> = BTreeMap::new();
        for (task_id, columns, body) in tasks {
            let (mut has_run, mut run) = (true, None);
            if let Ok(task) = from_stored::<TaskRow>(&body) {
                let sql = "SELECT 1 FROM runs WHERE run_id = ?1";
                let mut found = snapshot.prepare_cached(sql)?;
                has_run = found.exists([task.run_id.as_str()])?;
                if task.status.is_open() && !runs.contains_key(&task.run_id) {
                    let base = base(&snapshot, task.run_id.as_str(), true)?;
                    let open = base.as_ref().and_then(RunBase::open_tasks);
                    runs.insert(task.run_id.clone(), open);
                }
                run = runs.get(&task.run_id).cloned().flatten();
            }
            let rows = TaskRows {
                task_id,
                columns,
                body,
                has_run,
                run,
            };
            each(&rows);
            last = Some(rows.task_id);
        }
        Ok(last)
    }

    async fn sessions(&mut self, after: [&str; 2]) -> Result<Vec<SessionRows>, Error> {
        let sql = "SELECT namespace, session_id, version, status, queue, lease_owner, deadline, ended_at, updated_at, body
                   FROM worker_sessions WHERE (namespace, session_id) > (?1, ?2) ORDER BY namespace, session_id LIMIT ?3";
        let names = [
            "worker_sessions.version",
            "worker_sessions.status",
            "worker_sessions.queue",
            "worker_sessions.lease_owner",
            "worker_sessions.deadline",
            "worker_sessions.ended_at",
            "worker_sessions.updated_at",
        ];
        all(
            &self.connection,
            sql,
            params![after[0], after[1], PAGE_ROWS],
            |row| {
                Ok(SessionRows {
                    namespace: text(row, 0)?,
                    session_id: text(row, 1)?,
                    columns: columns(row, 2, &names)?,
                    body: text(row, 9)?,
                })
            },
        )
    }

    async fn documents(&mut self, after: [&str; 4]) -> Result<Vec<DocumentRows>, Error> {
        let sql = "SELECT kind, namespace, name, qualifier, version, body FROM documents
                   WHERE (kind, namespace, name, qualifier) > (?1, ?2, ?3, ?4) ORDER BY kind, namespace, name, qualifier LIMIT ?5";
        let parameters = params![after[0], after[1], after[2], after[3], PAGE_ROWS];
        all(&self.connection, sql, parameters, |row| {
            Ok(DocumentRows {
                key: [text(row, 0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?],
                version: row.get(4)?,
                body: text(row, 5)?,
            })
        })
    }

    async fn keys(&mut self, after: [&str; 3]) -> Result<Vec<KeyRows>, Error> {
        let sql = "SELECT k.namespace, k.workflow_type, key, run_id, r.namespace, r.workflow_type, state
                   FROM workflow_keys k LEFT JOIN runs r USING (run_key) WHERE (k.namespace, k.workflow_type, key) > (?1, ?2, ?3)
                   ORDER BY k.namespace, k.workflow_type, key LIMIT ?4";
        let parameters = params![after[0], after[1], after[2], PAGE_ROWS];
        all(&self.connection, sql, parameters, |row| {
            let run_id: Option<String> = row.get(3)?;
            let run = match &run_id {
                Some(_) => Some((text(row, 4)?, text(row, 5)?, text(row, 6)?)),
                None => None,
            };
            Ok(KeyRows {
                key: [text(row, 0)?, text(row, 1)?, text(row, 2)?],
                run_id: run_id.unwrap_or_default(),
                run,
            })
        })
    }

    async fn repeated_events(&mut self) -> Result<Vec<String>, Error> {
        let sql = format!(
            "SELECT id FROM events GROUP BY id HAVING min(run_key) <> max(run_key) LIMIT {ORPHANS_MAX}"
        );
        all(&self.connection, &sql, params![], |row| text(row, 0))
    }

    async fn orphans(&mut self) -> Result<Vec<(&'static str, String)>, Error> {
        let mut orphans = Vec::new();
        for (table, sql) in ORPHANS {
            let sql = format!("{sql} LIMIT {ORPHANS_MAX}");
            let found = all(&self.connection, &sql, params![], |row| {
                Ok(row.get::<_, i64>(0)?)
            })?;
            orphans.extend(
                found
                    .into_iter()
                    .map(|key| (table, format!("run key {key}"))),
            );
        }
        Ok(orphans)
    }

    fn indexed(term: &Term) -> String {
        shown(&sql_value(term))
    }
}

/// Returns the tables, indexes and views of a database with the statements that made them.
fn objects(connection: &Connection) -> Result<Vec<(String, String)>, Error> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'refinery_schema_history' ORDER BY name";
    all(connection, sql, params![], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })
}

/// The calls of children that the parents of a page have.
type Calls = BTreeMap<String, Arc<Vec<ChildCall>>>;

fn run(snapshot: &Connection, run_key: i64, calls: &mut Calls) -> Result<RunRows, Error> {
    let names = [
        "runs.list_status",
        "runs.namespace",
        "runs.workflow_id",
        "runs.run_number",
        "runs.workflow_type",
        "runs.task_queue",
        "runs.business_key",
        "runs.compatibility",
        "runs.started_at",
        "runs.closed_at",
        "runs.correlation_id",
        "runs.parent_id",
    ];
    let (run_id, alarm, workflow, columns) = one(
        snapshot,
        "SELECT run_id, alarm, namespace, workflow_id, run_number, list_status, namespace, workflow_id, run_number, workflow_type, task_queue,
         business_key, compatibility, started_at, closed_at, correlation_id, parent_id FROM runs WHERE run_key = ?1",
        run_key,
        |row| {
            let workflow: (String, String, i64) = (text(row, 2)?, text(row, 3)?, row.get(4)?);
            Ok((text(row, 0)?, row.get(1)?, workflow, columns(row, 5, &names)?))
        },
    )?;
    let base = base(snapshot, &run_id, true)?.unwrap_or_default();
    let mut rows = RunRows {
        columns,
        alarms: vec![("runs.alarm", alarm)],
        ..RunRows::new(&base)
    };
    let wanted = rows.wanted();
    rows.history = history(snapshot, run_key, History::new(wanted.program))?;
    for task_id in wanted.task_ids {
        let sql = "SELECT body FROM tasks WHERE task_id = ?1";
        let body = all(snapshot, sql, params![task_id], |row| text(row, 0))?;
        rows.tasks
            .extend(body.into_iter().map(|body| (task_id.clone(), body)));
    }
    if let Some(hash) = wanted.snapshot {
        let sql =
            "SELECT 1 FROM documents WHERE kind = 'snapshot' AND namespace = '' AND name = ?1";
        rows.has_snapshot = Some(snapshot.prepare_cached(sql)?.exists([hash])?);
    }
    rows.commands = commands(snapshot, run_key)?;
    rows.requests = requests(snapshot, run_key, &workflow, &rows)?;
    let sql = "SELECT name, kind, value, namespace, list_status, started_at FROM run_attributes WHERE run_key = ?1";
    rows.attributes = all(snapshot, sql, params![run_key], |row| {
        Ok(AttributeRow {
            name: text(row, 0)?,
            kind: text(row, 1)?,
            value: shown(&row.get(2)?),
            namespace: text(row, 3)?,
            list_status: text(row, 4)?,
            started_at: row.get(5)?,
        })
    })?;
    let sql = "SELECT w.run_number, runs.run_id FROM workflow_runs w LEFT JOIN runs USING (run_key)
               WHERE w.namespace = ?1 AND w.workflow_id = ?2 AND w.run_number BETWEEN ?3 - 1 AND ?3 + 1";
    let (namespace, workflow_id, number) = &workflow;
    rows.numbers = all(
        snapshot,
        sql,
        params![namespace, workflow_id, number],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    rows.before = before(snapshot, &workflow)?;
    if let Some(parent) = wanted.parent {
        let found = match calls.get(&parent) {
            Some(known) => Arc::clone(known),
            None => Arc::new(child_calls(snapshot, &parent)?),
        };
        calls.insert(parent, Arc::clone(&found));
        rows.parent_calls = Some(found);
    }
    Ok(rows)
}

fn commands(snapshot: &Connection, run_key: i64) -> Result<Vec<CommandRows>, Error> {
    let sql = "SELECT sequence, body FROM commands WHERE run_key = ?1 ORDER BY sequence";
    all(snapshot, sql, params![run_key], |row| {
        Ok(CommandRows {
            sequence: row.get(0)?,
            body: text(row, 1)?,
        })
    })
}

/// Returns the run of the workflow with the number before this one.
fn before(
    snapshot: &Connection,
    (namespace, workflow_id, number): &(String, String, i64),
) -> Result<Option<BeforeRows>, Error> {
    let sql = "SELECT run_key, run_id FROM workflow_runs w JOIN runs USING (run_key)
               WHERE w.namespace = ?1 AND w.workflow_id = ?2 AND w.run_number = ?3 - 1";
    let named = params![namespace, workflow_id, number];
    let found = all(snapshot, sql, named, |row| {
        Ok((row.get::<_, i64>(0)?, text(row, 1)?))
    })?;
    let Some((run_key, run_id)) = found.into_iter().next() else {
        return Ok(None);
    };
    let base = base(snapshot, &run_id, false)?.unwrap_or_default();
    let events = messages(snapshot, run_key)?;
    Ok(Some(BeforeRows {
        state: base.state,
        spec: base.spec,
        commands: commands(snapshot, run_key)?,
        events,
    }))
}

/// Returns the types and payloads of the events of a run that are about messages.
fn messages(snapshot: &Connection, run_key: i64) -> Result<Vec<(String, String)>, Error> {
    let sql = format!(
        "SELECT event_type, payload FROM events WHERE run_key = ?1 AND event_type IN ('{}') ORDER BY sequence",
        Messages::EVENTS.join("', '")
    );
    all(snapshot, &sql, params![run_key], |row| {
        Ok((text(row, 0)?, text(row, 1)?))
    })
}

/// Returns the calls of children in the history of a run.
fn child_calls(snapshot: &Connection, run_id: &str) -> Result<Vec<ChildCall>, Error> {
    let sql = "SELECT payload FROM events JOIN runs USING (run_key)
               WHERE run_id = ?1 AND event_type = 'ChildWorkflowScheduled'";
    let payloads = all(snapshot, sql, params![run_id], |row| text(row, 0))?;
    Ok(payloads.iter().filter_map(|p| ChildCall::read(p)).collect())
}

/// Returns the rows that a run is read from. Its parts can be left out.
fn base(snapshot: &Connection, run_id: &str, with_parts: bool) -> Result<Option<RunBase>, Error> {
    let sql = "SELECT run_key, version, state, body FROM runs LEFT JOIN run_specs USING (run_key) WHERE run_id = ?1";
    let found = all(snapshot, sql, params![run_id], |row| {
        let spec = row
            .get_ref(3)?
            .as_bytes_or_null()
            .map_err(rusqlite::Error::from)?;
        let spec = spec.map(|_| text(row, 3)).transpose()?;
        Ok((row.get::<_, i64>(0)?, row.get(1)?, text(row, 2)?, spec))
    })?;
    let Some((run_key, version, state, spec)) = found.into_iter().next() else {
        return Ok(None);
    };
    let sql = "SELECT part, body FROM run_parts WHERE run_key = ?1";
    let parts = if with_parts {
        all(snapshot, sql, params![run_key], |row| {
            Ok((text(row, 0)?, text(row, 1)?))
        })?
    } else {
        Vec::new()
    };
    Ok(Some(RunBase {
        run_id: run_id.to_owned(),
        version,
        state: Some(state),
        spec,
        parts,
    }))
}

fn history(snapshot: &Connection, run_key: i64, mut history: History) -> Result<History, Error> {
    let mut statement = snapshot.prepare_cached(
        "SELECT sequence, id, event_type, recorded_at, workflow_task_id, payload FROM events WHERE run_key = ?1 ORDER BY sequence",
    )?;
    let mut rows = statement.query([run_key])?;
    while let Some(row) = rows.next()? {
        history.add(RecordedEvent {
            sequence: row.get::<_, i64>(0)?.cast_unsigned(),
            id: &text(row, 1)?,
            event_type: &text(row, 2)?,
            recorded_at: Timestamp::from_micros(row.get(3)?),
            workflow_task_id: row.get::<_, Option<String>>(4)?.as_deref(),
            payload: &text(row, 5)?,
        });
    }
    Ok(history)
}

fn requests(
    snapshot: &Connection,
    run_key: i64,
    (namespace, workflow_id, _): &(String, String, i64),
    rows: &RunRows,
) -> Result<Vec<(String, String, i64)>, Error> {
    let read = |row: &Row<'_>| Ok((text(row, 0)?, text(row, 1)?, row.get(2)?));
    let select = "SELECT request_id, coalesce(run_id, ''), sequence FROM requests q LEFT JOIN runs r USING (run_key)
                  WHERE q.namespace = ?1 AND q.workflow_id = ?2";
    let of_run = format!("{select} AND q.run_key = ?3");
    let mut requests = all(
        snapshot,
        &of_run,
        params![namespace, workflow_id, run_key],
        read,
    )?;
    let of_command = format!("{select} AND q.request_id = ?3");
    for request_id in rows.commands.iter().filter_map(CommandRows::request_id) {
        let found = params![namespace, workflow_id, request_id];
        requests.extend(all(snapshot, &of_command, found, read)?);
    }
    Ok(requests)
}
