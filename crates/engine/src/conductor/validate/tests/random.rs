//! Random definitions: nothing panics, and what is written is read again as the same.

use longhaul_protocol::conductor::{WorkflowDef, read};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use crate::conductor::definition::{Lookups, Snapshot, kind};

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..5_i64).prop_map(Value::from),
        Just(json!(2.0)),
        "[a-c]".prop_map(Value::from),
        prop::sample::select(vec![
            "${a.output.b}",
            "${workflow.input",
            "${}",
            "$${x}",
            "${a[?(@.b)]}",
            "${${a.b}}",
            "COMPLETED",
            "5s",
            "2026-01-01",
            "javascript",
            "value-param",
            "TIME_OUT_WF",
            "",
        ])
        .prop_map(Value::from),
    ]
}

/// Values under names that definitions use, of any type.
fn any_value() -> impl Strategy<Value = Value> {
    any_scalar().prop_recursive(5, 60, 5, |inner| {
        let names = vec![
            "name",
            "taskReferenceName",
            "type",
            "workflowTaskType",
            "inputParameters",
            "decisionCases",
            "defaultCase",
            "forkTasks",
            "loopOver",
            "loopCondition",
            "items",
            "subWorkflowParam",
            "workflowDefinition",
            "taskDefinition",
            "joinOn",
            "expression",
            "evaluatorType",
            "retryCount",
            "duration",
            "until",
            "terminationStatus",
            "tasks",
            "version",
            "a",
            "optional",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(names), inner, 0..6).prop_map(|map| {
                map.into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            }),
        ]
    })
}

/// A node that is likely to be read.
fn any_node() -> impl Strategy<Value = Value> {
    let node = (prop::sample::select(kind::OPERATORS.to_vec()), "[a-z]{3}", any_value(), any_value()).prop_map(
        |(task_type, reference, input, other)| {
            json!({"name": "n", "taskReferenceName": reference, "type": task_type,
                   "inputParameters": if input.is_object() { input } else { json!({"a": input}) }, "unknown": other})
        },
    );
    node.prop_recursive(4, 30, 4, |inner| {
        let list = || prop::collection::vec(inner.clone(), 0..3);
        (inner.clone(), list(), list(), list()).prop_map(|(mut node, cases, branch, body)| {
            node["decisionCases"] = json!({"a": cases});
            node["forkTasks"] = json!([branch]);
            node["loopOver"] = json!(body);
            node
        })
    })
}

fn try_all(definition: &WorkflowDef) {
    let _ = check_workflow_def(definition, &Rules::default());
    let _ = Snapshot::compile(definition.clone(), &Lookups::default());
}

proptest! {
    #[test]
    fn no_value_panics(value in any_value()) {
        if let Ok(definition) = read::<WorkflowDef>(value) {
            try_all(&definition);
        }
    }

    #[test]
    fn definitions_are_written_and_read_again_as_the_same(tasks in prop::collection::vec(any_node(), 0..4)) {
        let definition: WorkflowDef = read(json!({"name": "w", "tasks": tasks})).unwrap();
        try_all(&definition);
        let written = serde_json::to_value(&definition).unwrap();
        let again: WorkflowDef = read(written.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&again).unwrap(), written);
    }
}
