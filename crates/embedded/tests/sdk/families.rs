//! Calls between the families in one process, without sockets.

use longhaul_conductor_sdk::model::{StartWorkflowRequest, WorkflowDef};
use longhaul_embedded::Embedded;
use longhaul_sdk::{Failure, Worker, WorkflowCall, WorkflowContext, WorkflowResult, workflow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Text {
    text: String,
}

/// Starts a definition, and says how it ended.
#[workflow]
async fn caller(ctx: WorkflowContext, name: String, word: String) -> WorkflowResult<String> {
    let known = ["shout", "shout@1", "missing"];
    let named = known.into_iter().find(|known| *known == name);
    let call = WorkflowCall::<Text>::named(named.unwrap()).argument(json!({"word": word}));
    match ctx.child(call).queue("conductor").await {
        Ok(answer) => Ok(answer.text),
        Err(failure) => Ok(format!("failed: {}", failure.message)),
    }
}

#[workflow]
async fn refuses(_ctx: WorkflowContext, what: String) -> WorkflowResult<()> {
    Err(Failure::of_type("Refused", format!("no {what}"))
        .non_retryable()
        .into())
}

fn definition(name: &str, node: Value, outputs: Value) -> WorkflowDef {
    serde_json::from_value(
        json!({"name": name, "version": 1, "schemaVersion": 2, "timeoutSeconds": 0,
        "tasks": [node], "outputParameters": outputs}),
    )
    .unwrap()
}

fn node(kind: &str, inputs: Value) -> Value {
    json!({"name": kind, "taskReferenceName": "t", "type": kind, "inputParameters": inputs})
}

#[tokio::test]
async fn definitions_and_code_call_each_other() {
    let server = Embedded::in_memory().await.unwrap();
    let (client, conductor) = (server.client(), server.conductor());
    let worker = Worker::builder(&client, "families")
        .workflow::<caller>()
        .workflow::<refuses>()
        .build();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    let jq = json!({"queryExpression": ".word | ascii_upcase", "word": "${workflow.input.word}"});
    let shout = definition(
        "shout",
        node("JSON_JQ_TRANSFORM", jq),
        json!({"text": "${t.output.result}"}),
    );
    let code = |kind: &str, arguments: Value| {
        node(
            "DURABLE_WORKFLOW",
            json!({"workflowType": kind, "taskQueue": "families", "arguments": arguments}),
        )
    };
    let outer = definition(
        "outer",
        code("caller", json!(["shout", "${workflow.input.word}"])),
        json!({"said": "${t.output.result}"}),
    );
    let failing = definition("failing", code("refuses", json!("books")), json!({}));
    for definition in [shout, outer, failing] {
        conductor
            .metadata()
            .register_workflow(&definition)
            .await
            .unwrap();
    }

    let call = WorkflowCall::<String>::named("caller");
    let started = client
        .start(call.argument("shout@1").argument("loud"))
        .queue("families")
        .await
        .unwrap();
    assert_eq!(started.result().await.unwrap(), "LOUD");
    let call = WorkflowCall::<String>::named("caller");
    let started = client
        .start(call.argument("missing").argument("x"))
        .queue("families")
        .await
        .unwrap();
    let answer = started.result().await.unwrap();
    assert!(
        answer.contains("No such workflow defined. name=missing"),
        "{answer}"
    );

    let ended = async |name: &str| {
        let request: StartWorkflowRequest =
            serde_json::from_value(json!({"name": name, "input": {"word": "deep"}})).unwrap();
        let id = conductor.workflows().start(&request).await.unwrap();
        loop {
            let run = conductor.workflows().get(&id).await.unwrap();
            if run.status.is_terminal() {
                return run;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(ended("outer").await.output["said"], json!("DEEP"));
    let run = ended("failing").await;
    let task = &run.tasks[0];
    assert_eq!(task.status.as_str(), "FAILED_WITH_TERMINAL_ERROR");
    assert_eq!(
        task.reason_for_incompletion.as_deref(),
        Some("Refused: no books")
    );
    assert_eq!(task.output_data["errorType"], json!("Refused"));
    handle.shut_down();
    running.await.unwrap().unwrap();
    server.stop().await;
}
