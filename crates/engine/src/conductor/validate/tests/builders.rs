//! Definitions that the builders of `conductor-python` 2.0.0 and `@io-orkes/conductor-javascript` 4.0.0 wrote: every builder of a
//! node once, as the clients send them.

use longhaul_protocol::conductor::{WorkflowDef, read};
use serde_json::Value;

use super::checked;
use crate::conductor::definition::{Lookups, Operator, Snapshot, needed_sub_workflows};

const BUILDERS: [&str; 2] = [
    include_str!("../../../../tests/conductor/builders-python.json"),
    include_str!("../../../../tests/conductor/builders-js.json"),
];

fn definitions() -> Vec<Value> {
    BUILDERS
        .iter()
        .flat_map(|text| serde_json::from_str::<Vec<Value>>(text).unwrap())
        .collect()
}

fn compile(definition: WorkflowDef) -> Snapshot {
    let mut lookups = Lookups::default();
    for name in needed_sub_workflows(&definition) {
        lookups.sub_workflows.insert(name, 1);
    }
    Snapshot::compile(definition, &lookups).unwrap()
}

#[test]
fn builders_write_valid_definitions() {
    let definitions = definitions();
    assert!(definitions.len() > 20);
    for given in definitions {
        let definition: WorkflowDef = read(given).unwrap();
        assert_eq!(checked(&definition), [], "{}", definition.name);
        compile(definition);
    }
}

#[test]
fn every_member_that_a_builder_writes_is_written_back() {
    for given in definitions() {
        let definition: WorkflowDef = read(given.clone()).unwrap();
        let written = serde_json::to_value(&definition).unwrap();
        assert_contains(&written, &given, &definition.name);
    }
}

/// Checks that all members of `given` are in `written` with the same values. A null member may be missing.
#[track_caller]
fn assert_contains(written: &Value, given: &Value, path: &str) {
    match (written, given) {
        (Value::Object(written), Value::Object(given)) => {
            for (name, given) in given {
                let written = written.get(name).unwrap_or(&Value::Null);
                assert_contains(written, given, &format!("{path}.{name}"));
            }
        }
        (Value::Array(written), Value::Array(given)) => {
            assert_eq!(written.len(), given.len(), "{path}");
            for (written, given) in written.iter().zip(given) {
                assert_contains(written, given, path);
            }
        }
        _ => assert_eq!(written, given, "{path}"),
    }
}

#[test]
fn the_list_of_a_for_each_builder_is_a_list_of_the_loop() {
    let given = definitions()
        .into_iter()
        .find(|given| given["name"] == "py_each")
        .unwrap();
    let snapshot = compile(read(given).unwrap());
    let Operator::DoWhile(looping) = snapshot.tree().find("each").unwrap().operator() else {
        panic!("each is a DO_WHILE");
    };
    assert!(looping.condition.is_none());
    assert!(looping.items.as_ref().unwrap().is_one_expression());
}
