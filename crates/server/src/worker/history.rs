//! History on the worker plane: events as text, in pages, compressed on request.

use std::fmt::Write;

use longhaul_host::{HistoryPage, StoredEvent};
use longhaul_protocol::describe::{HISTORY_PAGE_SIZE_MAX, compress_history};
use serde_json::Value;

use super::Call;
use crate::views::page_token::page_token;

/// Reads `history_page_size`, or its alias `page_size`.
pub(super) fn page_size(call: &Call) -> usize {
    let body = &call.body;
    let default = call.app.options().history_page_size as usize;
    let field = if body.raw("history_page_size").is_none() && body.raw("page_size").is_some() {
        "page_size"
    } else {
        "history_page_size"
    };
    let Some(size) = body.integer(field) else {
        return default;
    };
    if size < 1 || size > i64::from(HISTORY_PAGE_SIZE_MAX) {
        body.refuse(field, &format!("must be from 1 to {HISTORY_PAGE_SIZE_MAX}"));
        return default;
    }
    usize::try_from(size).unwrap_or(1)
}

/// Returns an object with a page after its own fields. Events are passed on as text, without being parsed.
pub(super) fn with_page(own: &Value, page: &HistoryPage, accept_encoding: Option<&str>) -> String {
    let mut answer = own.to_string();
    // The brace that closes the object; it has fields.
    answer.pop();
    let _ = write!(answer, ",{}}}", page_fields(page, accept_encoding));
    answer
}

/// Returns the fields of one page as text for an object: events or their compressed form, and the paging fields.
pub(super) fn page_fields(page: &HistoryPage, accept_encoding: Option<&str>) -> String {
    let events = events_json(&page.events);
    let mut fields = match compress_history(events.as_bytes(), accept_encoding, page.events.len()) {
        Some((encoding, compressed)) => format!(
            r#""history_events":[],"history_events_compressed":"{compressed}","history_events_encoding":"{}""#,
            encoding.name()
        ),
        None => format!(r#""history_events":{events}"#),
    };
    let token = page
        .next_after
        .map(page_token)
        .map_or(Value::Null, Value::String);
    let _ = write!(
        fields,
        r#","next_history_page_token":{token},"total_history_events":{},"has_more":{},"next_after_sequence":{}"#,
        page.total,
        page.next_after.is_some(),
        page.next_after
            .map_or(Value::Null, |next| Value::from(next.get())),
    );
    fields
}

/// Returns events as a JSON array. Payloads are stored as the text that is sent; ids and times need no escaping.
pub(super) fn events_json(events: &[StoredEvent]) -> String {
    let mut json = String::with_capacity(
        events
            .iter()
            .map(|event| event.payload.len() + 220)
            .sum::<usize>()
            + 2,
    );
    json.push('[');
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        let _ = write!(
            json,
            r#"{{"id":"{}","sequence":{},"event_type":"{}","payload":{},"recorded_at":"{}""#,
            event.id, event.sequence, event.event_type, event.payload, event.recorded_at
        );
        if let Some(task_id) = &event.workflow_task_id {
            let _ = write!(json, r#","workflow_task_id":"{task_id}""#);
        }
        if let Some(command_id) = &event.workflow_command_id {
            let _ = write!(json, r#","workflow_command_id":"{command_id}""#);
        }
        json.push('}');
    }
    json.push(']');
    json
}
