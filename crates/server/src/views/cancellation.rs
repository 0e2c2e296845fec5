//! How a cancellation request is shown.

use longhaul_host::api::Cancellation;
use longhaul_protocol::sequence::HistorySeq;
use serde_json::{Value, json};

use super::page_token::page_token;

/// A request to clean up. The token reads history from its first event to its last.
pub(crate) fn cancellation_json(cancellation: &Cancellation) -> Value {
    json!({
        "request_id": cancellation.request_id,
        "requested_at": cancellation.requested_at,
        "cleanup_deadline_at": cancellation.cleanup_deadline_at,
        "history_refresh_page_token": page_token(HistorySeq::ZERO),
    })
}
