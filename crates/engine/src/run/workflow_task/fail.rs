//! A worker gives a workflow task back: because replay met only pending work, because it failed, to stay alive, or because
//! it leaves. None of these closes a run, and none writes an event of its own (engine.md §3.5, §12.3).

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{TaskId, WorkerId};
use serde_json::{Value, json};

use crate::change::{Diagnosis, Verb};
use crate::run::activity::report::Answer;
use crate::run::cancellation::Cancellation;
use crate::run::draft::Draft;
use crate::run::state::{Run, Status, WorkflowTask};
use crate::run::workflow_task::batch::Batch;
use crate::run::workflow_task::complete::{Holder, apply};
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

/// The word both SDKs use when replay only met work that is still pending. It is not a failure.
const WAITING_FOR_HISTORY: &str = "WorkflowTaskWaitingForHistory";

/// Failures of replay itself: only another deployment can help, so there is no hurry to try again.
const REPLAY_FAILURES: [&str; 5] = [
    "NonDeterministicReplayError",
    "NonDeterministicReplay",
    "DeterminismFailed",
    "WorkflowEntryArgumentsMismatch",
    "WorkflowEntryArgumentsMismatchError",
];

impl Command for FailWorkflowTask {
    type Reply = Answer;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Answer> {
        let duplicate = |body| Answer {
            body,
            duplicate: true,
        };
        let (draft, task) = match self.holder.hold(run, Some(Verb::Fail), moment, duplicate) {
            Ok(held) => held,
            Err(decision) => return decision,
        };
        // An update's turn always ends with its answer; a worker that has none has failed.
        if self.failure_type.as_deref() == Some(WAITING_FOR_HISTORY) && !task.is_update() {
            self.acknowledge(run, draft, &task)
        } else {
            self.back_off(draft, &task)
        }
    }
}

impl FailWorkflowTask {
    /// A decision without commands.
    fn acknowledge(&self, run: &Run, draft: Draft<'_>, task: &WorkflowTask) -> Decision<Answer> {
        let batch = Batch {
            steps: Vec::new(),
            terminal: None,
            next_sequence: draft.core.last_command_sequence + 1,
            sent_again: std::collections::BTreeSet::new(),
        };
        let mut draft = match apply(run, draft, task, &batch, &[]) {
            Ok(draft) => draft,
            Err(limit) => return Decision::reject(Rejection::LimitExceeded(limit)),
        };
        let next = draft
            .core
            .workflow_task
            .as_ref()
            .map(|task| task.id.clone());
        let answer = self.answer("waiting_for_history", draft.core.status, next.as_ref());
        draft
            .workflow_task()
            .store_reply(task, self.holder.report(Verb::Fail, &answer));
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }

    /// The same task again, later. It keeps its id, from which workers derive idempotency keys.
    fn back_off(&self, mut draft: Draft<'_>, task: &WorkflowTask) -> Decision<Answer> {
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
        let answer = self.answer("failed", Status::Waiting, Some(&task.id));
        draft.signals().flush_undecided();
        if let Some(open) = &mut draft.core.workflow_task {
            open.failures = open.failures.saturating_add(1);
            open.last_error = Some(self.message.clone());
            open.replay_blocked = replay_blocked;
            let mut report = self.holder.report(Verb::Fail, &answer);
            report.diagnosis = Some(Box::new(Diagnosis {
                failure_type: self.failure_type.clone(),
                stack_trace: self.stack_trace.clone(),
                at: draft.now,
            }));
            open.last_report = Some(Box::new(report));
        }
        let at = draft.now.plus_seconds(seconds);
        draft.workflow_task().put_back(at);
        draft.finish(Ok(Answer {
            body: answer,
            duplicate: false,
        }))
    }

    fn answer(&self, outcome: &str, run_status: Status, next_task_id: Option<&TaskId>) -> Value {
        json!({
            "task_id": self.holder.task_id(),
            "workflow_task_attempt": self.holder.attempt,
            "outcome": outcome,
            "recorded": true,
            "run_status": run_status.as_str(),
            "reason": null,
            "next_task_id": next_task_id,
        })
    }
}

/// The worker is alive and wants to keep the lease.
#[derive(Clone, Debug)]
pub struct HeartbeatWorkflowTask {
    pub holder: Holder,
}

/// A renewed lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewed {
    pub lease_expires_at: Timestamp,
    pub run_status: Status,
    pub cancellation: Option<Box<Cancellation>>,
}

impl Command for HeartbeatWorkflowTask {
    type Reply = Renewed;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Renewed> {
        let never = |_| unreachable!("a heartbeat has no stored answer");
        let mut draft = match self.holder.hold(run, None, moment, never) {
            Ok((draft, _)) => draft,
            Err(decision) => return decision,
        };
        let lease_expires_at = draft
            .now
            .plus_seconds(draft.limits.workflow_task_lease_seconds);
        if let Some(lease) = draft
            .core
            .workflow_task
            .as_mut()
            .and_then(|task| task.lease.as_mut())
        {
            lease.expires_at = lease_expires_at;
        }
        draft.workflow_task().show();
        let run_status = draft.core.status;
        draft.finish(Ok(Renewed {
            lease_expires_at,
            run_status,
            cancellation: run.core.cancellation.clone(),
        }))
    }
}

/// May this caller read the history of its leased task? Decides nothing, changes nothing unless the run's time is up.
#[derive(Clone, Debug)]
pub struct ReadHistory {
    pub holder: Holder,
}

impl Command for ReadHistory {
    /// Where every page of this lease ends.
    type Reply = u64;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<u64> {
        let never = |_| unreachable!("reading has no stored answer");
        match self.holder.hold(run, None, moment, never) {
            // A worker that delivers a cancellation, or has a local activity written down as it runs, must see what it delivered: it reads to the end.
            Ok((_, task))
                if run.core.cancellation.is_some()
                    || task.lease.as_ref().is_some_and(|lease| lease.refreshed) =>
            {
                Decision::unchanged(run.core.last_history_sequence)
            }
            Ok((_, task)) => Decision::unchanged(
                task.lease
                    .as_ref()
                    .map_or(0, |lease| lease.observed_sequence),
            ),
            Err(decision) => decision,
        }
    }
}

/// The worker is gone: its workflow task is ready for others at once.
#[derive(Clone, Debug)]
pub struct ReleaseWorkflowTask {
    pub task_id: TaskId,
    pub owner: WorkerId,
}

impl Command for ReleaseWorkflowTask {
    /// Whether there was a lease to give up.
    type Reply = bool;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<bool> {
        let held = run.core.workflow_task.as_ref().is_some_and(|task| {
            task.id == self.task_id
                && task
                    .lease
                    .as_ref()
                    .is_some_and(|lease| lease.owner == self.owner)
        });
        if !held {
            return Decision::unchanged(false);
        }
        let mut draft = Draft::of(run, moment);
        draft.signals().flush_undecided();
        let now = draft.now;
        draft.workflow_task().put_back(now);
        draft.finish(Ok(true))
    }
}
