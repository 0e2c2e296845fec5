//! Tasks: which ones each read returns, and in what order.

use longhaul_engine::change::{RunChange, TaskKind, TaskRow, TaskStatus};
use longhaul_engine::run::state::Run;
use serde_json::json;

use super::fixture::{KINDS, advance, at, create, namespace, next, task};
use crate::{LeaseFilter, QueueCount, QueueKey, Store, TaskPlace};

pub async fn a_task_is_found_in_every_status(store: &dyn Store) {
    let mut run = create(store, "w").await;
    let statuses = [
        TaskStatus::Scheduled,
        TaskStatus::Ready,
        TaskStatus::Leased,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];
    for status in statuses {
        let mut change = next(&run);
        let mut row = task(&change, "t", status);
        row.fairness_key = Some("tenant".to_owned());
        row.compatibility = Some("build".to_owned());
        row.poll_request_id = Some("poll".to_owned());
        if !status.is_open() {
            row.closed = Some(Box::new(
                serde_json::from_value(json!({
                    "report": {"verb": "complete", "owner": "worker-1", "attempt": 1, "answer": {
                        "task_id": "t", "activity_attempt_id": "b", "outcome": "completed", "next_task_id": null,
                    }},
                    "attempts": ["a", "b"],
                    "activity_status": "completed",
                }))
                .unwrap(),
            ));
        }
        change.tasks = vec![row.clone()];
        run = advance(store, &run, change).await;
        assert_eq!(store.task(&"t".into()).await.unwrap(), Some(row));
    }
    assert_eq!(store.task(&"other".into()).await.unwrap(), None);
}

pub async fn ready_tasks_come_in_matching_order(store: &dyn Store) {
    let run = create(store, "w").await;
    put(store, &run, |change| {
        let row = |id: &str, priority, available_at| TaskRow {
            priority,
            available_at: at(available_at),
            ..task(change, id, TaskStatus::Ready)
        };
        vec![
            row("g", 5, 10),
            row("b", 5, 3),
            row("a", 5, 3),
            row("z", 0, 99),
            row("c", 9, 0),
            TaskRow {
                queue: "other".into(),
                ..row("d", 0, 0)
            },
            TaskRow {
                kind: TaskKind::Workflow,
                ..row("e", 0, 0)
            },
            task(change, "f", TaskStatus::Scheduled),
            task(change, "h", TaskStatus::Leased),
        ]
    })
    .await;
    let ids = async |space: &str, kind, queue: &str, limit| {
        let queue = QueueKey {
            namespace: namespace(space),
            kind,
            queue: queue.into(),
        };
        let ready = store
            .ready_tasks(&queue, TaskPlace::Anywhere, limit)
            .await
            .unwrap();
        ready
            .into_iter()
            .map(|task| task.task_id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids("default", TaskKind::Activity, "orders", 100).await,
        ["z", "a", "b", "g", "c"]
    );
    assert_eq!(
        ids("default", TaskKind::Activity, "orders", 2).await,
        ["z", "a"]
    );
    assert_eq!(
        ids("default", TaskKind::Activity, "other", 100).await,
        ["d"]
    );
    assert_eq!(
        ids("default", TaskKind::Workflow, "orders", 100).await,
        ["e"]
    );
    assert_eq!(
        ids("elsewhere", TaskKind::Activity, "orders", 100).await,
        [""; 0]
    );
    assert_eq!(
        ids("default", TaskKind::Activity, "orders", 0).await,
        [""; 0]
    );
}

pub async fn ready_queues_are_those_with_work(store: &dyn Store) {
    assert_eq!(store.ready_queues().await.unwrap(), []);
    let run = create(store, "w").await;
    let mut expected = Vec::new();
    put(store, &run, |change| {
        let mut rows = vec![
            TaskRow {
                queue: "leased".into(),
                ..task(change, "l", TaskStatus::Leased)
            },
            TaskRow {
                queue: "later".into(),
                ..task(change, "s", TaskStatus::Scheduled)
            },
            TaskRow {
                queue: "done".into(),
                ..task(change, "c", TaskStatus::Completed)
            },
        ];
        for space in ["a", "b"] {
            for kind in KINDS {
                for queue in ["one", "one.two", "two"] {
                    let key = QueueKey {
                        namespace: space.into(),
                        kind,
                        queue: queue.into(),
                    };
                    for number in 0..3 {
                        rows.push(TaskRow {
                            namespace: key.namespace.clone(),
                            kind,
                            queue: key.queue.clone(),
                            ..task(
                                change,
                                &format!("{space}-{kind:?}-{queue}-{number}"),
                                TaskStatus::Ready,
                            )
                        });
                    }
                    expected.push(key);
                }
            }
        }
        rows
    })
    .await;
    assert_eq!(store.ready_queues().await.unwrap(), expected);
}

pub async fn leases_are_found_by_every_filter(store: &dyn Store) {
    let run = create(store, "w").await;
    put(store, &run, |change| {
        let leased = |id: &str| task(change, id, TaskStatus::Leased);
        vec![
            leased("d"),
            leased("a"),
            TaskRow {
                lease_owner: Some("worker-2".into()),
                ..leased("b")
            },
            TaskRow {
                queue: "other".into(),
                ..leased("c")
            },
            TaskRow {
                kind: TaskKind::Workflow,
                ..leased("e")
            },
            TaskRow {
                namespace: "elsewhere".into(),
                ..leased("f")
            },
            task(change, "g", TaskStatus::Ready),
            // The last holder does not make it leased.
            TaskRow {
                lease_owner: Some("worker-1".into()),
                ..task(change, "h", TaskStatus::Completed)
            },
        ]
    })
    .await;
    let ids = async |filter: LeaseFilter, limit| {
        let leased = store.leased_tasks(&filter, limit).await.unwrap();
        leased
            .into_iter()
            .map(|task| task.task_id.to_string())
            .collect::<String>()
    };
    let default = LeaseFilter {
        namespace: Some(namespace("default")),
        ..LeaseFilter::default()
    };
    let owner = Some("worker-1".into());
    assert_eq!(ids(LeaseFilter::default(), 100).await, "abcdef");
    assert_eq!(ids(LeaseFilter::default(), 2).await, "ab");
    assert_eq!(ids(default.clone(), 100).await, "abcde");
    assert_eq!(
        ids(
            LeaseFilter {
                owner: owner.clone(),
                ..LeaseFilter::default()
            },
            100
        )
        .await,
        "acdef"
    );
    assert_eq!(
        ids(
            LeaseFilter {
                queue: Some("other".into()),
                ..default.clone()
            },
            100
        )
        .await,
        "c"
    );
    assert_eq!(
        ids(
            LeaseFilter {
                kind: Some(TaskKind::Workflow),
                ..default.clone()
            },
            100
        )
        .await,
        "e"
    );
    let all = LeaseFilter {
        owner,
        queue: Some("orders".into()),
        kind: Some(TaskKind::Activity),
        ..default
    };
    assert_eq!(ids(all.clone(), 100).await, "ad");
    assert_eq!(ids(all, 1).await, "a");
}

pub async fn queue_counts_add_up(store: &dyn Store) {
    let run = create(store, "w").await;
    put(store, &run, |change| {
        let ready = |id: &str, seconds| TaskRow {
            available_at: at(seconds),
            ..task(change, id, TaskStatus::Ready)
        };
        vec![
            ready("a", 9),
            ready("b", 4),
            // The most urgent is not the oldest.
            TaskRow {
                priority: 0,
                ..ready("c", 7)
            },
            task(change, "d", TaskStatus::Leased),
            TaskRow {
                kind: TaskKind::Workflow,
                ..task(change, "e", TaskStatus::Leased)
            },
            TaskRow {
                queue: "another".into(),
                ..ready("f", 1)
            },
            TaskRow {
                namespace: "elsewhere".into(),
                ..ready("g", 1)
            },
            task(change, "h", TaskStatus::Scheduled),
            task(change, "i", TaskStatus::Failed),
            TaskRow {
                kind: TaskKind::Execution,
                ..task(change, "j", TaskStatus::Scheduled)
            },
            TaskRow {
                kind: TaskKind::Execution,
                ..task(change, "k", TaskStatus::Completed)
            },
        ]
    })
    .await;
    let count = |queue: &str, kind, ready, leased, oldest: Option<i64>| QueueCount {
        queue: queue.into(),
        kind,
        ready,
        leased,
        delayed: u64::from(kind == TaskKind::Execution),
        oldest_ready_at: oldest.map(at),
    };
    let expected = [
        count("another", TaskKind::Activity, 1, 0, Some(1)),
        count("orders", TaskKind::Workflow, 0, 1, None),
        count("orders", TaskKind::Activity, 3, 1, Some(4)),
        count("orders", TaskKind::Execution, 0, 0, None),
    ];
    assert_eq!(
        store.queue_counts(&namespace("default")).await.unwrap(),
        expected
    );
    assert_eq!(store.queue_counts(&namespace("nowhere")).await.unwrap(), []);
}

pub async fn finished_tasks_leave_the_queues(store: &dyn Store) {
    let mut run = create(store, "w").await;
    let queue = QueueKey {
        namespace: namespace("default"),
        kind: TaskKind::Activity,
        queue: "orders".into(),
    };
    let steps = [
        (TaskStatus::Scheduled, 0, 0),
        (TaskStatus::Ready, 1, 0),
        (TaskStatus::Leased, 0, 1),
        (TaskStatus::Leased, 0, 1),
        (TaskStatus::Ready, 1, 0),
        (TaskStatus::Leased, 0, 1),
        (TaskStatus::Completed, 0, 0),
    ];
    for (status, ready, leased) in steps {
        run = put(store, &run, |change| vec![task(change, "t", status)]).await;
        assert_eq!(
            store
                .ready_tasks(&queue, TaskPlace::Anywhere, 10)
                .await
                .unwrap()
                .len(),
            ready,
            "{status:?}"
        );
        assert_eq!(
            store
                .leased_tasks(&LeaseFilter::default(), 10)
                .await
                .unwrap()
                .len(),
            leased,
            "{status:?}"
        );
    }
    assert_eq!(store.queue_counts(&queue.namespace).await.unwrap(), []);
}

async fn put(store: &dyn Store, run: &Run, tasks: impl FnOnce(&RunChange) -> Vec<TaskRow>) -> Run {
    let mut change = next(run);
    change.tasks = tasks(&change);
    advance(store, run, change).await
}
