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

use serde_json::Value;

use crate::harness::{ServerOptions, eventually};

const SERVERS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_list_each_other() {
    let options = ServerOptions::new().postgres();
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(options.clone().start().await);
    }
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
