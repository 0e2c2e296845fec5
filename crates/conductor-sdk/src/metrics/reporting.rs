//! What a handler does with metrics while its workers run: it serves them, or writes a file.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::exchange::{Exchange, replace};
use super::metric::Metric;
use super::snapshot::Snapshot;
use super::{MetricsCollector, MetricsError, MetricsSettings, Surface, server, text};
use crate::handler::WorkerStatus;

/// The workers of a handler, which shares it with its supervisors.
pub(crate) type Status = Arc<Mutex<Vec<WorkerStatus>>>;

/// The place of a handler among the processes of its program.
#[derive(Debug)]
pub(crate) enum Place {
    /// The process of one worker. It hands its numbers over in this file.
    Worker(PathBuf),
    /// The first process, with all workers in processes of their own.
    Parent(Status),
    /// The only process, with all workers in it.
    Alone(Status),
}

/// The metrics of a handler.
#[derive(Debug)]
pub(crate) struct Reporting {
    source: Arc<Source>,
    target: Target,
    interval: Duration,
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

/// Where the numbers come from.
#[derive(Debug)]
pub(super) struct Source {
    numbers: Numbers,
    /// `None` in the process of a worker.
    status: Option<Status>,
}

#[derive(Debug)]
enum Numbers {
    Here(MetricsCollector),
    OfProcesses(Arc<Exchange>),
}

/// Where the numbers go.
#[derive(Debug)]
enum Target {
    /// To the first process of the program.
    Snapshot(PathBuf),
    Text(PathBuf),
    Http {
        address: SocketAddr,
        /// Bound before the workers start, so that a port in use is an error of the program and not a line in its log.
        listener: Option<TcpListener>,
    },
}

impl Reporting {
    /// Checks the settings, makes the directory and binds the port.
    pub(crate) fn new(settings: &MetricsSettings, place: Place) -> Result<Self, MetricsError> {
        settings.check()?;
        let surface = Surface::from_env()?.unwrap_or(settings.surface);
        let here = || Numbers::Here(MetricsCollector::new(surface));
        let (numbers, status, target) = match place {
            Place::Worker(file) => (here(), None, Target::Snapshot(file)),
            Place::Alone(status) => (here(), Some(status), Target::of(settings)?),
            Place::Parent(status) => {
                let exchange = exchange(settings, surface)?;
                let numbers = Numbers::OfProcesses(Arc::new(exchange));
                (numbers, Some(status), Target::of(settings)?)
            }
        };
        Ok(Self {
            source: Arc::new(Source { numbers, status }),
            target,
            interval: settings.update_interval,
            stop: watch::channel(false).0,
            running: JoinSet::new(),
        })
    }

    /// Returns the listener for the workers in this process.
    pub(crate) fn listener(&self) -> Option<MetricsCollector> {
        match &self.source.numbers {
            Numbers::Here(collector) => Some(collector.clone()),
            Numbers::OfProcesses(_) => None,
        }
    }

    /// Returns the files of the worker processes.
    pub(crate) fn exchange(&self) -> Option<Arc<Exchange>> {
        match &self.source.numbers {
            Numbers::Here(_) => None,
            Numbers::OfProcesses(exchange) => Some(Arc::clone(exchange)),
        }
    }

    /// Returns where the metrics are served.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.target {
            Target::Http { address, .. } => Some(*address),
            Target::Snapshot(_) | Target::Text(_) => None,
        }
    }

    /// Begins to serve or to write.
    pub(crate) fn start(&mut self) {
        self.stop.send_replace(false);
        let stop = self.stop.subscribe();
        let source = Arc::clone(&self.source);
        match &mut self.target {
            Target::Snapshot(file) => {
                let file = file.clone();
                let write = move || replace(&file, &source.gather().to_json()?);
                self.running.spawn(repeat(self.interval, stop, write));
            }
            Target::Text(file) => {
                let file = file.clone();
                let write = move || replace(&file, source.text().as_bytes());
                self.running.spawn(repeat(self.interval, stop, write));
            }
            Target::Http { address, listener } => {
                // A handler that is started a second time binds the same port again.
                let listener = listener.take().map_or_else(|| bind(*address), Ok);
                match listener.and_then(tokio::net::TcpListener::from_std) {
                    Ok(listener) => {
                        self.running.spawn(server::serve(listener, source, stop));
                    }
                    Err(error) => {
                        tracing::error!(%address, %error, "the metrics cannot be served; set `http_port` to a free port");
                    }
                }
            }
        }
    }

    /// Writes the last numbers, or closes the port.
    pub(crate) async fn end(&mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Target {
    fn of(settings: &MetricsSettings) -> Result<Self, MetricsError> {
        let Some(address) = settings.address else {
            let directory = settings.directory.as_deref();
            let directory = directory.ok_or(MetricsError::NoDestination)?;
            make(directory)?;
            return Ok(Self::Text(directory.join(&settings.file_name)));
        };
        let bound = bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        match bound {
            Ok((address, listener)) => Ok(Self::Http {
                address,
                listener: Some(listener),
            }),
            Err(error) => Err(MetricsError::Port { address, error }),
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn make(directory: &Path) -> Result<(), MetricsError> {
    std::fs::create_dir_all(directory).map_err(|error| wrong(directory, error))
}

fn exchange(settings: &MetricsSettings, surface: Surface) -> Result<Exchange, MetricsError> {
    let inside = settings.directory.clone();
    let inside = inside.unwrap_or_else(std::env::temp_dir);
    make(&inside)?;
    Exchange::new(&inside, surface).map_err(|error| wrong(&inside, error))
}

fn wrong(directory: &Path, error: io::Error) -> MetricsError {
    MetricsError::Directory {
        path: directory.to_owned(),
        error,
    }
}

impl Source {
    /// Returns the numbers of all workers. It may read files.
    fn gather(&self) -> Snapshot {
        let status = match &self.status {
            Some(status) => status.lock().clone(),
            None => Vec::new(),
        };
        let lives = |worker: usize| status.get(worker).is_some_and(|worker| worker.alive);
        let mut all = match &self.numbers {
            Numbers::Here(collector) => collector.snapshot(),
            Numbers::OfProcesses(exchange) => exchange.gather(lives),
        };
        for worker in &status {
            let labels = (&*worker.task_type, "");
            all.count(Metric::WorkerRestartTotal, labels, worker.restarts.into());
        }
        all
    }

    pub(super) fn text(&self) -> String {
        text::render(&self.gather())
    }

    /// Returns the task types of the workers that do not run. `None` if there are no workers.
    pub(super) fn dead_workers(&self) -> Option<Vec<String>> {
        let status = self.status.as_ref()?.lock();
        let dead = status.iter().filter(|worker| !worker.alive);
        let dead = dead.map(|worker| worker.task_type.clone()).collect();
        (!status.is_empty()).then_some(dead)
    }
}

/// Waits until the handler stops, or is gone.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Writes at once, then once per interval, and a last time at the end.
async fn repeat(
    interval: Duration,
    mut stop: watch::Receiver<bool>,
    write: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let write = Arc::new(write);
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u64;
    loop {
        let is_last = tokio::select! {
            _ = ticks.tick() => false,
            () = stopped(&mut stop) => true,
        };
        let write = Arc::clone(&write);
        let written = tokio::task::spawn_blocking(move || write()).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => failures = 0,
            Err(error) => {
                failures += 1;
                // The first failure, and then ever fewer lines.
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "the metrics cannot be written");
                }
            }
        }
        if is_last {
            return;
        }
    }
}
