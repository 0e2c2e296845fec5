//! The client: start workflows, talk to them, look at them.
//!
//! A [`Client`] is one namespace of one server. It is made once, cloned freely and shared. What can be done with one
//! workflow is on its [`WorkflowHandle`]; what can be asked about all of them is on the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_protocol::Ids;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::CommandId;

use crate::connection::Connection;
use crate::definition::WorkflowCall;
use crate::transport::{
    HttpTransport, Plane, RequestError, RetryPolicy, Token, Transport, TransportError,
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
pub use start::{DuplicatePolicy, StartWorkflow};
pub use task_queues::{BuildId, Lease, TaskCounts, TaskQueueDescription, TaskQueueStats};
pub use update::{UpdateHandle, UpdateRequest};
pub use workers::{ListWorkers, WorkerDescription};

/// The namespace that every server has.
pub const DEFAULT_NAMESPACE: &str = "default";

/// A request that came back with nothing sooner than this was not held.
const HELD_AT_LEAST: Duration = Duration::from_secs(1);

/// Then the next one waits this long.
const PAUSE: Duration = Duration::from_millis(100);

/// Tries to connect: an address that is wrong is soon known to be, a server that starts at the same time is waited for.
const CONNECT_ATTEMPTS: u32 = 4;

/// One namespace of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    info: Arc<ServerInfo>,
}

impl Client {
    /// Connects to the server at an address such as `http://127.0.0.1:8080`, without a credential and in the namespace
    /// `default`. [`Client::builder`] has the other choices.
    ///
    /// # Errors
    /// The address is wrong, nobody answers there, or who answers speaks another protocol.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// A client for the server at an address, with choices to make.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), longhaul_sdk::client::Error> {
    /// use longhaul_sdk::Client;
    ///
    /// let client = Client::builder("http://127.0.0.1:8080")
    ///     .namespace("orders")
    ///     .token("the operator's secret")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> ClientBuilder {
        let transport = HttpTransport::new(url);
        ClientBuilder::new(transport.map(|transport| Arc::new(transport) as _))
    }

    /// A client whose requests take another way than HTTP.
    pub fn over(transport: impl Transport) -> ClientBuilder {
        ClientBuilder::new(Ok(Arc::new(transport)))
    }

    /// The namespace it acts in.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.connection.namespace
    }

    /// The same server, another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        let mut client = self.clone();
        client.connection.namespace = namespace.into();
        client
    }

    /// What the server said about itself when the client connected.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Starts a workflow: add options, then await.
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
    pub fn start<R>(&self, call: WorkflowCall<R>) -> StartWorkflow<'_, R> {
        StartWorkflow::new(self, call)
    }

    /// A workflow that was started before, by anybody, and returns an `R`. Nothing is sent yet.
    pub fn workflow<R>(&self, workflow_id: impl Into<Arc<str>>) -> WorkflowHandle<R> {
        WorkflowHandle::new(self.clone(), workflow_id.into(), None)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// A client in the making.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    transport: Result<Arc<dyn Transport>, TransportError>,
    namespace: Arc<str>,
    control_token: Option<Token>,
    worker_token: Option<Token>,
    retry: Option<RetryPolicy>,
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

    /// The namespace to act in.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The credential for everything.
    pub fn token(mut self, token: &str) -> Self {
        let token = Token::new(token);
        self.control_token = Some(token.clone());
        self.worker_token = Some(token);
        self
    }

    /// The credential for what workers do, where the server tells the two apart; after [`Self::token`].
    pub fn worker_token(mut self, token: &str) -> Self {
        self.worker_token = Some(Token::new(token));
        self
    }

    /// When requests are repeated, also the first. More tries let waiting callers live through longer outages.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Asks the server who it is and gives the client.
    ///
    /// # Errors
    /// The address is wrong, nobody answers there, the credential is refused, or the server speaks another version of the
    /// protocol.
    pub async fn connect(self) -> Result<Client, Error> {
        let mut connection = Connection {
            transport: self.transport.map_err(RequestError::from)?,
            namespace: self.namespace,
            control_token: self.control_token,
            worker_token: self.worker_token,
            retry: self.retry.unwrap_or(RetryPolicy::new(CONNECT_ATTEMPTS)),
        };
        let answer = connection
            .get(Plane::Control, &["cluster", "info"])
            .send()
            .await?;
        let info = Arc::new(ServerInfo::read(answer)?);
        connection.retry = self.retry.unwrap_or_default();
        Ok(Client { connection, info })
    }
}

/// Keeps who waits from asking without pause where the server does not hold the request, as one that is stopping does not.
async fn breathe(asked_at: Instant) {
    if asked_at.elapsed() < HELD_AT_LEAST {
        tokio::time::sleep(PAUSE).await;
    }
}

/// An id that nobody else has: for workflows that need no name, and for requests that must not count twice.
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
