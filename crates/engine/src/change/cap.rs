//! Upper bounds that a commit is refused for. A server that is alone counts in memory; several servers let the commit of a claim
//! count, which is exact over all of them.

use longhaul_protocol::id::{Namespace, TaskQueue, WorkerId};

use super::{TaskKind, TaskRow, TaskStatus};
use crate::session::{Session, Status};

/// A bound on what a scope may hold after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    pub scope: CapScope,
    pub max: u64,
}

/// Bounds of one commit. Most commits have none, so they are apart.
#[derive(Clone, Debug, Default)]
pub struct CapList(pub(super) Vec<Cap>);

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapScope {
    /// The leased tasks of a queue.
    Queue(Namespace, TaskKind, TaskQueue),
    /// The leased tasks of a kind in a namespace.
    Namespace(Namespace, TaskKind),
    /// The leased tasks of definition runs with the name of a task definition.
    TaskDef(Namespace, String),
    /// The active sessions of a worker.
    WorkerSessions(Namespace, WorkerId),
}

impl CapScope {
    /// Returns whether a task counts in this scope.
    pub fn has_task(&self, task: &TaskRow) -> bool {
        task.status == TaskStatus::Leased && self.covers_task(task)
    }

    /// Returns whether a task would count in this scope if it were leased.
    pub fn covers_task(&self, task: &TaskRow) -> bool {
        match self {
            Self::Queue(namespace, kind, queue) => {
                task.namespace == *namespace && task.kind == *kind && task.queue == *queue
            }
            Self::Namespace(namespace, kind) => task.namespace == *namespace && task.kind == *kind,
            Self::TaskDef(namespace, name) => {
                task.namespace == *namespace
                    && task.kind == TaskKind::Execution
                    && task.type_name == *name
            }
            Self::WorkerSessions(..) => false,
        }
    }

    /// Returns whether a session counts in this scope.
    pub fn has_session(&self, session: &Session) -> bool {
        matches!(self, Self::WorkerSessions(namespace, worker_id)
            if session.namespace == *namespace
                && session.lease_owner == *worker_id
                && session.status == Status::Active)
    }
}
