//! Removal of runs. First the run loses everything by which it is found: its state, its names and its place in lists. A tombstone is
//! left in the table of lists, without a namespace. Then its other rows are deleted in bounded steps, and the tombstone last.

use longhaul_engine::run::state::Core;
use longhaul_protocol::id::RunId;
use longhaul_protocol::json::from_stored;
use serde::Deserialize;
use tokio_postgres::Transaction;

use crate::encode::signed;
use crate::postgres::connect::Connected;
use crate::postgres::text::{escaped, unescaped};
use crate::{Error, PURGED_BYTES_MAX, PURGED_ROWS_MAX};

/// Tables that have many rows of a run, with the columns that number them in it. Events are apart: they name tasks.
const TABLES: [(&str, &str); 3] = [
    ("run_parts", "part"),
    ("task_logs", "(task, line)"),
    ("commands", "sequence"),
];

/// Makes a run a tombstone if it has this version.
pub(in crate::postgres) async fn bury(
    client: &mut Connected,
    run_id: &RunId,
    version: u64,
) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let id = escaped(run_id.as_str());
    let sql = "DELETE FROM run_states WHERE run_id = $1 AND version = $2 RETURNING state";
    let deleted = transaction.query_opt(sql, &[&id, &signed(version)]).await?;
    let Some(deleted) = deleted else {
        return Err(Error::Conflict);
    };
    let state = unescaped(deleted.try_get(0)?);
    let core: Core =
        from_stored(&state).map_err(|error| Error::unreadable("run", run_id.as_str(), error))?;
    let sql = "SELECT namespace, workflow_id, run_number, workflow_type FROM runs WHERE run_id = $1 FOR UPDATE";
    let run = transaction.query_one(sql, &[&id]).await?;
    let (namespace, workflow_id): (String, String) = (run.try_get(0)?, run.try_get(1)?);
    let (number, workflow_type): (i64, String) = (run.try_get(2)?, run.try_get(3)?);
    let execution = core.execution.as_deref();
    if let Some(key) = execution.and_then(|one| one.idempotency_key.as_deref()) {
        let sql = "DELETE FROM workflow_keys WHERE namespace = $1 AND workflow_type = $2 AND key = $3 AND run_id = $4";
        let key = escaped(key);
        transaction
            .execute(sql, &[&namespace, &workflow_type, &key, &id])
            .await?;
    }
    let sql =
        "DELETE FROM workflow_runs WHERE namespace = $1 AND workflow_id = $2 AND run_number = $3";
    transaction
        .execute(sql, &[&namespace, &workflow_id, &number])
        .await?;
    let sql = "DELETE FROM requests WHERE namespace = $1 AND workflow_id = $2 AND run_id = $3";
    transaction
        .execute(sql, &[&namespace, &workflow_id, &id])
        .await?;
    for sql in [
        "DELETE FROM run_specs WHERE run_id = $1",
        "DELETE FROM run_alarms WHERE run_id = $1",
        "DELETE FROM run_attributes WHERE run_id = $1",
        "UPDATE runs SET namespace = '', workflow_id = '', workflow_type = '', task_queue = '', business_key = NULL,
         compatibility = NULL, list_status = 'REMOVED', closed_at = NULL, correlation_id = NULL, parent_id = NULL WHERE run_id = $1",
    ] {
        transaction.execute(sql, &[&id]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Deletes a bounded number of rows of one removed run. Returns whether there was one. A run that another server purges is left to it.
pub(in crate::postgres) async fn purge(client: &mut Connected) -> Result<bool, Error> {
    let transaction = client.transaction().await?;
    let sql = "SELECT run_id FROM runs WHERE namespace = '' AND list_status = 'REMOVED' LIMIT 1 FOR UPDATE SKIP LOCKED";
    let Some(run) = transaction.query_opt(sql, &[]).await? else {
        return Ok(false);
    };
    // As it is stored: it is not decoded.
    let id: String = run.try_get(0)?;
    let mut has_more = purge_events(&transaction, &id).await?;
    for (table, column) in TABLES {
        if has_more {
            break;
        }
        let sql = format!(
            "DELETE FROM {table} WHERE run_id = $1 AND {column} IN (SELECT {} FROM {table} WHERE run_id = $1 LIMIT $2)",
            column.trim_matches(['(', ')'])
        );
        let most = signed(PURGED_ROWS_MAX as u64);
        has_more = transaction.execute(&sql, &[&id, &most]).await? > 0;
    }
    if !has_more {
        let sql = "DELETE FROM runs WHERE run_id = $1";
        transaction.execute(sql, &[&id]).await?;
    }
    transaction.commit().await?;
    Ok(true)
}

/// The member of an event by which a task is found.
#[derive(Deserialize)]
struct Scheduled {
    task_id: String,
}

/// Deletes the first events of a run and the tasks that they name. Returns whether there were any.
async fn purge_events(transaction: &Transaction<'_>, id: &str) -> Result<bool, Error> {
    let sql = "SELECT sequence, workflow_task_id, CASE WHEN event_type = 'ExecutionTaskScheduled' THEN payload END
         FROM (SELECT sequence, workflow_task_id, event_type, payload, sum(octet_length(payload)) OVER (ORDER BY sequence)
                      - octet_length(payload) AS before
               FROM (SELECT * FROM events WHERE run_id = $1 ORDER BY sequence LIMIT $2) first) counted
         WHERE before < $3 ORDER BY sequence";
    let most = signed(PURGED_ROWS_MAX as u64);
    let rows = transaction
        .query(sql, &[&id, &most, &PURGED_BYTES_MAX])
        .await?;
    let (mut last, mut tasks) = (None, Vec::new());
    for row in rows {
        last = Some(row.try_get::<_, i64>(0)?);
        tasks.extend(row.try_get::<_, Option<String>>(1)?);
        if let Some(payload) = row.try_get::<_, Option<String>>(2)? {
            let scheduled = from_stored::<Scheduled>(&unescaped(payload));
            tasks.extend(scheduled.ok().map(|one| escaped(&one.task_id).into_owned()));
        }
    }
    let Some(last) = last else {
        return Ok(false);
    };
    let sql = "DELETE FROM tasks WHERE task_id = ANY($1::text[])";
    transaction.execute(sql, &[&tasks]).await?;
    let sql = "DELETE FROM events WHERE run_id = $1 AND sequence <= $2";
    transaction.execute(sql, &[&id, &last]).await?;
    Ok(true)
}
