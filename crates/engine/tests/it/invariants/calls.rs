//! Durable calls: one opening event each, at most one end, and the open parts of the run equal those that a fold of its history
//! leaves open.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::run::state::{Part, PartKey, Run, TimerKind};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::Event;
use serde_json::Value;

use super::events;
use crate::world::World;

const ACTIVITY_END: [&str; 4] = [
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityCancelled",
];
const CHILD_END: [&str; 4] = [
    "ChildRunCompleted",
    "ChildRunFailed",
    "ChildRunCancelled",
    "ChildRunTerminated",
];

/// Returns the kind of call that an event is about, and whether it opens it.
fn kind(event: &Event, body: &Value) -> Option<(&'static str, bool)> {
    let timeout_of = body.get("timer_kind").and_then(Value::as_str);
    Some(match event.event_type {
        "ActivityScheduled" => ("activity", true),
        name if name.starts_with("Activity") => ("activity", false),
        name if name.starts_with("Timer") => match timeout_of {
            Some("condition_timeout") => ("condition", false),
            Some(_) => ("signal", false),
            None => ("timer", name == "TimerScheduled"),
        },
        "ChildWorkflowScheduled" => ("child", true),
        name if name.starts_with("ChildRun") => ("child", false),
        "SignalWaitOpened" => ("signal", true),
        "SignalApplied" => ("signal", false),
        "ConditionWaitOpened" => ("condition", true),
        "ConditionWaitSatisfied" => ("condition", false),
        "SideEffectRecorded" => ("side effect", true),
        "VersionMarkerRecorded" => ("version marker", true),
        "SearchAttributesUpserted" => ("attributes", true),
        "MemoUpserted" => ("memo", true),
        "WorkflowContinuedAsNew" => ("continue", true),
        _ => return None,
    })
}

struct Call<'a> {
    kind: &'static str,
    opened: &'a Event,
    path: Option<&'a Value>,
}

#[derive(Default)]
struct Fold<'a> {
    calls: BTreeMap<u64, Call<'a>>,
    highest: u64,
    /// Ended activities, waits, children and plain timers.
    ended: BTreeSet<u64>,
    timers: BTreeMap<u64, Timestamp>,
    timer_over: BTreeSet<u64>,
    attempts: BTreeMap<u64, u64>,
}

pub(super) fn check(world: &World, run: &Run) {
    let mut fold = Fold::default();
    for (event, body) in events(world, run) {
        fold.read(event, body);
    }
    assert_eq!(
        run.core.last_command_sequence, fold.highest,
        "10: the core has the highest command sequence"
    );
    check_groups(&fold);
    if run.core.closed.is_none() {
        check_open(run, &fold);
    }
}

fn number(body: &Value, key: &str) -> Option<u64> {
    body.get(key).and_then(Value::as_u64)
}

impl<'a> Fold<'a> {
    fn read(&mut self, event: &'a Event, body: &'a Value) {
        match event.event_type {
            "SelectionOperationCancelled" => {
                let base = number(body, "member_base_sequence").unwrap();
                self.give_up(base, number(body, "member_size").unwrap());
            }
            "CooperativeCancellationDelivered" => {
                let (base, span) = (
                    number(body, "sequence").unwrap(),
                    number(body, "sequence_span").unwrap(),
                );
                match number(body, "operation_sequence") {
                    Some(operation) => {
                        let span = number(body, "operation_sequence_span").unwrap_or(1);
                        self.interrupt(operation, span);
                    }
                    None => self.interrupt(base, span),
                }
                self.highest = self.highest.max(base + span - 1);
            }
            _ => {}
        }
        let (Some((kind, opens)), Some(sequence)) = (kind(event, body), number(body, "sequence"))
        else {
            return;
        };
        let path = body.get("parallel_group_path");
        if opens {
            assert!(
                sequence > self.highest,
                "6: first appearances ascend ({sequence} after {})",
                self.highest
            );
            self.highest = sequence;
            let opened = event;
            self.calls.insert(sequence, Call { kind, opened, path });
        }
        let call = self.calls.get(&sequence);
        let call = call.unwrap_or_else(|| panic!("7: {} {sequence} was opened", event.event_type));
        assert_eq!(call.kind, kind, "7: call {sequence} has one kind");
        if event.event_type != "ActivityHeartbeatRecorded" {
            assert_eq!(
                call.path, path,
                "9: {} {sequence} has its call's path",
                event.event_type
            );
        }
        for level in path.and_then(Value::as_array).into_iter().flatten() {
            let base = number(level, "parallel_group_base_sequence").unwrap();
            let index = number(level, "parallel_group_index").unwrap();
            assert_eq!(
                base + index,
                sequence,
                "9: base and index give the sequence"
            );
        }
        self.follow(event, body, sequence);
    }

    fn follow(&mut self, event: &Event, body: &Value, sequence: u64) {
        let internal = body.get("timer_kind").is_some();
        match event.event_type {
            "ActivityStarted" => {
                let number = number(body, "attempt_number").unwrap();
                let before = self.attempts.insert(sequence, number).unwrap_or(0);
                assert!(number > before, "36: attempt numbers increase");
                assert!(
                    !self.ended.contains(&sequence),
                    "14: nothing starts after the end"
                );
            }
            name if ACTIVITY_END.contains(&name) => {
                assert!(self.ended.insert(sequence), "14: one end per activity");
            }
            name if CHILD_END.contains(&name) => {
                assert!(self.ended.insert(sequence), "17: one end per child");
            }
            "ChildRunStarted" => {
                assert!(
                    !self.ended.contains(&sequence),
                    "17: no run starts after the end"
                );
            }
            "TimerScheduled" => {
                let fire_at = body["fire_at"].as_str().unwrap().parse().unwrap();
                let before = self.timers.insert(sequence, fire_at);
                assert_eq!(before, None, "44: the deadline of a wait never moves");
            }
            "TimerFired" => {
                assert!(self.timer_over.insert(sequence), "16: a timer ends once");
                assert!(
                    event.recorded_at >= self.timers[&sequence],
                    "16: a timer never fires early"
                );
                assert!(
                    self.ended.insert(sequence),
                    "18: one end per timer and wait"
                );
            }
            "TimerCancelled" => {
                assert!(self.timer_over.insert(sequence), "16: a timer ends once");
                if !internal {
                    self.ended.insert(sequence);
                }
            }
            "ConditionWaitSatisfied" => {
                assert!(self.ended.insert(sequence), "18: a wait is resolved once");
            }
            "SignalApplied" => assert!(self.ended.insert(sequence), "19: one signal per wait"),
            _ => {}
        }
    }

    /// Ends the calls of a cancelled member: they have no event of their own, except for activities and timers.
    fn give_up(&mut self, base: u64, size: u64) {
        for sequence in base..base + size {
            self.ended.insert(sequence);
        }
    }

    /// Ends the waits that a delivery interrupts; activities and timers have their own events, and children continue.
    fn interrupt(&mut self, base: u64, span: u64) {
        for sequence in base..base.saturating_add(span) {
            let kind = self.calls.get(&sequence).map(|call| call.kind);
            if matches!(kind, Some("signal" | "condition")) {
                self.ended.insert(sequence);
            }
        }
    }

    fn open(&self, kind: &str) -> BTreeSet<u64> {
        let open = self
            .calls
            .iter()
            .filter(|(sequence, call)| call.kind == kind && !self.ended.contains(sequence));
        open.map(|(sequence, _)| *sequence).collect()
    }
}

/// 9: checks that every member of a group was opened by one decision.
fn check_groups(fold: &Fold<'_>) {
    for (sequence, call) in &fold.calls {
        let Some(outermost) = call.path.and_then(|path| path.get(0)) else {
            continue;
        };
        let base = number(outermost, "parallel_group_base_sequence").unwrap();
        let size = number(outermost, "parallel_group_size").unwrap();
        for member in base..base + size {
            let other = fold.calls.get(&member);
            assert!(
                other.is_some_and(|other| {
                    other.opened.workflow_task_id == call.opened.workflow_task_id
                        && other.opened.recorded_at == call.opened.recorded_at
                }),
                "9: {member} was opened together with {sequence}"
            );
        }
    }
}

/// Checks that the open parts equal those that a fold of history leaves open.
fn check_open(run: &Run, fold: &Fold<'_>) {
    let found = |pick: fn(&PartKey) -> Option<u64>| -> BTreeSet<u64> {
        run.parts.keys().filter_map(pick).collect()
    };
    let activities = found(|key| match key {
        PartKey::Activity(sequence) => Some(sequence.get()),
        _ => None,
    });
    let mut every = found(|key| match key {
        PartKey::LocalActivity(sequence) => Some(sequence.get()),
        _ => None,
    });
    every.extend(&activities);
    assert_eq!(every, fold.open("activity"), "open activities");
    assert_eq!(
        run.core.open.activities,
        activities.len() as u64,
        "open activities are counted"
    );
    let children = found(|key| match key {
        PartKey::Child(sequence) => Some(sequence.get()),
        _ => None,
    });
    assert_eq!(children, fold.open("child"), "open children");
    assert_eq!(
        run.core.open.children,
        children.len() as u64,
        "open children are counted"
    );
    let waits = found(|key| match key {
        PartKey::Wait(sequence) => Some(sequence.get()),
        _ => None,
    });
    let mut expected = fold.open("condition");
    expected.extend(fold.open("signal"));
    assert_eq!(waits, expected, "open waits");
    let timers = run.parts.values().filter_map(|part| match part {
        Part::Timer(timer) => Some(timer),
        _ => None,
    });
    let (plain, internal): (Vec<_>, Vec<_>) =
        timers.partition(|timer| timer.kind == TimerKind::Plain);
    let plain: BTreeSet<u64> = plain.iter().map(|timer| timer.sequence.get()).collect();
    assert_eq!(plain, fold.open("timer"), "open timers");
    for timer in internal {
        assert!(
            waits.contains(&timer.sequence.get()),
            "a timeout has its wait"
        );
    }
}
