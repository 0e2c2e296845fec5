//! Checks that must pass after every attack.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::events::TERMINAL_EVENTS;
use crate::samples::Sample;
use crate::server::Server;
use crate::wire::{Answer, Client, Request};

/// The most memory that the server may have used. It starts with about 30 MiB; caches and large requests add to it.
const MEMORY_MAX_BYTES: u64 = 512 << 20;

/// The reasons that are allowed with 503 and 504: no worker answered a question. Other ones are faults of the server.
const UNANSWERED: [&str; 7] = [
    "query_worker_timeout",
    "query_task_queue_unavailable",
    "update_validator_worker_unavailable",
    "update_validator_worker_lost",
    "update_validation_worker_failed",
    "update_validation_task_not_claimed",
    "update_validation_execution_timeout",
];

/// Returns what is wrong with the response to an attack, or `None`.
pub(crate) fn fault(sample: &Sample, request: &Request, answer: &Answer) -> Option<String> {
    let body = answer.json();
    let reason = body["reason"].as_str().unwrap_or_default();
    let problem = if answer.status >= 500 {
        let expected = sample.may_wait() && UNANSWERED.contains(&reason);
        (!expected).then_some("the server failed")
    } else if answer.status >= 400 && request.method != "HEAD" && answer.status != 431 {
        // A refusal below the router has no body: the request was not HTTP.
        let is_readable = !answer.body.is_empty() && !answer.is_compressed;
        (is_readable && reason.is_empty()).then_some("a refusal without a reason")
    } else {
        None
    };
    problem.map(|problem| {
        format!(
            "{problem}: {} {} {:?} → {} {}",
            request.method,
            &request.target[..request.target.len().min(300)],
            request.body.as_deref().map(shortened),
            answer.status,
            answer.text()
        )
    })
}

fn shortened(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(2000)]).into_owned()
}

/// Checks the whole server: it runs, answers, has logged no panic and has bounded memory, and every history is sound, also after
/// a kill.
pub(crate) async fn verdict(server: &mut Server) {
    assert!(server.is_running(), "the server has ended");
    let mut client = server.client();
    client.get("/api/health").await;
    client.get("/api/ready").await;
    let log = server.log();
    let panics: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("panicked") || line.contains("ERROR"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
    let peak = server.peak_memory_bytes();
    assert!(peak < MEMORY_MAX_BYTES, "the peak was {} MiB", peak >> 20);
    let before = histories(&mut client).await;
    server.kill_and_restart().await;
    let after = histories(&mut server.client()).await;
    for (run, events) in &before {
        let kept = after.get(run).map(|events| &events[..]);
        // A timer may have fired since. No earlier event may change.
        let kept = kept.and_then(|kept| kept.get(..events.len()));
        assert_eq!(kept, Some(&events[..]), "history of {run}");
    }
}

/// Reads and checks the histories of all runs in the default namespace.
async fn histories(client: &mut Client) -> BTreeMap<String, Vec<Value>> {
    let mut all = BTreeMap::new();
    let mut token = String::new();
    loop {
        let list = client
            .get(&format!("/api/workflows?page_size=100{token}"))
            .await;
        for workflow in list["workflows"].as_array().expect("a list") {
            let id = percent_encoded(workflow["workflow_id"].as_str().expect("an id"));
            let run = workflow["run_id"].as_str().expect("a run");
            let closed = workflow["is_terminal"].as_bool();
            let events = history(client, &id, run).await;
            check(&format!("{id}/{run}"), &events, closed);
            all.insert(format!("{id}/{run}"), events);
        }
        match list["next_page_token"].as_str() {
            Some(next) => token = format!("&next_page_token={next}"),
            None => return all,
        }
    }
}

async fn history(client: &mut Client, workflow: &str, run: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut token = String::new();
    loop {
        let target = format!("/api/workflows/{workflow}/runs/{run}/history?page_size=500{token}");
        let mut page = client.get(&target).await;
        match page["events"].take() {
            Value::Array(page) => events.extend(page),
            other => panic!("events is not a list: {other}"),
        }
        match page["next_page_token"].as_str() {
            Some(next) => token = format!("&next_page_token={next}"),
            None => return events,
        }
    }
}

/// Checks a history: no gaps, at most one terminal event with only trailing events after it, and no activity that ended twice.
fn check(run: &str, events: &[Value], closed: Option<bool>) {
    let mut ended: Vec<&Value> = Vec::new();
    let mut terminal = 0;
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence"], index + 1, "{run}: a gap");
        let kind = event["event_type"].as_str().expect("a type");
        if TERMINAL_EVENTS.contains(&kind) {
            terminal += 1;
        }
        if kind == "ActivityCompleted" {
            let sequence = &event["payload"]["sequence"];
            assert!(!ended.contains(&sequence), "{run}: completed twice");
            ended.push(sequence);
        }
    }
    assert!(!events.is_empty(), "{run}: an empty history");
    assert!(terminal <= 1, "{run}: {terminal} ends");
    if let Some(closed) = closed {
        assert_eq!(terminal == 1, closed, "{run}");
    }
}

/// Encodes an id as a path segment.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
