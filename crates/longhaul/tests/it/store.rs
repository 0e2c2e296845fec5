//! `longhaul store`: checks beside a running server, copies to PostgreSQL and back, exit codes and refusals.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use longhaul_store::postgres::connect::{Connected, Role, connect};
use longhaul_store::postgres::{Options, Postgres};
use longhaul_test_postgres::Database;
use serde_json::{Value, json};

use crate::binary::longhaul;
use crate::serve::Server;
use crate::waiting::eventually;

/// Runs `longhaul store` with these arguments.
pub(crate) fn store(arguments: &[&str]) -> Output {
    longhaul().arg("store").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns the output of a command that ends with this code.
#[track_caller]
pub(crate) fn ended(output: &Output, code: i32) -> String {
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}{complained}");
    format!("{said}{complained}")
}

/// Starts definition runs that wait for a worker.
async fn start_runs(server: &Server) {
    let client = reqwest::Client::new();
    let definition = json!({"name": "w", "version": 1, "tasks": [
        {"name": "a", "taskReferenceName": "a", "type": "SIMPLE"}]});
    let url = format!("{}/api/metadata/workflow", server.url);
    let put = client.post(url).json(&definition).send().await.unwrap();
    assert!(put.status().is_success());
    for number in 0..3 {
        start_run(server, number).await;
    }
}

async fn start_run(server: &Server, number: u32) {
    let url = format!("{}/api/workflow/w", server.url);
    let input = json!({"number": number});
    let started = reqwest::Client::new().post(url).json(&input).send().await;
    assert!(started.unwrap().status().is_success());
}

#[tokio::test]
async fn a_store_is_checked_beside_its_server_copied_and_served() {
    let directory = tempfile::tempdir().unwrap();
    let (first, last) = (directory.path().join("a"), directory.path().join("b"));
    let (first, last) = (first.to_str().unwrap(), last.to_str().unwrap());
    let server = Server::start(Path::new(first), &[]);
    start_runs(&server).await;
    let said = ended(&store(&["check", "--data", first]), 0);
    assert!(said.contains("checked 3 runs, 3 tasks"), "{said}");
    assert!(said.contains(": 0 problems"), "{said}");
    // The data of a running server is not copied.
    let said = ended(&store(&["copy", first, last]), 1);
    assert!(said.contains("in use"), "{said}");
    server.stop();
    let database = longhaul_test_postgres::shared().database();
    let copied = ended(&store(&["copy", first, database.url()]), 0);
    assert!(copied.contains("3 runs, checksum "), "{copied}");
    let said = ended(&store(&["check", "--json", "--store", database.url()]), 0);
    let totals: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&totals["runs"], &totals["problems"]),
        (&json!(3), &json!(0))
    );
    let said = ended(&store(&["copy", first, database.url()]), 1);
    assert!(said.contains("the target is not empty"), "{said}");
    let back = ended(&store(&["copy", database.url(), last]), 0);
    let sums = |said: &str| -> Vec<String> {
        let lines = said.lines().filter(|line| line.contains("checksum"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(sums(&back), sums(&copied));
    // A server finds the work of the first one.
    let server = Server::start(Path::new(last), &[]);
    let url = format!("{}/api/tasks/poll/batch/a?count=9&timeout=1000", server.url);
    let tasks: Vec<Value> = reqwest::get(url).await.unwrap().json().await.unwrap();
    assert_eq!(tasks.len(), 3);
    server.stop();
    ended(&store(&["check", "--data", last]), 0);
}

/// Connects under another name than servers have.
async fn session(database: &Database<'_>) -> Connected {
    let url = format!("{}?application_name=test", database.url());
    let options = Options::parse(&url).unwrap();
    connect(&options, Role::Writer).await.unwrap()
}

/// Starts a copy, sends a signal when the copy waits for a lock of the database, and returns its output.
async fn stop_copy(database: &Database<'_>, from: &str, to: &str, signal: &str) -> Output {
    let copy = longhaul()
        .args(["store", "copy", from, to])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted
                 AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
    eventually("the copy waits for the lock", async || {
        (database.sql(waits).trim() == "1").then_some(())
    })
    .await;
    let pid = copy.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(sent.success());
    let output = tokio::task::spawn_blocking(|| copy.wait_with_output().unwrap());
    output.await.unwrap()
}

/// A copy that is stopped in the middle stores nothing, in either direction, and can be started again.
#[tokio::test]
async fn a_copy_that_is_stopped_leaves_no_rows_and_can_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let (first, last) = (directory.path().join("a"), directory.path().join("b"));
    let (first, last) = (first.to_str().unwrap(), last.to_str().unwrap());
    let server = Server::start(Path::new(first), &[]);
    start_runs(&server).await;
    server.stop();
    let database = longhaul_test_postgres::shared().database();
    let url = database.url();
    // The target waits for a lock when the runs are written and the tasks are not.
    drop(Postgres::open(Options::parse(url).unwrap()).await.unwrap());
    database.sql(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END';
         CREATE TRIGGER wait BEFORE INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION wait()",
    );
    let holder = session(&database).await;
    for signal in ["-INT", "-TERM"] {
        let hold = "SELECT pg_advisory_lock(7)";
        holder.batch_execute(hold).await.unwrap();
        let said = ended(&stop_copy(&database, first, url, signal).await, 1);
        assert!(said.contains("stopped by a signal"), "{said}");
        assert!(said.contains("can be started again"), "{said}");
        // The database ends the transaction when it notices that the copy is gone.
        let release = "SELECT pg_advisory_unlock(7)";
        holder.batch_execute(release).await.unwrap();
        assert_eq!(database.sql("SELECT count(*) FROM runs").trim(), "0");
        ended(&store(&["check", "--data", first]), 0);
    }
    let copied = ended(&store(&["copy", first, url]), 0);
    assert!(copied.contains("3 runs, checksum "), "{copied}");
    // The source waits for a lock when the runs are read and the tasks are not.
    let lock = "BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE";
    holder.batch_execute(lock).await.unwrap();
    let said = ended(&stop_copy(&database, url, last, "-TERM").await, 1);
    assert!(said.contains("stopped by a signal"), "{said}");
    holder.batch_execute("ROLLBACK").await.unwrap();
    let said = ended(&store(&["check", "--data", last]), 0);
    assert!(said.contains("checked 0 runs"), "{said}");
    let back = ended(&store(&["copy", url, last]), 0);
    assert!(back.contains("3 runs, checksum "), "{back}");
    ended(&store(&["check", "--store", url]), 0);
}

#[tokio::test]
async fn a_database_that_a_server_uses_is_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (data, target) = (directory.path().join("a"), directory.path().join("b"));
    let target = target.to_str().unwrap();
    let database = longhaul_test_postgres::shared().database();
    let server = Server::start(&data, &["--store", database.url()]);
    start_runs(&server).await;
    let said = ended(&store(&["copy", database.url(), target]), 1);
    assert!(said.contains("in use by longhaul servers"), "{said}");
    assert!(said.contains("stop them first"), "{said}");
    // Nothing was created, and the server goes on.
    assert!(!Path::new(target).exists());
    start_run(&server, 4).await;
    server.stop();
    let said = ended(&store(&["copy", database.url(), target]), 0);
    assert!(said.contains("4 runs, checksum "), "{said}");
}

#[tokio::test]
async fn problems_are_lines_and_the_exit_code_tells_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(directory.path(), &[]);
    start_runs(&server).await;
    server.stop();
    let database = longhaul_test_postgres::shared().database();
    ended(&store(&["copy", data, database.url()]), 0);
    database.sql("UPDATE run_states SET version = 0");
    database.sql(
        "UPDATE runs SET correlation_id = 'other' WHERE run_id = (SELECT max(run_id) FROM runs)",
    );
    let said = ended(&store(&["check", "--store", database.url()]), 1);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 5, "{said}");
    assert!(lines[0].starts_with("version_wrong run="), "{said}");
    assert!(lines[3].starts_with("list_column_differs run="), "{said}");
    assert!(lines[4].ends_with(": 4 problems"), "{said}");
    let said = ended(&store(&["check", "--json", "--store", database.url()]), 1);
    let first: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(first["problem"], "version_wrong");
    assert!(first["run_id"].is_string() && first["detail"].is_string());
}

#[test]
fn a_store_that_cannot_be_used_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = directory.path().join("nothing");
    let nothing = nothing.to_str().unwrap();
    let nowhere = "postgres://me:secret@127.0.0.1:1/x";
    for (arguments, code, word) in [
        (vec!["check", "--data", nothing], 2, "does not exist"),
        (vec!["check", "--store", "mysql:x"], 2, "is not a store"),
        (vec!["check", "--store", nowhere], 2, "127.0.0.1:1"),
        (vec!["check", "--nonsense"], 2, "--nonsense"),
        (vec!["copy", nothing, "other"], 1, "does not exist"),
        (vec!["copy", nowhere, nothing], 1, "127.0.0.1:1"),
        (
            vec!["copy", "mysql://me:secret@h/d", nothing],
            1,
            "not a store",
        ),
    ] {
        let said = ended(&store(&arguments), code);
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
    // Nothing was created.
    assert!(!Path::new(nothing).exists());
}
