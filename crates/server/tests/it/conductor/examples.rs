//! Answers have the members and types of those that a published server gave to the same requests. The recordings are in
//! `tests/contract/conductor-examples/`; ids, times and the values of texts differ.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::support::{Sent, ask, call, send, tell};
use crate::support::Server;

/// Members that this server leaves out.
const LEFT_OUT: [&str; 1] = [
    // It has no content in the recordings.
    "executionMetadata",
];

/// Members that only this server has.
const ADDED: [&str; 1] = ["reason"];

/// Members whose content belongs to the user.
const FREE: [&str; 10] = [
    "inputData",
    "outputData",
    "input",
    "output",
    "variables",
    "inputTemplate",
    "inputParameters",
    "outputParameters",
    "bulkErrorResults",
    "taskToDomain",
];

struct Recording {
    method: String,
    path: String,
    request: Option<Value>,
    status: u64,
    content_type: Option<String>,
    body: Value,
}

fn recording(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/contract/conductor-examples")
        .join(format!("{name}.json"));
    let text = std::fs::read_to_string(path).expect("a recording");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    Recording {
        method: text(&value["request"]["method"]),
        path: text(&value["request"]["path"]),
        request: value["request"].get("body").cloned(),
        status: value["status"].as_u64().expect("a status"),
        content_type: value["contentType"].as_str().map(str::to_owned),
        body: value["body"].clone(),
    }
}

/// A server, and the ids that it has in place of the recorded ones.
struct Replay {
    server: Server,
    ids: BTreeMap<String, String>,
}

impl Replay {
    async fn new() -> Self {
        Self {
            server: Server::open().await,
            ids: BTreeMap::new(),
        }
    }

    /// Sends a recorded request and compares the answer with the recorded one.
    async fn send(&mut self, name: &str) -> Value {
        let recorded = recording(name);
        let replace = |text: String| {
            let ids = self.ids.iter();
            ids.fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
        };
        let path = replace(recorded.path);
        let path = path.strip_prefix("/api").expect("a path of the API");
        let mut request = call(&self.server, &recorded.method, path);
        if let Some(body) = recorded.request {
            request = request.raw(replace(body.to_string()));
        }
        let answer = send(request).await;
        assert_eq!(
            u64::from(answer.status),
            recorded.status,
            "{name}: {answer:?}"
        );
        assert_eq!(content_type(&answer), recorded.content_type, "{name}");
        let body = match recorded.content_type.as_deref() {
            Some("application/json") => serde_json::from_str(&answer.body).expect("JSON"),
            Some(_) => json!(answer.body),
            None => {
                assert_eq!(answer.body, "", "{name}");
                Value::Null
            }
        };
        let mut differences = Vec::new();
        compare(name, &recorded.body, &body, &mut differences);
        assert!(
            differences.is_empty(),
            "{}\n{body:#}",
            differences.join("\n")
        );
        body
    }

    /// Records which id of ours takes the place of a recorded one.
    fn learn(&mut self, theirs: &Value, ours: &Value) {
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        self.ids.insert(text(theirs), text(ours));
    }
}

fn content_type(answer: &Sent) -> Option<String> {
    let value = answer.headers.get("content-type")?;
    Some(value.to_str().expect("a text").to_owned())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Adds every difference of members and types.
fn compare(at: &str, recorded: &Value, ours: &Value, differences: &mut Vec<String>) {
    if kind(recorded) != kind(ours) {
        differences.push(format!("{at}: {} and not {}", kind(ours), kind(recorded)));
        return;
    }
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            for (name, value) in recorded {
                let at = format!("{at}.{name}");
                match ours.get(name) {
                    _ if LEFT_OUT.contains(&name.as_str()) => {}
                    None => differences.push(format!("{at} is missing")),
                    Some(ours) if FREE.contains(&name.as_str()) => {
                        if kind(value) != kind(ours) {
                            differences.push(format!("{at}: {}", kind(ours)));
                        }
                    }
                    Some(ours) => compare(&at, value, ours, differences),
                }
            }
            for name in ours.keys() {
                if !recorded.contains_key(name) && !ADDED.contains(&name.as_str()) {
                    differences.push(format!("{at}.{name} is not in the recording"));
                }
            }
        }
        (Value::Array(recorded), Value::Array(ours)) => {
            // Validations find different numbers of mistakes.
            if !at.ends_with("validationErrors") && recorded.len() != ours.len() {
                differences.push(format!("{at}: {} elements", ours.len()));
            }
            for (recorded, ours) in recorded.iter().zip(ours) {
                if !at.ends_with("validationErrors") {
                    compare(&format!("{at}[]"), recorded, ours, differences);
                }
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn a_run_from_definition_to_end() {
    let mut replay = Replay::new().await;
    let task = json!([{"name": "greet", "timeoutSeconds": 60, "responseTimeoutSeconds": 30, "retryDelaySeconds": 1, "ownerEmail": "a@b.c"}]);
    tell(&replay.server, "POST", "/metadata/taskdefs", &task)
        .await
        .void();
    replay.send("metadata-taskdef-get").await;
    replay.send("metadata-workflow-put").await;
    replay.send("metadata-workflow-get").await;
    replay.send("error-409-workflow-exists").await;
    let id = replay.send("workflow-start").await;
    replay.learn(&recording("workflow-start").body, &id);
    let polled = replay.send("poll-batch").await;
    replay.learn(
        &recording("poll-batch").body[0]["taskId"],
        &polled[0]["taskId"],
    );
    replay.send("task-update-in-progress").await;
    replay.send("task-get-waiting-for-callback").await;
    replay.send("poll-one-empty").await;
    replay.server.advance(2).await;
    let again = ask(&replay.server, "GET", "/tasks/poll/greet?workerid=w")
        .await
        .json();
    assert_eq!(
        (&again["taskId"], &again["pollCount"]),
        (&polled[0]["taskId"], &json!(2))
    );
    let next = replay.send("update-v2-next-task").await;
    replay.learn(
        &recording("update-v2-next-task").body["taskId"],
        &next["taskId"],
    );
    replay.send("queue-polldata").await;
    replay.send("update-v2-none").await;
    let run = replay.send("workflow-get-completed").await;
    assert_eq!(
        run["output"],
        recording("workflow-get-completed").body["output"]
    );
    let status = replay.send("workflow-status").await;
    assert_eq!(
        status["output"],
        recording("workflow-status").body["output"]
    );
}

#[tokio::test]
async fn executions_that_wait() {
    let mut replay = Replay::new().await;
    let waits = json!({"name": "waits", "tasks": [{"name": "w2", "taskReferenceName": "w2", "type": "WAIT"}]});
    tell(&replay.server, "POST", "/metadata/workflow", &waits)
        .await
        .void();
    replay.send("execute-blocking-task").await;
    // The recorded task is a script, which this server has no process for.
    let five =
        json!({"name": "five", "tasks": [{"name": "n", "taskReferenceName": "n", "type": "NOOP"}]});
    tell(&replay.server, "POST", "/metadata/workflow", &five)
        .await
        .void();
    replay.send("execute-target-workflow").await;
}

#[tokio::test]
async fn refusals() {
    let mut replay = Replay::new().await;
    for name in [
        "error-400-workflow",
        "error-404-route",
        "error-404-workflow",
    ] {
        replay.send(name).await;
    }
    // A response time-out that is not given is at most the time-out, so the second of the two recorded definitions is valid here.
    replay.send("error-400-taskdef").await;
}
