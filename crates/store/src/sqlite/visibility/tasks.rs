//! Pages of tasks of definition runs, or of their runs, with the number of all results. Each search is read along one index, which the
//! first selective test of its condition names; the other tests are checked row by row.

use longhaul_engine::visibility::execution::{Direction, Order, SortField, TaskField};
use longhaul_engine::visibility::{Condition, Field, Matcher, Term, Test};
use longhaul_protocol::conductor::TaskStatus;
use longhaul_protocol::id::RunId;
use rusqlite::{Connection, params_from_iter};

use super::check::column_matches;
use super::statement::Sql;
use crate::encode::signed;
use crate::{Error, TaskPage, TaskResults, TaskSearch};

/// One index to read along. A search by the name of a definition has two: tasks for workers have that name as type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    /// Whatever SQLite chooses: the condition has alternatives, or names the task itself.
    Any,
    Run,
    Type,
    Status,
    /// Tasks with the name of their definition as type.
    NamedType,
    Definition,
}

impl Arm {
    fn index(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Run => " INDEXED BY tasks_found_by_run",
            Self::Type | Self::NamedType => " INDEXED BY tasks_found_by_type",
            Self::Status => " INDEXED BY tasks_found_by_status",
            Self::Definition => " INDEXED BY tasks_found_by_definition",
        }
    }
}

pub(crate) fn search(connection: &Connection, search: &TaskSearch) -> Result<TaskPage, Error> {
    // The number and the page must be of one snapshot.
    let snapshot = connection.unchecked_transaction()?;
    let arms = arms(search.condition.as_ref());
    let total = count(&snapshot, search, &arms)?;
    if search.limit == 0 || search.offset as u64 >= total {
        return Ok(TaskPage {
            total,
            found: Vec::new(),
        });
    }
    let found = match search.results {
        TaskResults::Runs => runs(&snapshot, search, &arms)?,
        TaskResults::Tasks if is_newest_first(&search.order) => newest(&snapshot, search, &arms)?,
        TaskResults::Tasks => sorted(&snapshot, search, &arms)?,
    };
    Ok(TaskPage { total, found })
}

/// Returns the tests that must all be true.
fn all_tests(condition: Option<&Condition>) -> Vec<&Test> {
    let mut tests = Vec::new();
    let mut rest: Vec<&Condition> = condition.into_iter().collect();
    while let Some(condition) = rest.pop() {
        if let Condition::All(parts) = condition {
            rest.extend(parts);
        } else if let Condition::Test(test) = condition {
            tests.push(test);
        }
    }
    tests
}

/// Returns the values that a field must have, if a condition names them.
fn named(condition: Option<&Condition>, field: TaskField) -> Option<&[Term]> {
    let tests = all_tests(condition);
    let mut named = tests.into_iter().filter_map(|test| match &test.matcher {
        Matcher::OneOf(terms) if test.field == Field::Task(field) => Some(terms.as_slice()),
        _ => None,
    });
    named.next()
}

fn arms(condition: Option<&Condition>) -> Vec<Arm> {
    let has = |field: TaskField| named(condition, field).is_some();
    if matches!(condition, Some(Condition::Any(_))) || has(TaskField::TaskId) {
        vec![Arm::Any]
    } else if has(TaskField::WorkflowId) || has(TaskField::CorrelationId) {
        vec![Arm::Run]
    } else if has(TaskField::TaskType) {
        vec![Arm::Type]
    } else if has(TaskField::DefName) {
        vec![Arm::NamedType, Arm::Definition]
    } else if has(TaskField::WorkflowType) && !has(TaskField::Status) {
        vec![Arm::Run]
    } else {
        vec![Arm::Status]
    }
}

/// Writes what comes after the columns of a `SELECT` on tasks `t`.
fn rows(sql: &mut Sql, search: &TaskSearch, arm: Arm, status: Option<TaskStatus>) {
    sql.push(" FROM tasks t").push(arm.index());
    sql.push(" WHERE t.shown_status IS NOT NULL AND t.namespace = ");
    sql.bind(search.namespace.as_str().to_owned());
    if let Some(status) = status {
        sql.push(" AND t.shown_status = ");
        sql.bind(status.as_str().to_owned());
    }
    let names = named(search.condition.as_ref(), TaskField::DefName);
    match arm {
        Arm::NamedType => {
            sql.push(" AND t.def_name = t.task_type AND t.task_type IN ");
            sql.bind_all(names.unwrap_or_default());
        }
        Arm::Definition => {
            sql.push(" AND t.def_name <> t.task_type");
        }
        Arm::Any | Arm::Run | Arm::Type | Arm::Status => {}
    }
    if let Some(condition) = &search.condition {
        sql.push(" AND ");
        check(sql, search.namespace.as_str(), condition);
    }
}

fn count(connection: &Connection, search: &TaskSearch, arms: &[Arm]) -> Result<u64, Error> {
    let sql = count_statement(search, arms);
    let mut prepared = connection.prepare_cached(&sql.text)?;
    let count: i64 = prepared.query_row(params_from_iter(&sql.values), |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

fn count_statement(search: &TaskSearch, arms: &[Arm]) -> Sql {
    let mut sql = Sql::default();
    match search.results {
        TaskResults::Tasks => {
            sql.push("SELECT ");
            for (place, arm) in arms.iter().enumerate() {
                sql.push(if place > 0 { " + (" } else { "(" });
                sql.push("SELECT count(*)");
                rows(&mut sql, search, *arm, None);
                sql.push(")");
            }
        }
        TaskResults::Runs => {
            sql.push("SELECT count(*) FROM (");
            for (place, arm) in arms.iter().enumerate() {
                sql.push(if place > 0 { " UNION " } else { "" });
                sql.push("SELECT DISTINCT t.run_id");
                rows(&mut sql, search, *arm, None);
            }
            sql.push(")");
        }
    }
    sql
}

/// Returns the statuses that can match.
fn statuses(condition: Option<&Condition>) -> Vec<TaskStatus> {
    let all = TaskStatus::ALL.iter().copied();
    match named(condition, TaskField::Status) {
        None => all.collect(),
        Some(terms) => {
            let is_named = |status: &TaskStatus| {
                let word = Term::Text(status.as_str().to_owned());
                terms.contains(&word)
            };
            all.filter(is_named).collect()
        }
    }
}

/// Returns whether it is the order that results have without any key.
fn is_newest_first(order: &Order) -> bool {
    let is_newest =
        |field: &SortField| *field == SortField::Field(Field::Task(TaskField::StartTime));
    match order.keys.as_slice() {
        [] => true,
        [key] => is_newest(&key.field) && key.direction == Direction::Descending,
        _ => false,
    }
}

/// Returns a page in the order of starts. The indexes have that order within a status, so each status is read apart, and no further than
/// the page reaches.
fn newest(
    connection: &Connection,
    search: &TaskSearch,
    arms: &[Arm],
) -> Result<Vec<(RunId, u64)>, Error> {
    let mut found: Vec<(Option<i64>, String, RunId, u64)> = Vec::new();
    for status in statuses(search.condition.as_ref()) {
        for arm in arms {
            let sql = newest_statement(search, *arm, status);
            let mut prepared = connection.prepare_cached(&sql.text)?;
            let mut rows = prepared.query(params_from_iter(&sql.values))?;
            while let Some(row) = rows.next()? {
                let run_id = RunId::from(row.get::<_, String>(2)?);
                let sequence: i64 = row.get(3)?;
                found.push((row.get(0)?, row.get(1)?, run_id, sequence.cast_unsigned()));
            }
        }
    }
    found.sort_by(|one, other| (&other.0, &other.1).cmp(&(&one.0, &one.1)));
    let page = found.into_iter().skip(search.offset).take(search.limit);
    Ok(page
        .map(|(_, _, run_id, sequence)| (run_id, sequence))
        .collect())
}

fn newest_statement(search: &TaskSearch, arm: Arm, status: TaskStatus) -> Sql {
    let mut sql = Sql::default();
    sql.push("SELECT t.started_at, t.task_id, t.run_id, t.sequence");
    rows(&mut sql, search, arm, Some(status));
    sql.push(" ORDER BY t.started_at DESC, t.task_id DESC LIMIT ");
    sql.bind(signed(search.offset.saturating_add(search.limit) as u64));
    sql
}

/// Returns a page in an order that no index has: all results are looked at.
fn sorted(
    connection: &Connection,
    search: &TaskSearch,
    arms: &[Arm],
) -> Result<Vec<(RunId, u64)>, Error> {
    let mut sql = Sql::default();
    sql.push("SELECT t.run_id, t.sequence FROM tasks t WHERE t.task_key IN (");
    for (place, arm) in arms.iter().enumerate() {
        sql.push(if place > 0 { " UNION ALL " } else { "" });
        sql.push("SELECT t.task_key");
        rows(&mut sql, search, *arm, None);
    }
    sql.push(") ORDER BY ");
    for key in &search.order.keys {
        let place = match &key.field {
            SortField::Status => "NULL",
            SortField::Field(field) => column(field),
        };
        sql.push(place).push(match key.direction {
            Direction::Ascending => " ASC, ",
            Direction::Descending => " DESC, ",
        });
    }
    sql.push("t.started_at DESC, t.task_id DESC LIMIT ");
    page(connection, sql, search)
}

/// Returns a page of runs, the newest start of a matching task first.
fn runs(
    connection: &Connection,
    search: &TaskSearch,
    arms: &[Arm],
) -> Result<Vec<(RunId, u64)>, Error> {
    let mut sql = Sql::default();
    sql.push("SELECT run_id, 0 FROM (");
    for (place, arm) in arms.iter().enumerate() {
        sql.push(if place > 0 { " UNION ALL " } else { "" });
        sql.push("SELECT t.run_id, t.started_at");
        rows(&mut sql, search, *arm, None);
    }
    sql.push(") GROUP BY run_id ORDER BY max(started_at) DESC, run_id DESC LIMIT ");
    page(connection, sql, search)
}

fn page(
    connection: &Connection,
    mut sql: Sql,
    search: &TaskSearch,
) -> Result<Vec<(RunId, u64)>, Error> {
    sql.bind(signed(search.limit as u64)).push(" OFFSET ");
    sql.bind(signed(search.offset as u64));
    let mut prepared = connection.prepare_cached(&sql.text)?;
    let found = prepared.query_map(params_from_iter(&sql.values), |row| {
        let sequence: i64 = row.get(1)?;
        Ok((
            RunId::from(row.get::<_, String>(0)?),
            sequence.cast_unsigned(),
        ))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn column(field: &Field) -> &'static str {
    let Field::Task(field) = field else {
        return "NULL";
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
        Condition::All(parts) => join(sql, namespace, parts, " AND ", "1"),
        Condition::Any(parts) => join(sql, namespace, parts, " OR ", "0"),
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
            sql.push("0");
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
    column_matches(sql, column(&test.field), &test.matcher);
    // Runs have indexes by these, and tasks an index by run.
    let of_runs = match &test.field {
        Field::Task(TaskField::CorrelationId) => "r.correlation_id",
        Field::Task(TaskField::WorkflowType) => "r.workflow_type",
        _ => return,
    };
    if let Matcher::OneOf(_) = &test.matcher {
        sql.push(" AND t.run_id IN (SELECT r.run_id FROM runs r WHERE r.namespace = ");
        sql.bind(namespace.to_owned()).push(" AND ");
        column_matches(sql, of_runs, &test.matcher);
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
    sql.push("(");
    for column in COLUMNS {
        sql.push("instr(lower(").push(column).push("), ");
        sql.bind(text.to_owned()).push(") > 0 OR ");
    }
    sql.push("instr(lower(t.shown_status), ")
        .bind(text.to_owned())
        .push(") > 0)");
}

#[cfg(test)]
mod tests;
