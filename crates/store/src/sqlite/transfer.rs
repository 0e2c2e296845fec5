//! Reads and writes all rows of a database in the neutral form of `crate::transfer`.

use std::path::Path;

use longhaul_engine::change::TaskRow;
use longhaul_engine::session::Session;
use longhaul_protocol::json::from_stored;
use rusqlite::{Connection, OptionalExtension as _, Row as SqlRow, params};
use serde::de::DeserializeOwned;

use super::lock::Lock;
use super::open::{self, Options};
use super::table::{command, document, key, log, removal, session};
use super::visibility::index;
use super::write::{Hot, insert_run};
use crate::Error;
use crate::encode::EventColumns;
use crate::transfer::{EventRow, NewRun, Page, Row, Side, Table, Target, not_empty};

/// The tables of a database. A new one has rows in none of them.
const TABLES: [&str; 13] = [
    "runs",
    "run_specs",
    "workflow_runs",
    "run_parts",
    "run_attributes",
    "events",
    "tasks",
    "task_logs",
    "commands",
    "requests",
    "workflow_keys",
    "worker_sessions",
    "documents",
];

/// A database that no server uses.
pub(crate) struct SqliteSide {
    // Order: the connection closes before the lock is released.
    connection: Connection,
    _lock: Lock,
}

impl SqliteSide {
    /// Opens a database to read it. Its schema is brought up to date, as a server does.
    pub(crate) fn source(path: &Path) -> Result<Self, Error> {
        if !path.is_file() {
            return Err(Error::Settings(format!(
                "{} does not exist: name the data directory or the database file of a longhaul server",
                path.display()
            )));
        }
        let mut source = Self::open(path)?;
        // What removed runs left is not copied.
        loop {
            let transaction = source.connection.transaction()?;
            let more = removal::purge(&transaction)?;
            transaction.commit()?;
            if !more {
                return Ok(source);
            }
        }
    }

    /// Opens or creates a database to write it, and begins the transaction.
    pub(crate) fn target(path: &Path) -> Result<Self, Error> {
        let target = Self::open(path)?;
        target.connection.execute_batch("BEGIN IMMEDIATE")?;
        for table in TABLES {
            let mut any = target
                .connection
                .prepare(&format!("SELECT 1 FROM {table} LIMIT 1"))?;
            if any.exists([])? {
                return Err(not_empty(table));
            }
        }
        Ok(target)
    }

    fn open(path: &Path) -> Result<Self, Error> {
        let (connection, lock) = open::locked(&Options::new(path))?;
        Ok(Self {
            connection,
            _lock: lock,
        })
    }
}

impl Side for SqliteSide {
    async fn scan(
        &self,
        table: Table,
        each: &mut impl AsyncFnMut(Vec<Row>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare(select(table))?;
        let mut rows = statement.query([])?;
        let mut page = Page::default();
        while let Some(row) = rows.next()? {
            if let Some(full) = page.push(read(table, row)?) {
                each(full).await?;
            }
        }
        match page.rest() {
            Some(rest) => each(rest).await,
            None => Ok(()),
        }
    }
}

impl Target for SqliteSide {
    async fn write(&self, rows: &[Row]) -> Result<(), Error> {
        let mut import = Import {
            connection: &self.connection,
            hot: Hot::prepare(&self.connection)?,
            run: None,
        };
        rows.iter().try_for_each(|row| import.write(row))
    }

    async fn commit(&self) -> Result<(), Error> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }
}

/// Returns the statement that reads a table, in the order in which it is stored. The key of a run becomes its id.
fn select(table: Table) -> &'static str {
    match table {
        Table::Runs => {
            "SELECT run_id, version, run_specs.body, state FROM runs LEFT JOIN run_specs USING (run_key) ORDER BY runs.run_key"
        }
        Table::Parts => {
            "SELECT runs.run_id, part, body FROM run_parts LEFT JOIN runs USING (run_key) ORDER BY run_parts.run_key, part"
        }
        Table::Events => {
            "SELECT runs.run_id, sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id, principal, payload
             FROM events LEFT JOIN runs USING (run_key) ORDER BY event_key"
        }
        Table::Tasks => "SELECT task_id, body FROM tasks ORDER BY task_key",
        Table::Logs => {
            "SELECT runs.run_id, task, line, created_at, text FROM task_logs LEFT JOIN runs USING (run_key) ORDER BY task_logs.rowid"
        }
        Table::Commands => {
            "SELECT runs.run_id, sequence, body FROM commands LEFT JOIN runs USING (run_key)
             ORDER BY commands.run_key, sequence"
        }
        Table::Requests => {
            "SELECT runs.run_id, requests.namespace, requests.workflow_id, request_id, sequence
             FROM requests LEFT JOIN runs USING (run_key)
             ORDER BY requests.namespace, requests.workflow_id, request_id"
        }
        Table::Keys => {
            "SELECT runs.run_id, workflow_keys.namespace, workflow_keys.workflow_type, key
             FROM workflow_keys LEFT JOIN runs USING (run_key)
             ORDER BY workflow_keys.namespace, workflow_keys.workflow_type, key"
        }
        Table::Sessions => {
            "SELECT namespace, session_id, body FROM worker_sessions ORDER BY session_key"
        }
        Table::Documents => {
            "SELECT kind, namespace, name, qualifier, version, body FROM documents
             WHERE kind NOT IN ('server', 'question', 'rate', 'turn')
             ORDER BY kind, namespace, name, qualifier"
        }
    }
}

fn read(table: Table, row: &SqlRow<'_>) -> Result<Row, Error> {
    Ok(match table {
        Table::Runs => Row::Run {
            run_id: row.get(0)?,
            version: row.get(1)?,
            spec: present(row, 2, "a run has no specification")?,
            state: row.get(3)?,
        },
        Table::Parts => Row::Part {
            run_id: run_of(row, table)?,
            part: row.get(1)?,
            body: row.get(2)?,
        },
        Table::Events => Row::Event(Box::new(EventRow {
            run_id: run_of(row, table)?,
            sequence: row.get(1)?,
            id: row.get(2)?,
            event_type: row.get(3)?,
            recorded_at: row.get(4)?,
            workflow_task_id: row.get(5)?,
            workflow_command_id: row.get(6)?,
            principal: row.get(7)?,
            payload: row.get(8)?,
        })),
        Table::Tasks => Row::Task {
            task_id: row.get(0)?,
            body: row.get(1)?,
        },
        Table::Logs => Row::Log {
            run_id: run_of(row, table)?,
            task: row.get(1)?,
            line: row.get(2)?,
            created_at: row.get(3)?,
            text: row.get(4)?,
        },
        Table::Commands => Row::Command {
            run_id: run_of(row, table)?,
            sequence: row.get(1)?,
            body: row.get(2)?,
        },
        Table::Requests => Row::Request {
            run_id: run_of(row, table)?,
            namespace: row.get(1)?,
            workflow_id: row.get(2)?,
            request_id: row.get(3)?,
            sequence: row.get(4)?,
        },
        Table::Keys => Row::Key {
            run_id: run_of(row, table)?,
            namespace: row.get(1)?,
            workflow_type: row.get(2)?,
            key: row.get(3)?,
        },
        Table::Sessions => Row::Session {
            namespace: row.get(0)?,
            session_id: row.get(1)?,
            body: row.get(2)?,
        },
        Table::Documents => Row::Document {
            kind: row.get(0)?,
            namespace: row.get(1)?,
            name: row.get(2)?,
            qualifier: row.get(3)?,
            version: row.get(4)?,
            body: row.get(5)?,
        },
    })
}

/// Returns the run that a row belongs to.
fn run_of(row: &SqlRow<'_>, table: Table) -> Result<String, Error> {
    present(row, 0, &format!("one of the {table} belongs to no run"))
}

fn present(row: &SqlRow<'_>, column: usize, missing: &str) -> Result<String, Error> {
    let text: Option<String> = row.get(column)?;
    text.ok_or_else(|| Error::Corrupt(missing.to_owned()))
}

/// Writes rows with the statements of commits.
struct Import<'c> {
    connection: &'c Connection,
    hot: Hot<'c>,
    /// The run of the last row and its key. The rows of a run mostly follow each other.
    run: Option<(String, i64)>,
}

impl Import<'_> {
    fn write(&mut self, row: &Row) -> Result<(), Error> {
        let connection = self.connection;
        match row {
            Row::Run {
                run_id,
                version,
                spec,
                state,
            } => {
                let run = NewRun::read(run_id, *version, spec, state)?;
                let run_key = insert_run(connection, &run.change, &run.bodies)?;
                let entries = run.bodies.attributes.as_deref().unwrap_or_default();
                index::write(connection, run_key, true, entries)
            }
            Row::Part { run_id, part, body } => {
                let run_key = self.run_key(run_id)?;
                self.hot.put_part(run_key, part, body)
            }
            Row::Event(event) => {
                let run_key = self.run_key(&event.run_id)?;
                self.hot
                    .insert_event(run_key, &EventColumns::from(&**event))
            }
            Row::Task { task_id, body } => {
                let task: TaskRow = parse(body, "task", task_id)?;
                self.hot.put_task(&task, body)
            }
            Row::Log {
                run_id,
                task,
                line,
                created_at,
                text,
            } => {
                let run_key = self.run_key(run_id)?;
                log::put(connection, [run_key, *task, *line], *created_at, text)
            }
            Row::Command {
                run_id,
                sequence,
                body,
            } => {
                let run_key = self.run_key(run_id)?;
                command::put(connection, run_key, *sequence, body)
            }
            Row::Request {
                namespace,
                workflow_id,
                request_id,
                run_id,
                sequence,
            } => {
                let named = (self.run_key(run_id)?, *sequence);
                command::put_request(connection, [namespace, workflow_id], request_id, named)
            }
            Row::Key {
                namespace,
                workflow_type,
                key,
                run_id,
            } => {
                let run_key = self.run_key(run_id)?;
                key::put(connection, [namespace, workflow_type, key], run_key)
            }
            Row::Session {
                session_id, body, ..
            } => {
                let session: Session = parse(body, "session", session_id)?;
                session::write(connection, &session, body)
            }
            Row::Document {
                kind,
                namespace,
                name,
                qualifier,
                version,
                body,
            } => document::put(
                connection,
                [kind, namespace, name, qualifier],
                *version,
                body,
            ),
        }
    }

    fn run_key(&mut self, run_id: &str) -> Result<i64, Error> {
        if let Some((known, run_key)) = &self.run
            && known == run_id
        {
            return Ok(*run_key);
        }
        let run_key: Option<i64> = self
            .connection
            .prepare_cached("SELECT run_key FROM runs WHERE run_id = ?1")?
            .query_row(params![run_id], |row| row.get(0))
            .optional()?;
        let Some(run_key) = run_key else {
            return Err(Error::Corrupt(format!(
                "a row belongs to run {run_id}, which is not stored"
            )));
        };
        self.run = Some((run_id.to_owned(), run_key));
        Ok(run_key)
    }
}

fn parse<T: DeserializeOwned>(body: &str, what: &str, id: &str) -> Result<T, Error> {
    from_stored(body).map_err(|error| Error::unreadable(what, id, error))
}
