//! Search attribute definitions, and pages of runs by condition.

use std::sync::Arc;

use longhaul_engine::run::state::{ClosedReason, Run};
use longhaul_engine::visibility::{Condition, Definitions, Type, parse};
use serde_json::{Value, json};

use super::fixture::{advance, at, close, commit, namespace, next, spec, start};
use super::lists::{all_runs, ids};
use crate::{RunFilter, SearchAttributeRow, Store, document};

/// Returns one attribute of each type.
pub fn definitions() -> Definitions {
    [
        ("Region", Type::Keyword),
        ("Note", Type::Text),
        ("Count", Type::Int),
        ("Price", Type::Double),
        ("Vip", Type::Bool),
        ("Due", Type::Datetime),
        ("Tags", Type::KeywordList),
    ]
    .into_iter()
    .map(|(name, defined)| (name.to_owned(), defined))
    .collect()
}

pub fn condition(query: &str) -> Condition {
    parse(query, &definitions()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

pub fn filter_by(query: &str) -> RunFilter {
    RunFilter {
        condition: Some(condition(query)),
        ..all_runs()
    }
}

fn attribute(space: &str, name: &str, attribute_type: Type) -> SearchAttributeRow {
    SearchAttributeRow {
        namespace: namespace(space),
        name: name.to_owned(),
        attribute_type,
    }
}

pub async fn attributes_are_defined_once_and_deleted(store: &dyn Store) {
    let (space, other) = (namespace("default"), namespace("other"));
    let rows = [
        attribute("default", "A", Type::Int),
        attribute("default", "B", Type::KeywordList),
    ];
    for row in rows.iter().rev() {
        assert!(store.create(row, at(0)).await.unwrap());
    }
    let again = attribute("default", "A", Type::Keyword);
    assert!(!store.create(&again, at(0)).await.unwrap());
    assert_eq!(
        store
            .list::<SearchAttributeRow>(Some(&space))
            .await
            .unwrap(),
        rows
    );
    assert_eq!(
        store
            .list::<SearchAttributeRow>(Some(&other))
            .await
            .unwrap(),
        []
    );
    let delete = async |space: &str| {
        let key = document::key::<SearchAttributeRow>(space, "A", "");
        store
            .delete::<SearchAttributeRow>(key, at(1))
            .await
            .unwrap()
    };
    assert!(!delete("other").await);
    assert!(delete("default").await);
    assert!(!delete("default").await);
    assert!(store.create(&again, at(2)).await.unwrap());
    assert_eq!(
        store
            .list::<SearchAttributeRow>(Some(&space))
            .await
            .unwrap(),
        [again, rows[1].clone()]
    );
}

/// Creates a run `name` that started at second `seconds`.
pub async fn create(store: &dyn Store, name: &str, seconds: i64, attributes: Value) -> Run {
    let mut spec = spec(name, 1);
    spec.run_id = name.into();
    spec.started_at = at(seconds);
    spec.business_key = Some(format!("Key of {name}"));
    spec.routing.compatibility = (seconds % 2 == 1).then(|| "build-1".to_owned());
    let mut change = start(spec);
    set(&mut change, attributes);
    let run = change.apply(None);
    commit(store, change).await.unwrap();
    run
}

fn set(change: &mut longhaul_engine::RunChange, attributes: Value) {
    change.core.search_attributes = Arc::new(attributes.as_object().cloned().unwrap());
    change.sets_search_attributes = true;
}

pub async fn a_query_finds_its_runs(store: &dyn Store) {
    create(
        store,
        "a",
        0,
        json!({"Region": "eu", "Count": 1, "Vip": true}),
    )
    .await;
    create(
        store,
        "b",
        1,
        json!({"Region": "us", "Count": 2, "Vip": false, "Price": 2}),
    )
    .await;
    let c = json!({"Region": "eu", "Price": 2.5, "Tags": ["x", "y", "x"], "Note": "é'\"\\%_"});
    let c = create(store, "c", 2, c).await;
    let mut change = next(&c);
    close(&mut change, ClosedReason::Cancelled);
    advance(store, &c, change).await;
    create(
        store,
        "d",
        3,
        json!({"Due": "2026-01-01T01:00:00+01:00", "Tags": []}),
    )
    .await;
    // Queries ignore values that do not have the type that the namespace defines now.
    create(
        store,
        "e",
        4,
        json!({"Count": "1", "Vip": "true", "Tags": "x", "Region": ["eu"], "Due": 7}),
    )
    .await;

    for (query, expected) in [
        ("Region = eu", "ca"),
        ("Region != eu", "b"),
        ("Region IN (eu, us)", "cba"),
        ("Region STARTS_WITH 'e'", "ca"),
        ("Region STARTS_WITH ''", "cba"),
        ("Region NOT STARTS_WITH 'e'", "b"),
        (r#"Note = 'é\'"\\%_'"#, "c"),
        ("Note STARTS_WITH 'é'", "c"),
        ("Count > 0", "ba"),
        ("Count >= 2", "b"),
        ("Count IN (1, 2, 3)", "ba"),
        ("Price = 2 OR Price = 2.5", "cb"),
        ("Price > 2", "c"),
        ("Vip", "a"),
        ("NOT Vip", "b"),
        ("Due = '2026-01-01T00:00:00Z'", "d"),
        ("Due < '2026-01-01T00:00:00Z'", ""),
        ("Tags = x", "c"),
        ("Tags IN (x, y, z)", "c"),
        ("Region = eu AND Count = 1", "a"),
        ("Region = eu AND NOT (Count = 1 OR Vip)", ""),
        ("Region = us OR Tags = y", "cb"),
        ("(Region = us OR Tags = y) AND Status = cancelled", "c"),
        ("Status = failed", "c"),
        ("Status != running", "c"),
        ("Status = pending", "edba"),
        ("Status = waiting", ""),
        ("Region = eu AND Status = pending", "a"),
        ("CloseTime > '2000-01-01T00:00:00Z'", "c"),
        ("WorkflowId = b", "b"),
        ("WorkflowId IN (b, a) AND Vip", "a"),
        ("RunId = c AND Region = eu", "c"),
        ("RunId STARTS_WITH d", "d"),
        ("TaskQueue = orders AND Count > 0", "ba"),
        ("TaskQueue = other", ""),
        ("BuildId = 'build-1'", "db"),
        ("BuildIds != 'build-1'", ""),
        ("WorkflowType = order AND Region = us", "b"),
        ("WorkflowType = refund", ""),
        ("key OF b", "b"),
    ] {
        let expected: Vec<String> = expected.chars().map(String::from).collect();
        assert_eq!(ids(store, &filter_by(query)).await, expected, "{query}");
    }
    let query = format!("StartTime > '{}' AND StartTime <= '{}'", at(0), at(2));
    assert_eq!(ids(store, &filter_by(&query)).await, ["c", "b"], "{query}");
    let both = RunFilter {
        workflow_type: Some("order".to_owned()),
        status: Some(crate::StatusFilter::Running),
        ..filter_by("Region = eu")
    };
    assert_eq!(ids(store, &both).await, ["a"]);
}

pub async fn a_changed_value_is_found_at_once(store: &dyn Store) {
    let run = create(store, "a", 0, json!({"Region": "eu", "Tags": ["x", "y"]})).await;
    let mut change = next(&run);
    set(
        &mut change,
        json!({"Region": "us", "Tags": ["y"], "Count": 1}),
    );
    let run = advance(store, &run, change).await;
    for (query, found) in [
        ("Region = eu", false),
        ("Region = us", true),
        ("Tags = x", false),
        ("Tags = y", true),
        ("Count = 1", true),
    ] {
        assert_eq!(
            !ids(store, &filter_by(query)).await.is_empty(),
            found,
            "{query}"
        );
    }
    // A transition that sets nothing keeps them.
    let run = advance(store, &run, next(&run)).await;
    assert_eq!(ids(store, &filter_by("Region = us")).await, ["a"]);
    let mut change = next(&run);
    set(&mut change, json!({}));
    advance(store, &run, change).await;
    assert_eq!(
        ids(store, &filter_by("Region = us OR Tags = y OR Count = 1")).await,
        [""; 0]
    );
}

pub async fn a_query_pages_like_a_list(store: &dyn Store) {
    let mut expected = Vec::new();
    for number in 0..40_i64 {
        let region = ["eu", "us", "ap"][usize::try_from(number % 3).unwrap()];
        let name = format!("{number:02}");
        let tags = json!([region, format!("t{}", number % 5)]);
        create(
            store,
            &name,
            number / 4,
            json!({"Region": region, "Tags": tags}),
        )
        .await;
        if number % 3 != 2 || number % 5 == 0 {
            expected.push(name);
        }
    }
    expected.reverse();
    for limit in [1, 2, 7, 100] {
        let query = "Region = eu OR Region = us OR Tags = t0 OR Tags IN (eu, us)";
        let mut filter = RunFilter {
            limit,
            ..filter_by(query)
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
}

pub async fn another_namespace_is_never_found(store: &dyn Store) {
    let mut spec = spec("a", 1);
    spec.namespace = "other".into();
    spec.routing.compatibility = Some("build-1".to_owned());
    let mut change = start(spec);
    set(&mut change, json!({"Region": "eu", "Count": 1}));
    commit(store, change).await.unwrap();
    for query in [
        "Region = eu",
        "Region STARTS_WITH e",
        "Count > 0",
        "WorkflowId = a",
        "WorkflowId STARTS_WITH a",
        "RunId STARTS_WITH run",
        "RunId = run-a-1",
        "TaskQueue = orders",
        "BuildId = 'build-1'",
        "WorkflowType = order",
        "Status = running",
        "StartTime > '2000-01-01T00:00:00Z'",
        "run",
    ] {
        assert_eq!(ids(store, &filter_by(query)).await, [""; 0], "{query}");
        let there = RunFilter {
            namespace: namespace("other"),
            ..filter_by(query)
        };
        if query != "run" {
            assert_eq!(ids(store, &there).await, ["run-a-1"], "{query}");
        }
    }
}
