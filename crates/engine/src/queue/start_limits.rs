//! Limits of a task definition on its tasks: how many may be in progress at once, and how many may start in a window of time.

use std::collections::VecDeque;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::TaskDef;
use serde::{Deserialize, Serialize};

/// The limits of a task definition. Each task keeps those of the definition that it was scheduled with; what counts against them are
/// all tasks of the same definition name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct StartLimits {
    /// Tasks in progress at once; 0 is no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub in_progress: u32,
    /// Starts in a window; 0 is no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub starts: u32,
    /// The length of the window; 0 if starts are not limited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_seconds: u32,
}

/// Why a task may not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartWithheld {
    /// As many tasks as allowed are in progress.
    InProgress,
    /// As many tasks as allowed have started, or are about to. The window has no room before `room_at`.
    Starts { room_at: Timestamp },
    /// This server holds no share of the starts.
    Share,
}

/// What counts against the limits of a definition name.
#[derive(Clone, Copy, Debug)]
pub struct StartUsage<'a> {
    /// Tasks in progress, and those on their way to a worker.
    pub in_progress: u64,
    /// The part of them that is on its way.
    pub on_the_way: u64,
    pub recent: &'a RecentStarts,
}

impl StartLimits {
    /// Returns the limits of a task definition, if it has any.
    pub fn of(definition: &TaskDef) -> Option<Self> {
        let number = |value: i32| u32::try_from(value).unwrap_or(0);
        let (starts, window_seconds) = (
            number(definition.rate_limit_per_frequency),
            number(definition.rate_limit_frequency_in_seconds),
        );
        let has_rate = starts > 0 && window_seconds > 0;
        let limits = Self {
            in_progress: definition.concurrent_exec_limit.map_or(0, number),
            starts: if has_rate { starts } else { 0 },
            window_seconds: if has_rate { window_seconds } else { 0 },
        };
        (limits != Self::default()).then_some(limits)
    }

    /// Returns whether starts in a window are limited.
    pub fn has_rate(&self) -> bool {
        self.starts > 0
    }

    /// Checks whether one more task may start now.
    ///
    /// # Errors
    /// The limit that withholds it.
    pub fn admit(&self, usage: &StartUsage<'_>, now: Timestamp) -> Result<(), StartWithheld> {
        if self.in_progress > 0 && usage.in_progress >= u64::from(self.in_progress) {
            return Err(StartWithheld::InProgress);
        }
        if self.has_rate() {
            let limit = u64::from(self.starts);
            let started = usage.recent.within(self.window_seconds, now);
            if started + usage.on_the_way >= limit {
                let left = limit.saturating_sub(usage.on_the_way);
                let room_at = if left > 0 {
                    usage.recent.room_at(left, self.window_seconds, now)
                } else {
                    // Those that are about to start will leave the window later than this.
                    now.plus_seconds(self.window_seconds.into())
                };
                return Err(StartWithheld::Starts { room_at });
            }
        }
        Ok(())
    }
}

/// Beyond this many entries, starts that are close together share one. A limit below it is exact to the microsecond.
const EXACT_MAX: usize = 256;

/// Times of recent starts of the tasks of one definition name. Its size is bounded: many starts in a long window share entries, and
/// an entry counts until its newest start has left the window. So a limit is never exceeded, and room comes late by at most a
/// 256th of the window.
#[derive(Clone, Debug, Default)]
pub struct RecentStarts {
    entries: VecDeque<Entry>,
    /// The longest window that counts these starts.
    window_seconds: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    first: Timestamp,
    newest: Timestamp,
    starts: u64,
}

impl RecentStarts {
    /// Counts a start of a task whose limit has this window.
    pub fn count(&mut self, at: Timestamp, window_seconds: u32) {
        self.window_seconds = self.window_seconds.max(window_seconds);
        let is_full = self.entries.len() >= EXACT_MAX;
        let share_micros = u64::from(self.window_seconds) * 1_000_000 / EXACT_MAX as u64;
        // Times never step back here, even when the clock does.
        let at = self.entries.back().map_or(at, |last| last.newest.max(at));
        match self.entries.back_mut() {
            Some(last) if is_full && last.first.micros_until(at) <= share_micros => {
                last.newest = at;
                last.starts += 1;
            }
            _ => self.entries.push_back(Entry {
                first: at,
                newest: at,
                starts: 1,
            }),
        }
        let window = u64::from(self.window_seconds);
        while let Some(oldest) = self.entries.front()
            && oldest.newest.plus_seconds(window) <= at
        {
            self.entries.pop_front();
        }
    }

    /// Returns the number of starts in the last `window_seconds`.
    pub fn within(&self, window_seconds: u32, now: Timestamp) -> u64 {
        self.entries
            .iter()
            .rev()
            .take_while(|entry| entry.newest.plus_seconds(window_seconds.into()) > now)
            .map(|entry| entry.starts)
            .sum()
    }

    /// Returns when fewer than `limit` of the present starts will be in the window.
    fn room_at(&self, limit: u64, window_seconds: u32, now: Timestamp) -> Timestamp {
        let mut left = self.within(window_seconds, now);
        for entry in &self.entries {
            let leaves_at = entry.newest.plus_seconds(window_seconds.into());
            if leaves_at <= now {
                continue;
            }
            left -= entry.starts;
            if left < limit {
                return leaves_at;
            }
        }
        now
    }

    /// Returns whether no window counts anything any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.within(self.window_seconds, now) == 0
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use longhaul_protocol::conductor::read;
    use serde_json::{Value, json};

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000 + millis * 1000)
    }

    fn of(definition: Value) -> Option<StartLimits> {
        StartLimits::of(&read::<TaskDef>(definition).unwrap())
    }

    fn usage(in_progress: u64, recent: &RecentStarts) -> StartUsage<'_> {
        StartUsage {
            in_progress,
            on_the_way: 0,
            recent,
        }
    }

    #[test]
    fn a_definition_without_limits_has_none() {
        assert_eq!(of(json!({"name": "t"})), None);
        assert_eq!(of(json!({"name": "t", "concurrentExecLimit": 0})), None);
        // The window has a length by default; without a number of starts it limits nothing.
        assert_eq!(
            of(json!({"name": "t", "rateLimitFrequencyInSeconds": 5})),
            None
        );
        let no_window =
            json!({"name": "t", "rateLimitPerFrequency": 5, "rateLimitFrequencyInSeconds": 0});
        assert_eq!(of(no_window), None);
        let rate = of(json!({"name": "t", "rateLimitPerFrequency": 5})).unwrap();
        assert_eq!((rate.starts, rate.window_seconds), (5, 1));
    }

    #[test]
    fn as_many_tasks_as_allowed_are_in_progress() {
        let limits = of(json!({"name": "t", "concurrentExecLimit": 2})).unwrap();
        let none = RecentStarts::default();
        assert_eq!(limits.admit(&usage(1, &none), at(0)), Ok(()));
        let withheld = Err(StartWithheld::InProgress);
        assert_eq!(limits.admit(&usage(2, &none), at(0)), withheld);
        assert_eq!(limits.admit(&usage(3, &none), at(0)), withheld);
    }

    #[test]
    fn the_window_slides() {
        let limits = StartLimits {
            in_progress: 0,
            starts: 2,
            window_seconds: 10,
        };
        let mut recent = RecentStarts::default();
        recent.count(at(0), 10);
        assert_eq!(limits.admit(&usage(0, &recent), at(4000)), Ok(()));
        recent.count(at(4000), 10);
        let withheld = |room_at| Err(StartWithheld::Starts { room_at });
        assert_eq!(
            limits.admit(&usage(0, &recent), at(9999)),
            withheld(at(10_000))
        );
        assert_eq!(limits.admit(&usage(0, &recent), at(10_000)), Ok(()));
        recent.count(at(10_000), 10);
        assert_eq!(
            limits.admit(&usage(0, &recent), at(10_000)),
            withheld(at(14_000))
        );
    }

    #[test]
    fn tasks_on_their_way_count_as_started() {
        let limits = StartLimits {
            in_progress: 0,
            starts: 2,
            window_seconds: 10,
        };
        let mut recent = RecentStarts::default();
        recent.count(at(0), 10);
        let on_the_way = |on_the_way| StartUsage {
            in_progress: 0,
            on_the_way,
            recent: &recent,
        };
        let room_at = at(10_000);
        assert_eq!(
            limits.admit(&on_the_way(1), at(1)),
            Err(StartWithheld::Starts { room_at })
        );
        let room_at = at(10_001);
        assert_eq!(
            limits.admit(&on_the_way(2), at(1)),
            Err(StartWithheld::Starts { room_at })
        );
    }

    #[test]
    fn no_window_has_more_starts_than_allowed() {
        // Far more starts than entries: the limit holds in every window, and almost all of it is used.
        let limits = StartLimits {
            in_progress: 0,
            starts: 5000,
            window_seconds: 1,
        };
        let mut recent = RecentStarts::default();
        let mut started = Vec::new();
        for step in 0..60_000 {
            let now = Timestamp::from_micros(at(0).as_micros() + step * 100);
            while limits.admit(&usage(0, &recent), now).is_ok() {
                recent.count(now, 1);
                started.push(now);
            }
            assert!(recent.entries.len() <= 2 * EXACT_MAX + 2);
        }
        for (place, start) in started.iter().enumerate() {
            if let Some(later) = started.get(place + 5000) {
                assert!(start.plus_seconds(1) <= *later);
            }
        }
        assert!(started.len() > 5 * 5000, "{}", started.len());
        assert!(!recent.is_over(started[started.len() - 1]));
        assert!(recent.is_over(at(60_000)));
    }

    #[test]
    fn a_clock_that_steps_back_loses_no_start() {
        let mut recent = RecentStarts::default();
        recent.count(at(5000), 10);
        recent.count(at(1000), 10);
        assert_eq!(recent.within(10, at(2000)), 2);
        assert_eq!(recent.within(10, at(14_999)), 2);
        assert_eq!(recent.within(10, at(15_000)), 0);
    }
}
