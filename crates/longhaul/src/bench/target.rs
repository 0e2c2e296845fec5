//! The measured server: one in this process with its own store for each scenario, or a server that is already running.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::serve::ListenerExt;
use hyper::Uri;
use longhaul_host::conductor::evaluate::Evaluator;
use longhaul_host::{Config, Host};
use longhaul_server::auth::Auth;
use longhaul_server::connections::{self, Limits};
use longhaul_server::{App, Options};
use longhaul_store::sqlite::Sqlite;
use longhaul_system::{Limits as ScriptLimits, Scripts};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::{Address, Connection};
use super::{LOOPBACK, measure};

/// The data directory and the server to measure. The directory is removed when this is dropped.
pub(super) struct Home {
    directory: TempDir,
    existing: Option<Address>,
    /// The name of the server in the report.
    pub(super) name: String,
}

impl Home {
    pub(super) fn new(data: Option<&Path>, url: Option<&str>, token: Option<&str>) -> Result<Self> {
        let parent = data.map_or_else(std::env::temp_dir, PathBuf::from);
        std::fs::create_dir_all(&parent)
            .with_context(|| format!("the directory {} cannot be created", parent.display()))?;
        let directory = tempfile::Builder::new()
            .prefix("longhaul-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("nothing can be written to {}", parent.display()))?;
        let existing = url
            .map(|url| Address::new(&authority(url)?, token))
            .transpose()?;
        let name = url.map_or_else(
            || format!("in this process, SQLite in {}", parent.display()),
            str::to_owned,
        );
        Ok(Self {
            directory,
            existing,
            name,
        })
    }

    pub(super) fn is_in_process(&self) -> bool {
        self.existing.is_none()
    }

    /// The directory whose disk is measured.
    pub(super) fn disk(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a server for one scenario. In this process it is a new one, so that no scenario inherits runs of another.
    pub(super) async fn open(&self, scenario: &str) -> Result<Target> {
        match &self.existing {
            Some(address) => Ok(Target {
                address: address.clone(),
                running: None,
            }),
            None => Target::start(&self.disk().join(format!("{scenario}.db"))).await,
        }
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

/// A server to measure.
pub(super) struct Target {
    address: Address,
    running: Option<Running>,
}

struct Running {
    host: Host,
    serving: JoinHandle<()>,
}

impl Target {
    async fn start(database: &Path) -> Result<Self> {
        let store = Sqlite::open(database)
            .with_context(|| format!("the store {} cannot be opened", database.display()))?;
        let config = Config {
            evaluator: Evaluator(Arc::new(Scripts::new(ScriptLimits::default()))),
            ..Config::default()
        };
        let host = Host::start(Arc::new(store), config)
            .await
            .context("the server could not be started")?;
        let auth = Auth::with_tokens(None, None, None, None);
        let router = App::new(host.clone(), auth, Options::default()).router();
        let (address, serving) = serve_as_the_server_does(router).await?;
        Ok(Self {
            address: Address::new(&address.to_string(), None)?,
            running: Some(Running { host, serving }),
        })
    }

    pub(super) async fn connect(&self) -> Result<Connection> {
        self.address.connect().await
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
        self.running.is_some()
    }

    /// Returns the URL for other clients.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address.authority())
    }

    pub(super) fn requests(&self) -> u64 {
        self.address.sent()
    }

    /// Stops a server of this process. A server in another process keeps running.
    pub(super) async fn stop(self) {
        if let Some(running) = self.running {
            running.host.stop().await;
            running.serving.abort();
            let _ = running.serving.await;
        }
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
