//! Workers as processes: the program of this test starts itself again for each worker.
//!
//! It has no test harness, because a worker process must come to the handler as the program itself does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Path as UrlPath, State};
use axum::http::HeaderMap;
use longhaul_conductor_sdk::handler::WorkerStatus;
use longhaul_conductor_sdk::settings::CodeSettings;
use longhaul_conductor_sdk::worker::{AnyWorker, function};
use longhaul_conductor_sdk::{Configuration, MetricsSettings, TaskHandler};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Names the worker of a process.
const ROLE: &str = "LONGHAUL_CONDUCTOR_WORKER";

/// The address of a server of the test, for a program that this one starts.
const SERVER: &str = "LONGHAUL_TEST_SERVER";

/// How long all tests may take on a busy machine.
const TESTS_MAX: Duration = Duration::from_secs(180);

fn worker(task_type: &str) -> AnyWorker {
    function(task_type, |input: Value| Ok(input)).settings(CodeSettings::new().thread_count(3))
}

fn configuration() -> Configuration {
    match std::env::var(SERVER) {
        Ok(url) => Configuration::new(format!("{url}/api")).key("key", "secret"),
        // No server listens there: polls fail, and the workers live on.
        Err(_) => Configuration::new("http://127.0.0.1:9/api"),
    }
}

/// Returns a handler of two workers.
fn handler(metrics: Option<MetricsSettings>) -> TaskHandler {
    let workers = [worker("a"), worker("b")];
    let builder = TaskHandler::builder(configuration()).workers(workers);
    let builder = match metrics {
        Some(metrics) => builder.metrics(metrics),
        None => builder,
    };
    builder.build().expect("the workers are valid")
}

fn served() -> MetricsSettings {
    MetricsSettings::new()
        .http_port(0)
        .http_host(IpAddr::V4(Ipv4Addr::LOCALHOST))
        .update_interval(Duration::from_millis(20))
}

/// Waits until the status of all workers is as wanted.
async fn wait_for(handler: &TaskHandler, wanted: impl Fn(&[WorkerStatus]) -> bool) -> Vec<u32> {
    loop {
        let status = handler.worker_status();
        if wanted(&status) {
            return status.iter().filter_map(|worker| worker.pid).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Kills the first worker and waits until both run again. Returns the processes.
async fn kill_first(handler: &TaskHandler, pids: &[u32]) -> Vec<u32> {
    let killed = std::process::Command::new("kill")
        .args(["-9", &pids[0].to_string()])
        .status();
    assert!(killed.expect("kill exists").success());
    wait_for(handler, |status| {
        status[0].restarts == 1 && status.iter().all(|worker| worker.alive)
    })
    .await
}

async fn each_worker_has_a_process_and_a_dead_one_is_started_again() {
    let mut handler = handler(None);
    assert_eq!(handler.metrics_address(), None);
    handler.start_processes().await;
    let first = wait_for(&handler, |status| status.iter().all(|worker| worker.alive)).await;
    assert_eq!(first.len(), 2);
    assert_ne!(first[0], first[1]);
    assert!(!first.contains(&std::process::id()));

    let second = kill_first(&handler, &first).await;
    assert_ne!(second[0], first[0], "the dead worker has a new process");
    assert_eq!(second[1], first[1], "the other one did not notice");

    handler.stop_processes();
    let ended = handler.join_processes().await;
    assert_eq!(ended.len(), 2);
    assert!(ended.iter().all(|worker| !worker.was_killed), "{ended:?}");
}

/// Returns the text of a page.
async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it is served");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut response = String::new();
    let read = stream.read_to_string(&mut response).await;
    read.expect("it responds");
    response
}

/// Returns the value of a sample. Zero if there is none.
fn value(text: &str, sample: &str) -> u64 {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(sample)?.trim().parse().ok());
    found.unwrap_or(0)
}

/// Returns how often each worker polled.
async fn polls(address: SocketAddr) -> [u64; 2] {
    let text = get(address, "/metrics").await;
    ["a", "b"].map(|name| value(&text, &format!("task_poll_total{{taskType=\"{name}\"}}")))
}

async fn metrics_of_all_processes_are_on_one_page_and_survive_a_kill() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let mut handler = handler(Some(served().directory(directory.path())));
    let address = handler.metrics_address().expect("there is a port");
    handler.start_processes().await;
    let pids = wait_for(&handler, |status| status.iter().all(|worker| worker.alive)).await;
    let mut seen = polls(address).await;
    while seen.contains(&0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = polls(address).await;
    }
    assert!(get(address, "/health").await.starts_with("HTTP/1.1 200"));

    let watching = async {
        // Never fewer than before, and at last more than the killed process had.
        let mut last = seen;
        loop {
            let now = polls(address).await;
            assert!(now[0] >= last[0] && now[1] >= last[1], "{now:?} {last:?}");
            last = now;
            let text = get(address, "/metrics").await;
            let restarts = value(&text, "worker_restart_total{taskType=\"a\"}");
            if restarts == 1 && now[0] > seen[0] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::join!(kill_first(&handler, &pids), watching);

    handler.stop_processes();
    handler.join_processes().await;
    let closed = TcpStream::connect(address).await;
    assert!(closed.is_err(), "the port is closed");
    drop(handler);
    let left = std::fs::read_dir(directory.path()).expect("it exists");
    assert_eq!(left.count(), 0, "the files of the processes are removed");
}

/// Runs a worker process that ends at once, and returns what it logged.
fn logged(program: &Path, variables: &[(&str, &str)]) -> String {
    let output = std::process::Command::new(program)
        .env_remove("CONDUCTOR_LOG_LEVEL")
        .env_remove("CONDUCTOR_LOG_FORMAT")
        .env(ROLE, "0:a")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started");
    String::from_utf8(output.stderr).expect("the log is text")
}

async fn the_log_level_comes_from_the_environment() {
    let program = std::env::current_exe().expect("the program has a path");
    let text = logged(&program, &[("CONDUCTOR_LOG_LEVEL", "info")]);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains(" INFO "), "{text}");
    assert!(first.contains("worker settings"), "{text}");

    let json = [
        ("CONDUCTOR_LOG_LEVEL", "DEBUG"),
        ("CONDUCTOR_LOG_FORMAT", "json"),
    ];
    let text = logged(&program, &json);
    let first = text.lines().next().unwrap_or_default();
    let first: Value = serde_json::from_str(first).expect("the first line is JSON already");
    assert_eq!(first["message"], "worker settings");
    let settings = first["settings"].as_str().unwrap_or_default();
    assert!(settings.contains("thread_count=3 (code)"), "{settings}");

    assert_eq!(logged(&program, &[]), "", "nothing is installed");
    let text = logged(&program, &[("CONDUCTOR_LOG_LEVEL", "loud")]);
    assert!(text.contains("CONDUCTOR_LOG_LEVEL"), "{text}");
}

/// A server that issues a token at every request for one, and remembers who polled with which.
#[derive(Clone, Default)]
struct Issuer(Arc<Mutex<Issued>>);

#[derive(Default)]
struct Issued {
    tokens: usize,
    /// The polls of each task type, and the tokens and connections that they had.
    by_type: BTreeMap<String, (usize, BTreeSet<String>, BTreeSet<SocketAddr>)>,
}

async fn issue(State(issuer): State<Issuer>) -> String {
    let mut issued = issuer.0.lock();
    issued.tokens += 1;
    format!(r#"{{"token": "token {}"}}"#, issued.tokens)
}

async fn poll(
    State(issuer): State<Issuer>,
    UrlPath(task_type): UrlPath<String>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> &'static str {
    let token = headers["X-Authorization"].to_str().unwrap_or_default();
    let mut issued = issuer.0.lock();
    let (polls, tokens, peers) = issued.by_type.entry(task_type).or_default();
    *polls += 1;
    tokens.insert(token.to_owned());
    peers.insert(peer);
    "[]"
}

/// A program whose workers have a server runs them as processes of its own.
async fn each_process_has_its_own_connections_and_token() {
    let issuer = Issuer::default();
    let router = Router::new()
        .route("/api/token", axum::routing::post(issue))
        .route("/api/tasks/poll/batch/{type}", axum::routing::get(poll))
        .with_state(issuer.clone())
        .into_make_service_with_connect_info::<SocketAddr>();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has an address");
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let program = std::env::current_exe().expect("the program has a path");
    let mut parent = tokio::process::Command::new(program)
        .env(SERVER, format!("http://{address}"))
        .kill_on_drop(true)
        .spawn()
        .expect("the program can be started");
    let polled_often = || {
        let issued = issuer.0.lock();
        let often = issued.by_type.values().filter(|(polls, _, _)| *polls >= 5);
        often.count() == 2
    };
    while !polled_often() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The workers see that their parent is gone.
    parent.kill().await.expect("it ran");
    serving.abort();
    let issued = issuer.0.lock();
    assert_eq!(issued.tokens, 2, "the parent has none");
    let (_, tokens_of_a, peers_of_a) = &issued.by_type["a"];
    let (_, tokens_of_b, peers_of_b) = &issued.by_type["b"];
    assert_eq!((tokens_of_a.len(), tokens_of_b.len()), (1, 1));
    assert!(tokens_of_a.is_disjoint(tokens_of_b));
    assert!(peers_of_a.is_disjoint(peers_of_b));
}

#[tokio::main]
async fn main() {
    if std::env::var_os(ROLE).is_some() || std::env::var_os(SERVER).is_some() {
        let handler = handler(Some(served()));
        let stopped = handler.run_until(std::future::pending::<()>()).await;
        return stopped.expect("the worker ends in time");
    }
    let tests = async {
        each_worker_has_a_process_and_a_dead_one_is_started_again().await;
        each_process_has_its_own_connections_and_token().await;
        metrics_of_all_processes_are_on_one_page_and_survive_a_kill().await;
        the_log_level_comes_from_the_environment().await;
    };
    let ended = tokio::time::timeout(TESTS_MAX, tests).await;
    ended.expect("the tests end");
}
