//! Runs, their parts, and which commits succeed.

use std::sync::Arc;

use futures::future;
use longhaul_engine::change::{Changes, InstanceChange, KeyClaim, TaskStatus};
use longhaul_engine::run::state::{ClosedReason, PartKey, Status};
use longhaul_engine::visibility::{Condition, Field, Matcher, Term, Test};
use longhaul_protocol::Payload;
use longhaul_protocol::sequence::HistorySeq;
use serde_json::{Map, json};

use super::fixture::{
    advance, at, close, command, commit, create, current, is_conflict, load, namespace, next, part,
    push_event, spec, start, task, timer,
};
use super::history::by_request;
use crate::{CommandRows, Due, DueLimits, Error, Page, RunFilter, RunRead, Store};

pub async fn a_created_run_loads_as_it_was_decided(store: &dyn Store) {
    let mut spec = spec("w", 1);
    spec.business_key = Some("order 7 \u{1f600}".to_owned());
    spec.run_timeout_seconds = Some(60);
    spec.run_deadline_at = Some(at(60));
    spec.declared
        .insert("declared_signals".to_owned(), json!(["a", {"b": null}]));
    let mut change = start(spec);
    change.core.alarm = Some(at(60));
    change.core.memo = Some(Payload::null());
    change.core.version_markers = Arc::new([("change".to_owned(), -1)].into());
    change.parts.push(timer(1, 5));
    let expected = change.apply(None);
    commit(store, change).await.unwrap();
    assert_eq!(load(store, expected.run_id()).await, Some(expected));
    assert_eq!(load(store, &"run-other-1".into()).await, None);
    let known = load(store, &"run-w-1".into()).await.map(Box::new);
    let missing = store.run_since(&"run-other-1".into(), known).await;
    assert_eq!(missing.unwrap(), RunRead::Missing);
    assert_eq!(current(store, "w").await, Some(("run-w-1".into(), 1)));
    assert_eq!(current(store, "other").await, None);
    let elsewhere = store
        .instance(&namespace("elsewhere"), &"w".into())
        .await
        .unwrap();
    assert_eq!(elsewhere, None);
}

pub async fn a_change_applies_on_top(store: &dyn Store) {
    let mut run = create(store, "w").await;
    for step in 2..6 {
        let mut change = next(&run);
        push_event(&mut change, "Step");
        change.core.status = if step % 2 == 0 {
            Status::Running
        } else {
            Status::Waiting
        };
        change.core.alarm = (step != 3).then(|| at(step / 2));
        let before = Box::new(run.clone());
        run = advance(store, &run, change).await;
        assert_eq!(load(store, run.run_id()).await, Some(run.clone()));
        assert_eq!(run.version, step.cast_unsigned());
        let known = Box::new(run.clone());
        let same = store.run_since(run.run_id(), Some(known.clone())).await;
        assert_eq!(same.unwrap(), RunRead::Unchanged(known.clone()));
        for older in [None, Some(before)] {
            let found = store.run_since(run.run_id(), older).await.unwrap();
            assert_eq!(found, RunRead::Found(known.clone()));
        }
    }
}

/// A copy of any earlier version becomes the newest run, whatever happened to its parts since.
pub async fn an_old_copy_of_a_run_becomes_the_newest(store: &dyn Store) {
    let mut run = create(store, "w").await;
    let mut copies = vec![run.clone()];
    for step in 2_u64..12 {
        let mut change = next(&run);
        push_event(&mut change, "Step");
        // Each part is added, written again, and removed.
        change.parts.push(timer(step, 5));
        if step > 4 {
            change.parts.push(timer(step - 2, 7));
            change.parts.push((timer(step - 3, 0).0, None));
        }
        run = advance(store, &run, change).await;
        copies.push(run.clone());
    }
    for copy in copies {
        let found = store.run_since(run.run_id(), Some(Box::new(copy))).await;
        let (RunRead::Found(found) | RunRead::Unchanged(found)) = found.unwrap() else {
            panic!("the run exists");
        };
        assert_eq!(*found, run);
    }
}

pub async fn every_kind_of_part_comes_back(store: &dyn Store) {
    let mut update = command(5, None);
    update.arguments = Some(Payload::empty_list());
    let signal = json!({
        "command_sequence": 3, "id": "s", "command_id": "c", "name": "go", "arguments": Payload::empty_list(),
    });
    let group = json!({"keys": {"parallel_group_id": "g:1:2"}, "levels": [
        {"id": "g:1:2", "kind": "mixed", "base": 1, "size": 2, "index": 0},
    ]});
    let activity = json!({
        "sequence": 1, "execution_id": "x", "activity_type": "charge", "queue": "orders", "scheduled_at": at(0),
        "task_id": "t", "available_at": at(1), "offered": true, "attempt_count": 1, "group": group,
        "attempt": {"id": "a", "number": 1, "owner": "worker", "started_at": at(2), "progress": {"done": [1, null, 2.5]}},
    });
    let child = json!({
        "sequence": 6, "call_id": "l", "workflow_id": "child", "first_run_id": "r", "run_id": "r", "run_number": 1, "workflow_type": "ship",
        "parent_close_policy": "request_cancel", "group": group,
    });
    let bodies = [
        (PartKey::Activity(1.into()), json!({"activity": activity})),
        (
            PartKey::Arguments(1.into()),
            json!({"arguments": Payload::empty_list()}),
        ),
        (
            PartKey::Timer(2.into()),
            json!({"timer": {
                "id": "t", "sequence": 2, "delay_seconds": 1, "fire_at": at(1), "kind": "signal_timeout",
            }}),
        ),
        (
            PartKey::Wait(3.into()),
            json!({"wait": {
                "id": "w", "sequence": 3, "what": {"signal": {"name": "go", "bound": null}},
            }}),
        ),
        (PartKey::Signal(3.into()), json!({"signal": signal})),
        (
            PartKey::Buffered(4.into()),
            json!({"buffered": {"signal": signal}}),
        ),
        (
            PartKey::Update(5.into()),
            json!({"update": {"command": update, "accepted_at": 3}}),
        ),
        (PartKey::Child(6.into()), json!({"child": child})),
        (PartKey::Adopted(1), json!({"adopted": child})),
        (
            PartKey::Outbox(1),
            json!({"outbox": {"retry_at": at(5), "body": "child_run_closed"}}),
        ),
        (
            PartKey::Group(1.into()),
            json!({"group": {"size": 2, "unresolved": 1, "failed": false}}),
        ),
        (
            PartKey::Member(1.into()),
            json!({"member": {"kind": "activity", "name": "charge", "group": group}}),
        ),
        (
            PartKey::Outcome,
            json!({"outcome": {"output": Payload::null()}}),
        ),
    ];
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.parts = bodies
        .into_iter()
        .map(|(key, body)| (key, Some(part(body))))
        .collect();
    let run = advance(store, &run, change).await;
    assert_eq!(load(store, run.run_id()).await, Some(run));
}

/// Also payload-sized text, text that needs escapes, and the smallest and largest integers.
pub async fn numbers_come_back_bit_for_bit(store: &dyn Store) {
    let mut change = start(spec("w", 1));
    let attributes = json!({
        "third": 1.0 / 3.0, "hard": 2.225_073_858_507_201e-308, "drifts": 907.303_832_202_868_9, "big": u64::MAX,
        "small": i64::MIN, "text": "quote \" newline \n nul \u{0} snowman \u{2603}", "long": "x".repeat(100_000),
        "empty": {}, "list": [],
    });
    change.core.search_attributes = Arc::new(attributes.as_object().cloned().unwrap());
    change.core.history_size_bytes = u64::MAX;
    let expected = change.apply(None);
    commit(store, change).await.unwrap();
    assert_eq!(load(store, expected.run_id()).await, Some(expected));
}

pub async fn parts_are_put_replaced_and_deleted(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.parts = vec![timer(1, 5), timer(2, 6), timer(10, 7)];
    let run = advance(store, &run, change).await;
    let mut change = next(&run);
    change.parts = vec![
        (PartKey::Timer(2.into()), None),
        timer(1, 8),
        (PartKey::Timer(99.into()), None),
    ];
    let run = advance(store, &run, change).await;
    assert_eq!(run.parts.len(), 2);
    assert_eq!(load(store, run.run_id()).await, Some(run.clone()));
    let mut change = next(&run);
    change.parts = vec![
        (PartKey::Timer(1.into()), None),
        (PartKey::Timer(10.into()), None),
        timer(1, 9),
        (PartKey::Timer(1.into()), None),
    ];
    let run = advance(store, &run, change).await;
    assert!(run.parts.is_empty());
    assert_eq!(load(store, run.run_id()).await, Some(run));
}

pub async fn a_stale_version_writes_nothing(store: &dyn Store) {
    let first = create(store, "w").await;
    let mut change = next(&first);
    push_event(&mut change, "Step");
    let second = advance(store, &first, change).await;
    for version in [0, 1, 3, u64::MAX - 1] {
        let mut stale = next(&second);
        stale.base_version = Some(version);
        push_event(&mut stale, "Stale");
        stale.core.alarm = Some(at(1));
        stale.parts.push(timer(1, 1));
        stale.tasks.push(task(&stale, "stale", TaskStatus::Ready));
        stale.commands.push(command(9, Some("request")));
        assert!(
            is_conflict(&commit(store, stale).await),
            "version {version}"
        );
    }
    assert_eq!(load(store, second.run_id()).await, Some(second.clone()));
    assert_eq!(
        store
            .history(
                second.run_id(),
                HistorySeq::new(0),
                HistorySeq::MAX,
                Page::of(10)
            )
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(store.task(&"stale".into()).await.unwrap(), None);
    let due = store.due(at(0), DueLimits::runs(1)).await.unwrap();
    assert_eq!(due, Due::default());
    let commands = store.commands(second.run_id(), None, 9).await.unwrap();
    assert_eq!(commands, CommandRows::default());
    let by_request = by_request(store, "w", "request").await;
    assert_eq!(by_request, None);
}

pub async fn a_run_is_created_once(store: &dyn Store) {
    let run = create(store, "w").await;
    // The same run id under another workflow id.
    let mut other = spec("v", 1);
    other.run_id = run.run_id().clone();
    assert!(is_conflict(&commit(store, start(other)).await));
    // A change of a run that does not exist.
    let missing = next(&start(spec("v", 1)).apply(None));
    assert!(is_conflict(&commit(store, missing).await));
    assert_eq!(load(store, run.run_id()).await, Some(run));
    assert_eq!(current(store, "v").await, None);
}

pub async fn a_taken_workflow_id_writes_nothing(store: &dyn Store) {
    create(store, "w").await;
    let mut again = spec("w", 1);
    again.run_id = "run-again".into();
    let mut change = start(again.clone());
    change.tasks.push(task(&change, "t", TaskStatus::Ready));
    assert!(is_conflict(&commit(store, change).await));
    assert_eq!(load(store, &"run-again".into()).await, None);
    assert_eq!(store.task(&"t".into()).await.unwrap(), None);
    assert_eq!(current(store, "w").await, Some(("run-w-1".into(), 1)));
    // The id is free in another namespace.
    again.namespace = "elsewhere".into();
    commit(store, start(again)).await.unwrap();
}

pub async fn an_idempotency_key_belongs_to_one_run(store: &dyn Store) {
    let claiming = |workflow: &str, key: &str, earlier: Option<&str>| {
        let mut change = start(spec(workflow, 1));
        change.key_claim = Some(KeyClaim {
            key: key.to_owned(),
            earlier: earlier.map(Into::into),
        });
        change
    };
    let space = namespace("default");
    let workflow_type = spec("a", 1).workflow_type;
    let owner = async |key: &str| {
        let found = store.run_by_key(&space, &workflow_type, key).await;
        found.unwrap().map(|run_id| run_id.to_string())
    };
    commit(store, claiming("a", "k", None)).await.unwrap();
    assert_eq!(owner("k").await.as_deref(), Some("run-a-1"));
    assert_eq!(owner("other").await, None);
    assert!(is_conflict(&commit(store, claiming("b", "k", None)).await));
    assert!(is_conflict(
        &commit(store, claiming("b", "k", Some("run-c-1"))).await
    ));
    assert!(is_conflict(
        &commit(store, claiming("b", "other", Some("run-a-1"))).await
    ));
    assert_eq!(load(store, &"run-b-1".into()).await, None);
    commit(store, claiming("b", "k", Some("run-a-1")))
        .await
        .unwrap();
    assert_eq!(owner("k").await.as_deref(), Some("run-b-1"));
    // Another workflow type and another namespace have keys of their own.
    for (workflow, other) in [("c", "type"), ("d", "namespace")] {
        let mut change = claiming(workflow, "k", None);
        let spec = Arc::make_mut(&mut change.spec);
        match other {
            "type" => spec.workflow_type = "another".to_owned(),
            _ => spec.namespace = "elsewhere".into(),
        }
        commit(store, change).await.unwrap();
    }
    assert_eq!(owner("k").await.as_deref(), Some("run-b-1"));
}

pub async fn continuing_moves_the_current_run(store: &dyn Store) {
    let first = create(store, "w").await;
    let mut closing = next(&first);
    close(&mut closing, ClosedReason::Continued);
    let created = start(spec("w", 2));
    let (closed, second) = (closing.apply(Some(first)), created.apply(None));
    store
        .commit(Arc::new(Changes {
            run: Some(Box::new(closing)),
            created: vec![created],
            ..Changes::default()
        }))
        .await
        .unwrap();
    assert_eq!(load(store, closed.run_id()).await, Some(closed));
    assert_eq!(load(store, second.run_id()).await, Some(second));
    assert_eq!(current(store, "w").await, Some(("run-w-2".into(), 2)));
    let filter = RunFilter {
        namespace: namespace("default"),
        program: None,
        workflow_type: None,
        status: None,
        condition: Some(Condition::Test(Test {
            field: Field::WorkflowId,
            matcher: Matcher::OneOf(vec![Term::Text("w".to_owned())]),
        })),
        after: None,
        limit: 10,
    };
    let mut runs = store.list_runs(&filter).await.unwrap();
    runs.sort_by_key(|run| run.run_number);
    let shown: Vec<_> = runs
        .iter()
        .map(|run| (run.run_id.as_str(), run.run_number, run.status))
        .collect();
    assert_eq!(
        shown,
        [
            ("run-w-1", 1, Status::Completed),
            ("run-w-2", 2, Status::Pending)
        ]
    );
    assert_eq!(runs[0].closed_reason, Some(ClosedReason::Continued));
}

/// A run and all the children it starts are one commit.
pub async fn many_runs_are_created_at_once(store: &dyn Store) {
    let parent = create(store, "parent").await;
    let changes = |names: &[&str]| Changes {
        run: Some(Box::new(next(&parent))),
        created: names.iter().map(|name| start(spec(name, 1))).collect(),
        ..Changes::default()
    };
    store
        .commit(Arc::new(changes(&["a", "b", "c"])))
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        assert!(current(store, name).await.is_some(), "{name}");
    }
    let parent = load(store, parent.run_id()).await.unwrap();
    let changes = Changes {
        run: Some(Box::new(next(&parent))),
        created: vec![start(spec("d", 1)), start(spec("b", 1))],
        ..Changes::default()
    };
    assert!(is_conflict(&store.commit(Arc::new(changes)).await));
    assert_eq!(current(store, "d").await, None);
    assert_eq!(load(store, parent.run_id()).await, Some(parent));
}

pub async fn a_workflow_moves_on_from_its_newest_run_only(store: &dyn Store) {
    assert!(
        is_conflict(&commit(store, start(spec("w", 2))).await),
        "run 1 does not exist"
    );
    create(store, "w").await;
    assert!(
        is_conflict(&commit(store, start(spec("w", 3))).await),
        "run 2 does not exist"
    );
    commit(store, start(spec("w", 2))).await.unwrap();
    let mut late = spec("w", 2);
    late.run_id = "run-late".into();
    assert!(
        is_conflict(&commit(store, start(late)).await),
        "another commit created run 2"
    );
    assert_eq!(current(store, "w").await, Some(("run-w-2".into(), 2)));
}

pub async fn a_stale_continuation_writes_neither_run(store: &dyn Store) {
    let first = create(store, "w").await;
    let second = advance(store, &first, next(&first)).await;
    let mut closing = next(&first);
    close(&mut closing, ClosedReason::Continued);
    let changes = Changes {
        run: Some(Box::new(closing)),
        created: vec![start(spec("w", 2))],
        ..Changes::default()
    };
    assert!(is_conflict(&store.commit(Arc::new(changes)).await));
    // And the other way round: the run is current, but the new one cannot be created.
    let mut closing = next(&second);
    close(&mut closing, ClosedReason::Continued);
    let changes = Changes {
        run: Some(Box::new(closing)),
        created: vec![start(spec("w", 7))],
        ..Changes::default()
    };
    assert!(is_conflict(&store.commit(Arc::new(changes)).await));
    assert_eq!(load(store, second.run_id()).await, Some(second));
    assert_eq!(load(store, &"run-w-2".into()).await, None);
    assert_eq!(load(store, &"run-w-7".into()).await, None);
}

/// Called one after the other without waiting, they are likely to share a batch; polled in reverse they still apply in the order of
/// the calls.
pub async fn commits_apply_in_the_order_of_the_calls(store: &dyn Store) {
    let mut change = start(spec("w", 1));
    let mut run = change.apply(None);
    let mut answers = Vec::new();
    for step in 0..50 {
        answers.push(commit_now(store, change));
        change = next(&run);
        push_event(&mut change, "Step");
        change.parts = vec![if step % 2 == 0 {
            timer(1, 1)
        } else {
            (PartKey::Timer(1.into()), None)
        }];
        run = change.apply(Some(run));
    }
    answers.push(commit_now(store, change));
    answers.reverse();
    for answer in answers {
        answer.await.unwrap();
    }
    assert_eq!(load(store, run.run_id()).await, Some(run.clone()));
    let events = store
        .history(
            run.run_id(),
            HistorySeq::new(0),
            HistorySeq::MAX,
            Page::of(100),
        )
        .await
        .unwrap();
    assert!(events.iter().map(|event| event.sequence).eq(1..=51));
}

pub async fn a_failed_commit_fails_those_built_on_it(store: &dyn Store) {
    let first = create(store, "w").await;
    let other = create(store, "v").await;
    let mut good = next(&first);
    push_event(&mut good, "Good");
    let mut stale = next(&first);
    push_event(&mut stale, "Stale");
    stale.base_version = Some(7);
    let mut upon = next(&stale.apply(Some(first.clone())));
    push_event(&mut upon, "Upon");
    let expected = good.apply(Some(first.clone()));
    let answers = [stale, upon, good, next(&other)].map(|change| commit_now(store, change));
    let [stale, upon, good, unrelated] = future::join_all(answers).await.try_into().unwrap();
    assert!(is_conflict(&stale) && is_conflict(&upon));
    good.unwrap();
    unrelated.unwrap();
    assert_eq!(load(store, expected.run_id()).await, Some(expected));
}

pub async fn of_concurrent_commits_on_one_version_one_wins(store: &dyn Store) {
    let run = create(store, "w").await;
    let answers = (0..20).map(|number| {
        let mut change = next(&run);
        change.parts.push(timer(number, 1));
        commit_now(store, change)
    });
    let answers = future::join_all(answers.collect::<Vec<_>>()).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(
        answers.iter().filter(|answer| is_conflict(answer)).count(),
        19
    );
    let winner = answers.iter().position(Result::is_ok).unwrap();
    let stored = load(store, run.run_id()).await.unwrap();
    assert_eq!(stored.version, 2);
    assert!(
        stored
            .parts
            .into_keys()
            .eq([PartKey::Timer((winner as u64).into())])
    );
}

pub async fn concurrent_commits_on_many_runs_all_succeed(store: &dyn Store) {
    let steps = (0..20).map(|number| async move {
        let mut run = create(store, &format!("w{number:02}")).await;
        for _ in 0..20 {
            let mut change = next(&run);
            push_event(&mut change, "Step");
            change
                .tasks
                .push(task(&change, &format!("task-{number}"), TaskStatus::Ready));
            run = advance(store, &run, change).await;
        }
        run
    });
    for run in future::join_all(steps).await {
        assert_eq!(load(store, run.run_id()).await, Some(run.clone()));
        assert_eq!(
            store
                .history(
                    run.run_id(),
                    HistorySeq::new(0),
                    HistorySeq::MAX,
                    Page::of(100)
                )
                .await
                .unwrap()
                .len(),
            21
        );
    }
}

pub async fn malformed_commits_are_refused(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut gap = next(&run);
    push_event(&mut gap, "A");
    gap.core.last_history_sequence = gap.core.last_history_sequence.next();
    push_event(&mut gap, "C");
    let mut beyond = next(&run);
    push_event(&mut beyond, "A");
    beyond.core.last_history_sequence = beyond.core.last_history_sequence.next();
    let mut nowhere = start(spec("v", 1));
    nowhere.instance = None;
    let mut renamed = start(spec("v", 2));
    renamed.instance = Some(InstanceChange::MoveCurrent { run_number: 3 });
    let mut twice = next(&run);
    twice.instance = Some(InstanceChange::Create);
    for change in [gap, beyond, nowhere, renamed, twice] {
        assert!(matches!(
            commit(store, change).await,
            Err(Error::Corrupt(_))
        ));
    }
    let both = Changes {
        run: Some(Box::new(start(spec("v", 1)))),
        created: vec![start(spec("v", 2))],
        ..Changes::default()
    };
    assert!(matches!(
        store.commit(Arc::new(both)).await,
        Err(Error::Corrupt(_))
    ));
    assert_eq!(load(store, run.run_id()).await, Some(run));
    assert_eq!(current(store, "v").await, None);
    store.commit(Arc::default()).await.unwrap();
}

/// A caller that drops the future does not undo the commit.
pub async fn a_commit_is_applied_although_its_caller_left(store: &dyn Store) {
    let mut change = start(spec("w", 1));
    change.core.search_attributes = Arc::new(Map::new());
    let run = change.apply(None);
    drop(commit_now(store, change));
    let after = advance(store, &run, next(&run)).await;
    assert_eq!(load(store, run.run_id()).await, Some(after));
}

/// Calls commit without waiting.
fn commit_now(
    store: &dyn Store,
    run: longhaul_engine::change::RunChange,
) -> crate::StoreFuture<'static, ()> {
    store.commit(Arc::new(Changes {
        run: Some(Box::new(run)),
        ..Changes::default()
    }))
}
