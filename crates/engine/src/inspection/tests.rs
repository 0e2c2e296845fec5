use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::Timestamp;

use super::*;
use crate::run::state::{Part, PartKey, Program, Run};

const SPEC: &str = r#"{"namespace":"n","workflow_id":"w","run_id":"r","run_number":1,"workflow_type":"t","task_queue":"q",
    "arguments":{"codec":"avro","blob":""},"started_at":"2026-01-01T00:00:00.000000Z",
    "routing":{"priority":5,"fairness_weight":1}}"#;

/// The state of an open run with a task that waits for a worker.
const OPEN: &str = r#""status":"waiting","workflow_task":{"id":"t","available_at":"2026-01-01T00:00:00.000000Z","attempt":0,
    "resume":{},"offered":true}"#;
const IDLE: &str = r#""status":"waiting""#;
const COMPLETED: &str =
    r#""status":"completed","closed":{"reason":"completed","at":"2026-01-01T00:00:00.000000Z"}"#;
const CONTINUED: &str = r#""status":"completed","closed":{"reason":"continued","at":"2026-01-01T00:00:00.000000Z",
    "continued_to":"next"}"#;

type Events<'a> = &'a [(u64, &'a str, &'a str)];

fn run_of(state: &str, last: u64, call: u64, bytes: usize) -> Run {
    let core = format!(
        r#"{{{state},"last_history_sequence":{last},"last_command_sequence":{call},"handled_sequence":0,
        "history_size_bytes":{bytes},"history_fan_out":0,"last_event_at":"2026-01-01T00:00:00.000000Z",
        "instance_command_sequence":1,"open":{{"activities":0,"timers":0,"unseen_signals":0}}}}"#
    );
    let core = serde_json::from_str(&core).unwrap();
    let spec = serde_json::from_str(SPEC).unwrap();
    Run::new(1, Arc::new(spec), core, BTreeMap::new())
}

fn fold(events: Events<'_>) -> (History, usize) {
    let mut history = History::new(Program::Code);
    for (sequence, event_type, payload) in events {
        history.add(RecordedEvent {
            sequence: *sequence,
            id: &format!("e{sequence}{event_type}"),
            event_type,
            recorded_at: Timestamp::from_micros(sequence.cast_signed()),
            workflow_task_id: None,
            payload,
        });
    }
    let sizes = events.iter().map(|(_, name, body)| name.len() + body.len());
    (history, sizes.sum())
}

/// Returns what is wrong with a history whose run has this state, newest event and highest call.
fn kinds(events: Events<'_>, state: &str, last: u64, call: u64) -> Vec<ProblemKind> {
    let (history, bytes) = fold(events);
    kinds_in(&history.finish(&run_of(state, last, call, bytes)))
}

fn kinds_in(problems: &[Problem]) -> Vec<ProblemKind> {
    problems.iter().map(|problem| problem.kind).collect()
}

const START: (u64, &str, &str) = (1, "WorkflowStarted", "{}");

#[test]
fn a_right_history_has_no_problem() {
    let open = [
        (1, "StartAccepted", "{}"),
        (2, "WorkflowStarted", "{}"),
        (3, "ActivityScheduled", r#"{"sequence":1}"#),
        (4, "ActivityCompleted", r#"{"sequence":1}"#),
    ];
    assert_eq!(kinds(&open, OPEN, 4, 1), []);
    let update = r#"{"update_id":"u","workflow_command_id":"c"}"#;
    let failed = r#"{"update_id":"u","workflow_command_id":"c","failure_id":"f"}"#;
    let closed = [
        START,
        (2, "UpdateAccepted", update),
        (3, "WorkflowCompleted", "{}"),
        (4, "UpdateCompleted", failed),
    ];
    assert_eq!(kinds(&closed, COMPLETED, 4, 0), []);
}

#[test]
fn each_rule_of_events_is_checked() {
    use ProblemKind::{
        EventAfterEnd, HistoryDiffers, HistoryGap, StartEventWrong, TerminalEventWrong,
        UnreadableRow,
    };
    let other = |number| (number, "X", "{}");
    assert_eq!(kinds(&[START, other(3)], OPEN, 3, 0), [HistoryGap]);
    assert_eq!(kinds(&[START], OPEN, 2, 0), [HistoryDiffers]);
    assert_eq!(kinds(&[START], OPEN, 1, 5), [HistoryDiffers]);
    assert_eq!(kinds(&[other(1)], OPEN, 1, 0), [StartEventWrong]);
    let again = (2, "WorkflowStarted", "{}");
    assert_eq!(kinds(&[START, again], OPEN, 2, 0), [StartEventWrong]);
    assert_eq!(kinds(&[START], COMPLETED, 1, 0), [TerminalEventWrong]);
    let broken = (2, "X", "[");
    assert_eq!(kinds(&[START, broken], OPEN, 2, 0), [UnreadableRow]);
    let end = (2, "WorkflowFailed", "{}");
    assert_eq!(kinds(&[START, end], OPEN, 2, 0), [TerminalEventWrong]);
    assert_eq!(
        kinds(&[START, end, other(3)], COMPLETED, 3, 0),
        [EventAfterEnd]
    );
}

#[test]
fn each_rule_of_calls_is_checked() {
    use ProblemKind::{CallEndedTwice, CallWrong, GroupWrong};
    let opened = (2, "TimerScheduled", r#"{"sequence":1}"#);
    let fired = |number| (number, "TimerFired", r#"{"sequence":1}"#);
    assert_eq!(kinds(&[START, fired(2)], OPEN, 2, 0), [CallWrong]);
    assert_eq!(
        kinds(&[START, opened, fired(3), fired(4)], OPEN, 4, 1),
        [CallEndedTwice]
    );
    let again = (3, "TimerScheduled", r#"{"sequence":1}"#);
    assert_eq!(kinds(&[START, opened, again], OPEN, 3, 1), [CallWrong]);
    let later = r#"{"sequence":1,"fire_at":"2026-01-01T00:00:00.000000Z"}"#;
    let opened = (2, "TimerScheduled", later);
    assert_eq!(kinds(&[START, opened, fired(3)], OPEN, 3, 1), [CallWrong]);
    let scheduled = (2, "ActivityScheduled", r#"{"sequence":1}"#);
    let started = |number| {
        let payload = r#"{"sequence":1,"attempt_number":1}"#;
        (number, "ActivityStarted", payload)
    };
    assert_eq!(
        kinds(&[START, scheduled, started(3), started(4)], OPEN, 4, 1),
        [CallWrong]
    );
    let member = r#"{"sequence":1,"parallel_group_path":[{"parallel_group_base_sequence":1,"parallel_group_index":0,
        "parallel_group_size":2}]}"#;
    let alone = (2, "ActivityScheduled", member);
    assert_eq!(kinds(&[START, alone], OPEN, 2, 1), [GroupWrong]);
    let strayed = member.replace(r#""parallel_group_size":2"#, r#""parallel_group_size":1"#);
    let alone = (2, "ActivityScheduled", strayed.as_str());
    assert_eq!(kinds(&[START, alone], OPEN, 2, 1), []);
    let ended = (3, "ActivityCompleted", r#"{"sequence":1}"#);
    assert_eq!(kinds(&[START, alone, ended], OPEN, 3, 1), [GroupWrong]);
    let index = strayed.replace(r#""parallel_group_index":0"#, r#""parallel_group_index":1"#);
    let alone = (2, "ActivityScheduled", index.as_str());
    assert_eq!(kinds(&[START, alone], OPEN, 2, 1), [GroupWrong]);
}

#[test]
fn a_selection_is_decided_once_by_its_first_member() {
    use ProblemKind::SelectionWrong;
    let member = r#"{"sequence":1,"parallel_group_path":[{"parallel_group_base_sequence":1,"parallel_group_index":0,
        "parallel_group_size":1,"parallel_group_mode":"select","parallel_group_id":"g","selection_member_base_sequence":1,
        "selection_member_size":1}]}"#;
    let opened = (2, "ActivityScheduled", member);
    let ended = (3, "ActivityCompleted", member);
    let chosen = r#"{"selection_group_id":"g","member_base_sequence":1,"outcome":"completed",
        "resolution_event_id":"e3ActivityCompleted"}"#;
    let choice = |number| (number, "SelectionResolved", chosen);
    assert_eq!(kinds(&[START, opened, ended, choice(4)], OPEN, 4, 1), []);
    assert_eq!(kinds(&[START, opened, ended], OPEN, 3, 1), [SelectionWrong]);
    assert_eq!(
        kinds(&[START, opened, ended, choice(4), choice(5)], OPEN, 5, 1),
        [SelectionWrong]
    );
    let other = chosen.replace("e3ActivityCompleted", "e1");
    let other = (4, "SelectionResolved", other.as_str());
    assert_eq!(
        kinds(&[START, opened, ended, other], OPEN, 4, 1),
        [SelectionWrong]
    );
    assert_eq!(
        kinds(&[START, opened, ended, (4, "X", "{}")], OPEN, 4, 1),
        [SelectionWrong]
    );
}

#[test]
fn updates_end_once_and_signals_are_applied_once() {
    use ProblemKind::{SignalWrong, UpdateWrong};
    let update = r#"{"update_id":"u","workflow_command_id":"c"}"#;
    let event = |number, name| (number, name, update);
    let accepted = event(2, "UpdateAccepted");
    let applied = event(3, "UpdateApplied");
    let completed = event(4, "UpdateCompleted");
    assert_eq!(
        kinds(&[START, accepted, applied, completed], OPEN, 4, 0),
        []
    );
    assert_eq!(kinds(&[START, accepted], OPEN, 2, 0), [UpdateWrong]);
    let unapplied = event(3, "UpdateCompleted");
    assert_eq!(
        kinds(&[START, accepted, unapplied], OPEN, 3, 0),
        [UpdateWrong]
    );
    let again = event(5, "UpdateCompleted");
    assert_eq!(
        kinds(&[START, accepted, applied, completed, again], OPEN, 5, 0),
        [UpdateWrong]
    );
    let signal = r#"{"signal_name":"go","workflow_command_id":"c"}"#;
    let waiting = (2, "SignalWaitOpened", r#"{"sequence":1}"#);
    let taken = r#"{"signal_name":"go","workflow_command_id":"c","sequence":1}"#;
    let taken = (3, "SignalApplied", taken);
    assert_eq!(kinds(&[START, waiting, taken], OPEN, 3, 1), [SignalWrong]);
    let received = (3, "SignalReceived", signal);
    let taken = (4, taken.1, taken.2);
    assert_eq!(kinds(&[START, waiting, received, taken], OPEN, 4, 1), []);
}

#[test]
fn an_open_run_waits_for_something_and_sees_every_wake() {
    use ProblemKind::{NothingOpen, WakeLost};
    assert_eq!(kinds(&[START], IDLE, 1, 0), [NothingOpen, WakeLost]);
    let (history, bytes) = fold(&[START]);
    let mut run = run_of(IDLE, 1, 0, bytes);
    run.core.handled_sequence = 1.into();
    assert_eq!(history.finish(&run), []);
    let signal = r#"{"signal_name":"go","workflow_command_id":"c"}"#;
    let (history, bytes) = fold(&[START, (2, "SignalReceived", signal)]);
    let mut run = run_of(IDLE, 2, 0, bytes);
    run.core.handled_sequence = 1.into();
    let timer = r#"{"timer":{"id":"t","sequence":1,"delay_seconds":1,"fire_at":"2026-01-01T00:00:00.000000Z","kind":"plain"}}"#;
    let timer: Part = serde_json::from_str(timer).unwrap();
    run.parts.insert(PartKey::Timer(1.into()), timer);
    assert_eq!(kinds_in(&history.finish(&run)), [WakeLost]);
}

#[test]
fn a_closed_parent_treats_each_open_child_once() {
    use ProblemKind::ClosePolicyWrong;
    let child =
        r#"{"sequence":1,"child_workflow_instance_id":"c","parent_close_policy":"terminate"}"#;
    let scheduled = (2, "ChildWorkflowScheduled", child);
    let end = (3, "WorkflowCompleted", "{}");
    let informed = |number| {
        let payload = r#"{"child_instance_id":"c"}"#;
        (number, "ParentClosePolicyApplied", payload)
    };
    let once = [START, scheduled, end, informed(4)];
    assert_eq!(kinds(&once, COMPLETED, 4, 1), []);
    assert_eq!(kinds(&once[..3], COMPLETED, 3, 1), [ClosePolicyWrong]);
    let twice = [START, scheduled, end, informed(4), informed(5)];
    assert_eq!(kinds(&twice, COMPLETED, 5, 1), [ClosePolicyWrong]);
    let left = child.replace("terminate", "abandon");
    let left = [START, (2, "ChildWorkflowScheduled", left.as_str()), end];
    assert_eq!(kinds(&left, COMPLETED, 3, 1), []);
}

#[test]
fn a_continued_run_has_one_successor_with_its_deadline_and_call() {
    use ProblemKind::{ChainWrong, ParentWrong};
    let first = run_of(CONTINUED, 1, 0, 0);
    assert_eq!(kinds_in(&check_chain(&first, None, false)), [ChainWrong]);
    assert_eq!(check_chain(&first, None, true), []);
    let before = Before::new(
        (*first.spec).clone(),
        first.core.clone(),
        Vec::new(),
        std::iter::empty(),
    );
    let mut next = run_of(OPEN, 1, 0, 0);
    let spec = Arc::make_mut(&mut next.spec);
    spec.run_id = "next".into();
    spec.continued_from = Some("r".into());
    assert_eq!(check_chain(&next, Some(&before), false), []);
    assert_eq!(kinds_in(&check_chain(&next, None, false)), [ChainWrong]);
    let mut late = next.clone();
    Arc::make_mut(&mut late.spec).execution_deadline_at = Some(Timestamp::from_micros(7));
    assert_eq!(
        kinds_in(&check_chain(&late, Some(&before), false)),
        [ChainWrong]
    );
    let mut other = next.clone();
    Arc::make_mut(&mut other.spec).run_id = "other".into();
    assert_eq!(
        kinds_in(&check_chain(&other, Some(&before), false)),
        [ChainWrong, ChainWrong]
    );
    let parent = r#"{"workflow_id":"p","run_id":"pr","sequence":3,"call_id":"cc","attempt":1}"#;
    let parent = serde_json::from_str(parent).unwrap();
    Arc::make_mut(&mut next.spec).parent = Some(Box::new(parent));
    assert_eq!(
        kinds_in(&check_chain(&next, Some(&before), false)),
        [ParentWrong]
    );
    let call = |id| {
        let payload =
            format!(r#"{{"sequence":3,"child_call_id":"{id}","child_workflow_instance_id":"w"}}"#);
        [ChildCall::read(&payload).unwrap()]
    };
    assert_eq!(check_parent(&next, &call("cc")), None);
    let problem = check_parent(&next, &call("another")).unwrap();
    assert_eq!(problem.kind, ParentWrong);
}
