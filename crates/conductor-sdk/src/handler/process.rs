//! Workers as processes. Each one is this program, started again with a variable that names its worker.

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::process::{Child, ChildStdin, Command};

use super::inside::status_of;
use super::supervise::{Launch, Running, WorkerStatus};
use crate::metrics::Exchange;
use crate::settings::Resolved;
use crate::worker::AnyWorker;

/// Names the worker of a process.
const ROLE: &str = "LONGHAUL_CONDUCTOR_WORKER";

/// Names the file for the metrics of a process.
const METRICS_FILE: &str = "LONGHAUL_CONDUCTOR_METRICS_FILE";

/// Returns the file in which this process hands over its metrics.
pub(super) fn metrics_file() -> Option<PathBuf> {
    env::var_os(METRICS_FILE).map(PathBuf::from)
}

/// Returns the worker for which this process was started. `None` in the first process of the program.
pub(super) fn role() -> io::Result<Option<String>> {
    match env::var(ROLE) {
        Ok(role) => Ok(Some(role)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error @ env::VarError::NotUnicode(_)) => {
            Err(io::Error::other(format!("{ROLE}: {error}")))
        }
    }
}

/// Returns the name of a worker. The program has the same workers in the same order each time.
pub(super) fn name(index: usize, worker: &AnyWorker) -> String {
    format!("{index}:{}", worker.task_type())
}

/// Waits until the process of a worker shall end: its parent stops it or ends, or the process itself is asked to terminate.
pub(super) async fn told_to_end() {
    // A terminal interrupts the whole group. The parent decides then when its workers end.
    let interrupts = tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    tokio::select! {
        () = parent_ended() => {}
        () = asked_to_terminate() => {}
    }
    drop(interrupts);
}

#[cfg(unix)]
async fn asked_to_terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            terminate.recv().await;
        }
        Err(error) => {
            tracing::warn!(%error, "requests to terminate cannot be seen");
            std::future::pending().await
        }
    }
}

#[cfg(not(unix))]
async fn asked_to_terminate() {
    std::future::pending().await
}

/// Waits until the parent closes the standard input of this process, or ends.
async fn parent_ended() {
    let (ended, wait) = tokio::sync::oneshot::channel();
    // A thread of its own: the runtime would wait for one of its threads when the process ends.
    let watching = std::thread::Builder::new().spawn(move || {
        let mut input = io::stdin().lock();
        // An input that cannot be read has no parent at its other end.
        let _ = io::copy(&mut input, &mut io::sink());
        let _ = ended.send(());
    });
    if let Err(error) = watching {
        tracing::warn!(%error, "the end of the parent process cannot be seen");
        return std::future::pending().await;
    }
    let _ = wait.await;
}

pub(super) struct Processes {
    workers: Vec<AnyWorker>,
    program: PathBuf,
    metrics: Option<Arc<Exchange>>,
}

impl Processes {
    pub(super) fn new(
        workers: Vec<(AnyWorker, Resolved)>,
        metrics: Option<Arc<Exchange>>,
    ) -> io::Result<Self> {
        Ok(Self {
            workers: workers.into_iter().map(|(worker, _)| worker).collect(),
            program: env::current_exe()?,
            metrics,
        })
    }
}

impl Launch for Processes {
    fn workers(&self) -> Vec<WorkerStatus> {
        self.workers.iter().map(status_of).collect()
    }

    fn start(&self, index: usize) -> io::Result<Box<dyn Running>> {
        let mut command = Command::new(&self.program);
        if let Some(metrics) = &self.metrics {
            command.env(METRICS_FILE, metrics.begin(index));
        }
        let mut child = command
            .args(env::args_os().skip(1))
            .env(ROLE, name(index, &self.workers[index]))
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take();
        Ok(Box::new(RunningProcess { child, input }))
    }
}

struct RunningProcess {
    child: Child,
    /// The process ends when it is closed.
    input: Option<ChildStdin>,
}

impl Running for RunningProcess {
    fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    fn ended(&mut self) -> BoxFuture<'_, String> {
        Box::pin(async {
            match self.child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            }
        })
    }

    fn stop(&mut self) {
        self.input = None;
    }

    fn kill(&mut self) {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!(%error, "a process had ended before it was killed");
        }
    }
}
