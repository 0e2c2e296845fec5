//! Three servers on one PostgreSQL.
//!
//! `load` has runs of both families (`code_runs` those of code), `faults` causes all faults under that load with a `proxy` before
//! PostgreSQL, `clocks` has servers with wrong clocks, `upgrades` replaces servers by those of a later release, `probes` is what an
//! operator sees. The suites of the published clients on several servers are in `postgres`.

mod clocks;
mod code_runs;
mod faults;
mod load;
mod probes;
mod proxy;
mod upgrades;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Caller, Server, ServerOptions, eventually};

const SERVERS: usize = 3;

/// Starts servers on one database.
async fn servers(options: &ServerOptions) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(options.clone().start().await);
    }
    servers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_list_each_other() {
    let servers = servers(&ServerOptions::new().postgres()).await;
    for server in &servers {
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

/// Many signals come to all servers at once. A server decides the next one before the commit of the one before is answered, and that
/// commit may lose against another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_to_one_run_at_all_servers_are_recorded_once() {
    const SENDERS: usize = 24;
    const SIGNALS: usize = 10;
    let servers = servers(&ServerOptions::new().postgres()).await;
    let caller = Caller::new(servers.iter().map(Server::url));
    let start = json!({"workflow_type": "w", "workflow_id": "w", "task_queue": "q"});
    assert_eq!(caller.post("/workflows", &start).await.0, 201);
    let mut sending = JoinSet::new();
    for sender in 0..SENDERS {
        let caller = caller.clone();
        sending.spawn(async move {
            for number in 0..SIGNALS {
                let id = format!("{sender}-{number}");
                let signal = json!({"input": [id], "request_id": id});
                let (status, answer) = caller.post("/workflows/w/signal/go", &signal).await;
                assert_eq!(status, 202, "{answer}");
            }
        });
    }
    while let Some(sent) = sending.join_next().await {
        sent.unwrap();
    }
    let control = servers[0].control();
    let runs = control.run_ids("w").await;
    let history = control.history("w", &runs[0]).await;
    assert_eq!(history.count("SignalReceived"), SENDERS * SIGNALS);
    let sequences = history.events().iter().map(|event| &event["sequence"]);
    let expected: Vec<Value> = (1..=history.len()).map(|number| json!(number)).collect();
    assert!(sequences.eq(&expected));
}
