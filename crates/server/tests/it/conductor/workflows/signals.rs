//! Signals, and changes of the state of a workflow.

use serde_json::{Value, json};

use super::waiting;
use crate::conductor::support::{ask, tell};
use crate::support::Server;

/// Registers `waiting`, `middle` with a second task after it, and `outer`, which has both as sub-workflows.
async fn started(server: &Server) -> (String, String) {
    tell(server, "POST", "/metadata/workflow", &waiting())
        .await
        .void();
    let sub = json!({"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW", "subWorkflowParam": {"name": "waiting"}});
    let last = json!({"name": "y", "taskReferenceName": "y", "type": "YIELD"});
    let outer = json!({"name": "outer", "tasks": [sub, last], "outputParameters": {"a": "${s.output}", "b": "${y.output}"}});
    tell(server, "POST", "/metadata/workflow", &outer)
        .await
        .void();
    let id = tell(server, "POST", "/workflow/outer", &json!({}))
        .await
        .text();
    let run = run_of(server, &id).await;
    let child = run["tasks"][0]["subWorkflowId"]
        .as_str()
        .expect("a member")
        .to_owned();
    (id, child)
}

async fn run_of(server: &Server, id: &str) -> Value {
    ask(server, "GET", &format!("/workflow/{id}")).await.json()
}

#[tokio::test]
async fn a_signal_ends_the_first_task_that_waits_in_the_tree() {
    let server = Server::open().await;
    let (id, child) = started(&server).await;
    let path = format!("/tasks/{id}/COMPLETED/signal");
    tell(&server, "POST", &path, &json!({"v": 1})).await.void();
    let run = run_of(&server, &child).await;
    assert_eq!(
        (&run["status"], &run["tasks"][0]["outputData"]),
        (&json!("COMPLETED"), &json!({"v": 1}))
    );
    tell(&server, "POST", &path, &json!({"v": 2})).await.void();
    let run = run_of(&server, &id).await;
    assert_eq!(run["status"], "COMPLETED");
    assert_eq!(run["output"]["b"], json!({"v": 2}));
    // Nothing waits any more.
    tell(&server, "POST", &path, &json!({"v": 3})).await.void();
    let sync = format!("{path}/sync");
    let refusal = tell(&server, "POST", &sync, &json!({}))
        .await
        .refused(404, "task_not_found");
    assert_eq!(
        refusal["message"],
        format!("Found no blocked task in workflow {id} to signal")
    );
    for path in [
        "/tasks/none/COMPLETED/signal",
        "/tasks/none/COMPLETED/signal/sync",
    ] {
        tell(&server, "POST", path, &json!({}))
            .await
            .refused(404, "run_not_found");
    }
    let path = format!("/tasks/{id}/DONE/signal");
    tell(&server, "POST", &path, &json!({}))
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn a_signal_waits_for_the_next_task_and_shows_it() {
    let server = Server::open().await;
    let path = |id: &str, strategy: &str| {
        format!("/tasks/{id}/COMPLETED/signal/sync?returnStrategy={strategy}&timeoutMillis=60000")
    };
    for (strategy, kind) in [
        ("TARGET_WORKFLOW", "outer"),
        ("BLOCKING_WORKFLOW", "outer"),
        ("BLOCKING_TASK", "y"),
        ("BLOCKING_TASK_INPUT", "y"),
    ] {
        let server = Server::open().await;
        let (id, _) = started(&server).await;
        let answer = tell(&server, "POST", &path(&id, strategy), &json!({"v": 1}))
            .await
            .json();
        assert_eq!(answer["responseType"], strategy);
        assert_eq!(
            (&answer["targetWorkflowId"], &answer["targetWorkflowStatus"]),
            (&json!(id), &json!("RUNNING"))
        );
        assert_eq!(
            (&answer["workflowId"], &answer["signalTimeout"]),
            (&json!(id), &json!(false))
        );
        let shown = if kind == "y" {
            &answer["referenceTaskName"]
        } else {
            &answer["tasks"][1]["referenceTaskName"]
        };
        assert_eq!(shown, "y", "{answer}");
        let answer = tell(&server, "POST", &path(&id, strategy), &json!({"v": 2}))
            .await
            .json();
        // Nothing is blocked, so the workflow is shown.
        assert_eq!(
            (&answer["status"], &answer["responseType"]),
            (&json!("COMPLETED"), &json!(strategy))
        );
    }
    let (id, _) = started(&server).await;
    let bad = path(&id, "EVERYTHING");
    tell(&server, "POST", &bad, &json!({}))
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn variables_and_tasks_change_together() {
    let server = Server::open().await;
    let next = json!({"name": "n", "taskReferenceName": "n", "type": "WAIT", "inputParameters": {"k": "${workflow.variables.k}"}});
    let definition =
        json!({"name": "state", "variables": {"a": 1}, "tasks": [waiting()["tasks"][0], next]});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    let id = tell(&server, "POST", "/workflow/state", &json!({}))
        .await
        .text();
    let variables = format!("/workflow/{id}/variables");
    let run = tell(&server, "POST", &variables, &json!({"k": 1}))
        .await
        .json();
    assert_eq!(
        (&run["variables"], &run["status"]),
        (&json!({"a": 1, "k": 1}), &json!("RUNNING"))
    );
    let state = format!("/workflow/{id}/state?waitForSeconds=60&requestId=r-1");
    let unknown = json!({"variables": {"k": 9}, "taskReferenceName": "none", "taskResult": {"status": "COMPLETED"}});
    tell(&server, "POST", &state, &unknown)
        .await
        .refused(404, "task_not_found");
    assert_eq!(
        run_of(&server, &id).await["variables"]["k"],
        1,
        "neither happened"
    );
    let update = json!({"variables": {"k": 2}, "taskReferenceName": "wait_ref", "taskResult": {"status": "COMPLETED", "outputData": {"o": 1}}});
    let answer = tell(&server, "POST", &state, &update).await.json();
    assert_eq!(
        (&answer["requestId"], &answer["variables"]),
        (&json!("r-1"), &json!({"a": 1, "k": 2}))
    );
    assert_eq!(
        (
            &answer["tasks"][0]["outputData"],
            &answer["tasks"][1]["inputData"]
        ),
        (&json!({"o": 1}), &json!({"k": 2}))
    );
    let half = json!({"taskReferenceName": "n"});
    tell(&server, "POST", &state, &half)
        .await
        .refused(400, "validation_failed");
    let large = json!({"large": "x".repeat(300_000)});
    tell(&server, "POST", &variables, &large)
        .await
        .refused(400, "structural_limit_exceeded");
    let update = json!({"taskReferenceName": "n", "taskResult": {"status": "COMPLETED"}});
    assert_eq!(
        tell(&server, "POST", &state, &update).await.json()["status"],
        "COMPLETED"
    );
    tell(&server, "POST", &variables, &json!({"k": 3}))
        .await
        .refused(409, "run_not_active");
    tell(&server, "POST", "/workflow/none/variables", &json!({}))
        .await
        .refused(404, "run_not_found");
}
