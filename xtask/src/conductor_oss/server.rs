//! A running Conductor OSS with a store of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long the server may take to start. It takes 20 to 60 seconds on two processors.
const START_DEADLINE: Duration = Duration::from_secs(300);

/// How often a wait for the server is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The pause between two looks at the server.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long the server may take to answer that it is healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The lines of its log that are printed if the server does not start.
const LOG_LINES: usize = 30;

/// Settings of the server. The intervals are short, so that time-outs, joins and waits are prompt; by default it looks at open
/// workflows every 30 seconds.
const SETTINGS: &[&str] = &[
    "--server.address=127.0.0.1",
    "--logging.level.root=WARN",
    "--conductor.db.type=sqlite",
    "--conductor.queue.type=sqlite",
    "--conductor.indexing.type=sqlite",
    "--conductor.grpc-server.enabled=false",
    "--conductor.integrations.ai.enabled=false",
    "--conductor.app.systemTaskWorkerPollInterval=100ms",
    "--conductor.app.systemTaskWorkerCallbackDuration=1s",
    "--conductor.app.workflowOffsetTimeout=1s",
    "--conductor.app.maxPostponeDurationSeconds=2s",
    "--conductor.app.taskExecutionPostponeDuration=1s",
    "--conductor.app.sweeperWorkflowPollTimeout=200ms",
    "--conductor.app.sweeperThreadCount=4",
];

/// A running server. Dropping it ends the process and removes its store.
pub(crate) struct Server {
    // Fields are dropped in this order. The watch goes first: it must not end a process that has got the id of the server.
    /// Ends the server if this process is killed and drops nothing.
    _watch: Process,
    process: Process,
    _folder: Folder,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts a server with an empty store and waits until it is healthy.
    pub(crate) fn start(java: &Path, jar: &Path, log: &Path) -> Result<Self> {
        let jar =
            fs::canonicalize(jar).with_context(|| format!("{} cannot be read", jar.display()))?;
        let folder = Folder::create()?;
        let address = free_address()?;
        println!(
            "==> starting Conductor OSS on {address} with {}, log in {}",
            java.display(),
            log.display()
        );
        let output =
            File::create(log).with_context(|| format!("{} cannot be made", log.display()))?;
        let mut command = Command::new(java);
        command
            .args(["-Xmx1g", "-jar"])
            .arg(&jar)
            .args(SETTINGS)
            .arg(format!("--server.port={}", address.port()))
            .arg(format!(
                "--spring.datasource.url=jdbc:sqlite:{}?busy_timeout=15000&journal_mode=WAL",
                folder.0.join("conductor.db").display()
            ))
            .current_dir(&folder.0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("the log cannot be shared")?)
            .stderr(output);
        let process = Process::start(&mut command)?;
        let mut server = Self {
            _watch: watch(&process)?,
            process,
            _folder: folder,
            address,
            log: log.to_owned(),
        };
        server.wait_until_healthy()?;
        Ok(server)
    }

    /// Returns the address of the API.
    pub(crate) fn api(&self) -> String {
        format!("http://{}/api", self.address)
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    fn wait_until_healthy(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut reported = began;
        while !is_healthy(self.address) {
            let waited = began.elapsed();
            let status = self
                .process
                .0
                .try_wait()
                .context("java cannot be watched")?;
            if let Some(status) = status {
                bail!("Conductor OSS ended ({status}):\n{}", self.log_end());
            }
            if waited > START_DEADLINE {
                let seconds = START_DEADLINE.as_secs();
                bail!(
                    "Conductor OSS did not start in {seconds} s:\n{}",
                    self.log_end()
                );
            }
            if reported.elapsed() > PROGRESS_INTERVAL {
                println!("==> Conductor OSS starts: {} s so far", waited.as_secs());
                reported = Instant::now();
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        println!(
            "==> Conductor OSS is healthy after {} s",
            began.elapsed().as_secs()
        );
        Ok(())
    }

    /// Returns the last lines of the log.
    fn log_end(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let begin = lines.len().saturating_sub(LOG_LINES);
        lines[begin..].join("\n")
    }
}

/// A process. Dropping it kills the process and waits for its end; there is nothing that it should save.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let started = command.spawn();
        let program = || format!("{} could not be run", command.get_program().display());
        started.map(Self).with_context(program)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            println!("==> process {} cannot be ended: {error}", self.0.id());
        }
    }
}

/// A temporary folder. Dropping it removes the folder with its content.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("longhaul-oss-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("==> {} cannot be removed: {error}", self.0.display());
        }
    }
}

/// Starts a shell that kills a process as soon as this process ends: then its standard input ends.
fn watch(process: &Process) -> Result<Process> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "read -r line; kill -9 \"$1\"", "watch"])
        .arg(process.0.id().to_string())
        .stdin(Stdio::piped());
    Process::start(&mut command)
}

/// Returns an address of the loopback interface that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    listener.local_addr().context("a listener has no address")
}

/// Returns whether the server answers `GET /health` with success.
fn is_healthy(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
        stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
        let host = address.to_string();
        write!(
            stream,
            "GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| {
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"healthy\":true")
    })
}
