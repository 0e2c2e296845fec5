//! The published clients of both families on a server whose store is PostgreSQL. The programs are those of the embedded store.

use serde_json::{Value, json};

use crate::harness::{Server, ServerOptions, eventually, run_conductor, run_python};

async fn server() -> Server {
    ServerOptions::new().postgres().start().await
}

#[tokio::test]
async fn python_workflows_start_and_end() {
    run_python("lifecycle.py", &server().await).await;
}

#[tokio::test]
async fn python_activities() {
    run_python("activities.py", &server().await).await;
}

#[tokio::test]
async fn python_messages() {
    run_python("messages.py", &server().await).await;
}

#[tokio::test]
async fn conductor_operators() {
    run_conductor("operators.py", &server().await).await;
}

#[tokio::test]
async fn conductor_workers() {
    run_conductor("workers.py", &server().await).await;
}

#[tokio::test]
async fn conductor_lists() {
    run_conductor("lists.py", &server().await).await;
}

/// Starts definition runs, polls and reports their tasks, and kills the server again and again. Every run that was accepted ends, and
/// every task has one attempt per lease.
#[tokio::test]
async fn accepted_work_survives_kills() {
    const RUNS: usize = 30;
    let mut server = server().await;
    let client = reqwest::Client::new();
    let url = |server: &Server, path: &str| format!("{}/api{path}", server.url());
    let definition = json!({"name": "w", "version": 1, "tasks": [
        {"name": "a", "taskReferenceName": "a", "type": "SIMPLE"},
        {"name": "b", "taskReferenceName": "b", "type": "SIMPLE"}]});
    let put = client
        .post(url(&server, "/metadata/workflow"))
        .json(&definition);
    assert!(put.send().await.unwrap().status().is_success());
    let mut ids = Vec::new();
    for number in 0..RUNS {
        let start = client
            .post(url(&server, "/workflow/w"))
            .json(&json!({"number": number}));
        ids.push(start.send().await.unwrap().text().await.unwrap());
        if number % 10 == 9 {
            server.kill().await;
            server.restart().await;
        }
    }
    for name in ["a", "b"] {
        let (mut reported, mut polls) = (0, 0);
        while reported < RUNS {
            polls += 1;
            assert!(polls < 100, "{reported} of {RUNS} tasks were found");
            let poll = url(
                &server,
                &format!("/tasks/poll/batch/{name}?count=7&timeout=1000"),
            );
            let tasks: Vec<Value> = client
                .get(&poll)
                .send()
                .await
                .unwrap()
                .json()
                .await
                .unwrap();
            // The lease of these tasks must survive.
            server.kill().await;
            server.restart().await;
            for task in tasks {
                let report = json!({"taskId": task["taskId"], "workflowInstanceId": task["workflowInstanceId"],
                    "status": "COMPLETED", "outputData": {"by": name}});
                // Sent twice: the second one changes nothing.
                for _ in 0..2 {
                    let sent = client.post(url(&server, "/tasks")).json(&report).send();
                    assert!(sent.await.unwrap().status().is_success());
                }
                reported += 1;
            }
        }
    }
    for id in ids {
        let run: Value = eventually("the run is complete", || async {
            let found = client.get(url(&server, &format!("/workflow/{id}"))).send();
            let run: Value = found.await.ok()?.json().await.ok()?;
            (run["status"] == "COMPLETED").then_some(run)
        })
        .await;
        let tasks = run["tasks"].as_array().unwrap();
        assert_eq!(tasks.len(), 2, "{run}");
        for task in tasks {
            assert_eq!(task["outputData"]["by"], task["taskDefName"], "{run}");
        }
    }
}
