//! One run in memory: its code as a future, driven by its history. History in, commands out; no clock, no I/O, no threads.
//!
//! Events are replayed one at a time, in order, and the code runs after each until it waits again. What the code does is
//! therefore a function of the order of events alone: where tasks began and ended, and how much of the history came with which
//! one, makes no difference.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use futures::future::BoxFuture;
use longhaul_protocol::Payload;
use longhaul_protocol::payload::CODEC;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::call::{FailedHow, Outcome};
use super::context::{WorkflowContext, entered};
use super::event::{
    CallFacts, CancellationFacts, HistoryEvent, SignalFacts, UpdateFacts, UpdateIdentity,
};
use super::journal::{Journal, RunInfo};
use super::local::LocalFacts;
use super::replay_error::ReplayError;
use super::scope::Scopes;
use crate::definition::WorkflowDefinition;
use crate::error::{Ending, Failure, TimeoutKind, WorkflowError, panic_text};

/// The type that says a workflow ended because it was asked to.
const CANCELLED_TYPE: &str = "WorkflowCancellationRequested";

/// See the module.
pub(crate) struct Execution {
    journal: Arc<Journal>,
    tasks: Arc<Tasks>,
    main: Option<BoxFuture<'static, Result<Payload, WorkflowError>>>,
    main_flag: Arc<Flag>,
    outcome: Option<Result<Payload, WorkflowError>>,
    /// Position of the last event that was replayed.
    applied: u64,
    started: bool,
    /// The run was closed: what follows in its history concerns its code no more.
    closed: bool,
    /// An update whose handler ran here before the history had it.
    ahead: Option<String>,
    /// Updates that wait for their handlers.
    accepted: HashMap<String, UpdateFacts>,
}

/// What the code wants after a replay.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// For the server, in order. Empty: nothing new, the code waits for what is recorded.
    pub(crate) commands: Vec<Value>,
    /// Whether the last command closes the run.
    pub(crate) closes: bool,
}

/// What a handler made of an update.
pub(crate) enum Handled {
    Completed(Payload),
    Failed(Failure),
    Unknown,
}

impl Execution {
    pub(crate) fn new(definition: &WorkflowDefinition, info: RunInfo, arguments: Payload) -> Self {
        let journal = Journal::new(info);
        let tasks = Arc::new(Tasks::default());
        let context = WorkflowContext::new(journal.clone(), tasks.clone());
        Self {
            main: Some((definition.run)(context, arguments)),
            journal,
            tasks,
            main_flag: Flag::raised(),
            outcome: None,
            applied: 0,
            started: false,
            closed: false,
            ahead: None,
            accepted: HashMap::new(),
        }
    }

    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Position of the last event that was replayed.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether the events can follow what this execution has seen. They cannot when an update's handler ran here at another
    /// place than the history has it: then the run must be replayed from the beginning.
    pub(crate) fn fits(&self, events: &[HistoryEvent]) -> bool {
        let new = &events[events.partition_point(|event| event.sequence <= self.applied)..];
        if new
            .first()
            .is_some_and(|first| first.sequence != self.applied + 1)
        {
            return false;
        }
        let Some(ahead) = &self.ahead else {
            return true;
        };
        for event in new {
            match event.event_type.as_str() {
                "UpdateApplied" => {
                    return event
                        .read::<UpdateFacts>()
                        .is_ok_and(|update| update.update_id == *ahead);
                }
                quiet if !runs_code(quiet) => {}
                _ => return false,
            }
        }
        // The update is not recorded yet: its task is not over, or came to nothing.
        false
    }

    /// Replays the events that this execution has not seen yet.
    pub(crate) fn apply(&mut self, events: &[HistoryEvent]) -> Result<(), ReplayError> {
        let new = events.partition_point(|event| event.sequence <= self.applied);
        let events = &events[new..];
        if let Some(gap) = events
            .first()
            .filter(|first| first.sequence != self.applied + 1)
        {
            return Err(ReplayError::Damaged {
                position: gap.sequence,
                event_type: gap.event_type.clone(),
                problem: format!("the event after {} is missing", self.applied),
            });
        }
        self.journal.load(events)?;
        for event in events {
            if !self.closed && self.apply_one(event)? {
                self.journal.with(|state| state.now = event.recorded_at);
                self.journal.wake_watchers();
                self.run()?;
            }
            self.applied = event.sequence;
        }
        self.journal.with(|state| {
            state.history_length = self.applied;
            state.problem.take().map_or(Ok(()), Err)
        })?;
        if self.started && !self.closed {
            self.journal.check_complete()?;
        }
        self.journal.forget_closed();
        Ok(())
    }

    /// How the code ended, if it did.
    pub(crate) fn outcome(&self) -> Option<&Result<Payload, WorkflowError>> {
        self.outcome.as_ref()
    }

    /// Whether the workflow was asked to end and knows it.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.journal
            .with(|state| state.scopes.is_cancelled(Scopes::ROOT))
    }

    /// Whether the code has calls or an end to report that the history does not have.
    pub(crate) fn has_news(&self) -> bool {
        self.outcome.is_some() || !self.journal.unrecorded_before(u64::MAX).is_empty()
    }

    /// Whether the code must run after the event.
    fn apply_one(&mut self, event: &HistoryEvent) -> Result<bool, ReplayError> {
        let resolve = |outcome: fn(CallFacts) -> Outcome| -> Result<bool, ReplayError> {
            let facts: CallFacts = event.read()?;
            self.journal.resolve(facts.sequence, outcome(facts));
            Ok(true)
        };
        match event.event_type.as_str() {
            "WorkflowCompleted"
            | "WorkflowFailed"
            | "WorkflowTimedOut"
            | "WorkflowCancelled"
            | "WorkflowTerminated"
            | "WorkflowContinuedAsNew"
            | "CancelRequested"
            | "TerminateRequested" => {
                self.closed = true;
                Ok(false)
            }
            "WorkflowStarted" => {
                let facts: CallFacts = event.read()?;
                if let Some(codec) = facts.payload_codec.filter(|codec| codec != CODEC) {
                    return Err(ReplayError::Damaged {
                        position: event.sequence,
                        event_type: event.event_type.clone(),
                        problem: format!(
                            "payloads of codec `{codec}`; this worker reads `{CODEC}`"
                        ),
                    });
                }
                self.started = true;
                Ok(true)
            }
            "ActivityCompleted" => resolve(|facts| Outcome::Completed(facts.result)),
            "ActivityFailed" | "ChildRunFailed" => resolve(|facts| {
                let how = match facts.closed_reason.as_deref() {
                    Some("timed_out") => FailedHow::TimedOut(TimeoutKind::Other),
                    _ => FailedHow::Failed,
                };
                Outcome::Failed(Box::new(facts), how)
            }),
            "ActivityTimedOut" => resolve(|facts| {
                let kind = TimeoutKind::from_name(facts.timeout_kind.as_deref().unwrap_or(""));
                Outcome::Failed(Box::new(facts), FailedHow::TimedOut(kind))
            }),
            "ActivityCancelled" | "ChildRunCancelled" => {
                resolve(|facts| Outcome::Failed(Box::new(facts), FailedHow::Cancelled))
            }
            "ChildRunTerminated" => {
                resolve(|facts| Outcome::Failed(Box::new(facts), FailedHow::Terminated))
            }
            "ChildRunCompleted" => {
                resolve(|facts| Outcome::Completed(facts.result.or(facts.output)))
            }
            "ChildRunStarted" => {
                self.journal.child_started(event.read()?);
                Ok(true)
            }
            "ActivityStarted" | "ActivityRetryScheduled" => {
                let facts: LocalFacts = event.read()?;
                self.journal.local_progress(&event.event_type, facts);
                Ok(false)
            }
            "TimerFired" => resolve(|facts| {
                if facts.timer_kind.is_some() {
                    Outcome::WaitTimedOut
                } else {
                    Outcome::Fired
                }
            }),
            "ConditionWaitTimedOut" => resolve(|_| Outcome::WaitTimedOut),
            "SignalReceived" => {
                let signal: SignalFacts = event.read()?;
                let arguments = signal.arguments.unwrap_or_else(Payload::empty_list);
                self.journal.with(|state| {
                    state
                        .signals
                        .entry(signal.signal_name)
                        .or_default()
                        .push_back(arguments);
                });
                Ok(true)
            }
            "UpdateAccepted" => {
                let update: UpdateFacts = event.read()?;
                self.accepted.insert(update.update_id.clone(), update);
                Ok(false)
            }
            "UpdateCompleted" => {
                let update: UpdateIdentity = event.read()?;
                self.accepted.remove(&update.update_id);
                Ok(false)
            }
            "UpdateApplied" => {
                let update: UpdateFacts = event.read()?;
                if self
                    .ahead
                    .take_if(|ahead| *ahead == update.update_id)
                    .is_none()
                {
                    // Its answer was given when it was applied; only what it changes matters now.
                    let _answered =
                        self.handle_update(&update.update_name, update.arguments.as_ref())?;
                }
                Ok(true)
            }
            "CooperativeCancellationRequested" => {
                let request: CancellationFacts = event.read()?;
                self.journal
                    .with(|state| state.cancellation_reason = request.reason);
                Ok(false)
            }
            "CooperativeCancellationDelivered" => {
                let place: CallFacts = event.read()?;
                self.journal.with(|state| {
                    state.cleanup = place
                        .workflow_command_id
                        .map(|request_id| (request_id, event.id.clone()));
                });
                self.journal.cancel(Scopes::ROOT);
                // The server has closed this call, also if it only marks a shield.
                self.journal.resolve(place.sequence, Outcome::Interrupted);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Runs the code until all of it waits.
    fn run(&mut self) -> Result<(), ReplayError> {
        loop {
            let mut moved = false;
            if let Some(main) = &mut self.main
                && self.main_flag.lower()
            {
                moved = true;
                let waker = Waker::from(self.main_flag.clone());
                let polled = entered(&self.journal, || {
                    catch_unwind(AssertUnwindSafe(|| {
                        main.as_mut().poll(&mut TaskContext::from_waker(&waker))
                    }))
                });
                match polled {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(outcome)) => {
                        self.outcome = Some(outcome);
                        self.main = None;
                    }
                    Err(panic) => return Err(panicked(&*panic)),
                }
            }
            moved |= self.tasks.run(&self.journal)?;
            if let Some(problem) = self.journal.with(|state| state.problem.take()) {
                return Err(problem);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// What the code wants now.
    pub(crate) fn decide(&mut self) -> Result<Decision, ReplayError> {
        let mut commands = self.journal.commands();
        let closes = self.outcome.is_some();
        match &self.outcome {
            Some(outcome) => {
                // A run that ends does not wait any more: waits that are repeated are left out.
                commands = self.journal.unrecorded_before(u64::MAX);
                commands.push(closing_command(&self.journal.info, outcome));
            }
            None if self.started && !self.journal.waits_for_something() => {
                return Err(ReplayError::Stuck);
            }
            None => {}
        }
        Ok(Decision { commands, closes })
    }

    /// Records what a local activity gave, for a server that hears of it with the completion.
    pub(crate) fn resolve_local(
        &mut self,
        sequence: u64,
        command: Value,
        outcome: Outcome,
    ) -> Result<(), ReplayError> {
        self.journal.settle_local(sequence, command);
        self.journal.resolve(sequence, outcome);
        self.journal.wake_watchers();
        self.run()
    }

    /// Runs an accepted update's handler. The code itself goes on when the history has the update.
    pub(crate) fn update(&mut self, update_id: &str) -> Result<Handled, ReplayError> {
        let Some(update) = self.accepted.remove(update_id) else {
            return Ok(Handled::Unknown);
        };
        self.ahead = Some(update.update_id);
        self.handle_update(&update.update_name, update.arguments.as_ref())
    }

    fn handle_update(
        &mut self,
        name: &str,
        arguments: Option<&Payload>,
    ) -> Result<Handled, ReplayError> {
        let handler = self
            .journal
            .with(|state| state.handlers.updates.get(name).cloned());
        let Some(handler) = handler else {
            return Ok(Handled::Unknown);
        };
        let empty = Payload::empty_list();
        self.in_handler(|| (handler.handle)(arguments.unwrap_or(&empty)))
            .map(|answer| match answer {
                Ok(result) => Handled::Completed(result),
                Err(failure) => Handled::Failed(failure),
            })
    }

    /// Asks an update's validator. `None` if there is no such update.
    pub(crate) fn validate(
        &mut self,
        name: &str,
        arguments: Option<&Payload>,
    ) -> Result<Option<Result<(), Failure>>, ReplayError> {
        let handler = self
            .journal
            .with(|state| state.handlers.updates.get(name).cloned());
        let Some(handler) = handler else {
            return Ok(None);
        };
        let Some(validate) = handler.validate else {
            return Ok(Some(Ok(())));
        };
        let empty = Payload::empty_list();
        self.in_handler(|| validate(arguments.unwrap_or(&empty)))
            .map(Some)
    }

    /// Answers a query. `None` if there is no such query.
    pub(crate) fn query(
        &mut self,
        name: &str,
        arguments: Option<&Payload>,
    ) -> Result<Option<Result<Payload, Failure>>, ReplayError> {
        let handler = self
            .journal
            .with(|state| state.handlers.queries.get(name).cloned());
        let Some(handler) = handler else {
            return Ok(None);
        };
        let empty = Payload::empty_list();
        self.in_handler(|| handler(arguments.unwrap_or(&empty)))
            .map(Some)
    }

    fn in_handler<T>(
        &self,
        handler: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Result<T, Failure>, ReplayError> {
        self.journal.with(|state| state.in_handler = true);
        let answer = entered(&self.journal, || catch_unwind(AssertUnwindSafe(handler)));
        self.journal.with(|state| {
            state.in_handler = false;
            state.problem.take().map_or(Ok(()), Err)
        })?;
        Ok(answer.unwrap_or_else(|panic| Err(Failure::panicked("the handler", &*panic))))
    }
}

/// Whether the workflow's code runs after an event of this type.
fn runs_code(event_type: &str) -> bool {
    !matches!(
        event_type,
        "StartAccepted"
            | "StartRejected"
            | "ActivityScheduled"
            | "ActivityStarted"
            | "ActivityHeartbeatRecorded"
            | "ActivityRetryScheduled"
            | "TimerScheduled"
            | "TimerCancelled"
            | "ConditionWaitOpened"
            | "ConditionWaitSatisfied"
            | "ChildWorkflowScheduled"
            | "SideEffectRecorded"
            | "VersionMarkerRecorded"
            | "SearchAttributesUpserted"
            | "MemoUpserted"
            | "UpdateAccepted"
            | "UpdateRejected"
            | "UpdateCompleted"
            | "CooperativeCancellationRequested"
            | "RepairRequested"
    )
}

fn closing_command(info: &RunInfo, outcome: &Result<Payload, WorkflowError>) -> Value {
    let error = match outcome {
        Ok(result) => return json!({"type": "complete_workflow", "result": result}),
        Err(error) => error,
    };
    match &error.0 {
        Ending::Cancelled => json!({
            "type": "fail_workflow",
            "message": "the workflow was cancelled",
            "exception_type": CANCELLED_TYPE,
            "non_retryable": true,
        }),
        Ending::ContinueAsNew(next) => match next.call.payload() {
            Ok(arguments) => {
                let mut command = json!({"type": "continue_as_new", "arguments": arguments});
                if next.call.name != info.workflow_type {
                    command["workflow_type"] = json!(next.call.name);
                }
                if let Some(queue) = &next.queue {
                    command["queue"] = json!(queue);
                }
                command
            }
            Err(error) => failing_command(&Failure::from(error), None),
        },
        Ending::Failed { failure, step } => failing_command(failure, step.as_ref()),
    }
}

fn failing_command(failure: &Failure, step: Option<&(u64, Option<String>)>) -> Value {
    let mut exception = json!({
        "type": failure.exception_type,
        "message": failure.message,
        "non_retryable": failure.non_retryable,
    });
    if let Some(code) = failure.code {
        exception["code"] = json!(code);
    }
    if let Some(details) = &failure.details {
        exception["details"] = json!(details.blob());
        exception["details_payload_codec"] = json!("avro");
    }
    let mut command = json!({
        "type": "fail_workflow",
        "message": failure.message,
        "exception_type": failure.exception_type,
        "exception": exception,
        "non_retryable": failure.non_retryable,
    });
    if let Some((sequence, execution_id)) = step {
        command["failed_step_sequence"] = json!(sequence);
        if let Some(execution_id) = execution_id {
            command["failed_activity_execution_id"] = json!(execution_id);
        }
    }
    command
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ReplayError {
    ReplayError::Panicked {
        message: panic_text(panic).to_owned(),
    }
}

type Task = (BoxFuture<'static, ()>, Arc<Flag>);

/// Futures that run beside the workflow's own ([`WorkflowContext::spawn`]).
#[derive(Default)]
pub(crate) struct Tasks {
    list: Mutex<Vec<Option<Task>>>,
}

impl Tasks {
    pub(super) fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.list.lock().push(Some((future, Flag::raised())));
    }

    /// Runs those that were woken, in the order they were spawned. Whether any was.
    fn run(&self, journal: &Arc<Journal>) -> Result<bool, ReplayError> {
        let mut moved = false;
        let mut index = 0;
        loop {
            // Taken out while it runs: it may spawn others.
            let taken = {
                let mut list = self.list.lock();
                let Some(slot) = list.get_mut(index) else {
                    return Ok(moved);
                };
                slot.take_if(|(_, flag)| flag.lower())
            };
            if let Some((mut future, flag)) = taken {
                moved = true;
                let waker = Waker::from(flag.clone());
                let polled = entered(journal, || {
                    catch_unwind(AssertUnwindSafe(|| {
                        future.as_mut().poll(&mut TaskContext::from_waker(&waker))
                    }))
                });
                match polled {
                    Ok(Poll::Pending) => self.list.lock()[index] = Some((future, flag)),
                    Ok(Poll::Ready(())) => {}
                    Err(panic) => return Err(panicked(&*panic)),
                }
            }
            index += 1;
        }
    }
}

/// Says that a future was woken.
struct Flag(AtomicBool);

impl Flag {
    fn raised() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    fn lower(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
