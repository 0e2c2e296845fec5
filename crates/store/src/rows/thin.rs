//! Large payloads of messages are stored once, in the event. An open signal or update is a part of its run and an event of its
//! history, and both have the arguments; a finished update is a command and an event, and both have the result. The part or command
//! is written without the payload and gets it back from the event when it is read. Events are never changed or deleted, so the
//! referenced event always exists. A store reads the events that [`missing`] and [`missing_result`] name, and gives their text to
//! [`restore`] and [`restore_result`].

use longhaul_engine::change::{CommandRow, UpdateStatus};
use longhaul_engine::run::state::{Part, PartKey, Run, Signal, Update};
use longhaul_protocol::Payload;
use longhaul_protocol::id::RunId;
use longhaul_protocol::payload::Kind;
use longhaul_protocol::sequence::HistorySeq;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::encode::json;

/// Base64 text of payloads that stay in the row: reading an event as well costs more than writing these twice.
const INLINE_MAX: usize = 4096;

/// Returns the text of a part.
pub(crate) fn encode(part: &Part) -> Result<String, Error> {
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
pub(crate) fn encode_command(command: &CommandRow) -> Result<String, Error> {
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

/// Returns the parts of a run that were written without their arguments, each with the event that has them.
pub(crate) fn missing(run: &Run) -> Vec<(PartKey, HistorySeq)> {
    let parts = run.parts.iter();
    parts
        .filter_map(|(key, part)| Some((*key, event_of(part)?)))
        .collect()
}

/// Restores the arguments of a part from the payload of its event.
pub(crate) fn restore(run: &mut Run, key: PartKey, payload: &str) -> Result<(), Error> {
    let message: Accepted = read(run.run_id(), payload)?;
    match run.parts.get_mut(&key) {
        Some(Part::Signal(signal)) => signal.arguments = message.arguments,
        Some(Part::Update(update)) => update.command.arguments = Some(message.arguments),
        _ => {}
    }
    Ok(())
}

/// Returns the event that has the result of a finished update that was written without it.
pub(crate) fn missing_result(command: &CommandRow) -> Option<HistorySeq> {
    let update = command.update.as_deref()?;
    let is_thin = update.status == UpdateStatus::Completed && update.result.is_none();
    update.completed_event.filter(|_| is_thin)
}

/// Restores the result of a finished update from the payload of its event.
pub(crate) fn restore_result(
    run_id: &RunId,
    command: &mut CommandRow,
    payload: &str,
) -> Result<(), Error> {
    let completed: Completed = read(run_id, payload)?;
    if let Some(update) = command.update.as_deref_mut() {
        update.result = completed.result;
    }
    Ok(())
}

fn read<T: DeserializeOwned>(run_id: &RunId, payload: &str) -> Result<T, Error> {
    serde_json::from_str(payload)
        .map_err(|error| Error::unreadable("event of run", run_id.as_str(), error))
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
