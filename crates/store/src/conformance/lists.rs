//! Lists of runs, and due runs.

use std::sync::Arc;

use longhaul_engine::run::state::{ClosedReason, Program, Run, Status};
use longhaul_protocol::id::RunId;
use longhaul_protocol::{Payload, Timestamp};
use serde_json::json;

use super::fixture::{advance, at, close, commit, create, namespace, next, spec, start};
use crate::{DueLimits, RunFilter, StatusFilter, Store};

pub fn all_runs() -> RunFilter {
    RunFilter {
        namespace: namespace("default"),
        program: Some(Program::Code),
        workflow_type: None,
        status: None,
        condition: None,
        after: None,
        limit: 100,
    }
}

pub(super) async fn ids(store: &dyn Store, filter: &RunFilter) -> Vec<String> {
    store
        .list_runs(filter)
        .await
        .unwrap()
        .into_iter()
        .map(|run| run.run_id.to_string())
        .collect()
}

pub(super) async fn create_at(
    store: &dyn Store,
    run_id: &str,
    seconds: i64,
    workflow_type: &str,
) -> Run {
    let mut spec = spec(run_id, 1);
    spec.run_id = run_id.into();
    spec.started_at = at(seconds);
    spec.workflow_type = workflow_type.to_owned();
    let change = start(spec);
    let run = change.apply(None);
    commit(store, change).await.unwrap();
    run
}

/// Pages of every size, over runs of several statuses that started at the same times, join to the whole list.
pub async fn pages_are_newest_first_with_ties(store: &dyn Store) {
    let mut expected = Vec::new();
    for seconds in 0..5 {
        for tie in ["a", "b", "c"] {
            let run_id = format!("{seconds}{tie}");
            let run = create_at(store, &run_id, seconds, "order").await;
            if tie != "b" {
                let mut change = next(&run);
                close(
                    &mut change,
                    if tie == "a" {
                        ClosedReason::Completed
                    } else {
                        ClosedReason::Terminated
                    },
                );
                advance(store, &run, change).await;
            }
            expected.push(run_id);
        }
    }
    expected.reverse();
    assert_eq!(ids(store, &all_runs()).await, expected);
    for limit in 1..=expected.len() + 1 {
        let mut filter = RunFilter {
            limit,
            ..all_runs()
        };
        let mut joined = Vec::new();
        loop {
            let page = store.list_runs(&filter).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            filter.after = Some((last.started_at, last.run_id.clone()));
            joined.extend(page.into_iter().map(|run| run.run_id.to_string()));
        }
        assert_eq!(joined, expected, "pages of {limit}");
    }
    assert_eq!(
        ids(
            store,
            &RunFilter {
                limit: 0,
                ..all_runs()
            }
        )
        .await,
        [""; 0]
    );
    // A cursor need not name an existing run.
    let between = RunFilter {
        after: Some((at(2), "2bb".into())),
        limit: 2,
        ..all_runs()
    };
    assert_eq!(ids(store, &between).await, ["2b", "2a"]);
}

pub async fn every_filter_shows_its_runs(store: &dyn Store) {
    let reasons = [
        ("completed", ClosedReason::Completed),
        ("continued", ClosedReason::Continued),
        ("failed", ClosedReason::Failed),
        ("timed-out", ClosedReason::TimedOut),
        ("cancelled", ClosedReason::Cancelled),
        ("terminated", ClosedReason::Terminated),
    ];
    for (run_id, reason) in reasons {
        let run = create_at(
            store,
            run_id,
            0,
            if run_id == "failed" {
                "refund"
            } else {
                "order"
            },
        )
        .await;
        let mut change = next(&run);
        close(&mut change, reason);
        advance(store, &run, change).await;
    }
    for (run_id, status) in [
        ("pending", Status::Pending),
        ("running", Status::Running),
        ("waiting", Status::Waiting),
    ] {
        let run = create_at(
            store,
            run_id,
            0,
            if run_id == "waiting" {
                "refund"
            } else {
                "order"
            },
        )
        .await;
        let mut change = next(&run);
        change.core.status = status;
        advance(store, &run, change).await;
    }
    let mut elsewhere = spec("elsewhere", 1);
    elsewhere.namespace = "elsewhere".into();
    commit(store, start(elsewhere)).await.unwrap();

    let check = async |status, workflow_type: Option<&str>, expected: &[&str]| {
        let filter = RunFilter {
            status,
            workflow_type: workflow_type.map(str::to_owned),
            ..all_runs()
        };
        let mut expected = expected.to_vec();
        expected.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(
            ids(store, &filter).await,
            expected,
            "{status:?} {workflow_type:?}"
        );
    };
    let running = ["pending", "running", "waiting"];
    let failed = ["failed", "timed-out", "cancelled", "terminated"];
    check(
        None,
        None,
        &[&running[..], &failed[..], &["completed", "continued"]].concat(),
    )
    .await;
    check(Some(StatusFilter::Running), None, &running).await;
    check(
        Some(StatusFilter::Completed),
        None,
        &["completed", "continued"],
    )
    .await;
    check(Some(StatusFilter::Failed), None, &failed).await;
    check(Some(StatusFilter::Cancelled), None, &["cancelled"]).await;
    check(Some(StatusFilter::Terminated), None, &["terminated"]).await;
    check(None, Some("refund"), &["failed", "waiting"]).await;
    check(Some(StatusFilter::Running), Some("refund"), &["waiting"]).await;
    check(Some(StatusFilter::Failed), Some("refund"), &["failed"]).await;
    check(
        Some(StatusFilter::Failed),
        Some("order"),
        &["timed-out", "cancelled", "terminated"],
    )
    .await;
    check(None, Some("unknown"), &[]).await;
    let elsewhere = RunFilter {
        namespace: namespace("elsewhere"),
        program: Some(Program::Code),
        ..all_runs()
    };
    assert_eq!(ids(store, &elsewhere).await, ["run-elsewhere-1"]);
}

pub async fn a_summary_shows_the_newest_state(store: &dyn Store) {
    let mut spec = spec("w", 1);
    spec.business_key = Some("key".to_owned());
    spec.routing.compatibility = Some("build".to_owned());
    let change = start(spec);
    let run = change.apply(None);
    commit(store, change).await.unwrap();
    let summary = store.list_runs(&all_runs()).await.unwrap().remove(0);
    assert_eq!(
        (summary.namespace.as_str(), summary.workflow_id.as_str()),
        ("default", "w")
    );
    assert_eq!(
        (summary.run_id.as_str(), summary.run_number),
        ("run-w-1", 1)
    );
    assert_eq!(
        (summary.workflow_type.as_str(), summary.task_queue.as_str()),
        ("order", "orders")
    );
    assert_eq!(
        (summary.status, summary.closed_reason, summary.closed_at),
        (Status::Pending, None, None)
    );
    assert_eq!(summary.business_key.as_deref(), Some("key"));
    assert_eq!(summary.compatibility.as_deref(), Some("build"));
    assert_eq!(summary.started_at, at(1));
    assert!(summary.search_attributes.is_empty() && summary.memo.is_none());

    let mut change = next(&run);
    change.sets_search_attributes = true;
    change.core.search_attributes = Arc::new(
        json!({"colour": "red", "size": 2.5})
            .as_object()
            .cloned()
            .unwrap(),
    );
    change.core.memo = Some(Payload::empty_list());
    close(&mut change, ClosedReason::TimedOut);
    let closed_at = change.core.closed.as_ref().map(|closed| closed.at);
    advance(store, &run, change).await;
    let summary = store.list_runs(&all_runs()).await.unwrap().remove(0);
    assert_eq!(summary.status, Status::Failed);
    assert_eq!(summary.closed_reason, Some(ClosedReason::TimedOut));
    assert_eq!(summary.closed_at, closed_at);
    assert_eq!(summary.search_attributes["size"], 2.5);
    assert_eq!(summary.memo, Some(Payload::empty_list()));
}

async fn next_alarm(store: &dyn Store, seconds: i64) -> Option<Timestamp> {
    let due = store.due(at(seconds), DueLimits::runs(1)).await;
    due.unwrap().next
}

async fn due_runs(store: &dyn Store, seconds: i64) -> Vec<RunId> {
    let due = store.due(at(seconds), DueLimits::runs(10)).await;
    due.unwrap().runs
}

pub async fn alarms_are_due_earliest_first(store: &dyn Store) {
    assert_eq!(next_alarm(store, 0).await, None);
    for (workflow_id, alarm) in [
        ("d", Some(5)),
        ("a", Some(9)),
        ("c", Some(2)),
        ("b", Some(5)),
        ("e", None),
    ] {
        let run = create(store, workflow_id).await;
        let mut change = next(&run);
        change.core.alarm = alarm.map(at);
        advance(store, &run, change).await;
    }
    let due = async |seconds, limit| {
        let due = store
            .due(at(seconds), DueLimits::runs(limit))
            .await
            .unwrap();
        assert_eq!(due.sessions, []);
        due.runs
            .into_iter()
            .map(|run_id| run_id.as_str()[4..5].to_owned())
            .collect::<String>()
    };
    assert_eq!(next_alarm(store, 1).await, Some(at(2)));
    assert_eq!(next_alarm(store, 2).await, Some(at(5)));
    assert_eq!(next_alarm(store, 9).await, None);
    assert_eq!(due(1, 10).await, "");
    assert_eq!(due(2, 10).await, "c");
    assert_eq!(due(5, 10).await, "cbd");
    assert_eq!(due(100, 10).await, "cbda");
    assert_eq!(due(100, 2).await, "cb");
    // Moved, then removed.
    let mut run = store.run(&"run-c-1".into()).await.unwrap().unwrap();
    for (alarm, expected, earliest) in [
        (Some(7), "bdca", 5),
        (Some(7), "bdca", 5),
        (Some(1), "cbda", 1),
        (None, "bda", 5),
    ] {
        let mut change = next(&run);
        change.core.alarm = alarm.map(at);
        run = advance(store, &run, change).await;
        assert_eq!(due(100, 10).await, expected);
        assert_eq!(next_alarm(store, 0).await, Some(at(earliest)));
    }
}

/// A closed run is due only if its core has an alarm: it may have outbox messages to deliver.
pub async fn a_closed_run_is_due_if_its_core_has_an_alarm(store: &dyn Store) {
    let run = create(store, "w").await;
    let mut change = next(&run);
    change.core.alarm = Some(at(1));
    let run = advance(store, &run, change).await;
    assert_eq!(due_runs(store, 1).await.len(), 1);
    let mut change = next(&run);
    close(&mut change, ClosedReason::Cancelled);
    change.core.alarm = Some(at(2));
    let run = advance(store, &run, change).await;
    assert_eq!(due_runs(store, 1).await, []);
    assert_eq!(due_runs(store, 2).await.len(), 1);
    let mut change = next(&run);
    change.core.alarm = None;
    let run = advance(store, &run, change).await;
    assert_eq!(next_alarm(store, 0).await, None);
    assert_eq!(store.run(run.run_id()).await.unwrap(), Some(run));
}
