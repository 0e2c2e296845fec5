//! Reports on tasks of definition runs, by id and by reference, and the next task that a worker takes with its report.

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::command::UpdateExecutionTask;
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget, Updated};
use longhaul_engine::conductor::execution::state::ExecutionTask;
use longhaul_engine::run::state::{Part, Run};
use longhaul_protocol::conductor::{Object, ResultStatus, Task};
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_store::QueueKey;

use super::executions::ExecutionView;
use super::poll_data::LastPoll;
use super::refusal::ConductorRefusal;
use super::tasks::{Holder, poll_filter};
use crate::error::{Error, Result};
use crate::matching::poll::TakenTask;
use crate::views::ExecutionTasks;

/// A task that waits for a caller.
#[derive(Clone, Copy, Debug)]
pub enum WaitingTask<'a> {
    Id(&'a str),
    Reference(&'a str),
}

impl ExecutionTasks<'_> {
    /// Applies a report on the task with this id, which must be one of the workflow.
    pub async fn update(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        task_id: &str,
        report: Report,
    ) -> Result<Updated> {
        let row = self.row_of(namespace, workflow_id, task_id).await?;
        self.report(&row.run_id, target_of(&row), report, false)
            .await
    }

    /// Applies a report on the task with this id. If it ends the task, the worker also gets the next task of the same queue. An
    /// older one is claimed beside the report, and both commits share a sync. Otherwise the decision on the report leases the task
    /// that it schedules.
    pub async fn update_and_take_next(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        task_id: &str,
        report: Report,
    ) -> Result<(Updated, Option<Task>)> {
        let row = self.row_of(namespace, workflow_id, task_id).await?;
        let (run_id, target) = (&row.run_id, target_of(&row));
        let is_served = (self.host.inner.config.system_tasks).runs(row.queue.as_str());
        let worker_id = match &report {
            Report::Status {
                status, worker_id, ..
            } if *status != ResultStatus::InProgress && !is_served => worker_id.clone(),
            Report::Status { .. } | Report::ExtendLease | Report::AwaitsUpdate { .. } => {
                let updated = self.report(run_id, target, report, false).await?;
                return Ok((updated, None));
            }
        };
        let queue = QueueKey {
            namespace: namespace.clone(),
            kind: TaskKind::Execution,
            queue: row.queue.clone(),
        };
        let worker_id = worker_id.as_deref();
        let (updated, mut next) = match self.take_ready(&queue, worker_id) {
            Some(older) => {
                let update = self.report(run_id, target, report, false);
                let claim = self.claim(vec![older], Holder::worker(worker_id));
                let (updated, claimed) = futures::join!(update, claim);
                match (updated, claimed) {
                    (Ok(updated), claimed) => (updated, first_of(claimed)),
                    (Err(error), claimed) => {
                        self.give_back(namespace, first_of(claimed)).await;
                        return Err(error);
                    }
                }
            }
            None => {
                let updated = self.report(run_id, target, report, true).await?;
                let next = match updated.next {
                    Some(number) => {
                        self.count_leases(1);
                        let mut tasks = self.shown(run_id, &[number]).await?;
                        self.reveal(run_id, &mut tasks).await?;
                        tasks.into_iter().next()
                    }
                    None => None,
                };
                (updated, next)
            }
        };
        let poll = LastPoll {
            task_type: updated.task_type.clone(),
            domain: updated.domain.clone(),
            worker_id: worker_id.map(str::to_owned),
            at: self.host.now(),
        };
        self.record_poll(namespace, poll);
        // The report may have made room for a task with limits, and its later passes may have scheduled one.
        if next.is_none()
            && let Some(ready) = self.take_ready(&queue, worker_id)
        {
            next = first_of(self.claim(vec![ready], Holder::worker(worker_id)).await);
        }
        Ok((updated, next))
    }

    /// Takes a ready task out of matching, if memory has one.
    fn take_ready<'q>(self, queue: &'q QueueKey, worker_id: Option<&str>) -> Option<TakenTask<'q>>
    where
        Self: 'q,
    {
        let dispatch = &self.host.inner.wakes.dispatch;
        let task = dispatch.take_ready(queue, &poll_filter(worker_id))?;
        Some(TakenTask::new(dispatch, queue, task))
    }

    /// Puts a claimed task that cannot be delivered back into its queue. If that fails too, its response time-out does.
    async fn give_back(self, namespace: &Namespace, claimed: Option<Task>) {
        let Some(task) = claimed else { return };
        let report = Report::Status {
            status: ResultStatus::InProgress,
            output: Output::Merge(Object::new()),
            reason: None,
            worker_id: None,
            callback_after_seconds: 0,
            logs: Vec::new(),
        };
        let (workflow_id, task_id) = (&task.workflow_instance_id, &task.task_id);
        if let Err(error) = self.update(namespace, workflow_id, task_id, report).await {
            tracing::warn!(%error, %task_id, "a claimed task could not go back into its queue");
        }
    }

    /// Applies a report on the open task with this reference.
    pub async fn update_by_reference(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        reference: &str,
        report: Report,
    ) -> Result<Updated> {
        let run_id = self.host.executions().find(namespace, workflow_id).await?;
        let target = TaskTarget::Reference(reference.to_owned());
        let updated = self.report(&run_id, target, report, false).await;
        updated.map_err(|error| match error {
            Error::Rejected(Rejection::TaskNotFound) => ConductorRefusal::NoOpenTask {
                workflow_id: workflow_id.to_owned(),
                reference: reference.to_owned(),
            }
            .into(),
            other => other,
        })
    }

    /// Applies a report on an open WAIT, HUMAN or YIELD task, by its id or its reference. Others are not found.
    pub async fn update_waiting(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        named: WaitingTask<'_>,
        report: Report,
    ) -> Result<Updated> {
        let run_id = self.host.executions().find(namespace, workflow_id).await?;
        let is_named = |task: &ExecutionTask| match named {
            WaitingTask::Id(id) => task.id.as_str() == id,
            WaitingTask::Reference(name) => task.reference == name || task.node_reference() == name,
        };
        let find = |run: &Run| {
            let tasks = run.parts.values().filter_map(Part::as_task);
            let mut waiting = tasks.filter(|task| {
                task.is_open() && matches!(&*task.task_type, "WAIT" | "HUMAN" | "YIELD")
            });
            let task = waiting.find(|task| is_named(task))?;
            Some(TaskTarget::Id {
                task_id: task.id.clone(),
                seq: task.seq,
            })
        };
        let found = self.host.inner.executor.read_part(&run_id, find).await?;
        let Some(target) = found.flatten() else {
            let (WaitingTask::Id(name) | WaitingTask::Reference(name)) = named;
            return Err(ConductorRefusal::NoOpenTask {
                workflow_id: workflow_id.to_owned(),
                reference: name.to_owned(),
            }
            .into());
        };
        self.report(&run_id, target, report, false).await
    }

    /// As [`Self::update_by_reference`], and returns the run after the report.
    pub async fn update_by_reference_and_read(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        reference: &str,
        report: Report,
    ) -> Result<ExecutionView> {
        self.update_by_reference(namespace, workflow_id, reference, report)
            .await?;
        let executions = self.host.executions();
        executions.get(namespace, workflow_id, true).await
    }

    /// Returns the row of a task. A report that names another workflow is about another task.
    async fn row_of(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        task_id: &str,
    ) -> Result<TaskRow> {
        let row = self.row(namespace, task_id).await?;
        if row.run_id.as_str() == workflow_id {
            return Ok(row);
        }
        Err(ConductorRefusal::TaskOfOtherWorkflow {
            task_id: task_id.to_owned(),
            workflow_id: workflow_id.to_owned(),
        }
        .into())
    }

    async fn report(
        self,
        run_id: &RunId,
        target: TaskTarget,
        report: Report,
        takes_next: bool,
    ) -> Result<Updated> {
        let command = UpdateExecutionTask {
            target,
            report,
            takes_next,
        };
        self.host.executions().decide(run_id, &command).await
    }
}

fn target_of(row: &TaskRow) -> TaskTarget {
    TaskTarget::Id {
        task_id: row.task_id.clone(),
        seq: row.sequence.get(),
    }
}

/// Returns the claimed task. A task that could not be claimed is back in its queue.
fn first_of(claimed: Result<Vec<Task>>) -> Option<Task> {
    match claimed {
        Ok(tasks) => tasks.into_iter().next(),
        Err(error) => {
            tracing::warn!(%error, "a ready task could not be claimed with a report");
            None
        }
    }
}
