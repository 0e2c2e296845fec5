//! Registered workers, for operators.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use longhaul_host::{Error, Host, WorkerFilter, WorkerView};
use longhaul_protocol::Reason;
use longhaul_protocol::id::{TaskQueue, WorkerId};
use serde_json::{Map, Value, json};

use super::Call;
use super::envelope::Reply;
use crate::gate::Refusal;

pub(super) mod session_list;

/// Default and largest page size: clients that do not follow pages then see every worker of an ordinary fleet.
const PAGE_SIZE_MAX: usize = 1000;

/// Values of the `status` filter.
const STATUSES: [&str; 3] = ["active", "draining", "stale"];

/// The slots that a worker may report.
const SLOTS: [&str; 6] = [
    "workflow_available",
    "workflow_capacity",
    "activity_available",
    "activity_capacity",
    "session_available",
    "session_capacity",
];

pub(super) async fn list(call: Call) -> Result<Reply, Refusal> {
    let parameters = &call.parameters;
    let status = parameters.text("status");
    if status.is_some_and(|status| !STATUSES.contains(&status)) {
        parameters.refuse("status", &format!("must be one of {}", STATUSES.join(", ")));
    }
    let filter = WorkerFilter {
        task_queue: parameters.text("task_queue").map(TaskQueue::from),
        status: status.map(str::to_owned),
        after: parameters.page_token(read_name).map(WorkerId::from),
        limit: parameters.page_size(PAGE_SIZE_MAX, PAGE_SIZE_MAX),
    };
    parameters.check()?;
    let page = call.host().workers().list(&call.namespace, &filter).await?;
    let rows: Vec<Value> = page
        .workers
        .iter()
        .map(|worker| Value::Object(shown(call.host(), worker)))
        .collect();
    let stale_after = call.host().config().worker_stale_seconds;
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "workers": rows,
        "stale_after_seconds": stale_after,
        "next_page_token": page.next.map(|worker_id| write_name(worker_id.as_str())),
    })))
}

/// Returns the page token of a list that is ordered by name: the last name of the page. Rows that appear or disappear do not shift
/// the next page.
pub(super) fn write_name(name: &str) -> String {
    URL_SAFE_NO_PAD.encode(name)
}

pub(super) fn read_name(token: &str) -> Option<String> {
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    (!name.is_empty()).then_some(name)
}

pub(super) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let worker = call
        .host()
        .workers()
        .get(&call.namespace, &worker_id(&call))
        .await
        .map_err(|error| refused(&error))?;
    let mut body = shown(call.host(), &worker);
    body.insert("updated_at".to_owned(), json!(worker.row.updated_at));
    Ok(Reply::ok(Value::Object(body)))
}

/// Deregisters a worker, as if the worker did it itself.
pub(super) async fn deregister(call: Call) -> Result<Reply, Refusal> {
    let worker_id = worker_id(&call);
    let released = call
        .host()
        .workers()
        .deregister(&call.namespace, &worker_id)
        .await
        .map_err(|error| refused(&error))?;
    Ok(Reply::ok(json!({
        "worker_id": worker_id,
        "outcome": "deregistered",
        "recovered_workflow_task_count": released,
    })))
}

fn worker_id(call: &Call) -> WorkerId {
    call.segment("worker_id").into()
}

/// Renders an unknown worker as a 404. On a poll the same error means that the worker must register first.
fn refused(error: &Error) -> Refusal {
    match error {
        Error::WorkerNotRegistered(worker_id) => {
            let message = format!("There is no worker `{worker_id}` in this namespace.");
            Refusal::new(StatusCode::NOT_FOUND, Reason::WorkerNotFound, message)
                .with("worker_id", worker_id.as_str())
        }
        other => crate::error::refusal(other),
    }
}

/// Renders a worker for lists and queues.
pub(super) fn shown(host: &Host, worker: &WorkerView) -> Map<String, Value> {
    let row = &worker.row;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    set("worker_id", json!(row.worker_id));
    set("namespace", json!(row.namespace));
    set("task_queue", json!(row.task_queue));
    set("runtime", json!(row.runtime));
    set("sdk_version", json!(row.sdk_version));
    set("build_id", json!(row.build_id));
    set("status", json!(worker.status()));
    set(
        "supported_workflow_types",
        json!(row.supported_workflow_types),
    );
    set(
        "supported_activity_types",
        json!(row.supported_activity_types),
    );
    set(
        "workflow_definition_fingerprints",
        json!(row.workflow_definition_fingerprints),
    );
    set(
        "workflow_command_contracts",
        json!(row.workflow_command_contracts),
    );
    set("capabilities", json!(row.capabilities));
    set(
        "max_concurrent_workflow_tasks",
        json!(row.max_concurrent_workflow_tasks),
    );
    set(
        "max_concurrent_activity_tasks",
        json!(row.max_concurrent_activity_tasks),
    );
    set(
        "max_concurrent_worker_sessions",
        json!(row.max_concurrent_worker_sessions),
    );
    set("task_slots", task_slots(row.task_slots.as_ref()));
    set("process_metrics", json!(row.process_metrics));
    set(
        "heartbeat_interval_seconds",
        json!(host.config().worker_heartbeat_seconds),
    );
    set("last_heartbeat_at", json!(row.last_heartbeat_at));
    set("registered_at", json!(row.registered_at));
    body
}

/// Renders every slot by name; null if the worker did not report it.
fn task_slots(said: Option<&Value>) -> Value {
    let slot = |name: &str| {
        said.and_then(|slots| slots.get(name))
            .cloned()
            .unwrap_or(Value::Null)
    };
    SLOTS
        .iter()
        .map(|name| ((*name).to_owned(), slot(name)))
        .collect()
}
