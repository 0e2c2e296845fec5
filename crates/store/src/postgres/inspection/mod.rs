//! Reads rows for a check (`crate::inspection`). A page is one read-only transaction with one snapshot, beside servers. `runs` reads
//! the runs of a page.

mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use longhaul_engine::change::TaskRow;
use longhaul_engine::inspection::Problem;
use longhaul_engine::visibility::Term;
use longhaul_protocol::json::from_stored;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use self::runs::Batch;
use super::connect::{Connected, Role, connect};
use super::migrate::{expected_schema, refuse_other_schema};
use super::options::Options;
use super::read::{query, text};
use super::text::{escaped, unescaped, value};
use crate::Error;
use crate::inspection::schema::Tables;
use crate::inspection::{
    Columns, DocumentRows, Inspected, KeyRows, ORPHANS_MAX, OpenTasks, PAGE_ROWS, RunRows,
    SessionRows, TaskRows,
};

/// Runs that are read at once for the check of their tasks.
const RUNS_AT_ONCE: usize = 10;

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
        // A check takes as long as the data needs. The ids of all events are grouped once.
        client
            .batch_execute(
                "SET statement_timeout = 0; SET default_transaction_read_only = on; SET work_mem = '64MB'",
            )
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

    /// Returns those of these runs that are stored.
    async fn stored(&self, ids: impl Iterator<Item = &String>) -> Result<BTreeSet<String>, Error> {
        let ids: BTreeSet<_> = ids.map(|id| escaped(id).into_owned()).collect();
        let ids: Vec<String> = ids.into_iter().collect();
        let sql = "SELECT run_id FROM runs WHERE run_id = ANY($1::text[])";
        let rows = query(&self.client, sql, &[&ids]).await?;
        rows.iter().map(|row| text(row, 0)).collect()
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
        let mut ids = runs::page(&self.client, after).await?;
        if !ids.is_empty() {
            // Boxed: it has the futures of all tables.
            let batch = Box::pin(Batch::read(&self.client, &ids)).await?;
            Box::pin(batch.finish(each)).await?;
        }
        self.end().await?;
        Ok(ids.pop())
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
        let rows = query(&self.client, sql, &[&escaped(after), &PAGE_ROWS]).await?;
        let mut tasks = Vec::new();
        for row in &rows {
            let body: String = row.try_get(9)?;
            let task = from_stored::<TaskRow>(&body).ok();
            let run = task.map(|task| (task.run_id.to_string(), task.status.is_open()));
            tasks.push((text(row, 0)?, columns(row, 0, &names)?, body, run));
        }
        let named = tasks.iter().filter_map(|(.., run)| run.as_ref());
        let stored = self.stored(named.clone().map(|(run_id, _)| run_id)).await?;
        // Only an open task needs more of its run.
        let of_open: BTreeSet<&String> = named
            .filter(|(_, is_open)| *is_open)
            .map(|(run_id, _)| run_id)
            .collect();
        let of_open: Vec<String> = of_open.into_iter().cloned().collect();
        let mut open: BTreeMap<String, Arc<OpenTasks>> = BTreeMap::new();
        // A few runs at once: their parts may be large.
        for ids in of_open.chunks(RUNS_AT_ONCE) {
            for (run_id, base) in runs::bases(&self.client, ids).await? {
                open.extend(base.open_tasks().map(|tasks| (run_id, tasks)));
            }
        }
        self.end().await?;
        let mut last = None;
        for (task_id, columns, body, run) in tasks {
            let run_id = run.as_ref().map(|(run_id, _)| run_id);
            let rows = TaskRows {
                task_id,
                columns,
                body,
                has_run: run_id.is_none_or(|run_id| stored.contains(run_id)),
                run: run_id.and_then(|run_id| open.get(run_id).cloned()),
            };
            each(&rows);
            last = Some(rows.task_id);
        }
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

    async fn repeated_events(&mut self) -> Result<Vec<String>, Error> {
        let sql = format!(
            "SELECT id FROM events GROUP BY id HAVING min(run_id) <> max(run_id) LIMIT {ORPHANS_MAX}"
        );
        let rows = self.client.query(&sql, &[]).await?;
        rows.iter().map(|row| text(row, 0)).collect()
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
