//! The conditions that an operator of a query means, by the kind of its field.

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::WorkflowStatus;

use super::ExecutionField;
use crate::visibility::condition::{Comparison, Condition, Field, Matcher, Test};
use crate::visibility::lexer::Operator;
use crate::visibility::parse::QueryError;
use crate::visibility::pattern::Pattern;
use crate::visibility::term::{Term, read_time};

/// The operator after a field, with its values.
pub(super) enum Verb<'a> {
    Compare(Operator, Literal<'a>),
    In(Vec<Literal<'a>>),
    StartsWith(Literal<'a>),
    Between(Literal<'a>, Literal<'a>),
    IsNull,
    IsNotNull,
}

/// A value and the character it begins at.
#[derive(Clone, Copy)]
pub(super) struct Literal<'a> {
    pub(super) at: usize,
    pub(super) text: &'a str,
}

fn test(field: &Field, matcher: Matcher) -> Condition {
    Condition::Test(Test {
        field: field.clone(),
        matcher,
    })
}

fn comparison(operator: Operator) -> Option<Comparison> {
    match operator {
        Operator::Equal | Operator::NotEqual => None,
        Operator::Less => Some(Comparison::Less),
        Operator::LessOrEqual => Some(Comparison::LessOrEqual),
        Operator::Greater => Some(Comparison::Greater),
        Operator::GreaterOrEqual => Some(Comparison::GreaterOrEqual),
    }
}

pub(super) fn status(at: usize, verb: Verb<'_>) -> Result<Condition, QueryError> {
    let all = || WorkflowStatus::ALL.iter().copied();
    let chosen = match verb {
        Verb::Compare(Operator::Equal, literal) => statuses(literal)?,
        Verb::Compare(Operator::NotEqual, literal) => {
            let excluded = statuses(literal)?;
            all().filter(|status| !excluded.contains(status)).collect()
        }
        Verb::In(literals) => {
            let mut chosen = Vec::new();
            for literal in literals {
                chosen.extend(statuses(literal)?);
            }
            all().filter(|status| chosen.contains(status)).collect()
        }
        Verb::StartsWith(literal) => all()
            .filter(|status| status.as_str().starts_with(literal.text))
            .collect(),
        Verb::IsNull => Vec::new(),
        Verb::IsNotNull => all().collect(),
        Verb::Compare(..) | Verb::Between(..) => {
            let message = "a status is compared with =, != and IN only";
            return Err(QueryError::new(at, message));
        }
    };
    Ok(Condition::ExecutionStatus(chosen))
}

/// Returns the statuses that a value means: one by its name, or those that match its pattern.
fn statuses(literal: Literal<'_>) -> Result<Vec<WorkflowStatus>, QueryError> {
    let all = WorkflowStatus::ALL.iter().copied();
    let chosen: Vec<WorkflowStatus> = match Pattern::parse(literal.text) {
        Some(pattern) => {
            return Ok(all
                .filter(|status| pattern.matches(status.as_str()))
                .collect());
        }
        None => all
            .filter(|status| status.as_str().eq_ignore_ascii_case(literal.text))
            .collect(),
    };
    if chosen.is_empty() {
        let names: Vec<&str> = WorkflowStatus::ALL
            .iter()
            .map(|status| status.as_str())
            .collect();
        let message = format!("a status is one of {}", names.join(", "));
        return Err(QueryError::new(literal.at, &message));
    }
    Ok(chosen)
}

pub(super) fn text(field: &Field, verb: Verb<'_>) -> Result<Condition, QueryError> {
    let term = |literal: Literal<'_>| Term::Text(literal.text.to_owned());
    // These are empty where others are absent.
    let is_never_absent = matches!(
        field,
        Field::Execution(ExecutionField::ParentId | ExecutionField::FailedReferences)
    );
    let empty = || vec![Term::Text(String::new())];
    Ok(match verb {
        Verb::Compare(operator, literal) => {
            match (comparison(operator), Pattern::parse(literal.text)) {
                (Some(comparison), _) => test(field, Matcher::Compare(comparison, term(literal))),
                (None, Some(pattern)) if operator == Operator::Equal => {
                    test(field, Matcher::Like(pattern))
                }
                (None, Some(pattern)) => test(field, Matcher::NotLike(pattern)),
                (None, None) if operator == Operator::Equal => {
                    test(field, Matcher::OneOf(vec![term(literal)]))
                }
                (None, None) => test(field, Matcher::NoneOf(vec![term(literal)])),
            }
        }
        Verb::In(literals) => {
            let mut plain = Vec::new();
            let mut ways = Vec::new();
            for literal in literals {
                match Pattern::parse(literal.text) {
                    Some(pattern) => ways.push(test(field, Matcher::Like(pattern))),
                    None => plain.push(term(literal)),
                }
            }
            if !plain.is_empty() {
                ways.push(test(field, Matcher::OneOf(plain)));
            }
            match ways.len() {
                1 => ways.remove(0),
                _ => Condition::Any(ways),
            }
        }
        Verb::StartsWith(literal) => test(field, Matcher::StartsWith(literal.text.to_owned())),
        Verb::Between(from, to) => Condition::All(vec![
            test(
                field,
                Matcher::Compare(Comparison::GreaterOrEqual, term(from)),
            ),
            test(field, Matcher::Compare(Comparison::LessOrEqual, term(to))),
        ]),
        Verb::IsNull if is_never_absent => test(field, Matcher::OneOf(empty())),
        Verb::IsNotNull if is_never_absent => test(field, Matcher::NoneOf(empty())),
        Verb::IsNull => Condition::Absent(field.clone()),
        Verb::IsNotNull => test(field, Matcher::Present),
    })
}

pub(super) fn number(
    at: usize,
    name: &str,
    field: &Field,
    verb: Verb<'_>,
) -> Result<Condition, QueryError> {
    let term = |literal: Literal<'_>| {
        let integer = literal.text.parse().map(Term::Integer).ok();
        let double = || {
            literal
                .text
                .parse()
                .ok()
                .filter(|double: &f64| double.is_finite())
        };
        integer
            .or_else(|| double().map(Term::Double))
            .ok_or_else(|| QueryError::new(literal.at, &format!("`{name}` takes a number")))
    };
    Ok(match verb {
        Verb::Compare(operator, literal) => {
            let term = term(literal)?;
            test(
                field,
                match comparison(operator) {
                    Some(comparison) => Matcher::Compare(comparison, term),
                    None if operator == Operator::Equal => Matcher::OneOf(vec![term]),
                    None => Matcher::NoneOf(vec![term]),
                },
            )
        }
        Verb::In(literals) => {
            let terms: Result<_, _> = literals.into_iter().map(term).collect();
            test(field, Matcher::OneOf(terms?))
        }
        Verb::Between(from, to) => Condition::All(vec![
            test(
                field,
                Matcher::Compare(Comparison::GreaterOrEqual, term(from)?),
            ),
            test(field, Matcher::Compare(Comparison::LessOrEqual, term(to)?)),
        ]),
        Verb::StartsWith(_) => {
            return Err(QueryError::new(
                at,
                &format!("`{name}` is a number, not a text"),
            ));
        }
        Verb::IsNull => Condition::Absent(field.clone()),
        Verb::IsNotNull => test(field, Matcher::Present),
    })
}

/// A run's times have microseconds, a query's have milliseconds, so that a value means the whole millisecond.
pub(super) fn time(
    at: usize,
    name: &str,
    field: &Field,
    verb: Verb<'_>,
) -> Result<Condition, QueryError> {
    let read = |literal: Literal<'_>| {
        read_millis(literal.text).ok_or_else(|| {
            let message = format!("`{name}` takes milliseconds since 1970, or an RFC 3339 time");
            QueryError::new(literal.at, &message)
        })
    };
    let begin = |millis: i64| Term::Time(Timestamp::from_micros(millis.saturating_mul(1000)));
    let from = |millis: i64| {
        test(
            field,
            Matcher::Compare(Comparison::GreaterOrEqual, begin(millis)),
        )
    };
    let before = |millis: i64| test(field, Matcher::Compare(Comparison::Less, begin(millis)));
    let at_most = |millis: i64| before(millis.saturating_add(1));
    let within = |millis: i64| Condition::All(vec![from(millis), at_most(millis)]);
    Ok(match verb {
        Verb::Compare(operator, literal) => {
            let millis = read(literal)?;
            match operator {
                Operator::Equal => within(millis),
                Operator::NotEqual => {
                    Condition::Any(vec![before(millis), from(millis.saturating_add(1))])
                }
                Operator::Less => before(millis),
                Operator::LessOrEqual => at_most(millis),
                Operator::Greater => from(millis.saturating_add(1)),
                Operator::GreaterOrEqual => from(millis),
            }
        }
        Verb::In(literals) => {
            let times: Result<Vec<i64>, _> = literals.into_iter().map(read).collect();
            Condition::Any(times?.into_iter().map(within).collect())
        }
        Verb::Between(low, high) => Condition::All(vec![from(read(low)?), at_most(read(high)?)]),
        Verb::StartsWith(_) => {
            return Err(QueryError::new(
                at,
                &format!("`{name}` is a time, not a text"),
            ));
        }
        Verb::IsNull => Condition::Absent(field.clone()),
        Verb::IsNotNull => test(field, Matcher::Present),
    })
}

/// Returns a time in milliseconds.
fn read_millis(text: &str) -> Option<i64> {
    if let Ok(millis) = text.parse::<i64>() {
        return Some(millis);
    }
    read_time(text).map(|time| time.as_micros().div_euclid(1000))
}
