//! `GET /api/workflows/{w}/runs/{r}/history`: pages of events, and waiting for the next one.

use longhaul_protocol::sequence::HistorySeq;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use longhaul_host::{HistoryRequest, StoredEvent};
use serde_json::{Map, Value, json};

use super::compatibility::show_compatibility;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::control::workflows::principal;
use crate::gate::Refusal;
use crate::heavy;

/// Default and largest page size.
const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;

/// How long a follower waits: less than the timeouts of clients and proxies.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Base64 of the last sequence seen, in decimal. Followers keep tokens across restarts and build their own, so the form is fixed.
const TOKEN: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(in crate::control) async fn read(call: Call) -> Result<Reply, Refusal> {
    let parameters = &call.parameters;
    let after = parameters.page_token(read_token).unwrap_or(0);
    let page_size = parameters.page_size(PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX);
    // An extension: a caller that waits for the end of the run is not woken by every event.
    let until_closed = parameters.flag("wait_for_close");
    let wait = if parameters.flag("wait_new_event") || until_closed {
        WAIT_MAX
    } else {
        Duration::ZERO
    };
    parameters.check()?;
    let workflow_id = call.workflow_id();
    let (run, _) = call
        .host()
        .workflows()
        .run(&call.namespace, &workflow_id, call.run_id().as_ref())
        .await?;
    let run_id = run.run_id().clone();
    let request = HistoryRequest {
        namespace: call.namespace.clone(),
        workflow_id: workflow_id.clone(),
        run_id: run_id.clone(),
        after: HistorySeq::new(after),
        page_size,
        wait,
        until_closed,
    };
    let page = call.host().workflows().history(&request).await?;
    let mut body = Map::new();
    body.insert("workflow_id".to_owned(), json!(workflow_id));
    body.insert("run_id".to_owned(), json!(run_id));
    body.insert(
        "next_page_token".to_owned(),
        json!(
            page.next_after
                .map(|sequence| TOKEN.encode(sequence.to_string()))
        ),
    );
    let pin = run.spec.routing.compatibility.as_deref();
    let workers = call.host().workers().pinned(&call.namespace, [pin]).await?;
    show_compatibility(&mut body, &workers, pin, &run.spec.task_queue);
    let shown = heavy::work(page.bytes(), move || events(&page.events)).await;
    Ok(Reply::ok(Value::Object(body)).with_text("events", shown))
}

fn read_token(token: &str) -> Option<u64> {
    let digits = TOKEN.decode(token).ok()?;
    let digits = str::from_utf8(&digits).ok()?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

/// Returns the events as JSON text. Payloads are stored as the text that is sent and can be large, so they are not parsed.
fn events(events: &[StoredEvent]) -> String {
    let mut text =
        String::with_capacity(events.iter().map(|event| event.payload.len() + 256).sum());
    text.push('[');
    for event in events {
        if text.len() > 1 {
            text.push(',');
        }
        // No `type`: one client treats `type` and `event_type` as the same field sent twice, and fails.
        let head = json!({
            "sequence": event.sequence,
            "id": event.id,
            "event_type": event.event_type,
            "timestamp": event.recorded_at,
            "principal": principal(event.principal.as_deref()),
        });
        let head = head.to_string();
        let open = head.strip_suffix('}').unwrap_or(&head);
        // Writing to a string cannot fail.
        let _ = write!(text, "{open},\"payload\":{}}}", event.payload);
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_base64_of_a_decimal_sequence() {
        assert_eq!(TOKEN.encode("12"), "MTI=");
        for (token, expected) in [("MTI=", Some(12)), ("MTI", Some(12)), ("MA==", Some(0))] {
            assert_eq!(read_token(token), expected, "{token}");
        }
        for bad in [
            "",
            "12",
            "!!!",
            "LTE=",
            "KzE=",
            "MS41",
            "YWJj",
            "MTg0NDY3NDQwNzM3MDk1NTE2MTY=",
        ] {
            assert_eq!(read_token(bad), None, "{bad}");
        }
    }
}
