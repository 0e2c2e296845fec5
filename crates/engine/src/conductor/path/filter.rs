//! Conditions inside `[?(…)]` and how values compare.

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::Steps;
use super::evaluate::Search;
use crate::conductor::Limit;

/// The most memory that one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// What compiling a pattern costs, in steps.
const PATTERN_STEPS: usize = 2000;

/// A condition on a value, which it calls `@`.
#[derive(Clone, Debug)]
pub(super) enum Filter {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Constant(bool),
    Exists { from_root: bool, steps: Steps },
    Compare(Operand, Compare, Operand),
}

#[derive(Clone, Debug)]
pub(super) enum Operand {
    Literal(Value),
    /// A path from `@`, or from `$`: the value that the whole path is applied to.
    Path {
        from_root: bool,
        steps: Steps,
    },
    Pattern {
        number: usize,
        source: String,
        flags: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Matches,
    In,
    NotIn,
}

impl Operand {
    /// Compiles a pattern. It must match the whole text. Returns `None` for other operands.
    pub(super) fn compile(&self) -> Option<Result<Regex, String>> {
        let Self::Pattern { source, flags, .. } = self else {
            return None;
        };
        let compiled = RegexBuilder::new(&format!("^(?:{source})$"))
            .case_insensitive(flags.contains('i'))
            .multi_line(flags.contains('m'))
            .dot_matches_new_line(flags.contains('s'))
            .ignore_whitespace(flags.contains('x'))
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build();
        Some(compiled.map_err(|error| format!("the pattern is not valid: {error}")))
    }
}

impl<'a> Search<'a, '_> {
    /// Returns whether a value fulfils a condition. The recursion is as deep as the condition, which the parser bounds.
    pub(super) fn accepts(&mut self, filter: &Filter, value: &'a Value) -> Result<bool, Limit> {
        self.budget.steps(1)?;
        match filter {
            Filter::Any(list) => {
                for condition in list {
                    if self.accepts(condition, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Filter::All(list) => {
                for condition in list {
                    if !self.accepts(condition, value)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Filter::Not(condition) => Ok(!self.accepts(condition, value)?),
            Filter::Constant(constant) => Ok(*constant),
            Filter::Exists { from_root, steps } => {
                let from = if *from_root { self.root } else { value };
                Ok(self.select(steps, from)?.exists())
            }
            Filter::Compare(left, operator, right) => {
                let left = self.operand(left, value)?;
                if *operator == Compare::Matches {
                    return self.matches(right, left.as_deref());
                }
                let right = self.operand(right, value)?;
                self.compare(left.as_deref(), *operator, right.as_deref())
            }
        }
    }

    fn operand<'b>(
        &mut self,
        operand: &'b Operand,
        value: &'a Value,
    ) -> Result<Option<Cow<'b, Value>>, Limit>
    where
        'a: 'b,
    {
        match operand {
            Operand::Literal(literal) => Ok(Some(Cow::Borrowed(literal))),
            Operand::Path { from_root, steps } => {
                let from = if *from_root { self.root } else { value };
                let selected = self.select(steps, from)?;
                selected.into_value(self.budget)
            }
            Operand::Pattern { .. } => Ok(None),
        }
    }

    fn matches(&mut self, pattern: &Operand, text: Option<&Value>) -> Result<bool, Limit> {
        let (Operand::Pattern { number, .. }, Some(Value::String(text))) = (pattern, text) else {
            return Ok(false);
        };
        if !self.patterns.contains_key(number) {
            self.budget.steps(PATTERN_STEPS)?;
            if let Some(Ok(compiled)) = pattern.compile() {
                self.patterns.insert(*number, compiled);
            }
        }
        // Matching takes time in proportion to the text and to the pattern.
        self.budget.steps(1 + text.len() / 8)?;
        Ok(self
            .patterns
            .get(number)
            .is_some_and(|compiled| compiled.is_match(text)))
    }

    fn compare(
        &mut self,
        left: Option<&Value>,
        operator: Compare,
        right: Option<&Value>,
    ) -> Result<bool, Limit> {
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(matches!(operator, Compare::NotEqual | Compare::NotIn));
        };
        let ordering = ordering(left, right);
        Ok(match operator {
            Compare::Equal => self.equal(left, right)?,
            Compare::NotEqual => !self.equal(left, right)?,
            Compare::Less => ordering == Some(Ordering::Less),
            Compare::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
            Compare::Greater => ordering == Some(Ordering::Greater),
            Compare::GreaterOrEqual => {
                matches!(ordering, Some(Ordering::Greater | Ordering::Equal))
            }
            Compare::In | Compare::NotIn => {
                let mut found = false;
                if let Value::Array(list) = right {
                    for element in list {
                        found = found || self.equal(left, element)?;
                    }
                }
                found == (operator == Compare::In)
            }
            Compare::Matches => false,
        })
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Limit> {
        self.budget.steps(1)?;
        Ok(match (left, right) {
            (Value::Number(_), Value::Number(_) | Value::String(_))
            | (Value::String(_), Value::Number(_)) => {
                matches!((number(left), number(right)), (Some(left), Some(right)) if left == right)
            }
            (Value::Array(list), _) | (_, Value::Array(list)) => {
                self.budget.steps(list.len())?;
                left == right
            }
            _ => left == right,
        })
    }
}

/// Compares two numbers or two texts. Other values have no order.
fn ordering(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => number(left)?.partial_cmp(&number(right)?),
        },
        (Value::String(one), Value::String(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
