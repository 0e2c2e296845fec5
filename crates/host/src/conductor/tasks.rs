//! Tasks of definition runs: polls in batches, reads. Workers of these tasks do not register.

mod logs;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use longhaul_engine::Rejection;
use longhaul_engine::change::{TaskKind, TaskRow};
use longhaul_engine::command::ClaimExecutionTasks;
use longhaul_engine::conductor::execution::lookup::LookupResults;
use longhaul_engine::conductor::execution::record::queue_name;
use longhaul_engine::conductor::execution::view::{Source, part_for_tasks};
use longhaul_engine::queue::{PollFilter, Withheld};
use longhaul_engine::run::state::Program;
use longhaul_protocol::conductor::{Task, TaskDef};
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkerId};
use longhaul_store::QueueKey;
use tokio::time::Instant;

use super::poll_data::LastPoll;
use super::refusal::ConductorRefusal;
use crate::cluster::looks::NewTasks;
use crate::error::{Error, Result};
use crate::matching::dispatch::{Asked, Dispatch, Found, ReadyTask};
use crate::matching::poll::{PollQueues, TakenTask, Waited, WaitingPoll};
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

/// Who takes tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holder<'a> {
    pub(crate) worker_id: Option<&'a str>,
    /// A server takes them for this long.
    pub(crate) served_seconds: Option<u64>,
}

impl<'a> Holder<'a> {
    pub(super) fn worker(worker_id: Option<&'a str>) -> Self {
        Self {
            worker_id,
            served_seconds: None,
        }
    }
}

impl ExecutionTasks<'_> {
    /// Takes ready tasks of a queue, waiting for the first. Returns fewer than asked rather than wait for more. Tasks that servers run
    /// themselves are not for workers: such a poll stays empty.
    pub async fn poll(self, poll: &BatchPoll) -> Result<Vec<Task>> {
        let inner = &self.host.inner;
        if inner.config.system_tasks.runs(&poll.task_type) && poll.domain.is_none() {
            tokio::select! {
                () = tokio::time::sleep(poll.timeout) => {}
                () = inner.stopping.cancelled() => {}
            }
            return Ok(Vec::new());
        }
        let queue_name = queue_name(&poll.task_type, poll.domain.as_deref());
        let last = LastPoll {
            task_type: poll.task_type.clone(),
            domain: poll.domain.clone(),
            worker_id: poll.worker_id.clone(),
            at: self.host.now(),
        };
        self.record_poll(&poll.namespace, last);
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
                inner.wakes.metrics.polled(Program::Definition, "empty");
                return Ok(Vec::new());
            }
            let claimed = self
                .claim(taken, Holder::worker(poll.worker_id.as_deref()))
                .await?;
            // Tasks that ended meanwhile are passed over.
            if !claimed.is_empty() || Instant::now() >= until {
                let outcome = if claimed.is_empty() {
                    "empty"
                } else {
                    "leased"
                };
                inner.wakes.metrics.polled(Program::Definition, outcome);
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
        let filter = poll_filter(poll.worker_id.as_deref());
        let first = self.take_first(dispatch, queue, &filter, poll.count, until);
        let Some(first) = first.await? else {
            return Ok(Vec::new());
        };
        let mut taken = vec![TakenTask::new(dispatch, queue, first)];
        while taken.len() < poll.count
            && let Some(task) = dispatch.take_ready(queue, &filter)
        {
            taken.push(TakenTask::new(dispatch, queue, task));
        }
        Ok(taken)
    }

    pub(crate) async fn take_first(
        self,
        dispatch: &Dispatch,
        queue: &QueueKey,
        filter: &PollFilter,
        count: usize,
        until: Instant,
    ) -> Result<Option<ReadyTask>> {
        let asked = Asked {
            count,
            ..Asked::default()
        };
        let poll_queues = PollQueues {
            dispatch,
            polls: &self.host.inner.wakes.polls,
            is_stored: true,
        };
        loop {
            match dispatch.take(queue, filter, &asked) {
                Found::Task(task) => return Ok(Some(task)),
                Found::AskStore => self.host.matching().refill(queue).await?,
                Found::Full => return Err(Error::TooManyPolls),
                Found::Wait(ticket, _) => {
                    let mut waiting = WaitingPoll::new(dispatch, ticket);
                    self.host.inner.wakes.idle.notify();
                    let look =
                        self.host
                            .matching()
                            .look_for(queue, filter, &asked, until, poll_queues);
                    let waited = tokio::select! {
                        biased;
                        waited = waiting.wait(look, until) => waited?,
                        () = self.host.inner.stopping.cancelled() => return Ok(None),
                    };
                    return Ok(match waited {
                        Waited::Handed(task) => Some(*task),
                        Waited::TimedOut | Waited::Closed => None,
                    });
                }
            }
        }
    }

    /// Claims tasks, those of one run with one commit, and returns them in the order in which they were taken. Tasks of a run that
    /// could not be claimed go back into the queue.
    pub(crate) async fn claim(
        self,
        taken: Vec<TakenTask<'_>>,
        holder: Holder<'_>,
    ) -> Result<Vec<Task>> {
        let mut by_run: BTreeMap<RunId, Vec<TakenTask<'_>>> = BTreeMap::new();
        let mut places: HashMap<TaskId, usize> = HashMap::new();
        for (place, one) in taken.into_iter().enumerate() {
            let task = one.task();
            if let Some((run_id, task_id)) =
                task.map(|task| (task.run_id.clone(), task.task_id.clone()))
            {
                places.insert(task_id, place);
                by_run.entry(run_id).or_default().push(one);
            }
        }
        let claims = by_run.into_iter().map(|(run_id, taken)| async move {
            match self.claim_together(&run_id, &taken, holder).await {
                Err(Error::CapReached(_)) => self.claim_singly(&run_id, taken, holder).await,
                claimed => {
                    let claimed = claimed?;
                    taken.into_iter().for_each(TakenTask::finish);
                    Ok(claimed)
                }
            }
        });
        let mut tasks = Vec::new();
        let mut failed = None;
        for claimed in futures::future::join_all(claims).await {
            match claimed {
                Ok(claimed) => tasks.extend(claimed),
                Err(error) => failed = Some(error),
            }
        }
        tasks.sort_by_key(|task| places.get(task.task_id.as_str()).copied());
        match failed {
            // Claimed tasks are delivered even if those of another run could not be claimed.
            Some(error) if tasks.is_empty() => Err(error),
            Some(_) | None => Ok(tasks),
        }
    }

    async fn claim_together(
        self,
        run_id: &RunId,
        taken: &[TakenTask<'_>],
        holder: Holder<'_>,
    ) -> Result<Vec<Task>> {
        let tasks = taken.iter().filter_map(TakenTask::task);
        let command = ClaimExecutionTasks {
            tasks: tasks
                .map(|task| (task.task_id.clone(), task.sequence.get()))
                .collect(),
            worker_id: holder.worker_id.map(str::to_owned),
            served_seconds: holder.served_seconds,
        };
        self.claim_of_run(run_id, &command).await
    }

    /// Claims tasks until the cap is reached. The rest goes back into its queue, which is withheld for a moment.
    async fn claim_singly(
        self,
        run_id: &RunId,
        taken: Vec<TakenTask<'_>>,
        holder: Holder<'_>,
    ) -> Result<Vec<Task>> {
        let mut claimed = Vec::new();
        let mut rest = taken.into_iter();
        while let Some(one) = rest.next() {
            let claim = self.claim_together(run_id, std::slice::from_ref(&one), holder);
            match claim.await {
                Ok(task) => {
                    claimed.extend(task);
                    one.finish();
                }
                Err(Error::CapReached(_)) => {
                    // All of them are back in their queue when it is withheld.
                    drop(rest);
                    let queue = one.queue();
                    one.withhold(Withheld::ActiveLeases);
                    self.host.inner.wakes.looks.ask(queue, NewTasks::All);
                    break;
                }
                // What is claimed is delivered.
                Err(error) if claimed.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(claimed)
    }

    async fn claim_of_run(
        self,
        run_id: &RunId,
        command: &ClaimExecutionTasks,
    ) -> Result<Vec<Task>> {
        let executor = &self.host.inner.executor;
        let claimed = executor.execute(run_id, command).await?.unwrap_or_default();
        self.count_leases(claimed.len());
        let mut tasks = self.shown(run_id, &claimed).await?;
        // A server reveals the secrets of its own tasks itself, and removes them from what comes back.
        if command.served_seconds.is_none() {
            self.reveal(run_id, &mut tasks).await?;
        }
        Ok(tasks)
    }

    /// Puts the secrets into copies that workers get.
    pub(super) async fn reveal(self, run_id: &RunId, tasks: &mut [Task]) -> Result<()> {
        let executor = &self.host.inner.executor;
        for task in tasks {
            executor.finder.environment.reveal(&mut task.input_data);
            let names = self.metadata_of(run_id, task).await?;
            if !names.is_empty() {
                task.runtime_metadata = Some(executor.finder.environment.metadata(&names));
            }
        }
        Ok(())
    }

    /// Returns the names of the secrets and values that the definition of a task lists. The record of a task of a dynamic node has no
    /// definition; the registered one counts.
    async fn metadata_of(self, run_id: &RunId, task: &Task) -> Result<Vec<String>> {
        if let Some(definition) = &task.task_definition {
            // Most definitions name none, and need not be read.
            let names_some = definition.get().contains("\"runtimeMetadata\":[\"");
            let read = |text: &str| serde_json::from_str::<TaskDef>(text).ok();
            let definition = names_some.then(|| read(definition.get())).flatten();
            return Ok(definition.map_or_else(Vec::new, |found| found.runtime_metadata));
        }
        let executor = &self.host.inner.executor;
        let namespace = executor.read_part(run_id, |run| run.spec.namespace.clone());
        let Some(namespace) = namespace.await? else {
            return Ok(Vec::new());
        };
        let name = &task.task_def_name;
        let found = executor.finder.task_def(&namespace, name).await?;
        Ok(found.map_or_else(Vec::new, |found| found.runtime_metadata.clone()))
    }

    pub(super) fn count_leases(self, count: usize) {
        let metrics = &self.host.inner.wakes.metrics;
        metrics.leased(TaskKind::Execution.as_str(), count);
    }

    /// Returns the records of tasks by their numbers. Only what these records show is read.
    pub(super) async fn shown(self, run_id: &RunId, numbers: &[u64]) -> Result<Vec<Task>> {
        let shown = self.shown_by_number(run_id, numbers).await?;
        Ok(shown.into_iter().map(|(_, task)| task).collect())
    }

    /// As [`Self::shown`], with the number of each. The number that a record shows is another one after a restart.
    pub(super) async fn shown_by_number(
        self,
        run_id: &RunId,
        numbers: &[u64],
    ) -> Result<Vec<(u64, Task)>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let executor = &self.host.inner.executor;
        let part = executor.read_part(run_id, |run| part_for_tasks(run, numbers));
        let Some((run, values)) = part.await? else {
            return Ok(Vec::new());
        };
        let execution = run.core.execution.as_ref().ok_or(Error::Internal)?;
        let finder = &executor.finder;
        let snapshot = finder
            .snapshots
            .get(&*finder.store, &execution.snapshot)
            .await?;
        let mut found = LookupResults::default();
        for reference in values {
            let value = finder.value(run_id, reference).await?;
            found.values.insert(reference, value);
        }
        let source = Source {
            run: &run,
            snapshot: &snapshot,
            found: &found,
        };
        let tasks = numbers.iter();
        let tasks = tasks.filter_map(|number| Some((*number, source.task(run.task(*number)?))));
        Ok(tasks.collect())
    }

    /// Returns the row of a task.
    pub(super) async fn row(self, namespace: &Namespace, task_id: &str) -> Result<TaskRow> {
        let id = TaskId::from(task_id);
        let tasks = self.host.tasks();
        match tasks.row(namespace, &id, TaskKind::Execution).await {
            Err(Error::Rejected(Rejection::TaskNotFound)) => {
                Err(ConductorRefusal::NoSuchTask(task_id.to_owned()).into())
            }
            found => found,
        }
    }

    /// Returns a task by its id.
    pub async fn get(self, namespace: &Namespace, task_id: &str) -> Result<Task> {
        let row = self.row(namespace, task_id).await?;
        let tasks = self.shown(&row.run_id, &[row.sequence.get()]).await?;
        let missing = || ConductorRefusal::NoSuchTask(task_id.to_owned()).into();
        tasks.into_iter().next().ok_or_else(missing)
    }

    /// Records the newest poll of a queue.
    pub(crate) fn record_poll(self, namespace: &Namespace, poll: LastPoll) {
        let queue = queue_name(&poll.task_type, poll.domain.as_deref());
        let polls = &self.host.inner.executor.finder.polls;
        polls.record(namespace, queue.as_str(), poll);
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

/// Returns what a worker of these tasks accepts: every task of its queue.
pub(crate) fn poll_filter(worker_id: Option<&str>) -> PollFilter {
    PollFilter::any(WorkerId::from(worker_id.unwrap_or_default()))
}
