//! Caps on leases, dispatches and waiting polls: ready tasks are withheld, and the poll names the cap.

use longhaul_host::api::{Admission, Caps, Override};
use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_host::{Config, PollCaps, RequestCaps};
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use crate::support::{Server, complete, envelope, every_type};

async fn server(config: Config) -> Server {
    let server = Server::configured(|it| *it = config).await;
    server.register("w", every_type()).await;
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
    let answer = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
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
async fn a_cap_on_leases_withholds_ready_tasks_and_is_named() {
    let server = capped(Caps {
        max_active_leases: Some(1),
        ..Caps::default()
    })
    .await;
    let empty = server
        .worker("w")
        .poll("workflow", json!({}))
        .accepted(200)
        .await;
    assert_eq!(
        empty["poll_status"], "empty",
        "without work nothing is withheld"
    );
    server.start("a").await;
    server.start("b").await;
    let task = server.worker("w").workflow_task().await;
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
    let next = server.worker("w").workflow_task().await;
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
    let task = server.worker("w").workflow_task().await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let finish = async {
        server.polls_waiting(1).await;
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
    server.worker("w").workflow_task().await;
    server.advance(301).await;
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_task_attempt"],
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
    server.register("w", every_type()).await;
    server.start("a").await;
    server.start("b").await;
    server.worker("w").workflow_task().await;
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
    let task = server.worker("w").workflow_task().await;
    let on_other = json!({"task_queue": "other"});
    let answer = server
        .worker("other")
        .poll("workflow", on_other.clone())
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "throttled");
    let activity =
        json!([{"type": "schedule_activity", "activity_type": "say", "arguments": envelope("[]")}]);
    complete(&server, &task, activity).accepted(200).await;
    let leased = server
        .worker("w")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(leased["poll_status"], "leased");
    let answer = server
        .worker("other")
        .poll("workflow", on_other)
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
    server.worker("w").workflow_task().await;
    server.advance(10).await;
    server.worker("w").workflow_task().await;
    assert_eq!(throttled(&server, "max_dispatches_per_minute").await, 50);
    server.advance(49).await;
    assert_eq!(throttled(&server, "max_dispatches_per_minute").await, 1);
    server.advance(1).await;
    server.worker("w").workflow_task().await;
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
    server.worker("w").workflow_task().await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let pass = async {
        server.polls_waiting(1).await;
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
    server.worker("w").workflow_task().await;
    for (queue, expected) in [("second", "throttled"), ("third", "leased")] {
        server.register(queue, json!({"task_queue": queue})).await;
        server
            .start_with(json!({"workflow_type": "greet", "task_queue": queue}))
            .await;
        let answer = server
            .worker(queue)
            .poll("workflow", json!({"task_queue": queue}))
            .accepted(200)
            .await;
        assert_eq!(answer["poll_status"], expected, "{queue}");
    }
}

#[tokio::test]
async fn too_many_waiting_polls_are_refused() {
    let server = server(Config {
        poll_caps: PollCaps {
            max: None,
            max_per_namespace: Some(1),
        },
        ..Config::default()
    })
    .await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let second = async {
        server.polls_waiting(1).await;
        let refused = server
            .worker("w")
            .poll("activity", json!({"timeout_seconds": 60}))
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
    let freed = server
        .worker("w")
        .poll("activity", json!({}))
        .accepted(200)
        .await;
    assert_eq!(freed["poll_status"], "empty");
}

/// Query polls have their own queues and their own count.
#[tokio::test]
async fn too_many_waiting_query_polls_are_refused() {
    let server = server(Config {
        poll_caps: PollCaps {
            max: None,
            max_per_namespace: Some(1),
        },
        ..Config::default()
    })
    .await;
    let waiting = server
        .worker("w")
        .poll("query", json!({"timeout_seconds": 60}));
    let second = async {
        server.polls_waiting(1).await;
        let refused = server
            .worker("w")
            .poll("query", json!({"timeout_seconds": 60}))
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
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["lease_expires_at"], "2026-01-01T00:00:45.000000Z");
    server.advance(44).await;
    crate::support::expect_no_task(&server, "workflow").await;
    server.advance(1).await;
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_task_attempt"],
        2
    );
}

#[tokio::test]
async fn a_stopping_server_is_unavailable() {
    let server = server(Config::default()).await;
    let waiting = server
        .worker("w")
        .poll("workflow", json!({"timeout_seconds": 60}));
    let stop = async {
        server.polls_waiting(1).await;
        server.host.begin_stop();
    };
    let (answer, ()) = tokio::join!(waiting.accepted(200), stop);
    assert_eq!(answer["poll_status"], "empty", "a waiting poll ends");
    server.start("a").await;
    for kind in ["workflow", "activity", "query"] {
        let refused = server
            .worker("w")
            .poll(kind, json!({}))
            .refused(503, "unavailable")
            .await;
        assert_eq!(refused["poll_status"], "unavailable");
        assert_eq!(refused["task"], Value::Null);
        assert_eq!(refused["retryable"], true);
        assert_eq!(refused["retry_after_seconds"], 1);
    }
}

#[tokio::test]
async fn requests_of_a_namespace_per_minute_are_limited() {
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
    server.worker("w").workflow_task().await;
    server.advance(60).await;
    server.get("/workflows/a").accepted(200).await;
}

#[tokio::test]
async fn concurrent_requests_of_a_namespace_are_limited() {
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
        // The first request is polled first, and holds its slot until there is an event.
        let refused = server
            .get("/workflows/a")
            .refused(429, "namespace_request_concurrency_exhausted")
            .await;
        assert_eq!(refused["limit"], 1);
        assert_eq!(refused["retry_after_seconds"], 1);
        let task = server.worker("w").workflow_task().await;
        complete(&server, &task, done()).accepted(200).await;
    };
    let (page, ()) = tokio::join!(waiting.accepted(200), second);
    assert_eq!(page["events"][0]["event_type"], "WorkflowCompleted");
    server.get("/workflows/a").accepted(200).await;
}
