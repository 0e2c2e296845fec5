//! Definition to code to definition, while the server is killed again and again.

use longhaul_sdk::{Client, Worker, WorkflowCall, WorkflowContext, WorkflowResult, workflow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{Server, eventually};

/// How often the server is killed.
const KILLS: usize = 6;

/// Definition runs that are under way.
const RUNS: i64 = 30;

#[derive(Debug, Serialize, Deserialize)]
struct Doubled {
    doubled: i64,
}

#[workflow]
async fn middle(ctx: WorkflowContext, number: i64) -> WorkflowResult<i64> {
    let call = WorkflowCall::<Doubled>::named("inner@1").argument(json!({"number": number}));
    let inner = ctx.child(call).queue("conductor").await?;
    Ok(inner.doubled + 1)
}

async fn send(server: &Server, method: &str, path: &str, body: &Value) -> Option<(u16, String)> {
    let url = format!("{}/api{path}", server.url());
    let request = reqwest::Client::new().request(method.parse().unwrap(), url);
    let answer = request.json(body).send().await.ok()?;
    Some((answer.status().as_u16(), answer.text().await.ok()?))
}

async fn run_of(server: &Server, id: &str) -> Option<Value> {
    let (status, text) = send(server, "GET", &format!("/workflow/{id}"), &json!(null)).await?;
    (status == 200).then(|| serde_json::from_str(&text).unwrap())
}

#[tokio::test]
async fn calls_between_the_families_survive_a_server_that_is_killed() {
    let mut server = Server::start().await;
    let node = |kind: &str, inputs: Value| json!([{"name": kind, "taskReferenceName": "t", "type": kind, "inputParameters": inputs}]);
    let inner = node(
        "INLINE",
        json!({"expression": "$.n * 2", "n": "${workflow.input.number}"}),
    );
    let outer = node(
        "DURABLE_WORKFLOW",
        json!({"workflowType": "middle", "taskQueue": "families", "arguments": ["${workflow.input.number}"]}),
    );
    let definitions = json!([
        {"name": "inner", "tasks": inner, "outputParameters": {"doubled": "${t.output.result}"}},
        {"name": "outer", "tasks": outer, "outputParameters": {"result": "${t.output.result}"}},
    ]);
    let registered = send(&server, "PUT", "/metadata/workflow", &definitions).await;
    assert_eq!(registered.unwrap().0, 200);
    let mut ids = Vec::new();
    for number in 0..RUNS {
        let input = json!({"number": number});
        let (status, id) = send(&server, "POST", "/workflow/outer", &input)
            .await
            .unwrap();
        assert_eq!(status, 200, "{id}");
        ids.push(id);
    }
    let client = Client::connect(server.url()).await.unwrap();
    let worker = Worker::builder(&client, "families")
        .workflow::<middle>()
        .build();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    for kill in 0..KILLS {
        // The next kill comes when one more run has ended, somewhere between two steps of the others.
        eventually("one more run has ended", || async {
            let mut ended = 0;
            for id in &ids {
                let run = run_of(&server, id).await?;
                ended += usize::from(run["status"] != "RUNNING");
            }
            (ended > kill).then_some(())
        })
        .await;
        server.kill().await;
        server.restart().await;
    }
    for (number, id) in (0..).zip(&ids) {
        let run = eventually("the end of a run", || async {
            run_of(&server, id)
                .await
                .filter(|run| run["status"] != "RUNNING")
        })
        .await;
        assert_eq!(run["status"], "COMPLETED", "{run}");
        assert_eq!(run["output"], json!({"result": number * 2 + 1}));
        assert_eq!(
            run["tasks"].as_array().unwrap().len(),
            1,
            "one attempt: {run}"
        );
    }
    // Each step happened once.
    let count = |name: &'static str| {
        let server = &server;
        async move {
            let path = format!("/workflow/search?size=500&query=workflowType%3D{name}");
            let (_, text) = send(server, "GET", &path, &json!(null)).await.unwrap();
            let found: Value = serde_json::from_str(&text).unwrap();
            found["totalHits"].as_i64().unwrap()
        }
    };
    assert_eq!((count("outer").await, count("inner").await), (RUNS, RUNS));
    handle.shut_down();
    running.await.unwrap().unwrap();
}
