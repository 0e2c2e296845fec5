//! One run in memory: its code as a future, driven by its history. It uses no clock, no I/O and no threads.
//!
//! Events are replayed one at a time, in order. After each event the code runs until it waits again. So the calls of the code
//! depend only on the order of the events, and not on how the events are divided into tasks and pages.

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

use super::event::{
    CallFacts, CancellationFacts, HistoryEvent, SignalFacts, UpdateFacts, UpdateIdentity,
};
use super::journal::{Journal, RunInfo};
use super::replay_error::ReplayError;
use crate::definition::WorkflowDefinition;
use crate::error::{Ending, Failure, TimeoutKind, WorkflowError, panic_text};
use crate::workflow::call::{FailedHow, Outcome};
use crate::workflow::context::WorkflowContext;
use crate::workflow::local::LocalFacts;
use crate::workflow::scope::Scopes;

/// The failure type of a workflow that ended because of a cancellation request.
const CANCELLED_TYPE: &str = "WorkflowCancellationRequested";

/// One run and its code.
pub(crate) struct Execution {
    journal: Arc<Journal>,
    tasks: Arc<Tasks>,
    main: Option<BoxFuture<'static, Result<Payload, WorkflowError>>>,
    main_flag: Arc<Flag>,
    outcome: Option<Result<Payload, WorkflowError>>,
    /// The position of the last replayed event.
    applied: u64,
    started: bool,
    /// The run is closed: later events do not run its code.
    closed: bool,
    /// The id of an update whose handler ran before the history had the update.
    ahead: Option<String>,
    /// Accepted updates whose handlers have not run.
    accepted: HashMap<String, UpdateFacts>,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// The commands for the server, in order. Empty if the code waits for recorded calls only.
    pub(crate) commands: Vec<Value>,
    /// Whether the last command closes the run.
    pub(crate) closes: bool,
}

/// The result of an update handler.
pub(crate) enum Handled {
    Completed(Payload),
    Failed(Failure),
    Unknown,
}

impl Execution {
    pub(crate) fn new(definition: &WorkflowDefinition, info: RunInfo, arguments: Payload) -> Self {
        let journal = Journal::new(info, definition.messages.clone());
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

    /// Returns the position of the last replayed event.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns whether this execution can replay the events. It cannot if it ran the handler of an update at another place than
    /// the history has it. Then the run must be replayed from the beginning.
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
        // The update is not recorded: its task is still open, or failed.
        false
    }

    /// Replays the events that this execution has not replayed yet.
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
                if event.event_type == "WorkflowStarted" && self.outcome.is_none() {
                    self.journal.check_handlers()?;
                }
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
        self.journal.drop_closed();
        Ok(())
    }

    /// Returns the outcome of the code, if it has ended.
    pub(crate) fn outcome(&self) -> Option<&Result<Payload, WorkflowError>> {
        self.outcome.as_ref()
    }

    /// Returns whether a cancellation was delivered to the code.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.journal
            .with(|state| state.scopes.is_cancelled(Scopes::ROOT))
    }

    /// Returns whether the code has made a call or ended, and the history does not have it yet.
    pub(crate) fn has_news(&self) -> bool {
        self.outcome.is_some() || !self.journal.unrecorded_before(u64::MAX).is_empty()
    }

    /// Applies an event. Returns whether the code must run after it.
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
                            "payloads have the codec `{codec}`; this worker reads `{CODEC}`"
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
                    // The caller got the answer when the update was applied; a replay only needs the changed state.
                    let _answered_before =
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
                // The server has closed this call, even if it only marks a shield.
                self.journal.resolve(place.sequence, Outcome::Interrupted);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Runs the code until all of its futures wait.
    fn run(&mut self) -> Result<(), ReplayError> {
        loop {
            let mut moved = false;
            if let Some(main) = &mut self.main
                && self.main_flag.lower()
            {
                moved = true;
                let waker = Waker::from(self.main_flag.clone());
                let polled = catch_unwind(AssertUnwindSafe(|| {
                    main.as_mut().poll(&mut TaskContext::from_waker(&waker))
                }));
                match polled {
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(outcome)) => {
                        self.outcome = Some(outcome);
                        self.main = None;
                    }
                    Err(panic) => return Err(panicked(&*panic)),
                }
            }
            moved |= self.tasks.run()?;
            if let Some(problem) = self.journal.with(|state| state.problem.take()) {
                return Err(problem);
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Returns the commands that the code has made.
    pub(crate) fn decide(&mut self) -> Result<Decision, ReplayError> {
        let mut commands = self.journal.commands();
        let closes = self.outcome.is_some();
        match &self.outcome {
            Some(outcome) => {
                // A run that ends does not send its open waits again.
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

    /// Resolves a local activity that is reported with the completion of the task, and runs the code.
    pub(crate) fn resolve_local(
        &mut self,
        sequence: u64,
        command: Value,
        outcome: Outcome,
    ) -> Result<(), ReplayError> {
        self.journal.complete_local(sequence, command);
        self.journal.resolve(sequence, outcome);
        self.journal.wake_watchers();
        self.run()
    }

    /// Runs the handler of an accepted update. The code itself continues when the history has the update.
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

    /// Calls the validator of an update. Returns `None` if the update has no handler.
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

    /// Calls the handler of a query. Returns `None` if the query has no handler.
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
        let answer = catch_unwind(AssertUnwindSafe(handler));
        self.journal.with(|state| {
            state.in_handler = false;
            state.problem.take().map_or(Ok(()), Err)
        })?;
        Ok(answer.unwrap_or_else(|panic| Err(Failure::panicked("the handler", &*panic))))
    }
}

/// Returns whether the code runs after an event of this type.
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

/// Futures that run concurrently with the workflow function ([`WorkflowContext::spawn`]).
#[derive(Default)]
pub(crate) struct Tasks {
    list: Mutex<Vec<Option<Task>>>,
}

impl Tasks {
    pub(crate) fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.list.lock().push(Some((future, Flag::raised())));
    }

    /// Runs the woken futures, in the order in which they were spawned. Returns whether one was woken.
    fn run(&self) -> Result<bool, ReplayError> {
        let mut moved = false;
        let mut index = 0;
        loop {
            // Taken out of the list while it runs, because it may spawn others.
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
                let polled = catch_unwind(AssertUnwindSafe(|| {
                    future.as_mut().poll(&mut TaskContext::from_waker(&waker))
                }));
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

/// Whether a future was woken.
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
