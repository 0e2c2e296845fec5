//! Cooperative cancellation from outside and from workers.

use longhaul_engine::run::activity::stop::{AcknowledgeStop, StopAcknowledged};
use longhaul_engine::run::cancellation::{
    CAPABILITY, CancellationReceipt, CleanupBudget, DeliverCancellation, Delivered, EarlierRun,
    PassOnCancellation, RequestCancellation, requester,
};
use longhaul_engine::run::message::external::Request;
use longhaul_engine::run::state::Run;
use longhaul_protocol::history::DeliveryPlace;
use longhaul_protocol::id::{CommandId, RunId, TaskId};
use longhaul_store::CommandKey;
use serde_json::Value;

use crate::error::Result;
use crate::operations::workflows::CommandTarget;
use crate::views::{ActivityTasks, WorkflowTasks, Workflows};
use longhaul_engine::run::activity::fence::AttemptIdentity;
use longhaul_engine::run::workflow_task::lease::TaskHolder;

impl Workflows<'_> {
    /// Asks the workflow to clean up and end.
    pub async fn request_cancellation(
        self,
        target: &CommandTarget,
        reason: Option<&str>,
        budget: CleanupBudget,
    ) -> Result<CancellationReceipt> {
        let earlier_run = self.earlier_cancellation(target).await?;
        self.command(target, |request, run| RequestCancellation {
            earlier_run: earlier_run.clone().map(Box::new),
            ..self.cancellation(request, run, reason, budget, None)
        })
        .await
    }

    /// Returns the run that recorded an earlier request with the same id. Both never change once they are recorded, so no lock is
    /// needed.
    async fn earlier_cancellation(self, target: &CommandTarget) -> Result<Option<EarlierRun>> {
        let Some(request_id) = &target.request_id else {
            return Ok(None);
        };
        let earlier = self
            .host
            .inner
            .store
            .command(CommandKey::Request(
                &target.namespace,
                &target.workflow_id,
                request_id,
            ))
            .await?;
        let Some((run_id, _)) = earlier else {
            return Ok(None);
        };
        let run = self.host.inner.executor.read(&run_id).await?;
        Ok(run.and_then(|run| {
            Some(EarlierRun {
                status: run.core.status,
                cancellation: *run.core.cancellation?,
            })
        }))
    }

    /// Applies a request that another run passes on; `context` is that run's.
    pub(crate) async fn pass_on_cancellation(
        self,
        target: &CommandTarget,
        reason: Option<&str>,
        budget: CleanupBudget,
        context: Option<&Value>,
    ) -> Result<()> {
        self.command(target, |request, run| {
            PassOnCancellation(self.cancellation(request, run, reason, budget, context))
        })
        .await
    }

    fn cancellation(
        self,
        request: Request,
        run: &Run,
        reason: Option<&str>,
        budget: CleanupBudget,
        passed_on: Option<&Value>,
    ) -> RequestCancellation {
        RequestCancellation {
            requester: requester(request.principal.as_deref()),
            request,
            reason: reason.map(str::to_owned),
            budget,
            passed_on: passed_on.cloned(),
            earlier_run: None,
            capable_worker: self.has_capable_worker(run),
            capable_claim: self.is_held_by_capable_worker(run),
        }
    }

    fn has_capable_worker(self, run: &Run) -> bool {
        self.host
            .workers()
            .is_offered(&run.spec.namespace, &run.spec.task_queue, CAPABILITY)
    }

    fn is_held_by_capable_worker(self, run: &Run) -> bool {
        let lease = run
            .core
            .workflow_task
            .as_ref()
            .and_then(|task| task.lease.as_ref());
        lease.is_none_or(|lease| {
            self.host
                .workers()
                .can(&run.spec.namespace, &lease.owner, CAPABILITY)
        })
    }
}

impl WorkflowTasks<'_> {
    /// Records where the request reached the workflow code.
    pub async fn deliver_cancellation(
        self,
        holder: &TaskHolder,
        request_id: &CommandId,
        place: &DeliveryPlace,
    ) -> Result<(RunId, TaskId, Delivered)> {
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| DeliverCancellation {
                holder,
                request_id: request_id.clone(),
                place: place.clone(),
            })
            .await
    }
}

impl ActivityTasks<'_> {
    /// Records that the activity callback of a worker has stopped.
    pub async fn acknowledge_stop(
        self,
        identity: &AttemptIdentity,
        request_id: &CommandId,
    ) -> Result<StopAcknowledged> {
        self.host
            .tasks()
            .on_activity_task(identity, |reporter| AcknowledgeStop {
                reporter,
                request_id: request_id.clone(),
            })
            .await
    }
}
