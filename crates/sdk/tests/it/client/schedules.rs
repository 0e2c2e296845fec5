//! Schedules: the requests that are sent, and how responses are read.

use std::time::Duration;

use futures::TryStreamExt as _;
use longhaul_protocol::Timestamp;
use longhaul_sdk::WorkflowCall;
use longhaul_sdk::client::{
    Interval, OverlapPolicy, Schedule, ScheduleAction, ScheduleSpec, ScheduleUpdate, TriggerOutcome,
};
use serde_json::{Value, json};

use crate::support::Scripted;

fn rollup() -> ScheduleAction {
    ScheduleAction::new(WorkflowCall::<()>::named("rollup").argument(7))
}

/// `[7]`.
fn input() -> Value {
    json!({"codec": "avro", "blob": "wwHioz3/VYAiNwwCBA4A"})
}

#[tokio::test]
async fn a_schedule_is_created_with_every_option() {
    let (client, server) = Scripted::client([(201, json!({"outcome": "created"}))]).await;
    let spec = ScheduleSpec::cron("0 6 * * *")
        .and_interval(
            Interval::every(Duration::from_millis(3_599_001)).offset(Duration::from_millis(59_001)),
        )
        .timezone("Europe/Berlin");
    let action = rollup()
        .queue("reports")
        .run_timeout(Duration::from_millis(59_001))
        .execution_timeout(Duration::from_secs(600));
    let schedule = Schedule::new(spec, action)
        .overlap(OverlapPolicy::BufferOne)
        .jitter(Duration::from_millis(29_001))
        .max_runs(50)
        .memo("team", "blue")
        .search_attribute("Count", 3)
        .paused()
        .note("while we look");
    let handle = client.create_schedule("daily", schedule).await.unwrap();
    assert_eq!(handle.id(), "daily");
    let body = json!({
        "schedule_id": "daily",
        "spec": {
            "cron_expressions": ["0 6 * * *"],
            "intervals": [{"every": "PT3600S", "offset": "PT60S"}],
            "timezone": "Europe/Berlin",
        },
        "action": {
            "workflow_type": "rollup",
            "task_queue": "reports",
            "input": input(),
            "run_timeout_seconds": 60,
            "execution_timeout_seconds": 600,
        },
        "overlap_policy": "buffer_one",
        "jitter_seconds": 30,
        "max_runs": 50,
        "memo": {"team": "blue"},
        "search_attributes": {"Count": 3},
        "paused": true,
        "note": "while we look",
    });
    assert_eq!(
        server.asked(),
        [("POST", "/api/schedules".to_owned(), body)]
    );
}

#[tokio::test]
async fn a_minimal_schedule_sends_only_what_was_set() {
    let (client, server) = Scripted::client([(201, json!({}))]).await;
    let schedule = Schedule::new(ScheduleSpec::every(Duration::from_secs(30)), rollup());
    client.create_schedule("often", schedule).await.unwrap();
    let body = json!({
        "schedule_id": "often",
        "spec": {"intervals": [{"every": "PT30S"}]},
        "action": {"workflow_type": "rollup", "input": input()},
    });
    assert_eq!(server.asked()[0].2, body);
}

/// The description of a schedule, with every field.
fn described() -> Value {
    json!({
        "schedule_id": "daily", "namespace": "default", "status": "active", "paused": false, "note": null,
        "spec": {"cron_expressions": ["0 6 * * *"], "timezone": "UTC"},
        "action": {"workflow_type": "orders.rollup", "task_queue": "orders", "input": []},
        "overlap_policy": "skip", "memo": {}, "search_attributes": {}, "jitter_seconds": 30, "max_runs": 50,
        "remaining_actions": 8, "fires_count": 42, "failures_count": 1,
        "next_fire_at": "2026-04-22T06:00:00.000000Z", "last_fired_at": "2026-04-21T06:00:00.000000Z",
        "paused_at": null, "created_at": "2026-01-01T00:00:00.000000Z", "updated_at": null,
        "state": {"status": "active"}, "info": {"recent_actions": []},
    })
}

#[tokio::test]
async fn every_action_has_its_request() {
    let time = Timestamp::from_micros(1_767_225_600_000_000);
    let backfilled = json!({"outcome": "backfill_started", "fires_attempted": 2, "results": [
        {"fire_time": "2026-01-01T06:00:00.000000Z", "outcome": "started", "workflow_id": "d-1", "run_id": "01"},
        {"fire_time": "2026-01-02T06:00:00.000000Z", "outcome": "skipped", "reason": "overlap_policy_skip"},
    ]});
    let (client, server) = Scripted::client([
        (200, described()),
        (200, json!({"outcome": "updated"})),
        (200, json!({"outcome": "paused"})),
        (200, json!({"outcome": "resumed"})),
        (
            200,
            json!({"outcome": "triggered", "workflow_id": "d-1", "run_id": "01"}),
        ),
        (
            200,
            json!({"outcome": "skipped", "reason": "overlap_policy_skip"}),
        ),
        (200, backfilled),
        (200, json!({"events": [{"sequence": 1}], "has_more": false})),
        (200, json!({"outcome": "deleted"})),
    ])
    .await;
    let schedule = client.schedule("daily");
    let description = schedule.describe().await.unwrap();
    assert_eq!(description.overlap_policy, OverlapPolicy::Skip);
    assert_eq!(description.spec.cron_expressions, ["0 6 * * *"]);
    assert_eq!(
        (description.fires_count, description.remaining_actions),
        (42, Some(8))
    );
    let update = ScheduleUpdate::new()
        .spec(ScheduleSpec::cron("@daily"))
        .action(rollup())
        .overlap(OverlapPolicy::AllowAll)
        .jitter(Duration::ZERO)
        .max_runs(9)
        .note("n");
    schedule.update(update).await.unwrap();
    schedule.pause(Some("rest")).await.unwrap();
    schedule.resume(None).await.unwrap();
    let triggered = schedule
        .trigger(Some(OverlapPolicy::AllowAll))
        .await
        .unwrap();
    let expected = TriggerOutcome::Triggered {
        workflow_id: "d-1".to_owned(),
        run_id: Some("01".to_owned()),
    };
    assert_eq!(triggered, expected);
    let skipped = schedule.trigger(None).await.unwrap();
    let reason = Some("overlap_policy_skip".to_owned());
    assert_eq!(skipped, TriggerOutcome::Skipped { reason });
    let results = schedule
        .backfill(time, time.plus_seconds(172_800), None)
        .await
        .unwrap();
    assert_eq!((results.len(), results[0].outcome.as_str()), (2, "started"));
    assert_eq!(schedule.history(0).await.unwrap().len(), 1);
    schedule.delete().await.unwrap();
    let path = |rest: &str| format!("/api/schedules/daily{rest}");
    let changed = json!({
        "spec": {"cron_expressions": ["@daily"]}, "action": {"workflow_type": "rollup", "input": input()},
        "overlap_policy": "allow_all", "jitter_seconds": 0, "max_runs": 9, "note": "n",
    });
    let range = json!({"start_time": "2026-01-01T00:00:00.000000Z", "end_time": "2026-01-03T00:00:00.000000Z"});
    assert_eq!(
        server.asked(),
        [
            ("GET", path(""), Value::Null),
            ("PUT", path(""), changed),
            ("POST", path("/pause"), json!({"note": "rest"})),
            ("POST", path("/resume"), json!({})),
            (
                "POST",
                path("/trigger"),
                json!({"overlap_policy": "allow_all"})
            ),
            ("POST", path("/trigger"), json!({})),
            ("POST", path("/backfill"), range),
            (
                "GET",
                path("/history?limit=500&after_sequence=0"),
                Value::Null
            ),
            ("DELETE", path(""), Value::Null),
        ]
    );
}

#[tokio::test]
async fn a_list_follows_its_pages_and_stops_at_one_that_names_itself() {
    let page = |token: Option<&str>| json!({"schedules": [described()], "next_page_token": token});
    let answers = [(200, page(Some("t1"))), (200, page(None))];
    let (client, server) = Scripted::client(answers).await;
    let list = client
        .schedules()
        .status("active")
        .workflow_type("a/b")
        .query("Note = 'x'");
    let all: Vec<_> = list.stream().try_collect().await.unwrap();
    assert_eq!(all.len(), 2);
    let first = "/api/schedules?status=active&workflow_type=a%2Fb&query=Note%20%3D%20%27x%27";
    let paths: Vec<_> = server
        .asked()
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    assert_eq!(
        paths,
        [first.to_owned(), format!("{first}&next_page_token=t1")]
    );

    let (client, _) = Scripted::client([(200, page(Some("t1"))), (200, page(Some("t1")))]).await;
    let error = client
        .schedules()
        .stream()
        .try_collect::<Vec<_>>()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("the token of this page"),
        "{error}"
    );
}
