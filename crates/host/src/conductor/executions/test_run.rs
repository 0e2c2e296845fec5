//! Test runs: a definition is run in memory by the passes that decide real runs, with given results in place of workers. Nothing is
//! stored, queued or announced. The clock of a test run goes on only by the times of its results.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::command::{ClaimExecutionTasks, ContinuePass, UpdateExecutionTask};
use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::command::start::{NewExecution, start};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::lookup::{Lookup, LookupResults, Step};
use longhaul_engine::conductor::execution::state::{ExecutionTask, Waiting};
use longhaul_engine::conductor::execution::view::unloaded;
use longhaul_engine::conductor::expression::ValueRef;
use longhaul_engine::run::family::outbox::{Order, deliveries};
use longhaul_engine::run::state::{Part, Run};
use longhaul_engine::{Changes, Command, Decision, Limits, Moment};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, ResultStatus, TaskMock, WorkflowDef};
use longhaul_protocol::id::{Namespace, RunId};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{ExecutionView, StartExecution};
use crate::conductor::finder::{Finder, member_of};
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::views::Executions;

/// Test runs at the same time. Each uses a processor, and real runs have precedence; more wait.
const CONCURRENT: usize = 2;

/// How long a test run may take, with its wait for a turn. Far more than a definition needs, and less than clients wait.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Results that one test run applies.
const RESULTS_MAX: usize = 20_000;

/// Runs of one test: the run itself and those of its sub-workflows.
const RUNS_MAX: usize = 1000;

/// Steps of one decision, as for a real run.
const STEPS_MAX: usize = 200;

static TURNS: Semaphore = Semaphore::const_new(CONCURRENT);

/// The results of the tasks of a run.
#[derive(Clone, Debug, Default)]
pub struct Mocks {
    /// By reference, those of the attempts in their order. A task of a loop is named with its iteration, or without.
    pub tasks: BTreeMap<String, VecDeque<TaskMock>>,
    /// By the reference of a SUB_WORKFLOW task.
    pub sub_workflows: BTreeMap<String, Self>,
}

impl Mocks {
    /// Takes the next result of a task.
    fn take(&mut self, task: &ExecutionTask) -> Option<TaskMock> {
        let exact = self.tasks.get_mut(&task.reference);
        let exact = exact.and_then(VecDeque::pop_front);
        exact.or_else(|| self.tasks.get_mut(task.node_reference())?.pop_front())
    }

    fn of_sub_workflow(&self, task: &ExecutionTask) -> Self {
        let exact = self.sub_workflows.get(&task.reference);
        let mocks = exact.or_else(|| self.sub_workflows.get(task.node_reference()));
        mocks.cloned().unwrap_or_default()
    }
}

impl Executions<'_> {
    /// Runs a definition with given results until it ends, or until no open task has a result.
    pub async fn test(
        self,
        namespace: &Namespace,
        mut start: StartExecution,
        mocks: Mocks,
    ) -> Result<ExecutionView> {
        let until = Instant::now() + TIME_MAX;
        let turn = tokio::time::timeout_at(until, TURNS.acquire()).await;
        let _turn = turn.map_err(|_| ConductorRefusal::TooManyTestRuns)?;
        let executor = &self.host.inner.executor;
        let compiled = if let Some(definition) = start.definition.take() {
            let checked = std::slice::from_ref(&definition);
            self.host.definitions().check(namespace, checked).await?;
            executor.finder.compile(namespace, &definition).await?
        } else {
            let finder = &executor.finder;
            let found = finder.compile_registered(namespace, &start.name, start.version);
            found
                .await?
                .ok_or_else(|| ConductorRefusal::NoSuchDefinition {
                    name: start.name.clone(),
                    version: start.version,
                })?
        };
        let mut test = TestRun {
            finder: &executor.finder,
            limits: &executor.limits,
            namespace: namespace.clone(),
            now: self.host.now(),
            until,
            snapshots: HashMap::new(),
            runs: BTreeMap::new(),
        };
        let snapshot = compiled.map_err(ConductorRefusal::DefinitionUnusable)?;
        let new = NewExecution {
            namespace: namespace.clone(),
            snapshot: test.keep(snapshot),
            input: start.input,
            correlation_id: start.correlation_id,
            priority: start.priority,
            task_to_domain: Arc::new(start.task_to_domain),
            idempotency_key: None,
            key_claim: None,
            created_by: start.created_by,
            depth: 0,
            parent: None,
        };
        let root = test.start(&new, mocks).await?;
        test.settle().await?;
        for _ in 0..RESULTS_MAX {
            if test.is_over(&root) || !test.apply_next().await? {
                break;
            }
            test.settle().await?;
        }
        test.into_view(&root)
    }
}

/// The runs of one test.
struct TestRun<'h> {
    finder: &'h Finder,
    limits: &'h Limits,
    namespace: Namespace,
    now: Timestamp,
    until: Instant,
    snapshots: HashMap<Arc<str>, Arc<Snapshot>>,
    runs: BTreeMap<RunId, Tested>,
}

struct Tested {
    run: Run,
    /// The payloads of its events.
    events: Vec<String>,
    mocks: Mocks,
    /// The number of the newest message that was delivered.
    delivered: Option<u64>,
}

impl TestRun<'_> {
    fn keep(&mut self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        let hash = snapshot.hash().into();
        self.snapshots.insert(hash, Arc::clone(&snapshot));
        snapshot
    }

    /// Returns whether the run has ended, or the time of the test.
    fn is_over(&self, root: &RunId) -> bool {
        let has_ended = |tested: &Tested| tested.run.core.closed.is_some();
        self.runs.get(root).is_none_or(has_ended) || Instant::now() >= self.until
    }

    async fn start(&mut self, new: &NewExecution, mocks: Mocks) -> Result<RunId> {
        let none = RunId::from("");
        let decided = self
            .decide(&none, |_, moment, found| start(new, moment, found))
            .await?;
        let run_id = decided.reply?.run_id;
        self.apply(decided.changes, Some((&run_id, mocks)));
        Ok(run_id)
    }

    async fn act<C: Command>(&mut self, run_id: &RunId, command: &C) -> Result<C::Reply> {
        let decided = self
            .decide(run_id, |test, moment, found| match test.runs.get(run_id) {
                Some(tested) => command.step(&tested.run, moment, found),
                None => Step::Decided(Decision::reject(longhaul_engine::Rejection::TaskNotFound)),
            })
            .await?;
        self.apply(decided.changes, None);
        Ok(decided.reply?)
    }

    /// Decides in steps, as for a real run.
    async fn decide<R>(
        &mut self,
        run_id: &RunId,
        step: impl Fn(&Self, Moment<'_>, &LookupResults) -> Step<R>,
    ) -> Result<Decision<R>> {
        let moment = Moment {
            now: self.now,
            entropy: rand::random(),
            limits: self.limits,
        };
        let mut found = self.finder.begin(&self.namespace, None, None, moment.now);
        for _ in 0..STEPS_MAX {
            let stepped = catch_unwind(AssertUnwindSafe(|| step(self, moment, &found)));
            let stepped = stepped.map_err(|_| {
                tracing::error!("a decision of a test run panicked; the reply was internal_error");
                Error::Internal
            })?;
            match stepped {
                Step::Decided(decision) => return Ok(decision),
                Step::Needs(lookups) => {
                    for lookup in lookups {
                        self.find(run_id, lookup, &mut found).await?;
                    }
                }
            }
        }
        Err(Error::Internal)
    }

    /// Finds what a decision asks for. Snapshots and values of a test run are here and not in the store.
    async fn find(
        &mut self,
        run_id: &RunId,
        lookup: Lookup,
        found: &mut LookupResults,
    ) -> Result<()> {
        match lookup {
            Lookup::Snapshot(hash) => {
                let snapshot = self.snapshots.get(&hash).ok_or(Error::Internal)?;
                found.snapshots.insert(hash, Arc::clone(snapshot));
            }
            Lookup::Value(reference) => {
                let value = self.value(run_id, reference)?;
                found.values.insert(reference, value);
            }
            Lookup::Definition { name, version } => {
                let finder = self.finder;
                let compiled = finder.compile_registered(&self.namespace, &name, version);
                let compiled = compiled.await?.and_then(std::result::Result::ok);
                let snapshot = compiled.map(|snapshot| self.keep(snapshot));
                found.definitions.insert((name, version), snapshot);
            }
            Lookup::Inline(text) => {
                let compiled = match serde_json::from_str::<WorkflowDef>(&text) {
                    Ok(definition) => self.finder.compile(&self.namespace, &definition).await?,
                    Err(error) => Err(format!(
                        "the definition of the sub-workflow is invalid: {error}"
                    )),
                };
                let snapshot = compiled.map(|snapshot| self.keep(snapshot));
                found.inline.insert(text, snapshot);
            }
            other => {
                let lookups = vec![other];
                let finder = self.finder;
                finder
                    .find(&self.namespace, run_id, self.now, lookups, found)
                    .await?;
            }
        }
        Ok(())
    }

    fn value(&self, run_id: &RunId, reference: ValueRef) -> Result<Arc<Value>> {
        let place = usize::try_from(reference.event.get().saturating_sub(1)).ok();
        let tested = self.runs.get(run_id);
        let payload = tested.and_then(|tested| tested.events.get(place?));
        let value = payload.and_then(|payload| member_of(payload, reference.member));
        value.map(Arc::new).ok_or(Error::Internal)
    }

    /// Keeps what a decision changes. A run without a parent is another workflow, which the test does not follow.
    fn apply(&mut self, changes: Changes, root: Option<(&RunId, Mocks)>) {
        let own = changes.run.into_iter().map(|run| *run);
        for change in own.chain(changes.created) {
            let run_id = change.spec.run_id.clone();
            let events = change.events.iter().map(|event| event.payload.clone());
            let events: Vec<String> = events.collect();
            if let Some(tested) = self.runs.remove(&run_id) {
                let run = change.apply(Some(tested.run));
                let events = [tested.events, events].concat();
                let tested = Tested {
                    run,
                    events,
                    ..tested
                };
                self.runs.insert(run_id, tested);
                continue;
            }
            let parent = change.spec.parent.as_deref();
            let mocks = match (&root, parent) {
                (Some((root, mocks)), _) if **root == run_id => mocks.clone(),
                (_, Some(parent)) if self.runs.len() < RUNS_MAX => {
                    let of_parent = self.runs.get(&parent.run_id);
                    let task = of_parent.and_then(|tested| {
                        let task = tested.run.task(parent.sequence.get())?;
                        Some(tested.mocks.of_sub_workflow(task))
                    });
                    task.unwrap_or_default()
                }
                _ => continue,
            };
            let tested = Tested {
                run: change.apply(None),
                events,
                mocks,
                delivered: None,
            };
            self.runs.insert(run_id, tested);
        }
    }

    /// Makes the passes that are left, and reports the ends of sub-workflows to their parents.
    async fn settle(&mut self) -> Result<()> {
        while Instant::now() < self.until {
            let mut unfinished = self.runs.iter().filter(|(_, tested)| has_work(&tested.run));
            if let Some((run_id, _)) = unfinished.next() {
                let run_id = run_id.clone();
                self.act(&run_id, &ContinuePass).await?;
                continue;
            }
            let Some((parent, report)) = self.next_report() else {
                return Ok(());
            };
            self.act(&parent, &*report).await?;
        }
        Ok(())
    }

    /// Returns the next report of an ended sub-workflow, once.
    fn next_report(&mut self) -> Option<(RunId, Box<longhaul_engine::command::ReportExecution>)> {
        for tested in self.runs.values_mut() {
            for delivery in deliveries(&tested.run) {
                if tested
                    .delivered
                    .is_some_and(|number| delivery.number <= number)
                {
                    continue;
                }
                tested.delivered = Some(delivery.number);
                if let Order::ReportExecution {
                    parent_run_id,
                    report,
                } = delivery.order
                {
                    return Some((parent_run_id, report));
                }
            }
        }
        None
    }

    /// Applies the next result of an open task. Returns whether there was one.
    async fn apply_next(&mut self) -> Result<bool> {
        let mut next = None;
        'runs: for (run_id, tested) in &mut self.runs {
            let tasks = tested.run.parts.values().filter_map(Part::as_task);
            for task in tasks.filter(|task| task.is_open() && takes_result(task)) {
                if let Some(mock) = tested.mocks.take(task) {
                    next = Some((run_id.clone(), Arc::clone(task), mock));
                    break 'runs;
                }
            }
        }
        let Some((run_id, task, mock)) = next else {
            return Ok(false);
        };
        let report = |status, output| UpdateExecutionTask {
            target: TaskTarget::Id {
                task_id: task.id.clone(),
                seq: task.seq,
            },
            report: Report::Status {
                status,
                output,
                reason: None,
                worker_id: None,
                callback_after_seconds: 0,
                logs: Vec::new(),
            },
            takes_next: false,
        };
        self.pass_time(mock.queue_wait_time);
        if let Waiting::Queued { offered, .. } = task.waiting {
            if !offered {
                // The delay of a retry or a start does not pass in a test run.
                let none = Output::Merge(Object::new());
                self.act(&run_id, &report(ResultStatus::InProgress, none))
                    .await?;
            }
            let claim = ClaimExecutionTasks {
                tasks: vec![(task.id.clone(), task.seq)],
                worker_id: None,
                served_seconds: None,
            };
            self.act(&run_id, &claim).await?;
        }
        self.pass_time(mock.execution_time);
        let result = report(mock.status, Output::Replace(mock.output));
        self.act(&run_id, &result).await?;
        Ok(true)
    }

    fn pass_time(&mut self, millis: i64) {
        self.now = self.now.plus_millis(u64::try_from(millis).unwrap_or(0));
    }

    fn into_view(mut self, root: &RunId) -> Result<ExecutionView> {
        let run = match self.runs.get(root) {
            Some(tested) => tested.run.clone(),
            None => return Err(Error::Internal),
        };
        let mut found = LookupResults::default();
        for reference in unloaded(&run, true) {
            found.values.insert(reference, self.value(root, reference)?);
        }
        let execution = run.core.execution.as_ref().ok_or(Error::Internal)?;
        let snapshot = self.snapshots.remove(&execution.snapshot);
        Ok(ExecutionView {
            snapshot: snapshot.ok_or(Error::Internal)?,
            run,
            found,
        })
    }
}

/// Returns whether a task of a test run ends by a given result. Operators are decided as in a real run.
fn takes_result(task: &ExecutionTask) -> bool {
    !matches!(
        task.task_type.as_str(),
        "JOIN"
            | "EXCLUSIVE_JOIN"
            | "DO_WHILE"
            | "SET_VARIABLE"
            | "FORK"
            | "INLINE"
            | "LAMBDA"
            | "JSON_JQ_TRANSFORM"
            | "TERMINATE"
            | "DECISION"
            | "SWITCH"
            | "SUB_WORKFLOW"
            | "NOOP"
    )
}
