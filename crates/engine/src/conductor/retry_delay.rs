//! The delay before a new attempt of a task.

use longhaul_protocol::conductor::{RetryLogic, TaskDef};

/// The largest delay in seconds. Larger results of the back-off become this one.
pub const DELAY_SECONDS_MAX: u32 = i32::MAX as u32;

/// The delay before a new attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelay {
    /// The delay that the task shows.
    pub seconds: u32,
    /// What is added to it. It is not shown.
    pub jitter_ms: u32,
}

impl RetryDelay {
    /// Returns the delay after the attempt with this number failed; the first attempt has the number 0. `random` is any number.
    pub fn after(definition: &TaskDef, attempt: u32, random: u64) -> Self {
        let delay = u64::try_from(definition.retry_delay_seconds).unwrap_or(0);
        let factor = match definition.retry_logic {
            RetryLogic::Fixed => 1,
            RetryLogic::LinearBackoff => u64::try_from(definition.backoff_scale_factor)
                .unwrap_or(0)
                .saturating_mul(u64::from(attempt) + 1),
            RetryLogic::ExponentialBackoff => 1_u64.checked_shl(attempt).unwrap_or(u64::MAX),
        };
        let seconds = u32::try_from(delay.saturating_mul(factor)).unwrap_or(DELAY_SECONDS_MAX);
        let cap = u32::try_from(definition.max_retry_delay_seconds)
            .ok()
            .filter(|cap| *cap > 0)
            .unwrap_or(DELAY_SECONDS_MAX);
        let jitter_max = u64::try_from(definition.backoff_jitter_ms).unwrap_or(0);
        let jitter = random % (jitter_max + 1);
        Self {
            seconds: seconds.min(cap).min(DELAY_SECONDS_MAX),
            jitter_ms: u32::try_from(jitter).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(logic: RetryLogic, delay: i32) -> TaskDef {
        TaskDef {
            retry_logic: logic,
            retry_delay_seconds: delay,
            ..TaskDef::default()
        }
    }

    fn seconds(definition: &TaskDef) -> [u32; 4] {
        [0, 1, 2, 3].map(|attempt| RetryDelay::after(definition, attempt, 7).seconds)
    }

    #[test]
    fn each_logic_grows_in_its_way() {
        assert_eq!(seconds(&definition(RetryLogic::Fixed, 5)), [5, 5, 5, 5]);
        assert_eq!(
            seconds(&definition(RetryLogic::ExponentialBackoff, 2)),
            [2, 4, 8, 16]
        );
        let linear = TaskDef {
            backoff_scale_factor: 3,
            ..definition(RetryLogic::LinearBackoff, 2)
        };
        assert_eq!(seconds(&linear), [6, 12, 18, 24]);
    }

    #[test]
    fn the_cap_holds_for_the_delay_and_not_for_the_jitter() {
        let capped = TaskDef {
            max_retry_delay_seconds: 10,
            backoff_jitter_ms: 99_999,
            ..definition(RetryLogic::ExponentialBackoff, 4)
        };
        assert_eq!(seconds(&capped), [4, 8, 10, 10]);
        let delay = RetryDelay::after(&capped, 9, 99_999);
        assert_eq!((delay.seconds, delay.jitter_ms), (10, 99_999));
        assert_eq!(RetryDelay::after(&capped, 9, 100_000).jitter_ms, 0);
    }

    #[test]
    fn large_numbers_stop_at_the_largest_delay() {
        for attempt in [31, 63, 64, u32::MAX] {
            let delay = RetryDelay::after(
                &definition(RetryLogic::ExponentialBackoff, i32::MAX),
                attempt,
                u64::MAX,
            );
            assert_eq!(delay.seconds, DELAY_SECONDS_MAX);
        }
        let negative = definition(RetryLogic::LinearBackoff, -5);
        assert_eq!(RetryDelay::after(&negative, u32::MAX, 0).seconds, 0);
    }
}
