//! Reads the runs of a page with one statement per table, so that the number of statements does not grow with the runs.
//!
//! Everything but the events is read first. The events come last, in the order of the runs, and only the fold of one history is in
//! memory at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use longhaul_engine::inspection::{ChildCall, History, Messages, RecordedEvent};
use longhaul_protocol::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns;
use crate::Error;
use crate::inspection::{
    AttributeRow, BeforeRows, CommandRows, PAGE_ROWS, RunBase, RunRows, Wanted,
};
use crate::postgres::connect::Connected;
use crate::postgres::read::{query, text};
use crate::postgres::text::{escaped, unescaped};

/// Bytes of specifications and parts that a page may have. A run that is larger is a page of its own.
const PAGE_BYTES_MAX: i64 = 32 << 20;

/// The names of the columns that [`RUNS`] reads after the first six.
const COLUMNS: [&str; 23] = [
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

const RUNS: &str = "SELECT r.run_id, s.version, s.state, p.body, a.alarm, s.alarm,
     r.namespace, r.workflow_id, r.run_number, r.workflow_type, r.task_queue, r.business_key, r.compatibility, r.started_at,
     r.list_status, r.closed_at, r.correlation_id, r.parent_id, s.list_status, s.closed_at, s.status, s.updated_at, s.definition,
     s.priority, s.created_by, s.idempotency_key, s.classifier, s.reason, s.failed_references
     FROM runs r LEFT JOIN run_states s USING (run_id) LEFT JOIN run_specs p USING (run_id) LEFT JOIN run_alarms a USING (run_id)
     WHERE r.run_id = ANY($1::text[]) ORDER BY r.run_id";

/// The runs of a page while their rows are read.
pub(super) struct Batch<'c> {
    client: &'c Connected,
    runs: BTreeMap<String, Found>,
}

struct Found {
    rows: RunRows,
    wanted: Wanted,
    /// Namespace, workflow id and run number, as the columns have them.
    workflow: (String, String, i64),
}

/// Returns the ids of the next runs, as many as fit.
pub(super) async fn page(client: &Connected, after: &str) -> Result<Vec<String>, Error> {
    let sql = "SELECT r.run_id, (coalesce((SELECT sum(octet_length(p.body)) FROM run_parts p WHERE p.run_id = r.run_id), 0)
               + coalesce((SELECT octet_length(s.body) FROM run_specs s WHERE s.run_id = r.run_id), 0))::int8
               FROM runs r WHERE r.run_id > $1 AND r.namespace <> '' ORDER BY r.run_id LIMIT $2";
    let mut ids = Vec::new();
    let mut bytes = 0;
    for row in query(client, sql, &[&escaped(after), &PAGE_ROWS]).await? {
        bytes += row.try_get::<_, i64>(1)?;
        if bytes > PAGE_BYTES_MAX && !ids.is_empty() {
            break;
        }
        ids.push(text(&row, 0)?);
    }
    Ok(ids)
}

/// Returns the rows that runs are read from, with their parts.
pub(super) async fn bases(
    client: &Connected,
    ids: &[String],
) -> Result<BTreeMap<String, RunBase>, Error> {
    let sql = "SELECT r.run_id, s.version, s.state, p.body FROM runs r LEFT JOIN run_states s USING (run_id)
               LEFT JOIN run_specs p USING (run_id) WHERE r.run_id = ANY($1::text[])";
    let mut bases = BTreeMap::new();
    for row in query(client, sql, &[&keys(ids)]).await? {
        let base = base(&row)?;
        bases.insert(base.run_id.clone(), base);
    }
    add_parts(client, &mut bases).await?;
    Ok(bases)
}

fn base(row: &Row) -> Result<RunBase, Error> {
    Ok(RunBase {
        run_id: text(row, 0)?,
        version: row.try_get(1)?,
        state: row.try_get(2)?,
        spec: row.try_get(3)?,
        parts: Vec::new(),
    })
}

async fn add_parts(client: &Connected, bases: &mut BTreeMap<String, RunBase>) -> Result<(), Error> {
    let ids: Vec<_> = bases.keys().map(|id| escaped(id).into_owned()).collect();
    let sql = "SELECT run_id, part, body FROM run_parts WHERE run_id = ANY($1::text[])";
    for row in query(client, sql, &[&ids]).await? {
        if let Some(base) = bases.get_mut(&text(&row, 0)?) {
            base.parts.push((row.try_get(1)?, row.try_get(2)?));
        }
    }
    Ok(())
}

fn keys(ids: &[String]) -> Vec<String> {
    ids.iter().map(|id| escaped(id).into_owned()).collect()
}

impl<'c> Batch<'c> {
    /// Reads everything of these runs but their events.
    pub(super) async fn read(client: &'c Connected, ids: &[String]) -> Result<Self, Error> {
        let rows = query(client, RUNS, &[&keys(ids)]).await?;
        let mut bases = BTreeMap::new();
        for row in &rows {
            let base = base(row)?;
            bases.insert(base.run_id.clone(), base);
        }
        add_parts(client, &mut bases).await?;
        let mut batch = Self {
            client,
            runs: BTreeMap::new(),
        };
        for row in &rows {
            let run_id = text(row, 0)?;
            // Taken out, so that the bodies are not kept beside what was parsed from them.
            let Some(base) = bases.remove(&run_id) else {
                continue;
            };
            let rows = RunRows {
                columns: columns(row, 6, &COLUMNS)?,
                alarms: vec![
                    ("run_alarms.alarm", row.try_get(4)?),
                    ("run_states.alarm", row.try_get(5)?),
                ],
                ..RunRows::new(&base)
            };
            let wanted = rows.wanted();
            let workflow = (text(row, 6)?, text(row, 7)?, row.try_get(8)?);
            let found = Found {
                rows,
                wanted,
                workflow,
            };
            batch.runs.insert(run_id, found);
        }
        batch.read_commands().await?;
        batch.read_attributes().await?;
        batch.read_requests().await?;
        batch.read_numbers().await?;
        batch.read_tasks().await?;
        batch.read_snapshots().await?;
        batch.read_before().await?;
        batch.read_parents().await?;
        Ok(batch)
    }

    /// Reads the events, and hands over each run when its history is complete.
    pub(super) async fn finish(mut self, each: &mut impl FnMut(&RunRows)) -> Result<(), Error> {
        let sql = "SELECT run_id, sequence, id, event_type, recorded_at, workflow_task_id, payload FROM events
                   WHERE run_id = ANY($1::text[]) ORDER BY run_id, sequence";
        let statement = self.client.prepare_cached(sql).await?;
        let ids = self.ids();
        let events = self.client.query_raw(&statement, [&ids]).await?;
        let mut events = Box::pin(events);
        let mut current: Option<(String, Found)> = None;
        while let Some(row) = events.next().await {
            let row = row?;
            let key: &str = row.try_get(0)?;
            if current.as_ref().is_none_or(|(known, _)| known != key) {
                if let Some((_, found)) = current.take() {
                    each(&found.rows);
                }
                let Some(mut found) = self.runs.remove(&unescaped(key.to_owned())) else {
                    continue;
                };
                found.rows.history = History::new(found.wanted.program);
                current = Some((key.to_owned(), found));
            }
            let Some((_, found)) = &mut current else {
                continue;
            };
            found.rows.history.add(RecordedEvent {
                sequence: row.try_get::<_, i64>(1)?.cast_unsigned(),
                id: row.try_get(2)?,
                event_type: row.try_get(3)?,
                recorded_at: Timestamp::from_micros(row.try_get(4)?),
                workflow_task_id: row.try_get(5)?,
                payload: row.try_get(6)?,
            });
        }
        // The last one, and those without any event.
        for found in current.into_iter().map(|(_, found)| found) {
            each(&found.rows);
        }
        for mut found in std::mem::take(&mut self.runs).into_values() {
            found.rows.history = History::new(found.wanted.program);
            each(&found.rows);
        }
        Ok(())
    }

    fn ids(&self) -> Vec<String> {
        self.runs
            .keys()
            .map(|id| escaped(id).into_owned())
            .collect()
    }

    /// Runs a statement whose first column is the run, and adds each row to its run.
    async fn add(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
        mut add: impl FnMut(&mut Found, &Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for row in query(self.client, sql, parameters).await? {
            if let Some(found) = self.runs.get_mut(&text(&row, 0)?) {
                add(found, &row)?;
            }
        }
        Ok(())
    }

    async fn read_commands(&mut self) -> Result<(), Error> {
        let ids = self.ids();
        self.add(COMMANDS, &[&ids], |found, row| {
            found.rows.commands.push(command(row)?);
            Ok(())
        })
        .await
    }

    async fn read_attributes(&mut self) -> Result<(), Error> {
        let sql = "SELECT run_id, name, kind, value, namespace, list_status, started_at FROM run_attributes
                   WHERE run_id = ANY($1::text[])";
        let ids = self.ids();
        self.add(sql, &[&ids], |found, row| {
            found.rows.attributes.push(AttributeRow {
                name: text(row, 1)?,
                kind: text(row, 2)?,
                value: row.try_get(3)?,
                namespace: text(row, 4)?,
                list_status: text(row, 5)?,
                started_at: row.try_get(6)?,
            });
            Ok(())
        })
        .await
    }

    /// Reads the request ids that name these runs, and those that their commands have.
    async fn read_requests(&mut self) -> Result<(), Error> {
        let mut columns: [Vec<String>; 3] = Default::default();
        let mut named: [Vec<String>; 4] = Default::default();
        for (run_id, found) in &self.runs {
            let workflow = [run_id, &found.workflow.0, &found.workflow.1];
            let workflow = workflow.map(|text| escaped(text).into_owned());
            for request_id in found
                .rows
                .commands
                .iter()
                .filter_map(CommandRows::request_id)
            {
                let [run, namespace, workflow_id] = workflow.clone();
                let request = [
                    run,
                    namespace,
                    workflow_id,
                    escaped(&request_id).into_owned(),
                ];
                for (column, value) in named.iter_mut().zip(request) {
                    column.push(value);
                }
            }
            for (column, value) in columns.iter_mut().zip(workflow) {
                column.push(value);
            }
        }
        let add = |found: &mut Found, row: &Row| -> Result<(), Error> {
            let request = (text(row, 1)?, text(row, 2)?, row.try_get(3)?);
            found.rows.requests.push(request);
            Ok(())
        };
        let sql = "SELECT w.run_id, q.request_id, q.run_id, q.sequence
                   FROM unnest($1::text[], $2::text[], $3::text[]) w (run_id, namespace, workflow_id)
                   JOIN requests q ON q.namespace = w.namespace AND q.workflow_id = w.workflow_id AND q.run_id = w.run_id";
        let [ids, namespaces, workflow_ids] = &columns;
        self.add(sql, &[ids, namespaces, workflow_ids], add).await?;
        let [ids, namespaces, workflow_ids, request_ids] = &named;
        if ids.is_empty() {
            return Ok(());
        }
        let sql = "SELECT w.run_id, q.request_id, q.run_id, q.sequence
                   FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) w (run_id, namespace, workflow_id, request_id)
                   JOIN requests q ON q.namespace = w.namespace AND q.workflow_id = w.workflow_id AND q.request_id = w.request_id";
        let parameters: [&(dyn ToSql + Sync); 4] = [ids, namespaces, workflow_ids, request_ids];
        self.add(sql, &parameters, add).await
    }

    async fn read_numbers(&mut self) -> Result<(), Error> {
        let mut columns: [Vec<String>; 3] = Default::default();
        let mut numbers = Vec::new();
        for (run_id, found) in &self.runs {
            let workflow = [run_id, &found.workflow.0, &found.workflow.1];
            for (column, value) in columns.iter_mut().zip(workflow) {
                column.push(escaped(value).into_owned());
            }
            numbers.push(found.workflow.2);
        }
        let sql = "SELECT w.run_id, n.run_number, n.run_id
                   FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[]) w (run_id, namespace, workflow_id, number)
                   JOIN workflow_runs n ON n.namespace = w.namespace AND n.workflow_id = w.workflow_id
                    AND n.run_number BETWEEN w.number - 1 AND w.number + 1";
        let [ids, namespaces, workflow_ids] = &columns;
        let parameters: [&(dyn ToSql + Sync); 4] = [ids, namespaces, workflow_ids, &numbers];
        self.add(sql, &parameters, |found, row| {
            let number = (row.try_get(1)?, Some(text(row, 2)?));
            found.rows.numbers.push(number);
            Ok(())
        })
        .await
    }

    async fn read_tasks(&mut self) -> Result<(), Error> {
        let wanted = self.runs.values().flat_map(|found| &found.wanted.task_ids);
        let ids: Vec<String> = wanted.map(|id| escaped(id).into_owned()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let sql = "SELECT task_id, body FROM tasks WHERE task_id = ANY($1::text[])";
        let mut bodies: BTreeMap<String, String> = BTreeMap::new();
        for row in query(self.client, sql, &[&ids]).await? {
            bodies.insert(text(&row, 0)?, row.try_get(1)?);
        }
        for found in self.runs.values_mut() {
            for id in &found.wanted.task_ids {
                let body = bodies.get(id).map(|body| (id.clone(), body.clone()));
                found.rows.tasks.extend(body);
            }
        }
        Ok(())
    }

    async fn read_snapshots(&mut self) -> Result<(), Error> {
        let wanted = self
            .runs
            .values()
            .filter_map(|found| found.wanted.snapshot.as_ref());
        let names: BTreeSet<_> = wanted.map(|hash| escaped(hash).into_owned()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = names.into_iter().collect();
        let sql = "SELECT name FROM documents WHERE kind = 'snapshot' AND namespace = '' AND name = ANY($1::text[])";
        let mut stored = BTreeSet::new();
        for row in query(self.client, sql, &[&names]).await? {
            stored.insert(text(&row, 0)?);
        }
        for found in self.runs.values_mut() {
            let hash = found.wanted.snapshot.as_ref();
            found.rows.has_snapshot = hash.map(|hash| stored.contains(hash));
        }
        Ok(())
    }

    /// Reads the runs before these ones. Most runs have none.
    async fn read_before(&mut self) -> Result<(), Error> {
        let mut before: BTreeMap<String, String> = BTreeMap::new();
        for (run_id, found) in &self.runs {
            let number = found.workflow.2 - 1;
            let mut numbers = found.rows.numbers.iter();
            let earlier = numbers.find(|(other, _)| *other == number);
            before.extend(earlier.and_then(|(_, id)| Some((id.clone()?, run_id.clone()))));
        }
        if before.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = before.keys().map(|id| escaped(id).into_owned()).collect();
        let mut rows: BTreeMap<String, BeforeRows> = BTreeMap::new();
        let sql = "SELECT s.run_id, s.state, p.body FROM run_states s LEFT JOIN run_specs p USING (run_id)
                   WHERE s.run_id = ANY($1::text[])";
        for row in query(self.client, sql, &[&ids]).await? {
            let earlier = BeforeRows {
                state: row.try_get(1)?,
                spec: row.try_get(2)?,
                ..BeforeRows::default()
            };
            rows.insert(text(&row, 0)?, earlier);
        }
        for row in query(self.client, COMMANDS, &[&ids]).await? {
            if let Some(earlier) = rows.get_mut(&text(&row, 0)?) {
                earlier.commands.push(command(&row)?);
            }
        }
        let sql = "SELECT run_id, event_type, payload FROM events WHERE run_id = ANY($1::text[]) AND event_type = ANY($2::text[])
                   ORDER BY run_id, sequence";
        let types: Vec<&str> = Messages::EVENTS.into();
        for row in query(self.client, sql, &[&ids, &types]).await? {
            if let Some(earlier) = rows.get_mut(&text(&row, 0)?) {
                earlier.events.push((row.try_get(1)?, row.try_get(2)?));
            }
        }
        for (earlier, run_id) in before {
            if let Some(found) = self.runs.get_mut(&run_id) {
                found.rows.before = rows.remove(&earlier);
            }
        }
        Ok(())
    }

    /// Reads the calls in the histories of the parents of these runs.
    async fn read_parents(&mut self) -> Result<(), Error> {
        let wanted = self
            .runs
            .values()
            .filter_map(|found| found.wanted.parent.as_ref());
        let ids: BTreeSet<_> = wanted.map(|id| escaped(id).into_owned()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = ids.into_iter().collect();
        let sql = "SELECT run_id, payload FROM events WHERE run_id = ANY($1::text[]) AND event_type = 'ChildWorkflowScheduled'";
        let mut calls: BTreeMap<String, Vec<ChildCall>> = BTreeMap::new();
        for row in query(self.client, sql, &[&ids]).await? {
            let of_run = calls.entry(text(&row, 0)?).or_default();
            of_run.extend(ChildCall::read(row.try_get(1)?));
        }
        let calls: BTreeMap<String, Arc<Vec<ChildCall>>> = calls
            .into_iter()
            .map(|(run_id, calls)| (run_id, Arc::new(calls)))
            .collect();
        for found in self.runs.values_mut() {
            let parent = found.wanted.parent.as_ref();
            found.rows.parent_calls =
                parent.map(|parent| calls.get(parent).cloned().unwrap_or_default());
        }
        Ok(())
    }
}

const COMMANDS: &str = "SELECT run_id, sequence, body FROM commands WHERE run_id = ANY($1::text[]) ORDER BY run_id, sequence";

fn command(row: &Row) -> Result<CommandRows, Error> {
    Ok(CommandRows {
        sequence: row.try_get(1)?,
        body: row.try_get(2)?,
    })
}
