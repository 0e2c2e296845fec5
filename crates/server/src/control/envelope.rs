//! The control-plane envelope: the version header on every response, and the `control_plane` block on workflow operations, successes
//! and refusals alike. The published command-line client refuses a `/workflows` response without them.

use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use longhaul_protocol::version::CONTROL_PLANE_VERSION;
use serde_json::{Map, Value, json};

use crate::gate::Refusal;
use crate::request::path::Path;

const HEADER: HeaderName = HeaderName::from_static("x-durable-workflow-control-plane-version");

/// A success before it is rendered.
pub(super) struct Reply {
    status: StatusCode,
    body: Map<String, Value>,
    /// A last member whose value is already JSON text: history is passed on as stored, without being parsed.
    text: Option<(&'static str, String)>,
    /// A whole body that is produced while it is sent.
    stream: Option<HttpBody>,
}

impl Reply {
    /// `body` is a JSON object.
    pub(super) fn new(status: StatusCode, body: Value) -> Self {
        let Value::Object(body) = body else {
            unreachable!("every answer is an object")
        };
        Self {
            status,
            body,
            text: None,
            stream: None,
        }
    }

    pub(super) fn ok(body: Value) -> Self {
        Self::new(StatusCode::OK, body)
    }

    /// A whole object as JSON text that is produced while it is sent.
    pub(super) fn stream(json: HttpBody) -> Self {
        Self {
            status: StatusCode::OK,
            body: Map::new(),
            text: None,
            stream: Some(json),
        }
    }

    /// Adds a member from JSON text.
    pub(super) fn with_text(mut self, name: &'static str, json: String) -> Self {
        self.text = Some((name, json));
        self
    }
}

/// A workflow operation and the fields of its block.
pub(super) struct Operation {
    pub(super) name: &'static str,
    /// Fields of the block that contain a non-empty string.
    pub(super) required_fields: &'static [&'static str],
    /// Fields that are present in the block of a success.
    pub(super) success_fields: &'static [&'static str],
    /// The field with the name of the signal, query or update, if the operation has one.
    operation_name_field: Option<&'static str>,
}

const WORKFLOW: &[&str] = &["workflow_id"];

pub(super) const LIST: Operation = Operation {
    name: "list",
    required_fields: &[],
    success_fields: &[],
    operation_name_field: None,
};
pub(super) const START: Operation = Operation {
    name: "start",
    required_fields: &[],
    success_fields: &["workflow_id", "outcome"],
    operation_name_field: None,
};
pub(super) const DESCRIBE: Operation = Operation {
    name: "describe",
    required_fields: WORKFLOW,
    success_fields: &[],
    operation_name_field: None,
};
pub(super) const LIST_RUNS: Operation = Operation {
    name: "list_runs",
    required_fields: WORKFLOW,
    success_fields: &[],
    operation_name_field: None,
};
pub(super) const DESCRIBE_RUN: Operation = Operation {
    name: "describe_run",
    required_fields: WORKFLOW,
    success_fields: &["run_id"],
    operation_name_field: None,
};
pub(super) const HISTORY: Operation = Operation {
    name: "history",
    required_fields: &["workflow_id", "run_id"],
    success_fields: &["next_page_token"],
    operation_name_field: None,
};
pub(super) const SIGNAL: Operation = Operation {
    name: "signal",
    required_fields: &["workflow_id", "operation_name", "operation_name_field"],
    success_fields: &["outcome"],
    operation_name_field: Some("signal_name"),
};
pub(super) const QUERY: Operation = Operation {
    name: "query",
    required_fields: &["workflow_id", "operation_name", "operation_name_field"],
    success_fields: &["result", "result_envelope"],
    operation_name_field: Some("query_name"),
};
pub(super) const UPDATE: Operation = Operation {
    name: "update",
    required_fields: &["workflow_id", "operation_name", "operation_name_field"],
    success_fields: &["outcome"],
    operation_name_field: Some("update_name"),
};
pub(super) const CANCEL: Operation = Operation {
    name: "cancel",
    required_fields: WORKFLOW,
    success_fields: &["outcome"],
    operation_name_field: None,
};
pub(super) const TERMINATE: Operation = Operation {
    name: "terminate",
    required_fields: WORKFLOW,
    success_fields: &["outcome"],
    operation_name_field: None,
};

pub(super) const DEBUG: Operation = Operation {
    name: "debug_workflow",
    required_fields: WORKFLOW,
    success_fields: &["run_id", "diagnostic_status"],
    operation_name_field: None,
};
pub(super) const REPAIR: Operation = Operation {
    name: "repair",
    required_fields: WORKFLOW,
    success_fields: &["outcome"],
    operation_name_field: None,
};
pub(super) const ARCHIVE: Operation = Operation {
    name: "archive",
    required_fields: WORKFLOW,
    success_fields: &["outcome"],
    operation_name_field: None,
};

/// All operations, for discovery.
pub(super) const OPERATIONS: [&Operation; 14] = [
    &LIST,
    &START,
    &DESCRIBE,
    &LIST_RUNS,
    &DESCRIBE_RUN,
    &HISTORY,
    &SIGNAL,
    &QUERY,
    &UPDATE,
    &CANCEL,
    &TERMINATE,
    &DEBUG,
    &REPAIR,
    &ARCHIVE,
];

/// The block's schema.
pub(super) const RESPONSE_SCHEMA: &str = "durable-workflow.v2.control-plane-response";

/// Fields that a block repeats from its body.
pub(super) const PROJECTED_FIELDS: &[&str] = &[
    "run_id",
    "workflow_type",
    "namespace",
    "business_key",
    "status",
    "status_bucket",
    "run_status",
    "is_terminal",
    "task_queue",
    "run_number",
    "run_count",
    "workflow_count",
    "is_current_run",
    "compatibility",
    "started_at",
    "closed_at",
    "last_progress_at",
    "wait_kind",
    "wait_reason",
    "next_page_token",
    "command_id",
    "command_status",
    "command_source",
    "target_scope",
    "query_name",
    "outcome",
    "reason",
    "rejection_reason",
    "rejection_category",
    "validation_errors",
    "result",
    "result_envelope",
    "update_id",
    "update_status",
    "principal",
    "wait_for",
    "wait_timed_out",
    "wait_timeout_seconds",
    "blocked_reason",
    "message",
    "remediation",
    "execution_owner",
    "identity",
    "command_contract_source",
    "command_contract_backfill_needed",
    "command_contract_backfill_available",
    "declared_signals",
    "signal_admission",
    "diagnostic_status",
    "retryable",
    "error_id",
    "exception",
];

/// Returns the fields that every block's contract has.
pub(super) fn contract() -> Map<String, Value> {
    let contract = json!({
        "schema": "durable-workflow.v2.control-plane-response.contract",
        "version": 1,
        "legacy_field_policy": "reject_non_canonical",
        "legacy_fields": {"query": "query_name", "signal": "signal_name", "update": "update_name", "wait_policy": "wait_for"},
    });
    let Value::Object(contract) = contract else {
        unreachable!("written as an object")
    };
    contract
}

/// Renders what a handler returned.
pub(super) fn render(
    operation: Option<&Operation>,
    path: &Path,
    result: Result<Reply, Refusal>,
) -> Response {
    let reply = result.unwrap_or_else(refused);
    let Reply {
        status,
        mut body,
        text,
        stream,
    } = reply;
    if let Some(operation) = operation {
        let block = block(operation, path, status, &body);
        body.insert("control_plane".to_owned(), block);
    }
    let retry_after = body.get("retry_after_seconds").and_then(Value::as_u64);
    let mut json = Value::Object(body).to_string();
    if let Some((name, value)) = text {
        debug_assert!(json.len() > 2, "the member follows others");
        json.pop();
        json.push_str(&format!(",\"{name}\":{value}}}"));
    }
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HEADER, HeaderValue::from_static(CONTROL_PLANE_VERSION)),
    ];
    let json = stream.unwrap_or_else(|| HttpBody::from(json));
    let mut response = (status, headers, json).into_response();
    if let (true, Some(seconds)) = (
        status.is_client_error() || status.is_server_error(),
        retry_after,
    ) {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn refused(refusal: Refusal) -> Reply {
    let mut body = refusal.extra;
    body.insert("message".to_owned(), json!(refusal.message));
    // The worker that answered a query may have sent its own reason.
    body.entry("reason")
        .or_insert_with(|| json!(refusal.reason.as_str()));
    Reply {
        status: refusal.status,
        body,
        text: None,
        stream: None,
    }
}

fn block(
    operation: &Operation,
    path: &Path,
    status: StatusCode,
    body: &Map<String, Value>,
) -> Value {
    let mut block = Map::new();
    block.insert("schema".to_owned(), json!(RESPONSE_SCHEMA));
    block.insert("version".to_owned(), json!(1));
    block.insert("operation".to_owned(), json!(operation.name));
    // A refusal's body may not name the workflow, but the path does.
    let workflow_id = path
        .get("workflow_id")
        .map(Value::from)
        .or_else(|| body.get("workflow_id").cloned());
    block.extend(workflow_id.map(|id| ("workflow_id".to_owned(), id)));
    block.extend(
        path.get("run_id")
            .map(|id| ("run_id".to_owned(), json!(id))),
    );
    if let Some(field) = operation.operation_name_field {
        block.insert("operation_name".to_owned(), json!(path.get(field)));
        block.insert("operation_name_field".to_owned(), json!(field));
    }
    let mut contract = contract();
    contract.insert(
        "required_fields".to_owned(),
        json!(operation.required_fields),
    );
    contract.insert("success_fields".to_owned(), json!(operation.success_fields));
    block.insert("contract".to_owned(), Value::Object(contract));
    for field in PROJECTED_FIELDS {
        // In the debug view the queue is a whole object, which is not repeated.
        let plain = |value: &&Value| *field != "task_queue" || !value.is_object();
        if let Some(value) = body.get(*field).filter(plain) {
            block.insert((*field).to_owned(), value.clone());
        }
    }
    if status.is_success() {
        for field in operation.success_fields {
            block.entry(*field).or_insert(Value::Null);
        }
    }
    Value::Object(block)
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::Reason;

    use super::*;

    fn refusal(status: StatusCode) -> Refusal {
        Refusal::new(status, Reason::BackendUnavailable, "Not now.")
    }

    #[test]
    fn a_refusal_that_may_be_retried_says_when() {
        let later = refusal(StatusCode::SERVICE_UNAVAILABLE).with("retry_after_seconds", 7);
        let response = render(None, &Path::nameless(), Err(later));
        assert_eq!(response.headers()[RETRY_AFTER], "7");
        let never = refusal(StatusCode::NOT_FOUND);
        let response = render(None, &Path::nameless(), Err(never));
        assert!(!response.headers().contains_key(RETRY_AFTER));
    }

    #[test]
    fn a_success_has_every_field_its_block_promises() {
        for operation in OPERATIONS {
            let block = block(operation, &Path::nameless(), StatusCode::OK, &Map::new());
            for field in operation.success_fields {
                assert!(block.get(*field).is_some(), "{} {field}", operation.name);
            }
        }
    }
}
