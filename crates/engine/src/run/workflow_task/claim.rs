//! A worker claims a workflow task. The claim fixes the history that the worker will see, and whether it delivers a signal.

use std::sync::Arc;

use longhaul_protocol::id::{TaskId, WorkerId};
use longhaul_protocol::sequence::HistorySeq;
use longhaul_protocol::{Payload, Reason, Timestamp};

use crate::run::cancellation::Cancellation;
use crate::run::draft::{Draft, WorkflowTasks};
use crate::run::state::budget::{HistoryBudget, history_budget};
use crate::run::state::{Resume, Run, Spec, Status, WorkflowLease, WorkflowTask};
use crate::run::workflow_task::sticky::{ReplayMode, Sticky};
use crate::{Command, Decision, Moment, Rejection};

/// The request for one task.
#[derive(Clone, Debug)]
pub struct ClaimWorkflowTask {
    pub task_id: TaskId,
    pub worker_id: WorkerId,
    pub signal_delivery: SignalDelivery,
    pub poll_request_id: Option<String>,
}

/// Which signals a worker may see in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalDelivery {
    /// The signal that woke the run, whether or not a wait is recorded for it.
    Any,
    /// Only a signal for a recorded wait. Such a worker passes every signal it sees to its next wait of that name.
    RecordedWaitOnly,
}

/// A leased workflow task.
#[derive(Clone, Debug)]
pub struct WorkflowClaim {
    pub spec: Arc<Spec>,
    pub task_id: TaskId,
    pub attempt: u64,
    pub owner: WorkerId,
    pub lease_expires_at: Timestamp,
    pub leased_at: Timestamp,
    pub run_status: Status,
    /// Where the history of this lease ends.
    pub observed_sequence: HistorySeq,
    pub resume: Resume,
    pub signal_arguments: Option<Payload>,
    pub budget: HistoryBudget,
    pub replay_mode: ReplayMode,
    /// Set when the workflow was asked to clean up and end.
    pub cancellation: Option<Box<Cancellation>>,
}

impl Command for ClaimWorkflowTask {
    type Reply = WorkflowClaim;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<WorkflowClaim> {
        let not_claimable = |reason| Rejection::NotClaimable { reason };
        if run.core.closed.is_some() {
            return Decision::reject(not_claimable(Reason::RunClosed));
        }
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            return draft.finish(Err(not_claimable(Reason::RunClosed)));
        }
        draft.workflow_task().expire_lease();
        if let Err(rejection) = draft.local_activities().take_due_retry(&self.task_id) {
            return Decision::reject(rejection);
        }
        let Some(task) = draft
            .core
            .workflow_task
            .clone()
            .filter(|task| task.id == self.task_id)
        else {
            return Decision::reject(not_claimable(Reason::TaskNotReady));
        };
        if let Some(lease) = &task.lease {
            let same_poll = lease.owner == self.worker_id
                && self.poll_request_id.is_some()
                && lease.poll_request_id == self.poll_request_id;
            return if same_poll {
                Decision::unchanged(self.view(&draft, &task, lease))
            } else {
                Decision::reject(not_claimable(Reason::LeasedByOther))
            };
        }
        let kept_for_another =
            |held: &Sticky| held.worker_id != self.worker_id && held.until > moment.now;
        if task.held.as_ref().is_some_and(kept_for_another) {
            return Decision::reject(not_claimable(Reason::TaskNotReady));
        }
        if task.available_at > moment.now {
            return Decision::reject(not_claimable(Reason::NotDue));
        }
        let task = draft.workflow_task().grant(task, self);
        let claim = self.view(
            &draft,
            &task,
            task.lease.as_ref().expect("the lease was just granted"),
        );
        draft.finish(Ok(claim))
    }
}

impl WorkflowTasks<'_, '_> {
    fn grant(
        &mut self,
        mut task: Box<WorkflowTask>,
        claim: &ClaimWorkflowTask,
    ) -> Box<WorkflowTask> {
        // The turn of an update runs its handler only: a signal delivered with it would be lost.
        let delivery = self
            .draft
            .deliverable_signal()
            .filter(|_| !task.is_update());
        task.attempt += 1;
        task.expired = None;
        task.lease = Some(WorkflowLease {
            owner: claim.worker_id.clone(),
            leased_at: self.draft.now,
            expires_at: self
                .draft
                .now
                .plus_seconds(self.draft.limits.workflow_task_lease_seconds),
            observed_sequence: self.draft.core.last_history_sequence,
            delivered_signal: delivery.map(|(signal, _)| signal),
            delivered_to: delivery.map(|(_, wait)| wait),
            poll_request_id: claim.poll_request_id.clone(),
            refreshed: false,
            checkpoint: None,
            kept_waits: Vec::new(),
        });
        task.local_receipts.clear();
        self.draft.core.status = Status::Running;
        if !task.is_update() {
            self.draft.core.next_wake = None;
        }
        self.draft.core.workflow_task = Some(task.clone());
        self.show();
        task
    }
}

impl ClaimWorkflowTask {
    fn view(&self, draft: &Draft<'_>, task: &WorkflowTask, lease: &WorkflowLease) -> WorkflowClaim {
        let mut resume = task.resume.clone();
        let mut signal_arguments = None;
        let delivered = lease
            .delivered_signal
            .and_then(|signal| draft.signal(signal));
        let wait = lease.delivered_to.and_then(|wait| draft.wait(wait));
        if let (Some(signal), Some(wait)) = (delivered, wait) {
            resume.signal_name = Some(signal.name.clone());
            resume.workflow_signal_id = Some(signal.id.clone());
            resume.signal_wait_id = Some(wait.id.clone());
            signal_arguments = Some(signal.arguments.clone());
        } else {
            match self.signal_delivery {
                SignalDelivery::RecordedWaitOnly => resume.signal_name = None,
                SignalDelivery::Any => {
                    let signal_id = resume.workflow_signal_id.as_ref();
                    signal_arguments = signal_id
                        .and_then(|id| draft.open_signals().find(|signal| signal.id == *id))
                        .map(|signal| signal.arguments.clone());
                }
            }
        }
        WorkflowClaim {
            spec: Arc::clone(&draft.spec),
            task_id: task.id.clone(),
            attempt: task.attempt,
            owner: lease.owner.clone(),
            lease_expires_at: lease.expires_at,
            leased_at: lease.leased_at,
            run_status: draft.core.status,
            observed_sequence: lease.observed_sequence,
            resume,
            signal_arguments,
            budget: history_budget(&draft.core, draft.limits),
            replay_mode: draft.replay_mode(&lease.owner),
            cancellation: draft.core.cancellation.clone(),
        }
    }
}
