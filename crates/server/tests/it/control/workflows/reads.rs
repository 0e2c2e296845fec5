//! List, describe and runs.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Server, envelope, texts};

async fn list(server: &Server, query: &str) -> Value {
    server
        .get(&format!("/workflows{query}"))
        .accepted(200)
        .await
}

fn ids(page: &Value) -> Vec<&str> {
    texts(&page["workflows"], "workflow_id")
}

#[tokio::test]
async fn a_row_of_the_list_has_every_field() {
    let server = Server::open().await;
    let body = json!({"workflow_id": "w", "workflow_type": "greet", "business_key": "k", "search_attributes": {"a": 1}});
    let run_id = server.start_with(body).await;
    let page = list(&server, "").await;
    let expected = json!({
        "workflow_id": "w",
        "run_id": run_id,
        "workflow_type": "greet",
        "business_key": "k",
        "status": "pending",
        "status_bucket": "running",
        "is_terminal": false,
        "task_queue": "default",
        "started_at": "2026-01-01T00:00:00.000000Z",
        "closed_at": null,
        "compatibility": null,
        "compatibility_status": "compatible",
        "compatibility_supported_in_fleet": true,
        "compatibility_fleet_reason": null,
        "search_attributes": {"a": 1},
    });
    assert_eq!(page["workflows"], json!([expected]));
    assert_eq!(
        (&page["workflow_count"], &page["next_page_token"]),
        (&json!(1), &json!(null))
    );
    assert_eq!(page["control_plane"]["operation"], "list");
    assert_eq!(page["control_plane"]["workflow_count"], 1);
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat_also_among_equal_times() {
    let server = Server::open().await;
    let mut started = Vec::new();
    for index in 0..25 {
        // Several runs share each start time, so the run id must break the tie.
        if index % 7 == 0 {
            server.clock.advance_seconds(1);
        }
        started.push(server.start(&format!("w{index}")).await);
    }
    let mut expected: Vec<(String, String)> = Vec::new();
    let whole = list(&server, "").await;
    for row in whole["workflows"].as_array().unwrap() {
        expected.push((
            row["started_at"].as_str().unwrap().to_owned(),
            row["run_id"].as_str().unwrap().to_owned(),
        ));
    }
    let mut sorted = expected.clone();
    sorted.sort_by(|left, right| right.cmp(left));
    assert_eq!(expected, sorted, "newest first, then run id descending");
    assert_eq!(expected.len(), started.len());
    let (mut seen, mut query, mut tokens) = (Vec::new(), "?page_size=4".to_owned(), Vec::new());
    loop {
        let page = list(&server, &query).await;
        seen.extend(
            page["workflows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["run_id"].as_str().unwrap().to_owned()),
        );
        let Some(token) = page["next_page_token"].as_str() else {
            break;
        };
        assert!(
            !tokens.contains(&token.to_owned()),
            "a token never comes twice"
        );
        tokens.push(token.to_owned());
        let name = if tokens.len() % 2 == 0 {
            "page_token"
        } else {
            "next_page_token"
        };
        query = format!("?page_size=4&{name}={token}");
        // A run that starts between two pages is not on them.
        server.advance(1).await;
        server.start(&format!("late{}", tokens.len())).await;
    }
    assert_eq!(
        seen,
        expected
            .into_iter()
            .map(|(_, run_id)| run_id)
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_page_that_is_exactly_full_is_the_last() {
    let server = Server::open().await;
    server.start("a").await;
    server.start("b").await;
    assert_eq!(
        list(&server, "?page_size=2").await["next_page_token"],
        Value::Null
    );
}

#[tokio::test]
async fn the_list_is_filtered_by_type_and_by_bucket_or_status() {
    let server = Server::open().await;
    for id in ["open", "done", "broken", "cancelled", "terminated"] {
        server.start(id).await;
        server.clock.advance_seconds(1);
    }
    server
        .start_with(json!({"workflow_id": "other", "workflow_type": "other"}))
        .await;
    server
        .post("/workflows/cancelled/cancel", &json!({}))
        .accepted(200)
        .await;
    server
        .post("/workflows/terminated/terminate", &json!({}))
        .accepted(200)
        .await;
    server.register("w", json!({})).await;
    for _ in 0..3 {
        let task = server.worker("w").workflow_task().await;
        let command = match task["workflow_id"].as_str().unwrap() {
            "done" => json!({"type": "complete_workflow"}),
            "broken" => json!({"type": "fail_workflow", "message": "no"}),
            _ => continue,
        };
        let path = format!(
            "/workflow-tasks/{}/complete",
            task["task_id"].as_str().unwrap()
        );
        let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "commands": [command]});
        server.worker_post(&path, &body).accepted(200).await;
    }
    for (query, expected) in [
        ("?status=running", vec!["other", "open"]),
        ("?status=completed", vec!["done"]),
        ("?status=failed", vec!["terminated", "cancelled", "broken"]),
        ("?status=cancelled", vec!["cancelled"]),
        ("?status=terminated", vec!["terminated"]),
        ("?workflow_type=other", vec!["other"]),
        ("?workflow_type=greet&status=running", vec!["open"]),
        ("?workflow_type=none", vec![]),
        (
            "?status=",
            vec!["other", "terminated", "cancelled", "broken", "done", "open"],
        ),
    ] {
        assert_eq!(ids(&list(&server, query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn a_list_refuses_invalid_parameters() {
    let server = Server::open().await;
    for (query, field) in [
        ("?status=pending", "status"),
        ("?page_size=0", "page_size"),
        ("?page_size=201", "page_size"),
        ("?page_size=x", "page_size"),
        ("?next_page_token=x", "next_page_token"),
        ("?page_token=MTI%3D", "next_page_token"),
        ("?query=Status%3D%22nonsense%22", "query"),
    ] {
        assert_eq!(
            server.get(&format!("/workflows{query}")).invalid().await,
            [field],
            "{query}"
        );
    }
    assert_eq!(
        server
            .get("/workflows?page_size=0&status=x")
            .invalid()
            .await,
        ["page_size", "status"]
    );
}

#[tokio::test]
async fn a_described_run_has_every_field() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let by_workflow = server.get("/workflows/w").accepted(200).await;
    let by_run = server
        .get(&format!("/workflows/w/runs/{run_id}"))
        .accepted(200)
        .await;
    assert_eq!(by_workflow["control_plane"]["operation"], "describe");
    assert_eq!(by_run["control_plane"]["operation"], "describe_run");
    assert_eq!(by_run["control_plane"]["run_id"], run_id);
    let command = &by_run["commands"][0];
    let expected_command = json!({
        "id": command["id"],
        "sequence": 1,
        "type": "start",
        "target_scope": "instance",
        "requested_run_id": null,
        "resolved_run_id": run_id,
        "target_name": null,
        "source": "control_plane",
        "context": command["context"],
        "principal": {"type": "server", "id": "anonymous"},
        "request_id": null,
        "correlation_id": null,
        "status": "accepted",
        "outcome": "started_new",
        "reason": null,
        "rejection_reason": null,
        "validation_errors": {},
        "update_id": null,
        "update_status": null,
        "failure_id": null,
        "failure_message": null,
        "accepted_at": "2026-01-01T00:00:00.000000Z",
        "applied_at": "2026-01-01T00:00:00.000000Z",
        "rejected_at": null,
        "completed_at": "2026-01-01T00:00:00.000000Z",
    });
    let expected = json!({
        "workflow_id": "w",
        "run_id": run_id,
        "namespace": "default",
        "workflow_type": "greet",
        "business_key": null,
        "status": "pending",
        "status_bucket": "running",
        "is_terminal": false,
        "closed_reason": null,
        "reason": null,
        "task_queue": "default",
        "run_number": 1,
        "run_count": 1,
        "is_current_run": true,
        "compatibility": null,
        "compatibility_status": "compatible",
        "compatibility_supported_in_fleet": true,
        "compatibility_fleet_reason": null,
        "payload_codec": "avro",
        "execution_timeout_seconds": null,
        "run_timeout_seconds": null,
        "execution_deadline_at": null,
        "run_deadline_at": null,
        "input": [],
        "input_envelope": envelope("[]"),
        "output": null,
        "output_envelope": null,
        "started_at": "2026-01-01T00:00:00.000000Z",
        "closed_at": null,
        "last_progress_at": "2026-01-01T00:00:00.000000Z",
        "last_history_sequence": 2,
        "wait_kind": "workflow-task",
        "wait_reason": by_run["wait_reason"],
        "memo": {},
        "search_attributes": {},
        "actions": {
            "can_signal": true,
            "can_query": true,
            "can_update": true,
            "can_cancel": true,
            "can_terminate": true,
            "can_repair": true,
            "can_archive": false,
        },
        "commands_scope": "selected_run",
        "command_count": 1,
        "commands": [expected_command],
        "commands_next_page_token": null,
        "updates_scope": "selected_run",
        "updates": [],
    });
    for mut body in [by_workflow, by_run] {
        body.as_object_mut().unwrap().remove("control_plane");
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn a_completed_run_shows_its_output_both_ways() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    for (id, result, output) in [
        (
            "some",
            json!({"result": envelope(r#"{"ok":true,"n":1.0}"#)}),
            r#"{"ok":true,"n":1.0}"#,
        ),
        ("none", json!({}), "null"),
    ] {
        server.start(id).await;
        let mut command = json!({"type": "complete_workflow"});
        crate::support::merge(&mut command, result);
        server.clock.advance_seconds(1);
        server.worker("w").decide(json!([command])).await;
        let body = server.get(&format!("/workflows/{id}")).accepted(200).await;
        assert_eq!(
            (&body["status"], &body["closed_reason"]),
            (&json!("completed"), &json!("completed"))
        );
        assert_eq!(body["is_terminal"], true);
        assert_eq!(
            body["output"],
            serde_json::from_str::<Value>(output).unwrap()
        );
        assert_eq!(body["output_envelope"], envelope(output));
        assert_eq!(
            (&body["wait_kind"], &body["wait_reason"]),
            (&Value::Null, &Value::Null)
        );
        assert!(body["closed_at"].is_string());
        assert_eq!(body.get("failure"), None);
        assert_eq!(body["actions"]["can_signal"], false);
        assert_eq!(body["actions"]["can_cancel"], false);
    }
}

#[tokio::test]
async fn a_damaged_payload_is_diagnosed_and_the_rest_is_shown() {
    let server = Server::open().await;
    let damaged = json!({"codec": "avro", "blob": "AAAA"});
    let start = longhaul_host::api::Start {
        namespace: "default".into(),
        workflow_id: "w".into(),
        workflow_type: "greet".to_owned(),
        task_queue: "default".into(),
        // Trusted, as what comes back from the store is.
        arguments: serde_json::from_value(damaged.clone()).unwrap(),
        business_key: None,
        memo: None,
        search_attributes: serde_json::Map::new(),
        run_timeout_seconds: None,
        execution_timeout_seconds: None,
        routing: longhaul_host::api::Routing::default(),
        duplicate_policy: longhaul_host::api::DuplicatePolicy::Fail,
        declared: serde_json::Map::new(),
        principal: None,
        context: None,
    };
    server.host.workflows().start(start).await.unwrap();
    let body = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        (&body["input"], &body["input_envelope"]),
        (&Value::Null, &damaged)
    );
    assert_eq!(
        body["payload_diagnostics"],
        json!([{"field": "input", "reason": "invalid_payload_framing"}])
    );
    assert_eq!(body["status"], "pending");
}

#[tokio::test]
async fn a_failed_run_shows_its_failure() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    let run_id = server.start("w").await;
    let command = json!({
        "type": "fail_workflow",
        "message": "card declined",
        "exception_type": "Declined",
        "exception_class": "app.Declined",
        "non_retryable": true,
    });
    server.worker("w").decide(json!([command])).await;
    let body = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        (
            &body["status"],
            &body["status_bucket"],
            &body["closed_reason"]
        ),
        (&json!("failed"), &json!("failed"), &json!("failed"))
    );
    assert_eq!(body["error"], "card declined");
    let failure = &body["failure"];
    assert_eq!(failure["message"], "card declined");
    assert_eq!(
        (&failure["exception_type"], &failure["exception_class"]),
        (&json!("Declined"), &json!("app.Declined"))
    );
    assert_eq!(failure["non_retryable"], true);
    assert_eq!(
        (&failure["source_kind"], &failure["source_id"]),
        (&json!("workflow_run"), &json!(run_id))
    );
    assert!(failure["event_sequence"].is_u64() && failure["failure_category"].is_string());
    assert_eq!(failure["exception"]["type"], "Declined");
    assert_eq!(failure["exception"]["class"], "app.Declined");
    assert_eq!(failure["exception"]["message"], "card declined");
    assert_eq!(body["exception"], failure["exception"]);
    assert!(
        failure["activity_failures"].is_array()
            && failure["failures"].is_array()
            && body["failures"].is_array()
    );
    assert_eq!(
        (&body["output"], &body["output_envelope"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn a_stopped_run_shows_the_reason_for_the_stop() {
    let server = Server::open().await;
    server.start("w").await;
    server
        .post("/workflows/w/cancel", &json!({"reason": "refund"}))
        .accepted(200)
        .await;
    let body = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        (&body["status"], &body["closed_reason"], &body["reason"]),
        (&json!("cancelled"), &json!("cancelled"), &json!("refund"))
    );
    assert_eq!(body["failure"]["failure_category"], "cancelled");
    assert!(body["failures"].is_array());
}

#[tokio::test]
async fn a_timed_out_run_is_failed_with_the_kind_of_timeout() {
    let server = Server::open().await;
    server
        .start_with(json!({"workflow_id": "w", "workflow_type": "greet", "run_timeout_seconds": 5}))
        .await;
    server.clock.advance_seconds(6);
    // Any command meets the deadline, whether or not the sweep was first.
    server
        .post("/workflows/w/signal/s", &json!({}))
        .refused(409, "run_not_active")
        .await;
    let body = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        (&body["status"], &body["closed_reason"], &body["reason"]),
        (&json!("failed"), &json!("timed_out"), &json!("run_timeout"))
    );
}

#[tokio::test]
async fn what_a_run_waits_for_is_shown() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    for (id, command, kind) in [
        (
            "a",
            json!({"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")}),
            "activity",
        ),
        (
            "t",
            json!({"type": "start_timer", "delay_seconds": 60}),
            "timer",
        ),
        (
            "s",
            json!({"type": "open_signal_wait", "signal_name": "go"}),
            "signal",
        ),
        (
            "c",
            json!({"type": "open_condition_wait", "condition_key": "k"}),
            "condition",
        ),
    ] {
        server.start(id).await;
        server.worker("w").decide(json!([command])).await;
        let body = server.get(&format!("/workflows/{id}")).accepted(200).await;
        assert_eq!(
            (&body["status"], &body["wait_kind"]),
            (&json!("waiting"), &json!(kind))
        );
        assert!(body["wait_reason"].is_string());
        assert_eq!(body["control_plane"]["wait_kind"], kind);
    }
}

#[tokio::test]
async fn a_chain_of_runs_is_listed_oldest_first() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    let body = json!({"workflow_id": "w", "workflow_type": "greet", "memo": {"a": 1}});
    let first = server.start_with(body).await;
    server.clock.advance_seconds(1);
    server
        .worker("w")
        .decide(json!([{"type": "continue_as_new", "arguments": envelope("[2]")}]))
        .await;
    let current = server.get("/workflows/w").accepted(200).await;
    let second = current["run_id"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(
        (
            &current["run_number"],
            &current["run_count"],
            &current["input"]
        ),
        (&json!(2), &json!(2), &json!([2]))
    );
    let runs = server.get("/workflows/w/runs").accepted(200).await;
    assert_eq!(
        (&runs["workflow_id"], &runs["run_count"]),
        (&json!("w"), &json!(2))
    );
    let expected = json!({
        "workflow_id": "w",
        "run_id": first,
        "run_number": 1,
        "workflow_type": "greet",
        "business_key": null,
        "status": "completed",
        "status_bucket": "completed",
        "is_terminal": true,
        "is_current_run": false,
        "task_queue": "default",
        "compatibility": null,
        "compatibility_status": "compatible",
        "compatibility_supported_in_fleet": true,
        "compatibility_fleet_reason": null,
        "started_at": "2026-01-01T00:00:00.000000Z",
        "closed_at": "2026-01-01T00:00:01.000000Z",
        "memo": {"a": 1},
    });
    assert_eq!(runs["runs"][0], expected);
    assert_eq!(runs["runs"][1]["run_id"], second);
    assert_eq!(
        (&runs["runs"][1]["is_current_run"], &runs["runs"][1]["memo"]),
        (&json!(true), &json!({"a": 1}))
    );
    let old = server
        .get(&format!("/workflows/w/runs/{first}"))
        .accepted(200)
        .await;
    assert_eq!(
        (&old["is_current_run"], &old["closed_reason"]),
        (&json!(false), &json!("continued"))
    );
    assert_eq!(old["actions"]["can_signal"], false);
}

#[tokio::test]
async fn a_pinned_run_shows_whether_its_build_has_a_worker() {
    let server = Server::open().await;
    server
        .start_with(json!({"workflow_id": "w", "workflow_type": "greet", "build_id": "b1"}))
        .await;
    let body = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        (&body["compatibility"], &body["compatibility_status"]),
        (&json!("b1"), &json!("no_compatible_worker"))
    );
    assert_eq!(body["compatibility_supported_in_fleet"], false);
    assert!(body["compatibility_fleet_reason"].is_string());
    server.register("other", json!({"build_id": "b2"})).await;
    server
        .register("elsewhere", json!({"build_id": "b1", "task_queue": "q2"}))
        .await;
    assert_eq!(
        list(&server, "").await["workflows"][0]["compatibility_status"],
        "no_compatible_worker"
    );
    server.register("w1", json!({"build_id": "b1"})).await;
    assert_eq!(
        list(&server, "").await["workflows"][0]["compatibility_status"],
        "compatible"
    );
    server.clock.advance_seconds(61);
    let runs = server.get("/workflows/w/runs").accepted(200).await;
    assert_eq!(
        runs["runs"][0]["compatibility_status"],
        "no_compatible_worker"
    );
}

#[tokio::test]
async fn missing_workflows_and_runs_are_named() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    server.start("other").await;
    for path in [
        "/workflows/none",
        "/workflows/none/runs",
        &format!("/workflows/none/runs/{run_id}"),
    ] {
        let body = server.get(path).refused(404, "instance_not_found").await;
        assert_eq!(
            (&body["workflow_id"], &body["control_plane"]["workflow_id"]),
            (&json!("none"), &json!("none"))
        );
    }
    for path in [
        "/workflows/w/runs/none".to_owned(),
        format!("/workflows/other/runs/{run_id}"),
    ] {
        let body = server
            .call(Method::GET, &path)
            .refused(404, "run_not_found")
            .await;
        assert!(body["workflow_id"].is_string() && body["run_id"].is_string());
    }
}
