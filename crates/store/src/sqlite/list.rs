//! Reads over many rows: queues with work, leases, counts. Each reads one snapshot.

use std::collections::BTreeMap;

use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, TaskQueue};
use rusqlite::{Connection, params};

use super::read::{bodies, body};
use crate::encode::signed;
use crate::summary::ShownRun;
use crate::{Error, LeaseFilter, LeasedIn, QueueCount, QueueKey, RunSummary};

/// Returns a run for lists.
pub(super) fn summary(connection: &Connection, run_key: i64) -> Result<RunSummary, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT run_id, namespace, workflow_id, run_number, workflow_type, task_queue, business_key, compatibility,
         started_at, state FROM runs WHERE run_key = ?1",
    )?;
    let mut rows = statement.query([run_key])?;
    let row = rows
        .next()?
        .ok_or_else(|| Error::Corrupt(format!("run key {run_key} is listed but not stored")))?;
    let run_id = RunId::from(row.get::<_, String>(0)?);
    let shown: ShownRun = body(row, 9, "run", run_id.as_str())?;
    Ok(RunSummary {
        run_id,
        namespace: row.get::<_, String>(1)?.into(),
        workflow_id: row.get::<_, String>(2)?.into(),
        run_number: row.get::<_, i64>(3)?.cast_unsigned(),
        program: shown.program(),
        workflow_type: row.get(4)?,
        status: shown.status,
        closed_reason: shown.closed.as_ref().map(|closed| closed.reason),
        task_queue: row.get::<_, String>(5)?.into(),
        business_key: row.get(6)?,
        compatibility: row.get(7)?,
        started_at: Timestamp::from_micros(row.get(8)?),
        closed_at: shown.closed.map(|closed| closed.at),
        search_attributes: shown.search_attributes,
        memo: shown.memo,
    })
}

/// Jumps from queue to queue along the index: the cost depends on the number of queues, not of tasks.
pub(super) fn ready_queues(connection: &Connection) -> Result<Vec<QueueKey>, Error> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = snapshot.prepare_cached(
        "SELECT namespace, kind, queue FROM tasks INDEXED BY tasks_ready
         WHERE status = 'ready' AND (namespace, kind, queue) > (?1, ?2, ?3)
         ORDER BY namespace, kind, queue LIMIT 1",
    )?;
    let mut queues = Vec::new();
    let mut last = (String::new(), String::new(), String::new());
    loop {
        let mut rows = statement.query([&last.0, &last.1, &last.2])?;
        let Some(row) = rows.next()? else { break };
        last = (row.get(0)?, row.get(1)?, row.get(2)?);
        queues.push(QueueKey {
            namespace: last.0.as_str().into(),
            kind: kind(&last.1)?,
            queue: last.2.as_str().into(),
        });
    }
    // The index orders kinds by their names, the type by its variants.
    queues.sort_unstable();
    Ok(queues)
}

/// Reads all leases in order of their ids: there are never more of them than workers can hold. Those in sessions have an index of
/// their own.
pub(super) fn leased_tasks(
    connection: &Connection,
    filter: &LeaseFilter,
    limit: usize,
) -> Result<Vec<TaskRow>, Error> {
    let mut statement = connection.prepare_cached(match &filter.session {
        None => {
            "SELECT body FROM tasks INDEXED BY tasks_leased
             WHERE status = 'leased' AND (?1 IS NULL OR namespace = ?1) AND (?2 IS NULL OR lease_owner = ?2)
             AND (?3 IS NULL OR queue = ?3) AND (?4 IS NULL OR kind = ?4) AND ?6 IS NULL
             ORDER BY task_id LIMIT ?5"
        }
        Some(LeasedIn::AnySession) => {
            "SELECT body FROM tasks INDEXED BY tasks_leased_in_session
             WHERE status = 'leased' AND session_id IS NOT NULL AND (?1 IS NULL OR namespace = ?1)
             AND (?2 IS NULL OR lease_owner = ?2) AND (?3 IS NULL OR queue = ?3) AND (?4 IS NULL OR kind = ?4) AND ?6 IS NULL
             ORDER BY task_id LIMIT ?5"
        }
        Some(LeasedIn::Session(_)) => {
            "SELECT body FROM tasks INDEXED BY tasks_leased_in_session
             WHERE status = 'leased' AND session_id IS NOT NULL AND (?1 IS NULL OR namespace = ?1) AND session_id = ?6
             AND (?2 IS NULL OR lease_owner = ?2) AND (?3 IS NULL OR queue = ?3) AND (?4 IS NULL OR kind = ?4)
             ORDER BY task_id LIMIT ?5"
        }
    })?;
    let session = match &filter.session {
        Some(LeasedIn::Session(session_id)) => Some(session_id.as_str()),
        Some(LeasedIn::AnySession) | None => None,
    };
    let rows = statement.query(params![
        filter
            .namespace
            .as_ref()
            .map(|namespace| namespace.as_str()),
        filter.owner.as_ref().map(|owner| owner.as_str()),
        filter.queue.as_ref().map(|queue| queue.as_str()),
        filter.kind.map(TaskKind::as_str),
        signed(limit as u64),
        session,
    ])?;
    bodies(rows, "leased task", "")
}

pub(super) fn queue_counts(
    connection: &Connection,
    namespace: &Namespace,
) -> Result<Vec<QueueCount>, Error> {
    let snapshot = connection.unchecked_transaction()?;
    let mut counts = BTreeMap::new();
    let mut statement = snapshot.prepare_cached(
        "SELECT queue, kind, count(*), min(available_at) FROM tasks INDEXED BY tasks_ready
         WHERE status = 'ready' AND namespace = ?1 GROUP BY kind, queue",
    )?;
    let mut rows = statement.query([namespace.as_str()])?;
    while let Some(row) = rows.next()? {
        let count: &mut QueueCount = count_of(&mut counts, row)?;
        count.ready = row.get::<_, i64>(2)?.cast_unsigned();
        count.oldest_ready_at = Some(Timestamp::from_micros(row.get(3)?));
    }
    let mut statement = snapshot.prepare_cached(
        "SELECT queue, kind, count(*) FROM tasks INDEXED BY tasks_leased
         WHERE status = 'leased' AND namespace = ?1 GROUP BY kind, queue",
    )?;
    let mut rows = statement.query([namespace.as_str()])?;
    while let Some(row) = rows.next()? {
        let count = count_of(&mut counts, row)?;
        count.leased = row.get::<_, i64>(2)?.cast_unsigned();
    }
    let mut statement = snapshot.prepare_cached(
        "SELECT queue, kind, count(*) FROM tasks INDEXED BY tasks_delayed
         WHERE status = 'scheduled' AND kind = 'execution' AND namespace = ?1 GROUP BY queue",
    )?;
    let mut rows = statement.query([namespace.as_str()])?;
    while let Some(row) = rows.next()? {
        let count = count_of(&mut counts, row)?;
        count.delayed = row.get::<_, i64>(2)?.cast_unsigned();
    }
    Ok(counts.into_values().collect())
}

fn count_of<'c>(
    counts: &'c mut BTreeMap<(TaskQueue, TaskKind), QueueCount>,
    row: &rusqlite::Row<'_>,
) -> Result<&'c mut QueueCount, Error> {
    let queue = TaskQueue::from(row.get::<_, String>(0)?);
    let kind = kind(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?;
    Ok(counts.entry((queue.clone(), kind)).or_insert(QueueCount {
        queue,
        kind,
        ready: 0,
        leased: 0,
        delayed: 0,
        oldest_ready_at: None,
    }))
}

fn kind(text: &str) -> Result<TaskKind, Error> {
    [TaskKind::Workflow, TaskKind::Activity, TaskKind::Execution]
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .ok_or_else(|| Error::Corrupt(format!("no task is of kind {text}")))
}
