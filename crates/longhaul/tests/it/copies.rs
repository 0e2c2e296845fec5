//! A store of some hundred runs of all shapes, copied to PostgreSQL and back. Servers on all three give the same answers to every
//! question.

use std::path::Path;

use serde_json::{Value, json};

use crate::serve::Server;
use crate::store::{ended, store};

/// Runs of each shape.
const RUNS: usize = 24;

/// What a run of code does with its first task, and whether a request follows it.
const SHAPES: [(&str, Option<&str>, Option<&str>); 9] = [
    ("waiting for a worker", None, None),
    (
        "completed",
        Some(r#"[{"type": "complete_workflow"}]"#),
        None,
    ),
    (
        "failed",
        Some(r#"[{"type": "fail_workflow", "message": "no"}]"#),
        None,
    ),
    (
        "open calls",
        Some(
            r#"[{"type": "schedule_activity", "activity_type": "charge"}, {"type": "start_timer", "delay_seconds": 90000}]"#,
        ),
        None,
    ),
    ("continued", Some(r#"[{"type": "continue_as_new"}]"#), None),
    (
        "with a child",
        Some(
            r#"[{"type": "start_child_workflow", "workflow_type": "part", "parent_close_policy": "abandon"}]"#,
        ),
        None,
    ),
    (
        "signalled",
        Some(r#"[{"type": "open_signal_wait", "signal_name": "go"}]"#),
        Some("signal/go"),
    ),
    ("cancelled", None, Some("cancel")),
    ("terminated", None, Some("terminate")),
];

/// Requests to one server.
struct Client<'s> {
    server: &'s Server,
    http: reqwest::Client,
}

impl<'s> Client<'s> {
    fn of(server: &'s Server) -> Self {
        Self {
            server,
            http: reqwest::Client::new(),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> String {
        let request = self.http.post(format!("{}{path}", self.server.url));
        let request = request
            .header("X-Durable-Workflow-Protocol-Version", "1.10")
            .header("X-Durable-Workflow-Control-Plane-Version", "2");
        let response = request.json(body).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }

    async fn post_json(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.post(path, body).await).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.server.url));
        let request = request.header("X-Durable-Workflow-Control-Plane-Version", "2");
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Starts runs of code and decides their first tasks.
    async fn run_code(&self) {
        let attribute = json!({"name": "Customer", "type": "keyword"});
        self.post("/api/search-attributes", &attribute).await;
        let worker = json!({"worker_id": "worker", "task_queue": "work", "runtime": "rust", "sdk_version": "test/1"});
        self.post("/api/worker/register", &worker).await;
        for (shape, (_, commands, request)) in SHAPES.iter().enumerate() {
            for number in 0..RUNS {
                let id = format!("w-{shape}-{number}");
                let start = json!({"workflow_type": format!("type-{shape}"), "workflow_id": id, "task_queue": "work",
                    "business_key": format!("b-{number}"), "search_attributes": {"Customer": format!("c-{}", number % 5)}});
                self.post("/api/workflows", &start).await;
                if let Some(commands) = commands {
                    self.decide(serde_json::from_str(commands).unwrap()).await;
                }
                if let Some(request) = request {
                    self.post(&format!("/api/workflows/{id}/{request}"), &json!({}))
                        .await;
                }
            }
            // What is left would be given to the next shape.
            self.take_rest().await;
        }
    }

    async fn poll(&self) -> Option<Value> {
        let poll = json!({"worker_id": "worker", "task_queue": "work", "timeout_seconds": 0});
        let polled = self
            .post_json("/api/worker/workflow-tasks/poll", &poll)
            .await;
        Some(polled["task"].clone()).filter(|task| !task.is_null())
    }

    async fn decide(&self, commands: Value) {
        let task = self.poll().await.expect("the run has a task");
        let path = format!(
            "/api/worker/workflow-tasks/{}/complete",
            task["task_id"].as_str().unwrap()
        );
        let completion = json!({"lease_owner": task["lease_owner"], "workflow_task_attempt": task["workflow_task_attempt"],
            "commands": commands});
        self.post(&path, &completion).await;
    }

    /// Leases everything that is ready.
    async fn take_rest(&self) {
        while self.poll().await.is_some() {}
    }

    /// Starts definition runs, and completes and fails some of their tasks.
    async fn run_definitions(&self) {
        let definition = json!({"name": "flow", "version": 1, "tasks": [
            {"name": "pack", "taskReferenceName": "pack", "type": "SIMPLE"},
            {"name": "set", "taskReferenceName": "set", "type": "SET_VARIABLE", "inputParameters": {"x": "${pack.output.x}"}},
            {"name": "ship", "taskReferenceName": "ship", "type": "SIMPLE"}]});
        self.post("/api/metadata/workflow", &definition).await;
        for number in 0..3 * RUNS {
            let start = json!({"name": "flow", "input": {"number": number}, "correlationId": format!("c-{}", number % 7),
                "idempotencyKey": format!("k-{number}"), "priority": number % 10});
            self.post("/api/workflow", &start).await;
        }
        for (name, count, status) in [("pack", 2 * RUNS, "COMPLETED"), ("ship", RUNS, "FAILED")] {
            let tasks = self
                .get(&format!(
                    "/api/tasks/poll/batch/{name}?count={count}&timeout=5000&workerid=w"
                ))
                .await;
            for (place, task) in tasks.as_array().unwrap().iter().enumerate() {
                let status = if place % 3 == 0 { "COMPLETED" } else { status };
                let report = json!({"workflowInstanceId": task["workflowInstanceId"], "taskId": task["taskId"],
                    "status": status, "outputData": {"x": place}});
                self.post("/api/tasks", &report).await;
            }
        }
    }

    /// Returns the answers to every question, each with its path.
    async fn answers(&self) -> Vec<(String, Value)> {
        let mut paths: Vec<String> = Vec::new();
        let lists = [
            "/api/workflows?page_size=200",
            "/api/workflows?page_size=200&program=all",
            "/api/workflows?status=running&page_size=200",
            "/api/workflows?status=failed",
            "/api/workflows?workflow_type=type-3",
            "/api/workflows?query=Customer%3D%27c-3%27&page_size=200",
            "/api/workflows?query=Customer%3D%27c-3%27%20AND%20Status%3Dcompleted",
            "/api/workflow/search?size=100",
            "/api/workflow/search?start=20&size=30&sort=startTime:ASC",
            "/api/workflow/search?size=100&query=status%20IN%20(RUNNING)",
            "/api/workflow/search?size=100&query=correlationId%3D%27c-3%27",
            "/api/workflow/running/flow",
            "/api/workflow/flow/correlated/c-2?includeClosed=true&includeTasks=true",
            "/api/metadata/workflow",
            "/api/metadata/taskdefs",
            "/api/tasks/queue/all",
            "/api/search-attributes",
            "/api/namespaces",
        ];
        paths.extend(lists.map(str::to_owned));
        for (shape, _) in SHAPES.iter().enumerate() {
            for number in 0..RUNS {
                let path = format!("/api/workflows/w-{shape}-{number}");
                let runs = self.get(&format!("{path}/runs")).await;
                let ids = runs["runs"].as_array().unwrap().iter();
                for id in ids.map(|run| run["run_id"].as_str().unwrap()) {
                    paths.push(format!("{path}/runs/{id}"));
                    paths.push(format!("{path}/runs/{id}/history"));
                    paths.push(format!("{path}/runs/{id}/history/export"));
                }
                paths.extend([format!("{path}/runs"), path]);
            }
        }
        let found = self.get("/api/workflow/search?size=200").await;
        for run in found["results"].as_array().unwrap() {
            let id = run["workflowId"].as_str().unwrap();
            paths.push(format!("/api/workflow/{id}?includeTasks=true"));
            paths.push(format!(
                "/api/workflow/{id}/status?includeOutput=true&includeVariables=true"
            ));
        }
        let mut answers = Vec::new();
        for path in paths {
            let mut answer = self.get(&path).await;
            // What is about the request and not about the run: the time of an export, and the checksum that includes it.
            if let Some(answer) = answer.as_object_mut() {
                answer.remove("exported_at");
                answer.remove("integrity");
            }
            answers.push((path, answer));
        }
        answers
    }
}

#[tokio::test]
async fn a_copy_there_and_back_gives_the_same_answers() {
    let directory = tempfile::tempdir().unwrap();
    let (first, last) = (directory.path().join("a"), directory.path().join("b"));
    let (first, last) = (first.to_str().unwrap(), last.to_str().unwrap());
    let database = longhaul_test_postgres::shared().database();
    let server = Server::start(Path::new(first), &[]);
    let client = Client::of(&server);
    client.run_code().await;
    client.run_definitions().await;
    let expected = client.answers().await;
    assert!(expected.len() > 1000, "{} answers", expected.len());
    server.stop();
    ended(&store(&["copy", first, database.url()]), 0);
    let unused = directory.path().join("unused");
    let there = Server::start(&unused, &["--store", database.url()]);
    compare(&expected, &Client::of(&there).answers().await);
    there.stop();
    let said = ended(&store(&["check", "--store", database.url()]), 0);
    assert!(said.contains(": 0 problems"), "{said}");
    ended(&store(&["copy", database.url(), last]), 0);
    let back = Server::start(Path::new(last), &[]);
    compare(&expected, &Client::of(&back).answers().await);
    back.stop();
    ended(&store(&["check", "--data", last]), 0);
}

#[track_caller]
fn compare(expected: &[(String, Value)], found: &[(String, Value)]) {
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(found) {
        assert_eq!(expected, found);
    }
}
