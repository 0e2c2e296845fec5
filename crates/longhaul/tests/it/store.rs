//! `longhaul store`: checks beside a running server, copies to PostgreSQL and back, exit codes and refusals.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::binary::longhaul;
use crate::serve::Server;

/// Runs `longhaul store` with these arguments.
fn store(arguments: &[&str]) -> Output {
    longhaul().arg("store").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Returns the output of a command that ends with this code.
#[track_caller]
fn ended(output: &Output, code: i32) -> String {
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
        let url = format!("{}/api/workflow/w", server.url);
        let input = json!({"number": number});
        let started = client.post(url).json(&input).send().await.unwrap();
        assert!(started.status().is_success());
    }
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
