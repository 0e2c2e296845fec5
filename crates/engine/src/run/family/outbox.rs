//! Outbox messages from one run to another. A transaction writes one existing run only, so a message for another run is stored in
//! the sender, together with the change that causes it. The host delivers it as a command, at least once, and then confirms it to
//! the sender. The receiver recognises a message that was delivered twice: by the call it is about, or by a request id made from
//! the sender and the number of the message.

use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::WorkflowStatus;
use longhaul_protocol::history::{EventPayload, ParentClosePolicyDone};
use longhaul_protocol::id::{Namespace, RunId, TaskId, WorkflowId};
use longhaul_protocol::workflow_command::ParentClosePolicy;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conductor::event::EventMessage;
use crate::conductor::execution::command::control::ReportExecution;
use crate::conductor::execution::command::reopen::ReopenForChild;
use crate::run::draft::{Draft, Outbox};
use crate::run::family::child::{Child, ChildClosed, ChildRun, ReportChildRun};
use crate::run::family::conversion;
use crate::run::message::external::Stop;
use crate::run::state::{ClosedReason, Outcome, Part, PartKey, Run, RunFailure};
use crate::{Command, Decision, Moment};

/// How long the host has before a message is offered to it again. Only a crash or an outage causes such a wait.
const DELIVERY_SECONDS: u64 = 5;

/// A message that is not delivered yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxMessage {
    pub retry_at: Timestamp,
    pub body: OutboxBody,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxBody {
    /// To the parent: another run of this child began.
    ChildRunStarted(ChildRun),
    /// To the parent: this child is closed. The run itself records how.
    ChildRunClosed,
    /// To the parent of a definition run: it ended. The end is in the message, because the run may be opened again.
    ExecutionEnded {
        status: WorkflowStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        output: Arc<Value>,
        /// The life that ended.
        #[serde(default, skip_serializing_if = "is_zero")]
        life: u32,
    },
    /// To the parent of a definition run: it was opened again, and its task with it.
    ExecutionReopened {
        /// The life that began.
        life: u32,
    },
    /// To the handlers of an event.
    Event(Box<EventMessage>),
    /// To a child: stop.
    StopChild {
        workflow_id: WorkflowId,
        run_id: RunId,
        policy: ParentClosePolicy,
        reason: String,
        /// Whether the history of the sender records the outcome.
        recorded: bool,
        /// The life of the definition run that is to stop. A later life goes on. `None` stops any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        life: Option<u32>,
    },
    /// To a child: clean up and end.
    RequestCancellation {
        workflow_id: WorkflowId,
        run_id: RunId,
        cleanup_deadline_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Null when the request begins here.
        context: Value,
        policy: ParentClosePolicy,
        recorded: bool,
    },
}

/// A message for delivery by the host.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub number: u64,
    pub namespace: Namespace,
    /// Lets the receiver recognise a repeated message.
    pub request_id: String,
    pub order: Order,
}

/// The command for the receiver.
#[derive(Clone, Debug)]
pub enum Order {
    /// The task of the parent that waits for this definition run.
    ReportExecution {
        parent_run_id: RunId,
        report: Box<ReportExecution>,
    },
    Report {
        parent_run_id: RunId,
        report: Box<ReportChildRun>,
    },
    /// The handlers of an event. They recognise a repeated message by its id.
    Publish(Box<EventMessage>),
    /// The task of the parent whose definition run was opened again.
    ReopenForChild {
        parent_run_id: RunId,
        reopen: Box<ReopenForChild>,
    },
    Stop {
        workflow_id: WorkflowId,
        how: Stop,
        reason: String,
        /// The only life of a definition run that is stopped.
        life: Option<u32>,
    },
    RequestCancellation {
        workflow_id: WorkflowId,
        cleanup_deadline_at: Timestamp,
        reason: Option<String>,
        /// The context of the run that passes it on.
        context: Option<Value>,
    },
}

/// Returns whether a run has undelivered messages.
pub fn has_messages(run: &Run) -> bool {
    let mut messages = run
        .parts
        .range(PartKey::Outbox(0)..=PartKey::Outbox(u64::MAX));
    messages.next().is_some()
}

/// Returns whether a run may be removed: it has ended, and what others must learn of it is delivered.
pub fn is_removable(run: &Run) -> bool {
    run.core.closed.is_some() && !has_messages(run)
}

/// Returns all undelivered messages of a run, oldest first.
pub fn deliveries(run: &Run) -> Vec<Delivery> {
    run.parts
        .range(PartKey::Outbox(0)..=PartKey::Outbox(u64::MAX))
        .filter_map(|(key, part)| match (key, part) {
            (PartKey::Outbox(number), Part::Outbox(message)) => Some(Delivery {
                number: *number,
                namespace: run.spec.namespace.clone(),
                request_id: format!("outbox:{}:{number}", run.run_id()),
                order: order(run, &message.body)?,
            }),
            _ => None,
        })
        .collect()
}

fn order(run: &Run, body: &OutboxBody) -> Option<Order> {
    match body {
        OutboxBody::ChildRunStarted(started) => report(run, started.clone(), None),
        OutboxBody::ChildRunClosed => {
            let closed = run.core.closed.as_ref().map(|closed| ChildClosed {
                reason: closed.reason,
                at: closed.at,
                note: closed.note.clone(),
                outcome: run.outcome().cloned(),
            });
            report(run, ChildRun::of(&run.spec), closed)
        }
        OutboxBody::ExecutionEnded {
            status,
            reason,
            output,
            life,
        } => {
            let parent = run.spec.parent.as_deref()?;
            if parent.other_family {
                let closed = closed_for_code(run, *status, reason.as_deref(), output);
                return report(run, ChildRun::of(&run.spec), Some(closed));
            }
            let execution = run.core.execution.as_deref()?;
            Some(Order::ReportExecution {
                parent_run_id: parent.run_id.clone(),
                report: Box::new(ReportExecution {
                    task_id: TaskId::from(parent.call_id.as_str()),
                    seq: parent.sequence.get(),
                    run_id: run.run_id().clone(),
                    name: run.spec.workflow_type.clone(),
                    version: execution.version,
                    status: *status,
                    reason: reason.clone(),
                    output: Arc::clone(output),
                    life: *life,
                }),
            })
        }
        OutboxBody::ExecutionReopened { life } => {
            let parent = run.spec.parent.as_deref()?;
            Some(Order::ReopenForChild {
                parent_run_id: parent.run_id.clone(),
                reopen: Box::new(ReopenForChild {
                    task_id: TaskId::from(parent.call_id.as_str()),
                    seq: parent.sequence.get(),
                    run_id: run.run_id().clone(),
                    life: *life,
                }),
            })
        }
        OutboxBody::Event(message) => Some(Order::Publish(message.clone())),
        OutboxBody::StopChild {
            workflow_id,
            policy,
            reason,
            life,
            ..
        } => Some(Order::Stop {
            life: *life,
            workflow_id: workflow_id.clone(),
            how: match policy {
                ParentClosePolicy::Terminate => Stop::Terminate,
                ParentClosePolicy::Abandon
                | ParentClosePolicy::RequestCancel
                | ParentClosePolicy::RequestCancellation => Stop::Cancel,
            },
            reason: reason.clone(),
        }),
        OutboxBody::RequestCancellation {
            workflow_id,
            cleanup_deadline_at,
            reason,
            context,
            ..
        } => Some(Order::RequestCancellation {
            workflow_id: workflow_id.clone(),
            cleanup_deadline_at: *cleanup_deadline_at,
            reason: reason.clone(),
            context: Some(context.clone()).filter(|context| !context.is_null()),
        }),
    }
}

/// Returns the end of a definition run as code sees it.
fn closed_for_code(
    run: &Run,
    status: WorkflowStatus,
    reason: Option<&str>,
    output: &Value,
) -> ChildClosed {
    let closed = match status {
        WorkflowStatus::Completed => ClosedReason::Completed,
        WorkflowStatus::TimedOut => ClosedReason::TimedOut,
        WorkflowStatus::Terminated => ClosedReason::Terminated,
        WorkflowStatus::Failed | WorkflowStatus::Running | WorkflowStatus::Paused => {
            ClosedReason::Failed
        }
    };
    let failure = |message: String| {
        Outcome::Failure(Box::new(RunFailure {
            message,
            failure_category: "child_workflow".to_owned(),
            non_retryable: false,
            exception_type: Some("ConductorWorkflowFailed".to_owned()),
            exception_class: None,
            exception: serde_json::Map::new(),
            event_sequence: run.core.last_history_sequence,
        }))
    };
    let (reason_closed, outcome) = match closed {
        ClosedReason::Completed => match conversion::result(output) {
            Ok(result) => (closed, Outcome::Output(result)),
            Err(error) => {
                let message = format!("The output cannot be sent to code: {error}");
                (ClosedReason::Failed, failure(message))
            }
        },
        ClosedReason::Continued
        | ClosedReason::Failed
        | ClosedReason::TimedOut
        | ClosedReason::Cancelled
        | ClosedReason::Terminated => (
            closed,
            failure(reason.unwrap_or(status.as_str()).to_owned()),
        ),
    };
    ChildClosed {
        reason: reason_closed,
        at: run
            .core
            .closed
            .as_ref()
            .map_or(run.spec.started_at, |closed| closed.at),
        note: reason.map(str::to_owned),
        outcome: Some(outcome),
    }
}

fn report(run: &Run, child: ChildRun, closed: Option<ChildClosed>) -> Option<Order> {
    let parent = run.spec.parent.as_deref()?;
    Some(Order::Report {
        parent_run_id: parent.run_id.clone(),
        report: Box::new(ReportChildRun {
            call_id: parent.call_id.clone(),
            run: child,
            closed,
        }),
    })
}

/// The message reached its receiver, which may have refused it.
#[derive(Clone, Debug)]
pub struct ConfirmDelivery {
    pub number: u64,
    /// Why the receiver refused.
    pub refusal: Option<String>,
}

impl Command for ConfirmDelivery {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        let key = PartKey::Outbox(self.number);
        let Some(Part::Outbox(message)) = run.parts.get(&key) else {
            return Decision::unchanged(());
        };
        let mut draft = Draft::of(run, moment);
        let policy = match &message.body {
            OutboxBody::StopChild {
                workflow_id,
                run_id,
                policy,
                reason,
                recorded: true,
                ..
            } => Some((workflow_id, run_id, policy, reason.clone())),
            OutboxBody::RequestCancellation {
                workflow_id,
                run_id,
                policy,
                reason,
                recorded: true,
                ..
            } => Some((
                workflow_id,
                run_id,
                policy,
                reason.clone().unwrap_or_default(),
            )),
            OutboxBody::ChildRunStarted(_)
            | OutboxBody::ChildRunClosed
            | OutboxBody::ExecutionEnded { .. }
            | OutboxBody::Event(_)
            | OutboxBody::ExecutionReopened { .. }
            | OutboxBody::StopChild { .. }
            | OutboxBody::RequestCancellation { .. } => None,
        };
        if let Some((workflow_id, run_id, policy, reason)) = policy {
            let done = ParentClosePolicyDone {
                child_instance_id: workflow_id.clone(),
                child_run_id: run_id.clone(),
                policy: *policy,
                reason,
                error: self.refusal.clone(),
            };
            draft.append(if self.refusal.is_some() {
                EventPayload::ParentClosePolicyFailed(done)
            } else {
                EventPayload::ParentClosePolicyApplied(done)
            });
        }
        draft.remove(key);
        draft.finish(Ok(()))
    }
}

impl Outbox<'_, '_> {
    /// Adds a message to the outbox.
    pub(crate) fn enqueue(&mut self, body: OutboxBody) {
        self.draft.core.outbox_sequence += 1;
        let message = OutboxMessage {
            retry_at: self.draft.now.plus_seconds(DELIVERY_SECONDS),
            body,
        };
        self.draft.put(
            PartKey::Outbox(self.draft.core.outbox_sequence),
            Part::Outbox(Box::new(message)),
        );
    }

    /// Asks a child to stop, according to its close policy.
    pub(crate) fn enqueue_close_policy(&mut self, child: &Child) {
        if child.parent_close_policy == ParentClosePolicy::Abandon {
            return;
        }
        let why = self
            .draft
            .core
            .closed
            .as_ref()
            .map_or("closed", |closed| closed.reason.as_str());
        let reason = format!(
            "Parent workflow closed ({why}); parent-close policy: {}.",
            child.parent_close_policy.as_str()
        );
        let (workflow_id, run_id) = (child.workflow_id.clone(), child.run_id.clone());
        let policy = child.parent_close_policy;
        self.enqueue(if policy == ParentClosePolicy::RequestCancellation {
            OutboxBody::RequestCancellation {
                workflow_id,
                run_id,
                cleanup_deadline_at: self
                    .draft
                    .now
                    .plus_seconds(self.draft.limits.cleanup_seconds),
                reason: Some(reason),
                context: Value::Null,
                policy,
                recorded: true,
            }
        } else {
            OutboxBody::StopChild {
                workflow_id,
                run_id,
                policy,
                reason,
                recorded: true,
                life: None,
            }
        });
    }

    /// Offers messages again whose delivery was not confirmed.
    pub(crate) fn redeliver_due(&mut self) {
        let due: Vec<(PartKey, OutboxMessage)> = self
            .draft
            .parts_between(PartKey::Outbox(0), PartKey::Outbox(u64::MAX))
            .filter_map(|(key, part)| {
                let message = part.as_outbox_message()?;
                (message.retry_at <= self.draft.now).then(|| (*key, message.clone()))
            })
            .collect();
        for (key, mut message) in due {
            message.retry_at = self.draft.now.plus_seconds(DELIVERY_SECONDS);
            self.draft.put(key, Part::Outbox(Box::new(message)));
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
