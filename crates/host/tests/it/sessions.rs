//! Worker sessions on a real disk: under any concurrency one worker holds a session, and no cap is exceeded. Many rounds each, on
//! several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_engine::run::activity::claim::ActivityClaim;
use longhaul_engine::session::{Session, Status};
use longhaul_host::{Config, Error, Host, Polled};
use longhaul_protocol::Payload;
use longhaul_protocol::id::{SessionId, WorkerId};
use longhaul_protocol::worker_session::WorkerSessionOptions;
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{LeaseFilter, LeasedIn, SessionFilter, Store};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::setup::{commands, holder, leased, namespace, poll_of, register, report, start_of};

const ROUNDS: usize = 100;

struct Disk {
    host: Host,
    store: Arc<dyn Store>,
    _directory: TempDir,
}

impl Disk {
    /// Returns the active sessions of a worker.
    async fn held(&self, worker_id: &str) -> Vec<Session> {
        let held = SessionFilter {
            namespace: namespace(),
            status: Some(Status::Active),
            queue: None,
            owner: Some(worker_id.into()),
            after: None,
            limit: 100,
        };
        self.store.list_sessions(&held).await.unwrap()
    }
}

/// Opens a host on a file, with workers `w0` to `w{workers - 1}`.
async fn disk(workers: usize) -> Disk {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(directory.path().join("s.db")).unwrap());
    let host = Host::start(Arc::clone(&store), Config::default())
        .await
        .unwrap();
    for number in 0..workers {
        register(&host, &format!("w{number}")).await;
    }
    Disk {
        host,
        store,
        _directory: directory,
    }
}

fn in_session(session_id: &str) -> Value {
    json!({"type": "schedule_activity", "activity_type": "say", "worker_session": {"session_id": session_id}})
}

impl Disk {
    async fn schedule(&self, workflow_id: &str, list: Vec<Value>) {
        self.host
            .workflows()
            .start(start_of(workflow_id))
            .await
            .unwrap();
        let poll = poll_of("w0", None, 30);
        let task = leased(self.host.workflow_tasks().poll(&poll, 500).await);
        let commands = commands(Value::Array(list));
        self.host
            .workflow_tasks()
            .complete(&holder(&task), commands)
            .await
            .unwrap();
    }

    /// Polls for these workers at once, each in a task of its own, without waiting.
    async fn poll_at_once(&self, workers: &[String]) -> Vec<ActivityClaim> {
        let polls = workers.iter().map(|worker| {
            let (host, poll) = (self.host.clone(), poll_of(worker, None, 0));
            tokio::spawn(async move { host.activity_tasks().poll(&poll).await.unwrap() })
        });
        let polled = futures::future::join_all(polls).await;
        let claims = polled
            .into_iter()
            .filter_map(|polled| match polled.unwrap() {
                Polled::Leased(claim) => Some(claim),
                Polled::Empty | Polled::Throttled(_) => None,
            });
        claims.collect()
    }

    async fn status(&self, session_id: &str) -> Option<(Status, WorkerId)> {
        let id = SessionId::from(session_id);
        let row = self.store.session(&namespace(), &id).await.unwrap();
        row.map(|row| (row.status, row.lease_owner))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_simultaneous_creates_one_is_the_first() {
    let disk = disk(4).await;
    for round in 0..ROUNDS {
        let options = WorkerSessionOptions::new(format!("s{round}"));
        let creates = (0..4).map(|number| {
            let (host, options) = (disk.host.clone(), options.clone());
            let worker = WorkerId::from(format!("w{number}"));
            tokio::spawn(async move {
                host.sessions()
                    .create(&namespace(), &worker, &options)
                    .await
            })
        });
        let mut created = 0;
        for outcome in futures::future::join_all(creates).await {
            match outcome.unwrap() {
                Ok(receipt) => {
                    assert_eq!(receipt.outcome, "created");
                    created += 1;
                }
                Err(Error::Session(refused)) => {
                    let reason = refused.refusal.reason().as_str();
                    assert_eq!(reason, "session_owned_by_another_worker");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(created, 1);
        let (_, owner) = disk.status(&format!("s{round}")).await.unwrap();
        let id = SessionId::from(format!("s{round}"));
        disk.host
            .sessions()
            .close(&namespace(), &owner, &id, None)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_polls_one_gets_the_only_slot_of_a_session() {
    let disk = disk(3).await;
    let workers: Vec<String> = (0..6).map(|number| format!("w{}", number % 3)).collect();
    for round in 0..ROUNDS {
        let id = format!("s{round}");
        disk.schedule(&format!("run-{round}"), vec![in_session(&id); 3])
            .await;
        let mut holder_of_all = None;
        for _ in 0..3 {
            let claims = disk.poll_at_once(&workers).await;
            assert_eq!(claims.len(), 1, "round {round}");
            let claim = &claims[0];
            let owner = holder_of_all.get_or_insert_with(|| claim.attempt.owner.clone());
            assert_eq!(claim.attempt.owner, *owner, "a session has one owner");
            assert_eq!(claim.attempt.number, 1, "a refused claim is no attempt");
            disk.host
                .activity_tasks()
                .complete(&report(claim), Payload::empty_list())
                .await
                .unwrap();
        }
        let owner = holder_of_all.unwrap();
        disk.host
            .sessions()
            .close(&namespace(), &owner, &id.as_str().into(), None)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_polls_at_the_limit_only_the_allowed_number_begin() {
    let disk = disk(1).await;
    // Ten sessions are the limit of every worker here.
    for round in 0..ROUNDS / 4 {
        let list = (0..13).map(|number| in_session(&format!("s{round}-{number}")));
        disk.schedule(&format!("run-{round}"), list.collect()).await;
        let workers = vec!["w0".to_owned(); 13];
        let claims = disk.poll_at_once(&workers).await;
        assert_eq!(claims.len(), 10, "round {round}");
        let held = disk.held("w0").await;
        assert_eq!(held.len(), 10);
        for claim in &claims {
            disk.host
                .activity_tasks()
                .complete(&report(claim), Payload::empty_list())
                .await
                .unwrap();
        }
        // Room for the rest, then for the next round.
        for pass in 0..2 {
            let held = disk.held("w0").await;
            for session in held {
                disk.host
                    .sessions()
                    .close(&namespace(), &"w0".into(), &session.session_id, None)
                    .await
                    .unwrap();
            }
            if pass == 0 {
                let rest = disk.poll_at_once(&workers).await;
                assert_eq!(rest.len(), 3, "round {round}");
                for claim in &rest {
                    disk.host
                        .activity_tasks()
                        .complete(&report(claim), Payload::empty_list())
                        .await
                        .unwrap();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_simultaneous_close_and_claim_leave_no_lease_on_a_closed_session() {
    let disk = disk(1).await;
    for round in 0..ROUNDS {
        let id = format!("s{round}");
        let options = WorkerSessionOptions::new(id.as_str());
        disk.host
            .sessions()
            .create(&namespace(), &"w0".into(), &options)
            .await
            .unwrap();
        disk.schedule(&format!("run-{round}"), vec![in_session(&id)])
            .await;
        let closing = {
            let (host, id) = (disk.host.clone(), SessionId::from(id.as_str()));
            tokio::spawn(async move {
                host.sessions()
                    .close(&namespace(), &"w0".into(), &id, None)
                    .await
            })
        };
        let claims = disk.poll_at_once(&["w0".to_owned()]).await;
        let closed = closing.await.unwrap().unwrap();
        assert_eq!(closed.outcome, "closed");
        assert_eq!(disk.status(&id).await.unwrap().0, Status::Closed);
        match claims.first() {
            Some(claim) => {
                let session = claim.session.as_ref().unwrap();
                assert!(session.version < closed.view.session.version);
                disk.host
                    .activity_tasks()
                    .complete(&report(claim), Payload::empty_list())
                    .await
                    .unwrap();
            }
            // Nothing remains: no attempt, and the session is closed.
            None => {
                let leased = LeaseFilter::in_sessions(&namespace(), LeasedIn::AnySession);
                let rows = disk.store.leased_tasks(&leased, 10).await.unwrap();
                assert_eq!(rows, []);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_polls_share_a_long_queue_of_one_session_without_stalling() {
    let disk = disk(2).await;
    let count = 200;
    disk.schedule("long", vec![in_session("s"); count]).await;
    let done = Arc::new(AtomicUsize::new(0));
    let polls = (0..4).map(|number| {
        let (host, done) = (disk.host.clone(), Arc::clone(&done));
        let poll = poll_of(&format!("w{}", number % 2), None, 1);
        tokio::spawn(async move {
            while done.load(Ordering::SeqCst) < count {
                if let Polled::Leased(claim) = host.activity_tasks().poll(&poll).await.unwrap() {
                    host.activity_tasks()
                        .complete(&report(&claim), Payload::empty_list())
                        .await
                        .unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    });
    let all = futures::future::join_all(polls);
    let ended = tokio::time::timeout(Duration::from_secs(60), all).await;
    let ended = ended.unwrap_or_else(|_| {
        panic!(
            "{} of {count} tasks are done and no more progress is made",
            done.load(Ordering::SeqCst)
        )
    });
    ended.into_iter().for_each(|poll| poll.unwrap());
    assert_eq!(done.load(Ordering::SeqCst), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_sessions_cost_an_ordinary_poll_nothing() {
    let disk = disk(2).await;
    // Tasks of sessions that another worker holds, and ordinary ones between them.
    for number in 0..10 {
        let options = WorkerSessionOptions::new(format!("held-{number}"));
        disk.host
            .sessions()
            .create(&namespace(), &"w0".into(), &options)
            .await
            .unwrap();
    }
    for round in 0..10 {
        let list = (0..1000).map(|number| in_session(&format!("held-{}", number % 10)));
        disk.schedule(&format!("blocked-{round}"), list.collect())
            .await;
    }
    let plain = json!({"type": "schedule_activity", "activity_type": "plain"});
    disk.schedule("plain", vec![plain; 20]).await;
    for _ in 0..20 {
        let claim = leased(
            disk.host
                .activity_tasks()
                .poll(&poll_of("w1", None, 0))
                .await,
        );
        assert_eq!(claim.activity.activity_type, "plain");
    }
    let polled = disk
        .host
        .activity_tasks()
        .poll(&poll_of("w1", None, 0))
        .await;
    assert!(matches!(polled.unwrap(), Polled::Empty));
}
