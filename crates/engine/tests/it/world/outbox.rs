//! Outbox messages between runs, delivered as the host delivers them: the oldest of a sender first, at least once. The delivery is
//! confirmed to the sender afterwards, unless a crash comes between.

use longhaul_engine::Rejection;
use longhaul_engine::change::CommandStatus;
use longhaul_engine::run::cancellation::{CleanupBudget, PassOnCancellation};
use longhaul_engine::run::family::child::Reported;
use longhaul_engine::run::family::outbox::{ConfirmDelivery, Delivery, Order, deliveries};
use longhaul_engine::run::message::external::{Stop, StopRun};
use longhaul_protocol::id::{RunId, WorkflowId};

use super::{Step, World};

/// Whether the sender gets the confirmation of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Sent,
    /// The server stopped before it could send it.
    Lost,
}

impl World {
    /// Returns the runs that have messages to deliver.
    pub(crate) fn senders(&self) -> Vec<RunId> {
        let has_messages = |run: &&longhaul_engine::run::state::Run| !deliveries(run).is_empty();
        self.runs
            .values()
            .filter(has_messages)
            .map(|run| run.run_id().clone())
            .collect()
    }

    /// Delivers the oldest message of the sender and confirms it if the confirmation is not lost. Returns a description for stories.
    pub(crate) fn deliver(
        &mut self,
        sender: &RunId,
        confirmation: Confirmation,
    ) -> (Step, Option<String>) {
        let Some(delivery) = deliveries(&self.runs[sender]).into_iter().next() else {
            return (Step::default(), None);
        };
        let name = match &delivery.order {
            Order::Report { report, .. } if report.closed.is_some() => "child closed",
            Order::Report { .. } => "child run started",
            Order::Stop { .. } => "stop",
            Order::RequestCancellation { .. } => "request cancellation",
            Order::ReportExecution { .. } | Order::Publish(_) | Order::ReopenForChild { .. } => {
                unreachable!("this world has no definition runs")
            }
        };
        let number = delivery.number;
        let taken = self.commands.values().any(|(_, row)| {
            row.request_id.as_ref() == Some(&delivery.request_id)
                && row.status == CommandStatus::Accepted
        });
        let (mut step, outcome) = self.carry(delivery);
        let Ok(refusal) = outcome else {
            return (step, Some(format!("{name}: later")));
        };
        assert!(
            !taken || refusal.is_none(),
            "50: a repeated message that was applied is not refused"
        );
        let text = match &refusal {
            Some(refusal) => format!("{name}: refused, {refusal}"),
            None => name.to_owned(),
        };
        if confirmation == Confirmation::Sent {
            let (more, _) = self.apply_to(sender, &ConfirmDelivery { number, refusal });
            step.extend(more);
        }
        (step, Some(text))
    }

    fn carry(&mut self, delivery: Delivery) -> (Step, Result<Option<String>, ()>) {
        let mut step = Step::default();
        match delivery.order {
            Order::ReportExecution { .. } | Order::Publish(_) | Order::ReopenForChild { .. } => {
                unreachable!("this world has no definition runs")
            }
            Order::Report {
                parent_run_id,
                report,
            } => {
                let mut parent = parent_run_id;
                loop {
                    let (more, reply) = self.apply_to(&parent, &*report);
                    step.extend(more);
                    match reply {
                        Ok(Reported::Forward(next)) => parent = next,
                        _ => return (step, Ok(None)),
                    }
                }
            }
            Order::Stop {
                workflow_id,
                how,
                reason,
                life: _,
            } => self.carry_stop(&workflow_id, how, &delivery.request_id, Some(reason)),
            Order::RequestCancellation {
                workflow_id,
                cleanup_deadline_at,
                reason,
                context,
            } => {
                let receiver = self.instances[&workflow_id].clone();
                let request = self.request_on(&workflow_id, Some(&delivery.request_id));
                let mut command =
                    self.cancellation(request, CleanupBudget::Until(cleanup_deadline_at));
                command.reason.clone_from(&reason);
                let waits_for_it = context.is_some();
                command.passed_on = context;
                let (step, reply) = self.apply_to(&receiver, &PassOnCancellation(command));
                match reply {
                    Err(Rejection::NotCooperative) if waits_for_it => {
                        self.carry_stop(&workflow_id, Stop::Cancel, &delivery.request_id, reason)
                    }
                    Err(Rejection::ActiveClaimNotCooperative { .. }) => (step, Err(())),
                    reply => (
                        step,
                        Ok(reply.err().map(|error| error.reason().to_string())),
                    ),
                }
            }
        }
    }

    fn carry_stop(
        &mut self,
        workflow_id: &WorkflowId,
        how: Stop,
        request_id: &str,
        reason: Option<String>,
    ) -> (Step, Result<Option<String>, ()>) {
        let receiver = self.instances[workflow_id].clone();
        let command = StopRun {
            request: self.request_on(workflow_id, Some(request_id)),
            how,
            reason,
            life: None,
        };
        let (step, reply) = self.apply_to(&receiver, &command);
        (
            step,
            Ok(reply.err().map(|error| error.reason().to_string())),
        )
    }

    /// Delivers everything, including the messages that deliveries cause, until no run has any.
    pub(crate) fn deliver_all(&mut self) {
        // Workers finish what they hold: a message that waits for one is delivered again.
        self.capable = true;
        while let Some(sender) = self.senders().into_iter().next() {
            self.deliver(&sender, Confirmation::Sent);
        }
    }
}

impl Step {
    fn extend(&mut self, more: Self) {
        self.events.extend(more.events);
        self.tasks.extend(more.tasks);
    }
}
