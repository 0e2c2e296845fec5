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
    /// The attempts that tasks replaced, by id.
    replaces: BTreeMap<u64, String>,
    pub(crate) removed: BTreeSet<u64>,
    pub(crate) last: u64,
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
                    is_open(&task.status)
                        || body["status"] == "COMPLETED_WITH_ERRORS"
                        || (task.status == "SKIPPED" && body["status"] == "SKIPPED"),
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
            "ExecutionReopened" => {
                assert!(
                    !matches!(&*self.status, "RUNNING" | "PAUSED"),
                    "only a run that ended is opened again"
                );
                self.status = "RUNNING".to_owned();
                self.output = json!({});
                for (member, value) in [
                    ("input", &mut self.input),
                    ("variables", &mut self.variables),
                ] {
                    if let Some(new) = body.get(member) {
                        *value = new.clone();
                    }
                }
                let removed = body.get("removed").and_then(Value::as_array);
                for range in removed.into_iter().flatten() {
                    for seq in range[0].as_u64().unwrap()..=range[1].as_u64().unwrap() {
                        self.remove(seq);
                    }
                }
            }
            "ExecutionTaskReopened" => {
                let task = self.tasks.get_mut(&seq).expect("it was scheduled");
                assert!(
                    !is_open(&task.status),
                    "only a task that ended is opened again"
                );
                task.status = "IN_PROGRESS".to_owned();
                task.reason = None;
                task.iteration = number(body, "iteration");
                task.output = body["output"].clone();
            }
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
        assert_eq!(seq, self.last + 1, "tasks are numbered in order");
        self.last = seq;
        let before = text(body, "retried_task_id").map(|id| self.by_id[&id]);
        let mut reason = None;
        if let Some(before) = before.and_then(|seq| self.tasks.get_mut(&seq)) {
            assert!(!before.retried, "an attempt is replaced once");
            before.retried = true;
            if body.get("again").is_none() {
                reason = before.reason.clone();
            }
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
        if let Some(id) = text(body, "retried_task_id") {
            self.replaces.insert(seq, id);
        }
        let other = self.by_id.insert(task.id.clone(), seq);
        assert_eq!(other, None, "ids of tasks are unique");
        self.tasks.insert(seq, task);
    }

    /// Forgets a task. The attempt before it is the newest again.
    fn remove(&mut self, seq: u64) {
        let Some(task) = self.tasks.remove(&seq) else {
            return;
        };
        self.removed.insert(seq);
        self.by_id.remove(&task.id);
        let before = self.replaces.remove(&seq);
        let before = before.and_then(|id| self.by_id.get(&id).copied());
        if let Some(before) = before.and_then(|seq| self.tasks.get_mut(&seq)) {
            before.retried = false;
        }
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
