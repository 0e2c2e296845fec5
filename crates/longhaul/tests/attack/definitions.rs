//! Definitions that never end, explode or call themselves. Each ends with a reason, while another client works on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::judge;
use crate::server::Server;
use crate::wire::{Client, Request};

fn inline(expression: &str) -> Value {
    json!({"name": "i", "taskReferenceName": "i", "type": "INLINE",
        "inputParameters": {"evaluatorType": "javascript", "expression": expression, "x": "${workflow.input.x}"}})
}

fn fork(branches: &str) -> Value {
    json!({"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "branches",
        "dynamicForkTasksInputParamName": "inputs", "inputParameters": {"branches": branches, "inputs": {}}})
}

fn noop(reference: &str) -> Value {
    json!({"name": reference, "taskReferenceName": reference, "type": "NOOP"})
}

/// What a hostile definition is called, its tasks, and a word of the reason with which its run fails.
fn hostile() -> Vec<(&'static str, Value, &'static str)> {
    let join = json!({"name": "j", "taskReferenceName": "j", "type": "JOIN"});
    let branches = "Array.from({length: 20000}, (_, n) => ({name: 'b', taskReferenceName: 'b' + n, type: 'NOOP'}))";
    let itself = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW",
        "subWorkflowParam": {"name": "calls_itself", "version": 1}});
    vec![
        (
            "endless",
            json!([inline("while (true) {}")]),
            "processor time",
        ),
        (
            "recursive",
            json!([inline("function f() { return f() + 1 } f()")]),
            "stack",
        ),
        (
            "greedy",
            json!([inline(
                "let a = []; for (;;) a.push(new Array(100000).fill(1))"
            )]),
            "memory",
        ),
        (
            "long_answer",
            json!([inline("'x'.repeat(6000000)")]),
            "allowed",
        ),
        (
            "wide",
            json!([inline(branches), fork("${i.output.result}"), join]),
            "branches",
        ),
        ("calls_itself", json!([itself]), "100"),
    ]
}

async fn register(client: &mut Client, name: &str, tasks: &Value) {
    let definition = json!([{"name": name, "version": 1, "tasks": tasks}]);
    client
        .accepted("PUT", "/api/metadata/workflow", Some(&definition))
        .await;
}

async fn execute(client: &mut Client, name: &str, input: Value) -> Value {
    let target = format!("/api/workflow/execute/{name}/1?waitForSeconds=60");
    client
        .post(&target, json!({"name": name, "input": input}))
        .await
}

/// Returns the last run of a chain of sub-workflows.
async fn innermost(client: &mut Client, id: &Value) -> Value {
    let mut id = id.as_str().expect("an id").to_owned();
    loop {
        let run = client.get(&format!("/api/workflow/{id}")).await;
        match run["tasks"][0]["subWorkflowId"].as_str() {
            Some(child) => child.clone_into(&mut id),
            None => return run,
        }
    }
}

/// Works on small runs until it is stopped. Returns how many it completed.
async fn work(mut client: Client, stopping: Arc<AtomicBool>) -> u64 {
    let task = json!([{"name": "small", "taskReferenceName": "t", "type": "SIMPLE"}]);
    register(&mut client, "small", &task).await;
    let mut done = 0;
    while !stopping.load(Ordering::Relaxed) {
        let start = Request::new("POST", "/api/workflow").json(&json!({"name": "small"}));
        let id = client.send(&start).await.expect("an answer").text();
        let target = "/api/tasks/poll/batch/small?count=1&timeout=5000";
        let tasks = client.get(target).await;
        let report =
            json!({"workflowInstanceId": id, "taskId": tasks[0]["taskId"], "status": "COMPLETED"});
        client.post("/api/tasks", report).await;
        let run = client.get(&format!("/api/workflow/{id}")).await;
        assert_eq!(run["status"], "COMPLETED", "{run}");
        done += 1;
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_definitions_fail_with_a_reason_while_others_work() {
    let mut server = Server::start(&[]).await;
    let stopping = Arc::new(AtomicBool::new(false));
    let neighbour = tokio::spawn(work(server.client(), Arc::clone(&stopping)));
    let mut client = server.client();
    for (name, tasks, word) in hostile() {
        register(&mut client, name, &tasks).await;
        let run = execute(&mut client, name, json!({})).await;
        assert_eq!(run["status"], "FAILED", "{name}: {}", run["status"]);
        let run = innermost(&mut client, &run["workflowId"]).await;
        let reason = run["reasonForIncompletion"].as_str().unwrap_or_default();
        assert!(reason.contains(word), "{name}: {reason}");
    }

    // Far more rounds than fit into one request: the run goes on by itself until it is terminated.
    let rounds = json!([{"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopOver": [noop("n")],
        "loopCondition": "$.l['iteration'] < 1000000", "inputParameters": {"keepLastN": 2, "l": "${l.output}"}}]);
    register(&mut client, "rounds", &rounds).await;
    let start = Request::new("POST", "/api/workflow").json(&json!({"name": "rounds"}));
    let id = client.send(&start).await.expect("an answer").text();
    let target = format!("/api/workflow/{id}?reason=enough");
    client.accepted("DELETE", &target, None).await;
    let run = client
        .get(&format!("/api/workflow/{id}?includeTasks=false"))
        .await;
    assert_eq!(run["status"], "TERMINATED", "{run}");

    // A path that would visit everything again and again.
    let nested = (0..12).fold(json!(1), |value, _| json!([value.clone(), value]));
    let path = json!([{"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE",
        "inputParameters": {"all": "${workflow.input.x..*..*..*..*}"}}]);
    register(&mut client, "explodes", &path).await;
    let run = execute(&mut client, "explodes", json!({"x": nested})).await;
    assert_eq!(run["status"], "FAILED", "{}", run["status"]);

    let deep = format!(
        r#"{{"name": "small", "input": {}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let mut request = Request::new("POST", "/api/workflow");
    request.body = Some(deep.into_bytes());
    let answer = client.send(&request).await.expect("an answer");
    assert_eq!(answer.status, 400, "{}", answer.text());

    stopping.store(true, Ordering::Relaxed);
    let done = neighbour.await.expect("the other client");
    assert!(done > 0, "the other client was served");
    judge::verdict(&mut server).await;
}
