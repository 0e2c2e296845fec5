//! Queues of a shared store in which a look found nothing a moment ago. A poll that comes then waits without a look of its own: a hint
//! or the next look for everything serves it. So workers that poll again and again for nothing cost the store nothing.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use longhaul_engine::queue::PollFilter;
use longhaul_store::{QueueKey, Wanted};
use tokio::time::Instant;

use crate::cluster::looks::NewTasks;

/// How long the result of a look is used. Waiting polls are looked for every second, which renews it. A poll that does not wait looks
/// at least this often, whatever hints are lost.
const VALID: Duration = Duration::from_secs(2);

/// Queues that are remembered. More are forgotten, which costs looks.
const QUEUES_MAX: usize = 10_000;

/// What the newest looks did not find.
#[derive(Default)]
pub(super) struct Quiet {
    /// When the look for a poll began and what it took, by the hash of what the poll accepts.
    queues: HashMap<QueueKey, HashMap<u64, (Instant, NewTasks)>>,
    /// Queues that got a task while a look was on its way, which may have missed it.
    disturbed: HashSet<QueueKey>,
    begun: Option<(Instant, NewTasks)>,
}

impl Quiet {
    /// Records that a look begins. There is one at a time.
    pub(super) fn begin(&mut self, new_tasks: NewTasks) {
        self.disturbed.clear();
        self.begun = Some((Instant::now(), new_tasks));
    }

    /// Returns whether a look is on its way.
    pub(super) fn is_looking(&self) -> bool {
        self.begun.is_some()
    }

    /// Records the queues in which the look found nothing.
    pub(super) fn end<'a>(&mut self, empty: impl Iterator<Item = &'a Wanted>) {
        let Some(begun) = self.begun.take() else {
            return;
        };
        for wanted in empty.filter(|wanted| !self.disturbed.contains(&wanted.queue)) {
            if self.queues.len() >= QUEUES_MAX {
                self.queues.clear();
            }
            let filters = self.queues.entry(wanted.queue.clone()).or_default();
            filters.retain(|_, (at, _)| is_valid(*at, begun.0));
            for (filter, _) in &wanted.polls {
                filters.insert(hash(filter), begun);
            }
        }
    }

    /// Records that a queue may have a task that this server does not have.
    pub(super) fn disturb(&mut self, queue: &QueueKey) {
        self.queues.remove(queue);
        if self.begun.is_some() && self.disturbed.len() < QUEUES_MAX {
            self.disturbed.insert(queue.clone());
        }
    }

    /// Records that any queue may have tasks that this server does not have.
    pub(super) fn disturb_all(&mut self) {
        self.queues.clear();
        self.begun = None;
    }

    /// Returns whether a look for such a poll found nothing, and nothing has come since. It took at least these new tasks.
    pub(super) fn is_quiet(
        &self,
        queue: &QueueKey,
        filter: &PollFilter,
        new_tasks: NewTasks,
    ) -> bool {
        let looked_at = self.queues.get(queue);
        let looked_at = looked_at.and_then(|filters| filters.get(&hash(filter)));
        looked_at.is_some_and(|(at, took)| *took >= new_tasks && is_valid(*at, Instant::now()))
    }
}

fn is_valid(looked_at: Instant, now: Instant) -> bool {
    now < looked_at + VALID
}

/// Two polls with the same hash only share the result of a look for a moment.
fn hash(filter: &PollFilter) -> u64 {
    let mut hasher = DefaultHasher::new();
    filter.worker_id.hash(&mut hasher);
    filter.build_id.hash(&mut hasher);
    filter.types.hash(&mut hasher);
    filter.capabilities.hash(&mut hasher);
    hasher.finish()
}
