//! Durations on the wire. The protocol counts whole seconds; a duration is rounded up, never down.

use std::time::Duration;

/// Returns the number of whole seconds that the duration fits into.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

/// Returns the seconds of a timeout or lease. The protocol has none shorter than one second.
pub(crate) fn timeout_seconds(duration: Duration) -> u64 {
    seconds(duration).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_whole_seconds() {
        for (duration, expected, expected_timeout) in [
            (Duration::ZERO, 0, 1),
            (Duration::from_nanos(1), 1, 1),
            (Duration::from_secs(1), 1, 1),
            (Duration::from_millis(1001), 2, 2),
            (Duration::from_millis(1999), 2, 2),
            (Duration::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(seconds(duration), expected, "{duration:?}");
            assert_eq!(timeout_seconds(duration), expected_timeout, "{duration:?}");
        }
    }
}
