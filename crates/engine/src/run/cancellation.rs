//! Cooperative cancellation: the workflow is asked to clean up and end, instead of being closed. The request is recorded once. A
//! worker that supports it reports the call at which the request reached the code; the work of that call is stopped according to
//! its policy; cleanup is ordinary work. A run that is still open at the deadline is cancelled.

use longhaul_protocol::Timestamp;
use longhaul_protocol::history::{
    CooperativeCancellationDelivered, CooperativeCancellationRequested, DeliveryPlace, EventPayload,
};
use longhaul_protocol::id::{CommandId, EventId, RunId, TaskId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::{CancellationPolicy, FieldErrors, ParentClosePolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::change::{CommandType, TaskStatus};
use crate::run::draft::{Cancelling, Cause, Draft};
use crate::run::family::outbox::OutboxBody;
use crate::run::message::external::{Request, Stop, is_current, refuse_closed};
use crate::run::state::room::CANCELLATION_EVENTS;
use crate::run::state::{Part, PartKey, Resume, Run, Status};
use crate::run::workflow_task::lease::Holder;
use crate::run::workflow_task::wake::LookAgain;
use crate::{Command, Decision, Moment, Rejection};

/// The capability that a worker needs for tasks of a run that was asked to end.
pub const CAPABILITY: &str = "cooperative_cancellation";

/// The type of the command that records a request.
const COMMAND_TYPE: CommandType = CommandType::RequestCancellation;

const CONTEXT_SCHEMA: &str = "durable-workflow.cancellation-context/v1";

/// The one cancellation request of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cancellation {
    /// The command that made the request.
    pub request_id: CommandId,
    pub requested_at: Timestamp,
    pub cleanup_deadline_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The event that recorded it.
    pub event_id: EventId,
    /// The first requester, the time, and the runs that passed the request on.
    pub context: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<DeliveryPlace>,
    /// The event that recorded the delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_event_id: Option<EventId>,
}

impl Cancellation {
    pub fn root_request_id(&self) -> &str {
        self.context["root_request_id"]
            .as_str()
            .unwrap_or(self.request_id.as_str())
    }
}

/// Asks the workflow to clean up and end.
#[derive(Clone, Debug)]
pub struct RequestCancellation {
    pub request: Request,
    pub reason: Option<String>,
    pub budget: CleanupBudget,
    /// `{type?, id?, label?}` of the first requester, not empty.
    pub requester: Value,
    /// The context of the run that passes the request on.
    pub passed_on: Option<Value>,
    /// The run that recorded an earlier request with this request id, if it is not the current one.
    pub earlier_run: Option<Box<EarlierRun>>,
    /// Whether a live worker that supports cancellation requests polls for tasks of this run.
    pub capable_worker: bool,
    /// Whether the worker that holds the workflow task supports cancellation requests.
    pub capable_claim: bool,
}

/// A run that was asked to end and that a later run has replaced.
#[derive(Clone, Debug)]
pub struct EarlierRun {
    pub status: Status,
    pub cancellation: Cancellation,
}

/// The time limit for cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupBudget {
    Seconds(u64),
    /// A deadline that was set by the sender of the request.
    Until(Timestamp),
}

/// The request for its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct CancellationReceipt {
    pub run_id: RunId,
    pub run_status: Status,
    pub duplicate: bool,
    pub cancellation: Cancellation,
}

impl Command for RequestCancellation {
    type Reply = CancellationReceipt;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<CancellationReceipt> {
        if let Some(repeat) = self.repeat(run) {
            return repeat;
        }
        if !is_current(run, &self.request) {
            return Decision::reject(Rejection::NotCurrent);
        }
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() || draft.time_out_if_due() {
            let refused = refuse_closed(draft, &self.request, COMMAND_TYPE, None, None);
            let rejection = refused.reply.err().unwrap_or(Rejection::NotCurrent);
            return Decision {
                changes: refused.changes,
                reply: Err(rejection),
            };
        }
        let receipt = |draft: &Draft<'_>, cancellation| CancellationReceipt {
            run_id: draft.run_id().clone(),
            run_status: draft.core.status,
            duplicate: false,
            cancellation,
        };
        if let Some(original) = &run.core.cancellation {
            let receipt = CancellationReceipt {
                duplicate: true,
                ..receipt(&draft, (**original).clone())
            };
            if self.request.request_id.is_none() {
                return Decision::unchanged(receipt);
            }
            // A repeat of its request id gets the same reply.
            let outcome = "cancellation_already_requested";
            draft.record_request(&self.request, COMMAND_TYPE, None, None, outcome, None);
            return draft.finish(Ok(receipt));
        }
        if let Some(rejection) = self.unsupported(run) {
            return Decision::reject(rejection);
        }
        // The request arrives once and ends the run, so it may use the reserve that other requests must leave.
        if let Err(limit) = draft.check_own_events(CANCELLATION_EVENTS) {
            return Decision::reject(Rejection::LimitExceeded(limit));
        }
        let command = draft.record_request(
            &self.request,
            COMMAND_TYPE,
            None,
            None,
            "cancellation_requested",
            None,
        );
        if let Some(row) = draft.commands.last_mut() {
            row.reason.clone_from(&self.reason);
        }
        let deadline = match self.budget {
            CleanupBudget::Seconds(seconds) => draft.now.plus_seconds(seconds),
            // The deadline is after the request, even if the request took long to arrive.
            CleanupBudget::Until(deadline) => deadline.max(draft.now.plus_seconds(1)),
        };
        let context = self.context(&draft, &command.command_id, deadline);
        draft.cause = Cause {
            task_id: None,
            command_id: Some(command.command_id.clone()),
            principal: self.request.principal.clone(),
        };
        let cancellation =
            draft
                .cancellation()
                .record(command.command_id, deadline, self.reason.clone(), context);
        let receipt = receipt(&draft, cancellation);
        draft.finish(Ok(receipt))
    }
}

impl RequestCancellation {
    /// Returns the receipt of the same request id, or the reason why there is none.
    fn repeat(&self, run: &Run) -> Option<Decision<CancellationReceipt>> {
        let earlier = match self.request.earlier(run, COMMAND_TYPE, None, None)? {
            Ok(earlier) => earlier,
            Err(rejection) => return Some(Decision::reject(rejection)),
        };
        let (run_status, cancellation) = match (&self.earlier_run, &run.core.cancellation) {
            (Some(earlier), _) => (earlier.status, earlier.cancellation.clone()),
            (None, Some(cancellation)) => (run.core.status, (**cancellation).clone()),
            (None, None) => {
                return Some(Decision::reject(Rejection::RunNotActive {
                    status: run.core.status,
                }));
            }
        };
        Some(Decision::unchanged(CancellationReceipt {
            run_id: earlier.run_id.clone(),
            run_status,
            duplicate: true,
            cancellation,
        }))
    }

    fn unsupported(&self, run: &Run) -> Option<Rejection> {
        let task = run.core.workflow_task.as_ref();
        match task.filter(|task| task.lease.is_some()) {
            Some(task) if !self.capable_claim => Some(Rejection::ActiveClaimNotCooperative {
                task_id: task.id.clone(),
                attempt: task.attempt,
            }),
            _ if !self.capable_worker => Some(Rejection::NotCooperative),
            _ => None,
        }
    }

    /// Returns where the request began, and every run that passed it on.
    fn context(&self, draft: &Draft<'_>, request_id: &CommandId, deadline: Timestamp) -> Value {
        let own = json!({
            "request_id": request_id,
            "workflow_instance_id": draft.spec.workflow_id,
            "workflow_run_id": draft.spec.run_id,
        });
        let mut context = match &self.passed_on {
            Some(parent) => {
                let mut context = parent.clone();
                context["parent_request_id"] = parent["request_id"].clone();
                context
            }
            None => json!({
                "schema": CONTEXT_SCHEMA,
                "root_request_id": request_id,
                "root_workflow_instance_id": draft.spec.workflow_id,
                "root_workflow_run_id": draft.spec.run_id,
                "requester": self.requester,
                "source": "control_plane",
                "requested_at": draft.now,
                "lineage": [],
            }),
        };
        context["request_id"] = json!(request_id);
        context["cleanup_deadline_at"] = json!(deadline);
        if let Some(reason) = &self.reason {
            context["reason"] = json!(reason);
        }
        if let Some(lineage) = context["lineage"].as_array_mut() {
            lineage.push(own);
        }
        context
    }
}

/// A request that another run passes on in an outbox message. It arrives at least once and counts once, even if the receiver has
/// continued as new or closed since.
#[derive(Clone, Debug)]
pub struct PassOnCancellation(pub RequestCancellation);

impl Command for PassOnCancellation {
    type Reply = ();

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<()> {
        match self.0.request.earlier(run, COMMAND_TYPE, None, None) {
            Some(Ok(_)) => return Decision::unchanged(()),
            Some(Err(rejection)) => return Decision::reject(rejection),
            None => {}
        }
        let Decision { changes, reply } = self.0.decide(run, moment);
        Decision {
            changes,
            reply: reply.map(drop),
        }
    }
}

/// The worker found the call at which the request reaches the workflow code.
#[derive(Clone, Debug)]
pub struct DeliverCancellation {
    pub holder: Holder,
    pub request_id: CommandId,
    pub place: DeliveryPlace,
}

/// The outcome of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is recorded; the lease continues.
    Recorded,
    /// Work that must stop first is still running; the lease ends, and a new task follows when the work has stopped.
    Waiting(StoppingKind),
}

/// What a delivery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppingKind {
    Activity,
    Child,
}

impl Command for DeliverCancellation {
    /// With the run and the task, for the reply.
    type Reply = (RunId, TaskId, Delivered);

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<Self::Reply> {
        let (mut draft, task) = match self.holder.authorize(run, moment) {
            Ok(held) => held,
            Err(refused) => return refused.into_decision(),
        };
        let reply = |delivered| (run.run_id().clone(), task.id.clone(), delivered);
        let request = run
            .core
            .cancellation
            .as_deref()
            .filter(|cancellation| cancellation.request_id == self.request_id);
        let Some(cancellation) = request else {
            return Decision::reject(Rejection::CancellationMismatch);
        };
        match &cancellation.delivered {
            Some(place) if *place == self.place => {
                return Decision::unchanged(reply(Delivered::Recorded));
            }
            Some(_) => return Decision::reject(Rejection::CancellationMismatch),
            None => {}
        }
        // The call is recorded, or among the next. A number beyond that would become the last of the run and leave none for later
        // calls.
        let reach = run
            .core
            .last_command_sequence
            .plus(moment.limits.commands_per_completion);
        if self.place.sequence > reach {
            let message = format!("the run has no call of this number; {reach} is the largest");
            let errors = FieldErrors::from([("sequence".to_owned(), vec![message])]);
            return Decision::reject(Rejection::InvalidCommands { errors });
        }
        if let Some(kind) = draft
            .cancellation()
            .still_stopping(&self.place, cancellation)
        {
            draft.signals().flush_buffered();
            draft.workflow_task().close(TaskStatus::Completed, None);
            draft.core.status = Status::Waiting;
            // A signal that only waits for its turn would send the worker here again at once.
            if draft.core.next_wake.is_some() || draft.oldest_update().is_some() {
                draft.workflow_task().choose_next(LookAgain::No);
            }
            return draft.finish(Ok(reply(Delivered::Waiting(kind))));
        }
        draft.cancellation().deliver(cancellation, &self.place);
        draft.finish(Ok(reply(Delivered::Recorded)))
    }
}

impl Cancelling<'_, '_> {
    fn record(
        &mut self,
        request_id: CommandId,
        cleanup_deadline_at: Timestamp,
        reason: Option<String>,
        context: Value,
    ) -> Cancellation {
        self.draft
            .append(EventPayload::CooperativeCancellationRequested(
                CooperativeCancellationRequested {
                    workflow_command_id: request_id.clone(),
                    workflow_run_id: self.draft.spec.run_id.clone(),
                    workflow_instance_id: self.draft.spec.workflow_id.clone(),
                    cleanup_deadline_at,
                    reason: reason.clone(),
                    cancellation: Some(context.clone()),
                },
            ));
        let event = self
            .draft
            .events
            .last()
            .expect("the event was just written");
        let cancellation = Cancellation {
            request_id: request_id.clone(),
            requested_at: event.recorded_at,
            cleanup_deadline_at,
            reason,
            event_id: event.id.clone(),
            context,
            delivered: None,
            delivered_event_id: None,
        };
        self.draft.core.cancellation = Some(Box::new(cancellation.clone()));
        self.draft.workflow_task().wake(Resume {
            resume_source_kind: Some("cancellation_request".to_owned()),
            resume_source_id: Some(request_id.to_string()),
            workflow_command_id: Some(request_id),
            ..Resume::default()
        });
        // From now on only workers that support it may lease the task.
        self.draft.workflow_task().show();
        cancellation
    }

    /// Moves a request that did not reach the code of a run that continues as new to the new run.
    pub(crate) fn take_over(&mut self, earlier: &Cancellation) {
        let mut context = earlier.context.clone();
        let own = json!(self.draft.spec.run_id);
        if context["root_request_id"] == json!(earlier.request_id) {
            context["root_workflow_run_id"] = own.clone();
        }
        if let Some(last) = context["lineage"]
            .as_array_mut()
            .and_then(|lineage| lineage.last_mut())
        {
            last["workflow_run_id"] = own;
        }
        self.draft.cause.command_id = Some(earlier.request_id.clone());
        self.record(
            earlier.request_id.clone(),
            earlier.cleanup_deadline_at,
            earlier.reason.clone(),
            context,
        );
        self.draft.cause.command_id = None;
    }

    /// Asks running work that the delivery must wait for to stop, and returns its kind, or `None` if there is none. An attempt
    /// whose lease ran out counts as stopped.
    fn still_stopping(
        &mut self,
        place: &DeliveryPlace,
        cancellation: &Cancellation,
    ) -> Option<StoppingKind> {
        let mut stopping = None;
        for sequence in interrupted(place) {
            if let Some(mut activity) = self.draft.activity(sequence).cloned()
                && activity.cancellation_policy
                    == Some(CancellationPolicy::WaitCancellationCompleted)
                && activity.is_running()
            {
                stopping.get_or_insert(StoppingKind::Activity);
                activity.stop_requested = true;
                self.draft.activities().put(activity);
            }
            if let Some(Part::Child(child)) = self.draft.part(PartKey::Child(sequence))
                && child.cancellation_policy == Some(CancellationPolicy::WaitCancellationCompleted)
            {
                stopping.get_or_insert(StoppingKind::Child);
                self.ask_child_to_stop(sequence, cancellation);
            }
        }
        stopping
    }

    /// Passes the request on to a child, once.
    fn ask_child_to_stop(&mut self, sequence: CommandSeq, cancellation: &Cancellation) {
        let Some(Part::Child(child)) = self.draft.part(PartKey::Child(sequence)) else {
            return;
        };
        if child.stop_requested {
            return;
        }
        let mut child = child.clone();
        child.stop_requested = true;
        self.draft
            .outbox()
            .enqueue(OutboxBody::RequestCancellation {
                workflow_id: child.workflow_id.clone(),
                run_id: child.run_id.clone(),
                cleanup_deadline_at: cancellation.cleanup_deadline_at,
                reason: cancellation.reason.clone(),
                context: cancellation.context.clone(),
                policy: ParentClosePolicy::RequestCancellation,
                recorded: false,
            });
        self.draft.put(PartKey::Child(sequence), Part::Child(child));
    }

    fn deliver(&mut self, cancellation: &Cancellation, place: &DeliveryPlace) {
        self.draft.cause.command_id = Some(cancellation.request_id.clone());
        self.draft
            .append(EventPayload::CooperativeCancellationDelivered(
                CooperativeCancellationDelivered {
                    workflow_command_id: cancellation.request_id.clone(),
                    workflow_run_id: self.draft.spec.run_id.clone(),
                    place: place.clone(),
                    cancellation: Some(cancellation.context.clone()),
                },
            ));
        let event_id = self.draft.events.last().map(|event| event.id.clone());
        for sequence in interrupted(place) {
            self.interrupt(sequence, cancellation);
        }
        // The call may not have been recorded; its number counts as used anyway.
        let last = place.sequence.plus(place.sequence_span.saturating_sub(1));
        self.draft.core.last_command_sequence = self.draft.core.last_command_sequence.max(last);
        if let Some(cancellation) = &mut self.draft.core.cancellation {
            cancellation.delivered = Some(place.clone());
            cancellation.delivered_event_id = event_id;
        }
        self.draft.cause.command_id = None;
    }

    /// Stops the work of an interrupted call according to its policy.
    fn interrupt(&mut self, sequence: CommandSeq, cancellation: &Cancellation) {
        if let Some(activity) = self.draft.activity(sequence) {
            if activity.cancellation_policy != Some(CancellationPolicy::Abandon) {
                self.draft.groups().cancel_activity(sequence);
            }
            return;
        }
        if let Some(Part::Child(child)) = self.draft.part(PartKey::Child(sequence)) {
            if child.cancellation_policy == Some(CancellationPolicy::TryCancel) {
                self.ask_child_to_stop(sequence, cancellation);
            }
            return;
        }
        self.draft.groups().cancel_call(sequence);
    }

    /// Closes the run if the time for cleanup has passed; returns whether it did.
    pub(crate) fn close_if_cleanup_is_over(&mut self) -> bool {
        let Some(cancellation) = self.draft.core.cancellation.clone() else {
            return false;
        };
        if cancellation.cleanup_deadline_at > self.draft.now {
            return false;
        }
        self.draft.signals().flush_buffered();
        let reason = format!(
            "Cleanup was not over at {}.",
            cancellation.cleanup_deadline_at
        );
        self.draft
            .stop_run(Stop::Cancel, &cancellation.request_id, Some(&reason), None);
        true
    }
}

impl Draft<'_> {
    /// Returns whether the request has not reached the workflow code yet.
    pub(crate) fn has_undelivered_cancellation(&self) -> bool {
        self.core
            .cancellation
            .as_ref()
            .is_some_and(|cancellation| cancellation.delivered.is_none())
    }
}

/// Returns the command sequences of the calls that a delivery interrupts.
fn interrupted(place: &DeliveryPlace) -> impl Iterator<Item = CommandSeq> {
    let base = place.operation_sequence.unwrap_or(place.sequence);
    let span = match place.operation_sequence {
        Some(_) => place.operation_sequence_span.unwrap_or(1),
        None => place.sequence_span,
    };
    base.run_of(span)
}

/// Returns the requester, as far as the caller is known.
pub fn requester(principal: Option<&str>) -> Value {
    let known: Map<String, Value> = principal
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut requester: Map<String, Value> = ["type", "id", "label"]
        .into_iter()
        .filter_map(|key| {
            let text = known.get(key)?.as_str().filter(|text| !text.is_empty())?;
            Some((key.to_owned(), Value::String(text.to_owned())))
        })
        .collect();
    if requester.is_empty() {
        requester.insert("type".to_owned(), json!("server"));
    }
    Value::Object(requester)
}
