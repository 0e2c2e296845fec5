//! How a worker handles every response to its polls, from a scripted server.

use std::time::Duration;

use longhaul_sdk::worker::Ended;
use longhaul_sdk::{ActivityResult, WorkflowContext, WorkflowResult, activity, workflow};
use serde_json::{Value, json};

use crate::fake_server::{Asked, FakeServer, ScriptedReply};

#[workflow]
async fn double(_ctx: WorkflowContext, number: i64) -> WorkflowResult<i64> {
    Ok(number * 2)
}

#[activity]
async fn triple(number: i64) -> ActivityResult<i64> {
    Ok(number * 3)
}

const WORKFLOW_POLLS: &str = "/workflow-tasks/poll";

fn status(poll_status: &str, retry_after: Option<u64>) -> Value {
    json!({"poll_status": poll_status, "task": null, "retry_after_seconds": retry_after, "a new field": {}})
}

/// The pauses between requests.
fn pauses(asked: &[Asked]) -> Vec<Duration> {
    asked
        .windows(2)
        .map(|pair| pair[1].at.duration_since(pair[0].at))
        .collect()
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_throttled_worker_waits_as_long_as_the_server_asks() {
    let server = FakeServer::default().workflow_polls([
        ScriptedReply::ok(status("throttled", Some(7))),
        ScriptedReply::ok(status("throttled", None)),
        ScriptedReply::ok(status("throttled", Some(0))),
    ]);
    let (worker, _) = server.employ(|worker| worker.workflow::<double>()).await;
    let asked = server.wait_for(WORKFLOW_POLLS, 4).await;
    assert_eq!(pauses(&asked)[..3], [seconds(7), seconds(1), seconds(1)]);
    let metrics = worker.metrics();
    assert_eq!((metrics.polls_throttled, metrics.polls_empty), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_poll_follows_an_empty_one_immediately() {
    let idle = ["empty", "timeout", "empty"].map(|idle| ScriptedReply::ok(status(idle, None)));
    let server = FakeServer::default().workflow_polls(idle);
    let (worker, running) = server.employ(|worker| worker.workflow::<double>()).await;
    let asked = server.wait_for(WORKFLOW_POLLS, 4).await;
    assert_eq!(pauses(&asked)[..3], [Duration::ZERO; 3]);
    assert_eq!(worker.metrics().polls_empty, 3);
    worker.shut_down();
    assert_eq!(running.await.unwrap().unwrap(), Ended::ShutDown);
    // The open poll is sent once more, without waiting, in case a task was on its way. There is no new poll.
    let ids = |asked: &[Asked]| {
        let mut ids: Vec<_> = asked
            .iter()
            .map(|poll| poll.body["poll_request_id"].to_string())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let after = server.asked(WORKFLOW_POLLS);
    assert_eq!(ids(&after), ids(&asked));
    let repeated = after.iter().skip(asked.len());
    assert!(
        repeated
            .clone()
            .all(|poll| poll.body["timeout_seconds"] == 0),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn polls_are_repeated_until_the_server_is_available() {
    let away = json!({"reason": "backend_unavailable", "message": "no disk", "poll_status": "unavailable"});
    let mut later = away.clone();
    later["retry_after_seconds"] = json!(9);
    let mut answers = vec![ScriptedReply::Body(503, away); 20];
    answers.extend([
        ScriptedReply::Broken,
        ScriptedReply::Body(503, later),
        ScriptedReply::Body(500, json!("?")),
    ]);
    let count = answers.len();
    let server = FakeServer::default().workflow_polls(answers);
    let (worker, running) = server.employ(|worker| worker.workflow::<double>()).await;
    let asked = server.wait_for(WORKFLOW_POLLS, count + 1).await;
    let pauses = pauses(&asked);
    assert!(pauses[0] <= Duration::from_millis(101), "{pauses:?}");
    assert!(
        pauses[..21]
            .iter()
            .all(|pause| *pause <= Duration::from_millis(5001)),
        "{pauses:?}"
    );
    assert!(pauses[15] >= Duration::from_millis(2500), "{pauses:?}");
    assert!(pauses[21] >= seconds(9), "{pauses:?}");
    assert!(!running.is_finished());
    assert_eq!(worker.metrics().polls_failed, count as u64);
}

#[activity]
async fn think(number: i64) -> ActivityResult<i64> {
    tokio::time::sleep(seconds(20)).await;
    Ok(number)
}

#[tokio::test(start_paused = true)]
async fn a_draining_worker_finishes_its_tasks_and_takes_no_new_ones() {
    let mut held = activity_task("avro");
    held["activity_type"] = json!("think");
    let server = FakeServer::default()
        .activity_polls([ScriptedReply::task(held)])
        .workflow_polls([
            ScriptedReply::ok(status("throttled", Some(5))),
            ScriptedReply::ok(status("draining", Some(5))),
        ]);
    let worker = server.employ(|worker| worker.workflow::<double>().activity::<think>());
    let (_, running) = worker.await;
    assert_eq!(running.await.unwrap().unwrap(), Ended::Drained);
    let polls = server.asked(WORKFLOW_POLLS);
    assert_eq!(polls.len(), 2);
    let completed = server.asked("/activity-tasks/t-1/complete");
    assert_eq!(completed[0].at.duration_since(polls[0].at), seconds(20));
    let later: Vec<_> = server
        .asked("/activity-tasks/poll")
        .into_iter()
        .filter(|poll| poll.at > polls[1].at)
        .collect();
    assert!(later.is_empty(), "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn a_poll_waits_longer_than_it_is_held_and_uses_the_servers_page_size() {
    let server = FakeServer::default();
    let worker = server.employ(|worker| worker.workflow::<double>().poll_timeout(seconds(60)));
    let _worker = worker.await;
    let asked = server.wait_for(WORKFLOW_POLLS, 2).await;
    assert_eq!(asked[0].body["timeout_seconds"], 60);
    assert!(asked[0].timeout >= seconds(70), "{:?}", asked[0].timeout);
    assert_eq!(pauses(&asked)[0], seconds(60));
    assert_eq!(asked[0].body["history_page_size"], 200);
    assert_ne!(
        asked[0].body["poll_request_id"],
        asked[1].body["poll_request_id"]
    );
    let registered = server.asked("/worker/register");
    assert_eq!(registered.len(), 1);
    assert!(registered[0].at <= asked[0].at);
    let body = &registered[0].body;
    assert_eq!(body["task_queue"], "q");
    assert_eq!(body["worker_id"], asked[0].body["worker_id"]);
    assert_eq!(body["supported_workflow_types"], json!(["double"]));
    assert!(
        body["max_concurrent_workflow_tasks"]
            .as_u64()
            .is_some_and(|slots| slots > 0)
    );
}

/// `[14]`.
fn fourteen() -> Value {
    json!({"codec": "avro", "blob": "wwHioz3/VYAiNwwCBBwA"})
}

fn workflow_task(codec: &str) -> Value {
    let event = |sequence: u64, event_type: &str| json!({"sequence": sequence, "event_type": event_type, "recorded_at": "2026-01-01T00:00:00.000000Z", "payload": {}});
    json!({
        "task_id": "t-2", "workflow_id": "w", "run_id": "r", "workflow_type": "double", "workflow_task_attempt": 1,
        "lease_owner": "me", "payload_codec": codec, "arguments": fourteen(),
        "history_events": [event(1, "StartAccepted"), event(2, "WorkflowStarted")],
    })
}

fn activity_task(codec: &str) -> Value {
    json!({
        "task_id": "t-1", "workflow_id": "w", "run_id": "r", "activity_execution_id": "x", "activity_attempt_id": "a-1",
        "attempt_number": 1, "activity_type": "triple", "payload_codec": codec, "arguments": fourteen(),
        "task_queue": "q", "lease_owner": "me", "a new field": [{}],
    })
}

#[tokio::test(start_paused = true)]
async fn an_activitys_result_is_sent_in_its_envelope() {
    let server = FakeServer::default().activity_polls([ScriptedReply::task(activity_task("avro"))]);
    let _worker = server.employ(|worker| worker.activity::<triple>()).await;
    let completed = &server.wait_for("/activity-tasks/t-1/complete", 1).await[0].body;
    // 42.
    assert_eq!(
        completed["result"],
        json!({"codec": "avro", "blob": "wwHioz3/VYAiNwRU"})
    );
    assert_eq!(completed["activity_attempt_id"], "a-1");
    assert_eq!(completed["lease_owner"], "me");
}

#[tokio::test(start_paused = true)]
async fn payloads_of_another_codec_are_refused() {
    let server = FakeServer::default()
        .activity_polls([ScriptedReply::task(activity_task("json"))])
        .workflow_polls([ScriptedReply::task(workflow_task("json"))]);
    let worker = server.employ(|worker| worker.activity::<triple>().workflow::<double>());
    let (worker, _) = worker.await;
    let failed = &server.wait_for("/activity-tasks/t-1/fail", 1).await[0].body;
    let failure = failed["failure"].to_string();
    assert!(
        failure.contains("payloads have the codec `json`"),
        "{failed}"
    );
    assert_eq!(failed["failure"]["non_retryable"], true, "{failed}");
    let failed = &server.wait_for("/workflow-tasks/t-2/fail", 1).await[0].body;
    assert!(
        failed["failure"]
            .to_string()
            .contains("payloads have the codec `json`"),
        "{failed}"
    );
    assert!(server.asked("/complete").is_empty());
    assert_eq!(worker.metrics().workflow_tasks_failed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_report_does_not_stop_the_worker() {
    let refused = |reason: &str, cancelled: bool| {
        let body = json!({"reason": reason, "message": "too late", "recorded": false, "cancel_requested": cancelled});
        ScriptedReply::Body(409, body)
    };
    let refusals = [
        refused("run_closed", true),
        refused("activity_cancelled", true),
        refused("run_closed", false),
        refused("lease_expired", false),
        refused("stale_attempt", false),
    ];
    let tasks = vec![ScriptedReply::task(activity_task("avro")); refusals.len() + 1];
    let server = FakeServer::default()
        .activity_polls(tasks)
        .reports(refusals);
    let (worker, running) = server.employ(|worker| worker.activity::<triple>()).await;
    server.wait_for("/activity-tasks/t-1/complete", 6).await;
    server.wait_for("/activity-tasks/poll", 8).await;
    let metrics = worker.metrics();
    assert_eq!((metrics.runs_cancelled, metrics.leases_lost), (2, 3));
    assert!(!running.is_finished());

    let closed = [
        refused("run_closed", true),
        refused("workflow_task_attempt_mismatch", false),
    ];
    let tasks = vec![ScriptedReply::task(workflow_task("avro")); 3];
    let server = FakeServer::default().workflow_polls(tasks).reports(closed);
    let (worker, running) = server.employ(|worker| worker.workflow::<double>()).await;
    let completed = server.wait_for("/workflow-tasks/t-2/complete", 3).await;
    assert_eq!(
        completed[2].body["commands"][0]["type"],
        "complete_workflow"
    );
    server.wait_for(WORKFLOW_POLLS, 5).await;
    let metrics = worker.metrics();
    assert_eq!((metrics.runs_cancelled, metrics.leases_lost), (1, 1));
    assert!(server.asked("/fail").is_empty() && !running.is_finished());
}
