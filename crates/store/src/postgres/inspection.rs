//! Reads rows for a check (`crate::inspection`). A page is one read-only transaction with one snapshot, beside servers.

use futures::StreamExt as _;
use longhaul_engine::change::TaskRow;
use longhaul_engine::inspection::{History, Problem, RecordedEvent};
use longhaul_engine::visibility::Term;
use longhaul_protocol::Timestamp;
use longhaul_protocol::json::from_stored;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::connect::{Connected, Role, connect};
use super::migrate::{expected_schema, refuse_other_schema};
use super::options::Options;
use super::read::{query, query_opt, text};
use super::text::{escaped, unescaped, value};
use crate::Error;
use crate::inspection::schema::Tables;
use crate::inspection::{
    AttributeRow, Columns, CommandRows, DocumentRows, Inspected, KeyRows, ORPHANS_MAX, PAGE_ROWS,
    RunBase, RunRows, SessionRows, TaskRows,
};

/// Tables whose rows belong to a run. A run has a row in the first of them.
const OF_RUNS: [&str; 8] = [
    "run_states",
    "run_specs",
    "workflow_runs",
    "run_parts",
    "events",
    "commands",
    "run_attributes",
    "task_logs",
];

/// A database that is checked.
pub(crate) struct PostgresInspection {
    client: Connected,
}

impl PostgresInspection {
    pub(crate) async fn open(options: &Options) -> Result<Self, Error> {
        let mut client = connect(options, Role::Reader).await?;
        refuse_other_schema(&mut client).await?;
        // A check takes as long as the data needs.
        client
            .batch_execute("SET statement_timeout = 0; SET default_transaction_read_only = on")
            .await?;
        Ok(Self { client })
    }

    async fn begin(&self) -> Result<(), Error> {
        let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
        Ok(self.client.batch_execute(sql).await?)
    }

    async fn end(&self) -> Result<(), Error> {
        Ok(self.client.batch_execute("COMMIT").await?)
    }

    /// Returns the rows that a run is read from. Its parts can be left out.
    async fn base(&self, run_id: &str, with_parts: bool) -> Result<Option<RunBase>, Error> {
        let sql =
            "SELECT s.version, s.state, p.body FROM runs r LEFT JOIN run_states s USING (run_id)
                   LEFT JOIN run_specs p USING (run_id) WHERE r.run_id = $1";
        let id = escaped(run_id);
        let Some(row) = query_opt(&self.client, sql, &[&id]).await? else {
            return Ok(None);
        };
        let mut base = RunBase {
            run_id: run_id.to_owned(),
            version: row.try_get(0)?,
            state: row.try_get(1)?,
            spec: row.try_get(2)?,
            parts: Vec::new(),
        };
        if with_parts {
            let sql = "SELECT part, body FROM run_parts WHERE run_id = $1";
            for row in query(&self.client, sql, &[&id]).await? {
                base.parts.push((row.try_get(0)?, row.try_get(1)?));
            }
        }
        Ok(Some(base))
    }

    async fn run(&self, run_id: &str) -> Result<RunRows, Error> {
        let id = escaped(run_id);
        let sql = "SELECT a.alarm, s.alarm, r.namespace, r.workflow_id, r.run_number, r.workflow_type, r.task_queue, r.business_key,
                   r.compatibility, r.started_at, r.list_status, r.closed_at, r.correlation_id, r.parent_id, s.list_status, s.closed_at,
                   s.status, s.updated_at, s.definition, s.priority, s.created_by, s.idempotency_key, s.classifier, s.reason,
                   s.failed_references
                   FROM runs r LEFT JOIN run_states s USING (run_id) LEFT JOIN run_alarms a USING (run_id) WHERE r.run_id = $1";
        let names = [
            "runs.namespace",
            "runs.workflow_id",
            "runs.run_number",
            "runs.workflow_type",
            "runs.task_queue",
            "runs.business_key",
            "runs.compatibility",
            "runs.started_at",
            "runs.list_status",
            "runs.closed_at",
            "runs.correlation_id",
            "runs.parent_id",
            "run_states.list_status",
            "run_states.closed_at",
            "run_states.status",
            "run_states.updated_at",
            "run_states.definition",
            "run_states.priority",
            "run_states.created_by",
            "run_states.idempotency_key",
            "run_states.classifier",
            "run_states.reason",
            "run_states.failed_references",
        ];
        let row = query_opt(&self.client, sql, &[&id]).await?;
        let row =
            row.ok_or_else(|| Error::Corrupt(format!("run {run_id} is listed but not stored")))?;
        let mut rows = RunRows {
            base: self.base(run_id, true).await?.unwrap_or_default(),
            columns: columns(&row, 2, &names)?,
            alarms: vec![
                ("run_alarms.alarm", row.try_get(0)?),
                ("run_states.alarm", row.try_get(1)?),
            ],
            ..RunRows::default()
        };
        let wanted = rows.base.wanted();
        rows.history = self.history(run_id, History::new(wanted.program)).await?;
        let task_ids: Vec<_> = wanted.task_ids.iter().map(|id| escaped(id)).collect();
        let sql = "SELECT task_id, body FROM tasks WHERE task_id = ANY($1::text[])";
        for row in query(&self.client, sql, &[&task_ids]).await? {
            rows.tasks.push((text(&row, 0)?, row.try_get(1)?));
        }
        if let Some(hash) = wanted.snapshot {
            let sql =
                "SELECT 1 FROM documents WHERE kind = 'snapshot' AND namespace = '' AND name = $1";
            let found = query_opt(&self.client, sql, &[&escaped(&hash)]).await?;
            rows.has_snapshot = Some(found.is_some());
        }
        let sql = "SELECT sequence, body FROM commands WHERE run_id = $1 ORDER BY sequence";
        for row in query(&self.client, sql, &[&id]).await? {
            rows.commands.push(CommandRows {
                sequence: row.try_get(0)?,
                body: row.try_get(1)?,
            });
        }
        let sql = "SELECT name, kind, value, namespace, list_status, started_at FROM run_attributes WHERE run_id = $1";
        for row in query(&self.client, sql, &[&id]).await? {
            rows.attributes.push(AttributeRow {
                name: text(&row, 0)?,
                kind: text(&row, 1)?,
                value: row.try_get(2)?,
                namespace: text(&row, 3)?,
                list_status: text(&row, 4)?,
                started_at: row.try_get(5)?,
            });
        }
        self.workflow(&row, &mut rows).await?;
        Ok(rows)
    }

    /// Reads the rows of the workflow of a run: request ids and run numbers.
    async fn workflow(&self, run: &Row, rows: &mut RunRows) -> Result<(), Error> {
        let (namespace, workflow_id): (&str, &str) = (run.try_get(2)?, run.try_get(3)?);
        let number: i64 = run.try_get(4)?;
        let request_ids = rows.commands.iter().filter_map(CommandRows::request_id);
        let request_ids: Vec<String> = request_ids.map(|id| escaped(&id).into_owned()).collect();
        let sql = "SELECT request_id, run_id, sequence FROM requests
                   WHERE namespace = $1 AND workflow_id = $2 AND (run_id = $3 OR request_id = ANY($4::text[]))";
        let run_id = escaped(&rows.base.run_id);
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&namespace, &workflow_id, &run_id, &request_ids];
        let mut requests = Vec::new();
        for row in query(&self.client, sql, &parameters).await? {
            requests.push((text(&row, 0)?, text(&row, 1)?, row.try_get(2)?));
        }
        let sql = "SELECT run_number, run_id FROM workflow_runs
                   WHERE namespace = $1 AND workflow_id = $2 AND run_number BETWEEN $3::int8 - 1 AND $3::int8 + 1";
        for row in query(&self.client, sql, &[&namespace, &workflow_id, &number]).await? {
            rows.numbers.push((row.try_get(0)?, Some(text(&row, 1)?)));
        }
        rows.requests = requests;
        Ok(())
    }

    async fn history(&self, run_id: &str, mut history: History) -> Result<History, Error> {
        let sql = "SELECT sequence, id, event_type, recorded_at, payload FROM events WHERE run_id = $1 ORDER BY sequence";
        let statement = self.client.prepare_cached(sql).await?;
        let events = self.client.query_raw(&statement, [escaped(run_id)]).await?;
        let mut events = Box::pin(events);
        while let Some(row) = events.next().await {
            let row = row?;
            history.add(RecordedEvent {
                sequence: row.try_get::<_, i64>(0)?.cast_unsigned(),
                id: row.try_get(1)?,
                event_type: row.try_get(2)?,
                recorded_at: Timestamp::from_micros(row.try_get(3)?),
                payload: row.try_get(4)?,
            });
        }
        Ok(history)
    }
}

impl Inspected for PostgresInspection {
    async fn schema(&mut self) -> Result<Vec<Problem>, Error> {
        let mut found = Tables::default();
        let sql = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = current_schema()";
        for row in query(&self.client, sql, &[]).await? {
            let columns = found.tables.entry(row.try_get(0)?).or_default();
            columns.insert(row.try_get(1)?);
        }
        let sql = "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                   JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND i.indisvalid";
        for row in query(&self.client, sql, &[]).await? {
            found.indexes.insert(row.try_get(0)?);
        }
        Ok(expected_schema().missing_in(&found))
    }

    async fn runs(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&RunRows),
    ) -> Result<Option<String>, Error> {
        self.begin().await?;
        let sql = "SELECT run_id FROM runs WHERE run_id > $1 ORDER BY run_id LIMIT $2";
        let mut last = None;
        for row in query(&self.client, sql, &[&escaped(after), &PAGE_ROWS]).await? {
            let run_id = text(&row, 0)?;
            each(&self.run(&run_id).await?);
            last = Some(run_id);
        }
        self.end().await?;
        Ok(last)
    }

    async fn tasks(
        &mut self,
        after: &str,
        each: &mut impl FnMut(&TaskRows),
    ) -> Result<Option<String>, Error> {
        self.begin().await?;
        let sql = "SELECT task_id, status, namespace, kind, queue, priority, available_at, lease_owner, session_id, body
                   FROM tasks WHERE task_id > $1 ORDER BY task_id LIMIT $2";
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
        let mut last = None;
        for row in query(&self.client, sql, &[&escaped(after), &PAGE_ROWS]).await? {
            let body: String = row.try_get(9)?;
            let run = match from_stored::<TaskRow>(&body) {
                Ok(task) => {
                    self.base(task.run_id.as_str(), task.status.is_open())
                        .await?
                }
                Err(_) => None,
            };
            let task_id = text(&row, 0)?;
            let columns = columns(&row, 0, &names)?;
            let rows = TaskRows {
                task_id,
                columns,
                body,
                run,
            };
            each(&rows);
            last = Some(rows.task_id);
        }
        self.end().await?;
        Ok(last)
    }

    async fn sessions(&mut self, after: [&str; 2]) -> Result<Vec<SessionRows>, Error> {
        let sql = "SELECT namespace, session_id, version, status, queue, lease_owner, deadline, ended_at, updated_at, body
                   FROM worker_sessions WHERE (namespace, session_id) > ($1, $2) ORDER BY namespace, session_id LIMIT $3";
        let names = [
            "worker_sessions.version",
            "worker_sessions.status",
            "worker_sessions.queue",
            "worker_sessions.lease_owner",
            "worker_sessions.deadline",
            "worker_sessions.ended_at",
            "worker_sessions.updated_at",
        ];
        let [namespace, session_id] = after.map(escaped);
        let rows = query(&self.client, sql, &[&namespace, &session_id, &PAGE_ROWS]).await?;
        rows.iter()
            .map(|row| {
                Ok(SessionRows {
                    namespace: text(row, 0)?,
                    session_id: text(row, 1)?,
                    columns: columns(row, 2, &names)?,
                    body: row.try_get(9)?,
                })
            })
            .collect()
    }

    async fn documents(&mut self, after: [&str; 4]) -> Result<Vec<DocumentRows>, Error> {
        let sql = "SELECT kind, namespace, name, qualifier, version, body FROM documents
                   WHERE (kind, namespace, name, qualifier) > ($1, $2, $3, $4) ORDER BY kind, namespace, name, qualifier LIMIT $5";
        let [kind, namespace, name, qualifier] = after.map(escaped);
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&kind, &namespace, &name, &qualifier, &PAGE_ROWS];
        let rows = query(&self.client, sql, &parameters).await?;
        rows.iter()
            .map(|row| {
                Ok(DocumentRows {
                    key: [text(row, 0)?, text(row, 1)?, text(row, 2)?, text(row, 3)?],
                    version: row.try_get(4)?,
                    body: row.try_get(5)?,
                })
            })
            .collect()
    }

    async fn keys(&mut self, after: [&str; 3]) -> Result<Vec<KeyRows>, Error> {
        let sql = "SELECT k.namespace, k.workflow_type, k.key, k.run_id, r.namespace, r.workflow_type, s.state
                   FROM workflow_keys k LEFT JOIN runs r USING (run_id) LEFT JOIN run_states s USING (run_id)
                   WHERE (k.namespace, k.workflow_type, k.key) > ($1, $2, $3) ORDER BY k.namespace, k.workflow_type, k.key LIMIT $4";
        let [namespace, workflow_type, key] = after.map(escaped);
        let parameters: [&(dyn ToSql + Sync); 4] = [&namespace, &workflow_type, &key, &PAGE_ROWS];
        let rows = query(&self.client, sql, &parameters).await?;
        rows.iter()
            .map(|row| {
                let state: Option<String> = row.try_get(6)?;
                let run = match state {
                    Some(state) => Some((text(row, 4)?, text(row, 5)?, state)),
                    None => None,
                };
                Ok(KeyRows {
                    key: [text(row, 0)?, text(row, 1)?, text(row, 2)?],
                    run_id: text(row, 3)?,
                    run,
                })
            })
            .collect()
    }

    async fn orphans(&mut self) -> Result<Vec<(&'static str, String)>, Error> {
        let mut orphans = Vec::new();
        let mut find = async |table: &'static str, sql: String| -> Result<(), Error> {
            for row in self.client.query(&sql, &[]).await? {
                orphans.push((table, format!("run {}", text(&row, 0)?)));
            }
            Ok(())
        };
        for table in OF_RUNS {
            let sql = format!(
                "SELECT DISTINCT run_id FROM {table} t WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = t.run_id)
                 LIMIT {ORPHANS_MAX}"
            );
            find(table, sql).await?;
        }
        let sql = format!(
            "SELECT DISTINCT run_id FROM run_alarms a WHERE NOT EXISTS (SELECT 1 FROM run_states s WHERE s.run_id = a.run_id)
             LIMIT {ORPHANS_MAX}"
        );
        find("run_alarms", sql).await?;
        let sql = format!(
            "SELECT DISTINCT run_id FROM requests q WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = q.run_id
             AND r.namespace = q.namespace AND r.workflow_id = q.workflow_id) LIMIT {ORPHANS_MAX}"
        );
        find("requests", sql).await?;
        Ok(orphans)
    }

    fn indexed(term: &Term) -> String {
        value(term)
    }
}

fn columns(row: &Row, first: usize, names: &[&'static str]) -> Result<Columns, Error> {
    let mut columns = Columns::new();
    for (place, name) in names.iter().enumerate() {
        let place = first + place;
        let kind = row.columns().get(place).map(tokio_postgres::Column::type_);
        let value = if kind == Some(&Type::INT8) {
            row.try_get::<_, Option<i64>>(place)?
                .map(|number| number.to_string())
        } else if kind == Some(&Type::INT2) {
            row.try_get::<_, Option<i16>>(place)?
                .map(|number| number.to_string())
        } else {
            row.try_get::<_, Option<String>>(place)?.map(unescaped)
        };
        columns.push((*name, value));
    }
    Ok(columns)
}
