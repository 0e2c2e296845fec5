//! Event handlers and the messages that they act on. A message is a letter in the outbox of the run that published it, and is delivered
//! until every action of every handler is done. What is done is a document, which is written in the commit of the action itself, so an
//! action is applied once whatever crashes.

mod actions;
pub(crate) mod handlers;
pub(crate) mod records;

use std::sync::Arc;

use longhaul_engine::conductor::event::{EventMessage, MESSAGE_BYTES_MAX};
use longhaul_engine::conductor::execution::lookup::Script;
use longhaul_engine::conductor::limits::NAME_CHARS_MAX;
use longhaul_engine::conductor::script_result::{Evaluator, is_true, value_param};
use longhaul_protocol::conductor::{EventExecutionStatus, EventHandler, Object};
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use serde_json::{Value, json};

use super::refusal::ConductorRefusal;
use crate::commit::execute::Remainder;
use crate::error::Result;
use crate::views::Events;
use records::Done;

/// What a message caused: runs that have something to do at once.
pub(crate) type Touched = Vec<(RunId, Remainder)>;

impl Events<'_> {
    /// Publishes a message of a caller, and returns its id when every handler has acted on it. A message with an id that was published
    /// before changes nothing.
    pub async fn publish(
        self,
        namespace: &Namespace,
        event: &str,
        message_id: Option<&str>,
        payload: Object,
    ) -> Result<String> {
        let too_long = |text: &str| text.chars().count() > NAME_CHARS_MAX;
        if event.is_empty() || too_long(event) || message_id.is_some_and(too_long) {
            return Err(ConductorRefusal::BadEvent(format!(
                "an event and the id of a message have 1 to {NAME_CHARS_MAX} characters"
            ))
            .into());
        }
        let payload = Value::Object(payload);
        let bytes = payload.to_string().len();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(ConductorRefusal::BadEvent(format!(
                "the message has {bytes} bytes, more than {MESSAGE_BYTES_MAX} (limit: event message)"
            ))
            .into());
        }
        let minted = || {
            let mut ids = longhaul_protocol::Ids::new(self.host.now(), rand::random());
            ids.mint_uuid::<TaskId>().to_string()
        };
        let message = EventMessage {
            event: event.to_owned(),
            message_id: message_id.map_or_else(minted, str::to_owned),
            payload: Arc::new(payload),
            depth: 0,
        };
        let touched = self.deliver(namespace, &message).await?;
        for (run_id, remainder) in touched {
            self.host.executions().settle(&run_id, remainder).await;
        }
        Ok(message.message_id)
    }

    /// Lets every handler of the event act on a message. An error means that some have not; the message is delivered again.
    pub(crate) async fn deliver(
        self,
        namespace: &Namespace,
        message: &EventMessage,
    ) -> Result<Touched> {
        let all = self.host.definitions().all(namespace).await?;
        let handlers: Vec<Arc<EventHandler>> = all
            .handlers
            .values()
            .filter(|handler| handler.active && handler.event == message.event)
            .map(Arc::clone)
            .collect();
        drop(all);
        let mut touched = Touched::new();
        for handler in handlers {
            self.handle(namespace, &handler, message, &mut touched)
                .await?;
        }
        Ok(touched)
    }

    async fn handle(
        self,
        namespace: &Namespace,
        handler: &EventHandler,
        message: &EventMessage,
        touched: &mut Touched,
    ) -> Result<()> {
        let mut is_wanted = None;
        for (index, action) in handler.actions.iter().enumerate() {
            let attempt = records::Attempt::new(namespace, handler, message, index);
            if self.is_done(&attempt).await? {
                continue;
            }
            if is_wanted.is_none() {
                is_wanted = Some(self.is_wanted(handler, message).await);
            }
            let done = match &is_wanted {
                Some(Ok(false)) => Done {
                    status: EventExecutionStatus::Skipped,
                    output: members(json!({"condition": handler.condition})),
                },
                Some(Err(error)) => Done::failed(error),
                Some(Ok(true)) | None => {
                    match self
                        .act(namespace, action, message, &attempt, touched)
                        .await?
                    {
                        // It was recorded in the commit of the action.
                        None => continue,
                        Some(done) => done,
                    }
                }
            };
            self.record(&attempt, done).await?;
        }
        Ok(())
    }

    /// Returns whether the condition of a handler accepts a message, or why it has no value.
    async fn is_wanted(
        self,
        handler: &EventHandler,
        message: &EventMessage,
    ) -> std::result::Result<bool, String> {
        let Some(condition) = handler
            .condition
            .as_deref()
            .filter(|condition| !condition.trim().is_empty())
        else {
            return Ok(true);
        };
        let empty = Object::new();
        let payload = message.payload.as_object().unwrap_or(&empty);
        match Evaluator::of(evaluator_name(handler)) {
            Evaluator::ValueParam => Ok(is_true(value_param(condition, payload))),
            Evaluator::JavaScript => {
                let script = Script {
                    source: condition.into(),
                    input: message.payload.to_string().into(),
                };
                let evaluator = &self.host.inner.executor.finder.evaluator;
                let result = evaluator.0.evaluate(&script).await;
                result
                    .map(|value| is_true(&value))
                    .map_err(|failure| failure.message)
            }
            Evaluator::Python => Err("No evaluator registered for type: python".to_owned()),
            Evaluator::Unknown(name) => Err(format!("No evaluator registered for type: {name}")),
        }
    }
}

/// Returns the name of the evaluator of a condition.
fn evaluator_name(handler: &EventHandler) -> &str {
    let name = handler.evaluator_type.as_deref();
    name.filter(|name| !name.is_empty()).unwrap_or("javascript")
}

fn members(value: Value) -> Object {
    match value {
        Value::Object(members) => members,
        _ => Object::new(),
    }
}
