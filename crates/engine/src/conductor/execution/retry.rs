//! New attempts of failed tasks, and the time-outs of open ones.

use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, TaskStatus, TimeoutPolicy};
use longhaul_protocol::id::TaskId;
use serde_json::Value;

use crate::conductor::definition::schemas::enforces_schemas;
use crate::conductor::definition::{Operator, kind};
use crate::conductor::execution::operator::schedule::reuse::reuse_of;
use crate::conductor::execution::operator::schedule::{TASKS_PER_RUN_MAX, note_async_complete};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::record::mint_task_id;
use crate::conductor::execution::state::{Deadline, ExecutionTask, Stored, TaskTimeouts, Waiting};
use crate::conductor::limits::LISTED_NAMES_MAX;
use crate::conductor::retry_delay::RetryDelay;
use crate::queue::StartLimits;

impl Pass<'_, '_> {
    /// Schedules a new attempt of a failed task, if its definition allows one. Returns whether it did.
    pub(crate) fn retry(&mut self, task: &ExecutionTask, place: &Place) -> Try<bool> {
        let node = place.node();
        if !task.status.is_retriable()
            || !kind::is_retried(&node.task().task_type)
            || matches!(place.operator(), Operator::SetVariable | Operator::Noop)
            || self.draft.execution().task_count() >= TASKS_PER_RUN_MAX
            || total_exceeded(task, self.draft.now).is_some()
        {
            return Ok(false);
        }
        let definition = self.task_def(node.task(), &task.def_name)?;
        let max = node.task().retry_count.unwrap_or(definition.retry_count);
        if i64::from(task.retry_count) >= i64::from(max) {
            return Ok(false);
        }
        let id = mint_task_id(&mut self.draft);
        let mut input = self.load_object(&task.input)?;
        // A template that no longer resolves keeps the input of the attempt before.
        if let Ok(fresh) = self.fresh_input(place, &id, &input)? {
            input.extend(fresh);
        }
        note_async_complete(place, &mut input);
        let delay = RetryDelay::after(&definition, task.retry_count, jitter_source(&id));
        let now = self.draft.now;
        let visible_at = now
            .plus_seconds(u64::from(delay.seconds))
            .plus_millis(u64::from(delay.jitter_ms));
        let seconds = i64::from(delay.seconds);
        let mut timeouts = TaskTimeouts::of(&definition);
        if let Operator::SubWorkflow(_) | Operator::DurableWorkflow = node.operator() {
            timeouts.response = 0;
        }
        let next = ExecutionTask {
            id,
            retried_task_id: Some(task.id.clone()),
            retry_count: task.retry_count + 1,
            status: TaskStatus::Scheduled,
            scheduled_at: now,
            updated_at: now,
            start_delay_seconds: seconds,
            callback_after_seconds: seconds,
            domain: self.domain_of(place, &task.task_type),
            timeouts,
            start_limits: StartLimits::of(&definition),
            has_schemas: task.has_schemas && enforces_schemas(&definition),
            reuse: task
                .reuse
                .as_ref()
                .and_then(|_| reuse_of(node.task(), &input))
                .map(Box::new),
            ..task.next_attempt()
        };
        self.draft.change_task(task.seq, |task| task.retried = true);
        self.draft.count_in_loop(task, -1);
        self.add_attempt(place, next, input, visible_at);
        // The record of a run that ended names the attempts that failed, also those that were repeated.
        let failed = &self.draft.execution().failed;
        if task.status == TaskStatus::Failed && failed.len() < LISTED_NAMES_MAX {
            self.draft.execution_mut().failed.push(task.seq);
        }
        Ok(true)
    }

    /// Returns what the input of a new attempt is made of, with the values of now. The input of a child is merged in the same way:
    /// a dynamic fork gave it members that its node does not have.
    fn fresh_input(
        &self,
        place: &Place,
        id: &TaskId,
        before: &Object,
    ) -> Try<Result<Object, String>> {
        let input = self.input_of(place, id)?;
        match (input, place.node().operator()) {
            (Ok(fresh), Operator::SubWorkflow(sub)) => {
                let child = before.get("workflowInput").and_then(Value::as_object);
                let mut child = child.cloned().unwrap_or_default();
                child.extend(fresh);
                self.sub_workflow_input(sub, child)
            }
            (input, _) => Ok(input),
        }
    }

    /// Adds a new attempt of a task, in the way of its operator.
    fn add_attempt(
        &mut self,
        place: &Place,
        mut task: ExecutionTask,
        input: Object,
        visible_at: Timestamp,
    ) {
        if is_begun_by_pass(place.operator()) || task.has_schemas {
            return self.add_delayed(task, input, visible_at);
        }
        task.waiting = Waiting::Queued {
            visible_at,
            offered: visible_at <= self.draft.now,
        };
        self.draft.add_task(task, input);
    }

    /// Applies everything that is due in the open tasks of the run.
    pub(crate) fn apply_due(&mut self) -> Try<()> {
        let now = self.draft.now;
        let due: Vec<Arc<ExecutionTask>> = self
            .draft
            .open_task_numbers()
            .into_iter()
            .filter_map(|seq| self.draft.task(seq))
            .filter(|task| task.next_due().is_some_and(|at| at <= now))
            .map(Arc::clone)
            .collect();
        for task in due {
            if !self.draft.is_open() {
                break;
            }
            let passed = task
                .deadlines()
                .into_iter()
                .flatten()
                .find(|(_, at)| *at <= now);
            match passed {
                Some((deadline, _)) => self.time_out(&task, deadline)?,
                None => self.time_has_come(&task),
            }
        }
        Ok(())
    }

    fn time_out(&mut self, task: &ExecutionTask, deadline: Deadline) -> Try<()> {
        let reason = timeout_reason(task, deadline, self.draft.now);
        self.draft
            .end_task(task.seq, TaskStatus::TimedOut, Some(reason.clone()), None);
        self.draft.stop_child_of(task, &reason);
        let ends_run = task.timeouts.policy == Some(TimeoutPolicy::TimeOutWorkflow)
            && deadline != Deadline::Response;
        if ends_run {
            let task = self.draft.task(task.seq).map(Arc::clone);
            if let Some(task) = task {
                return self.time_out_by(&task, reason);
            }
        }
        self.todo.push_back(task.seq);
        Ok(())
    }

    /// A task that waits for a time has reached it. A WAIT ends, even while the run is paused; other tasks begin in the pass.
    fn time_has_come(&mut self, task: &ExecutionTask) {
        match &task.waiting {
            Waiting::Queued { visible_at, .. } => {
                let visible_at = *visible_at;
                self.draft.change_task(task.seq, |task| {
                    task.waiting = Waiting::Queued {
                        visible_at,
                        offered: true,
                    };
                });
            }
            Waiting::Time(_) => {
                if task.status == TaskStatus::InProgress {
                    self.draft
                        .end_task(task.seq, TaskStatus::Completed, None, None);
                } else {
                    self.draft
                        .change_task(task.seq, |task| task.waiting = Waiting::Nothing);
                }
                self.todo.push_back(task.seq);
            }
            // The server that had it is gone, or was cut off: another one runs the task again.
            Waiting::Serving { until } => {
                let visible_at = *until;
                self.draft
                    .update_task(task.seq, None, |task| task.queue_again(visible_at, true));
            }
            Waiting::Nothing
            | Waiting::Leased
            | Waiting::Tasks(_)
            | Waiting::Iteration(_)
            | Waiting::Child(_) => {}
        }
    }
}

/// Returns whether the pass begins tasks of this operator itself. All others are for workers.
pub(crate) fn is_begun_by_pass(operator: &Operator) -> bool {
    matches!(
        operator,
        Operator::SubWorkflow(_)
            | Operator::DurableWorkflow
            | Operator::Inline
            | Operator::Lambda
            | Operator::StartWorkflow
            | Operator::Event { .. }
            | Operator::PullWorkflowMessages
            | Operator::JsonJqTransform
            | Operator::Terminate
            | Operator::Wait
            | Operator::Human
            | Operator::Yield
    )
}

/// Returns a number that differs between tasks and attempts, and is the same when the decision is made again.
fn jitter_source(id: &TaskId) -> u64 {
    id.as_str().bytes().fold(0, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

impl ExecutionTask {
    /// Returns the attempt after this one, without what belongs to this one.
    fn next_attempt(&self) -> Self {
        Self {
            poll_count: 0,
            retried: false,
            started_at: None,
            ended_at: None,
            worker_id: None,
            sub_workflow_id: None,
            child_life: 0,
            child_workflow_id: None,
            delivered_at: None,
            log_lines: 0,
            waiting: Waiting::Nothing,
            input: Stored::default(),
            output: Stored::default(),
            ..self.clone()
        }
    }
}

/// Returns the reason, if the attempts of a task together have taken longer than its definition allows.
pub(crate) fn total_exceeded(task: &ExecutionTask, now: Timestamp) -> Option<String> {
    let total = task.timeouts.total;
    let elapsed = seconds_between(task.first_scheduled_at, now);
    (total > 0 && elapsed >= total).then(|| {
        format!(
            "Task {}/{} exceeded total timeout of {total} seconds (elapsed {elapsed} seconds across all attempts). \
             No further retries will be attempted.",
            task.id, task.def_name
        )
    })
}

fn timeout_reason(task: &ExecutionTask, deadline: Deadline, now: Timestamp) -> String {
    let policy = task.timeouts.policy.map_or("RETRY", TimeoutPolicy::as_str);
    let limits = &task.timeouts;
    let queued_at = task.waiting.time().unwrap_or(task.scheduled_at);
    match deadline {
        Deadline::Total => format!(
            "Task {}/{} exceeded total timeout of {} seconds (elapsed {} seconds across all attempts including retry delays). \
             Timeout policy: {policy}",
            task.def_name,
            task.id,
            limits.total,
            seconds_between(task.first_scheduled_at, now)
        ),
        Deadline::Execution => format!(
            "Task timed out after {} seconds. Timeout configured as {} seconds. Timeout policy configured to {policy}",
            seconds_between(task.started_at.unwrap_or(now), now),
            limits.execution
        ),
        Deadline::Poll => format!(
            "Task poll timed out after {} seconds. Poll timeout configured as {} seconds. Timeout policy configured to {policy}",
            seconds_between(queued_at, now),
            limits.poll
        ),
        Deadline::Response => format!(
            "responseTimeout: {} exceeded for the taskId: {} with Task Definition: {}",
            limits.response, task.id, task.def_name
        ),
    }
}

pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from((to.as_micros() - from.as_micros()).max(0) / 1_000_000).unwrap_or(0)
}
