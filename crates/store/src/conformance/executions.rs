//! Searches for definition runs.

pub mod task_search;

use longhaul_engine::RunChange;
use longhaul_engine::run::state::{ClosedReason, PartKey, Program, Run};
use longhaul_engine::visibility::execution::{ExecutionField, free_text, parse_search, parse_sort};
use longhaul_engine::visibility::{Condition, Field, Matcher, Test};
use serde_json::{Value, json};

use super::fixture::{advance, at, close, commit, create, namespace, next, part, spec, start};
use super::lists::{all_runs, ids};
use crate::{ExecutionPage, ExecutionSearch, RunFilter, Store};

/// Returns the start of a definition run at a second. `state` is what differs from a plain one.
pub fn definition_run(run_id: &str, seconds: i64, state: Value) -> RunChange {
    let mut spec = spec(run_id, 1);
    spec.run_id = run_id.into();
    spec.program = Program::Definition;
    spec.task_queue = "".into();
    spec.started_at = at(seconds);
    let mut execution = json!({
        "version": 1,
        "snapshot": "hash",
        "last_seq": 0,
        "open_tasks": 0,
        "updated_at": at(seconds),
    });
    let Value::Object(state) = state else {
        panic!("the state of a run is an object")
    };
    let mut input = json!({});
    for (name, value) in state {
        match name.as_str() {
            "type" => spec.workflow_type = value.as_str().unwrap().to_owned(),
            "parent" => {
                let parent = json!({"workflow_id": value, "run_id": value, "sequence": 1, "call_id": "call", "attempt": 1});
                spec.parent = Some(serde_json::from_value(parent).unwrap());
            }
            "input" => input = value,
            _ => execution[name] = value,
        }
    }
    let mut change = start(spec);
    change.core.status = longhaul_engine::run::state::Status::Running;
    change.core.execution = Some(serde_json::from_value(execution).unwrap());
    let input = part(json!({"value": {"inline": input}}));
    change.parts.push((PartKey::Input, Some(input)));
    change
}

async fn begin(store: &dyn Store, run_id: &str, seconds: i64, state: Value) -> Run {
    let change = definition_run(run_id, seconds, state);
    let run = change.apply(None);
    commit(store, change).await.unwrap();
    run
}

/// Returns a search with a query and a sort order, either of which may be empty.
pub fn search(query: &str, sort: &str) -> ExecutionSearch {
    let condition = (!query.is_empty()).then(|| parse_search(query));
    ExecutionSearch {
        namespace: namespace("default"),
        condition: condition
            .map(|parsed| parsed.unwrap_or_else(|error| panic!("{query}: {error}"))),
        order: parse_sort(sort).unwrap(),
        offset: 0,
        limit: 100,
    }
}

fn shown(page: &ExecutionPage) -> Vec<&str> {
    page.runs.iter().map(|run| run.run_id.as_str()).collect()
}

async fn check(store: &dyn Store, query: &str, sort: &str, expected: &str) {
    let page = store.search_executions(&search(query, sort)).await.unwrap();
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(shown(&page), expected, "{query} {sort}");
    assert_eq!(page.total, expected.len() as u64, "{query} {sort}");
}

async fn end(store: &dyn Store, run: &Run, reason: ClosedReason, state: Value) -> Run {
    let mut change = next(run);
    close(&mut change, reason);
    set(&mut change, state);
    advance(store, run, change).await
}

/// Replaces members of the state of a definition run.
fn set(change: &mut RunChange, state: Value) {
    let mut execution = serde_json::to_value(&change.core.execution).unwrap();
    for (name, value) in state.as_object().unwrap() {
        execution[name] = value.clone();
    }
    change.core.execution = serde_json::from_value(execution).unwrap();
}

/// Four definition runs `a` to `d`, oldest first, and a run of code that no search shows.
async fn fill(store: &dyn Store) {
    create(store, "code").await;
    let a =
        json!({"type": "flow", "correlation_id": "c-1", "priority": 3, "input": {"Name": "Ann"}});
    let a = begin(store, "a", 1, a).await;
    end(store, &a, ClosedReason::Completed, json!({})).await;
    let b = begin(
        store,
        "b",
        2,
        json!({"type": "flow", "version": 2, "correlation_id": "c-1"}),
    )
    .await;
    let failed = json!({"reason": "Out of stock", "failed_references": "charge,ship"});
    end(store, &b, ClosedReason::TimedOut, failed).await;
    let c = json!({"type": "Other", "parent": "b", "correlation_id": "c-2", "created_by": "me", "idempotency_key": "k"});
    begin(store, "c", 3, c).await;
    let d = begin(
        store,
        "d",
        4,
        json!({"type": "flow", "classifier": "agent"}),
    )
    .await;
    let mut change = next(&d);
    set(&mut change, json!({"paused": true, "updated_at": at(50)}));
    advance(store, &d, change).await;
}

pub async fn a_search_finds_and_counts_its_runs(store: &dyn Store) {
    fill(store).await;
    for (query, expected) in [
        ("", "d c b a"),
        ("workflowId = 'b'", "b"),
        ("workflowType = 'flow'", "d b a"),
        ("workflowType = flow AND status = COMPLETED", "a"),
        (
            "workflowType IN (flow) AND status IN (RUNNING, PAUSED)",
            "d",
        ),
        ("workflowType = 'O*'", "c"),
        ("workflowType = 'o%*'", ""),
        ("workflowType != 'fl*'", "c"),
        ("status = TIMED_OUT", "b"),
        ("status != COMPLETED", "d c b"),
        ("status = COMPLETED OR status = RUNNING", "c a"),
        ("correlationId = 'c-1'", "b a"),
        ("correlationId IN (c-1, c-2) AND workflowType = flow", "b a"),
        (
            "correlationId = 'c-1' OR workflowType = flow OR status = PAUSED",
            "d b a",
        ),
        ("correlationId STARTS_WITH 'c-'", "c b a"),
        ("correlationId IS null", "d"),
        ("correlationId IS not null", "c b a"),
        ("version = 2", "b"),
        ("version >= 1", "d c b a"),
        ("priority > 0", "a"),
        ("priority = 0", "d c b"),
        ("parentWorkflowId = 'b'", "c"),
        ("parentWorkflowId = ''", "d b a"),
        ("parentWorkflowId != ''", "c"),
        ("createdBy = me AND idempotencyKey = k", "c"),
        ("classifier = agent", "d"),
        ("classifier = 'work*'", "c b a"),
        ("reasonForIncompletion = '*STOCK'", "b"),
        ("failedReferenceTaskNames = '*ship*'", "b"),
        ("failedReferenceTaskNames = ''", "d c a"),
        ("event IS null AND endTime IS null", "d c"),
        ("endTime > 0", "b a"),
        (
            "startTime > 1791860001999 AND startTime < 1791860004000",
            "c b",
        ),
        ("startTime = 1791860002000", "b"),
        ("startTime != 1791860002000", "d c a"),
        ("updateTime >= 1791860050000", "d"),
        ("updateTime < 1791860003000", "b a"),
        (
            "(status = PAUSED OR version = 2) AND workflowType = flow",
            "d b",
        ),
        ("status IS null", ""),
    ] {
        check(store, query, "", expected).await;
    }
    // A list of values may be empty, for every field with an index.
    for field in [
        Field::Execution(ExecutionField::CorrelationId),
        Field::Execution(ExecutionField::ParentId),
        Field::WorkflowType,
        Field::RunId,
    ] {
        let none = Condition::Test(Test {
            field,
            matcher: Matcher::OneOf(Vec::new()),
        });
        let search = ExecutionSearch {
            condition: Some(none),
            ..search("", "")
        };
        let page = store.search_executions(&search).await.unwrap();
        assert_eq!((shown(&page), page.total), (Vec::new(), 0));
    }
    check(store, "status = RUNNING AND status = FAILED", "", "").await;
    for (text, expected) in [
        ("ANN", vec!["a"]),
        ("out of", vec!["b"]),
        ("c-", vec!["c", "b", "a"]),
        ("agent", vec!["d"]),
        ("paused", vec!["d"]),
        ("inline", vec![]),
    ] {
        let search = ExecutionSearch {
            condition: free_text(text).unwrap(),
            ..search("", "")
        };
        let page = store.search_executions(&search).await.unwrap();
        assert_eq!(shown(&page), expected, "{text}");
        assert_eq!(page.total, expected.len() as u64);
    }
}

pub async fn a_search_sorts_and_pages(store: &dyn Store) {
    fill(store).await;
    for (sort, expected) in [
        ("startTime:DESC", "d c b a"),
        ("startTime:ASC", "a b c d"),
        ("workflowType:ASC|startTime:ASC", "c a b d"),
        ("workflowType:DESC", "d b a c"),
        ("correlationId:ASC", "d b a c"),
        ("endTime:DESC|workflowId:ASC", "a b c d"),
        ("status:ASC", "a d c b"),
        ("priority:DESC|version:DESC", "a b d c"),
        ("parentWorkflowId:DESC", "c d b a"),
        ("updateTime:DESC|nothing:ASC", "d c b a"),
        ("event:ASC", "d c b a"),
    ] {
        check(store, "", sort, expected).await;
        let expected: Vec<&str> = expected.split_whitespace().collect();
        for limit in 0..=5 {
            for offset in 0..=5 {
                let search = ExecutionSearch {
                    offset,
                    limit,
                    ..search("status != FAILED OR version = 1", sort)
                };
                let page = store.search_executions(&search).await.unwrap();
                let wanted: Vec<&str> = expected.iter().skip(offset).take(limit).copied().collect();
                assert_eq!(
                    (shown(&page), page.total),
                    (wanted, 4),
                    "{sort} {offset} {limit}"
                );
            }
        }
    }
}

/// Whatever a commit changes is found as soon as it is made, and shown as it was decided.
pub async fn a_search_follows_every_change(store: &dyn Store) {
    let run = begin(store, "a", 1, json!({"correlation_id": "old"})).await;
    check(store, "status = RUNNING", "", "a").await;
    let mut change = next(&run);
    set(&mut change, json!({"paused": true}));
    let run = advance(store, &run, change).await;
    check(store, "status = RUNNING", "", "").await;
    check(store, "status = PAUSED", "", "a").await;
    let mut change = next(&run);
    set(
        &mut change,
        json!({"paused": false, "priority": 9, "updated_at": at(9)}),
    );
    let run = advance(store, &run, change).await;
    check(
        store,
        "status = RUNNING AND priority = 9 AND updateTime >= 1791860009000",
        "",
        "a",
    )
    .await;
    let output =
        part(json!({"value": {"event": {"sequence": 2, "member": "output", "bytes": 5000}}}));
    let mut change = next(&run);
    close(&mut change, ClosedReason::Failed);
    set(
        &mut change,
        json!({"reason": "broken", "failed_references": "x", "failed_names": ["y"]}),
    );
    change.parts.push((PartKey::Output, Some(output)));
    let run = advance(store, &run, change).await;
    let query = "status = FAILED AND reasonForIncompletion = broken AND failedReferenceTaskNames = x AND endTime > 0";
    check(store, query, "", "a").await;
    let page = store.search_executions(&search("", "")).await.unwrap();
    let expected = longhaul_engine::conductor::execution::summary::ExecutionSummary::of(&run);
    assert_eq!(page.runs, [expected.unwrap()]);
    // Opened again under another id, and ended in the same way at another time.
    let mut change = next(&run);
    change.core.closed = None;
    change.core.status = longhaul_engine::run::state::Status::Running;
    set(
        &mut change,
        json!({"correlation_id": "new", "reason": null}),
    );
    let run = advance(store, &run, change).await;
    check(
        store,
        "status = RUNNING AND correlationId = new AND endTime IS null",
        "",
        "a",
    )
    .await;
    check(store, "correlationId = old", "", "").await;
    let run = end(store, &run, ClosedReason::Failed, json!({})).await;
    let first = run.core.closed.as_ref().unwrap().at;
    let mut change = next(&run);
    change.core.closed.as_mut().unwrap().at = first.plus_seconds(5);
    advance(store, &run, change).await;
    let millis = first.plus_seconds(5).as_micros() / 1000;
    check(store, &format!("endTime = {millis}"), "", "a").await;
}

/// A list shows the runs of one program, or of both if it asks for both.
pub async fn lists_keep_the_programs_apart(store: &dyn Store) {
    fill(store).await;
    for (program, expected) in [
        (Some(Program::Code), "run-code-1"),
        (Some(Program::Definition), "d c b a"),
        (None, "d c b run-code-1 a"),
    ] {
        let filter = RunFilter {
            program,
            ..all_runs()
        };
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(ids(store, &filter).await, expected);
        for run in store.list_runs(&filter).await.unwrap() {
            let is_code = run.run_id.as_str() == "run-code-1";
            assert_eq!(run.program == Program::Code, is_code, "{}", run.run_id);
        }
        let found = store.run_ids(&filter).await.unwrap();
        assert_eq!(
            found,
            expected.iter().map(|id| (*id).into()).collect::<Vec<_>>()
        );
    }
    for (status, expected) in [
        (crate::StatusFilter::Running, "d c run-code-1"),
        (crate::StatusFilter::Completed, "a"),
        (crate::StatusFilter::Failed, "b"),
    ] {
        let filter = RunFilter {
            program: None,
            status: Some(status),
            ..all_runs()
        };
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(ids(store, &filter).await, expected, "{status:?}");
    }
    // No index that a query of the other program reads along lets them through.
    for query in [
        "TaskQueue = ''",
        "RunId = a",
        "WorkflowId = a",
        "CloseTime > '2000-01-01T00:00:00Z'",
    ] {
        assert_eq!(
            ids(store, &super::visibility::filter_by(query)).await,
            [""; 0],
            "{query}"
        );
    }
}

pub async fn a_search_stays_in_its_namespace(store: &dyn Store) {
    let mut change = definition_run("a", 1, json!({"correlation_id": "c", "parent": "p"}));
    let mut spec = (*change.spec).clone();
    spec.namespace = "other".into();
    change.spec = std::sync::Arc::new(spec);
    commit(store, change).await.unwrap();
    for query in [
        "",
        "workflowId = a",
        "correlationId = c",
        "parentWorkflowId = p",
        "workflowType = order",
        "status = RUNNING",
    ] {
        check(store, query, "", "").await;
        let there = ExecutionSearch {
            namespace: namespace("other"),
            ..search(query, "workflowId:ASC")
        };
        let page = store.search_executions(&there).await.unwrap();
        assert_eq!((shown(&page), page.total), (vec!["a"], 1), "{query}");
    }
}
