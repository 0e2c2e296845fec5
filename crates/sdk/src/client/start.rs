//! Starts workflows.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use longhaul_protocol::Payload;
use longhaul_protocol::Reason;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AttributeValue, Client, StartError, WorkflowHandle, fresh_id};
use crate::connection::Repeat;
use crate::definition::WorkflowCall;
use crate::duration::timeout_seconds;
use crate::payload;
use crate::transport::{Plane, RequestError};

/// What happens if a workflow with the id exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DuplicatePolicy {
    /// The start fails with [`StartError::AlreadyStarted`].
    #[default]
    Fail,
    /// If the workflow is open, the start returns it. If it is closed, the start fails.
    UseExisting,
}

/// A start of a workflow, with options. Await it to send it. Timeouts are rounded up to whole seconds.
#[derive(Debug)]
#[must_use = "a start does nothing until it is awaited"]
pub struct WorkflowStartBuilder<'a, R> {
    client: &'a Client,
    call: WorkflowCall<R>,
    workflow_id: Option<String>,
    body: Body,
    /// The error of an option that cannot be sent.
    wrong: Option<StartError>,
}

#[derive(Debug, Default, Serialize)]
struct Body {
    workflow_type: String,
    workflow_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    business_key: Option<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    memo: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    search_attributes: Map<String, Value>,
    duplicate_policy: DuplicatePolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness_weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build_id: Option<String>,
}

#[derive(Deserialize)]
struct Started {
    run_id: String,
}

impl<'a, R> WorkflowStartBuilder<'a, R> {
    pub(super) fn new(client: &'a Client, call: WorkflowCall<R>) -> Self {
        Self {
            client,
            call,
            workflow_id: None,
            body: Body::default(),
            wrong: None,
        }
    }

    /// Sets the workflow id: 1 to 128 letters, digits, `.`, `_`, `:` or `-`. An id can be used once. By default a unique id is
    /// generated.
    pub fn id(mut self, workflow_id: impl Into<String>) -> Self {
        self.workflow_id = Some(workflow_id.into());
        self
    }

    /// Sets the task queue. The default is `default`; a worker of that queue must exist, or the workflow waits.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.body.task_queue = Some(task_queue.into());
        self
    }

    /// Sets the business key. Lists find it by free text.
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.body.business_key = Some(key.into());
        self
    }

    /// Adds an entry to the memo: any value that can be written as JSON.
    pub fn memo(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        match serde_json::to_value(value) {
            Ok(value) => {
                self.body.memo.insert(name, value);
            }
            Err(error) => {
                let error = payload::Error::new(format!("memo {name}: {error}"));
                self.wrong.get_or_insert_with(|| error.into());
            }
        }
        self
    }

    /// Adds a search attribute.
    pub fn search_attribute(
        mut self,
        name: impl Into<String>,
        value: impl Into<AttributeValue>,
    ) -> Self {
        let value = serde_json::to_value(value.into()).unwrap_or_default();
        self.body.search_attributes.insert(name.into(), value);
        self
    }

    /// Sets what happens if a workflow with the id exists. By default the start fails.
    pub fn on_duplicate(mut self, policy: DuplicatePolicy) -> Self {
        self.body.duplicate_policy = policy;
        self
    }

    /// Sets the timeout of all runs together.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.body.execution_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// Sets the timeout of each run.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.body.run_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// Sets the priority, from 0 (most urgent) to 9. The default is 5.
    pub fn priority(mut self, priority: u8) -> Self {
        self.body.priority = Some(priority);
        self
    }

    /// Sets the fairness key and its weight, from 1 to 1000. The server shares workers fairly between the keys.
    pub fn fairness(mut self, key: impl Into<String>, weight: u32) -> Self {
        self.body.fairness_key = Some(key.into());
        self.body.fairness_weight = Some(weight);
        self
    }

    /// Pins the workflow to a build: only workers of this build run it.
    pub fn build_id(mut self, build_id: impl Into<String>) -> Self {
        self.body.build_id = Some(build_id.into());
        self
    }

    async fn send(mut self) -> Result<WorkflowHandle<R>, StartError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        self.body.workflow_type = self.call.name().to_owned();
        self.body.input = Some(self.call.call.payload()?);
        let is_own_id = self.workflow_id.is_none();
        let workflow_id = self.workflow_id.unwrap_or_else(fresh_id);
        self.body.workflow_id.clone_from(&workflow_id);
        // A start can be repeated if an existing workflow with the id can only be our own, or is accepted.
        let repeat = if is_own_id || self.body.duplicate_policy == DuplicatePolicy::UseExisting {
            Repeat::Freely
        } else {
            Repeat::IfWithoutEffect
        };
        let answer = self
            .client
            .connection()
            .post(Plane::Control, &["workflows"])
            .json(&self.body)
            .repeat(repeat)
            .send::<Started>()
            .await;
        let run_id = match answer {
            Ok(started) => started.run_id,
            Err(error) => match already_started(&error, &workflow_id) {
                // The first attempt succeeded, and its response was lost.
                Some(StartError::AlreadyStarted {
                    run_id: Some(run_id),
                    ..
                }) if is_own_id => run_id,
                Some(already_started) => return Err(already_started),
                None => return Err(error.into()),
            },
        };
        let client = self.client.clone();
        Ok(WorkflowHandle::new(
            client,
            workflow_id.into(),
            Some(run_id.into()),
        ))
    }
}

fn already_started(error: &RequestError, workflow_id: &str) -> Option<StartError> {
    let refusal = error.refusal()?;
    refusal
        .is(Reason::InstanceAlreadyStarted)
        .then(|| StartError::AlreadyStarted {
            workflow_id: workflow_id.to_owned(),
            run_id: refusal.text("run_id").map(str::to_owned),
        })
}

impl<'a, R: Send + 'static> IntoFuture for WorkflowStartBuilder<'a, R> {
    type Output = Result<WorkflowHandle<R>, StartError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
