//! Registered definitions: the copy in memory is that of the store.

use std::sync::Arc;

use longhaul_host::Host;
use longhaul_host::clock::ManualClock;
use longhaul_protocol::conductor::{TaskDef, read};
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{Store, TaskDefRow};
use serde_json::json;

use crate::setup::{namespace, open};

fn task(name: &str) -> TaskDef {
    read(json!({"name": name})).unwrap()
}

/// Returns a host on a file in a directory.
async fn on_disk(directory: &tempfile::TempDir) -> (Host, Arc<dyn Store>) {
    let sqlite = Sqlite::open(directory.path().join("data.db")).unwrap();
    let store: Arc<dyn Store> = Arc::new(sqlite);
    let clock = ManualClock::new("2026-01-01T00:00:00.000000Z".parse().unwrap());
    (open(&store, &clock).await, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_are_registered_at_once_are_all_known() {
    const AT_ONCE: usize = 16;
    // The first reader of a namespace reads the store while others write to it.
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let (host, _) = on_disk(&directory).await;
        let registering = (0..AT_ONCE).map(|n| {
            let host = host.clone();
            tokio::spawn(async move {
                let name = format!("t{n}");
                let here = namespace();
                let put = host.definitions().put_tasks(&here, vec![task(&name)]);
                put.await.unwrap();
                let known = host.definitions().task(&here, &name).await;
                assert!(known.unwrap().is_some(), "{name} is registered");
            })
        });
        futures::future::try_join_all(registering).await.unwrap();
        let known = host.definitions().tasks(&namespace()).await.unwrap();
        assert_eq!(known.len(), AT_ONCE);
    }
}

#[tokio::test]
async fn a_registration_that_is_dropped_leaves_no_old_copy() {
    let directory = tempfile::tempdir().unwrap();
    let (host, store) = on_disk(&directory).await;
    assert!(
        host.definitions()
            .tasks(&namespace())
            .await
            .unwrap()
            .is_empty()
    );
    // The caller goes away while the row is on its way.
    let here = namespace();
    let mut put = Box::pin(host.definitions().put_tasks(&here, vec![task("t")]));
    assert!(futures::poll!(&mut put).is_pending());
    drop(put);
    // The store writes in order, so the row is stored when another one is.
    let definitions = host.definitions();
    definitions
        .put_tasks(&here, vec![task("other")])
        .await
        .unwrap();
    let stored = store.list::<TaskDefRow>(Some(&here)).await.unwrap();
    let known = host.definitions().tasks(&here).await.unwrap();
    assert_eq!(known.len(), stored.len());
}
