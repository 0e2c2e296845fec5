//! Tasks of definition runs: polls in batches, reports, reads. Workers of these tasks do not register.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_engine::change::TaskKind;
use longhaul_engine::command::{ClaimExecutionTasks, UpdateExecutionTask};
use longhaul_engine::conductor::execution::command::update::{Report, TaskTarget, Updated};
use longhaul_engine::conductor::execution::record::queue_name;
use longhaul_engine::queue::PollFilter;
use longhaul_protocol::conductor::Task;
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkerId};
use longhaul_store::QueueKey;
use tokio::time::Instant;

use super::poll_data::LastPoll;
use super::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::matching::dispatch::{Dispatch, Found};
use crate::matching::poll::{TakenTask, WaitingPoll};
use crate::views::ExecutionTasks;

/// A worker's request for tasks.
#[derive(Clone, Debug)]
pub struct BatchPoll {
    pub namespace: Namespace,
    pub task_type: String,
    pub domain: Option<String>,
    pub worker_id: Option<String>,
    /// At most this many tasks.
    pub count: usize,
    /// How long to wait for the first.
    pub timeout: Duration,
}

impl ExecutionTasks<'_> {
    /// Takes ready tasks of a queue, waiting for the first. Returns fewer than asked rather than wait for more.
    pub async fn poll(self, poll: &BatchPoll) -> Result<Vec<Task>> {
        let inner = &self.host.inner;
        let queue_name = queue_name(&poll.task_type, poll.domain.as_deref());
        let last = LastPoll {
            task_type: poll.task_type.clone(),
            domain: poll.domain.clone(),
            worker_id: poll.worker_id.clone(),
            at: self.host.now(),
        };
        let polls = &inner.executor.finder.polls;
        polls.record(&poll.namespace, queue_name.as_str(), last);
        let queue = QueueKey {
            namespace: poll.namespace.clone(),
            kind: TaskKind::Execution,
            queue: queue_name,
        };
        let until = Instant::now() + poll.timeout;
        loop {
            let taken = self
                .take(&inner.wakes.dispatch, &queue, poll, until)
                .await?;
            if taken.is_empty() {
                return Ok(Vec::new());
            }
            let claimed = self.claim(taken, poll.worker_id.as_deref()).await?;
            // Tasks that ended meanwhile are passed over.
            if !claimed.is_empty() || Instant::now() >= until {
                return Ok(claimed);
            }
        }
    }

    /// Takes up to `count` tasks out of matching, waiting for the first. A task goes back unless it is claimed.
    async fn take<'a>(
        self,
        dispatch: &'a Dispatch,
        queue: &'a QueueKey,
        poll: &BatchPoll,
        until: Instant,
    ) -> Result<Vec<TakenTask<'a>>> {
        let worker = WorkerId::from(poll.worker_id.as_deref().unwrap_or_default());
        let filter = PollFilter::any(worker);
        let mut taken = Vec::new();
        while taken.len() < poll.count {
            match dispatch.take(queue, &filter) {
                Found::Task(task) => taken.push(TakenTask::new(dispatch, queue, task)),
                Found::AskStore => self.host.matching().refill(queue).await?,
                Found::Full if taken.is_empty() => return Err(Error::TooManyPolls),
                Found::Full => break,
                Found::Wait(ticket, _) => {
                    let mut waiting = WaitingPoll {
                        dispatch,
                        ticket: Some(ticket),
                    };
                    if !taken.is_empty() {
                        break;
                    }
                    let handed = tokio::select! {
                        handed = waiting.handed() => handed,
                        () = tokio::time::sleep_until(until) => None,
                        () = self.host.inner.stopping.cancelled() => None,
                    };
                    match handed {
                        Some(task) => {
                            waiting.ticket = None;
                            taken.push(TakenTask::new(dispatch, queue, task));
                        }
                        None => break,
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Claims tasks, those of one run with one commit. Tasks of a run that could not be claimed go back into the queue.
    async fn claim(self, taken: Vec<TakenTask<'_>>, worker_id: Option<&str>) -> Result<Vec<Task>> {
        let mut by_run: BTreeMap<RunId, Vec<TakenTask<'_>>> = BTreeMap::new();
        for one in taken {
            if let Some(run_id) = one.task().map(|task| task.run_id.clone()) {
                by_run.entry(run_id).or_default().push(one);
            }
        }
        let claims = by_run.into_iter().map(|(run_id, taken)| async move {
            let tasks = taken.iter().filter_map(TakenTask::task);
            let command = ClaimExecutionTasks {
                tasks: tasks
                    .map(|task| (task.task_id.clone(), task.sequence.get()))
                    .collect(),
                worker_id: worker_id.map(str::to_owned),
            };
            let claimed = self.claim_of_run(&run_id, &command).await?;
            taken.into_iter().for_each(TakenTask::finish);
            Ok(claimed)
        });
        let mut tasks = Vec::new();
        let mut failed = None;
        for claimed in futures::future::join_all(claims).await {
            match claimed {
                Ok(claimed) => tasks.extend(claimed),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // Claimed tasks are delivered even if those of another run could not be claimed.
            Some(error) if tasks.is_empty() => Err(error),
            Some(_) | None => Ok(tasks),
        }
    }

    async fn claim_of_run(
        self,
        run_id: &RunId,
        command: &ClaimExecutionTasks,
    ) -> Result<Vec<Task>> {
        let executor = &self.host.inner.executor;
        let claimed = executor.execute(run_id, command).await?.unwrap_or_default();
        self.shown(run_id, &claimed).await
    }

    /// Returns the records of tasks by their numbers.
    async fn shown(self, run_id: &RunId, numbers: &[u64]) -> Result<Vec<Task>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let Some(run) = self.host.inner.executor.read(run_id).await? else {
            return Ok(Vec::new());
        };
        let view = self.host.executions().view(run, true).await?;
        Ok(view.tasks(numbers))
    }

    /// Returns a task by its id.
    pub async fn get(self, namespace: &Namespace, task_id: &str) -> Result<Task> {
        let id = TaskId::from(task_id);
        let missing = || ConductorRefusal::NoSuchTask(task_id.to_owned());
        let row = self
            .host
            .tasks()
            .row(namespace, &id, TaskKind::Execution)
            .await;
        let row = row.map_err(|_| missing())?;
        let tasks = self.shown(&row.run_id, &[row.sequence.get()]).await?;
        tasks.into_iter().next().ok_or_else(|| missing().into())
    }

    /// Applies a report on the task with this id.
    pub async fn update(
        self,
        namespace: &Namespace,
        task_id: &str,
        report: Report,
        takes_next: bool,
    ) -> Result<(Updated, Option<Task>)> {
        let id = TaskId::from(task_id);
        let row = self
            .host
            .tasks()
            .row(namespace, &id, TaskKind::Execution)
            .await;
        let row = row.map_err(|_| ConductorRefusal::NoSuchTask(task_id.to_owned()))?;
        let target = TaskTarget::Id {
            task_id: id,
            seq: row.sequence.get(),
        };
        self.report(&row.run_id, target, report, takes_next).await
    }

    /// Applies a report on the open task with this reference.
    pub async fn update_by_reference(
        self,
        namespace: &Namespace,
        workflow_id: &str,
        reference: &str,
        report: Report,
    ) -> Result<Updated> {
        let run_id = RunId::from(workflow_id);
        let run = self.host.inner.executor.read(&run_id).await?;
        if run.is_none_or(|run| run.spec.namespace != *namespace) {
            return Err(ConductorRefusal::NoSuchExecution(workflow_id.to_owned()).into());
        }
        let target = TaskTarget::Reference(reference.to_owned());
        let (updated, _) = self.report(&run_id, target, report, false).await?;
        Ok(updated)
    }

    async fn report(
        self,
        run_id: &RunId,
        target: TaskTarget,
        report: Report,
        takes_next: bool,
    ) -> Result<(Updated, Option<Task>)> {
        let command = UpdateExecutionTask {
            target,
            report,
            takes_next,
        };
        let updated = self.host.inner.executor.execute(run_id, &command).await?;
        let updated =
            updated.ok_or_else(|| ConductorRefusal::NoSuchExecution(run_id.to_string()))?;
        if updated.has_backlog {
            self.host.executions().settle(run_id).await?;
        }
        let next = match updated.next {
            Some(number) => self.shown(run_id, &[number]).await?.into_iter().next(),
            None => None,
        };
        Ok((updated, next))
    }

    /// Returns the newest polls of the queues of a task type, or of all.
    pub fn last_polls(self, namespace: &Namespace, task_type: Option<&str>) -> Vec<LastPoll> {
        self.host
            .inner
            .executor
            .finder
            .polls
            .list(namespace, task_type)
    }
}
