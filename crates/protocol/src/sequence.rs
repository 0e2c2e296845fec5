//! The three kinds of sequence number. They look alike on the wire, so each has a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! sequences {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// After every other.
            pub const MAX: Self = Self(u64::MAX);

            /// Wraps a number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// Returns the number `count` after this one. Clients send such numbers, so the sum is limited instead of wrong.
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                Self(self.0.saturating_add(count))
            }

            /// Returns this number and those that follow, `count` in all.
            pub fn run_of(self, count: u64) -> impl Iterator<Item = Self> {
                (self.0..self.0.saturating_add(count)).map(Self)
            }

            /// Returns whether it is before the first.
            pub const fn is_zero(&self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }

        impl PartialEq<u64> for $name {
            fn eq(&self, number: &u64) -> bool {
                self.0 == *number
            }
        }

        impl From<$name> for u64 {
            fn from(number: $name) -> Self {
                number.0
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }
    )*};
}

sequences! {
    /// The number of an event in the history of its run, from 1 without gaps.
    HistorySeq
    /// The number of a durable call in the code of a workflow, from 1. All events of the call repeat it.
    CommandSeq
    /// The number of an external command of a workflow, from 1, over all its runs.
    RequestSeq
}
