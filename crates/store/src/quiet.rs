//! Logging of problems that every request meets. While the disk is full, a line per request would also fill the disk of the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same problem is logged this often at most.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides whether an occurrence of the same problem is logged.
#[derive(Debug)]
pub struct Quiet(Mutex<State>);

#[derive(Debug)]
struct State {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl Quiet {
    /// Returns the state of a problem that has not occurred yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            logged_at: None,
            unlogged: 0,
        }))
    }

    /// Counts an occurrence. If this one should be logged, returns how many before it were not logged, otherwise `None`.
    pub fn occurred(&self) -> Option<u64> {
        self.occurred_at(Instant::now())
    }

    fn occurred_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = state
            .logged_at
            .is_none_or(|last| now.duration_since(last) >= INTERVAL);
        if is_due {
            state.logged_at = Some(now);
            Some(std::mem::take(&mut state.unlogged))
        } else {
            state.unlogged += 1;
            None
        }
    }
}

impl Default for Quiet {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_problem_is_logged_from_time_to_time_with_a_count() {
        let quiet = Quiet::new();
        let start = Instant::now();
        let at = |seconds: u64| quiet.occurred_at(start + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(1), at(9)), (None, None));
        assert_eq!(at(10), Some(2));
        assert_eq!(at(11), None);
        assert_eq!(at(60), Some(1));
    }
}
