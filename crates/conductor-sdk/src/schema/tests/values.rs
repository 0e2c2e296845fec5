//! What generated schemas accept, as a validator of draft-07 sees it.

use jsonschema::{Draft, Validator};
use proptest::prelude::*;

use super::*;

/// Returns a validator for a schema, after checking that the schema itself is valid draft-07.
fn validator(schema: &Value) -> Validator {
    jsonschema::draft7::meta::validate(schema)
        .unwrap_or_else(|error| panic!("not valid draft-07: {error}: {schema}"));
    jsonschema::options()
        .with_draft(Draft::Draft7)
        .build(schema)
        .unwrap()
}

fn validator_of<T: JsonSchema>(strictness: Strictness) -> Validator {
    validator(&WorkerSchema::Input(of::<T>()).render(strictness).unwrap())
}

#[track_caller]
fn accepts<T: JsonSchema + for<'de> Deserialize<'de>>(value: Value) {
    assert!(
        serde_json::from_value::<T>(value.clone()).is_ok(),
        "{value}"
    );
    for strictness in [Strictness::Lenient, Strictness::Strict] {
        let validator = validator_of::<T>(strictness);
        assert!(validator.is_valid(&value), "{strictness:?}: {value}");
    }
}

/// A value that serde does not read, and the schema does not accept.
#[track_caller]
fn refuses<T: JsonSchema + for<'de> Deserialize<'de>>(value: Value) {
    assert!(
        serde_json::from_value::<T>(value.clone()).is_err(),
        "{value}"
    );
    for strictness in [Strictness::Lenient, Strictness::Strict] {
        let validator = validator_of::<T>(strictness);
        assert!(!validator.is_valid(&value), "{strictness:?}: {value}");
    }
}

/// A value with an unknown member.
#[track_caller]
fn accepts_if_lenient<T: JsonSchema + for<'de> Deserialize<'de>>(value: Value) {
    assert!(
        serde_json::from_value::<T>(value.clone()).is_ok(),
        "{value}"
    );
    assert!(
        validator_of::<T>(Strictness::Lenient).is_valid(&value),
        "{value}"
    );
    assert!(
        !validator_of::<T>(Strictness::Strict).is_valid(&value),
        "{value}"
    );
}

#[test]
fn schemas_accept_what_serde_reads() {
    let line = json!({"article": "tea", "count": 2});
    accepts::<Line>(line.clone());
    accepts::<Order>(json!({"lines": [line], "by_name": {"a": line}}));
    accepts::<Tree>(json!({"name": "a", "children": [{"name": "b", "children": []}]}));
    accepts::<Payment>(json!({"kind": "card", "number": "1"}));
    accepts::<Paid>(json!({"order_id": "o", "kind": "card", "number": "1"}));
    accepts::<Paid>(json!({"order_id": "o", "kind": "cash", "coins": [{"cents": 5}]}));
    accepts::<Extensible>(json!({"name": "a", "more": [1]}));
    accepts::<(u8, String)>(json!([1, "a"]));
    accepts::<Color>(json!("red"));

    refuses::<Line>(json!({"article": "tea"}));
    refuses::<Line>(json!({"article": "tea", "count": "two"}));
    refuses::<Tree>(json!({"name": "a", "children": [{"name": "b"}]}));
    refuses::<Payment>(json!({"kind": "card"}));
    refuses::<Payment>(json!({"kind": "barter"}));
    refuses::<Paid>(json!({"order_id": "o", "kind": "cash", "coins": [{}]}));
    refuses::<Extensible>(json!({"more": 1}));
    refuses::<Closed>(json!({"name": "a", "more": 1}));
    refuses::<(u8, String)>(json!([1]));
    refuses::<Color>(json!("blue"));
}

#[test]
fn strict_schemas_refuse_unknown_members_at_every_place() {
    let line = json!({"article": "tea", "count": 2});
    let more = json!({"article": "tea", "count": 2, "more": 1});
    accepts_if_lenient::<Line>(more.clone());
    accepts_if_lenient::<Order>(json!({"lines": [line, more], "by_name": {}}));
    accepts_if_lenient::<Order>(json!({"lines": [], "by_name": {"a": more}}));
    accepts_if_lenient::<Option<Vec<Line>>>(json!([more]));
    let leaf = json!({"name": "b", "children": [], "more": 1});
    accepts_if_lenient::<Tree>(json!({"name": "a", "children": [leaf]}));
    accepts_if_lenient::<Payment>(json!({"kind": "card", "number": "1", "more": 1}));
    accepts_if_lenient::<Paid>(json!({"order_id": "o", "kind": "card", "number": "1", "more": 1}));
    let coin = json!({"cents": 5, "more": 1});
    accepts_if_lenient::<Paid>(json!({"order_id": "o", "kind": "cash", "coins": [coin]}));
}

/// Returns the schemas of objects with properties in a schema.
fn objects<'a>(schema: &'a Value, found: &mut Vec<&'a Map<String, Value>>) {
    match schema {
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object) {
                found.push(members);
            }
            members.values().for_each(|member| objects(member, found));
        }
        Value::Array(members) => members.iter().for_each(|member| objects(member, found)),
        _ => {}
    }
}

/// A schema of a type that is made of structs, lists, maps and options, some levels deep.
fn nested() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "integer", "format": "int64"})),
        Just(json!({"type": ["string", "null"]})),
        Just(json!(true)),
        Just(json!({"type": "object", "additionalProperties": true})),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        prop_oneof![
            prop::collection::btree_map("[a-c]", inner.clone(), 1..3).prop_map(|fields| {
                let required: Vec<_> = fields.keys().cloned().collect();
                json!({"type": "object", "properties": fields, "required": required})
            }),
            inner
                .clone()
                .prop_map(|item| json!({"type": "array", "items": item})),
            inner
                .clone()
                .prop_map(|value| json!({"type": "object", "additionalProperties": value})),
            inner.prop_map(|value| json!({"anyOf": [value, {"type": "null"}]})),
        ]
    })
}

proptest! {
    #[test]
    fn every_object_of_any_type_is_closed_if_strict_and_open_if_not(raw in nested()) {
        for (strictness, additional) in [(Strictness::Lenient, true), (Strictness::Strict, false)] {
            let schema = Schema::try_from(raw.clone()).unwrap();
            let schema = Value::Object(finish(schema, strictness.generator()));
            validator(&schema);
            let mut found = Vec::new();
            objects(&schema, &mut found);
            for object in found {
                prop_assert_eq!(&object["additionalProperties"], &json!(additional));
                for name in object["required"].as_array().unwrap() {
                    let property = &object["properties"][name.as_str().unwrap()];
                    prop_assert_ne!(&property["nullable"], &json!(true), "{}", schema);
                }
            }
            prop_assert!(!schema.to_string().contains("null\""), "{}", schema);
            prop_assert!(!schema.to_string().contains("int64"), "{}", schema);
        }
    }
}
