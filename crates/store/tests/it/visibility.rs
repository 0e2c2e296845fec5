//! Random queries over random runs: SQLite finds the runs that the query matches. And an index that is built for a file of an
//! earlier release finds the same.

use std::sync::Arc;

use longhaul_engine::change::Changes;
use longhaul_engine::run::state::{ClosedReason, Status};
use longhaul_store::conformance::fixture::{at, close, next, spec, start};
use longhaul_store::conformance::visibility::filter_by;
use longhaul_store::memory::Memory;
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{RunFilter, RunStore as _, RunSummary, Store};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug)]
struct Shape {
    seconds: i64,
    workflow_type: &'static str,
    queue: &'static str,
    build: Option<&'static str>,
    key: Option<&'static str>,
    status: Status,
    close: Option<ClosedReason>,
    attributes: Vec<(&'static str, Value)>,
    /// Set by a later change instead of at the start.
    changed: Vec<(&'static str, Value)>,
}

fn attributes() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let names = select(&["Region", "Note", "Count", "Price", "Vip", "Due", "Tags"][..]);
    let values = select(vec![
        json!("eu"),
        json!("europe"),
        json!("é\u{10ffff}x"),
        json!("'; --"),
        json!(""),
        json!(-1),
        json!(2),
        json!(2.0),
        json!(2.5),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(9_223_372_036_854_775_808.0),
        json!(-0.0),
        json!(true),
        json!(false),
        json!("2026-01-01T00:00:00Z"),
        json!("2026-01-01T02:00:00.5+02:00"),
        json!(["eu", "us", "eu"]),
        json!([]),
        json!("true"),
    ]);
    prop::collection::vec((names, values), 0..5)
}

fn shape() -> impl Strategy<Value = Shape> {
    let place = (
        0..4_i64,
        select(&["order", "refund"][..]),
        select(&["orders", "other"][..]),
        prop::option::of(select(&["b1", "b2"][..])),
        prop::option::of(select(&["Key A", "key-b", "'; --"][..])),
    );
    let state = (
        select(&[Status::Pending, Status::Running, Status::Waiting][..]),
        prop::option::of(select(
            &[
                ClosedReason::Completed,
                ClosedReason::TimedOut,
                ClosedReason::Cancelled,
                ClosedReason::Terminated,
            ][..],
        )),
    );
    (place, state, attributes(), attributes()).prop_map(
        |((seconds, workflow_type, queue, build, key), (status, close), attributes, changed)| {
            Shape {
                seconds,
                workflow_type,
                queue,
                build,
                key,
                status,
                close,
                attributes,
                changed,
            }
        },
    )
}

fn literals() -> impl Strategy<Value = (&'static str, &'static str)> {
    let text = select(
        &[
            "eu",
            "'europe'",
            "'é'",
            r"'\'; --'",
            "''",
            "\"us\"",
            "'true'",
        ][..],
    );
    let number = select(&["-1", "0", "2", "2.0", "2.5", "9223372036854775807"][..]);
    let time = select(
        &[
            "'2026-01-01T00:00:00Z'",
            "2026-01-01T00:00:00.5Z",
            "'2027-01-01T00:00:00+09:00'",
        ][..],
    );
    prop_oneof![
        (select(&["Region", "Note", "Tags"][..]), text),
        (select(&["Price"][..]), number),
        (
            select(&["Count"][..]),
            select(&["-1", "0", "2", "9223372036854775807"][..])
        ),
        (select(&["Vip"][..]), select(&["true", "false"][..])),
        (select(&["Due", "CloseTime", "StartTime"][..]), time),
        (
            select(&["StartTime"][..]),
            select(&["2026-10-13T02:53:21.000007Z", "2026-10-13T02:53:22.000007Z"][..])
        ),
        (
            select(&["Status"][..]),
            select(&["running", "pending", "completed", "failed", "cancelled"][..])
        ),
        (
            select(&["WorkflowType"][..]),
            select(&["order", "refund", "none"][..])
        ),
        (select(&["TaskQueue"][..]), select(&["orders", "none"][..])),
        (select(&["BuildId"][..]), select(&["b1", "b3"][..])),
        (
            select(&["WorkflowId", "RunId"][..]),
            select(&["w-3", "run-3", "w"][..])
        ),
    ]
}

/// Generates mostly valid queries; the caller drops the invalid ones.
fn predicate() -> impl Strategy<Value = String> {
    let operators = select(
        &[
            "=",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "IN",
            "NOT IN",
            "STARTS_WITH",
            "NOT STARTS_WITH",
        ][..],
    );
    prop_oneof![
        12 => (literals(), literals(), operators, prop::bool::weighted(0.2)).prop_map(
            |((field, literal), (other, second), operator, negated)| {
                let not = if negated { "NOT " } else { "" };
                match operator {
                    "IN" | "NOT IN" if other == field => format!("{not}{field} {operator} ({literal}, {second})"),
                    "IN" | "NOT IN" => format!("{not}{field} {operator} ({literal})"),
                    _ => format!("{not}{field} {operator} {literal}"),
                }
            }
        ),
        1 => select(&["Vip", "NOT Vip"][..]).prop_map(str::to_owned),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let whole = predicate().prop_recursive(3, 12, 3, |inner| {
        (
            prop::collection::vec(inner, 1..4),
            select(&[" AND ", " OR "][..]),
            any::<bool>(),
        )
            .prop_map(|(parts, between, negated)| {
                let not = if negated { "NOT " } else { "" };
                format!("{not}({})", parts.join(between))
            })
    });
    prop_oneof![
        12 => whole,
        1 => select(&["key", "KEY-B", "w-1", "\"'; --\"", "none"][..]).prop_map(str::to_owned),
    ]
}

fn map(attributes: &[(&'static str, Value)]) -> Map<String, Value> {
    attributes
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

async fn fill(store: &dyn Store, shapes: &[Shape]) {
    for (number, shape) in shapes.iter().enumerate() {
        let mut spec = spec(&format!("w-{number}"), 1);
        spec.run_id = format!("run-{number}").into();
        spec.started_at = at(shape.seconds);
        spec.workflow_type = shape.workflow_type.to_owned();
        spec.task_queue = shape.queue.into();
        spec.business_key = shape.key.map(str::to_owned);
        spec.routing.compatibility = shape.build.map(str::to_owned);
        let mut change = start(spec);
        change.core.search_attributes = Arc::new(map(&shape.attributes));
        let run = change.apply(None);
        let created = Changes {
            run: None,
            created: vec![change],
            ..Changes::default()
        };
        store.commit(Arc::new(created)).await.unwrap();
        let mut change = next(&run);
        change.core.status = shape.status;
        if !shape.changed.is_empty() {
            change.core.search_attributes = Arc::new(map(&shape.changed));
            change.sets_search_attributes = true;
        }
        if let Some(reason) = shape.close {
            close(&mut change, reason);
        }
        let changed = Changes {
            run: Some(Box::new(change)),
            created: Vec::new(),
            ..Changes::default()
        };
        store.commit(Arc::new(changed)).await.unwrap();
    }
}

/// Returns all pages of a size, joined.
async fn pages(store: &dyn Store, filter: &RunFilter) -> Vec<RunSummary> {
    let mut filter = filter.clone();
    let mut joined = Vec::new();
    loop {
        let page = store.list_runs(&filter).await.unwrap();
        let Some(last) = page.last() else {
            return joined;
        };
        filter.after = Some((last.started_at, last.run_id.clone()));
        joined.extend(page);
    }
}

async fn check(shapes: &[Shape], queries: &[RunFilter], model: &Memory, store: &dyn Store) {
    fill(model, shapes).await;
    fill(store, shapes).await;
    for filter in queries {
        let expected = model.list_runs(filter).await.unwrap();
        assert_eq!(
            store.list_runs(filter).await.unwrap(),
            expected,
            "{filter:?}"
        );
        let short = RunFilter {
            limit: 3,
            ..filter.clone()
        };
        assert_eq!(pages(store, &short).await, expected, "{filter:?}");
    }
}

fn understood(queries: &[String]) -> Vec<RunFilter> {
    let definitions = longhaul_store::conformance::visibility::definitions();
    queries
        .iter()
        .filter(|query| longhaul_engine::visibility::parse(query, &definitions).is_ok())
        .map(|query| filter_by(query))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn sqlite_finds_the_runs_that_a_query_matches(
        shapes in prop::collection::vec(shape(), 1..24),
        queries in prop::collection::vec(query(), 40),
    ) {
        let (sqlite, _directory) = crate::files::temporary();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(&shapes, &understood(&queries), &Memory::new(), &*sqlite));
    }
}

#[test]
fn postgres_finds_the_runs_that_a_query_matches() {
    let shapes = prop::collection::vec(shape(), 1..24);
    let cases = (shapes, prop::collection::vec(query(), 40));
    crate::postgres::check_random(4, &cases, async |store, clear, (shapes, queries)| {
        clear();
        check(&shapes, &understood(&queries), &Memory::new(), store).await;
    });
}

#[test]
fn most_random_queries_are_valid() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let queries: Vec<String> = (0..200)
        .map(|_| query().new_tree(&mut runner).unwrap().current())
        .collect();
    let share = understood(&queries).len();
    assert!(share > 60, "{share} of 200");
}

#[tokio::test]
async fn a_file_of_an_earlier_release_is_indexed_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let shapes: Vec<Shape> = (0..30)
        .map(|number| Shape {
            seconds: number,
            workflow_type: "order",
            queue: "orders",
            build: None,
            key: None,
            status: Status::Waiting,
            close: (number % 2 == 0).then_some(ClosedReason::Completed),
            attributes: vec![("Count", json!(number)), ("Tags", json!(["a", "b"]))],
            changed: Vec::new(),
        })
        .collect();
    let queries = [
        "Count > 20",
        "Tags = a AND CloseTime > '2000-01-01T00:00:00Z'",
    ]
    .map(filter_by);
    let model = Memory::new();
    check(&shapes, &queries, &model, &Sqlite::open(&path).unwrap()).await;
    // As the first schema left it.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "DELETE FROM run_attributes; UPDATE runs SET closed_at = NULL; INSERT INTO rebuilds VALUES ('visibility');",
        )
        .unwrap();
    let opened = Sqlite::open(&path).unwrap();
    for filter in &queries {
        let expected = model.list_runs(filter).await.unwrap();
        assert!(!expected.is_empty());
        assert_eq!(opened.list_runs(filter).await.unwrap(), expected);
    }
}
