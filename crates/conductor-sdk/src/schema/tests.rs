//! Schemas of types, and what they accept.

mod values;

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::*;

/// Returns the schema of a type that is read, without `$schema`.
fn read<T: JsonSchema>(strictness: Strictness) -> Value {
    without_draft(WorkerSchema::Input(of::<T>()).render(strictness))
}

/// Returns the schema of a type that is returned, without `$schema`.
fn returned<T: JsonSchema>() -> Value {
    without_draft(WorkerSchema::Output(of::<T>()).render(Strictness::Lenient))
}

fn without_draft(schema: Option<Value>) -> Value {
    let mut schema = schema.expect("the type has a schema");
    let draft = schema.as_object_mut().unwrap().remove("$schema");
    assert_eq!(
        draft,
        Some(json!("http://json-schema.org/draft-07/schema#"))
    );
    schema
}

#[track_caller]
fn check<T: JsonSchema>(expected: Value) {
    assert_eq!(read::<T>(Strictness::Lenient), expected);
}

fn parameter<T: JsonSchema>(name: &'static str, presence: Presence) -> Parameter {
    Parameter {
        name,
        schema: Some(of::<T>()),
        presence,
    }
}

fn input(parameters: Vec<Parameter>, strictness: Strictness) -> Option<Value> {
    WorkerSchema::Parameters(parameters.into()).render(strictness)
}

/// A line of an order.
#[derive(Deserialize, JsonSchema, Serialize)]
struct Line {
    article: String,
    /// How many.
    count: u32,
    note: Option<String>,
    #[serde(default)]
    gift: bool,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Order {
    lines: Vec<Line>,
    by_name: BTreeMap<String, Line>,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Tree {
    name: String,
    parent: Option<Box<Self>>,
    children: Vec<Self>,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Green,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Payment {
    Card { number: String },
    Cash { coins: Vec<Coin> },
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Coin {
    cents: u8,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Paid {
    order_id: String,
    #[serde(flatten)]
    payment: Payment,
}

#[derive(Deserialize, JsonSchema, Serialize)]
struct Extensible {
    name: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
struct Closed {
    name: String,
}

/// Returns the schema of [`Line`].
fn line(additional: bool) -> Value {
    json!({
        "type": "object",
        "description": "A line of an order.",
        "properties": {
            "article": {"type": "string"},
            "count": {"type": "integer", "description": "How many."},
            "note": {"type": "string", "nullable": true},
            "gift": {"type": "boolean"},
        },
        "required": ["article", "count"],
        "additionalProperties": additional,
    })
}

#[test]
fn plain_types_have_their_name_and_nothing_else() {
    check::<String>(json!({"type": "string"}));
    check::<bool>(json!({"type": "boolean"}));
    check::<f32>(json!({"type": "number"}));
    check::<f64>(json!({"type": "number"}));
    check::<i8>(json!({"type": "integer"}));
    check::<i16>(json!({"type": "integer"}));
    check::<i32>(json!({"type": "integer"}));
    check::<i64>(json!({"type": "integer"}));
    check::<i128>(json!({"type": "integer"}));
    check::<isize>(json!({"type": "integer"}));
    check::<u8>(json!({"type": "integer"}));
    check::<u16>(json!({"type": "integer"}));
    check::<u32>(json!({"type": "integer"}));
    check::<u64>(json!({"type": "integer"}));
    check::<u128>(json!({"type": "integer"}));
    check::<usize>(json!({"type": "integer"}));
    check::<jiff::Timestamp>(json!({"type": "string", "format": "date-time"}));
}

#[test]
fn bounds_that_the_program_sets_are_kept() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only the type is used")]
    struct Bounded {
        #[schemars(range(min = 1, max = 5))]
        stars: u8,
    }
    let schema = read::<Bounded>(Strictness::Lenient);
    assert_eq!(
        schema["properties"]["stars"],
        json!({"type": "integer", "minimum": 1, "maximum": 5})
    );
    check::<std::num::NonZeroU8>(json!({"type": "integer", "minimum": 1}));
}

#[test]
fn lists_and_maps_describe_their_values() {
    check::<Vec<i64>>(json!({"type": "array", "items": {"type": "integer"}}));
    check::<Vec<Vec<String>>>(
        json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}),
    );
    check::<BTreeMap<String, i64>>(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
    );
    check::<HashMap<String, Line>>(json!({"type": "object", "additionalProperties": line(true)}));
    check::<Vec<Line>>(json!({"type": "array", "items": line(true)}));
}

#[test]
fn untyped_objects_lists_and_values_are_open_also_if_strict() {
    for strictness in [Strictness::Lenient, Strictness::Strict] {
        assert_eq!(
            read::<Map<String, Value>>(strictness),
            json!({"type": "object"})
        );
        assert_eq!(
            read::<HashMap<String, Value>>(strictness),
            json!({"type": "object"})
        );
        assert_eq!(read::<Vec<Value>>(strictness), json!({"type": "array"}));
        assert_eq!(read::<Value>(strictness), json!({}));
    }
}

#[test]
fn an_option_is_the_inner_schema_and_nullable() {
    check::<Option<i64>>(json!({"type": "integer", "nullable": true}));
    check::<Option<Option<i64>>>(json!({"type": "integer", "nullable": true}));
    check::<Option<Vec<String>>>(
        json!({"type": "array", "items": {"type": "string"}, "nullable": true}),
    );
    check::<Vec<Option<u8>>>(
        json!({"type": "array", "items": {"type": "integer", "nullable": true}}),
    );
    check::<Option<Color>>(json!({"type": "string", "enum": ["red", "green"], "nullable": true}));
    let mut optional = line(true);
    optional["nullable"] = json!(true);
    check::<Option<Line>>(optional);
    let payment = read::<Payment>(Strictness::Lenient);
    assert_eq!(
        read::<Option<Payment>>(Strictness::Lenient),
        json!({"oneOf": payment["oneOf"], "nullable": true})
    );
}

#[test]
fn a_struct_requires_its_fields_without_default() {
    check::<Line>(line(true));
    #[derive(Deserialize, JsonSchema)]
    #[serde(default)]
    struct Defaults {
        a: u8,
        b: Option<Value>,
    }
    impl Default for Defaults {
        fn default() -> Self {
            Self { a: 1, b: None }
        }
    }
    let defaults = Defaults::default();
    assert_eq!((defaults.a, defaults.b), (1, None));
    check::<Defaults>(json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": [],
        "additionalProperties": true,
    }));
}

#[test]
fn an_input_has_a_property_for_each_parameter() {
    let parameters = || {
        vec![
            parameter::<String>("order_id", Presence::Required),
            parameter::<u32>("parcels", Presence::Defaulted),
            parameter::<Option<String>>("note", Presence::Nullable),
            parameter::<Option<Value>>("extra", Presence::Nullable),
            parameter::<Value>("any", Presence::Required),
        ]
    };
    for (strictness, additional) in [(Strictness::Lenient, true), (Strictness::Strict, false)] {
        assert_eq!(
            input(parameters(), strictness).unwrap(),
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {
                    "order_id": {"type": "string"},
                    "parcels": {"type": "integer"},
                    "note": {"type": "string", "nullable": true},
                    "extra": {"nullable": true},
                    "any": {},
                },
                "required": ["order_id", "any"],
                "additionalProperties": additional,
            })
        );
    }
}

#[test]
fn required_is_there_also_if_it_is_empty() {
    for parameters in [
        vec![],
        vec![parameter::<Option<u8>>("a", Presence::Nullable)],
        vec![parameter::<u8>("a", Presence::Defaulted)],
    ] {
        let schema = input(parameters, Strictness::Lenient).unwrap();
        assert_eq!(schema["required"], json!([]));
        assert!(schema["properties"].is_object(), "{schema}");
    }
}

#[test]
fn one_parameter_without_a_schema_makes_the_whole_schema_none() {
    let unknown = Parameter {
        name: "unknown",
        schema: None,
        presence: Presence::Required,
    };
    let parameters = vec![parameter::<u8>("a", Presence::Required), unknown];
    assert_eq!(input(parameters, Strictness::Lenient), None);
}

#[test]
fn strictness_reaches_every_depth() {
    assert_eq!(
        read::<Vec<Order>>(Strictness::Strict),
        json!({
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "lines": {"type": "array", "items": line(false)},
                    "by_name": {"type": "object", "additionalProperties": line(false)},
                },
                "required": ["lines", "by_name"],
                "additionalProperties": false,
            },
        })
    );
}

#[test]
fn a_type_keeps_its_own_rule_for_unknown_fields() {
    let closed = read::<Closed>(Strictness::Lenient);
    assert_eq!(closed["additionalProperties"], json!(false));
    // A struct that collects unknown fields is a map as well.
    let extensible = read::<Extensible>(Strictness::Strict);
    assert_eq!(extensible["additionalProperties"], json!(true));
    assert_eq!(extensible["required"], json!(["name"]));
}

#[test]
fn a_recursive_type_refers_to_itself() {
    let schema = read::<Tree>(Strictness::Strict);
    let reference = json!({"$ref": "#/definitions/Tree"});
    for tree in [&schema, &schema["definitions"]["Tree"]] {
        assert_eq!(tree["properties"]["children"]["items"], reference);
        assert_eq!(
            tree["properties"]["parent"],
            json!({"allOf": [reference], "nullable": true})
        );
        assert_eq!(tree["required"], json!(["name", "children"]));
        assert_eq!(tree["additionalProperties"], json!(false));
    }
}

#[test]
fn an_output_describes_what_is_written() {
    #[derive(JsonSchema, Serialize)]
    struct Receipt {
        #[serde(rename(serialize = "receiptId"))]
        id: String,
        note: Option<String>,
    }
    assert_eq!(
        returned::<Receipt>(),
        json!({
            "type": "object",
            "properties": {
                "receiptId": {"type": "string"},
                "note": {"type": "string", "nullable": true},
            },
            "required": ["receiptId"],
            "additionalProperties": true,
        })
    );
    assert_eq!(returned::<i64>(), json!({"type": "integer"}));
    assert_eq!(
        returned::<Option<bool>>(),
        json!({"type": "boolean", "nullable": true})
    );
    assert_eq!(returned::<Value>(), json!({}));
    assert_eq!(
        WorkerSchema::Output(of::<()>()).render(Strictness::Lenient),
        None
    );
}

#[test]
fn a_schema_of_the_program_is_not_changed() {
    let schema = json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}});
    let given = WorkerSchema::Given(schema.clone());
    assert_eq!(given.render(Strictness::Strict), Some(schema));
}
