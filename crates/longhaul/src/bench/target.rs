//! The measured servers: new ones in this process with a store of their own for each scenario, or one that is already running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::serve::ListenerExt;
use hyper::Uri;
use longhaul_host::conductor::evaluate::Evaluator;
use longhaul_host::{Config, Host};
use longhaul_server::auth::Auth;
use longhaul_server::connections::{self, Limits};
use longhaul_server::{App, Options};
use longhaul_store::postgres::{self, Postgres, Scratch};
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{Stats, Store};
use longhaul_system::{Limits as ScriptLimits, Scripts};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Address, Connection};
use super::{LOOPBACK, measure};

/// The data directory and the servers to measure. The directory is removed when this is dropped.
pub(super) struct Home {
    directory: TempDir,
    servers: Servers,
    /// The name of the server in the report.
    pub(super) name: String,
}

/// Where the measured servers are.
enum Servers {
    /// One that is already running.
    Existing(Address),
    /// In this process, with an embedded store.
    Sqlite,
    /// In this process, that many on one database.
    Postgres(Box<postgres::Options>, usize),
}

impl Home {
    pub(super) fn new(
        data: Option<&Path>,
        url: Option<&str>,
        token: Option<&str>,
        database: Option<(postgres::Options, usize)>,
    ) -> Result<Self> {
        let parent = data.map_or_else(std::env::temp_dir, PathBuf::from);
        std::fs::create_dir_all(&parent)
            .with_context(|| format!("the directory {} cannot be created", parent.display()))?;
        let directory = tempfile::Builder::new()
            .prefix("longhaul-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("nothing can be written to {}", parent.display()))?;
        let (servers, name) = match (url, database) {
            (Some(url), _) => {
                let address = Address::new(&authority(url)?, token)?;
                (Servers::Existing(address), url.to_owned())
            }
            (None, Some((options, count))) => {
                let name = format!("{count} in this process, new databases at {options}");
                (Servers::Postgres(Box::new(options), count), name)
            }
            (None, None) => {
                let name = format!("in this process, SQLite in {}", parent.display());
                (Servers::Sqlite, name)
            }
        };
        Ok(Self {
            directory,
            servers,
            name,
        })
    }

    pub(super) fn is_in_process(&self) -> bool {
        !matches!(self.servers, Servers::Existing(_))
    }

    /// Returns the address of the database and the number of servers, if there is one.
    pub(super) fn database(&self) -> Option<(&postgres::Options, usize)> {
        match &self.servers {
            Servers::Postgres(options, count) => Some((options, *count)),
            Servers::Existing(_) | Servers::Sqlite => None,
        }
    }

    /// The directory whose disk is measured.
    pub(super) fn disk(&self) -> &Path {
        self.directory.path()
    }

    /// Returns servers for one scenario. In this process they are new ones, so that no scenario inherits runs of another.
    pub(super) async fn open(&self, scenario: &str) -> Result<Target> {
        match &self.servers {
            Servers::Existing(address) => Ok(Target::existing(address.clone())),
            Servers::Sqlite => self.open_sqlite(scenario).await,
            Servers::Postgres(options, count) => Target::on_postgres(options, *count).await,
        }
    }

    /// Returns a server on an embedded store.
    pub(super) async fn open_sqlite(&self, scenario: &str) -> Result<Target> {
        let database = self.disk().join(format!("{scenario}.db"));
        let store = Sqlite::open(&database)
            .with_context(|| format!("the store {} cannot be opened", database.display()))?;
        Target::start(vec![Arc::new(store)], None).await
    }
}

/// Returns `host:port` of a URL. The bench uses plain HTTP, because it would also measure encryption.
fn authority(url: &str) -> Result<String> {
    let uri: Uri = url
        .parse()
        .with_context(|| format!("`{url}` is not a URL; write it like http://127.0.0.1:8080"))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        bail!("`{url}` cannot be measured; write it like http://127.0.0.1:8080 (plain HTTP only)");
    };
    if uri.path() != "/" {
        bail!("`{url}` has a path; give the server's root, like http://{authority}");
    }
    Ok(if authority.port().is_some() {
        authority.to_string()
    } else {
        format!("{authority}:80")
    })
}

/// The servers to measure.
pub(super) struct Target {
    addresses: Vec<Address>,
    running: Vec<Running>,
    database: Option<Scratch>,
    /// Spreads connections over the servers.
    next: AtomicUsize,
}

struct Running {
    store: Arc<dyn Store>,
    host: Host,
    serving: JoinHandle<()>,
}

impl Target {
    fn existing(address: Address) -> Self {
        Self {
            addresses: vec![address],
            running: Vec::new(),
            database: None,
            next: AtomicUsize::new(0),
        }
    }

    /// Starts servers on a new database beside this one.
    pub(super) async fn on_postgres(beside: &postgres::Options, count: usize) -> Result<Self> {
        let database = Scratch::create(beside)
            .await
            .with_context(|| format!("no database can be created at {beside}"))?;
        let mut stores: Vec<Arc<dyn Store>> = Vec::new();
        for _ in 0..count {
            let store = Postgres::open(database.options()).await;
            stores.push(Arc::new(store.context("the new database cannot be used")?));
        }
        Self::start(stores, Some(database)).await
    }

    async fn start(stores: Vec<Arc<dyn Store>>, database: Option<Scratch>) -> Result<Self> {
        let (mut addresses, mut running) = (Vec::new(), Vec::new());
        for store in stores {
            let (address, server) = Running::start(store).await?;
            addresses.push(address);
            running.push(server);
        }
        Ok(Self {
            addresses,
            running,
            database,
            next: AtomicUsize::new(0),
        })
    }

    /// Starts one more server on the same database. Returns a client of it alone once it serves.
    pub(super) async fn add_server(&mut self) -> Result<Connection> {
        let database = self.database.as_ref().context("there is no database")?;
        let store = Postgres::open(database.options()).await?;
        let (address, server) = Running::start(Arc::new(store)).await?;
        let connection = Connection::open(std::slice::from_ref(&address), 0).await?;
        self.addresses.push(address);
        self.running.push(server);
        Ok(connection)
    }

    pub(super) async fn connect(&self) -> Result<Connection> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        Connection::open(&self.addresses, first).await
    }

    /// Opens a connection to one of the servers.
    pub(super) async fn connect_to(&self, place: usize) -> Result<Connection> {
        Connection::open(&self.addresses[place..=place], 0).await
    }

    /// Opens a number of connections.
    pub(super) async fn connect_many(&self, count: u64) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }

    pub(super) fn is_in_process(&self) -> bool {
        !self.running.is_empty()
    }

    /// Returns the URL of the first server for other clients.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.addresses[0].authority())
    }

    pub(super) fn requests(&self) -> u64 {
        self.addresses.iter().map(Address::sent).sum()
    }

    /// Returns the counters of the stores of all servers in this process.
    pub(super) fn stats(&self) -> Vec<Stats> {
        let servers = self.running.iter();
        servers.map(|server| server.store.stats()).collect()
    }

    /// Stops servers of this process, and drops their database. A server in another process keeps running.
    pub(super) async fn stop(self) {
        for server in self.running {
            server.host.stop().await;
            server.serving.abort();
            let _ = server.serving.await;
        }
        if let Some(database) = self.database
            && let Err(error) = database.drop_database().await
        {
            tracing::warn!(%error, "the database of a scenario could not be dropped");
        }
    }
}

impl Running {
    async fn start(store: Arc<dyn Store>) -> Result<(Address, Self)> {
        let config = Config {
            evaluator: Evaluator(Arc::new(Scripts::new(ScriptLimits::default()))),
            ..Config::default()
        };
        let host = Host::start(Arc::clone(&store), config)
            .await
            .context("the server could not be started")?;
        let auth = Auth::with_tokens(None, None, None, None);
        let router = App::new(host.clone(), auth, Options::default()).router();
        let (address, serving) = serve_as_the_server_does(router).await?;
        let address = Address::new(&address.to_string(), None)?;
        let running = Self {
            store,
            host,
            serving,
        };
        Ok((address, running))
    }
}

/// Serves on a free port of the loopback address, in the same way as `longhaul serve`.
async fn serve_as_the_server_does(router: Router) -> Result<(SocketAddr, JoinHandle<()>)> {
    let (listener, address) = listen().await?;
    let limits = Limits {
        connections_max: usize::MAX / 2,
        ..Limits::default()
    };
    let serving = connections::serve(listener, router, limits, std::future::pending());
    Ok((address, tokio::spawn(serving)))
}

async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((LOOPBACK, 0))
        .await
        .context("cannot listen on the loopback address")?;
    let address = listener
        .local_addr()
        .context("the listening address is not known")?;
    Ok((listener, address))
}

/// Serves on a free port of the loopback address, with the same socket options as `longhaul serve` and nothing else.
pub(super) async fn serve(router: Router) -> Result<(SocketAddr, JoinHandle<std::io::Result<()>>)> {
    let (listener, address) = listen().await?;
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok((
        address,
        tokio::spawn(async move { axum::serve(listener, router).await }),
    ))
}

/// Returns a name that no earlier bench used on the same server.
pub(super) fn fresh_name(scenario: &str) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "bench-{scenario}-{:x}-{}",
        now.as_millis(),
        measure::fresh_number()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server_and_nothing_more() {
        assert_eq!(
            authority("http://127.0.0.1:8080").unwrap(),
            "127.0.0.1:8080"
        );
        assert_eq!(authority("http://example.org/").unwrap(), "example.org:80");
        assert!(authority("https://example.org").is_err());
        assert!(authority("http://example.org/api").is_err());
        assert!(authority("127.0.0.1:8080").is_err());
    }
}
