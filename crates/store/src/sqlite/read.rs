//! Reads by key: a run, its history, its commands, a task, due runs. Each is one statement, hence one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::change::{CommandRow, TaskRow};
use longhaul_engine::run::state::{PartKey, Run};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkflowId};
use longhaul_protocol::json::from_stored;
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;

use super::table::session;
use super::thin;
use crate::encode::signed;
use crate::{
    CommandKey, CommandRows, Due, DueLimits, Error, Instance, Page, QueueKey, RunRead, StoredEvent,
    TaskPlace,
};

pub(super) fn run(
    connection: &Connection,
    run_id: &RunId,
    known: Option<Box<Run>>,
) -> Result<RunRead, Error> {
    // One statement, so that the row and its parts are of the same commit. The first three columns repeat in every row, but only
    // those of the first row are read.
    let mut statement = connection.prepare_cached(
        "SELECT runs.version, runs.state, run_specs.body, run_parts.part, run_parts.body
         FROM runs JOIN run_specs USING (run_key) LEFT JOIN run_parts USING (run_key) WHERE runs.run_id = ?1",
    )?;
    let mut rows = statement.query([run_id.as_str()])?;
    let Some(first) = rows.next()? else {
        return Ok(RunRead::Missing);
    };
    let version = first.get::<_, i64>(0)?.cast_unsigned();
    if let Some(known) = known.filter(|known| known.version == version) {
        return Ok(RunRead::Unchanged(known));
    }
    let core = body(first, 1, "run", run_id.as_str())?;
    let spec = Arc::new(body(first, 2, "specification of run", run_id.as_str())?);
    let mut parts = BTreeMap::new();
    let mut next = Some(first);
    while let Some(row) = next {
        let Some(part) = row
            .get_ref(3)?
            .as_str_or_null()
            .map_err(rusqlite::Error::from)?
        else {
            break;
        };
        let part: PartKey = part
            .parse()
            .map_err(|error| Error::unreadable("part of run", run_id.as_str(), error))?;
        parts.insert(part, body(row, 4, "part of run", run_id.as_str())?);
        next = rows.next()?;
    }
    let mut run = Run::new(version, spec, core, parts);
    thin::complete(connection, &mut run)?;
    Ok(RunRead::Found(Box::new(run)))
}

pub(super) fn instance(
    connection: &Connection,
    namespace: &Namespace,
    workflow_id: &WorkflowId,
) -> Result<Option<Instance>, Error> {
    let instance = connection
        .prepare_cached(
            "SELECT runs.run_id, workflow_runs.run_number FROM workflow_runs JOIN runs USING (run_key)
             WHERE workflow_runs.namespace = ?1 AND workflow_runs.workflow_id = ?2
             ORDER BY workflow_runs.run_number DESC LIMIT 1",
        )?
        .query_row([namespace.as_str(), workflow_id.as_str()], |row| {
            Ok(Instance {
                current_run_id: RunId::from(row.get_ref(0)?.as_str()?),
                run_count: row.get::<_, i64>(1)?.cast_unsigned(),
            })
        })
        .optional()?;
    Ok(instance)
}

pub(super) fn history(
    connection: &Connection,
    run_id: &RunId,
    after: HistorySeq,
    up_to: HistorySeq,
    page: Page,
) -> Result<Vec<StoredEvent>, Error> {
    // The length of a payload is read without the payload: one that no longer fits on the page is not read.
    let mut statement = connection.prepare_cached(
        "SELECT events.sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id, principal, payload,
                octet_length(payload)
         FROM runs JOIN events USING (run_key)
         WHERE runs.run_id = ?1 AND events.sequence > ?2 AND events.sequence <= ?3 ORDER BY events.sequence LIMIT ?4",
    )?;
    let mut rows = statement.query(params![
        run_id.as_str(),
        signed(after),
        signed(up_to),
        signed(page.events as u64)
    ])?;
    let mut events = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        bytes += usize::try_from(row.get::<_, i64>(8)?).unwrap_or(usize::MAX);
        if bytes > page.bytes && !events.is_empty() {
            break;
        }
        events.push(event(row)?);
    }
    Ok(events)
}

fn event(row: &Row<'_>) -> rusqlite::Result<StoredEvent> {
    Ok(StoredEvent {
        sequence: row.get::<_, i64>(0)?.cast_unsigned().into(),
        id: row.get_ref(1)?.as_str()?.into(),
        event_type: row.get(2)?,
        recorded_at: Timestamp::from_micros(row.get(3)?),
        workflow_task_id: row.get_ref(4)?.as_str_or_null()?.map(TaskId::from),
        workflow_command_id: row.get(5)?,
        principal: row.get(6)?,
        payload: row.get(7)?,
    })
}

pub(super) fn commands(
    connection: &Connection,
    run_id: &RunId,
    before: Option<RequestSeq>,
    limit: usize,
) -> Result<CommandRows, Error> {
    let snapshot = connection.unchecked_transaction()?;
    let total: i64 = snapshot
        .prepare_cached(
            "SELECT count(*) FROM runs JOIN commands USING (run_key) WHERE runs.run_id = ?1",
        )?
        .query_row([run_id.as_str()], |row| row.get(0))?;
    let mut statement = snapshot.prepare_cached(
        "SELECT commands.body FROM runs JOIN commands USING (run_key)
         WHERE runs.run_id = ?1 AND commands.sequence < ?2 ORDER BY commands.sequence DESC LIMIT ?3",
    )?;
    let page = params![
        run_id.as_str(),
        signed(before.unwrap_or(RequestSeq::MAX)),
        signed(limit as u64)
    ];
    let mut commands: Vec<CommandRow> =
        bodies(statement.query(page)?, "command of run", run_id.as_str())?;
    for update in commands
        .iter_mut()
        .filter_map(|command| command.update.as_deref_mut())
    {
        update.result = None;
    }
    Ok(CommandRows {
        total: total.cast_unsigned(),
        commands,
    })
}

pub(super) fn command(
    connection: &Connection,
    key: CommandKey<'_>,
) -> Result<Option<(RunId, CommandRow)>, Error> {
    match key {
        CommandKey::Sequence(run_id, sequence) => {
            let found = command_by_sequence(connection, run_id, sequence)?;
            Ok(found.map(|command| (run_id.clone(), command)))
        }
        CommandKey::Request(namespace, workflow_id, request_id) => {
            command_by_request(connection, namespace, workflow_id, request_id)
        }
    }
}

fn command_by_sequence(
    connection: &Connection,
    run_id: &RunId,
    sequence: RequestSeq,
) -> Result<Option<CommandRow>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT commands.body FROM runs JOIN commands USING (run_key) WHERE runs.run_id = ?1 AND commands.sequence = ?2",
    )?;
    let rows = statement.query(params![run_id.as_str(), signed(sequence)])?;
    let mut commands: Vec<CommandRow> = bodies(rows, "command of run", run_id.as_str())?;
    let Some(mut command) = commands.pop() else {
        return Ok(None);
    };
    thin::complete_command(connection, run_id, &mut command)?;
    Ok(Some(command))
}

fn command_by_request(
    connection: &Connection,
    namespace: &Namespace,
    workflow_id: &WorkflowId,
    request_id: &str,
) -> Result<Option<(RunId, CommandRow)>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT runs.run_id, commands.body
         FROM requests JOIN runs USING (run_key)
         JOIN commands ON commands.run_key = requests.run_key AND commands.sequence = requests.sequence
         WHERE requests.namespace = ?1 AND requests.workflow_id = ?2 AND requests.request_id = ?3",
    )?;
    let mut rows = statement.query([namespace.as_str(), workflow_id.as_str(), request_id])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let run_id = RunId::from(row.get::<_, String>(0)?);
    let mut command = body(row, 1, "command of run", run_id.as_str())?;
    thin::complete_command(connection, &run_id, &mut command)?;
    Ok(Some((run_id, command)))
}

pub(super) fn task(connection: &Connection, task_id: &TaskId) -> Result<Option<TaskRow>, Error> {
    let mut statement = connection.prepare_cached("SELECT body FROM tasks WHERE task_id = ?1")?;
    let mut rows = statement.query([task_id.as_str()])?;
    rows.next()?
        .map(|row| body(row, 0, "task", task_id.as_str()))
        .transpose()
}

pub(super) fn ready_tasks(
    connection: &Connection,
    queue: &QueueKey,
    place: TaskPlace,
    limit: usize,
) -> Result<Vec<TaskRow>, Error> {
    let mut statement = connection.prepare_cached(match place {
        TaskPlace::Anywhere => {
            "SELECT body FROM tasks INDEXED BY tasks_ready
             WHERE status = 'ready' AND namespace = ?1 AND kind = ?2 AND queue = ?3 AND session_id IS NULL
             ORDER BY priority, available_at, task_id LIMIT ?4"
        }
        TaskPlace::Session => {
            "SELECT body FROM tasks INDEXED BY tasks_ready_in_session
             WHERE status = 'ready' AND session_id IS NOT NULL AND namespace = ?1 AND kind = ?2 AND queue = ?3
             ORDER BY priority, available_at, task_id LIMIT ?4"
        }
    })?;
    let rows = statement.query(params![
        queue.namespace.as_str(),
        queue.kind.as_str(),
        queue.queue.as_str(),
        signed(limit as u64)
    ])?;
    bodies(rows, "ready task of queue", queue.queue.as_str())
}

pub(super) fn due(
    connection: &Connection,
    now: Timestamp,
    limits: DueLimits,
) -> Result<Due, Error> {
    let mut due = Due::default();
    if limits.runs > 0 {
        let mut statement = connection.prepare_cached(
            "SELECT run_id FROM runs INDEXED BY runs_by_alarm WHERE alarm IS NOT NULL AND alarm <= ?1
             ORDER BY alarm, run_id LIMIT ?2",
        )?;
        let found = params![now.as_micros(), signed(limits.runs as u64)];
        let found = statement.query_map(found, |row| Ok(RunId::from(row.get_ref(0)?.as_str()?)))?;
        due.runs = found.collect::<Result<_, _>>()?;
        let next = "SELECT min(alarm) FROM runs INDEXED BY runs_by_alarm WHERE alarm > ?1";
        due.next = earliest(connection, next, now)?;
    }
    if limits.sessions > 0 {
        due.sessions = session::due(connection, now, limits.sessions)?;
        let next = "SELECT min(deadline) FROM worker_sessions INDEXED BY worker_sessions_due WHERE deadline > ?1";
        let next = earliest(connection, next, now)?;
        due.next = due.next.into_iter().chain(next).min();
    }
    Ok(due)
}

/// Returns the only value of a statement: the earliest time after `now`.
fn earliest(
    connection: &Connection,
    sql: &'static str,
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let at: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([now.as_micros()], |row| row.get(0))?;
    Ok(at.map(Timestamp::from_micros))
}

/// Parses a column from SQLite's own memory, without a copy in between.
pub(super) fn body<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    what: &str,
    id: &str,
) -> Result<T, Error> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(rusqlite::Error::from)?;
    from_stored(text).map_err(|error| Error::unreadable(what, id, error))
}

/// Parses the only column of every row.
pub(super) fn bodies<T: DeserializeOwned>(
    mut rows: rusqlite::Rows<'_>,
    what: &str,
    id: &str,
) -> Result<Vec<T>, Error> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(body(row, 0, what, id)?);
    }
    Ok(found)
}
