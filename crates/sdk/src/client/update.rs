//! Updates: messages with an answer.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::{Duration, Instant};

use longhaul_protocol::Payload;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{UpdateError, WorkflowHandle, fresh_id, pause_if_not_held};
use crate::connection::Repeat;
use crate::duration::timeout_seconds;
use crate::payload;

/// The longest wait of one request. A longer wait repeats the request.
const WAIT: Duration = Duration::from_secs(30);

/// An update, with options. Await it for the answer of the handler, or [`send`](Self::send) it to wait for the acceptance only.
#[derive(Debug)]
#[must_use = "an update is not sent until it is awaited"]
pub struct UpdateCallBuilder<U> {
    handle: WorkflowHandle,
    name: String,
    arguments: Result<Payload, payload::Error>,
    request_id: Option<String>,
    timeout: Option<Duration>,
    output: PhantomData<fn() -> U>,
}

/// An accepted update.
#[derive(Debug)]
pub struct UpdateHandle<U> {
    sent: Sent,
    update_id: String,
    output: PhantomData<fn() -> U>,
}

/// The content of an update, to repeat the request.
#[derive(Clone, Debug)]
struct Sent {
    handle: WorkflowHandle,
    name: String,
    input: Payload,
    request_id: String,
}

#[derive(Serialize)]
struct Body<'a> {
    input: &'a Payload,
    wait_for: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_timeout_seconds: Option<u64>,
    request_id: &'a str,
}

#[derive(Deserialize)]
struct Receipt {
    update_id: String,
    update_status: String,
    result_envelope: Option<Payload>,
    failure_message: Option<String>,
}

impl<U> UpdateCallBuilder<U> {
    pub(super) fn new(
        handle: WorkflowHandle,
        name: &str,
        arguments: Result<Payload, payload::Error>,
    ) -> Self {
        Self {
            handle,
            name: name.to_owned(),
            arguments,
            request_id: None,
            timeout: None,
            output: PhantomData,
        }
    }

    /// Sets the request id. Two requests with the same id are one update. By default every request is a new update.
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Sets the timeout of the wait for the answer. There is none by default. The update continues after the timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the update and waits until it is accepted. An accepted update is handled, unless the workflow closes first.
    ///
    /// # Errors
    /// [`UpdateError::Rejected`] if the workflow has no such update or its validator refuses it; [`UpdateError::Client`] if the
    /// workflow does not exist or is closed, no worker validates the update, the server cannot be reached, or the arguments
    /// cannot be encoded.
    pub async fn send(self) -> Result<UpdateHandle<U>, UpdateError> {
        let sent = self.prepare()?;
        let receipt = sent.send(None).await?;
        Ok(UpdateHandle {
            sent,
            update_id: receipt.update_id,
            output: PhantomData,
        })
    }

    fn prepare(self) -> Result<Sent, UpdateError> {
        Ok(Sent {
            handle: self.handle,
            name: self.name,
            input: self.arguments?,
            request_id: self.request_id.unwrap_or_else(fresh_id),
        })
    }
}

impl<U: DeserializeOwned> UpdateHandle<U> {
    /// Waits for the answer of the handler.
    ///
    /// # Errors
    /// [`UpdateError::Failed`] if the handler failed; [`UpdateError::Client`] if the workflow closed first, the server cannot be
    /// reached, or the answer is not a `U`.
    pub async fn result(&self) -> Result<U, UpdateError> {
        self.sent.wait(None).await
    }
}

impl<U> UpdateHandle<U> {
    /// Returns the id that the server gave the update.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.update_id
    }

    /// Returns the request id. An update with the same request id is the same update.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.sent.request_id
    }
}

impl Sent {
    async fn send(&self, wait: Option<Duration>) -> Result<Receipt, UpdateError> {
        let body = Body {
            input: &self.input,
            wait_for: if wait.is_some() {
                "completed"
            } else {
                "accepted"
            },
            wait_timeout_seconds: wait.map(timeout_seconds),
            request_id: &self.request_id,
        };
        self.handle
            .command(&["update", &self.name])
            .json(&body)
            .repeat(Repeat::Freely)
            .send()
            .await
            .map_err(UpdateError::of)
    }

    /// Repeats the request, with the same request id, until the update has completed.
    async fn wait<U: DeserializeOwned>(&self, timeout: Option<Duration>) -> Result<U, UpdateError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let asked_at = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(WAIT).min(WAIT);
            let receipt = self.send((!wait.is_zero()).then_some(wait)).await?;
            match receipt.update_status.as_str() {
                "completed" => {
                    let result = receipt.result_envelope.unwrap_or_else(Payload::null);
                    return Ok(payload::from_payload(&result)?);
                }
                "failed" => {
                    return Err(UpdateError::Failed {
                        update_id: receipt.update_id,
                        message: receipt.failure_message.unwrap_or_default(),
                    });
                }
                _ => {}
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(UpdateError::TimedOut {
                    update_id: receipt.update_id,
                });
            }
            pause_if_not_held(asked_at).await;
        }
    }
}

impl<U: DeserializeOwned + Send + 'static> IntoFuture for UpdateCallBuilder<U> {
    type Output = Result<U, UpdateError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let timeout = self.timeout;
            self.prepare()?.wait(timeout).await
        })
    }
}
