//! Messages: every accepted signal is in one history or buffered, in order; every update ends once; stream messages have positions
//! without gaps, and no run sees one twice.

use std::collections::BTreeMap;

use longhaul_engine::change::{CommandRow, CommandStatus, CommandType};
use longhaul_engine::run::state::{Message, Part, Run};
use longhaul_protocol::id::WorkflowId;
use serde_json::Value;

use super::events;
use crate::world::World;

const STREAM_SIGNAL: &str = "__durable_workflow_message_stream";

pub(super) fn check(world: &World, workflow_id: &WorkflowId, runs: &[&Run]) {
    let first = (workflow_id.clone(), 0);
    let taken = world.commands.range(first..);
    let rows: Vec<&CommandRow> = taken
        .take_while(|((workflow, _), _)| workflow == workflow_id)
        .map(|(_, (_, row))| row)
        .filter(|row| row.status == CommandStatus::Accepted)
        .collect();
    let of_type = |kind: CommandType| {
        rows.iter()
            .copied()
            .filter(move |row| row.command_type == kind)
    };
    check_signals(
        world,
        runs,
        &of_type(CommandType::Signal).collect::<Vec<_>>(),
    );
    check_updates(
        world,
        runs,
        &of_type(CommandType::Update).collect::<Vec<_>>(),
    );
    check_streams(
        world,
        runs,
        &of_type(CommandType::Message).collect::<Vec<_>>(),
    );
}

fn buffered<'a>(runs: &'a [&Run]) -> impl Iterator<Item = &'a Message> {
    runs.iter()
        .flat_map(|run| run.parts.values())
        .filter_map(|part| match part {
            Part::Buffered(message) => Some(&**message),
            _ => None,
        })
}

fn text<'a>(body: &'a Value, key: &str) -> &'a str {
    body[key].as_str().unwrap()
}

/// 26: checks that every accepted signal is buffered, or in exactly one history, in command order.
fn check_signals(world: &World, runs: &[&Run], accepted: &[&CommandRow]) {
    let accepted: Vec<&str> = accepted.iter().map(|row| row.command_id.as_str()).collect();
    let mut seen: Vec<&str> = Vec::new();
    for run in runs {
        let received = events(world, run).filter(|(event, body)| {
            event.event_type == "SignalReceived" && text(body, "signal_name") != STREAM_SIGNAL
        });
        seen.extend(received.map(|(_, body)| text(body, "workflow_command_id")));
    }
    for message in buffered(runs) {
        if let Message::Signal(signal) = message
            && signal.stream.is_none()
        {
            seen.push(signal.command_id.as_str());
        }
    }
    assert_eq!(
        seen, accepted,
        "26: no signal is lost, duplicated or reordered"
    );
}

/// 20, 48: checks that an update is accepted once in each run it is in, in command order, and ends once, in the last of them.
fn check_updates(world: &World, runs: &[&Run], accepted: &[&CommandRow]) {
    #[derive(Default)]
    struct Story {
        accepted_in: Vec<u64>,
        applied_in: Vec<u64>,
        completed_in: Vec<u64>,
        failed: bool,
    }
    let mut stories: BTreeMap<&str, Story> = BTreeMap::new();
    for run in runs {
        let number = run.spec.run_number;
        let mut order = Vec::new();
        for (event, body) in
            events(world, run).filter(|(event, _)| event.event_type.starts_with("Update"))
        {
            let id = text(body, "update_id");
            let story = stories.entry(id).or_default();
            match event.event_type {
                "UpdateAccepted" => {
                    order.push(text(body, "workflow_command_id"));
                    story.accepted_in.push(number);
                }
                "UpdateApplied" => story.applied_in.push(number),
                "UpdateCompleted" => {
                    story.completed_in.push(number);
                    story.failed = body.get("failure_id").is_some();
                }
                _ => {}
            }
        }
        let place = |id: &&str| {
            accepted
                .iter()
                .position(|row| row.command_id.as_str() == *id)
        };
        assert!(
            order.is_sorted_by_key(place),
            "20: updates are accepted in command order"
        );
    }
    for row in accepted {
        let record = row.update.as_deref().expect("an update has its record");
        let id = record.update_id.as_str();
        let story = stories.remove(id).unwrap_or_default();
        let waiting = runs.iter().flat_map(|run| run.parts.values()).filter(|part| match part {
            Part::Update(update) => update.command.command_id == row.command_id,
            Part::Buffered(message) => matches!(&**message, Message::Update(command) if command.command_id == row.command_id),
            _ => false,
        });
        let over = story.completed_in.len();
        assert_eq!(
            waiting.count() + over,
            1,
            "20: an update is open or ended once"
        );
        assert!(
            story.accepted_in.is_sorted_by(|a, b| a < b),
            "20: accepted once per run"
        );
        if over == 1 {
            assert_eq!(
                story.accepted_in.last(),
                story.completed_in.last(),
                "20: an update ends in the run that has it"
            );
            assert_eq!(
                story.applied_in.len(),
                usize::from(!story.failed),
                "20: applied iff it succeeded"
            );
            let outcome = if story.failed {
                "update_failed"
            } else {
                "update_completed"
            };
            assert_eq!(row.outcome, outcome, "20: its caller gets the same outcome");
        } else {
            assert_eq!(
                row.outcome, "update_accepted",
                "20: its caller gets the same result"
            );
            assert!(
                story.applied_in.is_empty(),
                "20: not applied before its end"
            );
        }
    }
    let stray: Vec<_> = stories
        .iter()
        .filter(|(_, story)| !story.accepted_in.is_empty())
        .collect();
    assert!(
        stray.is_empty(),
        "20: {} messages have no sender",
        stray.len()
    );
}

/// Positions are 1, 2, 3, …; each message is in a history, or buffered; a run sees each at most once, in order, and none it has
/// read.
fn check_streams(world: &World, runs: &[&Run], accepted: &[&CommandRow]) {
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    let mut by_command: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for row in accepted {
        let stream = row.target_name.as_deref().unwrap();
        let last = places.entry(stream).or_default();
        *last += 1;
        assert_eq!(row.position, Some(*last), "streams have no gaps");
        by_command.insert(row.command_id.as_str(), (stream, *last));
    }
    let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
    let mut cursors: BTreeMap<String, u64> = BTreeMap::new();
    for run in runs {
        let mut newest: BTreeMap<String, u64> = cursors.clone();
        for (event, body) in events(world, run) {
            if event.event_type == "MessageCursorAdvanced" {
                let stream = text(body, "stream_key").to_owned();
                let cursor = cursors.entry(stream).or_default();
                assert_eq!(
                    body["previous_position"], *cursor,
                    "a cursor starts at its last position"
                );
                let next = body["new_position"].as_u64().unwrap();
                assert!(next > *cursor, "a cursor moves forward");
                *cursor = next;
            }
            if event.event_type == "SignalReceived" && text(body, "signal_name") == STREAM_SIGNAL {
                let command = text(body, "workflow_command_id");
                let Some((stream, position)) = by_command.get(command) else {
                    continue; // a cursor for a new run
                };
                let last = newest.entry((*stream).to_owned()).or_default();
                assert_eq!(
                    *position,
                    *last + 1,
                    "a run sees every message after its cursor once, in order"
                );
                *last = *position;
                *shown.entry(command).or_default() += 1;
            }
        }
        for (stream, cursor) in &cursors {
            let known = run.core.streams.get(stream);
            assert_eq!(
                known.map(|stream| stream.cursor_position),
                Some(*cursor),
                "the cursors of the run agree with its history"
            );
        }
    }
    for message in buffered(runs) {
        if let Message::Signal(signal) = message
            && signal.stream.is_some()
        {
            *shown.entry(signal.command_id.as_str()).or_default() += 1;
        }
    }
    for command in by_command.keys() {
        assert!(shown.contains_key(command), "26: no message is lost");
    }
}
