//! What crosses the wire or rests in history: plain data and serde, nothing that runs.
//!
//! Everything here is shared by the server's crates and the SDKs. It depends on none of them, knows no HTTP types and
//! never waits. `history` holds the events, `workflow_command` what a worker returns from a workflow task, `payload`
//! the Avro codec, `reason` every machine-readable refusal, `version` the negotiation of the two API versions.

#![warn(missing_docs)]

pub mod describe;

pub mod history;
pub mod id;
pub mod parallel_group;
pub mod payload;
pub mod reason;
pub mod time;
pub mod version;
pub mod worker_session;
pub mod workflow_command;

pub use id::Ids;
pub use payload::Payload;
pub use reason::Reason;
pub use time::Timestamp;
