//! Checks which index each shape of query reads. The plan is checked, not the time.

use longhaul_engine::visibility::{Definitions, Type, parse};
use rusqlite::Connection;

use super::*;
use crate::sqlite::open;

/// Runs of the store: enough that every long index is longer than a probe.
const RUNS: i64 = 6000;

/// Returns a filled store: `Region = eu` and the queue `orders` on all runs, `Rare` on every hundredth.
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
                 compatibility, started_at, state, closed_at)
             SELECT 'run-' || i, 1, iif(i % 100 = 0, 'running', 'completed'), 'default', 'w-' || i, 1, 'order', 'orders', 'b1',
                 i, '{{}}', iif(i % 100 = 0, NULL, i) FROM n;
             INSERT INTO workflow_runs SELECT namespace, workflow_id, run_number, run_key FROM runs;
             INSERT INTO run_attributes SELECT run_key, 'Region', 'text', 'eu', namespace, list_status, started_at, run_id FROM runs;
             INSERT INTO run_attributes SELECT run_key, 'Count', 'number', run_key, namespace, list_status, started_at, run_id FROM runs;
             INSERT INTO run_attributes SELECT run_key, 'Rare', 'text', 'x', namespace, list_status, started_at, run_id FROM runs
                 WHERE run_key % 100 = 0;",
        ))
        .unwrap();
    (connection, directory)
}

/// Returns one line per statement of the query's page: the steps of the plan.
fn plans(connection: &Connection, query: &str) -> Vec<String> {
    let definitions: Definitions = [
        ("Region", Type::Keyword),
        ("Rare", Type::Keyword),
        ("Count", Type::Int),
    ]
    .into_iter()
    .map(|(name, defined)| (name.to_owned(), defined))
    .collect();
    let filter = RunFilter {
        namespace: "default".into(),
        program: Some(Program::Code),
        workflow_type: None,
        status: None,
        condition: (!query.is_empty()).then(|| parse(query, &definitions).unwrap()),
        after: None,
        limit: 50,
    };
    let mut plans = Vec::new();
    visit(connection, &filter, &mut |statement| {
        let text = format!("EXPLAIN QUERY PLAN {}", statement.text);
        let mut prepared = connection.prepare(&text)?;
        let steps = prepared
            .query_map(params_from_iter(&statement.values), |row| {
                row.get::<_, String>(3)
            })?
            .collect::<Result<Vec<_>, _>>()?;
        plans.push(steps.join("; "));
        Ok(None)
    })
    .unwrap();
    plans
}

#[test]
fn every_common_query_reads_an_index() {
    let (connection, _directory) = filled();
    let by_value = "run_attributes_by_value (namespace=? AND name=? AND kind=? AND value=?";
    for (query, index) in [
        ("", "runs_by_status (namespace=? AND list_status=?"),
        (
            "Status = running",
            "runs_by_status (namespace=? AND list_status=?",
        ),
        (
            "WorkflowType = order",
            "runs_by_type (namespace=? AND workflow_type=? AND list_status=?",
        ),
        (
            "WorkflowType = order AND Status = completed",
            "runs_by_type (namespace=? AND workflow_type=? AND list_status=?",
        ),
        ("Region = eu", by_value),
        ("Region IN (eu, us)", by_value),
        ("Region = eu OR Rare = x", by_value),
        ("Region = eu AND Rare = x", by_value),
        ("Region = eu AND Status = completed", by_value),
        (
            "Region = eu AND Status = running",
            "value=? AND list_status=?",
        ),
        ("Region = eu AND WorkflowType = order", by_value),
        (
            "Region STARTS_WITH 'zz'",
            "run_attributes_by_value (namespace=? AND name=? AND kind=? AND value>? AND value<?",
        ),
        (
            "Count > 5900",
            "run_attributes_by_value (namespace=? AND name=? AND kind=? AND value>?",
        ),
        ("Count = 7", by_value),
        (
            "WorkflowId = 'w-7'",
            "w USING PRIMARY KEY (namespace=? AND workflow_id=?",
        ),
        (
            "WorkflowId STARTS_WITH 'w-77'",
            "(namespace=? AND workflow_id>? AND workflow_id<?",
        ),
        ("RunId = 'run-7'", "sqlite_autoindex_runs_1 (run_id=?"),
        (
            "TaskQueue = orders",
            "runs_by_queue (namespace=? AND task_queue=?",
        ),
        (
            "BuildId = b1",
            "runs_by_build (namespace=? AND compatibility=?",
        ),
        (
            "CloseTime < '1970-01-01T00:00:00.0001Z'",
            "runs_by_close (namespace=? AND closed_at>? AND closed_at<?",
        ),
        (
            "StartTime > '1970-01-01T00:00:00.0001Z'",
            "runs_by_status (namespace=? AND list_status=? AND started_at",
        ),
    ] {
        let plans = plans(&connection, query);
        assert!(!plans.is_empty(), "{query}");
        for plan in plans {
            assert!(plan.contains(index), "{query}: {plan}");
            assert!(!plan.contains("SCAN"), "{query}: {plan}");
            // A long read must come in the order of the list; a short one is sorted.
            let is_short = [
                "Count",
                "WorkflowId",
                "RunId",
                "CloseTime",
                "STARTS_WITH",
                "Rare",
                "running",
            ];
            if !is_short.iter().any(|short| query.contains(short)) {
                assert!(!plan.contains("TEMP B-TREE"), "{query}: {plan}");
            }
        }
    }
}

/// The residual checks of a run find its attributes by its key.
#[test]
fn row_by_row_checks_read_one_run_only() {
    let (connection, _directory) = filled();
    for plan in plans(&connection, "Region = eu AND Count != 7") {
        assert!(
            plan.contains("USING PRIMARY KEY (run_key=? AND name=? AND kind=?"),
            "{plan}"
        );
        assert!(
            plan.contains("r USING INTEGER PRIMARY KEY (rowid=?)"),
            "{plan}"
        );
    }
}

#[test]
fn a_selective_test_is_read_before_a_common_one() {
    let (connection, _directory) = filled();
    let mut chosen = Vec::new();
    let mut note = |query: &str| {
        let condition = parse(
            query,
            &[
                ("Region".to_owned(), Type::Keyword),
                ("Rare".to_owned(), Type::Keyword),
            ]
            .into_iter()
            .collect(),
        );
        let filter = RunFilter {
            namespace: "default".into(),
            program: Some(Program::Code),
            workflow_type: None,
            status: None,
            condition: condition.ok(),
            after: None,
            limit: 5,
        };
        visit(&connection, &filter, &mut |statement| {
            chosen.push(format!("{:?}", statement.values[1]));
            Ok(None)
        })
        .unwrap();
    };
    note("Region = eu AND Rare = x");
    note("Rare = x AND Region = eu");
    assert_eq!(chosen, [r#"Text("Rare")"#, r#"Text("Rare")"#]);
}
