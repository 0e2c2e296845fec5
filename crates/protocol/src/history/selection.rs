//! Events of selections and message streams.

use serde::Serialize;

use crate::id::EventId;
use crate::sequence::CommandSeq;
use crate::workflow_command::SelectionMember;

/// The member of a selection that ended first. It is recorded once, so every replay takes the same one.
#[derive(Clone, Debug, Serialize)]
pub struct SelectionResolved {
    /// The member that ended first.
    #[serde(flatten)]
    pub member: SelectionMember,
    /// The command sequence of the first call of the selection.
    pub selection_group_base_sequence: CommandSeq,
    /// How many calls the selection has.
    pub selection_group_size: u64,
    /// How the member ended: `completed` or `failed`.
    pub outcome: &'static str,
    /// The event that ended the member.
    pub resolution_event_id: EventId,
    /// The type of that event.
    pub resolution_event_type: &'static str,
}

/// The workflow took messages of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct MessageCursorAdvanced {
    /// The name of the stream.
    pub stream_key: String,
    /// The position of the last message taken before.
    pub previous_position: u64,
    /// The position of the last message taken now.
    pub new_position: u64,
}
