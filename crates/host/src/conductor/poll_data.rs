//! Which queues of definition runs were polled, by whom and when. Kept in memory: it is a preference, not a fact that a decision
//! rests on.

use std::collections::HashMap;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use parking_lot::Mutex;

/// A domain counts as served for this long after a poll.
const LIVE_SECONDS: u64 = 10;

/// Queues that are remembered. More than a team has; beyond it the longest unpolled is dropped.
const QUEUES_MAX: usize = 20_000;

/// The newest poll of a queue.
#[derive(Clone, Debug)]
pub struct LastPoll {
    pub task_type: String,
    pub domain: Option<String>,
    pub worker_id: Option<String>,
    pub at: Timestamp,
}

/// The newest poll of every queue.
#[derive(Default)]
pub(crate) struct PollTable {
    polls: Mutex<HashMap<(Namespace, String), LastPoll>>,
}

impl PollTable {
    /// Records a poll.
    pub(crate) fn record(&self, namespace: &Namespace, queue: &str, poll: LastPoll) {
        let mut polls = self.polls.lock();
        let key = (namespace.clone(), queue.to_owned());
        if polls.len() >= QUEUES_MAX && !polls.contains_key(&key) {
            let oldest = polls
                .iter()
                .min_by_key(|(_, poll)| poll.at)
                .map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                polls.remove(&oldest);
            }
        }
        polls.insert(key, poll);
    }

    /// Returns the queues of a namespace that a worker polled a moment ago.
    pub(crate) fn live(&self, namespace: &Namespace, now: Timestamp) -> Vec<String> {
        let polls = self.polls.lock();
        polls
            .iter()
            .filter(|((of, _), poll)| {
                of == namespace && poll.domain.is_some() && poll.at.plus_seconds(LIVE_SECONDS) > now
            })
            .map(|((_, queue), _)| queue.clone())
            .collect()
    }

    /// Returns the newest polls of a namespace, of one task type or of all.
    pub(crate) fn list(&self, namespace: &Namespace, task_type: Option<&str>) -> Vec<LastPoll> {
        let polls = self.polls.lock();
        let mut found: Vec<LastPoll> = polls
            .iter()
            .filter(|((of, _), poll)| {
                of == namespace && task_type.is_none_or(|name| name == poll.task_type)
            })
            .map(|(_, poll)| poll.clone())
            .collect();
        found.sort_by(|one, other| {
            (&one.task_type, &one.domain).cmp(&(&other.task_type, &other.domain))
        });
        found
    }
}
