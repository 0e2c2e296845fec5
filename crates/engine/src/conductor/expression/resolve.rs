//! From a [`Template`] and [`Roots`] to a value.

use std::collections::BTreeSet;

use longhaul_protocol::conductor::Object;
use serde_json::Value;

use super::{
    Expression, Found, Piece, Reference, Root, Roots, TASK_MEMBERS, Template, Text, ValueRef,
    WORKFLOW_MEMBERS,
};
use crate::conductor::path::Selected;
use crate::conductor::{Budget, Limit};

/// Why a template has no value yet, or never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// These values must be loaded first. There may be more after they were loaded.
    Unloaded(Vec<ValueRef>),
    /// Resolving would exceed a limit.
    Limit(Limit),
}

impl From<Limit> for Unresolved {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

impl Template {
    /// Returns the value of the template.
    pub fn resolve(&self, roots: &dyn Roots, budget: &mut Budget) -> Result<Value, Unresolved> {
        let mut resolver = Resolver {
            roots,
            budget,
            unloaded: BTreeSet::new(),
        };
        let value = resolver.template(self, 0)?;
        if resolver.unloaded.is_empty() {
            Ok(value)
        } else {
            Err(Unresolved::Unloaded(
                resolver.unloaded.into_iter().collect(),
            ))
        }
    }
}

impl Template {
    /// Resolves the template as a list. Returns one element, without a copy of the whole list where a path finds it. A value that is
    /// not a list is a list of one, and null is an empty one.
    pub fn element(
        &self,
        index: usize,
        roots: &dyn Roots,
        budget: &mut Budget,
    ) -> Result<Option<Value>, Unresolved> {
        let mut of = |value: &Value| -> Result<Option<Value>, Limit> {
            let list = match value {
                Value::Array(list) => list.as_slice(),
                Value::Null => &[],
                other @ (Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_)) => std::slice::from_ref(other),
            };
            let element = list.get(index).map(|element| budget.copy(element, 1));
            element.transpose()
        };
        if let Self::Literal(value) = self {
            return Ok(of(value)?);
        }
        let found = self.path().and_then(|path| match &path.root {
            Root::WorkflowMember(name) => Some((path, roots.workflow_member(name))),
            Root::TaskMember { reference, member } => {
                Some((path, roots.task_member(reference, member)))
            }
            Root::Workflow | Root::Environment(_) | Root::Name(_) => None,
        });
        if let Some((path, Found::Value(value))) = &found {
            let mut search = Budget::default();
            if let Selected::One(value) = path.steps.find(value, &mut search)? {
                return Ok(of(value)?);
            }
        }
        let value = self.resolve(roots, &mut Budget::default())?;
        Ok(of(&value)?)
    }

    /// Returns the path, if the template is exactly one.
    fn path(&self) -> Option<&Reference> {
        match self {
            Self::Text(Text(pieces)) => match &pieces[..] {
                [Piece::Expression(Expression::Reference(reference))] => Some(reference),
                _ => None,
            },
            Self::Literal(_) | Self::List(_) | Self::Map(_) => None,
        }
    }
}

/// Returns the text that a value becomes inside a longer text.
pub(super) fn text_form(value: Value, budget: &mut Budget) -> Result<String, Limit> {
    if let Value::String(text) = value {
        // Its size was paid when it was copied.
        return Ok(text);
    }
    let text = value.to_string();
    budget.bytes(text.len())?;
    Ok(text)
}

struct Resolver<'a, 'b> {
    roots: &'a dyn Roots,
    budget: &'b mut Budget,
    /// Values that are missing so far. Each has the placeholder null in the output, which is not used.
    unloaded: BTreeSet<ValueRef>,
}

impl Resolver<'_, '_> {
    /// The recursion is as deep as the template, and a template is as deep as the JSON that it was parsed from.
    fn template(&mut self, template: &Template, depth: usize) -> Result<Value, Limit> {
        match template {
            Template::Literal(value) => self.budget.copy(value, depth),
            Template::Text(text) => self.text(text, depth),
            Template::List(list) => {
                self.budget.bytes(8)?;
                let mut resolved = Vec::with_capacity(list.len());
                for element in list {
                    resolved.push(self.template(element, depth + 1)?);
                }
                Ok(Value::Array(resolved))
            }
            Template::Map(map) => {
                self.budget.bytes(8)?;
                let mut resolved = Object::new();
                for (name, value) in map {
                    self.budget.bytes(name.len())?;
                    resolved.insert(name.clone(), self.template(value, depth + 1)?);
                }
                Ok(Value::Object(resolved))
            }
        }
    }

    fn text(&mut self, text: &Text, depth: usize) -> Result<Value, Limit> {
        if let [Piece::Expression(expression)] = &text.0[..] {
            return self.expression(expression, depth);
        }
        self.joined(text).map(Value::String)
    }

    /// Returns the text with every expression replaced by its text form.
    fn joined(&mut self, text: &Text) -> Result<String, Limit> {
        let mut joined = String::new();
        for piece in &text.0 {
            match piece {
                Piece::Literal(literal) => {
                    self.budget.bytes(literal.len())?;
                    joined.push_str(literal);
                }
                Piece::Expression(expression) => {
                    let value = self.expression(expression, 0)?;
                    joined.push_str(&text_form(value, self.budget)?);
                }
            }
        }
        Ok(joined)
    }

    fn expression(&mut self, expression: &Expression, depth: usize) -> Result<Value, Limit> {
        self.budget.steps(1)?;
        match expression {
            Expression::Blank => Ok(Value::String(String::new())),
            Expression::Reference(reference) => self.reference(reference, depth),
            Expression::Nested(inner) => {
                let before = self.unloaded.len();
                let source = self.joined(inner)?;
                if self.unloaded.len() > before {
                    // The path is not known yet.
                    return Ok(Value::Null);
                }
                self.budget.steps(source.len())?;
                let source = source.trim();
                if source.is_empty() {
                    return Ok(Value::String(String::new()));
                }
                match Reference::parse(source) {
                    Ok(Some(reference)) => self.reference(&reference, depth),
                    Ok(None) => Ok(Value::String(format!("${{{source}}}"))),
                    Err(_) => Ok(Value::Null),
                }
            }
            Expression::Secret { source } => {
                self.budget.bytes(source.len())?;
                Ok(Value::String(source.clone()))
            }
            Expression::Invalid { .. } => Ok(Value::Null),
            Expression::TooDeep => Err(Limit::Nesting),
        }
    }

    fn reference(&mut self, reference: &Reference, depth: usize) -> Result<Value, Limit> {
        let found = match &reference.root {
            Root::Workflow => {
                self.together(&WORKFLOW_MEMBERS, |roots, name| roots.workflow_member(name))?
            }
            Root::WorkflowMember(name) => self.roots.workflow_member(name),
            Root::TaskMember {
                reference: task,
                member,
            } => reference
                .steps
                .first_member()
                .filter(|_| member == "output")
                .and_then(|name| self.roots.output_with(task, name))
                .unwrap_or_else(|| self.roots.task_member(task, member)),
            Root::Environment(name) => return self.environment(name, reference, depth),
            Root::Name(name) => match self.roots.named(name) {
                Found::Missing if self.roots.has_task(name) => self
                    .together(&TASK_MEMBERS, |roots, member| {
                        roots.task_member(name, member)
                    })?,
                Found::Literal => {
                    let literal = format!("${{{name}}}");
                    self.budget.bytes(literal.len())?;
                    return Ok(Value::String(literal));
                }
                found @ (Found::Value(_) | Found::Missing | Found::Unloaded(_)) => found,
            },
        };
        match found {
            Found::Value(value) => reference
                .steps
                .find(&value, self.budget)?
                .copy(self.budget, depth),
            Found::Missing | Found::Literal => Ok(Value::Null),
            Found::Unloaded(value) => {
                self.unloaded.insert(value);
                Ok(Value::Null)
            }
        }
    }

    /// Returns an object of several members of a root, or the first member that is not loaded after it has noted all of them.
    fn together(
        &mut self,
        members: &[&str],
        find: impl for<'r> Fn(&'r dyn Roots, &str) -> Found<'r>,
    ) -> Result<Found<'static>, Limit> {
        let mut object = Object::new();
        let mut missing = None;
        for name in members {
            match find(self.roots, name) {
                Found::Value(value) => {
                    object.insert((*name).to_owned(), self.budget.copy(&value, 1)?);
                }
                Found::Unloaded(value) => {
                    self.unloaded.insert(value);
                    missing = Some(value);
                }
                Found::Missing | Found::Literal => {}
            }
        }
        Ok(missing.map_or_else(|| Found::value(Value::Object(object)), Found::Unloaded))
    }

    /// Returns a text of the environment store, or what a path finds in it after it was parsed as JSON.
    fn environment(
        &mut self,
        name: &str,
        reference: &Reference,
        depth: usize,
    ) -> Result<Value, Limit> {
        let Some(text) = self.roots.environment(name) else {
            return Ok(Value::Null);
        };
        self.budget.bytes(text.len())?;
        if reference.steps.is_empty() {
            return Ok(Value::String(text.into_owned()));
        }
        self.budget.steps(text.len())?;
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => reference
                .steps
                .find(&value, self.budget)?
                .copy(self.budget, depth),
            Err(_) => Ok(Value::Null),
        }
    }
}
