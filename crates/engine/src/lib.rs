//! The rules of durable execution as pure functions over plain values. No I/O, no clock, no randomness: the same run,
//! command and [`Moment`] give the same [`Decision`] on every machine.
//!
//! Every input is a [`Command`]; [`command`] lists all of them. `decide` reads the run and returns what must be written, and what
//! the caller gets once all of it is durable. Deciding changes nothing; [`RunChange::apply`] returns the run as it is after the
//! commit.
//!
//! What must hold after every decision (`docs/protocol/invariants.md` has the whole list; the property tests in `tests/it` check
//! it):
//! - history sequences are 1..n without gaps, events never change, recording times never step back;
//! - exactly one terminal event if a run of code is closed, none otherwise; a definition run is closed if and only if its last event
//!   about its life is an end; in both, nothing open remains in a closed run;
//! - at most one open workflow task per run, at most one lease per task;
//! - no wake is lost: an unhandled wake has an open task, or waits behind the leased one in `next_wake`;
//! - a rejection without changes leaves everything as it was.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod change;
pub mod command;
pub mod conductor;
pub mod contract;
mod digest;
pub mod inspection;
pub mod limits;
pub mod queue;
pub mod rejection;
pub mod rollout;
pub mod run;
pub mod session;
pub mod visibility;

pub use change::{Changes, RunChange};
pub use command::Command;
pub use limits::Limits;
pub use rejection::Rejection;

use longhaul_protocol::Timestamp;

/// The inputs of a decision besides the run and the command.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Read once per command, by the host.
    pub now: Timestamp,
    /// Makes the ids of this decision unique.
    pub entropy: u128,
    pub limits: &'a Limits,
}

/// The outcome of a command: rows to write, and the reply to the caller afterwards. A rejection usually changes nothing. A report
/// that finds its run past the deadline is refused and closes the run.
#[derive(Debug)]
pub struct Decision<R> {
    pub changes: Changes,
    pub reply: Result<R, Rejection>,
}

impl<R> Decision<R> {
    /// Refuses the command and changes nothing.
    pub fn reject(rejection: Rejection) -> Self {
        Self {
            changes: Changes::default(),
            reply: Err(rejection),
        }
    }

    /// Accepts the command without a change.
    pub fn unchanged(reply: R) -> Self {
        Self {
            changes: Changes::default(),
            reply: Ok(reply),
        }
    }

    /// Returns the same decision with another reply.
    pub(crate) fn map<T>(self, change: impl FnOnce(R) -> T) -> Decision<T> {
        Decision {
            changes: self.changes,
            reply: self.reply.map(change),
        }
    }
}
