//! Every metric: its name, what it counts, and its labels.

use serde::{Deserialize, Serialize};

use super::Surface;

/// The quantiles of a summary.
pub(super) const QUANTILES: [f64; 5] = [0.5, 0.75, 0.9, 0.95, 0.99];

/// The upper bounds of a histogram of seconds, as in other Conductor SDKs.
const SECONDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The upper bounds of a histogram of bytes, as in other Conductor SDKs.
const BYTES: [f64; 6] = [1e2, 1e3, 1e4, 1e5, 1e6, 1e7];

/// A metric. The order is the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Metric {
    TaskPollTotal,
    TaskPollErrorTotal,
    TaskPollTime,
    TaskPausedTotal,
    TaskExecutionStartedTotal,
    TaskExecuteErrorTotal,
    TaskExecuteTime,
    TaskResultSize,
    TaskUpdateErrorTotal,
    TaskUpdateFailedTotal,
    TaskUpdateTime,
    ActiveWorkers,
    WorkerRestartTotal,
}

/// What the samples of a metric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and falls.
    Gauge,
    /// Durations in seconds.
    Seconds,
    /// Sizes in bytes.
    Bytes,
}

impl Metric {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TaskPollTotal => "task_poll_total",
            Self::TaskPollErrorTotal => "task_poll_error_total",
            Self::TaskPollTime => "task_poll_time_seconds",
            Self::TaskPausedTotal => "task_paused_total",
            Self::TaskExecutionStartedTotal => "task_execution_started_total",
            Self::TaskExecuteErrorTotal => "task_execute_error_total",
            Self::TaskExecuteTime => "task_execute_time_seconds",
            Self::TaskResultSize => "task_result_size_bytes",
            Self::TaskUpdateErrorTotal => "task_update_error_total",
            Self::TaskUpdateFailedTotal => "task_update_failed_total",
            Self::TaskUpdateTime => "task_update_time_seconds",
            Self::ActiveWorkers => "active_workers",
            Self::WorkerRestartTotal => "worker_restart_total",
        }
    }

    /// Returns the text of the HELP line.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::TaskPollTotal => "Polls that were begun.",
            Self::TaskPollErrorTotal => "Polls that failed.",
            Self::TaskPollTime => "How long a poll took.",
            Self::TaskPausedTotal => "Polls that were left out because the worker is paused.",
            Self::TaskExecutionStartedTotal => "Tasks whose function was called.",
            Self::TaskExecuteErrorTotal => "Tasks whose function failed.",
            Self::TaskExecuteTime => "How long the function of a task took.",
            Self::TaskResultSize => "The size of the output of a task as JSON.",
            Self::TaskUpdateErrorTotal => "Attempts to report a result that failed.",
            Self::TaskUpdateFailedTotal => {
                "Results that are lost: no attempt to report them worked."
            }
            Self::TaskUpdateTime => "How long the report of a result took, with all attempts.",
            Self::ActiveWorkers => "Tasks whose function runs now.",
            Self::WorkerRestartTotal => "How often a worker was started again after it ended.",
        }
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Self::TaskPollTotal
            | Self::TaskPollErrorTotal
            | Self::TaskPausedTotal
            | Self::TaskExecutionStartedTotal
            | Self::TaskExecuteErrorTotal
            | Self::TaskUpdateErrorTotal
            | Self::TaskUpdateFailedTotal
            | Self::WorkerRestartTotal => Kind::Counter,
            Self::TaskPollTime | Self::TaskExecuteTime | Self::TaskUpdateTime => Kind::Seconds,
            Self::TaskResultSize => Kind::Bytes,
            Self::ActiveWorkers => Kind::Gauge,
        }
    }

    /// Returns the label beside `taskType`.
    pub(super) fn second_label(self, surface: Surface) -> Option<&'static str> {
        match self {
            Self::TaskPollErrorTotal | Self::TaskExecuteErrorTotal | Self::TaskUpdateErrorTotal => {
                Some("exception")
            }
            Self::TaskPollTime | Self::TaskExecuteTime | Self::TaskUpdateTime => {
                (surface == Surface::Canonical).then_some("status")
            }
            Self::TaskPollTotal
            | Self::TaskPausedTotal
            | Self::TaskExecutionStartedTotal
            | Self::TaskResultSize
            | Self::TaskUpdateFailedTotal
            | Self::ActiveWorkers
            | Self::WorkerRestartTotal => None,
        }
    }

    /// Returns the word of the TYPE line.
    pub(super) fn type_word(self, surface: Surface) -> &'static str {
        match (self.kind(), surface) {
            (Kind::Counter, _) => "counter",
            (Kind::Gauge, _) => "gauge",
            (Kind::Seconds | Kind::Bytes, Surface::Guide) => "summary",
            (Kind::Seconds | Kind::Bytes, Surface::Canonical) => "histogram",
        }
    }

    /// Returns the upper bounds of the buckets of a histogram, without the last one, which has no bound.
    pub(super) fn bounds(self) -> &'static [f64] {
        match self.kind() {
            Kind::Seconds => &SECONDS,
            Kind::Bytes => &BYTES,
            Kind::Counter | Kind::Gauge => &[],
        }
    }
}
