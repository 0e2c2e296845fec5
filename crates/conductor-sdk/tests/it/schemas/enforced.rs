//! Schemas that a server enforces.

use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, simple, workflow_input,
};
use longhaul_conductor_sdk::model::{Object, SchemaDef, StartWorkflowRequest, WorkflowStatus};

use super::*;
use crate::workflows::{World, output};

#[derive(JsonSchema, Serialize)]
struct Note {
    text: Option<String>,
    length: usize,
}

/// Returns the note that it gets.
#[worker_task("schema_note", register_task_def = true)]
fn note(text: Option<String>, most: usize) -> TaskResponse<Note> {
    let length = text.as_ref().map_or(0, String::len);
    Ok(Note {
        text,
        length: length.min(most),
    })
}

fn enforced() -> AnyWorker {
    let definition = TaskDefBuilder::new("schema_note")
        .retries(0)
        .enforce_schema(true);
    note::worker().task_definition(definition.build().unwrap())
}

/// A workflow with one task, which gets the whole input of the workflow.
fn one_task() -> WorkflowDefBuilder {
    let task = simple("schema_note", "t")
        .input("text", workflow_input("text"))
        .input("most", workflow_input("most"));
    WorkflowDefBuilder::new("w").then(task)
}

/// Waits until the worker has registered its definition.
async fn registered(world: &World) {
    loop {
        match world.client.metadata().task("schema_note").await {
            Ok(definition) if definition.enforce_schema => return,
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn null_matches_where_a_schema_is_nullable() {
    let mut world = World::new().await;
    world.register(one_task()).await;
    world.run(enforced());
    registered(&world).await;
    for text in [json!(null), json!("short")] {
        let ended = world.execute("w", json!({"text": text, "most": 10})).await;
        assert_eq!(ended.status, WorkflowStatus::Completed, "{ended:?}");
        assert_eq!(output(&ended)["text"], text);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_task_that_does_not_match_the_schema_of_its_worker_fails() {
    let mut world = World::new().await;
    world.register(one_task()).await;
    world.run(enforced());
    registered(&world).await;
    let ended = world.execute("w", json!({"text": 7, "most": 10})).await;
    assert_eq!(ended.status, WorkflowStatus::Failed);
    let reason = ended.tasks[0].reason_for_incompletion.clone().unwrap();
    assert_eq!(
        reason,
        "The input of task t does not match schema schema_note_input version 1: /text: value is not of types \"null\", \"string\""
    );
    assert_eq!(ended.tasks[0].poll_count, 0, "no worker got it");
    world.stop().await;
}

#[tokio::test]
async fn a_start_and_an_end_must_match_the_schemas_of_the_workflow() {
    let world = World::new().await;
    let schema = |name: &str, member: &str| SchemaDef {
        name: name.to_owned(),
        data: Some(content(json!({"type": "object", "required": [member]}))),
        ..SchemaDef::default()
    };
    world
        .client
        .schemas()
        .register(&schema("started", "a"))
        .await
        .unwrap();
    let link = SchemaDef {
        name: "started".to_owned(),
        ..SchemaDef::default()
    };
    let definition = WorkflowDefBuilder::new("w")
        .then(longhaul_conductor_sdk::definition::noop("n"))
        .input_schema(link)
        .output("b", workflow_input("b"))
        .output_schema(SchemaDef {
            data: Some(content(json!({"properties": {"b": {"type": "integer"}}}))),
            ..schema("ended", "b")
        });
    world.register(definition).await;
    let workflows = world.client.workflows();
    let refused = workflows
        .start(&StartWorkflowRequest::new("w").input("b", 1))
        .await
        .unwrap_err();
    let refusal = refused.refusal().expect("the server refuses it");
    assert_eq!(refusal.status(), 400);
    assert_eq!(refusal.reason(), "schema_mismatch");
    assert!(
        refused.to_string().contains("\"a\" is a required property"),
        "{refused}"
    );
    let ended = world.execute("w", json!({"a": 1, "b": 2})).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    let ended = world.execute("w", json!({"a": 1, "b": "x"})).await;
    assert_eq!(ended.status, WorkflowStatus::Failed);
    let reason = ended.reason_for_incompletion.unwrap();
    assert!(
        reason.starts_with("The output of workflow w does not match schema ended"),
        "{reason}"
    );
    world.stop().await;
}

fn content(value: Value) -> Object {
    value.as_object().unwrap().clone()
}
