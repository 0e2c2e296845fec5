//! Commands that a workflow sent before a local call are recorded while the task stays leased, so that the call has its number. A
//! checkpoint is a completion that does not end the task.

use std::sync::Arc;

use longhaul_protocol::Reason;
use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::id::{ActivityExecutionId, RunId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::WorkflowCommand;
use serde::{Deserialize, Serialize};

use super::{authorize, refused};
use crate::run::draft::LocalActivities;
use crate::run::state::Run;
use crate::run::wait::condition::AfterDecision;
use crate::run::workflow_task::batch::Batch;
use crate::run::workflow_task::complete::{check_sizes, fail_over_limit};
use crate::run::workflow_task::lease::Holder;
use crate::visibility::Definitions;
use crate::{Command, Decision, Moment, Rejection, limits};

/// The commands before a local call, or a group that holds local calls.
#[derive(Clone, Debug)]
pub struct CheckpointCommands {
    pub holder: Holder,
    pub checkpoint_id: String,
    pub start_sequence: CommandSeq,
    pub commands: Vec<WorkflowCommand>,
    pub definitions: Arc<Definitions>,
}

/// The newest checkpoint of a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub id: String,
    pub start_sequence: CommandSeq,
    pub next_sequence: CommandSeq,
    /// The local calls in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_activities: Vec<(CommandSeq, ActivityExecutionId)>,
}

/// The reply to a checkpoint.
#[derive(Clone, Debug)]
pub struct Checkpointed {
    pub run_id: RunId,
    pub checkpoint: Checkpoint,
    pub duplicate: bool,
}

impl Command for CheckpointCommands {
    type Reply = Checkpointed;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Checkpointed> {
        let (mut draft, task) = match authorize(&self.holder, run, moment) {
            Ok(held) => held,
            Err(decision) => return decision,
        };
        let reply = |checkpoint: Checkpoint| Checkpointed {
            run_id: run.run_id().clone(),
            checkpoint,
            duplicate: false,
        };
        let before = task
            .lease
            .as_ref()
            .and_then(|lease| lease.checkpoint.as_deref());
        if let Some(before) = before.filter(|before| before.id == self.checkpoint_id) {
            return Decision::unchanged(Checkpointed {
                duplicate: true,
                ..reply(before.clone())
            });
        }
        if draft.has_undelivered_cancellation() {
            return refused(Reason::CancellationRequested);
        }
        let next = draft.core.last_command_sequence.next();
        if self.start_sequence > next {
            return refused(Reason::LocalActivityCommandPrefixNotRecorded);
        }
        if self.start_sequence < next || task.is_update() {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        let batch = match draft.place(&self.commands, &self.definitions) {
            Ok(batch) => batch,
            Err(rejection) => return Decision::reject(rejection),
        };
        let recorded = check_sizes(&self.commands, &self.definitions, run, moment)
            .and_then(|()| draft.local_activities().record_checkpoint(run, &batch));
        match recorded {
            Ok(local_activities) => {
                let checkpoint = Checkpoint {
                    id: self.checkpoint_id.clone(),
                    start_sequence: self.start_sequence,
                    next_sequence: draft.core.last_command_sequence.next(),
                    local_activities,
                };
                draft.local_activities().mark_refreshed();
                if let Some(lease) = draft.local_activities().lease_mut() {
                    lease.checkpoint = Some(Box::new(checkpoint.clone()));
                }
                draft.finish(Ok(reply(checkpoint)))
            }
            // As for a completion: a refusal alone would make the worker send the same commands without end.
            Err(limit) => {
                let failed = fail_over_limit(run, moment, &task, limit.clone());
                failed.finish(Err(Rejection::LimitExceeded(limit)))
            }
        }
    }
}

impl LocalActivities<'_, '_> {
    fn record_checkpoint(
        &mut self,
        run: &Run,
        batch: &Batch<'_>,
    ) -> Result<Vec<(CommandSeq, ActivityExecutionId)>, LimitBreach> {
        let mut kept: Vec<CommandSeq> = batch.sent_again.iter().copied().collect();
        self.consume_under_lease(&kept);
        let mut local_activities = Vec::new();
        for (sequence, command) in &batch.steps {
            let Some(sequence) = sequence else {
                self.draft.apply_remark(command);
                continue;
            };
            self.draft.apply_call(*sequence, command)?;
            self.draft.core.last_command_sequence = *sequence;
            if let Some(local) = self.draft.local(*sequence) {
                local_activities.push((*sequence, local.execution_id.clone()));
            }
            if matches!(command, WorkflowCommand::OpenConditionWait(_)) {
                kept.push(*sequence);
            }
        }
        if let Some(lease) = self.lease_mut() {
            lease.kept_waits = kept;
        }
        limits::check(
            "history_transaction_size",
            self.draft.events.len() as u64,
            self.draft.limits.events_per_transaction,
        )?;
        self.draft.check_events_since(run)?;
        Ok(local_activities)
    }

    /// Resolves the waits that the worker passed before it sent the commands that follow: the signal that its lease delivered is
    /// consumed, and conditions that it did not send again are satisfied.
    pub(crate) fn consume_under_lease(&mut self, kept: &[CommandSeq]) {
        let Some(task) = self.draft.core.workflow_task.clone() else {
            return;
        };
        if let Some(lease) = self.lease_mut()
            && let (Some(signal), Some(wait)) =
                (lease.delivered_signal.take(), lease.delivered_to.take())
        {
            self.draft.signals().apply_delivered(signal, wait);
        }
        let kept = kept.iter().copied().collect();
        self.draft
            .waits()
            .satisfy_conditions(&kept, AfterDecision::RunGoesOn, &task.resume);
    }
}
