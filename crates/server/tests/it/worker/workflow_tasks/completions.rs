//! Ending a workflow task: lease guards in their order, repeats, and that a refusal changes nothing. Closed runs have a file of
//! their own.

use serde_json::{Value, json};

use crate::support::{
    Server, complete, decided, every_type, expect_no_task, fail, history, id, leased_task, report,
    staffed,
};

const VERBS: [&str; 4] = ["history", "heartbeat", "complete", "fail"];

/// Returns a valid body for one of the four calls.
fn fields(verb: &str) -> Value {
    match verb {
        "history" => json!({"next_history_page_token": "MA=="}),
        "complete" => json!({"commands": [{"type": "complete_workflow"}]}),
        "fail" => json!({"failure": {"message": "no"}}),
        _ => json!({}),
    }
}

#[tokio::test]
async fn a_completion_is_answered_in_full() {
    let (server, task) = leased_task().await;
    let answer = complete(
        &server,
        &task,
        json!([{"type": "start_timer", "delay_seconds": 60}]),
    )
    .send()
    .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.bare(),
        json!({
            "task_id": task["task_id"],
            "workflow_task_attempt": 1,
            "outcome": "completed",
            "recorded": true,
            "run_id": task["run_id"],
            "run_status": "waiting",
            "created_task_ids": [],
            "reason": null,
        })
    );
}

#[tokio::test]
async fn a_completion_names_the_tasks_it_created() {
    let (server, task) = leased_task().await;
    let commands = json!([
        {"type": "schedule_activity", "activity_type": "say"},
        {"type": "schedule_activity", "activity_type": "say"},
    ]);
    let answer = complete(&server, &task, commands).accepted(200).await;
    let created = answer["created_task_ids"].as_array().expect("ids").clone();
    assert_eq!(created.len(), 2);
    for expected in created {
        assert_eq!(
            server.worker("w").activity_task().await["task_id"],
            expected
        );
    }
}

#[tokio::test]
async fn the_run_status_after_a_completion_is_that_of_the_run() {
    for (command, status) in [
        (json!({"type": "complete_workflow"}), "completed"),
        (json!({"type": "fail_workflow", "message": "no"}), "failed"),
        (json!({"type": "continue_as_new"}), "completed"),
        (json!({"type": "open_condition_wait"}), "waiting"),
    ] {
        let (server, task) = leased_task().await;
        let answer = complete(&server, &task, json!([command]))
            .accepted(200)
            .await;
        assert_eq!(answer["run_status"], status, "{command}");
    }
}

#[tokio::test]
async fn owner_and_attempt_are_needed() {
    let (server, task) = leased_task().await;
    for verb in VERBS {
        let with = |wrong: Value| {
            let mut body = fields(verb);
            crate::support::merge(&mut body, wrong);
            report(&server, &task, verb, body)
        };
        assert_eq!(
            with(json!({"lease_owner": null})).invalid().await,
            ["lease_owner"],
            "{verb}"
        );
        for owner in [json!(""), json!(7), json!(["w"])] {
            assert_eq!(
                with(json!({"lease_owner": owner})).invalid().await,
                ["lease_owner"],
                "{verb}"
            );
        }
        for attempt in [
            json!(null),
            json!(0),
            json!(-1),
            json!("1"),
            json!(1.5),
            json!(true),
        ] {
            assert_eq!(
                with(json!({"workflow_task_attempt": attempt}))
                    .invalid()
                    .await,
                ["workflow_task_attempt"],
                "{verb} {attempt}"
            );
        }
    }
    assert_eq!(history(&server, &task).await.len(), 2);
}

#[tokio::test]
async fn the_owner_may_be_called_worker_id() {
    let (server, task) = leased_task().await;
    let owner =
        json!({"lease_owner": null, "worker_id": "w", "event": "heartbeat", "task_id": "ignored"});
    report(&server, &task, "heartbeat", owner)
        .accepted(200)
        .await;
    let other = json!({"lease_owner": null, "worker_id": "v"});
    report(&server, &task, "heartbeat", other)
        .refused(409, "lease_owner_mismatch")
        .await;
    let done =
        json!({"lease_owner": null, "worker_id": "w", "commands": [{"type": "complete_workflow"}]});
    report(&server, &task, "complete", done).accepted(200).await;
}

#[tokio::test]
async fn a_heartbeat_renews_the_lease_and_returns_the_run_status() {
    let (server, task) = leased_task().await;
    server.advance(100).await;
    let answer = report(&server, &task, "heartbeat", json!({})).send().await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.bare(),
        json!({
            "task_id": task["task_id"],
            "workflow_task_attempt": 1,
            "lease_owner": "w",
            "renewed": true,
            "lease_expires_at": "2026-01-01T00:06:40.000000Z",
            "run_status": "running",
            "task_status": "leased",
            "reason": null,
            "cancellation_request": null,
        })
    );
    server.advance(250).await;
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn reading_history_does_not_renew_the_lease() {
    let (server, task) = leased_task().await;
    server.advance(200).await;
    report(&server, &task, "history", fields("history"))
        .accepted(200)
        .await;
    server.advance(100).await;
    assert_eq!(
        server.worker("w").workflow_task().await["workflow_task_attempt"],
        2
    );
}

/// Checks the fields that every refusal has.
fn expect_refusal_of(refusal: &Value, task_id: &str) {
    assert_eq!(refusal["task_id"], task_id);
    assert_eq!(refusal["workflow_task_attempt"], 1);
    assert_eq!(refusal["outcome"], "rejected");
    assert_eq!(refusal["recorded"], false);
}

#[tokio::test]
async fn an_unknown_task_is_not_found() {
    let (server, task) = leased_task().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    for verb in VERBS {
        let mut unknown = task.clone();
        unknown["task_id"] = json!("01aaaaaaaaaaaaaaaaaaaaaaaa");
        let refusal = report(&server, &unknown, verb, fields(verb))
            .refused(404, "task_not_found")
            .await;
        expect_refusal_of(&refusal, id(&unknown));
        let refusal = report(&server, &task, verb, fields(verb))
            .namespace("other")
            .refused(404, "task_not_found")
            .await;
        expect_refusal_of(&refusal, id(&task));
    }
    let activity = crate::support::running_activity;
    let other = staffed().await;
    let activity = activity(&other, json!({})).await;
    let as_workflow = json!({"lease_owner": "w", "workflow_task_attempt": 1});
    other
        .worker_post(
            &format!("/workflow-tasks/{}/heartbeat", id(&activity)),
            &as_workflow,
        )
        .refused(404, "task_not_found")
        .await;
}

#[tokio::test]
async fn a_task_that_is_not_leased_shows_its_status() {
    let (server, task) = leased_task().await;
    fail(&server, &task, json!({"message": "no"}))
        .accepted(200)
        .await;
    for verb in ["history", "heartbeat", "complete"] {
        let refusal = report(&server, &task, verb, fields(verb))
            .refused(409, "task_not_leased")
            .await;
        expect_refusal_of(&refusal, id(&task));
        assert_eq!(refusal["task_status"], "ready", "{verb}");
    }
    server.advance(1).await;
    let again = server.worker("w").workflow_task().await;
    complete(&server, &again, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    let refusal = report(&server, &task, "heartbeat", json!({}))
        .refused(409, "task_not_leased")
        .await;
    assert_eq!(refusal["task_status"], "completed");
}

#[tokio::test]
async fn an_expired_lease_is_over_at_its_very_end() {
    let (server, task) = leased_task().await;
    server.advance(299).await;
    report(&server, &task, "history", fields("history"))
        .accepted(200)
        .await;
    // Before the sweep has seen it: the clock decides.
    server.clock.advance_seconds(1);
    let refusal = complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .refused(409, "lease_expired")
        .await;
    expect_refusal_of(&refusal, id(&task));
    assert_eq!(refusal["lease_owner"], "w");
    assert_eq!(refusal["lease_expires_at"], "2026-01-01T00:05:00.000000Z");
    assert_eq!(refusal["task_status"], "leased");
    assert_eq!(history(&server, &task).await.len(), 2);
}

#[tokio::test]
async fn after_expiry_the_next_claim_wins_and_the_old_worker_commits_nothing() {
    let (server, task) = leased_task().await;
    server.register("v", every_type()).await;
    server.advance(300).await;
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .refused(409, "lease_expired")
        .await;

    let again = server.worker("v").workflow_task().await;
    assert_eq!(
        (&again["task_id"], &again["workflow_task_attempt"]),
        (&task["task_id"], &json!(2))
    );
    for verb in VERBS {
        let refusal = report(&server, &task, verb, fields(verb))
            .refused(409, "lease_owner_mismatch")
            .await;
        expect_refusal_of(&refusal, id(&task));
        assert_eq!(refusal["lease_owner"], "v", "{verb}");
    }
    assert_eq!(history(&server, &task).await.len(), 2);
    complete(&server, &again, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn an_old_attempt_is_refused_with_the_current_one() {
    let (server, task) = leased_task().await;
    server.advance(300).await;
    let again = server.worker("w").workflow_task().await;
    for verb in VERBS {
        let refusal = report(&server, &task, verb, fields(verb))
            .refused(409, "workflow_task_attempt_mismatch")
            .await;
        expect_refusal_of(&refusal, id(&task));
        assert_eq!(refusal["current_attempt"], 2, "{verb}");
    }
    let mut future = again.clone();
    future["workflow_task_attempt"] = json!(3);
    report(&server, &future, "heartbeat", json!({}))
        .refused(409, "workflow_task_attempt_mismatch")
        .await;
    assert_eq!(history(&server, &task).await.len(), 2);
    complete(&server, &again, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn the_body_is_checked_before_the_owner_and_the_owner_before_the_attempt() {
    let (server, task) = leased_task().await;
    let mut stranger = task.clone();
    stranger["lease_owner"] = json!("v");
    stranger["workflow_task_attempt"] = json!(9);
    complete(&server, &stranger, json!([{"type": "complete_workflow"}]))
        .refused(409, "lease_owner_mismatch")
        .await;
    complete(&server, &stranger, json!([{"type": "explode"}]))
        .refused(422, "validation_failed")
        .await;
    stranger["task_id"] = json!("unknown");
    complete(&server, &stranger, json!([]))
        .refused(422, "validation_failed")
        .await;
    complete(&server, &stranger, json!([{"type": "complete_workflow"}]))
        .refused(404, "task_not_found")
        .await;
}

#[tokio::test]
async fn a_repeated_completion_is_answered_as_before_and_changes_nothing() {
    for commands in [
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
        json!([{"type": "complete_workflow"}]),
        json!([{"type": "continue_as_new"}]),
    ] {
        let (server, task) = leased_task().await;
        let first = complete(&server, &task, commands.clone()).send().await;
        let before = history(&server, &task).await;
        let mut expected = first.bare();
        expected["duplicate"] = json!(true);
        let again = complete(&server, &task, commands.clone()).send().await;
        assert_eq!(
            (again.status.as_u16(), again.bare()),
            (200, expected.clone()),
            "{commands}"
        );
        // Whatever its commands.
        let other = complete(
            &server,
            &task,
            json!([{"type": "fail_workflow", "message": "no"}]),
        )
        .send()
        .await;
        assert_eq!(
            (other.status.as_u16(), other.bare()),
            (200, expected),
            "{commands}"
        );
        assert_eq!(history(&server, &task).await, before);
    }
}

#[tokio::test]
async fn only_the_same_call_is_a_repeat() {
    let (server, task) = leased_task().await;
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    fail(&server, &task, json!({"message": "no"}))
        .refused(409, "task_not_leased")
        .await;
    for (field, value) in [
        ("lease_owner", json!("v")),
        ("workflow_task_attempt", json!(2)),
    ] {
        let mut other = task.clone();
        other[field] = value;
        complete(&server, &other, json!([{"type": "complete_workflow"}]))
            .refused(409, "task_not_leased")
            .await;
    }
    assert_eq!(history(&server, &task).await.len(), 3);
}

#[tokio::test]
async fn a_repeated_failure_is_answered_as_before_until_the_task_is_leased_again() {
    let (server, task) = leased_task().await;
    let first = fail(&server, &task, json!({"message": "no"})).send().await;
    let mut expected = first.bare();
    expected["duplicate"] = json!(true);
    let again = fail(&server, &task, json!({"message": "other words"}))
        .send()
        .await;
    assert_eq!((again.status.as_u16(), again.bare()), (200, expected));
    // The repeat is no second failure: the back-off is still one second.
    server.advance(1).await;
    let second = server.worker("w").workflow_task().await;
    assert_eq!(second["workflow_task_attempt"], 2);
    complete(&server, &second, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}

#[tokio::test]
async fn a_structural_limit_fails_the_run_and_not_the_request() {
    let (server, task) = leased_task().await;
    let timer = json!({"type": "start_timer", "delay_seconds": 1});
    let answer = complete(&server, &task, json!(vec![timer; 5001]))
        .accepted(200)
        .await;
    assert_eq!(answer["outcome"], "completed");
    assert_eq!(
        (&answer["run_status"], &answer["recorded"]),
        (&json!("failed"), &json!(true))
    );
    assert_eq!(answer["reason"], "structural_limit_exceeded");
    assert_eq!(answer["limit_kind"], "command_batch_size");
    assert_eq!(
        (&answer["current_value"], &answer["configured_limit"]),
        (&json!(5001), &json!(5000))
    );
    let events = history(&server, &task).await;
    assert_eq!(
        crate::support::types(&events),
        ["StartAccepted", "WorkflowStarted", "WorkflowFailed"]
    );
    let failure = &events[2]["payload"];
    assert_eq!(failure["failure_category"], "structural_limit");
    assert_eq!(failure["non_retryable"], true);
    assert_eq!(failure["structural_limit_kind"], "command_batch_size");
    assert_eq!(
        (
            &failure["structural_limit_value"],
            &failure["structural_limit_configured"]
        ),
        (&json!(5001), &json!(5000))
    );
}

#[tokio::test]
async fn pending_activities_and_timers_and_payload_sizes_are_limited() {
    let large = "x".repeat(2 * 1024 * 1024);
    let large = crate::support::envelope(&format!("{large:?}"));
    let timer = json!({"type": "start_timer", "delay_seconds": 1});
    let activity = json!({"type": "schedule_activity", "activity_type": "say"});
    for (commands, kind) in [
        (json!(vec![timer; 2001]), "pending_timer_count"),
        (json!(vec![activity; 2001]), "pending_activity_count"),
        (
            json!([{"type": "complete_workflow", "result": large}]),
            "payload_size",
        ),
    ] {
        let (server, task) = leased_task().await;
        let answer = complete(&server, &task, commands).accepted(200).await;
        assert_eq!(
            (&answer["run_status"], &answer["limit_kind"]),
            (&json!("failed"), &json!(kind))
        );
        assert_eq!(
            history(&server, &task).await.len(),
            3,
            "the batch is dropped"
        );
    }
}

#[tokio::test]
async fn a_lost_task_is_not_a_retry_of_the_run() {
    let (server, task) = leased_task().await;
    server.advance(300).await;
    let second = server.worker("w").workflow_task().await;
    fail(&server, &second, json!({"message": "no"}))
        .accepted(200)
        .await;
    server.advance(1).await;
    let third = server.worker("w").workflow_task().await;
    assert_eq!(third["workflow_task_attempt"], 3);
    assert_eq!(
        (&third["run_id"], &third["history_events"]),
        (&task["run_id"], &task["history_events"])
    );
    complete(&server, &third, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
    let runs = server.get("/workflows/wf/runs").accepted(200).await;
    assert_eq!(runs["runs"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_client_of_the_first_minor_runs_a_workflow() {
    let server = Server::open().await;
    let body = json!({"worker_id": "old", "task_queue": "default", "runtime": "php"});
    server
        .worker_post("/register", &body)
        .protocol(Some("1.0"))
        .accepted(201)
        .await;
    server.start("wf").await;
    let poll = json!({"worker_id": "old", "task_queue": "default", "timeout_seconds": 1});
    let task = server
        .worker_post("/workflow-tasks/poll", &poll)
        .protocol(Some("1.0"))
        .accepted(200)
        .await["task"]
        .clone();
    complete(
        &server,
        &task,
        json!([{"type": "schedule_activity", "activity_type": "say"}]),
    )
    .protocol(Some("1.0"))
    .accepted(200)
    .await;
    let activity = server
        .worker_post("/activity-tasks/poll", &poll)
        .protocol(Some("1.0"))
        .accepted(200)
        .await["task"]
        .clone();
    crate::support::activity_report(&server, &activity, "complete", json!({"result": "done"}))
        .protocol(Some("1.0"))
        .accepted(200)
        .await;
    let task = server
        .worker_post("/workflow-tasks/poll", &poll)
        .protocol(Some("1.0"))
        .accepted(200)
        .await["task"]
        .clone();
    complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .protocol(Some("1.0"))
        .accepted(200)
        .await;
    assert_eq!(
        server.get("/workflows/wf").accepted(200).await["status"],
        "completed"
    );
}

#[tokio::test]
async fn nothing_else_creates_a_task_after_a_decision() {
    let server = staffed().await;
    decided(
        &server,
        json!([{"type": "start_timer", "delay_seconds": 60}]),
    )
    .await;
    expect_no_task(&server, "workflow").await;
    expect_no_task(&server, "activity").await;
}
