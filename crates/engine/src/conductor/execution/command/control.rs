//! What operators and other runs do to a definition run: advance its time, terminate, pause, resume, and report the end of a child.

use std::sync::Arc;

use longhaul_protocol::conductor::{TaskStatus, WorkflowStatus};
use longhaul_protocol::history::{EventPayload, ExecutionPaused};
use longhaul_protocol::id::{RunId, TaskId};
use serde_json::{Value, json};

use crate::change::CommandType;
use crate::conductor::execution::command::start::deadline;
use crate::conductor::execution::end::AfterTermination;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::Waiting;
use crate::run::draft::{Cause, Draft};
use crate::run::message::external::{Receipt, Request, StopRun, refuse_closed};
use crate::run::state::{ClosedReason, Run};
use crate::{Command, Decision, Moment, Rejection};

/// Applies everything that is due in a definition run, and goes on with its backlog.
pub(crate) fn advance(run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
    let advance = || -> Try<Decision<()>> {
        let mut draft = Draft::of(run, moment);
        draft.outbox().redeliver_due();
        if run.core.closed.is_some() {
            return Ok(draft.finish(Ok(())));
        }
        let mut pass = Pass::new(draft, found)?;
        if !pass.time_out_if_due()? {
            pass.apply_due()?;
        }
        Ok(pass.run()?.finish(Ok(())))
    };
    into_step(advance())
}

/// Goes on with a pass that reached its bound, or makes the first one. It does nothing if there is nothing left to decide.
#[derive(Clone, Copy, Debug)]
pub struct ContinuePass;

impl Command for ContinuePass {
    /// Whether there is more to decide.
    type Reply = bool;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<bool> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<bool> {
        if !has_work(run) {
            return Step::Decided(Decision::unchanged(false));
        }
        let go_on = || -> Try<Decision<bool>> {
            let draft = Pass::new(Draft::of(run, moment), found)?.run()?;
            let more = draft.is_open() && !draft.execution().backlog.is_empty();
            Ok(draft.finish(Ok(more)))
        };
        into_step(go_on())
    }
}

/// Returns whether a pass would do something at once.
pub fn has_work(run: &Run) -> bool {
    run.core.closed.is_none()
        && run.core.execution.as_ref().is_some_and(|execution| {
            !execution.paused && (execution.is_new || !execution.backlog.is_empty())
        })
}

/// Ends the run at the request of a caller of either family. A run that has ended refuses.
pub(crate) fn stop(
    stop: &StopRun,
    run: &Run,
    moment: Moment<'_>,
    found: &LookupResults,
) -> Step<Receipt> {
    let request = &stop.request;
    if let Some(repeat) = request.repeat(run, CommandType::Terminate, None, None) {
        return Step::Decided(repeat);
    }
    let life = run.core.execution.as_ref().map(|execution| execution.life);
    if stop.life.is_some() && life > stop.life {
        return Step::Decided(Decision::reject(Rejection::EarlierLife));
    }
    if run.core.closed.is_some() {
        let draft = Draft::of(run, moment);
        let refused = refuse_closed(draft, request, CommandType::Terminate, None, None);
        return Step::Decided(refused);
    }
    let reason = stop.reason.clone();
    into_step(end(
        run,
        moment,
        found,
        request,
        reason,
        AfterTermination::Nothing,
    ))
}

fn end(
    run: &Run,
    moment: Moment<'_>,
    found: &LookupResults,
    request: &Request,
    reason: Option<String>,
    then: AfterTermination,
) -> Try<Decision<Receipt>> {
    let mut draft = Draft::of(run, moment);
    let command = draft.record_request(
        request,
        CommandType::Terminate,
        None,
        None,
        "terminated",
        None,
    );
    draft.cause = Cause {
        task_id: None,
        command_id: Some(command.command_id.clone()),
        principal: request.principal.clone(),
    };
    let mut pass = Pass::new(draft, found)?;
    pass.terminate(reason, then)?;
    let receipt = pass.draft.receipt(command);
    Ok(pass.draft.finish(Ok(receipt)))
}

/// Terminates a definition run. A failed run becomes a terminated one; a terminated one keeps its first reason.
#[derive(Clone, Debug)]
pub struct TerminateExecution {
    pub reason: Option<String>,
    pub then: AfterTermination,
}

impl Command for TerminateExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let status = run.core.status;
        match run.core.closed.as_ref().map(|closed| closed.reason) {
            Some(ClosedReason::Terminated) => return Step::Decided(Decision::unchanged(())),
            None | Some(ClosedReason::Failed | ClosedReason::TimedOut) => {}
            Some(_) => {
                let refused = Decision::reject(Rejection::RunNotActive { status });
                return Step::Decided(refused);
            }
        }
        let request = Request::default();
        let ended = end(run, moment, found, &request, self.reason.clone(), self.then);
        into_step(ended.map(|decision| decision.map(drop)))
    }
}

/// Stops the scheduling of further tasks.
#[derive(Clone, Debug)]
pub struct PauseExecution {
    pub reason: Option<String>,
}

impl Command for PauseExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Decision::reject(Rejection::RunNotActive { status });
        }
        if draft.execution().paused {
            return Decision::unchanged(());
        }
        draft.append(EventPayload::ExecutionPaused(ExecutionPaused {
            reason: self.reason.clone(),
        }));
        draft.execution_mut().paused = true;
        draft.finish(Ok(()))
    }
}

/// Lets a paused run go on.
#[derive(Clone, Copy, Debug)]
pub struct ResumeExecution;

impl Command for ResumeExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let resume = || -> Try<Decision<()>> {
            let draft = Draft::of(run, moment);
            if run.core.closed.is_some() || !draft.execution().paused {
                return Ok(Decision::reject(Rejection::RunNotPaused));
            }
            let mut pass = Pass::new(draft, found)?;
            let deadline = deadline(&pass.snapshot, moment.now);
            pass.draft
                .append(EventPayload::ExecutionResumed(ExecutionPaused {
                    reason: None,
                }));
            let execution = pass.draft.execution_mut();
            execution.paused = false;
            execution.last_retried_at = Some(moment.now);
            execution.deadline_at = deadline;
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(resume())
    }
}

/// The run of a sub-workflow ended.
#[derive(Clone, Debug)]
pub struct ReportExecution {
    pub task_id: TaskId,
    pub seq: u64,
    pub run_id: RunId,
    /// Name and version of the definition.
    pub name: String,
    pub version: i32,
    pub status: WorkflowStatus,
    pub reason: Option<String>,
    pub output: Arc<Value>,
    /// The life that ended.
    pub life: u32,
}

impl Command for ReportExecution {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<()> {
        let report = || -> Try<Decision<()>> {
            let draft = Draft::of(run, moment);
            let waits = draft.task(self.seq).is_some_and(|task| {
                task.id == self.task_id
                    && task.waiting == Waiting::Child(self.run_id.clone())
                    && task.child_life <= self.life
            });
            if !waits || run.core.closed.is_some() {
                return Ok(Decision::unchanged(()));
            }
            let status = match self.status {
                WorkflowStatus::Completed => TaskStatus::Completed,
                WorkflowStatus::TimedOut => TaskStatus::TimedOut,
                WorkflowStatus::Terminated => TaskStatus::Canceled,
                WorkflowStatus::Failed | WorkflowStatus::Running | WorkflowStatus::Paused => {
                    TaskStatus::Failed
                }
            };
            let mut output = self.output.as_object().cloned().unwrap_or_default();
            output.insert("subWorkflowId".to_owned(), json!(self.run_id));
            let reason = (status != TaskStatus::Completed).then(|| {
                format!(
                    "Sub workflow {}.{}/{} failure reason: {}",
                    self.name,
                    self.version,
                    self.run_id,
                    self.reason.as_deref().unwrap_or("null")
                )
            });
            let mut pass = Pass::new(draft, found)?;
            // The message that opened that life may come later.
            let life = self.life;
            pass.draft
                .change_task(self.seq, |task| task.child_life = life);
            pass.draft.end_task(self.seq, status, reason, Some(output));
            pass.todo.push_back(self.seq);
            Ok(pass.run()?.finish(Ok(())))
        };
        into_step(report())
    }
}

pub(super) fn into_step<R>(tried: Try<Decision<R>>) -> Step<R> {
    match tried {
        Ok(decision) => Step::Decided(decision),
        Err(needs) => Step::Needs(needs),
    }
}

/// Returns the decision of a step that had no lookups. A command on a definition run is decided by `step`.
pub(super) fn unlooked<R>(step: Step<R>) -> Decision<R> {
    match step {
        Step::Decided(decision) => decision,
        Step::Needs(_) => Decision::reject(Rejection::TaskNotFound),
    }
}
