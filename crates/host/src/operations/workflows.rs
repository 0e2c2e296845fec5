//! The operations of the control plane on workflows: start, signal, cancel, terminate, and the reads.

use std::time::Duration;

use longhaul_engine::Rejection;
use longhaul_engine::change::CommandRow;
use longhaul_engine::contract::Declared;
use longhaul_engine::run::message::external::{
    Earlier, Receipt, Request, SignalRun, Stop, StopRun,
};
use longhaul_engine::run::operator::archive::ArchiveRun;
use longhaul_engine::run::operator::repair::RepairRun;
use longhaul_engine::run::start::{Start, Started};
use longhaul_engine::run::state::Run;
use longhaul_engine::visibility::{Condition, Field, Matcher, Term, Test};
use longhaul_protocol::id::{Namespace, RunId, WorkflowId};
use longhaul_protocol::sequence::{HistorySeq, RequestSeq};
use longhaul_protocol::{Ids, Payload};
use longhaul_store::{
    CommandKey, CommandRows, Instance, PAGE_BYTES_MAX, Page, RunFilter, RunSummary,
};
use serde_json::Value;

use crate::commit::execute::Locked;
use crate::error::{Error, Result};
use crate::operations::workflow_tasks::HistoryPage;
use crate::views::Workflows;

/// How often a start is repeated if the id is taken and freed at the same time; that never happens twice.
const START_RETRIES: usize = 4;

/// Events on a page of an export. Smaller than other pages: an export is large and is built while it is sent, so several at once
/// should take little memory.
const EXPORT_PAGE_EVENTS: usize = 1000;
const EXPORT_PAGE_BYTES: usize = 1 << 20;

/// Runs of one workflow that are read at a time.
const RUNS_PAGE: usize = 1000;

/// The workflow that a command is for.
#[derive(Clone, Debug)]
pub struct CommandTarget {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    /// Set if the caller named a run.
    pub run_id: Option<RunId>,
    pub request_id: Option<String>,
    /// The authenticated caller, as JSON text.
    pub principal: Option<String>,
    /// How the command arrived: text that is stored with it.
    pub context: Option<String>,
}

/// A run with its surroundings.
#[derive(Clone, Debug)]
pub struct Description {
    pub run: Run,
    pub run_count: u64,
    pub is_current: bool,
    pub current_run_id: RunId,
}

/// A page of a run's commands.
#[derive(Clone, Debug)]
pub struct CommandPage {
    /// Newest first.
    pub commands: Vec<CommandRow>,
    /// The number of commands that are kept.
    pub total: u64,
    pub has_more: bool,
}

/// A kind of message for which a workflow can declare handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handlers {
    Signals,
    Queries,
    Updates,
}

impl Handlers {
    /// Returns the keys of the declaration: the names, and the contracts with parameters.
    fn keys(self) -> (&'static str, &'static str) {
        match self {
            Self::Signals => ("declared_signals", "declared_signal_contracts"),
            Self::Queries => ("declared_queries", "declared_query_contracts"),
            Self::Updates => ("declared_updates", "declared_update_contracts"),
        }
    }
}

/// A page of runs.
#[derive(Clone, Debug)]
pub struct RunList {
    pub runs: Vec<RunSummary>,
    pub has_more: bool,
}

/// A read of a run's history.
#[derive(Clone, Debug)]
pub struct HistoryRequest {
    pub namespace: Namespace,
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    /// The last sequence that the caller has seen.
    pub after: HistorySeq,
    pub page_size: usize,
    /// How long to wait for a later event; zero returns at once.
    pub wait: Duration,
    /// Wait for the end of the run, ignoring earlier events.
    pub until_closed: bool,
}

impl Workflows<'_> {
    /// Starts a workflow, or returns the reply for an id that is in use.
    pub async fn start(self, mut start: Start) -> Result<Started> {
        self.host
            .search_attributes()
            .check(&start.namespace, &start.search_attributes)
            .await?;
        if start.declared.is_empty() {
            start.declared = self.host.workers().declared_contract(
                &start.namespace,
                &start.task_queue,
                &start.workflow_type,
            );
        }
        for _ in 0..START_RETRIES {
            // Most ids are new, so nothing is read first: the commit refuses an id that is in use.
            let refused = match self.start_new(&start).await {
                Ok(started) => return Ok(started),
                Err(refused) => refused,
            };
            // If the id is in use, the reply is that of the duplicate, whatever a new run is refused for.
            let inner = &self.host.inner;
            let instance = inner.store.instance(&start.namespace, &start.workflow_id);
            let Some(Instance { current_run_id, .. }) = instance.await? else {
                match refused {
                    Error::Contended => continue,
                    refused => return Err(refused),
                }
            };
            if let Some(started) = inner.executor.execute(&current_run_id, &start).await? {
                return Ok(started);
            }
        }
        Err(Error::Contended)
    }

    /// Creates the first run of a workflow.
    async fn start_new(self, start: &Start) -> Result<Started> {
        let named = start.routing.compatibility.clone();
        let pinned = self
            .host
            .rollouts()
            .pin_start(&start.namespace, &start.task_queue, named)
            .await?;
        let mut start = start.clone();
        start.routing.compatibility = pinned;
        self.host.inner.executor.create(&start).await
    }

    /// Returns an id for a workflow that was started without one.
    pub fn mint_id(self) -> WorkflowId {
        Ids::new(self.host.now(), rand::random()).mint()
    }

    async fn instance(self, namespace: &Namespace, workflow_id: &WorkflowId) -> Result<Instance> {
        let instance = self
            .host
            .inner
            .store
            .instance(namespace, workflow_id)
            .await?;
        instance.ok_or_else(|| Error::InstanceNotFound(workflow_id.clone()))
    }

    /// Returns the named run, or the current one. A run of another workflow or namespace counts as missing.
    async fn run_of(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        run_id: Option<&RunId>,
    ) -> Result<(Instance, Run)> {
        let mut instance = self.instance(namespace, workflow_id).await?;
        loop {
            let wanted = run_id.unwrap_or(&instance.current_run_id).clone();
            let run = self.host.inner.executor.read(&wanted).await?;
            let run = run.filter(|run| {
                run.spec.namespace == *namespace && run.spec.workflow_id == *workflow_id
            });
            let Some(run) = run else {
                return Err(Error::RunNotFound(workflow_id.clone(), wanted));
            };
            // The run may have continued as new between the two reads: then the next one is current.
            match run
                .core
                .closed
                .as_ref()
                .and_then(|closed| closed.continued_to.clone())
            {
                Some(next) if instance.current_run_id == wanted => {
                    instance.current_run_id = next;
                    instance.run_count += 1;
                    if run_id.is_some() {
                        return Ok((instance, run));
                    }
                }
                _ => return Ok((instance, run)),
            }
        }
    }

    /// Returns the named run, or the current one, and whether it is current.
    pub async fn run(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        run_id: Option<&RunId>,
    ) -> Result<(Run, bool)> {
        let (instance, run) = self.run_of(namespace, workflow_id, run_id).await?;
        let is_current = instance.current_run_id == *run.run_id();
        Ok((run, is_current))
    }

    /// Returns everything about one run.
    pub async fn describe(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
        run_id: Option<&RunId>,
    ) -> Result<Description> {
        let (instance, run) = self.run_of(namespace, workflow_id, run_id).await?;
        Ok(Description {
            is_current: instance.current_run_id == *run.run_id(),
            current_run_id: instance.current_run_id,
            run_count: instance.run_count,
            run,
        })
    }

    /// Returns one page of a run's commands, newest first; only those numbered below `before`, if that is set.
    pub async fn commands(
        self,
        run_id: &RunId,
        before: Option<RequestSeq>,
        page_size: usize,
    ) -> Result<CommandPage> {
        let store = &self.host.inner.store;
        let found = store.commands(run_id, before, page_size + 1).await?;
        let CommandRows {
            total,
            mut commands,
        } = found;
        let has_more = commands.len() > page_size;
        commands.truncate(page_size);
        Ok(CommandPage {
            commands,
            total,
            has_more,
        })
    }

    /// Returns all commands of a run, oldest first. The limit on events also limits their number.
    pub async fn all_commands(self, run_id: &RunId) -> Result<Vec<CommandRow>> {
        let store = &self.host.inner.store;
        let mut commands = store.commands(run_id, None, usize::MAX).await?.commands;
        commands.reverse();
        Ok(commands)
    }

    /// Returns one page of a run's history up to `end`, for a caller that reads all of it page by page.
    pub async fn export_page(
        self,
        run_id: &RunId,
        after: HistorySeq,
        end: HistorySeq,
    ) -> Result<HistoryPage> {
        let page = Page {
            events: EXPORT_PAGE_EVENTS,
            bytes: EXPORT_PAGE_BYTES,
        };
        let events = self
            .host
            .inner
            .store
            .history(run_id, after, end, page)
            .await?;
        Ok(HistoryPage::of(events, after, end))
    }

    /// Returns all runs of a workflow, oldest first.
    pub async fn runs(
        self,
        namespace: &Namespace,
        workflow_id: &WorkflowId,
    ) -> Result<Vec<RunSummary>> {
        self.instance(namespace, workflow_id).await?;
        let of_workflow = Test {
            field: Field::WorkflowId,
            matcher: Matcher::OneOf(vec![Term::Text(workflow_id.to_string())]),
        };
        let mut filter = RunFilter {
            namespace: namespace.clone(),
            program: None,
            workflow_type: None,
            status: None,
            condition: Some(Condition::Test(of_workflow)),
            after: None,
            limit: RUNS_PAGE,
        };
        let mut runs: Vec<RunSummary> = Vec::new();
        loop {
            let page = self.host.inner.store.list_runs(&filter).await?;
            let Some(last) = page.last() else { break };
            filter.after = Some((last.started_at, last.run_id.clone()));
            runs.extend(page);
        }
        runs.sort_by_key(|run| run.run_number);
        Ok(runs)
    }

    /// Returns one page of runs, newest first.
    pub async fn list(self, filter: &RunFilter) -> Result<RunList> {
        let mut one_more = filter.clone();
        one_more.limit += 1;
        let mut runs = self.host.inner.store.list_runs(&one_more).await?;
        let bytes: usize = runs.iter().map(RunSummary::bytes).sum();
        let has_more = runs.len() > filter.limit || bytes > PAGE_BYTES_MAX;
        // The last run only shows that there is more. A page that is full by bytes contains it too, and more than one run.
        if has_more && runs.len() > 1 {
            runs.pop();
        }
        Ok(RunList { runs, has_more })
    }

    /// Returns one page of a run's history, waiting for a new event if requested.
    pub async fn history(self, request: &HistoryRequest) -> Result<HistoryPage> {
        let watch = self.host.inner.wakes.watch(&request.run_id);
        let (_, mut run) = self
            .run_of(
                &request.namespace,
                &request.workflow_id,
                Some(&request.run_id),
            )
            .await?;
        let deadline = tokio::time::Instant::now() + request.wait;
        loop {
            let changed = watch.changed.notified();
            tokio::pin!(changed);
            // Registers this waiter, so that an event committed between the check and the wait is not missed.
            changed.as_mut().enable();
            if let Some(fresh) = self.host.inner.executor.read(&request.run_id).await? {
                run = fresh;
            }
            let end = run.core.last_history_sequence;
            let is_news = end > request.after && !request.until_closed;
            if is_news || request.wait.is_zero() || run.core.closed.is_some() {
                return self
                    .host
                    .workflow_tasks()
                    .history_page(
                        &request.run_id,
                        request.after.min(end),
                        end,
                        request.page_size,
                    )
                    .await;
            }
            tokio::select! {
                () = &mut changed => {}
                () = tokio::time::sleep_until(deadline) => {
                    return Ok(HistoryPage { events: Vec::new(), total: end.get(), next_after: None });
                }
                () = self.host.inner.stopping.cancelled() => {
                    return Ok(HistoryPage { events: Vec::new(), total: end.get(), next_after: None });
                }
            }
        }
    }

    /// Sends a signal.
    pub async fn signal(
        self,
        target: &CommandTarget,
        name: &str,
        arguments: Payload,
    ) -> Result<Receipt> {
        self.command(target, |request, run| SignalRun {
            request,
            name: name.to_owned(),
            arguments: arguments.clone(),
            declared: self.declared_handlers(run, Handlers::Signals),
        })
        .await
    }

    /// Closes the current run from outside.
    pub async fn stop(
        self,
        target: &CommandTarget,
        how: Stop,
        reason: Option<&str>,
    ) -> Result<Receipt> {
        self.stop_life(target, how, reason, None).await
    }

    /// As [`Self::stop`]. A definition run that was opened again since that life refuses.
    pub(crate) async fn stop_life(
        self,
        target: &CommandTarget,
        how: Stop,
        reason: Option<&str>,
        life: Option<u32>,
    ) -> Result<Receipt> {
        self.command(target, |request, _| StopRun {
            request,
            how,
            reason: reason.map(str::to_owned),
            life,
        })
        .await
    }

    /// Checks whether the run is stuck, and repairs it.
    pub async fn repair(self, target: &CommandTarget) -> Result<Receipt> {
        self.command(target, |request, _| RepairRun { request })
            .await
    }

    /// Archives a closed run.
    pub async fn archive(self, target: &CommandTarget, reason: Option<&str>) -> Result<Receipt> {
        self.command(target, |request, _| ArchiveRun {
            request,
            reason: reason.map(str::to_owned),
        })
        .await
    }

    /// Returns the declared handlers of the workflow: from its start, else from its newest live worker.
    pub fn declared_handlers(self, run: &Run, handlers: Handlers) -> Declared {
        let newest;
        let declared = if run.spec.declared.is_empty() {
            let spec = &run.spec;
            newest = self.host.workers().declared_contract(
                &spec.namespace,
                &spec.task_queue,
                &spec.workflow_type,
            );
            &newest
        } else {
            &run.spec.declared
        };
        let list = |key: &str| {
            declared
                .get(key)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let (names, contracts) = handlers.keys();
        let names = list(names);
        Declared {
            names: names
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            contracts: list(contracts),
        }
    }

    pub(crate) async fn command<C, F>(self, target: &CommandTarget, build: F) -> Result<C::Reply>
    where
        C: longhaul_engine::Command,
        F: Fn(Request, &Run) -> C,
    {
        let instance = self
            .instance(&target.namespace, &target.workflow_id)
            .await?;
        if let Some(run_id) = &target.run_id {
            // A named run must exist; whether it is current is decided under its lock.
            self.run_of(&target.namespace, &target.workflow_id, Some(run_id))
                .await?;
            if *run_id != instance.current_run_id {
                return Err(Error::Rejected(Rejection::NotCurrent));
            }
        }
        let mut tries = self.host.inner.executor.tries(&instance.current_run_id);
        loop {
            let Some(locked) = tries.next().await? else {
                return Err(Error::InstanceNotFound(target.workflow_id.clone()));
            };
            // A command that names no run follows the one that continued as new.
            let closed = locked.run().core.closed.as_ref();
            let next = closed.and_then(|closed| closed.continued_to.clone());
            if let (Some(next), None) = (next, &target.run_id) {
                drop(locked);
                tries.follow(next);
                continue;
            }
            let request = self.request(target, &locked).await?;
            let command = build(request, locked.run());
            if let Some(reply) = locked.decide(&command).await? {
                return Ok(reply);
            }
        }
    }

    /// Returns the request, with the command that was recorded with the same request id.
    async fn request(self, target: &CommandTarget, locked: &Locked<'_>) -> Result<Request> {
        let earlier = match &target.request_id {
            Some(request_id) => {
                locked.wait_for_commits().await?;
                let store = &self.host.inner.store;
                let (namespace, workflow_id) = (&target.namespace, &target.workflow_id);
                let key = CommandKey::Request(namespace, workflow_id, request_id);
                store.command(key).await?
            }
            None => None,
        };
        Ok(Request {
            requested_run_id: target.run_id.clone(),
            request_id: target.request_id.clone(),
            earlier: earlier.map(|(run_id, command)| Box::new(Earlier { run_id, command })),
            principal: target.principal.clone(),
            context: target.context.clone(),
        })
    }
}
