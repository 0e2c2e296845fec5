//! Local activities whose attempts are recorded as they happen: one command, one commit each.

use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::run::activity::stop::StopAcknowledged;
use longhaul_engine::run::local_activity::attempt::{
    AcknowledgeLocalStop, AttemptHolder, EndLocalAttempt, EndedAttempt, HeartbeatLocalActivity,
    LocalHeartbeatReply, LocalHeartbeatRequest, LocalReport,
};
use longhaul_engine::run::local_activity::checkpoint::{CheckpointCommands, Checkpointed};
use longhaul_engine::run::local_activity::prepare::{PrepareLocalActivity, Prepared};
use longhaul_engine::run::local_activity::recover::RecoverLocalActivity;
use longhaul_engine::run::workflow_task::lease::TaskHolder;
use longhaul_protocol::Reason;
use longhaul_protocol::id::{ActivityAttemptId, CommandId, RunId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{LocalActivityCall, WorkflowCommand};

use crate::error::{Error, Result};
use crate::views::LocalActivities;

impl LocalActivities<'_> {
    /// Records the commands that the workflow sent before a local call.
    pub async fn checkpoint(
        self,
        holder: &TaskHolder,
        checkpoint_id: &str,
        start_sequence: CommandSeq,
        commands: Vec<WorkflowCommand>,
    ) -> Result<Checkpointed> {
        let definitions = self
            .host
            .search_attributes()
            .definitions_for(&holder.namespace, &commands)
            .await?;
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| CheckpointCommands {
                holder,
                checkpoint_id: checkpoint_id.to_owned(),
                start_sequence,
                commands: commands.clone(),
                definitions: Arc::clone(&definitions),
            })
            .await
    }

    /// Starts an attempt.
    pub async fn prepare(
        self,
        holder: &TaskHolder,
        sequence: CommandSeq,
        worker_attempt_id: &str,
        call: &LocalActivityCall,
    ) -> Result<Prepared> {
        let worker = self
            .host
            .workers()
            .known(&holder.namespace, &holder.owner)
            .await?;
        if worker.is_none() {
            return Err(Error::Rejected(Rejection::LocalActivityRefused {
                reason: Reason::StaleWorkerRegistration,
            }));
        }
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| PrepareLocalActivity {
                holder,
                sequence,
                worker_attempt_id: worker_attempt_id.to_owned(),
                call: call.clone(),
            })
            .await
    }

    /// Ends an attempt whose worker was lost. Returns the run too, for the reply.
    pub async fn recover(
        self,
        holder: &TaskHolder,
        sequence: CommandSeq,
        call: &LocalActivityCall,
    ) -> Result<(RunId, EndedAttempt)> {
        self.host
            .tasks()
            .on_workflow_task_of_run(holder, |holder| RecoverLocalActivity {
                holder,
                sequence,
                call: call.clone(),
            })
            .await
    }

    /// Keeps an attempt, or records its progress.
    pub async fn heartbeat(
        self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        request: &LocalHeartbeatRequest,
    ) -> Result<LocalHeartbeatReply> {
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| HeartbeatLocalActivity {
                attempt: AttemptHolder {
                    holder,
                    attempt_id: attempt_id.clone(),
                },
                request: request.clone(),
            })
            .await
    }

    /// Ends an attempt. Returns the run too, for the reply.
    pub async fn end_attempt(
        self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        report: &LocalReport,
    ) -> Result<(RunId, EndedAttempt)> {
        self.host
            .tasks()
            .on_workflow_task_of_run(holder, |holder| EndLocalAttempt {
                attempt: AttemptHolder {
                    holder,
                    attempt_id: attempt_id.clone(),
                },
                report: report.clone(),
            })
            .await
    }

    /// Records that the worker's function stopped after a cancellation.
    pub async fn acknowledge_stop(
        self,
        holder: &TaskHolder,
        attempt_id: &ActivityAttemptId,
        request_id: &CommandId,
    ) -> Result<StopAcknowledged> {
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| AcknowledgeLocalStop {
                attempt: AttemptHolder {
                    holder,
                    attempt_id: attempt_id.clone(),
                },
                request_id: request_id.clone(),
            })
            .await
    }
}
