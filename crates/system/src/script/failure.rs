//! Why an evaluation has no result.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a script has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The script is wrong: a syntax error, an uncaught exception, or a result that has no JSON form. It fails again if it is repeated.
    #[error("Error evaluating the script `{message}`{}", At(*line))]
    Script {
        /// The error in the words of the script engine, for example `TypeError: cannot read property 'b' of undefined`.
        message: String,
        /// The line of the script, from 1, if the error has one.
        line: Option<u32>,
    },
    /// The evaluation reached a limit.
    #[error("{0}")]
    Limit(Limit),
    /// Too many evaluations wait already, or this one waited too long for a process.
    #[error("Script not evaluated: too many scripts are waiting. Try again later.")]
    Busy,
    /// No script process can be used. The text is for the log.
    #[error("Script not evaluated: {0}")]
    Unavailable(String),
}

impl Failure {
    /// Returns whether a repetition may succeed. An error of the script and a size over its limit come again each time.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Script { .. } => false,
            Self::Limit(limit) => limit.is_retriable(),
            Self::Busy | Self::Unavailable(_) => true,
        }
    }
}

/// The limit that an evaluation reached, with its allowed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Processor time.
    Cpu(Duration),
    /// Time on the clock.
    Wall(Duration),
    /// Memory in bytes.
    Memory(u64),
    /// Stack of the script engine in bytes.
    Stack(usize),
    /// Size of the script and its input.
    Input {
        /// The limit in bytes.
        allowed: usize,
        /// The size in bytes.
        actual: usize,
    },
    /// Size of the result in bytes.
    Result(usize),
}

impl Limit {
    /// Returns whether a repetition may succeed. Sizes do not change.
    pub fn is_retriable(self) -> bool {
        match self {
            Self::Cpu(_) | Self::Wall(_) | Self::Memory(_) | Self::Stack(_) => true,
            Self::Input { .. } | Self::Result(_) => false,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Cpu(limit) => write!(
                f,
                "Script not evaluated within {} of processor time, interrupted.",
                Span(limit)
            ),
            Self::Wall(limit) => {
                write!(
                    f,
                    "Script not evaluated within {}, interrupted.",
                    Span(limit)
                )
            }
            Self::Memory(limit) => {
                write!(
                    f,
                    "Script not evaluated within {} of memory, interrupted.",
                    Size(limit)
                )
            }
            Self::Stack(limit) => write!(
                f,
                "Script not evaluated within a stack of {}: its calls nest too deeply.",
                Size(limit as u64)
            ),
            Self::Input { allowed, actual } => write!(
                f,
                "Script not evaluated: the script and its input have {actual} bytes, and the limit is {allowed} bytes."
            ),
            Self::Result(allowed) => write!(
                f,
                "The result of the script has more than the allowed {allowed} bytes."
            ),
        }
    }
}

struct At(Option<u32>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, " at line {line}"),
            None => Ok(()),
        }
    }
}

struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, unit) = match self.0.subsec_nanos() {
            0 => (u128::from(self.0.as_secs()), "second"),
            _ => (self.0.as_millis(), "millisecond"),
        };
        let plural = if amount == 1 { "" } else { "s" };
        write!(f, "{amount} {unit}{plural}")
    }
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MEGABYTE: u64 = 1 << 20;
        const KILOBYTE: u64 = 1 << 10;
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(MEGABYTE) => {
                write!(f, "{} MB", bytes / MEGABYTE)
            }
            bytes if bytes > 0 && bytes.is_multiple_of(KILOBYTE) => {
                write!(f, "{} KB", bytes / KILOBYTE)
            }
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_limit_and_its_value() {
        let check = |limit: Limit, expected: &str| assert_eq!(limit.to_string(), expected);
        check(
            Limit::Wall(Duration::from_secs(4)),
            "Script not evaluated within 4 seconds, interrupted.",
        );
        check(
            Limit::Cpu(Duration::from_secs(1)),
            "Script not evaluated within 1 second of processor time, interrupted.",
        );
        check(
            Limit::Wall(Duration::from_millis(1500)),
            "Script not evaluated within 1500 milliseconds, interrupted.",
        );
        check(
            Limit::Memory(64 << 20),
            "Script not evaluated within 64 MB of memory, interrupted.",
        );
        check(
            Limit::Stack(1536),
            "Script not evaluated within a stack of 1536 bytes: its calls nest too deeply.",
        );
    }

    #[test]
    fn an_error_of_the_script_names_its_line_if_it_has_one() {
        let failure = |line| Failure::Script {
            message: "TypeError: no".to_owned(),
            line,
        };
        assert_eq!(
            failure(Some(3)).to_string(),
            "Error evaluating the script `TypeError: no` at line 3"
        );
        assert_eq!(
            failure(None).to_string(),
            "Error evaluating the script `TypeError: no`"
        );
    }

    #[test]
    fn only_what_may_change_is_retriable() {
        assert!(Failure::Busy.is_retriable());
        assert!(Failure::Limit(Limit::Memory(1)).is_retriable());
        assert!(!Failure::Limit(Limit::Result(1)).is_retriable());
        let script = Failure::Script {
            message: String::new(),
            line: None,
        };
        assert!(!script.is_retriable());
    }
}
