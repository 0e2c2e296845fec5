//! Retries of each logic, each time-out with each policy, and what follows a failure. `outcomes` has failures without a retry.

use std::num::NonZeroU16;
use std::time::Duration;

use longhaul_conductor_sdk::definition::{
    RetryLogic, TaskDefBuilder, TerminationStatus, TimeoutPolicy, WorkflowTimeoutPolicy, human,
    noop, simple, terminate, workflow_input,
};
use longhaul_conductor_sdk::model::{
    Object, ResultStatus, Task, TaskStatus, Workflow, WorkflowStatus,
};
use longhaul_conductor_sdk::worker::{AnyWorker, TaskContext, TaskFailure, TaskResponse, function};
use serde_json::{Value, json};

use super::{World, object, unique};
use crate::harness::eventually;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a worker that fails as many attempts.
fn failing(task_type: &str, failures: i32) -> AnyWorker {
    function(task_type, move |_: Value| -> TaskResponse<Value> {
        let attempt = TaskContext::current().map_or(0, |context| context.retry_count());
        if attempt < failures {
            return Err(TaskFailure::new(format!("attempt {attempt} fails")));
        }
        Ok(json!({"attempt": attempt}))
    })
}

/// Starts a run of one task that is retried once at once. Returns the name of the task and the id of the run.
async fn started(
    world: &World,
    build: impl FnOnce(TaskDefBuilder) -> TaskDefBuilder,
) -> (String, String) {
    let (task, name) = world
        .one_task(|task| build(task.retries(1).retry_delay(Duration::ZERO)))
        .await;
    (task, world.start_workflow(&name, json!({})).await)
}

fn attempts(workflow: &Workflow) -> Vec<TaskStatus> {
    workflow.tasks.iter().map(|task| task.status).collect()
}

/// Returns the attempt of this number once it exists.
async fn attempt_of(world: &World, id: &str, number: usize) -> Task {
    eventually(&format!("attempt {number}"), || async {
        let run = world.client.workflows().get(id).await.unwrap();
        run.tasks.into_iter().nth(number)
    })
    .await
}

/// Expects that a run timed out after this many attempts, for this reason.
async fn timed_out(world: &World, id: &str, count: usize, reason: &str) {
    let run = world.ended(id).await;
    let found = run.reason_for_incompletion.as_deref().unwrap_or_default();
    assert_eq!(run.status, WorkflowStatus::TimedOut, "{found}");
    assert_eq!(attempts(&run), vec![TaskStatus::TimedOut; count]);
    let last = run.tasks.last().unwrap();
    for found in [Some(found), last.reason_for_incompletion.as_deref()] {
        let found = found.unwrap_or_default();
        assert!(found.contains(reason), "{found}");
    }
}

/// Expects that an attempt past its time-out is open, and that its result ends the run.
async fn goes_on(world: &World, task_id: &str) {
    let task = world.client.tasks().get(task_id).await.unwrap();
    let reason = &task.reason_for_incompletion;
    assert!(!task.status.is_terminal(), "{reason:?}");
    let late = json!({"late": true});
    world
        .report(&task, ResultStatus::Completed, late.clone())
        .await;
    let run = world.ended(&task.workflow_instance_id).await;
    assert_eq!(run.status, WorkflowStatus::Completed);
    assert_eq!(run.output, object(late));
}

#[tokio::test]
async fn delays_of_each_logic() {
    let world = World::start().await;
    let exponential = RetryLogic::ExponentialBackoff;
    // Logic, largest delay, and the seconds before each retry.
    let rows = [
        (RetryLogic::Fixed, 0, [10, 10, 10]),
        (RetryLogic::LinearBackoff, 0, [20, 40, 60]),
        (exponential, 0, [10, 20, 40]),
        (exponential, 25, [10, 20, 25]),
    ];
    for (logic, most, delays) in rows {
        let (_, name) = world
            .one_task(|task| {
                task.retries(3)
                    .retry_logic(logic)
                    .retry_delay(Duration::from_secs(10))
                    .retry_delay_max(Duration::from_secs(most))
                    .backoff_factor(NonZeroU16::new(2).unwrap())
            })
            .await;
        let id = world.start_workflow(&name, json!({})).await;
        // A task may be reported before it is polled, so this does not wait for the delays.
        for attempt in 0..4 {
            let output = object(json!({"attempt": attempt}));
            let tasks = world.client.tasks();
            tasks
                .update_by_reference(&id, "t", ResultStatus::Failed, &output)
                .await
                .unwrap();
        }
        let run = world.ended(&id).await;
        assert_eq!(run.status, WorkflowStatus::Failed);
        assert_eq!(attempts(&run), [TaskStatus::Failed; 4]);
        let counts: Vec<_> = run.tasks.iter().map(|task| task.retry_count).collect();
        assert_eq!(counts, [0, 1, 2, 3]);
        let retries = run.tasks[1..].iter();
        let found: Vec<_> = retries.map(|task| task.callback_after_seconds).collect();
        assert_eq!(found, delays, "{logic:?}");
        for pair in run.tasks.windows(2) {
            assert_eq!(pair[1].retried_task_id.as_ref(), Some(&pair[0].task_id));
        }
    }
}

#[tokio::test]
async fn attempts_wait_for_their_delay() {
    let world = World::start().await;
    let mut ids = Vec::new();
    let mut workers = Vec::new();
    for logic in [
        RetryLogic::Fixed,
        RetryLogic::LinearBackoff,
        RetryLogic::ExponentialBackoff,
    ] {
        let (task, id) = started(&world, |task| task.retry_logic(logic).retry_delay(SECOND)).await;
        workers.push(failing(&task, 1));
        ids.push(id);
    }
    let _workers = world.workers(workers).await;
    for id in ids {
        let run = world.ended(&id).await;
        assert_eq!(attempts(&run), [TaskStatus::Failed, TaskStatus::Completed]);
        // Both moments come from the clock of the server.
        let second = &run.tasks[1];
        assert!(second.start_time - second.scheduled_time >= 1000);
    }
}

#[tokio::test]
async fn retries_are_exhausted() {
    let world = World::start().await;
    let (enough, completes) = started(&world, |task| task.retries(2)).await;
    let (short, fails) = started(&world, |task| task.retries(2)).await;
    let _workers = world
        .workers([failing(&enough, 2), failing(&short, 3)])
        .await;
    let run = world.ended(&completes).await;
    let failed = TaskStatus::Failed;
    assert_eq!(attempts(&run), [failed, failed, TaskStatus::Completed]);
    assert_eq!(run.output, object(json!({"attempt": 2})));
    let run = world.ended(&fails).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    assert_eq!(attempts(&run), [failed; 3]);
    assert_eq!(run.failed_reference_task_names, ["t"]);
    let reason = run.reason_for_incompletion.unwrap_or_default();
    assert!(
        reason.contains("failed with status: FAILED and reason: 'attempt 2 fails'"),
        "{reason}"
    );
}

#[tokio::test]
async fn poll_time_outs() {
    let world = World::start().await;
    let start = async |policy| {
        let limits =
            |task: TaskDefBuilder| task.poll_timeout(SECOND).timeout(Duration::ZERO, policy);
        started(&world, limits).await.1
    };
    let alert = start(TimeoutPolicy::AlertOnly).await;
    let retry = start(TimeoutPolicy::Retry).await;
    let end = start(TimeoutPolicy::TimeOutWorkflow).await;
    let begin = "Poll timeout configured as 1 seconds. Timeout policy configured to";
    timed_out(&world, &end, 1, &format!("{begin} TIME_OUT_WF")).await;
    timed_out(&world, &retry, 2, &format!("{begin} RETRY")).await;
    goes_on(&world, &attempt_of(&world, &alert, 0).await.task_id).await;
}

#[tokio::test]
async fn task_time_outs() {
    let world = World::start().await;
    let start = async |policy| {
        let task = unique("task");
        // Only the definition of a node may have no response time-out, which would end some attempts first.
        let definition = TaskDefBuilder::new(&task)
            .retries(1)
            .retry_delay(Duration::ZERO)
            .timeout(SECOND, policy)
            .response_timeout(Duration::ZERO);
        let node = simple(&task, "t").task_definition(definition.build().unwrap());
        let name = world.define(|workflow| workflow.then(node)).await;
        (task, world.start_workflow(&name, json!({})).await)
    };
    let (alert, _) = start(TimeoutPolicy::AlertOnly).await;
    let (retry, retried) = start(TimeoutPolicy::Retry).await;
    let (end, ending) = start(TimeoutPolicy::TimeOutWorkflow).await;
    let open = world.polled(&alert).await;
    for task in [&end, &retry, &retry] {
        world.polled(task).await;
    }
    let begin = "Timeout configured as 1 seconds. Timeout policy configured to";
    timed_out(&world, &ending, 1, &format!("{begin} TIME_OUT_WF")).await;
    timed_out(&world, &retried, 2, &format!("{begin} RETRY")).await;
    goes_on(&world, &open.task_id).await;
}

#[tokio::test]
async fn a_response_time_out_ends_the_attempt_with_each_policy() {
    let world = World::start().await;
    let mut rows = Vec::new();
    for policy in [
        TimeoutPolicy::Retry,
        TimeoutPolicy::TimeOutWorkflow,
        TimeoutPolicy::AlertOnly,
    ] {
        let limits = |task: TaskDefBuilder| {
            let task = task.response_timeout(SECOND);
            task.timeout(Duration::ZERO, policy)
        };
        let (task, repeated) = started(&world, limits).await;
        let lost = world.polled(&task).await;
        let (task, exhausted) = started(&world, |task| limits(task).retries(0)).await;
        world.polled(&task).await;
        rows.push((lost, repeated, exhausted));
    }
    for (lost, repeated, exhausted) in rows {
        timed_out(&world, &exhausted, 1, "responseTimeout: 1 exceeded").await;
        let second = attempt_of(&world, &repeated, 1).await;
        let completed = ResultStatus::Completed;
        world.report(&lost, completed, json!({"late": true})).await;
        // A task that was not polled has no response time-out.
        let output = json!({"late": false});
        world.report(&second, completed, output.clone()).await;
        let run = world.ended(&repeated).await;
        let ends = [TaskStatus::TimedOut, TaskStatus::Completed];
        assert_eq!(attempts(&run), ends);
        assert_eq!(run.output, object(output));
    }
}

#[tokio::test]
async fn total_time_outs() {
    let world = World::start().await;
    let start = async |policy| {
        let limits =
            |task: TaskDefBuilder| task.total_timeout(SECOND).timeout(Duration::ZERO, policy);
        started(&world, limits).await.1
    };
    let alert = start(TimeoutPolicy::AlertOnly).await;
    let retry = start(TimeoutPolicy::Retry).await;
    let end = start(TimeoutPolicy::TimeOutWorkflow).await;
    // No time is left for a retry.
    let reason = "exceeded total timeout of 1 seconds";
    timed_out(&world, &retry, 1, reason).await;
    timed_out(&world, &end, 1, reason).await;
    goes_on(&world, &attempt_of(&world, &alert, 0).await.task_id).await;
}

#[tokio::test]
async fn workflow_time_outs() {
    let world = World::start().await;
    let cleanup = world
        .define(|workflow| {
            let status = workflow_input("failureStatus");
            workflow.then(noop("n")).output("status", status)
        })
        .await;
    let start = async |policy| {
        let name = world
            .define(|workflow| {
                workflow
                    .then(human("human"))
                    .timeout(SECOND, policy)
                    .failure_workflow(&cleanup)
            })
            .await;
        world.start_workflow(&name, json!({})).await
    };
    let alert = start(WorkflowTimeoutPolicy::AlertOnly).await;
    let end = start(WorkflowTimeoutPolicy::TimeOutWorkflow).await;
    let run = world.ended(&end).await;
    assert_eq!(run.status, WorkflowStatus::TimedOut);
    assert_eq!(attempts(&run), [TaskStatus::Canceled]);
    let reason = run.reason_for_incompletion.as_deref().unwrap_or_default();
    assert!(
        reason.contains("policy configured to TIME_OUT_WF"),
        "{reason}"
    );
    let followed = world.ended(failure_workflow(&run).unwrap()).await;
    assert_eq!(followed.output, object(json!({"status": "TIMED_OUT"})));
    let (tasks, completed) = (world.client.tasks(), ResultStatus::Completed);
    tasks
        .update_by_reference(&alert, "human", completed, &Object::new())
        .await
        .unwrap();
    assert_eq!(world.ended(&alert).await.status, WorkflowStatus::Completed);
}

/// Returns the id of the run that followed a failure.
fn failure_workflow(run: &Workflow) -> Option<&str> {
    run.output.get("conductor.failure_workflow")?.as_str()
}

#[tokio::test]
async fn a_failure_starts_the_failure_workflow() {
    let world = World::start().await;
    let cleanup = world
        .define(|workflow| {
            workflow
                .then(noop("n"))
                .output("of", workflow_input("workflowId"))
                .output("why", workflow_input("reason"))
                .output("n", workflow_input("n"))
        })
        .await;
    let end = terminate("end", TerminationStatus::Failed).reason("no stock");
    let name = world
        .define(|workflow| workflow.then(end).failure_workflow(&cleanup))
        .await;
    let run = world.run(&name, json!({"n": 5})).await;
    assert_eq!(run.status, WorkflowStatus::Failed);
    let followed = world.ended(failure_workflow(&run).unwrap()).await;
    assert_eq!(followed.workflow_name, cleanup);
    let output = json!({"of": run.workflow_id, "why": "no stock", "n": 5});
    assert_eq!(followed.output, object(output));
    // The end by a client starts it only if the client wants that.
    let name = world
        .define(|workflow| workflow.then(human("h")).failure_workflow(&cleanup))
        .await;
    let workflows = world.client.workflows();
    let plain = world.start_workflow(&name, json!({})).await;
    workflows.terminate(&plain, Some("enough")).await.unwrap();
    assert_eq!(failure_workflow(&world.ended(&plain).await), None);
    let failed = world.start_workflow(&name, json!({})).await;
    let reason = Some("too late");
    workflows
        .terminate_as_failed(&failed, reason)
        .await
        .unwrap();
    let run = world.ended(&failed).await;
    let followed = world.ended(failure_workflow(&run).unwrap()).await;
    assert_eq!(followed.output["why"].as_str(), reason);
}
