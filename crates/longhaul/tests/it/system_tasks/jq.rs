//! jq programs of the built server, also those that never end and those that take all memory.

use serde_json::{Value, json};

use super::Api;
use crate::serve::Server;

fn jq(program: &str) -> Value {
    json!([{"name": "jq", "taskReferenceName": "jq", "type": "JSON_JQ_TRANSFORM",
        "inputParameters": {"queryExpression": program, "xs": "${workflow.input.xs}"}}])
}

#[tokio::test]
async fn programs_have_results() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    let programs = [
        (
            ".xs | map(. + 1)",
            json!({"result": [2, 3], "resultList": [[2, 3]]}),
        ),
        (".xs[]", json!({"result": 1, "resultList": [1, 2]})),
        ("empty", json!({"result": null, "resultList": []})),
        (
            ".queryExpression",
            json!({"result": ".queryExpression", "resultList": [".queryExpression"]}),
        ),
        (
            "{(\"a\\(.xs[0])\"): (.xs | add)}",
            json!({"result": {"a1": 3}, "resultList": [{"a1": 3}]}),
        ),
    ];
    for (number, (program, output)) in programs.iter().enumerate() {
        let name = format!("jq{number}");
        api.define(&name, jq(program)).await;
        let id = api.start(&name, json!({"xs": [1, 2]})).await;
        let run = api.ended(&id).await;
        assert_eq!(run["status"], "COMPLETED", "{program}: {run}");
        assert_eq!(run["output"], *output, "{program}");
        assert_eq!(run["tasks"][0]["taskType"], "JSON_JQ_TRANSFORM");
    }
    for (number, (program, part)) in [
        (".xs.a", "index"),
        ("error(\"own words\")", "own words"),
        (".xs |", "syntax error"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("broken{number}");
        api.define(&name, jq(program)).await;
        let id = api.start(&name, json!({"xs": [1, 2]})).await;
        let task = api.ended(&id).await["tasks"][0].clone();
        assert_eq!(task["status"], "FAILED", "{program}: {task}");
        let reason = task["reasonForIncompletion"].as_str().unwrap();
        assert!(reason.contains(part), "{program}: {reason}");
        assert_eq!(task["outputData"]["error"], reason);
    }
    server.stop();
}

#[tokio::test]
async fn programs_without_end_are_killed_while_others_are_served() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let api = Api::of(&server);
    let bad = [
        ("endless", "def f: f; f"),
        ("huge", "[range(1e10)] | length"),
    ];
    for (name, program) in bad {
        api.define(name, jq(program)).await;
    }
    api.define("good", jq(".xs | add")).await;
    let bad_runs = async {
        // Starts of these return when their program was killed.
        futures::join!(
            api.start("endless", json!({"xs": [1]})),
            api.start("huge", json!({"xs": [1]}))
        )
    };
    let good_runs = async {
        let mut ids = Vec::new();
        for n in 0..10 {
            ids.push((n, api.start("good", json!({"xs": [n, 1]})).await));
        }
        ids
    };
    let ((endless, huge), good) = futures::join!(bad_runs, good_runs);
    for (n, id) in good {
        let run = api.ended(&id).await;
        assert_eq!(run["status"], "COMPLETED", "{run}");
        assert_eq!(run["output"]["result"], json!(n + 1));
    }
    for id in [endless, huge] {
        let task = api.ended(&id).await["tasks"][0].clone();
        assert_eq!(task["status"], "FAILED", "{task}");
        assert_eq!(task["outputData"]["error"], task["reasonForIncompletion"]);
    }
    let id = api.start("good", json!({"xs": [40, 2]})).await;
    assert_eq!(
        api.ended(&id).await["output"]["result"],
        json!(42),
        "the next program is served"
    );
    server.stop();
}
