//! A definition run that ended and is opened again.

use longhaul_engine::change::{LogKey, LogLine, TaskKind, TaskStatus};
use longhaul_engine::run::state::{ClosedReason, PartKey, Status};
use serde_json::json;

use super::executions::{definition_run, search};
use super::fixture::{advance, at, close, commit, next, push_event, task};
use crate::{DueLimits, Store};

/// Lists, the time of the end and the alarm follow a run that ends and is opened again, as often as that happens.
pub async fn an_opened_run_is_in_lists_and_due_again(store: &dyn Store) {
    let start = definition_run("a", 1, json!({"type": "flow"}));
    let mut run = start.apply(None);
    commit(store, start).await.unwrap();
    for life in 1..=3_i64 {
        let mut end = next(&run);
        close(&mut end, ClosedReason::Failed);
        end.core.alarm = None;
        run = advance(store, &run, end).await;
        assert_eq!(found(store, "status = 'FAILED' AND endTime > 0").await, 1);
        assert_eq!(found(store, "status = 'RUNNING'").await, 0);
        let due = store.due(at(1000), DueLimits::runs(9)).await.unwrap();
        assert!(due.runs.is_empty(), "a closed run is not due");

        let mut opened = next(&run);
        push_event(&mut opened, "ExecutionReopened");
        opened.core.closed = None;
        opened.core.status = Status::Running;
        opened.core.alarm = Some(at(life));
        let execution = opened.core.execution.as_mut().unwrap();
        execution.correlation_id = Some(format!("life-{life}"));
        run = advance(store, &run, opened).await;
        assert_eq!(found(store, "status = 'FAILED'").await, 0);
        assert_eq!(found(store, "endTime > 0").await, 0);
        let own = format!("status = 'RUNNING' AND correlationId = 'life-{life}'");
        assert_eq!(found(store, &own).await, 1, "{own}");
        let due = store.due(at(1000), DueLimits::runs(9)).await.unwrap();
        assert_eq!(due.runs, [run.run_id().clone()]);
        assert_eq!(store.run(run.run_id()).await.unwrap(), Some(run.clone()));
    }
}

async fn found(store: &dyn Store, query: &str) -> u64 {
    let page = store.search_executions(&search(query, "")).await.unwrap();
    page.total
}

/// A deleted task is found nowhere. Its id may be used again, also in the same commit.
pub async fn deleted_tasks_are_gone(store: &dyn Store) {
    let start = definition_run("a", 1, json!({"type": "flow"}));
    let mut run = start.apply(None);
    commit(store, start).await.unwrap();
    let mut change = next(&run);
    for id in ["t1", "t2", "t3"] {
        let mut row = task(&change, id, TaskStatus::Completed);
        row.kind = TaskKind::Execution;
        change.tasks.push(row);
    }
    let key = LogKey { task: 1, line: 1 };
    let line = LogLine {
        created_at: at(1),
        text: "x".to_owned(),
    };
    change.logs.push((key, Some(line)));
    run = advance(store, &run, change).await;
    let mut change = next(&run);
    change.deleted_tasks = vec!["t1".into(), "t3".into()];
    change.logs.push((key, None));
    change.parts.push((PartKey::Output, None));
    run = advance(store, &run, change).await;
    assert_eq!(store.task(&"t1".into()).await.unwrap(), None);
    assert_eq!(store.task(&"t3".into()).await.unwrap(), None);
    assert!(store.task(&"t2".into()).await.unwrap().is_some());
    assert!(store.task_log(run.run_id(), 1).await.unwrap().is_empty());
    let mut change = next(&run);
    change.deleted_tasks = vec!["t2".into()];
    let mut again = task(&change, "t3", TaskStatus::Ready);
    again.kind = TaskKind::Execution;
    change.tasks.push(again.clone());
    advance(store, &run, change).await;
    assert_eq!(store.task(&"t2".into()).await.unwrap(), None);
    assert_eq!(store.task(&"t3".into()).await.unwrap(), Some(again));
}
