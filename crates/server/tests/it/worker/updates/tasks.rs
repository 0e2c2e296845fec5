//! Updates on the wire: one task per update that settles it and nothing else, and every way to get that wrong.

use serde_json::{Value, json};

use crate::support::{
    Server, complete, decided, envelope, every_type, expect_no_task, history, payload_of, staffed,
    stop, types,
};

/// Workflow `wf` waits for a condition and has one accepted update, whose task is leased.
async fn with_update(server: &Server) -> (Value, Value) {
    decided(server, json!([{"type": "open_condition_wait"}])).await;
    let accepted = send(server, json!({"input": [1], "request_id": "r"})).await;
    (accepted, server.worker("w").workflow_task().await)
}

async fn send(server: &Server, body: Value) -> Value {
    server
        .post("/workflows/wf/update/set", &body)
        .accepted(202)
        .await
}

/// Repeats the update of [`with_update`] and returns the response.
async fn outcome(server: &Server, status: u16) -> Value {
    let body = json!({"input": [1], "request_id": "r", "wait_for": "completed"});
    server
        .post("/workflows/wf/update/set", &body)
        .accepted(status)
        .await
}

#[tokio::test]
async fn an_update_task_names_its_update_and_closes_it() {
    let server = staffed().await;
    let (accepted, task) = with_update(&server).await;
    assert_eq!(accepted["update_status"], "accepted");
    assert_eq!(accepted["update_name"], "set");
    assert_eq!(accepted["wait_for"], "accepted");
    assert_eq!(accepted.get("result"), None);
    assert_eq!(task["workflow_update_id"], accepted["update_id"]);
    assert_eq!(task["workflow_wait_kind"], "update");
    let settle = json!([{"type": "complete_update", "update_id": accepted["update_id"], "result": envelope("7")}]);
    complete(&server, &task, settle.clone()).accepted(200).await;
    // The same report again is the same answer.
    complete(&server, &task, settle).accepted(200).await;
    let ended = outcome(&server, 200).await;
    assert_eq!(ended["update_id"], accepted["update_id"]);
    assert_eq!(ended["retained"], true);
    assert_eq!(ended["result"], json!(7));
    assert_eq!(ended["result_envelope"], envelope("7"));
    let events = history(&server, &task).await;
    assert_eq!(
        types(&events)[3..],
        ["UpdateAccepted", "UpdateApplied", "UpdateCompleted"]
    );
    // The condition is looked at again, by a task that is not the update's.
    let next = server.worker("w").workflow_task().await;
    assert_eq!(next["workflow_wait_kind"], "condition");
    assert_eq!(next["workflow_update_id"], Value::Null);
}

#[tokio::test]
async fn a_failed_update_is_unprocessable_and_the_run_goes_on() {
    let server = staffed().await;
    let (accepted, task) = with_update(&server).await;
    let failure = json!([{"type": "fail_update", "update_id": accepted["update_id"], "message": "too many",
        "exception_type": "ValueError", "exception_class": "builtins.ValueError", "non_retryable": true}]);
    complete(&server, &task, failure).accepted(200).await;
    let failed = outcome(&server, 422).await;
    assert_eq!(failed["outcome"], "update_failed");
    assert_eq!(failed["update_status"], "failed");
    assert_eq!(failed["message"], "too many");
    let events = history(&server, &task).await;
    assert!(!types(&events).contains(&"UpdateApplied"));
    let completed = payload_of(&events, "UpdateCompleted");
    for (field, value) in [
        ("exception_type", json!("ValueError")),
        ("exception_class", json!("builtins.ValueError")),
        ("non_retryable", json!(true)),
    ] {
        assert_eq!(completed[field], value, "{field}");
    }
    assert_eq!(
        server.get("/workflows/wf").accepted(200).await["status"],
        "waiting"
    );
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_result_is_optional() {
    let server = staffed().await;
    let (accepted, task) = with_update(&server).await;
    let settle = json!([{"type": "complete_update", "update_id": accepted["update_id"]}]);
    complete(&server, &task, settle).accepted(200).await;
    let ended = outcome(&server, 200).await;
    assert_eq!(ended["result"], Value::Null);
    assert_eq!(ended["result_envelope"], envelope("null"));
}

#[tokio::test]
async fn an_update_task_accepts_no_other_command() {
    let server = staffed().await;
    let (accepted, task) = with_update(&server).await;
    let settle = json!({"type": "complete_update", "update_id": accepted["update_id"]});
    for (commands, field) in [
        (
            json!([settle, {"type": "start_timer", "delay_seconds": 1}]),
            "commands.1.type",
        ),
        (
            json!([settle, {"type": "complete_workflow"}]),
            "commands.1.type",
        ),
        (json!([settle, settle]), "commands.1.update_id"),
        (
            json!([{"type": "complete_update", "update_id": "01K0000000000000000000000"}]),
            "commands.0.update_id",
        ),
        (json!([{"type": "complete_update"}]), "commands.0.update_id"),
        (
            json!([{"type": "fail_update", "update_id": accepted["update_id"]}]),
            "commands.0.message",
        ),
    ] {
        let answer = complete(&server, &task, commands.clone()).send().await;
        assert_eq!(answer.status, 422, "{commands}: {}", answer.body);
        let errors = answer.body["errors"].as_object().expect("errors by field");
        assert!(errors.contains_key(field), "{commands}: {errors:?}");
    }
    assert_eq!(history(&server, &task).await.len(), 4);
    complete(&server, &task, json!([settle]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn an_update_is_closed_once_and_by_its_holder() {
    let server = staffed().await;
    server.register("v", every_type()).await;
    let (accepted, task) = with_update(&server).await;
    let settle = json!([{"type": "complete_update", "update_id": accepted["update_id"]}]);
    let mut other = task.clone();
    other["lease_owner"] = json!("v");
    complete(&server, &other, settle.clone())
        .refused(409, "lease_owner_mismatch")
        .await;
    let mut late = task.clone();
    late["workflow_task_attempt"] = json!(2);
    complete(&server, &late, settle.clone())
        .refused(409, "workflow_task_attempt_mismatch")
        .await;
    complete(&server, &task, settle.clone()).accepted(200).await;
    // The condition's task may not settle it a second time.
    let next = server.worker("w").workflow_task().await;
    complete(&server, &next, settle)
        .refused(422, "invalid_commands")
        .await;
    assert_eq!(
        types(&history(&server, &task).await)
            .iter()
            .filter(|event| **event == "UpdateCompleted")
            .count(),
        1
    );
}

#[tokio::test]
async fn an_oversized_result_fails_its_update_only() {
    let server = staffed().await;
    let (accepted, task) = with_update(&server).await;
    let large = envelope(&json!("x".repeat(3 << 20)).to_string());
    let settle =
        json!([{"type": "complete_update", "update_id": accepted["update_id"], "result": large}]);
    complete(&server, &task, settle).accepted(200).await;
    let failed = outcome(&server, 422).await;
    assert_eq!(failed["update_status"], "failed");
    let events = history(&server, &task).await;
    assert_eq!(
        payload_of(&events, "UpdateCompleted")["failure_category"],
        "structural_limit"
    );
    assert_eq!(
        server.get("/workflows/wf").accepted(200).await["status"],
        "waiting"
    );
}

#[tokio::test]
async fn pending_updates_are_limited() {
    let server = Server::configured(|config| {
        config.limits.pending_updates = 2;
    })
    .await;
    server.register("w", every_type()).await;
    decided(&server, json!([{"type": "open_condition_wait"}])).await;
    for _ in 0..2 {
        send(&server, json!({})).await;
    }
    let refusal = server
        .post("/workflows/wf/update/set", &json!({}))
        .refused(422, "structural_limit_exceeded")
        .await;
    assert_eq!(refusal["limit_kind"], "pending_update_count");
    // Settling one makes room.
    let task = server.worker("w").workflow_task().await;
    let settle = json!([{"type": "complete_update", "update_id": task["workflow_update_id"]}]);
    complete(&server, &task, settle).accepted(200).await;
    send(&server, json!({})).await;
}

#[tokio::test]
async fn an_update_of_a_closed_or_unknown_run_is_refused() {
    let server = staffed().await;
    server
        .post("/workflows/unknown/update/set", &json!({}))
        .refused(404, "instance_not_found")
        .await;
    let (_, task) = with_update(&server).await;
    stop(&server, "terminate").await;
    complete(
        &server,
        &task,
        json!([{"type": "complete_update", "update_id": task["workflow_update_id"]}]),
    )
    .refused(409, "run_closed")
    .await;
    let failed = outcome(&server, 422).await;
    assert_eq!(failed["update_status"], "failed");
    server
        .post("/workflows/wf/update/set", &json!({}))
        .refused(409, "run_not_active")
        .await;
    let events = history(&server, &task).await;
    assert_eq!(
        types(&events)[types(&events).len() - 2..],
        ["WorkflowTerminated", "UpdateCompleted"]
    );
}

#[tokio::test]
async fn a_request_id_means_one_update() {
    let server = staffed().await;
    let (accepted, _) = with_update(&server).await;
    let again = send(&server, json!({"input": [1], "request_id": "r"})).await;
    assert_eq!(again["update_id"], accepted["update_id"]);
    assert_eq!(
        (&accepted["retained"], &again["retained"]),
        (&json!(false), &json!(true))
    );
    for (path, body) in [
        (
            "/workflows/wf/update/set",
            json!({"input": [2], "request_id": "r"}),
        ),
        (
            "/workflows/wf/update/other",
            json!({"input": [1], "request_id": "r"}),
        ),
        (
            "/workflows/wf/signal/set",
            json!({"input": [1], "request_id": "r"}),
        ),
    ] {
        server
            .post(path, &body)
            .refused(409, "request_id_conflict")
            .await;
    }
}

#[tokio::test]
async fn malformed_updates_are_refused_field_by_field() {
    let server = staffed().await;
    server.start("wf").await;
    for (body, field) in [
        (json!({"wait_for": "someday"}), "wait_for"),
        (json!({"wait_for": 1}), "wait_for"),
        (json!({"wait_policy": "completed"}), "wait_policy"),
        (json!({"wait_timeout_seconds": 0}), "wait_timeout_seconds"),
        (json!({"input": {"codec": "avro"}}), "input"),
        (json!({"request_id": ""}), "request_id"),
    ] {
        let fields = server
            .post("/workflows/wf/update/set", &body)
            .invalid()
            .await;
        assert!(
            fields.iter().any(|name| name.starts_with(field)),
            "{body}: {fields:?}"
        );
    }
}
