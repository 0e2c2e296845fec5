//! A drained build gets nothing new, at once, and gets work again as soon as it is resumed.

use serde_json::{Value, json};

use crate::support::{Server, complete, envelope};

/// A server with workers `a1` and `b1` of builds `a` and `b`.
async fn with_two_builds() -> Server {
    Server::staffed([
        ("a1", json!({"build_id": "a"})),
        ("b1", json!({"build_id": "b"})),
    ])
    .await
}

async fn change(server: &Server, action: &str, build_id: &str) {
    let path = format!("/task-queues/default/build-ids/{action}");
    let body = json!({"build_id": build_id});
    server.post(&path, &body).accepted(200).await;
}

#[tokio::test]
async fn every_poll_of_a_drained_worker_is_refused_as_draining() {
    let server = with_two_builds().await;
    server.start("w").await;
    change(&server, "drain", "a").await;
    for kind in ["workflow", "activity", "query"] {
        let refused = server
            .worker("a1")
            .poll(kind, json!({}))
            .refused(409, "worker_draining")
            .await;
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["poll_status"], "draining");
        assert_eq!(refused["worker_status"], "draining");
        assert_eq!(refused["drain_intent"], "draining");
        assert_eq!(refused["worker_id"], "a1");
    }
    assert_eq!(
        server.worker("b1").workflow_task().await["workflow_task_attempt"],
        1
    );
}

#[tokio::test]
async fn a_waiting_poll_ends_when_its_build_is_drained() {
    let server = with_two_builds().await;
    let waiting = server
        .worker("a1")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let drain = async {
        server.polls_waiting(1).await;
        change(&server, "drain", "a").await;
    };
    let (answer, ()) = tokio::join!(waiting.refused(409, "worker_draining"), drain);
    assert_eq!(answer["poll_status"], "draining");
}

#[tokio::test]
async fn a_waiting_poll_of_another_build_goes_on_waiting() {
    let server = with_two_builds().await;
    let waiting = server
        .worker("b1")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let drain = async {
        server.polls_waiting(1).await;
        change(&server, "drain", "a").await;
        server.start("w").await;
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), drain);
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn a_drained_worker_finishes_what_it_holds() {
    let server = with_two_builds().await;
    server.start("w").await;
    let task = server.worker("a1").workflow_task().await;
    change(&server, "drain", "a").await;
    let done = json!([{"type": "complete_workflow", "result": envelope("1")}]);
    complete(&server, &task, done).accepted(200).await;
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["status"], "completed");
}

#[tokio::test]
async fn a_poll_sent_again_gets_its_task_although_the_build_drains_now() {
    let server = with_two_builds().await;
    server.start("w").await;
    let same = json!({"poll_request_id": "p-1"});
    let first = server
        .worker("a1")
        .poll("workflow", same.clone())
        .accepted(200)
        .await;
    change(&server, "drain", "a").await;
    let again = server
        .worker("a1")
        .poll("workflow", same)
        .accepted(200)
        .await;
    assert_eq!(again["task"]["task_id"], first["task"]["task_id"]);
    assert_eq!(again["task"]["workflow_task_attempt"], 1);
}

#[tokio::test]
async fn a_resumed_worker_gets_work_again_without_a_heartbeat() {
    let server = with_two_builds().await;
    change(&server, "drain", "a").await;
    change(&server, "drain", "a").await;
    change(&server, "resume", "a").await;
    change(&server, "resume", "a").await;
    server.start("w").await;
    assert_eq!(
        server.worker("a1").workflow_task().await["workflow_task_attempt"],
        1
    );
}

#[tokio::test]
async fn registering_again_does_not_end_a_drain() {
    let server = with_two_builds().await;
    change(&server, "drain", "a").await;
    let body =
        json!({"worker_id": "a2", "task_queue": "default", "runtime": "rust", "build_id": "a"});
    let registered = server.worker_post("/register", &body).accepted(201).await;
    assert_eq!(registered["status"], "draining");
    server
        .worker("a2")
        .poll("workflow", json!({}))
        .refused(409, "worker_draining")
        .await;
}

#[tokio::test]
async fn a_pinned_task_goes_to_its_build_only_and_is_not_counted_against_others() {
    let server = with_two_builds().await;
    server.register("any", json!({"build_id": "*"})).await;
    server.register("none", json!({})).await;
    let pinned = |id: &str| json!({"workflow_id": id, "workflow_type": "greet", "build_id": "b"});
    server.start_with(pinned("w")).await;
    for other in ["a1", "none"] {
        let answer = server
            .worker(other)
            .poll("workflow", json!({}))
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], "empty", "{other}");
    }
    let task = server.worker("b1").workflow_task().await;
    assert_eq!(task["workflow_task_attempt"], 1);
    assert_eq!(task["compatibility"], "b");
    let activity =
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")}]);
    complete(&server, &task, activity).accepted(200).await;
    let answer = server
        .worker("a1")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        answer["poll_status"], "empty",
        "its activities are pinned too"
    );
    let answer = server
        .worker("any")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn a_run_that_continues_keeps_its_pin() {
    let server = with_two_builds().await;
    change(&server, "promote", "a").await;
    server.start("w").await;
    change(&server, "promote", "b").await;
    let task = server.worker("a1").workflow_task().await;
    complete(&server, &task, json!([{"type": "continue_as_new"}]))
        .accepted(200)
        .await;
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["run_number"], 2);
    assert_eq!(shown["compatibility"], "a");
}
