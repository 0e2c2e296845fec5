//! Random searches over random definition runs: SQLite finds, counts and sorts as the model does. And a file of an earlier release
//! is searched like a new one.

use std::sync::Arc;

use longhaul_engine::change::Changes;
use longhaul_engine::run::state::ClosedReason;
use longhaul_engine::visibility::execution::parse_search;
use longhaul_store::conformance::executions::{definition_run, search};
use longhaul_store::conformance::fixture::{close, next};
use longhaul_store::conformance::task_search;
use longhaul_store::memory::Memory;
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{ExecutionSearch, RunStore as _, Store};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
struct Shape {
    seconds: i64,
    state: Value,
    paused: bool,
    close: Option<ClosedReason>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let texts = select(&["a", "A_b", "a%", "é*", "'; --", ""][..]);
    let optional = || prop::option::of(texts.clone());
    let state = (
        select(&["order", "Order", "or_er", "o'r"][..]),
        (1..4, 0..3),
        (optional(), optional(), optional(), optional()),
        prop::option::of(select(&["w-1", "w-2"][..])),
        texts.clone(),
    );
    let closes = select(vec![
        None,
        Some(ClosedReason::Completed),
        Some(ClosedReason::Failed),
        Some(ClosedReason::TimedOut),
        Some(ClosedReason::Terminated),
    ]);
    (0..4_i64, state, any::<bool>(), closes).prop_map(|(seconds, state, paused, close)| {
        let (name, (version, priority), (correlation, by, key, reason), parent, word) = state;
        let mut members = json!({
            "type": name, "version": version, "priority": priority, "correlation_id": correlation, "created_by": by,
            "idempotency_key": key, "reason": reason, "input": {"word": word, "n": [priority, null]},
        });
        if let Some(parent) = parent {
            members["parent"] = json!(parent);
        }
        Shape {
            seconds,
            state: members,
            paused,
            close,
        }
    })
}

fn term() -> impl Strategy<Value = String> {
    let texts = select(
        &[
            "workflowType",
            "correlationId",
            "createdBy",
            "idempotencyKey",
            "reasonForIncompletion",
            "parentWorkflowId",
            "workflowId",
            "classifier",
            "failedReferenceTaskNames",
            "event",
        ][..],
    );
    let values = select(
        &[
            "order",
            "'or_er'",
            "'o*r'",
            "'*'",
            "a",
            "'A_b'",
            "'a%'",
            "'a*'",
            "'é*'",
            "\"'; --\"",
            "''",
            "w-1",
            "'w-*'",
            "workflow",
        ][..],
    );
    let compare = select(&["=", "!=", "<", "<=", ">", ">=", "STARTS_WITH"][..]);
    let numbers = (
        select(&["version", "priority"][..]),
        select(&["0", "1", "2", "1.5", "-1"][..]),
    );
    let times = (
        select(&["startTime", "endTime", "updateTime"][..]),
        select(
            &[
                "1791860001000",
                "1791860002000",
                "'2026-10-13T02:53:21Z'",
                "0",
                "9999999999999999999",
            ][..],
        ),
    );
    let statuses = select(&["RUNNING", "PAUSED", "COMPLETED", "'T*'", "FAILED"][..]);
    let orders = || select(&["=", "!=", "<", "<=", ">", ">="][..]);
    prop_oneof![
        (texts.clone(), compare, values.clone())
            .prop_map(|(field, op, value)| format!("{field} {op} {value}")),
        (texts.clone(), values.clone(), values)
            .prop_map(|(field, one, two)| format!("{field} IN ({one}, {two})")),
        (texts, select(&["IS null", "IS not null"][..]))
            .prop_map(|(field, op)| format!("{field} {op}")),
        (numbers, orders()).prop_map(|((field, value), op)| format!("{field} {op} {value}")),
        (times, orders()).prop_map(|((field, value), op)| format!("{field} {op} {value}")),
        (select(&["=", "!="][..]), statuses)
            .prop_map(|(op, status)| format!("status {op} {status}")),
    ]
}

fn query() -> impl Strategy<Value = String> {
    let joined = prop::collection::vec((term(), select(&[" AND ", " OR "][..])), 1..4);
    joined.prop_map(|terms| {
        let mut text = String::new();
        for (place, (term, word)) in terms.into_iter().enumerate() {
            if place > 0 {
                text.push_str(word);
            }
            text.push_str(&term);
        }
        text
    })
}

fn sort() -> impl Strategy<Value = String> {
    let field = select(
        &[
            "workflowType",
            "status",
            "startTime",
            "endTime",
            "updateTime",
            "priority",
            "version",
            "correlationId",
            "parentWorkflowId",
            "createdBy",
            "reasonForIncompletion",
            "classifier",
            "event",
        ][..],
    );
    let key =
        (field, select(&["ASC", "DESC"][..])).prop_map(|(field, way)| format!("{field}:{way}"));
    prop::collection::vec(key, 0..3).prop_map(|keys| keys.join("|"))
}

async fn fill(store: &dyn Store, shapes: &[Shape]) {
    for (number, shape) in shapes.iter().enumerate() {
        let change = definition_run(&format!("w-{number}"), shape.seconds, shape.state.clone());
        let run = change.apply(None);
        let created = Changes {
            created: vec![change],
            ..Changes::default()
        };
        store.commit(Arc::new(created)).await.unwrap();
        let mut change = next(&run);
        change.core.execution.as_mut().unwrap().paused = shape.paused && shape.close.is_none();
        if let Some(reason) = shape.close {
            close(&mut change, reason);
        }
        let changed = Changes {
            run: Some(Box::new(change)),
            ..Changes::default()
        };
        store.commit(Arc::new(changed)).await.unwrap();
    }
}

async fn check(shapes: &[Shape], searches: &[ExecutionSearch], model: &Memory, store: &dyn Store) {
    fill(model, shapes).await;
    fill(store, shapes).await;
    compare(searches, model, store).await;
}

async fn compare(searches: &[ExecutionSearch], model: &Memory, store: &dyn Store) {
    for search in searches {
        let expected = model.search_executions(search).await.unwrap();
        let found = store.search_executions(search).await.unwrap();
        assert_eq!(found, expected, "{search:?}");
    }
}

/// Returns the searches whose queries are valid.
fn understood(asked: &[(String, String, usize, usize)]) -> Vec<ExecutionSearch> {
    asked
        .iter()
        .filter(|(query, ..)| parse_search(query).is_ok())
        .map(|(query, sort, offset, limit)| ExecutionSearch {
            offset: *offset,
            limit: *limit,
            ..search(query, sort)
        })
        .collect()
}

#[test]
fn postgres_finds_the_definition_runs_that_a_query_matches() {
    let shapes = prop::collection::vec(shape(), 1..16);
    let asked = (query(), sort(), 0..4_usize, 1..20_usize);
    let cases = (shapes, prop::collection::vec(asked, 30));
    crate::postgres::check_random(4, &cases, async |store, clear, (shapes, asked)| {
        clear();
        check(&shapes, &understood(&asked), &Memory::new(), store).await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn sqlite_finds_the_definition_runs_that_a_query_matches(
        shapes in prop::collection::vec(shape(), 1..16),
        asked in prop::collection::vec((query(), sort(), 0..4_usize, 1..20_usize), 30),
    ) {
        let searches = understood(&asked);
        let (sqlite, _directory) = crate::files::temporary();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(&shapes, &searches, &Memory::new(), &*sqlite));
    }
}

#[tokio::test]
async fn definition_runs_of_an_earlier_release_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let closes = [
        None,
        Some(ClosedReason::Completed),
        Some(ClosedReason::TimedOut),
        Some(ClosedReason::Terminated),
    ];
    let shapes: Vec<Shape> = (0..12)
        .map(|number| Shape {
            seconds: number,
            state: json!({"correlation_id": "c", "parent": format!("p-{}", number % 2)}),
            paused: number % 3 == 0,
            close: closes[usize::try_from(number).unwrap() % closes.len()],
        })
        .collect();
    let searches = [
        "correlationId = c",
        "parentWorkflowId = 'p-1'",
        "status = PAUSED",
        "status = TIMED_OUT",
        "status = RUNNING",
    ]
    .map(|query| search(query, ""));
    let model = Memory::new();
    check(&shapes, &searches, &model, &Sqlite::open(&path).unwrap()).await;
    // As the schema before left it.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "DROP INDEX runs_by_correlation; DROP INDEX runs_by_parent;
             ALTER TABLE runs DROP COLUMN correlation_id; ALTER TABLE runs DROP COLUMN parent_id;
             UPDATE runs SET list_status = 'running' WHERE list_status IN ('RUNNING', 'PAUSED');
             UPDATE runs SET list_status = 'failed' WHERE list_status = 'TIMED_OUT';
             UPDATE runs SET list_status = lower(list_status);",
        )
        .unwrap();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(include_str!("../../migrations/sqlite/V7__executions.sql"))
        .unwrap();
    compare(&searches, &model, &Sqlite::open(&path).unwrap()).await;
}

#[tokio::test]
async fn tasks_of_an_earlier_release_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let searches = [
        ("", ""),
        ("taskType = greet", "taskId:ASC"),
        ("taskDefName = script", ""),
        ("correlationId = 'c-1'", ""),
        ("workflowType = flow AND status = FAILED", ""),
        ("startTime IS null", ""),
        ("domain = blue", ""),
        ("", "updateTime:DESC|endTime:ASC"),
        ("scheduledTime > 1767225601000", ""),
    ]
    .map(|(query, sort)| task_search::search(query, sort));
    let model = Memory::new();
    task_search::fill(&model).await;
    task_search::fill(&Sqlite::open(&path).unwrap()).await;
    // As the schema before left it.
    let columns = [
        "run_id",
        "sequence",
        "task_type",
        "def_name",
        "reference",
        "shown_status",
        "workflow_type",
        "correlation_id",
        "domain",
        "scheduled_at",
        "started_at",
        "ended_at",
        "updated_at",
    ];
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(
        "DROP INDEX tasks_found_by_status; DROP INDEX tasks_found_by_type; DROP INDEX tasks_found_by_definition;
         DROP INDEX tasks_found_by_run; DELETE FROM schema_compatibility WHERE version = 16;",
    )
    .unwrap();
    for column in columns {
        let drop = format!("ALTER TABLE tasks DROP COLUMN {column}");
        file.execute_batch(&drop).unwrap();
    }
    let migration = include_str!("../../migrations/sqlite/V16__task_search.sql");
    file.execute_batch(migration).unwrap();
    drop(file);
    let store = Sqlite::open(&path).unwrap();
    for search in searches {
        let expected = model.search_tasks(&search).await.unwrap();
        let found = store.search_tasks(&search).await.unwrap();
        assert_eq!(found, expected, "{:?}", search.condition);
    }
}
