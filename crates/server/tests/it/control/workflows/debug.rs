//! The debug view of a run, and the commands that follow from it: repair and archive.

use serde_json::{Value, json};

use crate::support::{Server, envelope, fail};

async fn debug(server: &Server, workflow_id: &str) -> Value {
    server
        .get(&format!("/workflows/{workflow_id}/debug"))
        .accepted(200)
        .await
}

/// Returns the status and the codes of the findings.
fn verdict(view: &Value) -> (String, Vec<String>) {
    let findings = view["findings"].as_array().expect("a list");
    let codes = findings
        .iter()
        .map(|finding| finding["code"].as_str().expect("a code").to_owned())
        .collect();
    (
        view["diagnostic_status"]
            .as_str()
            .expect("a status")
            .to_owned(),
        codes,
    )
}

async fn expect(server: &Server, status: &str, codes: &[&str]) -> Value {
    let view = debug(server, "a").await;
    let codes: Vec<String> = codes.iter().map(|code| (*code).to_owned()).collect();
    assert_eq!(verdict(&view), (status.to_owned(), codes), "{view}");
    view
}

fn activity(options: Value) -> Value {
    let mut command =
        json!({"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")});
    crate::support::merge(&mut command, options);
    json!([command])
}

#[tokio::test]
async fn a_run_without_a_worker_is_diagnosed() {
    let server = Server::open().await;
    server.start("a").await;
    let view = expect(&server, "needs_attention", &["no_active_pollers"]).await;
    let message = "No live worker on queue default takes workflow type greet.";
    assert_eq!(view["findings"][0]["message"], message);
    assert_eq!(view["findings"][0]["severity"], "error");
    assert_eq!(view["pending_workflow_tasks"][0]["status"], "ready");
    assert_eq!(view["task_queue"]["stats"]["approximate_backlog_count"], 1);
    assert_eq!(view["compatibility"], Value::Null);
    assert_eq!(view["control_plane"]["operation"], "debug_workflow");
    assert_eq!(
        view["control_plane"]["diagnostic_status"],
        "needs_attention"
    );
    for other in [
        json!({"task_queue": "other"}),
        json!({"supported_workflow_types": ["bye"]}),
    ] {
        server.register("w", other).await;
        expect(&server, "needs_attention", &["no_active_pollers"]).await;
    }
    server.register("w", json!({})).await;
    expect(&server, "queue_backlog", &[]).await;
    server.advance(61).await;
    expect(&server, "needs_attention", &["no_active_pollers"]).await;
}

#[tokio::test]
async fn a_pinned_run_without_its_build_names_the_build() {
    let server = Server::staffed([("w", json!({}))]).await;
    server
        .start_with(json!({"workflow_id": "a", "workflow_type": "greet", "build_id": "v2"}))
        .await;
    let view = expect(&server, "needs_attention", &["no_active_pollers"]).await;
    let message = "No live worker on queue default takes workflow type greet and has build v2.";
    assert_eq!(view["findings"][0]["message"], message);
    assert_eq!(view["compatibility"]["compatibility"], "v2");
    assert_eq!(
        view["compatibility"]["compatibility_status"],
        "no_compatible_worker"
    );
}

#[tokio::test]
async fn an_open_run_is_diagnosed_at_every_step() {
    let server = Server::staffed([("w", json!({}))]).await;
    server
        .start_with(
            json!({"workflow_id": "a", "workflow_type": "greet", "run_timeout_seconds": 3600}),
        )
        .await;
    let view = expect(&server, "queue_backlog", &[]).await;
    let next = &view["execution"]["next_scheduled_event"];
    assert_eq!(next["kind"], "run_timeout");
    assert_eq!(next["at"], "2026-01-01T01:00:00.000000Z");
    let task = server.worker("w").workflow_task().await;
    let view = expect(&server, "running", &[]).await;
    let shown = &view["pending_workflow_tasks"][0];
    assert_eq!(shown["task_id"], task["task_id"]);
    assert_eq!(shown["lease_owner"], "w");
    assert_eq!(shown["status"], "leased");
    let path = format!(
        "/workflow-tasks/{}/complete",
        task["task_id"].as_str().unwrap()
    );
    let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "commands": [{"type": "start_timer", "delay_seconds": 30}]});
    server.worker_post(&path, &body).accepted(200).await;
    let view = expect(&server, "waiting", &[]).await;
    assert_eq!(view["execution"]["wait_kind"], "timer");
    assert_eq!(view["execution"]["next_scheduled_event"]["kind"], "timer");
    assert_eq!(
        view["execution"]["last_event"]["event_type"],
        "TimerScheduled"
    );
    assert!(
        view["execution"]["last_event"]
            .get("payload_preview")
            .is_none()
    );
    let view = server
        .get("/workflows/a/debug?include_last_event_payload=1")
        .accepted(200)
        .await;
    let preview = view["execution"]["last_event"]["payload_preview"]
        .as_str()
        .unwrap();
    assert!(preview.contains("\"delay_seconds\":30"), "{preview}");
    server.advance(30).await;
    server
        .worker("w")
        .decide(json!([{"type": "complete_workflow", "result": envelope("1")}]))
        .await;
    let view = expect(&server, "terminal", &[]).await;
    assert_eq!(view["pending_workflow_tasks"], json!([]));
    assert_eq!(view["execution"]["next_scheduled_event"], Value::Null);
}

#[tokio::test]
async fn a_failing_task_shows_its_workers_report() {
    let server = Server::staffed([("w", json!({}))]).await;
    let run_id = server.start("a").await;
    let task = server.worker("w").workflow_task().await;
    let failure = json!({"message": "boom", "type": "KeyError", "stack_trace": "at line 7"});
    fail(&server, &task, failure).accepted(200).await;
    let view = expect(&server, "needs_attention", &["task_problem"]).await;
    let shown = &view["pending_workflow_tasks"][0];
    assert_eq!(shown["last_error"], "boom");
    assert_eq!(shown["last_error_type"], "KeyError");
    assert_eq!(shown["stack_trace"], "at line 7");
    assert_eq!(shown["consecutive_failures"], 1);
    let failures = view["recent_failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0]["source_kind"], "workflow_task");
    assert_eq!(failures[0]["stack_trace"], "at line 7");
    assert_eq!(
        view["execution"]["next_scheduled_event"]["kind"],
        "workflow_task_retry"
    );
    let by_run = server
        .get(&format!("/workflows/a/runs/{run_id}/debug"))
        .accepted(200)
        .await;
    assert_eq!(by_run["run_id"], json!(run_id));
}

#[tokio::test]
async fn a_replay_failure_is_flagged_and_the_run_goes_on_with_fixed_code() {
    let server = Server::staffed([("w", json!({}))]).await;
    server.start("a").await;
    let task = server.worker("w").workflow_task().await;
    fail(
        &server,
        &task,
        json!({"message": "diverged", "type": "DeterminismFailed"}),
    )
    .accepted(200)
    .await;
    let view = expect(&server, "needs_attention", &["workflow_replay_blocked"]).await;
    assert_eq!(view["pending_workflow_tasks"][0]["replay_blocked"], true);
    assert_eq!(view["execution"]["status"], "waiting");
    server.advance(60).await;
    server
        .worker("w")
        .decide(json!([{"type": "complete_workflow", "result": envelope("1")}]))
        .await;
    expect(&server, "terminal", &[]).await;
}

#[tokio::test]
async fn activities_are_shown_with_progress_retries_and_traces() {
    let server = Server::staffed([("w", json!({}))]).await;
    server.start("a").await;
    let options = json!({"retry_policy": {"max_attempts": 3, "backoff_seconds": [10]}});
    server.worker("w").decide(activity(options)).await;
    let view = expect(&server, "queue_backlog", &[]).await;
    assert_eq!(view["pending_activities"][0]["status"], "ready");
    let task = server.worker("w").activity_task().await;
    let id = task["task_id"].as_str().unwrap();
    let owner = json!({"lease_owner": "w", "activity_attempt_id": task["activity_attempt_id"]});
    let mut beat = owner.clone();
    crate::support::merge(&mut beat, json!({"details": {"row": 7}}));
    server.advance(5).await;
    server
        .worker_post(&format!("/activity-tasks/{id}/heartbeat"), &beat)
        .accepted(200)
        .await;
    let view = expect(&server, "running", &[]).await;
    let shown = &view["pending_activities"][0];
    assert_eq!(shown["status"], "running");
    assert_eq!(shown["progress"], json!({"details": {"row": 7}}));
    assert_eq!(shown["last_heartbeat_at"], "2026-01-01T00:00:05.000000Z");
    assert_eq!(shown["lease_owner"], "w");
    assert_eq!(shown["activity_options"]["retry_policy"]["max_attempts"], 3);
    let mut failed = owner;
    let failure =
        json!({"message": "no", "type": "E", "class": "shop.E", "stack_trace": "at line 1"});
    crate::support::merge(&mut failed, json!({"failure": failure}));
    server
        .worker_post(&format!("/activity-tasks/{id}/fail"), &failed)
        .accepted(200)
        .await;
    let view = expect(&server, "pending_work", &[]).await;
    let failure = &view["recent_failures"][0];
    assert_eq!(failure["message"], "no");
    assert_eq!(failure["exception_type"], "E");
    assert_eq!(failure["stack_trace"], "at line 1");
    assert_eq!(view["pending_activities"][0]["status"], "scheduled");
    assert_eq!(view["pending_activities"][0]["attempt_number"], 1);
    assert_eq!(
        view["execution"]["next_scheduled_event"]["kind"],
        "activity_retry"
    );
    server.advance(10).await;
    let task = server.worker("w").activity_task().await;
    let path = format!(
        "/activity-tasks/{}/complete",
        task["task_id"].as_str().unwrap()
    );
    let body = json!({"lease_owner": "w", "activity_attempt_id": task["activity_attempt_id"], "result": envelope("1")});
    server.worker_post(&path, &body).accepted(200).await;
    let view = debug(&server, "a").await;
    assert_eq!(view["pending_activities"], json!([]));
    assert_eq!(view["recent_activities"][0]["status"], "completed");
}

#[tokio::test]
async fn an_activity_queue_without_pollers_is_diagnosed() {
    let server = Server::staffed([("w", json!({}))]).await;
    server.start("a").await;
    server
        .worker("w")
        .decide(activity(json!({"queue": "elsewhere"})))
        .await;
    let view = expect(&server, "needs_attention", &["no_active_pollers"]).await;
    let message = "No live worker on queue elsewhere takes activity type say.";
    assert_eq!(view["findings"][0]["message"], message);
}

#[tokio::test]
async fn a_missing_workflow_is_not_diagnosed() {
    let server = Server::staffed([("w", json!({}))]).await;
    server.start("a").await;
    server
        .get("/workflows/none/debug")
        .refused(404, "instance_not_found")
        .await;
    server
        .get("/workflows/a/runs/none/debug")
        .refused(404, "run_not_found")
        .await;
    let fields = server
        .get("/workflows/a/debug?include_last_event_payload=maybe")
        .invalid()
        .await;
    assert_eq!(fields, ["include_last_event_payload"]);
}

#[tokio::test]
async fn repair_does_nothing_to_a_healthy_run_and_retries_a_blocked_one_at_once() {
    let server = Server::staffed([("w", json!({}))]).await;
    let run_id = server.start("a").await;
    let repair = async || {
        server
            .post("/workflows/a/repair", &json!({}))
            .accepted(200)
            .await
    };
    let healthy = repair().await;
    assert_eq!(healthy["outcome"], "repair_not_needed");
    assert_eq!(healthy["command_status"], "accepted");
    assert_eq!(healthy["control_plane"]["operation"], "repair");
    let task = server.worker("w").workflow_task().await;
    fail(
        &server,
        &task,
        json!({"message": "diverged", "type": "NonDeterministicReplay"}),
    )
    .accepted(200)
    .await;
    let repaired = repair().await;
    assert_eq!(repaired["outcome"], "repair_dispatched");
    let again = server.worker("w").workflow_task().await;
    assert_eq!(again["task_id"], task["task_id"]);
    assert_eq!(again["workflow_task_attempt"], 2);
    let path = format!("/workflows/a/runs/{run_id}/history");
    let history = server.get(&path).accepted(200).await;
    let events = history["events"].as_array().unwrap();
    let repairs: Vec<&Value> = events
        .iter()
        .filter(|event| event["event_type"] == "RepairRequested")
        .collect();
    assert_eq!(repairs.len(), 1, "one that is not needed is no event");
    assert_eq!(repairs[0]["payload"]["liveness_state"], "repair_needed");
    assert_eq!(repairs[0]["payload"]["outcome"], "repair_dispatched");
    assert_eq!(repairs[0]["payload"]["task_id"], task["task_id"]);
    assert_eq!(repairs[0]["principal"]["id"], "anonymous");
    let shown = server.get("/workflows/a").accepted(200).await;
    assert_eq!(shown["commands"][2]["type"], "repair");
    assert_eq!(shown["actions"]["can_repair"], true);
    assert_eq!(shown["actions"]["can_archive"], false);
}

#[tokio::test]
async fn only_open_runs_are_repaired_and_only_closed_ones_archived() {
    let server = Server::staffed([("w", json!({}))]).await;
    let run_id = server.start("a").await;
    let refused = server
        .post("/workflows/a/archive", &json!({}))
        .refused(409, "run_not_closed")
        .await;
    assert_eq!(refused["outcome"], "rejected_run_not_closed");
    assert_eq!(refused["command_status"], "rejected");
    server
        .worker("w")
        .decide(json!([{"type": "complete_workflow", "result": envelope("1")}]))
        .await;
    server
        .post("/workflows/a/repair", &json!({}))
        .refused(409, "run_not_active")
        .await;
    let reason = json!({"reason": "audit"});
    let archived = server
        .post("/workflows/a/archive", &reason)
        .accepted(200)
        .await;
    assert_eq!(archived["outcome"], "archived");
    let path = format!("/workflows/a/runs/{run_id}/archive");
    let again = server.post(&path, &reason).accepted(200).await;
    assert_eq!(again["outcome"], "archive_not_needed");
    assert_eq!(again["target_scope"], "run");
    let path = format!("/workflows/a/runs/{run_id}/history");
    let history = server.get(&path).accepted(200).await;
    let types: Vec<&str> = crate::support::texts(&history["events"], "event_type");
    let trailing = ["WorkflowCompleted", "ArchiveRequested", "WorkflowArchived"];
    assert_eq!(types[types.len() - 3..], trailing);
    let shown = server.get("/workflows/a").accepted(200).await;
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["actions"]["can_archive"], true);
    for path in ["/workflows/none/repair", "/workflows/none/archive"] {
        server
            .post(path, &json!({}))
            .refused(404, "instance_not_found")
            .await;
    }
    let long = json!({"reason": "x".repeat(1001)});
    assert_eq!(
        server.post("/workflows/a/archive", &long).invalid().await,
        ["reason"]
    );
}
