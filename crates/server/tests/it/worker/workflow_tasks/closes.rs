//! The events of the end of a run, for every way in which it can end.

use serde_json::json;

use crate::support::{
    complete, decided, envelope, history, merge, payload_of, signal, staffed, stop, types,
};
use crate::worker::workflow_tasks::events::{checked_events, recorded, take_id};

#[tokio::test]
async fn a_completed_run_records_its_result() {
    for (result, output) in [
        (
            json!({"result": envelope(r#""done""#)}),
            envelope(r#""done""#),
        ),
        (json!({}), envelope("null")),
    ] {
        let mut command = json!({"type": "complete_workflow"});
        merge(&mut command, result);
        assert_eq!(
            recorded(json!([command]), "WorkflowCompleted").await,
            json!({"output": output, "payload_codec": "avro"})
        );
    }
}

#[tokio::test]
async fn a_failed_run_records_its_failure() {
    let server = staffed().await;
    let exception = json!({"type": "CardDeclined", "properties": {"code": 7}});
    let command = json!({
        "type": "fail_workflow", "message": "declined", "exception_type": "CardDeclined", "exception_class": "shop.CardDeclined",
        "exception": exception, "non_retryable": true,
    });
    let task = decided(&server, json!([command])).await;
    let events = checked_events(&server, &task).await;
    let mut failed = payload_of(&events, "WorkflowFailed").clone();
    take_id(&mut failed, "failure_id");
    assert_eq!(
        failed,
        json!({
            "source_kind": "workflow_run", "source_id": task["run_id"], "failure_category": "application", "non_retryable": true,
            "exception_type": "CardDeclined", "exception_class": "shop.CardDeclined", "message": "declined",
            "exception": {"type": "CardDeclined", "class": "shop.CardDeclined", "message": "declined", "properties": {"code": 7}},
        })
    );
}

#[tokio::test]
async fn a_run_that_continues_as_new_starts_the_next_run() {
    for (fields, arguments, workflow_type) in [
        (json!({}), envelope(r#"["first"]"#), "greet"),
        (
            json!({"arguments": envelope("[2]"), "workflow_type": "part"}),
            envelope("[2]"),
            "part",
        ),
    ] {
        let server = staffed().await;
        server
            .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "input": ["first"]}))
            .await;
        let task = server.worker("w").workflow_task().await;
        let mut command = json!({"type": "continue_as_new"});
        merge(&mut command, fields);
        complete(
            &server,
            &task,
            json!([{"type": "record_side_effect", "result": envelope("1")}, command]),
        )
        .accepted(200)
        .await;
        let events = checked_events(&server, &task).await;
        let mut continued = payload_of(&events, "WorkflowContinuedAsNew").clone();
        let next_run = take_id(&mut continued, "continued_to_run_id");
        take_id(&mut continued, "workflow_link_id");
        assert_eq!(
            continued,
            json!({"sequence": 2, "continued_to_run_number": 2, "closed_reason": "continued"})
        );
        let next = server.worker("w").workflow_task().await;
        assert_eq!(
            (&next["run_id"], &next["workflow_id"]),
            (&json!(next_run), &json!("wf"))
        );
        assert_eq!(
            (&next["arguments"], &next["workflow_type"]),
            (&arguments, &json!(workflow_type))
        );
        let events = checked_events(&server, &next).await;
        assert_eq!(types(&events), ["WorkflowStarted"]);
        assert_eq!(
            events[0]["payload"]["continued_from_run_id"],
            task["run_id"]
        );
        let runs = server.get("/workflows/wf/runs").accepted(200).await;
        assert_eq!(runs["runs"].as_array().map(Vec::len), Some(2));
    }
}

#[tokio::test]
async fn a_signal_that_arrives_while_a_run_continues_goes_to_the_new_one() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    signal(&server, "go", json!([1])).await;
    complete(&server, &task, json!([{"type": "continue_as_new"}]))
        .accepted(200)
        .await;
    assert!(!types(&history(&server, &task).await).contains(&"SignalReceived"));
    let next = server.worker("w").workflow_task().await;
    assert_eq!(
        types(&checked_events(&server, &next).await),
        ["WorkflowStarted", "SignalReceived"]
    );
}

#[tokio::test]
async fn a_stopped_run_closes_its_open_waits() {
    for (verb, requested, closed, status) in [
        (
            "cancel",
            "CancelRequested",
            "WorkflowCancelled",
            "cancelled",
        ),
        (
            "terminate",
            "TerminateRequested",
            "WorkflowTerminated",
            "terminated",
        ),
    ] {
        let server = staffed().await;
        let task = decided(
            &server,
            json!([
                {"type": "start_timer", "delay_seconds": 60},
                {"type": "schedule_activity", "activity_type": "say"},
                {"type": "schedule_activity", "activity_type": "say"},
                {"type": "open_condition_wait", "timeout_seconds": 60},
            ]),
        )
        .await;
        let activity = server.worker("w").activity_task().await;
        stop(&server, verb).await;
        let events = checked_events(&server, &task).await;
        assert_eq!(
            types(&events)[8..],
            [
                requested,
                "ActivityCancelled",
                "ActivityCancelled",
                "TimerCancelled",
                "TimerCancelled",
                closed
            ]
        );
        let mut asked = events[8]["payload"].clone();
        let command = take_id(&mut asked, "workflow_command_id");
        assert_eq!(
            asked,
            json!({"workflow_instance_id": "wf", "workflow_run_id": task["run_id"], "command_type": verb, "reason": "enough"})
        );
        let running = &events[9]["payload"];
        assert_eq!(
            (&running["sequence"], &running["activity_attempt_id"]),
            (&json!(2), &activity["activity_attempt_id"])
        );
        assert_eq!(
            (&running["cancelled_at"], &running["workflow_command_id"]),
            (&json!("2026-01-01T00:00:00.000000Z"), &json!(command))
        );
        assert_eq!(events[10]["payload"]["sequence"], 3);
        let mut ended = events[13]["payload"].clone();
        take_id(&mut ended, "failure_id");
        ended
            .as_object_mut()
            .expect("a payload")
            .remove("exception_class");
        let message = ended
            .as_object_mut()
            .and_then(|ended| ended.remove("message"));
        assert!(
            message.is_some_and(|message| message
                .as_str()
                .is_some_and(|text| text.contains("enough")))
        );
        assert_eq!(
            ended,
            json!({
                "workflow_command_id": command, "workflow_instance_id": "wf", "workflow_run_id": task["run_id"],
                "failure_category": status, "closed_reason": status, "reason": "enough",
            })
        );
    }
}

#[tokio::test]
async fn a_run_at_its_deadline_times_out() {
    for (field, kind) in [
        ("run_timeout_seconds", "run_timeout"),
        ("execution_timeout_seconds", "execution_timeout"),
    ] {
        let server = staffed().await;
        server
            .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", field: 10}))
            .await;
        let task = server.worker("w").workflow_task().await;
        complete(&server, &task, json!([{"type": "schedule_activity", "activity_type": "say"}, {"type": "start_timer", "delay_seconds": 60}])).accepted(200).await;
        server.advance(10).await;
        let events = checked_events(&server, &task).await;
        assert_eq!(
            types(&events)[4..],
            ["ActivityCancelled", "TimerCancelled", "WorkflowTimedOut"]
        );
        let ended = &events[6]["payload"];
        assert_eq!(
            (&ended["timeout_kind"], &ended["failure_category"]),
            (&json!(kind), &json!("timeout"))
        );
        assert!(
            ended["failure_id"].is_string() && ended["message"].is_string(),
            "{ended}"
        );
    }
}
