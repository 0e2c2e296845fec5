//! Removal in a file: what a crash interrupts is finished later, and nothing is left.

use longhaul_store::RunStore as _;
use longhaul_store::conformance::removal::ended;
use longhaul_store::sqlite::Sqlite;
use rusqlite::Connection;
use rusqlite::types::Value;

/// Returns every cell of every table that contains a text.
fn cells_with(connection: &Connection, text: &str) -> Vec<String> {
    let names = "SELECT name FROM sqlite_master WHERE type = 'table'";
    let mut names = connection.prepare(names).unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut found = Vec::new();
    for table in names.map(Result::unwrap) {
        let mut rows = connection
            .prepare(&format!("SELECT * FROM {table}"))
            .unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                if let Value::Text(cell) = row.get(column).unwrap()
                    && cell.contains(text)
                {
                    found.push(format!("{table}: {cell}"));
                }
            }
        }
    }
    found
}

#[tokio::test]
async fn an_interrupted_removal_is_finished_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let store = Sqlite::open(&path).unwrap();
    let run = ended(&store, "removed-run").await;
    let kept = ended(&store, "kept-run").await;
    store.remove_run(run.run_id(), run.version).await.unwrap();
    // As after a crash: only the first step of the removal is stored.
    drop(store);
    let connection = Connection::open(&path).unwrap();
    assert!(!cells_with(&connection, "removed-run").is_empty());
    let rows = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(rows("SELECT count(*) FROM runs WHERE namespace = ''"), 1);
    drop(connection);

    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.run(run.run_id()).await.unwrap(), None);
    let mut steps = 0;
    while store.purge_removed().await.unwrap() {
        steps += 1;
        assert!(steps < 20, "a purge ends");
    }
    assert_eq!(store.run(kept.run_id()).await.unwrap(), Some(kept));
    drop(store);
    let connection = Connection::open(&path).unwrap();
    assert_eq!(cells_with(&connection, "removed-run"), [] as [&str; 0]);
    assert!(!cells_with(&connection, "kept-run").is_empty());
}
