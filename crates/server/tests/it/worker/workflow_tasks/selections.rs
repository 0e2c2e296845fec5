//! Durable selections on the wire: the member that settles first is recorded, members are given up once.

use serde_json::{Value, json};

use crate::support::{
    Server, activity_report, complete, history, merge, payload_of, staffed, types,
};

/// Returns member `index` of a selection of two calls.
fn member(index: u64, kind: &str, mut command: Value) -> Value {
    let entry = json!({
        "parallel_group_id": "select-calls:1:2",
        "parallel_group_kind": "mixed",
        "parallel_group_base_sequence": 1,
        "parallel_group_size": 2,
        "parallel_group_index": index,
        "parallel_group_mode": "select",
        "selection_member_key": format!("m{index}"),
        "selection_member_index": index,
        "selection_member_base_sequence": index + 1,
        "selection_member_size": 1,
        "selection_member_kind": kind,
    });
    merge(&mut command, entry.clone());
    command["parallel_group_path"] = json!([entry]);
    command
}

fn race() -> Value {
    json!([
        member(
            0,
            "activity",
            json!({"type": "schedule_activity", "activity_type": "say"})
        ),
        member(
            1,
            "timer",
            json!({"type": "start_timer", "delay_seconds": 60})
        ),
    ])
}

/// Starts `wf`, which selects between an activity and a timer, and returns its first task.
async fn racing() -> (Server, Value) {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    complete(&server, &task, race()).accepted(200).await;
    (server, task)
}

/// Returns the command that cancels the timer, with the ids of its events.
async fn give_up_timer(server: &Server, task: &Value) -> Value {
    let events = history(server, task).await;
    let timer = payload_of(&events, "TimerScheduled")["timer_id"].clone();
    json!({"type": "cancel_selection_operation", "selection_group_id": "select-calls:1:2", "member_key": "m1",
        "member_index": 1, "member_base_sequence": 2, "member_size": 1, "operation_kind": "timer",
        "operation_identity": timer})
}

#[tokio::test]
async fn the_first_member_to_finish_is_recorded_once() {
    let (server, task) = racing().await;
    let activity = server.worker("w").activity_task().await;
    activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    let events = history(&server, &task).await;
    let chosen = payload_of(&events, "SelectionResolved");
    assert_eq!(
        (
            &chosen["member_key"],
            &chosen["outcome"],
            &chosen["operation_kind"]
        ),
        (&json!("m0"), &json!("completed"), &json!("activity"))
    );
    let names = types(&events);
    let place = names
        .iter()
        .position(|name| *name == "SelectionResolved")
        .expect("chosen");
    assert_eq!(names[place - 1], "ActivityCompleted");
    assert_eq!(chosen["resolution_event_id"], events[place - 1]["id"]);
    // The loser goes on and settles without another choice.
    let next = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "start_timer", "delay_seconds": 3600}]);
    complete(&server, &next, commands).accepted(200).await;
    server.advance(60).await;
    let events = history(&server, &task).await;
    payload_of(&events, "SelectionResolved");
    let fired = payload_of(&events, "TimerFired");
    assert_eq!(fired["sequence"], 2);
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_id"],
        "wf"
    );
}

#[tokio::test]
async fn a_member_is_given_up_once() {
    let (server, task) = racing().await;
    let activity = server.worker("w").activity_task().await;
    activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    let next = server.worker("w").workflow_task().await;
    let give_up = give_up_timer(&server, &task).await;
    let commands = json!([give_up, give_up, {"type": "start_timer", "delay_seconds": 5}]);
    complete(&server, &next, commands).accepted(200).await;
    let events = history(&server, &task).await;
    let given_up = payload_of(&events, "SelectionOperationCancelled");
    assert_eq!(
        given_up["operation_identity"],
        give_up["operation_identity"]
    );
    payload_of(&events, "TimerCancelled");
    server.advance(60).await;
    let next = server.worker("w").workflow_task().await;
    // Sent again once it is settled: nothing to do.
    complete(
        &server,
        &next,
        json!([give_up, {"type": "complete_workflow"}]),
    )
    .accepted(200)
    .await;
    payload_of(
        &history(&server, &task).await,
        "SelectionOperationCancelled",
    );
}

#[tokio::test]
async fn malformed_members_are_refused_and_change_nothing() {
    let (server, task) = racing().await;
    let activity = server.worker("w").activity_task().await;
    activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    let next = server.worker("w").workflow_task().await;
    let good = give_up_timer(&server, &task).await;
    let before = history(&server, &task).await.len();
    for (field, value) in [
        ("member_key", json!(null)),
        ("member_key", json!(-1)),
        ("member_index", json!("one")),
        ("member_base_sequence", json!(0)),
        ("member_base_sequence", json!(99)),
        ("member_size", json!(0)),
        ("selection_group_id", json!("")),
        ("operation_kind", json!(7)),
        ("operation_identity", json!(null)),
    ] {
        let mut command = good.clone();
        command[field] = value.clone();
        let answer = complete(&server, &next, json!([command])).send().await;
        assert_eq!(answer.status, 422, "{field} {value}: {}", answer.body);
        let errors = answer.body["errors"].as_object().expect("errors by field");
        assert!(
            errors.contains_key(&format!("commands.0.{field}")),
            "{field} {value}: {errors:?}"
        );
    }
    assert_eq!(history(&server, &task).await.len(), before);
}
