//! The mapping against the published golden vectors, value by value, and with random values.

use std::collections::BTreeMap;

use longhaul_protocol::payload::{Map, Value, from_json};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;

const GOLDEN: &str = include_str!("../../../protocol/contract/avro-value-v1-golden.json");

fn golden(name: &str) -> Payload {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let case = golden["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|case| case["name"] == name)
        .unwrap_or_else(|| panic!("no golden case {name}"));
    Payload::from_blob(case["wire_base64"].as_str().unwrap()).unwrap()
}

/// Writes to the golden blob and reads back from it.
#[track_caller]
fn check_golden<T>(name: &str, value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let payload = golden(name);
    assert_eq!(to_payload(value).unwrap(), payload, "{name}");
    assert_eq!(&from_payload::<T>(&payload).unwrap(), value, "{name}");
}

/// Bytes that say so to serde.
#[derive(Debug, PartialEq)]
struct Raw(Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Raw;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Raw, E> {
                Ok(Raw(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}

#[test]
fn golden_vectors_are_written_and_read() {
    check_golden("null", &());
    check_golden("null", &None::<u8>);
    check_golden("boolean_false", &false);
    check_golden("boolean_true", &true);
    check_golden("long_min", &i64::MIN);
    check_golden("long_max", &i64::MAX);
    check_golden("long_max", &(i64::MAX as u64));
    check_golden("long_7", &7_u8);
    check_golden("long_7", &Some(7_i32));
    check_golden("double_7", &7.0_f64);
    check_golden("double_7", &7.0_f32);
    check_golden("bytes_00ff", &Raw(vec![0, 255]));
    check_golden("string_utf8", &"héllo".to_owned());
    check_golden(
        "array",
        &((), true, 7, 7.0, Raw(vec![0, 255]), "text".to_owned()),
    );
    check_golden("map_empty", &BTreeMap::<String, u8>::new());
    check_golden("map_key_0", &BTreeMap::from([(0_u32, "zero".to_owned())]));
    check_golden(
        "map_keys_0_1",
        &BTreeMap::from([(0_i64, "zero".to_owned()), (1, "one".to_owned())]),
    );
    let negative_zero: f64 = from_payload(&golden("negative_zero")).unwrap();
    assert!(negative_zero == 0.0 && negative_zero.is_sign_negative());
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    price: f64,
    kind: Kind,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Gift(String),
    Range(i32, i32),
    Parcel {
        grams: u32,
        marks: BTreeMap<char, bool>,
    },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Left,
    Right,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Meters(u16);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pair(i8, char);

/// The value has this JSON form and comes back from it.
#[track_caller]
fn check<T>(value: &T, json: serde_json::Value)
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let expected = from_json(&json.to_string()).unwrap();
    assert_eq!(to_value(value).unwrap(), expected);
    assert_eq!(&from_value::<T>(expected).unwrap(), value);
}

#[test]
fn records_become_maps_and_variants_are_named() {
    check(
        &Order {
            id: 7,
            lines: vec![
                Line {
                    price: 1.5,
                    kind: Kind::Plain,
                },
                Line {
                    price: -0.5,
                    kind: Kind::Gift("ribbon".to_owned()),
                },
                Line {
                    price: 2.0,
                    kind: Kind::Range(1, 2),
                },
                Line {
                    price: 3.0,
                    kind: Kind::Parcel {
                        grams: 9,
                        marks: BTreeMap::from([('a', true)]),
                    },
                },
            ],
            note: None,
        },
        json!({"id": 7, "lines": [
            {"price": 1.5, "kind": "Plain"},
            {"price": -0.5, "kind": {"Gift": "ribbon"}},
            {"price": 2.0, "kind": {"Range": [1, 2]}},
            {"price": 3.0, "kind": {"Parcel": {"grams": 9, "marks": {"a": true}}}},
        ]}),
    );
    check(&Meters(5), json!(5));
    check(&Unit, json!(null));
    check(&Pair(-1, 'ß'), json!([-1, "ß"]));
    check(&'x', json!("x"));
    check(
        &BTreeMap::from([(Side::Left, 1), (Side::Right, 2)]),
        json!({"left": 1, "right": 2}),
    );
    check(&BTreeMap::from([(true, 1)]), json!({"true": 1}));
    check(&BTreeMap::from([(-3_i8, ())]), json!({"-3": null}));
    check(
        &json!({"free": [1, "form", null, {"x": 1.5}]}),
        json!({"free": [1, "form", null, {"x": 1.5}]}),
    );
}

#[test]
fn bytes_read_as_a_vector_too() {
    assert_eq!(
        from_value::<Vec<u8>>(Value::Bytes(vec![1, 2])).unwrap(),
        [1, 2]
    );
    assert_eq!(
        to_value(&vec![1_u8, 2]).unwrap(),
        Value::Array(vec![1.into(), 2.into()])
    );
}

#[test]
fn an_integer_reads_as_a_float_but_not_the_other_way() {
    assert_eq!(
        from_value::<f64>(Value::Long(7)).unwrap().to_bits(),
        7.0_f64.to_bits()
    );
    let error = from_value::<i64>(Value::Double(7.0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid type: floating point `7.0`, expected i64"
    );
}

#[track_caller]
fn check_unwritable(value: &impl Serialize, error: &str) {
    assert_eq!(to_payload(value).unwrap_err().to_string(), error);
}

#[test]
fn encoding_errors_contain_the_path() {
    check_unwritable(
        &u64::MAX,
        "18446744073709551615 does not fit a 64-bit signed integer; send it as text",
    );
    check_unwritable(&f64::NAN, "NaN and infinities cannot be sent");
    check_unwritable(
        &1_i128,
        "128-bit integers cannot be sent; send them as text",
    );
    check_unwritable(
        &1_u128,
        "128-bit integers cannot be sent; send them as text",
    );
    check_unwritable(
        &Order {
            id: 1,
            lines: vec![
                Line {
                    price: 0.0,
                    kind: Kind::Plain,
                },
                Line {
                    price: f64::INFINITY,
                    kind: Kind::Plain,
                },
            ],
            note: None,
        },
        "lines[1].price: NaN and infinities cannot be sent",
    );
    #[derive(Serialize)]
    enum Deep {
        Newtype(u64),
        Tuple(u8, u64),
        Struct { limit: u64 },
    }
    let reason = "18446744073709551615 does not fit a 64-bit signed integer; send it as text";
    check_unwritable(
        &[Deep::Newtype(u64::MAX)],
        &format!("[0].Newtype: {reason}"),
    );
    check_unwritable(
        &[Deep::Tuple(0, u64::MAX)],
        &format!("[0].Tuple[1]: {reason}"),
    );
    check_unwritable(
        &[Deep::Struct { limit: u64::MAX }],
        &format!("[0].Struct.limit: {reason}"),
    );
    check_unwritable(
        &BTreeMap::from([(vec![1], 1)]),
        "a sequence cannot be the key of a map; keys are text",
    );
    check_unwritable(
        &BTreeMap::from([((), 1)]),
        "a unit cannot be the key of a map; keys are text",
    );
}

#[track_caller]
fn check_unreadable<T: DeserializeOwned + std::fmt::Debug>(json: serde_json::Value, error: &str) {
    let value = from_json(&json.to_string()).unwrap();
    assert_eq!(from_value::<T>(value).unwrap_err().to_string(), error);
}

#[test]
fn decoding_errors_contain_the_path() {
    check_unreadable::<Order>(
        json!({"id": 1, "lines": [{"price": "free", "kind": "Plain"}]}),
        "lines[0].price: invalid type: string \"free\", expected f64",
    );
    check_unreadable::<Order>(json!({"id": 1}), "missing field `lines`");
    check_unreadable::<Order>(
        json!({"id": -1, "lines": []}),
        "id: invalid value: integer `-1`, expected u64",
    );
    check_unreadable::<Kind>(
        json!({"Parcel": {"grams": "many", "marks": {}}}),
        "Parcel.grams: invalid type: string \"many\", expected u32",
    );
    check_unreadable::<Kind>(
        json!({"Range": [1]}),
        "Range: invalid length 1, expected tuple variant Kind::Range with 2 elements",
    );
    check_unreadable::<(u8, u8)>(json!([1, 2, 3]), "invalid length 3, expected fewer items");
    check_unreadable::<Kind>(
        json!({"Gift": "a", "Plain": null}),
        "invalid value: map, expected a map of one entry, named after a variant",
    );
    check_unreadable::<Kind>(
        json!(7),
        "invalid type: integer `7`, expected the name of a variant, or a map of one entry",
    );
    check_unreadable::<BTreeMap<u8, u8>>(
        json!({"x": 1}),
        "invalid type: string \"x\", expected u8",
    );
    check_unreadable::<BTreeMap<u8, u8>>(
        json!({"1": 300}),
        "1: invalid value: integer `300`, expected u8",
    );
}

#[test]
fn nesting_ends_at_the_limit_both_ways() {
    let nest = |levels: usize| (0..levels).fold(json!(0), |inner, _| json!([inner]));
    let deepest = to_payload(&nest(256)).unwrap();
    assert_eq!(
        from_payload::<serde_json::Value>(&deepest).unwrap(),
        nest(256)
    );
    let error = to_payload(&nest(257)).unwrap_err();
    assert_eq!(error.message(), "containers are nested deeper than 256");
    let too_deep = (0..257).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let error = from_value::<serde_json::Value>(too_deep).unwrap_err();
    assert_eq!(error.message(), "containers are nested deeper than 256");
    assert_eq!(error.path().len(), 256 * "[0]".len());
}

/// The list that `arguments` become, and back.
#[track_caller]
fn check_arguments<A>(arguments: &A, list: serde_json::Value)
where
    A: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let payload = to_arguments(arguments).unwrap();
    assert_eq!(
        payload.decode().unwrap(),
        from_json(&list.to_string()).unwrap()
    );
    assert_eq!(&from_arguments::<A>(&payload).unwrap(), arguments);
}

fn list(json: serde_json::Value) -> Payload {
    Payload::encode(&from_json(&json.to_string()).unwrap()).unwrap()
}

#[test]
fn a_tuple_is_the_argument_list_and_anything_else_is_one_argument() {
    check_arguments(&(), json!([]));
    check_arguments(&(1, "a".to_owned()), json!([1, "a"]));
    check_arguments(&((1, 2),), json!([[1, 2]]));
    check_arguments(&"a".to_owned(), json!(["a"]));
    check_arguments(&vec![1, 2], json!([[1, 2]]));
    check_arguments(&Meters(3), json!([3]));
    check_arguments(&Unit, json!([null]));
    check_arguments(&Pair(1, 'x'), json!([[1, "x"]]));
    check_arguments(&Kind::Gift("x".to_owned()), json!([{"Gift": "x"}]));
    check_arguments(&Some((1, 2)), json!([[1, 2]]));
    check_arguments(&None::<(u8, u8)>, json!([null]));
    check_arguments(&BTreeMap::from([(1, 2)]), json!([{"1": 2}]));
}

#[test]
fn arguments_may_be_left_out_only_where_null_will_do() {
    assert_eq!(
        from_arguments::<(u8, Option<u8>)>(&list(json!([1]))).unwrap(),
        (1, None)
    );
    assert_eq!(
        from_arguments::<Option<u8>>(&list(json!([]))).unwrap(),
        None
    );
    let missing = from_arguments::<(u8, u8)>(&list(json!([1]))).unwrap_err();
    assert_eq!(missing.to_string(), "argument 2 is missing");
    let missing = from_arguments::<String>(&list(json!([]))).unwrap_err();
    assert_eq!(missing.to_string(), "argument 1 is missing");
    let extra = from_arguments::<(u8,)>(&list(json!([1, 2]))).unwrap_err();
    assert_eq!(extra.to_string(), "2 arguments were given, 1 expected");
    let extra = from_arguments::<()>(&list(json!([1]))).unwrap_err();
    assert_eq!(extra.to_string(), "1 arguments were given, 0 expected");
    let wrong = from_arguments::<(u8, Line)>(&list(json!([1, {"price": true, "kind": "Plain"}])))
        .unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "[1].price: invalid type: boolean `true`, expected f64"
    );
    let no_list = from_arguments::<u8>(&list(json!({}))).unwrap_err();
    assert_eq!(no_list.to_string(), "arguments must be a list");
    let unwritable = to_arguments(&Meters(1))
        .and_then(|_| to_arguments(&u64::MAX))
        .unwrap_err();
    assert_eq!(unwritable.path(), "[0]");
}

/// Any value a payload can hold, apart from bytes, which plain JSON types cannot take.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        any::<f64>()
            .prop_filter("finite", |value| value.is_finite())
            .prop_map(Value::Double),
        ".{0,12}".prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((".{0,6}", inner), 0..6)
                .prop_map(|entries| Value::Map(entries.into_iter().collect::<Map>())),
        ]
    })
}

proptest! {
    #[test]
    fn dynamic_values_survive_both_ways(value in values()) {
        let json: serde_json::Value = from_value(value.clone()).unwrap();
        prop_assert_eq!(to_value(&json).unwrap(), value);
    }

    #[test]
    fn typed_values_survive_both_ways(
        id in 0..i64::MAX as u64,
        prices in prop::collection::vec(-1e300..1e300_f64, 0..5),
        note in prop::option::of(".{0,9}"),
        bytes in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let lines = prices.iter().map(|price| Line { price: *price, kind: Kind::Plain }).collect();
        let sent = (Order { id, lines, note }, Raw(bytes));
        let payload = to_arguments(&sent).unwrap();
        prop_assert_eq!(from_arguments::<(Order, Raw)>(&payload).unwrap(), sent);
    }

    #[test]
    fn no_payload_panics_a_reader(value in values()) {
        let payload = Payload::encode(&value).unwrap();
        let _ = from_payload::<Order>(&payload);
        let _ = from_payload::<Kind>(&payload);
        let _ = from_arguments::<(Order, Kind)>(&payload);
        let _ = from_arguments::<BTreeMap<i32, Pair>>(&payload);
    }
}
