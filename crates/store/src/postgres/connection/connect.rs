//! Opens one connection: tries the hosts, logs in, and sets what the store relies on.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures::StreamExt as _;
use rand::seq::SliceRandom as _;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Error as PostgresError, Statement};

use super::options::{Options, Place};
use super::refusal::{self, Attempt};
use super::tls::Connector;
use crate::Error;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Commits. A commit is durable before it is answered.
    Writer,
    /// Only reads.
    Reader,
}

/// An open connection with a cache of prepared statements. Dropping it closes the connection. It counts what it sends.
///
/// The cache has no limit: use `prepare_cached` for fixed statements only.
#[derive(Debug)]
pub struct Connected {
    client: ClientWrapper,
    statements: Arc<AtomicU64>,
}

impl Connected {
    /// Returns a statement that is about to be sent, and counts it. It is prepared once per connection.
    ///
    /// # Errors
    /// The server refuses the statement, or the connection is lost.
    pub async fn prepare_cached(&self, sql: &str) -> Result<Statement, PostgresError> {
        self.count();
        self.client.prepare_cached(sql).await
    }

    /// Prepares a statement that is sent later.
    ///
    /// # Errors
    /// As [`Self::prepare_cached`].
    pub async fn prepare_ahead(&self, sql: &str) -> Result<(), PostgresError> {
        self.client.prepare_cached(sql).await.map(drop)
    }

    /// Sends a text of statements, and counts it as one.
    ///
    /// # Errors
    /// The server refuses a statement, or the connection is lost.
    pub async fn batch_execute(&self, sql: &str) -> Result<(), PostgresError> {
        self.count();
        self.client.batch_execute(sql).await
    }

    /// Counts a statement that is sent in another way.
    pub(crate) fn count(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }
}

impl Deref for Connected {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

impl DerefMut for Connected {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        &mut self.client
    }
}

/// A transaction of the store never waits for anything but the server. One that is idle longer belongs to a stopped process, and
/// its locks stop the runs that it was about to write at the other servers.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(10);

/// Opens a connection to the first host that accepts it.
///
/// # Errors
/// [`Error::Unavailable`] if no host accepts the connection, with the reason of each; [`Error::Settings`] if the root certificates
/// cannot be read.
pub async fn connect(options: &Options, role: Role) -> Result<Connected, Error> {
    open(options, role, None).await
}

/// As [`connect`]. The payloads of notifications are sent to `notified`, which is dropped when the connection ends.
///
/// # Errors
/// As [`connect`].
pub async fn connect_and_listen(
    options: &Options,
    role: Role,
    notified: mpsc::UnboundedSender<String>,
) -> Result<Connected, Error> {
    open(options, role, Some(notified)).await
}

async fn open(
    options: &Options,
    role: Role,
    notified: Option<mpsc::UnboundedSender<String>>,
) -> Result<Connected, Error> {
    let tls = options.tls()?;
    let mut places: Vec<&Place> = options.places.iter().collect();
    if options.is_random {
        places.shuffle(&mut rand::rng());
    }
    let mut reasons = Vec::new();
    for place in places {
        let connector = Connector::new(tls.clone());
        // Boxed: the handshake is large, and readers would carry room for it in every request.
        let attempt = Box::pin(connect_to(
            options,
            role,
            place,
            connector,
            notified.clone(),
        ));
        match tokio::time::timeout(options.connect_timeout, attempt).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(reason)) => reasons.push(reason),
            Err(_) => reasons.push(format!(
                "{place} did not answer within {} s: check the host, the port and firewalls",
                options.connect_timeout.as_secs_f32()
            )),
        }
    }
    Err(Error::Unavailable(reasons.join("; ")))
}

/// Connects to one host. The error is a sentence for the operator.
async fn connect_to(
    options: &Options,
    role: Role,
    place: &Place,
    connector: Connector,
    notified: Option<mpsc::UnboundedSender<String>>,
) -> Result<Connected, String> {
    let explain = |error: &tokio_postgres::Error| {
        refusal::explain(
            error,
            &Attempt {
                options,
                place,
                handshake_began: connector.handshake_began(),
            },
        )
    };
    let opened = options.config(place).connect(connector.clone()).await;
    let (client, mut connection) = opened.map_err(|error| explain(&error))?;
    let driver = tokio::spawn(async move {
        let mut messages = futures::stream::poll_fn(|context| connection.poll_message(context));
        while let Some(message) = messages.next().await {
            match (message, &notified) {
                (Ok(AsyncMessage::Notification(notification)), Some(notified)) => {
                    // The send fails if the receiver is gone, and with it soon this connection.
                    let _ = notified.send(notification.payload().to_owned());
                }
                (Ok(_), _) => {}
                (Err(error), _) => {
                    // Statements in progress get the error too.
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                    return;
                }
            }
        }
    });
    // From here on, dropping it ends the driver.
    let connected = Connected {
        client: ClientWrapper::new(client, driver),
        statements: Arc::clone(&options.statements),
    };
    set_session(&connected, options, role)
        .await
        .map_err(|error| explain(&error))?;
    // One of several hosts is usually a standby. A reader would get old rows from it.
    let must_write = options.must_write || options.places.len() > 1;
    if must_write
        && is_read_only(&connected)
            .await
            .map_err(|error| explain(&error))?
    {
        return Err(format!(
            "{place} is read-only, and of several hosts, or with target_session_attrs=read-write, one that writes is needed"
        ));
    }
    Ok(connected)
}

/// Sets the session with statements. Poolers refuse most of these settings as parameters of the connection.
async fn set_session(
    client: &Client,
    options: &Options,
    role: Role,
) -> Result<(), tokio_postgres::Error> {
    // Every statement has an index for its rows, whatever its values are, so it is planned once. Otherwise half of the work of the
    // database would be planning. The plan is made for the size that the tables have then, and is kept until statistics are collected
    // again: in a young database it would read whole tables while they grow. Compiling takes longer than executing one of these.
    let mut sql = format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SET client_encoding = 'UTF8'; SET default_transaction_isolation = 'read committed'; \
         SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;",
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        IDLE_IN_TRANSACTION_MAX.as_millis(),
    );
    if role == Role::Writer {
        // Writers join by primary keys only.
        sql.push_str("SET enable_hashjoin = off; SET enable_mergejoin = off;");
        // Stronger values, which wait for standbys in other ways, stay as they are.
        sql.push_str(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
        );
    }
    client.batch_execute(&sql).await
}

async fn is_read_only(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let sql = "SELECT current_setting('transaction_read_only') = 'on'";
    client.query_one(sql, &[]).await?.try_get(0)
}
