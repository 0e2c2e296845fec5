//! Local activities under the lease of the workflow task, run by a worker that records each attempt.

use std::sync::Arc;

use longhaul_engine::Rejection;
use longhaul_engine::run::local_activity::attempt::{
    AttemptHolder, EndLocalAttempt, EndedAttempt, HeartbeatLocalActivity, LocalHeartbeatRequest,
    LocalReport,
};
use longhaul_engine::run::local_activity::checkpoint::CheckpointCommands;
use longhaul_engine::run::local_activity::prepare::{PrepareLocalActivity, Prepared};
use longhaul_engine::run::local_activity::recover::RecoverLocalActivity;
use longhaul_engine::run::workflow_task::claim::{
    ClaimWorkflowTask, SignalDelivery, WorkflowClaim,
};
use longhaul_protocol::id::{ActivityAttemptId, TaskId, WorkerId};
use longhaul_protocol::workflow_command::{LocalActivityCall, WorkflowCommand, parse_descriptor};
use serde_json::{Value, json};

use super::{Step, World};

/// Returns the call with these options.
pub(crate) fn local_call(options: &Value) -> LocalActivityCall {
    let mut descriptor = json!({"type": "record_local_activity", "activity_type": "charge", "execution_mode": "local"});
    for (key, value) in options.as_object().unwrap() {
        descriptor[key] = value.clone();
    }
    parse_descriptor(&descriptor, "descriptor").unwrap()
}

impl World {
    pub(crate) fn prepare_local(
        &mut self,
        worker: &str,
        sequence: u64,
        options: &Value,
    ) -> (Step, Result<Prepared, Rejection>) {
        let holder = self.holder(worker, None);
        let worker_attempt_id =
            format!("{}-{}-{sequence}", holder.row.task_id, holder.named.attempt);
        self.calls
            .insert((self.run().run_id().clone(), sequence), options.clone());
        let (step, reply) = self.apply(&PrepareLocalActivity {
            holder,
            sequence: sequence.into(),
            worker_attempt_id,
            call: local_call(options),
        });
        if let Ok(prepared) = &reply {
            let key = (self.run().run_id().clone(), sequence);
            self.attempts.insert(key, prepared.attempt.id.clone());
        }
        (step, reply)
    }

    /// Returns the newest attempt of the call, for any worker that reports on it.
    fn attempt_holder(&self, worker: &str, sequence: u64) -> Option<AttemptHolder> {
        let key = (self.run().run_id().clone(), sequence);
        let attempt_id: ActivityAttemptId = self.attempts.get(&key)?.clone();
        Some(AttemptHolder {
            holder: self.holder(worker, None),
            attempt_id,
        })
    }

    pub(crate) fn end_local(
        &mut self,
        worker: &str,
        sequence: u64,
        report: LocalReport,
    ) -> (Step, Result<EndedAttempt, Rejection>) {
        let Some(attempt) = self.attempt_holder(worker, sequence) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        self.apply(&EndLocalAttempt { attempt, report })
    }

    pub(crate) fn beat_local(
        &mut self,
        worker: &str,
        sequence: u64,
        request: LocalHeartbeatRequest,
    ) -> (Step, Result<bool, Rejection>) {
        let Some(attempt) = self.attempt_holder(worker, sequence) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        let (step, reply) = self.apply(&HeartbeatLocalActivity { attempt, request });
        (step, reply.map(|reply| reply.stop.is_none()))
    }

    pub(crate) fn recover_local(
        &mut self,
        worker: &str,
        sequence: u64,
    ) -> (Step, Result<EndedAttempt, Rejection>) {
        let key = (self.run().run_id().clone(), sequence);
        let options = self.calls.get(&key).cloned().unwrap_or_else(|| json!({}));
        self.apply(&RecoverLocalActivity {
            holder: self.holder(worker, None),
            sequence: sequence.into(),
            call: local_call(&options),
        })
    }

    pub(crate) fn checkpoint(
        &mut self,
        worker: &str,
        checkpoint_id: &str,
        commands: Vec<WorkflowCommand>,
    ) -> (Step, Result<u64, Rejection>) {
        let start_sequence = self.run().core.last_command_sequence.next();
        let (step, reply) = self.apply(&CheckpointCommands {
            holder: self.holder(worker, None),
            checkpoint_id: checkpoint_id.to_owned(),
            start_sequence,
            commands,
            definitions: Arc::clone(&self.definitions),
        });
        (
            step,
            reply.map(|reply| reply.checkpoint.next_sequence.get()),
        )
    }

    /// Returns the task of a retry that exists beside the ordinary one.
    pub(crate) fn retry_task(&self, sequence: u64) -> Option<TaskId> {
        let local = self.run().local_activity(sequence.into())?;
        local.retry_task.as_ref().map(|task| task.id.clone())
    }

    pub(crate) fn claim_retry(
        &mut self,
        sequence: u64,
        worker: &str,
    ) -> (Step, Result<WorkflowClaim, Rejection>) {
        let Some(task_id) = self.retry_task(sequence) else {
            return (Step::default(), Err(Rejection::TaskNotFound));
        };
        self.apply(&ClaimWorkflowTask {
            task_id,
            worker_id: WorkerId::from(worker),
            signal_delivery: SignalDelivery::RecordedWaitOnly,
            poll_request_id: None,
        })
    }
}
