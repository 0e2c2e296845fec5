//! Delivers outbox messages from one run to another. Each becomes a command on its receiver; then the sender deletes it. Until then
//! it is stored with its sender, so a delivery that fails is repeated, at the latest by the alarm of the sender.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use longhaul_engine::run::cancellation::CleanupBudget;
use longhaul_engine::run::family::child::Reported;
use longhaul_engine::run::family::outbox::{ConfirmDelivery, Delivery, Order, deliveries};
use longhaul_engine::run::message::external::Stop;
use longhaul_engine::run::state::{PartKey, Program};
use longhaul_engine::{Rejection, RunChange};
use longhaul_protocol::Reason;
use longhaul_protocol::id::RunId;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::Host;
use crate::error::{Error, Result};
use crate::operations::workflows::CommandTarget;
use crate::sweeps::Sweep;

/// Runs whose messages are delivered at the same time; their commits share syncs.
const CONCURRENT: usize = 64;

/// How far a report follows a parent that keeps continuing as new while it is on its way.
const FORWARDS_MAX: usize = 1000;

/// Runs with messages to deliver.
#[derive(Default)]
pub(crate) struct Outbox {
    senders: Mutex<HashMap<RunId, Sender>>,
    written: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Waiting,
    Delivering,
    /// Wrote another message while the others were on their way.
    Again,
}

impl Outbox {
    /// Notes the messages that a commit wrote.
    pub(crate) fn note(&self, change: &RunChange) {
        let wrote = change
            .parts
            .iter()
            .any(|(key, part)| matches!(key, PartKey::Outbox(_)) && part.is_some());
        if !wrote {
            return;
        }
        let mut senders = self.senders.lock();
        senders
            .entry(change.spec.run_id.clone())
            .and_modify(|sender| {
                if *sender == Sender::Delivering {
                    *sender = Sender::Again;
                }
            })
            .or_insert(Sender::Waiting);
        drop(senders);
        self.written.notify_one();
    }

    /// Returns whether every message is delivered or left to the alarm of its sender.
    pub(crate) fn is_empty(&self) -> bool {
        self.senders.lock().is_empty()
    }

    /// Takes one sender. Returns whether its messages were waiting; otherwise they are being delivered.
    fn take_one(&self, run_id: &RunId) -> bool {
        let mut senders = self.senders.lock();
        match senders.get_mut(run_id) {
            Some(sender @ Sender::Waiting) => {
                *sender = Sender::Delivering;
                true
            }
            Some(Sender::Delivering | Sender::Again) | None => false,
        }
    }

    fn take(&self, limit: usize) -> Vec<RunId> {
        let mut senders = self.senders.lock();
        let waiting: Vec<RunId> = senders
            .iter()
            .filter(|(_, sender)| **sender == Sender::Waiting)
            .map(|(run_id, _)| run_id.clone())
            .take(limit)
            .collect();
        for run_id in &waiting {
            senders.insert(run_id.clone(), Sender::Delivering);
        }
        waiting
    }

    fn done(&self, run_id: &RunId) {
        let mut senders = self.senders.lock();
        match senders.get_mut(run_id) {
            Some(sender @ Sender::Again) => {
                *sender = Sender::Waiting;
                self.written.notify_one();
            }
            Some(_) | None => {
                senders.remove(run_id);
            }
        }
    }
}

/// Delivers the outbox messages of runs.
pub(crate) struct Deliveries {
    slots: Arc<Semaphore>,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(CONCURRENT)),
        }
    }
}

impl Sweep for Deliveries {
    const NAME: &'static str = "outbox";
    const KEEPS_HOST_BUSY: bool = false;

    async fn pass(&mut self, host: &Host) -> Result<()> {
        let free = self.slots.available_permits().max(1);
        for run_id in host.inner.wakes.outbox.take(free) {
            let slot = Arc::clone(&self.slots).acquire_owned().await;
            let sender = host.clone();
            host.inner.tasks.spawn(async move {
                deliver_all(&sender, &run_id).await;
                drop(slot);
                sender.inner.wakes.outbox.written.notify_one();
            });
        }
        Ok(())
    }

    async fn wait(&self, host: &Host) {
        host.inner.wakes.outbox.written.notified().await;
    }
}

/// Delivers the outbox of the run. The alarm of the sender repeats the rest.
async fn deliver_all(host: &Host, sender: &RunId) -> Vec<RunId> {
    let delivery = AssertUnwindSafe(deliver_messages(host, sender));
    let receivers = match delivery.catch_unwind().await {
        Ok(Ok(receivers)) => receivers,
        Ok(Err(error)) => {
            tracing::warn!(run_id = %sender, %error, "messages to other runs could not be delivered yet");
            Vec::new()
        }
        Err(_) => {
            tracing::error!(run_id = %sender, "delivering messages to other runs panicked");
            Vec::new()
        }
    };
    host.inner.wakes.outbox.done(sender);
    host.inner.wakes.idle.notify();
    receivers
}

/// Delivers the messages of a definition run before a caller is answered. Returns the definition runs that received one. A message
/// that the sweep delivers at the same time is delivered twice; the second time it changes nothing. A delivery that takes longer goes on
/// by itself, and so does one whose caller hangs up: an event may have thousands of handlers.
pub(crate) async fn deliver_now(host: &Host, sender: &RunId, until: Instant) -> Result<Vec<RunId>> {
    let (of, run_id) = (host.clone(), sender.clone());
    let delivery = host.inner.tasks.spawn(async move {
        if of.inner.wakes.outbox.take_one(&run_id) {
            Ok(deliver_all(&of, &run_id).await)
        } else {
            deliver_messages(&of, &run_id).await
        }
    });
    match tokio::time::timeout_at(until, delivery).await {
        Ok(Ok(receivers)) => receivers,
        // The sweep and the alarm of the sender repeat what is left.
        Ok(Err(_)) | Err(_) => Ok(Vec::new()),
    }
}

/// Delivers every message, oldest first. Returns the definition runs that received one.
async fn deliver_messages(host: &Host, sender: &RunId) -> Result<Vec<RunId>> {
    let mut receivers = Vec::new();
    let Some(run) = host.inner.executor.read(sender).await? else {
        return Ok(receivers);
    };
    for delivery in deliveries(&run) {
        let number = delivery.number;
        match &delivery.order {
            Order::ReportExecution { parent_run_id, .. }
            | Order::ReopenForChild { parent_run_id, .. } => receivers.push(parent_run_id.clone()),
            // A definition run has one id for both.
            Order::Stop { workflow_id, .. } if run.spec.program == Program::Definition => {
                receivers.push(RunId::from(workflow_id.as_str()));
            }
            Order::Report { .. }
            | Order::Publish(_)
            | Order::Stop { .. }
            | Order::RequestCancellation { .. } => {}
        }
        if let Order::Publish(message) = &delivery.order {
            let touched = host.events().deliver(&delivery.namespace, message);
            for (run_id, remainder) in touched.await? {
                receivers.extend(remainder.created);
                receivers.push(run_id);
            }
            let refusal = None;
            let delivered = ConfirmDelivery { number, refusal };
            host.inner.executor.execute(sender, &delivered).await?;
            continue;
        }
        let refusal = deliver(host, delivery).await?;
        let delivered = ConfirmDelivery { number, refusal };
        host.inner.executor.execute(sender, &delivered).await?;
    }
    Ok(receivers)
}

/// Delivers one message. Returns the reason of a refusal; an error means that the outcome is unknown.
async fn deliver(host: &Host, delivery: Delivery) -> Result<Option<String>> {
    match delivery.order {
        Order::Report {
            parent_run_id,
            report,
        } => {
            let mut parent = parent_run_id;
            for _ in 0..FORWARDS_MAX {
                match host.inner.executor.execute(&parent, &*report).await? {
                    Some(Reported::Forward(next)) => parent = next,
                    Some(Reported::Taken) | None => return Ok(None),
                }
            }
            Ok(None)
        }
        // Its caller delivers it, because it touches other runs.
        Order::Publish(_) => Ok(None),
        Order::ReportExecution {
            parent_run_id,
            report,
        } => {
            host.inner
                .executor
                .execute(&parent_run_id, &*report)
                .await?;
            Ok(None)
        }
        Order::ReopenForChild {
            parent_run_id,
            reopen,
        } => {
            host.inner
                .executor
                .execute(&parent_run_id, &*reopen)
                .await?;
            Ok(None)
        }
        Order::Stop {
            workflow_id,
            how,
            reason,
            life,
        } => {
            let target = CommandTarget {
                namespace: delivery.namespace,
                workflow_id,
                run_id: None,
                request_id: Some(delivery.request_id),
                principal: None,
                context: None,
            };
            let workflows = host.workflows();
            refusal(workflows.stop_life(&target, how, Some(&reason), life).await)
        }
        Order::RequestCancellation {
            workflow_id,
            cleanup_deadline_at,
            reason,
            context,
        } => {
            let target = CommandTarget {
                namespace: delivery.namespace,
                workflow_id,
                run_id: None,
                request_id: Some(delivery.request_id),
                principal: None,
                context: None,
            };
            let budget = CleanupBudget::Until(cleanup_deadline_at);
            let asked = host
                .workflows()
                .pass_on_cancellation(&target, reason.as_deref(), budget, context.as_ref())
                .await;
            match asked {
                // A parent waits for this child to end: a child that does not support the request is closed.
                Err(Error::Rejected(Rejection::NotCooperative)) if context.is_some() => refusal(
                    host.workflows()
                        .stop(&target, Stop::Cancel, reason.as_deref())
                        .await,
                ),
                // A definition decides this child. It has no cleanup of its own.
                Err(Error::Rejected(Rejection::OtherProgram { .. })) => refusal(
                    host.workflows()
                        .stop(&target, Stop::Cancel, reason.as_deref())
                        .await,
                ),
                // Its worker will finish soon; the message is delivered again.
                Err(error @ Error::Rejected(Rejection::ActiveClaimNotCooperative { .. })) => {
                    Err(error)
                }
                asked => refusal(asked),
            }
        }
    }
}

/// Returns the reason why a receiver refused, or the error that leaves the outcome unknown.
fn refusal<R>(outcome: Result<R>) -> Result<Option<String>> {
    match outcome {
        Ok(_) => Ok(None),
        Err(Error::Rejected(rejection)) => Ok(Some(rejection.reason().as_str().to_owned())),
        Err(Error::InstanceNotFound(_) | Error::RunNotFound(..)) => {
            Ok(Some(Reason::InstanceNotFound.as_str().to_owned()))
        }
        Err(error) => Err(error),
    }
}
