//! Copies between stores: everything arrives, a target with rows is refused, and nothing is stored of a copy that fails.

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_engine::change::{DocumentKind, LogKey, LogLine};
use longhaul_engine::session::Status;
use longhaul_store::conformance::compare::{Universe, assert_same};
use longhaul_store::conformance::fixture::{advance, at, commit, create, load, next, spec, start};
use longhaul_store::conformance::{
    executions, history, registry, runs, sessions, tasks, visibility,
};
use longhaul_store::postgres::{Options, Postgres};
use longhaul_store::sqlite::Sqlite;
use longhaul_store::transfer::{Checksums, Progress, Stage, Table, checksums, copy};
use longhaul_store::{Error, RunFilter, SessionFilter, Store, StoreAddress};
use longhaul_test_postgres::Database;
use tempfile::TempDir;

type Fill = for<'a> fn(&'a dyn Store) -> BoxFuture<'a, ()>;

/// Cases of the suite that leave rows of every kind behind.
const FILLS: [(&str, Fill); 13] = [
    ("parts", |store| {
        Box::pin(runs::every_kind_of_part_comes_back(store))
    }),
    ("numbers", |store| {
        Box::pin(runs::numbers_come_back_bit_for_bit(store))
    }),
    ("keys", |store| {
        Box::pin(runs::an_idempotency_key_belongs_to_one_run(store))
    }),
    ("chains", |store| {
        Box::pin(runs::continuing_moves_the_current_run(store))
    }),
    ("events", |store| {
        Box::pin(history::events_keep_every_column(store))
    }),
    ("messages", |store| {
        Box::pin(history::large_arguments_of_open_messages_come_back(store))
    }),
    ("updates", |store| {
        Box::pin(history::results_of_updates_come_back(store))
    }),
    ("requests", |store| {
        Box::pin(history::a_request_id_finds_its_command(store))
    }),
    ("tasks", |store| Box::pin(tasks::queue_counts_add_up(store))),
    ("attributes", |store| {
        Box::pin(visibility::a_query_finds_its_runs(store))
    }),
    ("executions", |store| {
        Box::pin(executions::a_search_follows_every_change(store))
    }),
    ("sessions", |store| {
        Box::pin(sessions::held_and_due_sessions_are_found(store))
    }),
    ("documents", |store| {
        Box::pin(registry::a_document_has_a_version(store))
    }),
];

fn file(directory: &TempDir) -> StoreAddress {
    StoreAddress::Sqlite(directory.path().join("longhaul.db"))
}

fn database_address(database: &Database<'_>) -> StoreAddress {
    StoreAddress::Postgres(Box::new(Options::parse(database.url()).unwrap()))
}

/// Returns a database file that `fill` wrote.
async fn filled(fill: impl AsyncFnOnce(&dyn Store)) -> TempDir {
    let (store, directory) = crate::files::temporary();
    fill(&*store).await;
    drop(store);
    directory
}

async fn open(address: &StoreAddress) -> Arc<dyn Store> {
    match address {
        StoreAddress::Sqlite(path) => Arc::new(Sqlite::open(path).unwrap()),
        StoreAddress::Postgres(options) => {
            Arc::new(Postgres::open((**options).clone()).await.unwrap())
        }
    }
}

async fn copied(from: &StoreAddress, to: &StoreAddress) -> Checksums {
    copy(from, to, |_| {}).await.unwrap()
}

/// Copies a file to PostgreSQL and from there to another file. All three have the same checksums and answers.
async fn check_round_trip(directory: &TempDir, universe: &Universe) {
    let database = longhaul_test_postgres::shared().database();
    let (first, middle) = (file(directory), database_address(&database));
    let back = tempfile::tempdir().unwrap();
    let last = file(&back);
    let expected = copied(&first, &middle).await;
    assert!(expected.rows() > 0);
    assert_eq!(copied(&middle, &last).await, expected);
    for address in [&first, &middle, &last] {
        assert_eq!(checksums(address).await.unwrap(), expected, "{address}");
    }
    let stores = [open(&first).await, open(&middle).await, open(&last).await];
    for other in &stores[1..] {
        assert_same(&*stores[0], &**other, universe).await;
        assert_same_elsewhere(&*stores[0], &**other).await;
    }
}

/// Compares what `assert_same` does not read.
async fn assert_same_elsewhere(a: &dyn Store, b: &dyn Store) {
    for namespace in ["default", "elsewhere"] {
        let filter = SessionFilter {
            namespace: namespace.into(),
            status: None,
            queue: None,
            owner: None,
            after: None,
            limit: 1000,
        };
        let sessions = a.list_sessions(&filter).await.unwrap();
        assert_eq!(sessions, b.list_sessions(&filter).await.unwrap());
        let counts: Vec<(Status, u64)> = a.session_counts(&filter.namespace).await.unwrap();
        assert_eq!(counts, b.session_counts(&filter.namespace).await.unwrap());
        for (workflow_type, key) in [("order", "k"), ("order", "other"), ("another", "k")] {
            let owner = a.run_by_key(&filter.namespace, workflow_type, key);
            let other = b.run_by_key(&filter.namespace, workflow_type, key);
            assert_eq!(owner.await.unwrap(), other.await.unwrap());
        }
    }
    for (query, sort) in [
        ("", ""),
        ("status IN (RUNNING)", "startTime:ASC"),
        ("correlationId = 'c-1'", ""),
    ] {
        let search = executions::search(query, sort);
        let found = a.search_executions(&search).await.unwrap();
        assert_eq!(found, b.search_executions(&search).await.unwrap());
    }
    for query in ["Region = 'eu'", "Count > 1", "Tags = 'x'", "Price >= 2"] {
        let filter: RunFilter = visibility::filter_by(query);
        let found = a.run_ids(&filter).await.unwrap();
        assert_eq!(found, b.run_ids(&filter).await.unwrap(), "{query}");
    }
    for kind in DocumentKind::ALL {
        let documents = a.documents(kind, None).await.unwrap();
        assert_eq!(documents, b.documents(kind, None).await.unwrap());
    }
}

/// Returns the names that the suite uses.
fn universe() -> Universe {
    let names = [
        "a", "b", "c", "d", "e", "w", "run-w-1", "run-w-2", "run-a-1", "run-b-1",
    ];
    Universe {
        namespaces: ["default", "elsewhere"].map(Into::into).into(),
        workflow_ids: ["a", "b", "w", "x"].map(Into::into).into(),
        workflow_types: ["order", "flow"].map(Into::into).into(),
        run_ids: names.map(Into::into).into(),
        task_ids: ["t", "task-1", "ready"].map(Into::into).into(),
        queues: ["orders", "refunds"].map(Into::into).into(),
        workers: ["worker-1", "worker-2"].map(Into::into).into(),
        request_ids: ["request", "r1"].map(Into::into).into(),
        alarm_seconds: (-1..10).collect(),
    }
}

#[tokio::test]
async fn rows_of_every_kind_come_back() {
    for (name, fill) in FILLS {
        eprintln!("{name}");
        let directory = filled(async |store| fill(store).await).await;
        check_round_trip(&directory, &universe()).await;
    }
}

#[tokio::test]
async fn random_commits_come_back() {
    let directory = filled(async |store| crate::random::write_some(store).await).await;
    check_round_trip(&directory, &crate::random::universe()).await;
}

/// PostgreSQL stores U+0000 in another way, and a run keeps its version.
#[tokio::test]
async fn odd_names_and_versions_come_back() {
    let directory = filled(async |store| {
        let mut odd = spec("odd\0name\u{1}", 1);
        odd.run_id = "odd\0run\u{1}".into();
        odd.business_key = Some("\0".to_owned());
        let mut change = start(odd);
        let key = LogKey { task: 1, line: 1 };
        let text = "a line with \0 and \u{1}".to_owned();
        let created_at = at(1);
        change.logs = vec![(key, Some(LogLine { created_at, text }))];
        let run = change.apply(None);
        commit(store, change).await.unwrap();
        let run = advance(store, &run, next(&run)).await;
        advance(store, &run, next(&run)).await;
    })
    .await;
    let database = longhaul_test_postgres::shared().database();
    let other = database_address(&database);
    copied(&file(&directory), &other).await;
    let store = open(&other).await;
    let run = load(&*store, &"odd\0run\u{1}".into()).await.unwrap();
    assert_eq!(run.version, 3);
    assert_eq!(run.spec.business_key.as_deref(), Some("\0"));
    let log = store.task_log(run.run_id(), 1).await.unwrap();
    assert_eq!(log[0].text, "a line with \0 and \u{1}");
    // The next commit is based on the version that was copied.
    advance(&*store, &run, next(&run)).await;
}

#[tokio::test]
async fn every_table_is_reported_and_verified() {
    let directory = filled(async |store| drop(create(store, "w").await)).await;
    let target = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    let (from, to) = (file(&directory), file(&target));
    let copied = copy(&from, &to, |progress| seen.push(progress));
    let copied = copied.await.unwrap();
    assert_eq!(copied.of(Table::Runs).rows, 1);
    assert_eq!(copied.of(Table::Events).rows, 1);
    let runs = |stage| Progress {
        stage,
        table: Table::Runs,
        rows: 1,
    };
    assert!(seen.contains(&runs(Stage::Copy)) && seen.contains(&runs(Stage::Verify)));
}

async fn refusal(from: &StoreAddress, to: &StoreAddress) -> Error {
    copy(from, to, |_| {}).await.unwrap_err()
}

fn sql(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_target_with_rows_is_refused() {
    let full = filled(async |store| drop(create(store, "w").await)).await;
    let other = filled(async |store| registry::rollouts_are_put_and_replaced(store).await).await;
    let error = refusal(&file(&full), &file(&other)).await;
    assert!(matches!(error, Error::Settings(_)), "{error}");
    assert!(error.to_string().contains("documents has rows"), "{error}");
    let database = longhaul_test_postgres::shared().database();
    copied(&file(&full), &database_address(&database)).await;
    let error = refusal(&file(&full), &database_address(&database)).await;
    assert!(error.to_string().contains("runs has rows"), "{error}");
    let error = refusal(&file(&full), &file(&full)).await;
    assert!(error.to_string().contains("same file"), "{error}");
}

#[tokio::test]
async fn a_source_in_use_or_missing_is_refused() {
    let (store, directory) = crate::files::temporary();
    let target = tempfile::tempdir().unwrap();
    let error = refusal(&file(&directory), &file(&target)).await;
    assert!(error.to_string().contains("in use"), "{error}");
    drop(store);
    let empty = tempfile::tempdir().unwrap();
    let error = refusal(&file(&empty), &file(&target)).await;
    assert!(error.to_string().contains("does not exist"), "{error}");
    // Nothing was created.
    assert!(!empty.path().join("longhaul.db").exists());
    assert!(!target.path().join("longhaul.db").exists());
    let database = longhaul_test_postgres::shared().database();
    let error = refusal(&database_address(&database), &file(&target)).await;
    assert!(
        error.to_string().contains("no tables of longhaul"),
        "{error}"
    );
    let nowhere = Options::parse("postgres://user@127.0.0.1:1/none").unwrap();
    let nowhere = StoreAddress::Postgres(Box::new(nowhere));
    let error = refusal(&nowhere, &file(&target)).await;
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
}

/// Whatever goes wrong, the target stays empty and can be used for the next try.
#[tokio::test]
async fn a_copy_that_fails_leaves_the_target_empty() {
    let source = filled(async |store| {
        create(store, "v").await;
        create(store, "w").await;
    })
    .await;
    let StoreAddress::Sqlite(path) = file(&source) else {
        unreachable!()
    };
    // The runs are copied before the event that belongs to none of them is found.
    sql(&path, "UPDATE events SET run_key = 77 WHERE run_key = 2");
    let (directory, database) = (
        tempfile::tempdir().unwrap(),
        longhaul_test_postgres::shared().database(),
    );
    for target in [file(&directory), database_address(&database)] {
        let error = refusal(&file(&source), &target).await;
        assert!(error.to_string().contains("belongs to no run"), "{error}");
        let store = open(&target).await;
        assert_eq!(load(&*store, &"run-v-1".into()).await, None);
    }
    sql(
        &path,
        "UPDATE events SET run_key = 2 WHERE run_key = 77; UPDATE runs SET state = 'x' WHERE run_key = 2",
    );
    for target in [file(&directory), database_address(&database)] {
        let error = refusal(&file(&source), &target).await;
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        assert!(error.to_string().contains("run-w-1"), "{error}");
    }
    sql(
        &path,
        "DELETE FROM events WHERE run_key = 2; DELETE FROM runs WHERE run_key = 2",
    );
    for target in [file(&directory), database_address(&database)] {
        copied(&file(&source), &target).await;
    }
}
