//! Workflow tasks: poll, claim, claim status, history, complete, fail, heartbeat.

use std::sync::Arc;

use longhaul_engine::change::{TaskKind, TaskReply};
use longhaul_engine::command::{
    ClaimWorkflowTask, CompleteWorkflowTask, FailWorkflowTask, HeartbeatWorkflowTask, ReadHistory,
};
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::workflow_task::claim::WorkflowClaim;
use longhaul_engine::run::workflow_task::complete::Completion;
use longhaul_engine::run::workflow_task::heartbeat::Renewed;
use longhaul_engine::run::workflow_task::lease::TaskHolder;
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use longhaul_protocol::sequence::{CommandSeq, HistorySeq};
use longhaul_store::{Page, StoredEvent};

use crate::Host;
use crate::error::Result;
use crate::matching::poll::{Claim, Poll, Polled};
use crate::matching::poll_dedup::ClaimTarget;
use crate::operations::tasks::ClaimStatus;
use crate::registry::workers::RegisteredWorker;
use crate::views::WorkflowTasks;

/// A leased task with the first page of its history.
#[derive(Clone, Debug)]
pub struct LeasedWorkflowTask {
    pub claim: WorkflowClaim,
    pub history: HistoryPage,
}

/// Contiguous events of one run.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    pub events: Vec<StoredEvent>,
    /// Events up to the lease's snapshot.
    pub total: u64,
    /// The last sequence on this page, when more follow.
    pub next_after: Option<HistorySeq>,
}

impl HistoryPage {
    /// Returns the bytes of its payloads.
    pub fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.payload.len()).sum()
    }

    /// Returns the events after `after`, of a history that ends at `end`.
    pub(crate) fn of(events: Vec<StoredEvent>, after: HistorySeq, end: HistorySeq) -> Self {
        let last = events.last().map_or(after, |event| event.sequence);
        Self {
            next_after: (last < end && !events.is_empty()).then_some(last),
            events,
            total: end.get(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct WorkflowPolls;

impl WorkflowPolls {
    fn command(granted: &ClaimTarget, worker: &RegisteredWorker, poll: &Poll) -> ClaimWorkflowTask {
        ClaimWorkflowTask {
            task_id: granted.task_id.clone(),
            worker_id: poll.worker_id.clone(),
            signal_delivery: worker.signal_delivery(),
            poll_request_id: poll.poll_request_id.clone(),
        }
    }
}

impl Claim for WorkflowPolls {
    type Reply = WorkflowClaim;

    fn kind(&self) -> TaskKind {
        TaskKind::Workflow
    }

    fn poll_filter(&self, worker: &RegisteredWorker) -> PollFilter {
        worker.poll_filter(&worker.workflow_types)
    }

    async fn claim(
        &self,
        host: &Host,
        granted: &ClaimTarget,
        worker: &RegisteredWorker,
        poll: &Poll,
    ) -> Result<Option<WorkflowClaim>> {
        let command = Self::command(granted, worker, poll);
        host.inner.executor.execute(&granted.run_id, &command).await
    }
}

impl WorkflowTasks<'_> {
    /// Waits for a workflow task and leases it.
    pub async fn poll(self, poll: &Poll, page_size: usize) -> Result<Polled<LeasedWorkflowTask>> {
        match self.host.matching().poll(poll, &WorkflowPolls).await? {
            Polled::Leased(claim) => Ok(Polled::Leased(self.with_history(claim, page_size).await?)),
            Polled::Empty => Ok(Polled::Empty),
            Polled::Throttled(throttle) => Ok(Polled::Throttled(throttle)),
        }
    }

    /// Leases one task by its id, without waiting.
    pub async fn claim(
        self,
        poll: &Poll,
        task_id: &TaskId,
        page_size: usize,
    ) -> Result<LeasedWorkflowTask> {
        let worker = self.host.workers().polling(poll).await?;
        let row = self
            .host
            .tasks()
            .row(&poll.namespace, task_id, TaskKind::Workflow)
            .await?;
        worker.check_build(&row)?;
        self.host.matching().refuse_draining(&worker)?;
        let granted = ClaimTarget {
            task_id: task_id.clone(),
            run_id: row.run_id.clone(),
            sequence: CommandSeq::ZERO,
            session_id: None,
        };
        let claim = self
            .host
            .tasks()
            .on_task(&row, |_| WorkflowPolls::command(&granted, &worker, poll))
            .await?;
        self.with_history(claim, page_size).await
    }

    /// Returns whether a task is claimed, can be claimed, or cannot, with the reason.
    pub async fn claim_status(
        self,
        namespace: &Namespace,
        task_id: &TaskId,
    ) -> Result<ClaimStatus> {
        self.host
            .tasks()
            .claim_status(namespace, task_id, TaskKind::Workflow)
            .await
    }

    pub(crate) async fn with_history(
        self,
        claim: WorkflowClaim,
        page_size: usize,
    ) -> Result<LeasedWorkflowTask> {
        let history = self
            .history_page(
                &claim.spec.run_id,
                HistorySeq::ZERO,
                claim.observed_sequence,
                page_size,
            )
            .await?;
        Ok(LeasedWorkflowTask { claim, history })
    }

    pub(crate) async fn history_page(
        self,
        run_id: &RunId,
        after: HistorySeq,
        up_to: HistorySeq,
        page_size: usize,
    ) -> Result<HistoryPage> {
        let page = Page::of(page_size);
        let events = self
            .host
            .inner
            .store
            .history(run_id, after, up_to, page)
            .await?;
        Ok(HistoryPage::of(events, after, up_to))
    }

    /// Returns one page of a leased task's history, up to the snapshot of the lease.
    pub async fn history(
        self,
        holder: &TaskHolder,
        after: HistorySeq,
        page_size: usize,
    ) -> Result<HistoryPage> {
        let (run_id, observed) = self
            .host
            .tasks()
            .on_workflow_task_of_run(holder, |holder| ReadHistory { holder })
            .await?;
        self.history_page(&run_id, after.min(observed), observed, page_size)
            .await
    }

    /// Applies the worker's decision.
    pub async fn complete(
        self,
        holder: &TaskHolder,
        completion: impl Into<Completion> + Send,
    ) -> Result<TaskReply> {
        let completion = Arc::new(completion.into());
        let definitions = self
            .host
            .search_attributes()
            .definitions_for(&holder.namespace, &completion.commands)
            .await?;
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| CompleteWorkflowTask {
                holder,
                completion: Arc::clone(&completion),
                definitions: Arc::clone(&definitions),
            })
            .await
    }

    /// Takes the task back from a worker that could not decide, or had nothing to decide.
    pub async fn fail(
        self,
        holder: &TaskHolder,
        message: &str,
        failure_type: Option<&str>,
        reason: Option<&str>,
        stack_trace: Option<&str>,
    ) -> Result<TaskReply> {
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| FailWorkflowTask {
                holder,
                message: message.to_owned(),
                failure_type: failure_type.map(str::to_owned),
                reason: reason.map(str::to_owned),
                stack_trace: stack_trace.map(str::to_owned),
            })
            .await
    }

    /// Renews the lease.
    pub async fn heartbeat(self, holder: &TaskHolder) -> Result<Renewed> {
        self.host
            .tasks()
            .on_workflow_task(holder, |holder| HeartbeatWorkflowTask { holder })
            .await
    }
}
