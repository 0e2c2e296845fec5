//! Connections. A name is resolved once, the addresses are checked, and the connection goes to an address that was checked: a name
//! server that answers differently a moment later changes nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::addresses::is_public;
use super::{Addresses, HttpCalls};

/// Addresses of one name that are tried. Each may take the whole time-out.
const ADDRESSES_MAX: usize = 4;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses, best first.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Asks the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        }
        .boxed()
    }
}

/// A connection, encrypted or not.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// Connects to the server of a URL. Errors name the host and never the rest of the URL, which may contain secrets.
pub(super) async fn connect(
    calls: &HttpCalls,
    url: &Url,
    within: Duration,
) -> Result<Pin<Box<dyn Stream>>, String> {
    let host = url.host().ok_or("The URI has no host")?;
    let port = url.port_or_known_default().ok_or("The URI has no port")?;
    let shown = format!("{host}:{port}");
    let found = match host {
        Host::Ipv4(address) => vec![IpAddr::V4(address)],
        Host::Ipv6(address) => vec![IpAddr::V6(address)],
        Host::Domain(name) => {
            let found = tokio::time::timeout(within, calls.resolver.resolve(name));
            found
                .await
                .map_err(|_| {
                    format!(
                        "{name} could not be resolved within {} ms",
                        within.as_millis()
                    )
                })?
                .map_err(|error| format!("{name} could not be resolved: {error}"))?
        }
    };
    let is_any = !found.is_empty();
    let allowed = found.into_iter().filter(|address| match calls.addresses {
        Addresses::All => true,
        Addresses::Public => is_public(*address),
    });
    let mut problem = if is_any {
        format!("Calls to {shown} are refused: its address is not public (limit: deny private)")
    } else {
        format!("{shown} has no address")
    };
    for address in allowed.take(ADDRESSES_MAX) {
        let address = SocketAddr::new(address, port);
        match tokio::time::timeout(within, open(url, address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => problem = format!("No connection to {shown}: {error}"),
            Err(_) => {
                problem = format!("No connection to {shown} within {} ms", within.as_millis());
            }
        }
    }
    Err(problem)
}

async fn open(url: &Url, address: SocketAddr) -> io::Result<Pin<Box<dyn Stream>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    if url.scheme() != "https" {
        return Ok(Box::pin(stream));
    }
    let name = match url.host() {
        Some(Host::Domain(name)) => {
            ServerName::try_from(name.to_owned()).map_err(io::Error::other)?
        }
        Some(Host::Ipv4(address)) => ServerName::from(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => ServerName::from(IpAddr::V6(address)),
        None => return Err(io::Error::other("no host")),
    };
    let config = system_roots().map_err(io::Error::other)?;
    let stream = TlsConnector::from(config).connect(name, stream).await?;
    Ok(Box::pin(stream))
}

/// Returns a configuration with the root certificates of the system, which are read once.
fn system_roots() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG.get_or_init(read_roots).clone()
}

fn read_roots() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("the system has no root certificates".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
