//! The lease of a workflow task: whether a caller holds the task that it reports on.
//!
//! Complete, fail, heartbeat, history reads, cancellation deliveries and every call about a local activity begin here.

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkerId};

use crate::change::{Changes, StoredReply, TaskOutcome, TaskReply, TaskRow, TaskStatus, Verb};
use crate::rejection::RunClosed;
use crate::run::draft::{Cause, Draft};
use crate::run::state::{ClosedReason, Run, WorkflowTask};
use crate::{Decision, Moment, Rejection};

/// The lease that a worker acts on, as the worker names it.
#[derive(Clone, Debug)]
pub struct TaskHolder {
    pub namespace: Namespace,
    pub task_id: TaskId,
    pub owner: WorkerId,
    pub attempt: u64,
    /// The authenticated caller, as JSON text. It is recorded with the events and rows of the decision.
    pub principal: Option<String>,
}

/// The worker that acts on a workflow task, and the task's row. The row has the stored reply of a finished task.
#[derive(Clone, Debug)]
pub struct Holder {
    pub named: TaskHolder,
    pub row: Box<TaskRow>,
}

/// Why a worker may not act on a workflow task.
#[derive(Clone, Debug)]
pub(crate) enum LeaseRefusal {
    RunTimedOut {
        run_id: RunId,
    },
    RunClosed(Box<RunClosed>),
    NotLeased {
        task_status: TaskStatus,
    },
    Expired {
        owner: WorkerId,
        expires_at: Timestamp,
    },
    OwnerMismatch {
        owner: WorkerId,
    },
    AttemptMismatch {
        current: u64,
    },
}

impl From<LeaseRefusal> for Rejection {
    fn from(refusal: LeaseRefusal) -> Self {
        match refusal {
            LeaseRefusal::RunTimedOut { run_id } => Self::RunTimedOut { run_id },
            LeaseRefusal::RunClosed(closed) => Self::RunClosed(closed),
            LeaseRefusal::NotLeased { task_status } => Self::TaskNotLeased { task_status },
            LeaseRefusal::Expired { owner, expires_at } => Self::LeaseExpired { owner, expires_at },
            LeaseRefusal::OwnerMismatch { owner } => Self::LeaseOwnerMismatch { owner },
            LeaseRefusal::AttemptMismatch { current } => Self::AttemptMismatch { current },
        }
    }
}

/// A refused call, and its changes: a run past its deadline is closed before anything else is decided.
pub(crate) struct Refused {
    pub(crate) changes: Changes,
    pub(crate) refusal: LeaseRefusal,
}

impl Refused {
    fn unchanged(refusal: LeaseRefusal) -> Self {
        Self {
            changes: Changes::default(),
            refusal,
        }
    }

    /// Returns the decision that refuses the call.
    pub(crate) fn into_decision<R>(self) -> Decision<R> {
        Decision {
            changes: self.changes,
            reply: Err(self.refusal.into()),
        }
    }
}

/// Why a report is not decided now.
pub(crate) enum NotHeld {
    /// The same report was accepted before. It gets the same reply.
    Repeated(TaskOutcome),
    Refused(Refused),
}

impl NotHeld {
    pub(crate) fn into_decision(self) -> Decision<TaskReply> {
        match self {
            Self::Repeated(outcome) => Decision::unchanged(TaskReply::repeated(outcome)),
            Self::Refused(refused) => refused.into_decision(),
        }
    }
}

/// The kind of a call. A closed run refuses the two kinds with different reasons.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Complete or fail.
    StoredReply,
    /// Everything else.
    Other,
}

/// The task that the caller holds, and a draft in its name.
pub(crate) type Held<'a> = (Draft<'a>, Box<WorkflowTask>);

impl Holder {
    pub(crate) fn task_id(&self) -> &TaskId {
        &self.row.task_id
    }

    /// Authorizes a call that is not a report: a heartbeat, a history read, a delivery, a call about a local activity.
    pub(crate) fn authorize<'a>(
        &self,
        run: &'a Run,
        moment: Moment<'a>,
    ) -> Result<Held<'a>, Refused> {
        self.authorize_call(run, Call::Other, moment)
    }

    /// Authorizes a complete or fail, or finds the stored reply to the same report.
    pub(crate) fn authorize_report<'a>(
        &self,
        run: &'a Run,
        verb: Verb,
        moment: Moment<'a>,
    ) -> Result<Held<'a>, NotHeld> {
        if let Some(stored) = self.stored(run)
            && stored.verb == verb
            && stored.owner == self.named.owner
            && stored.attempt == self.named.attempt
        {
            return Err(NotHeld::Repeated(stored.outcome.clone()));
        }
        self.authorize_call(run, Call::StoredReply, moment)
            .map_err(NotHeld::Refused)
    }

    fn authorize_call<'a>(
        &self,
        run: &'a Run,
        call: Call,
        moment: Moment<'a>,
    ) -> Result<Held<'a>, Refused> {
        if let Some(refusal) = self.closed(run, call) {
            return Err(Refused::unchanged(refusal));
        }
        // A passed deadline closes the run before the lease is checked.
        let mut draft = Draft::of(run, moment);
        if draft.time_out_if_due() {
            return Err(timed_out(draft, call));
        }
        let task = self.held_task(run, moment).map_err(Refused::unchanged)?;
        draft.cause = Cause {
            task_id: Some(task.id.clone()),
            command_id: None,
            principal: self.named.principal.clone(),
        };
        Ok((draft, Box::new(task.clone())))
    }

    fn open_task<'a>(&self, run: &'a Run) -> Option<&'a WorkflowTask> {
        run.core
            .workflow_task
            .as_deref()
            .filter(|task| task.id == *self.task_id())
    }

    /// Returns the stored reply to the newest report on the task.
    fn stored<'s>(&'s self, run: &'s Run) -> Option<&'s StoredReply> {
        match self.open_task(run) {
            Some(task) => task.last_reply.as_deref(),
            None => run.retry_reply(self.task_id()).or_else(|| {
                let closed = self.row.closed.as_ref();
                closed.and_then(|closed| closed.reply.as_ref())
            }),
        }
    }

    fn closed(&self, run: &Run, call: Call) -> Option<LeaseRefusal> {
        let closed = run.core.closed.as_ref()?;
        Some(match call {
            Call::StoredReply if closed.reason == ClosedReason::TimedOut => {
                LeaseRefusal::RunTimedOut {
                    run_id: run.run_id().clone(),
                }
            }
            Call::StoredReply | Call::Other => LeaseRefusal::RunClosed(Box::new(RunClosed {
                status: run.core.status,
                closed: closed.clone(),
                task_status: self.row.status,
                lease_owner: self.row.lease_owner.clone(),
                lease_expires_at: self.row.lease_expires_at,
            })),
        })
    }

    /// Returns the open task, if this worker holds its lease with this attempt. The protocol fixes the order of the checks.
    fn held_task<'a>(
        &self,
        run: &'a Run,
        moment: Moment<'_>,
    ) -> Result<&'a WorkflowTask, LeaseRefusal> {
        let Some(task) = self.open_task(run) else {
            return Err(LeaseRefusal::NotLeased {
                task_status: self.row.status,
            });
        };
        let Some(lease) = &task.lease else {
            return Err(match &task.expired {
                Some(expired) => LeaseRefusal::Expired {
                    owner: expired.owner.clone(),
                    expires_at: expired.expires_at,
                },
                None => LeaseRefusal::NotLeased {
                    task_status: TaskStatus::Ready,
                },
            });
        };
        if lease.expires_at <= moment.now {
            return Err(LeaseRefusal::Expired {
                owner: lease.owner.clone(),
                expires_at: lease.expires_at,
            });
        }
        if lease.owner != self.named.owner {
            return Err(LeaseRefusal::OwnerMismatch {
                owner: lease.owner.clone(),
            });
        }
        if task.attempt != self.named.attempt {
            return Err(LeaseRefusal::AttemptMismatch {
                current: task.attempt,
            });
        }
        Ok(task)
    }

    /// Returns the reply to store with the task, for a repeat of this report.
    pub(crate) fn stored_reply(&self, verb: Verb, outcome: &TaskOutcome) -> StoredReply {
        StoredReply {
            verb,
            owner: self.named.owner.clone(),
            attempt: self.named.attempt,
            attempt_id: None,
            outcome: outcome.clone(),
            diagnosis: None,
        }
    }
}

fn timed_out(draft: Draft<'_>, call: Call) -> Refused {
    let refusal = match call {
        Call::StoredReply => LeaseRefusal::RunTimedOut {
            run_id: draft.run_id().clone(),
        },
        Call::Other => LeaseRefusal::RunClosed(Box::new(draft.just_closed())),
    };
    Refused {
        changes: draft.into_changes(),
        refusal,
    }
}
