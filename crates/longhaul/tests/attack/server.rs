//! Runs the built binary in its own process and reads its memory, its log and its health.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Child;

use crate::binary::longhaul;
use crate::limited_binary::longhaul_with_limit;
use crate::server_process::{log_path, show_logs, spawn};
pub(crate) use crate::waiting::{DEADLINE, eventually};
use crate::wire::Client;

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

    /// Starts a server that cannot map more memory than this; it would end if it needed more.
    pub(crate) async fn start_within(memory_max_bytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("data");
        Self::begin(directory, data, &[], Some(memory_max_bytes)).await
    }

    /// Starts a server with its data at `data`; its log is in `directory`.
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
        let (child, address) =
            start_process(directory.path(), &data, &arguments, memory_max_bytes).await;
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
        let spawned = start_process(
            directory,
            &self.data,
            &self.arguments,
            self.memory_max_bytes,
        );
        let (child, address) = spawned.await;
        self.child = child;
        self.address = address;
    }

    /// Returns the whole log.
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
            show_logs(self.directory.path());
        }
    }
}

/// Starts the binary with these flags; with a limit, it cannot map more memory.
async fn start_process(
    directory: &Path,
    data: &Path,
    arguments: &[String],
    memory_max_bytes: Option<u64>,
) -> (Child, SocketAddr) {
    let mut command = match memory_max_bytes {
        Some(bytes) => longhaul_with_limit(&format!("ulimit -v {}", bytes / 1024)),
        None => longhaul(),
    };
    command
        .args(["serve", "--log", "warn", "--listen", "127.0.0.1:0"])
        .arg("--data")
        .arg(data)
        .args(arguments);
    let (child, url) = spawn(command, directory).await.expect("the server starts");
    let address = url.trim_start_matches("http://");
    (child, address.parse().expect("an address"))
}
