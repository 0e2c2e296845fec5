//! Polls and reports on tasks.

mod served;
mod signals;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::command::UpdateExecutionTask;
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, members, report, simple, with};

fn one_task() -> World {
    World::with_tasks(json!([simple("a"), simple("b")]))
}

fn in_progress(output: Value, callback_after_seconds: i64) -> Report {
    Report::Status {
        status: ResultStatus::InProgress,
        output: Output::Replace(members(output)),
        reason: Some("still busy".to_owned()),
        worker_id: Some("w9".to_owned()),
        callback_after_seconds,
        logs: Vec::new(),
    }
}

#[test]
fn a_worker_polls_and_completes() {
    let mut world = one_task();
    let run = world.start("w", json!({}));
    world.wait_seconds(7);
    let (polled, seq) = world.poll("a", "w1").unwrap();
    assert_eq!((&polled, seq), (&run, 1));
    let view = world.view(&run);
    assert_eq!(view["updateTime"], json!(world.now.as_millis()));
    assert_eq!(
        view["createTime"],
        json!(world.now.as_millis() - 7000),
        "a claim is a step of the run"
    );
    assert_eq!(world.poll("a", "w2"), None);
    assert!(!world.claim(&run, 1, "w2"), "a task has one worker");
    let record = world.record(&run, "a");
    assert_eq!(
        (
            record["status"].clone(),
            record["pollCount"].clone(),
            record["workerId"].clone()
        ),
        (json!("IN_PROGRESS"), json!(1), json!("w1"))
    );
    let task_id = world.task(&run, "a").id.clone();
    let target = TaskTarget::Id {
        task_id: task_id.clone(),
        seq,
    };
    let updated = world
        .update(
            &run,
            target.clone(),
            report(ResultStatus::Completed, json!({"x": 1}), None),
        )
        .unwrap();
    assert!(updated.has_ended);
    assert_eq!(world.trace(&run), "a C, b S");
    // The same report again changes nothing, and so does a different one.
    let version = world.runs[&run].version;
    for status in [
        ResultStatus::Completed,
        ResultStatus::Failed,
        ResultStatus::InProgress,
    ] {
        let updated = world
            .update(&run, target.clone(), report(status, json!({}), None))
            .unwrap();
        assert!(updated.has_ended);
    }
    assert_eq!(world.runs[&run].version, version);
    let target = TaskTarget::Id { task_id, seq: 2 };
    let unknown = world.update(
        &run,
        target,
        report(ResultStatus::Completed, json!({}), None),
    );
    assert!(matches!(unknown, Err(Rejection::TaskNotFound)));
    let unknown = world.report(&run, "a", ResultStatus::Completed, json!({}), None);
    assert!(matches!(unknown, Err(Rejection::TaskNotFound)));
}

#[test]
fn a_task_may_be_completed_without_a_poll() {
    let mut world = one_task();
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({}));
    world
        .report(&run, "b", ResultStatus::Canceled, json!({}), Some("no"))
        .unwrap();
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a C, b X".to_owned(), "TERMINATED")
    );
}

#[test]
fn a_terminal_error_is_not_retried() {
    let mut world = one_task();
    let run = world.start("w", json!({}));
    world
        .report(
            &run,
            "a",
            ResultStatus::FailedWithTerminalError,
            json!({"e": 1}),
            Some("bad"),
        )
        .unwrap();
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a Z".to_owned(), "FAILED")
    );
    assert_eq!(world.output(&run), json!({"e": 1}));
}

#[test]
fn a_task_in_progress_is_delivered_again() {
    let mut world = one_task();
    let run = world.start("w", json!({}));
    for round in 1..=3 {
        assert!(world.poll("a", "w1").is_some(), "round {round}");
        let target = TaskTarget::Reference("a".to_owned());
        world
            .update(&run, target, in_progress(json!({"round": round}), 30))
            .unwrap();
        let record = world.record(&run, "a");
        assert_eq!(
            (
                record["status"].clone(),
                record["callbackAfterSeconds"].clone()
            ),
            (json!("SCHEDULED"), json!(30))
        );
        assert_eq!(
            (record["outputData"].clone(), record["workerId"].clone()),
            (json!({"round": round}), json!("w9"))
        );
        assert_eq!(world.poll("a", "w1"), None);
        world.wait_seconds(30);
    }
    world.poll("a", "w2").unwrap();
    assert_eq!(world.record(&run, "a")["pollCount"], 4);
    // Without a delay it is visible at once.
    let target = TaskTarget::Reference("a".to_owned());
    world
        .update(&run, target, in_progress(json!({}), 0))
        .unwrap();
    assert!(world.poll("a", "w2").is_some());
    world.complete(&run, "a", json!({}));
    assert_eq!(
        world.task(&run, "a").reason,
        None,
        "a report replaces the reason"
    );
}

#[test]
fn a_report_may_add_members() {
    let mut world = one_task();
    let run = world.start("w", json!({}));
    let merge = |status, output: Value| Report::Status {
        status,
        output: Output::Merge(members(output)),
        reason: None,
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    };
    let big = "x".repeat(4000);
    let target = || TaskTarget::Reference("a".to_owned());
    world
        .update(
            &run,
            target(),
            merge(ResultStatus::InProgress, json!({"a": big, "b": 1})),
        )
        .unwrap();
    world
        .update(
            &run,
            target(),
            merge(ResultStatus::Completed, json!({"b": 2})),
        )
        .unwrap();
    assert_eq!(
        world.record(&run, "a")["outputData"],
        json!({"a": big, "b": 2})
    );
}

#[test]
fn a_lease_is_extended() {
    let mut world = one_task();
    world.task_def(json!({"name": "a", "responseTimeoutSeconds": 10, "retryCount": 0}));
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    for _ in 0..4 {
        world.wait_seconds(8);
        let target = TaskTarget::Reference("a".to_owned());
        world.update(&run, target, Report::ExtendLease).unwrap();
    }
    assert_eq!(world.trace(&run), "a P");
    world.wait_seconds(10);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a T".to_owned(), "TIMED_OUT")
    );
}

#[test]
fn an_extended_lease_of_a_paused_run_keeps_its_backlog() {
    use longhaul_engine::command::{PauseExecution, ResumeExecution};
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [[simple("a"), simple("a2")], [simple("b")]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a2", "b"]},
    ]));
    let run = world.start("w", json!({}));
    world.poll("b", "w1").unwrap();
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.complete(&run, "a", json!({}));
    let target = TaskTarget::Reference("b".to_owned());
    world.update(&run, target, Report::ExtendLease).unwrap();
    world.act(&run, &ResumeExecution).unwrap();
    assert_eq!(world.trace(&run), "fork C, a C, b P, join P, a2 S");
}

#[test]
fn a_report_takes_the_next_task() {
    let mut world = World::with_tasks(json!([
        simple("a"), {"name": "a", "taskReferenceName": "again", "type": "SIMPLE"}, simple("b"),
    ]));
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    let report = |output: Value| Report::Status {
        status: ResultStatus::Completed,
        output: Output::Replace(members(output)),
        reason: None,
        worker_id: Some("w1".to_owned()),
        callback_after_seconds: 0,
        logs: Vec::new(),
    };
    let update = |reference: &str| UpdateExecutionTask {
        target: TaskTarget::Reference(reference.to_owned()),
        report: report(json!({})),
        takes_next: true,
    };
    let updated = world.act(&run, &update("a")).unwrap();
    assert_eq!((updated.has_ended, updated.next), (true, Some(2)));
    assert_eq!(world.trace(&run), "a C, again P");
    assert_eq!(world.task(&run, "again").worker_id.as_deref(), Some("w1"));
    // The next one is for another queue.
    let updated = world.act(&run, &update("again")).unwrap();
    assert_eq!(updated.next, None);
    assert_eq!(world.trace(&run), "a C, again C, b S");
    let updated = world.act(&run, &update("b")).unwrap();
    assert_eq!((updated.next, world.status(&run)), (None, "COMPLETED"));
}

#[test]
fn an_output_over_the_limit_fails_the_task() {
    let mut world = one_task();
    world.check_every = 1000;
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"x": "x".repeat(10 * 1024 * 1024)}));
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a Z".to_owned(), "FAILED")
    );
    let reason = world.task(&run, "a").reason.clone().unwrap();
    assert!(
        reason.contains("10485768 bytes") && reason.contains("10485760"),
        "{reason}"
    );
}

#[test]
fn retries_wait_by_each_logic() {
    for (definition, delays) in [
        (
            json!({"retryLogic": "FIXED", "retryDelaySeconds": 5}),
            [5, 5, 5],
        ),
        (
            json!({"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 2}),
            [2, 4, 8],
        ),
        (
            json!({"retryLogic": "LINEAR_BACKOFF", "retryDelaySeconds": 2, "backoffScaleFactor": 3}),
            [6, 12, 18],
        ),
        (
            json!({"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 4, "maxRetryDelaySeconds": 6}),
            [4, 6, 6],
        ),
    ] {
        let mut world = one_task();
        world.task_def(with(definition, json!({"name": "a", "retryCount": 3})));
        let run = world.start("w", json!({}));
        for delay in delays {
            world.poll("a", "w1").unwrap();
            world.fail(&run, "a", "no");
            let record = world.record(&run, "a");
            assert_eq!(
                (
                    record["callbackAfterSeconds"].clone(),
                    record["startDelayInSeconds"].clone()
                ),
                (json!(delay), json!(delay))
            );
            assert_eq!(
                (
                    record["pollCount"].clone(),
                    record["reasonForIncompletion"].clone()
                ),
                (json!(0), json!("no"))
            );
            world.wait_seconds(delay - 1);
            assert_eq!(world.poll("a", "w1"), None);
            world.wait_seconds(1);
        }
        world.poll("a", "w1").unwrap();
        world.fail(&run, "a", "no");
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            ("a Fr, a Fr, a Fr, a F".to_owned(), "FAILED")
        );
    }
}

#[test]
fn a_run_that_ended_names_the_attempts_that_failed() {
    let retried = with(
        simple("a"),
        json!({"retryCount": 1, "taskDefinition": {"name": "a", "retryDelaySeconds": 0, "responseTimeoutSeconds": 60}}),
    );
    let mut world = World::with_tasks(json!([retried]));
    let run = world.start("w", json!({}));
    world.fail(&run, "a", "once");
    assert_eq!(
        world.view(&run)["failedReferenceTaskNames"],
        json!([]),
        "the run is open"
    );
    world.complete(&run, "a", json!({}));
    let view = world.view(&run);
    assert_eq!(view["status"], "COMPLETED");
    assert_eq!(view["failedReferenceTaskNames"], json!(["a"]));
    assert_eq!(view["failedTaskNames"], json!(["a"]));
}

#[test]
fn jitter_is_added_and_not_shown() {
    let mut world = one_task();
    world.task_def(
        json!({"name": "a", "retryCount": 30, "retryDelaySeconds": 1, "backoffJitterMs": 3000}),
    );
    let run = world.start("w", json!({}));
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..20 {
        world.fail(&run, "a", "no");
        let row = &world.rows[&world.task(&run, "a").id];
        let wait = world.now.micros_until(row.available_at);
        assert!((1_000_000..=4_000_000).contains(&wait), "{wait}");
        waits.insert(wait);
        assert_eq!(world.record(&run, "a")["callbackAfterSeconds"], 1);
    }
    assert!(waits.len() > 10, "the jitter differs: {waits:?}");
}

#[test]
fn a_new_attempt_sees_the_values_of_now() {
    let mut world = World::with_tasks(json!([
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": [
            [with(simple("a"), json!({"inputParameters": {"v": "${workflow.variables.v}", "id": "${CPEWF_TASK_ID}"}}))],
            [simple("b"), {"name": "s", "taskReferenceName": "s", "type": "SET_VARIABLE", "inputParameters": {"v": 2}}]]},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ["a", "s"]},
    ]));
    let run = world.start("w", json!({}));
    let first = world.record(&run, "a");
    assert_eq!(
        first["inputData"],
        json!({"v": null, "id": first["taskId"]})
    );
    world.complete(&run, "b", json!({}));
    world.fail(&run, "a", "no");
    let second = world.record(&run, "a");
    assert_eq!(second["inputData"], json!({"v": 2, "id": second["taskId"]}));
    assert_ne!(first["taskId"], second["taskId"]);
    assert_eq!(second["retriedTaskId"], first["taskId"]);
}

#[test]
fn domains_fall_back() {
    let domains = |list: &str| Arc::new(BTreeMap::from([("a".to_owned(), list.to_owned())]));
    for (list, polled, queue) in [
        ("x, y", vec![], "y:a"),
        ("x, y", vec!["x:a"], "x:a"),
        ("x, NO_DOMAIN", vec![], "a"),
        ("NO_DOMAIN, x", vec!["x:a"], "x:a"),
    ] {
        let mut world = one_task();
        world.polled = polled.into_iter().map(str::to_owned).collect();
        let mut new = world.new_execution("w", json!({}));
        new.task_to_domain = domains(list);
        new.priority = 7;
        world.create(&new);
        world.settle();
        assert!(world.poll(queue, "w1").is_some(), "{list}");
        assert!(world.rows.values().all(|row| row.priority == 92));
    }
}
