//! The actions of event handlers. Each is one commit on one run, which also has the record of the action.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::command::{MergeVariables, Recorded, TerminateExecution, UpdateExecutionTask};
use longhaul_engine::conductor::event::{EventMessage, expand_inline_json, resolve, with_message};
use longhaul_engine::conductor::execution::command::start::NewExecution;
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::end::AfterTermination;
use longhaul_engine::conductor::limits::{
    CORRELATION_ID_CHARS_MAX, PRIORITY_MAX, SUB_WORKFLOW_DEPTH_MAX,
};
use longhaul_protocol::conductor::{EventAction, EventActionType, Object, ResultStatus};
use longhaul_protocol::id::{Namespace, RunId};
use serde_json::{Value, json};

use super::Touched;
use super::records::{Attempt, Done};
use crate::error::{Error, Result};
use crate::views::Events;

/// How often a start is tried again after another commit came first.
const START_TRIES: usize = 8;

/// What an action failed with, or the error after which the message is delivered again.
enum Failed {
    Action(String),
    Delivery(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match &error {
            // These will be the same each time.
            Error::Conductor(refusal) => Self::Action(refusal.to_string()),
            Error::Rejected(Rejection::SchemaNotCompared { .. } | Rejection::LimitExceeded(_)) => {
                Self::Delivery(error)
            }
            Error::Rejected(rejection) => Self::Action(rejection.to_string()),
            _ => Self::Delivery(error),
        }
    }
}

impl From<&str> for Failed {
    fn from(reason: &str) -> Self {
        Self::Action(reason.to_owned())
    }
}

impl Events<'_> {
    /// Makes an action. Returns what to record, or `None` if the commit of the action recorded it.
    pub(super) async fn act(
        self,
        namespace: &Namespace,
        action: &EventAction,
        message: &EventMessage,
        attempt: &Attempt,
        touched: &mut Touched,
    ) -> Result<Option<Done>> {
        let acted = self
            .try_act(namespace, action, message, attempt, touched)
            .await;
        match acted {
            Ok(None) => {
                self.count_record(attempt);
                Ok(None)
            }
            Ok(done) => Ok(done),
            Err(Failed::Action(reason)) => Ok(Some(Done::failed(&reason))),
            Err(Failed::Delivery(error)) => Err(error),
        }
    }

    async fn try_act(
        self,
        namespace: &Namespace,
        action: &EventAction,
        message: &EventMessage,
        attempt: &Attempt,
        touched: &mut Touched,
    ) -> std::result::Result<Option<Done>, Failed> {
        let (Some(action_type), Some(parameters)) = (action.action, action.parameters()) else {
            return Err("the action has no parameters".into());
        };
        let template = Value::Object(parameters.clone());
        let resolved = if action.expand_inline_json {
            resolve(&template, &expand_inline_json(&message.payload))
        } else {
            resolve(&template, &message.payload)
        };
        let parameters = match resolved {
            Ok(Value::Object(parameters)) => Parameters(parameters),
            Ok(_) => return Err("the action has no parameters".into()),
            Err(limit) => return Err(Failed::Action(limit.to_string())),
        };
        let (events, place) = (self, (namespace, message, attempt));
        match action_type {
            EventActionType::StartWorkflow => events.start(place, &parameters, touched).await,
            EventActionType::CompleteTask => {
                let status = ResultStatus::Completed;
                events.end_task(place, &parameters, status, touched).await
            }
            EventActionType::FailTask => {
                let status = ResultStatus::Failed;
                events.end_task(place, &parameters, status, touched).await
            }
            EventActionType::TerminateWorkflow => {
                let run_id = events.run_of(namespace, &parameters).await?;
                let command = TerminateExecution {
                    reason: parameters.text("terminationReason"),
                    then: AfterTermination::Nothing,
                };
                let output = json!({"workflowId": run_id});
                events
                    .decide(&run_id, command, attempt, output, touched)
                    .await
            }
            EventActionType::UpdateWorkflowVariables => {
                let run_id = events.run_of(namespace, &parameters).await?;
                let command = MergeVariables {
                    variables: parameters.object("variables"),
                    append_lists: parameters.0.get("appendArray") == Some(&json!(true)),
                };
                let output = json!({"workflowId": run_id});
                events
                    .decide(&run_id, command, attempt, output, touched)
                    .await
            }
        }
    }

    /// Decides a command on a run, with the record of the action in the same commit.
    async fn decide<C: longhaul_engine::Command + Clone>(
        self,
        run_id: &RunId,
        command: C,
        attempt: &Attempt,
        output: Value,
        touched: &mut Touched,
    ) -> std::result::Result<Option<Done>, Failed> {
        let record = attempt.record(Done::completed(output.clone()), self.host.now())?;
        let recorded = Recorded { command, record };
        let executor = &self.host.inner.executor;
        let decided = match executor.execute_and_list(run_id, &recorded).await {
            // The record may exist: another delivery of the message came first.
            Err(Error::Contended) if self.is_done(attempt).await? => return Ok(None),
            decided => decided?,
        };
        let Some((reply, remainder)) = decided else {
            return Err(Failed::Action(format!(
                "No such workflow found by id: {run_id}"
            )));
        };
        if !remainder.is_empty() {
            touched.push((run_id.clone(), remainder));
        }
        // A command that changes nothing, such as a second termination, has no commit for its record.
        Ok((!reply.is_recorded).then(|| Done::completed(output)))
    }

    async fn run_of(
        self,
        namespace: &Namespace,
        parameters: &Parameters,
    ) -> std::result::Result<RunId, Failed> {
        let id = parameters
            .text("workflowId")
            .ok_or("the message has no workflowId for the action")?;
        Ok(self.host.executions().find(namespace, &id).await?)
    }

    async fn end_task(
        self,
        (namespace, message, attempt): (&Namespace, &EventMessage, &Attempt),
        parameters: &Parameters,
        status: ResultStatus,
        touched: &mut Touched,
    ) -> std::result::Result<Option<Done>, Failed> {
        let (run_id, target) = match parameters.text("taskId") {
            Some(task_id) => {
                let row = self.host.execution_tasks().row(namespace, &task_id).await?;
                let target = TaskTarget::Id {
                    task_id: row.task_id,
                    seq: row.sequence.get(),
                };
                (row.run_id, target)
            }
            None => {
                let run_id = self.run_of(namespace, parameters).await?;
                let reference = parameters
                    .text("taskRefName")
                    .ok_or("the message has no taskRefName for the action")?;
                (run_id, TaskTarget::Reference(reference))
            }
        };
        let report = Report::Status {
            status,
            output: Output::Replace(with_message(parameters.object("output"), message)),
            reason: parameters.text("reasonForIncompletion"),
            worker_id: None,
            callback_after_seconds: 0,
            logs: Vec::new(),
        };
        let command = UpdateExecutionTask {
            target,
            report,
            takes_next: false,
        };
        let output = json!({"workflowId": run_id});
        let done = self
            .decide(&run_id, command, attempt, output, touched)
            .await?;
        match done {
            Some(_) => Err("the task has ended already".into()),
            None => Ok(None),
        }
    }

    async fn start(
        self,
        (namespace, message, attempt): (&Namespace, &EventMessage, &Attempt),
        parameters: &Parameters,
        touched: &mut Touched,
    ) -> std::result::Result<Option<Done>, Failed> {
        let name = parameters
            .text("name")
            .ok_or("the message has no name for the workflow to start")?;
        let version = parameters.number("version").filter(|version| *version > 0);
        let version = version.and_then(|version| i32::try_from(version).ok());
        let finder = &self.host.inner.executor.finder;
        let found = finder
            .registered_snapshot(namespace, &name, version)
            .await?;
        let snapshot = match found {
            Some(Ok(snapshot)) => snapshot,
            Some(Err(reason)) => return Err(Failed::Action(reason)),
            None => {
                let shown =
                    version.map_or_else(|| "null".to_owned(), |version| version.to_string());
                return Err(Failed::Action(format!(
                    "No such workflow defined. name={name}, version={shown}"
                )));
            }
        };
        let depth = message.depth + 1;
        if depth > SUB_WORKFLOW_DEPTH_MAX {
            return Err(Failed::Action(format!(
                "more than {SUB_WORKFLOW_DEPTH_MAX} runs caused each other (limit: sub-workflow depth)"
            )));
        }
        let correlation_id = parameters.text("correlationId");
        if correlation_id
            .as_ref()
            .is_some_and(|id| id.chars().count() > CORRELATION_ID_CHARS_MAX)
        {
            return Err("the correlationId is too long".into());
        }
        let priority = parameters.number("priority").unwrap_or(0);
        let priority = priority.clamp(0, i64::from(PRIORITY_MAX));
        let domains = match parameters.object("taskToDomain") {
            domains if domains.is_empty() => message.payload.get("taskToDomain").cloned(),
            domains => Some(Value::Object(domains)),
        };
        let new = NewExecution {
            namespace: namespace.clone(),
            snapshot,
            input: with_message(parameters.object("input"), message),
            correlation_id,
            priority: u8::try_from(priority).unwrap_or(0),
            task_to_domain: Arc::new(texts(domains)),
            idempotency_key: None,
            key_claim: None,
            created_by: None,
            depth,
            parent: None,
        };
        for _ in 0..START_TRIES {
            let now = self.host.now();
            let record = |run_id: &RunId| {
                let done = Done::completed(json!({"workflowId": run_id}));
                attempt.record(done, now).ok()
            };
            match self.host.inner.executor.create_recorded(&new, record).await {
                Ok((run_id, remainder)) => {
                    if !remainder.is_empty() {
                        touched.push((run_id, remainder));
                    }
                    return Ok(None);
                }
                Err(Error::Contended) if self.is_done(attempt).await? => return Ok(None),
                Err(Error::Contended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Failed::Delivery(Error::Contended))
    }
}

/// The parameters of an action, resolved.
struct Parameters(Object);

impl Parameters {
    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Value::Number(number) => number.as_f64().map(|number| number as i64),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    fn object(&self, name: &str) -> Object {
        match self.0.get(name) {
            Some(Value::Object(object)) => object.clone(),
            _ => Object::new(),
        }
    }
}

fn texts(value: Option<Value>) -> BTreeMap<String, String> {
    let Some(Value::Object(members)) = value else {
        return BTreeMap::new();
    };
    let texts = members.into_iter();
    texts
        .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
        .collect()
}
