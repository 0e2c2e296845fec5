//! Facts about the types of nodes.

/// The types that the server knows. Any other type is queued under its name for workers.
pub const OPERATORS: [&str; 24] = [
    "SIMPLE",
    "DYNAMIC",
    "SWITCH",
    "DECISION",
    "FORK_JOIN",
    "FORK_JOIN_DYNAMIC",
    "JOIN",
    "EXCLUSIVE_JOIN",
    "DO_WHILE",
    "SUB_WORKFLOW",
    "DURABLE_WORKFLOW",
    "START_WORKFLOW",
    "TERMINATE",
    "SET_VARIABLE",
    "WAIT",
    "HUMAN",
    "YIELD",
    "NOOP",
    "INLINE",
    "LAMBDA",
    "JSON_JQ_TRANSFORM",
    "HTTP",
    "EVENT",
    "PULL_WORKFLOW_MESSAGES",
];

/// Returns whether the type is not one of the server's, so that workers poll it by its name.
pub fn is_user_defined(task_type: &str) -> bool {
    !OPERATORS.contains(&task_type)
}

/// Returns whether workers run tasks of this type.
pub fn is_worker_task(task_type: &str) -> bool {
    matches!(task_type, "SIMPLE" | "DYNAMIC") || is_user_defined(task_type)
}

/// Returns whether tasks of this type, as records show it, are queued for workers.
pub fn is_queued(task_type_shown: &str) -> bool {
    !matches!(
        task_type_shown,
        "SWITCH"
            | "DECISION"
            | "FORK"
            | "JOIN"
            | "DO_WHILE"
            | "SUB_WORKFLOW"
            | "DURABLE_WORKFLOW"
            | "TERMINATE"
            | "SET_VARIABLE"
            | "WAIT"
            | "HUMAN"
            | "YIELD"
            | "NOOP"
            | "INLINE"
            | "LAMBDA"
            | "START_WORKFLOW"
            | "EXCLUSIVE_JOIN"
            | "EVENT"
            | "PULL_WORKFLOW_MESSAGES"
            | "JSON_JQ_TRANSFORM"
    )
}

/// Returns whether the input template of a task definition applies to nodes of this type.
pub fn uses_input_template(task_type: &str) -> bool {
    is_worker_task(task_type)
        || matches!(
            task_type,
            "HTTP" | "INLINE" | "LAMBDA" | "JSON_JQ_TRANSFORM" | "DO_WHILE"
        )
}

/// Returns whether a failed task of this type may get a new attempt if its definition allows it.
pub fn is_retried(task_type: &str) -> bool {
    !matches!(
        task_type,
        "SWITCH"
            | "DECISION"
            | "FORK"
            | "FORK_JOIN"
            | "FORK_JOIN_DYNAMIC"
            | "JOIN"
            | "EXCLUSIVE_JOIN"
            | "DO_WHILE"
    )
}

/// Returns the `taskType` of the task that a node creates. The task of a DYNAMIC node has the name that its input gives.
pub fn task_type_shown<'a>(task_type: &'a str, name: &'a str) -> &'a str {
    match task_type {
        "SIMPLE" => name,
        "FORK_JOIN" | "FORK_JOIN_DYNAMIC" => "FORK",
        other => other,
    }
}

/// Returns the `taskDefName` of the task that a node creates.
pub fn task_def_name_shown<'a>(task_type: &'a str, name: &'a str) -> &'a str {
    match task_type {
        "FORK_JOIN" | "FORK_JOIN_DYNAMIC" => "FORK",
        "JOIN" | "EXCLUSIVE_JOIN" | "SWITCH" | "DECISION" => task_type,
        _ => name,
    }
}
