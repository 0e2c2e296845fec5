//! Updates as workers see them: why their task exists, what a completion writes, and the order of updates and wakes.

use serde_json::{Value, json};

use crate::support::{
    Call, Server, complete, decided, envelope, expect_no_task, merge, payload_of, signal, staffed,
    types,
};
use crate::worker::workflow_tasks::events::{checked_events, take_id};
use crate::worker::workflow_tasks::resume_context::{
    expect_context, expect_context_also_after_redelivery,
};

const TIMER: &str = r#"[{"type": "start_timer", "delay_seconds": 900}]"#;

fn commands(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn update<'a>(server: &'a Server, name: &str, fields: Value) -> Call<'a> {
    let mut body = json!({"input": [5]});
    merge(&mut body, fields);
    server.post(&format!("/workflows/wf/update/{name}"), &body)
}

/// Sends an update and returns its receipt.
async fn admitted(server: &Server, name: &str) -> Value {
    update(server, name, json!({})).accepted(202).await
}

fn update_context(receipt: &Value) -> Value {
    let id = receipt["update_id"].as_str().expect("an id");
    json!({
        "workflow_wait_kind": "update",
        "open_wait_id": format!("update:{id}"),
        "resume_source_kind": "workflow_update",
        "resume_source_id": id,
        "workflow_update_id": id,
        "update_name": receipt["update_name"],
        "workflow_command_id": receipt["command_id"],
    })
}

/// Returns the keys that every event of an update repeats.
fn identity(receipt: &Value) -> Value {
    json!({
        "workflow_command_id": receipt["command_id"], "update_id": receipt["update_id"],
        "workflow_instance_id": "wf", "workflow_run_id": receipt["run_id"], "update_name": receipt["update_name"],
    })
}

fn with(mut payload: Value, fields: Value) -> Value {
    merge(&mut payload, fields);
    payload
}

#[tokio::test]
async fn an_update_task_names_its_update() {
    let server = staffed().await;
    let task = decided(&server, commands(TIMER)).await;
    let receipt = admitted(&server, "deposit").await;
    expect_context_also_after_redelivery(&server, &update_context(&receipt)).await;
    let events = checked_events(&server, &task).await;
    assert_eq!(
        payload_of(&events, "UpdateAccepted"),
        &with(
            identity(&receipt),
            json!({"arguments": envelope("[5]"), "payload_codec": "avro", "ordering_state": "ready"})
        )
    );
}

#[tokio::test]
async fn after_an_update_the_workflow_looks_at_its_newest_condition_again() {
    for keyed in [true, false] {
        let server = staffed().await;
        let mut wait = json!({"type": "open_condition_wait"});
        if keyed {
            wait["condition_key"] = json!("funded");
            wait["condition_definition_fingerprint"] = json!("sha256:2");
        }
        let task = decided(&server, json!([wait])).await;
        let receipt = admitted(&server, "deposit").await;
        let woken = server.worker("w").workflow_task().await;
        let done = json!([{"type": "complete_update", "update_id": receipt["update_id"]}]);
        complete(&server, &woken, done).accepted(200).await;
        let events = checked_events(&server, &task).await;
        let wait = &payload_of(&events, "ConditionWaitOpened")["condition_wait_id"];
        let mut expected = json!({
            "workflow_wait_kind": "condition",
            "open_wait_id": wait,
            "resume_source_kind": "workflow_update",
            "resume_source_id": receipt["update_id"],
            "condition_wait_id": wait,
        });
        if keyed {
            expected["condition_key"] = json!("funded");
            expected["condition_definition_fingerprint"] = json!("sha256:2");
        }
        expect_context_also_after_redelivery(&server, &expected).await;
    }
}

#[tokio::test]
async fn without_an_open_condition_nothing_follows_an_update() {
    let server = staffed().await;
    decided(&server, commands(TIMER)).await;
    let receipt = admitted(&server, "deposit").await;
    let woken = server.worker("w").workflow_task().await;
    let done = json!([{"type": "complete_update", "update_id": receipt["update_id"]}]);
    complete(&server, &woken, done).accepted(200).await;
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_completed_update_is_recorded() {
    for (fields, result) in [
        (json!({"result": envelope(r#""ok""#)}), r#""ok""#),
        (json!({}), "null"),
    ] {
        let server = staffed().await;
        let task = decided(&server, json!([{"type": "open_condition_wait"}])).await;
        let caller = update(&server, "deposit", json!({"wait_for": "completed"})).accepted(200);
        let worker = async {
            // The caller sends first; its update is there once it waits.
            let woken = server.worker("w").workflow_task().await;
            let done = with(
                json!({"type": "complete_update", "update_id": woken["workflow_update_id"]}),
                fields,
            );
            complete(&server, &woken, json!([done])).accepted(200).await;
        };
        let (receipt, ()) = tokio::join!(caller, worker);
        assert_eq!(
            (&receipt["update_status"], &receipt["outcome"]),
            (&json!("completed"), &json!("update_completed"))
        );
        assert_eq!(receipt["result_envelope"], envelope(result));
        assert_eq!(receipt["result"], commands(result));
        let events = checked_events(&server, &task).await;
        assert_eq!(
            types(&events)[3..],
            ["UpdateAccepted", "UpdateApplied", "UpdateCompleted"]
        );
        assert_eq!(
            events[4]["payload"],
            with(
                identity(&receipt),
                json!({"arguments": envelope("[5]"), "payload_codec": "avro", "sequence": 1})
            )
        );
        assert_eq!(
            events[5]["payload"],
            with(
                identity(&receipt),
                json!({"result": envelope(result), "payload_codec": "avro", "sequence": 1})
            )
        );
    }
}

#[tokio::test]
async fn a_failed_update_leaves_the_run_open() {
    for (fields, non_retryable) in [
        (
            json!({"exception_type": "Overdrawn", "exception_class": "bank.Overdrawn", "non_retryable": true}),
            true,
        ),
        (json!({}), false),
    ] {
        let server = staffed().await;
        let task = decided(&server, commands(TIMER)).await;
        let caller = update(&server, "deposit", json!({"wait_for": "completed"})).accepted(422);
        let worker = async {
            let woken = server.worker("w").workflow_task().await;
            let failed = with(
                json!({"type": "fail_update", "update_id": woken["workflow_update_id"], "message": "no money"}),
                fields.clone(),
            );
            complete(&server, &woken, json!([failed]))
                .accepted(200)
                .await;
        };
        let (receipt, ()) = tokio::join!(caller, worker);
        assert_eq!(
            (&receipt["update_status"], &receipt["outcome"]),
            (&json!("failed"), &json!("update_failed"))
        );
        assert_eq!(receipt["failure_message"], "no money");
        let events = checked_events(&server, &task).await;
        assert_eq!(types(&events)[3..], ["UpdateAccepted", "UpdateCompleted"]);
        let mut completed = events[4]["payload"].clone();
        let failure = take_id(&mut completed, "failure_id");
        assert_eq!(receipt["failure_id"], json!(failure));
        let mut expected = with(
            identity(&receipt),
            json!({
                "payload_codec": "avro", "failure_category": "application", "non_retryable": non_retryable,
                "message": "no money", "exception": {"message": "no money"},
            }),
        );
        if non_retryable {
            expected["exception_type"] = json!("Overdrawn");
            expected["exception_class"] = json!("bank.Overdrawn");
            expected["exception"] =
                json!({"type": "Overdrawn", "class": "bank.Overdrawn", "message": "no money"});
        }
        assert_eq!(completed, expected);
        let run = server.get("/workflows/wf").accepted(200).await;
        assert_eq!(run["status_bucket"], "running");
        expect_no_task(&server, "workflow").await;
    }
}

#[tokio::test]
async fn only_the_update_of_the_task_can_be_closed_and_what_is_needed_is_named() {
    let server = staffed().await;
    let task = decided(&server, commands(TIMER)).await;
    let first = admitted(&server, "deposit").await;
    let second = admitted(&server, "deposit").await;
    let woken = server.worker("w").workflow_task().await;
    assert_eq!(woken["workflow_update_id"], first["update_id"]);
    let before = checked_events(&server, &task).await;
    let id = &first["update_id"];
    for wrong in [
        json!([{"type": "complete_update"}]),
        json!([{"type": "complete_update", "update_id": ""}]),
        json!([{"type": "complete_update", "update_id": id, "result": "plain"}]),
        json!([{"type": "fail_update", "update_id": id}]),
        json!([{"type": "fail_update", "message": "no"}]),
        json!([{"type": "complete_update", "update_id": "none"}]),
        json!([{"type": "complete_update", "update_id": second["update_id"]}]),
        json!([{"type": "complete_update", "update_id": id}, {"type": "complete_update", "update_id": id}]),
    ] {
        let answer = complete(&server, &woken, wrong.clone()).send().await;
        assert_eq!(answer.status, 422, "{wrong}: {}", answer.body);
    }
    assert_eq!(checked_events(&server, &task).await, before);
    let done = json!([{"type": "complete_update", "update_id": id}]);
    complete(&server, &woken, done).accepted(200).await;
    let next = server.worker("w").workflow_task().await;
    expect_context(&next, &update_context(&second));
}

#[tokio::test]
async fn an_open_update_is_closed_with_its_run() {
    let server = staffed().await;
    let task = decided(&server, commands(TIMER)).await;
    let receipt = admitted(&server, "deposit").await;
    crate::support::stop(&server, "terminate").await;
    let events = checked_events(&server, &task).await;
    assert_eq!(types(&events).last(), Some(&"UpdateCompleted"));
    let mut completed = payload_of(&events, "UpdateCompleted").clone();
    take_id(&mut completed, "failure_id");
    let message = "The run closed (terminated) before the update was over.";
    assert_eq!(
        completed,
        with(
            identity(&receipt),
            json!({
                "payload_codec": "avro", "failure_category": "terminated", "non_retryable": false, "message": message,
                "exception": {"message": message}, "terminal_reason": "terminated",
            })
        )
    );
}

/// The older of an update and a wake gets the next task; a task never has both.
#[tokio::test]
async fn updates_and_wakes_take_turns_by_age() {
    for update_first in [true, false] {
        let server = staffed().await;
        decided(
            &server,
            json!([{"type": "open_signal_wait", "signal_name": "go"}]),
        )
        .await;
        let receipt = if update_first {
            let receipt = admitted(&server, "deposit").await;
            signal(&server, "go", json!([1])).await;
            receipt
        } else {
            signal(&server, "go", json!([1])).await;
            admitted(&server, "deposit").await
        };
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let task = server.worker("w").workflow_task().await;
            kinds.push(task["workflow_wait_kind"].clone());
            let answer = if task["workflow_update_id"].is_null() {
                commands(TIMER)
            } else {
                json!([{"type": "complete_update", "update_id": receipt["update_id"]}])
            };
            complete(&server, &task, answer).accepted(200).await;
        }
        let expected = if update_first {
            ["update", "signal"]
        } else {
            ["signal", "update"]
        };
        assert_eq!(kinds, expected);
        expect_no_task(&server, "workflow").await;
    }
}

/// If the first task had an update, both SDKs would run only its handler.
#[tokio::test]
async fn the_first_task_is_never_an_update_task() {
    let server = staffed().await;
    server.start("wf").await;
    let receipt = admitted(&server, "deposit").await;
    let first = server.worker("w").workflow_task().await;
    expect_context(&first, &json!({}));
    complete(&server, &first, commands(TIMER))
        .accepted(200)
        .await;
    let next = server.worker("w").workflow_task().await;
    expect_context(&next, &update_context(&receipt));
}
