//! Payloads on the worker plane: a malformed one is refused with the field that is wrong, and changes nothing.

use serde_json::{Value, json};

use crate::support::{
    activity_report, base64, blob, complete, envelope, history, leased_task, running_activity,
    staffed,
};

/// Adds the ten bytes that precede every value.
const PREFIX: [u8; 10] = [0xc3, 0x01, 0xe2, 0xa3, 0x3d, 0xff, 0x55, 0x80, 0x22, 0x37];

fn frame(value: &[u8]) -> Vec<u8> {
    [&PREFIX[..], value].concat()
}

/// Returns arrays nested this deep.
fn nested(depth: usize) -> Vec<u8> {
    let mut value = [0x0c, 0x02].repeat(depth);
    value.pop();
    value.push(0x00);
    value.extend(vec![0x00; depth - 1]);
    frame(&value)
}

/// Returns malformed envelopes, each with the wrong part and a word of the error.
fn bad_envelopes() -> Vec<(Value, &'static str, &'static str)> {
    let good = base64(&frame(&[0x00]));
    let framing = "invalid_payload_framing";
    let codec = "unsupported_payload_codec";
    let mut other_schema = frame(&[0x00]);
    other_schema[4] ^= 0xff;
    let url_safe = good.replace('/', "_").replace('+', "-");
    assert_ne!(
        url_safe, good,
        "the example has a letter of the other alphabet"
    );
    vec![
        (json!({"codec": "json", "blob": good}), "codec", codec),
        (json!({"codec": "AVRO", "blob": good}), "codec", codec),
        (json!({"codec": "", "blob": good}), "codec", codec),
        (json!({"codec": null, "blob": good}), "codec", codec),
        (json!({"codec": 7, "blob": good}), "codec", codec),
        (json!({"codec": "avro"}), "blob", "invalid_payload_envelope"),
        (
            json!({"codec": "avro", "blob": null}),
            "blob",
            "invalid_payload_envelope",
        ),
        (
            json!({"codec": "avro", "blob": 7}),
            "blob",
            "invalid_payload_envelope",
        ),
        (
            json!({"codec": "avro", "blob": "{\"a\":1}"}),
            "blob",
            framing,
        ),
        (json!({"codec": "avro", "blob": "true"}), "blob", framing),
        (json!({"codec": "avro", "blob": ""}), "blob", framing),
        (json!({"codec": "avro", "blob": "%%%"}), "blob", framing),
        (
            json!({"codec": "avro", "blob": format!(" {good}")}),
            "blob",
            framing,
        ),
        (
            json!({"codec": "avro", "blob": format!("{good}\n")}),
            "blob",
            framing,
        ),
        (
            json!({"codec": "avro", "blob": good.trim_end_matches('=')}),
            "blob",
            framing,
        ),
        (json!({"codec": "avro", "blob": url_safe}), "blob", framing),
        (blob(b"[\"Ada\"]"), "blob", framing),
        (blob(b"short"), "blob", framing),
        (blob(&PREFIX), "blob", framing),
        (blob(&other_schema), "blob", "unsupported_payload_schema"),
        (blob(&frame(&[0x00, 0x00])), "blob", framing),
        (blob(&frame(&[0x63])), "blob", framing),
        (blob(&frame(&[0x0a, 0x02, 0xff])), "blob", framing),
        (blob(&nested(257)), "blob", framing),
    ]
}

fn expect_refusal(refusal: &Value, path: &str, word: &str) {
    let fields: Vec<&String> = refusal["errors"]
        .as_object()
        .expect("errors by field")
        .keys()
        .collect();
    assert_eq!(fields, [path], "{refusal}");
    assert_eq!(refusal["errors"], refusal["validation_errors"]);
    let text = refusal["errors"][path][0].as_str().expect("a text");
    assert!(text.starts_with(&format!("{word}: ")), "{path}: {text}");
}

/// Returns commands with a payload in every position that accepts one.
fn positions(payload: &Value) -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"type": "schedule_activity", "activity_type": "say", "arguments": payload}),
            "arguments",
        ),
        (
            json!({"type": "record_side_effect", "result": payload}),
            "result",
        ),
        (
            json!({"type": "complete_workflow", "result": payload}),
            "result",
        ),
        (
            json!({"type": "continue_as_new", "arguments": payload}),
            "arguments",
        ),
        (
            json!({"type": "upsert_memo", "entries": payload}),
            "entries",
        ),
    ]
}

#[tokio::test]
async fn a_bad_envelope_in_a_command_is_refused_at_its_part_and_nothing_is_applied() {
    let (server, task) = leased_task().await;
    let before = history(&server, &task).await;
    for (bad, part, word) in bad_envelopes() {
        for (command, field) in positions(&bad) {
            let commands = json!([{"type": "start_timer", "delay_seconds": 5}, command]);
            let refusal = complete(&server, &task, commands)
                .refused(422, "validation_failed")
                .await;
            expect_refusal(&refusal, &format!("commands.1.{field}.{part}"), word);
        }
    }
    assert_eq!(history(&server, &task).await, before);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_bad_envelope_of_an_activity_is_refused_and_the_lease_stays() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let before = history(&server, &task).await;
    for (bad, part, word) in bad_envelopes() {
        let refusal = activity_report(&server, &task, "complete", json!({"result": bad}))
            .refused(422, "validation_failed")
            .await;
        expect_refusal(&refusal, &format!("result.{part}"), word);
        let failure = json!({"failure": {"message": "no", "details": bad}});
        let refusal = activity_report(&server, &task, "fail", failure)
            .refused(422, "validation_failed")
            .await;
        expect_refusal(&refusal, &format!("failure.details.{part}"), word);
    }
    assert_eq!(history(&server, &task).await, before);
    activity_report(&server, &task, "complete", json!({}))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_bare_string_is_a_payload_of_commands_and_refused_at_the_field() {
    let (server, task) = leased_task().await;
    for (bare, word) in [
        ("%%%", "invalid_payload_framing"),
        ("plain text", "invalid_payload_framing"),
        (&base64(b"{}"), "invalid_payload_framing"),
    ] {
        let commands = json!([{"type": "record_side_effect", "result": bare}]);
        let refusal = complete(&server, &task, commands)
            .refused(422, "validation_failed")
            .await;
        expect_refusal(&refusal, "commands.0.result", word);
    }
    let refusal = complete(
        &server,
        &task,
        json!([{"type": "upsert_memo", "entries": envelope(r#"{"k":1}"#)["blob"]}]),
    )
    .refused(422, "validation_failed")
    .await;
    assert!(
        refusal["errors"]["commands.0.entries"].is_array(),
        "{refusal}"
    );
    let bare = envelope("5")["blob"].clone();
    complete(&server, &task, json!([{"type": "record_side_effect", "result": bare}, {"type": "record_side_effect", "result": envelope("5")}])).accepted(200).await;
    let events = history(&server, &task).await;
    for event in &events[2..] {
        assert_eq!(event["payload"]["result"], envelope("5"));
        assert_eq!(event["payload"]["payload_codec"], "avro");
    }
}

#[tokio::test]
async fn a_payload_codec_beside_a_bare_string_must_be_avro() {
    let (server, task) = leased_task().await;
    let with = |codec: Value| json!([{"type": "record_side_effect", "result": envelope("5")["blob"], "payload_codec": codec}]);
    for codec in [json!("json"), json!("AVRO"), json!(7)] {
        let refusal = complete(&server, &task, with(codec))
            .refused(422, "validation_failed")
            .await;
        expect_refusal(
            &refusal,
            "commands.0.payload_codec",
            "unsupported_payload_codec",
        );
    }
    complete(&server, &task, with(json!("avro")))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn plain_json_is_no_payload_of_a_command() {
    let (server, task) = leased_task().await;
    for plain in [json!(7), json!([1]), json!({"a": 1}), json!(true)] {
        for (command, _) in positions(&plain) {
            complete(&server, &task, json!([command]))
                .refused(422, "validation_failed")
                .await;
        }
    }
    assert_eq!(history(&server, &task).await.len(), 2);
}

#[tokio::test]
async fn external_references_are_refused_by_name() {
    let (server, task) = leased_task().await;
    let external = json!({"codec": "avro", "external_storage": {"uri": "s3://x"}});
    let refusal = complete(
        &server,
        &task,
        json!([{"type": "complete_workflow", "result": external}]),
    )
    .refused(422, "validation_failed")
    .await;
    let text = refusal["errors"].to_string();
    assert!(text.contains("external_payload_unsupported"), "{text}");
}

#[tokio::test]
async fn two_hundred_and_fifty_six_levels_are_not_too_deep() {
    let (server, task) = leased_task().await;
    let deep = blob(&nested(256));
    complete(
        &server,
        &task,
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": deep}]),
    )
    .accepted(200)
    .await;
    let activity = server.worker("w").activity_task().await;
    assert_eq!(activity["arguments"], deep);
    activity_report(&server, &activity, "complete", json!({"result": deep}))
        .accepted(200)
        .await;
    let plain = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let send = |depth: usize| {
        let body = format!(
            r#"{{"lease_owner":"w","activity_attempt_id":{},"result":{}}}"#,
            task["activity_attempt_id"],
            plain(depth)
        );
        let path = format!("/activity-tasks/{}/complete", crate::support::id(&task));
        server
            .worker_call(http::Method::POST, &path)
            .raw(body)
            .header("content-type", "application/json")
    };
    assert_eq!(send(257).invalid().await, ["result"]);
    send(256).accepted(200).await;
}

#[tokio::test]
async fn numbers_keep_their_kind_from_the_start_to_the_result() {
    let server = staffed().await;
    server.start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "input": [7, 7.0, -0.0, i64::MIN, i64::MAX]})).await;
    let task = server.worker("w").workflow_task().await;
    let arguments = envelope(&format!("[7,7.0,-0.0,{},{}]", i64::MIN, i64::MAX));
    assert_eq!(task["arguments"], arguments);
    complete(&server, &task, json!([{"type": "schedule_activity", "activity_type": "say", "arguments": task["arguments"]}])).accepted(200).await;
    let activity = server.worker("w").activity_task().await;
    assert_eq!(activity["arguments"], arguments);
    let body = format!(
        r#"{{"lease_owner":"w","activity_attempt_id":{},"result":9223372036854775808}}"#,
        activity["activity_attempt_id"]
    );
    let path = format!("/activity-tasks/{}/complete", crate::support::id(&activity));
    let refusal = server
        .worker_call(http::Method::POST, &path)
        .raw(body)
        .header("content-type", "application/json")
        .refused(422, "validation_failed")
        .await;
    expect_refusal(&refusal, "result", "integer_overflow");
    activity_report(&server, &activity, "complete", json!({"result": -7.0}))
        .accepted(200)
        .await;
    let woken = server.worker("w").workflow_task().await;
    let completed = woken["history_events"]
        .as_array()
        .and_then(|events| events.last())
        .expect("an event");
    assert_eq!(completed["payload"]["result"], envelope("-7.0"));
}

#[tokio::test]
async fn a_blob_in_another_legal_form_is_passed_on_unchanged() {
    let odd = blob(&frame(&[0x0c, 0x01, 0x02, 0x00, 0x00]));
    let server = staffed().await;
    server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "input": odd}))
        .await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["arguments"], odd);
    complete(
        &server,
        &task,
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": odd}]),
    )
    .accepted(200)
    .await;
    let activity = server.worker("w").activity_task().await;
    assert_eq!(activity["arguments"], odd);
    activity_report(&server, &activity, "complete", json!({"result": odd}))
        .accepted(200)
        .await;
    let woken = server.worker("w").workflow_task().await;
    complete(
        &server,
        &woken,
        json!([{"type": "complete_workflow", "result": odd}]),
    )
    .accepted(200)
    .await;
    let described = server.get("/workflows/wf").accepted(200).await;
    assert_eq!(described["output_envelope"], odd);
}

#[tokio::test]
async fn a_map_that_looks_like_an_envelope_inside_a_payload_is_data() {
    let (server, task) = leased_task().await;
    let inner = envelope(r#"{"codec":"json","blob":"text"}"#);
    complete(
        &server,
        &task,
        json!([{"type": "complete_workflow", "result": inner}]),
    )
    .accepted(200)
    .await;
    let described = server.get("/workflows/wf").accepted(200).await;
    assert_eq!(
        described["output"],
        json!({"codec": "json", "blob": "text"})
    );
}

#[tokio::test]
async fn an_envelope_has_no_other_keys() {
    let (server, task) = leased_task().await;
    let mut extra = envelope("5");
    extra["note"] = json!("more");
    let commands = json!([{"type": "record_side_effect", "result": extra}]);
    let wrong = complete(&server, &task, commands).invalid().await;
    assert!(wrong[0].starts_with("commands.0.result"), "{wrong:?}");
    complete(
        &server,
        &task,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .accepted(200)
    .await;
    let activity = server.worker("w").activity_task().await;
    let wrong = activity_report(&server, &activity, "complete", json!({"result": extra}))
        .invalid()
        .await;
    assert!(wrong[0].starts_with("result"), "{wrong:?}");
}

#[tokio::test]
async fn a_completion_of_three_megabytes_in_small_payloads_is_accepted() {
    let (server, task) = leased_task().await;
    let megabyte = envelope(&format!("{:?}", "x".repeat(1_000_000)));
    let effect = json!({"type": "record_side_effect", "result": megabyte});
    let answer = complete(&server, &task, json!([effect, effect, effect]))
        .accepted(200)
        .await;
    assert_eq!(answer["run_status"], "waiting");
}
