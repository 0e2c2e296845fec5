//! Removal of runs.

use longhaul_engine::change::{KeyClaim, LogKey, LogLine, TaskKind, TaskStatus};
use longhaul_engine::run::state::{ClosedReason, Run};
use longhaul_protocol::id::RunId;
use longhaul_protocol::sequence::HistorySeq;
use serde_json::json;

use super::executions::{definition_run, search};
use super::fixture::{advance, at, close, command, commit, is_conflict, namespace, next, task};
use crate::{DueLimits, Page, Store};

/// Writes a closed run with rows of every kind.
pub async fn ended(store: &dyn Store, run_id: &str) -> Run {
    let key = format!("key-{run_id}");
    let mut change = definition_run(run_id, 1, json!({"type": "flow", "idempotency_key": key}));
    change.key_claim = Some(KeyClaim { key, earlier: None });
    change.core.search_attributes = std::sync::Arc::new(serde_json::Map::from_iter([(
        "place".to_owned(),
        json!("Ulm"),
    )]));
    let mut run = change.apply(None);
    commit(store, change).await.unwrap();
    for number in 1..=3 {
        let mut change = next(&run);
        let id = format!("{run_id}-task-{number}");
        let mut row = task(&change, &id, TaskStatus::Completed);
        row.kind = TaskKind::Execution;
        change.tasks.push(row);
        super::fixture::push_event(&mut change, "ExecutionTaskScheduled");
        let event = change.events.last_mut().unwrap();
        event.payload = json!({"seq": number, "task_id": id, "text": "x".repeat(3000)}).to_string();
        let line = LogLine {
            created_at: at(1),
            text: run_id.to_owned(),
        };
        let place = LogKey {
            task: number,
            line: 1,
        };
        change.logs.push((place, Some(line)));
        let request = format!("request-{run_id}-{number}");
        change.commands.push(command(number, Some(&request)));
        run = advance(store, &run, change).await;
    }
    let mut change = next(&run);
    close(&mut change, ClosedReason::Completed);
    change.core.alarm = Some(at(5));
    advance(store, &run, change).await
}

async fn purge(store: &dyn Store) {
    while store.purge_removed().await.unwrap() {}
}

/// Nothing finds a removed run, and its names are free.
pub async fn a_removed_run_is_found_nowhere(store: &dyn Store) {
    let run = ended(store, "a").await;
    let other = ended(store, "b").await;
    let id = run.run_id().clone();
    store.remove_run(&id, run.version).await.unwrap();
    for is_purged in [false, true] {
        assert_eq!(store.run(&id).await.unwrap(), None, "{is_purged}");
        let instance = store.instance(&run.spec.namespace, &run.spec.workflow_id);
        assert_eq!(instance.await.unwrap(), None);
        let key = store.run_by_key(&run.spec.namespace, "flow", "key-a");
        assert_eq!(key.await.unwrap(), None);
        let page = store.search_executions(&search("", "")).await.unwrap();
        assert_eq!((page.runs.len(), page.total), (1, 1));
        let due = store.due(at(100), DueLimits::runs(9)).await.unwrap();
        assert_eq!(due.runs, [other.run_id().clone()]);
        let request =
            crate::CommandKey::Request(&run.spec.namespace, &run.spec.workflow_id, "request-a-1");
        assert_eq!(store.command(request).await.unwrap(), None);
        purge(store).await;
    }
    let (first, last) = (HistorySeq::default(), HistorySeq::new(9));
    assert!(
        store
            .history(&id, first, last, Page::of(9))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(store.commands(&id, None, 9).await.unwrap().total, 0);
    for number in 1..=3 {
        let task_id = format!("a-task-{number}");
        assert_eq!(store.task(&task_id.as_str().into()).await.unwrap(), None);
        assert!(store.task_log(&id, number).await.unwrap().is_empty());
        let task_id = format!("b-task-{number}");
        assert!(
            store
                .task(&task_id.as_str().into())
                .await
                .unwrap()
                .is_some()
        );
        assert_eq!(
            store.task_log(other.run_id(), number).await.unwrap().len(),
            1
        );
    }
    assert_eq!(
        store.run(other.run_id()).await.unwrap(),
        Some(other.clone())
    );
    // The names may be used again.
    let again = ended(store, "a").await;
    assert_eq!(store.run(&id).await.unwrap(), Some(again));
    let namespace = namespace("default");
    let taken = store.run_by_key(&namespace, "flow", "key-a");
    assert_eq!(taken.await.unwrap(), Some(id));
}

/// A removal that is based on another version, or on no run, removes nothing. A commit on a removed run is a conflict.
pub async fn a_stale_removal_removes_nothing(store: &dyn Store) {
    let run = ended(store, "a").await;
    let id = run.run_id().clone();
    assert!(is_conflict(&store.remove_run(&id, run.version - 1).await));
    assert!(is_conflict(
        &store.remove_run(&RunId::from("none"), 1).await
    ));
    assert_eq!(store.run(&id).await.unwrap(), Some(run.clone()));
    assert!(!store.purge_removed().await.unwrap());
    store.remove_run(&id, run.version).await.unwrap();
    assert!(is_conflict(&store.remove_run(&id, run.version).await));
    assert!(is_conflict(&commit(store, next(&run)).await));
    purge(store).await;
    assert!(is_conflict(&commit(store, next(&run)).await));
}

/// New runs get rows of their own while a removed one still has some.
pub async fn a_new_run_takes_nothing_of_a_removed_one(store: &dyn Store) {
    let run = ended(store, "a").await;
    store.remove_run(run.run_id(), run.version).await.unwrap();
    let new = ended(store, "b").await;
    purge(store).await;
    assert_eq!(store.run(new.run_id()).await.unwrap(), Some(new.clone()));
    let (first, last) = (HistorySeq::default(), HistorySeq::new(99));
    let events = store
        .history(new.run_id(), first, last, Page::of(99))
        .await
        .unwrap();
    assert_eq!(events.len() as u64, new.core.last_history_sequence.get());
}
