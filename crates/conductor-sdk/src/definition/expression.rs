//! Expressions: references to values of a run, which the server replaces when it schedules a task.

use std::fmt;

use serde::{Serialize, Serializer};

/// A reference to a value of the run. It is written as `${…}`, in JSON and as text.
///
/// An input that is exactly one expression gets the value with its type. In a longer text the value becomes text:
///
/// ```
/// use longhaul_conductor_sdk::definition::workflow_input;
///
/// let greeting = format!("Hello {}", workflow_input("customer.name"));
/// assert_eq!(greeting, "Hello ${workflow.input.customer.name}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    path: String,
}

impl Expression {
    /// Returns an expression for a path, such as `workflow.input.items[0]`, without the `${` and `}` around it.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the expression for a path below this one: a member such as `a.b`, or brackets such as `[0]`. An empty path changes
    /// nothing.
    #[must_use]
    pub fn at(mut self, path: &str) -> Self {
        if !path.is_empty() && !path.starts_with(['[', '.']) {
            self.path.push('.');
        }
        self.path.push_str(path);
        self
    }

    /// Returns the path without the `${` and `}` around it.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{}}}", self.path)
    }
}

impl Serialize for Expression {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> Self {
        expression.to_string()
    }
}

/// Returns the expression for a value of the workflow input. An empty path is the whole input.
pub fn workflow_input(path: &str) -> Expression {
    workflow_member("input").at(path)
}

/// Returns the expression for a variable of the run, or for a value inside it.
pub fn variable(path: &str) -> Expression {
    workflow_member("variables").at(path)
}

/// Returns the expression for a member of the run, such as `workflowId`, `correlationId` or `status`.
pub fn workflow_member(name: &str) -> Expression {
    Expression::new("workflow").at(name)
}

/// Returns the expression for a secret of the server. Only the worker that gets the task sees its value.
pub fn secret(name: &str) -> Expression {
    workflow_member("secrets").at(name)
}

/// Returns the expression for an environment value of the server.
pub fn environment(name: &str) -> Expression {
    workflow_member("env").at(name)
}

/// Returns the expression for a value of the output of a node. An empty path is the whole output.
pub fn output_of(reference: &str, path: &str) -> Expression {
    Expression::new(reference).at("output").at(path)
}

/// Returns the expression for a value of the input of a node. An empty path is the whole input.
pub fn input_of(reference: &str, path: &str) -> Expression {
    Expression::new(reference).at("input").at(path)
}

/// Returns the expression for the current item of a [`for_each`](super::for_each) loop.
pub fn loop_item(reference: &str) -> Expression {
    output_of(reference, "loopItem")
}

/// Returns the expression for the number of the current iteration of a loop. The first one is 1.
pub fn loop_iteration(reference: &str) -> Expression {
    output_of(reference, "iteration")
}

/// One `${…}` that was found in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// The name at the start of the path.
    pub(super) root: &'a str,
    /// The rest of the path.
    pub(super) rest: &'a str,
}

/// Returns the expressions of a text, outer ones before the ones inside them. An expression whose root is computed, one that is never
/// closed, and the escape `$${…}` are left out.
pub(super) fn find_all(text: &str) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(place) = text[at..].find("${") {
        let open = at + place;
        let inside = &text[open + 2..];
        at = open + 2;
        let Some(end) = closing_brace(inside) else {
            continue;
        };
        if text[..open].ends_with('$') {
            at += end;
            continue;
        }
        found.extend(split(&inside[..end]));
    }
    found
}

/// Returns where the brace closes that was opened before the text.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '{' => open += 1,
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the parts of a path, or `None` if it is blank or begins with another expression.
fn split(path: &str) -> Option<Found<'_>> {
    let path = path.trim();
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (root, rest) = path.split_at(end);
    (!root.is_empty() && !root.contains("${")).then_some(Found { root, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(text: &str) -> Vec<&str> {
        find_all(text).iter().map(|found| found.root).collect()
    }

    #[test]
    fn expressions_are_written_as_text() {
        for (expression, expected) in [
            (workflow_input("a.b"), "${workflow.input.a.b}"),
            (workflow_input(""), "${workflow.input}"),
            (workflow_input("[0].x"), "${workflow.input[0].x}"),
            (output_of("pay", "result.x"), "${pay.output.result.x}"),
            (input_of("pay", "card"), "${pay.input.card}"),
            (variable("v"), "${workflow.variables.v}"),
            (workflow_member("workflowId"), "${workflow.workflowId}"),
            (secret("key"), "${workflow.secrets.key}"),
            (environment("region"), "${workflow.env.region}"),
            (loop_item("each"), "${each.output.loopItem}"),
            (loop_iteration("each"), "${each.output.iteration}"),
            (output_of("pay", "list").at("[1]"), "${pay.output.list[1]}"),
        ] {
            assert_eq!(expression.to_string(), expected);
            assert_eq!(serde_json::to_value(&expression).unwrap(), expected);
            assert_eq!(String::from(expression), expected);
        }
    }

    #[test]
    fn roots_of_a_text_are_found() {
        for (text, expected) in [
            ("no expression", &[][..]),
            ("${a.output.x} and ${ b[0] }", &["a", "b"]),
            ("${a.output.${b.output.key}}", &["a", "b"]),
            ("${${b.output.key}.output}", &["b"]),
            ("$${a.output} ${b}", &["b"]),
            ("$${a {b} ${c}} ${d}", &["d"]),
            ("${} ${ } ${open", &[]),
            ("${a.output[?(@.x == '}')]} ü${b.output}", &["a", "b"]),
        ] {
            assert_eq!(roots(text), expected, "{text}");
        }
    }
}
