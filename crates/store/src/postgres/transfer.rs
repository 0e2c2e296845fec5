//! Reads and writes all rows of a database in the neutral form of `crate::transfer`.

use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::{Instant, sleep};
use tokio_postgres::Row as SqlRow;

use super::connect::{Connected, Role, connect};
use super::inspect::inspect;
use super::migrate::{has_schema, migrate};
use super::options::Options;
use super::read::{parse, text};
use super::text::unescaped;
use super::write::{import, removal};
use crate::Error;
use crate::transfer::{EventRow, Page, Row, Side, Table, Target, not_empty};

/// The tables of a database that a server fills. A new database has rows in none of them.
const TABLES: [&str; 15] = [
    "runs",
    "run_states",
    "run_alarms",
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

/// A server that was just stopped may need a moment to close its connections.
const SERVERS_LEAVE_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A transaction on a database. Dropping it rolls back.
pub(crate) struct PostgresSide {
    client: Connected,
}

impl PostgresSide {
    /// Begins to read a database. Its schema is brought up to date, as a server does.
    pub(crate) async fn source(options: &Options) -> Result<Self, Error> {
        let mut client = connect(options, Role::Reader).await?;
        if !has_schema(&client).await? {
            return Err(Error::Settings(
                "the database has no tables of longhaul: check the name of the database".to_owned(),
            ));
        }
        inspect(&client).await?;
        refuse_servers(&client).await?;
        migrate(&mut client).await?;
        // What removed runs left is not copied.
        while removal::purge(&mut client).await? {}
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .await?;
        Self::without_timeouts(client).await
    }

    /// Makes the tables if there are none, and begins to write them. No server can use the database until the end.
    pub(crate) async fn target(options: &Options) -> Result<Self, Error> {
        let mut client = connect(options, Role::Writer).await?;
        inspect(&client).await?;
        migrate(&mut client).await?;
        client.batch_execute("BEGIN").await?;
        let lock = TABLES.join(", ");
        client
            .batch_execute(&format!("LOCK TABLE {lock} IN ACCESS EXCLUSIVE MODE"))
            .await?;
        for table in TABLES {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {table})");
            if client.query_one(&sql, &[]).await?.try_get(0)? {
                return Err(not_empty(table));
            }
        }
        Self::without_timeouts(client).await
    }

    /// The other store may take long, and this transaction waits for it.
    async fn without_timeouts(client: Connected) -> Result<Self, Error> {
        client
            .batch_execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
            )
            .await?;
        Ok(Self { client })
    }
}

/// Refuses a database while other programs of this name are connected: what they write would not be copied.
async fn refuse_servers(client: &Connected) -> Result<(), Error> {
    let until = Instant::now() + SERVERS_LEAVE_WITHIN;
    loop {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                   AND application_name = current_setting('application_name') AND backend_type = 'client backend'";
        let sessions: i64 = client.query_one(sql, &[]).await?.try_get(0)?;
        if sessions == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Error::Unavailable(format!(
                "the database is in use by longhaul servers ({sessions} connections); stop them first"
            )));
        }
        sleep(LOOK_AGAIN_AFTER).await;
    }
}

impl Side for PostgresSide {
    async fn scan(
        &self,
        table: Table,
        each: &mut impl AsyncFnMut(Vec<Row>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let none: [&str; 0] = [];
        let rows = self.client.query_raw(select(table), none).await?;
        let mut rows = Box::pin(rows);
        let mut page = Page::default();
        while let Some(row) = rows.next().await {
            if let Some(full) = page.push(read(table, &row?)?) {
                each(full).await?;
            }
        }
        match page.rest() {
            Some(rest) => each(rest).await,
            None => Ok(()),
        }
    }
}

impl Target for PostgresSide {
    async fn write(&self, rows: &[Row]) -> Result<(), Error> {
        import::write(&self.client, rows).await
    }

    async fn commit(&self) -> Result<(), Error> {
        Ok(self.client.batch_execute("COMMIT").await?)
    }
}

/// Returns the statement that reads a table, in the order of its key. Ids are ordered by time.
fn select(table: Table) -> &'static str {
    match table {
        Table::Runs => {
            "SELECT r.run_id, s.version, p.body, s.state FROM runs r LEFT JOIN run_states s USING (run_id)
             LEFT JOIN run_specs p USING (run_id) ORDER BY r.run_id"
        }
        Table::Parts => "SELECT run_id, part, body FROM run_parts ORDER BY run_id, part",
        Table::Events => {
            "SELECT run_id, sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id, principal, payload
             FROM events ORDER BY run_id, sequence"
        }
        Table::Tasks => "SELECT task_id, body FROM tasks ORDER BY task_id",
        Table::Logs => {
            "SELECT run_id, task, line, created_at, text FROM task_logs ORDER BY run_id, task, line"
        }
        Table::Commands => "SELECT run_id, sequence, body FROM commands ORDER BY run_id, sequence",
        Table::Requests => {
            "SELECT run_id, namespace, workflow_id, request_id, sequence FROM requests ORDER BY namespace, workflow_id, request_id"
        }
        Table::Keys => {
            "SELECT run_id, namespace, workflow_type, key FROM workflow_keys ORDER BY namespace, workflow_type, key"
        }
        Table::Sessions => {
            "SELECT namespace, session_id, body FROM worker_sessions ORDER BY namespace, session_id"
        }
        Table::Documents => {
            "SELECT kind, namespace, name, qualifier, version, body FROM documents
             WHERE kind NOT IN ('server', 'question', 'rate', 'turn')
             ORDER BY kind, namespace, name, qualifier"
        }
    }
}

fn read(table: Table, row: &SqlRow) -> Result<Row, Error> {
    Ok(match table {
        Table::Runs => {
            let run_id = text(row, 0)?;
            let state: Option<String> = row.try_get(3)?;
            let (Some(state), Some(spec)) = (state, row.try_get(2)?) else {
                return Err(Error::Corrupt(format!(
                    "run {run_id} has no state or no specification"
                )));
            };
            Row::Run {
                run_id,
                version: row.try_get(1)?,
                spec,
                state,
            }
        }
        Table::Parts => Row::Part {
            run_id: text(row, 0)?,
            part: row.try_get(1)?,
            body: row.try_get(2)?,
        },
        Table::Events => Row::Event(Box::new(EventRow {
            run_id: text(row, 0)?,
            sequence: row.try_get(1)?,
            id: text(row, 2)?,
            event_type: text(row, 3)?,
            recorded_at: row.try_get(4)?,
            workflow_task_id: optional(row, 5)?,
            workflow_command_id: optional(row, 6)?,
            principal: optional(row, 7)?,
            payload: row.try_get(8)?,
        })),
        Table::Tasks => Row::Task {
            task_id: text(row, 0)?,
            body: row.try_get(1)?,
        },
        Table::Logs => {
            let run_id = text(row, 0)?;
            let text = parse(row.try_get(4)?, "log of run", &run_id)?;
            Row::Log {
                run_id,
                task: row.try_get(1)?,
                line: row.try_get(2)?,
                created_at: row.try_get(3)?,
                text,
            }
        }
        Table::Commands => Row::Command {
            run_id: text(row, 0)?,
            sequence: row.try_get(1)?,
            body: row.try_get(2)?,
        },
        Table::Requests => Row::Request {
            run_id: text(row, 0)?,
            namespace: text(row, 1)?,
            workflow_id: text(row, 2)?,
            request_id: text(row, 3)?,
            sequence: row.try_get(4)?,
        },
        Table::Keys => Row::Key {
            run_id: text(row, 0)?,
            namespace: text(row, 1)?,
            workflow_type: text(row, 2)?,
            key: text(row, 3)?,
        },
        Table::Sessions => Row::Session {
            namespace: text(row, 0)?,
            session_id: text(row, 1)?,
            body: row.try_get(2)?,
        },
        Table::Documents => Row::Document {
            kind: text(row, 0)?,
            namespace: text(row, 1)?,
            name: text(row, 2)?,
            qualifier: text(row, 3)?,
            version: row.try_get(4)?,
            body: row.try_get(5)?,
        },
    })
}

fn optional(row: &SqlRow, column: usize) -> Result<Option<String>, Error> {
    let found: Option<String> = row.try_get(column)?;
    Ok(found.map(unescaped))
}
