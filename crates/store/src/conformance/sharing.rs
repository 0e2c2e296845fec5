//! Several servers on one store: hints, work that is shared out, and caps. Each case gets the store as two servers see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use longhaul_engine::change::{
    Cap, CapScope, Changes, DocumentChange, DocumentKey, DocumentKind, RunChange, TaskKind,
    TaskRow, TaskStatus,
};
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::state::Run;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::TaskId;

use super::fixture::{advance, at, commit, create, namespace, next, push_event, task};
use crate::{DueLimits, Error, Hints, Look, Looked, PollId, QueueKey, Shared, Store, Wanted};

/// Longer than any hint takes, however slow the machine.
const HINT_DEADLINE: Duration = Duration::from_secs(60);

/// Between two attempts.
const SEND_AGAIN: Duration = Duration::from_secs(1);

fn shared(store: &dyn Store) -> &dyn Shared {
    store.shared().expect("the store is shared")
}

fn queue() -> QueueKey {
    QueueKey {
        namespace: namespace("default"),
        kind: TaskKind::Activity,
        queue: "orders".into(),
    }
}

fn any(worker: &str) -> PollFilter {
    PollFilter::any(worker.into())
}

fn look_at(now: Timestamp, polls: Vec<(PollFilter, usize)>) -> Look {
    Look {
        now,
        reserved_until: now.plus_seconds(2),
        queues: vec![Wanted {
            queue: queue(),
            polls,
        }],
        ..Look::default()
    }
}

async fn look(store: &dyn Store, now: Timestamp, polls: Vec<(PollFilter, usize)>) -> Vec<String> {
    let found = shared(store).look(&look_at(now, polls)).await.unwrap();
    ids(&found.tasks)
}

fn ids(tasks: &[TaskRow]) -> Vec<String> {
    tasks.iter().map(|task| task.task_id.to_string()).collect()
}

/// Puts ready tasks, changed by `change`, into the queue.
async fn put_ready(
    store: &dyn Store,
    run: &Run,
    names: &[&str],
    change: impl Fn(usize, &mut TaskRow),
) -> Run {
    let mut changes = next(run);
    for (number, name) in names.iter().enumerate() {
        let mut row = task(&changes, name, TaskStatus::Ready);
        row.available_at = at(i64::try_from(number).unwrap_or(0));
        change(number, &mut row);
        changes.tasks.push(row);
    }
    advance(store, run, changes).await
}

/// Sends until enough was heard. A server that has just connected does not listen yet, and a hint may be lost.
async fn hear(
    hints: &mut BoxStream<'static, Hints>,
    is_enough: impl Fn(&Hints) -> bool,
    mut send: impl AsyncFnMut(),
) -> Hints {
    let mut heard = Hints::default();
    let hearing = async {
        loop {
            send().await;
            let enough = async {
                while !is_enough(&heard) {
                    heard.merge(hints.next().await.expect("hints go on"));
                }
            };
            if tokio::time::timeout(SEND_AGAIN, enough).await.is_ok() {
                return;
            }
        }
    };
    let heard_in_time = tokio::time::timeout(HINT_DEADLINE, hearing).await;
    heard_in_time.expect("hints arrive");
    heard
}

pub async fn the_hint_of_a_commit_reaches_the_other_server(first: &dyn Store, second: &dyn Store) {
    let mut hints = shared(second).hints();
    let mut own = shared(first).hints();
    let mut run = create(first, "w").await;
    let key = DocumentKey {
        kind: DocumentKind::Worker,
        namespace: "default".to_owned(),
        name: "w\u{0}1".to_owned(),
        qualifier: String::new(),
    };
    let document = DocumentChange::create(key.clone(), "{}".to_owned(), at(0));
    let mut version = document.version;
    let documents = Changes::of_documents(vec![document]);
    first.commit(Arc::new(documents)).await.unwrap();
    let is_all = |heard: &Hints| {
        !heard.runs.is_empty() && !heard.documents.is_empty() && !heard.queues.is_empty()
    };
    let heard = hear(&mut hints, is_all, async || {
        let mut change = next(&run);
        push_event(&mut change, "Step");
        run = advance(first, &run, change).await;
        let replaced = DocumentChange::replace(key.clone(), version, "{}".to_owned());
        version = replaced.version;
        let documents = Changes::of_documents(vec![replaced]);
        first.commit(Arc::new(documents)).await.unwrap();
        shared(first).announce(Hints::of_queue(queue(), Some("t".into())));
    })
    .await;
    let newest = heard.runs.get(run.run_id()).copied();
    assert!(newest.is_some_and(|newest| (2..=run.version).contains(&newest)));
    assert!(heard.documents.contains(&key));
    assert!(heard.queues[&queue()].contains(&TaskId::from("t")));
    // A server hears nothing of itself, only of the other.
    let mut other = create(second, "v").await;
    let other_id = other.run_id().clone();
    let has_other = |heard: &Hints| heard.runs.contains_key(&other_id);
    let heard = hear(&mut own, has_other, async || {
        let mut change = next(&other);
        push_event(&mut change, "Step");
        other = advance(second, &other, change).await;
    })
    .await;
    assert!(!heard.runs.contains_key(run.run_id()));
}

pub async fn a_task_is_left_to_one_server_for_a_moment(first: &dyn Store, second: &dyn Store) {
    let run = create(first, "w").await;
    let run = put_ready(first, &run, &["a", "b", "c"], |_, _| {}).await;
    let one = || vec![(any("w1"), 1)];
    assert_eq!(look(first, at(10), one()).await, ["a"]);
    assert_eq!(look(second, at(10), one()).await, ["b"], "the next one");
    assert_eq!(look(first, at(10), vec![(any("w1"), 5)]).await, ["c"]);
    assert!(look(second, at(11), one()).await.is_empty());
    assert_eq!(look(second, at(12), one()).await, ["a"], "the time is over");
    // A task that was leased and is ready again is free at once.
    let mut change = next(&run);
    change.tasks = vec![task(&change, "b", TaskStatus::Leased)];
    let run = advance(second, &run, change).await;
    assert!(
        !look(first, at(13), vec![(any("w1"), 5)])
            .await
            .contains(&"b".to_owned())
    );
    let mut change = next(&run);
    change.tasks = vec![task(&change, "b", TaskStatus::Ready)];
    advance(second, &run, change).await;
    assert_eq!(look(first, at(13), one()).await, ["b"]);
}

pub async fn a_look_finds_what_the_polls_accept(first: &dyn Store, _: &dyn Store) {
    let run = create(first, "w").await;
    let names: Vec<String> = (0..200).map(|number| format!("t{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    put_ready(first, &run, &names, |number, row| {
        if number < 199 {
            row.type_name = "other".to_owned();
            row.compatibility = Some("b1".to_owned());
        }
    })
    .await;
    let charging = PollFilter {
        types: Arc::new(vec!["charge".to_owned(), "refund".to_owned()]),
        ..any("w1")
    };
    let found = look(first, at(1000), vec![(charging, 3)]).await;
    assert_eq!(found, ["t199"], "many tasks of other types are before it");
    // Of the others, only a worker of their build may take one. They are not hidden by what the database cannot tell apart.
    assert!(look(first, at(1000), vec![(any("w1"), 3)]).await.is_empty());
    let built = PollFilter {
        build_id: Some("b1".to_owned()),
        ..any("w2")
    };
    let found = look(first, at(1000), vec![(built, 2)]).await;
    assert_eq!(found, ["t000", "t001"]);
}

pub async fn a_look_has_some_of_each_fairness_class(first: &dyn Store, _: &dyn Store) {
    let run = create(first, "w").await;
    let names: Vec<String> = (0..120).map(|number| format!("t{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    put_ready(first, &run, &names, |number, row| {
        row.fairness_key = Some(if number < 119 { "busy" } else { "calm" }.to_owned());
    })
    .await;
    let found = look(first, at(1000), vec![(any("w1"), 2)]).await;
    assert!(found.contains(&"t119".to_owned()), "{found:?}");
    assert!(found.contains(&"t000".to_owned()), "{found:?}");
    assert!(found.len() <= 4, "{found:?}");
}

pub async fn a_look_finds_leases_of_polls_and_changed_runs(first: &dyn Store, second: &dyn Store) {
    let run = create(first, "w").await;
    let mut change = next(&run);
    let mut leased = task(&change, "a", TaskStatus::Leased);
    leased.poll_request_id = Some("p1".to_owned());
    change.tasks = vec![leased.clone()];
    let run = advance(first, &run, change).await;
    let poll = |request_id: &str| PollId {
        queue: queue(),
        worker_id: "worker-1".into(),
        request_id: request_id.to_owned(),
    };
    let look = Look {
        queues: Vec::new(),
        polls: vec![poll("p0"), poll("p1")],
        runs: vec![(run.run_id().clone(), run.version), ("none".into(), 3)],
        ..look_at(at(0), Vec::new())
    };
    let found = shared(second).look(&look).await.unwrap();
    let expected = Looked {
        leased: vec![leased],
        ..Looked::default()
    };
    assert_eq!(found, expected);
    let mut change = next(&run);
    push_event(&mut change, "Step");
    let after = advance(first, &run, change).await;
    let found = shared(second).look(&look).await.unwrap();
    assert_eq!(found.runs, [(run.run_id().clone(), after.version)]);
}

pub async fn known_and_released_tasks(first: &dyn Store, second: &dyn Store) {
    let run = create(first, "w").await;
    put_ready(first, &run, &["a", "b", "c"], |_, _| {}).await;
    let known = Look {
        known: vec!["a".into()],
        ..look_at(at(0), vec![(any("w"), 2)])
    };
    let found = shared(first).look(&known).await.unwrap();
    assert_eq!(ids(&found.tasks), ["b", "c"]);
    assert_eq!(look(second, at(0), vec![(any("v"), 9)]).await, ["a"]);
    // Only the server that has a task can release it.
    let release = Look {
        queues: Vec::new(),
        released: vec!["a".into(), "c".into()],
        ..look_at(at(0), Vec::new())
    };
    let found = shared(first).look(&release).await.unwrap();
    assert_eq!(found, Looked::default());
    assert_eq!(look(second, at(0), vec![(any("v"), 9)]).await, ["c"]);
}

pub async fn a_new_task_is_left_to_its_server_unless_it_was_offered(
    first: &dyn Store,
    second: &dyn Store,
) {
    let run = create(first, "w").await;
    put_ready(first, &run, &["a", "b", "c"], |number, row| {
        row.available_at = at(i64::try_from(number).unwrap());
        row.fairness_key = Some("class".to_owned());
    })
    .await;
    let young = |offered: &[&str]| Look {
        young_since: Some(at(0)),
        offered: offered
            .iter()
            .map(|task_id| TaskId::from(*task_id))
            .collect(),
        ..look_at(at(3), vec![(any("w"), 9)])
    };
    let found = shared(second).look(&young(&[])).await.unwrap();
    assert_eq!(ids(&found.tasks), ["a"]);
    let found = shared(second).look(&young(&["c", "none"])).await.unwrap();
    assert_eq!(ids(&found.tasks), ["c"]);
    assert_eq!(look(first, at(3), vec![(any("v"), 9)]).await, ["b"]);
}

pub async fn due_runs_are_taken_by_one_server(first: &dyn Store, second: &dyn Store) {
    let mut runs = Vec::new();
    for number in 0..4 {
        let run = create(first, &format!("w{number}")).await;
        let mut change = next(&run);
        change.core.alarm = Some(at(number));
        runs.push(advance(first, &run, change).await);
    }
    let take = async |store: &dyn Store, now: i64, limit: usize| {
        let due = shared(store).take_due(at(now), DueLimits::runs(limit), at(now + 5));
        let due = due.await.unwrap();
        let ids: Vec<String> = due.runs.iter().map(ToString::to_string).collect();
        (ids, due.next)
    };
    let (taken, next_at) = take(first, 2, 2).await;
    assert_eq!(taken, ["run-w0-1", "run-w1-1"]);
    assert_eq!(next_at, Some(at(3)));
    assert_eq!(take(second, 2, 9).await.0, ["run-w2-1"], "the rest");
    assert_eq!(
        take(first, 2, 9).await.0,
        ["run-w0-1", "run-w1-1"],
        "its own again"
    );
    // A new alarm is another reason to take the run.
    let mut change = next(&runs[0]);
    change.core.alarm = Some(at(1));
    advance(first, &runs[0], change).await;
    assert_eq!(take(second, 2, 1).await.0, ["run-w0-1"]);
    assert_eq!(
        take(second, 8, 9).await.0.len(),
        4,
        "the time of the first is over"
    );
}

fn leasing(run: &Run, name: &str, max: u64) -> Changes {
    let mut change: RunChange = next(run);
    change.tasks = vec![task(&change, name, TaskStatus::Leased)];
    let mut changes = Changes {
        run: Some(Box::new(change)),
        ..Changes::default()
    };
    let scope = CapScope::Queue(namespace("default"), TaskKind::Activity, "orders".into());
    changes.add_caps([Cap { scope, max }]);
    changes
}

pub async fn a_cap_holds_over_all_servers(first: &dyn Store, second: &dyn Store) {
    const MAX: u64 = 5;
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(create(first, &format!("w{number}")).await);
    }
    let mut accepted = BTreeSet::new();
    let mut left: Vec<usize> = (0..runs.len()).collect();
    // A commit that loses a race is tried again; one that meets the cap is not.
    for _ in 0..100 {
        let tries = left.iter().map(|number| {
            let store = if number % 2 == 0 { first } else { second };
            let changes = leasing(&runs[*number], &format!("t{number}"), MAX);
            store.commit(Arc::new(changes))
        });
        let outcomes = futures::future::join_all(tries).await;
        let mut lost = Vec::new();
        for (number, outcome) in left.iter().zip(outcomes) {
            match outcome {
                Ok(()) => drop(accepted.insert(*number)),
                Err(Error::Conflict) => lost.push(*number),
                Err(Error::CapReached(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        left = lost;
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(accepted.len() as u64, MAX);
    // The end of a lease makes room for one.
    let ended = *accepted.first().expect("some were accepted");
    let run = first.run(runs[ended].run_id()).await.unwrap().unwrap();
    let mut change = next(&run);
    change.tasks = vec![task(&change, &format!("t{ended}"), TaskStatus::Completed)];
    commit(second, change).await.unwrap();
    let free: Vec<usize> = (0..20)
        .filter(|number| !accepted.contains(number))
        .collect();
    let again = |number: usize| leasing(&runs[number], &format!("t{number}"), MAX);
    first.commit(Arc::new(again(free[0]))).await.unwrap();
    let refused = second.commit(Arc::new(again(free[1]))).await;
    assert!(matches!(refused, Err(Error::CapReached(_))), "{refused:?}");
    // Without a cap it is stored, and a renewal of a lease adds nothing.
    let run = first.run(runs[free[0]].run_id()).await.unwrap().unwrap();
    let renewed = leasing(&run, &format!("t{}", free[0]), MAX);
    second.commit(Arc::new(renewed)).await.unwrap();
}

pub async fn caps_count_by_namespace_definition_and_worker(first: &dyn Store, _: &dyn Store) {
    let run = create(first, "w").await;
    let mut change = next(&run);
    let mut row = task(&change, "a", TaskStatus::Leased);
    row.kind = TaskKind::Execution;
    change.tasks = vec![row];
    let run = advance(first, &run, change).await;
    let attempt = async |scope: CapScope, max: u64| {
        let mut change = next(&run);
        let mut row = task(&change, "b", TaskStatus::Leased);
        row.kind = TaskKind::Execution;
        row.queue = "elsewhere".into();
        change.tasks = vec![row];
        // Refused for another reason if the cap holds, so that nothing changes.
        change.base_version = Some(run.version + u64::from(max > 1));
        let mut changes = Changes {
            run: Some(Box::new(change)),
            ..Changes::default()
        };
        changes.add_caps([Cap { scope, max }]);
        first.commit(Arc::new(changes)).await
    };
    let of_definition = CapScope::TaskDef(namespace("default"), "charge".to_owned());
    let of_namespace = CapScope::Namespace(namespace("default"), TaskKind::Execution);
    for scope in [of_definition, of_namespace] {
        let refused = attempt(scope.clone(), 1).await;
        assert!(
            matches!(&refused, Err(Error::CapReached(of)) if **of == scope),
            "{refused:?}"
        );
        let accepted = attempt(scope, 2).await;
        assert!(matches!(accepted, Err(Error::Conflict)), "{accepted:?}");
    }
}

pub async fn a_volatile_document_is_written_and_read_like_others(
    first: &dyn Store,
    second: &dyn Store,
) {
    let key = DocumentKey {
        kind: DocumentKind::Question,
        namespace: "default".to_owned(),
        name: "q1".to_owned(),
        qualifier: String::new(),
    };
    let created = DocumentChange::create(key.clone(), "1".to_owned(), at(0));
    let version = created.version;
    let commit = async |store: &dyn Store, change: DocumentChange| {
        store
            .commit(Arc::new(Changes::of_documents(vec![change])))
            .await
    };
    commit(first, created).await.unwrap();
    let replaced = || DocumentChange::replace(key.clone(), version, "2".to_owned());
    commit(second, replaced()).await.unwrap();
    let lost = commit(first, replaced()).await;
    assert!(matches!(lost, Err(Error::Conflict)), "{lost:?}");
    let listed = first.documents(DocumentKind::Question, None).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].body, "2");
    commit(first, DocumentChange::delete(key.clone(), version + 1))
        .await
        .unwrap();
    assert_eq!(second.document(&key).await.unwrap(), None);
}
