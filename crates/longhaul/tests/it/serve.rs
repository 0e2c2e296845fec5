//! `longhaul serve`: start, stop, restart, settings and refusals.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::binary::{listening_url, longhaul};
use crate::waiting::{DEADLINE, eventually};

const CONTROL: (&str, &str) = ("X-Durable-Workflow-Control-Plane-Version", "2");

pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts a server on loopback, unless `more` names another address.
    pub(crate) fn start(data: &Path, more: &[&str]) -> Self {
        Self::start_command(longhaul(), data, more)
    }

    /// As [`Self::start`], with the environment of a command.
    pub(crate) fn start_command(mut command: Command, data: &Path, more: &[&str]) -> Self {
        let listen: &[&str] = if more.contains(&"--listen") {
            &[]
        } else {
            &["--listen", "127.0.0.1:0"]
        };
        let mut child = command
            .args(["serve", "--data"])
            .arg(data)
            .args(listen)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut first)
            .unwrap();
        let url = listening_url(&first)
            .expect("the first line has the address")
            .to_owned();
        Self { child, url }
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Reads the log until a line contains `part`, and returns this line.
    pub(crate) fn logged(&mut self, part: &str) -> String {
        let mut log = self.child.stderr.take().unwrap();
        let part = part.to_owned();
        let (found, line) = mpsc::channel();
        std::thread::spawn(move || {
            // Byte by byte, so that the rest of the log stays in the pipe.
            let mut line = Vec::new();
            let mut byte = [0];
            while log.read(&mut byte).unwrap() == 1 {
                if byte == *b"\n" {
                    let text = String::from_utf8(std::mem::take(&mut line)).unwrap();
                    if text.contains(&part) {
                        let _ = found.send((log, text));
                        return;
                    }
                } else {
                    line.extend(byte);
                }
            }
        });
        let (log, line) = line.recv_timeout(DEADLINE).expect("the line is logged");
        self.child.stderr = Some(log);
        line
    }

    /// Stops the server with SIGTERM and waits for its end. Returns its log.
    pub(crate) fn stop(mut self) -> String {
        self.signal("-TERM");
        let mut log = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(said.starts_with("longhaul: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

pub(crate) async fn post(url: String, body: Value) -> Value {
    let client = reqwest::Client::new();
    let response = client
        .post(url)
        .header(CONTROL.0, CONTROL.1)
        .json(&body)
        .send()
        .await
        .unwrap();
    response.json().await.unwrap()
}

pub(crate) async fn get(url: String) -> Value {
    let client = reqwest::Client::new();
    client
        .get(url)
        .header(CONTROL.0, CONTROL.1)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

#[tokio::test]
async fn accepted_work_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("made/on/demand");
    let server = Server::start(&data, &[]);
    let started = post(
        format!("{}/api/workflows", server.url),
        json!({"workflow_type": "order", "workflow_id": "order-7"}),
    )
    .await;
    let log = server.stop();
    assert!(log.contains("stopped"), "{log}");
    let server = Server::start(&data, &[]);
    let described = get(format!("{}/api/workflows/order-7", server.url)).await;
    assert_eq!(described["run_id"], started["run_id"]);
    server.stop();
}

#[tokio::test]
async fn health_metrics_and_discovery_need_no_setup() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--server-id", "test-server"]);
    assert_eq!(
        get(format!("{}/api/health", server.url)).await["status"],
        "serving"
    );
    assert_eq!(
        get(format!("{}/health", server.url)).await["status"],
        "serving"
    );
    assert_eq!(
        get(format!("{}/api/cluster/info", server.url)).await["server_id"],
        "test-server"
    );
    let metrics = reqwest::get(format!("{}/metrics", server.url))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for program in ["code", "definition"] {
        let line = format!("longhaul_runs_started_total{{program=\"{program}\"}} 0");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert!(metrics.trim_end().ends_with("# EOF"));
}

/// Operators and records wrap what callers send. It is read again, however deep it is.
#[tokio::test]
async fn the_deepest_values_are_read_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let client = reqwest::Client::new();
    let fork = serde_json::json!({"name": "w", "failureWorkflow": "w", "tasks": [
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN",
         "forkTasks": [[{"name": "t", "taskReferenceName": "t"}], [{"name": "u", "taskReferenceName": "u"}]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["t", "u"]}]});
    // The parser takes 127 levels; the other two are those of the object and of the request.
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let server = Server::start(data.path(), &[]);
    let send = async |path: &str, body: String| {
        let request = client.post(format!("{}/api{path}", server.url)).body(body);
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.text().await.unwrap()
    };
    send("/metadata/workflow", fork.to_string()).await;
    let id = send("/workflow/w", format!("{{\"x\":{}}}", deep(126))).await;
    let output = format!("{{\"x\":{}}}", deep(126));
    send(&format!("/tasks/{id}/t/COMPLETED"), output.clone()).await;
    send(&format!("/tasks/{id}/u/FAILED_WITH_TERMINAL_ERROR"), output).await;
    server.stop();

    let server = Server::start(data.path(), &[]);
    let found = get(format!("{}/api/workflow/search", server.url)).await;
    assert_eq!(found["totalHits"], 2, "the run and its failure workflow");
    for run in found["results"].as_array().unwrap() {
        let id = run["workflowId"].as_str().unwrap();
        let url = format!("{}/api/workflow/{id}", server.url);
        let answer = client.get(&url).send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        let text = answer.text().await.unwrap();
        assert!(text.contains(&deep(126)), "{text}");
    }
    server.stop();
}

#[tokio::test]
async fn metrics_count_code_and_definition_runs_apart() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let client = reqwest::Client::new();
    let post = |path: &str, body: serde_json::Value| {
        client.post(format!("{}/api{path}", server.url)).json(&body)
    };
    let definition =
        serde_json::json!({"name": "w", "tasks": [{"name": "t", "taskReferenceName": "t"}]});
    for request in [
        post("/metadata/workflow", definition),
        post("/workflow/w", serde_json::json!({})),
        client.get(format!("{}/api/tasks/poll/batch/t", server.url)),
    ] {
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
    let metrics = client.get(format!("{}/metrics", server.url)).send();
    let metrics = metrics.await.unwrap().text().await.unwrap();
    for line in [
        "longhaul_runs_started_total{program=\"definition\"} 1",
        "longhaul_runs_started_total{program=\"code\"} 0",
        "longhaul_events_recorded_total{program=\"definition\"} 3",
        "longhaul_tasks_leased_total{kind=\"execution\"} 1",
        "longhaul_polls_total{program=\"definition\",kind=\"leased\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn the_default_page_of_history_can_be_configured_and_is_published() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--history-page-size", "1"]);
    let info = get(format!("{}/api/cluster/info", server.url)).await;
    let offered = &info["worker_protocol"]["server_capabilities"];
    assert_eq!(offered["default_history_page_size"], 1);
    let client = reqwest::Client::new();
    let worker = |path: &str, body: Value| {
        let request = client.post(format!("{}/api/worker/{path}", server.url));
        request
            .header("X-Durable-Workflow-Protocol-Version", "1.20")
            .json(&body)
            .send()
    };
    worker(
        "register",
        json!({"worker_id": "w", "task_queue": "default", "runtime": "python"}),
    )
    .await
    .unwrap();
    post(
        format!("{}/api/workflows", server.url),
        json!({"workflow_type": "order"}),
    )
    .await;
    let poll = worker(
        "workflow-tasks/poll",
        json!({"worker_id": "w", "task_queue": "default"}),
    );
    let polled: Value = poll.await.unwrap().json().await.unwrap();
    assert_eq!(
        polled["task"]["history_events"].as_array().unwrap().len(),
        1
    );
    assert_eq!(polled["task"]["next_history_page_token"], "MQ==");
    assert_eq!(
        polled["server_capabilities"]["default_history_page_size"],
        1
    );
}

#[tokio::test]
async fn a_stop_answers_a_waiting_poll() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let client = reqwest::Client::new();
    let worker = |path: &str, body: Value| {
        let request = client.post(format!("{}/api/worker/{path}", server.url));
        request
            .header("X-Durable-Workflow-Protocol-Version", "1.20")
            .json(&body)
            .send()
    };
    worker(
        "register",
        json!({"worker_id": "w", "task_queue": "q", "runtime": "python"}),
    )
    .await
    .unwrap();
    let waiting = worker(
        "workflow-tasks/poll",
        json!({"worker_id": "w", "task_queue": "q", "timeout_seconds": 60}),
    );
    let waiting = tokio::spawn(waiting);
    // The poll must wait in the server before the signal; the metrics show it.
    eventually("the poll waits", || async {
        let metrics = reqwest::get(format!("{}/metrics", server.url))
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        metrics.contains("longhaul_polls_waiting 1").then_some(())
    })
    .await;
    let stopped = tokio::task::spawn_blocking(|| server.stop());
    let answer: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["poll_status"], "empty");
    stopped.await.unwrap();
}

#[test]
fn a_public_address_without_credentials_is_refused_with_advice() {
    let output = longhaul()
        .args(["serve", "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    let said = refused(&output);
    assert!(
        said.contains("--token") && said.contains("--insecure"),
        "{said}"
    );
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Server::start(directory.path(), &[]);
    let output = longhaul()
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(directory.path())
        .output()
        .unwrap();
    let said = refused(&output);
    assert!(said.contains("longhaul.db"), "{said}");
}

#[test]
fn a_used_port_is_reported_with_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let first = Server::start(directory.path(), &[]);
    let address = first.url.trim_start_matches("http://").to_owned();
    let other = tempfile::tempdir().unwrap();
    let output = longhaul()
        .args(["serve", "--listen", &address, "--data"])
        .arg(other.path())
        .output()
        .unwrap();
    let said = refused(&output);
    assert!(
        said.contains(&address) && said.contains("--listen"),
        "{said}"
    );
}

#[test]
fn invalid_settings_are_refused() {
    for (arguments, word) in [
        (vec!["serve", "--listen", "nowhere"], "nowhere"),
        (vec!["serve", "--store", "mysql://x"], "sqlite:PATH"),
        (
            vec!["serve", "--store", "postgres://me:secret@127.0.0.1:1/x"],
            "me@127.0.0.1:1",
        ),
        (
            vec!["serve", "--store", "postgres://h/d?nonsense=1"],
            "nonsense",
        ),
        (
            vec!["serve", "--config", "/does/not/exist.toml"],
            "/does/not/exist.toml",
        ),
        (vec!["serve", "--log", "a=b=c"], "log filter"),
        (vec!["serve", "--history-page-size", "0"], "from 1 to 1000"),
    ] {
        let output = longhaul().args(&arguments).output().unwrap();
        let said = refused(&output);
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn logs_can_be_json_and_contain_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--log-format", "json"]);
    let url = server.url.clone();
    let log = server.stop();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let serving = lines
        .iter()
        .find(|line| line["message"] == "serving")
        .unwrap();
    assert_eq!(serving["address"], url.trim_start_matches("http://"));
}
