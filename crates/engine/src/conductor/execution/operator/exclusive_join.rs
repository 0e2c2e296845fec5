//! EXCLUSIVE_JOIN: waits for one task, the first of a list that exists.

use std::sync::Arc;

use longhaul_protocol::conductor::TaskStatus;
use serde_json::json;

use crate::conductor::definition::Operator;
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::record::mint_task_id;
use crate::conductor::execution::state::ExecutionTask;
use crate::conductor::execution::value::object;

impl Pass<'_, '_> {
    /// Adds an EXCLUSIVE_JOIN, which ends at once if its task has ended.
    pub(super) fn add_exclusive_join(&mut self, place: &Place) -> Try<()> {
        let Operator::ExclusiveJoin { join_on, .. } = place.operator() else {
            return Ok(());
        };
        let id = mint_task_id(&mut self.draft);
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        let input = object(json!({"joinOn": join_on}));
        let seq = self.draft.add_task(task, input);
        if !self.join_exclusively(seq, place)? {
            self.draft.execution_mut().exclusive_joins.push(seq);
        }
        Ok(())
    }

    /// Ends the EXCLUSIVE_JOIN tasks whose task has ended.
    pub(crate) fn look_for_exclusive_joins(&mut self) -> Try<()> {
        if self.draft.execution().exclusive_joins.is_empty() {
            return Ok(());
        }
        let waiting = self.draft.execution().exclusive_joins.clone();
        let mut left = Vec::with_capacity(waiting.len());
        for seq in &waiting {
            let task = self.draft.task(*seq).map(Arc::clone);
            let Some(task) = task.filter(|task| task.is_open()) else {
                continue;
            };
            let Some(place) = self.place_of(&task) else {
                continue;
            };
            if !self.join_exclusively(*seq, &place)? {
                left.push(*seq);
            }
        }
        if left != waiting {
            self.draft.execution_mut().exclusive_joins = left;
        }
        Ok(())
    }

    /// Ends an EXCLUSIVE_JOIN with the output of its task, if that has ended. Returns whether it did.
    fn join_exclusively(&mut self, seq: u64, place: &Place) -> Try<bool> {
        let Operator::ExclusiveJoin { join_on, default } = place.operator() else {
            return Ok(true);
        };
        let first = |references: &[String]| {
            let mut tasks = references
                .iter()
                .filter_map(|bare| self.draft.task_by_reference(&place.reference_of(bare)));
            tasks.find(|task| task.status != TaskStatus::Skipped)
        };
        let joined = first(join_on).filter(|task| self.is_processed(task));
        let joined = joined.or_else(|| first(default).filter(|task| self.is_processed(task)));
        let Some(task) = joined.map(Arc::clone) else {
            return Ok(false);
        };
        let output = self.load_object(&task.output)?;
        let (status, reason) = if task.status.is_successful() {
            (TaskStatus::Completed, None)
        } else {
            (TaskStatus::Failed, task.reason.clone())
        };
        self.draft.end_task(seq, status, reason, Some(output));
        self.todo.push_back(seq);
        Ok(true)
    }

    /// Returns whether a task has ended for good: another attempt is not to follow.
    fn is_processed(&self, task: &ExecutionTask) -> bool {
        !task.is_open() && !task.retried && self.draft.unfiled_task(task.seq).is_none()
    }
}
