//! Events under kills: each message is applied once by each of its handlers, whatever the server was doing when it was killed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::executions::Plane;
use super::{LOAD_DEADLINE, Random};
use crate::harness::Server;

const SENDERS: usize = 48;
const EVENTS_PER_SENDER: usize = 3;
const KILLS: usize = 8;

/// Starts are spread over this time, so that there is load at every kill.
const WITHIN_MS: u64 = 6000;

fn event(number: usize) -> Value {
    let name = format!("tell_{number}");
    json!({"name": name, "taskReferenceName": name, "type": "EVENT", "sink": "conductor:told",
        "inputParameters": {"mark": format!("${{workflow.input.n}}-{number}"), "tally": "${workflow.input.tally}"}})
}

/// Starts a run. The key makes a repeated start harmless.
async fn start(plane: &Plane, name: &str, key: &str, input: Value) -> String {
    let request = json!({"name": name, "version": 1, "input": input, "idempotencyKey": key,
        "idempotencyStrategy": "RETURN_EXISTING"});
    let id = plane.post("/workflow", &request).await;
    id.as_str().expect("an id").to_owned()
}

async fn register(plane: &Plane) {
    let workflow = |name: &str, tasks: Value| json!({"name": name, "version": 1, "tasks": tasks});
    let wait = json!({"name": "wait", "taskReferenceName": "wait", "type": "WAIT"});
    let noop = json!({"name": "noop", "taskReferenceName": "noop", "type": "NOOP"});
    let events: Vec<Value> = (0..EVENTS_PER_SENDER).map(event).collect();
    for definition in [
        workflow("crash_sender", json!(events)),
        workflow("crash_receiver", json!([noop])),
        workflow("crash_tally", json!([wait])),
    ] {
        plane
            .post("/metadata/workflow?overwrite=true", &definition)
            .await;
    }
    let handler = json!({"name": "crash_handler", "event": "conductor:crash_sender:told", "active": true, "actions": [
        {"action": "start_workflow", "start_workflow": {"name": "crash_receiver", "input": {"mark": "${mark}"}}},
        // This would be done twice if it were not done with its record.
        {"action": "update_workflow_variables", "update_workflow_variables":
            {"workflowId": "${tally}", "variables": {"marks": ["${mark}"]}, "appendArray": true}},
    ]});
    plane.post("/event", &handler).await;
}

async fn count(plane: &Plane, name: &str) -> u64 {
    let path = format!("/workflow/search?size=0&query=workflowType%20%3D%20{name}");
    plane.get(&path).await["totalHits"]
        .as_u64()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_applied_once_under_kills() {
    let mut random = Random::from_environment();
    let mut server = Server::start().await;
    let plane = Plane::of(&server);
    register(&plane).await;
    let tally = start(&plane, "crash_tally", "tally", json!({})).await;
    let mut load = JoinSet::new();
    for number in 0..SENDERS {
        let (plane, tally) = (plane.clone(), tally.clone());
        let after = random.milliseconds(0..WITHIN_MS);
        load.spawn(async move {
            sleep(after).await;
            let key = format!("sender-{number}");
            let id = start(
                &plane,
                "crash_sender",
                &key,
                json!({"n": number, "tally": tally}),
            )
            .await;
            plane.ended(&id).await
        });
    }
    for _ in 0..KILLS {
        sleep(random.milliseconds(100..900)).await;
        server.kill().await;
        sleep(random.milliseconds(0..100)).await;
        server.restart().await;
    }
    let everything = async {
        while let Some(run) = load.join_next().await {
            let run = run.expect("a run");
            assert_eq!(run["status"], "COMPLETED", "{run}");
        }
        // A message that was not delivered at a kill is delivered again within seconds.
        let all = SENDERS * EVENTS_PER_SENDER;
        loop {
            let path = format!("/workflow/{tally}?includeTasks=false");
            let marks = plane.get(&path).await["variables"]["marks"].clone();
            let marks: Vec<String> = serde_json::from_value(marks).unwrap_or_default();
            assert!(marks.len() <= all, "{} of {all}: {marks:?}", marks.len());
            let receivers = count(&plane, "crash_receiver").await;
            assert!(receivers <= all as u64, "{receivers} of {all}");
            if marks.len() == all && receivers == all as u64 {
                let different: BTreeSet<&String> = marks.iter().collect();
                assert_eq!(different.len(), all, "each message counts once: {marks:?}");
                break;
            }
            sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    timeout(LOAD_DEADLINE, everything)
        .await
        .expect("every event is applied after the last kill");
}
