//! Runs the built binary on a temporary directory: start, kill -9, restart in place.
//!
//! `control` reads runs over plain HTTP, `python` runs programs of the Python SDK. Waiting is always for an event and
//! always bounded by [`DEADLINE`].

mod control;
mod examples;
mod python;

use std::fs::{self, File};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use control::{Control, History};
pub(crate) use examples::Example;
pub(crate) use python::{PythonWorker, run_documented, run_python, run_python_on};

/// Longest wait for anything that should happen at once. Generous, because CI machines stall; never reached when green.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Lines shown of each log, the server's and its workers', when a test fails.
const LOG_LINES_SHOWN: usize = 100;

/// Looks until `look` finds something; panics with `what` when the deadline passes first.
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "still waiting after {DEADLINE:?}: {what}"
        );
        sleep(LOOK_INTERVAL).await;
    }
}

/// How a server is started beyond address and data directory.
#[derive(Clone, Default)]
pub(crate) struct ServerOptions {
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

impl ServerOptions {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Short leases, so that work lost with a connection comes back within a test's patience.
    pub(crate) fn lease_seconds(mut self, seconds: u32) -> Self {
        for flag in ["--workflow-task-lease-seconds", "--activity-lease-seconds"] {
            self.arguments
                .extend([flag.to_owned(), seconds.to_string()]);
        }
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    pub(crate) async fn start(self) -> Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (child, url) = spawn(&self, directory.path(), "127.0.0.1:0")
            .await
            .expect("the server starts");
        let server = Server {
            options: self,
            directory,
            child,
            url,
        };
        server.wait_until_healthy().await;
        server
    }
}

/// A running server. Dropping it kills the process; a failing test also gets the ends of the logs in its directory.
pub(crate) struct Server {
    options: ServerOptions,
    directory: TempDir,
    child: Child,
    url: String,
}

impl Server {
    pub(crate) async fn start() -> Self {
        ServerOptions::new().start().await
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// SIGKILL: nothing is flushed, no worker is told.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("the server was running");
    }

    /// Starts again on the same port and the same data.
    pub(crate) async fn restart(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        // Another process may hold the port for a moment (as the local end of a connection), hence the retry.
        let deadline = Instant::now() + DEADLINE;
        loop {
            match spawn(&self.options, self.directory.path(), &address).await {
                Ok((child, url)) => {
                    assert_eq!(url, self.url, "restarted on another address");
                    self.child = child;
                    break;
                }
                Err(problem) => assert!(
                    Instant::now() < deadline,
                    "cannot restart on {address}: {problem}"
                ),
            }
        }
        self.wait_until_healthy().await;
    }

    async fn wait_until_healthy(&self) {
        let health = format!("{}/api/health", self.url);
        eventually("GET /api/health answers 200", || async {
            reqwest::get(&health)
                .await
                .is_ok_and(|answer| answer.status().is_success())
                .then_some(())
        })
        .await;
    }

    /// The control plane as an operator without credentials sees it, in the default namespace.
    pub(crate) fn control(&self) -> Control {
        Control::new(&self.url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for entry in fs::read_dir(self.directory.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let log = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                eprintln!("--- end of {} ---\n{}", path.display(), shown.join("\n"));
            }
        }
    }
}

/// Starts the binary and reads its address from the first line of standard output.
async fn spawn(
    options: &ServerOptions,
    directory: &Path,
    listen: &str,
) -> Result<(Child, String), String> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_path(directory))
        .expect("a log file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["serve", "--listen", listen, "--data"])
        .arg(directory.join("data"))
        .args(&options.arguments)
        .envs(options.environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut output = lines(&mut child);
    let first = timeout(DEADLINE, output.next_line())
        .await
        .map_err(|_| "no line on standard output".to_owned())?;
    // Keep reading, so that the server never blocks on a full pipe nor fails on a closed one.
    tokio::spawn(async move { while let Ok(Some(_)) = output.next_line().await {} });
    let Ok(Some(first)) = first else {
        let log = fs::read_to_string(log_path(directory)).unwrap_or_default();
        return Err(format!("it ended before listening; its log:\n{log}"));
    };
    let url = first
        .strip_prefix("listening on ")
        .ok_or_else(|| format!("unexpected first line: {first}"))?;
    Ok((child, url.trim().to_owned()))
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

fn lines(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().expect("standard output is piped")).lines()
}
