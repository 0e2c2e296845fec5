//! Runs the built binary on a temporary directory: start, kill -9, restart in place.
//!
//! `control` reads runs over plain HTTP, `python` and `node` run programs of the clients for Python and JavaScript, `background`
//! programs that work until the test ends, `examples` the published Rust examples. `several` makes several servers look like one,
//! `balancer` and `caller` send each request to the next one, and `in_process` is a server in the process of the test.

mod background;
mod balancer;
mod caller;
mod control;
mod examples;
mod in_process;
mod node;
mod python;
mod several;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use longhaul_test_postgres::Database;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::binary::longhaul;
use crate::server_process::{log_path, show_logs, spawn};
pub(crate) use crate::waiting::{DEADLINE, eventually};
pub(crate) use background::Background;
pub(crate) use balancer::Balancer;
pub(crate) use caller::Caller;
pub(crate) use control::{Control, History};
pub(crate) use examples::Example;
pub(crate) use in_process::InProcess;
pub(crate) use node::{run_documented_node, run_node};
pub(crate) use python::{
    PythonWorker, run_conductor, run_conductor_at, run_documented, run_python, run_python_on,
};

use several::Others;
pub(crate) use several::SERVERS_VARIABLE;

/// What a program of a client sees of the environment of the test.
const KEPT_VARIABLES: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"];

/// Returns a command that runs a program of a client in an environment without settings of this machine. The client for JavaScript
/// prints every report if `CI` is set, and a proxy would get the requests.
pub(crate) fn client_program(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let kept = KEPT_VARIABLES.map(|name| Some((name, std::env::var_os(name)?)));
    command
        .env_clear()
        .envs(kept.into_iter().flatten())
        .kill_on_drop(true);
    command
}

/// How a server is started beyond address and data directory.
#[derive(Clone, Default)]
pub(crate) struct ServerOptions {
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// The database, which is removed when the last server on it ends.
    _database: Option<Arc<Database<'static>>>,
}

impl ServerOptions {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets short leases, so that a test does not wait long for work that was lost with a connection.
    pub(crate) fn lease_seconds(mut self, seconds: u32) -> Self {
        for flag in ["--workflow-task-lease-seconds", "--activity-lease-seconds"] {
            self.arguments
                .extend([flag.to_owned(), seconds.to_string()]);
        }
        self
    }

    /// Uses an empty PostgreSQL database.
    pub(crate) fn postgres(self) -> Self {
        let database = longhaul_test_postgres::shared().database();
        let mut options = self.store(database.url());
        options._database = Some(Arc::new(database));
        options
    }

    /// Uses the database of an address.
    pub(crate) fn store(mut self, url: &str) -> Self {
        self.arguments
            .extend(["--store".to_owned(), url.to_owned()]);
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Starts a server. If [`SERVERS_VARIABLE`] is set, these are several servers that a test sees as one.
    pub(crate) async fn start(self) -> Server {
        let count = std::env::var(SERVERS_VARIABLE).ok();
        let count = count.map(|count| count.parse().expect("a number of servers"));
        match count {
            Some(count) if !self.has("--store") => several::start(self.postgres(), count).await,
            _ => self.start_one().await,
        }
    }

    async fn start_one(self) -> Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (child, url) = start_process(&self, directory.path(), "127.0.0.1:0")
            .await
            .expect("the server starts");
        let server = Server {
            options: self,
            directory,
            child,
            url,
            others: None,
        };
        server.wait_until_healthy().await;
        server
    }

    fn has(&self, flag: &str) -> bool {
        self.arguments.iter().any(|argument| argument == flag)
    }
}

/// A running server. Dropping it kills the process; a failing test also gets the ends of the logs in its directory.
pub(crate) struct Server {
    options: ServerOptions,
    directory: TempDir,
    child: Child,
    /// Its own address.
    url: String,
    others: Option<Others>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        ServerOptions::new().start().await
    }

    /// Returns where clients send their requests.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> &str {
        self.others.as_ref().map_or(self.url.as_str(), Others::url)
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let id = self.child.id().expect("the server runs");
        let process = nix::unistd::Pid::from_raw(i32::try_from(id).expect("a process id"));
        nix::sys::signal::kill(process, signal).expect("the signal is sent");
    }

    /// Asks the server to stop and waits until it has ended in good order.
    pub(crate) async fn terminate(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let ended = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        let status = ended.expect("the server ends").expect("an exit status");
        assert!(status.success(), "{status}");
    }

    /// Returns the whole log, also of earlier processes.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(log_path(self.directory.path())).unwrap_or_default()
    }

    /// Returns the memory that the process has resident now.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let id = self.child.id().expect("the server runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        let kib: u64 = kib.expect("a size").trim().parse().expect("a number");
        kib * 1024
    }

    /// Kills the server with SIGKILL: nothing is flushed, and workers get no notice.
    pub(crate) async fn kill(&mut self) {
        self.kill_one().await;
        for other in self.others.iter_mut().flat_map(Others::servers) {
            other.kill_one().await;
        }
    }

    async fn kill_one(&mut self) {
        self.child.kill().await.expect("the server was running");
    }

    /// Starts the server again on the same port and the same data.
    pub(crate) async fn restart(&mut self) {
        self.restart_one().await;
        for other in self.others.iter_mut().flat_map(Others::servers) {
            other.restart_one().await;
        }
    }

    async fn restart_one(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        // Another process may hold the port for a moment (as the local end of a connection), hence the retry.
        let deadline = Instant::now() + DEADLINE;
        loop {
            match start_process(&self.options, self.directory.path(), &address).await {
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

    /// Returns the control plane in the default namespace, without credentials.
    pub(crate) fn control(&self) -> Control {
        Control::new(self.url())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        show_logs(self.directory.path());
    }
}

/// Starts the binary with these options.
async fn start_process(
    options: &ServerOptions,
    directory: &Path,
    listen: &str,
) -> Result<(Child, String), String> {
    let mut command = longhaul();
    command
        .args(["serve", "--listen", listen, "--data"])
        .arg(directory.join("data"))
        .args(&options.arguments)
        .envs(options.environment.iter().copied());
    spawn(command, directory).await
}
