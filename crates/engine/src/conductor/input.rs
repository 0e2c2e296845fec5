//! The input of tasks and workflows: what a node or a start gives, completed by templates.

use longhaul_protocol::conductor::{Object, TaskDef, WorkflowTask};
use serde_json::Value;

use super::Budget;
use super::definition::kind;
use super::expression::{Roots, Template, Unresolved};

/// The template of the input of one node, with the template of its task definition merged in.
#[derive(Clone, Debug)]
pub struct InputTemplate {
    members: Template,
    /// Members of the template of the task definition. They replace a member that resolved to null.
    fallback: Object,
}

impl InputTemplate {
    /// Prepares the input of a node. The members of the node come first, then those that only the task definition has.
    pub fn new(node: &WorkflowTask, definition: Option<&TaskDef>) -> Self {
        let fallback = match definition {
            Some(definition) if kind::uses_input_template(&node.task_type) => {
                definition.input_template.clone()
            }
            Some(_) | None => Object::new(),
        };
        let mut members = node.input_parameters.clone();
        for (name, value) in &fallback {
            if !members.contains_key(name) {
                members.insert(name.clone(), value.clone());
            }
        }
        for (name, value) in &mut members {
            if let Some(script) = script_of(node, name, value) {
                *value = Value::String(script);
            }
        }
        Self {
            members: Template::parse(&Value::Object(members)),
            fallback,
        }
    }

    /// Returns the template of all members.
    pub fn members(&self) -> &Template {
        &self.members
    }

    /// Returns the input.
    pub fn resolve(&self, roots: &dyn Roots, budget: &mut Budget) -> Result<Object, Unresolved> {
        let Value::Object(mut input) = self.members.resolve(roots, budget)? else {
            return Ok(Object::new());
        };
        for (name, value) in &self.fallback {
            if input.get(name).is_none_or(Value::is_null) {
                let value = budget.copy(value, 1)?;
                input.insert(name.clone(), value);
            }
        }
        Ok(input)
    }
}

/// Returns the script of an INLINE node with its template strings escaped. `None` for every other member of a node.
///
/// `${…}` is an expression of the definition if it begins with `workflow.`, or with a reference and `.input` or `.output`. Everything
/// else is JavaScript.
pub(super) fn script_of(node: &WorkflowTask, name: &str, value: &Value) -> Option<String> {
    let script = value.as_str().filter(|text| text.contains("${"))?;
    if node.task_type != "INLINE" || name != "expression" {
        return None;
    }
    let mut escaped = String::with_capacity(script.len() + 8);
    let mut rest = script;
    while let Some(at) = rest.find("${") {
        let (before, after) = rest.split_at(at);
        escaped.push_str(before);
        let inside = &after[2..];
        let is_script = !is_reference(inside) && !before.ends_with('$') && inside.contains('}');
        escaped.push_str(if is_script { "$${" } else { "${" });
        rest = inside;
    }
    escaped.push_str(rest);
    Some(escaped)
}

/// Returns whether a text begins like an expression of a definition.
fn is_reference(text: &str) -> bool {
    let root = text
        .split(['.', '}', '[', ' '])
        .next()
        .filter(|root| !root.is_empty() && !root.contains('$'));
    root.is_some_and(|root| {
        let member = text[root.len()..].trim_start_matches('.');
        let member = member
            .split(|letter: char| !letter.is_alphanumeric())
            .next();
        root == "workflow" || matches!(member, Some("input" | "output"))
    })
}

/// Returns the input of a run: what the start gives, with the members of the template that are missing or null in it.
pub fn workflow_input(mut given: Object, template: &Object) -> Object {
    for (name, value) in template {
        if given.get(name).is_none_or(Value::is_null) {
            given.insert(name.clone(), value.clone());
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use longhaul_protocol::conductor::read;
    use serde_json::json;

    use super::*;
    use crate::conductor::expression::Found;

    struct NoTasks;

    impl Roots for NoTasks {
        fn workflow_member(&self, _name: &str) -> Found<'_> {
            Found::value(json!({"a": 1}))
        }

        fn task_member(&self, _reference: &str, _name: &str) -> Found<'_> {
            Found::Missing
        }

        fn has_task(&self, _reference: &str) -> bool {
            false
        }

        fn named(&self, _name: &str) -> Found<'_> {
            Found::Missing
        }

        fn environment(&self, _name: &str) -> Option<Cow<'_, str>> {
            None
        }
    }

    fn input(task_type: &str, members: Value, template: Value) -> Value {
        let node: WorkflowTask =
            read(json!({"name": "n", "taskReferenceName": "r", "type": task_type, "inputParameters": members})).unwrap();
        let definition: TaskDef = read(json!({"name": "n", "inputTemplate": template})).unwrap();
        let input = InputTemplate::new(&node, Some(&definition));
        Value::Object(input.resolve(&NoTasks, &mut Budget::default()).unwrap())
    }

    #[test]
    fn the_template_fills_missing_members_before_resolving() {
        assert_eq!(
            input(
                "SIMPLE",
                json!({"a": 1}),
                json!({"a": 2, "b": "${workflow.input.a}", "c": {"d": 1}})
            ),
            json!({"a": 1, "b": 1, "c": {"d": 1}})
        );
    }

    #[test]
    fn a_member_that_resolves_to_null_gets_the_raw_template() {
        assert_eq!(
            input(
                "SIMPLE",
                json!({"a": "${x.output.y}", "b": null, "c": "${x.y}"}),
                json!({"a": "${raw}", "b": 5})
            ),
            json!({"a": "${raw}", "b": 5, "c": null})
        );
    }

    #[test]
    fn the_template_applies_to_some_types_only() {
        let template = json!({"a": 1});
        for task_type in [
            "SIMPLE",
            "DYNAMIC",
            "ANYTHING",
            "KAFKA_PUBLISH",
            "HTTP",
            "INLINE",
            "LAMBDA",
            "JSON_JQ_TRANSFORM",
            "DO_WHILE",
        ] {
            assert_eq!(
                input(task_type, json!({}), template.clone()),
                template,
                "{task_type}"
            );
        }
        for task_type in [
            "WAIT",
            "SWITCH",
            "SET_VARIABLE",
            "SUB_WORKFLOW",
            "EVENT",
            "JOIN",
        ] {
            assert_eq!(
                input(task_type, json!({}), template.clone()),
                json!({}),
                "{task_type}"
            );
        }
    }

    #[test]
    fn the_input_of_a_run_is_completed_at_its_top_level() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let completed = workflow_input(
            object(json!({"a": null, "b": {"x": 1}})),
            &object(json!({"a": 1, "b": {"y": 2}, "c": "${literal}"})),
        );
        assert_eq!(
            Value::Object(completed),
            json!({"a": 1, "b": {"x": 1}, "c": "${literal}"})
        );
    }

    #[test]
    fn template_strings_of_a_script_are_its_own() {
        let node: WorkflowTask = read(
            json!({"name": "i", "taskReferenceName": "i", "type": "INLINE", "inputParameters": {
                "expression": "`${$.a} ${b + 1} ${workflow.input.n} ${t.output.x} $${c} ${`",
                "other": "${$.a}",
            }}),
        )
        .unwrap();
        let script = script_of(&node, "expression", &node.input_parameters["expression"]);
        let escaped = "`$${$.a} $${b + 1} ${workflow.input.n} ${t.output.x} $${c} ${`";
        assert_eq!(script.as_deref(), Some(escaped));
        assert_eq!(script_of(&node, "other", &json!("${$.a}")), None);
        let input = InputTemplate::new(&node, None);
        let input = input.resolve(&NoTasks, &mut Budget::default()).unwrap();
        let shown = input["expression"].as_str().unwrap();
        assert!(shown.starts_with("`${$.a} ${b + 1} "), "{shown}");
        assert!(shown.ends_with(" ${c} ${`"), "{shown}");
    }
}
