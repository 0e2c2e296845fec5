//! Removal of runs. First the row of the run becomes a tombstone: it has no namespace, no version and no specification, so nothing
//! finds it, and its key is not used again. Then its other rows are deleted in bounded steps, and the tombstone last.

use longhaul_engine::run::state::Core;
use longhaul_protocol::id::RunId;
use longhaul_protocol::json::from_stored;
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::encode::signed;
use crate::{Error, PURGED_BYTES_MAX, PURGED_ROWS_MAX};

/// Tables that have many rows of a run, with the columns that number them in it. Events are apart: they name tasks.
const TABLES: [(&str, &str); 3] = [
    ("run_parts", "part"),
    ("task_logs", "rowid"),
    ("commands", "sequence"),
];

/// Makes a run a tombstone if it has this version.
pub(in crate::sqlite) fn bury(
    transaction: &Transaction<'_>,
    run_id: &RunId,
    version: u64,
) -> Result<bool, Error> {
    let found = transaction
        .prepare_cached(
            "SELECT run_key, version, namespace, workflow_id, run_number, workflow_type, state FROM runs WHERE run_id = ?1",
        )?
        .query_row([run_id.as_str()], |row| {
            let number = |column| row.get::<_, i64>(column);
            let text = |column| row.get::<_, String>(column);
            Ok((number(0)?, number(1)?, text(2)?, text(3)?, number(4)?, text(5)?, text(6)?))
        })
        .optional()?;
    let Some((key, stored, namespace, workflow_id, number, workflow_type, state)) =
        found.filter(|found| found.1 == signed(version))
    else {
        return Err(Error::Conflict);
    };
    debug_assert_eq!(stored, signed(version));
    let core: Core =
        from_stored(&state).map_err(|error| Error::unreadable("run", run_id.as_str(), error))?;
    let execution = core.execution.as_deref();
    if let Some(idempotency_key) = execution.and_then(|one| one.idempotency_key.as_deref()) {
        let sql = "DELETE FROM workflow_keys WHERE namespace = ?1 AND workflow_type = ?2 AND key = ?3 AND run_key = ?4";
        transaction.prepare_cached(sql)?.execute(params![
            namespace,
            workflow_type,
            idempotency_key,
            key
        ])?;
    }
    let sql =
        "DELETE FROM workflow_runs WHERE namespace = ?1 AND workflow_id = ?2 AND run_number = ?3";
    transaction
        .prepare_cached(sql)?
        .execute(params![namespace, workflow_id, number])?;
    let sql = "DELETE FROM requests WHERE namespace = ?1 AND workflow_id = ?2 AND run_key = ?3";
    transaction
        .prepare_cached(sql)?
        .execute(params![namespace, workflow_id, key])?;
    for sql in [
        "DELETE FROM run_specs WHERE run_key = ?1",
        "DELETE FROM run_attributes WHERE run_key = ?1",
        "UPDATE runs SET version = -1, alarm = NULL, list_status = 'REMOVED', namespace = '', workflow_id = '', workflow_type = '',
         task_queue = '', business_key = NULL, compatibility = NULL, closed_at = NULL, correlation_id = NULL, parent_id = NULL,
         state = '{}' WHERE run_key = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([key])?;
    }
    Ok(true)
}

/// Deletes a bounded number of rows of one removed run. Returns whether there was one.
pub(in crate::sqlite) fn purge(transaction: &Transaction<'_>) -> Result<bool, Error> {
    let found: Option<i64> = transaction
        .prepare_cached(
            "SELECT run_key FROM runs INDEXED BY runs_by_status WHERE namespace = '' AND list_status = 'REMOVED' LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(key) = found else {
        return Ok(false);
    };
    if purge_events(transaction, key)? {
        return Ok(true);
    }
    for (table, column) in TABLES {
        let sql = format!(
            "DELETE FROM {table} WHERE run_key = ?1 AND {column} IN (SELECT {column} FROM {table} WHERE run_key = ?1 LIMIT ?2)"
        );
        let mut delete = transaction.prepare_cached(&sql)?;
        if delete.execute(params![key, signed(PURGED_ROWS_MAX as u64)])? > 0 {
            return Ok(true);
        }
    }
    transaction
        .prepare_cached("DELETE FROM runs WHERE run_key = ?1")?
        .execute([key])?;
    Ok(true)
}

/// Deletes the first events of a run and the tasks that they name. Returns whether there were any.
fn purge_events(transaction: &Transaction<'_>, key: i64) -> Result<bool, Error> {
    let mut select = transaction.prepare_cached(
        "SELECT sequence, octet_length(payload), workflow_task_id,
         CASE WHEN event_type = 'ExecutionTaskScheduled' THEN json_extract(payload, '$.task_id') END
         FROM events WHERE run_key = ?1 ORDER BY sequence LIMIT ?2",
    )?;
    let mut delete = transaction.prepare_cached("DELETE FROM tasks WHERE task_id = ?1")?;
    let mut rows = select.query(params![key, signed(PURGED_ROWS_MAX as u64)])?;
    let (mut last, mut bytes) = (None, 0);
    while bytes < PURGED_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        last = Some(row.get::<_, i64>(0)?);
        bytes += row.get::<_, i64>(1)?;
        for column in [2, 3] {
            if let Some(task_id) = row.get::<_, Option<String>>(column)? {
                delete.execute([task_id])?;
            }
        }
    }
    drop(rows);
    let Some(last) = last else {
        return Ok(false);
    };
    transaction
        .prepare_cached("DELETE FROM events WHERE run_key = ?1 AND sequence <= ?2")?
        .execute(params![key, last])?;
    Ok(true)
}
