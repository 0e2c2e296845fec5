//! The four time-outs of a task with each policy, and that of a run.

use longhaul_engine::conductor::execution::command::update::{Report, TaskTarget};
use longhaul_protocol::conductor::ResultStatus;
use serde_json::{Value, json};

use super::world::{World, report, simple, with};

/// Returns a world with a task `a` of this definition, and what its node has besides.
fn world_of(definition: Value, node: Value) -> World {
    let mut world = World::with_tasks(json!([with(simple("a"), node), simple("z")]));
    world.task_def(with(
        json!({"name": "a", "retryCount": 1, "retryDelaySeconds": 1, "responseTimeoutSeconds": 3600}),
        definition,
    ));
    world
}

#[test]
fn the_time_of_an_execution() {
    let limits = |policy: &str| json!({"timeoutSeconds": 10, "timeoutPolicy": policy});
    let mut world = world_of(limits("RETRY"), json!({}));
    let run = world.start("w", json!({}));
    world.wait_seconds(1000);
    assert_eq!(
        world.trace(&run),
        "a S",
        "the time counts from the first poll"
    );
    world.poll("a", "w1").unwrap();
    world.wait_seconds(9);
    let target = TaskTarget::Reference("a".to_owned());
    world
        .update(
            &run,
            target,
            report(ResultStatus::InProgress, json!({}), None),
        )
        .unwrap();
    world.wait_seconds(1);
    assert_eq!(world.trace(&run), "a Tr, a S");
    world.wait_seconds(1);
    world.poll("a", "w1").unwrap();
    world.wait_seconds(10);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a Tr, a T".to_owned(), "TIMED_OUT")
    );
    let reason = "Task timed out after 10 seconds. Timeout configured as 10 seconds. Timeout policy configured to RETRY";
    assert_eq!(world.task(&run, "a").reason.as_deref(), Some(reason));
    let id = world.task(&run, "a").id.clone();
    assert_eq!(
        world.reason(&run),
        format!("Task {id} failed with status: TIMED_OUT and reason: '{reason}'")
    );

    for node in [json!({}), json!({"optional": true})] {
        let mut world = world_of(limits("TIME_OUT_WF"), node);
        let run = world.start("w", json!({}));
        world.poll("a", "w1").unwrap();
        world.wait_seconds(10);
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            ("a T".to_owned(), "TIMED_OUT")
        );
        assert!(
            world
                .reason(&run)
                .starts_with("Task timed out after 10 seconds.")
        );
    }

    let mut world = world_of(limits("ALERT_ONLY"), json!({}));
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    world.wait_seconds(100);
    assert_eq!(world.trace(&run), "a P");
    world.complete(&run, "a", json!({}));
    assert_eq!(world.trace(&run), "a C, z S");

    let mut world = world_of(limits("RETRY"), json!({"retryCount": 0, "optional": true}));
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    world.wait_seconds(10);
    assert_eq!(world.trace(&run), "a E, z S");
}

#[test]
fn the_time_until_a_poll() {
    let limits = |policy: &str| json!({"pollTimeoutSeconds": 10, "timeoutPolicy": policy});
    let mut world = world_of(limits("RETRY"), json!({"startDelay": 5}));
    let run = world.start("w", json!({}));
    world.wait_seconds(14);
    assert_eq!(
        world.trace(&run),
        "a S",
        "the time counts from when it is visible"
    );
    world.wait_seconds(1);
    assert_eq!(world.trace(&run), "a Tr, a S");
    world.wait_seconds(11);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a Tr, a T".to_owned(), "TIMED_OUT")
    );
    assert_eq!(
        world.task(&run, "a").reason.as_deref(),
        Some(
            "Task poll timed out after 10 seconds. Poll timeout configured as 10 seconds. Timeout policy configured to RETRY"
        )
    );
    let mut world = world_of(limits("TIME_OUT_WF"), json!({"optional": true}));
    let run = world.start("w", json!({}));
    world.wait_seconds(10);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a T".to_owned(), "TIMED_OUT")
    );
    let mut world = world_of(limits("ALERT_ONLY"), json!({}));
    let run = world.start("w", json!({}));
    world.wait_seconds(100);
    assert_eq!(world.trace(&run), "a S");
    let mut world = world_of(limits("RETRY"), json!({"optional": true, "retryCount": 0}));
    let run = world.start("w", json!({}));
    world.wait_seconds(10);
    assert_eq!(world.trace(&run), "a E, z S");
    // A task that comes back is measured from then on.
    let mut world = world_of(limits("RETRY"), json!({}));
    let run = world.start("w", json!({}));
    world.wait_seconds(9);
    world.poll("a", "w1").unwrap();
    world.wait_seconds(100);
    let target = TaskTarget::Reference("a".to_owned());
    world
        .update(
            &run,
            target,
            report(ResultStatus::InProgress, json!({}), None),
        )
        .unwrap();
    world.wait_seconds(9);
    assert_eq!(world.trace(&run), "a S");
    world.wait_seconds(1);
    assert_eq!(world.trace(&run), "a Tr, a S");
}

#[test]
fn the_time_without_a_report() {
    for policy in ["RETRY", "TIME_OUT_WF", "ALERT_ONLY"] {
        let limits = json!({"responseTimeoutSeconds": 10, "timeoutPolicy": policy});
        let mut world = world_of(limits.clone(), json!({}));
        let run = world.start("w", json!({}));
        world.poll("a", "w1").unwrap();
        world.wait_seconds(10);
        assert_eq!(world.trace(&run), "a Tr, a S", "{policy}");
        world.wait_seconds(1);
        world.poll("a", "w1").unwrap();
        world.wait_seconds(10);
        assert_eq!(
            (world.trace(&run), world.status(&run)),
            ("a Tr, a T".to_owned(), "TIMED_OUT")
        );
        let id = world.task(&run, "a").id.clone();
        assert_eq!(
            world.task(&run, "a").reason,
            Some(format!(
                "responseTimeout: 10 exceeded for the taskId: {id} with Task Definition: a"
            ))
        );
        let mut world = world_of(limits, json!({"optional": true, "retryCount": 0}));
        let run = world.start("w", json!({}));
        world.poll("a", "w1").unwrap();
        world.wait_seconds(10);
        assert_eq!(world.trace(&run), "a E, z S", "{policy}");
    }
}

#[test]
fn the_time_of_all_attempts() {
    let limits = |policy: &str| json!({"totalTimeoutSeconds": 10, "timeoutPolicy": policy, "retryCount": 5, "retryDelaySeconds": 4});
    let mut world = world_of(limits("RETRY"), json!({"optional": true}));
    let run = world.start("w", json!({}));
    world.fail(&run, "a", "one");
    world.wait_seconds(4);
    world.fail(&run, "a", "two");
    world.wait_seconds(6);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a Fr, a Fr, a T".to_owned(), "TIMED_OUT")
    );
    let id = world.task(&run, "a").id.clone();
    assert_eq!(
        world.reason(&run),
        format!(
            "Task {id}/a exceeded total timeout of 10 seconds (elapsed 10 seconds across all attempts). No further retries will be attempted."
        )
    );
    assert_eq!(
        world.task(&run, "a").reason,
        Some(format!(
            "Task a/{id} exceeded total timeout of 10 seconds (elapsed 10 seconds across all attempts including retry delays). Timeout policy: RETRY"
        ))
    );
    let mut world = world_of(limits("TIME_OUT_WF"), json!({"optional": true}));
    let run = world.start("w", json!({}));
    world.wait_seconds(10);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a T".to_owned(), "TIMED_OUT")
    );
    assert!(world.reason(&run).ends_with("Timeout policy: TIME_OUT_WF"));
    let mut world = world_of(limits("ALERT_ONLY"), json!({}));
    let run = world.start("w", json!({}));
    world.wait_seconds(100);
    assert_eq!(world.trace(&run), "a S");
    // A failure after the time is not retried.
    world.fail(&run, "a", "late");
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a F".to_owned(), "FAILED")
    );
    assert!(
        world
            .reason(&run)
            .contains("exceeded total timeout of 10 seconds")
    );
}

#[test]
fn a_wait_and_a_sub_workflow_have_time_outs_too() {
    let mut world = World::with_tasks(json!([
        {"name": "h", "taskReferenceName": "h", "type": "HUMAN", "optional": true},
        {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "child"}},
    ]));
    world.define(json!({"name": "child", "version": 1, "tasks": [simple("c")]}));
    for name in ["h", "s"] {
        world.task_def(json!({"name": name, "retryCount": 0, "timeoutSeconds": 10, "timeoutPolicy": "RETRY", "responseTimeoutSeconds": 1}));
    }
    let run = world.start("w", json!({}));
    world.wait_seconds(10);
    assert_eq!(world.trace(&run), "h E, s P");
    world.wait_seconds(10);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("h E, s T".to_owned(), "TIMED_OUT")
    );
    let child = world.runs_of("child")[0].clone();
    assert_eq!(
        (world.trace(&child), world.status(&child)),
        ("c X".to_owned(), "TERMINATED")
    );
}

#[test]
fn a_run_times_out_by_its_policy() {
    let define = |policy: &str| {
        let mut world = World::new();
        world.define(json!({"name": "w", "version": 1, "timeoutSeconds": 60, "timeoutPolicy": policy, "tasks": [simple("a")]}));
        world
    };
    let mut world = define("TIME_OUT_WF");
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    world.wait_seconds(59);
    assert_eq!(world.status(&run), "RUNNING");
    world.wait_seconds(1);
    assert_eq!(
        (world.trace(&run), world.status(&run)),
        ("a X".to_owned(), "TIMED_OUT")
    );
    assert_eq!(
        world.reason(&run),
        "Workflow timed out after 60 seconds. Timeout configured as 60 seconds. Timeout policy configured to TIME_OUT_WF"
    );
    let target = TaskTarget::Reference("a".to_owned());
    assert!(world.update(&run, target, Report::ExtendLease).is_err());
    let mut world = define("ALERT_ONLY");
    let run = world.start("w", json!({}));
    world.wait_seconds(1000);
    assert_eq!(world.status(&run), "RUNNING");
}

#[test]
fn a_paused_run_times_out_and_a_resumed_one_begins_again() {
    use longhaul_engine::command::{PauseExecution, ResumeExecution};
    let mut world = World::new();
    world.define(json!({"name": "w", "version": 1, "timeoutSeconds": 60, "timeoutPolicy": "TIME_OUT_WF", "tasks": [simple("a")]}));
    let run = world.start("w", json!({}));
    world.wait_seconds(50);
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.act(&run, &ResumeExecution).unwrap();
    world.wait_seconds(59);
    assert_eq!(world.status(&run), "RUNNING");
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    world.wait_seconds(1);
    assert_eq!(world.status(&run), "TIMED_OUT");
}
