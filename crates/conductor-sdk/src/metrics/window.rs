//! The newest observations of a summary.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How many observations the quantiles of a summary are computed from, as in other Conductor SDKs.
pub(super) const WINDOW_MAX: usize = 1000;

/// The number and the sum of all observations, and the newest ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Milliseconds since 1970 and the value, the oldest first.
    newest: VecDeque<(u64, f64)>,
}

impl Window {
    pub(super) fn observe(&mut self, value: f64, at_millis: u64) {
        self.count += 1;
        self.sum += value;
        if self.newest.len() == WINDOW_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back((at_millis, value));
    }

    /// Adds the observations of another process. The newest of both are kept.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.newest.extend(&other.newest);
        let both = self.newest.make_contiguous();
        both.sort_by_key(|(at_millis, _)| *at_millis);
        let surplus = self.newest.len().saturating_sub(WINDOW_MAX);
        self.newest.drain(..surplus);
    }

    /// Returns the smallest of the newest observations that is not exceeded by this part of them, for each part.
    pub(super) fn quantiles<const N: usize>(&self, parts: [f64; N]) -> Option<[f64; N]> {
        let mut sorted: Vec<f64> = self.newest.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(parts.map(|part| {
            // A window has at most a thousand observations, so no conversion loses anything.
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted[rank.saturating_sub(1).min(last)]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(values: impl IntoIterator<Item = (u64, u32)>) -> Window {
        let mut window = Window::default();
        for (at, value) in values {
            window.observe(f64::from(value), at);
        }
        window
    }

    #[test]
    fn quantiles_are_observations() {
        let hundred = window((1..=100).map(|value| (0, value)));
        let quantiles = hundred.quantiles([0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0]);
        assert_eq!(quantiles, Some([1.0, 50.0, 75.0, 90.0, 95.0, 99.0, 100.0]));
        assert_eq!(window([(0, 7)]).quantiles([0.5, 0.99]), Some([7.0, 7.0]));
        assert_eq!(Window::default().quantiles([0.5]), None);
    }

    #[test]
    fn old_observations_leave_the_window_and_stay_in_the_sum() {
        let many = window((1..=1500).map(|value| (0, value)));
        assert_eq!(many.quantiles([0.0, 1.0]), Some([501.0, 1500.0]));
        assert_eq!((many.count, many.sum), (1500, 1_125_750.0));
    }

    #[test]
    fn a_merged_window_has_the_newest_of_both() {
        let mut old = window((0..800).map(|at| (at, 1)));
        let new = window((400..1200).map(|at| (at, 2)));
        old.merge(&new);
        assert_eq!((old.count, old.sum), (1600, 2400.0));
        assert_eq!(old.newest.len(), WINDOW_MAX);
        // From the moment 500 on, with 300 observations of the first and 700 of the second.
        let of_first = old.newest.iter().filter(|(_, value)| *value == 1.0);
        assert_eq!(of_first.count(), 300);
    }
}
