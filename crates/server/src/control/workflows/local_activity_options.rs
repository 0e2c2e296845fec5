//! How the options of a local activity are shown: without a queue, a connection or a session.

use serde_json::{Value, json};

/// Renders the options from the retry policy in history; `None` if the workflow set no policy.
pub(super) fn local_options(retry_policy: Option<&Value>) -> Value {
    let of = |key: &str| {
        retry_policy
            .and_then(|policy| policy.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let list = |key: &str| match of(key) {
        list @ Value::Array(_) => list,
        _ => json!([]),
    };
    json!({
        "execution_mode": "local",
        "queue_bypassed": true,
        "routing": "same_process_workflow_task",
        "max_attempts": if retry_policy.is_some() { of("max_attempts") } else { json!(1) },
        "backoff": list("backoff_seconds"),
        "start_to_close_timeout": of("start_to_close_timeout"),
        "schedule_to_close_timeout": of("schedule_to_close_timeout"),
        "heartbeat_timeout": of("heartbeat_timeout"),
        "non_retryable_error_types": list("non_retryable_error_types"),
    })
}
