//! Reads pages of runs and counts them.

use longhaul_engine::conductor::execution::state::Stored;
use longhaul_engine::conductor::execution::summary::ExecutionSummary;
use longhaul_engine::run::state::{Part, Program};
use longhaul_engine::visibility::Condition;
use longhaul_engine::visibility::execution::{Direction, Order, SortField};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;
use tokio_postgres::{Row, Transaction};

use super::condition::{check, column};
use super::sql::Sql;
use crate::encode::signed;
use crate::postgres::connect::Connected;
use crate::postgres::read::{parse, text};
use crate::postgres::text::{escaped, unescaped};
use crate::status::condition_of;
use crate::summary::{ShownExecution, ShownRun};
use crate::{Error, ExecutionPage, ExecutionSearch, PAGE_BYTES_MAX, RunFilter, RunSummary};

/// Runs that are read at a time. Each may have a large memo, and the page may end early.
const CHUNK: usize = 100;

/// Returns a page of runs.
pub(in crate::postgres) async fn runs(
    client: &mut Connected,
    filter: &RunFilter,
) -> Result<Vec<RunSummary>, Error> {
    let snapshot = snapshot(client).await?;
    let (mut runs, mut bytes) = (Vec::new(), 0);
    let mut rest = filter.clone();
    while runs.len() < filter.limit && bytes <= PAGE_BYTES_MAX {
        rest.limit = CHUNK.min(filter.limit - runs.len());
        let mut sql = Sql::default();
        sql.push(
            "SELECT r.run_id, r.namespace, r.workflow_id, r.run_number, r.workflow_type, r.task_queue, r.business_key,
             r.compatibility, r.started_at, t.state FROM (",
        );
        sql.append(page(&rest));
        sql.push(") r JOIN run_states t ON t.run_id = r.run_id ORDER BY r.started_at DESC, r.run_id DESC");
        let rows = snapshot.query(sql.text(), &sql.values()).await?;
        for row in &rows {
            if bytes > PAGE_BYTES_MAX {
                break;
            }
            let run = summary(row)?;
            bytes += run.bytes();
            rest.after = Some((run.started_at, run.run_id.clone()));
            runs.push(run);
        }
        if rows.len() < rest.limit {
            break;
        }
    }
    Ok(runs)
}

/// Returns the ids of a page of runs.
pub(in crate::postgres) async fn run_ids(
    client: &mut Connected,
    filter: &RunFilter,
) -> Result<Vec<RunId>, Error> {
    let sql = page(filter);
    client.count();
    let rows = client.query(sql.text(), &sql.values()).await?;
    rows.iter()
        .map(|row| Ok(RunId::from(text(row, 0)?)))
        .collect()
}

/// Begins to read one moment. Dropping it ends it.
pub(super) async fn snapshot(client: &mut Connected) -> Result<Transaction<'_>, Error> {
    client.count();
    let client: &mut tokio_postgres::Client = client;
    let builder = client.build_transaction();
    let builder = builder.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    Ok(builder.read_only(true).start().await?)
}

/// Returns the statement for a page of runs in the order of lists. The first column is the run id.
fn page(filter: &RunFilter) -> Sql {
    let mut sql = Sql::default();
    sql.push("SELECT r.* FROM runs r ");
    sql.append(rows(filter, &condition_of(filter)));
    sql.push(" ORDER BY r.started_at DESC, r.run_id DESC LIMIT ");
    sql.bind(signed(filter.limit as u64));
    sql
}

/// Returns the part of a statement that selects the runs of a filter: what comes after `FROM runs r`.
fn rows(filter: &RunFilter, condition: &Condition) -> Sql {
    let namespace = filter.namespace.as_str();
    let mut conditions = Sql::default();
    conditions.push(" WHERE r.namespace = ");
    conditions.bind(escaped(namespace).into_owned());
    if let Some((at, run_id)) = &filter.after {
        conditions.push(" AND (r.started_at, r.run_id) < (");
        conditions.bind(at.as_micros()).push(", ");
        conditions
            .bind(escaped(run_id.as_str()).into_owned())
            .push(")");
    }
    conditions.push(" AND ");
    check(&mut conditions, namespace, condition);
    let mut sql = Sql::default();
    if conditions.uses_state {
        sql.push("JOIN run_states s ON s.run_id = r.run_id");
    }
    sql.append(conditions);
    sql
}

fn summary(row: &Row) -> Result<RunSummary, Error> {
    let optional = |column: usize| -> Result<Option<String>, Error> {
        Ok(row.try_get::<_, Option<String>>(column)?.map(unescaped))
    };
    let run_id = RunId::from(text(row, 0)?);
    let shown: ShownRun = parse(row.try_get(9)?, "run", run_id.as_str())?;
    Ok(RunSummary {
        run_id,
        namespace: text(row, 1)?.into(),
        workflow_id: text(row, 2)?.into(),
        run_number: row.try_get::<_, i64>(3)?.cast_unsigned(),
        program: shown.program(),
        workflow_type: text(row, 4)?,
        status: shown.status,
        closed_reason: shown.closed.as_ref().map(|closed| closed.reason),
        task_queue: text(row, 5)?.into(),
        business_key: optional(6)?,
        compatibility: optional(7)?,
        started_at: Timestamp::from_micros(row.try_get(8)?),
        closed_at: shown.closed.map(|closed| closed.at),
        search_attributes: shown.search_attributes,
        memo: shown.memo,
    })
}

/// Returns a page of definition runs and the number of all that match.
pub(in crate::postgres) async fn executions(
    client: &mut Connected,
    search: &ExecutionSearch,
) -> Result<ExecutionPage, Error> {
    let filter = RunFilter {
        namespace: search.namespace.clone(),
        program: Some(Program::Definition),
        workflow_type: None,
        status: None,
        condition: search.condition.clone(),
        after: None,
        limit: search.limit,
    };
    let wanted = condition_of(&filter);
    // The number and the rows of the page must be of one moment.
    let snapshot = snapshot(client).await?;
    let mut sql = Sql::default();
    sql.push("SELECT count(*) FROM runs r ");
    sql.append(rows(&filter, &wanted));
    let count = snapshot.query_one(sql.text(), &sql.values()).await?;
    let total = count.try_get::<_, i64>(0)?.cast_unsigned();
    if search.limit == 0 || search.offset as u64 >= total {
        let runs = Vec::new();
        return Ok(ExecutionPage { total, runs });
    }
    let mut sql = Sql::default();
    sql.push(
        "SELECT r.run_id, r.workflow_type, r.started_at, r.parent_id, t.state,
         (SELECT body FROM run_parts p WHERE p.run_id = r.run_id AND p.part = 'input'),
         (SELECT body FROM run_parts p WHERE p.run_id = r.run_id AND p.part = 'output')
         FROM runs r JOIN run_states t ON t.run_id = r.run_id ",
    );
    sql.append(rows(&filter, &wanted));
    order(&mut sql, &search.order);
    sql.push(" LIMIT ").bind(signed(search.limit as u64));
    sql.push(" OFFSET ").bind(signed(search.offset as u64));
    let rows = snapshot.query(sql.text(), &sql.values()).await?;
    let runs = rows.iter().map(execution).collect::<Result<_, _>>()?;
    Ok(ExecutionPage { total, runs })
}

fn order(sql: &mut Sql, order: &Order) {
    sql.push(" ORDER BY ");
    for key in &order.keys {
        // The state is joined twice if a condition needs it too, so its columns have the name that is always there.
        let place = match &key.field {
            SortField::Status => Some("r.list_status"),
            SortField::Field(field) => column(&mut Sql::default(), field).map(of_shown_state),
        };
        sql.push(place.unwrap_or("NULL::text"));
        sql.push(match key.direction {
            Direction::Ascending => " ASC NULLS FIRST, ",
            Direction::Descending => " DESC NULLS LAST, ",
        });
    }
    sql.push("r.started_at DESC, r.run_id DESC");
}

/// Returns a column of `s` as one of `t`, which the rows of a page are shown from.
fn of_shown_state(column: &'static str) -> &'static str {
    match column {
        "s.definition" => "t.definition",
        "s.updated_at" => "t.updated_at",
        "s.priority" => "t.priority",
        "s.created_by" => "t.created_by",
        "s.idempotency_key" => "t.idempotency_key",
        "s.classifier" => "t.classifier",
        "s.reason" => "t.reason",
        "s.failed_references" => "t.failed_references",
        other => other,
    }
}

fn execution(row: &Row) -> Result<ExecutionSummary, Error> {
    let run_id = RunId::from(text(row, 0)?);
    let shown: ShownExecution = parse(row.try_get(4)?, "run", run_id.as_str())?;
    let value = |column: usize| -> Result<Stored, Error> {
        let Some(body) = row.try_get::<_, Option<&str>>(column)? else {
            return Ok(Stored::default());
        };
        match parse(body, "part of run", run_id.as_str())? {
            Part::Value(stored) => Ok(stored),
            _ => Err(Error::Corrupt(format!(
                "a value of run {run_id} is no value"
            ))),
        }
    };
    Ok(ExecutionSummary {
        workflow_type: text(row, 1)?,
        started_at: Timestamp::from_micros(row.try_get(2)?),
        parent_id: row
            .try_get::<_, Option<String>>(3)?
            .map(|id| unescaped(id).into()),
        closed: shown.closed,
        execution: shown.execution,
        input: value(5)?,
        output: value(6)?,
        run_id,
    })
}
