//! The definition of a schedule: its times, its action, and its overlap policy.

use std::time::Duration;

use longhaul_protocol::Payload;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::{AttributeValue, Error};
use crate::definition::WorkflowCall;
use crate::duration::{seconds, timeout_seconds};
use crate::payload;

/// A schedule to create. Durations are rounded up to whole seconds.
#[derive(Clone, Debug)]
#[must_use = "a schedule has no effect until it is created"]
pub struct Schedule {
    action: ScheduleAction,
    body: Body,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Body {
    spec: ScheduleSpec,
    action: ActionBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_policy: Option<OverlapPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_runs: Option<u64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    memo: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    search_attributes: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Schedule {
    /// Creates a schedule that runs `action` at the times of `spec`.
    pub fn new(spec: ScheduleSpec, action: ScheduleAction) -> Self {
        let body = Body {
            spec,
            ..Body::default()
        };
        Self { action, body }
    }

    /// Sets what happens if the previous workflow is still open. By default the start is skipped.
    pub fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.body.overlap_policy = Some(policy);
        self
    }

    /// Sets the largest random delay of a start. At most one hour.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.body.jitter_seconds = Some(seconds(jitter));
        self
    }

    /// Sets how many workflows the schedule starts in total.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.body.max_runs = Some(runs);
        self
    }

    /// Adds an entry to the memo of the started workflows.
    pub fn memo(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.body.memo.insert(name.into(), value.into());
        self
    }

    /// Adds a search attribute of the started workflows.
    pub fn search_attribute(
        mut self,
        name: impl Into<String>,
        value: impl Into<AttributeValue>,
    ) -> Self {
        let value = serde_json::to_value(value.into()).unwrap_or_default();
        self.body.search_attributes.insert(name.into(), value);
        self
    }

    /// Creates the schedule paused.
    pub fn paused(mut self) -> Self {
        self.body.paused = Some(true);
        self
    }

    /// Sets a note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.body.note = Some(note.into());
        self
    }

    pub(super) fn into_body(mut self) -> Result<Body, Error> {
        self.body.action = self.action.into_body()?;
        Ok(self.body)
    }
}

/// The times of a schedule: all times of all its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "a specification has no effect by itself"]
pub struct ScheduleSpec {
    /// Cron expressions with five fields: minute, hour, day, month, weekday.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cron_expressions: Vec<String>,
    /// Intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The time zone of the cron expressions. The default is UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

impl ScheduleSpec {
    /// The times of a cron expression.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self::default().and_cron(expression)
    }

    /// One time per interval, counted from the Unix epoch.
    pub fn every(every: Duration) -> Self {
        Self::default().and_interval(Interval::every(every))
    }

    /// Adds the times of a cron expression.
    pub fn and_cron(mut self, expression: impl Into<String>) -> Self {
        self.cron_expressions.push(expression.into());
        self
    }

    /// Adds the times of an interval.
    pub fn and_interval(mut self, interval: Interval) -> Self {
        self.intervals.push(interval);
        self
    }

    /// Sets the time zone of the cron expressions, such as `Europe/Berlin`.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        self.timezone = Some(name.into());
        self
    }
}

/// An interval, with durations in ISO 8601.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interval {
    /// The length of the interval, such as `PT30S`.
    pub every: String,
    /// The offset from the start of each interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
}

impl Interval {
    /// Creates an interval, counted from the Unix epoch. The duration is rounded up to whole seconds.
    #[must_use]
    pub fn every(every: Duration) -> Self {
        Self {
            every: iso8601(every),
            offset: None,
        }
    }

    /// Sets the offset from the start of each interval, rounded up to whole seconds.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = Some(iso8601(offset));
        self
    }
}

fn iso8601(duration: Duration) -> String {
    format!("PT{}S", seconds(duration))
}

/// The action of a schedule: the workflow that it starts.
#[derive(Clone, Debug)]
#[must_use = "an action has no effect by itself"]
pub struct ScheduleAction {
    input: Result<Payload, payload::Error>,
    body: ActionBody,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ActionBody {
    workflow_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Payload>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_timeout_seconds: Option<u64>,
}

impl ScheduleAction {
    /// Creates an action that starts a workflow with the arguments of the call.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "calls are passed by value everywhere"
    )]
    pub fn new<R>(call: WorkflowCall<R>) -> Self {
        Self {
            input: call.call.payload(),
            body: ActionBody {
                workflow_type: call.name().to_owned(),
                ..ActionBody::default()
            },
        }
    }

    /// Sets the task queue. The default is `default`.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.body.task_queue = Some(task_queue.into());
        self
    }

    /// Sets the timeout of all runs of each workflow together.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.body.execution_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// Sets the timeout of each run.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.body.run_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    fn into_body(mut self) -> Result<ActionBody, Error> {
        self.body.input = Some(self.input?);
        Ok(self.body)
    }
}

/// What happens if the previous workflow is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// The start is skipped.
    Skip,
    /// One start waits until the workflow closes.
    BufferOne,
    /// Every start waits until the workflows before it close.
    BufferAll,
    /// The open workflow is cancelled first.
    CancelOther,
    /// The open workflow is terminated first.
    TerminateOther,
    /// Both workflows run.
    AllowAll,
}

/// A change of a schedule. Properties that are not set do not change.
#[derive(Clone, Debug, Default)]
#[must_use = "a change has no effect until it is sent"]
pub struct ScheduleUpdate {
    action: Option<ScheduleAction>,
    body: UpdateBody,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct UpdateBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<ScheduleSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<ActionBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_policy: Option<OverlapPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_runs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl ScheduleUpdate {
    /// Creates a change without properties.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes the times.
    pub fn spec(mut self, spec: ScheduleSpec) -> Self {
        self.body.spec = Some(spec);
        self
    }

    /// Changes the action.
    pub fn action(mut self, action: ScheduleAction) -> Self {
        self.action = Some(action);
        self
    }

    /// Changes the overlap policy.
    pub fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.body.overlap_policy = Some(policy);
        self
    }

    /// Changes the jitter.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.body.jitter_seconds = Some(seconds(jitter));
        self
    }

    /// Changes the total number of workflows, including the ones that were started.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.body.max_runs = Some(runs);
        self
    }

    /// Changes the note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.body.note = Some(note.into());
        self
    }

    pub(super) fn into_body(mut self) -> Result<UpdateBody, Error> {
        self.body.action = self.action.map(ScheduleAction::into_body).transpose()?;
        Ok(self.body)
    }
}
