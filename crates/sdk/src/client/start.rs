//! Starting workflows (control-plane.md §8.1).

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

/// What happens when the id is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// The start is refused with [`StartError::AlreadyStarted`].
    #[default]
    Fail,
    /// The running workflow is given instead; one that is over is refused.
    UseExisting,
}

/// A start in the making. Await it to send it.
#[derive(Debug)]
#[must_use = "a start does nothing until it is awaited"]
pub struct StartWorkflow<'a, R> {
    client: &'a Client,
    call: WorkflowCall<R>,
    workflow_id: Option<String>,
    body: Body,
    /// An option that cannot be sent.
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

impl<'a, R> StartWorkflow<'a, R> {
    pub(super) fn new(client: &'a Client, call: WorkflowCall<R>) -> Self {
        Self {
            client,
            call,
            workflow_id: None,
            body: Body::default(),
            wrong: None,
        }
    }

    /// The workflow's id: 1 to 128 of letters, digits, `.`, `_`, `:` and `-`. An id is used once; without one the
    /// workflow gets an id that nobody else has.
    pub fn id(mut self, workflow_id: impl Into<String>) -> Self {
        self.workflow_id = Some(workflow_id.into());
        self
    }

    /// The queue whose workers run it; `default` unless said.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.body.task_queue = Some(task_queue.into());
        self
    }

    /// A name from the business, which lists find by free text.
    pub fn business_key(mut self, key: impl Into<String>) -> Self {
        self.body.business_key = Some(key.into());
        self
    }

    /// A note that is shown with the workflow: anything that has a JSON form.
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

    /// Something the workflow can be found by.
    pub fn search_attribute(
        mut self,
        name: impl Into<String>,
        value: impl Into<AttributeValue>,
    ) -> Self {
        let value = serde_json::to_value(value.into()).unwrap_or_default();
        self.body.search_attributes.insert(name.into(), value);
        self
    }

    /// What happens when the id is taken.
    pub fn on_duplicate(mut self, policy: DuplicatePolicy) -> Self {
        self.body.duplicate_policy = policy;
        self
    }

    /// How long the workflow may take over all its runs; whole seconds, rounded up.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.body.execution_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// How long each run may take; whole seconds, rounded up.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.body.run_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// From 0, the most urgent, to 9; 5 unless said.
    pub fn priority(mut self, priority: u8) -> Self {
        self.body.priority = Some(priority);
        self
    }

    /// Whom the workflow counts for where workers are shared fairly, and with what weight (1 to 1000).
    pub fn fairness(mut self, key: impl Into<String>, weight: u32) -> Self {
        self.body.fairness_key = Some(key.into());
        self.body.fairness_weight = Some(weight);
        self
    }

    /// Only workers of this build run it.
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
        // The id is what makes a start safe to repeat, where a taken one can only be our own or is welcome.
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
                // The first try was done, though its answer was lost.
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

impl<'a, R: Send + 'static> IntoFuture for StartWorkflow<'a, R> {
    type Output = Result<WorkflowHandle<R>, StartError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
