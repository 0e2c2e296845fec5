//! Large arguments of messages are stored once. An open signal or update is a part of its run and an event of its history, and both
//! have the arguments: the part is written without them and gets them back from the event when the run is read. Events are never
//! changed or deleted, so what a part refers to is there.

use longhaul_engine::run::state::{Part, Run, Signal, Update};
use longhaul_protocol::Payload;
use longhaul_protocol::payload::Kind;
use rusqlite::{CachedStatement, Connection, params};
use serde::Deserialize;

use super::encode::{json, signed};
use super::error::unreadable;
use crate::Error;

/// Base64 text of arguments that stay in the part: reading an event as well costs more than writing these twice.
const INLINE_MAX: usize = 4096;

/// The text of a part.
pub(super) fn encode(part: &Part) -> Result<String, Error> {
    match part {
        Part::Signal(signal)
            if signal.received_at.is_some() && signal.arguments.exceeds(INLINE_MAX) =>
        {
            // Arguments are a list, so null is none of them.
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

/// The event that has the arguments of a part that was written without them.
fn event_of(part: &Part) -> Option<u64> {
    match part {
        Part::Signal(signal) if signal.arguments.kind() == Some(Kind::Null) => signal.received_at,
        Part::Update(update) if update.command.arguments.is_none() => Some(update.accepted_at),
        _ => None,
    }
}

/// Gives the parts of a run their arguments back.
pub(super) fn complete(connection: &Connection, run: &mut Run) -> Result<(), Error> {
    let run_id = run.spec.run_id.clone();
    let mut statement: Option<CachedStatement<'_>> = None;
    for part in run.parts.values_mut() {
        let Some(sequence) = event_of(part) else {
            continue;
        };
        let statement = match &mut statement {
            Some(statement) => statement,
            none => none.insert(connection.prepare_cached(
                "SELECT events.payload FROM runs JOIN events USING (run_key) WHERE runs.run_id = ?1 AND events.sequence = ?2",
            )?),
        };
        let payload: String =
            statement.query_row(params![run_id.as_str(), signed(sequence)], |row| row.get(0))?;
        let message: Message = serde_json::from_str(&payload)
            .map_err(|error| unreadable("event of run", run_id.as_str(), error))?;
        match part {
            Part::Signal(signal) => signal.arguments = message.arguments,
            Part::Update(update) => update.command.arguments = Some(message.arguments),
            _ => {}
        }
    }
    Ok(())
}

/// What `SignalReceived` and `UpdateAccepted` have in common.
#[derive(Deserialize)]
struct Message {
    arguments: Payload,
}
