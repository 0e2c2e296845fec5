//! Values that are compared with JSON Schemas, in the same processes.

use std::time::Duration;

use longhaul_system::{Failure, Limit, Limits, Scripts};
use serde_json::{Value, json};

use crate::{SCRIPTS, raw};

async fn compare(schema: &Value, value: &Value) -> Result<Vec<String>, Failure> {
    let (schema, value) = (raw(&schema.to_string()), raw(&value.to_string()));
    SCRIPTS.compare(&schema, &value).await
}

/// Compares a value that must not match in one place.
async fn difference(schema: Value, value: Value) -> String {
    let found = compare(&schema, &value).await.unwrap();
    let [only] = &found[..] else {
        panic!("{schema} {value}: {found:?}")
    };
    only.clone()
}

fn order() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        },
        "required": ["id"],
        "additionalProperties": false,
        "definitions": {"line": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
    })
}

#[tokio::test]
async fn a_value_that_matches_has_no_differences() {
    for value in [
        json!({"id": "a"}),
        json!({"id": "a", "lines": []}),
        json!({"id": "é", "lines": [{"cents": 5}, {}]}),
    ] {
        assert_eq!(compare(&order(), &value).await, Ok(vec![]), "{value}");
    }
    assert_eq!(compare(&json!({}), &json!([null])).await, Ok(vec![]));
}

#[tokio::test]
async fn a_difference_has_its_place_and_not_the_value() {
    for (value, text) in [
        (json!({}), r#""id" is a required property"#),
        (json!({"id": "secret", "x": 1}), "'x'"),
        (json!({"id": 7}), r#"/id: value is not of type "string""#),
        (
            json!({"id": "a", "lines": [{}, {"cents": "secret"}]}),
            r#"/lines/1/cents: value is not of type "integer""#,
        ),
    ] {
        let found = difference(order(), value).await;
        assert!(found.contains(text), "{found}");
        assert!(!found.contains("secret"), "{found}");
    }
}

#[tokio::test]
async fn differences_are_bounded_in_number_and_size() {
    let all: serde_json::Map<_, _> = (0..100).map(|n| (n.to_string(), json!(n))).collect();
    let texts = json!({"additionalProperties": {"type": "string"}});
    assert_eq!(compare(&texts, &Value::Object(all)).await.unwrap().len(), 5);
    let names: Vec<String> = (0..1000).map(|n| format!("name {n}")).collect();
    let found = difference(json!({"enum": names}), json!(1)).await;
    assert!(found.chars().count() <= 301, "{found}");
}

#[tokio::test]
async fn nullable_accepts_null_at_every_depth() {
    let schema = json!({
        "type": "object",
        "properties": {
            "note": {"type": "string", "nullable": true},
            "line": {"allOf": [{"$ref": "#/definitions/line"}], "nullable": true},
            "list": {"type": "array", "items": {"type": "integer", "nullable": true}},
            "word": {"type": "string", "enum": ["a", "b"], "nullable": true},
            // A property of this name is not the word.
            "nullable": {"type": "boolean"},
        },
        "definitions": {"line": {"type": "object", "properties": {"n": {"type": "number", "nullable": true}}}},
    });
    for value in [
        json!({"note": null, "line": null, "list": [1, null], "word": null, "nullable": true}),
        json!({"note": "x", "line": {"n": null}}),
        json!({"line": {"n": 1.5}}),
    ] {
        assert_eq!(compare(&schema, &value).await, Ok(vec![]), "{value}");
    }
    for value in [
        json!({"note": 1}),
        json!({"word": "c"}),
        json!({"line": {"n": "x"}}),
        json!({"list": ["x"]}),
        json!({"list": null}),
        json!({"nullable": null}),
    ] {
        assert_eq!(compare(&schema, &value).await.unwrap().len(), 1, "{value}");
    }
    let found = difference(schema, json!({"note": 1})).await;
    assert_eq!(found, r#"/note: value is not of types "null", "string""#);
    let refused = json!({"type": "string", "nullable": false});
    assert_eq!(compare(&refused, &json!(null)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_no_schema_is_an_error() {
    for (schema, part) in [
        (json!({"type": "objekt"}), "not a valid JSON Schema"),
        (json!({"properties": []}), "not a valid JSON Schema"),
        (json!({"pattern": "("}), "not a valid JSON Schema"),
        (
            json!({"$ref": "http://127.0.0.1:9/other.json"}),
            "127.0.0.1:9",
        ),
        (json!({"$ref": "file:///etc/passwd"}), "/etc/passwd"),
        (json!({"$ref": "#/definitions/none"}), "/definitions/none"),
    ] {
        match compare(&schema, &json!({})).await {
            Err(Failure::Script { message, .. }) => {
                assert!(message.contains(part), "{schema}: {message}");
            }
            other => panic!("{schema}: {other:?}"),
        }
    }
}

/// Each definition refers twice to the next one: a value is compared 2^40 times.
fn exponential() -> Value {
    let mut definitions = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/definitions/{}", n + 1)});
        definitions.insert(n.to_string(), json!({"allOf": [next, next]}));
    }
    definitions.insert("40".to_owned(), json!({"type": "object"}));
    json!({"$ref": "#/definitions/0", "definitions": definitions})
}

#[tokio::test]
async fn a_comparison_without_end_reaches_the_processor_limit() {
    let limits = Limits {
        cpu: Duration::from_millis(300),
        wall: Duration::from_secs(120),
        processes: 1,
        ..Limits::default()
    };
    let pool = Scripts::new(limits.clone());
    let value = raw("{}");
    let endless = raw(&exponential().to_string());
    let result = pool.compare(&endless, &value).await;
    assert_eq!(result, Err(Failure::Limit(Limit::Cpu(limits.cpu))));
    let plain = raw(r#"{"type": "object"}"#);
    assert_eq!(pool.compare(&plain, &value).await, Ok(vec![]));
}

#[tokio::test]
async fn a_pattern_takes_linear_time() {
    let schema = json!({"type": "string", "pattern": "^(a+)+$"});
    let value = json!(format!("{}b", "a".repeat(100_000)));
    assert_eq!(compare(&schema, &value).await.unwrap().len(), 1);
}
