//! The largest numbers a caller can write, wherever a number is taken: answered or refused, never a failure of the server.

use serde_json::{Value, json};

use crate::support::{Server, complete, running_activity, staffed};

const EXTREMES: [u64; 4] = [
    u64::MAX,
    i64::MAX as u64,
    i64::MAX as u64 - 1,
    u32::MAX as u64,
];

/// Commands in which `number` is replaced by the tested number.
fn commands() -> Vec<Value> {
    let policy = |key: &str| json!({"type": "schedule_activity", "activity_type": "a", "retry_policy": {key: "number"}});
    let activity =
        |key: &str| json!({"type": "schedule_activity", "activity_type": "a", key: "number"});
    let member = |base: Value, size: Value| {
        json!({"type": "cancel_selection_operation", "selection_group_id": "g:1:2", "member_key": "k", "member_index": 0,
            "member_base_sequence": base, "member_size": size, "operation_kind": "timer", "operation_identity": "t"})
    };
    let group = json!({"parallel_group_id": "parallel-timers:number:1", "parallel_group_kind": "timer",
        "parallel_group_base_sequence": "number", "parallel_group_size": 1, "parallel_group_index": 0});
    let mut timer =
        json!({"type": "start_timer", "delay_seconds": 1, "parallel_group_path": [group]});
    crate::support::merge(&mut timer, group.clone());
    vec![
        json!({"type": "start_timer", "delay_seconds": "number"}),
        timer,
        policy("max_attempts"),
        policy("backoff_seconds"),
        activity("start_to_close_timeout"),
        activity("schedule_to_start_timeout"),
        activity("schedule_to_close_timeout"),
        activity("heartbeat_timeout"),
        json!({"type": "open_condition_wait", "condition_key": "k", "timeout_seconds": "number"}),
        json!({"type": "open_signal_wait", "signal_name": "s", "timeout_seconds": "number"}),
        json!({"type": "start_child_workflow", "workflow_type": "c", "run_timeout_seconds": "number", "execution_timeout_seconds": "number"}),
        json!({"type": "record_version_marker", "change_id": "c", "version": 1, "min_supported": 1, "max_supported": "number"}),
        json!({"type": "fail_workflow", "message": "m", "failed_step_sequence": "number"}),
        member(json!("number"), json!("number")),
        member(json!("number"), json!(1)),
        member(json!(1), json!("number")),
    ]
}

fn with(template: &Value, number: u64) -> Value {
    let text = template.to_string();
    let text = text.replace("\"number\"", &number.to_string());
    let text = text.replace(":number:", &format!(":{number}:"));
    serde_json::from_str(&text).expect("still JSON")
}

#[tokio::test]
async fn no_number_in_a_command_is_too_large_for_the_server() {
    for template in commands() {
        for number in EXTREMES {
            let server = staffed().await;
            server.start("wf").await;
            let task = server.worker("w").workflow_task().await;
            let command = with(&template, number);
            let answer = complete(&server, &task, json!([command])).send().await;
            assert!(
                answer.status == 200 || answer.status == 422,
                "{command}: {} {}",
                answer.status,
                answer.body
            );
            // Whatever it was, the run can be read and time passes for it.
            server.advance(10).await;
            server.get("/workflows/wf").accepted(200).await;
        }
    }
}

#[tokio::test]
async fn no_number_in_a_request_is_too_large_for_the_server() {
    for number in EXTREMES {
        let server = staffed().await;
        let task = running_activity(&server, json!({})).await;
        let beat = format!(
            "/activity-tasks/{}/heartbeat",
            task["task_id"].as_str().expect("an id")
        );
        let slots = |id: &str| {
            json!({"worker_id": id, "task_queue": "default", "runtime": "python", "max_concurrent_workflow_tasks": number,
                "max_concurrent_activity_tasks": number, "max_concurrent_worker_sessions": number})
        };
        let calls = [
            server.worker_post("/register", &slots("x")),
            server.worker_post("/register", &slots("y")),
            server.worker_post("/register", &slots("z")),
            server.worker_post(
                &beat,
                &json!({"lease_owner": "w", "activity_attempt_id": task["activity_attempt_id"],
                "current": number, "total": number}),
            ),
            server.worker_post(
                "/workflow-tasks/poll",
                &json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 0,
                "history_page_size": number}),
            ),
            server.post(
                "/workflows",
                &json!({"workflow_id": "t", "workflow_type": "greet",
                "run_timeout_seconds": number, "execution_timeout_seconds": number}),
            ),
            server.post(
                "/workflows",
                &json!({"workflow_id": "p", "workflow_type": "greet", "priority": number,
                "fairness_weight": number}),
            ),
            server.post(
                "/workflows/wf/update/u",
                &json!({"wait_for": "accepted", "wait_timeout_seconds": number}),
            ),
            server.post(
                "/workflows/wf/request-cancellation",
                &json!({"cleanup_timeout_seconds": number}),
            ),
            server.get(&format!("/workflows?page_size={number}")),
            server.get(&format!("/workflows/wf/commands?page_size={number}")),
            server.get("/task-queues"),
            server.get("/task-queues/default"),
            server.get("/cluster/info"),
        ];
        for call in calls {
            let answer = call.send().await;
            assert!(
                !answer.status.is_server_error(),
                "{number}: {}",
                answer.body
            );
        }
    }
}

#[tokio::test]
async fn no_number_of_a_stream_is_too_large_for_the_server() {
    let server: Server = staffed().await;
    server.start("wf").await;
    let message = json!({"message_id": "m", "input": [1]});
    server
        .post("/workflows/wf/message-streams/s/messages", &message)
        .send()
        .await;
    let task = server.worker("w").workflow_task().await;
    let cursors = json!([{"stream_name": "s", "through_position": u64::MAX}]);
    let body = json!({"commands": [], "message_stream_cursors": cursors});
    let answer = crate::support::report(&server, &task, "complete", body)
        .send()
        .await;
    assert!(!answer.status.is_server_error(), "{}", answer.body);
    server
        .get("/workflows/wf/message-streams")
        .accepted(200)
        .await;
}
