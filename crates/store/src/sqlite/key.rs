//! Keys of history rows: run key and sequence in one integer, so that a run's events lie together in order and are found
//! without a second index.

use std::ops::RangeInclusive;

use crate::Error;

/// Sixteen million events in one run, three hundred times the longest history the engine allows; it leaves 2^39 runs,
/// which last 17 years at a thousand new runs a second.
const SEQUENCE_BITS: u32 = 24;
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;
const RUN_KEY_MAX: i64 = i64::MAX >> SEQUENCE_BITS;

/// The key of one event.
pub(super) fn of_event(run_key: i64, sequence: u64) -> Result<i64, Error> {
    if !(0..=RUN_KEY_MAX).contains(&run_key) || !(1..=SEQUENCE_MAX).contains(&sequence) {
        return Err(Error::Corrupt(format!("event {sequence} of run key {run_key} has no place in the store")));
    }
    Ok((run_key << SEQUENCE_BITS) | sequence.cast_signed())
}

/// The keys of events with `after < sequence <= up_to`; both may lie beyond what can be stored.
pub(super) fn range(run_key: i64, after: u64, up_to: u64) -> RangeInclusive<i64> {
    let base = run_key << SEQUENCE_BITS;
    let first = after.saturating_add(1).min(SEQUENCE_MAX + 1);
    base + first.cast_signed()..=base + up_to.min(SEQUENCE_MAX).cast_signed()
}

/// The sequence in a key.
pub(super) fn sequence(event_key: i64) -> u64 {
    event_key.cast_unsigned() & SEQUENCE_MAX
}

/// Counts as SQLite holds them. Versions, sequences and limits stay far below the bound in practice; a caller's "no
/// limit" may not.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_run_then_sequence_and_give_the_sequence_back() {
        let last = of_event(7, SEQUENCE_MAX).unwrap();
        let next = of_event(8, 1).unwrap();
        assert!(last < next);
        assert_eq!((sequence(last), sequence(next)), (SEQUENCE_MAX, 1));
    }

    #[test]
    fn nothing_outside_the_bounds_gets_a_key() {
        assert!(of_event(1, 0).is_err());
        assert!(of_event(1, SEQUENCE_MAX + 1).is_err());
        assert!(of_event(RUN_KEY_MAX, SEQUENCE_MAX).is_ok());
        assert!(of_event(RUN_KEY_MAX + 1, 1).is_err());
    }

    #[test]
    fn ranges_never_reach_into_the_next_run() {
        assert_eq!(range(1, 0, u64::MAX), of_event(1, 1).unwrap()..=of_event(1, SEQUENCE_MAX).unwrap());
        assert_eq!(range(1, 3, 5), of_event(1, 4).unwrap()..=of_event(1, 5).unwrap());
        assert!(range(1, u64::MAX, u64::MAX).is_empty());
        assert!(range(1, 5, 5).is_empty());
    }
}
