//! Event handlers, messages of callers, and records of what the handlers did.

use longhaul_host::api::{ExecutionOutput, ExecutionReport};
use longhaul_host::{Existing, HandlerStats, RecordPage, WaitingTask};
use longhaul_protocol::conductor::{EventExecution, EventHandler, Object, ResultStatus};
use serde_json::{Value, json};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use crate::gate::Refusal;

pub(super) async fn create(call: Call) -> Result<Answer, Refusal> {
    write(&call, Existing::Refuse).await
}

pub(super) async fn update(call: Call) -> Result<Answer, Refusal> {
    write(&call, Existing::Replace).await
}

async fn write(call: &Call, existing: Existing) -> Result<Answer, Refusal> {
    let handlers: Vec<EventHandler> = call.one_or_many()?;
    let put = call
        .host()
        .events()
        .put_handlers(&call.namespace, handlers, existing);
    put.await.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn list(call: Call) -> Result<Answer, Refusal> {
    let handlers = call.host().events().handlers(&call.namespace).await;
    Ok(Answer::json(&handlers.map_err(refused)?))
}

pub(super) async fn list_of_event(call: Call) -> Result<Answer, Refusal> {
    let active_only = call.flag("activeOnly")?.unwrap_or(true);
    let handlers = call.host().events().handlers(&call.namespace).await;
    let mut handlers = handlers.map_err(refused)?;
    let event = call.segment("a");
    handlers.retain(|handler| handler.event == event && (handler.active || !active_only));
    Ok(Answer::json(&handlers))
}

pub(super) async fn get(call: Call) -> Result<Answer, Refusal> {
    let events = call.host().events();
    let handler = events.handler(&call.namespace, call.segment("a")).await;
    Ok(Answer::json(&handler.map_err(refused)?))
}

pub(super) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let events = call.host().events();
    let deleted = events.delete_handler(&call.namespace, call.segment("a"));
    deleted.await.map_err(refused)?;
    Ok(Answer::Void)
}

/// Publishes the message in the body: its member `event`, the optional `messageId`, and the member `payload` or else the whole body.
pub(super) async fn publish(call: Call) -> Result<Answer, Refusal> {
    let body = call.object()?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let Some(event) = text("event").filter(|event| !event.is_empty()) else {
        return Err(bad_request(
            "event: the body needs the name of the event".to_owned(),
        ));
    };
    let payload = match body.get("payload") {
        Some(Value::Object(payload)) => payload.clone(),
        // One of the clients sends texts only.
        Some(Value::String(text)) => read_payload(text)?,
        None | Some(Value::Null) => body.clone(),
        Some(_) => {
            return Err(bad_request("payload: must be a JSON object".to_owned()));
        }
    };
    let message_id = text("messageId").filter(|id| !id.is_empty());
    let published = call
        .host()
        .events()
        .publish(&call.namespace, event, message_id, payload);
    published.await.map_err(refused)?;
    Ok(Answer::Void)
}

fn read_payload(text: &str) -> Result<Object, Refusal> {
    match longhaul_protocol::json::from_caller(text.as_bytes()) {
        Ok(Value::Object(payload)) => Ok(payload),
        Ok(_) | Err(_) => Err(bad_request("payload: must be a JSON object".to_owned())),
    }
}

fn page(call: &Call, start: &str) -> Result<RecordPage, Refusal> {
    let number = |name: &str| -> Result<Option<usize>, Refusal> {
        let given = call.number(name)?;
        given
            .map(|number| {
                usize::try_from(number).map_err(|_| bad_request(format!("{name} is negative")))
            })
            .transpose()
    };
    Ok(RecordPage::new(
        number(start)?.unwrap_or(0),
        number("size")?,
    ))
}

pub(super) async fn executions(call: Call) -> Result<Answer, Refusal> {
    let page = page(&call, "from")?;
    let events = call.host().events();
    let records = events.executions_of(&call.namespace, call.segment("a"), &page);
    Ok(Answer::json(&records.await.map_err(refused)?))
}

pub(super) async fn messages(call: Call) -> Result<Answer, Refusal> {
    let page = page(&call, "from")?;
    let events = call.host().events();
    let messages = events.messages_of(&call.namespace, call.segment("a"), &page);
    let messages = messages.await.map_err(refused)?;
    let shown: Vec<Value> = messages
        .iter()
        .filter_map(|records| message(records))
        .collect();
    Ok(Answer::json(&shown))
}

/// Returns a message with the records of what its handlers did.
fn message(records: &[EventExecution]) -> Option<Value> {
    let first = records.first()?;
    Some(json!({
        "id": first.message_id,
        "createdAt": first.created,
        "eventType": "MESSAGE",
        "eventTarget": first.event,
        "fullPayload": first.payload,
        "eventExecutions": records,
    }))
}

pub(super) async fn active_handlers(call: Call) -> Result<Answer, Refusal> {
    stats(&call, |handler| handler.is_active).await
}

pub(super) async fn handlers_with_stats(call: Call) -> Result<Answer, Refusal> {
    stats(&call, |_| true).await
}

async fn stats(call: &Call, is_shown: fn(&HandlerStats) -> bool) -> Result<Answer, Refusal> {
    let page = page(call, "from")?;
    let events = call.host().events();
    let mut handlers = events
        .handler_stats(&call.namespace)
        .await
        .map_err(refused)?;
    handlers.retain(is_shown);
    let total = handlers.len();
    let results: Vec<Value> = handlers
        .iter()
        .skip(page.start)
        .take(page.size)
        .map(|handler| {
            json!({
                "name": handler.name, "event": handler.event, "active": handler.is_active,
                "numberOfActions": handler.actions, "numberOfMessages": handler.messages,
            })
        })
        .collect();
    Ok(Answer::json(
        &json!({"totalHits": total, "results": results}),
    ))
}

/// The queues of other providers. None is connected.
pub(super) async fn no_queues(_call: Call) -> Result<Answer, Refusal> {
    Ok(Answer::json(&Object::new()))
}

pub(super) async fn update_by_reference(call: Call) -> Result<Answer, Refusal> {
    update_waiting(&call, WaitingTask::Reference(call.segment("b"))).await
}

pub(super) async fn update_by_id(call: Call) -> Result<Answer, Refusal> {
    update_waiting(&call, WaitingTask::Id(call.segment("b"))).await
}

async fn update_waiting(call: &Call, task: WaitingTask<'_>) -> Result<Answer, Refusal> {
    let status = call.segment("c").parse::<ResultStatus>();
    let status = status.map_err(|error| bad_request(format!("status: {error}")))?;
    let report = ExecutionReport::Status {
        status,
        output: ExecutionOutput::Merge(call.object()?),
        reason: None,
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    };
    let tasks = call.host().execution_tasks();
    let updated = tasks.update_waiting(&call.namespace, call.segment("a"), task, report);
    updated.await.map_err(refused)?;
    Ok(Answer::Void)
}
