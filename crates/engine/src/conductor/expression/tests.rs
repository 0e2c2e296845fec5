use std::borrow::Cow;
use std::collections::BTreeMap;

use longhaul_protocol::HistorySeq;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::conductor::{Budget, DEPTH_MAX, Limit};

/// A run with its values in memory, except for those that are named `unloaded`.
struct World {
    workflow: Value,
    tasks: BTreeMap<&'static str, Value>,
}

const UNLOADED: &str = "unloaded";

fn find<'a>(members: &'a Value, name: &str) -> Found<'a> {
    match members.get(name) {
        Some(Value::String(text)) if text.starts_with(UNLOADED) => Found::Unloaded(ValueRef {
            event: HistorySeq::from(text[UNLOADED.len()..].parse::<u64>().unwrap()),
            member: EventMember::Output,
        }),
        found => Found::optional(found),
    }
}

impl Roots for World {
    fn workflow_member(&self, name: &str) -> Found<'_> {
        find(&self.workflow, name)
    }

    fn task_member(&self, reference: &str, name: &str) -> Found<'_> {
        self.tasks
            .get(reference)
            .map_or(Found::Missing, |task| find(task, name))
    }

    fn has_task(&self, reference: &str) -> bool {
        self.tasks.contains_key(reference)
    }

    fn named(&self, name: &str) -> Found<'_> {
        match name {
            "CPEWF_TASK_ID" => Found::Literal,
            "NETFLIX_ENV" => Found::value("test"),
            _ => Found::Missing,
        }
    }

    fn environment(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "PLAIN" => Some(Cow::Borrowed("text")),
            "JSON" => Some(Cow::Borrowed(r#"{"a": [1, 2]}"#)),
            _ => None,
        }
    }
}

fn world() -> World {
    World {
        workflow: json!({
            "input": {"key": "a", "q": "Q", "obj": {"b": [1, "x"]}, "n": null, "deep": {"a": {"b": 1}}},
            "variables": {"v": 1},
            "status": "RUNNING",
            "workflowId": "w-1",
        }),
        tasks: BTreeMap::from([
            (
                "x",
                json!({"output": {"n": 3, "list": [{"id": 1}, {"id": 2}], "a": "A", "ok": true, "f": 1.5}, "taskId": "t-1"}),
            ),
            ("my ref__1", json!({"output": {"a b": 1}})),
            (
                "slow",
                json!({"output": "unloaded5", "input": "unloaded6", "status": "COMPLETED"}),
            ),
        ]),
    }
}

fn resolve(template: &Value) -> Result<Value, Unresolved> {
    Template::parse(template).resolve(&world(), &mut Budget::default())
}

#[track_caller]
fn check(template: Value, expected: Value) {
    assert_eq!(resolve(&template), Ok(expected), "{template}");
}

#[test]
fn one_expression_keeps_the_type() {
    check(json!("${x.output.n}"), json!(3));
    check(json!("${x.output.ok}"), json!(true));
    check(json!("${x.output.missing}"), json!(null));
    check(json!("${x.output.list[*].id}"), json!([1, 2]));
    check(json!("${x.output.list[?(@.id > 1)]}"), json!([{"id": 2}]));
    check(json!("${x.output.list.length()}"), json!(2));
    check(json!("${workflow.input.obj}"), json!({"b": [1, "x"]}));
    check(json!("${workflow['input'].key}"), json!("a"));
    check(json!("${ workflow.input.key }"), json!("a"));
    check(json!("${my ref__1.output['a b']}"), json!(1));
}

#[test]
fn other_text_is_joined() {
    check(json!("n=${x.output.n}"), json!("n=3"));
    check(json!("v:${x.output.missing}"), json!("v:null"));
    check(json!("${x.output.a}${x.output.f}!"), json!("A1.5!"));
    check(
        json!("o=${workflow.input.obj}"),
        json!("o={\"b\":[1,\"x\"]}"),
    );
    check(json!(" ${x.output.n}"), json!(" 3"));
}

#[test]
fn values_are_resolved_deeply_and_keys_never() {
    check(
        json!({"b": ["${workflow.input.q}", 1, null], "${workflow.input.q}": {"c": "${x.output.n}"}}),
        json!({"b": ["Q", 1, null], "${workflow.input.q}": {"c": 3}}),
    );
    check(
        json!({"plain": [1, {"a": null}]}),
        json!({"plain": [1, {"a": null}]}),
    );
}

#[test]
fn expressions_nest() {
    check(json!("${x.output.${workflow.input.key}}"), json!("A"));
    check(
        json!("-${workflow.${x.nothing}input.key}-"),
        json!("-null-"),
    );
    check(
        json!("${workflow.input.deep.${workflow.input.key}.b}"),
        json!(1),
    );
    check(json!("${${workflow.input.n}}"), json!(null));
    check(
        json!("${x.output.list[?(@.id == ${workflow.variables.v})].id}"),
        json!([1]),
    );
}

#[test]
fn an_escape_is_literal() {
    check(json!("$${x.output.n}"), json!("${x.output.n}"));
    check(json!("a $${x} ${x.output.n}"), json!("a ${x} 3"));
    check(
        json!("$${a ${x.output.n} {b}}"),
        json!("${a ${x.output.n} {b}}"),
    );
    check(json!("$$${x.output.n}"), json!("$${x.output.n}"));
}

#[test]
fn blank_unknown_and_invalid_expressions() {
    check(json!("${}"), json!(""));
    check(json!("a${  }b"), json!("ab"));
    check(json!("${unknown.output.x}"), json!(null));
    check(json!("${unknown}"), json!(null));
    check(json!("${x.output[}"), json!(null));
    check(json!("${.}"), json!(null));
    check(json!("${x.output.n"), json!("${x.output.n"));
    check(
        json!("a ${x.output.${workflow.input.key} b"),
        json!("a ${x.output.a b"),
    );
    check(json!("$${x"), json!("$${x"));
    check(json!("{a} $ {} }"), json!("{a} $ {} }"));
}

#[test]
fn roots_beside_tasks() {
    check(json!("${CPEWF_TASK_ID}"), json!("${CPEWF_TASK_ID}"));
    check(json!("id ${CPEWF_TASK_ID}"), json!("id ${CPEWF_TASK_ID}"));
    check(json!("${NETFLIX_ENV}"), json!("test"));
    check(json!("${workflow.env.PLAIN}"), json!("text"));
    check(json!("${workflow.env.JSON.a[1]}"), json!(2));
    check(json!("${workflow.env.PLAIN.a}"), json!(null));
    check(json!("${workflow.env.NONE}"), json!(null));
    check(
        json!("${workflow.secrets.KEY}"),
        json!("${workflow.secrets.KEY}"),
    );
    check(
        json!("k=${workflow.secrets.KEY.a}"),
        json!("k=${workflow.secrets.KEY.a}"),
    );
    check(
        json!("${x}"),
        json!({"taskId": "t-1", "output": {"n": 3, "list": [{"id": 1}, {"id": 2}], "a": "A", "ok": true, "f": 1.5}}),
    );
    check(json!("${workflow..b}"), json!([1, [1, "x"]]));
}

#[test]
fn all_values_that_are_not_loaded_are_reported_once() {
    let event = |sequence: u64| ValueRef {
        event: HistorySeq::from(sequence),
        member: EventMember::Output,
    };
    let template = json!({"a": "${slow.output.x}", "b": ["${slow.output}", "t ${slow.input.y}"], "c": "${x.output.n}"});
    assert_eq!(
        resolve(&template),
        Err(Unresolved::Unloaded(vec![event(5), event(6)]))
    );
    // A path that depends on a value is reported after that value was loaded.
    assert_eq!(
        resolve(&json!("${x.output.${slow.output.k}}")),
        Err(Unresolved::Unloaded(vec![event(5)]))
    );
    assert_eq!(
        resolve(&json!("${slow..x}")),
        Err(Unresolved::Unloaded(vec![event(5), event(6)]))
    );
    check(json!("${slow.status}"), json!("COMPLETED"));
}

#[test]
fn results_are_bounded() {
    let mut world = world();
    world.workflow["input"] = json!({"big": "x".repeat(1_000_000)});
    let many = Template::parse(&Value::Array(vec![json!("${workflow.input.big}"); 20]));
    assert_eq!(
        many.resolve(&world, &mut Budget::default()),
        Err(Unresolved::Limit(Limit::Bytes))
    );

    let mut deep = json!(1);
    for _ in 0..DEPTH_MAX - 2 {
        deep = json!([deep]);
    }
    world.workflow["input"] = deep;
    let fits = Template::parse(&json!(["${workflow.input}"]));
    assert!(fits.resolve(&world, &mut Budget::default()).is_ok());
    let wrapped = Template::parse(&json!([[["${workflow.input}"]]]));
    assert_eq!(
        wrapped.resolve(&world, &mut Budget::default()),
        Err(Unresolved::Limit(Limit::Depth))
    );

    let nested = format!(
        "{}a{}",
        "${".repeat(NESTING_MAX + 1),
        "}".repeat(NESTING_MAX + 1)
    );
    assert_eq!(
        resolve(&json!(nested)),
        Err(Unresolved::Limit(Limit::Nesting))
    );
    let fits = format!("{}a{}", "${".repeat(NESTING_MAX), "}".repeat(NESTING_MAX));
    check(json!(fits), json!(null));
}

#[test]
fn hostile_texts_take_linear_time() {
    for text in ["${", "${${", "$${", "}", "{", "${}", "${a.b}", "${a[", "$"] {
        let text = text.repeat(1_000_000 / text.len());
        let _ = resolve(&json!(text));
    }
    assert_eq!(
        resolve(&json!("${".repeat(500_000))),
        Ok(json!("${".repeat(500_000)))
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "[${}. a-c\\[\\]'*?@]{0,80}") {
        let _ = resolve(&json!(text));
    }

    #[test]
    fn text_without_an_expression_is_unchanged(text in "[^$]{0,80}") {
        prop_assert_eq!(resolve(&json!(text.clone())), Ok(json!(text)));
    }

    #[test]
    fn an_escaped_expression_is_itself(text in "[a-z. ]{0,20}", before in "[a-z ]{0,5}") {
        let expression = format!("${{{text}}}");
        prop_assert_eq!(resolve(&json!(format!("{before}${expression}"))), Ok(json!(format!("{before}{expression}"))));
    }
}

#[test]
fn escapes_are_removed_in_maps_and_lists_without_expressions() {
    let value = json!({"a": "$${x}", "b": ["$${y}", 1], "c": {"d": "plain"}});
    let template = Template::parse(&value);
    assert!(template.is_literal());
    let shown = json!({"a": "${x}", "b": ["${y}", 1], "c": {"d": "plain"}});
    assert!(matches!(template, Template::Literal(literal) if literal == shown));
}
