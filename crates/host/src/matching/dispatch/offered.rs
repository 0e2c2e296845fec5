//! New tasks that other servers offered: no poll waited for them there. A look leaves other new tasks to the servers that made them,
//! which give them to their own polls.

use std::collections::{BTreeSet, HashMap, VecDeque};

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;
use longhaul_store::QueueKey;

/// After this a task is not new for any look, unless clocks differ by nearly as much.
const KEPT_SECONDS: u64 = 1;

/// Tasks of one queue. Each look sends them; those beyond are found a moment later, without having been offered.
const TASKS_MAX: usize = 200;

/// Queues with offered tasks. If there are more, all are forgotten, which costs a moment for each task.
const QUEUES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct OfferedTasks {
    /// The oldest first.
    queues: HashMap<QueueKey, VecDeque<(Timestamp, TaskId)>>,
}

impl OfferedTasks {
    pub(super) fn add(&mut self, queue: &QueueKey, tasks: &BTreeSet<TaskId>, now: Timestamp) {
        if tasks.is_empty() {
            return;
        }
        if self.queues.len() >= QUEUES_MAX {
            self.queues
                .retain(|_, tasks| tasks.back().is_some_and(|(at, _)| is_kept(*at, now)));
            if self.queues.len() >= QUEUES_MAX {
                self.queues.clear();
            }
        }
        let offered = self.queues.entry(queue.clone()).or_default();
        offered.extend(tasks.iter().map(|task_id| (now, task_id.clone())));
        let beyond = offered.len().saturating_sub(TASKS_MAX);
        offered.drain(..beyond);
    }

    /// Returns the tasks of a queue that were offered a moment ago.
    pub(super) fn of(&mut self, queue: &QueueKey, now: Timestamp) -> Vec<TaskId> {
        let Some(offered) = self.queues.get_mut(queue) else {
            return Vec::new();
        };
        while offered.front().is_some_and(|(at, _)| !is_kept(*at, now)) {
            offered.pop_front();
        }
        if offered.is_empty() {
            self.queues.remove(queue);
            return Vec::new();
        }
        offered.iter().map(|(_, task_id)| task_id.clone()).collect()
    }

    /// Forgets a task that a look found.
    pub(super) fn remove(&mut self, queue: &QueueKey, task_id: &TaskId) {
        if let Some(offered) = self.queues.get_mut(queue) {
            offered.retain(|(_, offered)| offered != task_id);
        }
    }
}

fn is_kept(offered_at: Timestamp, now: Timestamp) -> bool {
    now < offered_at.plus_seconds(KEPT_SECONDS)
}

#[cfg(test)]
mod tests {
    use longhaul_engine::change::TaskKind;

    use super::*;

    fn queue(name: &str) -> QueueKey {
        QueueKey {
            namespace: "default".into(),
            kind: TaskKind::Workflow,
            queue: name.into(),
        }
    }

    fn tasks(names: &[&str]) -> BTreeSet<TaskId> {
        names.iter().map(|name| TaskId::from(*name)).collect()
    }

    #[test]
    fn offered_tasks_are_kept_for_a_moment_or_until_they_are_found() {
        let now = Timestamp::from_micros(5_000_000);
        let mut offered = OfferedTasks::default();
        offered.add(&queue("a"), &tasks(&["1", "2"]), now);
        offered.add(&queue("b"), &tasks(&[]), now);
        assert!(offered.of(&queue("b"), now).is_empty());
        offered.remove(&queue("a"), &"1".into());
        assert_eq!(offered.of(&queue("a"), now), [TaskId::from("2")]);
        assert!(
            offered
                .of(&queue("a"), now.plus_seconds(KEPT_SECONDS))
                .is_empty()
        );
        assert!(offered.queues.is_empty());
    }

    #[test]
    fn the_newest_tasks_of_a_queue_are_kept_and_queues_are_bounded() {
        let now = Timestamp::from_micros(5_000_000);
        let mut offered = OfferedTasks::default();
        for number in 0..=TASKS_MAX {
            offered.add(&queue("a"), &tasks(&[&number.to_string()]), now);
        }
        let kept = offered.of(&queue("a"), now);
        assert_eq!((kept.len(), &kept[0]), (TASKS_MAX, &TaskId::from("1")));
        for number in 0..=QUEUES_MAX {
            offered.add(&queue(&format!("q{number}")), &tasks(&["t"]), now);
        }
        assert!(offered.queues.len() <= QUEUES_MAX);
    }
}
