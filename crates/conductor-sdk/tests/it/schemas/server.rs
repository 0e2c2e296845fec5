//! Workers with schemas, and a server in the same process.

use futures::future::BoxFuture;
use jiff::Timestamp;
use longhaul_conductor_sdk::definition::{WorkflowDefBuilder, output_of, simple, workflow_input};
use longhaul_conductor_sdk::model::WorkflowStatus;
use longhaul_conductor_sdk::transport::{Request, Response, Transport, TransportError};

use super::*;
use crate::workflows::{World, output};

/// Reads a time and returns a later one.
#[worker_task("schema_remind", register_task_def = true)]
fn remind(at: Timestamp, hours: i64) -> TaskResponse<Reminder> {
    let later = at.checked_add(jiff::SignedDuration::from_hours(hours))?;
    Ok(Reminder { at: later })
}

#[derive(JsonSchema, Serialize)]
struct Reminder {
    at: Timestamp,
}

/// A definition with one task, whose inputs are those of the workflow.
fn one_task(task_type: &str, inputs: &[&str], wanted: &str) -> WorkflowDefBuilder {
    let task = inputs.iter().fold(simple(task_type, "t"), |task, name| {
        task.input(*name, workflow_input(name))
    });
    WorkflowDefBuilder::new("w")
        .then(task)
        .output(wanted, output_of("t", wanted))
}

/// A server that refuses requests for a path.
#[derive(Debug)]
struct Refusing<T> {
    inner: T,
    path: &'static str,
    status: u16,
}

impl<T: Transport> Transport for Refusing<T> {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>> {
        if !request.path.starts_with(self.path) {
            return self.inner.send(request);
        }
        let response = Response {
            status: self.status,
            body: "{}".into(),
        };
        Box::pin(async move { Ok(response) })
    }
}

#[tokio::test]
async fn the_server_has_the_schemas_to_which_the_definition_has_links() {
    let mut world = World::new().await;
    world
        .register(one_task("schema_remind", &["at", "hours"], "at"))
        .await;
    world.run(remind::worker());
    let input = json!({"at": "2026-11-16T23:30:00+01:00", "hours": 2});
    let ended = world.execute("w", input).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(output(&ended), json!({"at": "2026-11-17T00:30:00Z"}));

    let client = &world.client;
    let definition = client.metadata().task("schema_remind").await.unwrap();
    // The server sets what the worker does not.
    assert_eq!(definition.retry_count, 3);
    for (link, property) in [
        (definition.input_schema.unwrap(), "at"),
        (definition.output_schema.unwrap(), "at"),
    ] {
        let version = Some(link.version);
        let schema = client.schemas().get(&link.name, version).await.unwrap();
        let data = Value::Object(schema.data.unwrap());
        assert_eq!(
            data["properties"][property],
            json!({"type": "string", "format": "date-time"}),
            "{}",
            link.name
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn a_time_that_is_none_fails_with_the_name_of_the_parameter() {
    let mut world = World::new().await;
    world
        .register(one_task("schema_remind", &["at", "hours"], "at"))
        .await;
    // A task without definition would be retried.
    let definition = TaskDef {
        name: "schema_remind".to_owned(),
        retry_count: 0,
        ..TaskDef::default()
    };
    let metadata = world.client.metadata();
    metadata.register_tasks(&[definition]).await.unwrap();
    world.run(remind::worker().settings(CodeSettings::new()));
    let ended = world
        .execute("w", json!({"at": "yesterday", "hours": 2}))
        .await;
    assert_eq!(ended.status, WorkflowStatus::Failed);
    let reason = ended.reason_for_incompletion.unwrap();
    assert!(
        reason.contains("the parameter `at` does not fit"),
        "{reason}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_worker_without_an_input_schema_works_all_the_same() {
    let mut world = World::new().await;
    world
        .register(one_task("schema_opaque", &["a", "opaque"], "result"))
        .await;
    world.run(opaque::worker());
    let ended = world.execute("w", json!({"a": 1, "opaque": [2, 3]})).await;
    assert_eq!(output(&ended), json!({"result": 6}));
    let definition = world.client.metadata().task("schema_opaque").await.unwrap();
    assert!(definition.input_schema.is_none());
    let schemas = world.client.schemas().list().await.unwrap();
    let names: Vec<_> = schemas.iter().map(|schema| &*schema.name).collect();
    assert_eq!(names, ["schema_opaque_output"]);
    world.stop().await;
}

/// Nothing of it has a schema.
#[worker_task("schema_none", register_task_def = true)]
fn none(opaque: Opaque) -> TaskResponse<Outcome> {
    Outcome::output(&opaque.0)
}

#[tokio::test]
async fn a_worker_without_any_schema_registers_none_and_works() {
    let mut world = World::new().await;
    world
        .register(one_task("schema_none", &["opaque"], "result"))
        .await;
    world.run(none::worker());
    let ended = world.execute("w", json!({"opaque": 7})).await;
    assert_eq!(output(&ended), json!({"result": 7}));
    assert!(world.client.schemas().list().await.unwrap().is_empty());
    let definition = world.client.metadata().task("schema_none").await.unwrap();
    assert!(definition.input_schema.is_none() && definition.output_schema.is_none());
    world.stop().await;
}

#[tokio::test]
async fn no_refusal_of_a_registration_stops_the_worker() {
    for (path, status, is_registered) in [
        ("/api/schema", 404, true),
        ("/api/schema", 500, true),
        ("/api/metadata/taskdefs", 500, false),
        ("/api/metadata/taskdefs", 403, false),
    ] {
        let mut world = World::over(|inner| Refusing {
            inner,
            path,
            status,
        })
        .await;
        world
            .register(one_task("schema_opaque", &["a", "opaque"], "result"))
            .await;
        world.run(opaque::worker());
        let ended = world.execute("w", json!({"a": 1, "opaque": []})).await;
        assert_eq!(output(&ended), json!({"result": 1}), "{path} {status}");
        if is_registered {
            let definition = world.client.metadata().task("schema_opaque").await.unwrap();
            assert!(definition.output_schema.is_none(), "{path} {status}");
        }
        world.stop().await;
    }
}
