//! Local activities as operators see them.

use serde_json::{Value, json};

use crate::support::contract::local_activity_errors;
use crate::support::{Server, envelope, report};

/// A server whose worker `w` holds the task of workflow `wf`. Returns the task too.
async fn leased() -> (Server, Value) {
    let server = Server::open().await;
    let fields = json!({"supported_workflow_types": [], "supported_activity_types": [],
        "capabilities": ["durable_local_activities"]});
    server.register("w", fields).await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    (server, task)
}

async fn on_task(server: &Server, task: &Value, rest: &str, fields: Value) -> Value {
    report(server, task, rest, fields).accepted(200).await
}

async fn prepare(server: &Server, task: &Value, sequence: u64) -> Value {
    let descriptor = json!({"activity_type": "charge", "execution_mode": "local",
        "retry_policy": {"max_attempts": 3, "backoff_seconds": [30]}, "heartbeat_timeout": 20});
    let name = format!("{}-{sequence}", task["task_id"]);
    let fields = json!({"sequence": sequence, "worker_attempt_id": name, "descriptor": descriptor});
    on_task(server, task, "local-activities/prepare", fields).await
}

async fn fail(server: &Server, task: &Value, attempt: &Value) {
    let report = json!({"outcome": "failed", "message": "busy"});
    let id = attempt["activity_attempt_id"].as_str().expect("an attempt");
    on_task(
        server,
        task,
        &format!("local-activities/{id}/outcome"),
        json!({"report": report}),
    )
    .await;
}

#[tokio::test]
async fn the_debug_view_marks_local_activities() {
    let (server, task) = leased().await;
    let attempt = prepare(&server, &task, 1).await;
    let id = attempt["activity_attempt_id"].as_str().expect("an attempt");
    let progress = json!({"progress": {"message": "half"}});
    on_task(
        &server,
        &task,
        &format!("local-activities/{id}/heartbeat"),
        progress,
    )
    .await;
    let debug = server.get("/workflows/wf/debug").accepted(200).await;
    let shown = &debug["pending_activities"][0];
    for (key, value) in [
        ("execution_mode", json!("local")),
        ("local_activity", json!(true)),
        ("status", json!("running")),
        ("attempt_number", json!(1)),
        ("progress", json!({"message": "half"})),
        (
            "heartbeat_deadline_at",
            json!("2026-01-01T00:00:20.000000Z"),
        ),
        ("task_queue", Value::Null),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    let options = &shown["activity_options"];
    assert_eq!(
        local_activity_errors("localActivityOptionsSnapshot", options),
        Vec::<String>::new()
    );
    assert_eq!(options["max_attempts"], 3);
    assert_eq!(options["backoff"], json!([30]));
    assert_eq!(debug["findings"], json!([]));

    fail(&server, &task, &attempt).await;
    let debug = server.get("/workflows/wf/debug").accepted(200).await;
    let wait = format!(
        "local-activity:{}",
        attempt["activity_execution_id"].as_str().expect("an id")
    );
    assert_eq!(debug["pending_activities"][0]["status"], "pending");
    assert_eq!(debug["pending_activities"][0]["open_wait_id"], wait);
    assert_eq!(debug["pending_workflow_tasks"][0]["status"], "scheduled");
    assert_eq!(
        debug["pending_workflow_tasks"][0]["workflow_wait_kind"],
        "local_activity"
    );
    assert_eq!(
        debug["execution"]["next_scheduled_event"],
        json!({"kind": "local_activity", "at": "2026-01-01T00:00:30.000000Z", "id": wait})
    );
    let described = server.get("/workflows/wf").accepted(200).await;
    assert_eq!(described["wait_kind"], "local_activity");
    server
        .post("/workflows/wf/cancel", &json!({}))
        .accepted(200)
        .await;
    let debug = server.get("/workflows/wf/debug").accepted(200).await;
    let recent = &debug["recent_activities"][0];
    assert_eq!(
        (&recent["execution_mode"], &recent["local_activity"]),
        (&json!("local"), &json!(true))
    );
    assert_eq!(recent["status"], "cancelled");
    assert_eq!(recent["activity_options"]["execution_mode"], "local");
    assert_eq!(
        local_activity_errors("activityOptionsMarker", &recent["activity_options"]),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn an_export_has_the_same_events_and_marks_the_execution() {
    let (server, task) = leased().await;
    let reported = json!({"type": "record_local_activity", "activity_type": "say", "execution_mode": "local",
        "outcome": "completed", "result": envelope("1"), "attempts": [{"attempt_number": 1, "outcome": "completed"}]});
    let queued = json!({"type": "schedule_activity", "activity_type": "say"});
    on_task(
        &server,
        &task,
        "complete",
        json!({"commands": [reported, queued]}),
    )
    .await;
    let run = task["run_id"].as_str().expect("a run");
    let history = server
        .get(&format!("/workflows/wf/runs/{run}/history"))
        .accepted(200)
        .await;
    let export = server
        .get(&format!("/workflows/wf/runs/{run}/history/export"))
        .accepted(200)
        .await;
    let payloads = |list: &Value| -> Vec<Value> {
        let events = list.as_array().expect("events");
        events
            .iter()
            .filter(|event| event["event_type"] != "WorkflowStarted")
            .map(|event| event["payload"].clone())
            .collect()
    };
    assert_eq!(
        payloads(&export["history_events"]),
        payloads(&history["events"])
    );
    let rows = export["activities"].as_array().expect("activities");
    assert_eq!(
        (&rows[0]["execution_mode"], &rows[0]["local_activity"]),
        (&json!("local"), &json!(true))
    );
    assert_eq!(
        local_activity_errors("localActivityOptionsSnapshot", &rows[0]["activity_options"]),
        Vec::<String>::new()
    );
    assert!(rows[1].get("execution_mode").is_none());
}

#[tokio::test]
async fn metrics_separate_local_from_queued_activities() {
    let (server, task) = leased().await;
    let queued = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    let fields = json!({"checkpoint_id": "c", "start_sequence": 1, "commands": queued});
    on_task(&server, &task, "local-activities/checkpoint", fields).await;
    let attempt = prepare(&server, &task, 2).await;
    fail(&server, &task, &attempt).await;
    let read = || async {
        let body = server.get("/system/operator-metrics").accepted(200).await;
        assert_eq!(body["namespace"], "default");
        body["operator_metrics"]["activities"].clone()
    };
    assert_eq!(
        read().await,
        json!({"open": 2, "pending": 2, "running": 0, "local": 1, "local_open": 1, "local_pending": 1,
            "local_running": 0, "local_attempts": 1, "local_failed_attempts": 1, "queued_open": 1, "queued_pending": 1,
            "queued_running": 0, "queued_failed_attempts": 0, "retrying": 1, "timeout_overdue": 0, "failed_attempts": 1,
            "max_attempt_count": 1, "is_complete": true})
    );
    let queue = server.get("/task-queues/default").accepted(200).await;
    assert_eq!(
        queue["stats"]["activity_tasks"]["ready_count"], 1,
        "{queue}"
    );
    server.advance(30).await;
    let retry = server.worker("w").workflow_task().await;
    prepare(&server, &retry, 2).await;
    let counts = read().await;
    assert_eq!(
        (&counts["local_running"], &counts["local_attempts"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        (&counts["queued_running"], &counts["max_attempt_count"]),
        (&json!(0), &json!(2))
    );
}
