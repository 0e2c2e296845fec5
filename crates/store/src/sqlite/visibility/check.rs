//! The SQL of conditions on the row of a run: the fixed pieces that are checked row by row. Values of callers are bound, never part of
//! the text.

use longhaul_engine::run::state::{Program, Status};
use longhaul_engine::visibility::execution::ExecutionField;
use longhaul_engine::visibility::{Comparison, Condition, Field, Matcher, Pattern, Term, Test};

use rusqlite::types::Value;

use super::index::sql_value;
use super::statement::{Sql, words};
use crate::encode::code_status;
use crate::status::{words_of_program, words_of_status};

/// Writes a condition on the row of a run. The plus signs keep SQLite from reading another index than the chosen one.
pub(super) fn check(sql: &mut Sql, condition: &Condition) {
    match condition {
        Condition::All(parts) => join(sql, parts, " AND ", "1"),
        Condition::Any(parts) => join(sql, parts, " OR ", "0"),
        Condition::Test(test) => check_test(sql, test),
        Condition::Absent(field) => check_absent(sql, field),
        Condition::Status(statuses) => check_status(sql, statuses),
        Condition::Program(program) => {
            column_matches(sql, "+r.list_status", &words(&words_of_program(*program)));
        }
        Condition::ExecutionStatus(statuses) => {
            let names: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
            column_matches(sql, "+r.list_status", &words(&names));
        }
        Condition::SummaryText(text) => check_summary(sql, text),
        Condition::FreeText(text) => {
            sql.push("(instr(lower(r.workflow_id), ").bind(text.clone());
            sql.push(") > 0 OR instr(lower(r.business_key), ")
                .bind(text.clone());
            sql.push(") > 0)");
        }
    }
}

fn join(sql: &mut Sql, parts: &[Condition], between: &'static str, empty: &'static str) {
    if parts.is_empty() {
        sql.push(empty);
        return;
    }
    sql.push("(");
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            sql.push(between);
        }
        check(sql, part);
    }
    sql.push(")");
}

fn check_test(sql: &mut Sql, test: &Test) {
    match (&test.field, column(&test.field)) {
        // This time is in the state of the run, as text of one length.
        (Field::Execution(ExecutionField::UpdateTime), Some(column)) => {
            column_matches(sql, column, &as_text(&test.matcher));
        }
        (_, Some(column)) => column_matches(sql, column, &test.matcher),
        (field, None) => check_attribute(sql, field, &test.matcher),
    }
}

/// Returns the place of a field in the row of a run; `None` for a search attribute.
pub(super) fn column(field: &Field) -> Option<&'static str> {
    Some(match field {
        Field::WorkflowType => "+r.workflow_type",
        Field::WorkflowId => "+r.workflow_id",
        Field::RunId => "+r.run_id",
        Field::TaskQueue => "+r.task_queue",
        Field::BuildId => "+r.compatibility",
        Field::StartTime => "+r.started_at",
        Field::CloseTime => "+r.closed_at",
        Field::Execution(field) => match field {
            ExecutionField::Version => "(r.state ->> '$.execution.version')",
            ExecutionField::CorrelationId => "+r.correlation_id",
            ExecutionField::UpdateTime => "(r.state ->> '$.execution.updated_at')",
            ExecutionField::Priority => "coalesce(r.state ->> '$.execution.priority', 0)",
            ExecutionField::ParentId => "coalesce(r.parent_id, '')",
            ExecutionField::CreatedBy => "(r.state ->> '$.execution.created_by')",
            ExecutionField::IdempotencyKey => "(r.state ->> '$.execution.idempotency_key')",
            ExecutionField::Classifier => {
                "coalesce(r.state ->> '$.execution.classifier', 'workflow')"
            }
            ExecutionField::ReasonForIncompletion => "(r.state ->> '$.execution.reason')",
            ExecutionField::FailedReferences => {
                "coalesce(r.state ->> '$.execution.failed_references', '')"
            }
            ExecutionField::Event => "NULL",
        },
        // Only rows of tasks have them.
        Field::Task(_) => "NULL",
        Field::Attribute { .. } => return None,
    })
}

fn check_attribute(sql: &mut Sql, field: &Field, matcher: &Matcher) {
    let Field::Attribute { name, kind } = field else {
        return;
    };
    sql.push("EXISTS (SELECT 1 FROM run_attributes x WHERE x.run_key = r.run_key AND x.name = ");
    sql.bind(name.clone()).push(" AND x.kind = ");
    sql.bind(kind.as_str().to_owned()).push(" AND ");
    column_matches(sql, "x.value", matcher);
    sql.push(")");
}

fn check_absent(sql: &mut Sql, field: &Field) {
    match column(field) {
        Some(column) => {
            sql.push("(").push(column).push(" IS NULL)");
        }
        None => {
            sql.push("NOT ");
            check_attribute(sql, field, &Matcher::Present);
        }
    }
}

/// Returns a matcher of times as one of their texts.
fn as_text(matcher: &Matcher) -> Matcher {
    let text = |term: &Term| match term {
        Term::Time(time) => Term::Text(time.to_string()),
        other => other.clone(),
    };
    match matcher {
        Matcher::OneOf(terms) => Matcher::OneOf(terms.iter().map(text).collect()),
        Matcher::NoneOf(terms) => Matcher::NoneOf(terms.iter().map(text).collect()),
        Matcher::Compare(comparison, term) => Matcher::Compare(*comparison, text(term)),
        other => other.clone(),
    }
}

/// Writes the condition that a value of the summary contains a text.
fn check_summary(sql: &mut Sql, text: &str) {
    const COLUMNS: [&str; 9] = [
        "r.run_id",
        "r.workflow_type",
        "r.list_status",
        "r.correlation_id",
        "r.parent_id",
        "coalesce(r.state ->> '$.execution.classifier', 'workflow')",
        "r.state ->> '$.execution.failed_references'",
        "r.state ->> '$.execution.idempotency_key'",
        "r.state ->> '$.execution.created_by'",
    ];
    sql.push("(+r.list_status IN ")
        .bind_all(&definition_words());
    sql.push(" AND (");
    for column in COLUMNS {
        sql.push("instr(lower(").push(column).push("), ");
        sql.bind(text.to_owned()).push(") > 0 OR ");
    }
    sql.push("instr(lower(r.state ->> '$.execution.reason'), ")
        .bind(text.to_owned())
        .push(") > 0 OR EXISTS (SELECT 1 FROM run_parts p WHERE p.run_key = r.run_key AND p.part IN ('input', 'output') AND ");
    sql.push("instr(lower(p.body ->> '$.value.inline'), ")
        .bind(text.to_owned())
        .push(") > 0)))");
}

fn definition_words() -> Vec<Term> {
    let words = words_of_program(Program::Definition).into_iter();
    words.map(|word| Term::Text(word.to_owned())).collect()
}

/// Writes a condition on the status. Lists have five statuses; only the state of a run contains which of the three open ones it
/// has.
fn check_status(sql: &mut Sql, statuses: &[Status]) {
    let words: Vec<Term> = statuses
        .iter()
        .flat_map(|status| words_of_status(*status))
        .map(|word| Term::Text((*word).to_owned()))
        .collect();
    let is_open = |status: &&Status| code_status(**status) == "running";
    let open: Vec<Term> = statuses
        .iter()
        .filter(is_open)
        .map(|status| Term::Text(status.as_str().to_owned()))
        .collect();
    sql.push("(+r.list_status IN ").bind_all(&words);
    if open.len() == 1 || open.len() == 2 {
        sql.push(" AND (r.list_status NOT IN ('running', 'RUNNING', 'PAUSED') OR json_extract(r.state, '$.status') IN ");
        sql.bind_all(&open).push(")");
    }
    sql.push(")");
}

pub(super) fn column_matches(sql: &mut Sql, column: &'static str, matcher: &Matcher) {
    sql.push("(").push(column);
    match matcher {
        Matcher::OneOf(terms) => match terms.as_slice() {
            // One value as an equality, so that the order of the index is the order of the page.
            [term] => sql.push(" = ").bind(sql_value(term)),
            // Never true. SQLite refuses a chosen index for an empty list.
            [] => sql.push(" = ").bind(Value::Null),
            terms => sql.push(" IN ").bind_all(terms),
        },
        Matcher::NoneOf(terms) => sql.push(" NOT IN ").bind_all(terms),
        Matcher::Compare(comparison, term) => {
            sql.push(match comparison {
                Comparison::Less => " < ",
                Comparison::LessOrEqual => " <= ",
                Comparison::Greater => " > ",
                Comparison::GreaterOrEqual => " >= ",
            });
            sql.bind(sql_value(term))
        }
        Matcher::StartsWith(prefix) => {
            sql.push(" >= ").bind(prefix.clone());
            match after_prefix(prefix) {
                Some(bound) => sql.push(" AND ").push(column).push(" < ").bind(bound),
                None => sql,
            }
        }
        Matcher::Like(pattern) => sql.push(" LIKE ").bind(like(pattern)).push(" ESCAPE '!'"),
        Matcher::NotLike(pattern) => sql
            .push(" NOT LIKE ")
            .bind(like(pattern))
            .push(" ESCAPE '!'"),
        Matcher::Present => sql.push(" IS NOT NULL"),
        Matcher::StartsNotWith(prefix) => {
            sql.push(" < ").bind(prefix.clone());
            match after_prefix(prefix) {
                Some(bound) => sql.push(" OR ").push(column).push(" >= ").bind(bound),
                None => sql,
            }
        }
    };
    sql.push(")");
}

/// Returns a pattern in the language of `LIKE`, whose letters A to Z match in either case too.
fn like(pattern: &Pattern) -> String {
    let escaped = |piece: &str| {
        let mut text = String::with_capacity(piece.len());
        for character in piece.chars() {
            if "!%_".contains(character) {
                text.push('!');
            }
            text.push(character);
        }
        text
    };
    let pieces: Vec<String> = pattern.pieces().map(escaped).collect();
    pieces.join("%")
}

/// Returns the first text in the order of bytes that is greater than every text with this prefix; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = match last {
            // After the range that text cannot contain.
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}
