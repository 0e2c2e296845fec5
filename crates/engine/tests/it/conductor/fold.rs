//! The state that follows from the events of a run alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub(crate) status: String,
    pub(crate) output: Value,
    pub(crate) variables: Value,
    pub(crate) input: Value,
    pub(crate) tasks: BTreeMap<u64, FoldedTask>,
    by_id: BTreeMap<String, u64>,
    /// Ids of messages that arrived.
    messages: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FoldedTask {
    pub(crate) id: String,
    pub(crate) reference: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) polls: u64,
    pub(crate) iteration: u64,
    pub(crate) retry_count: u64,
    pub(crate) retried: bool,
    pub(crate) sub_workflow: Option<String>,
    pub(crate) input: Value,
    pub(crate) output: Value,
}

fn text(body: &Value, name: &str) -> Option<String> {
    body.get(name)?.as_str().map(str::to_owned)
}

fn number(body: &Value, name: &str) -> u64 {
    body.get(name).and_then(Value::as_u64).unwrap_or(0)
}

impl Fold {
    pub(crate) fn apply(&mut self, event_type: &str, body: &Value) {
        let seq = number(body, "seq");
        match event_type {
            "ExecutionStarted" => {
                self.status = "RUNNING".to_owned();
                self.input = body["input"].clone();
                self.output = Value::Object(Map::new());
                self.variables = body.get("variables").cloned().unwrap_or_else(|| json!({}));
            }
            "ExecutionTaskScheduled" => self.schedule(seq, body),
            "ExecutionTaskStarted" => {
                let task = self.open(seq);
                task.status = "IN_PROGRESS".to_owned();
                task.worker = text(body, "worker_id");
                task.polls = number(body, "poll_count");
                task.sub_workflow =
                    text(body, "sub_workflow_id").or_else(|| task.sub_workflow.take());
            }
            "ExecutionTaskUpdated" => {
                let task = self.open(seq);
                task.status = text(body, "status").unwrap();
                task.reason = text(body, "reason");
                task.worker = text(body, "worker_id");
                task.iteration = number(body, "iteration");
                if let Some(output) = body.get("output") {
                    task.output = output.clone();
                }
            }
            "ExecutionTaskEnded" => {
                let task = self.tasks.get_mut(&seq).expect("it was scheduled");
                // An optional task fails first and is accepted afterwards.
                assert!(
                    is_open(&task.status) || body["status"] == "COMPLETED_WITH_ERRORS",
                    "a task ends once: {task:?}"
                );
                task.status = text(body, "status").unwrap();
                task.reason = text(body, "reason");
                task.worker = text(body, "worker_id");
                if let Some(output) = body.get("output") {
                    task.output = output.clone();
                }
            }
            "ExecutionVariablesSet" => self.variables = body["variables"].clone(),
            "ExecutionMessageReceived" => {
                let is_new = self.messages.insert(text(body, "message_id").unwrap());
                assert!(is_new, "ids of messages are unique");
            }
            "ExecutionPaused" => self.status = "PAUSED".to_owned(),
            "ExecutionResumed" => self.status = "RUNNING".to_owned(),
            "ExecutionEnded" => {
                let status = text(body, "status").unwrap();
                let is_open = matches!(&*self.status, "RUNNING" | "PAUSED");
                // A caller may terminate a run that failed.
                let is_given_up = matches!(&*self.status, "FAILED" | "TIMED_OUT");
                assert!(
                    is_open || (is_given_up && status == "TERMINATED"),
                    "a run ends once"
                );
                self.status = status;
                self.output = body["output"].clone();
            }
            other => panic!("unexpected event {other}"),
        }
    }

    fn schedule(&mut self, seq: u64, body: &Value) {
        assert_eq!(
            seq,
            self.tasks.len() as u64 + 1,
            "tasks are numbered in order"
        );
        let before = text(body, "retried_task_id").map(|id| self.by_id[&id]);
        let mut reason = None;
        if let Some(before) = before.and_then(|seq| self.tasks.get_mut(&seq)) {
            assert!(!before.retried, "an attempt is replaced once");
            before.retried = true;
            reason = before.reason.clone();
        }
        let task = FoldedTask {
            id: text(body, "task_id").unwrap(),
            reference: text(body, "reference").unwrap(),
            status: text(body, "status").unwrap(),
            reason,
            iteration: number(body, "iteration"),
            retry_count: number(body, "retry_count"),
            sub_workflow: text(body, "sub_workflow_id"),
            input: body["input"].clone(),
            output: json!({}),
            ..FoldedTask::default()
        };
        let other = self.by_id.insert(task.id.clone(), seq);
        assert_eq!(other, None, "ids of tasks are unique");
        self.tasks.insert(seq, task);
    }

    fn open(&mut self, seq: u64) -> &mut FoldedTask {
        let task = self.tasks.get_mut(&seq).expect("it was scheduled");
        assert!(is_open(&task.status), "only open tasks change: {task:?}");
        task
    }
}

pub(crate) fn is_open(status: &str) -> bool {
    matches!(status, "SCHEDULED" | "IN_PROGRESS")
}
