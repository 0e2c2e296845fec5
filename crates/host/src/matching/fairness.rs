//! Fair shares within one priority tier: the class that was dispatched least for its weight comes first. Counts fade with a
//! half-life, so a class that was quiet for a while owes nothing and is owed nothing (worker-protocol §4.7).

use std::collections::HashMap;

use longhaul_protocol::Timestamp;

/// Half of a count is forgotten in this time.
const HALF_LIFE_SECONDS: f64 = 30.0;

/// Classes remembered per queue; the least served are forgotten first, which at worst serves them a little early.
const CLASSES_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Fairness {
    classes: HashMap<Option<String>, Count>,
}

struct Count {
    dispatched: f64,
    at: Timestamp,
}

impl Count {
    fn faded(&self, now: Timestamp) -> f64 {
        let seconds = self.at.micros_until(now) as f64 / 1e6;
        self.dispatched * (-seconds / HALF_LIFE_SECONDS).exp2()
    }
}

impl Fairness {
    pub(crate) fn count(&mut self, class: Option<&str>, now: Timestamp) {
        if self.classes.len() >= CLASSES_MAX {
            self.classes.retain(|_, count| count.faded(now) > 0.5);
        }
        let count = self
            .classes
            .entry(class.map(str::to_owned))
            .or_insert(Count {
                dispatched: 0.0,
                at: now,
            });
        count.dispatched = count.faded(now) + 1.0;
        count.at = now;
    }

    /// What each class was given lately.
    pub(crate) fn recent(&self, now: Timestamp) -> Vec<(Option<String>, f64)> {
        let mut recent: Vec<(Option<String>, f64)> = self
            .classes
            .iter()
            .map(|(class, count)| (class.clone(), count.faded(now)))
            .collect();
        recent.sort_by(|left, right| left.0.cmp(&right.0));
        recent
    }

    /// Whether the first of two candidates goes before the second.
    pub(crate) fn prefers(
        &self,
        first: (Option<&str>, u32, Timestamp),
        second: (Option<&str>, u32, Timestamp),
        now: Timestamp,
    ) -> bool {
        let share = |(class, weight, _): (Option<&str>, u32, Timestamp)| {
            let dispatched = self
                .classes
                .get(&class.map(str::to_owned))
                .map_or(0.0, |count| count.faded(now));
            dispatched / f64::from(weight.max(1))
        };
        let (left, right) = (share(first), share(second));
        left < right || (left == right && first.2 < second.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_served_class_goes_first_and_counts_fade() {
        let start = Timestamp::from_micros(0);
        let mut fairness = Fairness::default();
        for _ in 0..4 {
            fairness.count(Some("busy"), start);
        }
        fairness.count(Some("calm"), start);
        let busy = (Some("busy"), 1, start);
        let calm = (Some("calm"), 1, start.plus_seconds(1));
        assert!(fairness.prefers(calm, busy, start));
        assert!(fairness.prefers((Some("busy"), 1000, start), calm, start));
        let much_later = start.plus_seconds(3600);
        assert!(fairness.prefers((Some("new"), 1, start), busy, much_later));
    }
}
