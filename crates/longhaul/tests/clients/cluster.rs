//! Three servers on one PostgreSQL. The programs of the published clients send each request to the next server, and servers are killed
//! and stopped under load.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{Balancer, Server, ServerOptions, eventually, run_at};

const SERVERS: usize = 3;

struct Cluster {
    servers: Vec<Server>,
    balancer: Balancer,
}

async fn cluster() -> Cluster {
    // A client on a busy machine may give up a task and keep its lease.
    let options = ServerOptions::new().postgres().lease_seconds(20);
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(options.clone().start().await);
    }
    let urls = servers.iter().map(|server| server.url().to_owned());
    let balancer = Balancer::start(urls.collect()).await;
    Cluster { servers, balancer }
}

async fn python(program: &str) {
    let cluster = cluster().await;
    run_at(
        "python",
        program,
        &cluster.servers[0],
        cluster.balancer.url(),
    )
    .await;
}

async fn conductor(program: &str) {
    let cluster = cluster().await;
    run_at(
        "conductor",
        program,
        &cluster.servers[0],
        cluster.balancer.url(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_workflows_start_and_end() {
    python("lifecycle.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_activities() {
    python("activities.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_messages() {
    python("messages.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_queries() {
    python("queries.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_validators() {
    python("validators.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_children() {
    python("children.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_sessions() {
    python("sessions.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conductor_operators() {
    conductor("operators.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conductor_workers() {
    conductor("workers.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conductor_lists() {
    conductor("lists.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_list_each_other() {
    let cluster = cluster().await;
    for server in &cluster.servers {
        let url = format!("{}/api/system/servers", server.url());
        let listed = eventually("all servers are listed", || async {
            let request = reqwest::Client::new().get(&url);
            let request = request.header("X-Durable-Workflow-Control-Plane-Version", "2");
            let listed: Value = request.send().await.ok()?.json().await.ok()?;
            let servers = listed["servers"].as_array()?.clone();
            (servers.len() == SERVERS).then_some(servers)
        })
        .await;
        let own = listed.iter().filter(|one| one["is_this_server"] == true);
        assert_eq!(own.count(), 1, "{listed:?}");
    }
}

/// Starts definition runs and does their tasks, while one server after another is killed or stopped for longer than a lease lasts.
/// Every run that was accepted ends, and each of its tasks was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_work_survives_the_loss_of_any_server() {
    const RUNS: usize = 40;
    let mut cluster = cluster().await;
    let client = reqwest::Client::new();
    let balancer = cluster.balancer.url().to_owned();
    let url = |path: &str| format!("{balancer}/api{path}");
    let (definitions, start) = (url("/metadata/workflow"), url("/workflow/w"));
    let task = |name: &str| json!({"name": name, "retryCount": 20, "retryDelaySeconds": 0, "responseTimeoutSeconds": 2});
    let put = client
        .post(url("/metadata/taskdefs"))
        .json(&json!([task("a"), task("b")]));
    assert!(put.send().await.unwrap().status().is_success());
    let definition = json!({"name": "w", "version": 1, "tasks": [
        {"name": "a", "taskReferenceName": "a", "type": "SIMPLE"},
        {"name": "b", "taskReferenceName": "b", "type": "SIMPLE"}]});
    let put = client.post(definitions).json(&definition);
    assert!(put.send().await.unwrap().status().is_success());
    let mut ids = Vec::new();
    while ids.len() < RUNS {
        let number = ids.len();
        let sent = client.post(&start).json(&json!({"number": number})).send();
        // A request that met a dying server has no outcome; its run may exist besides these.
        if let Ok(answer) = sent.await
            && answer.status().is_success()
        {
            ids.push(answer.text().await.unwrap());
        }
        if number % 10 == 5 {
            let victim = &mut cluster.servers[number / 10 % SERVERS];
            victim.kill().await;
            victim.restart().await;
        }
    }
    // One server stands still, with what it had taken, and wakes up later.
    cluster.servers[0].signal(Signal::SIGSTOP);
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let mut rounds = 0;
    let survivors: Vec<String> = cluster.servers[1..]
        .iter()
        .map(|server| format!("{}/api", server.url()))
        .collect();
    loop {
        rounds += 1;
        assert!(
            rounds < 400,
            "{} of {RUNS} runs are done: {done:?}",
            done.len()
        );
        let base = &survivors[rounds % survivors.len()];
        for name in ["a", "b"] {
            let poll = format!("{base}/tasks/poll/batch/{name}?count=7&timeout=200");
            let Ok(answer) = client.get(&poll).send().await else {
                continue;
            };
            let found: Vec<Value> = answer.json().await.unwrap_or_default();
            for task in found {
                let report = json!({"taskId": task["taskId"], "workflowInstanceId": task["workflowInstanceId"],
                    "status": "COMPLETED", "outputData": {"by": name}});
                let sent = client.post(format!("{base}/tasks")).json(&report).send();
                assert!(sent.await.unwrap().status().is_success());
                let run = task["workflowInstanceId"].as_str().unwrap().to_owned();
                *done.entry(run).or_default() += 1;
            }
        }
        if ids
            .iter()
            .all(|id| done.get(id).is_some_and(|tasks| *tasks >= 2))
        {
            break;
        }
        if rounds == 20 {
            cluster.servers[0].signal(Signal::SIGCONT);
        }
    }
    if rounds < 20 {
        cluster.servers[0].signal(Signal::SIGCONT);
    }
    for id in ids {
        let url = url(&format!("/workflow/{id}"));
        let run: Value = eventually("the run is complete", || async {
            let run: Value = client.get(&url).send().await.ok()?.json().await.ok()?;
            (run["status"] == "COMPLETED").then_some(run)
        })
        .await;
        let completed = run["tasks"].as_array().unwrap().iter();
        let completed = completed.filter(|task| task["status"] == "COMPLETED");
        assert_eq!(completed.count(), 2, "{run}");
    }
}
