//! Checks which index each shape of search reads along. The plan is checked, not the time.

use longhaul_engine::visibility::execution::{parse_task_search, parse_task_sort};

use super::*;
use crate::sqlite::open;

/// Runs of the store, with five tasks each.
const RUNS: i64 = 2000;

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
                 started_at, state, correlation_id)
             SELECT 'run-' || i, 1, 'COMPLETED', 'default', 'run-' || i, 1, 'flow-' || (i % 4), '', i, '{{}}', 'c-' || (i % 10)
             FROM n;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5 * {RUNS})
             INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, body, run_id, sequence, task_type,
                 def_name, reference, shown_status, workflow_type, correlation_id, scheduled_at, started_at, updated_at)
             SELECT 'task-' || i, 'completed', 'default', 'execution', '', 99, i, '{{}}', 'run-' || (i % {RUNS} + 1), i % 5 + 1,
                 iif(i % 5 = 0, 'INLINE', 'work-' || (i % 5)), iif(i % 5 = 0, 'script', 'work-' || (i % 5)), 'r',
                 iif(i % 100 = 0, 'FAILED', 'COMPLETED'), 'flow-' || ((i % {RUNS} + 1) % 4), 'c-' || ((i % {RUNS} + 1) % 10), i, i, i
             FROM n;
             INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, body)
             SELECT 'code-' || task_key, 'completed', 'default', 'activity', 'q', 1, 1, '{{}}' FROM tasks;",
        ))
        .unwrap();
    (connection, directory)
}

fn searched(query: &str, results: TaskResults) -> TaskSearch {
    TaskSearch {
        namespace: "default".into(),
        condition: (!query.is_empty()).then(|| parse_task_search(query).unwrap()),
        order: Order::default(),
        offset: 0,
        limit: 100,
        results,
    }
}

fn plan(connection: &Connection, sql: &Sql) -> String {
    let text = format!("EXPLAIN QUERY PLAN {}", sql.text);
    let mut prepared = connection.prepare(&text).unwrap();
    let steps = prepared
        .query_map(params_from_iter(&sql.values), |row| row.get::<_, String>(3))
        .unwrap();
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

#[test]
fn the_usual_searches_read_an_index() {
    let (connection, _directory) = filled();
    for (query, index, expected) in [
        (
            "",
            "COVERING INDEX tasks_found_by_status (namespace=?",
            10_000,
        ),
        (
            "status = FAILED",
            "COVERING INDEX tasks_found_by_status (namespace=? AND shown_status=?",
            100,
        ),
        (
            "taskType = 'work-1'",
            "COVERING INDEX tasks_found_by_type (namespace=? AND task_type=?",
            2000,
        ),
        (
            "taskType = 'work-1' AND status = COMPLETED",
            "COVERING INDEX tasks_found_by_type (namespace=? AND task_type=? AND shown_status=?",
            2000,
        ),
        (
            "taskType IN (INLINE) AND status IN (FAILED) AND startTime > 0",
            "tasks_found_by_type (namespace=? AND task_type=? AND shown_status=? AND started_at>?",
            91,
        ),
        (
            "taskDefName = 'work-1'",
            "INDEX tasks_found_by_type (namespace=? AND task_type=?",
            2000,
        ),
        (
            "taskDefName = script",
            "INDEX tasks_found_by_definition (namespace=? AND def_name=?",
            2000,
        ),
        (
            "workflowId = 'run-7'",
            "INDEX tasks_found_by_run (run_id=?",
            5,
        ),
        (
            "correlationId = 'c-7'",
            "INDEX tasks_found_by_run (run_id=?",
            1000,
        ),
        (
            "workflowType = 'flow-1'",
            "INDEX tasks_found_by_run (run_id=?",
            2500,
        ),
        (
            "workflowType = 'flow-1' AND status = FAILED",
            "INDEX tasks_found_by_status (namespace=? AND shown_status=?",
            100,
        ),
        (
            "taskId = 'task-7'",
            "sqlite_autoindex_tasks_1 (task_id=?",
            1,
        ),
    ] {
        let search = searched(query, TaskResults::Tasks);
        let arms = arms(search.condition.as_ref());
        let plan = plan(&connection, &count_statement(&search, &arms));
        assert!(plan.contains(index), "{query}: {plan}");
        assert!(!plan.contains("SCAN t"), "{query}: {plan}");
        let page = super::search(&connection, &search).unwrap();
        assert_eq!(page.total, expected, "{query}");
        let shown = usize::try_from(expected.min(100)).unwrap();
        assert_eq!(page.found.len(), shown, "{query}");
    }
}

#[test]
fn a_page_in_the_order_of_starts_is_not_sorted() {
    let (connection, _directory) = filled();
    for (query, status) in [
        ("", TaskStatus::Completed),
        ("status = FAILED", TaskStatus::Failed),
        ("taskType = 'work-1'", TaskStatus::Completed),
    ] {
        let search = searched(query, TaskResults::Tasks);
        for arm in arms(search.condition.as_ref()) {
            let plan = plan(&connection, &newest_statement(&search, arm, status));
            assert!(!plan.contains("TEMP B-TREE"), "{query}: {plan}");
        }
    }
}

#[test]
fn runs_are_found_once() {
    let (connection, _directory) = filled();
    let page = super::search(
        &connection,
        &searched("taskType = 'work-1'", TaskResults::Runs),
    );
    let page = page.unwrap();
    assert_eq!((page.total, page.found.len()), (400, 100));
    let mut ids: Vec<&RunId> = page.found.iter().map(|(run_id, _)| run_id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 100);
    let mut search = searched("workflowId = 'run-7'", TaskResults::Tasks);
    search.order = parse_task_sort("taskType:ASC|startTime:DESC").unwrap();
    let page = super::search(&connection, &search).unwrap();
    assert_eq!((page.total, page.found.len()), (5, 5));
}
