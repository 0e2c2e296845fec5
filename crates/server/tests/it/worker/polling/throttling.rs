//! Caps on leases, dispatches and waiting polls: work is withheld and the poll says so (worker-protocol.md §4.2, §4.3, §4.7;
//! control-plane.md §24.3, §28).

use longhaul_host::api::{Admission, Caps, Override};
use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_host::{Config, PollCaps, RequestCaps};
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use crate::support::server::{Server, envelope};
use crate::support::worker::{complete, poll, register_for_all, workflow_task};

async fn server(config: Config) -> Server {
    let server = Server::on(
        Arc::new(Memory::new()),
        config,
        Auth::open(),
        Options::default(),
    )
    .await;
    register_for_all(&server, "w").await;
    server
}

async fn capped(caps: Caps) -> Server {
    let admission = Admission {
        workflow_tasks: caps,
        ..Admission::default()
    };
    server(Config {
        admission,
        ..Config::default()
    })
    .await
}

async fn throttled(server: &Server, limit: &str) -> Value {
    let answer = poll(server, "workflow", "w", json!({})).accepted(200).await;
    assert_eq!(answer["poll_status"], "throttled", "{answer}");
    assert_eq!(answer["reason"], "throttled");
    assert_eq!(answer["task"], Value::Null);
    assert_eq!(answer["lease"], Value::Null);
    assert_eq!(answer["admission_limit"], limit);
    answer["retry_after_seconds"].clone()
}

fn done() -> Value {
    json!([{"type": "complete_workflow", "result": envelope("1")}])
}

#[tokio::test]
async fn a_cap_on_leases_withholds_ready_work_and_says_so() {
    let server = capped(Caps {
        max_active_leases: Some(1),
        ..Caps::default()
    })
    .await;
    let empty = poll(&server, "workflow", "w", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        empty["poll_status"], "empty",
        "without work nothing is withheld"
    );
    server.start("a").await;
    server.start("b").await;
    let task = workflow_task(&server, "w").await;
    assert_eq!(throttled(&server, "max_active_leases").await, 1);
    let queue = server.get("/task-queues/default").accepted(200).await;
    let admission = &queue["admission"]["workflow_tasks"];
    for (field, value) in [
        ("status", json!("throttled")),
        (
            "server_budget_source",
            json!("server.workflow_tasks.max_active_leases"),
        ),
        ("server_max_active_leases_per_queue", json!(1)),
        ("server_active_lease_count", json!(1)),
        ("server_remaining_active_lease_capacity", json!(0)),
        ("server_max_dispatches_per_minute", Value::Null),
    ] {
        assert_eq!(admission[field], value, "{field}");
    }
    complete(&server, &task, done()).accepted(200).await;
    let next = workflow_task(&server, "w").await;
    assert_eq!(
        next["workflow_task_attempt"], 1,
        "a withheld task was not leased"
    );
}

#[tokio::test]
async fn a_poll_that_waits_behind_a_cap_gets_the_task_as_soon_as_there_is_room() {
    let server = capped(Caps {
        max_active_leases: Some(1),
        ..Caps::default()
    })
    .await;
    server.start("a").await;
    server.start("b").await;
    let task = workflow_task(&server, "w").await;
    let waiting = poll(&server, "workflow", "w", json!({"timeout_seconds": 60}));
    let finish = async {
        tokio::task::yield_now().await;
        complete(&server, &task, done()).accepted(200).await;
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), finish);
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn an_expired_lease_makes_room() {
    let server = capped(Caps {
        max_active_leases: Some(1),
        ..Caps::default()
    })
    .await;
    server.start("a").await;
    workflow_task(&server, "w").await;
    server.advance(301).await;
    assert_eq!(
        workflow_task(&server, "w").await["workflow_task_attempt"],
        2
    );
}

#[tokio::test]
async fn leases_of_a_restart_are_counted() {
    let store = Arc::new(Memory::new());
    let begin = async || {
        let caps = Caps {
            max_active_leases_per_namespace: Some(1),
            ..Caps::default()
        };
        let admission = Admission {
            workflow_tasks: caps,
            ..Admission::default()
        };
        let config = Config {
            admission,
            ..Config::default()
        };
        let store = Arc::clone(&store) as Arc<dyn longhaul_store::Store>;
        Server::on(store, config, Auth::open(), Options::default()).await
    };
    let server = begin().await;
    register_for_all(&server, "w").await;
    server.start("a").await;
    server.start("b").await;
    workflow_task(&server, "w").await;
    server.host.stop().await;
    let server = begin().await;
    throttled(&server, "max_active_leases_per_namespace").await;
}

#[tokio::test]
async fn a_cap_on_a_namespace_reaches_over_its_queues_but_not_over_kinds() {
    let server = capped(Caps {
        max_active_leases_per_namespace: Some(1),
        ..Caps::default()
    })
    .await;
    server
        .register("other", json!({"task_queue": "other"}))
        .await;
    server.start("a").await;
    server.start("c").await;
    let elsewhere = json!({"workflow_id": "b", "workflow_type": "greet", "task_queue": "other"});
    server.start_with(elsewhere).await;
    let task = workflow_task(&server, "w").await;
    let on_other = json!({"task_queue": "other"});
    let answer = poll(&server, "workflow", "other", on_other.clone())
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "throttled");
    let activity =
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")}]);
    complete(&server, &task, activity).accepted(200).await;
    let leased = poll(&server, "activity", "w", json!({}))
        .accepted(200)
        .await;
    assert_eq!(leased["poll_status"], "leased");
    let answer = poll(&server, "workflow", "other", on_other)
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn a_cap_on_dispatches_lasts_until_the_minute_has_passed() {
    let server = capped(Caps {
        max_dispatches_per_minute: Some(2),
        ..Caps::default()
    })
    .await;
    for id in ["a", "b", "c"] {
        server.start(id).await;
    }
    workflow_task(&server, "w").await;
    server.advance(10).await;
    workflow_task(&server, "w").await;
    assert_eq!(throttled(&server, "max_dispatches_per_minute").await, 50);
    server.advance(49).await;
    assert_eq!(throttled(&server, "max_dispatches_per_minute").await, 1);
    server.advance(1).await;
    workflow_task(&server, "w").await;
}

#[tokio::test]
async fn a_poll_that_waits_gets_its_task_when_the_minute_has_passed() {
    let server = capped(Caps {
        max_dispatches_per_minute_per_namespace: Some(1),
        ..Caps::default()
    })
    .await;
    server.start("a").await;
    server.start("b").await;
    workflow_task(&server, "w").await;
    let waiting = poll(&server, "workflow", "w", json!({"timeout_seconds": 60}));
    let pass = async {
        tokio::task::yield_now().await;
        server.advance(60).await;
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), pass);
    assert_eq!(answer["poll_status"], "leased");
}

#[tokio::test]
async fn queues_of_one_budget_group_share_it() {
    let grouped = |group: &str| Override {
        workflow_tasks: Caps {
            dispatch_budget_group: Some(group.to_owned()),
            max_dispatches_per_minute_per_budget_group: Some(1),
            ..Caps::default()
        },
        activity_tasks: Caps::default(),
    };
    let admission = Admission {
        overrides: BTreeMap::from([
            ("default:default".to_owned(), grouped("batch")),
            ("second".to_owned(), grouped("batch")),
            ("third".to_owned(), grouped("other")),
        ]),
        ..Admission::default()
    };
    let server = server(Config {
        admission,
        ..Config::default()
    })
    .await;
    server.start("a").await;
    workflow_task(&server, "w").await;
    for (queue, expected) in [("second", "throttled"), ("third", "leased")] {
        server.register(queue, json!({"task_queue": queue})).await;
        server
            .start_with(json!({"workflow_type": "greet", "task_queue": queue}))
            .await;
        let answer = poll(&server, "workflow", queue, json!({"task_queue": queue}))
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], expected, "{queue}");
    }
}

#[tokio::test]
async fn too_many_waiting_polls_are_turned_away() {
    let server = server(Config {
        poll_caps: PollCaps {
            max: None,
            max_per_namespace: Some(1),
        },
        ..Config::default()
    })
    .await;
    let waiting = poll(&server, "workflow", "w", json!({"timeout_seconds": 60}));
    let second = async {
        tokio::task::yield_now().await;
        let refused = poll(&server, "activity", "w", json!({"timeout_seconds": 60}))
            .refused(429, "long_poll_capacity_exhausted")
            .await;
        assert_eq!(refused["poll_status"], "long_poll_capacity_exhausted");
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["task_kind"], "activity_task");
        assert_eq!(refused["task_queue"], "default");
        assert_eq!(refused["retryable"], true);
        assert_eq!(refused["retry_after_seconds"], 1);
        server.start("a").await;
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), second);
    assert_eq!(answer["poll_status"], "leased");
    let freed = poll(&server, "activity", "w", json!({}))
        .accepted(200)
        .await;
    assert_eq!(freed["poll_status"], "empty");
}

/// Queries have lines of their own, and so their own count.
#[tokio::test]
async fn too_many_waiting_query_polls_are_turned_away() {
    let server = server(Config {
        poll_caps: PollCaps {
            max: None,
            max_per_namespace: Some(1),
        },
        ..Config::default()
    })
    .await;
    let waiting = poll(&server, "query", "w", json!({"timeout_seconds": 60}));
    let second = async {
        tokio::task::yield_now().await;
        let refused = poll(&server, "query", "w", json!({"timeout_seconds": 60}))
            .refused(429, "long_poll_capacity_exhausted")
            .await;
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["task_kind"], "query_task");
        server.host.begin_stop();
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), second);
    assert_eq!(answer["poll_status"], "empty");
}

#[tokio::test]
async fn the_length_of_a_lease_can_be_configured() {
    let mut config = Config::default();
    config.limits.workflow_task_lease_seconds = 45;
    let server = server(config).await;
    server.start("a").await;
    let task = workflow_task(&server, "w").await;
    assert_eq!(task["lease_expires_at"], "2026-01-01T00:00:45.000000Z");
    server.advance(44).await;
    crate::support::worker::expect_no_task(&server, "workflow").await;
    server.advance(1).await;
    assert_eq!(
        workflow_task(&server, "w").await["workflow_task_attempt"],
        2
    );
}

#[tokio::test]
async fn a_stopping_server_is_unavailable() {
    let server = server(Config::default()).await;
    let waiting = poll(&server, "workflow", "w", json!({"timeout_seconds": 60}));
    let stop = async {
        tokio::task::yield_now().await;
        server.host.begin_stop();
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), stop);
    assert_eq!(answer["poll_status"], "empty", "who waited is let go");
    server.start("a").await;
    for kind in ["workflow", "activity", "query"] {
        let refused = poll(&server, kind, "w", json!({}))
            .refused(503, "unavailable")
            .await;
        assert_eq!(refused["poll_status"], "unavailable");
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["retryable"], true);
        assert_eq!(refused["retry_after_seconds"], 1);
    }
}

#[tokio::test]
async fn a_namespace_may_be_given_so_many_requests_a_minute() {
    let mut request_caps = RequestCaps::default();
    request_caps.usual.max_requests_per_minute = Some(2);
    let server = server(Config {
        request_caps,
        ..Config::default()
    })
    .await;
    server.start("a").await;
    server.get("/workflows/a").accepted(200).await;
    let answer = server.get("/workflows/a").send().await;
    assert_eq!(answer.status.as_u16(), 429);
    assert_eq!(answer.headers["retry-after"], "60");
    assert_eq!(answer.body["reason"], "namespace_request_rate_exhausted");
    assert_eq!(answer.body["namespace"], "default");
    assert_eq!(answer.body["limit"], 2);
    assert_eq!(answer.body["retryable"], true);
    assert_eq!(answer.body["control_plane"]["operation"], "describe");
    server.get("/cluster/info").accepted(200).await;
    workflow_task(&server, "w").await;
    server.advance(60).await;
    server.get("/workflows/a").accepted(200).await;
}

#[tokio::test]
async fn a_namespace_may_be_given_so_many_requests_at_once() {
    let mut request_caps = RequestCaps::default();
    request_caps.usual.max_concurrent_requests = Some(9);
    request_caps.hard.max_concurrent_requests = Some(1);
    let server = server(Config {
        request_caps,
        ..Config::default()
    })
    .await;
    let run_id = server.start("a").await;
    let path = format!("/workflows/a/runs/{run_id}/history?wait_new_event=1&next_page_token=Mg==");
    let waiting = server.get(&path);
    let second = async {
        tokio::task::yield_now().await;
        let refused = server
            .get("/workflows/a")
            .refused(429, "namespace_request_concurrency_exhausted")
            .await;
        assert_eq!(refused["limit"], 1);
        assert_eq!(refused["retry_after_seconds"], 1);
        let task = workflow_task(&server, "w").await;
        complete(&server, &task, done()).accepted(200).await;
    };
    let (page, ()) = tokio::join!(waiting.accepted(200), second);
    assert_eq!(page["events"][0]["event_type"], "WorkflowCompleted");
    server.get("/workflows/a").accepted(200).await;
}
