//! The rules for task definitions and schemas.

use longhaul_protocol::conductor::{SchemaDef, TaskDef};

use super::{Check, Rules, Violation, name};
use crate::conductor::budget::depth;
use crate::conductor::limits::DEFINITION_DEPTH_MAX;

/// Checks a task definition that is to be registered. Paths begin at the definition.
pub fn check_task_def(definition: &TaskDef, rules: &Rules<'_>) -> Vec<Violation> {
    let mut check = Check::default();
    let at = "";
    name(&mut check, at, "TaskDef", &definition.name, rules);
    if rules.owner_email && definition.owner_email.as_deref().is_none_or(str::is_empty) {
        check.add("ownerEmail", "ownerEmail cannot be empty");
    }
    if definition.response_timeout_seconds < 1 {
        check.add_value(
            "responseTimeoutSeconds",
            format!(
                "TaskDef responseTimeoutSeconds: {} must be >= 1",
                definition.response_timeout_seconds
            ),
            definition.response_timeout_seconds,
        );
    }
    numbers(&mut check, at, definition);
    if serde_json::to_value(definition).is_ok_and(|json| depth(&json) > DEFINITION_DEPTH_MAX) {
        check.add(
            at,
            format!("the definition is nested deeper than {DEFINITION_DEPTH_MAX} levels"),
        );
    }
    check.found.violations
}

/// Checks a schema that is to be registered. Paths begin at the schema.
pub fn check_schema_def(schema: &SchemaDef) -> Vec<Violation> {
    let mut check = Check::default();
    name(&mut check, "", "SchemaDef", &schema.name, &Rules::default());
    if schema.version < 1 {
        check.add_value("version", "SchemaDef version must be >= 1", schema.version);
    }
    check.found.violations
}

/// Checks the definition inside a node. There a response time-out of 0 is allowed: it is what a node without a definition has, and a
/// client may send back what it read.
pub(super) fn check_inline(check: &mut Check, at: &str, definition: &TaskDef) {
    if definition.response_timeout_seconds < 0 {
        check.add_value(
            format!("{at}responseTimeoutSeconds"),
            "TaskDef responseTimeoutSeconds must be >= 0",
            definition.response_timeout_seconds,
        );
    }
    numbers(check, at, definition);
}

fn numbers(check: &mut Check, at: &str, definition: &TaskDef) {
    let at_least: [(&str, i64, i64); 6] = [
        ("retryCount", definition.retry_count.into(), 0),
        (
            "pollTimeoutSeconds",
            definition.poll_timeout_seconds.unwrap_or(0).into(),
            0,
        ),
        (
            "maxRetryDelaySeconds",
            definition.max_retry_delay_seconds.into(),
            0,
        ),
        ("backoffJitterMs", definition.backoff_jitter_ms.into(), 0),
        ("totalTimeoutSeconds", definition.total_timeout_seconds, 0),
        (
            "backoffScaleFactor",
            definition.backoff_scale_factor.into(),
            1,
        ),
    ];
    for (member, value, least) in at_least {
        if value < least {
            check.add_value(
                format!("{at}{member}"),
                format!("TaskDef {member}: {value} must be >= {least}"),
                value,
            );
        }
    }
    let whole = at.trim_end_matches('.');
    let timeout = definition.timeout_seconds;
    if timeout > 0 && definition.response_timeout_seconds > timeout {
        check.add(
            whole,
            format!(
                "TaskDef: {} responseTimeoutSeconds: {} must be less than timeoutSeconds: {timeout}",
                definition.name, definition.response_timeout_seconds
            ),
        );
    }
    let total = definition.total_timeout_seconds;
    if timeout > 0 && total > 0 && timeout > total {
        check.add(
            whole,
            format!(
                "TaskDef: {} timeoutSeconds: {timeout} must be less than or equal to totalTimeoutSeconds: {total}",
                definition.name
            ),
        );
    }
}
