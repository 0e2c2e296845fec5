//! The published vectors, and tables of canonical, other legal and refused frames.

use super::super::*;
use super::frame;

const GOLDEN: &str = include_str!("../../../contract/avro-value-v1-golden.json");
const NESTED: &str = r#"{"items":[{"enabled":true},BYTES,-2.5]}"#;

fn golden() -> serde_json::Value {
    serde_json::from_str(GOLDEN).unwrap()
}

fn json(text: &str) -> Value {
    from_json(text).unwrap()
}

fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.to_vec())
}

/// The vector file gives values only for scalars; the containers are written out here from its names.
fn expected(case: &serde_json::Value) -> Value {
    let value = &case["value"];
    match (
        case["kind"].as_str().unwrap(),
        case["name"].as_str().unwrap(),
    ) {
        ("null", _) => Value::Null,
        ("boolean", _) => Value::Bool(value.as_bool().unwrap()),
        ("long", _) => Value::Long(value.as_str().unwrap().parse().unwrap()),
        ("double", _) => Value::Double(
            value
                .as_f64()
                .unwrap_or_else(|| value.as_str().unwrap().parse().unwrap()),
        ),
        ("bytes", _) => {
            Value::Bytes(blob::to_frame(case["value_base64"].as_str().unwrap()).unwrap())
        }
        ("string", _) => Value::from(value.as_str().unwrap()),
        (_, "array") => Value::Array(vec![
            Value::Null,
            Value::Bool(true),
            Value::Long(7),
            Value::Double(7.0),
            bytes(&[0, 0xff]),
            Value::from("text"),
        ]),
        (_, "map") => json(r#"{"a":1,"b":[false]}"#),
        (_, "map_empty") => json("{}"),
        (_, "map_key_0") => json(r#"{"0":"zero"}"#),
        (_, "map_keys_0_1") => json(r#"{"0":"zero","1":"one"}"#),
        (_, "nested") => {
            let items = vec![
                json(r#"{"enabled":true}"#),
                bytes(b"bytes"),
                Value::Double(-2.5),
            ];
            Value::Map(
                [("items".to_owned(), Value::Array(items))]
                    .into_iter()
                    .collect(),
            )
        }
        other => panic!("the golden file has a new case {other:?}: write its value here"),
    }
}

#[test]
fn the_prefix_is_the_fingerprint_of_the_schema_file() {
    let schema = include_str!("../../../contract/durable_workflow.protocol.Value.v1.avsc");
    let schema = apache_avro::Schema::parse_str(schema).unwrap();
    assert_eq!(schema.canonical_form().len(), 961);
    let fingerprint = schema.fingerprint::<apache_avro::rabin::Rabin>();
    assert_eq!(fingerprint.bytes, FRAME_PREFIX[2..]);
    assert_eq!(golden()["fingerprint"], fingerprint.to_string());
    assert_eq!(FRAME_PREFIX[..2], FRAME_MARKER);
}

#[test]
fn golden_cases_decode_and_encode_to_the_same_blob() {
    let golden = golden();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 16);
    for case in cases {
        let (name, wire) = (&case["name"], case["wire_base64"].as_str().unwrap());
        let value = expected(case);
        let payload = Payload::from_blob(wire).unwrap();
        assert_eq!(payload.decode().as_ref(), Ok(&value), "{name}");
        assert_eq!(payload.kind(), Some(value.kind()), "{name}");
        assert_eq!(Payload::encode(&value).unwrap().blob(), wire, "{name}");
    }
}

#[test]
fn golden_map_orders_mean_the_same() {
    for case in golden()["alternate_map_orders"].as_array().unwrap() {
        let values: Vec<Value> = case["wire_base64"]
            .as_array()
            .unwrap()
            .iter()
            .map(|wire| {
                Payload::from_blob(wire.as_str().unwrap())
                    .unwrap()
                    .decode()
                    .unwrap()
            })
            .collect();
        assert_eq!(values.len(), 2);
        assert_eq!(values[0], values[1]);
    }
}

#[test]
fn golden_malformed_frames_are_refused_for_their_reason() {
    let golden = golden();
    let frames = golden["malformed_frames"].as_array().unwrap();
    assert_eq!(frames.len(), 18);
    for case in frames {
        let error = Payload::from_blob(case["wire_base64"].as_str().unwrap()).unwrap_err();
        assert_eq!(case["error"], error.reason(), "{}", case["name"]);
    }
}

#[test]
fn table_of_canonical_forms() {
    let mixed = vec![
        Value::Null,
        Value::Bool(true),
        Value::Long(7),
        Value::Double(7.0),
        bytes(&[0, 0xff]),
        Value::from("text"),
    ];
    let rows = [
        (json("null"), "00", "wwHioz3/VYAiNwA="),
        (json("false"), "0200", "wwHioz3/VYAiNwIA"),
        (json("true"), "0201", "wwHioz3/VYAiNwIB"),
        (json("0"), "0400", "wwHioz3/VYAiNwQA"),
        (json("-1"), "0401", "wwHioz3/VYAiNwQB"),
        (json("7"), "040e", "wwHioz3/VYAiNwQO"),
        (json("42"), "0454", "wwHioz3/VYAiNwRU"),
        (json("64"), "048001", "wwHioz3/VYAiNwSAAQ=="),
        (json("-65"), "048101", "wwHioz3/VYAiNwSBAQ=="),
        (
            json("9007199254740993"),
            "048280808080808020",
            "wwHioz3/VYAiNwSCgICAgICAIA==",
        ),
        (
            Value::Long(i64::MAX),
            "04feffffffffffffffff01",
            "wwHioz3/VYAiNwT+//////////8B",
        ),
        (
            Value::Long(i64::MIN),
            "04ffffffffffffffffff01",
            "wwHioz3/VYAiNwT///////////8B",
        ),
        (
            json("0.0"),
            "060000000000000000",
            "wwHioz3/VYAiNwYAAAAAAAAAAA==",
        ),
        (
            json("-0.0"),
            "060000000000000080",
            "wwHioz3/VYAiNwYAAAAAAAAAgA==",
        ),
        (
            json("1.5"),
            "06000000000000f83f",
            "wwHioz3/VYAiNwYAAAAAAAD4Pw==",
        ),
        (
            json("7.0"),
            "060000000000001c40",
            "wwHioz3/VYAiNwYAAAAAAAAcQA==",
        ),
        (
            json("5e-324"),
            "060100000000000000",
            "wwHioz3/VYAiNwYBAAAAAAAAAA==",
        ),
        (
            Value::Double(f64::MAX),
            "06ffffffffffffef7f",
            "wwHioz3/VYAiNwb////////vfw==",
        ),
        (bytes(&[]), "0800", "wwHioz3/VYAiNwgA"),
        (bytes(&[0, 0xff]), "080400ff", "wwHioz3/VYAiNwgEAP8="),
        (json("\"\""), "0a00", "wwHioz3/VYAiNwoA"),
        (
            json("\"hello\""),
            "0a0a68656c6c6f",
            "wwHioz3/VYAiNwoKaGVsbG8=",
        ),
        (
            json("\"héllo\""),
            "0a0c68c3a96c6c6f",
            "wwHioz3/VYAiNwoMaMOpbGxv",
        ),
        (
            json("\"\\uD83D\\uDE00\""),
            "0a08f09f9880",
            "wwHioz3/VYAiNwoI8J+YgA==",
        ),
        (json("[]"), "0c00", "wwHioz3/VYAiNwwA"),
        (json("[null]"), "0c020000", "wwHioz3/VYAiNwwCAAA="),
        (
            json("[\"hello\",42]"),
            "0c040a0a68656c6c6f045400",
            "wwHioz3/VYAiNwwECgpoZWxsbwRUAA==",
        ),
        (
            json("[[1],[]]"),
            "0c040c020402000c0000",
            "wwHioz3/VYAiNwwEDAIEAgAMAAA=",
        ),
        (json("{}"), "0e00", "wwHioz3/VYAiNw4A"),
        (
            json(r#"{"a":1}"#),
            "0e020261040200",
            "wwHioz3/VYAiNw4CAmEEAgA=",
        ),
        (
            json(r#"{"b":1,"a":2}"#),
            "0e04026204020261040400",
            "wwHioz3/VYAiNw4EAmIEAgJhBAQA",
        ),
        (
            json(r#"{"":""}"#),
            "0e02000a0000",
            "wwHioz3/VYAiNw4CAAoAAA==",
        ),
        (
            json(r#"{"0":"zero"}"#),
            "0e0202300a087a65726f00",
            "wwHioz3/VYAiNw4CAjAKCHplcm8A",
        ),
        (
            json(r#"["Ada",{"n":1}]"#),
            "0c040a064164610e02026e04020000",
            "wwHioz3/VYAiNwwECgZBZGEOAgJuBAIAAA==",
        ),
        (
            json(r#"{"greeting":"Hello Ada"}"#),
            "0e02106772656574696e670a1248656c6c6f2041646100",
            "wwHioz3/VYAiNw4CEGdyZWV0aW5nChJIZWxsbyBBZGEA",
        ),
        (
            Value::Array(mixed),
            "0c0c000201040e060000000000001c40080400ff0a087465787400",
            "wwHioz3/VYAiNwwMAAIBBA4GAAAAAAAAHEAIBAD/Cgh0ZXh0AA==",
        ),
    ];
    for (value, datum, blob) in rows {
        assert_eq!(encode(&value).unwrap(), frame(datum), "{blob}");
        assert_eq!(Payload::encode(&value).unwrap().blob(), blob);
        assert_eq!(
            Payload::from_blob(blob).unwrap().decode(),
            Ok(value),
            "{blob}"
        );
    }
}

#[test]
fn table_of_other_legal_forms() {
    for (datum, value) in [
        ("048000", "0"),
        ("0c02040e02041000", "[7,8]"),
        ("0c0308040e040e00", "[7,7]"),
        ("0e01080261040200", r#"{"a":1}"#),
        ("0e04026104020261040400", r#"{"a":2}"#),
        // A duplicate key across two blocks, and a ten-byte zero.
        ("0e0202610402020261040400", r#"{"a":2}"#),
        ("0480808080808080808000", "0"),
    ] {
        assert_eq!(decode(&frame(datum)), from_json(value), "{datum}");
        assert_eq!(
            validate(&frame(datum)).ok(),
            from_json(value).ok().map(|value| value.kind()),
            "{datum}"
        );
    }
}

#[test]
fn table_of_refusals() {
    for datum in [
        "0202",
        "04ffffffffffffffffff02",
        "048080808080808080808001",
        "0a01",
        "08feffffffffffffff01",
        "0a04c080",
        "0a06eda080",
        "0e0202ff0000",
        "01",
        "10",
        "0c037e040e040e00",
        // A block size below what its items take, a negative one, and counts that cannot be.
        "0c0306040e040e00",
        "0c0301040e040e00",
        "0cfeffffffffffffffff0100",
        "0cffffffffffffffffff010000",
        "06000000000000f87f",
        "06000000000000f07f",
        "06000000000000f0ff",
        "06010000000000f07f",
        "0a02ff",
        "0000",
        "",
    ] {
        let error = decode(&frame(datum)).unwrap_err();
        assert_eq!(error.reason(), "invalid_payload_framing", "{datum}");
        assert_eq!(validate(&frame(datum)), Err(error), "{datum}");
    }
    assert_eq!(
        encode(&Value::Double(f64::NAN)),
        Err(CodecError::NonFiniteFloat)
    );
    assert_eq!(
        encode(&Value::Array(vec![Value::Double(f64::INFINITY)])),
        Err(CodecError::NonFiniteFloat)
    );
    assert_eq!(CodecError::NonFiniteFloat.reason(), "non_finite_float");
}

#[test]
fn every_truncation_is_refused() {
    let value = json(&NESTED.replace("BYTES", "\"text\""));
    let whole = encode(&value).unwrap();
    for length in 0..whole.len() {
        let cut = &whole[..length];
        assert_eq!(
            decode(cut).unwrap_err().reason(),
            "invalid_payload_framing",
            "{length}"
        );
        assert!(validate(cut).is_err());
        assert!(Payload::from_blob(&blob::to_text(cut)).is_err());
    }
    let trailing = [&whole[..], &[0]].concat();
    assert_eq!(
        decode(&trailing).unwrap_err().reason(),
        "invalid_payload_framing"
    );
}
