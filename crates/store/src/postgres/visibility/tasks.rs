//! Pages of tasks of definition runs, or of their runs, with the number of all results.

use longhaul_engine::visibility::execution::{Direction, SortField, TaskField};
use longhaul_engine::visibility::{Condition, Field, Matcher, Test};
use longhaul_protocol::id::RunId;

use super::condition::{bind_in_column, matches};
use super::find::snapshot;
use super::sql::Sql;
use crate::encode::signed;
use crate::postgres::connect::Connected;
use crate::postgres::read::text;
use crate::postgres::text::escaped;
use crate::{Error, TaskPage, TaskResults, TaskSearch};

/// Returns a page of tasks, or of their runs.
pub(in crate::postgres) async fn tasks(
    client: &mut Connected,
    search: &TaskSearch,
) -> Result<TaskPage, Error> {
    // The number and the rows of the page must be of one moment.
    let snapshot = snapshot(client).await?;
    let mut sql = Sql::default();
    sql.push(match search.results {
        TaskResults::Tasks => "SELECT count(*)",
        TaskResults::Runs => "SELECT count(DISTINCT t.run_id)",
    });
    rows(&mut sql, search);
    let count = snapshot.query_one(sql.text(), &sql.values()).await?;
    let total = count.try_get::<_, i64>(0)?.cast_unsigned();
    if search.limit == 0 || search.offset as u64 >= total {
        let found = Vec::new();
        return Ok(TaskPage { total, found });
    }
    let mut sql = Sql::default();
    match search.results {
        TaskResults::Tasks => {
            sql.push("SELECT t.run_id, t.sequence");
            rows(&mut sql, search);
            order(&mut sql, search);
        }
        TaskResults::Runs => {
            sql.push("SELECT t.run_id, 0::int8");
            rows(&mut sql, search);
            sql.push(
                " GROUP BY t.run_id ORDER BY max(t.started_at) DESC NULLS LAST, t.run_id DESC",
            );
        }
    }
    sql.push(" LIMIT ").bind(signed(search.limit as u64));
    sql.push(" OFFSET ").bind(signed(search.offset as u64));
    let rows = snapshot.query(sql.text(), &sql.values()).await?;
    let found = rows.iter().map(|row| {
        let sequence = row.try_get::<_, i64>(1)?.cast_unsigned();
        Ok((RunId::from(text(row, 0)?), sequence))
    });
    let found = found.collect::<Result<_, Error>>()?;
    Ok(TaskPage { total, found })
}

/// Writes what comes after the columns of a `SELECT` on tasks `t`.
fn rows(sql: &mut Sql, search: &TaskSearch) {
    sql.push(" FROM tasks t WHERE t.shown_status IS NOT NULL AND t.namespace = ");
    sql.bind(escaped(search.namespace.as_str()).into_owned());
    if let Some(condition) = &search.condition {
        sql.push(" AND ");
        check(sql, search.namespace.as_str(), condition);
    }
}

fn order(sql: &mut Sql, search: &TaskSearch) {
    sql.push(" ORDER BY ");
    for key in &search.order.keys {
        let place = match &key.field {
            SortField::Status => "NULL::text",
            SortField::Field(field) => column(field),
        };
        sql.push(place).push(match key.direction {
            Direction::Ascending => " ASC NULLS FIRST, ",
            Direction::Descending => " DESC NULLS LAST, ",
        });
    }
    sql.push("t.started_at DESC NULLS LAST, t.task_id DESC");
}

fn column(field: &Field) -> &'static str {
    let Field::Task(field) = field else {
        return "NULL::text";
    };
    match field {
        TaskField::TaskId => "t.task_id",
        TaskField::TaskType => "t.task_type",
        TaskField::DefName => "t.def_name",
        TaskField::Reference => "t.reference",
        TaskField::WorkflowId => "t.run_id",
        TaskField::WorkflowType => "t.workflow_type",
        TaskField::Status => "t.shown_status",
        TaskField::CorrelationId => "t.correlation_id",
        TaskField::Domain => "t.domain",
        TaskField::ScheduledTime => "t.scheduled_at",
        TaskField::StartTime => "t.started_at",
        TaskField::EndTime => "t.ended_at",
        TaskField::UpdateTime => "t.updated_at",
    }
}

/// Writes a condition on the row of a task.
fn check(sql: &mut Sql, namespace: &str, condition: &Condition) {
    match condition {
        Condition::All(parts) => join(sql, namespace, parts, " AND ", "true"),
        Condition::Any(parts) => join(sql, namespace, parts, " OR ", "false"),
        Condition::Test(test) => check_test(sql, namespace, test),
        Condition::Absent(field) => {
            sql.push("(").push(column(field)).push(" IS NULL)");
        }
        Condition::SummaryText(text) => check_text(sql, text),
        // A query for tasks has none of these.
        Condition::Status(_)
        | Condition::Program(_)
        | Condition::ExecutionStatus(_)
        | Condition::FreeText(_) => {
            sql.push("false");
        }
    }
}

fn join(
    sql: &mut Sql,
    namespace: &str,
    parts: &[Condition],
    between: &'static str,
    empty: &'static str,
) {
    if parts.is_empty() {
        sql.push(empty);
        return;
    }
    sql.push("(");
    for (place, part) in parts.iter().enumerate() {
        sql.push(if place > 0 { between } else { "" });
        check(sql, namespace, part);
    }
    sql.push(")");
}

fn check_test(sql: &mut Sql, namespace: &str, test: &Test) {
    // The name of a definition is the type of tasks for workers, which have an index by type. The others have one by definition.
    if test.field == Field::Task(TaskField::DefName)
        && let Matcher::OneOf(_) = &test.matcher
    {
        sql.push("((t.def_name = t.task_type AND ");
        matches(sql, "t.task_type", &test.matcher, bind_in_column);
        sql.push(") OR (t.def_name <> t.task_type AND ");
        matches(sql, "t.def_name", &test.matcher, bind_in_column);
        sql.push("))");
        return;
    }
    matches(sql, column(&test.field), &test.matcher, bind_in_column);
    // Runs have indexes by these, and tasks an index by run.
    let of_runs = match &test.field {
        Field::Task(TaskField::CorrelationId) => "r.correlation_id",
        Field::Task(TaskField::WorkflowType) => "r.workflow_type",
        _ => return,
    };
    if let Matcher::OneOf(_) = &test.matcher {
        sql.push(" AND t.run_id IN (SELECT r.run_id FROM runs r WHERE r.namespace = ");
        sql.bind(escaped(namespace).into_owned()).push(" AND ");
        matches(sql, of_runs, &test.matcher, bind_in_column);
        sql.push(")");
    }
}

/// Writes the condition that a name or an id of the task contains a text.
fn check_text(sql: &mut Sql, text: &str) {
    const COLUMNS: [&str; 8] = [
        "t.task_id",
        "t.run_id",
        "t.task_type",
        "t.def_name",
        "t.reference",
        "t.workflow_type",
        "t.correlation_id",
        "t.domain",
    ];
    let text = escaped(text).into_owned();
    sql.push("(");
    for column in COLUMNS {
        sql.push("strpos(lower(").push(column).push("), ");
        sql.bind(text.clone()).push(") > 0 OR ");
    }
    sql.push("strpos(lower(t.shown_status), ")
        .bind(text)
        .push(") > 0)");
}
