//! The settings of a connection. `parse` reads them from an address. The password is never shown.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslMode, SslNegotiation};

use super::parse;
use super::tls::{self, Mode, Roots};
use crate::Error;

/// Readers of one server. Several servers share a database, and PostgreSQL allows 100 connections by default.
const CONNECTIONS_MAX: usize = 16;

/// Longer than any statement of the store takes on a busy server; a longer one is stuck.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A commit of another server takes milliseconds. One that waits longer gives up, and the host decides again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// For each host: its socket, the handshake and the login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The first probe of an idle connection. Firewalls forget idle connections after minutes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Between probes; with `KEEPALIVE_COUNT`, a vanished server is noticed after a minute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 3;

/// How long sent data may stay without an acknowledgement. A server that vanished in the middle of a commit is noticed after it.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the database is, and how to reach and use it.
#[derive(Clone)]
pub struct Options {
    pub(super) places: Vec<Place>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application_name: String,
    /// Arguments for the session, as `-c name=value`.
    pub(super) arguments: Option<String>,
    pub(super) mode: Mode,
    pub(super) roots: Option<Roots>,
    pub(super) negotiation: SslNegotiation,
    pub(super) channel_binding: ChannelBinding,
    pub(super) must_write: bool,
    pub(super) is_random: bool,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) tcp_user_timeout: Duration,
    pub(super) connections_max: usize,
    pub(super) statement_timeout: Duration,
    pub(super) lock_timeout: Duration,
    pub(super) connect_timeout: Duration,
    /// The address without the password.
    pub(super) shown: String,
    /// Statements that all connections with these options sent.
    pub(super) statements: Arc<AtomicU64>,
}

/// One server to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: Host,
    /// The address of the host, if it is not looked up.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    /// The folder of a socket.
    Folder(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keepalive {
    pub(super) idle: Duration,
    pub(super) interval: Duration,
    pub(super) count: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: KEEPALIVE_IDLE,
            interval: KEEPALIVE_INTERVAL,
            count: KEEPALIVE_COUNT,
        }
    }
}

impl Options {
    /// Reads an address such as `postgres://user:password@host:5432,host2/database?sslmode=verify-full`, with the parameters of
    /// libpq.
    ///
    /// # Errors
    /// [`Error::Settings`] if the address is malformed, or has an unknown parameter or a wrong value. The error never has the password.
    pub fn parse(url: &str) -> Result<Self, Error> {
        parse::parse(url)
    }

    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            user: None,
            password: None,
            database: None,
            application_name: "longhaul".to_owned(),
            arguments: None,
            mode: Mode::Prefer,
            roots: None,
            negotiation: SslNegotiation::Postgres,
            channel_binding: ChannelBinding::Prefer,
            must_write: false,
            is_random: false,
            keepalive: Some(Keepalive::default()),
            tcp_user_timeout: TCP_USER_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            statement_timeout: STATEMENT_TIMEOUT,
            lock_timeout: LOCK_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            shown: String::new(),
            statements: Arc::default(),
        }
    }

    /// Returns the same options with a count of statements of their own.
    #[must_use]
    pub(in crate::postgres) fn counted_apart(mut self) -> Self {
        self.statements = Arc::default();
        self
    }

    /// Returns how many statements were sent.
    pub(in crate::postgres) fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Returns the options for another database of the same server.
    #[must_use]
    pub fn with_database(mut self, name: &str) -> Self {
        self.database = Some(name.to_owned());
        self
    }

    /// Returns the variables by which programs of PostgreSQL find the same database, the password included.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = Vec::new();
        if let Some(place) = self.places.first() {
            let host = match &place.host {
                Host::Name(name) => name.clone(),
                Host::Folder(folder) => folder.display().to_string(),
            };
            variables.push(("PGHOST", host));
            variables.push(("PGPORT", place.port.to_string()));
        }
        let optional = [
            ("PGUSER", &self.user),
            ("PGPASSWORD", &self.password),
            ("PGDATABASE", &self.database),
        ];
        for (name, value) in optional {
            variables.extend(value.clone().map(|value| (name, value)));
        }
        variables
    }

    /// Sets how many connections readers have at most; at least 1.
    #[must_use]
    pub fn with_connections_max(mut self, connections_max: usize) -> Self {
        self.connections_max = connections_max.max(1);
        self
    }

    /// Sets how long a statement may take.
    #[must_use]
    pub fn with_statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets how long a statement may wait for a lock.
    #[must_use]
    pub fn with_lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets how long connecting to one host may take.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Returns how many connections readers have at most.
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Returns how long a statement may take.
    pub fn statement_timeout(&self) -> Duration {
        self.statement_timeout
    }

    /// Returns how long a statement may wait for a lock.
    pub fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Returns how long connecting to one host may take.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns the TLS configuration. Reads the root certificates.
    pub(super) fn tls(&self) -> Result<rustls::ClientConfig, Error> {
        let is_direct = self.negotiation == SslNegotiation::Direct;
        tls::configuration(self.mode, self.roots.as_ref(), is_direct)
    }

    /// Returns whether a connection to this place must be encrypted. Sockets never are, whatever the mode.
    pub(super) fn must_encrypt(&self, place: &Place) -> bool {
        matches!(place.host, Host::Name(_))
            && matches!(self.mode, Mode::Require | Mode::VerifyCa | Mode::VerifyFull)
    }

    /// Returns the settings of the client library for one place.
    pub(super) fn config(&self, place: &Place) -> Config {
        let mut config = Config::new();
        match &place.host {
            Host::Name(name) => config.host(name),
            Host::Folder(folder) => config.host_path(folder),
        };
        if let Some(address) = place.address {
            config.hostaddr(address);
        }
        config.port(place.port);
        if let Some(user) = &self.user {
            config.user(user);
        }
        if let Some(password) = &self.password {
            config.password(password);
        }
        if let Some(database) = &self.database {
            config.dbname(database);
        }
        if let Some(arguments) = &self.arguments {
            config.options(arguments);
        }
        config.application_name(&self.application_name);
        config.ssl_negotiation(self.negotiation);
        config.channel_binding(self.channel_binding);
        config.ssl_mode(match self.mode {
            _ if self.must_encrypt(place) => SslMode::Require,
            Mode::Prefer if matches!(place.host, Host::Name(_)) => SslMode::Prefer,
            _ => SslMode::Disable,
        });
        config.connect_timeout(self.connect_timeout);
        config.tcp_user_timeout(self.tcp_user_timeout);
        match self.keepalive {
            Some(keepalive) => {
                config.keepalives_idle(keepalive.idle);
                config.keepalives_interval(keepalive.interval);
                config.keepalives_retries(keepalive.count);
            }
            None => {
                config.keepalives(false);
            }
        }
        config
    }
}

impl fmt::Display for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("url", &self.shown)
            .field("connections_max", &self.connections_max)
            .field("statement_timeout", &self.statement_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) if name.contains(':') => write!(formatter, "[{name}]:{}", self.port),
            Host::Name(name) => write!(formatter, "{name}:{}", self.port),
            Host::Folder(folder) => {
                write!(formatter, "{}/.s.PGSQL.{}", folder.display(), self.port)
            }
        }
    }
}
