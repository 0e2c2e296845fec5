//! Applies a path to a value. Data is walked with explicit stacks, and every visited value costs a step of the budget.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Number, Value};

use longhaul_protocol::conductor::Object;

use super::filter::Pattern;
use super::{Ending, Function, Select, Steps};
use crate::conductor::{Budget, Limit};

/// What a path found.
#[derive(Clone, Debug, PartialEq)]
pub enum Selected<'a> {
    /// A definite path found nothing.
    Nothing,
    /// A definite path found this value.
    One(&'a Value),
    /// An indefinite path found these values.
    Many(Vec<&'a Value>),
    /// A function or a union of names made this value.
    Made(Value),
}

impl<'a> Selected<'a> {
    /// Returns whether anything was found.
    pub(super) fn exists(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(_) => true,
            Self::Many(list) => !list.is_empty(),
            Self::Made(value) => !value.is_null(),
        }
    }

    /// Returns the value, copied only if it is a list of several.
    pub(super) fn into_value(self, budget: &mut Budget) -> Result<Option<Cow<'a, Value>>, Limit> {
        Ok(match self {
            Self::Nothing => None,
            Self::One(value) => Some(Cow::Borrowed(value)),
            Self::Many(list) => Some(Cow::Owned(copy_list(&list, budget, 0)?)),
            Self::Made(value) => Some(Cow::Owned(value)),
        })
    }

    /// Copies the result into the output at a depth. Nothing is null.
    pub fn copy(self, budget: &mut Budget, depth: usize) -> Result<Value, Limit> {
        match self {
            Self::Nothing => Ok(Value::Null),
            Self::One(value) => budget.copy(value, depth),
            Self::Many(list) => copy_list(&list, budget, depth),
            // The size was paid when the value was made, its depth was not.
            Self::Made(value) => budget.copy(&value, depth),
        }
    }
}

fn copy_list(list: &[&Value], budget: &mut Budget, depth: usize) -> Result<Value, Limit> {
    let mut copied = Vec::with_capacity(list.len());
    for value in list {
        copied.push(budget.copy(value, depth + 1)?);
    }
    Ok(Value::Array(copied))
}

impl Steps {
    /// Applies the steps to a value.
    pub(in crate::conductor) fn find<'a>(
        &self,
        root: &'a Value,
        budget: &mut Budget,
    ) -> Result<Selected<'a>, Limit> {
        let mut search = Search {
            root,
            budget,
            patterns: BTreeMap::new(),
        };
        search.select(self, root)
    }
}

/// One evaluation of a path.
pub(super) struct Search<'a, 'b> {
    pub(super) root: &'a Value,
    pub(super) budget: &'b mut Budget,
    /// The patterns that were compiled so far, by number. `None` is a pattern that is not valid.
    pub(super) patterns: BTreeMap<usize, Option<Pattern>>,
}

impl<'a> Search<'a, '_> {
    pub(super) fn select(&mut self, steps: &Steps, from: &'a Value) -> Result<Selected<'a>, Limit> {
        let mut current = vec![from];
        for step in &steps.list {
            let mut next = Vec::new();
            for value in current {
                if step.descend {
                    self.descend(&step.select, value, &mut next)?;
                } else {
                    self.apply(&step.select, value, &mut next)?;
                }
            }
            current = next;
        }
        let definite = steps.is_definite();
        match &steps.ending {
            Ending::Selected if definite => Ok(current
                .first()
                .map_or(Selected::Nothing, |value| Selected::One(value))),
            Ending::Selected => Ok(Selected::Many(current)),
            Ending::Merge(names) => self.merge(names, &current, definite),
            Ending::Function(function) => {
                if definite {
                    let Some(value) = current.first() else {
                        return Ok(Selected::Nothing);
                    };
                    self.function(*function, value)
                } else {
                    self.function_of_list(*function, &current)
                }
            }
        }
    }

    /// Applies a selector to a value and everything inside it, containers before their contents.
    fn descend(
        &mut self,
        select: &Select,
        from: &'a Value,
        found: &mut Vec<&'a Value>,
    ) -> Result<(), Limit> {
        let mut stack = vec![from];
        while let Some(value) = stack.pop() {
            if let Select::Filter(filter) = select {
                // Each value is looked at once: as itself, not again as an element of its list.
                if self.accepts(filter, value)? {
                    found.push(value);
                }
            } else {
                self.apply(select, value, found)?;
            }
            let before = stack.len();
            match value {
                Value::Array(list) => stack.extend(list),
                Value::Object(map) => stack.extend(map.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
            self.budget.steps(stack.len() - before)?;
            stack[before..].reverse();
        }
        Ok(())
    }

    fn apply(
        &mut self,
        select: &Select,
        value: &'a Value,
        found: &mut Vec<&'a Value>,
    ) -> Result<(), Limit> {
        self.budget.steps(1)?;
        let before = found.len();
        match (select, value) {
            (Select::Member(name), Value::Object(map)) => found.extend(map.get(name)),
            (Select::Members(names), Value::Object(map)) => {
                found.extend(names.iter().filter_map(|name| map.get(name)));
            }
            (Select::Index(index), Value::Array(list)) => found.extend(at(list, *index)),
            (Select::Indexes(indexes), Value::Array(list)) => {
                found.extend(indexes.iter().filter_map(|index| at(list, *index)));
            }
            (Select::Slice { from, to, step }, Value::Array(list)) => {
                let from = from.map_or(0, |from| bound(list.len(), from));
                let to = to.map_or(list.len(), |to| bound(list.len(), to));
                if from < to {
                    found.extend(list[from..to].iter().step_by(*step));
                }
            }
            (Select::All, Value::Array(list)) => found.extend(list),
            (Select::All, Value::Object(map)) => found.extend(map.values()),
            (Select::Filter(filter), Value::Array(list)) => {
                for element in list {
                    if self.accepts(filter, element)? {
                        found.push(element);
                    }
                }
            }
            // A filter on an object keeps or drops the object as a whole.
            (Select::Filter(filter), Value::Object(_)) if self.accepts(filter, value)? => {
                found.push(value);
            }
            _ => {}
        }
        self.budget.steps(found.len() - before)
    }

    fn merge(
        &mut self,
        names: &[String],
        values: &[&'a Value],
        definite: bool,
    ) -> Result<Selected<'a>, Limit> {
        let mut merged = Vec::new();
        for value in values {
            let Value::Object(map) = value else { continue };
            let mut members = Object::new();
            for name in names {
                if let Some(value) = map.get(name) {
                    self.budget.bytes(name.len())?;
                    members.insert(name.clone(), self.budget.copy(value, 0)?);
                }
            }
            merged.push(Value::Object(members));
        }
        if definite {
            return Ok(merged.pop().map_or(Selected::Nothing, Selected::Made));
        }
        Ok(Selected::Made(Value::Array(merged)))
    }

    fn function(&mut self, function: Function, value: &'a Value) -> Result<Selected<'a>, Limit> {
        match (function, value) {
            (Function::Length, Value::Object(map)) => Ok(made(map.len())),
            (Function::Length, Value::String(text)) => {
                self.budget.steps(text.len())?;
                Ok(made(text.chars().count()))
            }
            (Function::Keys, Value::Object(map)) => {
                let mut keys = Vec::with_capacity(map.len());
                for key in map.keys() {
                    self.budget.bytes(key.len() + 8)?;
                    keys.push(Value::String(key.clone()));
                }
                Ok(Selected::Made(Value::Array(keys)))
            }
            (_, Value::Array(list)) => {
                self.budget.steps(list.len())?;
                let list: Vec<_> = list.iter().collect();
                self.function_of_list(function, &list)
            }
            _ => Ok(Selected::Nothing),
        }
    }

    fn function_of_list(
        &mut self,
        function: Function,
        list: &[&'a Value],
    ) -> Result<Selected<'a>, Limit> {
        self.budget.steps(list.len())?;
        let mut numbers = list.iter().filter_map(|value| match value {
            Value::Number(number) => Some(number),
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => None,
        });
        let by_size = |one: &&Number, other: &&Number| {
            let one = one.as_f64().unwrap_or(f64::NAN);
            one.total_cmp(&other.as_f64().unwrap_or(f64::NAN))
        };
        let number = match function {
            Function::Length => return Ok(made(list.len())),
            Function::First => return Ok(one(list.first())),
            Function::Last => return Ok(one(list.last())),
            Function::Keys => return Ok(Selected::Nothing),
            Function::Min => numbers.min_by(by_size).cloned(),
            Function::Max => numbers.max_by(by_size).cloned(),
            Function::Sum => sum(numbers),
            Function::Average => {
                let all: Vec<_> = numbers.by_ref().filter_map(Number::as_f64).collect();
                Number::from_f64(all.iter().sum::<f64>() / all.len() as f64)
            }
        };
        Ok(number.map_or(Selected::Nothing, |number| {
            Selected::Made(Value::Number(number))
        }))
    }
}

fn one<'a>(value: Option<&&'a Value>) -> Selected<'a> {
    value.map_or(Selected::Nothing, |value| Selected::One(value))
}

fn made<'a>(count: usize) -> Selected<'a> {
    Selected::Made(Value::from(count))
}

/// Returns the sum as an integer if all numbers are integers and it fits, otherwise as a floating-point number.
fn sum<'a>(numbers: impl Iterator<Item = &'a Number>) -> Option<Number> {
    let mut exact = Some(0_i64);
    let mut float = 0.0;
    let mut any = false;
    for number in numbers {
        any = true;
        exact = exact
            .zip(number.as_i64())
            .and_then(|(sum, number)| sum.checked_add(number));
        float += number.as_f64().unwrap_or(f64::NAN);
    }
    match exact {
        _ if !any => None,
        Some(exact) => Some(exact.into()),
        None => Number::from_f64(float),
    }
}

fn at(list: &[Value], index: i64) -> Option<&Value> {
    if index < 0 {
        let back = usize::try_from(index.unsigned_abs()).ok()?;
        list.len()
            .checked_sub(back)
            .and_then(|index| list.get(index))
    } else {
        list.get(usize::try_from(index).ok()?)
    }
}

/// Returns the bound of a slice as an index from the front, inside the list.
fn bound(length: usize, bound: i64) -> usize {
    let distance = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
    if bound < 0 {
        length.saturating_sub(distance)
    } else {
        distance.min(length)
    }
}
