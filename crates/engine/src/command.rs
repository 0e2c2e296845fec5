//! Every command that can change a run, in one list. A type that is not listed here cannot be decided: [`Command`] requires its
//! [`CommandKind`]. Each command has a file in the folder of its family under `run/`.

use crate::run::state::Run;
use crate::{Decision, Moment};

/// One input to an existing run.
pub trait Command: Listed {
    /// The reply to the caller once the decision is durable.
    type Reply;

    /// Decides on `run` as it is at `moment`.
    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply>;
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
}

impl<C: Listed> Listed for &C {
    const KIND: CommandKind = C::KIND;
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $text:literal in $($module:ident)::+;)*) => {
        $(pub use crate::run::$($module::)+$name;)*

        /// Which command it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CommandKind {
            $($(#[$doc])* $name,)*
        }

        impl CommandKind {
            /// Every kind, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

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
    Start = "start" in start;
    SignalRun = "signal" in message::external;
    UpdateRun = "update" in message::update;
    AppendMessage = "append_message" in message::stream;
    /// Cancels or terminates the run at once.
    StopRun = "stop" in message::external;
    /// Asks the workflow to clean up and end.
    RequestCancellation = "request_cancellation" in cancellation;
    RepairRun = "repair" in operator::repair;
    ArchiveRun = "archive" in operator::archive;

    // From the worker that holds, or claims, the workflow task.
    ClaimWorkflowTask = "claim_workflow_task" in workflow_task::claim;
    /// Reads only, unless the run's deadline has passed.
    ReadHistory = "read_history" in workflow_task::read_history;
    HeartbeatWorkflowTask = "heartbeat_workflow_task" in workflow_task::heartbeat;
    /// The only place where workflow commands become events.
    CompleteWorkflowTask = "complete_workflow_task" in workflow_task::complete;
    FailWorkflowTask = "fail_workflow_task" in workflow_task::fail;
    ReleaseWorkflowTask = "release_workflow_task" in workflow_task::release;
    DeliverCancellation = "deliver_cancellation" in cancellation;

    // From the worker of a local activity, under the lease of the workflow task.
    CheckpointCommands = "checkpoint_commands" in local_activity::checkpoint;
    PrepareLocalActivity = "prepare_local_activity" in local_activity::prepare;
    HeartbeatLocalActivity = "heartbeat_local_activity" in local_activity::attempt;
    EndLocalAttempt = "end_local_attempt" in local_activity::attempt;
    AcknowledgeLocalStop = "acknowledge_local_stop" in local_activity::attempt;
    RecoverLocalActivity = "recover_local_activity" in local_activity::recover;

    // From the worker of an activity.
    ClaimActivityTask = "claim_activity_task" in activity::claim;
    HeartbeatActivity = "heartbeat_activity" in activity::heartbeat;
    CompleteActivity = "complete_activity" in activity::report;
    FailActivity = "fail_activity" in activity::report;
    AcknowledgeStop = "acknowledge_stop" in activity::stop;

    // From other runs, by the outbox.
    ReportChildRun = "report_child_run" in family::child;
    PassOnCancellation = "pass_on_cancellation" in cancellation;
    /// The receiver has the message; its sender deletes it.
    ConfirmDelivery = "confirm_delivery" in family::outbox;

    // From the host itself.
    /// Applies everything that is due.
    AdvanceTime = "advance_time" in advance_time;
    AuditRun = "audit" in operator::audit;
}
