//! When a failed request is repeated.

use std::time::Duration;

use bytes::Bytes;

use crate::{Refusal, Request, RequestError, Transport};

/// How often a client repeats a failed request to the server, and how long it waits in between. Retries of the user's code are
/// something else.
///
/// Only idempotent requests are repeated, and requests that certainly had no effect. Waits grow and have random jitter, so that
/// many clients do not retry at the same time.
#[derive(Clone, Copy, Debug)]
pub struct RequestRetry {
    attempts: u32,
    first_wait: Duration,
    wait_max: Duration,
}

impl RequestRetry {
    /// No retries.
    pub const NEVER: Self = Self::new(1);

    /// At most this many attempts. Waits double from 100 milliseconds up to 5 seconds.
    #[must_use]
    pub const fn new(attempts: u32) -> Self {
        Self {
            attempts,
            first_wait: Duration::from_millis(100),
            wait_max: Duration::from_secs(5),
        }
    }

    /// Sets the wait after the first attempt.
    #[must_use]
    pub const fn first_wait(mut self, wait: Duration) -> Self {
        self.first_wait = wait;
        self
    }

    /// Sets the longest wait. If the server asks for a longer wait, the client waits that long.
    #[must_use]
    pub const fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = wait;
        self
    }

    /// Returns the wait after attempt number `attempt` (from 1) failed with `error`. `None` if it was the last attempt.
    ///
    /// `jitter` is a random number between 0 and 1.
    #[must_use]
    pub fn wait_after(&self, attempt: u32, error: &RequestError, jitter: f64) -> Option<Duration> {
        (attempt < self.attempts).then(|| {
            let grown = self
                .first_wait
                .saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX))
                .min(self.wait_max);
            // At least half of the full wait.
            let wait = grown.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
            wait.max(error.retry_after().unwrap_or_default())
        })
    }
}

impl Default for RequestRetry {
    /// Seven attempts in about six seconds, which bridge a restart of the server.
    fn default() -> Self {
        Self::new(7)
    }
}

/// Which failed requests may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Every request that may succeed later. The request is idempotent.
    Freely,
    /// Only a request that had no effect.
    IfWithoutEffect,
    /// None. The caller decides.
    Never,
}

impl Repeat {
    /// Returns whether a request that failed with `error` may be sent again.
    #[must_use]
    pub fn allows(self, error: &RequestError) -> bool {
        error.is_retryable()
            && match self {
                Self::Freely => true,
                Self::IfWithoutEffect => error.is_without_effect(),
                Self::Never => false,
            }
    }
}

/// Sends a request, repeats it if allowed, and returns the body of the response.
///
/// # Errors
/// The error of the last attempt.
pub async fn send(
    transport: &dyn Transport,
    request: Request,
    retry: &RequestRetry,
    repeat: Repeat,
) -> Result<Bytes, RequestError> {
    let mut attempt = 1;
    loop {
        let error = match send_once(transport, request.clone()).await {
            Ok(body) => return Ok(body),
            Err(error) => error,
        };
        let wait = retry.wait_after(attempt, &error, rand::random());
        let Some(wait) = wait.filter(|_| repeat.allows(&error)) else {
            return Err(error);
        };
        tracing::debug!(%error, path = request.path, attempt, ?wait, "retrying a request");
        tokio::time::sleep(wait).await;
        attempt += 1;
    }
}

async fn send_once(transport: &dyn Transport, request: Request) -> Result<Bytes, RequestError> {
    let response = transport.send(request).await?;
    if response.is_success() {
        Ok(response.body)
    } else {
        Err(RequestError::Refused(Refusal::read(&response)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Response, TransportError};

    #[test]
    fn waits_double_up_to_the_longest_and_end_with_the_attempts() {
        let policy = RequestRetry::new(5)
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
        let patient = RequestRetry::new(u32::MAX).wait_max(Duration::from_secs(1));
        assert_eq!(patient.wait_after(4_000_000, &error, 1.0), millis(1000));
        assert_eq!(RequestRetry::NEVER.wait_after(1, &error, 1.0), None);
    }

    #[test]
    fn the_wait_that_the_server_asks_for_is_kept() {
        let error = RequestError::Refused(Refusal::read(&Response {
            status: 429,
            body: r#"{"reason":"x","retry_after_seconds":30}"#.into(),
        }));
        let wait = RequestRetry::default().wait_after(1, &error, 0.3);
        assert_eq!(wait, Some(Duration::from_secs(30)));
    }
}
