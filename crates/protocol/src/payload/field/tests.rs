//! Every position with every shape, and the path that each refusal names.

use serde_json::value::RawValue;

use super::*;
use crate::payload::{Value, encode};

const NULL: &str = "wwHioz3/VYAiNwA=";
const EMPTY_LIST: &str = "wwHioz3/VYAiNwwA";
const SEVEN: &str = "wwHioz3/VYAiNwQO";
const HELLO_42: &str = "wwHioz3/VYAiNwwECgpoZWxsbwRUAA==";

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn envelope(blob: &str) -> String {
    serde_json::json!({"codec": "avro", "blob": blob}).to_string()
}

fn input(json: &str) -> Result<Payload, FieldError> {
    input_list(Some(&raw(json)), "input")
}

#[track_caller]
fn accepted(result: Result<Payload, FieldError>, blob: &str) {
    assert_eq!(result.as_ref().map(Payload::blob), Ok(blob));
}

#[track_caller]
fn refused(result: Result<Payload, FieldError>, path: &str, reason: &str) {
    let error = result.unwrap_err();
    assert_eq!(
        (error.path.as_str(), error.reason),
        (path, reason),
        "{error}"
    );
    if reason != "validation_failed" {
        assert!(error.message.starts_with(&format!("{reason}: ")), "{error}");
    }
}

/// Both entries of an envelope position must agree: text and tree.
fn both(json: &str) -> Result<Payload, FieldError> {
    let text = command_payload(&*raw(json), "f");
    let tree = command_payload(
        &serde_json::from_str::<serde_json::Value>(json).unwrap(),
        "f",
    );
    assert_eq!(text, tree, "{json}");
    text
}

#[test]
fn input_takes_nothing_an_array_or_an_envelope_of_an_array() {
    accepted(input_list(None, "input"), EMPTY_LIST);
    for nothing in ["null", "[]", "{}", "[ ]", "{ }"] {
        accepted(input(nothing), EMPTY_LIST);
    }
    accepted(input(r#"["hello", 42]"#), HELLO_42);
    accepted(input(&envelope(HELLO_42)), HELLO_42);
    accepted(
        input(&format!(
            r#" {{ "blob" : "{HELLO_42}", "codec" : "avro" }} "#
        )),
        HELLO_42,
    );
}

#[test]
fn input_refuses_everything_else() {
    for json in [
        r#""hello""#,
        "7",
        "true",
        r#"{"name":"Ada"}"#,
        r#"{"blob":"wwHioz3/VYAiNwwA"}"#,
    ] {
        refused(input(json), "input", "validation_failed");
    }
    refused(input(&envelope(SEVEN)), "input.blob", "validation_failed");
    refused(
        input(&envelope("")),
        "input.blob",
        "invalid_payload_framing",
    );
    refused(input("[9223372036854775808]"), "input", "integer_overflow");
    refused(input("[1e400]"), "input", "non_finite_float");
    refused(input(r#"["\ud800"]"#), "input", "unsupported_value_type");
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(input(&nested(256)).is_ok());
    refused(input(&nested(257)), "input", "invalid_payload_framing");
}

#[test]
fn a_blob_in_another_legal_form_is_kept_verbatim() {
    // [7,8] in two blocks, which the canonical encoder would write as one.
    let frame = [
        &crate::payload::FRAME_PREFIX[..],
        &[0x0c, 0x02, 0x04, 0x0e, 0x02, 0x04, 0x10, 0x00],
    ]
    .concat();
    let blob = crate::payload::blob::to_text(&frame);
    let payload = input(&envelope(&blob)).unwrap();
    assert_eq!(payload.blob(), blob);
    assert_ne!(encode(&payload.decode().unwrap()).unwrap(), frame);
}

#[test]
fn only_avro_is_a_codec() {
    for codec in [
        r#""json""#,
        r#""AVRO""#,
        r#""avro ""#,
        r#""zstd""#,
        r#""""#,
        "null",
        "1",
        "{}",
        r#"["avro"]"#,
    ] {
        let json = format!(r#"{{"codec":{codec},"blob":"[\"Ada\"]"}}"#);
        refused(input(&json), "input.codec", "unsupported_payload_codec");
        refused(both(&json), "f.codec", "unsupported_payload_codec");
        refused(
            activity_result(Some(&raw(&json)), "result"),
            "result.codec",
            "unsupported_payload_codec",
        );
    }
    for json in ["{}", r#"{"blob":"wwHioz3/VYAiNwA="}"#, r#"{"a":1}"#] {
        refused(both(json), "f.codec", "unsupported_payload_codec");
    }
}

#[test]
fn the_blob_must_be_there_and_be_a_string() {
    for json in [
        r#"{"codec":"avro"}"#,
        r#"{"codec":"avro","blob":null}"#,
        r#"{"codec":"avro","blob":7}"#,
        r#"{"codec":"avro","blob":{}}"#,
    ] {
        refused(both(json), "f.blob", "invalid_payload_envelope");
        refused(input(json), "input.blob", "invalid_payload_envelope");
    }
    let extra = format!(r#"{{"codec":"avro","blob":"{NULL}","extra":[1,{{}}]}}"#);
    refused(both(&extra), "f", "invalid_payload_envelope");
    refused(
        activity_result(Some(&raw(&extra)), "result"),
        "result",
        "invalid_payload_envelope",
    );
}

#[test]
fn external_shapes_are_refused_by_name() {
    for name in ["external_storage", "external_payload"] {
        let json = format!(r#"{{"codec":"avro","{name}":{{"uri":"s3://b/k"}}}}"#);
        refused(
            both(&json),
            &format!("f.{name}"),
            "external_payload_unsupported",
        );
        refused(
            input(&json),
            &format!("input.{name}"),
            "external_payload_unsupported",
        );
    }
}

#[test]
fn blobs_that_are_not_frames_are_refused() {
    let base64_of = |bytes: &[u8]| crate::payload::blob::to_text(bytes);
    for blob in [
        r#"{"a":1}"#,
        r#""x""#,
        "7",
        "true",
        "null",
        "",
        " wwHioz3/VYAiNwA=",
        "wwHioz3/VYAiNwA=\n",
        "wwHi oz3/VYAiNwA=",
        "wwHioz3_VYAiNwA=",
        "wwHioz3/VYAiNwA",
        "wwHioz3/VYAiNwA==",
        "wwHioz3/VYAiNwB=",
        "wwHioz3/VYAiNwAA=",
        "wwHioz3/VYAi\u{e9}",
        &base64_of(br#"{"a":1}"#),
        &base64_of(b"random bytes, more than ten"),
        &base64_of(b"\xc3\x01short"),
    ] {
        refused(both(&envelope(blob)), "f.blob", "invalid_payload_framing");
        refused(
            both(&serde_json::json!(blob).to_string()),
            "f",
            "invalid_payload_framing",
        );
    }
    let other = "wwEdoz3/VYAiNwA=";
    refused(
        both(&envelope(other)),
        "f.blob",
        "unsupported_payload_schema",
    );
    assert!(
        both(&envelope(other))
            .unwrap_err()
            .message
            .contains("1da33dff55802237")
    );
}

#[test]
fn commands_take_an_envelope_or_a_bare_string() {
    accepted(both(&envelope(SEVEN)), SEVEN);
    accepted(both(&format!("\"{SEVEN}\"")), SEVEN);
    accepted(both(&format!("\"{}\"", SEVEN.replace('/', "\\/"))), SEVEN);
    for json in ["null", "7", "[]", "true"] {
        refused(both(json), "f", "invalid_payload_envelope");
    }
    let none = serde_json::Value::Null;
    assert_eq!(optional_command_payload(Some(&none), "f"), Ok(None));
    assert_eq!(optional_command_payload(Some(&*raw("null")), "f"), Ok(None));
    assert_eq!(optional_command_payload(None::<&RawValue>, "f"), Ok(None));
    let some = optional_command_payload(Some(&*raw(&envelope(SEVEN))), "f").unwrap();
    assert_eq!(some.unwrap().blob(), SEVEN);
}

#[test]
fn some_positions_take_an_envelope_only() {
    accepted(envelope_only(&*raw(&envelope(SEVEN)), "f"), SEVEN);
    refused(
        envelope_only(&*raw(&format!("\"{SEVEN}\"")), "f"),
        "f",
        "invalid_payload_envelope",
    );
    refused(
        envelope_only(&*raw("[1]"), "f"),
        "f",
        "invalid_payload_envelope",
    );
    refused(
        envelope_only(&*raw(r#"{"blob":"x"}"#), "f"),
        "f.codec",
        "unsupported_payload_codec",
    );
}

#[test]
fn activity_results_are_envelopes_or_data() {
    let result = |json: &str| activity_result(Some(&raw(json)), "result");
    accepted(activity_result(None, "result"), NULL);
    accepted(result("null"), NULL);
    accepted(result(&envelope(SEVEN)), SEVEN);
    // A bare string is data here, even if it would be a blob elsewhere.
    assert_eq!(
        result(&format!("\"{SEVEN}\"")).unwrap().decode(),
        Ok(Value::from(SEVEN))
    );
    assert_eq!(
        result(r#""text""#).unwrap().decode(),
        Ok(Value::from("text"))
    );
    assert!(result(r#"{"blob":"x"}"#).unwrap().is_map());
    assert_eq!(result("-0").unwrap().decode(), Ok(Value::Double(-0.0)));
    refused(result("18446744073709551615"), "result", "integer_overflow");
}

#[test]
fn query_results_prefer_the_envelope() {
    let (shown, sent) = (raw("8"), raw(&envelope(SEVEN)));
    accepted(query_result(Some(&sent), Some(&shown)), SEVEN);
    assert_eq!(
        query_result(None, Some(&shown)).unwrap().decode(),
        Ok(Value::Long(8))
    );
    assert_eq!(
        query_result(Some(&raw("null")), Some(&shown))
            .unwrap()
            .decode(),
        Ok(Value::Long(8))
    );
    accepted(query_result(None, None), NULL);
    let bad = raw(&envelope("x"));
    refused(
        query_result(Some(&bad), Some(&shown)),
        "result_envelope.blob",
        "invalid_payload_framing",
    );
}

#[test]
fn failure_details_are_envelopes_or_diagnostics() {
    let details = |json: &str| failure_details(&*raw(json), "failure.details");
    assert_eq!(details(&envelope(SEVEN)).unwrap().unwrap().blob(), SEVEN);
    for json in [
        "null",
        r#""text""#,
        "[1]",
        r#"{"any":"thing"}"#,
        r#"{"blob":"x"}"#,
    ] {
        assert_eq!(details(json), Ok(None), "{json}");
    }
    let error = details(r#"{"codec":"json","blob":"{}"}"#).unwrap_err();
    assert_eq!(error.path, "failure.details.codec");
}

#[test]
fn a_payload_codec_is_avro_or_absent() {
    assert_eq!(payload_codec(None, "payload_codec"), Ok(()));
    assert_eq!(
        payload_codec(Some(&serde_json::json!(null)), "payload_codec"),
        Ok(())
    );
    assert_eq!(
        payload_codec(Some(&serde_json::json!("avro")), "payload_codec"),
        Ok(())
    );
    for codec in [
        serde_json::json!("json"),
        serde_json::json!("Avro"),
        serde_json::json!(""),
        serde_json::json!(1),
    ] {
        let error = payload_codec(Some(&codec), "payload_codec").unwrap_err();
        assert_eq!(
            (error.path.as_str(), error.reason),
            ("payload_codec", "unsupported_payload_codec")
        );
    }
}

#[test]
fn envelopes_inside_application_data_are_data() {
    let data = r#"[{"codec":"json","blob":"text"},{"external_payload":{"codec":"avro"}}]"#;
    let payload = input(data).unwrap();
    assert_eq!(
        crate::payload::display(&payload.decode().unwrap()).to_string(),
        data
    );
    let again = input(&envelope(payload.blob())).unwrap();
    assert_eq!(again, payload);
}
