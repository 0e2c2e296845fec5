//! Folds the events of a run.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_protocol::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Problem, ProblemKind};
use crate::run::state::{Core, Program};

/// An event as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEvent<'a> {
    pub sequence: u64,
    pub id: &'a str,
    pub event_type: &'a str,
    pub recorded_at: Timestamp,
    pub payload: &'a str,
}

/// Events that close a run of code. It has one of them.
const TERMINAL: [&str; 6] = [
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowContinuedAsNew",
    "WorkflowCancelled",
    "WorkflowTerminated",
];

/// Events that may follow the terminal event of a run of code.
const TRAILING: [&str; 5] = [
    "UpdateCompleted",
    "ParentClosePolicyApplied",
    "ParentClosePolicyFailed",
    "ArchiveRequested",
    "WorkflowArchived",
];

/// What a history has shown so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    program: Program,
    last: u64,
    bytes: u64,
    last_at: Timestamp,
    ids: BTreeSet<String>,
    starts: u64,
    /// The first events, until the start.
    begins_right: bool,
    /// Terminal events.
    ends: u64,
    /// Whether the last event that opens or closes a definition run closed it.
    has_ended: bool,
    highest_call: u64,
    calls: BTreeMap<u64, Call>,
    ended_calls: BTreeSet<u64>,
    ended_timers: BTreeSet<u64>,
    problems: Vec<Problem>,
}

/// The kind of a durable call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
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
struct Payload {
    #[serde(default)]
    sequence: Option<u64>,
    #[serde(default)]
    timer_kind: Option<String>,
    #[serde(default)]
    sequence_span: Option<u64>,
}

impl History {
    /// Returns a history without events.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            ..Self::default()
        }
    }

    /// Adds the next event.
    pub fn add(&mut self, event: RecordedEvent<'_>) {
        let RecordedEvent {
            sequence,
            id,
            event_type,
            recorded_at,
            payload,
        } = event;
        if sequence != self.last + 1 {
            let detail = format!("event {sequence} follows event {}", self.last);
            self.found(ProblemKind::HistoryGap, detail);
        }
        if !self.ids.insert(id.to_owned()) {
            let detail = format!("event {sequence} has the id {id} of another one");
            self.found(ProblemKind::EventIdRepeated, detail);
        }
        if self.last > 0 && recorded_at < self.last_at {
            let detail = format!("event {sequence} was recorded before the one before it");
            self.found(ProblemKind::EventTimeStepsBack, detail);
        }
        match self.program {
            Program::Code => self.add_of_code(sequence, event_type, payload),
            Program::Definition => self.add_of_definition(sequence, event_type, payload),
        }
        self.last = sequence;
        self.last_at = recorded_at;
        self.bytes += (event_type.len() + payload.len()) as u64;
    }

    /// Compares the history with the state of its run. Returns everything that was found.
    pub fn finish(mut self, core: &Core) -> Vec<Problem> {
        let end = core.last_history_sequence.get();
        if end != self.last {
            let detail = format!("the history ends at {}, and the state has {end}", self.last);
            self.found(ProblemKind::HistoryDiffers, detail);
        }
        if core.history_size_bytes != self.bytes {
            let detail = format!(
                "the history has {} bytes, and the state has {}",
                self.bytes, core.history_size_bytes
            );
            self.found(ProblemKind::HistoryDiffers, detail);
        }
        if !self.begins_right || self.starts != 1 {
            let detail = format!("the history has {} start events, or not first", self.starts);
            self.found(ProblemKind::StartEventWrong, detail);
        }
        let is_closed = core.closed.is_some();
        let is_right = match self.program {
            Program::Code => self.ends == u64::from(is_closed),
            Program::Definition => self.has_ended == is_closed,
        };
        if !is_right {
            let word = if is_closed { "closed" } else { "open" };
            let detail = format!("the run is {word} and has {} terminal events", self.ends);
            self.found(ProblemKind::TerminalEventWrong, detail);
        }
        let highest = core.last_command_sequence.get();
        if self.program == Program::Code && highest != self.highest_call {
            let detail = format!(
                "the highest command sequence is {}, and the state has {highest}",
                self.highest_call
            );
            self.found(ProblemKind::HistoryDiffers, detail);
        }
        self.problems
    }

    /// Adds a problem, unless one of its kind was found: one wrong row often makes the following ones wrong.
    fn found(&mut self, kind: ProblemKind, detail: String) {
        let is_known = self.problems.iter().any(|known| known.kind == kind);
        if !is_known || kind == ProblemKind::HistoryDiffers {
            self.problems.push(Problem::new(kind, detail));
        }
    }

    fn unreadable(&mut self, sequence: u64, error: &serde_json::Error) {
        let detail = format!("the payload of event {sequence} is not valid: {error}");
        self.found(ProblemKind::UnreadableRow, detail);
    }

    fn add_of_definition(&mut self, sequence: u64, event_type: &str, payload: &str) {
        // A payload may be large. It is not kept, only checked to be an object.
        if let Err(error) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(payload) {
            self.unreadable(sequence, &error);
        }
        match event_type {
            "ExecutionStarted" => {
                self.starts += 1;
                self.begins_right = sequence == 1;
                self.has_ended = false;
            }
            "ExecutionEnded" => {
                self.ends += 1;
                self.has_ended = true;
            }
            "ExecutionPaused" | "ExecutionResumed" => self.has_ended = false,
            _ => {}
        }
    }

    fn add_of_code(&mut self, sequence: u64, event_type: &str, payload: &str) {
        if event_type == "WorkflowStarted" {
            self.starts += 1;
            self.begins_right |= sequence == 1 || (sequence == 2 && self.begins_right);
        } else if sequence == 1 {
            // A start that was accepted comes before the start itself.
            self.begins_right = event_type == "StartAccepted";
        } else if sequence == 2 && self.starts == 0 {
            self.begins_right = false;
        }
        if TERMINAL.contains(&event_type) {
            self.ends += 1;
        } else if self.ends > 0 && !TRAILING.contains(&event_type) {
            let detail = format!("event {sequence}, {event_type}, follows the end of the run");
            self.found(ProblemKind::EventAfterEnd, detail);
        }
        match serde_json::from_str::<Payload>(payload) {
            Ok(payload) => self.add_call(sequence, event_type, &payload),
            Err(error) => self.unreadable(sequence, &error),
        }
    }

    fn add_call(&mut self, event: u64, event_type: &str, payload: &Payload) {
        let Some(number) = payload.sequence else {
            return;
        };
        if event_type == "CooperativeCancellationDelivered" {
            let span = payload.sequence_span.unwrap_or(1);
            let last = number.saturating_add(span).saturating_sub(1);
            self.highest_call = self.highest_call.max(last);
            return;
        }
        let Some((call, opens)) = call_of(event_type, payload.timer_kind.as_deref()) else {
            return;
        };
        if opens {
            if number <= self.highest_call {
                let detail = format!("event {event}, {event_type}, opens call {number} again");
                self.found(ProblemKind::CallWrong, detail);
            }
            self.highest_call = self.highest_call.max(number);
            self.calls.insert(number, call);
        } else if self.calls.get(&number) != Some(&call) {
            let detail = format!(
                "event {event}, {event_type}, is about call {number}, which no event opened"
            );
            self.found(ProblemKind::CallWrong, detail);
        }
        self.end_call(event, event_type, number);
    }

    fn end_call(&mut self, event: u64, event_type: &str, number: u64) {
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
            | "SignalApplied" => self.ended_calls.insert(number),
            "TimerFired" => self.ended_timers.insert(number) && self.ended_calls.insert(number),
            "TimerCancelled" => self.ended_timers.insert(number),
            _ => return,
        };
        if !is_first {
            let detail = format!("event {event}, {event_type}, ends call {number} again");
            self.found(ProblemKind::CallEndedTwice, detail);
        }
    }
}

/// Returns the kind of call that an event is about, and whether it opens it.
fn call_of(event_type: &str, timer_kind: Option<&str>) -> Option<(Call, bool)> {
    Some(match event_type {
        "ActivityScheduled" => (Call::Activity, true),
        "SignalWaitOpened" => (Call::Signal, true),
        "SignalApplied" => (Call::Signal, false),
        "ConditionWaitOpened" => (Call::Condition, true),
        "ConditionWaitSatisfied" => (Call::Condition, false),
        "ChildWorkflowScheduled" => (Call::Child, true),
        "SideEffectRecorded"
        | "VersionMarkerRecorded"
        | "SearchAttributesUpserted"
        | "MemoUpserted"
        | "WorkflowContinuedAsNew" => (Call::Record, true),
        name if name.starts_with("Activity") => (Call::Activity, false),
        name if name.starts_with("ChildRun") => (Call::Child, false),
        name if name.starts_with("Timer") => match timer_kind {
            Some("condition_timeout") => (Call::Condition, false),
            Some(_) => (Call::Signal, false),
            None => (Call::Timer, name == "TimerScheduled"),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(events: &[(u64, &str, &str)], core: &str) -> Vec<ProblemKind> {
        let mut history = History::new(Program::Code);
        for (sequence, event_type, payload) in events {
            history.add(RecordedEvent {
                sequence: *sequence,
                id: &format!("e{sequence}{event_type}"),
                event_type,
                recorded_at: Timestamp::from_micros(sequence.cast_signed()),
                payload,
            });
        }
        let bytes: usize = events
            .iter()
            .map(|(_, name, body)| name.len() + body.len())
            .sum();
        let core = core.replace("BYTES", &bytes.to_string());
        let problems = history.finish(&serde_json::from_str(&core).unwrap());
        problems.iter().map(|problem| problem.kind).collect()
    }

    fn core(last: u64, call: u64, closed: bool) -> String {
        let closed = if closed {
            r#""status":"completed","closed":{"reason":"completed","at":"2026-01-01T00:00:00.000000Z"}"#
        } else {
            r#""status":"waiting""#
        };
        format!(
            r#"{{{closed},"last_history_sequence":{last},"last_command_sequence":{call},"handled_sequence":0,
            "history_size_bytes":BYTES,"history_fan_out":0,"last_event_at":"2026-01-01T00:00:00.000000Z",
            "instance_command_sequence":1,"open":{{"activities":0,"timers":0,"unseen_signals":0}}}}"#
        )
    }

    #[test]
    fn a_right_history_has_no_problem() {
        let open = [
            (1, "StartAccepted", "{}"),
            (2, "WorkflowStarted", "{}"),
            (3, "ActivityScheduled", r#"{"sequence":1}"#),
            (4, "ActivityCompleted", r#"{"sequence":1}"#),
        ];
        assert_eq!(kinds(&open, &core(4, 1, false)), []);
        let closed = [
            (1, "WorkflowStarted", "{}"),
            (2, "WorkflowCompleted", "{}"),
            (3, "UpdateCompleted", "{}"),
        ];
        assert_eq!(kinds(&closed, &core(3, 0, true)), []);
    }

    #[test]
    fn each_rule_is_checked() {
        use ProblemKind::{
            CallEndedTwice, CallWrong, EventAfterEnd, HistoryDiffers, HistoryGap, StartEventWrong,
            TerminalEventWrong, UnreadableRow,
        };
        let start = (1, "WorkflowStarted", "{}");
        assert_eq!(
            kinds(&[start, (3, "X", "{}")], &core(3, 0, false)),
            [HistoryGap]
        );
        assert_eq!(kinds(&[start], &core(2, 0, false)), [HistoryDiffers]);
        assert_eq!(kinds(&[start], &core(1, 5, false)), [HistoryDiffers]);
        assert_eq!(
            kinds(&[(1, "X", "{}")], &core(1, 0, false)),
            [StartEventWrong]
        );
        assert_eq!(
            kinds(&[start, (2, "WorkflowStarted", "{}")], &core(2, 0, false)),
            [StartEventWrong]
        );
        assert_eq!(kinds(&[start], &core(1, 0, true)), [TerminalEventWrong]);
        assert_eq!(
            kinds(&[start, (2, "X", "[")], &core(2, 0, false)),
            [UnreadableRow]
        );
        let end = (2, "WorkflowFailed", "{}");
        assert_eq!(
            kinds(&[start, end], &core(2, 0, false)),
            [TerminalEventWrong]
        );
        assert_eq!(
            kinds(&[start, end, (3, "X", "{}")], &core(3, 0, true)),
            [EventAfterEnd]
        );
        let opened = (2, "TimerScheduled", r#"{"sequence":1}"#);
        let fired = |number| (number, "TimerFired", r#"{"sequence":1}"#);
        assert_eq!(kinds(&[start, fired(2)], &core(2, 0, false)), [CallWrong]);
        assert_eq!(
            kinds(&[start, opened, fired(3), fired(4)], &core(4, 1, false)),
            [CallEndedTwice]
        );
        let again = (3, "TimerScheduled", r#"{"sequence":1}"#);
        assert_eq!(
            kinds(&[start, opened, again], &core(3, 1, false)),
            [CallWrong]
        );
    }
}
