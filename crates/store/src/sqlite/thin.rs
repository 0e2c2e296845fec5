//! Large payloads of messages are stored once, in the event. An open signal or update is a part of its run and an event of its
//! history, and both have the arguments; a finished update is a command and an event, and both have the result. The part or command
//! is written without the payload and gets it back from the event when it is read. Events are never changed or deleted, so the
//! referenced event always exists.

use longhaul_engine::change::{CommandRow, UpdateStatus};
use longhaul_engine::run::state::{Part, Run, Signal, Update};
use longhaul_protocol::Payload;
use longhaul_protocol::id::RunId;
use longhaul_protocol::payload::Kind;
use longhaul_protocol::sequence::HistorySeq;
use rusqlite::{Connection, params};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::encode::{json, signed};
use super::error::unreadable;
use crate::Error;

/// Base64 text of payloads that stay in the row: reading an event as well costs more than writing these twice.
const INLINE_MAX: usize = 4096;

/// Returns the text of a part.
pub(super) fn encode(part: &Part) -> Result<String, Error> {
    match part {
        Part::Signal(signal)
            if signal.received_at.is_some() && signal.arguments.exceeds(INLINE_MAX) =>
        {
            // Arguments are a list, so null is never a valid value.
            json(&Part::Signal(Box::new(Signal {
                arguments: Payload::null(),
                ..(**signal).clone()
            })))
        }
        Part::Update(update)
            if update
                .command
                .arguments
                .as_ref()
                .is_some_and(|arguments| arguments.exceeds(INLINE_MAX)) =>
        {
            let mut update: Box<Update> = update.clone();
            update.command.arguments = None;
            json(&Part::Update(update))
        }
        whole => json(whole),
    }
}

/// Returns the event that has the arguments of a part that was written without them.
fn event_of(part: &Part) -> Option<HistorySeq> {
    match part {
        Part::Signal(signal) if signal.arguments.kind() == Some(Kind::Null) => signal.received_at,
        Part::Update(update) if update.command.arguments.is_none() => Some(update.accepted_at),
        _ => None,
    }
}

/// Returns the text of a command.
pub(super) fn encode_command(command: &CommandRow) -> Result<String, Error> {
    let is_large = command.update.as_ref().is_some_and(|update| {
        let result = update.result.as_ref();
        update.completed_event.is_some() && result.is_some_and(|result| result.exceeds(INLINE_MAX))
    });
    if !is_large {
        return json(command);
    }
    let mut thin = command.clone();
    if let Some(update) = thin.update.as_deref_mut() {
        update.result = None;
    }
    json(&thin)
}

/// Restores the arguments of the parts of a run.
pub(super) fn complete(connection: &Connection, run: &mut Run) -> Result<(), Error> {
    let run_id = &run.spec.run_id;
    for part in run.parts.values_mut() {
        let Some(sequence) = event_of(part) else {
            continue;
        };
        let message: Accepted = event(connection, run_id, sequence)?;
        match part {
            Part::Signal(signal) => signal.arguments = message.arguments,
            Part::Update(update) => update.command.arguments = Some(message.arguments),
            _ => {}
        }
    }
    Ok(())
}

/// Restores the result of a finished update.
pub(super) fn complete_command(
    connection: &Connection,
    run_id: &RunId,
    command: &mut CommandRow,
) -> Result<(), Error> {
    if let Some(update) = command.update.as_deref_mut()
        && update.status == UpdateStatus::Completed
        && update.result.is_none()
        && let Some(sequence) = update.completed_event
    {
        let completed: Completed = event(connection, run_id, sequence)?;
        update.result = completed.result;
    }
    Ok(())
}

/// Returns the payload of an event.
fn event<T: DeserializeOwned>(
    connection: &Connection,
    run_id: &RunId,
    sequence: HistorySeq,
) -> Result<T, Error> {
    let payload: String = connection
        .prepare_cached(
            "SELECT events.payload FROM runs JOIN events USING (run_key) WHERE runs.run_id = ?1 AND events.sequence = ?2",
        )?
        .query_row(params![run_id.as_str(), signed(sequence)], |row| row.get(0))?;
    serde_json::from_str(&payload)
        .map_err(|error| unreadable("event of run", run_id.as_str(), error))
}

/// The common fields of `SignalReceived` and `UpdateAccepted`.
#[derive(Deserialize)]
struct Accepted {
    arguments: Payload,
}

/// A field of `UpdateCompleted`.
#[derive(Deserialize)]
struct Completed {
    #[serde(default)]
    result: Option<Payload>,
}
