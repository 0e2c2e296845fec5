//! What must hold after every step (engine.md §13), read from histories, rows and state by code that shares nothing with the
//! engine's own. The numbers in the messages are the document's.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::change::{TaskKind, TaskStatus};
use longhaul_engine::run::state::{Message, Part, PartKey, Run, TimerKind};
use longhaul_protocol::Timestamp;
use longhaul_protocol::history::Event;
use serde_json::Value;

use crate::world::World;

const TERMINAL: [&str; 6] = [
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowTimedOut",
    "WorkflowContinuedAsNew",
    "WorkflowCancelled",
    "WorkflowTerminated",
];
const OPENING: [&str; 8] = [
    "ActivityScheduled",
    "TimerScheduled",
    "SignalWaitOpened",
    "ConditionWaitOpened",
    "SideEffectRecorded",
    "VersionMarkerRecorded",
    "SearchAttributesUpserted",
    "MemoUpserted",
];
const ACTIVITY_END: [&str; 4] = [
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityCancelled",
];

pub(crate) fn check(world: &World) {
    let mut ids = BTreeSet::new();
    for (run_id, run) in &world.runs {
        let history = &world.histories[run_id];
        check_history(history, run);
        check_calls(history, run);
        check_run(world, run, history);
        for event in history {
            assert!(ids.insert(event.id.clone()), "2: event ids are unique");
        }
    }
    let open: Vec<_> = world
        .runs
        .values()
        .filter(|run| run.core.closed.is_none())
        .collect();
    assert!(
        open.len() <= 1,
        "46: a workflow id has at most one open run"
    );
    let mut numbers: Vec<u64> = world.runs.values().map(|run| run.spec.run_number).collect();
    numbers.sort_unstable();
    assert_eq!(
        numbers,
        (1..=world.runs.len() as u64).collect::<Vec<_>>(),
        "47: run numbers are 1..k"
    );
    check_signals(world);
}

fn payload(event: &Event) -> Value {
    serde_json::from_str(&event.payload).expect("a payload is JSON")
}

fn check_history(history: &[Event], run: &Run) {
    for (place, event) in history.iter().enumerate() {
        assert_eq!(event.sequence, place as u64 + 1, "1: sequences are gapless");
    }
    assert_eq!(
        run.core.last_history_sequence,
        history.len() as u64,
        "1: the newest sequence is known"
    );
    assert!(
        history.is_sorted_by_key(|event| event.recorded_at),
        "3: recording times never step back"
    );
    let types: Vec<&str> = history.iter().map(|event| event.event_type).collect();
    let head: Vec<&str> = types.iter().copied().take(2).collect();
    assert!(
        head == ["StartAccepted", "WorkflowStarted"] || head.first() == Some(&"WorkflowStarted"),
        "4: how a history begins: {head:?}"
    );
    assert_eq!(
        types
            .iter()
            .filter(|name| **name == "WorkflowStarted")
            .count(),
        1,
        "5: one WorkflowStarted"
    );
    let ends = types.iter().filter(|name| TERMINAL.contains(name)).count();
    assert_eq!(
        ends,
        usize::from(run.core.status.is_terminal()),
        "11: one terminal event iff closed"
    );
    if ends == 1 {
        assert!(
            types.last().is_some_and(|name| TERMINAL.contains(name)),
            "12: nothing follows the terminal event"
        );
    }
    let size: usize = history
        .iter()
        .map(|event| event.event_type.len() + event.payload.len())
        .sum();
    assert_eq!(
        run.core.history_size_bytes, size as u64,
        "the history's size is known"
    );
}

fn check_calls(history: &[Event], run: &Run) {
    let mut opened: BTreeMap<u64, &str> = BTreeMap::new();
    let mut highest = 0;
    let mut ended: BTreeSet<u64> = BTreeSet::new();
    let mut timers: BTreeMap<u64, Timestamp> = BTreeMap::new();
    let mut timer_over: BTreeSet<u64> = BTreeSet::new();
    let mut resolved: BTreeSet<u64> = BTreeSet::new();
    let mut applied: BTreeSet<u64> = BTreeSet::new();
    let mut attempts: BTreeMap<u64, u64> = BTreeMap::new();
    for event in history {
        let body = payload(event);
        let Some(sequence) = body.get("sequence").and_then(Value::as_u64) else {
            continue;
        };
        let internal = body.get("timer_kind").is_some();
        if (OPENING.contains(&event.event_type) && !internal)
            || event.event_type == "WorkflowContinuedAsNew"
        {
            assert!(
                sequence > highest,
                "6: first appearances ascend ({sequence} after {highest})"
            );
            assert!(
                opened.insert(sequence, event.event_type).is_none(),
                "8: one opening event per call"
            );
            highest = sequence;
        } else if !internal || event.event_type != "TimerScheduled" {
            assert!(
                opened.contains_key(&sequence),
                "7: the opening event comes first ({} {sequence})",
                event.event_type
            );
        }
        if let Some(path) = body.get("parallel_group_path").and_then(Value::as_array) {
            for level in path {
                let base = level["parallel_group_base_sequence"].as_u64().unwrap();
                assert_eq!(
                    base + level["parallel_group_index"].as_u64().unwrap(),
                    sequence,
                    "9: base and index give the sequence"
                );
            }
        }
        match event.event_type {
            "ActivityStarted" => {
                let number = body["attempt_number"].as_u64().unwrap();
                let before = attempts.insert(sequence, number).unwrap_or(0);
                assert!(number > before, "36: attempt numbers increase");
                assert!(
                    !ended.contains(&sequence),
                    "14: nothing starts after the end"
                );
            }
            name if ACTIVITY_END.contains(&name) => {
                assert!(ended.insert(sequence), "14: one end per activity")
            }
            "TimerScheduled" => {
                timers.insert(sequence, body["fire_at"].as_str().unwrap().parse().unwrap());
            }
            "TimerFired" => {
                assert!(timer_over.insert(sequence), "16: a timer ends once");
                assert!(
                    event.recorded_at >= timers[&sequence],
                    "16: a timer never fires early"
                );
                if internal {
                    assert!(resolved.insert(sequence), "18: a wait is resolved once");
                }
            }
            "TimerCancelled" => assert!(timer_over.insert(sequence), "16: a timer ends once"),
            "ConditionWaitSatisfied" => {
                assert!(resolved.insert(sequence), "18: a wait is resolved once")
            }
            "SignalApplied" => assert!(applied.insert(sequence), "19: one signal per wait"),
            _ => {}
        }
    }
    assert_eq!(
        run.core.last_command_sequence, highest,
        "10: the highest command sequence is known"
    );
    check_open_calls(run, &opened, &ended, &timer_over, &resolved, &applied);
}

/// State is what a fold of history says is still open.
fn check_open_calls(
    run: &Run,
    opened: &BTreeMap<u64, &str>,
    ended: &BTreeSet<u64>,
    timer_over: &BTreeSet<u64>,
    resolved: &BTreeSet<u64>,
    applied: &BTreeSet<u64>,
) {
    if run.core.closed.is_some() {
        return;
    }
    let expected = |kind: &str, over: &BTreeSet<u64>| -> BTreeSet<u64> {
        opened
            .iter()
            .filter(|(sequence, name)| **name == kind && !over.contains(sequence))
            .map(|(sequence, _)| *sequence)
            .collect()
    };
    let found = |pick: fn(&PartKey) -> Option<u64>| -> BTreeSet<u64> {
        run.parts.keys().filter_map(pick).collect()
    };
    let activities = found(|key| {
        if let PartKey::Activity(sequence) = key {
            Some(*sequence)
        } else {
            None
        }
    });
    assert_eq!(
        activities,
        expected("ActivityScheduled", ended),
        "open activities equal the fold of history"
    );
    assert_eq!(
        run.core.open.activities,
        activities.len() as u64,
        "open activities are counted"
    );
    let waits = found(|key| {
        if let PartKey::Wait(sequence) = key {
            Some(*sequence)
        } else {
            None
        }
    });
    let over: BTreeSet<u64> = resolved.union(applied).copied().collect();
    let expected_waits: BTreeSet<u64> = expected("ConditionWaitOpened", &over)
        .union(&expected("SignalWaitOpened", &over))
        .copied()
        .collect();
    assert_eq!(
        waits, expected_waits,
        "open waits equal the fold of history"
    );
    let plain: BTreeSet<u64> = run
        .parts
        .values()
        .filter_map(|part| {
            if let Part::Timer(timer) = part {
                Some(timer)
            } else {
                None
            }
        })
        .filter(|timer| timer.kind == TimerKind::Plain)
        .map(|timer| timer.sequence)
        .collect();
    assert_eq!(
        plain,
        expected("TimerScheduled", timer_over),
        "open timers equal the fold of history"
    );
}

fn check_run(world: &World, run: &Run, history: &[Event]) {
    let rows: Vec<_> = world
        .tasks
        .values()
        .filter(|row| row.run_id == *run.run_id())
        .collect();
    let open: Vec<_> = rows.iter().filter(|row| row.status.is_open()).collect();
    if run.core.closed.is_some() {
        assert!(open.is_empty(), "13: a closed run has no open task");
        assert!(
            run.parts.keys().all(|key| *key == PartKey::Outcome),
            "13: nothing is open in a closed run: {:?}",
            run.parts.keys()
        );
        assert_eq!(run.core.alarm, None, "a closed run has no alarm");
        return;
    }
    let workflow: Vec<_> = open
        .iter()
        .filter(|row| row.kind == TaskKind::Workflow)
        .collect();
    assert!(workflow.len() <= 1, "22: one open workflow task");
    assert_eq!(
        workflow.len(),
        usize::from(run.core.workflow_task.is_some()),
        "the open workflow task has a row"
    );
    let leased = run
        .core
        .workflow_task
        .as_ref()
        .is_some_and(|task| task.lease.is_some());
    assert_eq!(
        leased,
        workflow.iter().any(|row| row.status == TaskStatus::Leased),
        "the row agrees on the lease"
    );
    let mut by_call: BTreeMap<u64, usize> = BTreeMap::new();
    for row in open.iter().filter(|row| row.kind == TaskKind::Activity) {
        *by_call.entry(row.sequence).or_default() += 1;
    }
    for (sequence, count) in &by_call {
        assert_eq!(*count, 1, "22: one open task for activity {sequence}");
    }
    let activities = run
        .parts
        .keys()
        .filter(|key| matches!(key, PartKey::Activity(_)))
        .count();
    assert_eq!(
        by_call.len(),
        activities,
        "29: every open activity has a task"
    );
    let buffered = run
        .parts
        .keys()
        .any(|key| matches!(key, PartKey::Buffered(_)));
    assert!(
        !buffered || leased,
        "26: messages are buffered only behind a lease"
    );
    assert!(
        run.core.next_wake.is_none() || leased,
        "25: a wake waits only behind a lease"
    );
    let waiting = run.core.workflow_task.is_some()
        || run.parts.keys().any(|key| {
            matches!(
                key,
                PartKey::Activity(_) | PartKey::Timer(_) | PartKey::Wait(_)
            )
        });
    // A worker that has seen everything and asks for nothing leaves the run to signals and operators.
    let asked_for_nothing = run.core.handled_sequence == run.core.last_history_sequence;
    assert!(
        waiting || asked_for_nothing,
        "28: an open run waits for something"
    );
    check_no_lost_wake(run, history, leased);
    check_alarm(world, run, leased);
}

/// A resolution that no completed task has observed has a task waiting, or waits behind the lease.
fn check_no_lost_wake(run: &Run, history: &[Event], leased: bool) {
    if run.core.workflow_task.is_some() && !leased {
        return;
    }
    let observed = run
        .core
        .workflow_task
        .as_ref()
        .and_then(|task| task.lease.as_ref())
        .map_or(run.core.handled_sequence, |lease| lease.observed_sequence);
    // A failed group takes no interest in signals until it is whole.
    let mute = run
        .parts
        .values()
        .any(|part| matches!(part, Part::Group(group) if group.failed && group.unresolved > 0));
    let unseen = history
        .iter()
        .filter(|event| event.sequence > observed)
        .find(|event| {
            let body = payload(event);
            let grouped = body.get("parallel_group_path").is_some();
            let internal_cause = event.workflow_task_id.is_some();
            let wakes = match event.event_type {
                "ActivityCompleted" | "ActivityFailed" | "ActivityTimedOut" | "TimerFired" => true,
                "SignalReceived" => !mute,
                _ => false,
            };
            wakes && !grouped && !internal_cause
        });
    if let Some(event) = unseen {
        assert!(
            run.core.next_wake.is_some(),
            "25: {} at {} waits for a task",
            event.event_type,
            event.sequence
        );
    }
}

/// The alarm is never later than what is due first.
fn check_alarm(world: &World, run: &Run, leased: bool) {
    let mut due: Vec<Timestamp> = [run.spec.run_deadline_at, run.spec.execution_deadline_at]
        .into_iter()
        .flatten()
        .collect();
    if let Some(task) = &run.core.workflow_task {
        due.extend(task.lease.as_ref().map(|lease| lease.expires_at));
    }
    for part in run.parts.values() {
        match part {
            Part::Activity(activity) => {
                due.extend(activity.schedule_to_close_deadline_at);
                match &activity.attempt {
                    Some(attempt) => due.extend(
                        [
                            attempt.lease_expires_at,
                            attempt.close_deadline_at,
                            attempt.heartbeat_deadline_at,
                        ]
                        .into_iter()
                        .flatten(),
                    ),
                    None => due.extend(activity.schedule_deadline_at),
                }
            }
            Part::Timer(timer) if timer.kind == TimerKind::Plain || !leased => {
                due.push(timer.fire_at)
            }
            _ => {}
        }
    }
    for row in world
        .open_rows()
        .iter()
        .filter(|row| row.status == TaskStatus::Scheduled)
    {
        due.push(row.available_at);
    }
    if let Some(first) = due.into_iter().min() {
        assert!(
            run.core.alarm.is_some_and(|alarm| alarm <= first),
            "30: the alarm {:?} is not later than {first}",
            run.core.alarm
        );
    }
}

/// Every accepted signal is buffered, or stands in exactly one history, in command order.
fn check_signals(world: &World) {
    let accepted: Vec<&str> = world
        .commands
        .iter()
        .filter(|row| row.command_type == "signal" && row.status == "accepted")
        .map(|row| row.command_id.as_str())
        .collect();
    let mut seen = Vec::new();
    let mut runs: Vec<&Run> = world.runs.values().collect();
    runs.sort_by_key(|run| run.spec.run_number);
    for run in &runs {
        for event in world.histories[run.run_id()]
            .iter()
            .filter(|event| event.event_type == "SignalReceived")
        {
            seen.push(
                payload(event)["workflow_command_id"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    for run in &runs {
        for part in run.parts.values() {
            if let Part::Buffered(message) = part
                && let Message::Signal(signal) = &**message
            {
                seen.push(signal.command_id.to_string());
            }
        }
    }
    assert_eq!(
        seen, accepted,
        "26: no signal is lost, doubled or reordered"
    );
}
