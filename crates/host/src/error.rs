//! The errors of the host's operations.

use longhaul_engine::Rejection;
use longhaul_engine::change::CapScope;
use longhaul_engine::visibility::Type;
use longhaul_protocol::Reason;
use longhaul_protocol::id::{Namespace, RunId, SessionId, TaskQueue, WorkerId, WorkflowId};
use longhaul_store::Quiet;

use crate::conductor::refusal::ConductorRefusal;
use crate::operations::sessions::SessionRefused;
use crate::questions::progress::{QuestionKind, QuestionRefusal};
use crate::questions::query::QueryRefusal;
use crate::questions::validation::ValidationRefusal;
use crate::registry::rollouts::DrainingQueue;

/// A refusal, a failure of the store, or a bug; never mixed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine refused: part of the protocol.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("there is no workflow `{0}` in this namespace")]
    InstanceNotFound(WorkflowId),
    #[error("workflow `{0}` has no run `{1}`")]
    RunNotFound(WorkflowId, RunId),
    #[error("there is no namespace `{0}`")]
    NamespaceNotFound(Namespace),
    #[error("namespace `{0}` already exists")]
    NamespaceExists(Namespace),
    #[error("the search attribute name `{0}` is reserved")]
    AttributeNameReserved(String),
    #[error("search attribute `{0}` is already defined")]
    AttributeExists(String, Type),
    #[error("a namespace may define at most {limit} search attributes")]
    TooManyAttributes { limit: u64 },
    #[error("`{0}` is a system attribute, which every run has")]
    SystemAttribute(String),
    #[error("there is no search attribute `{0}` in this namespace")]
    AttributeNotFound(String),
    #[error("worker `{0}` is not registered in this namespace")]
    WorkerNotRegistered(WorkerId),
    #[error(
        "worker `{0}` registered a different definition of workflow type `{1}` before; restart it with a new worker id"
    )]
    DefinitionChanged(WorkerId, String),
    #[error("the worker is registered for queue `{registered}`, not `{requested}`")]
    TaskQueueMismatch {
        registered: TaskQueue,
        requested: TaskQueue,
    },
    #[error("the worker is registered with a different build id")]
    BuildIdMismatch {
        registered: Option<String>,
        requested: Option<String>,
    },
    /// A query has no result.
    #[error(transparent)]
    Query(#[from] QueryRefusal),
    /// An update could not be validated.
    #[error(transparent)]
    Validation(#[from] ValidationRefusal),
    /// A worker's report on a question was refused.
    #[error("{}", question_refused(*kind, refusal))]
    Question {
        kind: QuestionKind,
        refusal: QuestionRefusal,
    },
    #[error("the build of worker `{0}` is draining; it gets no new work")]
    WorkerDraining(WorkerId),
    /// A session was not acquired, renewed or closed.
    #[error("{}", .0.refusal)]
    Session(Box<SessionRefused>),
    #[error("there is no session `{0}` in this namespace")]
    SessionNotFound(SessionId),
    #[error("every build on queue `{}` is draining; resume one or start workers of another build", .0.task_queue)]
    TaskQueueDraining(Box<DrainingQueue>),
    #[error("no live worker on queue `{task_queue}` has build `{build_id}`")]
    CompatibilityBlocked {
        task_queue: TaskQueue,
        build_id: String,
    },
    #[error("namespace `{namespace}` has used up its {limit} requests of this minute")]
    RequestRateExhausted {
        namespace: Namespace,
        limit: u64,
        retry_after_seconds: u64,
    },
    #[error("namespace `{namespace}` already has its maximum of {limit} requests in flight")]
    RequestConcurrencyExhausted { namespace: Namespace, limit: u64 },
    /// An operation on definitions or definition runs.
    #[error(transparent)]
    Conductor(#[from] ConductorRefusal),
    /// A cap on leases is reached, counted over all servers.
    #[error("a cap on leases is reached")]
    CapReached(Box<CapScope>),
    #[error("too many polls are waiting")]
    TooManyPolls,
    #[error("the server is stopping")]
    Stopping,
    /// Several other commits in a row came first. Nothing was changed.
    #[error("the run is being changed by too many callers at once; try again")]
    Contended,
    /// The disk or the connection failed. The details are in the log and not for callers.
    #[error("the store cannot be reached now; try again")]
    Unavailable,
    /// The files of the store are damaged. Neither a retry nor the server can help.
    #[error("the store is damaged; an operator must restore a backup")]
    Damaged,
    /// A bug. The request ended, the server did not, nothing was changed.
    #[error("the server has a bug; it has been logged and nothing was changed")]
    Internal,
}

impl Error {
    /// Returns the machine-readable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Rejected(rejection) => rejection.reason(),
            Self::InstanceNotFound(_) => Reason::InstanceNotFound,
            Self::RunNotFound(..) => Reason::RunNotFound,
            Self::NamespaceNotFound(_) => Reason::NamespaceNotFound,
            Self::NamespaceExists(_) => Reason::NamespaceAlreadyExists,
            Self::AttributeNameReserved(_) => Reason::NameReserved,
            Self::AttributeExists(..) => Reason::AttributeAlreadyExists,
            Self::TooManyAttributes { .. } => Reason::SearchAttributeLimitReached,
            Self::SystemAttribute(_) => Reason::SystemAttribute,
            Self::AttributeNotFound(_) => Reason::AttributeNotFound,
            Self::WorkerNotRegistered(_) => Reason::WorkerNotRegistered,
            Self::DefinitionChanged(..) => Reason::WorkflowDefinitionChanged,
            Self::TaskQueueMismatch { .. } => Reason::TaskQueueMismatch,
            Self::BuildIdMismatch { .. } => Reason::BuildIdMismatch,
            Self::Query(refusal) => refusal.reason(),
            Self::Validation(refusal) => refusal.reason(),
            Self::Question { kind, refusal } => question_reason(*kind, refusal),
            Self::WorkerDraining(_) => Reason::WorkerDraining,
            Self::Session(refused) => refused.refusal.reason(),
            Self::SessionNotFound(_) => Reason::WorkerSessionNotFound,
            Self::TaskQueueDraining(_) => Reason::TaskQueueDraining,
            Self::CompatibilityBlocked { .. } => Reason::CompatibilityBlocked,
            Self::RequestRateExhausted { .. } => Reason::NamespaceRequestRateExhausted,
            Self::RequestConcurrencyExhausted { .. } => {
                Reason::NamespaceRequestConcurrencyExhausted
            }
            Self::Conductor(refusal) => refusal.reason(),
            Self::CapReached(_) => Reason::TaskNotReady,
            Self::Stopping => Reason::Unavailable,
            Self::TooManyPolls => Reason::LongPollCapacityExhausted,
            Self::Contended => Reason::BackendLockPressure,
            Self::Unavailable => Reason::BackendUnavailable,
            Self::Damaged => Reason::StoreDamaged,
            Self::Internal => Reason::InternalError,
        }
    }
}

/// Returns the reason for a refused report; the two kinds of question have different reasons.
pub fn question_reason(kind: QuestionKind, refusal: &QuestionRefusal) -> Reason {
    match kind {
        QuestionKind::Query => match refusal {
            QuestionRefusal::NotFound => Reason::QueryTaskNotFound,
            QuestionRefusal::NotLeased | QuestionRefusal::Answered => Reason::QueryTaskNotLeased,
            QuestionRefusal::OwnerMismatch => Reason::LeaseOwnerMismatch,
            QuestionRefusal::AttemptMismatch { .. } => Reason::QueryTaskAttemptMismatch,
            QuestionRefusal::LeaseExpired => Reason::LeaseExpired,
            QuestionRefusal::TimedOut => Reason::QueryTaskTimedOut,
        },
        QuestionKind::UpdateValidation => match refusal {
            QuestionRefusal::NotFound => Reason::UpdateValidationTaskNotFound,
            QuestionRefusal::NotLeased => Reason::UpdateValidationTaskNotLeased,
            QuestionRefusal::Answered => Reason::DuplicateUpdateValidationCompletion,
            QuestionRefusal::LeaseExpired => Reason::UpdateValidationLeaseExpired,
            QuestionRefusal::OwnerMismatch
            | QuestionRefusal::AttemptMismatch { .. }
            | QuestionRefusal::TimedOut => Reason::StaleUpdateValidationCompletion,
        },
    }
}

fn question_refused(kind: QuestionKind, refusal: &QuestionRefusal) -> String {
    let task = match kind {
        QuestionKind::Query => "query task",
        QuestionKind::UpdateValidation => "update validation task",
    };
    match refusal {
        QuestionRefusal::NotFound => format!("the {task} no longer exists"),
        QuestionRefusal::NotLeased => format!("the {task} is not leased"),
        QuestionRefusal::Answered => format!("the {task} already has a different answer"),
        QuestionRefusal::OwnerMismatch => format!("a different worker holds the {task}"),
        QuestionRefusal::AttemptMismatch { current } => {
            format!("the {task} is at attempt {current}")
        }
        QuestionRefusal::LeaseExpired => format!("the lease on the {task} has run out"),
        QuestionRefusal::TimedOut => format!("the caller no longer waits for the {task}"),
    }
}

/// Limits the log of requests while the store cannot be reached.
static OUTAGES: Quiet = Quiet::new();

/// Limits the log of requests while the store is damaged.
static DAMAGES: Quiet = Quiet::new();

impl From<longhaul_store::Error> for Error {
    fn from(error: longhaul_store::Error) -> Self {
        use longhaul_store::Error as Store;
        match error {
            Store::Conflict => Self::Contended,
            Store::CapReached(scope) => Self::CapReached(scope),
            Store::Unavailable(why) => {
                if let Some(unlogged) = OUTAGES.occurred() {
                    tracing::error!(why, unlogged, "the store is unavailable");
                }
                Self::Unavailable
            }
            Store::Corrupt(why) => {
                tracing::error!(why, "the store contains an unreadable row");
                Self::Internal
            }
            Store::Damaged(why) => {
                if let Some(unlogged) = DAMAGES.occurred() {
                    tracing::error!(why, unlogged, "the store is damaged, restore a backup");
                }
                Self::Damaged
            }
            Store::NewerSchema(why) => {
                tracing::error!(why, "the store is newer than this server");
                Self::Unavailable
            }
            Store::Settings(why) => {
                tracing::error!(why, "the settings of the store are wrong");
                Self::Unavailable
            }
        }
    }
}

/// The result of a host operation.
pub type Result<T> = std::result::Result<T, Error>;
