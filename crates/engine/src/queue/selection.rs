//! Which of the ready tasks of a queue are taken for the polls that wait at one server.

use std::collections::BTreeSet;

use super::{PollFilter, Requirements};
use crate::change::TaskRow;

/// Fairness classes of one queue from which a task is taken beyond what polls want. Enough for a fair choice, and few enough to leave
/// the other tasks to other servers.
pub const CLASSES_MAX: usize = 64;

/// Selects tasks, which are in the order of matching, for polls: for each poll as many as it wants, and of each fairness class that some
/// poll accepts at least one, so that there is a choice.
pub fn select(polls: &[(PollFilter, usize)], candidates: Vec<TaskRow>) -> Vec<TaskRow> {
    let mut left: Vec<usize> = polls.iter().map(|(_, count)| *count).collect();
    let mut classes = BTreeSet::new();
    let mut selected = candidates;
    selected.retain(|task| {
        let requirements = Requirements::from(task);
        let is_new_class = classes.insert((task.priority, task.fairness_key.clone()));
        let polls = polls.iter().zip(&mut left);
        let mut accepting = polls.filter(|((filter, _), _)| filter.accepts(&requirements));
        let mut is_accepted = false;
        let free = accepting.find(|(_, left)| {
            is_accepted = true;
            **left > 0
        });
        match free {
            Some((_, left)) => {
                *left -= 1;
                true
            }
            None => is_accepted && is_new_class && classes.len() <= CLASSES_MAX,
        }
    });
    selected
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::change::{TaskKind, TaskStatus};
    use longhaul_protocol::Timestamp;
    use longhaul_protocol::id::WorkerId;
    use longhaul_protocol::sequence::CommandSeq;

    fn task(id: &str, type_name: &str, class: Option<&str>) -> TaskRow {
        TaskRow {
            task_id: id.into(),
            run_id: "run".into(),
            namespace: "default".into(),
            workflow_id: "w".into(),
            kind: TaskKind::Activity,
            queue: "q".into(),
            type_name: type_name.to_owned(),
            status: TaskStatus::Ready,
            available_at: Timestamp::from_micros(0),
            priority: 3,
            fairness_key: class.map(str::to_owned),
            fairness_weight: 1,
            compatibility: None,
            required_capability: None,
            held_for: None,
            worker_session: None,
            sequence: CommandSeq::ZERO,
            attempt: 0,
            lease_owner: None,
            lease_expires_at: None,
            poll_request_id: None,
            closed: None,
            start_limits: None,
            started_at: None,
            found_by: None,
        }
    }

    fn poll(types: &[&str], count: usize) -> (PollFilter, usize) {
        let types = types.iter().map(|name| (*name).to_owned()).collect();
        let filter = PollFilter {
            types: Arc::new(types),
            ..PollFilter::any(WorkerId::from("w1"))
        };
        (filter, count)
    }

    fn ids(selected: Vec<TaskRow>) -> Vec<String> {
        let ids = selected.into_iter().map(|task| task.task_id.to_string());
        ids.collect()
    }

    #[test]
    fn each_poll_gets_as_many_as_it_wants() {
        let tasks = ["a", "a", "b", "a", "b"];
        let tasks = tasks.iter().enumerate();
        let tasks: Vec<TaskRow> = tasks
            .map(|(number, name)| task(&number.to_string(), name, None))
            .collect();
        let of_a = [poll(&["a"], 2)];
        assert_eq!(ids(select(&of_a, tasks.clone())), ["0", "1"]);
        let both = [poll(&["a"], 1), poll(&["b"], 1)];
        assert_eq!(ids(select(&both, tasks.clone())), ["0", "2"]);
        let none = [poll(&["c"], 5)];
        assert!(select(&none, tasks).is_empty());
    }

    #[test]
    fn there_is_a_task_of_every_class() {
        let tasks = [Some("x"), Some("x"), Some("y"), Some("y"), None];
        let tasks = tasks.iter().enumerate();
        let tasks: Vec<TaskRow> = tasks
            .map(|(number, class)| task(&number.to_string(), "a", *class))
            .collect();
        let polls = [poll(&["a"], 1)];
        assert_eq!(ids(select(&polls, tasks)), ["0", "2", "4"]);
    }
}
