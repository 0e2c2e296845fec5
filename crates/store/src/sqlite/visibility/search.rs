//! Pages of definition runs with the number of all results. The number is counted along the same indexes as the page is read, so
//! the usual queries never visit the rows of the runs that they count.

use longhaul_engine::conductor::execution::state::Stored;
use longhaul_engine::conductor::execution::summary::ExecutionSummary;
use longhaul_engine::run::state::{Part, PartKey, Program};
use longhaul_engine::visibility::execution::{Direction, Order, SortField};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use rusqlite::{Connection, params, params_from_iter};

use super::check::column;
use super::find::{Group, groups, newest};
use super::statement::Sql;
use crate::encode::signed;
use crate::sqlite::read::body;
use crate::status::condition_of;
use crate::summary::ShownExecution;
use crate::{Error, ExecutionPage, ExecutionSearch, RunFilter};

pub(crate) fn executions(
    connection: &Connection,
    search: ExecutionSearch,
) -> Result<ExecutionPage, Error> {
    // The number and the rows of the page must be of one snapshot.
    let snapshot = connection.unchecked_transaction()?;
    let filter = RunFilter {
        namespace: search.namespace,
        program: Some(Program::Definition),
        workflow_type: None,
        status: None,
        condition: search.condition,
        after: None,
        limit: search.offset.saturating_add(search.limit),
    };
    let wanted = condition_of(&filter);
    let groups = groups(&filter, &wanted);
    let total = count(&snapshot, &groups)?;
    let keys: Vec<i64> = if search.limit == 0 || search.offset as u64 >= total {
        Vec::new()
    } else if search.order.is_newest_first() {
        let entries = newest(&snapshot, &filter)?;
        entries
            .skip(search.offset)
            .map(|entry| entry.run_key)
            .collect()
    } else {
        sorted(
            &snapshot,
            &groups,
            &search.order,
            search.offset,
            search.limit,
        )?
    };
    let runs = keys
        .into_iter()
        .map(|run_key| summary(&snapshot, run_key))
        .collect::<Result<_, _>>()?;
    Ok(ExecutionPage { total, runs })
}

fn count(connection: &Connection, groups: &[Group<'_>]) -> Result<u64, Error> {
    let sql = count_statement(connection, groups)?;
    let mut prepared = connection.prepare_cached(&sql.text)?;
    let count: i64 = prepared.query_row(params_from_iter(&sql.values), |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

fn count_statement(connection: &Connection, groups: &[Group<'_>]) -> Result<Sql, Error> {
    let mut sql = Sql::default();
    match groups {
        [group] => {
            sql.push("SELECT count(*) FROM ");
            group.rows(&mut sql, &group.narrowest(connection)?);
        }
        groups => {
            sql.push("SELECT count(*) FROM (");
            union(connection, &mut sql, groups)?;
            sql.push(")");
        }
    }
    Ok(sql)
}

/// Writes the keys of the runs that match one of the groups, each once.
fn union(connection: &Connection, sql: &mut Sql, groups: &[Group<'_>]) -> Result<(), Error> {
    for (place, group) in groups.iter().enumerate() {
        if place > 0 {
            sql.push(" UNION ");
        }
        sql.push("SELECT r.run_key FROM ");
        group.rows(sql, &group.narrowest(connection)?);
    }
    Ok(())
}

/// Returns the keys of a page in an order that no index has: all results are looked at.
fn sorted(
    connection: &Connection,
    groups: &[Group<'_>],
    order: &Order,
    offset: usize,
    limit: usize,
) -> Result<Vec<i64>, Error> {
    let mut sql = Sql::default();
    sql.push("SELECT r.run_key FROM runs r WHERE r.run_key IN (");
    union(connection, &mut sql, groups)?;
    sql.push(") ORDER BY ");
    for key in &order.keys {
        let place = match &key.field {
            SortField::Status => Some("r.list_status"),
            SortField::Field(field) => column(field),
        };
        sql.push(place.unwrap_or("NULL"));
        sql.push(match key.direction {
            Direction::Ascending => " ASC, ",
            Direction::Descending => " DESC, ",
        });
    }
    sql.push("r.started_at DESC, r.run_id DESC LIMIT ");
    sql.bind(signed(limit as u64)).push(" OFFSET ");
    sql.bind(signed(offset as u64));
    let mut prepared = connection.prepare_cached(&sql.text)?;
    let keys = prepared.query_map(params_from_iter(&sql.values), |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

fn summary(connection: &Connection, run_key: i64) -> Result<ExecutionSummary, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT run_id, workflow_type, started_at, parent_id, state FROM runs WHERE run_key = ?1",
    )?;
    let mut rows = statement.query([run_key])?;
    let row = rows
        .next()?
        .ok_or_else(|| Error::Corrupt(format!("run key {run_key} is listed but not stored")))?;
    let run_id = RunId::from(row.get::<_, String>(0)?);
    let shown: ShownExecution = body(row, 4, "run", run_id.as_str())?;
    Ok(ExecutionSummary {
        workflow_type: row.get(1)?,
        started_at: Timestamp::from_micros(row.get(2)?),
        parent_id: row.get::<_, Option<String>>(3)?.map(Into::into),
        closed: shown.closed,
        execution: shown.execution,
        input: value(connection, run_key, &run_id, PartKey::Input)?,
        output: value(connection, run_key, &run_id, PartKey::Output)?,
        run_id,
    })
}

fn value(
    connection: &Connection,
    run_key: i64,
    run_id: &RunId,
    key: PartKey,
) -> Result<Stored, Error> {
    let mut statement =
        connection.prepare_cached("SELECT body FROM run_parts WHERE run_key = ?1 AND part = ?2")?;
    let mut rows = statement.query(params![run_key, key.to_string()])?;
    let Some(row) = rows.next()? else {
        return Ok(Stored::default());
    };
    match body(row, 0, "part of run", run_id.as_str())? {
        Part::Value(stored) => Ok(stored),
        _ => Err(Error::Corrupt(format!("{key} of run {run_id} is no value"))),
    }
}

#[cfg(test)]
mod tests;
