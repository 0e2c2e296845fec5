//! The world of definition runs: registered definitions, runs with their events and rows, scripts as closures, and a clock that
//! tests move. Commands are decided as the host decides them: again and again with what was looked up, until nothing is missing.

mod passing;
mod reopening;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::change::{Changes, LogLine, ReusableOutput, TaskRow, TaskStatus as RowStatus};
use longhaul_engine::command::{ClaimExecutionTasks, UpdateExecutionTask};
use longhaul_engine::conductor::definition::{
    Lookups, Schemas, Snapshot, needed_schemas, needed_sub_workflows, needed_task_defs,
    with_schemas,
};
use longhaul_engine::conductor::event::EventMessage;
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::command::start::{NewExecution, start};
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget, Updated};
use longhaul_engine::conductor::execution::lookup::{
    EnvironmentValues, KeyOwner, Lookup, LookupResults, ScriptFailure, Step,
};
use longhaul_engine::conductor::expression::{EventMember, ValueRef};
use longhaul_engine::run::family::outbox::{Order, has_messages};
use longhaul_engine::run::state::Run;
use longhaul_engine::{Command, Decision, Limits, Moment, Rejection};
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{ResultStatus, TaskDef, WorkflowDef, read};
use longhaul_protocol::id::{Namespace, RunId, TaskId};
use serde_json::{Map, Value, json};

use super::fold::Fold;
use super::invariants;

type ScriptFn = Box<dyn Fn(&Value) -> Result<Value, ScriptFailure>>;

/// How long a server holds a task in these tests.
pub(crate) const SERVED_SECONDS: u64 = 20;

pub(crate) struct World {
    pub(crate) now: Timestamp,
    limits: Limits,
    task_defs: BTreeMap<String, Arc<TaskDef>>,
    workflows: BTreeMap<(String, i32), WorkflowDef>,
    pub(crate) snapshots: BTreeMap<Arc<str>, Arc<Snapshot>>,
    scripts: BTreeMap<String, ScriptFn>,
    pub(crate) schemas: Schemas,
    pub(crate) runs: BTreeMap<RunId, Run>,
    /// The payloads of the events of each run.
    pub(crate) events: BTreeMap<RunId, Vec<Value>>,
    pub(crate) folds: BTreeMap<RunId, Fold>,
    pub(crate) rows: BTreeMap<TaskId, TaskRow>,
    /// Lines of logs by run, task and number.
    pub(crate) logs: BTreeMap<(RunId, u64, u64), LogLine>,
    /// Events that runs published, in the order of their delivery.
    pub(crate) published: Vec<EventMessage>,
    /// Runs by the name of their workflow and their idempotency key.
    keys: BTreeMap<(String, String), RunId>,
    /// Outputs that tasks left for later ones, by name and key.
    outputs: BTreeMap<(String, String), ReusableOutput>,
    /// Queues `domain:type` that workers polled.
    pub(crate) polled: Vec<String>,
    pub(crate) environment: EnvironmentValues,
    /// Invariants are checked after every decision if this is 1, and after each n-th otherwise.
    pub(crate) check_every: u64,
    pub(crate) decisions: u64,
    /// Messages that were delivered.
    pub(crate) letters: Vec<Order>,
    /// Steps that ended in a request for lookups.
    pub(crate) repeats: u64,
    /// The bytes that decisions and their changes allocated, without the work of this world. They measure the cost of a decision
    /// the same on every machine.
    pub(crate) engine_bytes: u64,
}

/// Returns what `work` returns, and how many bytes it allocated.
fn allocated_by<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let mut result = None;
    let allocated = allocation_counter::measure(|| result = Some(work()));
    (result.expect("the work was done"), allocated.bytes_total)
}

pub(crate) fn members(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: "2026-01-01T00:00:00.000000Z".parse().unwrap(),
            limits: Limits::default(),
            task_defs: BTreeMap::new(),
            workflows: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            scripts: BTreeMap::new(),
            schemas: BTreeMap::new(),
            runs: BTreeMap::new(),
            events: BTreeMap::new(),
            folds: BTreeMap::new(),
            rows: BTreeMap::new(),
            logs: BTreeMap::new(),
            published: Vec::new(),
            keys: BTreeMap::new(),
            outputs: BTreeMap::new(),
            polled: Vec::new(),
            environment: EnvironmentValues::default(),
            check_every: 1,
            decisions: 0,
            letters: Vec::new(),
            repeats: 0,
            engine_bytes: 0,
        }
    }

    /// Returns a world with one workflow `w` of these tasks.
    pub(crate) fn with_tasks(tasks: Value) -> Self {
        let mut world = Self::new();
        world.define(json!({"name": "w", "version": 1, "tasks": tasks}));
        world
    }

    pub(crate) fn define(&mut self, definition: Value) {
        let definition: WorkflowDef = read(definition).unwrap();
        let key = (definition.name.clone(), definition.version);
        self.workflows.insert(key, definition);
    }

    pub(crate) fn task_def(&mut self, definition: Value) {
        let definition: TaskDef = read(definition).unwrap();
        self.task_defs
            .insert(definition.name.clone(), Arc::new(definition));
    }

    pub(crate) fn script(&mut self, source: &str, run: impl Fn(&Value) -> Value + 'static) {
        self.scripts
            .insert(source.to_owned(), Box::new(move |input| Ok(run(input))));
    }

    pub(crate) fn failing_script(&mut self, source: &str, message: &str, is_retriable: bool) {
        let failure = ScriptFailure {
            message: message.to_owned(),
            is_retriable,
        };
        self.scripts
            .insert(source.to_owned(), Box::new(move |_| Err(failure.clone())));
    }

    fn latest(&self, name: &str) -> Option<i32> {
        let mut versions = self.workflows.keys().filter(|(known, _)| known == name);
        versions.next_back().map(|(_, version)| *version)
    }

    fn compile(&mut self, definition: WorkflowDef) -> Result<Arc<Snapshot>, String> {
        let mut lookups = Lookups::default();
        for name in needed_task_defs(&definition) {
            if let Some(found) = self.task_defs.get(&name) {
                lookups.task_defs.insert(name, Arc::clone(found));
            }
        }
        for name in needed_sub_workflows(&definition) {
            if let Some(version) = self.latest(&name) {
                lookups.sub_workflows.insert(name, version);
            }
        }
        for key in needed_schemas(&definition, &lookups.task_defs) {
            if let Some(schema) = self.schemas.get(&key) {
                lookups.schemas.insert(key, schema.clone());
            }
        }
        let snapshot =
            Snapshot::compile(definition, &lookups).map_err(|error| error.to_string())?;
        let snapshot = Arc::new(snapshot);
        self.snapshots
            .insert(snapshot.hash().into(), Arc::clone(&snapshot));
        Ok(snapshot)
    }

    fn registered(&mut self, name: &str, version: Option<i32>) -> Option<Arc<Snapshot>> {
        let version = version.or_else(|| self.latest(name))?;
        let definition = self.workflows.get(&(name.to_owned(), version))?.clone();
        self.compile(definition).ok()
    }

    pub(crate) fn new_execution(&mut self, name: &str, input: Value) -> NewExecution {
        NewExecution {
            namespace: Namespace::from("default"),
            snapshot: self.registered(name, None).expect("it is registered"),
            input: members(input),
            correlation_id: None,
            priority: 0,
            task_to_domain: Arc::default(),
            idempotency_key: None,
            key_claim: None,
            created_by: None,
            depth: 0,
            parent: None,
        }
    }

    /// Starts the newest version of a workflow and lets it come to rest.
    pub(crate) fn start(&mut self, name: &str, input: Value) -> RunId {
        let new = self.new_execution(name, input);
        let run_id = self.create(&new);
        self.settle();
        run_id
    }

    /// Creates a run with its first pass.
    pub(crate) fn create(&mut self, new: &NewExecution) -> RunId {
        self.try_create(new).expect("a start is not refused")
    }

    /// Creates a run with its first pass, unless the start is refused.
    pub(crate) fn try_create(&mut self, new: &NewExecution) -> Result<RunId, Rejection> {
        let decision = self.decide(&RunId::from("new"), |_, moment, found| {
            start(new, moment, found)
        });
        let started = decision.reply?;
        let change = &decision.changes.created[0];
        assert_eq!(change.base_version, None, "the pass is in the same commit");
        self.commit(decision.changes);
        let run = &self.runs[&started.run_id];
        assert_eq!(started.has_work, has_work(run), "the reply is right");
        assert_eq!(started.has_messages, has_messages(run));
        Ok(started.run_id)
    }

    /// Decides a command on a run and keeps what it changes.
    pub(crate) fn act<C: Command>(
        &mut self,
        run_id: &RunId,
        command: &C,
    ) -> Result<C::Reply, Rejection> {
        let decision = self.decide(run_id, |world, moment, found| {
            command.step(&world.runs[run_id], moment, found)
        });
        if decision.reply.is_err() {
            assert!(decision.changes.run.is_none() || self.runs[run_id].core.closed.is_some());
        }
        self.commit(decision.changes);
        decision.reply
    }

    /// Decides in steps, with what each step asks for. The same inputs give the same decision.
    fn decide<R>(
        &mut self,
        run_id: &RunId,
        step: impl Fn(&Self, Moment<'_>, &LookupResults) -> Step<R>,
    ) -> Decision<R> {
        self.decisions += 1;
        let limits = self.limits.clone();
        let moment = Moment {
            now: self.now,
            entropy: u128::from(self.decisions) << 40,
            limits: &limits,
        };
        let mut found = LookupResults {
            polled: self.polled.clone(),
            environment: self.environment.clone(),
            ..LookupResults::default()
        };
        let decision = loop {
            let (stepped, bytes) = allocated_by(|| step(self, moment, &found));
            self.engine_bytes += bytes;
            match stepped {
                Step::Decided(decision) => break decision,
                Step::Needs(needs) => {
                    assert!(!needs.is_empty(), "a step that needs nothing is a decision");
                    self.repeats += 1;
                    for lookup in needs {
                        self.find(run_id, lookup, &mut found);
                    }
                }
            }
        };
        if self.check_every == 1 {
            match step(self, moment, &found) {
                Step::Decided(again) => {
                    let (one, two) = (&decision.changes, &again.changes);
                    assert_eq!(format!("{one:?}"), format!("{two:?}"));
                }
                Step::Needs(_) => panic!("what was found is enough"),
            }
        }
        decision
    }

    /// Finds what a decision asks for. It asks for everything once, and for nothing that is not stored.
    fn find(&mut self, run_id: &RunId, lookup: Lookup, found: &mut LookupResults) {
        let is_new = match lookup {
            Lookup::Snapshot(hash) => {
                let snapshot = Arc::clone(&self.snapshots[&hash]);
                found.snapshots.insert(hash, snapshot).is_none()
            }
            Lookup::Value(reference) => {
                let value = Arc::new(self.stored(run_id, reference));
                found.values.insert(reference, value).is_none()
            }
            Lookup::Script(script) => {
                let run = self.scripts.get(&*script.source);
                let run = run.unwrap_or_else(|| panic!("a script is missing: {}", script.source));
                let result = run(&serde_json::from_str(&script.input).unwrap());
                found.scripts.insert(script, result).is_none()
            }
            Lookup::Instance(workflow_id) => {
                let is_used = self
                    .runs
                    .values()
                    .any(|run| run.spec.workflow_id == workflow_id);
                found.instances.insert(workflow_id, is_used).is_none()
            }
            Lookup::Jq(program) => {
                // A stand-in: the program names the member that it returns.
                let input: Value = serde_json::from_str(&program.input).unwrap();
                let results = match program.source.strip_prefix('.') {
                    Some(member) => Ok(vec![input[member].clone(), json!("second")]),
                    None if &*program.source == "empty" => Ok(Vec::new()),
                    None => Err(ScriptFailure {
                        message: "Cannot index number".to_owned(),
                        is_retriable: false,
                    }),
                };
                found.jq.insert(program, results).is_none()
            }
            Lookup::Comparison(comparison) => {
                let result = super::schemas::compare(&comparison);
                found.comparisons.insert(comparison, result).is_none()
            }
            Lookup::TaskDef(name) => {
                let definition = self.task_defs.get(&name);
                let definition = definition.map(|found| with_schemas(found, &self.schemas));
                found.task_defs.insert(name, definition).is_none()
            }
            Lookup::Definition { name, version } => {
                let snapshot = self.registered(&name, version);
                let key = (name, version);
                found.definitions.insert(key, snapshot).is_none()
            }
            Lookup::Inline(text) => {
                let definition = serde_json::from_str(&text).unwrap();
                let compiled = match read::<WorkflowDef>(definition) {
                    Ok(definition) => self.compile(definition),
                    Err(wrong) => Err(wrong[0].message.clone()),
                };
                found.inline.insert(text, compiled).is_none()
            }
            Lookup::Output(key) => {
                let kept = self.outputs.get(&(key.name.clone(), key.key.clone()));
                let kept = kept.filter(|kept| kept.expires_at > self.now);
                let output = kept.map(|kept| Arc::clone(&kept.output));
                found.outputs.insert(key, output).is_none()
            }
            Lookup::KeyOwner(key) => {
                let owner = self.keys.get(&(key.name.clone(), key.key.clone()));
                let owner = owner.map(|run_id| KeyOwner {
                    run_id: run_id.clone(),
                    is_open: self.runs[run_id].core.closed.is_none(),
                });
                found.key_owners.insert(key, owner).is_none()
            }
        };
        assert!(is_new, "a decision asks twice for the same");
    }

    pub(super) fn stored(&self, run_id: &RunId, reference: ValueRef) -> Value {
        let events = &self.events[run_id];
        let index = usize::try_from(reference.event.get()).unwrap() - 1;
        let event = events
            .get(index)
            .unwrap_or_else(|| panic!("event {} is not stored yet", reference.event.get()));
        let member = match reference.member {
            EventMember::Input => "input",
            EventMember::Output => "output",
            EventMember::Variables => "variables",
        };
        event[member].clone()
    }

    fn commit(&mut self, changes: Changes) {
        let mut touched = Vec::new();
        let own = changes.run.into_iter().map(|run| *run);
        for change in own.chain(changes.created) {
            let run_id = change.spec.run_id.clone();
            if let Some(claim) = &change.key_claim {
                let key = (change.spec.workflow_type.clone(), claim.key.clone());
                let earlier = self.keys.insert(key, run_id.clone());
                assert_eq!(
                    earlier, claim.earlier,
                    "a key is taken from the run that has it"
                );
            }
            for kept in &change.outputs {
                let key = (kept.name.clone(), kept.key.clone());
                self.outputs.insert(key, kept.clone());
            }
            let before = self.runs.remove(&run_id);
            let version = before.as_ref().map(|run| run.version);
            assert_eq!(change.base_version, version, "based on what it saw");
            let (after, bytes) = allocated_by(|| change.apply(before));
            self.engine_bytes += bytes;
            self.runs.insert(run_id.clone(), after);
            let events = self.events.entry(run_id.clone()).or_default();
            let fold = self.folds.entry(run_id.clone()).or_default();
            for event in change.events {
                let body: Value = longhaul_protocol::json::from_stored(&event.payload).unwrap();
                assert_eq!(
                    event.sequence.get(),
                    events.len() as u64 + 1,
                    "events have no gaps"
                );
                fold.apply(event.event_type, &body);
                events.push(body);
            }
            super::limits::keep(&mut self.logs, &run_id, change.logs);
            for id in change.deleted_tasks {
                let deleted = self.rows.remove(&id);
                assert!(
                    deleted.is_some_and(|row| !row.status.is_open()),
                    "it had ended"
                );
            }
            for row in change.tasks {
                self.rows.insert(row.task_id.clone(), row);
            }
            touched.push(run_id);
        }
        if self.decisions.is_multiple_of(self.check_every) {
            for run_id in touched {
                invariants::check(self, &run_id);
            }
        }
    }

    /// Takes the first ready task of a queue.
    pub(crate) fn poll(&mut self, queue: &str, worker: &str) -> Option<(RunId, u64)> {
        let row = self
            .rows
            .values()
            .filter(|row| row.status == RowStatus::Ready && row.queue.as_str() == queue)
            .min_by_key(|row| (row.priority, row.available_at, row.task_id.clone()))?
            .clone();
        let seq = row.sequence.get();
        self.claim(&row.run_id, seq, worker)
            .then_some((row.run_id, seq))
    }

    /// Hands a task to a worker. Returns whether the worker has it.
    pub(crate) fn claim(&mut self, run_id: &RunId, seq: u64, worker: &str) -> bool {
        let task = self.runs[run_id].task(seq).unwrap();
        let command = ClaimExecutionTasks {
            tasks: vec![(task.id.clone(), seq)],
            worker_id: Some(worker.to_owned()),
            // These tasks are for servers.
            served_seconds: (task.task_type == "HTTP").then_some(SERVED_SECONDS),
        };
        self.act(run_id, &command).unwrap() == [seq]
    }

    pub(crate) fn update(
        &mut self,
        run_id: &RunId,
        target: TaskTarget,
        report: Report,
    ) -> Result<Updated, Rejection> {
        let command = UpdateExecutionTask {
            target,
            report,
            takes_next: false,
        };
        let updated = self.act(run_id, &command)?;
        self.settle();
        Ok(updated)
    }

    /// Reports on the open task with a reference.
    pub(crate) fn report(
        &mut self,
        run_id: &RunId,
        reference: &str,
        status: ResultStatus,
        output: Value,
        reason: Option<&str>,
    ) -> Result<Updated, Rejection> {
        let report = report(status, output, reason);
        self.update(run_id, TaskTarget::Reference(reference.to_owned()), report)
    }

    pub(crate) fn complete(&mut self, run_id: &RunId, reference: &str, output: Value) {
        self.report(run_id, reference, ResultStatus::Completed, output, None)
            .unwrap();
    }

    pub(crate) fn fail(&mut self, run_id: &RunId, reference: &str, reason: &str) {
        self.report(
            run_id,
            reference,
            ResultStatus::Failed,
            json!({}),
            Some(reason),
        )
        .unwrap();
    }
}

pub(crate) fn report(status: ResultStatus, output: Value, reason: Option<&str>) -> Report {
    Report::Status {
        status,
        output: Output::Replace(members(output)),
        reason: reason.map(str::to_owned),
        worker_id: None,
        callback_after_seconds: 0,
        logs: Vec::new(),
    }
}

/// Returns a SIMPLE node with its name as reference.
pub(crate) fn simple(name: &str) -> Value {
    json!({"name": name, "taskReferenceName": name, "type": "SIMPLE"})
}

/// Returns a value with more members.
pub(crate) fn with(mut value: Value, more: Value) -> Value {
    value.as_object_mut().unwrap().extend(members(more));
    value
}
