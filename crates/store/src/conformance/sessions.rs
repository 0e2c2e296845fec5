//! Worker sessions: written together with their commit or not at all, one version after the other.

use std::sync::Arc;

use longhaul_engine::change::{Changes, TaskKind, TaskStatus};
use longhaul_engine::session::{Session, Status};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use serde_json::json;

use super::fixture::{at, create, is_conflict, load, namespace, next, push_event, task};
use crate::{
    Due, DueLimits, Error, LeaseFilter, LeasedIn, PRUNED_SESSIONS_MAX, QueueKey, SessionFilter,
    Store, TaskPlace,
};

/// Returns an active session of `worker-1`, created at second 0, with a lease of a minute and an end at second 600.
pub fn session(space: &str, session_id: &str) -> Session {
    serde_json::from_value(json!({
        "namespace": space,
        "session_id": session_id,
        "version": 1,
        "queue": "orders",
        "requirements": ["gpu"],
        "status": "active",
        "lease_owner": "worker-1",
        "lease_expires_at": at(60),
        "ttl_expires_at": at(600),
        "lease_seconds": 60,
        "ttl_seconds": 600,
        "max_concurrent_activities": 1,
        "create_if_missing": true,
        "allow_reacquire_after_failure": true,
        "last_heartbeat_at": at(0),
        "created_at": at(0),
        "updated_at": at(0),
    }))
    .unwrap()
}

async fn write(store: &dyn Store, session: &Session) -> Result<(), Error> {
    let changes = Changes::of_sessions(vec![session.clone()]);
    store.commit(Arc::new(changes)).await
}

async fn stored(store: &dyn Store, session_id: &str) -> Option<Session> {
    let space = namespace("default");
    store.session(&space, &session_id.into()).await.unwrap()
}

fn after(session: &Session, seconds: i64) -> Session {
    Session {
        version: session.version + 1,
        updated_at: at(seconds),
        ..session.clone()
    }
}

fn ids(sessions: &[Session]) -> Vec<&str> {
    let ids = sessions.iter().map(|session| session.session_id.as_str());
    ids.collect()
}

pub async fn a_session_is_written_one_version_after_the_other(store: &dyn Store) {
    let first = session("default", "gpu");
    assert_eq!(stored(store, "gpu").await, None);
    assert!(is_conflict(&write(store, &after(&first, 1)).await));
    write(store, &first).await.unwrap();
    assert!(is_conflict(&write(store, &first).await));
    let second = Session {
        status: Status::Closed,
        closed_at: Some(at(5)),
        ..after(&first, 5)
    };
    write(store, &second).await.unwrap();
    assert!(is_conflict(&write(store, &after(&first, 6)).await));
    assert_eq!(stored(store, "gpu").await, Some(second));
    // The same id in another namespace is another session.
    write(store, &session("elsewhere", "gpu")).await.unwrap();
}

pub async fn a_session_and_a_run_are_written_together_or_not_at_all(store: &dyn Store) {
    let run = create(store, "w").await;
    let gpu = session("default", "gpu");
    let changes = |base_version: u64, session: &Session| {
        let mut change = next(&run);
        change.base_version = Some(base_version);
        push_event(&mut change, "ActivityStarted");
        Arc::new(Changes {
            run: Some(Box::new(change)),
            sessions: vec![session.clone()],
            ..Changes::default()
        })
    };
    // A stale run writes no session, a stale session no event.
    let stale_run = store.commit(changes(run.version + 1, &gpu)).await;
    assert!(is_conflict(&stale_run));
    assert_eq!(stored(store, "gpu").await, None);
    let stale_session = store.commit(changes(run.version, &after(&gpu, 1))).await;
    assert!(is_conflict(&stale_session));
    assert_eq!(load(store, run.run_id()).await, Some(run.clone()));
    store.commit(changes(run.version, &gpu)).await.unwrap();
    assert_eq!(stored(store, "gpu").await, Some(gpu));
    let written = load(store, run.run_id()).await.unwrap();
    assert_eq!(written.version, run.version + 1);
}

pub async fn of_concurrent_takers_one_gets_the_session(store: &dyn Store) {
    let takers: Vec<Session> = (0..16)
        .map(|number| Session {
            lease_owner: format!("worker-{number}").into(),
            ..session("default", "gpu")
        })
        .collect();
    let outcomes = futures::future::join_all(takers.iter().map(|taker| write(store, taker))).await;
    let winners: Vec<usize> = (0..16).filter(|place| outcomes[*place].is_ok()).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(
        stored(store, "gpu").await.as_ref(),
        Some(&takers[winners[0]])
    );
}

pub async fn held_and_due_sessions_are_found(store: &dyn Store) {
    let space = namespace("default");
    let mine = session("default", "b");
    let renewed = Session {
        lease_expires_at: at(90),
        ..session("default", "a")
    };
    let theirs = Session {
        lease_owner: "worker-2".into(),
        ..session("default", "c")
    };
    let orphan = Session {
        status: Status::Orphaned,
        ..session("default", "d")
    };
    let closed = Session {
        status: Status::Closed,
        ..session("default", "e")
    };
    let due = async |seconds: i64, limit: usize| {
        let limits = DueLimits::sessions(limit);
        let due = store.due(at(seconds), limits).await.unwrap();
        assert_eq!(due.runs, []);
        (ids(&due.sessions).concat(), due.next)
    };
    assert_eq!(due(0, 10).await, (String::new(), None));
    for row in [&mine, &renewed, &theirs, &orphan, &closed] {
        write(store, row).await.unwrap();
    }
    write(store, &session("elsewhere", "b")).await.unwrap();
    let held = SessionFilter {
        namespace: space,
        status: Some(Status::Active),
        queue: None,
        owner: Some("worker-1".into()),
        after: None,
        limit: 10,
    };
    let held = store.list_sessions(&held).await.unwrap();
    assert_eq!(held, [renewed, mine]);
    assert_eq!(due(59, 10).await, (String::new(), Some(at(60))));
    assert_eq!(due(60, 10).await, ("bcb".to_owned(), Some(at(90))));
    let everything = due(600, 10).await;
    assert_eq!(everything, ("bcbad".to_owned(), None));
    assert_eq!(due(600, 2).await, ("bc".to_owned(), None));
    // A caller that wants neither gets neither.
    let none = store.due(at(600), DueLimits::default()).await.unwrap();
    assert_eq!(none, Due::default());
}

pub async fn attempts_and_ready_tasks_of_sessions_are_apart(store: &dyn Store) {
    let space = namespace("default");
    let run = create(store, "w").await;
    let mut change = next(&run);
    let in_session = |task_id: &str, status: TaskStatus, session_id: &str| {
        let mut row = task(&change, task_id, status);
        row.worker_session = Some(Box::new(WorkerSessionOptions::new(session_id)));
        row
    };
    let rows = [
        in_session("t1", TaskStatus::Leased, "gpu"),
        in_session("t2", TaskStatus::Leased, "disk"),
        in_session("t3", TaskStatus::Ready, "gpu"),
        task(&change, "t4", TaskStatus::Ready),
        task(&change, "t5", TaskStatus::Leased),
        in_session("t6", TaskStatus::Completed, "gpu"),
    ];
    change.tasks = rows.to_vec();
    super::fixture::commit(store, change).await.unwrap();
    let of = |session: LeasedIn| {
        let filter = LeaseFilter::in_sessions(&space, session);
        async move {
            let found = store.leased_tasks(&filter, 10).await.unwrap().into_iter();
            found.map(|row| row.task_id.to_string()).collect::<Vec<_>>()
        }
    };
    let one = |session_id: &str| LeasedIn::Session(session_id.into());
    assert_eq!(of(one("gpu")).await, ["t1"]);
    assert_eq!(of(LeasedIn::AnySession).await, ["t1", "t2"]);
    assert_eq!(of(one("none")).await, Vec::<String>::new());
    let queue = QueueKey {
        namespace: space.clone(),
        kind: TaskKind::Activity,
        queue: "orders".into(),
    };
    let ready = store
        .ready_tasks(&queue, TaskPlace::Anywhere, 10)
        .await
        .unwrap();
    assert_eq!(ready, rows[3..4]);
    let ready = store
        .ready_tasks(&queue, TaskPlace::Session, 10)
        .await
        .unwrap();
    assert_eq!(ready, rows[2..3]);
    assert_eq!(store.ready_queues().await.unwrap(), [queue]);
}

pub async fn sessions_are_listed_newest_change_first(store: &dyn Store) {
    let row = |session_id: &str, seconds: i64, status: Status, queue: &str, owner: &str| Session {
        updated_at: at(seconds),
        status,
        queue: queue.into(),
        lease_owner: owner.into(),
        ..session("default", session_id)
    };
    let rows = [
        row("d", 9, Status::Active, "p", "w1"),
        row("a", 5, Status::Closed, "q", "w1"),
        row("b", 5, Status::Active, "q", "w2"),
        row("c", 5, Status::Orphaned, "q", "w2"),
        row("e", 1, Status::Active, "q", "w2"),
    ];
    for row in rows.iter().rev() {
        write(store, row).await.unwrap();
    }
    write(store, &session("elsewhere", "z")).await.unwrap();
    let everything = SessionFilter {
        namespace: namespace("default"),
        status: None,
        queue: None,
        owner: None,
        after: None,
        limit: 10,
    };
    let list = |filter: SessionFilter| async move {
        let found = store.list_sessions(&filter).await.unwrap();
        ids(&found).join("")
    };
    assert_eq!(list(everything.clone()).await, "dabce");
    let mut page = SessionFilter {
        limit: 2,
        ..everything.clone()
    };
    assert_eq!(list(page.clone()).await, "da");
    page.after = Some((at(5), "a".into()));
    assert_eq!(list(page.clone()).await, "bc");
    page.after = Some((at(5), "c".into()));
    assert_eq!(list(page).await, "e");
    let by = |change: fn(&mut SessionFilter)| {
        let mut filter = everything.clone();
        change(&mut filter);
        list(filter)
    };
    assert_eq!(
        by(|filter| filter.status = Some(Status::Active)).await,
        "dbe"
    );
    assert_eq!(by(|filter| filter.queue = Some("p".into())).await, "d");
    assert_eq!(by(|filter| filter.owner = Some("w2".into())).await, "bce");
    let counts = store.session_counts(&namespace("default")).await.unwrap();
    assert_eq!(
        counts,
        [
            (Status::Active, 3),
            (Status::Closed, 1),
            (Status::Orphaned, 1)
        ]
    );
}

pub async fn only_old_final_sessions_are_deleted(store: &dyn Store) {
    let space = namespace("default");
    let ended = |session_id: &str, seconds: i64| Session {
        status: Status::Closed,
        closed_at: Some(at(seconds)),
        ..session("default", session_id)
    };
    let ttl: Session = Session {
        status: Status::Expired,
        ttl_expires_at: at(8),
        failure_reason: Some(longhaul_engine::session::FailureReason::TtlExpired),
        ..session("default", "ttl")
    };
    let lapsed = Session {
        status: Status::Expired,
        failure_reason: Some(longhaul_engine::session::FailureReason::LeaseExpired),
        ..session("default", "lapsed")
    };
    let live = session("default", "live");
    for row in [&ended("old", 1), &ended("new", 9), &ttl, &lapsed, &live] {
        write(store, row).await.unwrap();
    }
    assert!(store.prune_sessions(&space, at(9)).await.unwrap());
    assert!(!store.prune_sessions(&space, at(9)).await.unwrap());
    for (session_id, is_there) in [
        ("old", false),
        ("new", true),
        ("ttl", false),
        ("lapsed", true),
        ("live", true),
    ] {
        assert_eq!(stored(store, session_id).await.is_some(), is_there);
    }
    // A deleted id is free again, and many are deleted in bounded steps.
    write(store, &session("default", "old")).await.unwrap();
    for number in 0..=PRUNED_SESSIONS_MAX {
        write(store, &ended(&format!("many-{number}"), 2))
            .await
            .unwrap();
    }
    assert!(store.prune_sessions(&space, at(9)).await.unwrap());
    assert!(store.prune_sessions(&space, at(9)).await.unwrap());
    assert!(!store.prune_sessions(&space, at(9)).await.unwrap());
}
