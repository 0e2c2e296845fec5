//! The SQL of a condition on a run: `r` is its row in `runs`, `s` its row in `run_states`.

use longhaul_engine::run::state::{Program, Status};
use longhaul_engine::visibility::execution::ExecutionField;
use longhaul_engine::visibility::{Comparison, Condition, Field, Matcher, Pattern, Term, Test};

use super::sql::Sql;
use crate::encode::code_status;
use crate::postgres::text::{escaped, value};
use crate::status::{words_of_program, words_of_status};

/// The statuses of open runs, of both programs.
const OPEN: &str = "('running', 'RUNNING', 'PAUSED')";

/// Writes a condition on a run of a namespace.
pub(super) fn check(sql: &mut Sql, namespace: &str, condition: &Condition) {
    match condition {
        Condition::All(parts) => join(sql, namespace, parts, " AND ", "true"),
        Condition::Any(parts) => join(sql, namespace, parts, " OR ", "false"),
        Condition::Test(test) => check_test(sql, namespace, test),
        Condition::Absent(field) => check_absent(sql, namespace, field),
        Condition::Status(statuses) => check_status(sql, statuses),
        Condition::Program(program) => check_words(sql, &words_of_program(*program)),
        Condition::ExecutionStatus(statuses) => {
            let words: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
            check_words(sql, &words);
        }
        Condition::SummaryText(text) => check_summary(sql, text),
        Condition::FreeText(text) => {
            let text = escaped(text).into_owned();
            sql.push("(strpos(lower(r.workflow_id), ")
                .bind(text.clone());
            sql.push(") > 0 OR strpos(lower(r.business_key), ")
                .bind(text);
            sql.push(") > 0)");
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
        if place > 0 {
            sql.push(between);
        }
        check(sql, namespace, part);
    }
    sql.push(")");
}

/// Writes the condition that the list status is one of these.
pub(super) fn check_words(sql: &mut Sql, words: &[&str]) {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    sql.push("r.list_status = ANY(").bind(words).push(")");
}

/// Writes a condition on the status. Lists have one status for all open runs of code; the state has which of the three it is.
fn check_status(sql: &mut Sql, statuses: &[Status]) {
    let words = statuses.iter().flat_map(|status| words_of_status(*status));
    let words: Vec<&str> = words.copied().collect();
    let is_open = |status: &&Status| code_status(**status) == "running";
    let open = statuses.iter().filter(is_open);
    let open: Vec<String> = open.map(|status| status.as_str().to_owned()).collect();
    sql.push("(");
    check_words(sql, &words);
    if open.len() == 1 || open.len() == 2 {
        sql.uses_state = true;
        sql.push(" AND (r.list_status NOT IN ").push(OPEN);
        sql.push(" OR s.status = ANY(").bind(open).push("))");
    }
    sql.push(")");
}

/// Returns the column of a field; `None` for a search attribute.
pub(super) fn column(sql: &mut Sql, field: &Field) -> Option<&'static str> {
    let (column, uses_state) = match field {
        Field::WorkflowType => ("r.workflow_type", false),
        Field::WorkflowId => ("r.workflow_id", false),
        Field::RunId => ("r.run_id", false),
        Field::TaskQueue => ("r.task_queue", false),
        Field::BuildId => ("r.compatibility", false),
        Field::StartTime => ("r.started_at", false),
        Field::CloseTime => ("r.closed_at", false),
        Field::Execution(field) => match field {
            ExecutionField::Version => ("s.definition", true),
            ExecutionField::CorrelationId => ("r.correlation_id", false),
            ExecutionField::UpdateTime => ("s.updated_at", true),
            ExecutionField::Priority => ("s.priority", true),
            ExecutionField::ParentId => ("coalesce(r.parent_id, '')", false),
            ExecutionField::CreatedBy => ("s.created_by", true),
            ExecutionField::IdempotencyKey => ("s.idempotency_key", true),
            ExecutionField::Classifier => ("s.classifier", true),
            ExecutionField::ReasonForIncompletion => ("s.reason", true),
            ExecutionField::FailedReferences => ("s.failed_references", true),
            ExecutionField::Event => ("NULL::text", false),
        },
        // Only rows of tasks have them.
        Field::Task(_) => ("NULL::text", false),
        Field::Attribute { .. } => return None,
    };
    sql.uses_state |= uses_state;
    Some(column)
}

fn check_test(sql: &mut Sql, namespace: &str, test: &Test) {
    match column(sql, &test.field) {
        Some(column) => matches(sql, column, &test.matcher, bind_in_column),
        None => check_attribute(sql, namespace, &test.field, &test.matcher),
    }
}

fn check_absent(sql: &mut Sql, namespace: &str, field: &Field) {
    match column(sql, field) {
        Some(column) => {
            sql.push("(").push(column).push(" IS NULL)");
        }
        None => {
            sql.push("NOT ");
            check_attribute(sql, namespace, field, &Matcher::Present);
        }
    }
}

fn check_attribute(sql: &mut Sql, namespace: &str, field: &Field, matcher: &Matcher) {
    let Field::Attribute { name, kind } = field else {
        return;
    };
    sql.push("EXISTS (SELECT 1 FROM run_attributes a WHERE a.run_id = r.run_id AND a.namespace = ");
    sql.bind(escaped(namespace).into_owned());
    sql.push(" AND a.name = ").bind(escaped(name).into_owned());
    sql.push(" AND a.kind = ").bind(kind.as_str()).push(" AND ");
    matches(sql, "a.value", matcher, |sql, term| {
        sql.bind(value(term));
    });
    sql.push(")");
}

/// Binds a value to compare a column of runs with.
pub(super) fn bind_in_column(sql: &mut Sql, term: &Term) {
    match term {
        Term::Text(text) => sql.bind(escaped(text).into_owned()),
        Term::Integer(integer) => sql.bind(*integer),
        // Numbers of runs are whole. The type is written, because the column has another.
        Term::Double(double) => sql.bind(*double).push("::float8"),
        Term::Flag(flag) => sql.bind(i64::from(*flag)),
        Term::Time(time) => sql.bind(time.as_micros()),
    };
}

/// Writes the condition that a column matches.
pub(super) fn matches(
    sql: &mut Sql,
    column: &'static str,
    matcher: &Matcher,
    bind: fn(&mut Sql, &Term),
) {
    match matcher {
        Matcher::OneOf(terms) => any(sql, column, " = ", terms, bind),
        Matcher::NoneOf(terms) => {
            // A run without the field never matches.
            sql.push("(").push(column).push(" IS NOT NULL AND NOT ");
            any(sql, column, " = ", terms, bind);
            sql.push(")");
        }
        Matcher::Compare(comparison, term) => {
            let operator = match comparison {
                Comparison::Less => " < ",
                Comparison::LessOrEqual => " <= ",
                Comparison::Greater => " > ",
                Comparison::GreaterOrEqual => " >= ",
            };
            any(sql, column, operator, std::slice::from_ref(term), bind);
        }
        Matcher::StartsWith(prefix) => {
            sql.push("starts_with(").push(column).push(", ");
            sql.bind(escaped(prefix).into_owned()).push(")");
        }
        Matcher::StartsNotWith(prefix) => {
            sql.push("(NOT starts_with(").push(column).push(", ");
            sql.bind(escaped(prefix).into_owned()).push("))");
        }
        Matcher::Like(pattern) => {
            sql.push("(lower(").push(column).push(") LIKE ");
            sql.bind(like(pattern)).push(" ESCAPE '!')");
        }
        Matcher::NotLike(pattern) => {
            sql.push("(lower(").push(column).push(") NOT LIKE ");
            sql.bind(like(pattern)).push(" ESCAPE '!')");
        }
        Matcher::Present => {
            sql.push("(").push(column).push(" IS NOT NULL)");
        }
    }
}

/// Writes the condition that a column compares with one of these values.
fn any(
    sql: &mut Sql,
    column: &'static str,
    operator: &'static str,
    terms: &[Term],
    bind: fn(&mut Sql, &Term),
) {
    if terms.is_empty() {
        sql.push("false");
        return;
    }
    sql.push("(");
    for (place, term) in terms.iter().enumerate() {
        if place > 0 {
            sql.push(" OR ");
        }
        sql.push(column).push(operator);
        bind(sql, term);
    }
    sql.push(")");
}

/// Returns a pattern in the language of `LIKE`, in lower case.
fn like(pattern: &Pattern) -> String {
    let quoted = |piece: &str| {
        let piece = escaped(piece);
        let mut text = String::with_capacity(piece.len());
        for character in piece.chars() {
            if "!%_".contains(character) {
                text.push('!');
            }
            text.push(character);
        }
        text
    };
    let pieces: Vec<String> = pattern.pieces().map(quoted).collect();
    pieces.join("%")
}

/// Writes the condition that a value of the summary of a definition run contains a text.
fn check_summary(sql: &mut Sql, text: &str) {
    const COLUMNS: [&str; 10] = [
        "r.run_id",
        "r.workflow_type",
        "r.list_status",
        "r.correlation_id",
        "coalesce(r.parent_id, '')",
        "s.classifier",
        "s.failed_references",
        "s.idempotency_key",
        "s.created_by",
        "s.reason",
    ];
    sql.uses_state = true;
    let text = escaped(text).into_owned();
    sql.push("(");
    check_words(sql, &words_of_program(Program::Definition));
    sql.push(" AND (");
    for column in COLUMNS {
        sql.push("strpos(lower(").push(column).push("), ");
        sql.bind(text.clone()).push(") > 0 OR ");
    }
    sql.push("EXISTS (SELECT 1 FROM run_parts p WHERE p.run_id = r.run_id AND p.part IN ('input', 'output') AND strpos(p.searched, ");
    sql.bind(text).push(") > 0)))");
}
