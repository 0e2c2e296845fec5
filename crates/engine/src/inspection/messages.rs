//! Folds signals and updates, and compares them with the commands that brought them. A message is in one history, or waits behind a
//! lease, or moved to the next run of its workflow.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::family::Before;
use super::history::RecordedEvent;
use super::{Problem, ProblemKind, Problems};
use crate::change::{CommandRow, CommandStatus, CommandType};
use crate::run::message::stream::MESSAGE_STREAM_SIGNAL;
use crate::run::state::{Message, Part, Run};

/// What a history has shown of its messages so far.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    /// The commands of received signals, in order. Messages of streams are apart, because every run may see them again.
    received: Vec<String>,
    /// Those of all signals.
    known: BTreeSet<String>,
    streamed: BTreeSet<String>,
    applied: BTreeSet<String>,
    updates: BTreeMap<String, Story>,
    /// The commands of accepted updates, in order.
    accepted: Vec<String>,
}

/// What a history shows of an update.
#[derive(Clone, Debug, Default)]
struct Story {
    command_id: String,
    accepted: u64,
    applied: u64,
    completed: u64,
    failed: bool,
}

#[derive(Deserialize)]
struct SignalKeys {
    workflow_command_id: String,
    signal_name: String,
}

#[derive(Deserialize)]
struct UpdateKeys {
    update_id: String,
    workflow_command_id: String,
    #[serde(default)]
    failure_id: Option<IgnoredAny>,
}

impl Messages {
    /// Events that it reads.
    pub const EVENTS: [&str; 5] = [
        "SignalReceived",
        "SignalApplied",
        "UpdateAccepted",
        "UpdateApplied",
        "UpdateCompleted",
    ];

    pub(super) fn add(&mut self, event: &RecordedEvent<'_>, problems: &mut Problems) {
        match event.event_type {
            "SignalReceived" | "SignalApplied" => {
                if let Some(keys) = problems.parse::<SignalKeys>(event) {
                    self.add_signal(event, keys, problems);
                }
            }
            "UpdateAccepted" | "UpdateApplied" | "UpdateCompleted" => {
                if let Some(keys) = problems.parse::<UpdateKeys>(event) {
                    self.add_update(event.event_type, keys);
                }
            }
            _ => {}
        }
    }

    fn add_signal(&mut self, event: &RecordedEvent<'_>, keys: SignalKeys, problems: &mut Problems) {
        let command_id = keys.workflow_command_id;
        if event.event_type == "SignalReceived" {
            self.known.insert(command_id.clone());
            if keys.signal_name == MESSAGE_STREAM_SIGNAL {
                self.streamed.insert(command_id);
            } else {
                self.received.push(command_id);
            }
            return;
        }
        if !self.known.contains(&command_id) || !self.applied.insert(command_id) {
            let detail = format!(
                "event {} applies a signal that was not received, or again",
                event.sequence
            );
            problems.found(ProblemKind::SignalWrong, detail);
        }
    }

    fn add_update(&mut self, event_type: &str, keys: UpdateKeys) {
        let story = self.updates.entry(keys.update_id).or_default();
        match event_type {
            "UpdateAccepted" => {
                story.accepted += 1;
                self.accepted.push(keys.workflow_command_id.clone());
            }
            "UpdateApplied" => story.applied += 1,
            _ => {
                story.completed += 1;
                story.failed = keys.failure_id.is_some();
            }
        }
        story.command_id = keys.workflow_command_id;
    }

    /// Compares the updates of the history with those that are open.
    pub(super) fn finish(&self, run: &Run, problems: &mut Problems) {
        let open: BTreeSet<&str> = run
            .parts
            .values()
            .filter_map(Part::as_update)
            .map(|update| update.command.command_id.as_str())
            .collect();
        let moves = run
            .core
            .closed
            .as_ref()
            .is_some_and(|closed| closed.continued_to.is_some());
        for (update_id, story) in &self.updates {
            let is_open = open.contains(story.command_id.as_str());
            let is_right = match story.completed {
                0 => story.applied == 0 && (is_open || moves),
                1 => story.applied == u64::from(!story.failed) && !is_open,
                _ => false,
            };
            if story.accepted != 1 || !is_right {
                let detail = format!(
                    "update {update_id} was accepted {}, applied {} and completed {} times",
                    story.accepted, story.applied, story.completed
                );
                problems.found(ProblemKind::UpdateWrong, detail);
            }
        }
        let known: BTreeSet<&str> = self.accepted.iter().map(String::as_str).collect();
        if let Some(command_id) = open.difference(&known).next() {
            let detail = format!("the update of command {command_id} is open and was not accepted");
            problems.found(ProblemKind::UpdateWrong, detail);
        }
    }
}

/// Returns what is wrong between the messages of a run and the commands that brought them. `before` is the run before it.
pub fn check_messages(
    run: &Run,
    messages: &Messages,
    commands: &[CommandRow],
    before: Option<&Before>,
) -> Vec<Problem> {
    let mut problems = Problems::default();
    let before = before.filter(|before| before.continues_as(run));
    check_signals(run, messages, commands, before, &mut problems);
    check_updates(run, messages, commands, before, &mut problems);
    problems.into_list()
}

/// Returns the accepted commands of a type.
fn accepted(commands: &[CommandRow], kind: CommandType) -> impl Iterator<Item = &CommandRow> {
    commands
        .iter()
        .filter(move |row| row.command_type == kind && row.status == CommandStatus::Accepted)
}

fn check_signals(
    run: &Run,
    messages: &Messages,
    commands: &[CommandRow],
    before: Option<&Before>,
    problems: &mut Problems,
) {
    // The run before closed while these waited behind its lease.
    let received: BTreeSet<&str> = before.into_iter().flat_map(Before::received).collect();
    let moved = before
        .into_iter()
        .flat_map(|before| accepted(&before.commands, CommandType::Signal))
        .map(|row| row.command_id.as_str())
        .filter(|id| !received.contains(id));
    let mut expected: Vec<&str> = moved.collect();
    expected.extend(accepted(commands, CommandType::Signal).map(|row| row.command_id.as_str()));
    let mut seen: Vec<&str> = messages.received.iter().map(String::as_str).collect();
    let mut waiting = BTreeSet::new();
    for message in run.parts.values().filter_map(Part::as_buffered) {
        if let Message::Signal(signal) = message {
            if signal.stream.is_some() {
                waiting.insert(signal.command_id.as_str());
            } else {
                seen.push(signal.command_id.as_str());
            }
        }
    }
    // What a continued run has not seen is in the next one.
    let moves = moves(run);
    let is_right = if moves {
        expected.starts_with(&seen)
    } else {
        expected == seen
    };
    if !is_right {
        let detail = format!(
            "{} signals were accepted, and {} are received or waiting, or in another order",
            expected.len(),
            seen.len()
        );
        problems.found(ProblemKind::SignalWrong, detail);
    }
    let lost = accepted(commands, CommandType::Message).find(|row| {
        let id = row.command_id.as_str();
        !moves && !messages.streamed.contains(id) && !waiting.contains(id)
    });
    if let Some(row) = lost {
        let detail = format!("the message of command {} is lost", row.sequence);
        problems.found(ProblemKind::SignalWrong, detail);
    }
}

fn moves(run: &Run) -> bool {
    let closed = run.core.closed.as_ref();
    closed.is_some_and(|closed| closed.continued_to.is_some())
}

fn check_updates(
    run: &Run,
    messages: &Messages,
    commands: &[CommandRow],
    before: Option<&Before>,
    problems: &mut Problems,
) {
    let mut open = BTreeSet::new();
    for part in run.parts.values() {
        match (part.as_update(), part.as_buffered()) {
            (Some(update), _) => open.insert(update.command.command_id.as_str()),
            (_, Some(Message::Update(command))) => open.insert(command.command_id.as_str()),
            _ => continue,
        };
    }
    let mut order = BTreeMap::new();
    for row in accepted(commands, CommandType::Update) {
        order.insert(row.command_id.as_str(), row.sequence);
        let id = row
            .update
            .as_deref()
            .map(|update| update.update_id.as_str());
        let story = id.and_then(|id| messages.updates.get(id));
        let story = story.filter(|story| story.completed > 0);
        let is_open = open.contains(row.command_id.as_str());
        let outcome = match story {
            Some(story) if story.failed => "update_failed",
            Some(_) => "update_completed",
            None => "update_accepted",
        };
        let moved = moves(run) && row.requested_run_id.is_none();
        if row.outcome != outcome || (story.is_none() && !is_open && !moved) {
            let detail = format!(
                "the update of command {} is {} for its caller, and {outcome} in the history",
                row.sequence, row.outcome
            );
            problems.found(ProblemKind::UpdateWrong, detail);
        }
    }
    let places = messages.accepted.iter().map(|id| order.get(id.as_str()));
    let places: Vec<_> = places.collect();
    if places.iter().any(Option::is_none) || !places.is_sorted() {
        let detail = "updates were accepted without their commands, or in another order";
        problems.found(ProblemKind::UpdateWrong, detail.to_owned());
    }
    let Some(before) = before.filter(|before| before.was_continued()) else {
        return;
    };
    let lost = accepted(&before.commands, CommandType::Update).find(|row| {
        let id = row
            .update
            .as_deref()
            .map(|update| update.update_id.as_str());
        let story = id.and_then(|id| before.messages.updates.get(id));
        story.is_none_or(|story| story.completed == 0)
            && row.requested_run_id.is_none()
            && !order.contains_key(row.command_id.as_str())
    });
    if let Some(row) = lost {
        let detail = format!(
            "the update of command {} was open when the run before continued, and is lost",
            row.sequence
        );
        problems.found(ProblemKind::UpdateWrong, detail);
    }
}

impl Messages {
    pub(super) fn received(&self) -> impl Iterator<Item = &str> {
        self.received.iter().map(String::as_str)
    }
}
