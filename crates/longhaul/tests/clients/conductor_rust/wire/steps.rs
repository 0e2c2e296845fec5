//! The steps of `conductor/wire.py`, made with this SDK.

use std::time::Duration;

use longhaul_conductor_sdk::Client;
use longhaul_conductor_sdk::client::{Correlated, Execute, Poll, SearchQuery};
use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, output_of, simple, workflow_input,
};
use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::model::{
    ResultStatus, RetryLogic, ReturnStrategy, SchemaDef, SchemaType, StartWorkflowRequest, TaskDef,
    TaskExecLog, TaskResult, TimeoutPolicy, WorkflowDef, WorkflowTimeoutPolicy,
};
use longhaul_conductor_sdk::runner::TaskRunner;
use longhaul_conductor_sdk::schemars::JsonSchema;
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{AnyWorker, TaskFailure, async_function, function};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::object;
use super::recorder::Recorder;

const CREATED: i64 = 1_700_000_000_000;

/// Makes a step.
pub(super) async fn make(step: &str, client: &Client, recorder: &Recorder) {
    let known = on_tasks(step, client).await
        || on_definitions(step, client).await
        || on_workflows(step, client).await
        || work(step, client, recorder).await;
    assert!(known, "{step} is a step of the Python program only");
}

fn poll() -> Poll {
    Poll::new("charge").worker_id("w")
}

fn result(status: ResultStatus, output: Value) -> TaskResult {
    TaskResult {
        task_id: "t".to_owned(),
        workflow_instance_id: "i".to_owned(),
        worker_id: Some("w".to_owned()),
        status: Some(status),
        output_data: object(output),
        ..TaskResult::default()
    }
}

fn failed(status: ResultStatus, reason: &str) -> TaskResult {
    TaskResult {
        reason_for_incompletion: Some(reason.to_owned()),
        ..result(status, json!({}))
    }
}

async fn on_tasks(step: &str, client: &Client) -> bool {
    let tasks = client.tasks();
    let polled = match step {
        "poll" => Some(poll().count(7)),
        "poll_in_a_domain" => {
            let poll = poll().count(7).domain("eu");
            Some(poll.timeout(Duration::from_millis(250)))
        }
        "poll_in_an_empty_domain" => Some(poll().domain("")),
        "poll_without_a_worker" => Some(Poll::new("charge")),
        "poll_a_name_with_other_characters" => {
            Some(Poll::new("a/b c+d?ü%").worker_id("w 1&2").domain("e u"))
        }
        _ => None,
    };
    if let Some(poll) = polled {
        assert!(tasks.batch_poll(&poll).await.unwrap().is_empty());
        return true;
    }
    match step {
        "poll_one" => assert!(tasks.poll(&poll()).await.unwrap().is_none()),
        "poll_one_in_a_domain" => {
            let none = tasks.poll(&poll().domain("eu")).await.unwrap();
            assert!(none.is_none());
        }
        "update_completed" => {
            let output = json!({"a": [1, null, {"b": null}]});
            let result = result(ResultStatus::Completed, output);
            tasks.update(&result).await.unwrap();
        }
        "update_failed" => {
            let logs = vec![TaskExecLog {
                log: "a line".to_owned(),
                task_id: Some("t".to_owned()),
                created_time: CREATED,
            }];
            let failed = failed(ResultStatus::Failed, "no money");
            tasks.update(&TaskResult { logs, ..failed }).await.unwrap();
        }
        "update_terminal" => {
            let failed = failed(ResultStatus::FailedWithTerminalError, "no card");
            tasks.update(&failed).await.unwrap();
        }
        "update_in_progress" => {
            let result = TaskResult {
                callback_after_seconds: 60,
                ..result(ResultStatus::InProgress, json!({"done": 1}))
            };
            tasks.update(&result).await.unwrap();
        }
        "update_and_poll" => {
            let result = result(ResultStatus::Completed, json!({"a": 1}));
            let next = tasks.update_and_poll(&result).await.unwrap();
            assert!(next.is_none());
        }
        "update_by_reference" => {
            let (status, output) = (ResultStatus::Completed, object(json!({"ok": true})));
            let update = tasks.update_by_reference("i", "r 1", status, &output);
            update.await.unwrap();
        }
        "update_by_reference_sync" => {
            let (status, output) = (ResultStatus::Completed, object(json!({"ok": true})));
            let update = tasks.update_by_reference_sync("i", "r 1", status, &output);
            update.await.unwrap();
        }
        "add_log" => tasks.add_log("t", "a line").await.unwrap(),
        "logs" => assert!(tasks.logs("t").await.unwrap().is_empty()),
        "task" => drop(tasks.get("t").await.unwrap()),
        "queue_size" => drop(tasks.queue_sizes(&["charge"]).await.unwrap()),
        "poll_data" => assert!(tasks.poll_data("charge").await.unwrap().is_empty()),
        _ => return false,
    }
    true
}

fn task_definition() -> TaskDef {
    TaskDefBuilder::new("charge")
        .description("Charges a card")
        .retries(5)
        .retry_logic(RetryLogic::LinearBackoff)
        .retry_delay(Duration::from_secs(7))
        .backoff_factor(2.try_into().unwrap())
        .timeout(Duration::from_secs(60), TimeoutPolicy::Retry)
        .response_timeout(Duration::from_secs(30))
        .concurrent_limit(4)
        .rate_limit(100, Duration::from_secs(10))
        .owner_email("ada@example.com")
        .build()
        .unwrap()
}

fn workflow_definition() -> WorkflowDef {
    WorkflowDefBuilder::new("order")
        .version(2)
        .description("An order")
        .then(simple("charge", "first").input("id", workflow_input("id")))
        .output("receipt", output_of("first", "receipt"))
        .timeout(
            Duration::from_secs(3600),
            WorkflowTimeoutPolicy::TimeOutWorkflow,
        )
        .owner_email("ada@example.com")
        .build()
        .unwrap()
}

async fn on_definitions(step: &str, client: &Client) -> bool {
    let (metadata, schemas) = (client.metadata(), client.schemas());
    match step {
        "register_task" => metadata.register_tasks(&[task_definition()]).await.unwrap(),
        "update_task" => metadata.update_task(&task_definition()).await.unwrap(),
        "get_task" => drop(metadata.task("charge").await.unwrap()),
        "get_task_with_other_characters" => drop(metadata.task("a/b c").await.unwrap()),
        "list_tasks" => assert!(metadata.tasks().await.unwrap().is_empty()),
        "delete_task" => metadata.delete_task("charge").await.unwrap(),
        "register_workflow" => {
            let definition = workflow_definition();
            metadata.register_workflow(&definition).await.unwrap();
        }
        "replace_workflow" => {
            let definition = workflow_definition();
            let register = metadata.register_or_replace_workflow(&definition);
            register.await.unwrap();
        }
        "get_workflow_definition" => drop(metadata.workflow("order", Some(2)).await.unwrap()),
        "get_newest_workflow_definition" => drop(metadata.workflow("order", None).await.unwrap()),
        "list_workflows" => assert!(metadata.workflows().await.unwrap().is_empty()),
        "delete_workflow" => metadata.delete_workflow("order", 2).await.unwrap(),
        "register_schema" => {
            let schema = SchemaDef {
                name: "charge_input".to_owned(),
                schema_type: Some(SchemaType::Json),
                data: Some(object(json!({"type": "object"}))),
                ..SchemaDef::default()
            };
            schemas.register(&schema).await.unwrap();
        }
        "get_schema" => drop(schemas.get("charge_input", Some(1)).await.unwrap()),
        "list_schemas" => assert!(schemas.list().await.unwrap().is_empty()),
        "delete_schema" => schemas.delete("charge_input", Some(1)).await.unwrap(),
        "delete_schemas_of_a_name" => schemas.delete("charge_input", None).await.unwrap(),
        _ => return false,
    }
    true
}

fn start() -> StartWorkflowRequest {
    let request = StartWorkflowRequest::new("order");
    request.input("id", 7).input("none", Value::Null)
}

fn second_version() -> StartWorkflowRequest {
    StartWorkflowRequest {
        version: Some(2),
        ..start()
    }
}

async fn on_workflows(step: &str, client: &Client) -> bool {
    let workflows = client.workflows();
    let wait = Execute::new().wait(Duration::from_secs(5)).request_id("q");
    match step {
        "start" => assert_eq!(workflows.start(&start()).await.unwrap(), "an-id"),
        "start_with_all" | "start_by_name" => {
            let mut request = StartWorkflowRequest {
                correlation_id: Some("c".to_owned()),
                priority: 3,
                ..second_version()
            };
            if step == "start_with_all" {
                let domain = ("charge".to_owned(), "eu".to_owned());
                request.task_to_domain.extend([domain]);
            }
            assert_eq!(workflows.start(&request).await.unwrap(), "an-id");
        }
        "execute" => {
            let execute = wait.until("first");
            let run = workflows.execute(&second_version(), &execute).await;
            drop(run.unwrap());
        }
        "execute_with_strategy" => {
            let execute = wait.returns(ReturnStrategy::BlockingTask);
            let run = workflows.execute(&second_version(), &execute).await;
            drop(run.unwrap());
        }
        "get" | "token" => drop(workflows.get("i").await.unwrap()),
        "get_without_tasks" => drop(workflows.get_without_tasks("i").await.unwrap()),
        "status" => drop(workflows.status("i").await.unwrap()),
        "pause" => workflows.pause("i").await.unwrap(),
        "resume" => workflows.resume("i").await.unwrap(),
        "terminate" => workflows.terminate("i", None).await.unwrap(),
        "terminate_with_reason" => workflows.terminate("i", Some("too late")).await.unwrap(),
        "terminate_as_failed" => workflows
            .terminate_as_failed("i", Some("no"))
            .await
            .unwrap(),
        "search" => {
            let query = SearchQuery::new("status IN (FAILED)").free_text("Ada");
            drop(workflows.search(&query.page(20, 10)).await.unwrap());
        }
        "search_all" => drop(workflows.search(&SearchQuery::all()).await.unwrap()),
        "correlated" | "correlated_with_all" => {
            let all = step == "correlated_with_all";
            let which = Correlated {
                include_closed: all,
                include_tasks: all,
            };
            drop(workflows.correlated("order", &["c"], which).await.unwrap());
        }
        "running" => drop(workflows.running("order", 2).await.unwrap()),
        _ => return false,
    }
    true
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "longhaul_conductor_sdk::schemars")]
struct Charge {
    order: String,
    cents: i64,
    #[serde(default)]
    note: String,
}

fn charge() -> AnyWorker {
    let worker = function("charge", |charge: Charge| {
        let Charge { order, cents, note } = charge;
        Ok(format!("{order}: {cents}{note}"))
    });
    worker
        .input_schema_of::<Charge>()
        .output_schema_of::<String>()
}

/// Registers a worker if it asks for it, and executes what one poll returns.
async fn work(step: &str, client: &Client, recorder: &Recorder) -> bool {
    let seven = || function("charge", |_: Value| Ok(7));
    let settings = CodeSettings::new().worker_id("w");
    let registering = settings.clone().register_task_def(true);
    let keeping = registering.clone().overwrite_task_def(false);
    let worker = match step {
        "work" => function("charge", |_: Value| Ok(json!({"ok": true}))).settings(settings),
        "work_that_fails" => function("charge", |_: Value| {
            Err::<(), _>(TaskFailure::new("no money"))
        })
        .settings(settings),
        "work_in_a_domain" => seven().settings(settings.domain("eu").thread_count(3)),
        "work_with_a_new_definition" => {
            seven().settings(keeping).task_definition(task_definition())
        }
        "work_with_a_known_definition" => seven().settings(keeping),
        "work_with_a_replaced_definition" => seven()
            .settings(registering)
            .task_definition(task_definition()),
        "work_with_a_bare_definition" => seven().settings(registering),
        "work_with_schemas" => charge().settings(registering),
        "work_with_strict_schemas" => charge().settings(registering.strict_schema(true)),
        "heartbeat" => {
            let recorder = recorder.clone();
            let work = move |_: Value| {
                let recorder = recorder.clone();
                async move {
                    recorder.heartbeat("heartbeat").await;
                    Ok(())
                }
            };
            async_function("charge", work).settings(settings.lease_extend_enabled(true))
        }
        _ => return false,
    };
    let runner = TaskRunner::new(worker, client.tasks(), EventDispatcher::silent()).unwrap();
    let mut runner = runner.registering(client.metadata(), client.schemas());
    runner.register_task_definition().await;
    runner.run_once().await;
    runner.drain().await;
    true
}
