//! A handle to one workflow: its result, messages to it, and its description.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::{Payload, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Client, Error, History, QueryError, ResultError, UpdateCallBuilder, WorkflowDescription,
    WorkflowRun, fresh_id, result,
};
use crate::connection::{Call, Repeat};
use crate::definition::{Query, Signal, Update};
use crate::duration::timeout_seconds;
use crate::payload;
use crate::transport::Plane;

/// A handle to one workflow whose result is an `R`. Cheap to clone; it holds no connection.
///
/// It refers to the current run of the workflow: messages go to that run, and [`Self::result`] waits for the last run.
/// [`Self::of_run`] returns a handle to one run.
pub struct WorkflowHandle<R = Value> {
    client: Client,
    workflow_id: Arc<str>,
    /// The first run, if the handle was returned by a start.
    first_run_id: Option<Arc<str>>,
    /// The run, if the handle refers to one run.
    run_id: Option<Arc<str>>,
    output: PhantomData<fn() -> R>,
}

impl<R> WorkflowHandle<R> {
    pub(super) fn new(
        client: Client,
        workflow_id: Arc<str>,
        first_run_id: Option<Arc<str>>,
    ) -> Self {
        Self {
            client,
            workflow_id,
            first_run_id,
            run_id: None,
            output: PhantomData,
        }
    }

    /// Returns the workflow id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.workflow_id
    }

    /// Returns the id of the run that was started, or the run of [`Self::of_run`].
    #[must_use]
    pub fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref().or(self.first_run_id.as_deref())
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a handle to one run of the workflow. The server refuses messages to a run that is not the current one.
    #[must_use]
    pub fn of_run(&self, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            run_id: Some(run_id.into()),
            ..self.clone()
        }
    }

    /// Sends a signal. The workflow gets it once, in the order in which the server accepted the signals.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow does not exist, is closed, or does not list the signal, or if the server cannot be
    /// reached; [`Error::Payload`] if the arguments cannot be encoded.
    pub async fn signal<A: Serialize>(
        &self,
        signal: &Signal<A>,
        arguments: A,
    ) -> Result<(), Error> {
        self.signal_named(signal.name(), arguments).await
    }

    /// Sends a signal by name. `arguments` is one value, or a tuple of several arguments.
    ///
    /// # Errors
    /// The errors of [`Self::signal`].
    pub async fn signal_named<A: Serialize>(&self, name: &str, arguments: A) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body {
            input: Payload,
            request_id: String,
        }
        let body = Body {
            input: payload::to_arguments(&arguments)?,
            request_id: fresh_id(),
        };
        // With the request id, a repeated request is one signal.
        self.command(&["signal", name])
            .json(&body)
            .repeat(Repeat::Freely)
            .send_raw()
            .await?;
        Ok(())
    }

    /// Sends a query and returns the answer. A query changes nothing, and works on a closed workflow as well.
    ///
    /// # Errors
    /// [`QueryError::Unknown`] if the workflow has no such query, [`QueryError::Rejected`] if its handler fails,
    /// [`QueryError::NoWorker`] and [`QueryError::TimedOut`] if no worker answers, and [`QueryError::Client`] for other errors.
    pub async fn query<A, Q>(&self, query: &Query<A, Q>, arguments: A) -> Result<Q, QueryError>
    where
        A: Serialize,
        Q: DeserializeOwned,
    {
        self.query_named(query.name(), arguments).await
    }

    /// Sends a query by name. `arguments` is one value, or a tuple of several arguments.
    ///
    /// # Errors
    /// The errors of [`Self::query`].
    pub async fn query_named<A, Q>(&self, name: &str, arguments: A) -> Result<Q, QueryError>
    where
        A: Serialize,
        Q: DeserializeOwned,
    {
        #[derive(Serialize)]
        struct Body {
            input: Payload,
        }
        #[derive(Deserialize)]
        struct Reply {
            result_envelope: Payload,
        }
        let body = Body {
            input: payload::to_arguments(&arguments)?,
        };
        let reply: Reply = self
            .command(&["query", name])
            .json(&body)
            .repeat(Repeat::Freely)
            .send()
            .await
            .map_err(QueryError::of)?;
        Ok(payload::from_payload(&reply.result_envelope)?)
    }

    /// Sends an update. Await it for the answer of its handler; [`UpdateCallBuilder`] has other ways to wait.
    pub fn update<A: Serialize, U, V>(
        &self,
        update: &Update<A, U, V>,
        arguments: A,
    ) -> UpdateCallBuilder<U> {
        self.update_named(update.name(), arguments)
    }

    /// Sends an update by name. `arguments` is one value, or a tuple of several arguments.
    pub fn update_named<A: Serialize, U>(&self, name: &str, arguments: A) -> UpdateCallBuilder<U> {
        UpdateCallBuilder::new(self.erased(), name, payload::to_arguments(&arguments))
    }

    /// Requests the cancellation of the workflow. Its code can clean up for at most `cleanup`, rounded up to whole seconds (10
    /// minutes by default, at most one hour). After that the server ends the workflow.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow does not exist, is closed, or has no worker that supports cancellation requests, or if
    /// the server cannot be reached; [`Error::Incompatible`] if the server does not support cancellation requests.
    pub async fn request_cancellation(
        &self,
        reason: Option<&str>,
        cleanup: Option<Duration>,
    ) -> Result<CancellationRequest, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            cleanup_timeout_seconds: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Reply {
            cancellation_request: CancellationRequest,
        }
        if !self
            .client
            .info()
            .offers_workers("cooperative_cancellation")
        {
            return Err(Error::Incompatible(
                "the server does not support cancellation requests; use `cancel`".to_owned(),
            ));
        }
        let body = Body {
            reason,
            cleanup_timeout_seconds: cleanup.map(timeout_seconds),
        };
        // A repeated request returns the first request.
        let reply: Reply = self
            .command(&["request-cancellation"])
            .json(&body)
            .repeat(Repeat::Freely)
            .send()
            .await?;
        Ok(reply.cancellation_request)
    }

    /// Cancels the workflow at once. Its code does not run again.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow does not exist or is closed, or if the server cannot be reached.
    pub async fn cancel(&self, reason: Option<&str>) -> Result<(), Error> {
        self.close("cancel", reason).await
    }

    /// Terminates the workflow at once. Its code does not run again.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow does not exist or is closed, or if the server cannot be reached.
    pub async fn terminate(&self, reason: Option<&str>) -> Result<(), Error> {
        self.close("terminate", reason).await
    }

    async fn close(&self, how: &str, reason: Option<&str>) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'a str>,
            request_id: String,
        }
        let body = Body {
            reason,
            request_id: fresh_id(),
        };
        self.command(&[how])
            .json(&body)
            .repeat(Repeat::Freely)
            .send_raw()
            .await?;
        Ok(())
    }

    /// Returns the description of the run: the current one, or the one of [`Self::of_run`].
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow or run does not exist, or if the server cannot be reached.
    pub async fn describe(&self) -> Result<WorkflowDescription, Error> {
        Ok(self.read(&[]).send().await?)
    }

    /// Returns all runs of the workflow, oldest first.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow does not exist, or if the server cannot be reached.
    pub async fn runs(&self) -> Result<Vec<WorkflowRun>, Error> {
        #[derive(Deserialize)]
        struct Reply {
            runs: Vec<WorkflowRun>,
        }
        let segments = ["workflows", self.id(), "runs"];
        let reply: Reply = self
            .client
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?;
        Ok(reply.runs)
    }

    /// Returns the history of the run: the current one, or the one of [`Self::of_run`]. Sends no request.
    pub fn history(&self) -> History {
        History::new(self.erased())
    }

    /// Exports the run as a bundle that tools can verify and replay.
    ///
    /// # Errors
    /// [`Error::Request`] if the workflow or run does not exist, or if the server cannot be reached.
    pub async fn export(&self) -> Result<Value, Error> {
        let run_id = self.known_run_id().await?;
        let segments = ["workflows", self.id(), "runs", &run_id, "history", "export"];
        Ok(self
            .client
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?)
    }

    /// Returns the run id of the handle, or fetches that of the current run.
    pub(super) async fn known_run_id(&self) -> Result<Arc<str>, Error> {
        match &self.run_id {
            Some(run_id) => Ok(Arc::clone(run_id)),
            None => Ok(self.describe().await?.run_id.into()),
        }
    }

    /// Returns the handle without its result type.
    pub(super) fn erased(&self) -> WorkflowHandle {
        WorkflowHandle {
            client: self.client.clone(),
            workflow_id: Arc::clone(&self.workflow_id),
            first_run_id: self.first_run_id.clone(),
            run_id: self.run_id.clone(),
            output: PhantomData,
        }
    }

    /// Returns a request that changes the workflow.
    pub(super) fn command(&self, rest: &[&str]) -> Call<'_> {
        self.client
            .connection()
            .post(Plane::Control, &self.segments(rest))
    }

    fn read(&self, rest: &[&str]) -> Call<'_> {
        self.client
            .connection()
            .get(Plane::Control, &self.segments(rest))
    }

    fn segments<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut segments = vec!["workflows", self.id()];
        if let Some(run_id) = &self.run_id {
            segments.extend(["runs", run_id]);
        }
        segments.extend(rest);
        segments
    }
}

impl<R: DeserializeOwned> WorkflowHandle<R> {
    /// Waits until the workflow closes and returns its result. If the workflow continues as new, waits for its last run. If the
    /// server cannot be reached, the request is repeated as the [`RequestRetry`](crate::transport::RequestRetry) of the client
    /// allows.
    ///
    /// # Errors
    /// [`ResultError::Failed`], [`ResultError::TimedOut`], [`ResultError::Cancelled`] or [`ResultError::Terminated`] if the
    /// workflow ended that way; [`ResultError::Client`] if the workflow does not exist, the server cannot be reached, or the
    /// result is not an `R`.
    pub async fn result(&self) -> Result<R, ResultError> {
        let output = result::wait(&self.erased()).await?;
        Ok(payload::from_payload(&output)?)
    }
}

impl<R> Clone for WorkflowHandle<R> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            workflow_id: Arc::clone(&self.workflow_id),
            first_run_id: self.first_run_id.clone(),
            run_id: self.run_id.clone(),
            output: PhantomData,
        }
    }
}

impl<R> fmt::Debug for WorkflowHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowHandle")
            .field("workflow_id", &self.workflow_id)
            .field("run_id", &self.run_id())
            .finish_non_exhaustive()
    }
}

/// A cancellation request.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct CancellationRequest {
    /// The id of the request. A repeated request has the same id.
    pub request_id: String,
    /// The time of the request.
    pub requested_at: Timestamp,
    /// The time when the server ends the workflow.
    pub cleanup_deadline_at: Timestamp,
}
