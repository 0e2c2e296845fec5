//! Workers register, send heartbeats and deregister.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Server, decided, every_type, merge, staffed};

fn register<'a>(server: &'a Server, fields: Value) -> crate::support::Call<'a> {
    let mut body = json!({"worker_id": "w", "task_queue": "default", "runtime": "python"});
    merge(&mut body, fields);
    server.worker_post("/register", &body)
}

fn deregister<'a>(server: &'a Server, worker_id: &str) -> crate::support::Call<'a> {
    server.worker_call(Method::DELETE, &format!("/registrations/{worker_id}"))
}

#[tokio::test]
async fn a_registration_is_echoed_in_full() {
    let server = Server::open().await;
    let manifest = json!({"worker_sessions": {"supported": true, "minimum_protocol_version": "1.18"},
        "sticky_execution": {"supported": false, "reason": "off"}});
    let fields = json!({
        "sdk_version": "durable-workflow-rust/4.10.2",
        "runtime": "rust",
        "build_id": "b1",
        "supported_workflow_types": ["greet"],
        "supported_activity_types": ["say"],
        "workflow_definition_fingerprints": {"greet": "sha256:1"},
        "workflow_command_contracts": {"greet": {"signals": ["go"], "signal_contracts": [], "queries": [], "updates": []}},
        "capabilities": ["query_tasks", "gpu:nvidia-l4"],
        "capability_manifest": manifest,
        "max_concurrent_workflow_tasks": 4,
        "max_concurrent_activity_tasks": 8,
        "max_concurrent_worker_sessions": 2,
        "task_slots": {"workflow_available": 4, "activity_available": 8, "session_available": 2},
        "process_metrics": {"cpu_percent": 1.5, "memory_bytes": 1024, "process_uptime_seconds": 3, "process_id": 7,
            "process_started_at": "2026-01-01T00:00:00.000000Z", "host": "h"},
        "heartbeat_interval_seconds": 5,
        "something_newer": true,
    });
    let answer = register(&server, fields).send().await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.bare(),
        json!({
            "worker_id": "w",
            "registered": true,
            "namespace": "default",
            "task_queue": "default",
            "runtime": "rust",
            "sdk_version": "durable-workflow-rust/4.10.2",
            "build_id": "b1",
            "status": "active",
            "capabilities": ["query_tasks", "gpu:nvidia-l4"],
            "capability_manifest": manifest,
            "heartbeat_interval_seconds": 20,
            "stale_after_seconds": 60,
        })
    );
    let shown = server.get("/workers/w").accepted(200).await;
    assert_eq!(shown["supported_workflow_types"], json!(["greet"]));
    assert_eq!(shown["supported_activity_types"], json!(["say"]));
    assert_eq!(shown["max_concurrent_workflow_tasks"], 4);
    assert_eq!(shown["max_concurrent_activity_tasks"], 8);
}

#[tokio::test]
async fn only_queue_and_runtime_are_needed() {
    let server = Server::open().await;
    let answer = server
        .worker_post("/register", &json!({"task_queue": "q", "runtime": "cobol"}))
        .accepted(201)
        .await;
    assert_eq!(
        answer["worker_id"].as_str().map(str::len),
        Some(26),
        "{answer}"
    );
    assert_eq!(
        (&answer["build_id"], &answer["runtime"]),
        (&Value::Null, &json!("cobol"))
    );
    assert_eq!(answer["capabilities"], json!([]));
    assert_eq!(answer["capability_manifest"], json!({}));
    for missing in ["task_queue", "runtime"] {
        let mut body = json!({"worker_id": "w", "task_queue": "q", "runtime": "python"});
        body[missing] = Value::Null;
        assert_eq!(
            server.worker_post("/register", &body).invalid().await,
            [missing]
        );
    }
}

#[tokio::test]
async fn a_list_of_one_queue_is_an_alias() {
    let server = Server::open().await;
    let by_list = |queues: Value| {
        server
            .worker_post(
                "/register",
                &json!({"runtime": "python", "task_queues": queues}),
            )
            .send()
    };
    assert_eq!(by_list(json!(["q"])).await.body["task_queue"], "q");
    for queues in [json!([]), json!(["a", "b"])] {
        let answer = by_list(queues).await;
        assert_eq!(answer.status, 422, "{}", answer.body);
    }
}

#[tokio::test]
async fn names_have_a_longest_length() {
    let server = Server::open().await;
    for (field, max) in [
        ("worker_id", 255),
        ("task_queue", 255),
        ("build_id", 255),
        ("sdk_version", 64),
    ] {
        let of = |length: usize| register(&server, json!({field: "x".repeat(length)}));
        of(max).accepted(201).await;
        assert_eq!(of(max + 1).invalid().await, [field]);
        assert_eq!(of(0).invalid().await, [field]);
    }
}

#[tokio::test]
async fn counts_are_at_least_one() {
    let server = Server::open().await;
    for field in [
        "max_concurrent_workflow_tasks",
        "max_concurrent_activity_tasks",
        "max_concurrent_worker_sessions",
        "heartbeat_interval_seconds",
    ] {
        register(&server, json!({field: 1})).accepted(201).await;
        for wrong in [json!(0), json!(-1), json!(1.5), json!("3"), json!(true)] {
            assert_eq!(
                register(&server, json!({field: wrong})).invalid().await,
                [field]
            );
        }
    }
}

#[tokio::test]
async fn registering_again_replaces_the_registration() {
    let server = Server::open().await;
    register(&server, json!({"build_id": "b1", "capabilities": ["a"]}))
        .accepted(201)
        .await;
    server.advance(61).await;
    assert_eq!(
        server.get("/workers/w").accepted(200).await["status"],
        "stale"
    );
    let answer = register(&server, json!({"task_queue": "other", "runtime": "rust"}))
        .accepted(201)
        .await;
    assert_eq!(
        (&answer["build_id"], &answer["capabilities"]),
        (&Value::Null, &json!([]))
    );
    let shown = server.get("/workers/w").accepted(200).await;
    assert_eq!(
        (&shown["status"], &shown["task_queue"]),
        (&json!("active"), &json!("other"))
    );
    assert_eq!(shown["build_id"], Value::Null);
}

#[tokio::test]
async fn a_living_worker_keeps_the_definitions_it_announced() {
    let server = Server::open().await;
    let with = |worker_id: &str, fingerprint: &str| {
        let fields = json!({"worker_id": worker_id, "supported_workflow_types": ["greet"],
            "workflow_definition_fingerprints": {"greet": fingerprint}});
        register(&server, fields)
    };
    with("w", "sha256:1").accepted(201).await;
    with("w", "sha256:1").accepted(201).await;
    let refusal = with("w", "sha256:2")
        .refused(409, "workflow_definition_changed")
        .await;
    assert_eq!(refusal["workflow_type"], "greet");
    assert!(refusal["remediation"].is_string());
    let shown = server.get("/workers/w").accepted(200).await;
    assert_eq!(
        shown["status"], "active",
        "the refused registration changed nothing"
    );
    with("v", "sha256:2").accepted(201).await;
    register(&server, json!({"supported_workflow_types": ["other"]}))
        .accepted(201)
        .await;
    with("w", "sha256:2").accepted(201).await;
    server.advance(61).await;
    with("w", "sha256:3").accepted(201).await;
}

#[tokio::test]
async fn another_process_under_the_same_id_releases_the_tasks_of_the_first() {
    let server = Server::open().await;
    let process = |id: u64| json!({"process_metrics": {"process_id": id}});
    register(&server, process(1)).accepted(201).await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    register(&server, process(1)).accepted(201).await;
    let answer = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        answer["poll_status"], "empty",
        "the same process keeps its lease"
    );
    register(&server, process(2)).accepted(201).await;
    let again = server.worker("w").workflow_task().await;
    assert_eq!(again["task_id"], task["task_id"]);
    assert_eq!(again["workflow_task_attempt"], 2);
}

#[tokio::test]
async fn a_heartbeat_keeps_a_worker_alive() {
    let server = staffed().await;
    let beat = |fields: Value| {
        let mut body = json!({"worker_id": "w"});
        merge(&mut body, fields);
        server.worker_post("/heartbeat", &body)
    };
    server.advance(50).await;
    let full = json!({"task_slots": {"workflow_available": 1}, "process_metrics": {"host": "h"}, "heartbeat_interval_seconds": 9});
    let answer = beat(full).send().await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.bare(),
        json!({"worker_id": "w", "acknowledged": true, "heartbeat_interval_seconds": 20, "stale_after_seconds": 60, "status": "active"})
    );
    server.advance(50).await;
    assert_eq!(
        server.get("/workers/w").accepted(200).await["status"],
        "active"
    );
    server.advance(50).await;
    assert_eq!(
        server.get("/workers/w").accepted(200).await["status"],
        "stale"
    );
    assert_eq!(beat(json!({})).accepted(200).await["status"], "active");
    let refusal = beat(json!({"worker_id": "unknown"}))
        .refused(404, "worker_not_registered")
        .await;
    assert_eq!(refusal["worker_id"], "unknown");
    assert_eq!(
        server.worker_post("/heartbeat", &json!({})).invalid().await,
        ["worker_id"]
    );
}

#[tokio::test]
async fn a_stale_worker_may_poll_and_is_alive_again() {
    let server = staffed().await;
    server.start("wf").await;
    // Stale, and not yet forgotten.
    server.advance(3000).await;
    assert_eq!(
        server.get("/workers/w").accepted(200).await["status"],
        "stale"
    );
    server.worker("w").workflow_task().await;
    assert_eq!(
        server.get("/workers/w").accepted(200).await["status"],
        "active"
    );
}

#[tokio::test]
async fn a_worker_that_deregisters_releases_its_workflow_tasks() {
    let server = staffed().await;
    server.register("v", every_type()).await;
    let activity = json!([{"type": "schedule_activity", "activity_type": "say"}]);
    decided(&server, activity).await;
    let activity = server.worker("w").activity_task().await;
    for id in ["one", "two", "three"] {
        server.start(id).await;
    }
    let held = [
        server.worker("w").workflow_task().await,
        server.worker("w").workflow_task().await,
    ];
    let kept = server.worker("v").workflow_task().await;

    let answer = deregister(&server, "w").send().await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.bare(),
        json!({"worker_id": "w", "outcome": "deregistered", "recovered_workflow_task_count": 2})
    );
    server
        .worker("w")
        .poll("workflow", json!({}))
        .refused(412, "worker_not_registered")
        .await;
    let refusal = deregister(&server, "w")
        .refused(404, "worker_not_found")
        .await;
    assert_eq!(refusal["worker_id"], "w");

    let mut freed = [
        server.worker("v").workflow_task().await,
        server.worker("v").workflow_task().await,
    ];
    freed.sort_by_key(|task| task["task_id"].as_str().map(str::to_owned));
    for (freed, held) in freed.iter().zip(&held) {
        assert_eq!(
            (&freed["task_id"], &freed["workflow_task_attempt"]),
            (&held["task_id"], &json!(2))
        );
    }
    let answer = server
        .worker("v")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        answer["poll_status"], "empty",
        "the other worker keeps {}",
        kept["task_id"]
    );
    // An activity may still be running: its lease is left alone and its result counts.
    let answer = server
        .worker("v")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "empty");
    crate::support::activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn worker_ids_in_paths_are_percent_decoded_once() {
    let server = Server::open().await;
    register(&server, json!({"worker_id": "a b/c%20d"}))
        .accepted(201)
        .await;
    deregister(&server, "a%20b%2Fc%20d")
        .refused(404, "worker_not_found")
        .await;
    let answer = deregister(&server, "a%20b%2Fc%2520d").accepted(200).await;
    assert_eq!(answer["worker_id"], "a b/c%20d");
}

#[tokio::test]
async fn workers_of_two_namespaces_do_not_know_each_other() {
    let server = staffed().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    deregister(&server, "w")
        .namespace("other")
        .refused(404, "worker_not_found")
        .await;
    server
        .worker_post("/heartbeat", &json!({"worker_id": "w"}))
        .namespace("other")
        .refused(404, "worker_not_registered")
        .await;
    server
        .worker("w")
        .poll("workflow", json!({}))
        .namespace("other")
        .refused(412, "worker_not_registered")
        .await;
}
