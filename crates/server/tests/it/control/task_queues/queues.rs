//! Task queues.

use serde_json::{Value, json};

use crate::support::{Server, envelope};

#[tokio::test]
async fn an_unknown_queue_is_an_empty_one_with_every_field() {
    let server = Server::open().await;
    let shown = server.get("/task-queues/none").accepted(200).await;
    let tasks = json!({
        "ready_count": 0,
        "leased_count": 0,
        "expired_lease_count": 0,
        "added_last_minute": 0,
        "dispatched_last_minute": 0,
    });
    let admission = |source: &str| {
        json!({
            "status": "no_active_workers",
            "budget_source": source,
            "server_budget_source": null,
            "active_worker_count": 0,
            "configured_slot_count": 0,
            "leased_count": 0,
            "ready_count": 0,
            "available_slot_count": 0,
            "server_max_active_leases_per_queue": null,
            "server_active_lease_count": 0,
            "server_remaining_active_lease_capacity": null,
            "server_max_active_leases_per_namespace": null,
            "server_namespace_active_lease_count": null,
            "server_remaining_namespace_active_lease_capacity": null,
            "server_max_dispatches_per_minute": null,
            "server_dispatch_count_this_minute": null,
            "server_remaining_dispatch_capacity": null,
            "server_max_dispatches_per_minute_per_namespace": null,
            "server_namespace_dispatch_count_this_minute": null,
            "server_remaining_namespace_dispatch_capacity": null,
            "server_dispatch_budget_group": null,
            "server_max_dispatches_per_minute_per_budget_group": null,
            "server_budget_group_dispatch_count_this_minute": null,
            "server_remaining_budget_group_dispatch_capacity": null,
            "server_lock_required": false,
            "server_lock_supported": true,
        })
    };
    let expected = json!({
        "name": "none",
        "namespace": "default",
        "stats": {
            "approximate_backlog_count": 0,
            "approximate_backlog_age": null,
            "approximate_backlog_age_seconds": null,
            "oldest_ready_task": null,
            "workflow_tasks": tasks,
            "activity_tasks": tasks,
            "pollers": {"active_count": 0, "stale_count": 0, "stale_after_seconds": 60},
            "tasks_added_last_minute": 0,
            "tasks_dispatched_last_minute": 0,
            "activity_attempts": {
                "total_count": 0,
                "running_count": 0,
                "retrying_count": 0,
                "timed_out_count": 0,
                "expired_count": 0,
                "failed_count": 0,
                "completed_count": 0,
                "cancelled_count": 0,
                "open_count": 0,
                "terminal_count": 0,
            },
        },
        "repair": {
            "candidates": 0,
            "dispatch_failed": 0,
            "expired_leases": 0,
            "dispatch_overdue": 0,
            "oldest_candidate_at": null,
            "needs_attention": false,
            "policy": {
                "redispatch_after_seconds": 3,
                "loop_throttle_seconds": 5,
                "scan_limit": 25,
                "scan_strategy": "scope_fair_round_robin",
                "failure_backoff_max_seconds": 60,
                "failure_backoff_strategy": "exponential_by_repair_count",
            },
        },
        "admission": {
            "workflow_tasks": admission("worker_registration.max_concurrent_workflow_tasks"),
            "activity_tasks": admission("worker_registration.max_concurrent_activity_tasks"),
            "query_tasks": {
                "status": "accepting",
                "budget_source": "server.query_tasks.max_pending_per_queue",
                "max_pending_per_queue": 1024,
                "approximate_pending_count": 0,
                "remaining_pending_capacity": 1024,
                "lock_required": false,
                "lock_supported": true,
            },
        },
        "pollers": [],
        "current_leases": [],
    });
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn backlog_leases_and_pollers_are_counted() {
    let server = Server::open().await;
    server
        .register(
            "w",
            json!({"max_concurrent_workflow_tasks": 1, "max_concurrent_activity_tasks": 2}),
        )
        .await;
    server.start("a").await;
    let activity =
        json!({"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")});
    server.worker("w").decide(json!([activity])).await;
    let run_id = server.start("b").await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["workflow_id"], "b");
    server.start("c").await;
    server.clock.advance_seconds(45);
    let shown = server.get("/task-queues/default").accepted(200).await;
    let stats = &shown["stats"];
    assert_eq!(stats["approximate_backlog_count"], 2);
    assert_eq!(
        (
            &stats["approximate_backlog_age"],
            &stats["approximate_backlog_age_seconds"]
        ),
        (&json!("45s"), &json!(45))
    );
    assert!(stats["oldest_ready_task"].is_object());
    assert_eq!(
        (
            &stats["workflow_tasks"]["ready_count"],
            &stats["workflow_tasks"]["leased_count"]
        ),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (
            &stats["activity_tasks"]["ready_count"],
            &stats["activity_tasks"]["leased_count"]
        ),
        (&json!(1), &json!(0))
    );
    assert_eq!(stats["pollers"]["active_count"], 1);
    let workflow = &shown["admission"]["workflow_tasks"];
    assert_eq!(
        (&workflow["status"], &workflow["available_slot_count"]),
        (&json!("saturated"), &json!(0))
    );
    let activity = &shown["admission"]["activity_tasks"];
    assert_eq!(
        (&activity["status"], &activity["available_slot_count"]),
        (&json!("accepting"), &json!(2))
    );
    let expected = json!([{
        "task_id": task["task_id"],
        "task_type": "workflow",
        "workflow_id": "b",
        "run_id": run_id,
        "lease_owner": "w",
        "lease_expires_at": "2026-01-01T00:05:00.000000Z",
        "is_expired": false,
        "workflow_task_attempt": 1,
    }]);
    assert_eq!(shown["current_leases"], expected);
    let poller = &shown["pollers"][0];
    assert_eq!(
        (&poller["worker_id"], &poller["is_stale"], &poller["status"]),
        (&json!("w"), &json!(false), &json!("active"))
    );
    server.clock.advance_seconds(16);
    let shown = server.get("/task-queues/default").accepted(200).await;
    assert_eq!(
        (
            &shown["pollers"][0]["is_stale"],
            &shown["stats"]["pollers"]["stale_count"]
        ),
        (&json!(true), &json!(1))
    );
    assert_eq!(
        shown["admission"]["workflow_tasks"]["status"],
        "no_active_workers"
    );
}

#[tokio::test]
async fn the_list_has_every_queue_with_tasks_or_workers() {
    let server = Server::open().await;
    server.register("w", json!({"task_queue": "idle"})).await;
    server
        .start_with(json!({"workflow_id": "a", "workflow_type": "greet", "task_queue": "busy"}))
        .await;
    let list = server.get("/task-queues").accepted(200).await;
    assert_eq!(list["namespace"], "default");
    let rows = list["task_queues"].as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["busy", "idle"]);
    assert_eq!(rows[0]["stats"]["approximate_backlog_count"], 1);
    assert_eq!(
        rows[1]["admission"]["workflow_tasks"]["status"],
        "accepting"
    );
    assert_eq!(
        (rows[0].get("pollers"), rows[0].get("current_leases")),
        (None, None),
        "those are in the detail only"
    );
}

#[tokio::test]
async fn the_last_minute_counts_what_became_ready_and_what_was_leased() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    server.start("a").await;
    server.start("b").await;
    let poll = json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 0});
    let task = server
        .worker_post("/workflow-tasks/poll", &poll)
        .accepted(200)
        .await["task"]
        .clone();
    let lease = json!({"lease_owner": "w", "workflow_task_attempt": 1});
    let heartbeat = format!(
        "/workflow-tasks/{}/heartbeat",
        task["task_id"].as_str().unwrap()
    );
    server.worker_post(&heartbeat, &lease).accepted(200).await;
    let stats = server.get("/task-queues/default").accepted(200).await["stats"].clone();
    assert_eq!(stats["workflow_tasks"]["added_last_minute"], 2);
    assert_eq!(
        stats["workflow_tasks"]["dispatched_last_minute"], 1,
        "a renewal is no dispatch"
    );
    assert_eq!(stats["tasks_added_last_minute"], 2);
    assert_eq!(stats["tasks_dispatched_last_minute"], 1);
}

#[tokio::test]
async fn the_order_of_ready_tasks_is_shown_by_priority_and_fair_share() {
    let server = Server::open().await;
    for (id, fields) in [
        ("a", json!({})),
        (
            "b",
            json!({"priority": 0, "fairness_key": "blue", "fairness_weight": 3}),
        ),
        (
            "c",
            json!({"priority": 0, "fairness_key": "blue", "fairness_weight": 3}),
        ),
        ("d", json!({"priority": 0, "fairness_key": "red"})),
    ] {
        let mut body = json!({"workflow_id": id, "workflow_type": "greet"});
        crate::support::merge(&mut body, fields);
        server.start_with(body).await;
        server.advance(1).await;
    }
    let path = "/task-queues/default/priority-fairness";
    let shown = server.get(path).accepted(200).await;
    let expected = json!({
        "ready_tasks": 4,
        "priority_tiers": [
            {"priority": 0, "count": 3, "classes": [
                {"fairness_key": "blue", "count": 2, "fairness_weight": 3},
                {"fairness_key": "red", "count": 1, "fairness_weight": 1},
            ]},
            {"priority": 5, "count": 1, "classes": [
                {"fairness_key": null, "count": 1, "fairness_weight": 1},
            ]},
        ],
        "recent_dispatch": [],
    });
    assert_eq!(shown["workflow_task"], expected);
    assert_eq!(shown["activity_task"]["ready_tasks"], 0);
    assert_eq!(shown["queue"], "default");
    server.register("w", json!({})).await;
    let order: Vec<Value> = [
        server.worker("w").workflow_task().await,
        server.worker("w").workflow_task().await,
        server.worker("w").workflow_task().await,
        server.worker("w").workflow_task().await,
    ]
    .iter()
    .map(|task| task["workflow_id"].clone())
    .collect();
    assert_eq!(
        order,
        ["b", "d", "c", "a"],
        "the class that was served goes behind the other"
    );
    let shown = server.get(path).accepted(200).await;
    let recent = &shown["workflow_task"]["recent_dispatch"];
    assert_eq!(
        *recent,
        json!([{"fairness_key": "blue", "score": 2.0}, {"fairness_key": "red", "score": 1.0}])
    );
}
