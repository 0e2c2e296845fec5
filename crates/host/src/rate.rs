//! How often something happened in the last minute, in one-second buckets. Kept in memory: it tells how busy this server is now,
//! and a restart may forget it.

use std::time::Instant;

/// One minute.
const BUCKETS: usize = 60;

/// A count that forgets what is older than a minute.
#[derive(Clone)]
pub(crate) struct Rate {
    began: Instant,
    /// Second of the newest count, since `began`.
    newest: u64,
    buckets: [u32; BUCKETS],
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            newest: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl Rate {
    pub(crate) fn count(&mut self) {
        self.count_at(self.began.elapsed().as_secs());
    }

    pub(crate) fn last_minute(&self) -> u64 {
        self.last_minute_at(self.began.elapsed().as_secs())
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
        let oldest = (second + 1).saturating_sub(BUCKETS as u64);
        (oldest..=self.newest.min(second))
            .map(|second| u64::from(self.buckets[bucket(second)]))
            .sum()
    }
}

fn bucket(second: u64) -> usize {
    (second % BUCKETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_remembered_and_no_more() {
        let mut rate = Rate::default();
        for second in [0, 0, 10, 59] {
            rate.count_at(second);
        }
        assert_eq!(rate.last_minute_at(59), 4);
        assert_eq!(rate.last_minute_at(60), 2, "the first second is over");
        assert_eq!(rate.last_minute_at(70), 1);
        assert_eq!(rate.last_minute_at(119), 0);
        rate.count_at(1000);
        assert_eq!(
            rate.last_minute_at(1000),
            1,
            "old buckets are not counted again"
        );
    }
}
