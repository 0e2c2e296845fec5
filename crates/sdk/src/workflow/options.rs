//! Options that several kinds of calls share.

use std::time::Duration;

use serde_json::{Value, json};

use crate::duration::seconds;

/// An option the protocol cannot express. The call that carries it fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct OptionError(pub(crate) String);

/// How often an activity or child workflow is attempted, and how long the pauses between attempts are.
///
/// **An activity has one attempt by default:** without a retry policy, a failed attempt is not repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    max_attempts: Option<u32>,
    backoff: Vec<Duration>,
    non_retryable: Vec<String>,
}

impl Default for RetryPolicy {
    /// One attempt.
    fn default() -> Self {
        Self::attempts(1)
    }
}

impl RetryPolicy {
    /// At most `max_attempts` attempts, the first included, without pauses.
    pub fn attempts(max_attempts: u32) -> Self {
        Self {
            max_attempts: Some(max_attempts),
            backoff: Vec::new(),
            non_retryable: Vec::new(),
        }
    }

    /// An unlimited number of attempts, without pauses.
    pub fn unlimited() -> Self {
        Self {
            max_attempts: None,
            ..Self::attempts(1)
        }
    }

    /// Sets the pauses before the second attempt, the third, and so on. The last pause repeats. Pauses are rounded up to whole
    /// seconds.
    #[must_use]
    pub fn backoff(mut self, pauses: impl IntoIterator<Item = Duration>) -> Self {
        self.backoff = pauses.into_iter().collect();
        self
    }

    /// Sets pauses that double from `first` up to `longest`.
    #[must_use]
    pub fn exponential(self, first: Duration, longest: Duration) -> Self {
        let mut pauses = vec![first.min(longest)];
        let mut pause = first;
        // Enough to reach any length; a policy with fewer retries gets fewer pauses.
        while pause < longest && pauses.len() < 64 {
            pause = (pause * 2).min(longest);
            pauses.push(pause);
        }
        if let Some(attempts) = self.max_attempts {
            pauses.truncate(attempts.saturating_sub(1) as usize);
        }
        self.backoff(pauses)
    }

    /// Does not retry after a failure of this type.
    #[must_use]
    pub fn give_up_on(mut self, exception_type: impl Into<String>) -> Self {
        self.non_retryable.push(exception_type.into());
        self
    }

    pub(crate) fn to_wire(&self) -> Result<Value, OptionError> {
        if self.max_attempts == Some(0) {
            return Err(OptionError(
                "a retry policy needs at least one attempt".to_owned(),
            ));
        }
        Ok(json!({
            "max_attempts": self.max_attempts,
            "backoff_seconds": self.backoff.iter().map(|pause| seconds(*pause)).collect::<Vec<_>>(),
            "non_retryable_error_types": self.non_retryable,
        }))
    }
}
