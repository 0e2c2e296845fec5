//! Conductor workflows in the test environment: time is skipped, workers are real or faked, and what never ends is an error.

use std::time::Duration;

use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, human, output_of, simple, sub_workflow, wait_for,
    workflow_input,
};
use longhaul_conductor_sdk::model::{RetryLogic, TaskStatus, TimeoutPolicy, WorkflowStatus};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{Outcome, TaskContext, TaskInProgress, function};
use longhaul_conductor_sdk::worker_task;
use longhaul_embedded::testing::Why;
use longhaul_embedded::testing::conductor::{ConductorEnvironment, FakeTask, RunError};
use serde_json::{Value, json};

use crate::{DAY, HOUR, SECOND, micros};

#[worker_task("double")]
async fn double(number: i64) -> i64 {
    number * 2
}

async fn register(env: &ConductorEnvironment, workflow: WorkflowDefBuilder) {
    let workflow = workflow.build().expect("a valid definition");
    let metadata = env.client().metadata();
    let registered = metadata.register_workflow(&workflow).await;
    registered.expect("the server takes it");
}

async fn register_task(env: &ConductorEnvironment, task: TaskDefBuilder) {
    let task = task.build().expect("a valid definition");
    let registered = env.client().metadata().register_tasks(&[task]).await;
    registered.expect("the server takes it");
}

#[tokio::test]
async fn a_month_passes_immediately_and_exactly() {
    let env = ConductorEnvironment::builder()
        .worker(double::worker())
        .start()
        .await
        .unwrap();
    register(
        &env,
        WorkflowDefBuilder::new("sleeper")
            .then(wait_for("month", DAY * 30))
            .then(simple("double", "double").input("number", workflow_input("number")))
            .output("doubled", output_of("double", "result")),
    )
    .await;
    let begin = env.now();
    let ended = env.run("sleeper", json!({"number": 21})).await.unwrap();
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(ended.output["doubled"], 42);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 30));
    let calls = env.calls("double");
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].at, env.now());
    assert_eq!(calls[0].task.input_data["number"], 21);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_of_retries_passes_at_once_with_its_exact_gaps() {
    let fails = || FakeTask::Fails("not yet".to_owned());
    let env = ConductorEnvironment::builder()
        .fake(
            "flaky",
            [
                fails(),
                fails(),
                fails(),
                fails(),
                FakeTask::Returns(json!({"ok": true})),
            ],
        )
        .start()
        .await
        .unwrap();
    let flaky = TaskDefBuilder::new("flaky")
        .retries(5)
        .retry_logic(RetryLogic::ExponentialBackoff)
        .retry_delay(SECOND * 240);
    register_task(&env, flaky).await;
    register(
        &env,
        WorkflowDefBuilder::new("order").then(simple("flaky", "flaky")),
    )
    .await;
    let ended = env.run("order", json!({})).await.unwrap();
    assert_eq!(ended.status, WorkflowStatus::Completed);
    let at: Vec<_> = env.calls("flaky").into_iter().map(|call| call.at).collect();
    let gaps: Vec<_> = at
        .windows(2)
        .map(|pair| pair[0].micros_until(pair[1]) / 1_000_000)
        .collect();
    assert_eq!(gaps, [240, 480, 960, 1920], "an hour in all");
    env.stop().await;
}

#[tokio::test]
async fn a_task_that_hangs_times_out_and_is_tried_again() {
    let env = ConductorEnvironment::builder()
        .fake("slow", [FakeTask::Never, FakeTask::Returns(json!(1))])
        .start()
        .await
        .unwrap();
    let slow = TaskDefBuilder::new("slow")
        .retries(1)
        .retry_delay(SECOND)
        .response_timeout(HOUR)
        .timeout(HOUR * 3, TimeoutPolicy::Retry);
    register_task(&env, slow).await;
    register(
        &env,
        WorkflowDefBuilder::new("order").then(simple("slow", "slow")),
    )
    .await;
    let begin = env.now();
    let ended = env.run("order", json!({})).await.unwrap();
    let statuses: Vec<_> = ended.tasks.iter().map(|task| task.status).collect();
    assert_eq!(statuses, [TaskStatus::TimedOut, TaskStatus::Completed]);
    assert_eq!(begin.micros_until(env.now()), micros(HOUR + SECOND));
    env.stop().await;
}

#[tokio::test]
async fn long_work_in_parts_children_and_workers_on_threads_are_waited_for() {
    let in_parts = function("parts", |_: Value| {
        let context = TaskContext::current().unwrap();
        let done = context.task().output_data.get("done");
        let done = done.and_then(Value::as_i64).unwrap_or(0);
        if done == 3 {
            return Outcome::output(&json!({"done": done}));
        }
        Ok(TaskInProgress::after(HOUR).output("done", done + 1).into())
    });
    let env = ConductorEnvironment::builder()
        .worker(in_parts.settings(CodeSettings::new().register_task_def(true)))
        .start()
        .await
        .unwrap();
    assert!(env.client().metadata().task("parts").await.is_ok());
    register(
        &env,
        WorkflowDefBuilder::new("child").then(simple("parts", "parts")),
    )
    .await;
    register(
        &env,
        WorkflowDefBuilder::new("parent").then(sub_workflow("child", "child")),
    )
    .await;
    let begin = env.now();
    let (one, other) = tokio::join!(env.run("parent", json!({})), env.run("child", json!({})));
    assert_eq!(one.unwrap().output["done"], 3);
    assert_eq!(other.unwrap().output["done"], 3);
    assert_eq!(begin.micros_until(env.now()), micros(HOUR * 3));
    assert_eq!(env.calls("parts").len(), 8);
    env.stop().await;
}

#[tokio::test]
async fn the_clock_moves_only_as_far_as_the_test_asks() {
    let env = ConductorEnvironment::builder().start().await.unwrap();
    register(
        &env,
        WorkflowDefBuilder::new("waits").then(wait_for("day", DAY)),
    )
    .await;
    let id = env.start("waits", json!({})).await.unwrap();
    env.advance(DAY - SECOND).await;
    let status = env.client().workflows().get(&id).await.unwrap().status;
    assert_eq!(status, WorkflowStatus::Running);
    env.advance(SECOND).await;
    let status = env.client().workflows().get(&id).await.unwrap().status;
    assert_eq!(status, WorkflowStatus::Completed);
    env.stop().await;
}

#[tokio::test]
async fn what_can_never_end_is_an_error_that_names_the_task() {
    let env = ConductorEnvironment::builder()
        .longest_wait(DAY)
        .fake("never", [FakeTask::FailsForGood("no".to_owned())])
        .start()
        .await
        .unwrap();
    register(
        &env,
        WorkflowDefBuilder::new("asks").then(human("approval")),
    )
    .await;
    let error = env.run("asks", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("`approval`"), "{error}");
    let RunError::Stuck(stuck) = error else {
        panic!("{error}")
    };
    assert_eq!(stuck.why, Why::NothingDue);

    register(
        &env,
        WorkflowDefBuilder::new("long").then(wait_for("days", DAY * 2)),
    )
    .await;
    let error = env.run("long", json!({})).await.unwrap_err();
    let RunError::Stuck(stuck) = error else {
        panic!("{error}")
    };
    assert_eq!(stuck.why, Why::TooLong(DAY));

    // A failure ends the workflow at once.
    register(
        &env,
        WorkflowDefBuilder::new("fails").then(simple("never", "never")),
    )
    .await;
    let ended = env.run("fails", json!({})).await.unwrap();
    assert_eq!(ended.status, WorkflowStatus::Failed);
    let reason = ended.tasks[0].reason_for_incompletion.as_deref();
    assert_eq!(reason, Some("no"));

    let error = env.run("unknown", json!({})).await.unwrap_err();
    assert!(matches!(error, RunError::Request(_)), "{error}");
    env.stop().await;
}

#[tokio::test]
#[should_panic(expected = "no worker for `unknown`; it has [\"double\"]")]
async fn an_unknown_task_type_has_no_calls() {
    let env = ConductorEnvironment::builder()
        .worker(double::worker())
        .start()
        .await
        .unwrap();
    let _calls = env.calls("unknown");
}

#[tokio::test]
async fn a_wrong_setting_of_a_worker_is_an_error() {
    let settings = CodeSettings::new().poll_interval(Duration::from_secs(86_400));
    let started = ConductorEnvironment::builder()
        .worker(double::worker().settings(settings))
        .start()
        .await;
    assert!(started.unwrap_err().to_string().contains("poll_interval"));
}

/// A call takes real time. The clock waits for it, although a timer is due.
#[tokio::test]
async fn the_clock_does_not_jump_over_a_call_of_the_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
        // Many turns of the runtime, in which a clock that does not wait would jump.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n17";
        stream.write_all(answer).await.unwrap();
    });
    let env = ConductorEnvironment::builder().start().await.unwrap();
    let node = |reference: &str, kind: &str, inputs: Value| json!({"name": reference, "taskReferenceName": reference, "type": kind, "inputParameters": inputs});
    let call = node(
        "call",
        "HTTP",
        json!({"uri": uri, "method": "GET", "readTimeOut": 60_000}),
    );
    let wait = node("wait", "WAIT", json!({"duration": "1 days"}));
    let definition = json!({"name": "calls", "version": 1, "schemaVersion": 2, "timeoutSeconds": 0, "tasks": [
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[call], [wait]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["call", "wait"]},
    ]});
    let definition = serde_json::from_value(definition).unwrap();
    let registered = env.client().metadata().register_workflow(&definition).await;
    registered.expect("the server takes it");
    let begin = env.now();
    let ended = env.run("calls", json!({})).await.unwrap();
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(begin.micros_until(env.now()), micros(DAY));
    let task = ended
        .tasks
        .iter()
        .find(|task| task.reference_task_name == "call");
    let task = task.expect("the call has a record");
    assert_eq!(task.output_data["response"]["body"], json!(17));
    assert_eq!(
        task.end_time, task.start_time,
        "no time passed during the call"
    );
    answering.await.unwrap();
    env.stop().await;
}
