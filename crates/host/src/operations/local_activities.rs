//! Local activities whose attempts are written down as they happen (local-activities.md §12.2): one command, one commit each.

use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::change::TaskKind;
use longhaul_engine::run::local_activity::attempt::{
    AcknowledgeLocalStop, AttemptHolder, BeatLocalActivity, LocalBeat, LocalPulse, LocalReport,
    SettleLocalActivity, Settled,
};
use longhaul_engine::run::local_activity::checkpoint::{CheckpointCommands, Checkpointed};
use longhaul_engine::run::local_activity::prepare::{PrepareLocalActivity, Prepared};
use longhaul_engine::run::local_activity::recover::RecoverLocalActivity;
use longhaul_protocol::Reason;
use longhaul_protocol::id::{ActivityAttemptId, CommandId, EventId, RunId};
use longhaul_protocol::workflow_command::{LocalActivityCall, WorkflowCommand};

use crate::Host;
use crate::error::{Error, Result};
use crate::operations::workflow_tasks::TaskHolder;

impl Host {
    /// Records commands that stand before a local call.
    pub async fn checkpoint_commands(
        &self,
        holder: &TaskHolder,
        checkpoint_id: &str,
        start_sequence: u64,
        commands: Vec<WorkflowCommand>,
    ) -> Result<Checkpointed> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        let definitions = self.definitions_for(&holder.namespace, &commands).await?;
        self.report(row, |row| CheckpointCommands {
            holder: holder.with(row),
            checkpoint_id: checkpoint_id.to_owned(),
            start_sequence,
            commands: commands.clone(),
            definitions: Arc::clone(&definitions),
        })
        .await
    }

    /// Begins an attempt.
    pub async fn prepare_local_activity(
        &self,
        holder: &TaskHolder,
        sequence: u64,
        worker_attempt_id: &str,
        call: &LocalActivityCall,
    ) -> Result<Prepared> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        let worker = self.known_worker(&holder.namespace, &holder.owner).await?;
        if worker.is_none() {
            return Err(Error::Rejected(Rejection::LocalActivityRefused {
                reason: Reason::StaleWorkerRegistration,
            }));
        }
        self.report(row, |row| PrepareLocalActivity {
            holder: holder.with(row),
            sequence,
            worker_attempt_id: worker_attempt_id.to_owned(),
            call: call.clone(),
        })
        .await
    }

    /// Settles an attempt whose worker was lost; with the run, for the answer.
    pub async fn recover_local_activity(
        &self,
        holder: &TaskHolder,
        sequence: u64,
        call: &LocalActivityCall,
    ) -> Result<(RunId, Settled)> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        let run_id = row.run_id.clone();
        let settled = self
            .report(row, |row| RecoverLocalActivity {
                holder: holder.with(row),
                sequence,
                call: call.clone(),
            })
            .await?;
        Ok((run_id, settled))
    }

    /// The worker keeps an attempt, or tells its progress.
    pub async fn beat_local_activity(
        &self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        beat: &LocalBeat,
    ) -> Result<LocalPulse> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        self.report(row, |row| BeatLocalActivity {
            attempt: AttemptHolder {
                holder: holder.with(row),
                attempt_id: attempt_id.clone(),
            },
            beat: beat.clone(),
        })
        .await
    }

    /// An attempt is over; with the run, for the answer.
    pub async fn settle_local_activity(
        &self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        report: &LocalReport,
    ) -> Result<(RunId, Settled)> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        let run_id = row.run_id.clone();
        let settled = self
            .report(row, |row| SettleLocalActivity {
                attempt: AttemptHolder {
                    holder: holder.with(row),
                    attempt_id: attempt_id.clone(),
                },
                report: report.clone(),
            })
            .await?;
        Ok((run_id, settled))
    }

    /// The worker's function has stopped after a cancellation; the event of the request, and whether it was said before.
    pub async fn acknowledge_local_stop(
        &self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        request_id: &CommandId,
    ) -> Result<(EventId, bool)> {
        let row = self
            .task_row(&holder.namespace, &holder.task_id, TaskKind::Workflow)
            .await?;
        self.report(row, |row| AcknowledgeLocalStop {
            attempt: AttemptHolder {
                holder: holder.with(row),
                attempt_id: attempt_id.clone(),
            },
            request_id: request_id.clone(),
        })
        .await
    }
}
