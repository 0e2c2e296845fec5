//! Test runs: a definition is run in memory by the same decisions as any other, with outputs that the caller gives in the place of
//! workers. Nothing of it is stored or queued.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::change::Changes;
use longhaul_engine::command::{ConfirmDelivery, ContinuePass, StopRun, UpdateExecutionTask};
use longhaul_engine::conductor::definition::Snapshot;
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::command::start::{NewExecution, start};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::lookup::{Lookup, LookupResults, Step};
use longhaul_engine::conductor::execution::state::{ExecutionTask, Waiting};
use longhaul_engine::conductor::execution::view::{Source, unloaded};
use longhaul_engine::conductor::expression::{EventMember, ValueRef};
use longhaul_engine::run::family::outbox::{Order, deliveries, has_messages};
use longhaul_engine::run::message::external::Request;
use longhaul_engine::run::state::{Part, Run};
use longhaul_engine::{Command, Decision, Moment};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, ResultStatus, Workflow};
use longhaul_protocol::id::{Namespace, RunId};
use longhaul_protocol::json::from_stored;
use serde_json::Value;
use tokio::time::Instant;

use super::StartExecution;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::views::Executions;

/// Decisions of one test run. A definition without an end stops there.
const ROUNDS_MAX: usize = 20_000;

/// Runs of one test run: the workflow and its sub-workflows. They are all in memory.
const RUNS_MAX: usize = 1000;

/// How long a test run may take. Scripts take most of it.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Steps of one decision, as for other runs.
const STEPS_MAX: usize = 200;

/// What a task does in a test run instead of a worker.
#[derive(Clone, Debug)]
pub struct Mock {
    pub status: ResultStatus,
    pub output: Object,
    /// The time that the task waits and works.
    pub takes: Duration,
}

/// What happens in a test run.
#[derive(Clone, Debug, Default)]
pub struct Mocks {
    /// By reference, with the iteration of a loop or without; each is used once.
    pub tasks: BTreeMap<String, VecDeque<Mock>>,
    /// Those of sub-workflows, by the reference of their task.
    pub sub_workflows: BTreeMap<String, Self>,
}

impl Mocks {
    fn take(&mut self, task: &ExecutionTask) -> Option<Mock> {
        for name in [task.reference.as_str(), task.node_reference()] {
            let next = self.tasks.get_mut(name).and_then(VecDeque::pop_front);
            if next.is_some() {
                return next;
            }
        }
        None
    }

    fn of_child(&self, task: &ExecutionTask) -> Self {
        let names = [task.reference.as_str(), task.node_reference()];
        let mut found = names
            .iter()
            .filter_map(|name| self.sub_workflows.get(*name));
        found.next().cloned().unwrap_or_default()
    }
}

impl Executions<'_> {
    /// Runs a definition in memory until it has ended, until a task has no mock, or until a bound is reached. Returns the record of
    /// the run, which cannot be read afterwards.
    pub async fn test(
        self,
        namespace: &Namespace,
        mut request: StartExecution,
        mocks: Mocks,
    ) -> Result<Workflow> {
        let finder = &self.host.inner.executor.finder;
        let compiled = if let Some(definition) = request.definition.take() {
            let checked = std::slice::from_ref(&definition);
            self.host.definitions().check(namespace, checked).await?;
            finder.compiled(namespace, &definition).await?.map(Arc::new)
        } else {
            let (name, version) = (request.name.clone(), request.version);
            let found = finder
                .registered_snapshot(namespace, &name, version)
                .await?;
            found.ok_or(ConductorRefusal::NoSuchDefinition { name, version })?
        };
        let snapshot = compiled.map_err(ConductorRefusal::DefinitionUnusable)?;
        let new = NewExecution {
            namespace: namespace.clone(),
            snapshot,
            input: request.input,
            correlation_id: request.correlation_id,
            priority: request.priority,
            task_to_domain: Arc::new(request.task_to_domain),
            idempotency_key: None,
            key_claim: None,
            created_by: request.created_by,
            depth: 0,
            parent: None,
        };
        let mut world = World {
            executions: self,
            namespace,
            now: self.host.now(),
            runs: BTreeMap::new(),
            events: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            mocks: BTreeMap::new(),
        };
        let root = world.start(&new).await?;
        world.mocks.insert(root.clone(), mocks);
        world.run(&root).await?;
        world.shown(&root).await
    }
}

/// The runs of a test run.
struct World<'h> {
    executions: Executions<'h>,
    namespace: &'h Namespace,
    now: Timestamp,
    runs: BTreeMap<RunId, Run>,
    /// The payloads of the events of each run.
    events: BTreeMap<RunId, Vec<String>>,
    snapshots: BTreeMap<Arc<str>, Arc<Snapshot>>,
    mocks: BTreeMap<RunId, Mocks>,
}

impl World<'_> {
    async fn start(&mut self, new: &NewExecution) -> Result<RunId> {
        let snapshot = Arc::clone(&new.snapshot);
        self.snapshots.insert(snapshot.hash().into(), snapshot);
        let entropy = rand::random();
        let mut found = self.begin();
        for _ in 0..STEPS_MAX {
            let step = start(new, self.moment(entropy), &found);
            match step {
                Step::Decided(decision) => {
                    let started = decision.reply?;
                    self.apply(decision.changes);
                    return Ok(started.run_id);
                }
                Step::Needs(lookups) => self.find(&RunId::from(""), lookups, &mut found).await?,
            }
        }
        Err(Error::Internal)
    }

    fn moment(&self, entropy: u128) -> Moment<'_> {
        Moment {
            now: self.now,
            entropy,
            limits: &self.executions.host.inner.executor.limits,
        }
    }

    fn begin(&self) -> LookupResults {
        LookupResults {
            snapshots: self.snapshots.clone(),
            ..LookupResults::default()
        }
    }

    /// Decides a command on a run. A refusal changes nothing.
    async fn act<C: Command>(&mut self, run_id: &RunId, command: &C) -> Result<()> {
        let entropy = rand::random();
        let mut found = self.begin();
        for _ in 0..STEPS_MAX {
            let Some(run) = self.runs.get(run_id) else {
                return Ok(());
            };
            let step = command.step(run, self.moment(entropy), &found);
            match step {
                Step::Decided(Decision { changes, .. }) => {
                    self.apply(changes);
                    return Ok(());
                }
                Step::Needs(lookups) => self.find(run_id, lookups, &mut found).await?,
            }
        }
        Err(Error::Internal)
    }

    fn apply(&mut self, changes: Changes) {
        for change in changes.runs() {
            let run_id = &change.spec.run_id;
            let run = change.apply(self.runs.remove(run_id));
            self.runs.insert(run_id.clone(), run);
            let payloads = change.events.iter().map(|event| event.payload.clone());
            self.events
                .entry(run_id.clone())
                .or_default()
                .extend(payloads);
        }
    }

    /// Finds what a decision asks for: in memory what belongs to the test run, everything else as for other runs.
    async fn find(
        &mut self,
        run_id: &RunId,
        lookups: Vec<Lookup>,
        found: &mut LookupResults,
    ) -> Result<()> {
        let finder = &self.executions.host.inner.executor.finder;
        for lookup in lookups {
            match lookup {
                Lookup::Value(reference) => {
                    found
                        .values
                        .insert(reference, self.value(run_id, reference)?);
                }
                Lookup::Snapshot(hash) => {
                    let snapshot = finder.snapshots.get(&*finder.store, &hash).await?;
                    found.snapshots.insert(hash, snapshot);
                }
                Lookup::Inline(text) => {
                    let compiled = match serde_json::from_str(&text) {
                        Ok(definition) => finder.compiled(self.namespace, &definition).await?,
                        Err(error) => Err(format!(
                            "the definition of the sub-workflow is invalid: {error}"
                        )),
                    };
                    let compiled = compiled.map(Arc::new);
                    if let Ok(snapshot) = &compiled {
                        let hash = snapshot.hash().into();
                        self.snapshots.insert(hash, Arc::clone(snapshot));
                    }
                    found.inline.insert(text, compiled);
                }
                other => {
                    finder
                        .find(self.namespace, run_id, vec![other], found)
                        .await?;
                }
            }
        }
        Ok(())
    }

    fn value(&self, run_id: &RunId, reference: ValueRef) -> Result<Arc<Value>> {
        let index = reference.event.get().checked_sub(1);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let payloads = self.events.get(run_id);
        let payload = payloads.and_then(|payloads| payloads.get(index?));
        let member = match reference.member {
            EventMember::Input => "input",
            EventMember::Output => "output",
            EventMember::Variables => "variables",
        };
        let value = payload
            .and_then(|payload| from_stored::<Value>(payload).ok())
            .and_then(|mut payload| payload.get_mut(member).map(Value::take));
        value.map(Arc::new).ok_or(Error::Internal)
    }

    /// Goes on until the run has ended, or until nothing moves it.
    async fn run(&mut self, root: &RunId) -> Result<()> {
        let until = Instant::now() + TIME_MAX;
        for _ in 0..ROUNDS_MAX {
            let has_ended = self
                .runs
                .get(root)
                .is_none_or(|run| run.core.closed.is_some() && !has_messages(run));
            if has_ended || Instant::now() >= until || self.runs.len() > RUNS_MAX {
                break;
            }
            let working = self.runs.values().find(|run| has_work(run));
            let sender = self.runs.values().find(|run| has_messages(run));
            if let Some(run_id) = working.map(|run| run.run_id().clone()) {
                self.act(&run_id, &ContinuePass).await?;
            } else if let Some(run_id) = sender.map(|run| run.run_id().clone()) {
                self.deliver(&run_id).await?;
            } else if !self.work().await? {
                break;
            }
            // Other requests have their turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Delivers the oldest message of a run.
    async fn deliver(&mut self, sender: &RunId) -> Result<()> {
        let delivery = self.runs.get(sender).and_then(|run| {
            let all = deliveries(run);
            all.into_iter().next()
        });
        let Some(delivery) = delivery else {
            return Err(Error::Internal);
        };
        match delivery.order {
            Order::ReportExecution {
                parent_run_id,
                report,
            } => self.act(&parent_run_id, &*report).await?,
            Order::ReopenForChild {
                parent_run_id,
                reopen,
            } => self.act(&parent_run_id, &*reopen).await?,
            Order::Stop {
                workflow_id,
                how,
                reason,
                life,
            } => {
                let stop = StopRun {
                    request: Request::default(),
                    how,
                    reason: Some(reason),
                    life,
                };
                self.act(&RunId::from(workflow_id.as_str()), &stop).await?;
            }
            Order::Report { .. } | Order::RequestCancellation { .. } => {}
        }
        let (number, refusal) = (delivery.number, None);
        self.act(sender, &ConfirmDelivery { number, refusal }).await
    }

    /// Applies the next mock. Returns whether there was one for an open task.
    async fn work(&mut self) -> Result<bool> {
        self.hand_down_mocks();
        let mut next = None;
        for run in self.runs.values().filter(|run| run.core.closed.is_none()) {
            let Some(mocks) = self.mocks.get_mut(run.run_id()) else {
                continue;
            };
            let tasks = run.parts.values().filter_map(Part::as_task);
            for task in tasks.filter(|task| is_mocked(task)) {
                if let Some(mock) = mocks.take(task) {
                    let id = (task.id.clone(), task.seq);
                    next = Some((run.run_id().clone(), id, mock));
                    break;
                }
            }
            if next.is_some() {
                break;
            }
        }
        let Some((run_id, (task_id, seq), mock)) = next else {
            return Ok(false);
        };
        let millis = u64::try_from(mock.takes.as_millis()).unwrap_or(u64::MAX);
        self.now = self.now.plus_millis(millis);
        let command = UpdateExecutionTask {
            target: TaskTarget::Id { task_id, seq },
            report: Report::Status {
                status: mock.status,
                output: Output::Replace(mock.output),
                reason: None,
                worker_id: None,
                callback_after_seconds: 0,
                logs: Vec::new(),
            },
            takes_next: false,
        };
        self.act(&run_id, &command).await?;
        Ok(true)
    }

    /// Gives new sub-workflows the mocks of their task. Ids are in the order of time, so parents come first.
    fn hand_down_mocks(&mut self) {
        for run in self.runs.values() {
            let Some(parent) = run.spec.parent.as_deref() else {
                continue;
            };
            if self.mocks.contains_key(run.run_id()) {
                continue;
            }
            let above = self.mocks.get(&parent.run_id);
            let task = self.runs.get(&parent.run_id);
            let task = task.and_then(|run| run.task(parent.sequence.get()));
            let own = above.zip(task).map(|(above, task)| above.of_child(task));
            self.mocks
                .insert(run.run_id().clone(), own.unwrap_or_default());
        }
    }

    async fn shown(&self, root: &RunId) -> Result<Workflow> {
        let run = self.runs.get(root).ok_or(Error::Internal)?;
        let execution = run.core.execution.as_ref().ok_or(Error::Internal)?;
        let snapshot = self.snapshots.get(&execution.snapshot);
        let snapshot = snapshot.ok_or(Error::Internal)?;
        let mut found = LookupResults::default();
        for reference in unloaded(run, true) {
            found.values.insert(reference, self.value(root, reference)?);
        }
        let source = Source {
            run,
            snapshot,
            found: &found,
        };
        Ok(source.workflow(true))
    }
}

/// Returns whether a worker, a person or a clock would answer the task. Operators are decided as ever.
fn is_mocked(task: &ExecutionTask) -> bool {
    task.is_open()
        && task.task_type != "SUB_WORKFLOW"
        && match task.waiting {
            Waiting::Nothing | Waiting::Queued { .. } | Waiting::Leased | Waiting::Time(_) => true,
            Waiting::Tasks(_) | Waiting::Iteration(_) | Waiting::Child(_) => false,
        }
}
