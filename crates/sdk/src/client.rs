//! The client starts workflows, sends messages to them and reads their state.
//!
//! A [`Client`] acts in one namespace of one server. Create one and clone it. A [`WorkflowHandle`] has the operations on one
//! workflow; the client has the operations on all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_protocol::Ids;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::CommandId;

use crate::connection::Connection;
use crate::definition::WorkflowCall;
use crate::transport::{
    HttpTransport, Plane, RequestError, RequestRetry, Token, Transport, TransportError,
};

mod attribute;
mod describe;
mod error;
mod handle;
mod history;
mod info;
mod list;
mod page;
mod result;
#[cfg(feature = "schedules")]
mod schedules;
mod search_attributes;
mod start;
mod task_queues;
mod update;
mod workers;

pub use attribute::{AttributeType, AttributeValue};
pub use describe::{Status, UpdateRecord, WorkflowDescription, WorkflowRun};
pub use error::{Error, QueryError, ResultError, StartError, UpdateError, WorkflowFailure};
pub use handle::{CancellationRequest, WorkflowHandle};
pub use history::{History, HistoryEvent};
pub use info::ServerInfo;
pub use list::{ListWorkflows, WorkflowSummary};
pub use page::Page;
#[cfg(feature = "schedules")]
pub use schedules::{
    BackfillResult, Interval, ListSchedules, OverlapPolicy, Schedule, ScheduleAction,
    ScheduleDescription, ScheduleHandle, ScheduleSpec, ScheduleUpdate, TriggerOutcome,
};
pub use search_attributes::SearchAttributes;
pub use start::{DuplicatePolicy, WorkflowStartBuilder};
pub use task_queues::{BuildId, Lease, TaskCounts, TaskQueueDescription, TaskQueueStats};
pub use update::{UpdateCallBuilder, UpdateHandle};
pub use workers::{ListWorkers, WorkerDescription};

/// The default namespace, which every server has.
pub const DEFAULT_NAMESPACE: &str = "default";

/// If a long poll returns nothing within this time, the server did not hold it.
const HELD_AT_LEAST: Duration = Duration::from_secs(1);

/// The pause before the next long poll in that case.
const PAUSE: Duration = Duration::from_millis(100);

/// Attempts to connect: few enough that a wrong address fails soon, enough to wait for a server that is starting.
const CONNECT_ATTEMPTS: u32 = 4;

/// A client for one namespace of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    info: Arc<ServerInfo>,
}

impl Client {
    /// Connects to the server at an address such as `http://127.0.0.1:8080`, without a token and in the namespace `default`. Use
    /// [`Client::builder`] for other options.
    ///
    /// # Errors
    /// [`Error::Request`] if the address is not valid, the server cannot be reached, or it refuses the request;
    /// [`Error::Incompatible`] if the server uses another version of the protocol.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Returns a builder for a client of the server at an address.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), longhaul_sdk::client::Error> {
    /// use longhaul_sdk::Client;
    ///
    /// let client = Client::builder("http://127.0.0.1:8080")
    ///     .namespace("orders")
    ///     .token("the operator's token")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        let transport = HttpTransport::new(url);
        ClientBuilder::new(transport.map(|transport| Arc::new(transport) as _))
    }

    /// Returns a builder for a client that uses another transport than HTTP.
    pub fn over(transport: impl Transport) -> ClientBuilder {
        ClientBuilder::new(Ok(Arc::new(transport)))
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.connection.namespace
    }

    /// Returns a client for another namespace of the same server.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        let mut client = self.clone();
        client.connection.namespace = namespace.into();
        client
    }

    /// Returns the description of the server, read when the client connected.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Starts a workflow. Add options, then await.
    ///
    /// ```no_run
    /// # use longhaul_sdk::{Client, WorkflowCall};
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let call = WorkflowCall::<String>::named("greet").argument("Ada");
    /// let handle = client.start(call).id("greeting-1").queue("greetings").await?;
    /// println!("{}", handle.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start<R>(&self, call: WorkflowCall<R>) -> WorkflowStartBuilder<'_, R> {
        WorkflowStartBuilder::new(self, call)
    }

    /// Returns a handle to an existing workflow whose result is an `R`. Sends no request.
    pub fn workflow<R>(&self, workflow_id: impl Into<Arc<str>>) -> WorkflowHandle<R> {
        WorkflowHandle::new(self.clone(), workflow_id.into(), None)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Builds a client; see [`Client::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    transport: Result<Arc<dyn Transport>, TransportError>,
    namespace: Arc<str>,
    control_token: Option<Token>,
    worker_token: Option<Token>,
    retry: Option<RequestRetry>,
}

impl ClientBuilder {
    fn new(transport: Result<Arc<dyn Transport>, TransportError>) -> Self {
        Self {
            transport,
            namespace: DEFAULT_NAMESPACE.into(),
            control_token: None,
            worker_token: None,
            retry: None,
        }
    }

    /// Sets the namespace. The default is `default`.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the token for all requests.
    pub fn token(mut self, token: &str) -> Self {
        let token = Token::new(token);
        self.control_token = Some(token.clone());
        self.worker_token = Some(token);
        self
    }

    /// Sets another token for the requests of workers. Call it after [`Self::token`].
    pub fn worker_token(mut self, token: &str) -> Self {
        self.worker_token = Some(Token::new(token));
        self
    }

    /// Sets how failed requests are repeated, the first one included. More attempts bridge longer outages.
    pub fn retry(mut self, retry: RequestRetry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Reads the description of the server and returns the client.
    ///
    /// # Errors
    /// [`Error::Request`] if the address is not valid, the server cannot be reached, or it refuses the token;
    /// [`Error::Incompatible`] if the server uses another version of the protocol.
    pub async fn connect(self) -> Result<Client, Error> {
        let mut connection = Connection {
            transport: self.transport.map_err(RequestError::from)?,
            namespace: self.namespace,
            control_token: self.control_token,
            worker_token: self.worker_token,
            retry: self.retry.unwrap_or(RequestRetry::new(CONNECT_ATTEMPTS)),
        };
        let description = connection
            .get(Plane::Control, &["cluster", "info"])
            .send()
            .await?;
        let info = Arc::new(ServerInfo::read(description)?);
        connection.retry = self.retry.unwrap_or_default();
        Ok(Client { connection, info })
    }
}

/// Prevents a busy loop when the server answers a long poll immediately, for example while it shuts down.
async fn pause_if_not_held(asked_at: Instant) {
    if asked_at.elapsed() < HELD_AT_LEAST {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns a unique id, for workflows without a chosen id and for idempotent requests.
fn fresh_id() -> String {
    let micros = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|now| i64::try_from(now.as_micros()).ok())
        .unwrap_or_default();
    Ids::new(Timestamp::from_micros(micros), rand::random())
        .mint::<CommandId>()
        .to_string()
}
