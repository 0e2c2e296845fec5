//! Every refusal of the engine. A rejection is part of the protocol and expected. Each names one reason; its fields are the other
//! facts in the reply.

use longhaul_protocol::history::LimitBreach;
use longhaul_protocol::id::{RunId, TaskId, WorkerId};
use longhaul_protocol::workflow_command::FieldErrors;
use longhaul_protocol::{Reason, Timestamp};

use crate::change::TaskStatus;
use crate::run::message::external::Receipt;
use crate::run::state::{Closed, ClosedReason, Program, Status};
use crate::session;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    #[error("there is no such task")]
    TaskNotFound,
    #[error("the task cannot be leased now: {}", reason.as_str())]
    NotClaimable { reason: Reason },
    /// The session of the task refuses the worker.
    #[error(transparent)]
    SessionRefused(Box<session::Refusal>),
    #[error("the run is closed")]
    RunClosed(Box<RunClosed>),
    #[error("the run timed out")]
    RunTimedOut { run_id: RunId },
    #[error("the task is not leased")]
    TaskNotLeased { task_status: TaskStatus },
    #[error("the lease has expired")]
    LeaseExpired {
        owner: WorkerId,
        expires_at: Timestamp,
    },
    #[error("a different worker holds the lease")]
    LeaseOwnerMismatch { owner: WorkerId },
    #[error("the lease belongs to a different attempt")]
    AttemptMismatch { current: u64 },
    #[error("the commands contradict the run's history")]
    InvalidCommands { errors: FieldErrors },
    #[error("a different version of this change is recorded")]
    VersionMarkerConflict { errors: FieldErrors },
    #[error("the activity has no such attempt")]
    AttemptNotFound,
    #[error("the attempt belongs to a different task")]
    TaskMismatch,
    #[error("a different attempt is current")]
    StaleAttempt,
    #[error("the attempt has already finished")]
    AttemptClosed,
    #[error("the activity was cancelled")]
    ActivityCancelled,
    #[error("the run is closed and accepts no more commands")]
    RunNotActive { status: Status },
    #[error("the run is open; only a closed run can be archived")]
    RunNotClosed,
    #[error("the run is decided by {} and does not accept this command", program_words(*program))]
    OtherProgram { program: Program },
    #[error("the run is not paused")]
    RunNotPaused,
    #[error("the run is paused")]
    RunPaused,
    #[error("{message}")]
    InboxFull { message: String },
    #[error("{message}")]
    ValueTooLarge { message: String },
    #[error("the workflow has not ended; only a workflow that has ended can be opened again")]
    RunNotEnded,
    #[error("the workflow has completed, and its definition is not restartable")]
    RunNotRestartable,
    #[error("the workflow has no failed or cancelled task to retry")]
    NothingToRetry,
    #[error("the workflow has no task {reference}, or it is inside of a loop or a dynamic fork")]
    ReferenceUnknown { reference: String },
    #[error("the task {reference} cannot be skipped: {why}")]
    NotSkippable {
        reference: Box<str>,
        why: &'static str,
    },
    #[error("the workflow cannot go on from the task {reference}: {why}")]
    NotRerunnable {
        reference: Box<str>,
        why: &'static str,
    },
    #[error("the message is about an earlier life of the run")]
    EarlierLife,
    #[error("the idempotency key belongs to run {run_id}")]
    KeyTaken { run_id: RunId },
    #[error("{message}")]
    SchemaMismatch { message: String },
    #[error("{message}")]
    SchemaNotCompared { message: String },
    #[error("the run is not the current run of the workflow")]
    NotCurrent,
    #[error("the workflow id is in use")]
    AlreadyStarted { run_id: RunId },
    #[error("the workflow id belongs to a different workflow type")]
    OtherWorkflowType { workflow_type: String },
    #[error("a search attribute does not match its definition in this namespace")]
    InvalidSearchAttributes { errors: FieldErrors },
    #[error("structural limit {} exceeded: {} is over {}", .0.kind, .0.value, .0.configured)]
    LimitExceeded(LimitBreach),
    #[error("the request id was already used for a different command")]
    RequestIdConflict {
        command: Box<crate::change::CommandRow>,
        conflict: Vec<&'static str>,
    },
    #[error("the workflow does not declare this signal")]
    UnknownSignal { declared: Vec<String> },
    #[error("the arguments do not match the declared signal")]
    InvalidSignalArguments { errors: FieldErrors },
    #[error("no worker of the queue supports cancellation requests; use cancel or terminate")]
    NotCooperative,
    #[error(
        "the worker that holds the workflow task does not support cancellation requests; try again later"
    )]
    ActiveClaimNotCooperative { task_id: TaskId, attempt: u64 },
    #[error(
        "the run has a different cancellation request, or it was delivered at a different call"
    )]
    CancellationMismatch,
    #[error("the local activity cannot continue: {}", reason.as_str())]
    LocalActivityRefused { reason: Reason },
    #[error("the message id was already used for a different message")]
    MessageIdentityConflict { position: u64 },
    #[error("{}", .0.message)]
    UpdateRefused(Box<UpdateRefused>),
}

fn program_words(program: Program) -> &'static str {
    match program {
        Program::Code => "a worker that replays it",
        Program::Definition => "its definition",
    }
}

/// An update that was refused on an open run, with its record.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateRefused {
    pub reason: Reason,
    pub message: String,
    pub receipt: Receipt,
    pub declared: Vec<String>,
}

/// Facts for a worker about a run that ended while it worked.
#[derive(Clone, Debug, PartialEq)]
pub struct RunClosed {
    pub status: Status,
    pub closed: Closed,
    pub task_status: TaskStatus,
    pub lease_owner: Option<WorkerId>,
    pub lease_expires_at: Option<Timestamp>,
}

impl Rejection {
    pub fn reason(&self) -> Reason {
        match self {
            Self::TaskNotFound => Reason::TaskNotFound,
            Self::NotClaimable { reason } => *reason,
            Self::SessionRefused(refusal) => refusal.reason(),
            Self::RunClosed(_) => Reason::RunClosed,
            Self::RunTimedOut { .. } => Reason::RunTimedOut,
            Self::TaskNotLeased { .. } => Reason::TaskNotLeased,
            Self::LeaseExpired { .. } => Reason::LeaseExpired,
            Self::LeaseOwnerMismatch { .. } => Reason::LeaseOwnerMismatch,
            Self::AttemptMismatch { .. } => Reason::WorkflowTaskAttemptMismatch,
            Self::InvalidCommands { .. } => Reason::InvalidCommands,
            Self::VersionMarkerConflict { .. } => Reason::VersionMarkerConflict,
            Self::AttemptNotFound => Reason::AttemptNotFound,
            Self::TaskMismatch => Reason::TaskMismatch,
            Self::StaleAttempt => Reason::StaleAttempt,
            Self::AttemptClosed => Reason::AttemptClosed,
            Self::ActivityCancelled => Reason::ActivityCancelled,
            Self::RunNotActive { .. } => Reason::RunNotActive,
            Self::RunNotClosed => Reason::RunNotClosed,
            Self::RunNotPaused => Reason::RunNotPaused,
            Self::RunPaused => Reason::RunPaused,
            Self::InboxFull { .. } => Reason::InboxFull,
            Self::ValueTooLarge { .. } => Reason::ValueTooLarge,
            Self::RunNotEnded => Reason::RunNotEnded,
            Self::RunNotRestartable => Reason::RunNotRestartable,
            Self::NothingToRetry => Reason::NothingToRetry,
            Self::ReferenceUnknown { .. } => Reason::TaskNotFound,
            Self::NotSkippable { .. } => Reason::TaskNotSkippable,
            Self::NotRerunnable { .. } => Reason::TaskNotRerunnable,
            Self::EarlierLife => Reason::HistoricalRunCommandRejected,
            Self::KeyTaken { .. } => Reason::IdempotencyKeyTaken,
            Self::SchemaMismatch { .. } => Reason::SchemaMismatch,
            Self::SchemaNotCompared { .. } => Reason::ServerBusy,
            Self::OtherProgram { .. } => Reason::OtherProgram,
            Self::NotCurrent => Reason::HistoricalRunCommandRejected,
            Self::AlreadyStarted { .. } => Reason::InstanceAlreadyStarted,
            Self::OtherWorkflowType { .. } | Self::InvalidSearchAttributes { .. } => {
                Reason::ValidationFailed
            }
            Self::LimitExceeded(_) => Reason::StructuralLimitExceeded,
            Self::RequestIdConflict { .. } => Reason::RequestIdConflict,
            Self::UnknownSignal { .. } => Reason::UnknownSignal,
            Self::InvalidSignalArguments { .. } => Reason::InvalidSignalArguments,
            Self::NotCooperative => Reason::CooperativeCancellationNotSupported,
            Self::ActiveClaimNotCooperative { .. } => Reason::ActiveClaimCancellationNotSupported,
            Self::CancellationMismatch => Reason::CancellationRequestMismatch,
            Self::MessageIdentityConflict { .. } => Reason::MessageIdentityConflict,
            Self::LocalActivityRefused { reason } => *reason,
            Self::UpdateRefused(refused) => refused.reason,
        }
    }
}

/// Returns the reason for refusing an activity report or heartbeat of a closed run. The worker must know what stopped it.
pub fn activity_reason(closed: ClosedReason) -> Reason {
    match closed {
        ClosedReason::Cancelled => Reason::RunCancelled,
        ClosedReason::Terminated => Reason::RunTerminated,
        ClosedReason::Completed
        | ClosedReason::Continued
        | ClosedReason::Failed
        | ClosedReason::TimedOut => Reason::RunClosed,
    }
}
