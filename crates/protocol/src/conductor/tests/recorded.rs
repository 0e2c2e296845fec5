//! Answers that were recorded from a real server are read and written back with the same members and values.

use serde_json::{Value, json};

use super::super::*;

macro_rules! recorded {
    ($name:literal) => {
        serde_json::from_str::<Value>(include_str!(concat!(
            "../../../contract/conductor/",
            $name,
            ".json"
        )))
        .unwrap()
    };
}

#[track_caller]
fn same<T: member::Member + serde::Serialize>(answer: Value) -> T {
    let read: T = read(answer.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), answer);
    read
}

#[test]
fn definitions_are_written_as_recorded() {
    same::<TaskDef>(recorded!("metadata-taskdef-get")["body"].clone());
    same::<WorkflowDef>(recorded!("metadata-workflow-get")["body"].clone());
}

#[test]
fn a_registered_definition_gets_the_recorded_defaults() {
    let given = recorded!("metadata-workflow-put")["request"]["body"][0].clone();
    let mut definition: WorkflowDef = read(given).unwrap();
    let expected = recorded!("metadata-workflow-get")["body"].clone();
    definition.update_time = expected["updateTime"].as_i64().unwrap();
    assert_eq!(serde_json::to_value(&definition).unwrap(), expected);
}

#[test]
fn tasks_are_written_as_recorded() {
    same::<Vec<Task>>(recorded!("poll-batch")["body"].clone());
    let next: Task = same(recorded!("update-v2-next-task")["body"].clone());
    assert_eq!(next.status, TaskStatus::InProgress);
    let waiting: Task = same(recorded!("task-get-waiting-for-callback")["body"].clone());
    let node: WorkflowTask = parse(waiting.workflow_task.unwrap().get().as_bytes()).unwrap();
    assert_eq!(node.task_reference_name, waiting.reference_task_name);
    read::<TaskResult>(recorded!("task-update-in-progress")["request"]["body"].clone()).unwrap();
}

#[test]
fn workflows_are_written_as_recorded() {
    same::<Workflow>(recorded!("workflow-get-completed")["body"].clone());
    for record in [
        recorded!("record-do-while"),
        recorded!("record-fork-join"),
        recorded!("record-fork-join-dynamic"),
        recorded!("record-http-event-start-workflow"),
        recorded!("record-inline-error"),
        recorded!("record-retries-exhausted"),
        recorded!("record-retry"),
        recorded!("record-skipped"),
        recorded!("record-sub-workflow-after-retry"),
        recorded!("record-switch"),
        recorded!("record-synchronous-operators"),
        recorded!("record-task-timeout-failure-workflow"),
        recorded!("record-wait-human"),
    ] {
        same::<Workflow>(record["workflow"].clone());
        let definition = match &record["definition"] {
            Value::Array(tasks) => json!({"name": "recorded", "tasks": tasks}),
            other => other.clone(),
        };
        let definition: WorkflowDef = read(definition).unwrap();
        assert!(!definition.tasks.is_empty());
    }
}

#[test]
fn small_answers_are_written_as_recorded() {
    same::<Vec<PollData>>(recorded!("queue-polldata")["body"].clone());
    same::<Vec<TaskExecLog>>(recorded!("task-logs")["body"].clone());
    same::<WorkflowStatusView>(recorded!("workflow-status")["body"].clone());
    same::<WorkflowRun>(recorded!("execute-target-workflow")["body"].clone());
    same::<WorkflowRun>(recorded!("signal-sync")["body"].clone());
    same::<TaskRun>(recorded!("execute-blocking-task")["body"].clone());
    same::<Vec<WorkflowSummary>>(recorded!("workflow-search")["body"]["results"].clone());
    same::<Vec<TaskSummary>>(recorded!("tasks-search")["body"]["results"].clone());
    let start: StartWorkflowRequest =
        read(recorded!("workflow-start")["request"]["body"].clone()).unwrap();
    assert_eq!(start.name, "hello");
}

#[test]
fn lists_and_bulk_answers_have_the_recorded_members() {
    let page = SearchResult {
        total_hits: 1,
        results: vec![TaskSummary::default()],
    };
    let page = serde_json::to_value(page).unwrap();
    assert_eq!(members(&page), members(&recorded!("tasks-search")["body"]));
    let bulk = serde_json::to_value(BulkResponse::<String>::default()).unwrap();
    assert_eq!(
        members(&bulk),
        members(&recorded!("bulk-terminate")["body"])
    );
}

fn members(value: &Value) -> Vec<&String> {
    value.as_object().unwrap().keys().collect()
}
