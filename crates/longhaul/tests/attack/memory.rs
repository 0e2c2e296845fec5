//! Large amounts of everything. Memory must depend on the current work of the server, not on everything that it has received.
//!
//! The limit is on mapped memory, which is more than resident memory; a server that needs more ends. Each test has its own server,
//! so that one peak does not hide another.

use serde_json::{Value, json};

use crate::server::Server;
use crate::wire::{Client, Request};
use crate::world::envelope;

/// The memory of a small container.
const MEMORY_MAX_BYTES: u64 = 512 << 20;

/// A large payload that is still accepted, as JSON text.
const LARGE_BYTES: usize = 1_400_000;

/// Large results in one history: 400 MiB.
const SIDE_EFFECTS: usize = 300;

/// The number that fits into the body of one completion.
const SIDE_EFFECTS_PER_TASK: usize = 7;

/// Large signals that are sent to one run.
const SIGNALS: u64 = 150;

/// A page ends at 4 MiB. The last event may be large, and the envelope adds some bytes.
const POLL_MAX_BYTES: usize = 7 << 20;

/// Names of queues that activities are put on.
const QUEUES: u64 = 100_000;

/// The number that one workflow may have open.
const QUEUES_PER_WORKFLOW: u64 = 1000;

/// The memory that the server may use after that many names. Each would cost three kilobytes if it were kept.
const QUEUES_MAX_BYTES: u64 = 250 << 20;

/// Names of queues that are polled.
const POLLED_QUEUES: u64 = 8000;

/// The memory that may remain of them. Each would cost five kilobytes if it were kept.
const POLLED_QUEUES_MAX_BYTES: u64 = 16 << 20;

/// Workers that register and send nothing afterwards.
const WORKERS: u64 = 20_000;

/// The largest response of a list.
const PAGE_MAX_BYTES: usize = 1 << 20;

/// Connections that load at once.
const LOADERS: u64 = 4;

/// Sends the requests that `make` makes for every number below `count`, on several connections. All must be accepted.
async fn load(server: &Server, count: u64, make: fn(u64) -> Vec<Request>) {
    let loaders: Vec<_> = (0..LOADERS)
        .map(|first| {
            let mut client = server.client();
            tokio::spawn(async move {
                for number in (first..count).step_by(LOADERS as usize) {
                    for request in make(number) {
                        let answer = client.send(&request).await.expect("an answer");
                        assert!(answer.status < 300, "{} {}", answer.status, answer.text());
                    }
                }
            })
        })
        .collect();
    for loader in loaders {
        loader.await.expect("a loader ends");
    }
}

fn post(target: &str, body: &Value) -> Request {
    Request::new("POST", target).versioned().json(body)
}

fn registration(worker: &str, queue: &str) -> Value {
    json!({"worker_id": worker, "task_queue": queue, "runtime": "python",
        "supported_workflow_types": [], "supported_activity_types": []})
}

async fn register(client: &mut Client, worker: &str, queue: &str) {
    let body = registration(worker, queue);
    client.post("/api/worker/register", body).await;
}

fn large(seed: u64) -> Value {
    json!([format!("{seed:08}").repeat(LARGE_BYTES / 8)])
}

fn check(server: &mut Server) {
    assert!(server.is_running(), "the server has ended");
    let peak = server.peak_memory_bytes();
    println!("peak: {} MiB", peak >> 20);
    assert!(peak < MEMORY_MAX_BYTES, "the peak was {} MiB", peak >> 20);
}

/// Runs that wait are not kept in memory with their inputs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_runs_with_large_inputs_do_not_stay_in_memory() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    load(&server, 600, |number| {
        let body = json!({"workflow_type": "greet", "workflow_id": format!("large-{number}"), "input": large(number)});
        vec![post("/api/workflows", &body)]
    })
    .await;
    check(&mut server);
}

/// A history of hundreds of megabytes is read in pages that are bounded in bytes, and exported as a stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_history_is_polled_read_and_exported_in_pieces() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    let mut client = server.client();
    register(&mut client, "w", "default").await;
    let run = start(&mut client, "long").await;
    // As many in a completion as its body can contain.
    let side_effect = json!({"type": "record_side_effect", "result": envelope(&large(1))});
    let commands = vec![side_effect; SIDE_EFFECTS_PER_TASK];
    for _ in 0..SIDE_EFFECTS / SIDE_EFFECTS_PER_TASK {
        let task = poll(&mut client).await;
        let bytes = task.to_string().len();
        assert!(bytes < POLL_MAX_BYTES, "{bytes} bytes in one answer");
        let target = format!(
            "/api/worker/workflow-tasks/{}/complete",
            task["task_id"].as_str().expect("a task")
        );
        let attempt = &task["workflow_task_attempt"];
        let body =
            json!({"lease_owner": "w", "workflow_task_attempt": attempt, "commands": commands});
        client.post(&target, body).await;
    }
    let read = read_history(&mut client, "long", &run).await;
    assert!(read >= SIDE_EFFECTS / SIDE_EFFECTS_PER_TASK * SIDE_EFFECTS_PER_TASK);
    let target = format!("/api/workflows/long/runs/{run}/history/export");
    let request = Request::new("GET", &target).versioned();
    let bundle = client.send(&request).await.expect("an export");
    assert!(
        bundle.body.len() > 250 * LARGE_BYTES,
        "{}",
        bundle.body.len()
    );
    check(&mut server);
}

/// Signals that the workflow does not read are limited in bytes; accepted signals are read in pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_large_signals_is_refused_at_its_limit() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    let mut client = server.client();
    register(&mut client, "w", "default").await;
    let run = start(&mut client, "flooded").await;
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..SIGNALS {
        let body = json!({"input": large(number)});
        let request = post("/api/workflows/flooded/signal/poke", &body);
        let answer = client.send(&request).await.expect("an answer");
        if answer.status < 300 {
            accepted += 1;
        } else {
            let body = answer.json();
            assert_eq!(body["reason"], "structural_limit_exceeded", "{body}");
            refused += 1;
        }
    }
    assert!(
        accepted >= 50 && refused > 0,
        "{accepted} accepted, {refused} refused"
    );
    let task = poll(&mut client).await;
    let bytes = task.to_string().len();
    assert!(bytes < POLL_MAX_BYTES, "{bytes} bytes in one answer");
    assert!(read_history(&mut client, "flooded", &run).await >= accepted);
    check(&mut server);
}

async fn start(client: &mut Client, workflow: &str) -> String {
    let body = json!({"workflow_type": "greet", "workflow_id": workflow});
    let started = client.post("/api/workflows", body).await;
    started["run_id"].as_str().expect("a run id").to_owned()
}

/// The next workflow task of worker `w`.
async fn poll(client: &mut Client) -> Value {
    let body = json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 20});
    let answer = client.post("/api/worker/workflow-tasks/poll", body).await;
    assert_eq!(answer["poll_status"], "leased");
    answer["task"].clone()
}

/// Reads a history page by page. Returns the number of events.
async fn read_history(client: &mut Client, workflow: &str, run: &str) -> usize {
    let mut token = String::new();
    let mut read = 0;
    loop {
        let target = format!("/api/workflows/{workflow}/runs/{run}/history?page_size=1000{token}");
        let page = client.get(&target).await;
        let bytes = page.to_string().len();
        assert!(bytes < POLL_MAX_BYTES, "{bytes} bytes in one page");
        read += page["events"].as_array().expect("events").len();
        match page["next_page_token"].as_str() {
            Some(next) => token = format!("&next_page_token={next}"),
            None => return read,
        }
    }
}

/// Workflows put activities on queues without workers and end, and a few workers poll one queue after another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_queues_are_forgotten_when_nothing_waits_there() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    let mut client = server.client();
    register(&mut client, "w", "default").await;
    for workflow in 0..QUEUES / QUEUES_PER_WORKFLOW {
        let id = format!("many-{workflow}");
        let start = json!({"workflow_type": "greet", "workflow_id": id});
        client.post("/api/workflows", start).await;
        let task = poll(&mut client).await;
        let commands: Vec<Value> = (0..QUEUES_PER_WORKFLOW)
            .map(|number| {
                let queue = format!("{workflow:03}-{number:04}-{}", "q".repeat(100));
                json!({"type": "schedule_activity", "activity_type": "say", "queue": queue})
            })
            .collect();
        let target = format!(
            "/api/worker/workflow-tasks/{}/complete",
            task["task_id"].as_str().expect("a task")
        );
        let body = json!({"lease_owner": "w", "workflow_task_attempt": 1, "commands": commands});
        client.post(&target, body).await;
        let target = format!("/api/workflows/{id}/terminate");
        client.post(&target, json!({"reason": "enough"})).await;
    }
    let before = server.memory_bytes();
    load(&server, POLLED_QUEUES, |number| {
        let worker = format!("worker-{}", number % LOADERS);
        let queue = format!("polled-{number:06}-{}", "q".repeat(100));
        let poll = json!({"worker_id": worker, "task_queue": queue, "timeout_seconds": 0});
        vec![
            post("/api/worker/register", &registration(&worker, &queue)),
            post("/api/worker/workflow-tasks/poll", &poll),
            post("/api/worker/activity-tasks/poll", &poll),
            post("/api/worker/query-tasks/poll", &poll),
        ]
    })
    .await;
    let grown = server.memory_bytes().saturating_sub(before);
    println!("{} MiB, then {} MiB more", before >> 20, grown >> 20);
    assert!(before < QUEUES_MAX_BYTES && grown < POLLED_QUEUES_MAX_BYTES);
    check(&mut server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_fit_and_are_listed_in_pages() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    load(&server, WORKERS, |number| {
        let body = json!({"worker_id": format!("worker-{number}"), "task_queue": format!("queue-{}", number % 50),
            "runtime": "python", "build_id": format!("build-{}", number % 200), "supported_workflow_types": ["greet"],
            "supported_activity_types": ["say"], "workflow_definition_fingerprints": {"greet": "sha256:1"}});
        vec![post("/api/worker/register", &body)]
    })
    .await;
    let mut client = server.client();
    for target in ["/api/cluster/info", "/api/workers", "/api/task-queues"] {
        let request = Request::new("GET", target).versioned();
        let answer = client.send(&request).await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(
            answer.body.len() < PAGE_MAX_BYTES,
            "{target}: {} bytes",
            answer.body.len()
        );
    }
    check(&mut server);
}

/// Bodies that are refused for their size cost no more than reading them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_are_refused_without_delaying_others() {
    let mut server = Server::start_within(MEMORY_MAX_BYTES).await;
    let body = json!({"workflow_type": "greet", "input": ["x".repeat(14 << 20)]});
    let request = post("/api/workflows", &body);
    let large: Vec<_> = (0..20)
        .map(|_| {
            let (mut client, request) = (server.client(), request.clone());
            tokio::spawn(async move { client.send(&request).await })
        })
        .collect();
    let mut client = server.client();
    for _ in 0..20 {
        client.get("/api/health").await;
    }
    for sent in large {
        let answer = sent.await.expect("a sender ends").expect("an answer");
        assert!(
            [413, 422, 503].contains(&answer.status),
            "{} {}",
            answer.status,
            answer.text()
        );
    }
    check(&mut server);
}
