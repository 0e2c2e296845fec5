//! Message streams: ordered, named input of a workflow that outlives its runs. A message is delivered as a signal of a reserved
//! name. The workflow reports how far it has read; unread messages move with it when it continues as new.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::history::{EventPayload, LimitBreach, MessageCursorAdvanced};
use longhaul_protocol::payload::{Map, Value};
use longhaul_protocol::sequence::RequestSeq;
use longhaul_protocol::{Payload, Timestamp};
use serde::{Deserialize, Serialize};

use crate::change::CommandType;
use crate::run::draft::{Draft, StreamCursors};
use crate::run::message::external::{Request, is_current, refuse_closed};
use crate::run::state::{Message, PartKey, Run, Signal};
use crate::{Command, Decision, Moment, Rejection, limits};

/// The signal that carries messages. Users may not send it themselves.
pub const MESSAGE_STREAM_SIGNAL: &str = "__durable_workflow_message_stream";

const MESSAGE_SCHEMA: &str = "durable-workflow.v2.message-stream.message";
const CURSOR_SCHEMA: &str = "durable-workflow.v2.message-stream.cursor";

/// The type of the command that records a message.
const COMMAND_TYPE: CommandType = CommandType::Message;

/// The positions of the streams, by name; part of the core of a run and inherited by the next.
pub type Streams = Arc<BTreeMap<String, Stream>>;

/// One stream of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub last_position: u64,
    /// How far the workflow has read.
    pub cursor_position: u64,
    /// Number of the command that brought the message at the cursor.
    pub cursor_command: RequestSeq,
    pub duplicate_count: u64,
    /// `accepted`, `duplicate` or `conflict`.
    pub last_input_outcome: String,
    pub last_input_message_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_input_at: Option<Timestamp>,
}

/// A message's place in its stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    pub stream_name: String,
    pub position: u64,
    /// Whether it resolved a wait. That wait may have been for another stream, so the message counts as read only when the workflow
    /// reports it.
    #[serde(default)]
    pub applied: bool,
}

/// The read position that a workflow reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCursor {
    pub stream_name: String,
    pub through_position: u64,
}

/// Appends a message to a stream. `request.request_id` is made from the stream and the message id.
#[derive(Clone, Debug)]
pub struct AppendMessage {
    pub request: Request,
    pub stream_name: String,
    pub message_id: String,
    pub arguments: Payload,
}

/// Where the message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub position: u64,
    pub duplicate: bool,
}

impl AppendMessage {
    /// Returns the request id that identifies a message within its workflow.
    pub fn request_id(stream_name: &str, message_id: &str) -> String {
        format!("message-stream:{stream_name}:{message_id}")
    }

    fn check_limits(&self, run: &Run, moment: Moment<'_>) -> Result<(), LimitBreach> {
        let limits = moment.limits;
        limits::check(
            "payload_size",
            self.arguments.blob().len() as u64,
            limits.payload_bytes,
        )?;
        limits::check(
            "pending_signal_count",
            run.core.open.unseen_signals + 1,
            limits.pending_signals,
        )?;
        limits::check(
            "pending_signal_bytes",
            run.core.open.unseen_signal_bytes + self.arguments.blob().len() as u64,
            limits.pending_signal_bytes,
        )?;
        if !run.core.streams.contains_key(&self.stream_name) {
            limits::check(
                "message_stream_count",
                run.core.streams.len() as u64 + 1,
                limits.message_streams,
            )?;
        }
        run.admit_events(1, limits)
    }

    /// Handles a repeat of a message: returns its position, or a refusal if the content differs.
    fn repeat<'a>(&self, run: &'a Run, moment: Moment<'a>) -> Option<Decision<Appended>> {
        let earlier = &self.request.earlier.as_deref()?.command;
        // A different command was sent with the same request id.
        if earlier.command_type != COMMAND_TYPE {
            return Some(Decision::reject(Rejection::RequestIdConflict {
                command: Box::new(earlier.clone()),
                conflict: vec!["name"],
            }));
        }
        let same = earlier.has_arguments(Some(&self.arguments));
        let mut draft = Draft::of(run, moment);
        draft
            .streams()
            .note_input(self, if same { "duplicate" } else { "conflict" });
        Some(draft.finish(if same {
            Ok(Appended {
                position: earlier.position.unwrap_or_default(),
                duplicate: true,
            })
        } else {
            Err(Rejection::MessageIdentityConflict {
                position: earlier.position.unwrap_or_default(),
            })
        }))
    }
}

impl Command for AppendMessage {
    type Reply = Appended;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Appended> {
        if let Some(repeat) = self.repeat(run, moment) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let name = Some(self.stream_name.as_str());
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            // The id stays free: the message was not accepted.
            let request = Request {
                request_id: None,
                ..self.request.clone()
            };
            let refused = refuse_closed(draft, &request, COMMAND_TYPE, name, None);
            return Decision {
                changes: refused.changes,
                reply: Err(refused.reply.err().unwrap_or(Rejection::RunNotActive {
                    status: run.core.status,
                })),
            };
        }
        if let Err(limit) = self.check_limits(run, moment) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let position = draft.streams().note_input(self, "accepted");
        let command = draft.record_request(
            &self.request,
            COMMAND_TYPE,
            name,
            Some(&self.arguments),
            "message_accepted",
            None,
        );
        if let Some(row) = draft.commands.last_mut() {
            row.position = Some(position);
        }
        let id = draft.ids.mint();
        draft.signals().accept(Signal {
            command_sequence: command.sequence,
            id,
            command_id: command.command_id.clone(),
            name: MESSAGE_STREAM_SIGNAL.to_owned(),
            arguments: message(self, position),
            wait_id: None,
            received_at: None,
            principal: self.request.principal.clone(),
            stream: Some(StreamPosition {
                stream_name: self.stream_name.clone(),
                position,
                applied: false,
            }),
        });
        draft.finish(Ok(Appended {
            position,
            duplicate: false,
        }))
    }
}

/// Returns the argument list of the signal that carries a message.
fn message(append: &AppendMessage, position: u64) -> Payload {
    let envelope = Map::from_iter([
        ("codec".to_owned(), Value::String("avro".to_owned())),
        (
            "blob".to_owned(),
            Value::String(append.arguments.blob().to_owned()),
        ),
    ]);
    one_argument([
        ("schema", Value::String(MESSAGE_SCHEMA.to_owned())),
        ("stream_name", Value::String(append.stream_name.clone())),
        ("message_id", Value::String(append.message_id.clone())),
        ("position", Value::Long(position.cast_signed())),
        ("payload_envelope", Value::Map(envelope)),
    ])
}

/// Returns the argument list of the signal that gives a new run the read position of the previous one.
fn cursor(stream_name: &str, position: u64) -> Payload {
    one_argument([
        ("schema", Value::String(CURSOR_SCHEMA.to_owned())),
        ("stream_name", Value::String(stream_name.to_owned())),
        ("through_position", Value::Long(position.cast_signed())),
    ])
}

fn one_argument<const N: usize>(entries: [(&str, Value); N]) -> Payload {
    let map = Map::from_iter(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value)),
    );
    Payload::encode(&Value::Array(vec![Value::Map(map)]))
        .expect("strings and small integers have an encoding")
}

impl StreamCursors<'_, '_> {
    /// Counts an input, and assigns a position to an accepted one.
    fn note_input(&mut self, append: &AppendMessage, outcome: &str) -> u64 {
        let now = self.draft.now;
        let stream = Arc::make_mut(&mut self.draft.core.streams)
            .entry(append.stream_name.clone())
            .or_default();
        match outcome {
            "accepted" => stream.last_position += 1,
            "duplicate" => stream.duplicate_count += 1,
            _ => {}
        }
        outcome.clone_into(&mut stream.last_input_outcome);
        stream.last_input_message_id.clone_from(&append.message_id);
        stream.last_input_at = Some(now);
        stream.last_position
    }

    /// Applies the progress of the workflow: removes the messages that it has read. This comes before the decision's own events, so
    /// that a new wait does not receive a message that was already read.
    pub(crate) fn advance(&mut self, cursors: &[StreamCursor]) {
        for cursor in cursors {
            let Some(stream) = self.draft.core.streams.get(&cursor.stream_name) else {
                continue;
            };
            let previous_position = stream.cursor_position;
            let new_position = cursor.through_position.min(stream.last_position);
            if new_position <= previous_position {
                continue;
            }
            let read: Vec<(u64, RequestSeq)> = self
                .draft
                .open_signals()
                .filter_map(|signal| {
                    let place = signal.stream.as_ref()?;
                    (place.stream_name == cursor.stream_name && place.position <= new_position)
                        .then_some((place.position, signal.command_sequence))
                })
                .collect();
            for (_, command_sequence) in &read {
                self.draft.remove(PartKey::Signal(*command_sequence));
            }
            let last_read = read.iter().max().map(|(_, command)| *command);
            if let Some(stream) =
                Arc::make_mut(&mut self.draft.core.streams).get_mut(&cursor.stream_name)
            {
                stream.cursor_position = new_position;
                stream.cursor_command = last_read.unwrap_or(stream.cursor_command);
            }
            self.draft
                .append(EventPayload::MessageCursorAdvanced(MessageCursorAdvanced {
                    stream_key: cursor.stream_name.clone(),
                    previous_position,
                    new_position,
                }));
        }
    }

    /// Returns the stream messages for the next run, in command order: how far each stream was read, and the unread messages.
    pub(crate) fn messages_to_move(&mut self) -> Vec<Message> {
        let mut moved: Vec<Message> = Vec::new();
        let streams = Arc::clone(&self.draft.core.streams);
        for (name, stream) in streams
            .iter()
            .filter(|(_, stream)| stream.cursor_position > 0)
        {
            moved.push(Message::Signal(Signal {
                command_sequence: stream.cursor_command,
                id: self.draft.ids.mint(),
                command_id: self.draft.ids.mint(),
                name: MESSAGE_STREAM_SIGNAL.to_owned(),
                arguments: cursor(name, stream.cursor_position),
                wait_id: None,
                received_at: None,
                principal: None,
                stream: None,
            }));
        }
        moved.extend(self.draft.open_signals().filter_map(|signal| {
            let mut signal = signal.clone();
            signal.stream.as_mut()?.applied = false;
            signal.wait_id = None;
            signal.received_at = None;
            Some(Message::Signal(signal))
        }));
        moved.sort_by_key(Message::command_sequence);
        moved
    }
}
