//! What this SDK sends, compared with what the published client for Python sends for the same step.
//!
//! `conductor/wire.py` makes each step once against a server that records requests, and `steps` makes it with this SDK. Every request
//! becomes a line, with the few changes of [`line`]. The lines of a step must be equal, apart from [`DIFFERENCES`].

mod recorder;
mod steps;

use longhaul_conductor_sdk::{Client, Configuration};
use serde_json::{Value, json};

use crate::harness::run_conductor_at;
use recorder::{Recorder, Sent};

/// A part of a request of the client for Python, and what this SDK sends instead.
struct Difference {
    steps: &'static [&'static str],
    python: &'static str,
    ours: &'static str,
}

/// What differs on purpose. `docs/conductor-rust.md` has the ones that a user can notice.
const DIFFERENCES: [Difference; 9] = [
    // A heartbeat names its worker, as that of the client for JavaScript does.
    Difference {
        steps: &["heartbeat"],
        python: r#""taskId":"t","workflowInstanceId""#,
        ours: r#""taskId":"t","workerId":"w","workflowInstanceId""#,
    },
    // A program that ends a task from outside is not its worker, so it is not named as one.
    Difference {
        steps: &["update_by_reference", "update_by_reference_sync"],
        python: "?workerid=HOST",
        ours: "",
    },
    // One request starts workflows. It can have everything that the other one has.
    Difference {
        steps: &["start_by_name"],
        python: r#"/order?correlationId=c&priority=3&version=2 {"id":7,"none":null}"#,
        ours: r#" {"correlationId":"c","input":{"id":7,"none":null},"name":"order","priority":3,"version":2}"#,
    },
    // One request executes workflows. It always has the form of the answer.
    Difference {
        steps: &["execute"],
        python: "?requestId=q&",
        ours: "?requestId=q&returnStrategy=TARGET_WORKFLOW&",
    },
    // The consistency is that of the server, which is the one that Python asks for.
    Difference {
        steps: &["execute_with_strategy"],
        python: "?consistency=DURABLE&",
        ours: "?",
    },
    // Servers send the tasks if the parameter is absent, so Python gets them.
    Difference {
        steps: &["get_without_tasks"],
        python: "/workflow/i",
        ours: "/workflow/i?includeTasks=false",
    },
    // The text and the size of a page are those of the server, which are the ones that Python asks for.
    Difference {
        steps: &["search_all"],
        python: "?freeText=*&size=100&start=0",
        ours: "?start=0",
    },
    // A failed task has no output. Times are in milliseconds everywhere.
    Difference {
        steps: &["work_that_fails"],
        python: r#""logs":[{"createdTime":"seconds","log":"a trace","taskId":"t"}],"outputData":{"result":null},"#,
        ours: r#""logs":[{"createdTime":"milliseconds","log":"a trace","taskId":"t"}],"#,
    },
    // A workflow with schemas enforces them unless its definition says otherwise, as on the server.
    Difference {
        steps: &["register_workflow", "replace_workflow"],
        python: r#""enforceSchema":false,"#,
        ours: "",
    },
];

/// Members with the value that a server takes if they are absent. Python leaves out most of them. The records of this SDK are written
/// whole, so that a record that was read and is sent back loses nothing.
fn defaults(path: &str) -> Vec<(&'static str, Value)> {
    let (empty, none, no) = (json!({}), json!([]), json!(false));
    match path {
        "/api/tasks" | "/api/tasks/update-v2" => vec![
            ("callbackAfterSeconds", json!(0)),
            ("extendLease", no.clone()),
            ("logs", none),
            ("outputData", empty),
            ("supportsCancellation", no),
        ],
        "/api/metadata/taskdefs" => vec![
            ("backoffJitterMs", json!(0)),
            ("createTime", json!(0)),
            ("enforceSchema", no),
            ("inputKeys", none.clone()),
            ("inputTemplate", empty),
            ("maxRetryDelaySeconds", json!(0)),
            ("outputKeys", none.clone()),
            ("runtimeMetadata", none),
            ("taskStatusListenerEnabled", json!(true)),
            ("totalTimeoutSeconds", json!(0)),
            ("updateTime", json!(0)),
        ],
        "/api/metadata/workflow" => vec![
            ("asyncComplete", no.clone()),
            ("createTime", json!(0)),
            ("decisionCases", empty.clone()),
            ("defaultCase", none.clone()),
            ("defaultExclusiveJoinTask", none.clone()),
            ("enforceSchema", json!(true)),
            ("forkTasks", none.clone()),
            ("inputParameters", none.clone()),
            ("inputTemplate", empty.clone()),
            ("joinOn", none.clone()),
            ("loopOver", none.clone()),
            ("maskedFields", none),
            ("metadata", empty.clone()),
            ("onStateChange", empty.clone()),
            ("optional", no.clone()),
            ("permissive", no.clone()),
            ("restartable", json!(true)),
            ("schemaVersion", json!(2)),
            ("startDelay", json!(0)),
            ("updateTime", json!(0)),
            ("variables", empty),
            ("workflowStatusListenerEnabled", no),
        ],
        _ if path == "/api/workflow" || path.starts_with("/api/workflow/execute/") => vec![
            // It has no effect without a key.
            ("idempotencyStrategy", json!("FAIL")),
            ("priority", json!(0)),
            ("taskToDomain", empty),
        ],
        _ => Vec::new(),
    }
}

/// Returns a request as text: verb, path, query and body, and the token if it has one. Everything is in the order of its names.
fn line(sent: Sent) -> String {
    let mut query: Vec<_> = sent
        .query
        .into_iter()
        // Python sends what is not set as nothing or as `None`.
        .filter(|(_, value)| !value.is_empty() && value != "None")
        // Python writes `True` and `False`. A flag that is false is the same as no flag, except for the tasks of one workflow.
        .map(|(name, value)| match &*value {
            "True" => (name, "true".to_owned()),
            "False" => (name, "false".to_owned()),
            _ => (name, value),
        })
        .filter(|(_, value)| value != "false" || sent.path == "/api/workflow/i")
        // Python gives the name of the host where the program gives no worker.
        .map(|(name, value)| match (&*name, &*value) {
            ("workerid", "w" | "w 1&2") => (name, value),
            ("workerid", _) => (name, "HOST".to_owned()),
            _ => (name, value),
        })
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    query.sort();
    let mark = if query.is_empty() { "" } else { "?" };
    let (method, path, query) = (sent.method, sent.path, query.join("&"));
    let mut text = format!("{method} {path}{mark}{query}");
    if let Some(token) = sent.token {
        text += &format!(" [{token}]");
    }
    let Ok(mut body) = serde_json::from_str(&sent.body) else {
        return format!("{text} {}", sent.body).trim_end().to_owned();
    };
    // Python sends an empty object where a request has no body.
    if body != json!({}) || method == "POST" {
        without_defaults(&mut body, &defaults(&path));
        text += &format!(" {body}");
    }
    text
}

/// Removes members that have their default at every depth. Times and traces of logs become words.
fn without_defaults(value: &mut Value, defaults: &[(&str, Value)]) {
    match value {
        Value::Array(list) => {
            for item in list {
                without_defaults(item, defaults);
            }
        }
        Value::Object(members) => {
            for (name, default) in defaults {
                if members.get(*name) == Some(default) {
                    members.remove(*name);
                }
            }
            if let Some(created) = members.get("createdTime").and_then(Value::as_i64) {
                // Milliseconds since 1970 have three more digits than seconds.
                let unit = if created < 100_000_000_000 {
                    "seconds"
                } else {
                    "milliseconds"
                };
                members.insert("createdTime".to_owned(), unit.into());
                if members["log"]
                    .as_str()
                    .is_some_and(|log| log.contains("no money"))
                {
                    members.insert("log".to_owned(), "a trace".into());
                }
            }
            // The values of a user are not a record.
            let own = [
                "outputData",
                "input",
                "inputParameters",
                "outputParameters",
                "data",
            ];
            for (_, member) in members
                .iter_mut()
                .filter(|(name, _)| !own.contains(&&***name))
            {
                without_defaults(member, defaults);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn requests_are_those_of_the_published_client() {
    let theirs = Recorder::start().await;
    let printed = run_conductor_at("wire.py", theirs.url()).await;
    let steps: Vec<&str> = printed.lines().collect();
    let ours = Recorder::start().await;
    let mut wrong = Vec::new();
    for step in &steps {
        let mut configuration = Configuration::new(format!("{}/{step}/api", ours.url()));
        if *step == "token" {
            configuration = configuration.key("key", "secret");
        }
        steps::make(step, &Client::new(&configuration).unwrap(), &ours).await;
        let lines = |recorder: &Recorder| {
            let sent = recorder.take(step).into_iter();
            sent.map(line).collect::<Vec<_>>().join("\n")
        };
        let (mut expected, sent) = (lines(&theirs), lines(&ours));
        assert!(!expected.is_empty(), "{step}");
        for difference in DIFFERENCES
            .iter()
            .filter(|known| known.steps.contains(step))
        {
            assert!(expected.contains(difference.python), "{step}: {expected}");
            expected = expected.replacen(difference.python, difference.ours, 1);
        }
        if sent != expected {
            wrong.push(format!(
                "{step}\n--- Python:\n{expected}\n--- ours:\n{sent}\n"
            ));
        }
    }
    assert!(steps.len() >= 60, "{steps:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
