//! One workflow: its result, messages to it, and everything about it (control-plane.md §10).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use longhaul_protocol::{Payload, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Client, Error, History, QueryError, ResultError, UpdateRequest, WorkflowDescription,
    WorkflowRun, fresh_id, result,
};
use crate::connection::{Call, Repeat};
use crate::definition::{Query, Signal, Update};
use crate::duration::timeout_seconds;
use crate::payload;
use crate::transport::Plane;

/// One workflow, which returns an `R`. Cheap to clone, and holds nothing open.
///
/// It means the workflow, whichever run of it is the current one: messages go there, and [`Self::result`] waits for the
/// last of them. [`Self::of_run`] means one run only.
pub struct WorkflowHandle<R = Value> {
    client: Client,
    workflow_id: Arc<str>,
    /// The run that the start made, if this handle comes from one.
    first_run_id: Option<Arc<str>>,
    /// The only run that is meant.
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

    /// The workflow's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.workflow_id
    }

    /// The run that this handle was made with: the one that was started, or the one that [`Self::of_run`] named.
    #[must_use]
    pub fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref().or(self.first_run_id.as_deref())
    }

    /// The client behind it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Only this run of the workflow. Messages to a run that is not the current one are refused.
    #[must_use]
    pub fn of_run(&self, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            run_id: Some(run_id.into()),
            ..self.clone()
        }
    }

    /// A signal: the workflow gets it once, in the order in which signals were accepted.
    ///
    /// # Errors
    /// There is no such workflow, it is over, or it declares signals and not this one.
    pub async fn signal<T: Serialize>(&self, signal: &Signal<T>, value: T) -> Result<(), Error> {
        self.signal_named(signal.name(), &value).await
    }

    /// A signal by its name; a tuple is several arguments.
    ///
    /// # Errors
    /// As [`Self::signal`].
    pub async fn signal_named<A: Serialize>(&self, name: &str, arguments: &A) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body {
            input: Payload,
            request_id: String,
        }
        let body = Body {
            input: payload::to_arguments(arguments)?,
            request_id: fresh_id(),
        };
        // The request id makes it safe: the same signal twice is one signal.
        self.command(&["signal", name])
            .json(&body)
            .repeat(Repeat::Freely)
            .send_raw()
            .await?;
        Ok(())
    }

    /// Asks the workflow's code something. It changes nothing, and works after the workflow is over too.
    ///
    /// # Errors
    /// No worker answers, or the workflow refuses.
    pub async fn query<A, Q>(&self, query: &Query<A, Q>, arguments: A) -> Result<Q, QueryError>
    where
        A: Serialize,
        Q: DeserializeOwned,
    {
        self.query_named(query.name(), &arguments).await
    }

    /// A query by its name; a tuple is several arguments.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub async fn query_named<A, Q>(&self, name: &str, arguments: &A) -> Result<Q, QueryError>
    where
        A: Serialize,
        Q: DeserializeOwned,
    {
        #[derive(Serialize)]
        struct Body {
            input: Payload,
        }
        #[derive(Deserialize)]
        struct Answer {
            result_envelope: Payload,
        }
        let body = Body {
            input: payload::to_arguments(arguments)?,
        };
        let answer: Answer = self
            .command(&["query", name])
            .json(&body)
            .repeat(Repeat::Freely)
            .send()
            .await
            .map_err(QueryError::of)?;
        Ok(payload::from_payload(&answer.result_envelope)?)
    }

    /// An update: a message with an answer. Await it for the answer of its handler; see [`UpdateRequest`] for other ways
    /// to wait.
    pub fn update<A: Serialize, U>(&self, update: &Update<A, U>, arguments: A) -> UpdateRequest<U> {
        self.update_named(update.name(), &arguments)
    }

    /// An update by its name; a tuple is several arguments.
    pub fn update_named<A: Serialize, U>(&self, name: &str, arguments: &A) -> UpdateRequest<U> {
        UpdateRequest::new(self.erased(), name, payload::to_arguments(arguments))
    }

    /// Asks the workflow to end: its code is told, may clean up, and has `cleanup` time for it (10 minutes unless said;
    /// at most an hour). After that the server ends it.
    ///
    /// # Errors
    /// There is no such workflow, it is over, or none of its workers knows how to.
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
        struct Answer {
            cancellation_request: CancellationRequest,
        }
        if !self
            .client
            .info()
            .offers_workers("cooperative_cancellation")
        {
            return Err(Error::Incompatible(
                "the server cannot ask a workflow to end; it can only cancel it".to_owned(),
            ));
        }
        let body = Body {
            reason,
            cleanup_timeout_seconds: cleanup.map(timeout_seconds),
        };
        // Asking twice is asking once: the second answer names the first request.
        let answer: Answer = self
            .command(&["request-cancellation"])
            .json(&body)
            .repeat(Repeat::Freely)
            .send()
            .await?;
        Ok(answer.cancellation_request)
    }

    /// Ends the workflow as cancelled, at once: its code is not asked.
    ///
    /// # Errors
    /// There is no such workflow, or it is over.
    pub async fn cancel(&self, reason: Option<&str>) -> Result<(), Error> {
        self.close("cancel", reason).await
    }

    /// Ends the workflow as terminated, at once: its code is not asked.
    ///
    /// # Errors
    /// There is no such workflow, or it is over.
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

    /// Everything about the current run, or the one that is meant.
    ///
    /// # Errors
    /// There is no such workflow or run.
    pub async fn describe(&self) -> Result<WorkflowDescription, Error> {
        Ok(self.read(&[]).send().await?)
    }

    /// All runs of the workflow, oldest first.
    ///
    /// # Errors
    /// There is no such workflow.
    pub async fn runs(&self) -> Result<Vec<WorkflowRun>, Error> {
        #[derive(Deserialize)]
        struct Answer {
            runs: Vec<WorkflowRun>,
        }
        let segments = ["workflows", self.id(), "runs"];
        let answer: Answer = self
            .client
            .connection()
            .get(Plane::Control, &segments)
            .send()
            .await?;
        Ok(answer.runs)
    }

    /// The events of the current run, or the one that is meant.
    pub fn history(&self) -> History {
        History::new(self.erased())
    }

    /// The run as a bundle that tools can verify and replay elsewhere.
    ///
    /// # Errors
    /// There is no such workflow or run.
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

    /// The run that is meant; the current one when none was named.
    pub(super) async fn known_run_id(&self) -> Result<Arc<str>, Error> {
        match &self.run_id {
            Some(run_id) => Ok(Arc::clone(run_id)),
            None => Ok(self.describe().await?.run_id.into()),
        }
    }

    /// The same workflow, whatever it returns.
    pub(super) fn erased(&self) -> WorkflowHandle {
        WorkflowHandle {
            client: self.client.clone(),
            workflow_id: Arc::clone(&self.workflow_id),
            first_run_id: self.first_run_id.clone(),
            run_id: self.run_id.clone(),
            output: PhantomData,
        }
    }

    /// A command on the workflow, or on the run that is meant.
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
    /// Waits until the workflow is over and gives its result. A workflow that continues as new is followed. A server that
    /// goes away is waited for as long as the client's [`RetryPolicy`](crate::transport::RetryPolicy) says.
    ///
    /// # Errors
    /// The workflow failed, timed out, was cancelled or terminated; or its result cannot be had.
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

/// A workflow was asked to end.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct CancellationRequest {
    /// The request; asking again gives the same one.
    pub request_id: String,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When the server will end it, done or not.
    pub cleanup_deadline_at: Timestamp,
}
