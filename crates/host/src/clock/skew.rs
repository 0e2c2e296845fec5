//! How far the clock of this server is from that of the database. Servers that share a database store moments in it: alarms, leases,
//! deadlines. A server whose clock is wrong fires timers at the wrong time and ends leases that are still valid for the others.

use std::time::Duration;

use longhaul_protocol::Timestamp;
use longhaul_store::{ClockReading, Quiet};
use parking_lot::Mutex;

/// From here on the log warns. Clocks that are synchronised differ by milliseconds, so at this distance synchronisation has failed.
const WARNING_FROM: Duration = Duration::from_secs(1);

/// From here on the server is not ready. The shortest lease that a setting allows is one second, and usual ones have minutes; a
/// heartbeat is due every 20 seconds. A server that is this far off would end short leases early.
const TOO_FAR_FROM: Duration = Duration::from_secs(5);

/// The distance between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    ahead_micros: i64,
    /// How much of the distance may be an error of the measurement.
    error: Duration,
}

/// What a distance means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkewLevel {
    Fine,
    /// An operator should look at it.
    Warning,
    /// The server should get no requests.
    TooFar,
}

impl ClockSkew {
    /// Compares the time of this server with that of the database.
    fn between(now: Timestamp, database: &ClockReading) -> Self {
        Self {
            ahead_micros: now
                .as_micros()
                .saturating_sub(database.present_time().as_micros()),
            error: database.error,
        }
    }

    /// Returns how far the clock of this server is ahead, in milliseconds; negative if it is behind.
    pub fn ahead_ms(self) -> i64 {
        self.ahead_micros / 1000
    }

    /// Returns what the distance means. Only what is certain counts: a slow answer of the database is no wrong clock.
    pub fn level(self) -> SkewLevel {
        let apart = Duration::from_micros(self.ahead_micros.unsigned_abs());
        let certain = apart.saturating_sub(self.error);
        if certain >= TOO_FAR_FROM {
            SkewLevel::TooFar
        } else if certain >= WARNING_FROM {
            SkewLevel::Warning
        } else {
            SkewLevel::Fine
        }
    }
}

/// The newest comparison.
#[derive(Debug, Default)]
pub(crate) struct SkewWatch {
    newest: Mutex<Option<ClockSkew>>,
    problem: Quiet,
}

impl SkewWatch {
    /// Compares the clocks, keeps the result and logs a distance that an operator should look at.
    pub(crate) fn compare(&self, now: Timestamp, database: &ClockReading) -> ClockSkew {
        let skew = ClockSkew::between(now, database);
        *self.newest.lock() = Some(skew);
        let unlogged = match skew.level() {
            SkewLevel::Fine => None,
            SkewLevel::Warning | SkewLevel::TooFar => self.problem.occurred(),
        };
        if unlogged.is_some() {
            tracing::warn!(
                ahead_ms = skew.ahead_ms(),
                ready = skew.level() != SkewLevel::TooFar,
                "the clock of this server differs from that of the database; check the time synchronisation of both machines"
            );
        }
        skew
    }

    /// Returns the newest comparison, or `None` if there was none.
    pub(crate) fn newest(&self) -> Option<ClockSkew> {
        *self.newest.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(ahead_ms: i64, error_ms: u64) -> SkewLevel {
        let skew = ClockSkew {
            ahead_micros: ahead_ms * 1000,
            error: Duration::from_millis(error_ms),
        };
        assert_eq!(skew.ahead_ms(), ahead_ms);
        skew.level()
    }

    #[test]
    fn a_second_is_a_warning_and_five_are_too_far() {
        for (apart_ms, expected) in [
            (0, SkewLevel::Fine),
            (999, SkewLevel::Fine),
            (1000, SkewLevel::Warning),
            (4999, SkewLevel::Warning),
            (5000, SkewLevel::TooFar),
            (86_400_000, SkewLevel::TooFar),
        ] {
            assert_eq!(level(apart_ms, 0), expected, "{apart_ms} ms ahead");
            assert_eq!(level(-apart_ms, 0), expected, "{apart_ms} ms behind");
        }
    }

    #[test]
    fn a_slow_answer_is_no_wrong_clock() {
        assert_eq!(level(5200, 500), SkewLevel::Warning);
        assert_eq!(level(-5200, 500), SkewLevel::Warning);
        assert_eq!(level(1200, 500), SkewLevel::Fine);
        assert_eq!(level(6000, 500), SkewLevel::TooFar);
        assert_eq!(level(100, 3000), SkewLevel::Fine);
    }
}
