//! What an operator of Durable Workflow sees of definition runs: lists, the debug view, metrics, and refused commands.

use serde_json::{Value, json};

use crate::conductor::support::{ask, poll, start_hello, tell, update_of, with_hello};
use crate::support::Server;

async fn debug(server: &Server, id: &str) -> Value {
    let path = format!("/workflows/{id}/debug");
    server.get(&path).accepted(200).await
}

/// Returns the status, the codes of the findings and what the first open task waits for.
fn verdict(view: &Value) -> (&str, Vec<&str>, &str) {
    let findings = view["findings"].as_array().expect("a list");
    let codes = findings.iter().map(|finding| finding["code"].as_str());
    (
        view["diagnostic_status"].as_str().expect("a status"),
        codes.map(|code| code.expect("a code")).collect(),
        view["pending_tasks"][0]["waits_for"]
            .as_str()
            .unwrap_or_default(),
    )
}

async fn define(server: &Server, name: &str, fields: Value) {
    let mut definition = json!({"name": name, "retryCount": 1, "retryDelaySeconds": 60});
    crate::support::merge(&mut definition, fields);
    tell(server, "POST", "/metadata/taskdefs", &json!([definition]))
        .await
        .void();
}

#[tokio::test]
async fn the_debug_view_shows_why_a_definition_run_waits() {
    let server = Server::open().await;
    define(&server, "greet", json!({"responseTimeoutSeconds": 30})).await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;

    let view = debug(&server, &id).await;
    let waits = "task greet_ref: a worker must poll greet";
    assert_eq!(
        verdict(&view),
        ("needs_attention", vec!["no_active_pollers"], waits)
    );
    let message = "No worker polled greet in the last minute; 1 task(s) wait for one.";
    assert_eq!(view["findings"][0]["message"], message);
    assert_eq!(view["execution"]["program"], "definition");
    assert_eq!(view["execution"]["wait_reason"], waits);
    assert_eq!(view["task_queue"], Value::Null);

    let task = poll(&server, "greet").await;
    let view = debug(&server, &id).await;
    assert_eq!(
        verdict(&view),
        ("running", vec![], "task greet_ref at worker w")
    );
    let next = &view["execution"]["next_scheduled_event"];
    assert_eq!(
        (&next["kind"], &next["id"]),
        (&json!("task_response_timeout"), &task["taskId"])
    );

    let mut failed = update_of(&task, "FAILED", json!({}));
    failed["reasonForIncompletion"] = json!("no ink");
    tell(&server, "POST", "/tasks", &failed).await.text();
    let view = debug(&server, &id).await;
    let (status, codes, waits) = verdict(&view);
    assert_eq!((status, codes), ("needs_attention", vec!["task_problem"]));
    assert!(
        waits.starts_with("task greet_ref until it is queued at "),
        "{waits}"
    );
    let message = "Task greet_ref failed 1 time(s) in a row: no ink";
    assert_eq!(view["findings"][0]["message"], message);
    assert_eq!(view["recent_failures"][0]["message"], "no ink");
    assert_eq!(view["recent_failures"][0]["source_id"], task["taskId"]);
    assert_eq!(
        view["execution"]["next_scheduled_event"]["kind"],
        "task_visible"
    );

    ask(&server, "PUT", &format!("/workflow/{id}/pause"))
        .await
        .void();
    let view = debug(&server, &id).await;
    assert_eq!(verdict(&view).1, ["paused", "task_problem"]);

    ask(&server, "DELETE", &format!("/workflow/{id}"))
        .await
        .void();
    let view = debug(&server, &id).await;
    assert_eq!(verdict(&view), ("terminal", vec![], ""));
    assert_eq!(view["execution"]["next_scheduled_event"], Value::Null);
}

/// A paused run whose last task ended has no open task, and is not stuck: the pass is made when it is resumed.
#[tokio::test]
async fn a_paused_run_without_open_tasks_is_not_stuck() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let task = poll(&server, "greet").await;
    ask(&server, "PUT", &format!("/workflow/{id}/pause"))
        .await
        .void();
    let update = update_of(&task, "COMPLETED", json!({}));
    tell(&server, "POST", "/tasks", &update).await.text();
    let view = debug(&server, &id).await;
    assert_eq!(verdict(&view), ("needs_attention", vec!["paused"], ""));
    ask(&server, "PUT", &format!("/workflow/{id}/resume"))
        .await
        .void();
    assert_eq!(verdict(&debug(&server, &id).await).0, "terminal");
}

#[tokio::test]
async fn a_list_shows_one_program_or_both() {
    let server = Server::open().await;
    let code = server.start("w").await;
    server.clock.advance_seconds(1);
    with_hello(&server).await;
    let definition = start_hello(&server, json!({})).await;
    for (parameter, expected) in [
        ("", vec![(code.as_str(), None)]),
        ("?program=code", vec![(&code, None)]),
        (
            "?program=definition",
            vec![(&definition, Some("definition"))],
        ),
        (
            "?program=all",
            vec![(&definition, Some("definition")), (&code, None)],
        ),
    ] {
        let list = server.get(&format!("/workflows{parameter}"));
        let list = list.accepted(200).await;
        let rows = list["workflows"].as_array().expect("a list");
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row["run_id"].as_str(), row["program"].as_str()))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(id, program)| (Some(*id), *program))
            .collect();
        assert_eq!(rows, expected, "{parameter}");
    }
    server
        .get("/workflows?program=both")
        .refused(422, "validation_failed")
        .await;
}

#[tokio::test]
async fn commands_of_code_are_refused_on_a_definition_run() {
    let server = Server::open().await;
    with_hello(&server).await;
    let id = start_hello(&server, json!({})).await;
    let path = format!("/workflow/{id}");
    let before = ask(&server, "GET", &path).await.json();
    for command in ["signal/s", "query/q", "update/u"] {
        server
            .post(&format!("/workflows/{id}/{command}"), &json!({}))
            .refused(409, "other_program")
            .await;
    }
    assert_eq!(ask(&server, "GET", &path).await.json(), before);
}
