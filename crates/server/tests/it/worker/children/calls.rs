//! Child workflows on the wire: started with their parent's commit, reported back, limited, refused.

use serde_json::{Value, json};

use crate::support::{
    Server, complete, envelope, every_type, expect_no_task, history, merge, payload_of, staffed,
    stop, types,
};

fn child(fields: Value) -> Value {
    let mut command = json!({"type": "start_child_workflow", "workflow_type": "child"});
    merge(&mut command, fields);
    command
}

/// Starts workflow `wf` with one child. Returns the parent's first task and the child's leased task.
async fn with_child(server: &Server, fields: Value) -> (Value, Value) {
    server.start("wf").await;
    let parent = server.worker("w").workflow_task().await;
    complete(server, &parent, json!([child(fields)]))
        .accepted(200)
        .await;
    server.advance(0).await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["workflow_type"], "child");
    (parent, task)
}

/// Waits until messages between runs are delivered.
async fn delivered(server: &Server) {
    server.advance(1).await;
}

#[tokio::test]
async fn a_child_begins_with_its_parents_commit_and_answers_it() {
    let server = staffed().await;
    let (parent, task) = with_child(&server, json!({"arguments": envelope("[1]")})).await;
    let events = history(&server, &parent).await;
    assert_eq!(
        types(&events)[2..],
        ["ChildWorkflowScheduled", "ChildRunStarted"]
    );
    let started = payload_of(&events, "ChildRunStarted");
    assert_eq!(started["child_workflow_instance_id"], task["workflow_id"]);
    assert_eq!(started["child_workflow_run_id"], task["run_id"]);
    complete(
        &server,
        &task,
        json!([{"type": "complete_workflow", "result": envelope("2")}]),
    )
    .accepted(200)
    .await;
    delivered(&server).await;
    let next = server.worker("w").workflow_task().await;
    assert_eq!(next["workflow_id"], "wf");
    let events = history(&server, &parent).await;
    assert_eq!(
        payload_of(&events, "ChildRunCompleted")["result"],
        envelope("2")
    );
}

#[tokio::test]
async fn each_end_of_a_child_is_its_own_event() {
    for (verb, event) in [
        ("cancel", "ChildRunCancelled"),
        ("terminate", "ChildRunTerminated"),
        ("fail", "ChildRunFailed"),
    ] {
        let server = staffed().await;
        let (parent, task) = with_child(&server, json!({})).await;
        if verb == "fail" {
            complete(
                &server,
                &task,
                json!([{"type": "fail_workflow", "message": "no"}]),
            )
            .accepted(200)
            .await;
        } else {
            let id = task["workflow_id"].as_str().expect("an id");
            server
                .post(&format!("/workflows/{id}/{verb}"), &json!({}))
                .accepted(200)
                .await;
        }
        delivered(&server).await;
        let events = history(&server, &parent).await;
        payload_of(&events, event);
        assert_eq!(
            server.worker("w").workflow_task().await["workflow_id"],
            "wf"
        );
    }
}

#[tokio::test]
async fn wrong_options_are_refused_and_start_nothing() {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    for (fields, field) in [
        (json!({"workflow_type": ""}), "workflow_type"),
        (
            json!({"parent_close_policy": "forget"}),
            "parent_close_policy",
        ),
        (json!({"run_timeout_seconds": 0}), "run_timeout_seconds"),
        (
            json!({"execution_timeout_seconds": "long"}),
            "execution_timeout_seconds",
        ),
        (json!({"retry_policy": {"max_attempts": 0}}), "retry_policy"),
        (json!({"arguments": {"codec": "avro"}}), "arguments"),
        (
            json!({"run_timeout_seconds": 20, "execution_timeout_seconds": 10}),
            "run_timeout_seconds",
        ),
    ] {
        let answer = complete(&server, &task, json!([child(fields.clone())]))
            .send()
            .await;
        assert_eq!(answer.status, 422, "{fields}: {}", answer.body);
        let errors = answer.body["errors"].as_object().expect("errors by field");
        let at = format!("commands.0.{field}");
        assert!(
            errors.keys().any(|name| name.starts_with(&at)),
            "{fields}: {errors:?}"
        );
    }
    assert_eq!(history(&server, &task).await.len(), 2);
    let listed = server.get("/workflows").accepted(200).await;
    assert_eq!(listed["workflows"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn too_many_children_fail_the_run_and_start_none() {
    let server = Server::configured(|config| {
        config.limits.pending_children = 2;
    })
    .await;
    server.register("w", every_type()).await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    let three = json!([child(json!({})), child(json!({})), child(json!({}))]);
    let answer = complete(&server, &task, three).accepted(200).await;
    assert_eq!(answer["reason"], "structural_limit_exceeded");
    let events = history(&server, &task).await;
    assert_eq!(types(&events).last(), Some(&"WorkflowFailed"));
    let failed = payload_of(&events, "WorkflowFailed");
    assert_eq!(failed["structural_limit_kind"], "pending_child_count");
}

#[tokio::test]
async fn a_close_policy_reaches_the_child() {
    for (policy, status) in [
        ("terminate", "terminated"),
        ("request_cancel", "cancelled"),
        ("abandon", "pending"),
    ] {
        let server = staffed().await;
        server.start("wf").await;
        let parent = server.worker("w").workflow_task().await;
        complete(
            &server,
            &parent,
            json!([child(json!({"parent_close_policy": policy}))]),
        )
        .accepted(200)
        .await;
        let events = history(&server, &parent).await;
        let id = payload_of(&events, "ChildRunStarted")["child_workflow_instance_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        stop(&server, "terminate").await;
        delivered(&server).await;
        let described = server.get(&format!("/workflows/{id}")).accepted(200).await;
        assert_eq!(described["status"], status, "{policy}");
        let applied = types(&history(&server, &parent).await).contains(&"ParentClosePolicyApplied");
        assert_eq!(applied, policy != "abandon", "{policy}");
    }
}

#[tokio::test]
async fn a_failed_child_is_tried_again_after_its_back_off() {
    let server = staffed().await;
    let policy = json!({"max_attempts": 3, "backoff_seconds": [10, 20]});
    let (parent, mut task) = with_child(&server, json!({"retry_policy": policy})).await;
    for wait in [10, 20] {
        complete(
            &server,
            &task,
            json!([{"type": "fail_workflow", "message": "no"}]),
        )
        .accepted(200)
        .await;
        server.advance(wait - 1).await;
        expect_no_task(&server, "workflow").await;
        server.advance(1).await;
        let next = server.worker("w").workflow_task().await;
        assert_eq!(next["workflow_id"], task["workflow_id"]);
        assert_ne!(next["run_id"], task["run_id"]);
        task = next;
    }
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    delivered(&server).await;
    let events = history(&server, &parent).await;
    let started: Vec<&Value> = events
        .iter()
        .filter(|event| event["event_type"] == "ChildRunStarted")
        .map(|event| &event["payload"]["retry_backoff_seconds"])
        .collect();
    assert_eq!(started, [&json!(null), &json!(10), &json!(20)]);
    payload_of(&events, "ChildRunCompleted");
    assert!(!types(&events).contains(&"ChildRunFailed"));
}

#[tokio::test]
async fn a_child_run_that_times_out_fails_in_its_parent() {
    let server = staffed().await;
    let options = json!({"run_timeout_seconds": 30, "execution_timeout_seconds": 50});
    let (parent, child) = with_child(&server, options).await;
    server.advance(30).await;
    delivered(&server).await;
    let closed = history(&server, &child).await;
    assert_eq!(types(&closed).last(), Some(&"WorkflowTimedOut"));
    let events = history(&server, &parent).await;
    let failed = payload_of(&events, "ChildRunFailed");
    assert_eq!(failed["failure_category"], "timeout");
    let id = child["workflow_id"].as_str().expect("an id");
    let described = server.get(&format!("/workflows/{id}")).accepted(200).await;
    assert_eq!(described["payload_codec"], "avro");
}

#[tokio::test]
async fn retries_of_a_child_end_with_its_execution_timeout() {
    let server = staffed().await;
    let options = json!({
        "execution_timeout_seconds": 15,
        "retry_policy": {"max_attempts": 9, "backoff_seconds": [10]},
    });
    let (parent, first) = with_child(&server, options).await;
    complete(
        &server,
        &first,
        json!([{"type": "fail_workflow", "message": "no"}]),
    )
    .accepted(200)
    .await;
    server.advance(10).await;
    server.worker("w").workflow_task().await;
    server.advance(5).await;
    delivered(&server).await;
    let events = history(&server, &parent).await;
    assert_eq!(
        payload_of(&events, "ChildRunFailed")["failure_category"],
        "timeout"
    );
    assert_eq!(
        types(&events)
            .iter()
            .filter(|name| **name == "ChildRunStarted")
            .count(),
        2
    );
}
