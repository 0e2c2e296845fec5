//! Workflows under test: their runs, histories and task rows, the outbox messages between them, and a clock that tests move.
//! Commands are applied as the host applies them, and every invariant is checked after each. One workflow is in focus: steps that
//! name no other are about its current run.

mod locals;
mod messages;
pub(crate) mod outbox;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_engine::change::{Changes, CommandRow, TaskKind, TaskOutcome, TaskRow};
use longhaul_engine::command::{
    AdvanceTime, ClaimActivityTask, ClaimWorkflowTask, CompleteActivity, CompleteWorkflowTask,
    FailActivity, FailWorkflowTask, HeartbeatActivity, HeartbeatWorkflowTask, ReleaseWorkflowTask,
    Start,
};
use longhaul_engine::run::activity::fence::{AttemptIdentity, Reporter};
use longhaul_engine::run::activity::heartbeat::HeartbeatRequest;
use longhaul_engine::run::activity::report::Failure;
use longhaul_engine::run::message::stream::StreamCursor;
use longhaul_engine::run::start::{DuplicatePolicy, Started};
use longhaul_engine::run::state::{Routing, Run};
use longhaul_engine::run::workflow_task::claim::{SignalDelivery, WorkflowClaim};
use longhaul_engine::run::workflow_task::complete::Completion;
use longhaul_engine::run::workflow_task::lease::{Holder, TaskHolder};
use longhaul_engine::run::workflow_task::sticky::StickyClaim;
use longhaul_engine::visibility::Definitions;
use longhaul_engine::{Command, Decision, Limits, Moment, Rejection};
use longhaul_protocol::history::Event;
use longhaul_protocol::id::{
    ActivityAttemptId, Namespace, RunId, TaskId, TaskQueue, WorkerId, WorkflowId,
};
use longhaul_protocol::workflow_command::WorkflowCommand;
use longhaul_protocol::{Payload, Timestamp};
use serde_json::{Map, Value};

use crate::invariants;

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) limits: Limits,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) runs: BTreeMap<RunId, Run>,
    pub(crate) histories: BTreeMap<RunId, Vec<Event>>,
    /// The parsed payloads of the histories.
    pub(crate) bodies: BTreeMap<RunId, Vec<Value>>,
    pub(crate) tasks: BTreeMap<TaskId, TaskRow>,
    /// External commands of each workflow by number, with the run that recorded them.
    pub(crate) commands: BTreeMap<(WorkflowId, u64), (RunId, CommandRow)>,
    /// The rows of those commands: a run that takes one over has a row of its own.
    pub(crate) command_rows: BTreeMap<(RunId, u64), CommandRow>,
    /// The current run of each workflow.
    pub(crate) instances: BTreeMap<WorkflowId, RunId>,
    pub(crate) focus: Option<WorkflowId>,
    /// Newest attempt of each activity call, for reports.
    pub(crate) attempts: BTreeMap<(RunId, u64), ActivityAttemptId>,
    /// Options of local calls, for repeats.
    pub(crate) calls: BTreeMap<(RunId, u64), Value>,
    /// Whether the workers support cooperative cancellation.
    pub(crate) capable: bool,
    /// The open children that closed runs must stop: by run, the children that their policy does not abandon.
    pub(crate) owed: BTreeMap<RunId, Vec<WorkflowId>>,
    /// The message streams and the sticky claim of the next completion.
    pub(crate) cursors: Vec<StreamCursor>,
    pub(crate) sticky: Option<StickyClaim>,
    steps: u128,
}

/// The changes of one step, for stories.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) events: Vec<(RunId, Event)>,
    pub(crate) tasks: Vec<TaskRow>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: "2026-01-01T00:00:00.000000Z".parse().unwrap(),
            limits: Limits::default(),
            definitions: Arc::default(),
            runs: BTreeMap::new(),
            histories: BTreeMap::new(),
            bodies: BTreeMap::new(),
            tasks: BTreeMap::new(),
            commands: BTreeMap::new(),
            command_rows: BTreeMap::new(),
            instances: BTreeMap::new(),
            focus: None,
            attempts: BTreeMap::new(),
            calls: BTreeMap::new(),
            capable: true,
            owed: BTreeMap::new(),
            cursors: Vec::new(),
            sticky: None,
            steps: 0,
        }
    }

    /// Returns the current run of the workflow in focus.
    pub(crate) fn run(&self) -> &Run {
        let focus = self.focus.as_ref().expect("a workflow was started");
        &self.runs[&self.instances[focus]]
    }

    fn decide<R: std::fmt::Debug>(
        &mut self,
        decide: impl FnOnce(&Self, Moment<'_>) -> Decision<R>,
    ) -> (Step, Result<R, Rejection>) {
        self.steps += 1;
        let limits = self.limits.clone();
        let moment = Moment {
            now: self.now,
            entropy: self.steps << 32,
            limits: &limits,
        };
        let decision = decide(self, moment);
        if let Err(rejection) = &decision.reply {
            invariants::check_refusal(rejection, &decision.changes);
        }
        let touched: Vec<RunId> = decision
            .changes
            .runs()
            .map(|change| change.spec.run_id.clone())
            .collect();
        let step = self.commit(decision.changes);
        invariants::check(self, &touched);
        (step, decision.reply)
    }

    fn commit(&mut self, changes: Changes) -> Step {
        let mut step = Step::default();
        for change in changes
            .run
            .into_iter()
            .map(|run| *run)
            .chain(changes.created)
        {
            let run_id = change.spec.run_id.clone();
            let workflow_id = change.spec.workflow_id.clone();
            let before = self.runs.remove(&run_id);
            let adopted: Vec<WorkflowId> = before.iter().flat_map(invariants::adopted).collect();
            let was_open = before.as_ref().is_none_or(|run| run.core.closed.is_none());
            assert_eq!(
                change.base_version,
                before.as_ref().map(|run| run.version),
                "a commit is based on the version it saw"
            );
            self.runs.insert(run_id.clone(), change.apply(before));
            if change.instance.is_some() {
                self.instances.insert(workflow_id.clone(), run_id.clone());
                self.focus.get_or_insert_with(|| workflow_id.clone());
            }
            let history = self.histories.entry(run_id.clone()).or_default();
            let bodies = self.bodies.entry(run_id.clone()).or_default();
            for event in change.events {
                bodies.push(serde_json::from_str(&event.payload).expect("a payload is JSON"));
                history.push(event.clone());
                step.events.push((run_id.clone(), event));
            }
            for row in change.tasks {
                self.tasks.insert(row.task_id.clone(), row.clone());
                step.tasks.push(row);
            }
            for sequence in change.deleted_commands {
                self.commands.remove(&(workflow_id.clone(), sequence.get()));
                self.command_rows.remove(&(run_id.clone(), sequence.get()));
            }
            for row in change.commands {
                let key = (run_id.clone(), row.sequence.get());
                self.command_rows.insert(key, row.clone());
                let key = (workflow_id.clone(), row.sequence.get());
                self.commands.insert(key, (run_id.clone(), row));
            }
            if was_open && self.runs[&run_id].core.closed.is_some() {
                let owed = invariants::owed(self, &run_id, adopted);
                self.owed.insert(run_id, owed);
            }
        }
        step
    }

    /// Applies a command to the current run.
    pub(crate) fn apply<C: Command<Reply: std::fmt::Debug>>(
        &mut self,
        command: &C,
    ) -> (Step, Result<C::Reply, Rejection>) {
        self.decide(|world, moment| command.decide(world.run(), moment))
    }

    /// Applies a command to any run.
    pub(crate) fn apply_to<C: Command<Reply: std::fmt::Debug>>(
        &mut self,
        run_id: &RunId,
        command: &C,
    ) -> (Step, Result<C::Reply, Rejection>) {
        self.decide(|world, moment| command.decide(&world.runs[run_id], moment))
    }

    /// Simulates a crash and restart of the server: only stored state remains.
    pub(crate) fn crash(&mut self) {
        for run in self.runs.values_mut() {
            let stored = serde_json::to_string(&run.core).unwrap();
            run.core = serde_json::from_str(&stored).unwrap();
            for (key, part) in &mut run.parts {
                let stored = serde_json::to_string(part).unwrap();
                let read = serde_json::from_str(&stored).unwrap();
                assert_eq!(*part, read, "{key} is read as it was stored");
                *part = read;
            }
        }
    }

    pub(crate) fn start(
        &mut self,
        options: &BTreeMap<String, String>,
    ) -> (Step, Result<Started, Rejection>) {
        let text = |key: &str, default: &str| {
            options
                .get(key)
                .cloned()
                .unwrap_or_else(|| default.to_owned())
        };
        let seconds = |key: &str| options.get(key).map(|value| value.parse().unwrap());
        let start = Start {
            namespace: Namespace::from("default"),
            workflow_id: WorkflowId::from(text("id", "order-7")),
            workflow_type: text("type", "order"),
            task_queue: TaskQueue::from(text("queue", "q")),
            arguments: Payload::empty_list(),
            business_key: None,
            memo: None,
            search_attributes: Map::new(),
            run_timeout_seconds: seconds("run_timeout"),
            execution_timeout_seconds: seconds("execution_timeout"),
            routing: Routing::default(),
            duplicate_policy: if text("policy", "fail") == "use-existing" {
                DuplicatePolicy::UseExisting
            } else {
                DuplicatePolicy::Fail
            },
            declared: Map::new(),
            principal: None,
            context: None,
        };
        match self.instances.get(&start.workflow_id).cloned() {
            None => self.decide(|_, moment| start.decide_new(moment)),
            Some(run_id) => self.apply_to(&run_id, &start),
        }
    }

    fn workflow_task_row(&self) -> Option<TaskRow> {
        let run = self.run();
        let open = run.core.workflow_task.as_ref().map(|task| task.id.clone());
        let newest = || {
            self.tasks
                .values()
                .filter(|row| row.kind == TaskKind::Workflow && row.run_id == *run.run_id())
                .max_by(|a, b| a.task_id.cmp(&b.task_id))
        };
        open.map_or_else(|| newest().cloned(), |id| self.tasks.get(&id).cloned())
    }

    pub(crate) fn claim(
        &mut self,
        worker: &str,
        runtime: &str,
        poll: Option<&str>,
    ) -> (Step, Result<WorkflowClaim, Rejection>) {
        let task_id = self
            .workflow_task_row()
            .expect("there was a workflow task")
            .task_id;
        self.apply(&ClaimWorkflowTask {
            task_id,
            worker_id: WorkerId::from(worker),
            signal_delivery: match runtime {
                "rust" => SignalDelivery::RecordedWaitOnly,
                _ => SignalDelivery::Any,
            },
            poll_request_id: poll.map(str::to_owned),
        })
    }

    pub(crate) fn holder(&self, worker: &str, attempt: Option<u64>) -> Holder {
        let row = self.workflow_task_row().expect("there was a workflow task");
        let attempt = attempt.unwrap_or(row.attempt);
        held_by(row, worker, attempt)
    }

    pub(crate) fn complete(
        &mut self,
        worker: &str,
        attempt: Option<u64>,
        commands: Vec<WorkflowCommand>,
    ) -> (Step, Result<TaskOutcome, Rejection>) {
        invariants::check_decision_is_next(self);
        let command = CompleteWorkflowTask {
            holder: self.holder(worker, attempt),
            completion: Arc::new(Completion {
                commands,
                cursors: std::mem::take(&mut self.cursors),
                sticky: self.sticky.take(),
            }),
            definitions: Arc::clone(&self.definitions),
        };
        let (step, reply) = self.apply(&command);
        (step, reply.map(|reply| reply.outcome))
    }

    /// Repeats a completion of a finished task.
    pub(crate) fn complete_again(
        &mut self,
        task_id: &TaskId,
        worker: &str,
        attempt: u64,
        commands: Vec<WorkflowCommand>,
    ) -> (Step, Result<TaskOutcome, Rejection>) {
        let row = self.tasks[task_id].clone();
        let run_id = row.run_id.clone();
        let command = CompleteWorkflowTask {
            holder: held_by(row, worker, attempt),
            completion: Arc::new(commands.into()),
            definitions: Arc::clone(&self.definitions),
        };
        let (step, reply) = self.apply_to(&run_id, &command);
        (step, reply.map(|reply| reply.outcome))
    }

    pub(crate) fn fail(
        &mut self,
        worker: &str,
        attempt: Option<u64>,
        failure_type: &str,
    ) -> (Step, Result<TaskOutcome, Rejection>) {
        let command = FailWorkflowTask {
            holder: self.holder(worker, attempt),
            message: "it did not work".to_owned(),
            failure_type: Some(failure_type.to_owned()),
            reason: None,
            stack_trace: None,
        };
        let (step, reply) = self.apply(&command);
        (step, reply.map(|reply| reply.outcome))
    }

    pub(crate) fn heartbeat_task(
        &mut self,
        worker: &str,
        attempt: Option<u64>,
    ) -> (Step, Result<(), Rejection>) {
        let (step, reply) = self.apply(&HeartbeatWorkflowTask {
            holder: self.holder(worker, attempt),
        });
        (step, reply.map(drop))
    }

    pub(crate) fn release(&mut self, worker: &str) -> (Step, Result<bool, Rejection>) {
        let task_id = self
            .workflow_task_row()
            .expect("there was a workflow task")
            .task_id;
        self.apply(&ReleaseWorkflowTask {
            task_id,
            owner: WorkerId::from(worker),
        })
    }

    pub(crate) fn elapse(&mut self) -> (Step, Result<(), Rejection>) {
        self.apply(&AdvanceTime)
    }

    pub(crate) fn elapse_of(&mut self, run_id: &RunId) -> (Step, Result<(), Rejection>) {
        self.apply_to(run_id, &AdvanceTime)
    }

    /// Returns the newest task of the activity call.
    fn activity_row(&self, sequence: u64) -> Option<TaskRow> {
        let rows = self.tasks.values().filter(|row| {
            row.kind == TaskKind::Activity
                && row.sequence == sequence
                && row.run_id == *self.run().run_id()
        });
        rows.max_by(|left, right| left.task_id.cmp(&right.task_id))
            .cloned()
    }

    pub(crate) fn claim_activity(
        &mut self,
        sequence: u64,
        worker: &str,
        poll: Option<&str>,
    ) -> (Step, Result<u64, Rejection>) {
        let Some(row) = self.activity_row(sequence) else {
            return (Step::default(), Err(Rejection::TaskNotFound));
        };
        let (step, reply) = self.apply(&ClaimActivityTask {
            task_id: row.task_id,
            sequence: sequence.into(),
            worker_id: WorkerId::from(worker),
            poll_request_id: poll.map(str::to_owned),
            admission: None,
        });
        if let Ok(claim) = &reply {
            let key = (self.run().run_id().clone(), sequence);
            self.attempts.insert(key, claim.attempt.id.clone());
        }
        (step, reply.map(|claim| claim.attempt.number))
    }

    /// Returns a report on the newest known attempt of the activity, for the task of that attempt.
    pub(crate) fn reporter(&self, sequence: u64, worker: &str) -> Option<Reporter> {
        let key = (self.run().run_id().clone(), sequence);
        let attempt_id = self.attempts.get(&key)?.clone();
        let knows = |row: &&TaskRow| {
            row.closed
                .as_ref()
                .is_some_and(|closed| closed.attempts.contains(&attempt_id))
        };
        let row = self
            .tasks
            .values()
            .find(knows)
            .cloned()
            .or_else(|| self.activity_row(sequence))?;
        Some(Reporter {
            named: AttemptIdentity {
                namespace: row.namespace.clone(),
                task_id: row.task_id.clone(),
                attempt_id,
                owner: WorkerId::from(worker),
                principal: None,
            },
            row: Box::new(row),
        })
    }

    pub(crate) fn complete_activity(
        &mut self,
        sequence: u64,
        worker: &str,
        result: Payload,
    ) -> (Step, Result<TaskOutcome, Rejection>) {
        let Some(reporter) = self.reporter(sequence, worker) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        let (step, reply) = self.apply(&CompleteActivity { reporter, result });
        (step, reply.map(|reply| reply.outcome))
    }

    pub(crate) fn fail_activity(
        &mut self,
        sequence: u64,
        worker: &str,
        failure: Failure,
    ) -> (Step, Result<TaskOutcome, Rejection>) {
        let Some(reporter) = self.reporter(sequence, worker) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        let (step, reply) = self.apply(&FailActivity { reporter, failure });
        (step, reply.map(|reply| reply.outcome))
    }

    pub(crate) fn beat(
        &mut self,
        sequence: u64,
        worker: &str,
        progress: Option<Value>,
    ) -> (Step, Result<String, Rejection>) {
        let Some(reporter) = self.reporter(sequence, worker) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        let (step, reply) = self.apply(&HeartbeatActivity {
            reporter,
            request: HeartbeatRequest::Renew { progress },
            session: None,
        });
        (
            step,
            reply.map(|reply| {
                format!(
                    "can_continue={} cancel_requested={} reason={:?}",
                    reply.can_continue,
                    reply.cancel_requested,
                    reply.reason.map(|reason| reason.as_str())
                )
            }),
        )
    }
}

/// Returns the worker as the holder of the task, with this attempt.
fn held_by(row: TaskRow, worker: &str, attempt: u64) -> Holder {
    Holder {
        named: TaskHolder {
            namespace: row.namespace.clone(),
            task_id: row.task_id.clone(),
            owner: WorkerId::from(worker),
            attempt,
            principal: None,
        },
        row: Box::new(row),
    }
}
