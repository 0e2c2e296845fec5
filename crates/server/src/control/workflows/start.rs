//! `POST /api/workflows`: from a body to a start, and from its result to a reply. The engine decides what happens if the workflow id is
//! in use.

use http::StatusCode;
use longhaul_host::Error;
use longhaul_host::api::{DuplicatePolicy, Rejection, Routing, Start, StartOutcome};
use longhaul_protocol::id::WorkflowId;
use longhaul_protocol::payload::{self, CODEC, Payload, memo};
use serde_json::{Map, Value, json};

use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;
use crate::request::body::Body;

/// Values of `duplicate_policy`, the default first.
pub(in crate::control) const DUPLICATE_POLICIES: [&str; 2] = ["fail", "use-existing"];

/// Fields of other APIs. They are refused and not ignored, so that a caller notices that they have no effect.
pub(in crate::control) const REFUSED_START_FIELDS: [&str; 6] = [
    "workflow_execution_timeout",
    "workflow_run_timeout",
    "workflow_task_timeout",
    "retry_policy",
    "idempotency_key",
    "request_id",
];

/// Characters of a workflow type, queue, business key or build id: the length of an indexed column in the reference server.
const NAME_MAX: usize = 255;

/// Bytes of a workflow id.
const WORKFLOW_ID_MAX: usize = 128;

const QUEUE_DEFAULT: &str = "default";

/// The least urgent priority.
const PRIORITY_MAX: u8 = 9;

const FAIRNESS_KEY_MAX: usize = 64;
const FAIRNESS_WEIGHT_MAX: u32 = 1000;

pub(in crate::control) async fn start(call: Call) -> Result<Reply, Refusal> {
    let start = read_start(&call)?;
    let (workflow_id, namespace) = (start.workflow_id.clone(), start.namespace.clone());
    let workflow_type = start.workflow_type.clone();
    let started = call
        .host()
        .workflows()
        .start(start)
        .await
        .map_err(|error| refused(&error, &workflow_id, &workflow_type))?;
    let status = match started.outcome {
        StartOutcome::StartedNew => StatusCode::CREATED,
        StartOutcome::ReturnedExistingActive => StatusCode::OK,
    };
    let body = json!({
        "workflow_id": workflow_id,
        "run_id": started.run_id,
        "workflow_type": started.workflow_type,
        "namespace": namespace,
        "status": started.status.as_str(),
        "business_key": started.business_key,
        "payload_codec": CODEC,
        "outcome": started.outcome.as_str(),
        "command_status": "accepted",
        "command_source": "control_plane",
        "reason": null,
        "rejection_reason": null,
        "message": null,
    });
    Ok(Reply::new(status, body))
}

fn refused(error: &Error, workflow_id: &WorkflowId, workflow_type: &str) -> Refusal {
    let refusal = crate::error::refusal(error).with("workflow_id", workflow_id.as_str());
    match error {
        Error::Rejected(Rejection::AlreadyStarted { .. }) => {
            let reason = refusal.reason.as_str();
            refusal
                .with("rejection_reason", reason)
                .with("command_source", "control_plane")
        }
        Error::TaskQueueDraining(_) | Error::CompatibilityBlocked { .. } => {
            let (reason, outcome) = (
                refusal.reason.as_str(),
                format!("rejected_{}", refusal.reason.as_str()),
            );
            refusal
                .with("workflow_type", workflow_type)
                .with("rejection_reason", reason)
                .with("outcome", outcome)
                .with("command_status", "rejected")
                .with("command_source", "control_plane")
        }
        _ => refusal,
    }
}

fn read_start(call: &Call) -> Result<Start, Refusal> {
    call.check_input()?;
    let body = &call.body;
    for field in REFUSED_START_FIELDS {
        if body.raw(field).is_some() {
            body.refuse(field, "is not supported");
        }
    }
    body.check_codec();
    if body.raw("workflow_type").is_none() {
        body.refuse("workflow_type", "is required");
    }
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    let workflow_id = read_workflow_id(body);
    let workflow_type = body.characters("workflow_type", NAME_MAX);
    let task_queue = body.note("task_queue", NAME_MAX);
    let business_key = body.note("business_key", NAME_MAX);
    let memo = read_memo(body, call.host().config().limits.memo_start_bytes);
    let search_attributes = read_search_attributes(body);
    let run_timeout_seconds = body.count("run_timeout_seconds", 1);
    let execution_timeout_seconds = body.count("execution_timeout_seconds", 1);
    let routing = read_routing(body);
    let duplicate_policy = read_duplicate_policy(body);
    Ok(Start {
        arguments: body.finish(arguments)?,
        namespace: call.namespace.clone(),
        workflow_id: workflow_id.unwrap_or_else(|| call.host().workflows().mint_id()),
        workflow_type: workflow_type.unwrap_or_default(),
        task_queue: task_queue
            .unwrap_or_else(|| QUEUE_DEFAULT.to_owned())
            .into(),
        business_key,
        memo,
        search_attributes,
        run_timeout_seconds,
        execution_timeout_seconds,
        routing,
        duplicate_policy,
        declared: Map::new(),
        principal: Some(call.caller.principal.to_string()),
        context: Some(call.context()),
    })
}

fn read_workflow_id(body: &Body) -> Option<WorkflowId> {
    let id = body.text("workflow_id", WORKFLOW_ID_MAX)?;
    if !is_plain_name(&id) {
        body.refuse(
            "workflow_id",
            "may contain only letters, digits and . _ : -",
        );
        return None;
    }
    Some(id.into())
}

/// Returns whether a text has only the characters of workflow ids and fairness keys.
fn is_plain_name(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

/// Reads the memo, a JSON object that the server encodes. Its values are plain data and never payload envelopes.
fn read_memo(body: &Body, bytes_max: u64) -> Option<Payload> {
    let raw = body.raw("memo")?;
    if !raw.get().starts_with('{') {
        body.refuse("memo", "must be an object");
        return None;
    }
    if raw.get().len() as u64 > bytes_max {
        body.refuse("memo", &format!("may have at most {bytes_max} bytes"));
        return None;
    }
    let encoded = body.payload(payload::plain_json(raw, "memo")).ok()?;
    let Ok(payload::Value::Map(entries)) = encoded.decode() else {
        return None;
    };
    if let Some((key, _)) = entries.iter().find(|(key, _)| !memo::is_key(key)) {
        let shown: String = key.chars().take(memo::KEY_CHARACTERS_MAX).collect();
        body.refuse(
            "memo",
            &format!(
                "has a key that is not 1 to 64 of A-Z a-z 0-9 _ . : - or is a number: {shown}"
            ),
        );
        return None;
    }
    (!entries.is_empty()).then_some(encoded)
}

/// Reads the search attributes and checks their shapes; the engine checks their number and size. Null removes an attribute, so it has
/// no effect on a start.
fn read_search_attributes(body: &Body) -> Map<String, Value> {
    let attributes = body.object("search_attributes").unwrap_or_default();
    for (name, value) in &attributes {
        let is_attribute = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            Value::Array(items) => items.iter().all(Value::is_string),
            Value::Object(_) => false,
        };
        if name.is_empty() {
            body.refuse("search_attributes", "an attribute needs a name");
        }
        if !is_attribute {
            body.refuse(
                "search_attributes",
                &format!("{name} must be a string, a number, true or false, or a list of strings"),
            );
        }
    }
    attributes
}

fn read_routing(body: &Body) -> Routing {
    let in_range = |field: &str, least: u32, most: u32, default: u32| {
        let Some(number) = body.integer(field) else {
            return default;
        };
        match u32::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                body.refuse(field, &format!("must be a number from {least} to {most}"));
                default
            }
        }
    };
    let fairness_key = body.text("fairness_key", FAIRNESS_KEY_MAX);
    if fairness_key
        .as_deref()
        .is_some_and(|key| !is_plain_name(key))
    {
        body.refuse(
            "fairness_key",
            "may contain only letters, digits and . _ : -",
        );
    }
    let build_id = body.note("build_id", NAME_MAX);
    let compatibility = body.note("compatibility", NAME_MAX);
    let priority = in_range(
        "priority",
        0,
        PRIORITY_MAX.into(),
        Routing::PRIORITY_DEFAULT.into(),
    );
    Routing {
        priority: u8::try_from(priority).unwrap_or(Routing::PRIORITY_DEFAULT),
        fairness_key,
        fairness_weight: in_range("fairness_weight", 1, FAIRNESS_WEIGHT_MAX, 1),
        compatibility: build_id.or(compatibility),
    }
}

fn read_duplicate_policy(body: &Body) -> DuplicatePolicy {
    let word = body.text("duplicate_policy", NAME_MAX);
    match word.as_deref() {
        None | Some("fail") => DuplicatePolicy::Fail,
        Some("use-existing") => DuplicatePolicy::UseExisting,
        Some(_) => {
            body.refuse(
                "duplicate_policy",
                &format!("must be one of {}", DUPLICATE_POLICIES.join(", ")),
            );
            DuplicatePolicy::Fail
        }
    }
}
