//! When to try a request again.

use std::time::Duration;

use super::RequestError;

/// How often a failed request is repeated, and after which waits.
///
/// Only requests that may be repeated are: those that say the same thing twice without doing it twice, and those that
/// certainly did nothing. Waits grow, and are shortened at random so that many clients do not come back at once.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    first_wait: Duration,
    wait_max: Duration,
}

impl RetryPolicy {
    /// No second try.
    pub const NEVER: Self = Self::new(1);

    /// At most this many tries, with waits from 100 milliseconds on that double up to 5 seconds.
    #[must_use]
    pub const fn new(attempts: u32) -> Self {
        Self {
            attempts,
            first_wait: Duration::from_millis(100),
            wait_max: Duration::from_secs(5),
        }
    }

    /// The wait after the first try.
    #[must_use]
    pub const fn first_wait(mut self, wait: Duration) -> Self {
        self.first_wait = wait;
        self
    }

    /// The longest wait. A server that asks for a longer one gets it.
    #[must_use]
    pub const fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = wait;
        self
    }

    /// How long to wait after the `attempt`-th try (from 1) ended in `error`; nothing when it was the last.
    ///
    /// `luck` is between 0 and 1.
    pub(crate) fn wait_after(
        &self,
        attempt: u32,
        error: &RequestError,
        luck: f64,
    ) -> Option<Duration> {
        (attempt < self.attempts).then(|| {
            let grown = self
                .first_wait
                .saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX))
                .min(self.wait_max);
            // At least half of it: a wait of nothing would not be one.
            let wait = grown.mul_f64(0.5 + luck.clamp(0.0, 1.0) / 2.0);
            wait.max(error.retry_after().unwrap_or_default())
        })
    }
}

impl Default for RetryPolicy {
    /// Seven tries in about six seconds: they ride out a restart of the server.
    fn default() -> Self {
        Self::new(7)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Refusal, Response, TransportError};
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end_with_the_tries() {
        let policy = RetryPolicy::new(5)
            .first_wait(Duration::from_millis(100))
            .wait_max(Duration::from_millis(300));
        let error = TransportError::Unreachable("refused".to_owned()).into();
        let waits: Vec<_> = (1..=5)
            .map(|attempt| policy.wait_after(attempt, &error, 1.0))
            .collect();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            waits,
            [millis(100), millis(200), millis(300), millis(300), None]
        );
        assert_eq!(policy.wait_after(1, &error, 0.0), millis(50));
        let patient = RetryPolicy::new(u32::MAX).wait_max(Duration::from_secs(1));
        assert_eq!(patient.wait_after(4_000_000, &error, 1.0), millis(1000));
        assert_eq!(RetryPolicy::NEVER.wait_after(1, &error, 1.0), None);
    }

    #[test]
    fn a_server_is_not_asked_again_before_it_wants_to_be() {
        let error = RequestError::Refused(Refusal::read(&Response {
            status: 429,
            body: r#"{"reason":"x","retry_after_seconds":30}"#.into(),
        }));
        let wait = RetryPolicy::default().wait_after(1, &error, 0.3);
        assert_eq!(wait, Some(Duration::from_secs(30)));
    }
}
