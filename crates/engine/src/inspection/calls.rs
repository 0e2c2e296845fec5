//! Folds the durable calls of a history: one opening event each, at most one end, and the members of a group together.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::history::RecordedEvent;
use super::{ProblemKind, Problems};

/// What a history has shown of its calls so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    pub(super) highest: u64,
    calls: BTreeMap<u64, Call>,
    ended: BTreeSet<u64>,
    ended_timers: BTreeSet<u64>,
    timers: BTreeMap<u64, Timestamp>,
    attempts: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug)]
struct Call {
    kind: Kind,
    /// The decision that opened it: its task and its time.
    opened: (Option<String>, Timestamp),
    path: Option<Value>,
}

/// The kind of a durable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Activity,
    Timer,
    Condition,
    Signal,
    Child,
    /// Recorded at once.
    Record,
}

/// The members of a payload that calls need.
#[derive(Deserialize)]
pub(super) struct CallKeys {
    #[serde(default)]
    pub(super) sequence: Option<u64>,
    #[serde(default)]
    timer_kind: Option<String>,
    #[serde(default)]
    sequence_span: Option<u64>,
    #[serde(default)]
    attempt_number: Option<u64>,
    #[serde(default)]
    fire_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) parallel_group_path: Option<Value>,
}

impl Calls {
    pub(super) fn add(
        &mut self,
        event: &RecordedEvent<'_>,
        keys: &CallKeys,
        problems: &mut Problems,
    ) {
        let Some(number) = keys.sequence else {
            return;
        };
        let (place, event_type) = (event.sequence, event.event_type);
        if event_type == "CooperativeCancellationDelivered" {
            let span = keys.sequence_span.unwrap_or(1);
            let last = number.saturating_add(span).saturating_sub(1);
            self.highest = self.highest.max(last);
            return;
        }
        let Some((kind, opens)) = kind_of(event_type, keys.timer_kind.as_deref()) else {
            return;
        };
        if opens {
            if number <= self.highest {
                let detail = format!("event {place}, {event_type}, opens call {number} again");
                problems.found(ProblemKind::CallWrong, detail);
            }
            self.highest = self.highest.max(number);
            let opened = (event.workflow_task_id.map(str::to_owned), event.recorded_at);
            let path = keys.parallel_group_path.clone();
            self.calls.insert(number, Call { kind, opened, path });
        }
        match self.calls.get(&number) {
            Some(call) if call.kind == kind => {
                // Heartbeats leave the path out.
                let has_path = event_type != "ActivityHeartbeatRecorded";
                if has_path && call.path != keys.parallel_group_path {
                    let detail = format!(
                        "event {place}, {event_type}, has another group than call {number}"
                    );
                    problems.found(ProblemKind::GroupWrong, detail);
                }
            }
            _ => {
                let detail = format!(
                    "event {place}, {event_type}, is about call {number}, which no event opened"
                );
                problems.found(ProblemKind::CallWrong, detail);
            }
        }
        for level in levels(keys.parallel_group_path.as_ref()) {
            let base = number_of(level, "parallel_group_base_sequence");
            let index = number_of(level, "parallel_group_index");
            if base
                .zip(index)
                .and_then(|(base, index)| base.checked_add(index))
                != Some(number)
            {
                let detail = format!("the group of event {place} does not contain call {number}");
                problems.found(ProblemKind::GroupWrong, detail);
            }
        }
        self.follow(event, keys, number, problems);
    }

    /// Follows attempts, timers and ends.
    fn follow(
        &mut self,
        event: &RecordedEvent<'_>,
        keys: &CallKeys,
        number: u64,
        problems: &mut Problems,
    ) {
        let (place, event_type) = (event.sequence, event.event_type);
        let is_first = match event_type {
            "ActivityCompleted"
            | "ActivityFailed"
            | "ActivityTimedOut"
            | "ActivityCancelled"
            | "ChildRunCompleted"
            | "ChildRunFailed"
            | "ChildRunCancelled"
            | "ChildRunTerminated"
            | "ConditionWaitSatisfied"
            | "SignalApplied" => self.ended.insert(number),
            "TimerFired" => {
                let due = self.timers.get(&number);
                if due.is_some_and(|due| event.recorded_at < *due) {
                    let detail = format!("event {place} fires the timer of call {number} early");
                    problems.found(ProblemKind::CallWrong, detail);
                }
                self.ended_timers.insert(number) && self.ended.insert(number)
            }
            "TimerCancelled" => self.ended_timers.insert(number),
            "TimerScheduled" => {
                self.timers.extend(keys.fire_at.map(|at| (number, at)));
                true
            }
            "ActivityStarted" | "ChildRunStarted" => {
                let attempt = keys.attempt_number.unwrap_or(u64::MAX);
                let before = self.attempts.insert(number, attempt);
                let ascends = event_type == "ChildRunStarted" || before.is_none_or(|b| b < attempt);
                if !ascends || self.ended.contains(&number) {
                    let detail = format!(
                        "event {place}, {event_type}, starts call {number} after its end or twice"
                    );
                    problems.found(ProblemKind::CallWrong, detail);
                }
                true
            }
            _ => true,
        };
        if !is_first {
            let detail = format!("event {place}, {event_type}, ends call {number} again");
            problems.found(ProblemKind::CallEndedTwice, detail);
        }
    }

    /// Checks that all members of a group were opened by one decision.
    pub(super) fn finish(&self, problems: &mut Problems) {
        for (number, call) in &self.calls {
            let Some(outermost) = levels(call.path.as_ref()).next() else {
                continue;
            };
            let base = number_of(outermost, "parallel_group_base_sequence").unwrap_or(0);
            let size = number_of(outermost, "parallel_group_size").unwrap_or(0);
            let end = base.saturating_add(size);
            let mut members = self.calls.range(base..end);
            // Counted, because a wrong size may be large.
            let together = members.clone().count() as u64 == size
                && members.all(|(_, other)| other.opened == call.opened);
            if !together {
                let detail =
                    format!("the group of call {number} was not opened whole, or not at once");
                problems.found(ProblemKind::GroupWrong, detail);
            }
        }
    }
}

/// Returns the levels of a group path, the outermost first.
pub(super) fn levels(path: Option<&Value>) -> impl Iterator<Item = &Value> {
    path.and_then(Value::as_array).into_iter().flatten()
}

pub(super) fn number_of(level: &Value, key: &str) -> Option<u64> {
    level.get(key).and_then(Value::as_u64)
}

/// Returns the kind of call that an event is about, and whether it opens it.
fn kind_of(event_type: &str, timer_kind: Option<&str>) -> Option<(Kind, bool)> {
    Some(match event_type {
        "ActivityScheduled" => (Kind::Activity, true),
        "SignalWaitOpened" => (Kind::Signal, true),
        "SignalApplied" => (Kind::Signal, false),
        "ConditionWaitOpened" => (Kind::Condition, true),
        "ConditionWaitSatisfied" => (Kind::Condition, false),
        "ChildWorkflowScheduled" => (Kind::Child, true),
        "SideEffectRecorded"
        | "VersionMarkerRecorded"
        | "SearchAttributesUpserted"
        | "MemoUpserted"
        | "WorkflowContinuedAsNew" => (Kind::Record, true),
        name if name.starts_with("Activity") => (Kind::Activity, false),
        name if name.starts_with("ChildRun") => (Kind::Child, false),
        name if name.starts_with("Timer") => match timer_kind {
            Some("condition_timeout") => (Kind::Condition, false),
            Some(_) => (Kind::Signal, false),
            None => (Kind::Timer, name == "TimerScheduled"),
        },
        _ => return None,
    })
}
