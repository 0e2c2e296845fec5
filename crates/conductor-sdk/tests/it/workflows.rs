//! Definitions, workers and clients together, with a server in the same process.

use std::time::Duration;

use longhaul_conductor_sdk::client::{Execute, SearchQuery};
use longhaul_conductor_sdk::definition::{
    TaskDefBuilder, WorkflowDefBuilder, fork, output_of, simple, switch, workflow_input,
};
use longhaul_conductor_sdk::events::EventDispatcher;
use longhaul_conductor_sdk::model::{
    Object, RetryLogic, StartWorkflowRequest, TaskStatus, Workflow, WorkflowStatus,
};
use longhaul_conductor_sdk::runner::{RunnerControl, TaskRunner};
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::transport::{RequestRetry, Transport};
use longhaul_conductor_sdk::worker::{
    AnyWorker, NonRetryable, Outcome, TaskContext, TaskFailure, TaskInProgress, async_function,
    function,
};
use longhaul_conductor_sdk::{Client, Configuration};
use longhaul_embedded::{Embedded, EmbeddedTransport};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A server, its client, and the runners of a test.
pub(crate) struct World {
    server: Embedded,
    pub(crate) client: Client,
    runners: Vec<(RunnerControl, JoinHandle<()>)>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(|transport| transport).await
    }

    /// Returns a world whose clients use the server through another transport.
    pub(crate) async fn over<T: Transport>(wrap: impl FnOnce(EmbeddedTransport) -> T) -> Self {
        let server = Embedded::in_memory().await.unwrap();
        let configuration = Configuration::new("http://unused").retry(RequestRetry::NEVER);
        let client = Client::over(&configuration, wrap(server.transport()));
        Self {
            server,
            client,
            runners: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self, worker: AnyWorker) {
        let runner = TaskRunner::new(worker, self.client.tasks(), EventDispatcher::silent());
        let runner = runner
            .unwrap()
            .registering(self.client.metadata(), self.client.schemas());
        let control = runner.control();
        self.runners.push((control, tokio::spawn(runner.run())));
    }

    pub(crate) async fn register(&self, definition: WorkflowDefBuilder) {
        let definition = definition.build().unwrap();
        self.client
            .metadata()
            .register_workflow(&definition)
            .await
            .unwrap();
    }

    /// Runs a workflow to its end.
    pub(crate) async fn execute(&self, name: &str, input: Value) -> Workflow {
        let request = start(name, input);
        let options = Execute::new().wait(Duration::from_secs(60));
        let executed = self
            .client
            .workflows()
            .execute(&request, &options)
            .await
            .unwrap();
        self.client
            .workflows()
            .get(executed.workflow_id())
            .await
            .unwrap()
    }

    /// Stops the runners, which report what they have in hand, and then the server.
    pub(crate) async fn stop(self) {
        for (control, running) in self.runners {
            control.stop();
            running.await.unwrap();
        }
        self.server.stop().await;
    }
}

fn start(name: &str, input: Value) -> StartWorkflowRequest {
    StartWorkflowRequest {
        name: name.to_owned(),
        input: input.as_object().unwrap().clone(),
        ..StartWorkflowRequest::default()
    }
}

pub(crate) fn output(workflow: &Workflow) -> Value {
    Value::Object(workflow.output.clone())
}

#[derive(Deserialize)]
struct Charge {
    order: String,
    cents: i64,
    note: Option<String>,
}

#[tokio::test]
async fn a_workflow_runs_with_workers_of_both_kinds() {
    let mut world = World::new().await;
    world
        .register(
            WorkflowDefBuilder::new("order")
                .then(
                    simple("charge", "charge")
                        .input("order", workflow_input("order"))
                        .input("cents", workflow_input("cents")),
                )
                .then(
                    fork("notify")
                        .branch(simple("mail", "mail").input("to", workflow_input("to")))
                        .branch(
                            simple("ship", "ship").input("receipt", output_of("charge", "receipt")),
                        ),
                )
                .then(switch("size", workflow_input("size")).case(
                    "large",
                    simple("mail", "thank").input("to", workflow_input("to")),
                ))
                .output("receipt", output_of("charge", "receipt"))
                .output("shipped", output_of("ship", "result"))
                .output("thanked", output_of("thank", "sent")),
        )
        .await;
    world.run(async_function("charge", async |charge: Charge| {
        assert!(charge.note.is_none());
        Ok(json!({"receipt": format!("{}: {}", charge.order, charge.cents)}))
    }));
    world.run(function("mail", |input: Value| {
        Ok(json!({"sent": input["to"]}))
    }));
    world.run(function("ship", |input: Value| {
        Ok(format!("with {}", input["receipt"]))
    }));
    let ended = world
        .execute(
            "order",
            json!({"order": "o-1", "cents": 250, "to": "ada@example.com", "size": "large"}),
        )
        .await;
    assert_eq!(ended.status, WorkflowStatus::Completed);
    assert_eq!(
        output(&ended),
        json!({"receipt": "o-1: 250", "shipped": "with \"o-1: 250\"", "thanked": "ada@example.com"})
    );
    let query = SearchQuery::new("workflowType = 'order'");
    let found = world.client.workflows().search(&query).await.unwrap();
    assert_eq!(found.total_hits, 1);
    world.stop().await;
}

#[tokio::test]
async fn failures_are_retried_unless_they_are_terminal() {
    let mut world = World::new().await;
    let retried = TaskDefBuilder::new("flaky")
        .retries(3)
        .retry_logic(RetryLogic::Fixed)
        .retry_delay(Duration::ZERO)
        .build()
        .unwrap();
    world
        .client
        .metadata()
        .register_tasks(&[retried])
        .await
        .unwrap();
    world
        .register(
            WorkflowDefBuilder::new("flaky")
                .then(simple("flaky", "flaky").input("how", workflow_input("how"))),
        )
        .await;
    world.run(function("flaky", |input: Object| {
        let context = TaskContext::current().unwrap();
        context.add_log(format!("attempt {}", context.retry_count()));
        match (input["how"].as_str(), context.retry_count()) {
            (Some("terminal"), _) => Err(NonRetryable::new("never").into()),
            (Some("panic"), 0) => panic!("at first"),
            (_, 0 | 1) => Err(TaskFailure::new("not yet")),
            (_, attempt) => Ok(attempt),
        }
    }));
    for how in ["error", "panic"] {
        let ended = world.execute("flaky", json!({"how": how})).await;
        assert_eq!(ended.status, WorkflowStatus::Completed, "{how}");
        assert_eq!(output(&ended), json!({"result": 2}));
        assert_eq!(ended.tasks.len(), 3);
        let logs = world
            .client
            .tasks()
            .logs(&ended.tasks[2].task_id)
            .await
            .unwrap();
        assert_eq!(logs[0].log, "attempt 2");
    }
    let ended = world.execute("flaky", json!({"how": "terminal"})).await;
    assert_eq!(ended.status, WorkflowStatus::Failed);
    assert_eq!(ended.tasks.len(), 1);
    assert_eq!(ended.tasks[0].status, TaskStatus::FailedWithTerminalError);
    assert_eq!(
        ended.tasks[0].reason_for_incompletion.as_deref(),
        Some("never")
    );
    world.stop().await;
}

#[tokio::test]
async fn long_work_goes_on_in_parts() {
    let mut world = World::new().await;
    world
        .register(WorkflowDefBuilder::new("pages").then(simple("pages", "pages")))
        .await;
    world.run(async_function("pages", async |_: Object| {
        let context = TaskContext::current().unwrap();
        let done = context
            .task()
            .output_data
            .get("done")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        if done < 2 {
            let rest = TaskInProgress::after(Duration::ZERO).output("done", done + 1);
            return Ok(Outcome::from(rest));
        }
        Outcome::output(&json!({"polls": context.poll_count(), "done": done}))
    }));
    let ended = world.execute("pages", json!({})).await;
    assert_eq!(output(&ended), json!({"polls": 3, "done": 2}));
    assert_eq!(ended.tasks.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn many_workers_of_one_type_execute_each_task_once() {
    let mut world = World::new().await;
    world
        .register(WorkflowDefBuilder::new("one").then(simple("count", "count")))
        .await;
    let executed = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for _ in 0..3 {
        let executed = std::sync::Arc::clone(&executed);
        let worker = async_function("count", move |_: Object| {
            let task_id = TaskContext::current().unwrap().task_id().to_owned();
            executed.lock().push(task_id);
            async { Ok(()) }
        });
        world.run(worker.settings(CodeSettings::new().thread_count(10)));
    }
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.push(
            world
                .client
                .workflows()
                .start(&start("one", json!({})))
                .await
                .unwrap(),
        );
    }
    for id in &ids {
        while world.client.workflows().status(id).await.unwrap().status != WorkflowStatus::Completed
        {
            tokio::task::yield_now().await;
        }
    }
    let mut executed = executed.lock().clone();
    let all = executed.len();
    executed.sort();
    executed.dedup();
    assert_eq!((all, executed.len()), (300, 300));
    world.stop().await;
}
