//! Names and ids. Each kind has its own type, so that two strings in a row cannot be swapped; all are cheap to clone.
//! Generated ids are ULIDs in lower case: time-ordered, which keeps inserts in the store next to each other.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<Ulid> for $name {
            fn from(ulid: Ulid) -> Self {
                Self(ulid.text().as_str().into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

text_ids! {
    /// A namespace. Callers of one namespace cannot see the contents of another.
    Namespace
    /// The caller's name for a workflow, unique in its namespace.
    WorkflowId
    /// One execution of a workflow, from start to close.
    RunId
    /// A task for a worker; the same when it is delivered again.
    TaskId
    /// A queue that workers poll.
    TaskQueue
    /// A worker's own name for itself, unique in its namespace.
    WorkerId
    /// The author's name for a worker session.
    SessionId
    /// One event of one history.
    EventId
    /// One logical activity call; the same for all attempts.
    ActivityExecutionId
    /// One try of an activity.
    ActivityAttemptId
    /// One timer.
    TimerId
    /// One external command: a start, a signal, a cancel.
    CommandId
    /// One accepted signal.
    SignalId
    /// One accepted update.
    UpdateId
    /// One call of a child workflow; the same for its retries and continued runs.
    ChildCallId
    /// One normalised failure.
    FailureId
    /// A wait for a condition or a signal. Not always a ULID: a buffered signal's is `signal-command:{command}`.
    WaitId
}

/// 128 bits, 48 of them milliseconds since the epoch; written as 26 Crockford base-32 characters in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ulid(u128);

impl Ulid {
    const ALPHABET: &'static [u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

    fn text(self) -> UlidText {
        let mut text = [0_u8; 26];
        let mut rest = self.0;
        for place in text.iter_mut().rev() {
            *place = Self::ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        UlidText(text)
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

struct UlidText([u8; 26]);

impl UlidText {
    fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("the alphabet is ASCII")
    }
}

/// A supply of ids for one decision. The randomness comes in from outside, once; every further id counts up from it,
/// so the same command with the same supply mints the same ids.
#[derive(Clone, Debug)]
pub struct Ids {
    next: u128,
}

impl Ids {
    /// 80 bits of an id are not time.
    const RANDOM_BITS: u32 = 80;

    /// A supply that starts at `now`, with `entropy` as its random part (the low 79 bits count: the top one stays free
    /// so that counting up cannot run into the time).
    pub fn new(now: Timestamp, entropy: u128) -> Self {
        let random = entropy & ((1 << (Self::RANDOM_BITS - 1)) - 1);
        Self {
            next: (u128::from(now.as_millis()) << Self::RANDOM_BITS) | random,
        }
    }

    /// Returns the next id as the requested kind.
    pub fn mint<T: From<Ulid>>(&mut self) -> T {
        let ulid = Ulid(self.next);
        self.next += 1;
        T::from(ulid)
    }

    /// Returns the next id as the text of a UUID of version 7. It sorts by time as the others do.
    pub fn mint_uuid<T: From<String>>(&mut self) -> T {
        let time = self.next >> Self::RANDOM_BITS;
        let random = self.next;
        self.next += 1;
        let version = (7 << 12) | ((random >> 62) & 0xfff);
        let variant = (2 << 62) | (random & ((1 << 62) - 1));
        let uuid = (time << 80) | (version << 64) | variant;
        let hex = format!("{uuid:032x}");
        T::from(format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_26_characters_in_order_and_repeatable() {
        let mut ids = Ids::new(Timestamp::from_micros(1_791_860_655_865_222), u128::MAX);
        let first: RunId = ids.mint();
        let second: RunId = ids.mint();
        assert_eq!(first.as_str().len(), 26);
        assert!(first < second);
        let again: RunId =
            Ids::new(Timestamp::from_micros(1_791_860_655_865_222), u128::MAX).mint();
        assert_eq!(first, again);
    }

    #[test]
    fn uuids_have_their_version_and_sort_by_time() {
        let mut ids = Ids::new(Timestamp::from_micros(1_791_860_655_865_222), u128::MAX);
        let (first, second): (RunId, RunId) = (ids.mint_uuid(), ids.mint_uuid());
        let parts: Vec<usize> = first.as_str().split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&first.as_str()[14..15], "7");
        assert!("89ab".contains(&first.as_str()[19..20]));
        assert_ne!(first, second);
        let later: RunId = Ids::new(Timestamp::from_micros(1_791_860_656_865_222), 0).mint_uuid();
        assert!(first < later);
    }

    #[test]
    fn a_later_time_sorts_after_any_count_of_an_earlier_one() {
        let early = Timestamp::from_micros(1_000_000);
        let mut ids = Ids::new(early, u128::MAX);
        let last = (0..10_000).map(|_| ids.mint::<TaskId>()).last().unwrap();
        let later: TaskId = Ids::new(Timestamp::from_micros(1_001_000), 0).mint();
        assert!(last < later);
    }
}
