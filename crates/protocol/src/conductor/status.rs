//! The words of the API: states of tasks and workflows, and the policies of definitions.

/// A word that is not in the list of its member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown value {word:?}, must be one of {}", allowed.join(", "))]
pub struct UnknownWord {
    /// What was given.
    pub word: String,
    /// What can be given.
    pub allowed: &'static [&'static str],
}

words! {
    /// The state of a task.
    pub enum TaskStatus {
        Scheduled = "SCHEDULED",
        InProgress = "IN_PROGRESS",
        Completed = "COMPLETED",
        /// The task failed, is optional, and has no more retries.
        CompletedWithErrors = "COMPLETED_WITH_ERRORS",
        /// An operator passed over the task.
        Skipped = "SKIPPED",
        Failed = "FAILED",
        TimedOut = "TIMED_OUT",
        /// The task failed and is not retried, whatever its definition allows.
        FailedWithTerminalError = "FAILED_WITH_TERMINAL_ERROR",
        Canceled = "CANCELED",
    }
}

impl TaskStatus {
    /// Returns whether the task has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Scheduled | Self::InProgress)
    }

    /// Returns whether the task has not failed: it is open or it ended well.
    pub const fn is_successful(self) -> bool {
        matches!(
            self,
            Self::Scheduled
                | Self::InProgress
                | Self::Completed
                | Self::CompletedWithErrors
                | Self::Skipped
        )
    }

    /// Returns whether a task that ended in this state may get a new attempt.
    pub const fn is_retriable(self) -> bool {
        matches!(self, Self::Failed | Self::TimedOut)
    }
}

words! {
    /// The states that a worker can report.
    pub enum ResultStatus {
        InProgress = "IN_PROGRESS",
        Completed = "COMPLETED",
        Failed = "FAILED",
        FailedWithTerminalError = "FAILED_WITH_TERMINAL_ERROR",
        Canceled = "CANCELED",
    }
}

impl From<ResultStatus> for TaskStatus {
    fn from(status: ResultStatus) -> Self {
        match status {
            ResultStatus::InProgress => Self::InProgress,
            ResultStatus::Completed => Self::Completed,
            ResultStatus::Failed => Self::Failed,
            ResultStatus::FailedWithTerminalError => Self::FailedWithTerminalError,
            ResultStatus::Canceled => Self::Canceled,
        }
    }
}

words! {
    /// The state of a definition run.
    pub enum WorkflowStatus {
        Running = "RUNNING",
        Paused = "PAUSED",
        Completed = "COMPLETED",
        Failed = "FAILED",
        TimedOut = "TIMED_OUT",
        Terminated = "TERMINATED",
    }
}

impl WorkflowStatus {
    /// Returns whether the run has ended.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Running | Self::Paused)
    }

    /// Returns whether the run has not failed: it is open or it completed.
    pub const fn is_successful(self) -> bool {
        matches!(self, Self::Running | Self::Paused | Self::Completed)
    }
}

words! {
    /// How the delay of a retry grows.
    pub enum RetryLogic {
        Fixed = "FIXED",
        LinearBackoff = "LINEAR_BACKOFF",
        ExponentialBackoff = "EXPONENTIAL_BACKOFF",
    }
}

words! {
    /// The effect of a time-out of a task.
    pub enum TimeoutPolicy {
        /// The task times out and is retried.
        Retry = "RETRY",
        /// The task and its workflow time out.
        TimeOutWorkflow = "TIME_OUT_WF",
        /// Only a counter changes.
        AlertOnly = "ALERT_ONLY",
    }
}

words! {
    /// The effect of a time-out of a workflow.
    pub enum WorkflowTimeoutPolicy {
        TimeOutWorkflow = "TIME_OUT_WF",
        AlertOnly = "ALERT_ONLY",
    }
}

words! {
    /// What a start does when its idempotency key was used before.
    pub enum IdempotencyStrategy {
        Fail = "FAIL",
        ReturnExisting = "RETURN_EXISTING",
        FailOnRunning = "FAIL_ON_RUNNING",
    }
}

words! {
    /// What the answer to an execute or a signal shows.
    pub enum ReturnStrategy {
        TargetWorkflow = "TARGET_WORKFLOW",
        BlockingWorkflow = "BLOCKING_WORKFLOW",
        BlockingTask = "BLOCKING_TASK",
        BlockingTaskInput = "BLOCKING_TASK_INPUT",
    }
}

words! {
    /// How often a JOIN is evaluated. Stored without effect: a JOIN is evaluated in the pass that ends its last task.
    pub enum JoinMode {
        Sync = "SYNC",
        Async = "ASYNC",
    }
}

words! {
    /// What happens to a start above the rate limit of its workflow.
    pub enum RateLimitPolicy {
        Queue = "QUEUE",
        Reject = "REJECT",
    }
}
