//! Workers, as operators see them.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Server, texts};

fn ids(list: &Value) -> Vec<&str> {
    texts(&list["workers"], "worker_id")
}

#[tokio::test]
async fn a_worker_is_shown_with_every_field() {
    let server = Server::open().await;
    let fields = json!({
        "sdk_version": "durable-workflow-python/2.12.0",
        "build_id": "b1",
        "capabilities": ["query_tasks"],
        "max_concurrent_workflow_tasks": 4,
        "max_concurrent_activity_tasks": 8,
        "workflow_definition_fingerprints": {"greet": "f"},
        "workflow_command_contracts": {"greet": {"signals": ["s"]}},
        "task_slots": {"workflow_available": 3},
        "process_metrics": {"cpu_percent": 1.5},
    });
    server.register("w", fields).await;
    let shown = server.get("/workers/w").accepted(200).await;
    let mut expected = json!({
        "worker_id": "w",
        "namespace": "default",
        "task_queue": "default",
        "runtime": "python",
        "sdk_version": "durable-workflow-python/2.12.0",
        "build_id": "b1",
        "status": "active",
        "supported_workflow_types": ["greet"],
        "supported_activity_types": ["say"],
        "workflow_definition_fingerprints": {"greet": "f"},
        "workflow_command_contracts": {"greet": {"signals": ["s"]}},
        "capabilities": ["query_tasks"],
        "max_concurrent_workflow_tasks": 4,
        "max_concurrent_activity_tasks": 8,
        "max_concurrent_worker_sessions": shown["max_concurrent_worker_sessions"],
        "task_slots": {
            "workflow_available": 3,
            "workflow_capacity": null,
            "activity_available": null,
            "activity_capacity": null,
            "session_available": null,
            "session_capacity": null,
        },
        "process_metrics": {"cpu_percent": 1.5},
        "heartbeat_interval_seconds": 20,
        "last_heartbeat_at": "2026-01-01T00:00:00.000000Z",
        "registered_at": "2026-01-01T00:00:00.000000Z",
        "updated_at": "2026-01-01T00:00:00.000000Z",
    });
    assert_eq!(shown, expected);
    expected.as_object_mut().unwrap().remove("updated_at");
    let list = server.get("/workers").accepted(200).await;
    assert_eq!(
        list,
        json!({"namespace": "default", "workers": [expected], "stale_after_seconds": 60, "next_page_token": null})
    );
}

#[tokio::test]
async fn the_list_is_filtered_by_queue_and_status_and_hides_stale_workers() {
    let server = Server::open().await;
    server.register("old", json!({})).await;
    server.clock.advance_seconds(50);
    server.register("a", json!({})).await;
    server.register("b", json!({"task_queue": "q2"})).await;
    server.clock.advance_seconds(11);
    for (query, expected) in [
        ("", vec!["a", "b"]),
        ("?status=active", vec!["a", "b"]),
        ("?status=stale", vec!["old"]),
        ("?status=draining", vec![]),
        ("?task_queue=q2", vec!["b"]),
        ("?task_queue=default&status=active", vec!["a"]),
    ] {
        assert_eq!(
            ids(&server.get(&format!("/workers{query}")).accepted(200).await),
            expected,
            "{query}"
        );
    }
    assert_eq!(
        server.get("/workers?status=gone").invalid().await,
        ["status"]
    );
    assert_eq!(
        server.get("/workers/old").accepted(200).await["status"],
        "stale"
    );
}

#[tokio::test]
async fn an_administrator_can_remove_a_worker_and_its_task_is_ready_again() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    server.start("wf").await;
    server.worker("w").workflow_task().await;
    let body = server
        .call(Method::DELETE, "/workers/w")
        .accepted(200)
        .await;
    assert_eq!(
        body,
        json!({"worker_id": "w", "outcome": "deregistered", "recovered_workflow_task_count": 1})
    );
    let refusal = server
        .get("/workers/w")
        .refused(404, "worker_not_found")
        .await;
    assert_eq!(refusal["worker_id"], "w");
    server
        .call(Method::DELETE, "/workers/w")
        .refused(404, "worker_not_found")
        .await;
    server.register("w2", json!({})).await;
    server.worker("w2").workflow_task().await;
}

#[tokio::test]
async fn workers_queues_and_deployments_are_listed_in_pages() {
    let server = Server::open().await;
    for number in 0..5 {
        let queue = json!({"task_queue": format!("q{number}")});
        server.register(&format!("w{number}"), queue).await;
    }
    for (path, list, name) in [
        ("/workers", "workers", "worker_id"),
        ("/task-queues", "task_queues", "name"),
        ("/deployments", "deployments", "name"),
    ] {
        let mut seen: Vec<String> = Vec::new();
        let mut next = format!("{path}?page_size=2");
        loop {
            let page = server.get(&next).accepted(200).await;
            let names = texts(&page[list], name);
            assert!(names.len() <= 2, "{page}");
            seen.extend(names.into_iter().map(str::to_owned));
            let Some(token) = page["next_page_token"].as_str() else {
                break;
            };
            next = format!("{path}?page_size=2&next_page_token={token}");
        }
        assert_eq!(seen.len(), 5, "{path}");
        assert!(seen.is_sorted(), "{seen:?}");
        server
            .get(&format!("{path}?next_page_token=!"))
            .refused(422, "validation_failed")
            .await;
    }
}
