//! Logs of tasks.

use longhaul_engine::change::{LogKey, LogLine};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use rusqlite::{Connection, Transaction, params};

use crate::Error;
use crate::encode::signed;

/// Writes and deletes lines of the logs of a run.
pub(in crate::sqlite) fn write(
    transaction: &Transaction<'_>,
    run_key: i64,
    logs: &[(LogKey, Option<LogLine>)],
) -> Result<(), Error> {
    for (key, line) in logs {
        match line {
            Some(line) => {
                let place = [run_key, signed(key.task), signed(key.line)];
                put(transaction, place, line.created_at.as_micros(), &line.text)?;
            }
            None => {
                transaction
                    .prepare_cached(
                        "DELETE FROM task_logs WHERE run_key = ?1 AND task = ?2 AND line = ?3",
                    )?
                    .execute(params![run_key, signed(key.task), signed(key.line)])?;
            }
        }
    }
    Ok(())
}

/// Writes one line: of a run, a task and a number.
pub(in crate::sqlite) fn put(
    transaction: &Connection,
    [run_key, task, line]: [i64; 3],
    created_at: i64,
    text: &str,
) -> Result<(), Error> {
    transaction
        .prepare_cached(
            "INSERT INTO task_logs (run_key, task, line, created_at, text) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (run_key, task, line) DO UPDATE SET created_at = excluded.created_at, text = excluded.text",
        )?
        .execute(params![run_key, task, line, created_at, text])?;
    Ok(())
}

/// Returns the log of a task, oldest line first.
pub(in crate::sqlite) fn of_task(
    connection: &Connection,
    run_id: &RunId,
    task: u64,
) -> Result<Vec<LogLine>, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT created_at, text FROM task_logs WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1) AND task = ?2
         ORDER BY line",
    )?;
    let rows = statement.query_map(params![run_id.as_str(), signed(task)], |row| {
        Ok(LogLine {
            created_at: Timestamp::from_micros(row.get(0)?),
            text: row.get(1)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
