//! Updates with validators: a worker validates first, and every outcome has its own reason.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Call, Server, envelope, merge, texts, validation_report};

/// The registration of a worker with a validator for `deposit`.
fn validating(fields: Value) -> Value {
    let mut worker = json!({
        "capabilities": ["update_validation_tasks"],
        "workflow_command_contracts": {"greet": {
            "updates": ["deposit", "rename"],
            "update_validators": ["deposit"],
        }},
    });
    merge(&mut worker, fields);
    worker
}

/// A server with such a worker `w` and the waiting workflow `wf`. Returns the run id too.
async fn with_validator() -> (Server, String) {
    let server = Server::open().await;
    server.register("w", validating(json!({}))).await;
    let run_id = server.start("wf").await;
    server
        .worker("w")
        .decide(json!([{"type": "start_timer", "delay_seconds": 3600}]))
        .await;
    (server, run_id)
}

fn update<'a>(server: &'a Server, request_id: &str, input: Value) -> Call<'a> {
    let body = json!({"request_id": request_id, "input": input});
    server.post("/workflows/wf/update/deposit", &body)
}

/// Sends an update and lets worker `w` answer its validation.
async fn validated(server: &Server, call: Call<'_>, verb: &str, fields: Value) -> Answer {
    let worker = async {
        let task = server.worker("w").validation_task().await;
        validation_report(server, &task, verb, fields)
            .accepted(200)
            .await;
    };
    tokio::join!(call.send(), worker).0
}

fn refusal(reason: &str) -> Value {
    json!({"failure": {
        "message": "Not so much.",
        "reason": reason,
        "type": "ValueError",
        "stack_trace": "…",
        "validation_errors": {"amount": ["is too much"], "why": "because", "limit": 7},
    }})
}

#[tokio::test]
async fn an_update_is_admitted_after_its_approval() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await;
    let worker = async {
        let mut task = server.worker("w").validation_task().await;
        // Nothing is admitted before the validator has spoken.
        assert_eq!(server.history("wf", &run_id).await, before);
        let id = task["update_validation_task_id"].clone();
        let events = task["history_events"].take();
        assert_eq!(events.as_array().unwrap().len(), before.len());
        task.as_object_mut().unwrap().remove("history_events");
        assert_eq!(
            task,
            json!({
                "task_id": id,
                "task_kind": "update_validation",
                "task_type": "workflow",
                "update_validation_task_id": id,
                "update_validation_attempt": 1,
                "update_name": "deposit",
                "update_arguments": envelope("[5]"),
                "lease_owner": "w",
                "lease_expires_at": "2026-01-01T00:00:05.000000Z",
                "namespace": "default",
                "task_queue": "default",
                "workflow_id": "wf",
                "run_id": run_id,
                "workflow_type": "greet",
                "compatibility": null,
                "payload_codec": "avro",
                "workflow_arguments": envelope("[]"),
                "run_status": "waiting",
                "last_history_sequence": before.len(),
                "total_history_events": before.len(),
                "history_export": null,
            })
        );
        let answer = validation_report(&server, &task, "approve", json!({}))
            .send()
            .await;
        assert_eq!(
            answer.bare(),
            json!({"update_validation_task_id": id, "update_validation_attempt": 1, "outcome": "approved", "reason": null})
        );
    };
    let (accepted, ()) = tokio::join!(update(&server, "r", json!([5])).accepted(202), worker);
    assert_eq!(accepted["update_status"], "accepted");
    let events = server.history("wf", &run_id).await;
    assert_eq!(
        texts(&json!(events[before.len()..]), "event_type"),
        ["UpdateAccepted"]
    );
    // Its task is an ordinary one, for the same poll.
    let task = server.worker("w").validation_task().await;
    assert_eq!(task["task_kind"], "workflow");
    assert_eq!(task["update_name"], "deposit");
}

#[tokio::test]
async fn a_refused_update_is_recorded_as_refused() {
    let (server, run_id) = with_validator().await;
    let call = update(&server, "r", json!([500]));
    let answer = validated(
        &server,
        call,
        "reject",
        refusal("update_validator_rejected"),
    )
    .await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    let body = answer.body;
    assert_eq!(body["reason"], "update_validator_rejected");
    assert_eq!(body["message"], "Not so much.");
    assert_eq!(
        body["validation_errors"],
        json!({"amount": ["is too much"], "limit": ["7"], "why": ["because"]})
    );
    assert_eq!(
        (&body["command_status"], &body["update_status"]),
        (&json!("rejected"), &json!("rejected"))
    );
    let events = server.history("wf", &run_id).await;
    let last = events.last().unwrap();
    assert_eq!(last["event_type"], "UpdateRejected");
    assert_eq!(
        last["payload"]["rejection_reason"],
        "update_validator_rejected"
    );
    assert_eq!(
        last["payload"].get("arguments"),
        None,
        "a refused request leaves no payload behind"
    );
    let shown = server.get("/workflows/wf/commands").accepted(200).await;
    assert_eq!(
        shown["commands"][0]["rejection_reason"],
        "update_validator_rejected"
    );
    // The repeat is answered from the record, and no worker is asked again.
    let again = update(&server, "r", json!([500]))
        .refused(422, "update_validator_rejected")
        .await;
    assert_eq!(again["retained"], true);
    assert_eq!(server.history("wf", &run_id).await.len(), events.len());
}

#[tokio::test]
async fn only_updates_with_a_validator_are_asked_about() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await.len();
    server
        .post("/workflows/wf/update/rename", &json!({}))
        .accepted(202)
        .await;
    // These are refused without a worker's word.
    server
        .post("/workflows/wf/update/other", &json!({"request_id": "o"}))
        .refused(404, "unknown_update")
        .await;
    server
        .post(
            "/workflows/none/update/deposit",
            &json!({"request_id": "n"}),
        )
        .refused(404, "instance_not_found")
        .await;
    server
        .post("/workflows/wf/update/deposit", &json!({}))
        .refused(422, "update_validation_request_id_required")
        .await;
    assert_eq!(server.history("wf", &run_id).await.len(), before + 1);
    server
        .post("/workflows/wf/terminate", &json!({}))
        .accepted(200)
        .await;
    update(&server, "late", json!([1]))
        .refused(409, "run_not_active")
        .await;
}

#[tokio::test]
async fn only_a_capable_worker_is_asked_to_validate() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await;
    let leave = |worker_id: &'static str| {
        let path = format!("/registrations/{worker_id}");
        server.worker_call(Method::DELETE, &path).accepted(200)
    };
    leave("w").await;
    let body = update(&server, "r", json!([1]))
        .refused(503, "update_validator_worker_unavailable")
        .await;
    assert_eq!(body["retryable"], true);
    server
        .register("a", validating(json!({"capabilities": []})))
        .await;
    update(&server, "r", json!([1]))
        .refused(409, "update_validation_capability_unsupported")
        .await;
    leave("a").await;
    server
        .register("b", validating(json!({"workflow_command_contracts": {}})))
        .await;
    update(&server, "r", json!([1]))
        .refused(409, "update_validator_contract_missing")
        .await;
    assert_eq!(server.history("wf", &run_id).await, before);

    let server = Server::open().await;
    server
        .register("w", validating(json!({"build_id": "b2"})))
        .await;
    server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "build_id": "b1"}))
        .await;
    update(&server, "r", json!([1]))
        .refused(409, "update_validator_worker_incompatible")
        .await;
}

#[tokio::test]
async fn a_validation_times_out_in_three_ways() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await;
    let no_worker_came = async {
        server.advance(0).await;
        server.advance(10).await;
    };
    let (body, ()) = tokio::join!(
        update(&server, "a", json!([1])).refused(504, "update_validation_task_not_claimed"),
        no_worker_came
    );
    assert_eq!(body["retryable"], true);

    let kept_too_long = async {
        let task = server.worker("w").validation_task().await;
        server.advance(5).await;
        validation_report(&server, &task, "approve", json!({}))
            .refused(409, "update_validation_lease_expired")
            .await;
    };
    let (body, ()) = tokio::join!(
        update(&server, "b", json!([1])).refused(503, "update_validator_worker_lost"),
        kept_too_long
    );
    assert_eq!(body["retryable"], true);

    let taken_too_late = async {
        server.advance(0).await;
        server.advance(7).await;
        let task = server.worker("w").validation_task().await;
        server.advance(3).await;
        validation_report(
            &server,
            &task,
            "reject",
            refusal("update_validator_rejected"),
        )
        .refused(409, "stale_update_validation_completion")
        .await;
    };
    let (body, ()) = tokio::join!(
        update(&server, "c", json!([1])).refused(504, "update_validation_execution_timeout"),
        taken_too_late
    );
    assert_eq!(body["retryable"], true);
    assert_eq!(server.history("wf", &run_id).await, before);
}

#[tokio::test]
async fn a_worker_that_leaves_or_fails_gives_no_verdict() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await;
    let call = update(&server, "a", json!([1]));
    let failed = refusal("update_validation_worker_failed");
    let answer = validated(&server, call, "reject", failed).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body["reason"], "update_validation_worker_failed");
    assert_eq!(answer.body["message"], "Not so much.");
    assert_eq!(answer.body["control_plane"]["operation"], "update");
    assert_eq!(answer.body["update_name"], "deposit");

    let leaving = async {
        server.worker("w").validation_task().await;
        server
            .worker_call(Method::DELETE, "/registrations/w")
            .accepted(200)
            .await;
    };
    tokio::join!(
        update(&server, "b", json!([1])).refused(503, "update_validator_worker_lost"),
        leaving
    );
    assert_eq!(server.history("wf", &run_id).await, before);
}

#[tokio::test]
async fn a_report_needs_its_lease_and_counts_once() {
    let (server, _) = with_validator().await;
    server.register("v", validating(json!({}))).await;
    let worker = async {
        let task = server.worker("w").validation_task().await;
        let stale = "stale_update_validation_completion";
        validation_report(&server, &task, "approve", json!({"lease_owner": "v"}))
            .refused(409, stale)
            .await;
        validation_report(
            &server,
            &task,
            "approve",
            json!({"update_validation_attempt": 2}),
        )
        .refused(409, stale)
        .await;
        let unknown = json!({"update_validation_task_id": "none", "lease_owner": "w", "update_validation_attempt": 1});
        for verb in ["approve", "reject"] {
            validation_report(
                &server,
                &unknown,
                verb,
                refusal("update_validator_rejected"),
            )
            .refused(404, "update_validation_task_not_found")
            .await;
        }
        // A query's routes do not know it.
        let id = task["task_id"].as_str().unwrap();
        let query = json!({"lease_owner": "w", "query_task_attempt": 1});
        server
            .worker_post(&format!("/query-tasks/{id}/complete"), &query)
            .refused(404, "query_task_not_found")
            .await;
        assert_eq!(
            validation_report(&server, &task, "reject", json!({}))
                .invalid()
                .await,
            ["failure"]
        );
        validation_report(&server, &task, "approve", json!({}))
            .accepted(200)
            .await;
        let again = validation_report(&server, &task, "approve", json!({}))
            .accepted(200)
            .await;
        assert_eq!(again["duplicate"], true);
        let other = refusal("update_validator_rejected");
        validation_report(&server, &task, "reject", other)
            .refused(409, "duplicate_update_validation_completion")
            .await;
    };
    tokio::join!(update(&server, "r", json!([1])).accepted(202), worker);
}

#[tokio::test]
async fn a_repeated_request_joins_its_running_validation() {
    let (server, run_id) = with_validator().await;
    let before = server.history("wf", &run_id).await.len();
    let worker = async {
        let first = server.worker("w").validation_task().await;
        let second = server.worker("w").validation_task().await;
        update(&server, "r", json!([2]))
            .refused(409, "update_validation_idempotency_conflict")
            .await;
        for task in [first, second] {
            validation_report(&server, &task, "approve", json!({}))
                .accepted(200)
                .await;
        }
    };
    let (one, two, ()) = tokio::join!(
        update(&server, "r", json!([1])).accepted(202),
        update(&server, "r", json!([1])).accepted(202),
        worker
    );
    assert_eq!(one["update_id"], two["update_id"]);
    assert_eq!(server.history("wf", &run_id).await.len(), before + 1);
}

#[tokio::test]
async fn polls_without_the_task_kind_get_no_validation() {
    let (server, _) = with_validator().await;
    server
        .register(
            "plain",
            json!({"capabilities": ["update_validation_tasks"]}),
        )
        .await;
    let worker = async {
        server.advance(0).await;
        for (worker_id, kinds) in [
            // Without `task_kinds`, with another, and from a worker that declares no such validator.
            ("w", json!(null)),
            ("w", json!(["workflow"])),
            ("plain", json!(["workflow", "update_validation"])),
        ] {
            let body = json!({"worker_id": worker_id, "task_queue": "default", "timeout_seconds": 0, "task_kinds": kinds});
            let answer = server
                .worker_post("/workflow-tasks/poll", &body)
                .accepted(200)
                .await;
            assert_eq!(answer["poll_status"], "empty", "{answer}");
        }
        let task = server.worker("w").validation_task().await;
        validation_report(&server, &task, "approve", json!({}))
            .accepted(200)
            .await;
    };
    tokio::join!(update(&server, "r", json!([1])).accepted(202), worker);
}
