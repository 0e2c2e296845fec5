//! Why a task failed, and whether it may be tried again.

use std::error::Error;
use std::fmt;

/// What the function of a worker returns: a value, or the reason why the task failed.
pub type TaskResponse<T> = Result<T, TaskFailure>;

/// The reason why a task failed. Every error becomes one with `?`.
///
/// The server tries the task again as its definition says, unless [`NonRetryable`] stands anywhere in the chain of causes.
pub struct TaskFailure {
    error: Box<dyn Error + Send + Sync>,
    type_name: &'static str,
}

impl TaskFailure {
    /// Creates a failure with a message. The task may be tried again.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            error: message.into().into(),
            type_name: "TaskFailure",
        }
    }

    /// The function of the worker panicked.
    pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self {
            error: format!("the worker panicked: {text}").into(),
            type_name: "panic",
        }
    }

    /// Returns whether the task must not be tried again.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.chain().any(|error| error.is::<NonRetryable>())
    }

    /// Returns the message. The name of the type if there is none.
    #[must_use]
    pub fn message(&self) -> String {
        let message = self.error.to_string();
        if message.trim().is_empty() {
            self.type_name.to_owned()
        } else {
            message
        }
    }

    /// Returns the name of the type of the error, without its path. Metrics tell failures apart by it.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }

    /// Returns the message and those of all causes, one per line.
    pub(crate) fn trace(&self) -> String {
        let mut text = format!("{}: {}", self.type_name, self.message());
        for cause in self.chain().skip(1) {
            text.push_str("\ncaused by: ");
            text.push_str(&cause.to_string());
        }
        text
    }

    fn chain(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let first: &(dyn Error + 'static) = &*self.error;
        std::iter::successors(Some(first), |error| (*error).source())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for TaskFailure {
    fn from(error: E) -> Self {
        let path = std::any::type_name::<E>();
        // Generic arguments have paths of their own.
        let path = path.split('<').next().unwrap_or(path);
        Self {
            error: Box::new(error),
            type_name: path.rsplit("::").next().unwrap_or(path),
        }
    }
}

impl fmt::Debug for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskFailure({:?})", self.error)
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// A failure that no further attempt can mend, such as an order that does not exist. The task ends as `FAILED_WITH_TERMINAL_ERROR`.
///
/// ```
/// # use longhaul_conductor_sdk::worker::{NonRetryable, TaskResponse};
/// fn refund(cents: i64) -> TaskResponse<i64> {
///     if cents < 0 {
///         return Err(NonRetryable::new("the amount is negative").into());
///     }
///     Ok(cents)
/// }
/// # assert!(refund(-1).unwrap_err().is_terminal());
/// ```
#[derive(Debug)]
pub struct NonRetryable {
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl NonRetryable {
    /// Creates a failure with a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
        }
    }

    /// Creates a failure from an error, with its message.
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let error = error.into();
        Self {
            message: error.to_string(),
            cause: Some(error),
        }
    }
}

impl fmt::Display for NonRetryable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for NonRetryable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Wrapped {
        text: &'static str,
        #[source]
        cause: NonRetryable,
    }

    #[test]
    fn non_retryable_is_found_anywhere_in_the_chain() {
        let wrapped = Wrapped {
            text: "charging failed",
            cause: NonRetryable::new("the card is blocked"),
        };
        let failure = TaskFailure::from(wrapped);
        assert!(failure.is_terminal());
        assert_eq!(failure.message(), "charging failed");
        assert_eq!(
            failure.trace(),
            "Wrapped: charging failed\ncaused by: the card is blocked"
        );
        let other = TaskFailure::from(std::io::Error::other("disk full"));
        assert!(!other.is_terminal());
        assert_eq!(other.type_name(), "Error");
    }

    #[test]
    fn a_failure_without_a_message_has_the_name_of_its_type() {
        let failure = TaskFailure::from(NonRetryable::new(" "));
        assert_eq!(failure.message(), "NonRetryable");
        assert_eq!(TaskFailure::new("no").message(), "no");
        let caused = NonRetryable::from_error(std::io::Error::other("gone"));
        assert_eq!(
            TaskFailure::from(caused).trace(),
            "NonRetryable: gone\ncaused by: gone"
        );
    }

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        for payload in [
            Box::new("boom") as Box<dyn std::any::Any + Send>,
            Box::new("boom".to_owned()),
        ] {
            let failure = TaskFailure::panicked(&*payload);
            assert_eq!(failure.message(), "the worker panicked: boom");
            assert!(!failure.is_terminal());
        }
        assert_eq!(
            TaskFailure::panicked(&7).message(),
            "the worker panicked: no message"
        );
    }
}
