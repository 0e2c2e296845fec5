//! What a schedule is: when, what, and what if the last one still runs (control-plane.md §14.1).

use std::time::Duration;

use longhaul_protocol::Payload;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::{AttributeValue, Error};
use crate::definition::WorkflowCall;
use crate::duration::{seconds, timeout_seconds};
use crate::payload;

/// A schedule to be created.
#[derive(Clone, Debug)]
#[must_use = "a schedule is nothing until it is created"]
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
    /// Does `action` at the moments of `spec`.
    pub fn new(spec: ScheduleSpec, action: ScheduleAction) -> Self {
        let body = Body {
            spec,
            ..Body::default()
        };
        Self { action, body }
    }

    /// What happens at a moment when the workflow of the last one still runs; it is skipped unless said.
    pub fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.body.overlap_policy = Some(policy);
        self
    }

    /// Up to this much later than due, at random; at most an hour.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.body.jitter_seconds = Some(seconds(jitter));
        self
    }

    /// How many workflows it starts before it is over.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.body.max_runs = Some(runs);
        self
    }

    /// A note on the workflows it starts.
    pub fn memo(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.body.memo.insert(name.into(), value.into());
        self
    }

    /// Something the workflows it starts can be found by.
    pub fn search_attribute(
        mut self,
        name: impl Into<String>,
        value: impl Into<AttributeValue>,
    ) -> Self {
        let value = serde_json::to_value(value.into()).unwrap_or_default();
        self.body.search_attributes.insert(name.into(), value);
        self
    }

    /// Starts nothing until it is resumed.
    pub fn paused(mut self) -> Self {
        self.body.paused = Some(true);
        self
    }

    /// A note for people.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.body.note = Some(note.into());
        self
    }

    pub(super) fn settle(mut self) -> Result<Body, Error> {
        self.body.action = self.action.settle()?;
        Ok(self.body)
    }
}

/// When a schedule acts: at every moment of any of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "a specification is nothing by itself"]
pub struct ScheduleSpec {
    /// Five fields each: minute, hour, day, month, weekday.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cron_expressions: Vec<String>,
    /// Every so often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The zone in which the cron expressions are meant; UTC unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

impl ScheduleSpec {
    /// At the moments of a cron expression.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self::default().and_cron(expression)
    }

    /// Every so often, counted from the epoch.
    pub fn every(every: Duration) -> Self {
        Self::default().and_interval(Interval::every(every))
    }

    /// Also at the moments of this cron expression.
    pub fn and_cron(mut self, expression: impl Into<String>) -> Self {
        self.cron_expressions.push(expression.into());
        self
    }

    /// Also in this interval.
    pub fn and_interval(mut self, interval: Interval) -> Self {
        self.intervals.push(interval);
        self
    }

    /// The zone of the cron expressions, such as `Europe/Berlin`.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        self.timezone = Some(name.into());
        self
    }
}

/// Every so often, as durations in ISO 8601.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interval {
    /// The time between two moments, such as `PT30S`.
    pub every: String,
    /// How long after each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
}

impl Interval {
    /// Every so often, whole seconds, counted from the epoch.
    #[must_use]
    pub fn every(every: Duration) -> Self {
        Self {
            every: iso8601(every),
            offset: None,
        }
    }

    /// This long after each.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = Some(iso8601(offset));
        self
    }
}

fn iso8601(duration: Duration) -> String {
    format!("PT{}S", seconds(duration))
}

/// What a schedule starts.
#[derive(Clone, Debug)]
#[must_use = "an action is nothing by itself"]
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
    /// Starts a workflow with these arguments every time.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a call is made to be given away, as everywhere"
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

    /// The queue whose workers run it; `default` unless said.
    pub fn queue(mut self, task_queue: impl Into<String>) -> Self {
        self.body.task_queue = Some(task_queue.into());
        self
    }

    /// How long each workflow may take over all its runs.
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.body.execution_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    /// How long each run may take.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.body.run_timeout_seconds = Some(timeout_seconds(timeout));
        self
    }

    fn settle(mut self) -> Result<ActionBody, Error> {
        self.body.input = Some(self.input?);
        Ok(self.body)
    }
}

/// What happens when the last workflow still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// Nothing is started.
    Skip,
    /// One start waits for its end.
    BufferOne,
    /// Every start waits its turn.
    BufferAll,
    /// The running one is cancelled first.
    CancelOther,
    /// The running one is terminated first.
    TerminateOther,
    /// Both run.
    AllowAll,
}

/// Changes to a schedule; what is not said stays.
#[derive(Clone, Debug, Default)]
#[must_use = "a change is nothing until it is sent"]
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
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Other moments.
    pub fn spec(mut self, spec: ScheduleSpec) -> Self {
        self.body.spec = Some(spec);
        self
    }

    /// Another action.
    pub fn action(mut self, action: ScheduleAction) -> Self {
        self.action = Some(action);
        self
    }

    /// Another overlap policy.
    pub fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.body.overlap_policy = Some(policy);
        self
    }

    /// Another jitter.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.body.jitter_seconds = Some(seconds(jitter));
        self
    }

    /// Another number of workflows, those that were started included.
    pub fn max_runs(mut self, runs: u64) -> Self {
        self.body.max_runs = Some(runs);
        self
    }

    /// Another note.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.body.note = Some(note.into());
        self
    }

    pub(super) fn settle(mut self) -> Result<UpdateBody, Error> {
        self.body.action = self.action.map(ScheduleAction::settle).transpose()?;
        Ok(self.body)
    }
}
