//! Commands that open a definition run again: restart, retry, rerun, and the message from a sub-workflow that was opened.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::{RunId, TaskId};
use serde_json::json;

use super::control::{into_step, unlooked};
use crate::conductor::definition::Snapshot;
use crate::conductor::execution::end::reopen::Opening;
use crate::conductor::execution::end::reopen::rerun::Given;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::Waiting;
use crate::conductor::execution::value::object;
use crate::conductor::input::workflow_input;
use crate::run::draft::Draft;
use crate::run::state::{ClosedReason, Run};
use crate::{Command, Decision, Moment, Rejection};

/// Begins a run that has ended from its start, with the same input.
#[derive(Clone, Debug)]
pub struct RestartExecution {
    /// The definition that it begins with. `None` keeps that of the run.
    pub snapshot: Option<Arc<Snapshot>>,
}

impl Command for RestartExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let restart = || -> Try<Decision<()>> {
            let Some(closed) = &run.core.closed else {
                return Ok(Decision::reject(Rejection::RunNotEnded));
            };
            let mut pass = Pass::new(Draft::of(run, moment), found)?;
            let snapshot = self.snapshot.as_ref().unwrap_or(&pass.snapshot);
            if closed.reason == ClosedReason::Completed && !snapshot.definition().restartable {
                return Ok(Decision::reject(Rejection::RunNotRestartable));
            }
            pass.begin_whole("restart", self.snapshot.clone(), None, None);
            pass.draft.execution_mut().restarted_at = Some(moment.now);
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(restart())
    }
}

/// Lets a run that has ended go on with another attempt of everything that failed or was cancelled.
#[derive(Clone, Copy, Debug)]
pub struct RetryExecution;

impl Command for RetryExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let retry = || -> Try<Decision<()>> {
            let Some(closed) = &run.core.closed else {
                return Ok(Decision::reject(Rejection::RunNotEnded));
            };
            let mut pass = Pass::new(Draft::of(run, moment), found)?;
            let failed = pass.failed_tasks(&Default::default());
            if failed.is_empty() && closed.reason != ClosedReason::TimedOut {
                return Ok(Decision::reject(Rejection::NothingToRetry));
            }
            pass.reopen_failed("retry", &failed, |_| {})?;
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(retry())
    }
}

/// Lets a run that has ended go on from one of its tasks, or from its beginning.
#[derive(Clone, Debug, Default)]
pub struct RerunExecution {
    /// The task with its number. `None` is the beginning.
    pub from: Option<(TaskId, u64)>,
    /// Replaces the input of the task.
    pub task_input: Option<Object>,
    /// Replaces the input of the run.
    pub workflow_input: Option<Object>,
    pub correlation_id: Option<String>,
}

impl Command for RerunExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let rerun = || -> Try<Decision<()>> {
            if run.core.closed.is_none() {
                return Ok(Decision::reject(Rejection::RunNotEnded));
            }
            let mut pass = Pass::new(Draft::of(run, moment), found)?;
            let template = &pass.snapshot.definition().input_template;
            let input = self.workflow_input.clone();
            let input = input.map(|input| workflow_input(input, template));
            let correlation_id = self.correlation_id.clone();
            let Some((task_id, seq)) = &self.from else {
                pass.begin_whole("rerun", None, input, correlation_id);
                return Ok(pass.run()?.finish(Ok(())));
            };
            let task = pass.draft.task(*seq).filter(|task| task.id == *task_id);
            let Some(task) = task.map(Arc::clone) else {
                return Ok(Decision::reject(Rejection::TaskNotFound));
            };
            if let Some(why) = pass.cannot_rerun(&task) {
                let reference = task.reference.as_str().into();
                return Ok(Decision::reject(Rejection::NotRerunnable {
                    reference,
                    why,
                }));
            }
            let given = Given {
                task_input: self.task_input.clone(),
                workflow_input: input,
                correlation_id,
            };
            pass.rerun_from(&task, given)?;
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(rerun())
    }
}

impl Pass<'_, '_> {
    /// Opens the run without any of its tasks. The pass begins it as a new one.
    fn begin_whole(
        &mut self,
        cause: &'static str,
        snapshot: Option<Arc<Snapshot>>,
        input: Option<Object>,
        correlation_id: Option<String>,
    ) {
        let tasks = self.draft.all_tasks();
        self.open_again(Opening {
            cause,
            removed: tasks.iter().map(|task| task.seq).collect(),
            input,
            correlation_id,
            snapshot,
            is_whole: true,
        });
    }
}

/// The run of a sub-workflow was opened again: its task is in progress, and the run with it. A message about an earlier life, or
/// about a task that the run no longer waits for, changes nothing.
#[derive(Clone, Debug)]
pub struct ReopenForChild {
    pub task_id: TaskId,
    pub seq: u64,
    pub run_id: RunId,
    /// The life that began.
    pub life: u32,
}

impl Command for ReopenForChild {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let reopen = || -> Try<Decision<()>> {
            let draft = Draft::of(run, moment);
            let task = draft.task(self.seq).filter(|task| {
                task.id == self.task_id
                    && task.sub_workflow_id.as_ref() == Some(&self.run_id)
                    && task.child_life < self.life
                    && !task.retried
                    // The run has gone on without an optional task.
                    && task.status != TaskStatus::CompletedWithErrors
            });
            let Some(is_open) = task.map(|task| task.is_open()) else {
                return Ok(Decision::unchanged(()));
            };
            let mut pass = Pass::new(draft, found)?;
            if is_open {
                let life = self.life;
                pass.draft
                    .change_task(self.seq, |task| task.child_life = life);
            } else if run.core.closed.is_some() {
                let mut failed = pass.failed_tasks(&Default::default());
                failed.retain(|task| task.seq != self.seq);
                pass.reopen_failed("sub_workflow", &failed, |pass| self.reopen_task(pass))?;
            } else {
                self.reopen_task(&mut pass);
                pass.todo.retain(|seq| *seq != self.seq);
                pass.recount()?;
            }
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(reopen())
    }
}

impl ReopenForChild {
    /// Puts the task in progress again. Its time-outs begin again.
    fn reopen_task(&self, pass: &mut Pass<'_, '_>) {
        let output = object(json!({"subWorkflowId": self.run_id}));
        let now = pass.draft.now;
        pass.draft.reopen_task(self.seq, output, |task| {
            task.waiting = Waiting::Child(self.run_id.clone());
            task.child_life = self.life;
            task.first_scheduled_at = now;
            task.started_at = Some(now);
        });
        let seq = self.seq;
        let execution = pass.draft.execution_mut();
        execution.permitted_failures.retain(|known| *known != seq);
    }
}
