//! Activity reports: what is recorded, refused and repeated.

use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, decided, envelope, every_type, expect_no_task, history, id, merge,
    payload_of, running_activity, staffed, types,
};

pub(super) fn complete<'a>(
    server: &'a Server,
    task: &Value,
    fields: Value,
) -> crate::support::Call<'a> {
    activity_report(server, task, "complete", fields)
}

pub(super) fn fail<'a>(
    server: &'a Server,
    task: &Value,
    failure: Value,
) -> crate::support::Call<'a> {
    activity_report(server, task, "fail", json!({"failure": failure}))
}

#[tokio::test]
async fn a_result_is_recorded_and_wakes_the_run() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let result = envelope(r#"{"ok":true}"#);
    let answer = complete(&server, &task, json!({"result": result, "failure": null}))
        .send()
        .await;
    assert_eq!(answer.status, 200);
    let woken = server.worker("w").workflow_task().await;
    assert_eq!(
        answer.bare(),
        json!({
            "task_id": task["task_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "outcome": "completed",
            "recorded": true,
            "reason": null,
            "next_task_id": woken["task_id"],
        })
    );
    let events = history(&server, &task).await;
    assert_eq!(
        payload_of(&events, "ActivityCompleted"),
        &json!({
            "activity_execution_id": task["activity_execution_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "activity_type": "say",
            "activity_class": "say",
            "sequence": 1,
            "attempt_number": 1,
            "result": result,
            "payload_codec": "avro",
        })
    );
}

#[tokio::test]
async fn a_result_may_be_an_envelope_plain_json_or_nothing() {
    // An object that is no envelope is data, also with one of its keys.
    for (result, recorded) in [
        (json!({}), envelope("null")),
        (json!({"result": null}), envelope("null")),
        (json!({"result": "text"}), envelope(r#""text""#)),
        (json!({"result": 7}), envelope("7")),
        (json!({"result": 7.5}), envelope("7.5")),
        (json!({"result": false}), envelope("false")),
        (json!({"result": [1, "a"]}), envelope(r#"[1,"a"]"#)),
        (json!({"result": {"items": 3}}), envelope(r#"{"items":3}"#)),
        (json!({"result": envelope("[1]")}), envelope("[1]")),
    ] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        complete(&server, &task, result.clone()).accepted(200).await;
        let events = history(&server, &task).await;
        assert_eq!(
            payload_of(&events, "ActivityCompleted")["result"],
            recorded,
            "{result}"
        );
    }
}

#[tokio::test]
async fn a_result_over_the_payload_limit_fails_the_activity() {
    let server = staffed().await;
    let task = running_activity(&server, json!({"retry_policy": {"max_attempts": 5}})).await;
    let text = "x".repeat(2 * 1024 * 1024);
    let answer = complete(&server, &task, json!({"result": text}))
        .accepted(200)
        .await;
    assert_eq!(
        (&answer["outcome"], &answer["recorded"]),
        (&json!("failed"), &json!(true))
    );
    assert_eq!(answer["reason"], "structural_limit_exceeded");
    let events = history(&server, &task).await;
    let failed = payload_of(&events, "ActivityFailed");
    assert_eq!(failed["failure_category"], "structural_limit");
    assert_eq!(failed["non_retryable"], true);
    assert_eq!(failed["structural_limit_kind"], "payload_size");
    assert_eq!(failed["structural_limit_configured"], 2_097_152);
    assert_eq!(
        answer["next_task_id"],
        server.worker("w").workflow_task().await["task_id"]
    );
}

#[tokio::test]
async fn a_failure_is_recorded_with_its_stable_surface() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    // Non-canonical on purpose: a map whose block is written with a negative count is kept byte for byte.
    let details = envelope(r#"{"why":"funds"}"#);
    let failure = json!({
        "message": "declined",
        "type": "CardDeclined",
        "class": "shop.CardDeclined",
        "code": 402,
        "non_retryable": true,
        "details": details,
        "stack_trace": "at line 1",
        "kind": "application",
        "timeout_type": null,
        "cancelled": false,
        "malformed_output": false,
        "diagnostics": {"file": "shop.py"},
    });
    let answer = fail(&server, &task, failure).send().await;
    assert_eq!(answer.status, 200);
    let woken = server.worker("w").workflow_task().await;
    assert_eq!(
        answer.bare(),
        json!({
            "task_id": task["task_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "outcome": "failed",
            "recorded": true,
            "reason": null,
            "next_task_id": woken["task_id"],
            "retry_scheduled": false,
        })
    );
    let events = history(&server, &task).await;
    let mut failed = payload_of(&events, "ActivityFailed").clone();
    let failure_id = failed
        .as_object_mut()
        .and_then(|failed| failed.remove("failure_id"));
    assert!(failure_id.is_some_and(|id| id.is_string()));
    assert_eq!(
        failed,
        json!({
            "activity_execution_id": task["activity_execution_id"],
            "activity_attempt_id": task["activity_attempt_id"],
            "activity_type": "say",
            "activity_class": "say",
            "sequence": 1,
            "attempt_number": 1,
            "failure_category": "activity",
            "non_retryable": true,
            "exception_type": "CardDeclined",
            "exception_class": "shop.CardDeclined",
            "message": "declined",
            "code": 402,
            "exception": {
                "type": "CardDeclined",
                "message": "declined",
                "code": 402,
                "non_retryable": true,
                "details": details["blob"],
                "details_payload_codec": "avro",
                "diagnostics": {"file": "shop.py"},
            },
        })
    );
}

#[tokio::test]
async fn class_names_and_traces_stay_out_of_the_exception() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    let failure = json!({"message": "no", "class": "shop.Error", "stack_trace": "at line 1", "file": "a.py", "line": 3});
    fail(&server, &task, failure).accepted(200).await;
    let events = history(&server, &task).await;
    let failed = payload_of(&events, "ActivityFailed");
    assert_eq!(
        failed["exception"],
        json!({"message": "no", "non_retryable": false})
    );
    assert_eq!(failed["exception_class"], "shop.Error");
    assert!(!failed.to_string().contains("at line 1"), "{failed}");
}

#[tokio::test]
async fn details_in_another_legal_form_come_back_byte_for_byte() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    // An array of one null, in a block that also contains its number of bytes.
    let odd = crate::support::blob(&[
        0xc3, 0x01, 0xe2, 0xa3, 0x3d, 0xff, 0x55, 0x80, 0x22, 0x37, 0x0c, 0x01, 0x02, 0x00, 0x00,
    ]);
    fail(&server, &task, json!({"message": "no", "details": odd}))
        .accepted(200)
        .await;
    let events = history(&server, &task).await;
    let exception = &payload_of(&events, "ActivityFailed")["exception"];
    assert_eq!(
        (&exception["details"], &exception["details_payload_codec"]),
        (&odd["blob"], &json!("avro"))
    );
}

#[tokio::test]
async fn plain_details_are_kept_with_the_diagnostics() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    fail(
        &server,
        &task,
        json!({"message": "no", "details": {"why": "funds"}}),
    )
    .accepted(200)
    .await;
    let events = history(&server, &task).await;
    let exception = &payload_of(&events, "ActivityFailed")["exception"];
    assert_eq!(exception.get("details_payload_codec"), None);
    assert!(
        exception["diagnostics"].to_string().contains("funds"),
        "{exception}"
    );
}

#[tokio::test]
async fn a_code_is_a_number_or_a_word() {
    for (code, taken) in [
        (json!(-3), true),
        (json!("E42"), true),
        (json!(1.5), false),
        (json!([1]), false),
        (json!(true), false),
    ] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        let call = fail(&server, &task, json!({"message": "no", "code": code}));
        if taken {
            call.accepted(200).await;
            let events = history(&server, &task).await;
            assert_eq!(payload_of(&events, "ActivityFailed")["code"], code);
        } else {
            assert_eq!(call.invalid().await, ["failure.code"]);
        }
    }
}

#[tokio::test]
async fn a_failure_needs_a_message_and_flags_are_flags() {
    let server = staffed().await;
    let task = running_activity(&server, json!({})).await;
    for (failure, field) in [
        (json!(null), "failure"),
        (json!("text"), "failure"),
        (json!({}), "failure.message"),
        (json!({"message": 7}), "failure.message"),
        (json!({"message": "no", "type": 7}), "failure.type"),
        (
            json!({"message": "no", "type": "x".repeat(256)}),
            "failure.type",
        ),
        (json!({"message": "no", "class": []}), "failure.class"),
        (
            json!({"message": "no", "non_retryable": "yes"}),
            "failure.non_retryable",
        ),
        (
            json!({"message": "no", "retryable": 0}),
            "failure.retryable",
        ),
        (
            json!({"message": "no", "details": {"codec": "json", "blob": "x"}}),
            "failure.details.codec",
        ),
        (
            json!({"message": "no", "details": {"codec": "avro", "blob": "%%"}}),
            "failure.details.blob",
        ),
    ] {
        assert_eq!(
            fail(&server, &task, failure.clone()).invalid().await,
            [field],
            "{failure}"
        );
    }
    assert_eq!(
        types(&history(&server, &task).await).last(),
        Some(&"ActivityStarted")
    );
    complete(&server, &task, json!({})).accepted(200).await;
}

#[tokio::test]
async fn reports_are_checked_in_a_fixed_order() {
    let server = staffed().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    decided(&server, json!([{"type": "schedule_activity", "activity_type": "say"}, {"type": "schedule_activity", "activity_type": "say"}])).await;
    let task = server.worker("w").activity_task().await;
    let sibling = server.worker("w").activity_task().await;
    let before = history(&server, &task).await;
    for (verb, fields) in [
        ("complete", json!({})),
        ("fail", json!({"failure": {"message": "no"}})),
    ] {
        let with = |wrong: Value| {
            let mut body = fields.clone();
            merge(&mut body, wrong);
            body
        };
        let mut unknown = task.clone();
        unknown["task_id"] = json!("01aaaaaaaaaaaaaaaaaaaaaaaa");
        let stranger = json!({"lease_owner": "v"});
        let refusal = activity_report(&server, &unknown, verb, with(stranger.clone()))
            .refused(404, "task_not_found")
            .await;
        expect_ignored(&refusal, id(&unknown));
        activity_report(&server, &task, verb, with(json!({})))
            .namespace("other")
            .refused(404, "task_not_found")
            .await;
        let nobodys =
            json!({"activity_attempt_id": "01aaaaaaaaaaaaaaaaaaaaaaaa", "lease_owner": "v"});
        let refusal = activity_report(&server, &task, verb, with(nobodys))
            .refused(404, "attempt_not_found")
            .await;
        expect_ignored(&refusal, id(&task));
        let siblings =
            json!({"activity_attempt_id": sibling["activity_attempt_id"], "lease_owner": "v"});
        let refusal = activity_report(&server, &task, verb, with(siblings))
            .refused(409, "task_mismatch")
            .await;
        expect_ignored(&refusal, id(&task));
        let refusal = activity_report(&server, &task, verb, with(stranger))
            .refused(409, "lease_owner_mismatch")
            .await;
        expect_ignored(&refusal, id(&task));
        assert_eq!(refusal["lease_owner"], "w");
        for missing in ["activity_attempt_id", "lease_owner"] {
            let wrong = activity_report(&server, &task, verb, with(json!({missing: null})))
                .invalid()
                .await;
            assert_eq!(wrong, [missing]);
        }
    }
    assert_eq!(history(&server, &task).await, before);
    complete(&server, &task, json!({})).accepted(200).await;
}

fn expect_ignored(refusal: &Value, task_id: &str) {
    assert_eq!(refusal["task_id"], task_id);
    assert!(refusal["activity_attempt_id"].is_string());
    assert_eq!(
        (&refusal["outcome"], &refusal["recorded"]),
        (&json!("ignored"), &json!(false))
    );
}

#[tokio::test]
async fn a_repeated_report_is_answered_as_before_and_another_is_refused() {
    for (verb, fields, other, other_fields) in [
        (
            "complete",
            json!({"result": 1}),
            "fail",
            json!({"failure": {"message": "no"}}),
        ),
        (
            "fail",
            json!({"failure": {"message": "no"}}),
            "complete",
            json!({"result": 1}),
        ),
    ] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        let first = activity_report(&server, &task, verb, fields.clone())
            .send()
            .await;
        let before = history(&server, &task).await;
        let mut expected = first.bare();
        expected["duplicate"] = json!(true);
        let again = activity_report(&server, &task, verb, fields.clone())
            .send()
            .await;
        assert_eq!((again.status.as_u16(), again.bare()), (200, expected));
        let refusal = activity_report(&server, &task, other, other_fields)
            .refused(409, "attempt_closed")
            .await;
        expect_ignored(&refusal, id(&task));
        let mut stranger = fields;
        stranger["lease_owner"] = json!("v");
        activity_report(&server, &task, verb, stranger)
            .refused(409, "attempt_closed")
            .await;
        assert_eq!(history(&server, &task).await, before);
    }
}

#[tokio::test]
async fn a_repeated_report_is_known_also_after_a_retry_and_after_the_run_closed() {
    let server = staffed().await;
    let task = running_activity(&server, json!({"retry_policy": {"max_attempts": 2}})).await;
    let failure = json!({"message": "no"});
    fail(&server, &task, failure.clone()).accepted(200).await;
    let next = server.worker("w").activity_task().await;
    assert_eq!(
        fail(&server, &task, failure.clone()).accepted(200).await["duplicate"],
        true
    );
    complete(&server, &task, json!({}))
        .refused(409, "attempt_closed")
        .await;
    complete(&server, &next, json!({})).accepted(200).await;
    let woken = server.worker("w").workflow_task().await;
    crate::support::complete(&server, &woken, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    assert_eq!(
        complete(&server, &next, json!({})).accepted(200).await["duplicate"],
        true
    );
}

#[tokio::test]
async fn an_expired_lease_is_offered_again_and_the_late_report_still_counts_until_then() {
    for verb in ["complete", "fail"] {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        server.advance(301).await;
        let before = history(&server, &task).await;
        assert_eq!(
            types(&before).last(),
            Some(&"ActivityStarted"),
            "expiry is not history"
        );
        let answer = activity_report(&server, &task, verb, json!({"failure": {"message": "no"}}))
            .accepted(200)
            .await;
        assert_eq!(answer["recorded"], true);
        expect_no_task(&server, "activity").await;
    }
}

#[tokio::test]
async fn after_a_new_claim_the_old_attempt_is_stale() {
    let server = staffed().await;
    server.register("v", every_type()).await;
    let task = running_activity(&server, json!({})).await;
    server.advance(300).await;
    let again = server.worker("v").activity_task().await;
    assert_eq!(
        (&again["task_id"], &again["attempt_number"]),
        (&task["task_id"], &json!(2))
    );
    assert_eq!(
        again["activity_execution_id"],
        task["activity_execution_id"]
    );
    assert_ne!(again["activity_attempt_id"], task["activity_attempt_id"]);
    for (verb, fields) in [
        ("complete", json!({})),
        ("fail", json!({"failure": {"message": "no"}})),
    ] {
        let refusal = activity_report(&server, &task, verb, fields)
            .refused(409, "stale_attempt")
            .await;
        expect_ignored(&refusal, id(&task));
    }
    let beat = activity_report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        (
            &beat["can_continue"],
            &beat["cancel_requested"],
            &beat["reason"]
        ),
        (&json!(false), &json!(false), &json!("stale_attempt"))
    );
    complete(&server, &again, json!({})).accepted(200).await;
    complete(&server, &task, json!({}))
        .refused(409, "stale_attempt")
        .await;
    let events = history(&server, &task).await;
    let started = types(&events)
        .iter()
        .filter(|kind| **kind == "ActivityStarted")
        .count();
    assert_eq!(started, 2);
    payload_of(&events, "ActivityCompleted");
}
