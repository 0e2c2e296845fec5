//! Every command that can change a run, in one list. A type that is not listed here cannot be decided: [`Command`] requires its
//! [`CommandKind`]. Each command has a file in the folder of its family under `run/`.

use crate::change::DocumentChange;
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::run::state::{Program, Run};
use crate::{Decision, Moment};

/// One input to an existing run.
pub trait Command: Listed {
    /// The reply to the caller once the decision is durable.
    type Reply;

    /// Decides on `run` as it is at `moment`.
    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply>;

    /// Decides on `run` with what was looked up, or returns what must be looked up first. A command on a run of code never needs
    /// anything.
    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Self::Reply> {
        let _ = found;
        Step::Decided(self.decide(run, moment))
    }
}

/// A type that is in the list of commands.
pub trait Listed {
    const KIND: CommandKind;
}

impl<C: Command> Command for &C {
    type Reply = C::Reply;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<C::Reply> {
        (*self).decide(run, moment)
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<C::Reply> {
        (*self).step(run, moment, found)
    }
}

impl<C: Listed> Listed for &C {
    const KIND: CommandKind = C::KIND;
}

/// A command whose commit also records that it was decided. The record is a new document, so a command that was decided before is
/// not committed again: the commit fails with a conflict.
#[derive(Clone, Debug)]
pub struct Recorded<C> {
    pub command: C,
    pub record: DocumentChange,
}

/// The reply to a recorded command.
#[derive(Clone, Debug)]
pub struct RecordedReply<R> {
    pub reply: R,
    /// Whether the record was written. A command that changed nothing writes none.
    pub is_recorded: bool,
}

impl<C: Listed> Listed for Recorded<C> {
    const KIND: CommandKind = C::KIND;
}

impl<C: Command> Command for Recorded<C> {
    type Reply = RecordedReply<C::Reply>;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply> {
        self.with_record(self.command.decide(run, moment))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<Self::Reply> {
        match self.command.step(run, moment, found) {
            Step::Decided(decision) => Step::Decided(self.with_record(decision)),
            Step::Needs(needs) => Step::Needs(needs),
        }
    }
}

impl<C: Command> Recorded<C> {
    fn with_record(&self, mut decision: Decision<C::Reply>) -> Decision<RecordedReply<C::Reply>> {
        let is_recorded = decision.changes.run.is_some() && decision.reply.is_ok();
        if is_recorded {
            let documents = decision.changes.documents.into_iter();
            decision.changes.documents = documents.chain([self.record.clone()]).collect();
        }
        decision.map(|reply| RecordedReply { reply, is_recorded })
    }
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $text:literal in $($module:ident)::+;)*) => {
        $(pub use crate::$($module::)+$name;)*

        /// Which command it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CommandKind {
            $($(#[$doc])* $name,)*
        }

        impl CommandKind {
            /// Every kind, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns whether a run with this program accepts the command.
            pub fn is_for(self, program: Program) -> bool {
                let of_definitions = [
                    Self::ClaimExecutionTasks,
                    Self::UpdateExecutionTask,
                    Self::RenewExecutionTask,
                    Self::ContinuePass,
                    Self::TerminateExecution,
                    Self::PauseExecution,
                    Self::ResumeExecution,
                    Self::ReportExecution,
                    Self::RestartExecution,
                    Self::RetryExecution,
                    Self::RerunExecution,
                    Self::ReopenForChild,
                    Self::SkipTask,
                    Self::ResetCallbacks,
                    Self::AddTaskLog,
                    Self::MergeVariables,
                    Self::UpdateExecutionState,
                    Self::PushMessage,
                ];
                let of_both = [
                    Self::Start,
                    Self::StopRun,
                    Self::ArchiveRun,
                    Self::ConfirmDelivery,
                    Self::AdvanceTime,
                    Self::AuditRun,
                    Self::ReportChildRun,
                ];
                match program {
                    Program::Code => !of_definitions.contains(&self),
                    Program::Definition => of_definitions.contains(&self) || of_both.contains(&self),
                }
            }

            /// Returns whether the command leases tasks.
            pub fn is_claim(self) -> bool {
                matches!(
                    self,
                    Self::ClaimWorkflowTask | Self::ClaimActivityTask | Self::ClaimExecutionTasks
                )
            }

            /// Returns the name in logs.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        $(impl Listed for $name {
            const KIND: CommandKind = CommandKind::$name;
        })*
    };
}

commands! {
    // From the control plane.
    /// Starts a workflow, or returns the run that already has its id.
    Start = "start" in run::start;
    SignalRun = "signal" in run::message::external;
    UpdateRun = "update" in run::message::update;
    AppendMessage = "append_message" in run::message::stream;
    /// Cancels or terminates the run at once.
    StopRun = "stop" in run::message::external;
    /// Asks the workflow to clean up and end.
    RequestCancellation = "request_cancellation" in run::cancellation;
    RepairRun = "repair" in run::operator::repair;
    ArchiveRun = "archive" in run::operator::archive;

    // From the worker that holds, or claims, the workflow task.
    ClaimWorkflowTask = "claim_workflow_task" in run::workflow_task::claim;
    /// Reads only, unless the run's deadline has passed.
    ReadHistory = "read_history" in run::workflow_task::read_history;
    HeartbeatWorkflowTask = "heartbeat_workflow_task" in run::workflow_task::heartbeat;
    /// The only place where workflow commands become events.
    CompleteWorkflowTask = "complete_workflow_task" in run::workflow_task::complete;
    FailWorkflowTask = "fail_workflow_task" in run::workflow_task::fail;
    ReleaseWorkflowTask = "release_workflow_task" in run::workflow_task::release;
    DeliverCancellation = "deliver_cancellation" in run::cancellation;

    // From the worker of a local activity, under the lease of the workflow task.
    CheckpointCommands = "checkpoint_commands" in run::local_activity::checkpoint;
    PrepareLocalActivity = "prepare_local_activity" in run::local_activity::prepare;
    HeartbeatLocalActivity = "heartbeat_local_activity" in run::local_activity::attempt;
    EndLocalAttempt = "end_local_attempt" in run::local_activity::attempt;
    AcknowledgeLocalStop = "acknowledge_local_stop" in run::local_activity::attempt;
    RecoverLocalActivity = "recover_local_activity" in run::local_activity::recover;

    // From the worker of an activity.
    ClaimActivityTask = "claim_activity_task" in run::activity::claim;
    HeartbeatActivity = "heartbeat_activity" in run::activity::heartbeat;
    CompleteActivity = "complete_activity" in run::activity::report;
    FailActivity = "fail_activity" in run::activity::report;
    AcknowledgeStop = "acknowledge_stop" in run::activity::stop;

    // From other runs, by the outbox.
    ReportChildRun = "report_child_run" in run::family::child;
    PassOnCancellation = "pass_on_cancellation" in run::cancellation;
    /// The receiver has the message; its sender deletes it.
    ConfirmDelivery = "confirm_delivery" in run::family::outbox;

    // From the host itself.
    /// Applies everything that is due.
    AdvanceTime = "advance_time" in run::advance_time;
    AuditRun = "audit" in run::operator::audit;

    // On definition runs.
    /// Hands tasks to a worker.
    ClaimExecutionTasks = "claim_execution_tasks" in conductor::execution::command::claim;
    /// A server goes on with a task that it took.
    RenewExecutionTask = "renew_execution_task" in conductor::execution::command::claim;
    /// A report on a task.
    UpdateExecutionTask = "update_execution_task" in conductor::execution::command::update;
    /// Goes on with a pass that reached its bound.
    ContinuePass = "continue_pass" in conductor::execution::command::control;
    TerminateExecution = "terminate_execution" in conductor::execution::command::control;
    PauseExecution = "pause_execution" in conductor::execution::command::control;
    ResumeExecution = "resume_execution" in conductor::execution::command::control;
    /// A line for the log of a task.
    AddTaskLog = "add_task_log" in conductor::execution::command::log;
    /// Sets or extends variables of a run.
    MergeVariables = "merge_variables" in conductor::execution::command::variables;
    /// Sets variables of a run and reports on one of its tasks.
    UpdateExecutionState = "update_execution_state" in conductor::execution::command::state;
    /// Puts a message into the inbox of a run.
    PushMessage = "push_message" in conductor::execution::command::message;
    /// The run of a sub-workflow ended.
    ReportExecution = "report_execution" in conductor::execution::command::control;
    RestartExecution = "restart_execution" in conductor::execution::command::reopen;
    RetryExecution = "retry_execution" in conductor::execution::command::reopen;
    RerunExecution = "rerun_execution" in conductor::execution::command::reopen;
    /// The run of a sub-workflow was opened again.
    ReopenForChild = "reopen_for_child" in conductor::execution::command::reopen;
    SkipTask = "skip_task" in conductor::execution::command::operate;
    ResetCallbacks = "reset_callbacks" in conductor::execution::command::operate;
}
