//! A longhaul server inside your own process, with the same rules and the same durable store, and without sockets.
//!
//! [`Embedded::open`] opens a file, and [`Embedded::client`] returns an ordinary [`Client`]. Workers and workflow code are the same
//! as with a separate server. Accepted work is on disk, and continues when the file is opened again.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use longhaul_embedded::Embedded;
//!
//! let server = Embedded::open("orders.db").await?;
//! let client = server.client();
//! println!("{} {}", client.info().server_id(), client.info().version());
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! To test workflows, use [`testing::TestEnvironment`]: a server, a worker and a clock that jumps over every wait. For other tests,
//! use [`Embedded::in_memory`], and [`Builder::manual_clock`] for a clock that the test moves.

#![warn(missing_docs)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_host::clock::{Clock, ManualClock, SystemClock};
use longhaul_host::conductor::evaluate::Evaluator;
use longhaul_host::{Config, Environment, Host, SystemTasks};
use longhaul_protocol::Timestamp;
use longhaul_sdk::Client;
use longhaul_sdk::client;
use longhaul_server::auth::Auth;
use longhaul_server::{App, Options};
use longhaul_store::Store;
use longhaul_store::memory::Memory;
use longhaul_store::sqlite::Sqlite;
use longhaul_system::{Addresses, HTTP_TASK, HttpCalls, Limits, Scripts};

pub mod testing;
mod traffic;
mod transport;

pub use transport::EmbeddedTransport;

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder of the file cannot be created.
    #[error("the folder {0} cannot be created: {1}")]
    Folder(PathBuf, std::io::Error),
    /// The file cannot be opened, or is not a store of this release.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] longhaul_store::Error),
    /// The stored state cannot be recovered.
    #[error("the stored state could not be recovered: {0}")]
    Recovery(#[from] longhaul_host::Error),
    /// The client of the server could not connect.
    #[error(transparent)]
    Client(#[from] client::Error),
}

/// A server in this process. Keep it as long as its clients: after it is dropped, their requests fail.
pub struct Embedded {
    host: Host,
    transport: EmbeddedTransport,
    client: Client,
    clock: Option<ManualClock>,
}

impl Embedded {
    /// Opens the store in a file and continues its work. Creates the file if it does not exist.
    ///
    /// # Errors
    /// [`Error::Folder`] if the folder cannot be created, [`Error::Store`] if the file cannot be opened or is not a store of this
    /// release, and [`Error::Recovery`] if the stored state cannot be recovered.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().file(path).open().await
    }

    /// Opens a server that keeps everything in memory. For tests.
    ///
    /// # Errors
    /// [`Error::Client`] if the client of the server could not connect.
    pub async fn in_memory() -> Result<Self, Error> {
        Self::builder().open().await
    }

    /// Returns a builder with options.
    pub fn builder() -> Builder {
        Builder {
            file: None,
            begin: None,
            config: Config {
                evaluator: Evaluator(Arc::new(Scripts::new(Limits::default()))),
                system_tasks: HttpTasks::All.system_tasks(),
                ..Config::default()
            },
        }
    }

    /// Returns a client in the namespace `default`.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns clients for Conductor workflows in the namespace `default`.
    #[must_use]
    pub fn conductor(&self) -> longhaul_conductor_sdk::Client {
        // The transport knows where the server is; the address is not used.
        let configuration = longhaul_conductor_sdk::Configuration::new("http://embedded/api");
        longhaul_conductor_sdk::Client::over(&configuration, self.transport())
    }

    /// Returns the transport to the server, for a client with other options.
    #[must_use]
    pub fn transport(&self) -> EmbeddedTransport {
        self.transport.clone()
    }

    /// Returns the time of the server.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.host.now()
    }

    /// Moves a manual clock forward. The server does what has become due soon after.
    ///
    /// # Panics
    /// If the server was not opened with [`Builder::manual_clock`].
    pub fn advance(&self, time: Duration) {
        let clock = self.clock.as_ref();
        clock
            .expect("only a manual clock can be moved")
            .advance_to(after(self.now(), time));
    }

    /// Stops the server. Waiting polls return, and requests complete; later requests fail. Accepted work is on disk, and the file
    /// can be opened again.
    pub async fn stop(self) {
        self.host.begin_stop();
        self.transport.close().await;
        self.host.stop().await;
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embedded")
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.host.begin_stop();
    }
}

/// Builds an [`Embedded`] server; see [`Embedded::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it opens"]
pub struct Builder {
    file: Option<PathBuf>,
    begin: Option<Timestamp>,
    config: Config,
}

impl Builder {
    /// Sets the file of the store. Without a file, everything is kept in memory.
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.file = Some(path.as_ref().to_owned());
        self
    }

    /// Uses a clock that starts at `begin` and moves only when [`Embedded::advance`] is called.
    pub fn manual_clock(mut self, begin: Timestamp) -> Self {
        self.begin = Some(begin);
        self
    }

    /// Sets limits and leases.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the values and secrets that Conductor definitions may use.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.config.environment = environment;
        self
    }

    /// Says whether the server makes the calls of HTTP tasks in Conductor definitions, and to where. It makes all of them by default.
    pub fn http_tasks(mut self, calls: HttpTasks) -> Self {
        self.config.system_tasks = calls.system_tasks();
        self
    }

    /// Opens the server.
    ///
    /// # Errors
    /// The errors of [`Embedded::open`].
    pub async fn open(self) -> Result<Embedded, Error> {
        let store: Arc<dyn Store> = match self.file {
            Some(file) => Arc::new(open_file(file).await?),
            None => Arc::new(Memory::new()),
        };
        let manual = self.begin.map(ManualClock::new);
        let clock: Arc<dyn Clock> = match &manual {
            Some(clock) => Arc::new(clock.clone()),
            None => Arc::new(SystemClock),
        };
        let host = Host::start_with_clock(store, self.config, clock).await?;
        let options = Options {
            server_id: "embedded".to_owned(),
            ..Options::default()
        };
        // A caller in this process needs no token.
        let router = App::new(host.clone(), Auth::open(), options).router();
        let transport = EmbeddedTransport::new(router);
        let client = Client::over(transport.clone()).connect().await?;
        Ok(Embedded {
            host,
            transport,
            client,
            clock: manual,
        })
    }
}

/// Which calls of HTTP tasks the server makes; see [`Builder::http_tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpTasks {
    /// Calls to every address.
    All,
    /// Only calls to public addresses: not to this machine, to private networks, or to metadata services.
    Public,
    /// None. Definitions with HTTP tasks are refused.
    Off,
}

impl HttpTasks {
    fn system_tasks(self) -> SystemTasks {
        let calls_to =
            |addresses| SystemTasks::default().with(HTTP_TASK, Arc::new(HttpCalls::new(addresses)));
        match self {
            Self::All => calls_to(Addresses::All),
            Self::Public => calls_to(Addresses::Public),
            Self::Off => {
                SystemTasks::default().without(HTTP_TASK, "HTTP tasks are off on this server")
            }
        }
    }
}

/// Returns the time that is `time` after `begin`, or the last one that can be represented.
fn after(begin: Timestamp, time: Duration) -> Timestamp {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let target = begin.as_micros().saturating_add(micros);
    Timestamp::from_micros(target).min(Timestamp::MAX)
}

async fn open_file(file: PathBuf) -> Result<Sqlite, Error> {
    // Opening and migrating a file blocks the thread.
    let opening = tokio::task::spawn_blocking(move || {
        if let Some(folder) = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder)
                .map_err(|error| Error::Folder(folder.to_owned(), error))?;
        }
        Ok(Sqlite::open(&file)?)
    });
    match opening.await {
        Ok(opened) => opened,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The documents whose programs must compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/rust.md")]
    struct Rust;

    #[doc = include_str!("../../../docs/conductor-rust.md")]
    struct ConductorRust;
}
