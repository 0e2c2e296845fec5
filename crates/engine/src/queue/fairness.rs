//! Which of several ready tasks goes first: the lower priority number, then the fairness class with the fewest dispatches for its
//! weight, then age. Counts decay with a half-life, so that a class that was idle for a while has neither advantage nor
//! disadvantage.

use std::collections::BTreeMap;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;

/// A count halves in this time.
const HALF_LIFE_SECONDS: f64 = 30.0;

/// Classes kept per queue. The least served are dropped first, which at worst serves them a little early.
const CLASSES_MAX: usize = 10_000;

/// Dispatches of a queue by fairness class.
#[derive(Default)]
pub struct Fairness {
    classes: BTreeMap<Option<String>, Count>,
}

/// The facts that the order of ready tasks depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// 0 is the most urgent.
    pub priority: u8,
    pub fairness_key: Option<String>,
    pub fairness_weight: u32,
    pub available_at: Timestamp,
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
    /// Counts one dispatch.
    pub fn count(&mut self, class: Option<&str>, now: Timestamp) {
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

    /// Returns the recent dispatches of each class, decayed.
    pub fn recent(&self, now: Timestamp) -> Vec<(Option<String>, f64)> {
        self.classes
            .iter()
            .map(|(class, count)| (class.clone(), count.faded(now)))
            .collect()
    }

    /// Returns whether the first of two ready tasks goes before the second. Within one class the order is exact: priority, age, id.
    pub fn goes_first(
        &self,
        (first, first_id): (&Rank, &TaskId),
        (second, second_id): (&Rank, &TaskId),
        now: Timestamp,
    ) -> bool {
        if first.fairness_key == second.fairness_key {
            let exact = |rank: &Rank| (rank.priority, rank.available_at);
            return (exact(first), first_id) < (exact(second), second_id);
        }
        first.priority < second.priority
            || (first.priority == second.priority && self.prefers(first, second, now))
    }

    /// Returns whether the first of two tasks of one priority goes before the second.
    pub fn prefers(&self, first: &Rank, second: &Rank, now: Timestamp) -> bool {
        let (left, right) = (self.share(first, now), self.share(second, now));
        left < right || (left == right && first.available_at < second.available_at)
    }

    fn share(&self, rank: &Rank, now: Timestamp) -> f64 {
        let count = self.classes.get(&rank.fairness_key);
        let dispatched = count.map_or(0.0, |count| count.faded(now));
        dispatched / f64::from(rank.fairness_weight.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(class: &str, weight: u32, available_at: Timestamp) -> Rank {
        Rank {
            priority: 5,
            fairness_key: Some(class.to_owned()),
            fairness_weight: weight,
            available_at,
        }
    }

    #[test]
    fn the_less_served_class_goes_first_and_counts_decay() {
        let start = Timestamp::from_micros(0);
        let mut fairness = Fairness::default();
        for _ in 0..4 {
            fairness.count(Some("busy"), start);
        }
        fairness.count(Some("calm"), start);
        let busy = rank("busy", 1, start);
        let calm = rank("calm", 1, start.plus_seconds(1));
        assert!(fairness.prefers(&calm, &busy, start));
        assert!(fairness.prefers(&rank("busy", 1000, start), &calm, start));
        let much_later = start.plus_seconds(3600);
        assert!(fairness.prefers(&rank("new", 1, start), &busy, much_later));
    }

    #[test]
    fn a_more_urgent_task_goes_before_a_less_served_class() {
        let start = Timestamp::from_micros(0);
        let mut fairness = Fairness::default();
        fairness.count(Some("busy"), start);
        let (one, two) = (TaskId::from("task-1"), TaskId::from("task-2"));
        let urgent = Rank {
            priority: 1,
            ..rank("busy", 1, start)
        };
        let calm = rank("calm", 1, start);
        assert!(fairness.goes_first((&urgent, &two), (&calm, &one), start));
        assert!(!fairness.goes_first((&calm, &one), (&urgent, &two), start));
    }

    #[test]
    fn within_one_class_age_decides_and_then_the_id() {
        let start = Timestamp::from_micros(0);
        let fairness = Fairness::default();
        let (one, two) = (TaskId::from("task-1"), TaskId::from("task-2"));
        let (old, new) = (rank("a", 1, start), rank("a", 1, start.plus_seconds(1)));
        assert!(fairness.goes_first((&old, &two), (&new, &one), start));
        assert!(fairness.goes_first((&old, &one), (&old, &two), start));
        assert!(!fairness.goes_first((&old, &two), (&old, &one), start));
    }
}
