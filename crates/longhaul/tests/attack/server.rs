//! Runs the built binary as its own process, and looks at it from the outside: memory, log, health.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::wire::Client;

/// Longest wait for anything that should happen soon. Never reached when green.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

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
        assert!(Instant::now() < deadline, "still waiting: {what}");
        sleep(LOOK_INTERVAL).await;
    }
}

/// A running server. Dropping it kills the process.
pub(crate) struct Server {
    arguments: Vec<String>,
    memory_max_bytes: Option<u64>,
    directory: TempDir,
    data: PathBuf,
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts a server with these flags on an empty directory.
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        Self::start_on(directory, data, arguments).await
    }

    /// Starts a server that cannot map more memory than this; it would end if it tried.
    pub(crate) async fn start_within(memory_max_bytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        Self::begin(directory, data, &[], Some(memory_max_bytes)).await
    }

    /// Starts a server whose data is at a place of its own; its log stays in `directory`.
    pub(crate) async fn start_on(directory: TempDir, data: PathBuf, arguments: &[&str]) -> Self {
        Self::begin(directory, data, arguments, None).await
    }

    async fn begin(
        directory: TempDir,
        data: PathBuf,
        arguments: &[&str],
        memory_max_bytes: Option<u64>,
    ) -> Self {
        let arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
        let (child, address) = spawn(directory.path(), &data, &arguments, memory_max_bytes).await;
        Self {
            arguments,
            memory_max_bytes,
            directory,
            data,
            child,
            address,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Kills the process with SIGKILL and starts it again on the same data, at another port.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.child.kill().await.expect("the server was running");
        let directory = self.directory.path();
        let spawned = spawn(
            directory,
            &self.data,
            &self.arguments,
            self.memory_max_bytes,
        );
        let (child, address) = spawned.await;
        self.child = child;
        self.address = address;
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(log_path(self.directory.path())).unwrap_or_default()
    }

    /// The memory the process has resident now.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory the process has had resident since it started.
    pub(crate) fn peak_memory_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let pid = self.child.id().expect("the server runs");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        let kib: u64 = kib.expect("a size").trim().parse().expect("a number");
        kib * 1024
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a status").is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- end of the server's log ---\n{}", shown.join("\n"));
        }
    }
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("server.log")
}

/// Starts the binary and reads its address from the first line of standard output.
async fn spawn(
    directory: &Path,
    data: &Path,
    arguments: &[String],
    memory_max_bytes: Option<u64>,
) -> (Child, SocketAddr) {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_path(directory))
        .expect("a log file");
    let binary = env!("CARGO_BIN_EXE_longhaul");
    let mut command = match memory_max_bytes {
        Some(bytes) => {
            let mut shell = Command::new("sh");
            let script = format!("ulimit -v {} && exec \"$0\" \"$@\"", bytes / 1024);
            shell.args(["-c", &script, binary]);
            shell
        }
        None => Command::new(binary),
    };
    // Settings of the machine must not leak into tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LONGHAUL_")) {
        command.env_remove(name);
    }
    let mut child = command
        .args([
            "serve",
            "--log",
            "warn",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(data)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts");
    let output = child.stdout.take().expect("standard output is piped");
    let mut lines = BufReader::new(output).lines();
    let first = timeout(DEADLINE, lines.next_line()).await;
    let first = first.expect("a first line in time").expect("text");
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let address = first
        .as_deref()
        .and_then(|line| line.trim().strip_prefix("listening on http://"))
        .and_then(|address| address.parse().ok());
    let address = address.unwrap_or_else(|| {
        let log = fs::read_to_string(log_path(directory)).unwrap_or_default();
        panic!("it ended before listening; its log:\n{log}")
    });
    (child, address)
}
