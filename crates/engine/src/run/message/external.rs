//! Commands from outside on a workflow: signal, cancel, terminate; updates have their own file. Each is numbered per workflow and
//! kept for audit. A repeat of its request id is answered from that record.

use longhaul_protocol::history::{CloseRequested, EventPayload, RunStopped};
use longhaul_protocol::id::{CommandId, RunId};
use longhaul_protocol::{Payload, Reason};

use crate::change::{CommandRow, CommandStatus, CommandType, TargetScope};
use crate::conductor::execution::command::control;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::contract::Declared;
use crate::run::draft::{Cause, Draft};
use crate::run::state::{ClosedReason, Outcome, Program, Run, RunFailure, Signal};
use crate::{Command, Decision, Moment, Rejection, digest, limits};

/// The fields that all external commands have.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Set if the caller named a run: it must be the current one.
    pub requested_run_id: Option<RunId>,
    pub request_id: Option<String>,
    /// The command that was already recorded under this request id.
    pub earlier: Option<Box<Earlier>>,
    pub principal: Option<String>,
    /// How the command arrived: text that is stored and never read here.
    pub context: Option<String>,
}

/// A recorded command, and the run that recorded it.
#[derive(Clone, Debug)]
pub struct Earlier {
    pub run_id: RunId,
    pub command: CommandRow,
}

/// Sends a signal.
#[derive(Clone, Debug)]
pub struct SignalRun {
    pub request: Request,
    pub name: String,
    pub arguments: Payload,
    /// What the workflow declares about its signals.
    pub declared: Declared,
}

/// Closes the run from outside.
#[derive(Clone, Debug)]
pub struct StopRun {
    pub request: Request,
    pub how: Stop,
    pub reason: Option<String>,
    /// The only life of a definition run that is stopped. A run of code has one.
    pub life: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancel,
    Terminate,
}

/// The record of a command, with the run that recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    pub run_id: RunId,
    pub workflow_type: String,
    pub command: CommandRow,
    /// Whether this is the reply to an earlier request with the same id.
    pub retained: bool,
}

impl Request {
    fn scope(&self) -> TargetScope {
        match self.requested_run_id {
            Some(_) => TargetScope::Run,
            None => TargetScope::Instance,
        }
    }

    /// Returns the command that was recorded under this request id, or a refusal if that command was refused or is a different one.
    /// `None` if the request id is new.
    pub(crate) fn earlier(
        &self,
        run: &Run,
        command_type: CommandType,
        name: Option<&str>,
        arguments: Option<&Payload>,
    ) -> Option<Result<&Earlier, Rejection>> {
        let earlier = self.earlier.as_deref()?;
        let command = &earlier.command;
        let mut conflict = Vec::new();
        if command.command_type != command_type || command.target_name.as_deref() != name {
            conflict.push("name");
        }
        if !command.has_arguments(arguments) {
            conflict.push("arguments");
        }
        if command.requested_run_id != self.requested_run_id {
            conflict.push("target");
        }
        Some(if !conflict.is_empty() {
            Err(Rejection::RequestIdConflict {
                command: Box::new(command.clone()),
                conflict,
            })
        } else if command.status == CommandStatus::Rejected {
            Err(refused_before(&earlier.run_id, run, command))
        } else {
            Ok(earlier)
        })
    }

    /// Returns the decision for a request whose id is already recorded, or `None` if it is new.
    pub(crate) fn repeat(
        &self,
        run: &Run,
        command_type: CommandType,
        name: Option<&str>,
        arguments: Option<&Payload>,
    ) -> Option<Decision<Receipt>> {
        let earlier = self.earlier(run, command_type, name, arguments)?;
        Some(match earlier {
            Ok(earlier) => Decision::unchanged(Receipt {
                run_id: earlier.run_id.clone(),
                workflow_type: run.spec.workflow_type.clone(),
                command: earlier.command.clone(),
                retained: true,
            }),
            Err(rejection) => Decision::reject(rejection),
        })
    }
}

/// Returns the refusal of a command that was refused before.
fn refused_before(run_id: &RunId, run: &Run, command: &CommandRow) -> Rejection {
    if command.rejection_reason.as_deref() == Some(Reason::RunNotClosed.as_str()) {
        return Rejection::RunNotClosed;
    }
    let update = crate::run::message::update::refused_before(run_id, run, command);
    update.unwrap_or(Rejection::RunNotActive {
        status: run.core.status,
    })
}

impl Draft<'_> {
    /// Records the command with everything a repeat is compared with.
    pub(crate) fn record_request(
        &mut self,
        request: &Request,
        command_type: CommandType,
        name: Option<&str>,
        arguments: Option<&Payload>,
        outcome: &str,
        rejection: Option<&str>,
    ) -> CommandRow {
        let command_id: CommandId = self.ids.mint();
        let row = self.record_command(
            command_type,
            command_id,
            outcome,
            rejection,
            request.principal.clone(),
        );
        row.target_name = name.map(str::to_owned);
        row.target_scope = request.scope();
        row.requested_run_id.clone_from(&request.requested_run_id);
        row.request_id.clone_from(&request.request_id);
        // Only a request id is ever compared.
        row.arguments_digest = arguments
            .filter(|_| request.request_id.is_some())
            .map(digest::of);
        row.context.clone_from(&request.context);
        row.clone()
    }

    pub(crate) fn receipt(&self, command: CommandRow) -> Receipt {
        Receipt {
            run_id: self.run_id().clone(),
            workflow_type: self.spec.workflow_type.clone(),
            command,
            retained: false,
        }
    }
}

/// Refuses a command on a run that accepts no more, and records it without touching the history.
pub(crate) fn refuse_closed(
    mut draft: Draft<'_>,
    request: &Request,
    command_type: CommandType,
    name: Option<&str>,
    arguments: Option<&Payload>,
) -> Decision<Receipt> {
    draft.record_request(
        request,
        command_type,
        name,
        arguments,
        "rejected_not_active",
        Some("run_not_active"),
    );
    let status = draft.core.status;
    draft.finish(Err(Rejection::RunNotActive { status }))
}

impl Run {
    /// Returns whether the run accepts signals, updates, cancellation requests, stops and repairs. Only the current run of a
    /// workflow accepts them, and only while it is open.
    pub fn accepts_commands(&self, current_run_id: &RunId) -> bool {
        self.run_id() == current_run_id && !self.core.status.is_terminal()
    }
}

/// Returns whether the request is about this run: it names no run, or this one.
pub(crate) fn is_current(run: &Run, request: &Request) -> bool {
    request
        .requested_run_id
        .as_ref()
        .is_none_or(|requested| requested == run.run_id())
}

impl Command for SignalRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        let name = Some(self.name.as_str());
        if let Some(repeat) =
            self.request
                .repeat(run, CommandType::Signal, name, Some(&self.arguments))
        {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            return refuse_closed(
                draft,
                &self.request,
                CommandType::Signal,
                name,
                Some(&self.arguments),
            );
        }
        if !self.declared.knows(&self.name) {
            return Decision::reject(Rejection::UnknownSignal {
                declared: self.declared.names.clone(),
            });
        }
        let errors = self.declared.check(&self.name, &self.arguments);
        if !errors.is_empty() {
            return Decision::reject(Rejection::InvalidSignalArguments { errors });
        }
        let room = limits::check(
            "payload_size",
            self.arguments.blob().len() as u64,
            moment.limits.payload_bytes,
        )
        .and_then(|()| {
            limits::check(
                "pending_signal_count",
                run.core.open.unseen_signals + 1,
                moment.limits.pending_signals,
            )
        })
        .and_then(|()| {
            limits::check(
                "pending_signal_bytes",
                run.core.open.unseen_signal_bytes + self.arguments.blob().len() as u64,
                moment.limits.pending_signal_bytes,
            )
        })
        .and_then(|()| run.admit_events(1, moment.limits));
        if let Err(limit) = room {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let command = draft.record_request(
            &self.request,
            CommandType::Signal,
            name,
            Some(&self.arguments),
            "signal_received",
            None,
        );
        let signal = Signal {
            command_sequence: command.sequence,
            id: draft.ids.mint(),
            command_id: command.command_id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            wait_id: None,
            received_at: None,
            principal: self.request.principal.clone(),
            stream: None,
        };
        draft.signals().accept(signal);
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
}

impl Stop {
    pub fn command_type(self) -> CommandType {
        match self {
            Self::Cancel => CommandType::Cancel,
            Self::Terminate => CommandType::Terminate,
        }
    }

    fn closed_reason(self) -> ClosedReason {
        match self {
            Self::Cancel => ClosedReason::Cancelled,
            Self::Terminate => ClosedReason::Terminated,
        }
    }
}

impl Command for StopRun {
    type Reply = Receipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Receipt> {
        let command_type = self.how.command_type();
        if let Some(repeat) = self.request.repeat(run, command_type, None, None) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            return refuse_closed(draft, &self.request, command_type, None, None);
        }
        draft.signals().flush_buffered();
        let mut command = draft.record_request(
            &self.request,
            command_type,
            None,
            None,
            self.how.closed_reason().as_str(),
            None,
        );
        command.reason.clone_from(&self.reason);
        if let Some(row) = draft.commands.last_mut() {
            row.reason.clone_from(&self.reason);
        }
        draft.stop_run(
            self.how,
            &command.command_id,
            self.reason.as_deref(),
            self.request.principal.clone(),
        );
        let receipt = draft.receipt(command);
        draft.finish(Ok(receipt))
    }
    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Receipt> {
        match run.spec.program {
            Program::Code => Step::Decided(self.decide(run, moment)),
            Program::Definition => control::stop(self, run, moment, found),
        }
    }
}

impl Draft<'_> {
    /// Closes the run from outside, with an event for everything that ends with it.
    pub(crate) fn stop_run(
        &mut self,
        how: Stop,
        command_id: &CommandId,
        reason: Option<&str>,
        principal: Option<String>,
    ) {
        self.cause = Cause {
            task_id: None,
            command_id: Some(command_id.clone()),
            principal,
        };
        let requested = CloseRequested {
            workflow_command_id: command_id.clone(),
            workflow_instance_id: self.spec.workflow_id.clone(),
            workflow_run_id: self.spec.run_id.clone(),
            command_type: how.command_type().as_str(),
            reason: reason.map(str::to_owned),
        };
        self.append(match how {
            Stop::Cancel => EventPayload::CancelRequested(requested),
            Stop::Terminate => EventPayload::TerminateRequested(requested),
        });
        self.close_stopped(how, command_id, reason);
    }

    /// Writes the end of a run that was stopped, or that ended as requested.
    pub(crate) fn close_stopped(
        &mut self,
        how: Stop,
        command_id: &CommandId,
        reason: Option<&str>,
    ) {
        self.cancel_open_work(Some(command_id));
        let word = how.closed_reason().as_str();
        let message = match reason {
            Some(reason) => format!("Workflow {word}: {reason}"),
            None => format!("Workflow {word}."),
        };
        let stopped = RunStopped {
            workflow_command_id: command_id.clone(),
            workflow_instance_id: self.spec.workflow_id.clone(),
            workflow_run_id: self.spec.run_id.clone(),
            failure_id: self.ids.mint(),
            failure_category: word,
            closed_reason: word,
            message: message.clone(),
            reason: reason.map(str::to_owned),
        };
        let event_sequence = self.append(match how {
            Stop::Cancel => EventPayload::WorkflowCancelled(stopped),
            Stop::Terminate => EventPayload::WorkflowTerminated(stopped),
        });
        let failure = RunFailure {
            message,
            failure_category: word.to_owned(),
            non_retryable: false,
            exception_type: None,
            exception_class: None,
            exception: serde_json::Map::new(),
            event_sequence,
        };
        self.close(
            how.closed_reason(),
            reason.map(str::to_owned),
            None,
            Some(Outcome::Failure(Box::new(failure))),
        );
    }
}
