//! SQLite and its files: their content after a drop or a crash, and which files are refused.

use longhaul_protocol::sequence::HistorySeq;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use longhaul_engine::change::TaskStatus;
use longhaul_store::conformance::fixture::{
    advance, at, command, create, load, next, push_event, task, timer,
};
use longhaul_store::conformance::history::{
    by_request, large_arguments_of_open_messages_come_back,
};
use longhaul_store::conformance::registry::worker;
use longhaul_store::sqlite::{Options, Sqlite, Sync};
use longhaul_store::{DueLimits, Error, Page, RunStore as _, Store, TaskStore as _, WorkerRow};
use tempfile::TempDir;

/// Returns an empty store in a directory of its own, without syncs: these tests crash nothing.
pub(crate) fn temporary() -> (Arc<Sqlite>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        sync: Sync::Never,
        ..Options::new(directory.path().join("longhaul.db"))
    };
    (Arc::new(Sqlite::open_with(options).unwrap()), directory)
}

/// Returns the error of an open that must fail.
fn refusal(path: &Path) -> Error {
    match Sqlite::open(path) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn everything_is_stored_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    // The directory is created as well.
    let path = directory.path().join("data").join("longhaul.db");
    let store = Sqlite::open(&path).unwrap();
    let run = create(&store, "w").await;
    let mut change = next(&run);
    push_event(&mut change, "Step");
    change.core.alarm = Some(at(5));
    change.parts.push(timer(1, 5));
    change.tasks.push(task(&change, "t", TaskStatus::Ready));
    change.commands.push(command(2, Some("request")));
    let row = change.tasks[0].clone();
    let run = advance(&store, &run, change).await;
    (&store as &dyn Store)
        .put(&worker("default", "a"), at(0))
        .await
        .unwrap();
    drop(store);

    let store = Sqlite::open(&path).unwrap();
    assert_eq!(load(&store, run.run_id()).await, Some(run.clone()));
    assert_eq!(
        store
            .history(
                run.run_id(),
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(10)
            )
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(store.task(&"t".into()).await.unwrap(), Some(row));
    assert_eq!(store.ready_queues().await.unwrap().len(), 1);
    let due = store.due(at(0), DueLimits::runs(1)).await.unwrap();
    assert_eq!(due.next, Some(at(5)));
    let by_request = by_request(&store, "w", "request").await;
    assert_eq!(
        by_request,
        Some((run.run_id().clone(), command(2, Some("request"))))
    );
    assert_eq!(
        (&store as &dyn Store)
            .list::<WorkerRow>(Some(&"default".into()))
            .await
            .unwrap()
            .len(),
        1
    );
    advance(&store, &run, next(&run)).await;
}

#[tokio::test]
async fn dropping_the_store_finishes_accepted_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let store = Sqlite::open(&path).unwrap();
    let mut run = create(&store, "w").await;
    for _ in 0..100 {
        let change = next(&run);
        run = change.apply(Some(run));
        drop(store.commit(Arc::new(longhaul_engine::change::Changes {
            run: Some(Box::new(change)),
            created: Vec::new(),
            ..longhaul_engine::Changes::default()
        })));
    }
    drop(store);
    assert_eq!(
        load(&Sqlite::open(&path).unwrap(), run.run_id()).await,
        Some(run)
    );
}

/// Uses the files as a killed process leaves them, then with the log cut shorter and shorter, as a power cut may leave it: the
/// first commits are stored completely, and the run is in a state that it once had.
#[tokio::test]
async fn a_torn_log_loses_the_newest_commits_only() {
    let (store, directory) = temporary();
    let path = directory.path().join("longhaul.db");
    let log = directory.path().join("longhaul.db-wal");
    let mut versions = vec![create(&*store, "w").await];
    for _ in 0..20 {
        let last = versions.last().unwrap();
        let mut change = next(last);
        push_event(&mut change, "Step");
        change.parts.push(timer(last.version, 1));
        versions.push(advance(&*store, last, change).await);
    }
    let whole = fs::metadata(&log).unwrap().len();
    let mut newest = u64::MAX;
    for cut in (0..whole).step_by(7_001) {
        let crashed = tempfile::tempdir().unwrap();
        let copy = crashed.path().join("longhaul.db");
        fs::copy(&path, &copy).unwrap();
        let copied_log = crashed.path().join("longhaul.db-wal");
        fs::copy(&log, &copied_log).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&copied_log)
            .unwrap()
            .set_len(whole - cut)
            .unwrap();
        let store = Sqlite::open(&copy).unwrap();
        let Some(run) = load(&store, versions[0].run_id()).await else {
            newest = 0;
            continue;
        };
        assert!(run.version <= newest, "a shorter log must not contain more");
        newest = run.version;
        assert_eq!(run, versions[usize::try_from(run.version).unwrap() - 1]);
        let events = store
            .history(
                run.run_id(),
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(100),
            )
            .await
            .unwrap();
        assert!(
            events
                .iter()
                .map(|event| event.sequence.get())
                .eq(1..=run.core.last_history_sequence.get())
        );
        if cut == 0 {
            assert_eq!(
                run,
                *versions.last().unwrap(),
                "a kill loses nothing that was confirmed"
            );
        }
        // The store can be written from there.
        advance(&store, &run, next(&run)).await;
    }
    assert!(newest < 5, "the cuts reached the beginning");
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    drop(Sqlite::open(&path).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    let newer =
        "INSERT INTO refinery_schema_history VALUES (4711, 'later', '2030-01-01T00:00:00Z', '1')";
    connection.execute(newer, []).unwrap();
    drop(connection);
    let error = refusal(&path);
    assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
    let message = error.to_string();
    for part in ["longhaul.db", "4711", "newer release", "restore a backup"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn a_newer_schema_that_allows_this_release_is_used_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    drop(Sqlite::open(&path).unwrap());
    let change = |sql: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    change(
        "INSERT INTO refinery_schema_history VALUES (4711, 'later', '2030-01-01T00:00:00Z', '1');
         ALTER TABLE documents ADD COLUMN later INTEGER;
         INSERT INTO schema_compatibility
             SELECT 4711, max(version) FROM refinery_schema_history WHERE version < 4711",
    );
    let store = Sqlite::open(&path).unwrap();
    create(&store, "w").await;
    assert!(load(&store, &"run-w-1".into()).await.is_some());
    drop(store);
    // The later release excludes this one.
    change("UPDATE schema_compatibility SET oldest_program = 4711 WHERE version = 4711");
    let error = refusal(&path);
    assert!(matches!(error, Error::NewerSchema(_)), "{error:?}");
}

#[tokio::test]
async fn a_second_server_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let first = Sqlite::open(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    assert!(
        error.to_string().contains("another longhaul server"),
        "{error}"
    );
    create(&first, "w").await;
    drop(first);
    assert!(
        load(&Sqlite::open(&path).unwrap(), &"run-w-1".into())
            .await
            .is_some()
    );
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    fs::write(&path, "These are my notes. ".repeat(1000)).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, Error::Damaged(_)), "{error:?}");
    assert!(
        fs::read_to_string(&path)
            .unwrap()
            .starts_with("These are my notes.")
    );
}

#[tokio::test]
async fn a_damaged_row_is_reported_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    create(&Sqlite::open(&path).unwrap(), "w").await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute("UPDATE runs SET state = 'x'", [])
        .unwrap();
    drop(connection);
    let error = Sqlite::open(&path)
        .unwrap()
        .run(&"run-w-1".into())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert!(error.to_string().contains("run-w-1"), "{error}");
}

#[tokio::test]
async fn stats_count_writes_and_refusals() {
    let (store, _directory) = temporary();
    let run = create(&*store, "w").await;
    advance(&*store, &run, next(&run)).await;
    let stale = longhaul_engine::change::Changes {
        run: Some(Box::new(next(&run))),
        created: Vec::new(),
        ..longhaul_engine::Changes::default()
    };
    assert!(store.commit(Arc::new(stale)).await.is_err());
    let stats = store.stats();
    assert_eq!(
        (stats.writes, stats.refused, stats.failed, stats.waiting),
        (2, 1, 0, 0)
    );
    assert!(stats.batches == 3 && stats.batch_nanos >= stats.sync_nanos);
}

#[tokio::test]
async fn a_large_signal_is_stored_once() {
    let (store, directory) = temporary();
    large_arguments_of_open_messages_come_back(&*store).await;
    let connection = rusqlite::Connection::open(directory.path().join("longhaul.db")).unwrap();
    let part = |name: &str| -> i64 {
        let statement = "SELECT length(body) FROM run_parts WHERE part = ?1";
        connection
            .query_row(statement, [name], |row| row.get(0))
            .unwrap()
    };
    assert!(part("signal:6") < 1000 && part("update:7") < 1000);
    assert!(part("buffered:8") > 100_000, "history does not have it yet");
}

#[test]
fn a_database_without_its_end_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    drop(Sqlite::open(&path).unwrap());
    let whole = fs::read(&path).unwrap();
    for length in [whole.len() - 1, whole.len() / 2, 4096] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::Damaged(_)), "{length}: {error:?}");
        assert!(error.to_string().contains("restore a backup"), "{error}");
    }
    fs::write(&path, &whole).unwrap();
    drop(Sqlite::open(&path).unwrap());
}

#[tokio::test]
async fn no_database_is_created_beside_the_log_of_another() {
    let (store, directory) = temporary();
    create(&*store, "w").await;
    let crashed = tempfile::tempdir().unwrap();
    let path = crashed.path().join("longhaul.db");
    let log = crashed.path().join("longhaul.db-wal");
    fs::copy(directory.path().join("longhaul.db-wal"), &log).unwrap();
    for _ in 0..2 {
        let error = refusal(&path);
        assert!(matches!(error, Error::Damaged(_)), "{error:?}");
        assert!(error.to_string().contains("longhaul.db-wal"), "{error}");
        assert!(
            fs::metadata(&path).is_err(),
            "a refused open must not create a database"
        );
    }
    fs::write(&path, "").unwrap();
    assert!(matches!(refusal(&path), Error::Damaged(_)));
    // An empty log does not count.
    fs::write(&log, "").unwrap();
    drop(Sqlite::open(&path).unwrap());
}

#[tokio::test]
async fn the_database_itself_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let first = Sqlite::open(&path).unwrap();
    fs::remove_file(directory.path().join("longhaul.db.lock")).unwrap();
    let error = refusal(&path);
    assert!(
        error.to_string().contains("another longhaul server"),
        "{error}"
    );
    // Another name for the same file has a lock file of its own.
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(refusal(&link), Error::Unavailable(_)));
    create(&first, "w").await;
    drop(first);
    drop(Sqlite::open(&path).unwrap());
}

#[tokio::test]
async fn checking_whether_writes_work_costs_at_most_one_write() {
    let (store, _directory) = temporary();
    for _ in 0..100 {
        store.check_writes().await.unwrap();
    }
    assert_eq!(store.stats().writes, 1);
}
