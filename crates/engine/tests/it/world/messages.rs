//! Messages from outside: signals, updates, stream messages, requests to stop or to clean up and end.

use longhaul_engine::Rejection;
use longhaul_engine::contract::Declared;
use longhaul_engine::run::activity::stop::{AcknowledgeStop, StopAcknowledged};
use longhaul_engine::run::cancellation::{
    CancellationReceipt, CleanupBudget, DeliverCancellation, Delivered, EarlierRun,
    RequestCancellation, requester,
};
use longhaul_engine::run::message::external::{
    Earlier, Receipt, Request, SignalRun, Stop, StopRun,
};
use longhaul_engine::run::message::stream::{AppendMessage, Appended};
use longhaul_engine::run::message::update::UpdateRun;
use longhaul_engine::run::operator::archive::ArchiveRun;
use longhaul_engine::run::operator::repair::RepairRun;
use longhaul_protocol::Payload;
use longhaul_protocol::history::DeliveryPlace;
use longhaul_protocol::id::{CommandId, RunId, WorkflowId};
use longhaul_protocol::payload::Value as PayloadValue;

use super::{Step, World};

pub(super) fn arguments(text: &str) -> Payload {
    let list = PayloadValue::Array(vec![PayloadValue::String(text.to_owned())]);
    Payload::encode(&list).unwrap()
}

impl World {
    /// Returns a request on a workflow, with the command that already has its id.
    pub(super) fn request_on(&self, workflow_id: &WorkflowId, request_id: Option<&str>) -> Request {
        let earlier = request_id.and_then(|id| {
            self.commands
                .iter()
                .find(|((workflow, _), (_, command))| {
                    workflow == workflow_id && command.request_id.as_deref() == Some(id)
                })
                .map(|(_, taken)| taken.clone())
        });
        Request {
            requested_run_id: None,
            request_id: request_id.map(str::to_owned),
            earlier: earlier.map(|(run_id, command)| Box::new(Earlier { run_id, command })),
            principal: None,
            context: None,
        }
    }

    fn request(&self, request_id: Option<&str>) -> Request {
        self.request_on(self.focus.as_ref().expect("a workflow"), request_id)
    }

    pub(crate) fn signal(
        &mut self,
        name: &str,
        argument: &str,
        request_id: Option<&str>,
    ) -> (Step, Result<Receipt, Rejection>) {
        let shown_as_accepted = self.run().accepts_commands(self.run().run_id());
        let (step, reply) = self.apply(&SignalRun {
            request: self.request(request_id),
            name: name.to_owned(),
            arguments: arguments(argument),
            declared: Declared::default(),
        });
        let accepted = reply.as_ref().is_ok_and(|receipt| !receipt.retained);
        assert!(!accepted || shown_as_accepted, "only an open run accepts");
        (step, reply)
    }

    /// Sends an update. `of_run` names the run it is for, so that it does not move with the workflow.
    pub(crate) fn update(
        &mut self,
        name: &str,
        request_id: Option<&str>,
        of_run: bool,
    ) -> (Step, Result<Receipt, Rejection>) {
        let mut request = self.request(request_id);
        request.requested_run_id = of_run.then(|| self.run().run_id().clone());
        self.apply(&UpdateRun {
            request,
            name: name.to_owned(),
            arguments: arguments(""),
            declared: Declared::default(),
            validator_refusal: None,
        })
    }

    pub(crate) fn append_message(
        &mut self,
        stream_name: &str,
        message_id: &str,
    ) -> (Step, Result<Appended, Rejection>) {
        let request_id = AppendMessage::request_id(stream_name, message_id);
        self.apply(&AppendMessage {
            request: self.request(Some(&request_id)),
            stream_name: stream_name.to_owned(),
            message_id: message_id.to_owned(),
            arguments: arguments(message_id),
        })
    }

    pub(crate) fn stop(
        &mut self,
        how: Stop,
        request_id: Option<&str>,
    ) -> (Step, Result<Receipt, Rejection>) {
        self.apply(&StopRun {
            request: self.request(request_id),
            how,
            reason: Some("operator".to_owned()),
            life: None,
        })
    }

    pub(super) fn cancellation(
        &self,
        request: Request,
        budget: CleanupBudget,
    ) -> RequestCancellation {
        RequestCancellation {
            request,
            reason: Some("maintenance".to_owned()),
            budget,
            requester: requester(None),
            passed_on: None,
            earlier_run: None,
            capable_worker: self.capable,
            capable_claim: self.capable,
        }
    }

    pub(crate) fn request_cancellation(
        &mut self,
        seconds: u64,
        request_id: Option<&str>,
    ) -> (Step, Result<CancellationReceipt, Rejection>) {
        let mut request =
            self.cancellation(self.request(request_id), CleanupBudget::Seconds(seconds));
        request.earlier_run = self.earlier_run(&request.request);
        self.apply(&request)
    }

    /// Returns the run that recorded the earlier request, as the host finds it.
    fn earlier_run(&self, request: &Request) -> Option<Box<EarlierRun>> {
        let run = &self.runs[&request.earlier.as_ref()?.run_id];
        Some(Box::new(EarlierRun {
            status: run.core.status,
            cancellation: (**run.core.cancellation.as_ref()?).clone(),
        }))
    }

    pub(crate) fn repair(
        &mut self,
        request_id: Option<&str>,
    ) -> (Step, Result<Receipt, Rejection>) {
        self.apply(&RepairRun {
            request: self.request(request_id),
        })
    }

    pub(crate) fn archive(
        &mut self,
        request_id: Option<&str>,
    ) -> (Step, Result<Receipt, Rejection>) {
        let shown_as_accepted = self.run().accepts_archive(self.run().run_id());
        let (step, reply) = self.apply(&ArchiveRun {
            request: self.request(request_id),
            reason: None,
        });
        let accepted = reply.as_ref().is_ok_and(|receipt| !receipt.retained);
        assert!(!accepted || shown_as_accepted, "only a closed run accepts");
        (step, reply)
    }

    /// Returns the id of the run's cancellation request.
    pub(crate) fn cancellation_id(&self, run_id: &RunId) -> Option<CommandId> {
        let cancellation = self.runs[run_id].core.cancellation.as_ref()?;
        Some(cancellation.request_id.clone())
    }

    pub(crate) fn deliver_cancellation(
        &mut self,
        worker: &str,
        place: DeliveryPlace,
    ) -> (Step, Result<Delivered, Rejection>) {
        let request_id = self
            .cancellation_id(&self.run().run_id().clone())
            .unwrap_or_else(|| CommandId::from("none"));
        let (step, reply) = self.apply(&DeliverCancellation {
            holder: self.holder(worker, None),
            request_id,
            place,
        });
        (step, reply.map(|(_, _, delivered)| delivered))
    }

    pub(crate) fn acknowledge_stop(
        &mut self,
        sequence: u64,
        worker: &str,
    ) -> (Step, Result<StopAcknowledged, Rejection>) {
        let request_id = self
            .cancellation_id(&self.run().run_id().clone())
            .unwrap_or_else(|| CommandId::from("none"));
        let Some(reporter) = self.reporter(sequence, worker) else {
            return (Step::default(), Err(Rejection::AttemptNotFound));
        };
        self.apply(&AcknowledgeStop {
            reporter,
            request_id,
        })
    }
}
