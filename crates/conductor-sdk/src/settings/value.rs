//! The values of properties: reading them from text, checking them and writing them as text.

use std::fmt;
use std::time::Duration;

/// Which values a property can have. The text describes them, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number of things, from 1.
    Count { max: usize },
    /// A number of milliseconds, from 0.
    Millis { max: Duration },
    /// Yes or no.
    Flag,
    /// Any text.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { max } => write!(f, "a whole number from 1 to {max}"),
            Self::Millis { max } => write!(
                f,
                "a whole number of milliseconds from 0 to {}",
                max.as_millis()
            ),
            Self::Flag => f.write_str("one of true, 1, yes, false, 0, no"),
            Self::Text => f.write_str("a text"),
        }
    }
}

/// The value of a property.
pub(super) trait Value: Sized {
    /// Reads the value of an environment variable. Returns `None` if the text has another form.
    fn read(text: &str) -> Option<Self>;

    /// Returns whether a property of this kind can have the value.
    fn is_allowed(&self, kind: Kind) -> bool;

    /// Returns the value as text, for errors and logs.
    fn render(&self) -> String;
}

impl Value for usize {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn is_allowed(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Count { max } if (1..=max).contains(self))
    }

    fn render(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok().map(Self::from_millis)
    }

    fn is_allowed(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Millis { max } if *self <= max)
    }

    fn render(&self) -> String {
        // Code can set parts of a millisecond. Rounding up shows a value above the maximum as such.
        self.as_nanos().div_ceil(1_000_000).to_string()
    }
}

impl Value for bool {
    fn read(text: &str) -> Option<Self> {
        match text.to_lowercase().as_str() {
            "true" | "1" | "yes" => Some(true),
            "false" | "0" | "no" => Some(false),
            _ => None,
        }
    }

    fn is_allowed(&self, kind: Kind) -> bool {
        kind == Kind::Flag
    }

    fn render(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn read(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }

    fn is_allowed(&self, kind: Kind) -> bool {
        kind == Kind::Text
    }

    /// Quotes and escapes the text, so that it cannot break a log line.
    fn render(&self) -> String {
        format!("{self:?}")
    }
}
