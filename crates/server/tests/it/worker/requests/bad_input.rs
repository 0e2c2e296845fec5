//! Whatever is sent, the answer is a refusal with a reason and nothing has changed: never a crash, never half of it.

use http::Method;
use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, complete, decided, envelope, history, id, report, staffed,
};

/// Values of every kind, some of them extreme.
fn odd_values() -> Vec<String> {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let mut values: Vec<String> = [
        "true",
        "0",
        "-1",
        "1.5",
        "1e308",
        "-1e-308",
        "1e400",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999999999999999999999999999",
        "\"\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\u{1F600}\"",
        "[]",
        "{}",
        "[null]",
        "[[]]",
        "[1,\"a\",{}]",
        "{\"a\":1}",
        "{\"\":{\"\":null}}",
    ]
    .iter()
    .map(|value| (*value).to_owned())
    .collect();
    values.push(format!("\"{}\"", "x".repeat(70_000)));
    values.push(deep(100));
    values.push(deep(200));
    values.push(deep(5_000));
    values
}

/// Each route's path and a valid body, as text per field.
struct Target {
    path: String,
    fields: Vec<(&'static str, String)>,
}

impl Target {
    /// Returns the body with one field in another shape.
    fn with(&self, at: &str, value: &str) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(field, valid)| {
                let value = if *field == at { value } else { valid.as_str() };
                format!("{field:?}:{value}")
            })
            .collect();
        format!("{{{}}}", fields.join(","))
    }
}

fn target(path: &str, fields: &[(&'static str, Value)]) -> Target {
    Target {
        path: path.to_owned(),
        fields: fields
            .iter()
            .map(|(field, value)| (*field, value.to_string()))
            .collect(),
    }
}

/// A run with a leased workflow task and a leased activity task.
async fn scene() -> (Server, Value, Value) {
    let server = staffed().await;
    decided(&server, json!([{"type": "schedule_activity", "activity_type": "say"}, {"type": "open_condition_wait"}])).await;
    let activity = server.worker("w").activity_task().await;
    crate::support::signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    (server, task, activity)
}

/// Returns calls that are valid on the scene's tasks; each test then changes one field.
fn targets(task: &Value, activity: &Value) -> Vec<Target> {
    let lease = [
        ("lease_owner", json!("w")),
        ("workflow_task_attempt", json!(1)),
    ];
    let hold = [
        ("lease_owner", json!("w")),
        (
            "activity_attempt_id",
            activity["activity_attempt_id"].clone(),
        ),
    ];
    let workflow = |verb: &str, more: &[(&'static str, Value)]| {
        target(
            &format!("/workflow-tasks/{}/{verb}", id(task)),
            &[&lease[..], more].concat(),
        )
    };
    let activity = |verb: &str, more: &[(&'static str, Value)]| {
        target(
            &format!("/activity-tasks/{}/{verb}", id(activity)),
            &[&hold[..], more].concat(),
        )
    };
    vec![
        workflow("complete", &[("commands", json!(null))]),
        workflow("fail", &[("failure", json!(null))]),
        workflow(
            "history",
            &[
                ("next_history_page_token", json!(null)),
                ("history_page_size", json!(0)),
            ],
        ),
        activity("fail", &[("failure", json!(null))]),
        activity("complete", &[("result", json!({"codec": "json"}))]),
    ]
}

/// Sends the text, and checks that the response is a client error.
async fn expect_blame(server: &Server, path: &str, body: impl Into<Vec<u8>>, what: &str) {
    let answer = server
        .worker_call(Method::POST, path)
        .raw(body.into())
        .header("content-type", "application/json")
        .send()
        .await;
    assert!(
        answer.status.is_client_error(),
        "{path} {what}: {} {}",
        answer.status,
        answer.body
    );
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(
        !message.is_empty() && message.len() < 2000,
        "{path} {what}: {message}"
    );
}

#[tokio::test]
async fn no_shape_of_any_field_of_a_report_is_a_crash() {
    let (server, task, activity) = scene().await;
    let before = history(&server, &task).await;
    for target in targets(&task, &activity) {
        // Each body is refused for its last field already; every other field is bent as well.
        let bent = target.fields.iter().map(|(field, _)| *field);
        for field in bent.filter(|field| *field != "result") {
            for value in odd_values() {
                let shown: String = value.chars().take(40).collect();
                let body = target.with(field, &value);
                expect_blame(&server, &target.path, body, &format!("{field}: {shown}")).await;
            }
        }
    }
    assert_eq!(history(&server, &task).await, before);
    expect_still_leased(&server, &task, &activity).await;
}

async fn expect_still_leased(server: &Server, task: &Value, activity: &Value) {
    report(server, task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    let status = activity_report(server, activity, "status", json!({}))
        .accepted(200)
        .await;
    assert_eq!(status["can_continue"], true);
}

#[tokio::test]
async fn no_shape_of_any_field_of_a_registration_or_poll_is_a_crash() {
    let server = staffed().await;
    let register = target(
        "/register",
        &[
            ("worker_id", json!("odd")),
            ("task_queue", json!("default")),
            ("runtime", json!("python")),
            ("sdk_version", json!("1")),
            ("build_id", json!("b")),
            ("supported_workflow_types", json!([])),
            ("supported_activity_types", json!([])),
            ("workflow_definition_fingerprints", json!({})),
            ("workflow_command_contracts", json!({})),
            ("capabilities", json!([])),
            ("capability_manifest", json!({})),
            ("max_concurrent_workflow_tasks", json!(1)),
            ("max_concurrent_activity_tasks", json!(1)),
            ("max_concurrent_worker_sessions", json!(1)),
            ("task_slots", json!({})),
            ("process_metrics", json!({})),
            ("heartbeat_interval_seconds", json!(5)),
        ],
    );
    let beat = target(
        "/heartbeat",
        &[
            ("worker_id", json!("w")),
            ("task_slots", json!({})),
            ("process_metrics", json!({})),
            ("heartbeat_interval_seconds", json!(5)),
        ],
    );
    let poll = [
        ("worker_id", json!("w")),
        ("task_queue", json!("default")),
        ("timeout_seconds", json!(0)),
        ("poll_request_id", json!("p")),
        ("build_id", json!(null)),
        ("history_page_size", json!(5)),
        ("accept_history_encoding", json!("gzip")),
        ("task_kinds", json!(["workflow"])),
    ];
    let polls = [
        target("/workflow-tasks/poll", &poll),
        target("/activity-tasks/poll", &poll),
    ];
    for target in [register, beat].iter().chain(&polls) {
        for (field, _) in &target.fields {
            for value in odd_values() {
                if field.ends_with("timeout_seconds")
                    && ["0", "-1", "1e400"].iter().all(|short| *short != value)
                {
                    // A long timeout is taken, and would be waited for.
                    continue;
                }
                let shown: String = value.chars().take(40).collect();
                let answer = server
                    .worker_call(Method::POST, &target.path)
                    .raw(target.with(field, &value))
                    .header("content-type", "application/json")
                    .send()
                    .await;
                assert!(
                    !answer.status.is_server_error(),
                    "{} {field}: {shown}: {}",
                    target.path,
                    answer.body
                );
            }
        }
    }
    // The worker that was there is still the one that was there.
    server.start("wf").await;
    server.worker("w").workflow_task().await;
}

#[tokio::test]
async fn no_shape_of_any_result_detail_or_heartbeat_is_a_crash() {
    for (verb, field) in [
        ("complete", "result"),
        ("heartbeat", "details"),
        ("heartbeat", "progress"),
        ("heartbeat", "current"),
        ("heartbeat", "message"),
    ] {
        let (server, _, activity) = scene().await;
        for value in odd_values() {
            let body = format!(
                r#"{{"lease_owner":"w","activity_attempt_id":{},"{field}":{value}}}"#,
                activity["activity_attempt_id"]
            );
            let answer = server
                .worker_call(
                    Method::POST,
                    &format!("/activity-tasks/{}/{verb}", id(&activity)),
                )
                .raw(body)
                .header("content-type", "application/json")
                .send()
                .await;
            let shown: String = value.chars().take(40).collect();
            assert!(
                !answer.status.is_server_error(),
                "{verb} {field}: {shown}: {}",
                answer.body
            );
        }
    }
}

#[tokio::test]
async fn no_shape_of_any_field_of_a_command_is_a_crash() {
    let (server, task, activity) = scene().await;
    let before = history(&server, &task).await;
    let group = json!([{"parallel_group_id": "parallel-timers:2:1", "parallel_group_kind": "timer", "parallel_group_base_sequence": 3,
        "parallel_group_size": 1, "parallel_group_index": 0}]);
    let commands = [
        json!({"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]"), "queue": "q", "connection": "c",
            "retry_policy": {}, "start_to_close_timeout": 5, "schedule_to_start_timeout": 5, "schedule_to_close_timeout": 9,
            "heartbeat_timeout": 5, "worker_session": null, "cancellation_policy": "try_cancel", "priority": 1}),
        json!({"type": "start_timer", "delay_seconds": 5, "parallel_group_id": "parallel-timers:3:1", "parallel_group_kind": "timer",
            "parallel_group_base_sequence": 3, "parallel_group_size": 1, "parallel_group_index": 0, "parallel_group_path": group}),
        json!({"type": "record_side_effect", "result": envelope("1"), "payload_codec": "avro"}),
        json!({"type": "record_version_marker", "change_id": "c", "version": 1, "min_supported": -1, "max_supported": 1}),
        json!({"type": "upsert_search_attributes", "attributes": {"a": "b"}, "attribute_types": {"a": "keyword"}}),
        json!({"type": "upsert_memo", "entries": envelope(r#"{"k":1}"#)}),
        json!({"type": "open_condition_wait", "condition_key": "k", "condition_definition_fingerprint": "f",
            "condition_wait_occurrence_id": "o", "timeout_seconds": 5}),
        json!({"type": "open_signal_wait", "signal_name": "go", "timeout_seconds": 5}),
        json!({"type": "fail_workflow", "message": "no", "exception_type": "t", "exception_class": "c", "exception": {},
            "non_retryable": true, "failed_step_sequence": 1, "failed_activity_execution_id": "x"}),
        json!({"type": "continue_as_new", "arguments": envelope("[]"), "workflow_type": "t", "queue": "q", "connection": "c"}),
    ];
    let path = format!("/workflow-tasks/{}/complete", id(&task));
    for command in commands {
        for field in command.as_object().expect("a command").keys() {
            for value in odd_values() {
                let bent: Vec<String> = command
                    .as_object()
                    .expect("a command")
                    .iter()
                    .map(|(key, valid)| {
                        if key == field {
                            format!("{key:?}:{value}")
                        } else {
                            format!("{key:?}:{valid}")
                        }
                    })
                    .collect();
                // The second command is wrong by itself, so that a harmless value changes nothing.
                let body = format!(
                    r#"{{"lease_owner":"w","workflow_task_attempt":1,"commands":[{{{}}},{{"type":"explode"}}]}}"#,
                    bent.join(",")
                );
                let shown: String = value.chars().take(40).collect();
                expect_blame(
                    &server,
                    &path,
                    body,
                    &format!("{} {field}: {shown}", command["type"]),
                )
                .await;
            }
        }
    }
    assert_eq!(history(&server, &task).await, before);
    expect_still_leased(&server, &task, &activity).await;
}

#[tokio::test]
async fn bytes_that_are_no_text_are_malformed() {
    let (server, task, activity) = scene().await;
    for target in targets(&task, &activity) {
        for body in [
            &b"{\"lease_owner\":\"\xff\xfe\"}"[..],
            b"\xff",
            b"\x00",
            b"{\"a\":\"\xed\xa0\x80\"}",
        ] {
            let answer = server
                .worker_call(Method::POST, &target.path)
                .raw(body)
                .header("content-type", "application/json")
                .refused(400, "malformed_json")
                .await;
            assert!(answer["message"].is_string());
        }
    }
    expect_still_leased(&server, &task, &activity).await;
}

#[tokio::test]
async fn ids_in_paths_may_be_anything() {
    let server = staffed().await;
    let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "activity_attempt_id": "a"});
    for odd in [
        "%00",
        "..%2F..",
        "%F0%9F%98%80",
        "'%20OR%201=1",
        &"x".repeat(5000),
        "-",
    ] {
        server
            .worker_post(&format!("/workflow-tasks/{odd}/heartbeat"), &body)
            .refused(404, "task_not_found")
            .await;
        server
            .worker_post(&format!("/activity-tasks/{odd}/heartbeat"), &body)
            .refused(404, "task_not_found")
            .await;
    }
}

#[tokio::test]
async fn an_id_that_is_not_utf_8_is_not_found_in_the_envelope() {
    let server = Server::guarded().await;
    let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "activity_attempt_id": "a"});
    for path in [
        "/workflow-tasks/%FF/heartbeat",
        "/activity-tasks/%FF/heartbeat",
    ] {
        server
            .worker_post(path, &body)
            .refused(401, "unauthorized")
            .await;
        let answer = server.worker_post(path, &body).token("w").send().await;
        assert!(answer.status.is_client_error(), "{}", answer.body);
    }
    let path = "/registrations/%FF";
    let answer = server
        .worker_call(Method::DELETE, path)
        .token("w")
        .send()
        .await;
    assert!(answer.status.is_client_error(), "{}", answer.body);
}

#[tokio::test]
async fn a_repeated_field_never_crashes_the_server() {
    let (server, task, _) = scene().await;
    let body = r#"{"lease_owner":"v","lease_owner":"w","workflow_task_attempt":1}"#;
    let answer = server
        .worker_call(
            Method::POST,
            &format!("/workflow-tasks/{}/heartbeat", id(&task)),
        )
        .raw(body)
        .header("content-type", "application/json")
        .send()
        .await;
    assert!(
        answer.status == 200 || answer.status.is_client_error(),
        "{}",
        answer.body
    );
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}
