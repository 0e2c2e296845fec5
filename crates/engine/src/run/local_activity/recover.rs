//! An unfinished attempt whose worker was lost. It is unknown whether its function still runs; its later reports are refused,
//! because it is no longer the current attempt.

use longhaul_protocol::Reason;
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{LocalActivityCall, LocalFailure};
use serde_json::{Value, json};

use super::attempt::EndedAttempt;
use super::end::Why;
use super::{LocalAttempt, authorize, refused};
use crate::run::state::{Run, WorkflowTask};
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment};

/// A worker found a started attempt that is not its own.
#[derive(Clone, Debug)]
pub struct RecoverLocalActivity {
    pub holder: Holder,
    pub sequence: CommandSeq,
    pub call: LocalActivityCall,
}

impl Command for RecoverLocalActivity {
    type Reply = EndedAttempt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<EndedAttempt> {
        let earlier = run.ended_before(&self.holder, |ended| ended.sequence == self.sequence);
        if let Some(ended) = earlier {
            return Decision::unchanged(ended);
        }
        let (mut draft, task) = match authorize(&self.holder, run, moment) {
            Ok(held) => held,
            Err(decision) => return decision,
        };
        // The turn of an update does not advance the workflow, so the workflow would not see the outcome of the call.
        if task.is_update() {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        let Some(local) = draft.local(self.sequence).cloned() else {
            return refused(if self.sequence > draft.core.last_command_sequence {
                Reason::LocalActivityCommandPrefixNotRecorded
            } else {
                Reason::LocalActivityPreparationMismatch
            });
        };
        if !local.is_call(&self.call) {
            return refused(Reason::LocalActivityPreparationMismatch);
        }
        let Some(attempt) = local.attempt.clone() else {
            return refused(Reason::StaleActivityAttempt);
        };
        if attempt.is_under(&task) || attempt.lease_expires_at > moment.now {
            return refused(Reason::LocalActivityPreviousAttemptLive);
        }
        let recovery = Some(found(&task, &attempt));
        let written = match (local.passed_deadline(draft.now), local.retry_at(draft.now)) {
            (Some(kind), _) => draft
                .local_activities()
                .time_out_or_retry(&local, kind, recovery),
            (None, Some(at)) => {
                let why = Why {
                    reason: "cold_replay",
                    attempt_status: "expired",
                    timeout_kind: None,
                    failure: interrupted(&local.activity_type),
                    recovery,
                };
                draft.local_activities().retry(&local, at, why)
            }
            (None, None) => {
                let failure = interrupted(&local.activity_type);
                draft
                    .local_activities()
                    .fail(&local, &attempt, &failure, None, recovery)
            }
        };
        let ended = draft
            .local_activities()
            .end_attempt(&task, &local, &attempt, written);
        draft.finish(Ok(ended))
    }
}

fn interrupted(activity_type: &str) -> LocalFailure {
    LocalFailure {
        message: format!(
            "Local activity {activity_type} was interrupted: its worker was lost before the attempt ended."
        ),
        exception_type: Some("LocalActivityInterrupted".to_owned()),
        non_retryable: false,
    }
}

fn found(task: &WorkflowTask, attempt: &LocalAttempt) -> Value {
    json!({
        "version": 1,
        "workflow_task_id": task.id,
        "workflow_task_attempt": task.attempt,
        "lease_owner": task.lease.as_ref().map(|lease| &lease.owner),
        "original_workflow_task_id": attempt.task_id,
        "original_workflow_task_attempt": attempt.task_attempt,
        "original_lease_owner": attempt.owner,
        "original_lease_expires_at": attempt.lease_expires_at,
        "callback_stop_state": "unknown",
    })
}
