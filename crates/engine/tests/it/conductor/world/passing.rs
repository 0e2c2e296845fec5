//! What happens without a caller: passes go on, messages are delivered, time passes.

use longhaul_engine::Rejection;
use longhaul_engine::command::{AdvanceTime, ContinuePass, StopRun, TerminateExecution};
use longhaul_engine::conductor::execution::command::control::has_work;
use longhaul_engine::conductor::execution::end::AfterTermination;
use longhaul_engine::run::family::outbox::{ConfirmDelivery, Order, deliveries};
use longhaul_engine::run::message::external::{Request, Stop};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::RunId;

use super::World;
use crate::conductor::invariants;

impl World {
    /// Lets every run go on and delivers every message, until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        loop {
            let working = self.runs.values().find(|run| has_work(run));
            if let Some(run_id) = working.map(|run| run.run_id().clone()) {
                let more = self.act(&run_id, &ContinuePass).unwrap();
                assert_eq!(more, has_work(&self.runs[&run_id]), "the reply is right");
                continue;
            }
            let sender = self.runs.values().find(|run| !deliveries(run).is_empty());
            let Some(sender) = sender.map(|run| run.run_id().clone()) else {
                break;
            };
            self.deliver(&sender);
        }
        for run_id in self.runs.keys() {
            invariants::check_rest(self, run_id);
        }
    }

    /// Delivers the oldest message of a run and confirms it.
    fn deliver(&mut self, sender: &RunId) {
        let Some(delivery) = deliveries(&self.runs[sender]).into_iter().next() else {
            return;
        };
        let receiver = match &delivery.order {
            Order::ReportExecution { parent_run_id, .. }
            | Order::ReopenForChild { parent_run_id, .. } => parent_run_id.clone(),
            Order::Stop { workflow_id, .. } => RunId::from(workflow_id.as_str()),
            // It is for the handlers of events.
            Order::Publish(_) => sender.clone(),
            Order::Report { .. } | Order::RequestCancellation { .. } => {
                panic!("a definition run sends no such message")
            }
        };
        if !self.runs.contains_key(&receiver) {
            // The receiver was removed: the message is of no use any more.
            let (number, refusal) = (delivery.number, None);
            let confirm = ConfirmDelivery { number, refusal };
            return self.act(sender, &confirm).unwrap();
        }
        self.letters.push(delivery.order.clone());
        match delivery.order {
            Order::ReportExecution {
                parent_run_id,
                report,
            } => {
                self.act(&parent_run_id, &*report).unwrap();
                // A message may be delivered twice.
                let before = self.runs[&parent_run_id].version;
                self.act(&parent_run_id, &*report).unwrap();
                assert_eq!(before, self.runs[&parent_run_id].version);
            }
            Order::ReopenForChild {
                parent_run_id,
                reopen,
            } => {
                self.act(&parent_run_id, &*reopen).unwrap();
                let before = self.runs[&parent_run_id].version;
                self.act(&parent_run_id, &*reopen).unwrap();
                assert_eq!(before, self.runs[&parent_run_id].version);
            }
            Order::Stop {
                workflow_id,
                how,
                reason,
                life,
            } => {
                let receiver = RunId::from(workflow_id.as_str());
                self.stop(&receiver, how, &reason, life).ok();
            }
            Order::Publish(message) => self.published.push(*message),
            Order::Report { .. } | Order::RequestCancellation { .. } => {
                panic!("a definition run sends no such message")
            }
        }
        let number = delivery.number;
        let refusal = None;
        self.act(sender, &ConfirmDelivery { number, refusal })
            .unwrap();
    }

    /// Delivers a message again that was delivered before. It changes nothing: its receiver knows it, or is in another life.
    pub(crate) fn repeat_letter(&mut self, which: usize) {
        if self.letters.is_empty() {
            return;
        }
        let ends = |world: &Self| -> Vec<_> {
            let runs = world.runs.values();
            runs.map(|run| (run.core.closed.clone(), world.trace(run.run_id())))
                .collect()
        };
        let before = ends(self);
        match self.letters[which % self.letters.len()].clone() {
            Order::ReportExecution {
                parent_run_id,
                report,
            } => self.act(&parent_run_id, &*report).unwrap(),
            Order::ReopenForChild {
                parent_run_id,
                reopen,
            } => self.act(&parent_run_id, &*reopen).unwrap(),
            Order::Stop {
                workflow_id,
                how,
                reason,
                life,
            } => {
                let receiver = RunId::from(workflow_id.as_str());
                self.stop(&receiver, how, &reason, life).unwrap_err();
            }
            // The handlers of events are not in this world.
            Order::Publish(_) | Order::Report { .. } | Order::RequestCancellation { .. } => {}
        }
        assert_eq!(ends(self), before, "a late message changes nothing");
    }

    fn stop(
        &mut self,
        run_id: &RunId,
        how: Stop,
        reason: &str,
        life: Option<u32>,
    ) -> Result<(), Rejection> {
        let command = StopRun {
            request: Request::default(),
            how,
            reason: Some(reason.to_owned()),
            life,
        };
        self.act(run_id, &command).map(drop)
    }

    pub(crate) fn terminate(&mut self, run_id: &RunId, reason: &str) -> Result<(), Rejection> {
        self.terminate_and(run_id, reason, AfterTermination::Nothing)
    }

    pub(crate) fn terminate_and(
        &mut self,
        run_id: &RunId,
        reason: &str,
        then: AfterTermination,
    ) -> Result<(), Rejection> {
        let command = TerminateExecution {
            reason: Some(reason.to_owned()),
            then,
        };
        let ended = self.act(run_id, &command);
        self.settle();
        ended
    }

    /// Moves the clock and fires every alarm on the way.
    pub(crate) fn wait_seconds(&mut self, seconds: u64) {
        let end = self.now.plus_seconds(seconds);
        while let Some(alarm) = self.next_alarm().filter(|alarm| *alarm <= end) {
            self.now = self.now.max(alarm);
            self.fire_alarms();
        }
        self.now = end;
    }

    pub(crate) fn next_alarm(&self) -> Option<Timestamp> {
        self.runs.values().filter_map(|run| run.core.alarm).min()
    }

    /// Fires the alarms that are due.
    pub(crate) fn fire_alarms(&mut self) {
        let due: Vec<RunId> = self
            .runs
            .values()
            .filter(|run| run.core.alarm.is_some_and(|alarm| alarm <= self.now))
            .map(|run| run.run_id().clone())
            .collect();
        for run_id in due {
            self.act(&run_id, &AdvanceTime).unwrap();
        }
        self.settle();
        for run in self.runs.values() {
            assert!(
                run.core.alarm.is_none_or(|alarm| alarm > self.now),
                "nothing is due after time was advanced"
            );
        }
    }
}
