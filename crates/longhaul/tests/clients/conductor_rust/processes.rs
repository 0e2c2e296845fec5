//! Workers in processes of their own, and what happens when these are killed.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use longhaul_conductor_sdk::definition::{TaskDefBuilder, output_of, simple, workflow_input};
use longhaul_conductor_sdk::model::{Object, TaskDef, TaskStatus, WorkflowStatus};
use longhaul_conductor_sdk::worker::{
    AnyWorker, Outcome, TaskContext, TaskFailure, TaskInProgress, TaskResponse, async_function,
};
use longhaul_conductor_sdk::{TaskHandler, worker_task};
use serde_json::{Value, json};
use tokio::io::{BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::{sleep, timeout};

use super::{PROGRAM_DEADLINE, World, configuration, statuses};
use crate::crash::Random;
use crate::crash::executions::{Plane, judge_load, start_load};
use crate::harness::{Server, client_program};
use crate::server_process::lines;

/// The address of the server, for a process of the program below.
const SERVER: &str = "LONGHAUL_TEST_PROGRAM_SERVER";

/// Which workers the program runs.
const WORKERS: &str = "LONGHAUL_TEST_PROGRAM_WORKERS";

const RUNS: usize = 32;
const KILLS: usize = 6;

#[worker_task("in_process", thread_count = 4, register_task_def = true,
    task_definition = TaskDef { retry_count: 7, ..TaskDef::default() })]
fn in_process(n: i64) -> Value {
    json!({"n": n + 1, "process": std::process::id()})
}

#[worker_task("in_event_loop", thread_count = 4)]
async fn in_event_loop(n: i64) -> Value {
    json!({"n": n * 10, "process": std::process::id()})
}

#[worker_task("in_rounds")]
fn in_rounds() -> TaskResponse<Outcome> {
    let context = TaskContext::current().ok_or_else(|| TaskFailure::new("there is no context"))?;
    let round = context.poll_count();
    context.add_log(format!("round {round}"));
    if round < 3 {
        let rest = TaskInProgress::after(Duration::from_secs(1)).output("round", round);
        return Ok(rest.into());
    }
    Outcome::output(&json!({"rounds": round}))
}

#[worker_task("in_danger")]
fn in_danger() -> Value {
    if TaskContext::current().is_some_and(|context| context.retry_count() == 0) {
        std::process::exit(3);
    }
    json!({"process": std::process::id()})
}

/// The workers of the crash test.
fn crash_workers() -> [AnyWorker; 2] {
    let reference = || {
        let context = TaskContext::current().unwrap();
        (
            context.retry_count(),
            context.task().reference_task_name.clone(),
        )
    };
    [
        async_function("crash_work", move |_: Object| {
            let (_, reference) = reference();
            async move { Ok(json!({"reference": reference})) }
        }),
        async_function("crash_fails_once", move |_: Object| {
            let (attempt, reference) = reference();
            async move {
                if attempt == 0 {
                    return Err(TaskFailure::new("the first attempt fails"));
                }
                Ok(json!({"reference": reference}))
            }
        }),
    ]
}

/// A program that runs workers. It is this test binary, started again with the name of the test below.
struct Program {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(server: &Server, workers: &str) -> Self {
        let mut command = client_program(std::env::current_exe().unwrap());
        let name = "conductor_rust::processes::the_program_runs_its_workers";
        command
            .args([name, "--exact", "--nocapture"])
            .env(SERVER, server.url())
            .env(WORKERS, workers)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            output: lines(&mut child),
            child,
        }
    }

    /// Returns the next process that is started for a worker.
    async fn next_worker(&mut self) -> u32 {
        loop {
            let line = timeout(PROGRAM_DEADLINE, self.output.next_line()).await;
            let line = line.expect("a worker starts").unwrap();
            let line = line.expect("the program runs");
            if let Some((_, process)) = line.split_once("worker process ") {
                return process.trim().parse().unwrap();
            }
        }
    }

    /// Stops the program as a terminal does. Its workers end with it.
    async fn stop(mut self) {
        signal("-INT", self.child.id().unwrap());
        let ended = timeout(PROGRAM_DEADLINE, self.child.wait()).await;
        assert!(ended.expect("the program ends").unwrap().success());
        // The pipe ends with the last process that has it.
        while let Ok(Some(_)) = self.output.next_line().await {}
    }
}

fn signal(signal: &str, process: u32) -> bool {
    let command = std::process::Command::new("kill")
        .args([signal, &process.to_string()])
        .stderr(Stdio::null())
        .status();
    command.unwrap().success()
}

/// The program itself, in the process that [`Program::start`] starts and in those of its workers. Passes at once in the suite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_runs_its_workers() {
    let (Ok(server), Ok(workers)) = (std::env::var(SERVER), std::env::var(WORKERS)) else {
        return;
    };
    if std::env::var_os("LONGHAUL_CONDUCTOR_WORKER").is_some() {
        tell_parent();
    }
    let builder = TaskHandler::builder(configuration(&server));
    let builder = match &*workers {
        "crash" => builder.workers(crash_workers()),
        _ => builder.workers([
            in_process::worker(),
            in_event_loop::worker(),
            in_rounds::worker(),
            in_danger::worker(),
        ]),
    };
    let stopped = builder.build().unwrap().run_until(tokio::signal::ctrl_c());
    stopped.await.unwrap();
}

/// Prints the process of a worker, for [`Program::next_worker`].
fn tell_parent() {
    use std::io::Write as _;
    let line = format!("\nworker process {}\n", std::process::id());
    let _parent_is_gone = std::io::stdout().write_all(line.as_bytes());
    let _parent_is_gone = std::io::stdout().flush();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_worker_has_a_process_and_a_dead_one_is_started_again() {
    let server = Arc::new(Server::start().await);
    let world = World::of(Arc::clone(&server));
    let danger = TaskDefBuilder::new("in_danger")
        .retries(9)
        .retry_delay(Duration::ZERO)
        .response_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    world
        .client
        .metadata()
        .register_tasks(&[danger])
        .await
        .unwrap();
    let program = Program::start(&server, "all");
    let name = world
        .define(|workflow| {
            workflow
                .then(simple("in_process", "a").input("n", workflow_input("n")))
                .then(simple("in_event_loop", "b").input("n", output_of("a", "n")))
        })
        .await;
    let mut processes = BTreeSet::new();
    for n in 0..10 {
        let ended = world.run(&name, json!({"n": n})).await;
        assert_eq!(ended.output["n"], (n + 1) * 10, "{ended:?}");
        for task in &ended.tasks {
            processes.insert(task.output_data["process"].as_u64());
        }
    }
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert!(!processes.contains(&program.child.id().map(u64::from)));
    let registered = world.client.metadata().task("in_process").await.unwrap();
    assert_eq!(registered.retry_count, 7);

    let name = world
        .define(|workflow| workflow.then(simple("in_rounds", "t")))
        .await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.output["rounds"], 3);
    assert_eq!((ended.tasks.len(), ended.tasks[0].poll_count), (1, 3));
    let logs = world.client.tasks().logs(&ended.tasks[0].task_id).await;
    assert_eq!(logs.unwrap().len(), 3);

    let name = world
        .define(|workflow| workflow.then(simple("in_danger", "t")))
        .await;
    let ended = world.run(&name, json!({})).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    // A machine that stalls may cost further attempts.
    let mut attempts = statuses(&ended);
    assert_eq!(attempts.pop(), Some(("t", TaskStatus::Completed)));
    assert!(!attempts.is_empty());
    assert!(
        attempts
            .iter()
            .all(|(_, status)| *status == TaskStatus::TimedOut)
    );
    program.stop().await;
}

/// Kills worker processes and the server under load. Nothing is lost, and nothing is recorded twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_survive_kills_of_workers_and_of_the_server() {
    let mut random = Random::from_environment();
    let mut server = Server::start().await;
    let plane = Plane::of(&server);
    plane.register().await;
    let mut program = Program::start(&server, "crash");
    let mut workers = vec![program.next_worker().await, program.next_worker().await];
    let load = start_load(&plane, RUNS, 6000, &mut random);
    for kill in 0..KILLS {
        sleep(random.milliseconds(100..1200)).await;
        if kill % 2 == 0 {
            // One that died is replaced in the list by the one that was started for it.
            let victim = workers.remove(0);
            assert!(signal("-KILL", victim), "the worker was running");
            workers.push(program.next_worker().await);
        } else {
            server.kill().await;
            sleep(random.milliseconds(0..200)).await;
            server.restart().await;
        }
    }
    judge_load(&server, &plane, load).await;
    program.stop().await;
}
