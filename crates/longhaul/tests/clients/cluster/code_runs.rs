//! Runs of code over the worker protocol: a worker that decides from the history it gets, and a client that starts runs and judges
//! them. Both repeat each request until it is answered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::harness::{Caller, Control};

const WORKFLOW: &str = "cluster.steps";

/// Activities of a run. A timer is between them.
const ACTIVITIES: usize = 2;

/// Reports that are kept, to be sent again at the end.
const REPORTS_MAX: usize = 200;

/// A report of a task that another lease has, or that was reported before.
const NOT_OURS: [u16; 2] = [404, 409];

/// A client of the worker protocol and of the control plane, for one queue.
#[derive(Clone)]
pub(super) struct CodeRuns {
    pub(super) caller: Caller,
    queue: String,
    reports: Arc<Mutex<VecDeque<(String, Value)>>>,
    polls: Arc<AtomicUsize>,
}

impl CodeRuns {
    pub(super) fn new(caller: Caller, queue: &str) -> Self {
        Self {
            caller,
            queue: queue.to_owned(),
            reports: Arc::default(),
            polls: Arc::default(),
        }
    }

    /// Returns the same queue as another client sees it.
    pub(super) fn at(&self, caller: Caller) -> Self {
        Self {
            caller,
            ..self.clone()
        }
    }

    pub(super) async fn register(&self, worker: &str) {
        let body = json!({"worker_id": worker, "task_queue": self.queue, "runtime": "python",
            "supported_workflow_types": [WORKFLOW], "supported_activity_types": ["step"]});
        let (status, answer) = self.caller.post("/worker/register", &body).await;
        assert!((200..300).contains(&status), "{status} {answer}");
    }

    /// Starts a run. A repeated start is refused, which shows that the first one was accepted.
    pub(super) async fn start(&self, id: &str) {
        let body = json!({"workflow_type": WORKFLOW, "workflow_id": id, "task_queue": self.queue});
        let (status, answer) = self.caller.post("/workflows", &body).await;
        assert!(matches!(status, 201 | 409), "{id}: {status} {answer}");
    }

    /// Waits until a run has ended.
    pub(super) async fn ended(&self, id: &str) {
        loop {
            let (status, run) = self.caller.get(&format!("/workflows/{id}")).await;
            assert_eq!(status, 200, "{id}: {run}");
            if run["status"] == "completed" {
                return;
            }
            let open = ["pending", "running", "waiting"];
            let is_open = open.iter().any(|open| run["status"] == *open);
            assert!(is_open, "{id}: {run}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Checks that each step of an ended run was recorded once. Returns how long its history is.
    pub(super) async fn judge(control: &Control, id: &str) -> usize {
        let runs = control.run_ids(id).await;
        assert_eq!(runs.len(), 1, "{id} was started once");
        let history = control.history(id, &runs[0]).await;
        history.assert_sound();
        for (event, count) in [
            ("WorkflowStarted", 1),
            ("ActivityScheduled", ACTIVITIES),
            ("ActivityCompleted", ACTIVITIES),
            ("TimerScheduled", 1),
            ("TimerFired", 1),
            ("WorkflowCompleted", 1),
        ] {
            let types = history.types();
            assert_eq!(history.count(event), count, "{id} {event}: {types:?}");
        }
        history.len()
    }

    /// Does tasks of a kind, `workflow` or `activity`, until it is stopped.
    pub(super) async fn work(self, kind: &'static str, worker: String, stopping: Arc<AtomicBool>) {
        self.register(&worker).await;
        while !stopping.load(Ordering::Relaxed) {
            let Some(task) = self.poll(kind, &worker).await else {
                continue;
            };
            let fields = match kind {
                "workflow" => json!({"commands": decide(&task["history_events"])}),
                _ => json!({"result": null}),
            };
            self.report(&task, kind, fields).await;
        }
    }

    /// Polls a task of a kind. A poll that is sent again has the same id, also at another server, so it gets the same task.
    pub(super) async fn poll(&self, kind: &str, worker: &str) -> Option<Value> {
        let number = self.polls.fetch_add(1, Ordering::Relaxed);
        let body = json!({"worker_id": worker, "task_queue": self.queue, "timeout_seconds": 1,
            "poll_request_id": format!("{worker}-{number}")});
        let path = format!("/worker/{kind}-tasks/poll");
        let (status, mut answer) = self.caller.post(&path, &body).await;
        match (status, answer["poll_status"].as_str()) {
            (200, Some("leased")) => Some(answer["task"].take()),
            (200, Some("empty")) => None,
            // The server is stopping, or too many commits of others came first.
            _ if answer["retryable"] == true => None,
            _ => panic!("{path}: {status} {answer}"),
        }
    }

    /// Reports a task. Returns whether the report was accepted; the lease may belong to another poll by now.
    pub(super) async fn report(&self, task: &Value, kind: &str, fields: Value) -> bool {
        let mut body = fields;
        for name in [
            "lease_owner",
            "workflow_task_attempt",
            "activity_attempt_id",
        ] {
            body[name] = task[name].clone();
        }
        let id = task["task_id"].as_str().expect("a task id");
        let path = format!("/worker/{kind}-tasks/{id}/complete");
        let (status, answer) = self.caller.post(&path, &body).await;
        let accepted = (200..300).contains(&status);
        let is_known = accepted || NOT_OURS.contains(&status);
        assert!(is_known, "{path}: {status} {answer}");
        if accepted {
            let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            reports.push_back((path, body));
            if reports.len() > REPORTS_MAX {
                reports.pop_front();
            }
        }
        accepted
    }

    /// Sends the newest accepted reports again. They are refused, or answered as before.
    pub(super) async fn repeat_reports(&self) {
        let reports = {
            let kept = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            kept.clone()
        };
        assert!(!reports.is_empty(), "no report was accepted");
        for (path, body) in reports {
            let (status, answer) = self.caller.post(&path, &body).await;
            let is_known = (200..300).contains(&status) || NOT_OURS.contains(&status);
            assert!(is_known, "{path}: {status} {answer}");
        }
    }
}

/// Returns the next step of a run: an activity, a timer, another activity, the end.
fn decide(events: &Value) -> Value {
    let events = events.as_array().expect("events");
    let count = |name: &str| {
        let matching = events.iter().filter(|event| event["event_type"] == name);
        matching.count()
    };
    let activity = || json!([{"type": "schedule_activity", "activity_type": "step"}]);
    match (
        count("ActivityScheduled"),
        count("ActivityCompleted"),
        count("TimerScheduled"),
        count("TimerFired"),
    ) {
        (0, 0, 0, 0) => activity(),
        (1, 1, 0, 0) => json!([{"type": "start_timer", "delay_seconds": 1}]),
        (1, 1, 1, 1) => activity(),
        (2, 2, 1, 1) => json!([{"type": "complete_workflow"}]),
        other => panic!("a task without news: {other:?}"),
    }
}
