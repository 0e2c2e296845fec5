//! Which queues of definition runs were polled, by whom and when. Kept in memory: it is a preference, not a fact that a decision
//! rests on.

use std::collections::HashMap;

use longhaul_engine::conductor::execution::record::queue_name;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use parking_lot::Mutex;

/// A domain counts as served for this long after a poll.
const LIVE_SECONDS: u64 = 10;

/// Other servers are shown the polls of this time.
const SHOWN_SECONDS: u64 = 60;

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
    polls: Mutex<HashMap<(Namespace, String), Recorded>>,
}

struct Recorded {
    poll: LastPoll,
    /// Whether it came to this server.
    is_here: bool,
}

impl PollTable {
    /// Records a poll that came to this server.
    pub(crate) fn record(&self, namespace: &Namespace, queue: &str, poll: LastPoll) {
        self.put(namespace, queue, poll, true);
    }

    /// Records a poll that came to another server.
    pub(crate) fn record_elsewhere(&self, namespace: &Namespace, poll: LastPoll) {
        let queue = queue_name(&poll.task_type, poll.domain.as_deref());
        self.put(namespace, queue.as_str(), poll, false);
    }

    /// Returns the recent polls that came to this server.
    pub(crate) fn recorded_here(&self, now: Timestamp) -> Vec<(Namespace, LastPoll)> {
        let polls = self.polls.lock();
        let here = polls.iter().filter(|(_, recorded)| {
            recorded.is_here && recorded.poll.at.plus_seconds(SHOWN_SECONDS) > now
        });
        here.map(|((namespace, _), recorded)| (namespace.clone(), recorded.poll.clone()))
            .collect()
    }

    fn put(&self, namespace: &Namespace, queue: &str, poll: LastPoll, is_here: bool) {
        let mut polls = self.polls.lock();
        let key = (namespace.clone(), queue.to_owned());
        if polls.len() >= QUEUES_MAX && !polls.contains_key(&key) {
            let oldest = polls
                .iter()
                .min_by_key(|(_, recorded)| recorded.poll.at)
                .map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                polls.remove(&oldest);
            }
        }
        let is_newer = polls.get(&key).is_none_or(|known| known.poll.at <= poll.at);
        if is_newer {
            polls.insert(key, Recorded { poll, is_here });
        }
    }

    /// Returns the queues of a namespace that a worker polled a moment ago.
    pub(crate) fn live(&self, namespace: &Namespace, now: Timestamp) -> Vec<String> {
        let polls = self.polls.lock();
        polls
            .iter()
            .filter(|((of, _), recorded)| {
                let poll = &recorded.poll;
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
            .filter(|((of, _), recorded)| {
                of == namespace && task_type.is_none_or(|name| name == recorded.poll.task_type)
            })
            .map(|(_, recorded)| recorded.poll.clone())
            .collect();
        found.sort_by(|one, other| {
            (&one.task_type, &one.domain).cmp(&(&other.task_type, &other.domain))
        });
        found
    }
}
