//! Registry documents by their types.

use std::sync::Arc;

use longhaul_engine::Changes;
use longhaul_engine::rollout::Rollout;
use serde_json::json;

use super::fixture::{at, namespace};
use crate::{DocumentChange, DocumentKind, Error, NamespaceRow, Store, WorkerRow, document};

fn row(name: &str) -> NamespaceRow {
    NamespaceRow {
        name: name.into(),
        description: None,
        retention_days: None,
        created_at: at(0),
        updated_at: at(0),
    }
}

pub fn worker(space: &str, worker_id: &str) -> WorkerRow {
    serde_json::from_value(json!({
        "namespace": space,
        "worker_id": worker_id,
        "task_queue": "orders",
        "runtime": "rust",
        "supported_workflow_types": ["order"],
        "supported_activity_types": [],
        "workflow_definition_fingerprints": {"order": "sha256:1"},
        "workflow_command_contracts": {},
        "capabilities": ["query_tasks"],
        "capability_manifest": {"a": {"b": 1.5}},
        "max_concurrent_workflow_tasks": 1,
        "max_concurrent_activity_tasks": 2,
        "max_concurrent_worker_sessions": 3,
        "registered_at": at(0),
        "last_heartbeat_at": at(0),
        "updated_at": at(0),
    }))
    .unwrap()
}

/// Returns the documents of workers, with their versions.
async fn versions(store: &dyn Store) -> Vec<(String, u64)> {
    let found = store.documents(DocumentKind::Worker, None).await.unwrap();
    let found = found.into_iter();
    found
        .map(|document| (document.key.name, document.version))
        .collect()
}

pub async fn namespaces_are_created_once_and_updated(store: &dyn Store) {
    assert_eq!(store.list::<NamespaceRow>(None).await.unwrap(), []);
    assert!(store.create(&row("b"), at(1)).await.unwrap());
    assert!(store.create(&row("a"), at(1)).await.unwrap());
    let other = NamespaceRow {
        description: Some("other".to_owned()),
        ..row("a")
    };
    assert!(!store.create(&other, at(2)).await.unwrap());
    assert_eq!(
        store.list::<NamespaceRow>(None).await.unwrap(),
        [row("a"), row("b")]
    );
    let kept = NamespaceRow {
        retention_days: Some(30),
        updated_at: at(9),
        ..other
    };
    store.put(&kept, at(9)).await.unwrap();
    assert_eq!(
        store.list::<NamespaceRow>(None).await.unwrap(),
        [kept, row("b")]
    );
}

pub async fn a_document_has_a_version(store: &dyn Store) {
    let commit = async |changes: Vec<DocumentChange>| {
        store.commit(Arc::new(Changes::of_documents(changes))).await
    };
    let key = |name: &str| document::key::<WorkerRow>("default", name, "");
    let text = |body: &str| body.to_owned();
    let create = |name: &str| DocumentChange::create(key(name), text("1"), at(0));
    commit(vec![create("a"), create("b")]).await.unwrap();
    let first = at(0).as_micros().unsigned_abs();
    let both = [("a".to_owned(), first), ("b".to_owned(), first)];
    assert_eq!(versions(store).await, both);

    // Each of these is refused, and nothing of the commit is written.
    for refused in [
        create("a"),
        DocumentChange::replace(key("a"), first + 1, text("2")),
        DocumentChange::replace(key("c"), first, text("2")),
        DocumentChange::delete(key("a"), first - 1),
        DocumentChange::delete(key("c"), first),
    ] {
        let with_another = DocumentChange::replace(key("b"), first, text("2"));
        let outcome = commit(vec![with_another, refused]).await;
        assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
        assert_eq!(versions(store).await, both);
    }
    let twice = vec![
        DocumentChange::replace(key("a"), first, text("2")),
        DocumentChange::delete(key("a"), first),
    ];
    assert!(matches!(commit(twice).await, Err(Error::Corrupt(_))));

    let changes = vec![
        DocumentChange::delete(key("b"), first),
        DocumentChange::replace(key("a"), first, text("2")),
    ];
    commit(changes).await.unwrap();
    assert_eq!(versions(store).await, [("a".to_owned(), first + 1)]);
    let stored = store.document(&key("a")).await.unwrap().unwrap();
    assert_eq!((stored.version, &*stored.body), (first + 1, "2"));
    // One that was deleted begins with another version.
    commit(vec![DocumentChange::create(key("b"), text("3"), at(1))])
        .await
        .unwrap();
    let again = at(1).as_micros().unsigned_abs();
    assert_eq!(
        versions(store).await,
        [("a".to_owned(), first + 1), ("b".to_owned(), again)]
    );
}

pub async fn of_concurrent_changes_none_is_lost(store: &dyn Store) {
    store.put(&worker("default", "a"), at(0)).await.unwrap();
    let key = document::key::<WorkerRow>("default", "a", "");
    let add = |number: u64| {
        let key = key.clone();
        async move {
            let change = |stored: Option<WorkerRow>| {
                let mut row = stored.unwrap();
                row.capabilities.push(number.to_string());
                Ok::<_, Error>(Some(row))
            };
            store.change(key, at(1), change).await.map(drop)
        }
    };
    let outcomes = futures::future::join_all((0..8).map(add)).await;
    for outcome in outcomes {
        outcome.unwrap();
    }
    let stored = store.get::<WorkerRow>(&namespace("default"), "a").await;
    let mut found = stored.unwrap().unwrap().capabilities;
    found.sort();
    assert_eq!(
        found,
        ["0", "1", "2", "3", "4", "5", "6", "7", "query_tasks"]
    );
}

pub async fn workers_are_put_replaced_and_deleted(store: &dyn Store) {
    let (space, other) = (namespace("default"), namespace("elsewhere"));
    for worker in [
        worker("default", "b"),
        worker("default", "a"),
        worker("elsewhere", "a"),
    ] {
        store.put(&worker, at(0)).await.unwrap();
    }
    assert_eq!(
        store.list::<WorkerRow>(Some(&space)).await.unwrap(),
        [worker("default", "a"), worker("default", "b")]
    );
    assert_eq!(
        store.get::<WorkerRow>(&space, "a").await.unwrap(),
        Some(worker("default", "a"))
    );
    assert_eq!(store.get::<WorkerRow>(&other, "b").await.unwrap(), None);
    let mut alive = worker("default", "a");
    alive.last_heartbeat_at = at(30);
    alive.process_metrics = Some(json!({"rss": 1}));
    store.put(&alive, at(30)).await.unwrap();
    assert_eq!(
        store.get::<WorkerRow>(&space, "a").await.unwrap(),
        Some(alive)
    );
    let key = || document::key::<WorkerRow>("default", "a", "");
    assert!(store.delete::<WorkerRow>(key(), at(31)).await.unwrap());
    assert!(!store.delete::<WorkerRow>(key(), at(31)).await.unwrap());
    assert_eq!(
        store.list::<WorkerRow>(Some(&space)).await.unwrap(),
        [worker("default", "b")]
    );
    assert_eq!(
        store.list::<WorkerRow>(Some(&other)).await.unwrap(),
        [worker("elsewhere", "a")]
    );
}

pub async fn rollouts_are_put_and_replaced(store: &dyn Store) {
    let rollout = |space: &str, queue: &str, build_id: Option<&str>| {
        Rollout::new(space.into(), queue.into(), build_id.map(str::to_owned))
    };
    assert_eq!(store.list::<Rollout>(None).await.unwrap(), []);
    let rows = [
        rollout("a", "p", Some("1")),
        rollout("a", "q", None),
        rollout("a", "q", Some("1")),
        rollout("b", "q", Some("1")),
    ];
    for row in rows.iter().rev() {
        store.put(row, at(0)).await.unwrap();
    }
    assert_eq!(store.list::<Rollout>(None).await.unwrap(), rows);
    let mut drained = rows[1].clone();
    drained.drained_at = Some(at(3));
    drained.promoted_at = Some(at(1));
    drained.rolled_back_at = Some(at(2));
    store.put(&drained, at(3)).await.unwrap();
    let found = store.list::<Rollout>(None).await.unwrap();
    assert_eq!(found[1], drained);
    assert_eq!(found.len(), rows.len());
}
