//! Where metrics go, and in which form.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Selects the surface.
const CANONICAL_VARIABLE: &str = "WORKER_CANONICAL_METRICS";

/// The name of the file that other Conductor SDKs write.
const FILE_NAME_DEFAULT: &str = "metrics.log";

/// Often enough for Prometheus, which reads every few seconds.
const UPDATE_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);

/// Shorter intervals would keep a processor busy with writing.
const UPDATE_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// The form of times and sizes. A name has one type, so a program has one surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// Summaries with quantiles of the newest 1,000 successes.
    #[default]
    Guide,
    /// Histograms with a label for success and failure, as the Conductor SDKs of other languages have them with
    /// `WORKER_CANONICAL_METRICS=true`.
    Canonical,
}

impl Surface {
    /// Reads `WORKER_CANONICAL_METRICS`. `None` if it is not set.
    ///
    /// # Errors
    /// [`MetricsError::Variable`] if the variable is neither true nor false.
    pub fn from_env() -> Result<Option<Self>, MetricsError> {
        let value = std::env::var_os(CANONICAL_VARIABLE);
        Self::read(value.map(|value| value.to_string_lossy().into_owned()))
    }

    pub(super) fn read(value: Option<String>) -> Result<Option<Self>, MetricsError> {
        let value = value.unwrap_or_default();
        match value.trim().to_lowercase().as_str() {
            "" => Ok(None),
            "true" | "1" | "yes" => Ok(Some(Self::Canonical)),
            "false" | "0" | "no" => Ok(Some(Self::Guide)),
            _ => Err(MetricsError::Variable { value }),
        }
    }
}

/// Why metrics cannot be collected or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetricsError {
    /// The variable that selects the surface has a value that is not allowed.
    #[error(
        "the environment variable `WORKER_CANONICAL_METRICS` has the value {value:?}; it must be one of true, 1, yes, false, 0, no"
    )]
    Variable {
        /// The value.
        value: String,
    },
    /// There is neither a port nor a directory.
    #[error("the metrics have no destination: set `http_port`, or `directory` for a file")]
    NoDestination,
    /// The interval is too short.
    #[error("the metrics have the update interval {0:?}; it must be at least 10 milliseconds")]
    Interval(Duration),
    /// The name of the file has other parts than a name.
    #[error(
        "the metrics have the file name {0:?}; it must be a name without a directory, which `directory` sets"
    )]
    FileName(String),
    /// The directory cannot be used.
    #[error(
        "the metrics cannot be written to {path:?}: {error}; set `directory` to a directory that the program may write to"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The port cannot be used.
    #[error("the metrics cannot be served at {address}: {error}; set `http_port` to a free port")]
    Port {
        /// The address.
        address: SocketAddr,
        /// Why not.
        error: io::Error,
    },
}

/// Where the metrics of all workers of a program go: to HTTP if there is a port, otherwise to a file.
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until a handler has them"]
pub struct MetricsSettings {
    pub(super) directory: Option<PathBuf>,
    pub(super) file_name: String,
    pub(super) update_interval: Duration,
    pub(super) address: Option<SocketAddr>,
    pub(super) host: IpAddr,
    pub(super) surface: Surface,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self::new()
    }
}

impl MetricsSettings {
    /// Settings without a destination: set [`Self::http_port`] or [`Self::directory`].
    pub fn new() -> Self {
        Self {
            directory: None,
            file_name: FILE_NAME_DEFAULT.to_owned(),
            update_interval: UPDATE_INTERVAL_DEFAULT,
            address: None,
            host: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            surface: Surface::default(),
        }
    }

    /// Serves the metrics at `/metrics` of this port, and `/health` beside it. Port 0 is any free port;
    /// [`TaskHandler::metrics_address`](crate::TaskHandler::metrics_address) returns which.
    pub fn http_port(mut self, port: u16) -> Self {
        self.address = Some(SocketAddr::new(self.host, port));
        self
    }

    /// Sets the address of this machine at which the metrics are served: all of them by default.
    pub fn http_host(mut self, host: IpAddr) -> Self {
        self.host = host;
        self.address = self.address.map(|at| SocketAddr::new(host, at.port()));
        self
    }

    /// Sets the directory for the file with the metrics, and for the files in which worker processes hand over their numbers. Without
    /// one, they use the temporary directory of the system. The directory is made if there is none.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the name of the file with the metrics: `metrics.log` by default. It is written only without [`Self::http_port`].
    pub fn file_name(mut self, name: impl Into<String>) -> Self {
        self.file_name = name.into();
        self
    }

    /// Sets how often the file is written, and how often worker processes hand over their numbers: every second by default.
    pub fn update_interval(mut self, interval: Duration) -> Self {
        self.update_interval = interval;
        self
    }

    /// Sets the surface. `WORKER_CANONICAL_METRICS` overrides it.
    pub fn surface(mut self, surface: Surface) -> Self {
        self.surface = surface;
        self
    }

    pub(super) fn check(&self) -> Result<(), MetricsError> {
        if self.address.is_none() && self.directory.is_none() {
            return Err(MetricsError::NoDestination);
        }
        if self.update_interval < UPDATE_INTERVAL_MIN {
            return Err(MetricsError::Interval(self.update_interval));
        }
        let name = std::path::Path::new(&self.file_name);
        if name.file_name() != Some(name.as_os_str()) {
            return Err(MetricsError::FileName(self.file_name.clone()));
        }
        Ok(())
    }
}
