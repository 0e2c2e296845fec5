//! Cooperative cancellation on workflow tasks: where a request reached the workflow's code.

use longhaul_host::api::{Delivered, StoppingKind};
use longhaul_protocol::Reason;
use longhaul_protocol::history::DeliveryPlace;
use longhaul_protocol::id::CommandId;
use longhaul_protocol::sequence::CommandSeq;
use serde_json::json;

use super::workflow_tasks::{read_holder, rejected};
use super::{Call, NAME_MAX, Reply};
use crate::gate::Refusal;
use crate::request::body::Body;

/// Records where a cancellation request reached the workflow's code.
pub(super) async fn deliver_cancellation(call: Call) -> Result<Reply, Refusal> {
    let holder = read_holder(&call);
    let body = &call.body;
    let request_id = CommandId::from(body.required_text("request_id", NAME_MAX));
    let place = read_place(body);
    body.check()?;
    let (run_id, task_id, delivered) = call
        .host()
        .workflow_tasks()
        .deliver_cancellation(&holder, &request_id, &place)
        .await
        .map_err(rejected("deliver_cancellation", &holder))?;
    Ok(Reply::ok(&match delivered {
        Delivered::Recorded => json!({
            "delivered": true,
            "task_id": task_id,
            "workflow_run_id": run_id,
            "workflow_task_attempt": holder.attempt,
            "request_id": request_id,
            "sequence": place.sequence,
            "call_kind": place.call_kind,
            "sequence_span": place.sequence_span,
            "operation_sequence": place.operation_sequence,
            // One SDK refuses a null here.
            "operation_sequence_span": place.operation_sequence_span.unwrap_or(1),
            "reason": null,
        }),
        Delivered::Waiting(kind) => json!({
            "delivered": false,
            "reason": match kind {
                StoppingKind::Activity => Reason::CancellationWaitingForActivity.as_str(),
                StoppingKind::Child => Reason::CancellationWaitingForChild.as_str(),
            },
            "claim_released": true,
            "task_id": task_id,
            "workflow_run_id": run_id,
        }),
    }))
}

/// Kinds of calls at which a cancellation can be delivered.
const CALL_KINDS: [&str; 9] = [
    "activity",
    "local_activity",
    "timer",
    "condition",
    "signal",
    "child",
    "parallel",
    "selection_handle",
    "service_operation",
];

/// Longest range of calls that one delivery interrupts.
const SPAN_MAX: u64 = 1000;

fn read_place(body: &Body) -> DeliveryPlace {
    let call_kind = body.required_text("call_kind", NAME_MAX);
    if !call_kind.is_empty() && !CALL_KINDS.contains(&call_kind.as_str()) {
        body.refuse(
            "call_kind",
            &format!("must be one of {}", CALL_KINDS.join(", ")),
        );
    }
    let is_handle = call_kind == "selection_handle";
    let place = DeliveryPlace {
        sequence: body.required_count("sequence", 1).into(),
        sequence_span: body.count("sequence_span", 1).unwrap_or(1),
        operation_sequence: body.count("operation_sequence", 1).map(CommandSeq::new),
        // A span has a meaning only for an operation.
        operation_sequence_span: body
            .count("operation_sequence_span", 1)
            .filter(|_| is_handle),
        call_kind,
    };
    if place.sequence_span > SPAN_MAX || place.operation_sequence_span.unwrap_or(1) > SPAN_MAX {
        body.refuse("sequence_span", &format!("must be at most {SPAN_MAX}"));
    }
    if place.sequence_span > 1 && place.call_kind != "parallel" {
        body.refuse("sequence_span", "only a parallel group spans several calls");
    }
    if is_handle != place.operation_sequence.is_some() {
        body.refuse(
            "operation_sequence",
            "is required for a selection handle and not allowed otherwise",
        );
    }
    place
}
