//! The retry policy of an activity or a local activity, and what follows from it: how many attempts, and when.

use longhaul_protocol::Timestamp;
use longhaul_protocol::workflow_command::{
    CommandRetryPolicy, LocalActivityCall, ScheduleActivity,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The command's retry policy and timeouts, exactly as they are shown in history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub snapshot_version: u8,
    /// `None` means without limit.
    pub max_attempts: Option<u64>,
    pub backoff_seconds: Vec<u64>,
    pub start_to_close_timeout: Option<u64>,
    pub schedule_to_start_timeout: Option<u64>,
    pub schedule_to_close_timeout: Option<u64>,
    pub heartbeat_timeout: Option<u64>,
    pub non_retryable_error_types: Vec<String>,
}

/// The timeouts of a call in seconds.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Timeouts {
    start_to_close: Option<u64>,
    schedule_to_start: Option<u64>,
    schedule_to_close: Option<u64>,
    heartbeat: Option<u64>,
}

impl RetryPolicy {
    /// Returns the policy of an activity, or `None` if its command has neither a policy nor timeouts.
    pub(crate) fn of_activity(command: &ScheduleActivity) -> Option<Self> {
        let timeouts = Timeouts {
            start_to_close: command.start_to_close_timeout,
            schedule_to_start: command.schedule_to_start_timeout,
            schedule_to_close: command.schedule_to_close_timeout,
            heartbeat: command.heartbeat_timeout,
        };
        Self::of(command.retry_policy.as_ref(), timeouts)
    }

    /// Returns the policy of a local activity, or `None` if the call has neither a policy nor timeouts. A local activity never
    /// waits for a worker, so it has no timeout for that.
    pub(crate) fn of_local_activity(call: &LocalActivityCall) -> Option<Self> {
        let timeouts = Timeouts {
            start_to_close: call.start_to_close_timeout,
            schedule_to_start: None,
            schedule_to_close: call.schedule_to_close_timeout,
            heartbeat: call.heartbeat_timeout,
        };
        Self::of(call.retry_policy.as_ref(), timeouts)
    }

    fn of(policy: Option<&CommandRetryPolicy>, timeouts: Timeouts) -> Option<Self> {
        if policy.is_none() && timeouts == Timeouts::default() {
            return None;
        }
        let policy = policy.cloned().unwrap_or_default();
        Some(Self {
            snapshot_version: 1,
            max_attempts: policy.max_attempts.unwrap_or(Some(1)),
            backoff_seconds: policy.backoff_seconds,
            start_to_close_timeout: timeouts.start_to_close,
            schedule_to_start_timeout: timeouts.schedule_to_start,
            schedule_to_close_timeout: timeouts.schedule_to_close,
            heartbeat_timeout: timeouts.heartbeat,
            non_retryable_error_types: policy.non_retryable_error_types,
        })
    }

    /// Returns the policy as an event contains it.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a retry policy is plain data")
    }
}

/// Returns the number of attempts that the policy allows; `None` is without limit. A call without a policy has one attempt.
pub(crate) fn max_attempts(policy: Option<&RetryPolicy>) -> Option<u64> {
    policy.map_or(Some(1), |policy| policy.max_attempts)
}

/// Returns when another attempt may start, and the seconds until then. Returns `None` if no attempt is left, or if it could not
/// start before the deadline of the call.
pub(crate) fn next_attempt_at(
    policy: Option<&RetryPolicy>,
    attempts: u64,
    now: Timestamp,
    deadline: Option<Timestamp>,
) -> Option<(Timestamp, u64)> {
    if max_attempts(policy).is_some_and(|max| attempts >= max) {
        return None;
    }
    let backoff = policy.map_or(0, |policy| {
        backoff_seconds(&policy.backoff_seconds, attempts)
    });
    let at = now.plus_seconds(backoff);
    deadline
        .is_none_or(|deadline| at < deadline)
        .then_some((at, backoff))
}

/// Returns the seconds to wait after so many attempts. The last entry counts for all later attempts; an empty list means no wait.
pub(crate) fn backoff_seconds(list: &[u64], attempts: u64) -> u64 {
    let place = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    list.get(place)
        .or_else(|| list.last())
        .copied()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_backoff_counts_for_all_later_attempts() {
        assert_eq!(backoff_seconds(&[], 1), 0);
        assert_eq!(
            [1, 2, 3].map(|attempts| backoff_seconds(&[5, 9], attempts)),
            [5, 9, 9]
        );
    }

    #[test]
    fn a_call_without_policy_is_not_retried() {
        assert_eq!(max_attempts(None), Some(1));
        assert_eq!(next_attempt_at(None, 1, Timestamp::default(), None), None);
    }

    #[test]
    fn an_attempt_must_start_before_the_deadline() {
        let policy = RetryPolicy {
            backoff_seconds: vec![10],
            ..RetryPolicy::default()
        };
        let now = Timestamp::default();
        let at = now.plus_seconds(10);
        let next = |deadline| next_attempt_at(Some(&policy), 1, now, Some(deadline));
        assert_eq!(next(at), None);
        assert_eq!(next(at.plus_seconds(1)), Some((at, 10)));
    }
}
