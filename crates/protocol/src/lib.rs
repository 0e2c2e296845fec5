//! The data of the wire protocol and of stored histories: plain types and serde.
//!
//! The crates of the server and the SDKs share it. It depends on none of them, has no HTTP types and no async code.
//! `history` has the events, `workflow_command` the commands that a worker returns from a workflow task, `payload` the Avro
//! codec, `reason` every machine-readable refusal, `version` the negotiation of the two API versions, and `conductor` the models
//! of the Conductor API.

#![warn(missing_docs)]

pub mod conductor;
pub mod describe;
pub mod history;
pub mod id;
pub mod json;
pub mod parallel_group;
pub mod payload;
pub mod reason;
pub mod sequence;
pub mod time;
pub mod version;
pub mod worker_session;
pub mod workflow_command;

pub use id::Ids;
pub use payload::Payload;
pub use reason::Reason;
pub use sequence::{CommandSeq, HistorySeq, RequestSeq};
pub use time::Timestamp;
