//! Durable selections and message streams (engine.md §5.10).

use serde::Serialize;

use crate::id::EventId;
use crate::workflow_command::SelectionMember;

/// The first member of a selection that settled, decided once.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct SelectionResolved {
    #[serde(flatten)]
    pub member: SelectionMember,
    pub selection_group_base_sequence: u64,
    pub selection_group_size: u64,
    /// `completed` or `failed`.
    pub outcome: &'static str,
    pub resolution_event_id: EventId,
    pub resolution_event_type: &'static str,
}

/// The workflow took messages of a stream.
#[derive(Clone, Debug, Serialize)]
#[expect(
    missing_docs,
    reason = "the keys are the protocol's; engine.md §5 explains each"
)]
pub struct MessageCursorAdvanced {
    pub stream_key: String,
    pub previous_position: u64,
    pub new_position: u64,
}
