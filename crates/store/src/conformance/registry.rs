//! Registry documents by their types.

use longhaul_engine::rollout::Rollout;
use serde_json::json;

use super::fixture::{at, namespace};
use crate::{Error, Expected, NamespaceRow, Store, WorkerRow};

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

pub async fn namespaces_are_created_once_and_updated(store: &dyn Store) {
    assert_eq!(store.list::<NamespaceRow>(None).await.unwrap(), []);
    store.put(&row("b"), Expected::Absent).await.unwrap();
    store.put(&row("a"), Expected::Absent).await.unwrap();
    let other = NamespaceRow {
        description: Some("other".to_owned()),
        ..row("a")
    };
    assert!(matches!(
        store.put(&other, Expected::Absent).await,
        Err(Error::Conflict)
    ));
    assert_eq!(
        store.list::<NamespaceRow>(None).await.unwrap(),
        [row("a"), row("b")]
    );
    let kept = NamespaceRow {
        retention_days: Some(30),
        updated_at: at(9),
        ..other
    };
    store.put(&kept, Expected::Present).await.unwrap();
    assert_eq!(
        store.list::<NamespaceRow>(None).await.unwrap(),
        [kept, row("b")]
    );
    assert!(matches!(
        store.put(&row("c"), Expected::Present).await,
        Err(Error::Conflict)
    ));
}

pub async fn workers_are_put_replaced_and_deleted(store: &dyn Store) {
    let (space, other) = (namespace("default"), namespace("elsewhere"));
    for worker in [
        worker("default", "b"),
        worker("default", "a"),
        worker("elsewhere", "a"),
    ] {
        store.put(&worker, Expected::Any).await.unwrap();
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
    store.put(&alive, Expected::Any).await.unwrap();
    assert_eq!(
        store.get::<WorkerRow>(&space, "a").await.unwrap(),
        Some(alive)
    );
    assert!(store.delete::<WorkerRow>(&space, "a").await.unwrap());
    assert!(!store.delete::<WorkerRow>(&space, "a").await.unwrap());
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
        store.put(row, Expected::Any).await.unwrap();
    }
    assert_eq!(store.list::<Rollout>(None).await.unwrap(), rows);
    let mut drained = rows[1].clone();
    drained.drained_at = Some(at(3));
    drained.promoted_at = Some(at(1));
    drained.rolled_back_at = Some(at(2));
    store.put(&drained, Expected::Any).await.unwrap();
    let found = store.list::<Rollout>(None).await.unwrap();
    assert_eq!(found[1], drained);
    assert_eq!(found.len(), rows.len());
}
