//! Counts how often something happened in the last minute, in one-second buckets. Kept in memory: it shows how busy this server is
//! now, and a restart may lose it. Seconds come from the host's clock.

use longhaul_protocol::Timestamp;

/// One minute.
const BUCKETS: usize = 60;

/// A count without everything older than a minute.
#[derive(Clone)]
pub(crate) struct Rate {
    /// Second of the newest count.
    newest: u64,
    buckets: [u32; BUCKETS],
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            newest: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl Rate {
    pub(crate) fn count(&mut self, now: Timestamp) {
        self.count_at(second(now));
    }

    pub(crate) fn last_minute(&self, now: Timestamp) -> u64 {
        self.last_minute_at(second(now))
    }

    /// Returns when fewer than `cap` of the present counts will be left.
    pub(crate) fn room_at(&self, cap: u64, now: Timestamp) -> Timestamp {
        let at = second(now);
        let mut left = self.last_minute_at(at);
        for past in oldest(at)..=self.newest.min(at) {
            if left < cap {
                break;
            }
            left -= u64::from(self.buckets[bucket(past)]);
            if left < cap {
                let whole = i64::try_from(past + BUCKETS as u64).unwrap_or(i64::MAX / 1_000_000);
                return Timestamp::from_micros(whole.saturating_mul(1_000_000));
            }
        }
        now.plus_seconds(1)
    }

    fn count_at(&mut self, second: u64) {
        let passed = second.saturating_sub(self.newest).min(BUCKETS as u64);
        for step in 1..=passed {
            self.buckets[bucket(second - passed + step)] = 0;
        }
        self.newest = self.newest.max(second);
        self.buckets[bucket(self.newest)] = self.buckets[bucket(self.newest)].saturating_add(1);
    }

    fn last_minute_at(&self, second: u64) -> u64 {
        (oldest(second)..=self.newest.min(second))
            .map(|second| u64::from(self.buckets[bucket(second)]))
            .sum()
    }
}

fn second(now: Timestamp) -> u64 {
    u64::try_from(now.as_micros() / 1_000_000).unwrap_or(0)
}

/// Returns the first second that still counts.
fn oldest(second: u64) -> u64 {
    (second + 1).saturating_sub(BUCKETS as u64)
}

fn bucket(second: u64) -> usize {
    (second % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    #[test]
    fn only_the_last_minute_counts() {
        let mut rate = Rate::default();
        for second in [0, 0, 10, 59] {
            rate.count(at(second));
        }
        assert_eq!(rate.last_minute(at(59)), 4);
        assert_eq!(
            rate.last_minute(at(60)),
            2,
            "the first second no longer counts"
        );
        assert_eq!(rate.last_minute(at(70)), 1);
        assert_eq!(rate.last_minute(at(119)), 0);
        rate.count(at(1000));
        assert_eq!(
            rate.last_minute(at(1000)),
            1,
            "old buckets are not counted again"
        );
    }

    #[test]
    fn room_comes_when_old_counts_expire() {
        let mut rate = Rate::default();
        for second in [100, 100, 110] {
            rate.count(at(second));
        }
        assert_eq!(rate.room_at(3, at(120)), at(160));
        assert_eq!(rate.room_at(2, at(120)), at(160));
        assert_eq!(rate.room_at(1, at(120)), at(170));
    }
}
