//! Checks which index each shape of search counts along. The plan is checked, not the time.

use longhaul_engine::visibility::execution::parse_search;

use super::*;
use crate::sqlite::open;

/// Definition runs of the store: enough that every long index is longer than a probe. There are as many runs of code.
const RUNS: i64 = 6000;

fn filled() -> (Connection, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = open::Options {
        sync: open::Sync::Never,
        ..open::Options::new(directory.path().join("plans.db"))
    };
    let connection = open::writer(&options, None).unwrap();
    connection
        .execute_batch(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {RUNS})
             INSERT INTO runs (run_id, version, list_status, namespace, workflow_id, run_number, workflow_type, task_queue,
                 started_at, state, closed_at, correlation_id, parent_id)
             SELECT 'run-' || i, 1, iif(i % 100 = 0, 'RUNNING', 'COMPLETED'), 'default', 'run-' || i, 1, 'flow', '', i, '{{}}',
                 iif(i % 100 = 0, NULL, i), 'c-' || (i % 10), iif(i % 7 = 0, 'p-' || i, NULL) FROM n;
             INSERT INTO runs (run_id, version, list_status, namespace, workflow_id, run_number, workflow_type, task_queue,
                 started_at, state)
             SELECT 'code-' || run_key, 1, 'completed', 'default', 'w', run_key, 'flow', 'orders', run_key, '{{}}' FROM runs;",
        ))
        .unwrap();
    (connection, directory)
}

fn with_groups<T>(query: &str, look: impl FnOnce(&RunFilter, &[Group<'_>]) -> T) -> T {
    let filter = RunFilter {
        namespace: "default".into(),
        program: Some(Program::Definition),
        workflow_type: None,
        status: None,
        condition: (!query.is_empty()).then(|| parse_search(query).unwrap()),
        after: None,
        limit: 100,
    };
    let wanted = condition_of(&filter);
    look(&filter, &groups(&filter, &wanted))
}

#[test]
fn the_usual_searches_are_counted_along_an_index_alone() {
    let (connection, _directory) = filled();
    for (query, index, expected) in [
        (
            "",
            "COVERING INDEX runs_by_status (namespace=? AND list_status=?",
            6000,
        ),
        (
            "status = RUNNING",
            "COVERING INDEX runs_by_status (namespace=? AND list_status=?",
            60,
        ),
        (
            "workflowType = flow",
            "COVERING INDEX runs_by_type (namespace=? AND workflow_type=? AND list_status=?",
            6000,
        ),
        (
            "workflowType = flow AND status = COMPLETED",
            "COVERING INDEX runs_by_type (namespace=? AND workflow_type=? AND list_status=?",
            5940,
        ),
        (
            "startTime > 1",
            "COVERING INDEX runs_by_status (namespace=? AND list_status=? AND started_at",
            4001,
        ),
        (
            "correlationId = 'c-1'",
            "INDEX runs_by_correlation (namespace=? AND correlation_id=?",
            600,
        ),
        (
            "correlationId = 'c-1' AND workflowType = flow",
            "INDEX runs_by_correlation",
            600,
        ),
        (
            "parentWorkflowId = 'p-7'",
            "INDEX runs_by_parent (namespace=? AND parent_id=?",
            1,
        ),
        (
            "workflowId = 'run-7'",
            "sqlite_autoindex_runs_1 (run_id=?",
            1,
        ),
        (
            "correlationId = 'c-1' OR correlationId = 'c-2'",
            "INDEX runs_by_correlation",
            1200,
        ),
    ] {
        let (plan, count) = with_groups(query, |_, groups| {
            let statement = count_statement(&connection, groups).unwrap();
            let text = format!("EXPLAIN QUERY PLAN {}", statement.text);
            let mut prepared = connection.prepare(&text).unwrap();
            let steps = prepared
                .query_map(params_from_iter(&statement.values), |row| {
                    row.get::<_, String>(3)
                })
                .unwrap()
                .collect::<Result<Vec<_>, _>>()
                .unwrap();
            (steps.join("; "), count(&connection, groups).unwrap())
        });
        assert!(plan.contains(index), "{query}: {plan}");
        assert!(!plan.contains("SCAN r"), "{query}: {plan}");
        assert_eq!(count, expected, "{query}");
    }
}

#[test]
fn a_page_far_into_a_list_is_the_next_one() {
    let (connection, _directory) = filled();
    let ids = with_groups("workflowType = flow", |filter, _| {
        let filter = RunFilter {
            limit: 2010,
            ..filter.clone()
        };
        let entries = newest(&connection, &filter).unwrap();
        entries
            .skip(2000)
            .map(|entry| entry.run_key)
            .collect::<Vec<_>>()
    });
    assert_eq!(ids, (3991..=4000).rev().collect::<Vec<i64>>());
}
