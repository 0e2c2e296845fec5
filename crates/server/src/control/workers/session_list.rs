//! Worker sessions, for operators: which worker holds which session, and which sessions were lost.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longhaul_host::SessionFilter;
use longhaul_host::api::SessionStatus;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::{SessionId, TaskQueue, WorkerId};
use serde_json::{Value, json};

use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;
use crate::views::worker_session::{counts, snapshot};

/// Default and largest page size.
const PAGE_SIZE_DEFAULT: usize = 200;
const PAGE_SIZE_MAX: usize = 1000;

pub(in crate::control) async fn list(call: Call) -> Result<Reply, Refusal> {
    let parameters = &call.parameters;
    let status = parameters.text("status").and_then(|word| {
        let status = SessionStatus::ALL
            .into_iter()
            .find(|status| status.as_str() == word);
        if status.is_none() {
            let words = SessionStatus::ALL.map(SessionStatus::as_str).join(", ");
            parameters.refuse("status", &format!("must be one of {words}"));
        }
        status
    });
    let filter = SessionFilter {
        namespace: call.namespace.clone(),
        status,
        queue: parameters.text("queue").map(TaskQueue::from),
        owner: parameters.text("worker_id").map(WorkerId::from),
        after: parameters.page_token(read_token),
        limit: parameters.page_size(PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX),
    };
    parameters.check()?;
    let list = call.host().sessions().list(&filter).await?;
    let rows: Vec<Value> = list.sessions.iter().map(snapshot).collect();
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "metrics": counts(&list.counts),
        "sessions": rows,
        "next_page_token": list.next.as_ref().map(write_token),
    })))
}

pub(in crate::control) async fn describe(call: Call) -> Result<Reply, Refusal> {
    let session_id = SessionId::from(call.segment("session_id"));
    let view = call
        .host()
        .sessions()
        .get(&call.namespace, &session_id)
        .await?;
    Ok(Reply::ok(
        json!({"namespace": call.namespace, "session": snapshot(&view)}),
    ))
}

/// Returns a page token: the last session's place in the order.
fn write_token((at, session_id): &(Timestamp, SessionId)) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{session_id}", at.as_micros()))
}

fn read_token(token: &str) -> Option<(Timestamp, SessionId)> {
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (micros, session_id) = place.split_once('.')?;
    let at = Timestamp::from_micros(micros.parse().ok()?);
    (!session_id.is_empty()).then(|| (at, SessionId::from(session_id)))
}
