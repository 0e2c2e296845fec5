//! How polls are answered, matched and repeated.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    Server, complete, decided, every_type, expect_no_task, leased, report, staffed,
};

/// The messages of the published stream contract.
fn stream_schema(message: &str) -> jsonschema::Validator {
    let text = include_str!("../../../contract/worker-protocol-stream.schema.json");
    let mut schema: Value = serde_json::from_str(text).expect("JSON");
    schema["$ref"] = json!(format!("#/$defs/{message}"));
    jsonschema::validator_for(&schema).expect("a schema")
}

pub(in crate::worker) fn expect_message(message: &str, answer: &Value) {
    let schema = stream_schema(message);
    let errors: Vec<String> = schema
        .iter_errors(answer)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{message}: {errors:?} in {answer}");
}

/// Starts `count` workflows.
async fn start_many(server: &Server, count: usize) {
    for index in 0..count {
        server.start(&format!("wf-{index}")).await;
    }
}

#[tokio::test]
async fn a_leased_answer_has_a_task_and_its_lease() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    server.start("second").await;
    for kind in ["workflow", "activity"] {
        let answer = server.worker("w").poll(kind, json!({})).accepted(200).await;
        expect_message("TaskLeased", &answer);
        assert_eq!(answer["task"]["task_type"], kind);
        assert_eq!(answer["reason"], Value::Null);
        assert_eq!(answer["server_time"], "2026-01-01T00:00:00.000000Z");
        let lease = json!({"leased_at": "2026-01-01T00:00:00.000000Z", "lease_expires_at": "2026-01-01T00:05:00.000000Z"});
        assert_eq!(answer["lease"], lease);
        assert_eq!(
            answer["task"]["lease_expires_at"],
            lease["lease_expires_at"]
        );
        assert_eq!(answer["task"]["lease_owner"], "w");
    }
}

#[tokio::test]
async fn an_empty_poll_has_no_task_and_the_status_empty() {
    let server = staffed().await;
    for kind in ["workflow", "activity"] {
        let answer = server.worker("w").poll(kind, json!({})).send().await;
        assert_eq!(answer.status, 200);
        expect_message("PollTerminal", &answer.body);
        let server_time = "2026-01-01T00:00:00.000000Z";
        assert_eq!(
            answer.bare(),
            json!({"task": null, "poll_status": "empty", "reason": null, "lease": null, "server_time": server_time})
        );
    }
}

#[tokio::test]
async fn one_poll_leases_one_task() {
    let server = staffed().await;
    start_many(&server, 3).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let task = server.worker("w").workflow_task().await;
        assert_eq!(task["workflow_task_attempt"], 1);
        ids.push(task["task_id"].clone());
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    expect_no_task(&server, "workflow").await;
}

#[tokio::test]
async fn a_poll_must_fit_its_registration() {
    let server = Server::open().await;
    server.register("built", json!({"build_id": "b1"})).await;
    server.register("plain", json!({})).await;
    server.start("wf").await;
    for kind in ["workflow", "activity"] {
        let refusal = server
            .worker("unknown")
            .poll(kind, json!({}))
            .refused(412, "worker_not_registered")
            .await;
        assert_eq!(
            (&refusal["worker_id"], &refusal["task"]),
            (&json!("unknown"), &Value::Null)
        );
        assert!(refusal.as_object().expect("a body").contains_key("task"));

        let refusal = server
            .worker("built")
            .poll(kind, json!({"task_queue": "other"}))
            .refused(409, "task_queue_mismatch")
            .await;
        assert_eq!(refusal["registered_task_queue"], "default");
        assert_eq!(refusal["requested_task_queue"], "other");

        for (worker, build, registered) in
            [("built", "b2", json!("b1")), ("plain", "b1", Value::Null)]
        {
            let refusal = server
                .worker(worker)
                .poll(kind, json!({"build_id": build}))
                .refused(409, "build_id_mismatch")
                .await;
            assert_eq!(refusal["registered_build_id"], registered);
            assert_eq!(refusal["requested_build_id"], build);
        }
    }
    server
        .worker("built")
        .poll("activity", json!({"build_id": "b1"}))
        .accepted(200)
        .await;
    // Nothing was leased by any of them.
    assert_eq!(
        server.worker("plain").workflow_task().await["workflow_task_attempt"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_poll_waits_as_long_as_it_asks_but_not_over_a_minute() {
    let server = staffed().await;
    let cases = [
        (json!({}), 30),
        (json!({"timeout_seconds": null}), 30),
        (json!({"timeout_seconds": 2}), 2),
        (json!({"timeout_seconds": 60}), 60),
        (json!({"timeout_seconds": 61}), 60),
        (json!({"timeout_seconds": 1000}), 60),
        (json!({"timeout_seconds": i64::MAX}), 60),
        (json!({"timeout_seconds": u64::MAX}), 60),
        (json!({"timeout_seconds": 0}), 0),
        (json!({"timeout_seconds": -1}), 0),
        (json!({"timeout_seconds": i64::MIN}), 0),
        (json!({"poll_timeout_seconds": 7}), 7),
    ];
    for kind in ["workflow", "activity"] {
        for (fields, seconds) in &cases {
            let mut body = json!({"worker_id": "w", "task_queue": "default"});
            crate::support::merge(&mut body, fields.clone());
            let begun = Instant::now();
            let answer = server
                .worker_post(&format!("/{kind}-tasks/poll"), &body)
                .accepted(200)
                .await;
            assert_eq!(answer["poll_status"], "empty", "{fields}");
            let waited = begun.elapsed();
            let expected = Duration::from_secs(*seconds);
            assert!(
                waited >= expected && waited < expected + Duration::from_secs(1),
                "{fields}: {waited:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_list_of_one_queue_is_an_alias() {
    let server = staffed().await;
    server.start("wf").await;
    let polled = |queues: Value| {
        let body = json!({"worker_id": "w", "task_queues": queues, "poll_timeout_seconds": 0});
        server.worker_post("/workflow-tasks/poll", &body).send()
    };
    leased(polled(json!(["default"])).await);
    for queues in [
        json!([]),
        json!(["default", "other"]),
        json!("default"),
        json!([1]),
    ] {
        assert_eq!(polled(queues).await.status, 422);
    }
}

#[tokio::test]
async fn worker_and_queue_are_needed_and_page_sizes_have_a_range() {
    let server = staffed().await;
    for kind in ["workflow", "activity"] {
        let body = json!({"timeout_seconds": 0});
        let wrong = server
            .worker_post(&format!("/{kind}-tasks/poll"), &body)
            .invalid()
            .await;
        assert_eq!(wrong, ["task_queue", "worker_id"], "{kind}");
        let long = json!({"poll_request_id": "x".repeat(256)});
        assert_eq!(
            server.worker("w").poll(kind, long).invalid().await,
            ["poll_request_id"]
        );
        server
            .worker("w")
            .poll(kind, json!({"poll_request_id": "x".repeat(255)}))
            .accepted(200)
            .await;
    }
    for size in [0, 1001, -5] {
        let fields = json!({"history_page_size": size});
        assert_eq!(
            server.worker("w").poll("workflow", fields).invalid().await,
            ["history_page_size"]
        );
    }
    for size in [1, 1000] {
        server
            .worker("w")
            .poll("workflow", json!({"history_page_size": size}))
            .accepted(200)
            .await;
    }
}

#[tokio::test]
async fn a_task_that_becomes_ready_ends_the_wait() {
    let server = staffed().await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 60}))
        .send();
    let start = async {
        server.polls_waiting(1).await;
        server.start("wf").await;
    };
    let both = async { tokio::join!(waiting, start) };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(20), both)
        .await
        .expect("the poll is answered by the start");
    assert_eq!(leased(answer)["workflow_id"], "wf");
}

#[tokio::test]
async fn the_same_poll_again_gets_the_same_lease() {
    let server = staffed().await;
    start_many(&server, 2).await;
    let again = || {
        server
            .worker("w")
            .poll("workflow", json!({"poll_request_id": "p"}))
            .send()
    };
    let first = again().await;
    server.advance(10).await;
    let second = again().await;
    for field in [
        "task_id",
        "workflow_task_attempt",
        "lease_owner",
        "lease_expires_at",
        "history_events",
        "run_id",
    ] {
        assert_eq!(
            second.body["task"][field], first.body["task"][field],
            "{field}"
        );
    }
    assert_eq!(second.body["lease"], first.body["lease"]);
    assert_eq!(second.body["poll_status"], "leased");
    // Once the task is done, the id is used for a new poll.
    let task = leased(second);
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    assert_ne!(leased(again().await)["task_id"], task["task_id"]);
}

#[tokio::test]
async fn the_same_activity_poll_again_gets_the_same_attempt() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .await;
    let again = || {
        server
            .worker("w")
            .poll("activity", json!({"poll_request_id": "p"}))
            .send()
    };
    let first = leased(again().await);
    assert_eq!(leased(again().await), first);
}

#[tokio::test]
async fn the_same_poll_at_the_same_time_gets_the_same_answer() {
    let server = staffed().await;
    let waiting = || {
        server
            .worker("w")
            .poll(
                "workflow",
                json!({"poll_request_id": "p", "timeout_seconds": 30}),
            )
            .send()
    };
    let start = async {
        server.polls_waiting(1).await;
        start_many(&server, 2).await;
    };
    let all = async { tokio::join!(waiting(), waiting(), waiting(), start) };
    let (first, second, third, ()) = tokio::time::timeout(Duration::from_secs(20), all)
        .await
        .expect("answers");
    let first = leased(first);
    assert_eq!(leased(second)["task_id"], first["task_id"]);
    assert_eq!(leased(third)["task_id"], first["task_id"]);
    assert_ne!(
        server.worker("w").workflow_task().await["task_id"],
        first["task_id"]
    );
}

#[tokio::test]
async fn a_poll_id_belongs_to_its_worker_kind_and_lease() {
    let server = staffed().await;
    server.register("v", every_type()).await;
    start_many(&server, 3).await;
    let by = |worker: &'static str| {
        server
            .worker(worker)
            .poll("workflow", json!({"poll_request_id": "p"}))
            .send()
    };
    let first = leased(by("w").await);
    let other = leased(by("v").await);
    assert_ne!(other["task_id"], first["task_id"]);
    let activity = server
        .worker("w")
        .poll("activity", json!({"poll_request_id": "p"}))
        .accepted(200)
        .await;
    assert_eq!(activity["poll_status"], "empty");
    // After an empty answer and after the lease is over, the id is used for a new poll.
    server.advance(301).await;
    let after = leased(by("w").await);
    assert_eq!(after["lease_expires_at"], "2026-01-01T00:10:01.000000Z");
    decided_activity(&server, &after).await;
    let activity = server
        .worker("w")
        .poll("activity", json!({"poll_request_id": "p"}))
        .accepted(200)
        .await;
    assert_eq!(activity["poll_status"], "leased");
}

async fn decided_activity(server: &Server, task: &Value) {
    let commands = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    complete(server, task, commands).accepted(200).await;
}

#[tokio::test]
async fn workers_get_only_the_types_they_named() {
    let server = Server::open().await;
    server
        .register(
            "greeter",
            json!({"supported_workflow_types": ["greet"], "supported_activity_types": ["say"]}),
        )
        .await;
    server
        .register(
            "other",
            json!({"supported_workflow_types": ["part"], "supported_activity_types": ["wave"]}),
        )
        .await;
    server.start("wf").await;
    let empty = server
        .worker("other")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(empty["poll_status"], "empty");
    let task = server.worker("greeter").workflow_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "wave"}]);
    complete(&server, &task, commands).accepted(200).await;
    let empty = server
        .worker("greeter")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(empty["poll_status"], "empty");
    assert_eq!(
        server.worker("other").activity_task().await["attempt_number"],
        1
    );
}

#[tokio::test]
async fn a_pinned_run_goes_to_its_build_and_passing_it_over_costs_no_attempt() {
    let server = Server::open().await;
    server.register("a", json!({"build_id": "a"})).await;
    server.register("none", json!({})).await;
    server.register("b", json!({"build_id": "b"})).await;
    let start = json!({"workflow_id": "wf", "workflow_type": "greet", "build_id": "b"});
    let answer = server.post("/workflows", &start).send().await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    for worker in ["a", "none"] {
        let empty = server
            .worker(worker)
            .poll("workflow", json!({}))
            .accepted(200)
            .await;
        assert_eq!(empty["poll_status"], "empty", "{worker}");
    }
    let task = server.worker("b").workflow_task().await;
    assert_eq!(
        (&task["workflow_task_attempt"], &task["compatibility"]),
        (&json!(1), &json!("b"))
    );
    decided_activity(&server, &task).await;
    let empty = server
        .worker("a")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(empty["poll_status"], "empty", "activities inherit the pin");
    server.worker("b").activity_task().await;
}

#[tokio::test]
async fn the_most_urgent_task_comes_first_then_the_oldest() {
    let server = staffed().await;
    for (id, priority) in [
        ("late-5", 5),
        ("late-9", 9),
        ("first-0", 0),
        ("second-5", 5),
        ("urgent-1", 1),
    ] {
        server
            .start_with(json!({"workflow_id": id, "workflow_type": "greet", "priority": priority}))
            .await;
        server.advance(1).await;
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        let task = server.worker("w").workflow_task().await;
        assert!(task["priority"].is_u64());
        order.push(
            task["workflow_id"]
                .as_str()
                .map(str::to_owned)
                .expect("an id"),
        );
    }
    assert_eq!(
        order,
        ["first-0", "urgent-1", "late-5", "second-5", "late-9"]
    );
}

#[tokio::test]
async fn a_run_has_one_leased_workflow_task_at_a_time() {
    let server = staffed().await;
    decided(&server, json!([{"type": "open_condition_wait"}])).await;
    crate::support::signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    crate::support::signal(&server, "go", json!([])).await;
    expect_no_task(&server, "workflow").await;
    report(&server, &task, "heartbeat", json!({}))
        .accepted(200)
        .await;
    expect_no_task(&server, "workflow").await;
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_wait_kind"],
        "signal"
    );
}
