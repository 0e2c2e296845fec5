//! Several servers on one database: the version decides, nothing is lost, and no server waits for another.

use std::sync::Arc;

use longhaul_engine::Changes;
use longhaul_engine::change::DocumentChange;
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::conformance::fixture::{advance, at, create, next, push_event, spec, start};
use longhaul_store::postgres::Postgres;
use longhaul_store::{
    DueLimits, Error, Page, Registry as _, RunStore as _, Shared as _, Store, WorkerRow, document,
};

use super::{open, temporary};

const RUNS: usize = 3;
const WRITERS: usize = 8;
const STEPS: usize = 40;

/// Adds an event to a run until it has added enough. Returns how often another writer came first.
async fn add_events(store: Arc<Postgres>, number: usize) -> usize {
    let (mut added, mut lost) = (0, 0);
    while added < STEPS {
        let run_id = format!("run-w{}-1", (number + added) % RUNS).into();
        let run = store.run(&run_id).await.unwrap().unwrap();
        let mut change = next(&run);
        push_event(&mut change, "Step");
        let changes = Changes {
            run: Some(Box::new(change)),
            ..Changes::default()
        };
        match store.commit(Arc::new(changes)).await {
            Ok(()) => added += 1,
            Err(Error::Conflict) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_commit_of_two_servers_is_stored_once() {
    let (first, database) = temporary().await;
    let second = Arc::new(open(&database).await);
    for number in 0..RUNS {
        create(&*first, &format!("w{number}")).await;
    }
    let writers = (0..WRITERS).map(|number| {
        let store = if number % 2 == 0 { &first } else { &second };
        tokio::spawn(add_events(Arc::clone(store), number))
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
    let mut events = 0;
    for number in 0..RUNS {
        let run_id = format!("run-w{number}-1").into();
        let run = second.run(&run_id).await.unwrap().unwrap();
        let history = first
            .history(
                &run_id,
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(10_000),
            )
            .await
            .unwrap();
        assert_eq!(history.len() as u64, run.core.last_history_sequence.get());
        assert_eq!(history.len() as u64, run.version);
        events += history.len() - 1;
    }
    assert_eq!(events, WRITERS * STEPS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_servers_one_creates_a_workflow() {
    let (first, database) = temporary().await;
    let second = open(&database).await;
    for number in 0..20 {
        let begin = |store: &Postgres, server: usize| {
            let mut spec = spec(&format!("w{number}"), 1);
            spec.run_id = format!("run-{server}-{number}").into();
            store.commit(Arc::new(Changes {
                created: vec![start(spec)],
                ..Changes::default()
            }))
        };
        let both = futures::join!(begin(&first, 1), begin(&second, 2));
        let stored = [&both.0, &both.1].map(|outcome| match outcome {
            Ok(()) => true,
            Err(Error::Conflict) => false,
            Err(error) => panic!("{error}"),
        });
        // Both lose only if each held something that the other needed, which a single name does not allow.
        assert_eq!(
            stored.iter().filter(|stored| **stored).count(),
            1,
            "{stored:?}"
        );
        let workflow_id = format!("w{number}").into();
        let instance = first
            .instance(&"default".into(), &workflow_id)
            .await
            .unwrap();
        assert_eq!(instance.unwrap().run_count, 1);
    }
}

#[tokio::test]
async fn a_row_that_another_transaction_holds_is_a_conflict_and_not_a_wait() {
    let (store, database) = temporary().await;
    let run = create(&*store, "w").await;
    let key = || document::key::<WorkerRow>("default", "a", "");
    let created = DocumentChange::create(key(), "1".to_owned(), at(0));
    store
        .commit(Arc::new(Changes::of_documents(vec![created])))
        .await
        .unwrap();
    let other = super::writer(database.url()).await;
    other
        .batch_execute(
            "BEGIN; SELECT * FROM run_states FOR UPDATE; SELECT * FROM documents FOR UPDATE",
        )
        .await
        .unwrap();
    let mut change = next(&run);
    push_event(&mut change, "Step");
    let changes = Arc::new(Changes {
        run: Some(Box::new(change)),
        ..Changes::default()
    });
    let version = at(0).as_micros().unsigned_abs();
    let replaced = DocumentChange::replace(key(), version, "2".to_owned());
    let document = Arc::new(Changes::of_documents(vec![replaced]));
    for changes in [&changes, &document] {
        let outcome = store.commit(Arc::clone(changes)).await;
        assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
    }
    // Others do not notice.
    create(&*store, "v").await;
    other.batch_execute("ROLLBACK").await.unwrap();
    for changes in [changes, document] {
        store.commit(changes).await.unwrap();
    }
    assert_eq!(store.document(&key()).await.unwrap().unwrap().body, "2");
}

/// The rows of writers are removed a week after their servers were last seen. Servers that are in use keep theirs, and one whose row is
/// gone writes on.
#[tokio::test]
async fn writers_of_ended_servers_are_forgotten() {
    let (store, database) = super::temporary().await;
    let run = create(&*store, "w").await;
    database.sql("INSERT INTO writers (writer, batch) VALUES ('of another server', 3)");
    let sweep = async |days: i64| {
        let now = at(days * 24 * 60 * 60);
        store.take_due(now, DueLimits::runs(1), now).await.unwrap();
    };
    let rows = || database.sql("SELECT count(*), count(seen_at) FROM writers");
    sweep(0).await;
    let own = rows();
    assert!(own == "2|2" || own == "3|3", "{own}");
    sweep(6).await;
    assert_eq!(rows(), own);
    sweep(8).await;
    let left = database.sql("SELECT count(*) FROM writers WHERE writer = 'of another server'");
    assert_eq!(left, "0");
    let run = advance(&*store, &run, next(&run)).await;
    database.sql("DELETE FROM writers");
    advance(&*store, &run, next(&run)).await;
}
