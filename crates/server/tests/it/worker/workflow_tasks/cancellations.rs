//! Cooperative cancellation on the wire: requested once, delivered at one place, activities stopped by receipt.

use serde_json::{Value, json};

use crate::support::{
    Call, Server, activity_report, complete, decided, every_type, expect_no_task, history,
    payload_of, report, types,
};

/// A server with a worker `w` that supports cooperative cancellation.
async fn capable() -> Server {
    let server = Server::open().await;
    let fields = json!({"supported_workflow_types": [], "supported_activity_types": [],
        "capabilities": ["cooperative_cancellation"]});
    server.register("w", fields).await;
    server
}

fn ask<'a>(server: &'a Server, body: &Value) -> Call<'a> {
    server.post("/workflows/wf/request-cancellation", body)
}

/// Requests the cancellation of a sleeping `wf`. Returns the request and the task that delivers it.
async fn asked(server: &Server) -> (Value, Value) {
    decided(
        server,
        json!([{"type": "start_timer", "delay_seconds": 3600}]),
    )
    .await;
    let answer = ask(
        server,
        &json!({"reason": "maintenance", "cleanup_timeout_seconds": 60}),
    )
    .accepted(202)
    .await;
    (
        answer["cancellation_request"].clone(),
        server.worker("w").workflow_task().await,
    )
}

fn place(request: &Value) -> Value {
    json!({"request_id": request["request_id"], "sequence": 1, "call_kind": "timer"})
}

#[tokio::test]
async fn a_request_is_made_once_and_delivered_at_one_place() {
    let server = capable().await;
    let (request, task) = asked(&server).await;
    assert_eq!(request["requested_at"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(
        request["cleanup_deadline_at"],
        "2026-01-01T00:01:00.000000Z"
    );
    let again = ask(&server, &json!({"cleanup_timeout_seconds": 600}))
        .accepted(200)
        .await;
    assert_eq!(again["duplicate"], true);
    assert_eq!(
        again["cancellation_request"]["request_id"],
        request["request_id"]
    );
    assert_eq!(
        again["cancellation_request"]["cleanup_deadline_at"],
        request["cleanup_deadline_at"]
    );
    assert_eq!(task["cancel_requested"], true);
    assert_eq!(
        task["cancellation_request"]["request_id"],
        request["request_id"]
    );

    let delivered = report(&server, &task, "deliver-cancellation", place(&request))
        .accepted(200)
        .await;
    assert_eq!(delivered["delivered"], true);
    assert_eq!(
        (
            &delivered["sequence"],
            &delivered["call_kind"],
            &delivered["sequence_span"]
        ),
        (&json!(1), &json!("timer"), &json!(1))
    );
    report(&server, &task, "deliver-cancellation", place(&request))
        .accepted(200)
        .await;
    let mut elsewhere = place(&request);
    elsewhere["sequence"] = json!(2);
    report(&server, &task, "deliver-cancellation", elsewhere)
        .refused(409, "cancellation_request_mismatch")
        .await;
    let events = history(&server, &task).await;
    payload_of(&events, "CooperativeCancellationRequested");
    payload_of(&events, "CooperativeCancellationDelivered");
    payload_of(&events, "TimerCancelled");
    let end = json!([{"type": "fail_workflow", "message": "asked to end",
        "exception_type": "WorkflowCancellationRequested"}]);
    complete(&server, &task, end).accepted(200).await;
    assert_eq!(
        types(&history(&server, &task).await).last(),
        Some(&"WorkflowCancelled")
    );
    ask(&server, &json!({}))
        .refused(409, "run_not_active")
        .await;
}

#[tokio::test]
async fn malformed_requests_and_deliveries_are_refused() {
    let server = capable().await;
    decided(
        &server,
        json!([{"type": "start_timer", "delay_seconds": 3600}]),
    )
    .await;
    for seconds in [json!(0), json!(3601), json!("long"), json!(-1)] {
        let fields = ask(&server, &json!({"cleanup_timeout_seconds": seconds}))
            .invalid()
            .await;
        assert_eq!(fields, ["cleanup_timeout_seconds"], "{seconds}");
    }
    server
        .post("/workflows/unknown/request-cancellation", &json!({}))
        .refused(404, "instance_not_found")
        .await;
    let answer = ask(&server, &json!({})).accepted(202).await;
    let request = &answer["cancellation_request"];
    let task = server.worker("w").workflow_task().await;
    for (field, value) in [
        ("call_kind", json!("nap")),
        ("call_kind", json!(null)),
        ("sequence", json!(0)),
        ("sequence", json!(null)),
        ("sequence_span", json!(2)),
        ("request_id", json!(null)),
    ] {
        let mut body = place(request);
        body[field] = value.clone();
        let fields = report(&server, &task, "deliver-cancellation", body)
            .invalid()
            .await;
        assert!(
            fields.contains(&field.to_owned()),
            "{field} {value}: {fields:?}"
        );
    }
    let mut other = place(request);
    other["request_id"] = json!("another");
    report(&server, &task, "deliver-cancellation", other)
        .refused(409, "cancellation_request_mismatch")
        .await;
    let events = history(&server, &task).await;
    assert!(!types(&events).contains(&"CooperativeCancellationDelivered"));
}

#[tokio::test]
async fn only_the_holder_of_the_lease_delivers() {
    let server = capable().await;
    let (request, task) = asked(&server).await;
    let mut other = task.clone();
    other["lease_owner"] = json!("v");
    report(&server, &other, "deliver-cancellation", place(&request))
        .refused(409, "lease_owner_mismatch")
        .await;
    let mut stale = task.clone();
    stale["workflow_task_attempt"] = json!(9);
    report(&server, &stale, "deliver-cancellation", place(&request))
        .refused(409, "workflow_task_attempt_mismatch")
        .await;
    let mut unknown = task.clone();
    unknown["task_id"] = json!("01K00000000000000000000000");
    report(&server, &unknown, "deliver-cancellation", place(&request))
        .refused(404, "task_not_found")
        .await;
    server
        .post("/workflows/wf/terminate", &json!({}))
        .accepted(200)
        .await;
    report(&server, &task, "deliver-cancellation", place(&request))
        .refused(409, "run_closed")
        .await;
}

#[tokio::test]
async fn only_capable_workers_get_the_task() {
    let server = Server::open().await;
    server.register("plain", every_type()).await;
    server.start("wf").await;
    let task = server.worker("plain").workflow_task().await;
    let refusal = ask(&server, &json!({}))
        .refused(409, "active_claim_cancellation_not_supported")
        .await;
    assert_eq!(refusal["task_id"], task["task_id"]);
    complete(
        &server,
        &task,
        json!([{"type": "start_timer", "delay_seconds": 3600}]),
    )
    .accepted(200)
    .await;
    let refusal = ask(&server, &json!({}))
        .refused(409, "cooperative_cancellation_not_supported")
        .await;
    assert_eq!(refusal["minimum_protocol_version"], "1.20");
    let fields = json!({"supported_workflow_types": [], "supported_activity_types": [],
        "capabilities": ["cooperative_cancellation"]});
    server.register("w", fields).await;
    ask(&server, &json!({})).accepted(202).await;
    let nothing = server
        .worker("plain")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(nothing["poll_status"], "empty");
    server.worker("w").workflow_task().await;
}

#[tokio::test]
async fn a_delivery_waits_for_an_activity_that_must_stop() {
    let server = capable().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say",
            "cancellation_policy": "wait_cancellation_completed"}]),
    )
    .await;
    let activity = server.worker("w").activity_task().await;
    let answer = ask(&server, &json!({})).accepted(202).await;
    let request = &answer["cancellation_request"];
    let task = server.worker("w").workflow_task().await;
    let body = json!({"request_id": request["request_id"], "sequence": 1, "call_kind": "activity"});
    let waiting = report(&server, &task, "deliver-cancellation", body.clone())
        .accepted(200)
        .await;
    assert_eq!(
        (
            &waiting["delivered"],
            &waiting["reason"],
            &waiting["claim_released"]
        ),
        (
            &json!(false),
            &json!("cancellation_waiting_for_activity"),
            &json!(true)
        )
    );
    expect_no_task(&server, "workflow").await;
    // Another request's receipt, a stranger's, and then the right one, twice.
    activity_report(
        &server,
        &activity,
        "acknowledge-cancellation",
        json!({"request_id": "another"}),
    )
    .refused(409, "cancellation_request_mismatch")
    .await;
    activity_report(&server, &activity, "acknowledge-cancellation", json!({}))
        .refused(422, "validation_failed")
        .await;
    let mut stranger = activity.clone();
    stranger["lease_owner"] = json!("v");
    let receipt = json!({"request_id": request["request_id"]});
    activity_report(
        &server,
        &stranger,
        "acknowledge-cancellation",
        receipt.clone(),
    )
    .refused(409, "lease_owner_mismatch")
    .await;
    for duplicate in [false, true] {
        let known = activity_report(
            &server,
            &activity,
            "acknowledge-cancellation",
            receipt.clone(),
        )
        .accepted(200)
        .await;
        assert_eq!(known["acknowledged"], true);
        assert_eq!(known["duplicate"], duplicate);
        assert_eq!(known["heartbeat_recorded"], false);
    }
    let task = server.worker("w").workflow_task().await;
    let delivered = report(&server, &task, "deliver-cancellation", body)
        .accepted(200)
        .await;
    assert_eq!(delivered["delivered"], true);
    let events = history(&server, &task).await;
    payload_of(&events, "ActivityCancelled");
}

#[tokio::test]
async fn cleanup_that_takes_too_long_is_ended() {
    let server = capable().await;
    let (request, task) = asked(&server).await;
    report(&server, &task, "deliver-cancellation", place(&request))
        .accepted(200)
        .await;
    complete(
        &server,
        &task,
        json!([{"type": "start_timer", "delay_seconds": 3600}]),
    )
    .accepted(200)
    .await;
    server.advance(60).await;
    assert_eq!(
        types(&history(&server, &task).await).last(),
        Some(&"WorkflowCancelled")
    );
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_request_id_is_recognised_also_after_the_close() {
    let server = capable().await;
    asked(&server).await;
    let with = |id: &str| json!({"request_id": id});
    let first = ask(&server, &with("a")).accepted(200).await;
    server
        .post("/workflows/wf/signal/s", &with("b"))
        .accepted(202)
        .await;
    let conflict = ask(&server, &with("b"))
        .refused(409, "request_id_conflict")
        .await;
    assert_eq!(conflict["retained_command_type"], "signal");
    server
        .post("/workflows/wf/terminate", &with("c"))
        .accepted(200)
        .await;
    let again = ask(&server, &with("a")).accepted(200).await;
    assert_eq!(again["cancellation_request"], first["cancellation_request"]);
    assert_eq!(again["run_status"], "terminated");
    ask(&server, &with("c"))
        .refused(409, "request_id_conflict")
        .await;
    // One that comes too late is refused, and refused again.
    for _ in 0..2 {
        ask(&server, &with("d"))
            .refused(409, "run_not_active")
            .await;
    }
    server
        .post("/workflows/wf/signal/s", &with("d"))
        .refused(409, "request_id_conflict")
        .await;
}

#[tokio::test]
async fn a_repeated_request_is_answered_by_the_run_that_recorded_it() {
    let server = capable().await;
    let (request, task) = asked(&server).await;
    let repeat = json!({"request_id": "later"});
    let first = ask(&server, &repeat).accepted(200).await;
    report(&server, &task, "deliver-cancellation", place(&request))
        .accepted(200)
        .await;
    complete(&server, &task, json!([{"type": "continue_as_new"}]))
        .accepted(200)
        .await;
    let again = ask(&server, &repeat).accepted(200).await;
    assert_eq!(again["run_id"], first["run_id"]);
    assert_eq!(again["cancellation_request"], first["cancellation_request"]);
    // The next run has no request of its own, so a new one is a new request.
    ask(&server, &json!({})).accepted(202).await;
}

#[tokio::test]
async fn a_delivery_at_an_unreachable_call_is_refused() {
    let server = capable().await;
    let (request, task) = asked(&server).await;
    for (field, value) in [
        ("sequence", json!(i64::MAX)),
        ("sequence", json!(1_000_000)),
        ("sequence", json!(u64::MAX)),
    ] {
        let mut place = place(&request);
        place[field] = value.clone();
        let answer = report(&server, &task, "deliver-cancellation", place)
            .send()
            .await;
        assert_eq!(answer.status, 422, "{field} {value}: {}", answer.body);
    }
    report(&server, &task, "deliver-cancellation", place(&request))
        .accepted(200)
        .await;
}
