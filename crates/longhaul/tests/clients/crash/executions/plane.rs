//! A client and a worker of the Conductor plane over HTTP. They repeat a request until it is answered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::RESPONSE_SECONDS;
use super::shape::{BRANCHES, Shape, work};
use crate::harness::{Caller, Server};

/// Reports that are kept.
const REPORTS_MAX: usize = 200;

/// The Conductor plane of servers that are sometimes down.
#[derive(Clone)]
pub(crate) struct Plane {
    caller: Caller,
    /// The newest reports, to be sent again.
    reports: Arc<Mutex<VecDeque<Value>>>,
}

impl Plane {
    pub(crate) fn of(server: &Server) -> Self {
        Self::at(Caller::new([server.url()]))
    }

    pub(crate) fn at(caller: Caller) -> Self {
        Self {
            caller,
            reports: Arc::default(),
        }
    }

    /// Sends a request until it is answered. Returns the answer as JSON, or as text where it is not JSON.
    async fn insist(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Value {
        let (status, answer) = self.caller.insist(method, path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.insist(reqwest::Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.insist(reqwest::Method::POST, path, Some(body)).await
    }

    pub(crate) async fn register(&self) {
        let limits = json!({"responseTimeoutSeconds": RESPONSE_SECONDS, "timeoutSeconds": 0, "retryCount": 50,
            "retryLogic": "FIXED", "retryDelaySeconds": 0});
        let mut definitions = Vec::new();
        for name in ["crash_work", "crash_fails_once"] {
            let mut definition = limits.clone();
            definition["name"] = json!(name);
            definitions.push(definition);
        }
        self.post("/metadata/taskdefs", &json!(definitions)).await;
        let workflows: Vec<Value> = Shape::ALL.into_iter().map(Shape::definition).collect();
        let workflows = json!(workflows);
        self.insist(reqwest::Method::PUT, "/metadata/workflow", Some(&workflows))
            .await;
    }

    /// Starts a run. The key makes a repeated start harmless.
    pub(crate) async fn start(&self, shape: Shape, number: usize) -> String {
        let branches: Vec<Value> = (0..BRANCHES).map(|n| work(&format!("b{n}"))).collect();
        let request = json!({
            "name": shape.name(), "version": 1, "input": {"n": number, "branches": branches},
            "idempotencyKey": format!("run-{number}"), "idempotencyStrategy": "RETURN_EXISTING",
        });
        let id = self.post("/workflow", &request).await;
        id.as_str().expect("an id").to_owned()
    }

    /// Returns how many runs of a definition there are.
    pub(crate) async fn count(&self, shape: Shape) -> u64 {
        let path = format!(
            "/workflow/search?size=1&query=workflowType%20%3D%20{}",
            shape.name()
        );
        let found = self.get(&path).await;
        found["totalHits"].as_u64().expect("a number")
    }

    /// Returns a run once it has ended.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        loop {
            let run = self.get(&format!("/workflow/{id}")).await;
            if run["status"] != "RUNNING" {
                return run;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Works until it is stopped. A report is repeated until it is answered.
    pub(crate) async fn work(
        self,
        task_type: &'static str,
        stopping: Arc<AtomicBool>,
        takes_next: bool,
    ) {
        let mut next: Vec<Value> = Vec::new();
        while !stopping.load(Ordering::Relaxed) {
            let Some(task) = next.pop() else {
                let path = format!("/tasks/poll/batch/{task_type}?workerid=w&count=3&timeout=200");
                let tasks = self.get(&path).await;
                next.extend(tasks.as_array().cloned().unwrap_or_default());
                continue;
            };
            let fails = task_type == "crash_fails_once" && task["retryCount"] == 0;
            let report = json!({
                "workflowInstanceId": task["workflowInstanceId"], "taskId": task["taskId"], "workerId": "w",
                "status": if fails { "FAILED" } else { "COMPLETED" }, "outputData": {"reference": task["referenceTaskName"]},
            });
            self.keep(&report);
            if takes_next {
                let answer = self.post("/tasks/update-v2", &report).await;
                next.extend(answer.get("taskId").is_some().then_some(answer));
            } else {
                self.post("/tasks", &report).await;
            }
        }
    }
    fn keep(&self, report: &Value) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push_back(report.clone());
        if reports.len() > REPORTS_MAX {
            reports.pop_front();
        }
    }

    /// Sends the newest reports of all workers again.
    pub(crate) async fn repeat_reports(&self) {
        let reports = {
            let kept = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            kept.clone()
        };
        assert!(!reports.is_empty(), "nothing was reported");
        for report in reports {
            self.post("/tasks", &report).await;
        }
    }
}
