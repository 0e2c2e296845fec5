//! FORK_JOIN and JOIN. A JOIN counts down: it is evaluated once, when the last task that it waits for has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use serde_json::{Value, json};

use crate::conductor::definition::{ListId, Operator};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::conductor::execution::value::{kept_reason, object};
use crate::conductor::limits::TASK_PAYLOAD_BYTES_MAX;

pub(super) const NO_JOIN: &str =
    "Fork task definition is not followed by a join task.  Check the blueprint";

impl Pass<'_, '_> {
    /// Adds a FORK, the first task of each branch, and the JOIN.
    pub(crate) fn fork(&mut self, place: &Place, branches: &[ListId]) -> Try<()> {
        let Some(join) = place.tree().join_of(place.node) else {
            return self.fail_without_task(NO_JOIN.to_owned());
        };
        let id = self.id_of_task(place);
        let input = match self.input_of(place, &id)? {
            Ok(input) => input,
            Err(reason) => return self.fail_without_task(reason),
        };
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        self.add_fork(task, input);
        for branch in branches {
            let first = place.tree().list(*branch).first().copied();
            if let Some(first) = first.filter(|_| self.draft.is_open()) {
                self.schedule(&place.at(first))?;
            }
        }
        if self.draft.is_open() {
            self.schedule(&place.at(join))?;
        }
        Ok(())
    }

    /// Adds a FORK that has ended. Its branches and its JOIN continue the flow.
    pub(super) fn add_fork(&mut self, task: ExecutionTask, input: Object) {
        let seq = self.draft.add_task(task.clone(), input);
        self.draft.end_task(seq, TaskStatus::Completed, None, None);
        self.draft.file_task(seq);
        self.draft.count_in_loop(&task, -1);
    }

    /// Adds a JOIN on these references. Returns its number, or `None` if it exists already.
    pub(crate) fn add_join(&mut self, place: &Place, on: &[String]) -> Try<Option<u64>> {
        if self.draft.task_by_reference(&place.reference()).is_some() {
            return Ok(None);
        }
        let id = self.id_of_task(place);
        let waiting: BTreeSet<&String> = on
            .iter()
            .filter(|reference| !self.is_final(reference))
            .collect();
        let mut task = self.operator_task(place, id, TaskStatus::InProgress);
        task.waiting = Waiting::Tasks(waiting.len() as u64);
        let is_ready = waiting.is_empty();
        let bare: Vec<&str> = on.iter().map(|on| place.bare(on)).collect();
        let seq = self.draft.add_task(task, object(json!({"joinOn": bare})));
        if is_ready {
            self.join(seq)?;
        }
        Ok(Some(seq))
    }

    /// Returns whether the newest task of a reference has ended and was counted by the joins that existed then.
    pub(crate) fn is_final(&self, reference: &str) -> bool {
        self.draft.task_by_reference(reference).is_some_and(|task| {
            !task.is_open() && !task.retried && self.draft.unfiled_task(task.seq).is_none()
        })
    }

    /// Counts a task that ended in the joins that wait for it.
    pub(crate) fn count_for_joins(&mut self, task: &ExecutionTask, place: &Place) -> Try<()> {
        let mut joins: Vec<u64> = task.joined_by.into_iter().collect();
        for join in place.tree().joins_on(place.node().reference()) {
            let join = place.at(*join);
            // A JOIN outside of the loop does not wait for the tasks of one iteration.
            let same_loop = join.node().enclosing_loop() == place.node().enclosing_loop();
            if same_loop
                && !follows_dynamic_fork(&join)
                && let Some(task) = self.draft.task_by_reference(&join.reference())
            {
                joins.push(task.seq);
            }
        }
        for join in joins {
            let mut is_ready = false;
            self.draft.change_task(join, |task| {
                if let Waiting::Tasks(count) = &mut task.waiting {
                    *count = count.saturating_sub(1);
                    is_ready = *count == 0;
                }
            });
            if is_ready {
                self.join(join)?;
            }
        }
        Ok(())
    }

    /// Ends a JOIN: everything that it waits for has ended.
    pub(crate) fn join(&mut self, seq: u64) -> Try<()> {
        let Some(join) = self.draft.task(seq).map(Arc::clone) else {
            return Ok(());
        };
        if !join.is_open() {
            return Ok(());
        }
        let tasks = self.joined_tasks(&join)?;
        let bytes: u64 = tasks.iter().map(|task| task.output.bytes()).sum();
        let (status, reason, output) = if bytes > TASK_PAYLOAD_BYTES_MAX as u64 {
            let reason = format!(
                "The outputs of the joined tasks have {bytes} bytes, more than {TASK_PAYLOAD_BYTES_MAX} (limit: task output)"
            );
            (TaskStatus::FailedWithTerminalError, Some(reason), None)
        } else {
            let (status, reason) = join_status(&tasks);
            (status, reason, Some(self.joined_output(&tasks)?))
        };
        self.draft.end_task(seq, status, reason, output);
        self.todo.push_back(seq);
        Ok(())
    }

    /// Returns the outputs of the tasks of an open JOIN that have ended. `None` if they are over the limit.
    pub(crate) fn joined_so_far(&self, join: &ExecutionTask) -> Try<Option<Object>> {
        let mut tasks = self.joined_tasks(join)?;
        tasks.retain(|task| !task.is_open());
        let bytes: u64 = tasks.iter().map(|task| task.output.bytes()).sum();
        if bytes > TASK_PAYLOAD_BYTES_MAX as u64 {
            return Ok(None);
        }
        self.joined_output(&tasks).map(Some)
    }

    /// Returns the newest attempts of the tasks that a JOIN waits for.
    fn joined_tasks(&self, join: &ExecutionTask) -> Try<Vec<Arc<ExecutionTask>>> {
        let input = self.load(&join.input)?;
        let names = input["joinOn"].as_array().map_or(&[][..], Vec::as_slice);
        let tasks = names.iter().filter_map(Value::as_str).filter_map(|bare| {
            let reference = join.reference_beside(bare);
            self.draft.task_by_reference(&reference).map(Arc::clone)
        });
        Ok(tasks.collect())
    }

    /// Returns the outputs of joined tasks by reference, without empty ones.
    fn joined_output(&self, tasks: &[Arc<ExecutionTask>]) -> Try<Object> {
        let mut missing = Vec::new();
        let mut output = Object::new();
        for task in tasks {
            match self.load(&task.output) {
                Ok(value) if value.as_object().is_some_and(|map| !map.is_empty()) => {
                    output.insert(task.reference.clone(), Value::clone(&value));
                }
                Ok(_) => {}
                Err(lookups) => missing.extend(lookups),
            }
        }
        if missing.is_empty() {
            Ok(output)
        } else {
            Err(missing)
        }
    }
}

/// Returns whether a JOIN waits for the branches of a dynamic fork instead of the references in its definition.
fn follows_dynamic_fork(join: &Place) -> bool {
    let node = join.node();
    let before = node.position().checked_sub(1);
    let before = before.and_then(|position| join.tree().list(node.list()).get(position));
    before.is_some_and(|before| {
        matches!(
            join.tree().node(*before).operator(),
            Operator::ForkJoinDynamic(_)
        )
    })
}

/// Returns the status of a JOIN whose tasks have all ended, and its reason. Failed tasks that are left here are permissive.
fn join_status(tasks: &[Arc<ExecutionTask>]) -> (TaskStatus, Option<String>) {
    let failures: Vec<&Arc<ExecutionTask>> = tasks
        .iter()
        .filter(|task| !task.status.is_successful())
        .collect();
    if !failures.is_empty() {
        let is_canceled = |task: &&Arc<ExecutionTask>| task.status == TaskStatus::Canceled;
        let status = match failures.iter().all(is_canceled) {
            true => TaskStatus::Canceled,
            false => TaskStatus::Failed,
        };
        let reasons: Vec<&str> = failures
            .iter()
            .filter_map(|task| task.reason.as_deref())
            .collect();
        return (
            status,
            Some(kept_reason(&reasons.join(" "))).filter(|text| !text.is_empty()),
        );
    }
    let with_errors: Vec<String> = tasks
        .iter()
        .filter(|task| task.status == TaskStatus::CompletedWithErrors)
        .map(|task| format!("{}/{} completed with errors", task.def_name, task.id))
        .collect();
    if with_errors.is_empty() {
        (TaskStatus::Completed, None)
    } else {
        let reason = kept_reason(&with_errors.join(" "));
        (TaskStatus::CompletedWithErrors, Some(reason))
    }
}
