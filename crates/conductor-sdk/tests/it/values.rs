//! Values on their way from the input of a workflow through workers to its output.

use longhaul_conductor_sdk::definition::{WorkflowDefBuilder, output_of, simple, workflow_input};
use longhaul_conductor_sdk::model::WorkflowStatus;
use longhaul_conductor_sdk::worker::{async_function, function};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::workflows::{World, output};

/// How many random values go through a workflow each.
const VALUES: usize = 60;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let map = prop::collection::btree_map(".{0,8}", inner, 0..4);
        prop_oneof![
            list.prop_map(Value::from),
            map.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

#[tokio::test]
async fn every_value_survives_workers_of_both_kinds() {
    let mut world = World::new().await;
    let workflow = WorkflowDefBuilder::new("echo")
        .then(simple("blocking", "first").input("value", workflow_input("value")))
        .then(simple("waiting", "second").input("value", output_of("first", "value")))
        .output("value", output_of("second", "value"));
    world.register(workflow).await;
    world.run(function("blocking", |input: Value| Ok(input)));
    world.run(async_function("waiting", async |input: Value| Ok(input)));
    let mut random = TestRunner::deterministic();
    let fixed = json!({"a": [null, [], {}, {"b": null}], "c": {"d": {"e": [1, "1", 1.5, true]}}});
    let mut values = vec![fixed, json!(null), json!({}), json!([]), json!("")];
    values.extend((0..VALUES).map(|_| any_json().new_tree(&mut random).unwrap().current()));
    for value in values {
        let ended = world.execute("echo", json!({"value": value})).await;
        assert_eq!(ended.status, WorkflowStatus::Completed, "{value}");
        for task in &ended.tasks {
            assert_eq!(task.input_data["value"], value);
            assert_eq!(task.output_data["value"], value);
        }
        assert_eq!(output(&ended)["value"], value);
    }
    world.stop().await;
}
