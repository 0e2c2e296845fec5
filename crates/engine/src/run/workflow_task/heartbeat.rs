//! A worker keeps the lease of a workflow task.

use longhaul_protocol::Timestamp;

use crate::run::cancellation::Cancellation;
use crate::run::state::{Run, Status};
use crate::run::workflow_task::lease::Holder;
use crate::{Command, Decision, Moment};

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
        let mut draft = match self.holder.authorize(run, moment) {
            Ok((draft, _)) => draft,
            Err(refused) => return refused.into_decision(),
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
