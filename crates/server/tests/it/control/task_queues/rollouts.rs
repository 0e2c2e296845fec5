//! Builds of a queue's workers: list, drain, resume, promote, roll back, and what that does to new runs.

use longhaul_host::Config;
use longhaul_host::api::FleetValidation;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::support::Server;

/// A server with workers `a1` and `b1` of builds `a` and `b`, and `u` without a build.
async fn with_three_builds() -> Server {
    Server::staffed([
        ("a1", json!({"build_id": "a"})),
        ("b1", json!({"build_id": "b"})),
        ("u", json!({})),
    ])
    .await
}

async fn change(server: &Server, action: &str, build_id: Value) -> Value {
    let path = format!("/task-queues/default/build-ids/{action}");
    let body = json!({"build_id": build_id});
    server.post(&path, &body).accepted(200).await
}

async fn cohorts(server: &Server) -> Vec<Value> {
    let list = server
        .get("/task-queues/default/build-ids")
        .accepted(200)
        .await;
    list["build_ids"].as_array().expect("a list").clone()
}

async fn pin_of(server: &Server, workflow_id: &str) -> Value {
    let shown = server
        .get(&format!("/workflows/{workflow_id}"))
        .accepted(200)
        .await;
    shown["compatibility"].clone()
}

#[tokio::test]
async fn cohorts_are_listed_with_every_field() {
    let server = Server::open().await;
    let fields = json!({
        "build_id": "a",
        "sdk_version": "durable-workflow-python/2.12.0",
        "workflow_definition_fingerprints": {"greet": "sha256:1"},
    });
    server.register("a1", fields).await;
    let list = server
        .get("/task-queues/default/build-ids")
        .accepted(200)
        .await;
    let begin = "2026-01-01T00:00:00.000000Z";
    let expected = json!({
        "namespace": "default",
        "task_queue": "default",
        "stale_after_seconds": 60,
        "build_ids": [{
            "build_id": "a",
            "rollout_status": "active",
            "drain_intent": "active",
            "drained_at": null,
            "promoted_at": null,
            "rolled_back_at": null,
            "new_start_selected": false,
            "active_worker_count": 1,
            "draining_worker_count": 0,
            "stale_worker_count": 0,
            "total_worker_count": 1,
            "runtimes": ["python"],
            "sdk_versions": ["durable-workflow-python/2.12.0"],
            "workflow_definition_fingerprint_count": 1,
            "workflow_definition_fingerprint_conflicts": [],
            "last_heartbeat_at": begin,
            "first_seen_at": begin,
        }],
    });
    assert_eq!(list, expected);
    let unknown = server
        .get("/task-queues/none/build-ids")
        .accepted(200)
        .await;
    assert_eq!(unknown["build_ids"], json!([]));
}

#[tokio::test]
async fn a_cohort_is_active_draining_stale_or_empty() {
    let server = with_three_builds().await;
    change(&server, "drain", json!("a")).await;
    change(&server, "drain", json!("gone")).await;
    server.advance(61).await;
    let heartbeat = |worker: &str| server.worker_post("/heartbeat", &json!({"worker_id": worker}));
    assert_eq!(heartbeat("a1").accepted(200).await["status"], "draining");
    assert_eq!(heartbeat("b1").accepted(200).await["status"], "active");
    let seen: Vec<(Value, Value)> = cohorts(&server)
        .await
        .iter()
        .map(|row| (row["build_id"].clone(), row["rollout_status"].clone()))
        .collect();
    let expected = [
        (Value::Null, json!("stale_only")),
        (json!("a"), json!("draining")),
        (json!("b"), json!("active")),
        (json!("gone"), json!("no_workers")),
    ];
    assert_eq!(seen, expected);
    let draining = server.get("/workers?status=draining").accepted(200).await;
    assert_eq!(draining["workers"][0]["worker_id"], "a1");
    assert_eq!(draining["workers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn drain_resume_and_promote_are_idempotent() {
    let server = with_three_builds().await;
    let drained = change(&server, "drain", json!("a")).await;
    assert_eq!(drained["drain_intent"], "draining");
    assert_eq!(drained["drained_at"], "2026-01-01T00:00:00.000000Z");
    server.advance(5).await;
    assert_eq!(change(&server, "drain", json!("a")).await, drained);
    let resumed = change(&server, "resume", json!("a")).await;
    assert_eq!(resumed["drain_intent"], "active");
    assert_eq!(resumed["drained_at"], Value::Null);
    assert_eq!(change(&server, "resume", json!("a")).await, resumed);
    let promoted = change(&server, "promote", json!("a")).await;
    assert_eq!(promoted["new_start_selected"], true);
    assert_eq!(promoted["deployment"]["name"], "default/default@a");
    assert_eq!(promoted["deployment"]["state"], "promoted");
    server.advance(5).await;
    assert_eq!(change(&server, "promote", json!("a")).await, promoted);
    let unversioned = change(&server, "drain", Value::Null).await;
    assert_eq!(unversioned["build_id"], Value::Null);
}

#[tokio::test]
async fn the_build_id_must_be_named_even_when_it_is_null() {
    let server = with_three_builds().await;
    for body in [json!({}), json!({"build_id": 7}), json!({"build_id": ""})] {
        for action in ["drain", "resume", "promote"] {
            let path = format!("/task-queues/default/build-ids/{action}");
            let fields = server.post(&path, &body).invalid().await;
            assert_eq!(fields, ["build_id"], "{body}");
        }
    }
    assert!(
        cohorts(&server)
            .await
            .iter()
            .all(|row| row["drain_intent"] == "active")
    );
}

#[tokio::test]
async fn new_runs_are_pinned_to_the_promoted_build_and_old_ones_keep_theirs() {
    let server = with_three_builds().await;
    server.start("before").await;
    change(&server, "promote", json!("a")).await;
    server.start("on-a").await;
    change(&server, "promote", json!("b")).await;
    server.start("on-b").await;
    let named = json!({"workflow_id": "named", "workflow_type": "greet", "build_id": "a", "compatibility": "b"});
    server.start_with(named).await;
    for (workflow_id, pin) in [
        ("before", Value::Null),
        ("on-a", json!("a")),
        ("on-b", json!("b")),
        ("named", json!("a")),
    ] {
        assert_eq!(pin_of(&server, workflow_id).await, pin, "{workflow_id}");
    }
    let run = server.get("/workflows/on-a").accepted(200).await;
    let path = format!(
        "/workflows/on-a/runs/{}/history",
        run["run_id"].as_str().unwrap()
    );
    let history = server.get(&path).accepted(200).await;
    assert_eq!(history["compatibility"], "a");
    assert_eq!(history["compatibility_status"], "compatible");
    assert_eq!(history["events"][1]["payload"]["compatibility"], "a");
}

#[tokio::test]
async fn a_pinned_run_without_a_live_worker_shows_it() {
    let server = with_three_builds().await;
    let pinned = json!({"workflow_id": "w", "workflow_type": "greet", "build_id": "a"});
    server.start_with(pinned).await;
    let standing = async || {
        let shown = server.get("/workflows/w").accepted(200).await;
        let list = server.get("/workflows").accepted(200).await;
        let field = "compatibility_status";
        assert_eq!(list["workflows"][0][field], shown[field]);
        (
            shown[field].clone(),
            shown["compatibility_fleet_reason"].clone(),
        )
    };
    assert_eq!(standing().await, (json!("compatible"), Value::Null));
    change(&server, "drain", json!("a")).await;
    let (status, reason) = standing().await;
    assert_eq!(status, "no_compatible_worker");
    assert_eq!(
        reason,
        "no live worker on queue default takes work of build a"
    );
    server.register("any", json!({"build_id": "*"})).await;
    assert_eq!(standing().await.0, "compatible");
}

#[tokio::test]
async fn a_queue_with_only_draining_cohorts_refuses_starts() {
    let server = Server::open().await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.start("known").await;
    change(&server, "drain", json!("a")).await;
    let start = json!({"workflow_id": "w", "workflow_type": "greet"});
    let refused = server
        .post("/workflows", &start)
        .refused(409, "task_queue_draining")
        .await;
    for (field, value) in [
        ("workflow_id", json!("w")),
        ("workflow_type", json!("greet")),
        ("task_queue", json!("default")),
        ("routing_status", json!("draining")),
        ("drain_intent", json!("draining")),
        ("active_worker_count", json!(0)),
        ("draining_worker_count", json!(1)),
        ("stale_worker_count", json!(0)),
        ("draining_build_ids", json!(["a"])),
        ("command_status", json!("rejected")),
    ] {
        assert_eq!(refused[field], value, "{field}");
    }
    server
        .get("/workflows/w")
        .refused(404, "instance_not_found")
        .await;
    let taken = json!({"workflow_id": "known", "workflow_type": "greet"});
    server
        .post("/workflows", &taken)
        .refused(409, "instance_already_started")
        .await;
    change(&server, "resume", json!("a")).await;
    server.start("w").await;
}

#[tokio::test]
async fn strict_validation_refuses_a_pin_without_a_worker() {
    let config = Config {
        fleet_validation: FleetValidation::Fail,
        ..Config::default()
    };
    let server = Server::configured(|it| *it = config).await;
    let start = json!({"workflow_id": "w", "workflow_type": "greet", "build_id": "a"});
    let refused = server
        .post("/workflows", &start)
        .refused(409, "compatibility_blocked")
        .await;
    assert_eq!(refused["build_id"], "a");
    assert_eq!(refused["outcome"], "rejected_compatibility_blocked");
    server
        .get("/workflows/w")
        .refused(404, "instance_not_found")
        .await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.start_with(start).await;
    server.start("free").await;
}

#[tokio::test]
async fn a_refused_promotion_lists_every_blockage() {
    let server = with_three_builds().await;
    let promote = |build_id: Value| {
        let body = json!({"build_id": build_id});
        server.post("/task-queues/default/build-ids/promote", &body)
    };
    let unknown = promote(json!("x")).refused(409, "unknown_deployment").await;
    assert_eq!(unknown["rejection_reason"], "unknown_deployment");
    assert_eq!(unknown["outcome"], "rejected_unknown_deployment");
    assert_eq!(unknown["command_status"], "rejected");
    assert_eq!(unknown["blockages"][0]["scope"], "deployment");
    assert_eq!(unknown["deployment"]["build_id"], "x");
    change(&server, "drain", json!("a")).await;
    promote(json!("a")).refused(409, "fleet_is_draining").await;
    let prints = |print: &str| json!({"build_id": "b", "workflow_definition_fingerprints": {"greet": print}});
    server.register("b2", prints("sha256:1")).await;
    server.register("b3", prints("sha256:2")).await;
    let conflict = promote(json!("b"))
        .refused(409, "fingerprint_mismatch")
        .await;
    assert_eq!(conflict["blockages"].as_array().unwrap().len(), 1);
    let listed = &cohorts(&server).await[2];
    assert_eq!(
        listed["workflow_definition_fingerprint_conflicts"],
        json!([{"workflow_type": "greet", "fingerprint_count": 2}])
    );
    server.advance(61).await;
    promote(Value::Null)
        .refused(409, "missing_worker_heartbeat")
        .await;
    server.start("w").await;
    assert_eq!(pin_of(&server, "w").await, Value::Null);
}

#[tokio::test]
async fn a_deployment_is_promoted_and_rolled_back_by_its_name() {
    let server = with_three_builds().await;
    let post =
        |path: &str| server.post(&format!("/deployments/default/default@{path}"), &json!({}));
    post("a/promote").accepted(200).await;
    let promoted = post("b/promote").accepted(200).await;
    assert_eq!(promoted["state"], "promoted");
    let rolled_back = post("b/rollback").accepted(200).await;
    assert_eq!(rolled_back["state"], "rolled_back");
    assert_eq!(rolled_back["rolled_back_at"], "2026-01-01T00:00:00.000000Z");
    server.start("w").await;
    assert_eq!(pin_of(&server, "w").await, "a");
    post("unversioned/drain").accepted(200).await;
    let list = server.get("/deployments").accepted(200).await;
    let states: Vec<(&str, &str)> = list["deployments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["state"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("default/default@unversioned", "draining"),
        ("default/default@a", "promoted"),
        ("default/default@b", "rolled_back"),
    ];
    assert_eq!(states, expected);
    post("unversioned/resume").accepted(200).await;
    let one = server
        .get("/deployments/default%2Fdefault%40a")
        .accepted(200)
        .await;
    assert_eq!(one["accepts_new_work"], true);
    assert_eq!(one["workflow_types"], json!(["greet"]));
    assert_eq!(one["required_compatibility"], "a");
    post("unversioned/rollback")
        .refused(409, "deployment_not_promoted")
        .await;
}

#[tokio::test]
async fn an_unknown_deployment_is_not_found() {
    let server = with_three_builds().await;
    for (path, status, reason) in [
        (
            "/deployments/default/default@x",
            404,
            "deployment_not_found",
        ),
        ("/deployments/other/default@a", 400, "namespace_mismatch"),
        (
            "/deployments/default/default",
            400,
            "malformed_deployment_name",
        ),
        ("/deployments/default@a", 400, "malformed_deployment_name"),
    ] {
        let refused = server.get(path).refused(status, reason).await;
        assert_eq!(refused["error"], reason);
        let drain = format!("{path}/drain");
        server
            .post(&drain, &json!({}))
            .refused(status, reason)
            .await;
    }
    server
        .post("/deployments/default/default@a/explode", &json!({}))
        .refused(404, "not_found")
        .await;
}

#[tokio::test]
async fn rollouts_survive_a_restart_and_stay_in_their_namespace() {
    let store = Arc::new(Memory::new());
    let begin =
        async || Server::on_store(Arc::clone(&store) as Arc<dyn longhaul_store::Store>).await;
    let server = begin().await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.register("b1", json!({"build_id": "b"})).await;
    change(&server, "promote", json!("a")).await;
    change(&server, "drain", json!("b")).await;
    server.host.stop().await;
    let server = begin().await;
    server.start("w").await;
    assert_eq!(pin_of(&server, "w").await, "a");
    let poll = json!({"worker_id": "b1", "task_queue": "default", "timeout_seconds": 0});
    server
        .worker_post("/workflow-tasks/poll", &poll)
        .refused(409, "worker_draining")
        .await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let elsewhere = server
        .get("/task-queues/default/build-ids")
        .namespace("other")
        .accepted(200)
        .await;
    assert_eq!(elsewhere["build_ids"], json!([]));
}
