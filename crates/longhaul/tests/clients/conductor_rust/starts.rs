//! Starting, executing and ending workflows; versions of definitions and enforced schemas.

use std::collections::BTreeSet;
use std::time::Duration;

use longhaul_conductor_sdk::client::{Execute, Executed, SearchQuery};
use longhaul_conductor_sdk::definition::{
    IdempotencyStrategy, TaskDefBuilder, TerminationStatus, WorkflowDefBuilder, human, noop,
    set_variable, simple, sub_workflow, terminate, variable, wait, workflow_input,
};
use longhaul_conductor_sdk::model::{
    Object, ResultStatus, ReturnStrategy, SchemaDef, SchemaType, StartWorkflowRequest, TaskStatus,
    WorkflowDef, WorkflowStatus,
};
use longhaul_conductor_sdk::transport::RequestError;
use serde_json::{Value, json};

use super::echo::Echo;
use super::{World, object, refused, request, statuses, task_of, unique};

/// How long the server holds a call that waits for a run. Generous, because CI machines stall.
const WAIT: Duration = Duration::from_secs(60);

/// Starts a workflow with the idempotency key `order-7`.
async fn keyed(
    world: &World,
    name: &str,
    strategy: Option<IdempotencyStrategy>,
) -> Result<String, RequestError> {
    let request = StartWorkflowRequest {
        idempotency_key: Some("order-7".to_owned()),
        idempotency_strategy: strategy,
        ..request(name, json!({}))
    };
    world.client.workflows().start(&request).await
}

#[tokio::test]
async fn a_key_starts_one_run() {
    let world = World::start().await;
    let name = world.define(|workflow| workflow.then(human("h"))).await;
    let other = world.define(|workflow| workflow.then(human("h"))).await;
    let fail = Some(IdempotencyStrategy::Fail);
    let existing = Some(IdempotencyStrategy::ReturnExisting);
    let on_running = Some(IdempotencyStrategy::FailOnRunning);
    let first = keyed(&world, &name, fail).await.unwrap();
    for strategy in [fail, on_running, None] {
        refused(409, keyed(&world, &name, strategy).await);
    }
    assert_eq!(keyed(&world, &name, existing).await.unwrap(), first);
    let workflows = world.client.workflows();
    let run = workflows.get_without_tasks(&first).await.unwrap();
    assert_eq!(run.idempotency_key.as_deref(), Some("order-7"));
    assert!(run.tasks.is_empty());
    // The key belongs to the workflow.
    assert_ne!(keyed(&world, &other, fail).await.unwrap(), first);
    let (tasks, completed) = (world.client.tasks(), ResultStatus::Completed);
    tasks
        .update_by_reference(&first, "h", completed, &Object::new())
        .await
        .unwrap();
    assert_eq!(world.ended(&first).await.status, WorkflowStatus::Completed);
    refused(409, keyed(&world, &name, fail).await);
    assert_eq!(keyed(&world, &name, existing).await.unwrap(), first);
    let second = keyed(&world, &name, on_running).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(keyed(&world, &name, existing).await.unwrap(), second);
}

#[tokio::test]
async fn starts_at_the_same_time_give_one_run() {
    let world = World::start().await;
    let name = world.define(|workflow| workflow.then(human("h"))).await;
    let existing = Some(IdempotencyStrategy::ReturnExisting);
    let starts = (0..20).map(|_| keyed(&world, &name, existing));
    let ids = futures::future::try_join_all(starts).await.unwrap();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 1);
    let query = SearchQuery::new(format!("workflowType='{name}'"));
    world.found(1, &query).await;
}

#[tokio::test]
async fn members_of_a_start() {
    let world = World::start().await;
    let inline = WorkflowDefBuilder::new(unique("inline"))
        .then(noop("n"))
        .output("n", workflow_input("n"))
        .build()
        .unwrap();
    let started = StartWorkflowRequest {
        workflow_def: Some(inline.clone()),
        correlation_id: Some("naïve 雪 \u{1f40d}".to_owned()),
        priority: 9,
        created_by: Some("Ümit".to_owned()),
        ..request(&inline.name, json!({"n": [null, {"null": null}]}))
    };
    let workflows = world.client.workflows();
    let id = workflows.start(&started).await.unwrap();
    let run = world.ended(&id).await;
    assert_eq!(run.output, started.input);
    assert_eq!(run.correlation_id, started.correlation_id);
    assert_eq!((run.priority, &run.created_by), (9, &started.created_by));
    // A definition inside the request is not registered.
    let plain = request(&inline.name, json!({}));
    refused(404, workflows.start(&plain).await);
    let wrong = StartWorkflowRequest {
        priority: 100,
        ..started
    };
    let message = refused(400, workflows.start(&wrong).await);
    assert!(message.contains("priority"), "{message}");
}

#[tokio::test]
async fn a_run_without_waiting_has_ended_when_its_id_is_returned() {
    let world = World::start().await;
    let inner = world
        .define(|workflow| {
            workflow
                .then(set_variable("v").input("x", 1))
                .output("x", variable("x"))
        })
        .await;
    let call = sub_workflow("call", &inner);
    let x = call.output("x");
    let outer = world
        .define(|workflow| workflow.then(call).output("x", x))
        .await;
    let id = world.start_workflow(&outer, json!({})).await;
    let run = world.client.workflows().get(&id).await.unwrap();
    assert_eq!(run.status, WorkflowStatus::Completed);
    assert_eq!(run.output, object(json!({"x": 1})));
    let view = world.client.workflows().status(&id).await.unwrap();
    assert_eq!(view.status, WorkflowStatus::Completed);
    assert_eq!(view.output, Some(run.output));
}

#[tokio::test]
async fn a_run_that_ended_is_terminated_unless_it_completed() {
    let world = World::start().await;
    let workflows = world.client.workflows();
    let name = world.define(|workflow| workflow.then(noop("n"))).await;
    let done = world.completed(&name, json!({})).await.workflow_id;
    refused(409, workflows.terminate(&done, Some("late")).await);
    let end = terminate("t", TerminationStatus::Failed).reason("no");
    let name = world.define(|workflow| workflow.then(end)).await;
    let failed = world.run(&name, json!({})).await;
    assert_eq!(failed.status, WorkflowStatus::Failed);
    let id = failed.workflow_id;
    workflows.terminate(&id, Some("given up")).await.unwrap();
    workflows.terminate(&id, Some("again")).await.unwrap();
    let run = workflows.get(&id).await.unwrap();
    assert_eq!(run.status, WorkflowStatus::Terminated);
    assert_eq!(run.reason_for_incompletion.as_deref(), Some("given up"));
    refused(404, workflows.terminate("nothing", None).await);
    refused(404, workflows.get("nothing").await);
}

#[tokio::test]
async fn execute_returns_what_was_asked_for() {
    let echo = Echo::start().await;
    let world = &echo.world;
    let question = wait("wait").input("question", workflow_input("k"));
    let inner = world
        .define(|workflow| workflow.then(echo.task("a")).then(question))
        .await;
    let call = sub_workflow("call", &inner).input("k", workflow_input("k"));
    let outer = world.define(|workflow| workflow.then(call)).await;
    let (workflows, started) = (world.client.workflows(), request(&outer, json!({"k": 1})));
    for strategy in [
        ReturnStrategy::TargetWorkflow,
        ReturnStrategy::BlockingWorkflow,
        ReturnStrategy::BlockingTask,
        ReturnStrategy::BlockingTaskInput,
    ] {
        let id = unique("request");
        let options = Execute::new().wait(WAIT).returns(strategy).request_id(&id);
        let answer = workflows.execute(&started, &options).await.unwrap();
        let target = answer.workflow_id().to_owned();
        let run = workflows.get(&target).await.unwrap();
        let child = run.tasks[0].sub_workflow_id.clone().unwrap();
        match answer {
            Executed::Workflow(shown) => {
                assert_eq!(
                    (shown.response_type, shown.request_id),
                    (strategy, Some(id))
                );
                assert_eq!(shown.target_workflow_status, WorkflowStatus::Running);
                let tasks = shown.tasks.iter().map(|task| &*task.reference_task_name);
                let (shows, tasks) = (shown.workflow_id, tasks.collect::<Vec<_>>());
                if strategy == ReturnStrategy::TargetWorkflow {
                    assert_eq!((shows, tasks), (target.clone(), vec!["call"]));
                } else {
                    assert_eq!(strategy, ReturnStrategy::BlockingWorkflow);
                    assert_eq!((shows, tasks), (child, vec!["a", "wait"]));
                }
            }
            Executed::Task(shown) => {
                assert_eq!(
                    (shown.response_type, shown.request_id),
                    (strategy, Some(id))
                );
                assert_eq!((shown.workflow_id, &*shown.task_type), (child, "WAIT"));
                assert_eq!(shown.reference_task_name, "wait");
                assert_eq!(shown.status, TaskStatus::InProgress);
                assert_eq!(shown.input, object(json!({"question": 1})));
            }
            other => panic!("{other:?}"),
        }
        workflows.terminate(&target, None).await.unwrap();
    }
}

#[tokio::test]
async fn execute_waits_for_the_end_for_a_task_or_for_a_time() {
    let echo = Echo::start().await;
    let world = &echo.world;
    let workflows = world.client.workflows();
    let last = echo.task("t").input("n", workflow_input("n"));
    let n = last.output("n");
    let quick = world
        .define(|workflow| workflow.then(last).output("n", n))
        .await;
    let execute = async |name: &str, options: Execute| {
        let started = request(name, json!({"n": 4}));
        let answer = workflows.execute(&started, &options).await.unwrap();
        answer.workflow().unwrap()
    };
    let ended = execute(&quick, Execute::new().wait(WAIT)).await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(ended.output, object(json!({"n": 4})));
    // Without an end, the wait ends with the named task, else with its time.
    let slow = world
        .define(|workflow| workflow.then(echo.task("a")).then(human("h")))
        .await;
    let until = execute(&slow, Execute::new().wait(WAIT).until("a")).await;
    assert_eq!(until.status, WorkflowStatus::Running);
    assert_eq!(until.tasks[0].status, TaskStatus::Completed);
    let second = Duration::from_secs(1);
    let waited = execute(&slow, Execute::new().wait(second)).await;
    assert_eq!(waited.status, WorkflowStatus::Running);
    assert!(waited.signal_timeout);
}

#[tokio::test]
async fn versions_of_a_definition() {
    let world = World::start().await;
    let (metadata, workflows) = (world.client.metadata(), world.client.workflows());
    let name = unique("versions");
    let version = |version: i32, text: &str| -> WorkflowDef {
        let workflow = WorkflowDefBuilder::new(&name).version(version);
        let workflow = workflow.then(human("h")).output("text", text);
        workflow.build().unwrap()
    };
    let text = |definition: WorkflowDef| definition.output_parameters["text"].clone();
    metadata
        .register_workflow(&version(1, "one"))
        .await
        .unwrap();
    metadata
        .register_workflow(&version(2, "two"))
        .await
        .unwrap();
    refused(409, metadata.register_workflow(&version(1, "again")).await);
    assert_eq!(text(metadata.workflow(&name, None).await.unwrap()), "two");
    assert_eq!(
        text(metadata.workflow(&name, Some(1)).await.unwrap()),
        "one"
    );
    let newest = world.start_workflow(&name, json!({})).await;
    let first = StartWorkflowRequest {
        version: Some(1),
        ..request(&name, json!({}))
    };
    let older = workflows.start(&first).await.unwrap();
    // A run keeps the definition that it began with.
    let changed = version(1, "changed");
    metadata
        .register_or_replace_workflow(&changed)
        .await
        .unwrap();
    let found = metadata.workflow(&name, Some(1)).await.unwrap();
    assert_eq!(text(found), "changed");
    metadata.delete_workflow(&name, 2).await.unwrap();
    refused(404, metadata.workflow(&name, Some(2)).await);
    let changed = world.start_workflow(&name, json!({})).await;
    for (id, version, text) in [
        (newest, 2, "two"),
        (older, 1, "one"),
        (changed, 1, "changed"),
    ] {
        let (tasks, completed) = (world.client.tasks(), ResultStatus::Completed);
        let run = tasks
            .update_by_reference_sync(&id, "h", completed, &Object::new())
            .await
            .unwrap();
        assert_eq!(run.status, WorkflowStatus::Completed);
        assert_eq!(
            (run.workflow_version, &run.output["text"]),
            (version, &json!(text))
        );
    }
}

/// Returns a schema of objects with one whole number.
fn schema(name: &str, version: i32, member: &str) -> SchemaDef {
    let data = json!({"type": "object", "properties": {member: {"type": "integer"}}, "required": [member]});
    SchemaDef {
        name: name.to_owned(),
        version,
        schema_type: Some(SchemaType::Json),
        data: Some(object(data)),
        ..SchemaDef::default()
    }
}

#[tokio::test]
async fn schemas_are_enforced() {
    let world = World::start().await;
    let (task, registered) = (unique("task"), schema(&unique("schema"), 2, "n"));
    world.client.schemas().register(&registered).await.unwrap();
    let definition = TaskDefBuilder::new(&task)
        .retries(0)
        .output_schema(schema("out", 1, "x"))
        .enforce_schema(true)
        .build()
        .unwrap();
    let metadata = world.client.metadata();
    metadata.register_tasks(&[definition]).await.unwrap();
    let link = SchemaDef {
        data: None,
        ..registered
    };
    let name = world
        .define(|workflow| {
            workflow
                .then(simple(&task, "t"))
                .input_schema(link)
                .enforce_schema(true)
        })
        .await;
    for wrong in [json!({"m": 1}), json!({"n": "one"})] {
        let start = request(&name, wrong);
        refused(400, world.client.workflows().start(&start).await);
    }
    let run_with = async |x: Value| {
        let id = world.start_workflow(&name, json!({"n": 1})).await;
        let (given, output) = (world.polled(&task).await, json!({"x": x}));
        world.report(&given, ResultStatus::Completed, output).await;
        world.ended(&id).await
    };
    let good = run_with(json!(5)).await;
    assert_eq!(good.status, WorkflowStatus::Completed);
    let bad = run_with(json!("five")).await;
    assert_eq!(statuses(&bad), [("t", TaskStatus::FailedWithTerminalError)]);
    let task = task_of(&bad, "t");
    let reason = task.reason_for_incompletion.as_deref().unwrap_or_default();
    assert!(reason.contains("/x: value is not of type"), "{reason}");
    assert_eq!(task.output_data, object(json!({"x": "five"})));
}
