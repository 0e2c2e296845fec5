//! Runs programs of the Python SDK: scenario programs to their end, workers until the test stops them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::{DEADLINE, Server, client_program};
use crate::server_process::lines;

/// A Python interpreter that has both published clients installed.
fn python() -> PathBuf {
    if let Some(chosen) = std::env::var_os("LONGHAUL_TEST_PYTHON") {
        return chosen.into();
    }
    let prepared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.test-env/python/bin/python");
    assert!(
        prepared.exists(),
        "no Python with durable-workflow 2.12.0 and conductor-python 2.0.0 at {}: run `cargo xtask test`, or set LONGHAUL_TEST_PYTHON",
        prepared.display()
    );
    prepared
}

/// A command that runs `tests/clients/python/{program}` against the server.
fn python_command(program: &str, server: &Server) -> Command {
    command_in("python", program, server)
}

/// A command that runs a program in a folder of `tests/clients` against the server.
pub(super) fn command_in(folder: &str, program: &str, server: &Server) -> Command {
    command_at(folder, program, server.url())
}

/// A command that runs a program in a folder of `tests/clients` against an address.
fn command_at(folder: &str, program: &str, url: &str) -> Command {
    let mut command = client_program(python());
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/clients")
                .join(folder)
                .join(program),
        )
        .env("LONGHAUL_URL", url)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

/// Runs a Python scenario program to its end; panics with its output unless every scenario passed.
pub(crate) async fn run_python(program: &str, server: &Server) {
    run_to_its_end(program, server, python_command(program, server)).await;
}

/// Runs a scenario program of the Conductor client to its end; panics with its output unless every scenario passed.
pub(crate) async fn run_conductor(program: &str, server: &Server) {
    run_to_its_end(program, server, command_in("conductor", program, server)).await;
}

/// Runs a program of the Conductor client against an address that is not that of the built server. Returns its output.
pub(crate) async fn run_conductor_at(program: &str, url: &str) -> String {
    output_of(program, command_at("conductor", program, url)).await
}

/// Runs a Python scenario program on a queue that other workers use too.
pub(crate) async fn run_python_on(program: &str, server: &Server, queue: &str) {
    let mut command = python_command(program, server);
    command.env("LONGHAUL_QUEUE", queue);
    run_to_its_end(program, server, command).await;
}

/// Runs a scenario program to its end; panics with its output unless it succeeds.
pub(super) async fn run_to_its_end(program: &str, server: &Server, mut command: Command) {
    // The programs limit their own scenarios and report which one hangs. This catches a program that does not.
    const PROGRAM_DEADLINE: Duration = Duration::from_secs(420);
    let path = server.directory.path().join(format!("{program}.out"));
    let log = File::create(&path).expect("a log file");
    let mut child = command
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("the program starts");
    let ended = timeout(PROGRAM_DEADLINE, child.wait()).await;
    let output = fs::read_to_string(&path).unwrap_or_default();
    match ended {
        Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => {
            eprintln!("{output}")
        }
        Ok(status) => panic!("{program} failed ({status:?}):\n{output}"),
        Err(_) => panic!("{program} still runs after {PROGRAM_DEADLINE:?}:\n{output}"),
    }
}

/// Returns the program on a page of the documentation, with the address of the server.
pub(super) fn documented(page: &str, language: &str, server: &Server) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = fs::read_to_string(&path).expect("the page is there");
    let begin = format!("```{language}\n");
    let (_, program) = text.split_once(&begin).expect("a program");
    let (program, _) = program.split_once("```\n").expect("the end of the program");
    assert!(program.contains("http://127.0.0.1:8080"), "{program}");
    program.replace("http://127.0.0.1:8080", server.url())
}

/// Runs a program of a page. Returns its output.
pub(super) async fn output_of(page: &str, mut command: Command) -> String {
    let run = command.output();
    let ended = timeout(DEADLINE, run).await.expect("the program ends");
    let output = ended.expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}:\n{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the Python program on a page of the documentation with the address of the server. Returns its output.
pub(crate) async fn run_documented(page: &str, server: &Server) -> String {
    let file = server.directory.path().join("documented.py");
    fs::write(&file, documented(page, "python", server)).expect("a file");
    let mut command = client_program(python());
    command.arg(&file);
    output_of(page, command).await
}

/// A Python worker in a process of its own, which prints a line each time it registers.
pub(crate) struct PythonWorker {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl PythonWorker {
    /// Starts the worker and waits until it is registered.
    pub(crate) async fn start(server: &Server, queue: &str, worker_id: &str) -> Self {
        let log = File::create(server.directory.path().join(format!("{worker_id}.log")))
            .expect("a log file");
        let mut child = python_command("crash_worker.py", server)
            .env("LONGHAUL_QUEUE", queue)
            .env("LONGHAUL_WORKER_ID", worker_id)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("Python starts");
        let output = lines(&mut child);
        let mut worker = Self { child, output };
        assert_eq!(
            worker.next_line().await.as_deref(),
            Some("registered"),
            "{worker_id} does not register"
        );
        worker
    }

    async fn next_line(&mut self) -> Option<String> {
        let line = timeout(DEADLINE, self.output.next_line()).await;
        line.expect("the Python worker prints or ends")
            .expect("readable output")
    }

    /// Stops the worker. It must still run, deregister cleanly, and have registered only once.
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().expect("the Python worker ended by itself");
        let command = format!("kill -TERM {id}");
        let asked = std::process::Command::new("sh")
            .args(["-c", &command])
            .status()
            .expect("a shell");
        assert!(asked.success());
        let mut later_lines = Vec::new();
        while let Some(line) = self.next_line().await {
            later_lines.push(line);
        }
        assert_eq!(
            later_lines,
            ["stopped"],
            "a worker must register once and stop cleanly"
        );
        assert!(self.child.wait().await.expect("an exit status").success());
    }
}
