//! Event types that tests of histories need.

/// Event types that close a run. Every closed run has exactly one.
pub(crate) const TERMINAL_EVENTS: [&str; 7] = [
    "WorkflowCompleted",
    "WorkflowContinuedAsNew",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowCancelled",
    "WorkflowTerminated",
    "ExecutionEnded",
];
