//! The index of search attributes: the rows of a run's values, and their creation for files that an earlier release wrote.

use longhaul_engine::run::state::Closed;
use longhaul_engine::visibility::Term;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;
use crate::encode::{Entry, entries};
use crate::sqlite::read::body;

/// Returns a term as it is stored and bound.
pub(crate) fn sql_value(term: &Term) -> SqlValue {
    match term {
        Term::Text(text) => SqlValue::Text(text.clone()),
        Term::Integer(integer) => SqlValue::Integer(*integer),
        Term::Double(double) => SqlValue::Real(*double),
        Term::Flag(flag) => SqlValue::Integer(i64::from(*flag)),
        Term::Time(time) => SqlValue::Integer(time.as_micros()),
    }
}

/// Replaces the rows of a run.
pub(crate) fn write(
    transaction: &Connection,
    run_key: i64,
    is_new: bool,
    entries: &[Entry],
) -> Result<(), Error> {
    if !is_new {
        transaction
            .prepare_cached("DELETE FROM run_attributes WHERE run_key = ?1")?
            .execute([run_key])?;
    }
    // A list may contain a string twice.
    let mut insert = transaction.prepare_cached(
        "INSERT INTO run_attributes (run_key, name, kind, value, namespace, list_status, started_at, run_id)
         SELECT run_key, ?2, ?3, ?4, namespace, list_status, started_at, run_id FROM runs WHERE run_key = ?1
         ON CONFLICT DO NOTHING",
    )?;
    for entry in entries {
        insert.execute(params![
            run_key,
            entry.name,
            entry.kind.as_str(),
            sql_value(&entry.term)
        ])?;
    }
    Ok(())
}

/// Sets the new status in the index rows of a run.
pub(crate) fn move_to(
    transaction: &Transaction<'_>,
    run_key: i64,
    list_status: &str,
) -> Result<(), Error> {
    transaction
        .prepare_cached("UPDATE run_attributes SET list_status = ?2 WHERE run_key = ?1")?
        .execute(params![run_key, list_status])?;
    Ok(())
}

/// Runs per step of a rebuild: bounds memory, not time.
const REBUILD_RUNS: i64 = 1000;

/// Writes the rows that an earlier release did not write, once per file.
pub(crate) fn rebuild(connection: &mut Connection) -> Result<(), Error> {
    let transaction = connection.transaction()?;
    let asked: Option<i64> = transaction
        .query_row(
            "SELECT 1 FROM rebuilds WHERE name = 'visibility'",
            [],
            |row| row.get(0),
        )
        .optional()?;
    if asked.is_none() {
        return Ok(());
    }
    let mut after = 0;
    while let Some(last) = rebuild_some(&transaction, after)? {
        after = last;
    }
    transaction.execute("DELETE FROM rebuilds WHERE name = 'visibility'", [])?;
    transaction.commit()?;
    Ok(())
}

#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    closed: Option<Closed>,
    #[serde(default)]
    search_attributes: Map<String, Value>,
}

/// Rebuilds some runs. Returns the last run of this step; `None` if there are no more.
fn rebuild_some(transaction: &Transaction<'_>, after: i64) -> Result<Option<i64>, Error> {
    let mut select = transaction.prepare_cached(
        "SELECT run_key, run_id, state FROM runs WHERE run_key > ?1 ORDER BY run_key LIMIT ?2",
    )?;
    let mut rows = select.query([after, REBUILD_RUNS])?;
    let mut found: Vec<(i64, Shown)> = Vec::new();
    while let Some(row) = rows.next()? {
        let run_id: String = row.get(1)?;
        found.push((row.get(0)?, body(row, 2, "run", &run_id)?));
    }
    for (run_key, shown) in &found {
        if let Some(closed) = &shown.closed {
            transaction
                .prepare_cached("UPDATE runs SET closed_at = ?2 WHERE run_key = ?1")?
                .execute(params![run_key, closed.at.as_micros()])?;
        }
        write(
            transaction,
            *run_key,
            false,
            &entries(&shown.search_attributes),
        )?;
    }
    Ok(found.last().map(|(run_key, _)| *run_key))
}
