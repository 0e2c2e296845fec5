//! A drained build gets nothing new, at once, and gets work again as soon as it is resumed (worker-protocol.md §4.3, §4.7).

use serde_json::{Value, json};

use crate::support::server::{Server, envelope};
use crate::support::worker::{complete, poll, workflow_task};

async fn staffed() -> Server {
    let server = Server::open().await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.register("b1", json!({"build_id": "b"})).await;
    server
}

async fn change(server: &Server, action: &str, build_id: &str) {
    let path = format!("/task-queues/default/build-ids/{action}");
    let body = json!({"build_id": build_id});
    server.post(&path, &body).accepted(200).await;
}

#[tokio::test]
async fn a_drained_worker_is_told_so_at_every_poll() {
    let server = staffed().await;
    server.start("w").await;
    change(&server, "drain", "a").await;
    for kind in ["workflow", "activity", "query"] {
        let refused = poll(&server, kind, "a1", json!({}))
            .refused(409, "worker_draining")
            .await;
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["poll_status"], "draining");
        assert_eq!(refused["worker_status"], "draining");
        assert_eq!(refused["drain_intent"], "draining");
        assert_eq!(refused["worker_id"], "a1");
    }
    assert_eq!(
        workflow_task(&server, "b1").await["workflow_task_attempt"],
        1
    );
}

#[tokio::test]
async fn a_waiting_poll_ends_when_its_build_is_drained() {
    let server = staffed().await;
    let waiting = poll(&server, "workflow", "a1", json!({"timeout_seconds": 60}));
    let drain = async {
        tokio::task::yield_now().await;
        change(&server, "drain", "a").await;
    };
    let (answer, ()) = tokio::join!(waiting.refused(409, "worker_draining"), drain);
    assert_eq!(answer["poll_status"], "draining");
}

#[tokio::test]
async fn a_waiting_poll_of_another_build_goes_on_waiting() {
    let server = staffed().await;
    let waiting = poll(&server, "workflow", "b1", json!({"timeout_seconds": 60}));
    let drain = async {
        tokio::task::yield_now().await;
        change(&server, "drain", "a").await;
        server.start("w").await;
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), drain);
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn a_drained_worker_finishes_what_it_holds() {
    let server = staffed().await;
    server.start("w").await;
    let task = workflow_task(&server, "a1").await;
    change(&server, "drain", "a").await;
    let done = json!([{"type": "complete_workflow", "result": envelope("1")}]);
    complete(&server, &task, done).accepted(200).await;
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["status"], "completed");
}

#[tokio::test]
async fn a_poll_sent_again_gets_its_task_although_the_build_drains_now() {
    let server = staffed().await;
    server.start("w").await;
    let same = json!({"poll_request_id": "p-1"});
    let first = poll(&server, "workflow", "a1", same.clone())
        .accepted(200)
        .await;
    change(&server, "drain", "a").await;
    let again = poll(&server, "workflow", "a1", same).accepted(200).await;
    assert_eq!(again["task"]["task_id"], first["task"]["task_id"]);
    assert_eq!(again["task"]["workflow_task_attempt"], 1);
}

#[tokio::test]
async fn a_resumed_worker_gets_work_again_without_a_heartbeat() {
    let server = staffed().await;
    change(&server, "drain", "a").await;
    change(&server, "drain", "a").await;
    change(&server, "resume", "a").await;
    change(&server, "resume", "a").await;
    server.start("w").await;
    assert_eq!(
        workflow_task(&server, "a1").await["workflow_task_attempt"],
        1
    );
}

#[tokio::test]
async fn registering_again_does_not_end_a_drain() {
    let server = staffed().await;
    change(&server, "drain", "a").await;
    let body =
        json!({"worker_id": "a2", "task_queue": "default", "runtime": "rust", "build_id": "a"});
    let registered = server.worker("/register", &body).accepted(201).await;
    assert_eq!(registered["status"], "draining");
    poll(&server, "workflow", "a2", json!({}))
        .refused(409, "worker_draining")
        .await;
}

#[tokio::test]
async fn a_pinned_task_goes_to_its_build_only_and_is_not_counted_against_others() {
    let server = staffed().await;
    server.register("any", json!({"build_id": "*"})).await;
    server.register("none", json!({})).await;
    let pinned = |id: &str| json!({"workflow_id": id, "workflow_type": "greet", "build_id": "b"});
    server.start_with(pinned("w")).await;
    for other in ["a1", "none"] {
        let answer = poll(&server, "workflow", other, json!({}))
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], "empty", "{other}");
    }
    let task = workflow_task(&server, "b1").await;
    assert_eq!(task["workflow_task_attempt"], 1);
    assert_eq!(task["compatibility"], "b");
    let activity =
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")}]);
    complete(&server, &task, activity).accepted(200).await;
    let answer = poll(&server, "activity", "a1", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        answer["poll_status"], "empty",
        "its activities are pinned too"
    );
    let answer = poll(&server, "activity", "any", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn a_run_that_continues_keeps_its_pin() {
    let server = staffed().await;
    change(&server, "promote", "a").await;
    server.start("w").await;
    change(&server, "promote", "b").await;
    let task = workflow_task(&server, "a1").await;
    complete(&server, &task, json!([{"type": "continue_as_new"}]))
        .accepted(200)
        .await;
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["run_number"], 2);
    assert_eq!(shown["compatibility"], "a");
}
