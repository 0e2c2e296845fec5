//! Reports on tasks. Any caller may report on any open task, whether it was polled or not; a report on a task that has ended changes
//! nothing.

use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, ResultStatus, TaskStatus};
use longhaul_protocol::id::TaskId;

use super::control::{into_step, unlooked};
use crate::conductor::definition::kind;
use crate::conductor::execution::command::claim::{HeldTask, is_claimable};
use crate::conductor::execution::command::log::NewLog;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::record::queue_name;
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::conductor::execution::value::{json_bytes, kept_reason};
use crate::conductor::limits::{LOGS_PER_UPDATE_MAX, TASK_PAYLOAD_BYTES_MAX};
use crate::run::draft::Draft;
use crate::run::state::Run;
use crate::{Command, Decision, Moment, Rejection};

/// A report on one task.
#[derive(Clone, Debug)]
pub struct UpdateExecutionTask {
    pub target: TaskTarget,
    pub report: Report,
    /// The worker takes the next task of the same queue with this report, if the report schedules one. A task with limits is left
    /// in its queue, because tasks of other runs count against them.
    pub takes_next: bool,
}

/// Which task.
#[derive(Clone, Debug)]
pub enum TaskTarget {
    Id {
        task_id: TaskId,
        seq: u64,
    },
    /// The open task with this reference, with or without its iteration.
    Reference(String),
    /// The first open task that waits for a signal: a WAIT or a YIELD.
    Signalled,
    /// A task that a server took, if it still has it. Nothing else may be changed by what the server found out.
    Held(HeldTask),
}

/// What is reported.
#[derive(Clone, Debug)]
pub enum Report {
    /// The worker is still at it: only the response time-out begins again.
    ExtendLease,
    /// The server has done its part. The task waits for an update from outside.
    AwaitsUpdate { output: Object },
    Status {
        status: ResultStatus,
        output: Output,
        reason: Option<String>,
        worker_id: Option<String>,
        callback_after_seconds: i64,
        /// Lines for the log of the task. Only the first few are kept.
        logs: Vec<NewLog>,
    },
}

/// The output of a report.
#[derive(Clone, Debug)]
pub enum Output {
    Replace(Object),
    /// Members are added to the output so far.
    Merge(Object),
}

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    pub task_id: TaskId,
    pub task_type: String,
    pub domain: Option<String>,
    /// The task has ended, by this report or before it.
    pub has_ended: bool,
    /// The number of the task that the worker took.
    pub next: Option<u64>,
}

impl Command for UpdateExecutionTask {
    type Reply = Updated;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Updated> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Updated> {
        into_step(self.try_decide(run, moment, found))
    }
}

impl UpdateExecutionTask {
    fn try_decide(
        &self,
        run: &Run,
        moment: Moment<'_>,
        found: &LookupResults,
    ) -> Try<Decision<Updated>> {
        let draft = Draft::of(run, moment);
        let Some(task) = self.target.find(&draft).map(Arc::clone) else {
            return Ok(Decision::reject(Rejection::TaskNotFound));
        };
        let mut updated = Updated {
            task_id: task.id.clone(),
            task_type: task.task_type.clone(),
            domain: task.domain.clone(),
            has_ended: !task.is_open(),
            next: None,
        };
        if !task.is_open() || run.core.closed.is_some() {
            return Ok(Decision::unchanged(updated));
        }
        if let Report::ExtendLease = self.report {
            let mut draft = draft;
            draft.change_task(task.seq, |task| task.updated_at = moment.now);
            return Ok(draft.finish(Ok(updated)));
        }
        let seq_before = draft.execution().last_seq;
        let mut pass = Pass::new(draft, found)?;
        self.report.apply(&mut pass, &task)?;
        let mut draft = pass.run()?;
        let now = draft.task(task.seq).map(Arc::clone);
        updated.has_ended = now.is_none_or(|task| !task.is_open());
        if self.takes_next && updated.has_ended && draft.is_open() {
            updated.next = self.take_next(&mut draft, &task, seq_before);
        }
        Ok(draft.finish(Ok(updated)))
    }

    /// Gives the worker the first task that this decision put into the queue of the reported one. Older tasks are in the queue
    /// already, and the host looks there first.
    fn take_next(
        &self,
        draft: &mut Draft<'_>,
        done: &ExecutionTask,
        seq_before: u64,
    ) -> Option<u64> {
        let Report::Status { worker_id, .. } = &self.report else {
            return None;
        };
        let queue = queue_name(&done.task_type, done.domain.as_deref());
        let next = draft
            .tasks_after(seq_before)
            .find(|task| {
                is_claimable(task)
                    && task.start_limits.is_none()
                    && !task.announces
                    && queue_name(&task.task_type, task.domain.as_deref()) == queue
            })?
            .seq;
        draft.lease_task(next, worker_id.as_deref(), Waiting::Leased);
        Some(next)
    }
}

impl Report {
    /// Applies the report to an open task. The pass goes on after it if it ends the task.
    pub(super) fn apply(&self, pass: &mut Pass<'_, '_>, task: &ExecutionTask) -> Try<()> {
        let Self::Status {
            status,
            output,
            reason,
            worker_id,
            callback_after_seconds,
            logs,
        } = self
        else {
            if let Self::AwaitsUpdate { output } = self {
                await_update(pass, task.seq, output);
            }
            return Ok(());
        };
        let logs = &logs[..logs.len().min(LOGS_PER_UPDATE_MAX)];
        pass.draft.add_logs(task.seq, logs);
        let output = match output {
            Output::Replace(output) => output.clone(),
            Output::Merge(members) => {
                let mut output = pass.load_object(&task.output)?;
                output.extend(members.clone());
                output
            }
        };
        let seq = task.seq;
        let note = |task: &mut ExecutionTask| {
            if worker_id.is_some() {
                task.worker_id.clone_from(worker_id);
            }
            task.reason = reason.as_deref().map(kept_reason);
        };
        if let Some(reason) = too_large(&output) {
            pass.draft.change_task(seq, note);
            let status = TaskStatus::FailedWithTerminalError;
            pass.draft.end_task(seq, status, Some(reason), None);
            pass.todo.push_back(seq);
            return Ok(());
        }
        let status = TaskStatus::from(*status);
        if status == TaskStatus::Completed
            && let Err((status, reason)) = pass.check_task_output(task, &output)?
        {
            pass.draft.change_task(seq, note);
            pass.draft.end_task(seq, status, Some(reason), Some(output));
            pass.todo.push_back(seq);
            return Ok(());
        }
        if status.is_terminal() {
            pass.draft.change_task(seq, note);
            pass.draft.end_task(seq, status, None, Some(output));
            pass.draft
                .stop_child_of(task, reason.as_deref().unwrap_or("the task was updated"));
            pass.todo.push_back(seq);
            return Ok(());
        }
        let mut output = output;
        if task.is_open_loop() {
            // The counter and the item of a loop are its own.
            output.extend(pass.load_object(&task.output)?);
        }
        let is_queued = matches!(task.waiting, Waiting::Queued { .. }) || task.waiting.is_leased();
        let delay = u64::try_from(*callback_after_seconds).unwrap_or(0);
        let visible_at = pass.draft.now.plus_seconds(delay);
        pass.draft.update_task(seq, Some(output), |task| {
            note(task);
            // A task for workers goes back into its queue; an operator goes on waiting.
            if is_queued {
                task.callback_after_seconds = i64::try_from(delay).unwrap_or(i64::MAX);
                task.queue_again(visible_at, delay == 0);
            }
        });
        Ok(())
    }
}

impl TaskTarget {
    /// Returns the task that is meant.
    pub(super) fn find<'a>(&self, draft: &'a Draft<'_>) -> Option<&'a Arc<ExecutionTask>> {
        match self {
            Self::Id { task_id, seq } => draft.task(*seq).filter(|task| task.id == *task_id),
            Self::Reference(reference) => {
                // Only the newest attempt of the newest iteration can be open.
                let exact = draft.task_by_reference(reference);
                let exact = exact.filter(|task| task.is_open());
                exact.or_else(|| draft.newest_task(reference).filter(|task| task.is_open()))
            }
            Self::Signalled => {
                let is_wait = |task: &&Arc<ExecutionTask>| {
                    matches!(task.task_type.as_str(), "WAIT" | "YIELD")
                };
                draft.tasks_after(0).find(is_wait)
            }
            Self::Held(held) => draft.task(held.seq).filter(|task| held.is_held(task)),
        }
    }
}

/// Keeps the output of what a server did. The task stays in progress and has no time-out of the response.
fn await_update(pass: &mut Pass<'_, '_>, seq: u64, output: &Object) {
    match too_large(output) {
        Some(reason) => {
            let status = TaskStatus::FailedWithTerminalError;
            pass.draft.end_task(seq, status, Some(reason), None);
            pass.todo.push_back(seq);
        }
        None => pass.draft.update_task(seq, Some(output.clone()), |task| {
            task.waiting = Waiting::Nothing
        }),
    }
}

/// Returns why an output cannot be kept, if it cannot.
pub(crate) fn too_large(output: &Object) -> Option<String> {
    let bytes = json_bytes(output);
    (bytes > TASK_PAYLOAD_BYTES_MAX).then(|| {
        format!(
            "The output of the task has {bytes} bytes, more than {TASK_PAYLOAD_BYTES_MAX} (limit: task output)"
        )
    })
}

impl ExecutionTask {
    /// Puts a task for workers back into its queue.
    pub(crate) fn queue_again(&mut self, visible_at: Timestamp, offered: bool) {
        self.status = TaskStatus::Scheduled;
        self.waiting = Waiting::Queued {
            visible_at,
            offered,
        };
    }
}

/// Returns whether workers may get tasks of this type.
pub fn is_for_workers(task_type: &str) -> bool {
    kind::is_worker_task(task_type)
}
