//! A worker fails a workflow task. It never closes the run and writes no event: the task becomes ready again later, or, if replay
//! only met work that is still pending, the task ends without commands.

use longhaul_protocol::id::TaskId;

use crate::change::{Diagnosis, FailOutcome, TaskOutcome, TaskReply, Verb, WorkflowTaskFailed};
use crate::run::draft::Draft;
use crate::run::state::{Run, Status, WorkflowTask};
use crate::run::workflow_task::batch::Batch;
use crate::run::workflow_task::complete::apply;
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment, Rejection};

/// The worker could not decide.
#[derive(Clone, Debug)]
pub struct FailWorkflowTask {
    pub holder: Holder,
    pub message: String,
    pub failure_type: Option<String>,
    pub reason: Option<String>,
    /// For people; kept with the task.
    pub stack_trace: Option<String>,
}

/// The failure type that both SDKs use if replay only met work that is still pending. It is not a failure.
const WAITING_FOR_HISTORY: &str = "WorkflowTaskWaitingForHistory";

/// Failures of replay itself: only a new deployment can help, so the retry is not urgent.
const REPLAY_FAILURES: [&str; 5] = [
    "NonDeterministicReplayError",
    "NonDeterministicReplay",
    "DeterminismFailed",
    "WorkflowEntryArgumentsMismatch",
    "WorkflowEntryArgumentsMismatchError",
];

impl Command for FailWorkflowTask {
    type Reply = TaskReply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<TaskReply> {
        let (draft, task) = match self.holder.authorize_report(run, Verb::Fail, moment) {
            Ok(held) => held,
            Err(not_held) => return not_held.into_decision(),
        };
        // The turn of an update always ends with its result; a worker without one has failed.
        if self.failure_type.as_deref() == Some(WAITING_FOR_HISTORY) && !task.is_update() {
            self.acknowledge(run, draft, &task)
        } else {
            self.back_off(draft, &task)
        }
    }
}

impl FailWorkflowTask {
    /// Accepts a decision without commands.
    fn acknowledge(&self, run: &Run, draft: Draft<'_>, task: &WorkflowTask) -> Decision<TaskReply> {
        let batch = Batch {
            steps: Vec::new(),
            terminal: None,
            next_sequence: draft.core.last_command_sequence.next(),
            sent_again: std::collections::BTreeSet::new(),
        };
        let mut draft = match apply(run, draft, task, &batch, &[]) {
            Ok(draft) => draft,
            Err(limit) => return Decision::reject(Rejection::LimitExceeded(limit)),
        };
        let next = draft.core.workflow_task.as_ref();
        let next = next.map(|task| task.id.clone());
        let outcome = self.outcome(FailOutcome::WaitingForHistory, draft.core.status, next);
        let reply = self.holder.stored_reply(Verb::Fail, &outcome);
        draft.workflow_task().store_reply(task, reply);
        draft.finish(Ok(TaskReply::first(outcome)))
    }

    /// Makes the same task ready again later. It keeps its id, from which workers derive idempotency keys.
    fn back_off(&self, mut draft: Draft<'_>, task: &WorkflowTask) -> Decision<TaskReply> {
        let replay_blocked = self
            .failure_type
            .as_deref()
            .is_some_and(|name| REPLAY_FAILURES.contains(&name))
            || self.reason.as_deref() == Some("workflow_entry_arguments_mismatch");
        let longest = draft.limits.workflow_task_backoff_max_seconds;
        let seconds = if replay_blocked {
            longest
        } else {
            (1_u64 << task.failures.min(16)).min(longest)
        };
        let outcome = self.outcome(FailOutcome::Failed, Status::Waiting, Some(task.id.clone()));
        draft.signals().flush_undecided();
        if let Some(open) = &mut draft.core.workflow_task {
            open.failures = open.failures.saturating_add(1);
            open.last_error = Some(self.message.clone());
            open.replay_blocked = replay_blocked;
            let mut reply = self.holder.stored_reply(Verb::Fail, &outcome);
            reply.diagnosis = Some(Box::new(Diagnosis {
                failure_type: self.failure_type.clone(),
                stack_trace: self.stack_trace.clone(),
                at: draft.now,
            }));
            open.last_reply = Some(Box::new(reply));
        }
        let at = draft.now.plus_seconds(seconds);
        draft.workflow_task().put_back(at);
        draft.finish(Ok(TaskReply::first(outcome)))
    }

    fn outcome(
        &self,
        outcome: FailOutcome,
        run_status: Status,
        next_task_id: Option<TaskId>,
    ) -> TaskOutcome {
        TaskOutcome::WorkflowTaskFailed(WorkflowTaskFailed {
            task_id: self.holder.task_id().clone(),
            attempt: self.holder.named.attempt,
            outcome,
            run_status,
            next_task_id,
        })
    }
}
