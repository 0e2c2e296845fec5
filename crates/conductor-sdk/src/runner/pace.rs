//! When the next poll is due.

use std::time::Duration;

use longhaul_transport::RequestError;
use tokio::time::Instant;

/// From this number of empty polls on, the wait is the poll interval.
const EMPTY_POLLS_MAX: u32 = 10;

/// The longest wait after polls that were not authorized.
const UNAUTHORIZED_WAIT_MAX: Duration = Duration::from_secs(60);

/// The longest wait after polls that failed otherwise.
const FAILED_WAIT_MAX: Duration = Duration::from_secs(120);

/// Why a poll or a report failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server does not accept the key or the token.
    Unauthorized,
    Other,
}

impl Failure {
    pub(super) fn of(error: &RequestError) -> Self {
        match error.refusal().map(|refusal| refusal.status()) {
            Some(401 | 403) => Self::Unauthorized,
            Some(_) | None => Self::Other,
        }
    }

    /// Logs a poll that failed, and what a person can do about it. A server that is down comes back by itself; a wrong key does not.
    pub(super) fn log(
        self,
        task_type: &str,
        worker_id: &str,
        error: &RequestError,
        count: u32,
        wait: Duration,
    ) {
        let advice = self.advice();
        match self {
            Self::Unauthorized => tracing::error!(
                task_type, worker_id, %error, count, ?wait,
                "a poll failed: {advice}"
            ),
            Self::Other => tracing::warn!(
                task_type, worker_id, %error, count, ?wait,
                "a poll failed: {advice}"
            ),
        }
    }

    /// Returns what a person can do about it.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Unauthorized => "check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET",
            Self::Other => "check CONDUCTOR_SERVER_URL and that the server runs",
        }
    }

    /// Returns the wait after this many failures in a row.
    fn wait(self, failures: u32) -> Duration {
        let longest = match self {
            Self::Unauthorized => UNAUTHORIZED_WAIT_MAX,
            Self::Other => FAILED_WAIT_MAX,
        };
        let seconds = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
        Duration::from_secs(seconds).min(longest)
    }
}

/// Counts polls without tasks and failed polls, and knows when the next one is due.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    empty_polls: u32,
    unauthorized: u32,
    failed: u32,
    due: Option<Instant>,
}

impl Pace {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            empty_polls: 0,
            unauthorized: 0,
            failed: 0,
            due: None,
        }
    }

    /// Returns how long the next poll must wait. `None` if it is due.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let wait = self.due?.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// A poll returned this many tasks.
    pub(super) fn polled(&mut self, now: Instant, tasks: usize) {
        self.unauthorized = 0;
        self.failed = 0;
        if tasks > 0 {
            self.empty_polls = 0;
            self.due = None;
            return;
        }
        self.empty_polls = self.empty_polls.saturating_add(1).min(EMPTY_POLLS_MAX);
        let wait = if self.empty_polls < EMPTY_POLLS_MAX {
            Duration::from_millis(1 << (self.empty_polls - 1)).min(self.interval)
        } else {
            self.interval
        };
        self.due = Some(now + wait);
    }

    /// A poll failed. Returns how long the next one must wait.
    pub(super) fn failed(&mut self, now: Instant, failure: Failure) -> Duration {
        let count = match failure {
            Failure::Unauthorized => &mut self.unauthorized,
            Failure::Other => &mut self.failed,
        };
        *count = count.saturating_add(1);
        let wait = failure.wait(*count);
        self.due = Some(now + wait);
        wait
    }

    /// Returns how many polls failed in a row.
    pub(super) fn failures(&self) -> u32 {
        self.unauthorized.saturating_add(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the waits in milliseconds after each of `count` steps.
    fn waits(count: usize, mut step: impl FnMut(Instant) -> Option<Duration>) -> Vec<u128> {
        let now = Instant::now();
        let wait = |_| step(now).unwrap_or_default().as_millis();
        (0..count).map(wait).collect()
    }

    #[test]
    fn empty_polls_wait_longer_up_to_the_interval() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let seen = waits(12, |now| {
            pace.polled(now, 0);
            pace.wait(now)
        });
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100]);
        let mut slow = Pace::new(Duration::from_secs(5));
        let seen = waits(11, |now| {
            slow.polled(now, 0);
            slow.wait(now)
        });
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 5000, 5000]);
        let seen = waits(5000, |now| {
            slow.polled(now, 0);
            slow.wait(now)
        });
        assert_eq!(seen[4999], 5000);
    }

    #[test]
    fn tasks_end_every_wait() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let now = Instant::now();
        pace.polled(now, 0);
        pace.failed(now, Failure::Other);
        pace.polled(now, 3);
        assert_eq!(pace.wait(now), None);
        pace.polled(now, 0);
        assert_eq!(pace.wait(now), Some(Duration::from_millis(1)));
        assert_eq!(pace.failed(now, Failure::Other), Duration::from_secs(2));
    }

    #[test]
    fn refused_polls_wait_up_to_a_minute() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let seen = waits(8, |now| Some(pace.failed(now, Failure::Unauthorized)));
        let seconds: Vec<_> = seen.into_iter().map(|millis| millis / 1000).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn other_failures_wait_up_to_two_minutes() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let seen = waits(100, |now| Some(pace.failed(now, Failure::Other)));
        let seconds: Vec<_> = seen.into_iter().map(|millis| millis / 1000).collect();
        assert_eq!(seconds[..8], [2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(seconds[99], 120);
    }

    #[test]
    fn a_poll_is_due_when_its_time_has_come() {
        let mut pace = Pace::new(Duration::from_millis(100));
        let now = Instant::now();
        pace.failed(now, Failure::Other);
        let later = now + Duration::from_millis(1500);
        assert_eq!(pace.wait(later), Some(Duration::from_millis(500)));
        assert_eq!(pace.wait(now + Duration::from_secs(2)), None);
    }
}
