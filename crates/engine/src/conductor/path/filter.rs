//! Conditions inside `[?(…)]` and how values compare.

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::Steps;
use super::evaluate::Search;
use crate::conductor::Limit;

/// What compiling a pattern costs, in steps. It takes up to half a millisecond.
const PATTERN_STEPS: usize = 10_000;

/// Sizes of compiled patterns in bytes, and what matching one byte of text costs with them, in steps. Matching takes time in
/// proportion to the text and to the pattern: at most 12 microseconds for a byte with the largest. Classes such as `\w` need the
/// second size.
const PATTERN_SIZES: [(usize, usize); 3] = [(4 * 1024, 4), (32 * 1024, 16), (64 * 1024, 32)];

/// A longer text is not compared with a number. The longest number that a program writes has about 330 digits.
const NUMBER_BYTES_MAX: usize = 400;

/// A pattern that is ready to match.
pub(super) struct Pattern {
    regex: Regex,
    steps_per_byte: usize,
}

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

impl Pattern {
    /// Compiles a pattern that must match the whole text. Returns `None` if it is not valid or too large.
    fn compile(source: &str, flags: &str) -> Option<Self> {
        PATTERN_SIZES.iter().find_map(|(size, steps_per_byte)| {
            let regex = RegexBuilder::new(&format!("^(?:{source})$"))
                .case_insensitive(flags.contains('i'))
                .multi_line(flags.contains('m'))
                .dot_matches_new_line(flags.contains('s'))
                .ignore_whitespace(flags.contains('x'))
                .size_limit(*size)
                .dfa_size_limit(*size)
                .build()
                .ok()?;
            Some(Self {
                regex,
                steps_per_byte: *steps_per_byte,
            })
        })
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

    /// Returns whether a text matches a pattern. A pattern that is not valid matches nothing.
    fn matches(&mut self, pattern: &Operand, text: Option<&Value>) -> Result<bool, Limit> {
        let (
            Operand::Pattern {
                number,
                source,
                flags,
            },
            Some(Value::String(text)),
        ) = (pattern, text)
        else {
            return Ok(false);
        };
        if !self.patterns.contains_key(number) {
            self.budget.steps(PATTERN_STEPS)?;
            self.patterns
                .insert(*number, Pattern::compile(source, flags));
        }
        let Some(Some(pattern)) = self.patterns.get(number) else {
            return Ok(false);
        };
        self.budget
            .steps(text.len().saturating_mul(pattern.steps_per_byte))?;
        Ok(pattern.regex.is_match(text))
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
        if let (Value::String(left), Value::String(right)) = (left, right) {
            self.budget.steps(left.len().min(right.len()) / 64)?;
        }
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
                        found = self.equal(left, element)?;
                        if found {
                            break;
                        }
                    }
                }
                found == (operator == Compare::In)
            }
            Compare::Matches => false,
        })
    }

    /// Returns whether two values are equal. A number equals a text that is written like it. Every compared value costs a step.
    fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, Limit> {
        self.budget.steps(1)?;
        if let (Value::Number(_), Value::Number(_) | Value::String(_))
        | (Value::String(_), Value::Number(_)) = (left, right)
        {
            let numbers = number(left).zip(number(right));
            return Ok(numbers.is_some_and(|(left, right)| left == right));
        }
        let mut stack = vec![(left, right)];
        while let Some((left, right)) = stack.pop() {
            self.budget.steps(1)?;
            match (left, right) {
                (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                    self.budget.steps(left.len())?;
                    stack.extend(left.iter().zip(right));
                }
                (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
                    self.budget.steps(left.len())?;
                    for ((left_name, left), (right_name, right)) in left.iter().zip(right) {
                        if left_name != right_name {
                            return Ok(false);
                        }
                        stack.push((left, right));
                    }
                }
                (Value::Array(_) | Value::Object(_), _) => return Ok(false),
                (Value::String(left), Value::String(right)) => {
                    self.budget.steps(left.len().min(right.len()) / 64)?;
                    if left != right {
                        return Ok(false);
                    }
                }
                (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {
                    if left != right {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
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
        Value::String(text) if text.len() <= NUMBER_BYTES_MAX => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}
