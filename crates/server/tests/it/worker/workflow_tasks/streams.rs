//! Message streams on the wire: appended once, read by cursor, kept across runs.

use serde_json::{Value, json};

use crate::support::{
    Call, Server, complete, decided, history, payload_of, report, staffed, stop, types,
};

fn append<'a>(server: &'a Server, id: &str, input: Value) -> Call<'a> {
    let body = json!({"message_id": id, "input": input});
    server.post("/workflows/wf/message-streams/orders/messages", &body)
}

async fn stream(server: &Server) -> Value {
    let path = "/workflows/wf/message-streams/orders";
    server.get(path).accepted(200).await["stream"].clone()
}

#[tokio::test]
async fn a_message_is_accepted_once() {
    let server = staffed().await;
    server.start("wf").await;
    let first = append(&server, "a", json!([1])).accepted(202).await;
    assert_eq!(
        (&first["accepted"], &first["position"], &first["duplicate"]),
        (&json!(true), &json!(1), &json!(false))
    );
    let again = append(&server, "a", json!([1])).accepted(200).await;
    assert_eq!(
        (&again["position"], &again["duplicate"]),
        (&json!(1), &json!(true))
    );
    let conflict = append(&server, "a", json!([2]))
        .refused(409, "message_identity_conflict")
        .await;
    assert_eq!(
        (&conflict["accepted"], &conflict["position"]),
        (&json!(false), &json!(1))
    );
    let shown = stream(&server).await;
    assert_eq!(
        (
            &shown["last_position"],
            &shown["cursor_position"],
            &shown["pending_count"]
        ),
        (&json!(1), &json!(0), &json!(1))
    );
    assert_eq!(
        (&shown["duplicate_count"], &shown["last_input_outcome"]),
        (&json!(1), &json!("conflict"))
    );
    let listed = server
        .get("/workflows/wf/message-streams")
        .accepted(200)
        .await;
    assert_eq!(listed["count"], 1);
    assert_eq!(listed["streams"][0], shown);
}

#[tokio::test]
async fn a_cursor_moves_forward_within_the_stream() {
    let server = staffed().await;
    server.start("wf").await;
    for id in ["a", "b", "c"] {
        append(&server, id, json!([])).accepted(202).await;
    }
    let task = server.worker("w").workflow_task().await;
    let read = |position: u64| json!([{"stream_name": "orders", "through_position": position}]);
    let commands = json!([{"type": "start_timer", "delay_seconds": 9}]);
    report(
        &server,
        &task,
        "complete",
        json!({"commands": commands, "message_stream_cursors": read(2)}),
    )
    .accepted(200)
    .await;
    let events = history(&server, &task).await;
    let moved = payload_of(&events, "MessageCursorAdvanced");
    assert_eq!(
        (&moved["previous_position"], &moved["new_position"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(stream(&server).await["pending_count"], 1);
    // Backwards and beyond the end are not errors: the cursor stays between what was read and what is there.
    server.advance(9).await;
    let task = server.worker("w").workflow_task().await;
    report(
        &server,
        &task,
        "complete",
        json!({"commands": [{"type": "complete_workflow"}], "message_stream_cursors": [
            {"stream_name": "orders", "through_position": 1},
            {"stream_name": "orders", "through_position": 99},
            {"stream_name": "unknown", "through_position": 1},
        ]}),
    )
    .accepted(200)
    .await;
    let shown = stream(&server).await;
    assert_eq!(
        (&shown["cursor_position"], &shown["last_position"]),
        (&json!(3), &json!(3))
    );
}

#[tokio::test]
async fn a_malformed_cursor_changes_nothing() {
    let server = staffed().await;
    server.start("wf").await;
    append(&server, "a", json!([])).accepted(202).await;
    let task = server.worker("w").workflow_task().await;
    for cursors in [
        json!("orders"),
        json!([{"stream_name": "orders"}]),
        json!([{"stream_name": 1, "through_position": 1}]),
        json!([{"stream_name": "orders", "through_position": -1}]),
        json!([{"stream_name": "orders", "through_position": "1"}]),
    ] {
        let fields = report(
            &server,
            &task,
            "complete",
            json!({"commands": [{"type": "complete_workflow"}], "message_stream_cursors": cursors}),
        )
        .invalid()
        .await;
        assert_eq!(fields, ["message_stream_cursors"], "{cursors}");
    }
    assert_eq!(stream(&server).await["cursor_position"], 0);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn malformed_messages_are_refused() {
    let server = staffed().await;
    server.start("wf").await;
    let path = "/workflows/wf/message-streams/orders/messages";
    for (body, field) in [
        (json!({}), "message_id"),
        (json!({"message_id": ""}), "message_id"),
        (json!({"message_id": 7}), "message_id"),
        (json!({"message_id": "x".repeat(192)}), "message_id"),
        (
            json!({"message_id": "a", "input": {"codec": "avro"}}),
            "input",
        ),
    ] {
        let fields = server.post(path, &body).invalid().await;
        assert!(
            fields.iter().any(|name| name.starts_with(field)),
            "{body}: {fields:?}"
        );
    }
    let fields = server
        .post(
            "/workflows/wf/message-streams/a%20b/messages",
            &json!({"message_id": "a"}),
        )
        .invalid()
        .await;
    assert_eq!(fields, ["stream_name"]);
    server
        .get("/workflows/wf/message-streams/orders")
        .refused(404, "stream_not_found")
        .await;
    server
        .post(
            "/workflows/unknown/message-streams/orders/messages",
            &json!({"message_id": "a"}),
        )
        .refused(404, "instance_not_found")
        .await;
}

#[tokio::test]
async fn a_closed_run_refuses_messages_and_a_continued_one_keeps_them() {
    let server = staffed().await;
    server.start("wf").await;
    for id in ["a", "b"] {
        append(&server, id, json!([])).accepted(202).await;
    }
    let task = server.worker("w").workflow_task().await;
    report(
        &server,
        &task,
        "complete",
        json!({"commands": [{"type": "continue_as_new"}],
            "message_stream_cursors": [{"stream_name": "orders", "through_position": 1}]}),
    )
    .accepted(200)
    .await;
    // Known by its id in the new run too.
    let again = append(&server, "a", json!([])).accepted(200).await;
    assert_eq!(
        (&again["position"], &again["duplicate"]),
        (&json!(1), &json!(true))
    );
    let shown = stream(&server).await;
    assert_eq!(
        (&shown["last_position"], &shown["cursor_position"]),
        (&json!(2), &json!(1))
    );
    let next = server.worker("w").workflow_task().await;
    let events = history(&server, &next).await;
    assert!(
        types(&events).contains(&"SignalReceived"),
        "{:?}",
        types(&events)
    );
    stop(&server, "terminate").await;
    append(&server, "c", json!([]))
        .refused(409, "run_not_active")
        .await;
}

#[tokio::test]
async fn a_message_wakes_a_workflow_that_waits() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "open_signal_wait", "signal_name": "__durable_workflow_message_stream"}]),
    )
    .await;
    append(&server, "a", json!(["hello"])).accepted(202).await;
    assert_eq!(stream(&server).await["last_position"], 1);
}
