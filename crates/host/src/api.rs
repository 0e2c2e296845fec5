//! The types of the crates below that the host's callers need, by name. The server, the embedded server and the binary depend on the
//! host alone; a type that is not listed here is not theirs to use.

pub use longhaul_engine::run::health::{OpenWait, first_wait, waits};
/// Runs and their parts.
pub use longhaul_engine::run::local_activity::LocalActivity;
pub use longhaul_engine::run::start::{DuplicatePolicy, Start, StartOutcome};
pub use longhaul_engine::run::state::budget::Pressure;
pub use longhaul_engine::run::state::{
    Activity, Outcome, Part, Program, RetryPolicy, Routing, Run, RunFailure, Status as RunStatus,
    TimerKind, WaitFor, WorkflowTask,
};

/// Refusals.
pub use longhaul_engine::Rejection;
pub use longhaul_engine::rejection::activity_reason;

/// Commands from outside, and what is stored of them.
pub use longhaul_engine::change::{
    CommandRow, CommandStatus, CommandType, LimitReason, TaskKind, TaskOutcome, TaskReply, TaskRow,
    UpdateRecord, UpdateStatus,
};
pub use longhaul_engine::run::cancellation::{
    Cancellation, CleanupBudget, Delivered, StoppingKind,
};
pub use longhaul_engine::run::message::external::{Receipt, Stop};
pub use longhaul_engine::run::message::stream::{
    MESSAGE_STREAM_SIGNAL, Stream as MessageStream, StreamCursor,
};

/// Tasks: what a worker is given and what it reports.
pub use longhaul_engine::run::activity::claim::ActivityClaim;
pub use longhaul_engine::run::activity::fence::AttemptIdentity;
pub use longhaul_engine::run::activity::heartbeat::HeartbeatReply;
pub use longhaul_engine::run::activity::report::Failure;
pub use longhaul_engine::run::activity::schedule::Deadlines;
pub use longhaul_engine::run::local_activity::attempt::{
    EndedAttempt, LocalHeartbeatReply, LocalHeartbeatRequest, LocalReport,
};
pub use longhaul_engine::run::local_activity::checkpoint::Checkpointed;
pub use longhaul_engine::run::local_activity::prepare::{Cleanup, Prepared};
pub use longhaul_engine::run::workflow_task::claim::WorkflowClaim;
pub use longhaul_engine::run::workflow_task::complete::Completion;
pub use longhaul_engine::run::workflow_task::lease::TaskHolder;
pub use longhaul_engine::run::workflow_task::sticky::StickyClaim;

/// Worker sessions.
pub use longhaul_engine::session::{Refusal as SessionRefusal, Session, Status as SessionStatus};

/// Limits, caps and rollouts.
pub use longhaul_engine::Limits;
pub use longhaul_engine::queue::{Admission, Caps, Override};
pub use longhaul_engine::rollout::{Change as RolloutChange, FleetValidation};

/// Search attributes and the list query language.
pub use longhaul_engine::visibility::attribute::{
    BadName, NAME_BYTES_MAX, SYSTEM as SYSTEM_ATTRIBUTES, check_name,
};
pub use longhaul_engine::visibility::{Definitions, Type as AttributeType, parse as parse_query};

/// Reports on tasks of definition runs.
pub use longhaul_engine::conductor::execution::command::log::NewLog;
pub use longhaul_engine::conductor::execution::command::update::{
    Output as ExecutionOutput, Report as ExecutionReport,
};
pub use longhaul_engine::conductor::limits::{
    CORRELATION_ID_CHARS_MAX, NAME_CHARS_MAX, WORKFLOW_PAYLOAD_BYTES_MAX,
};
