//! The probes of servers and the check of a store, as an operator uses them.

use std::time::Duration;

use serde_json::Value;

use crate::binary::longhaul;
use crate::harness::eventually;

/// The probes of a balancer give up after some seconds, too.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Waits until `/api/ready` of a server has this status. Returns its body.
pub(super) async fn wait_for_readiness(url: &str, status: u16) -> Value {
    let http = reqwest::Client::builder().timeout(ANSWER_DEADLINE);
    let http = http.no_proxy().build().expect("a client");
    let (ready, live) = (format!("{url}/api/ready"), format!("{url}/livez"));
    eventually(&format!("{ready} returns {status}"), || async {
        let answer = http.get(&live).send().await.expect("the server is alive");
        assert_eq!(answer.status().as_u16(), 200, "{live}");
        let answer = http.get(&ready).send().await.ok()?;
        let found = answer.status().as_u16();
        let body = answer.json().await.ok()?;
        (found == status).then_some(body)
    })
    .await
}

/// Runs `longhaul store check` and expects that it finds no problem.
pub(super) async fn expect_sound_store(url: &str) {
    let mut command = tokio::process::Command::from(longhaul());
    command.args(["store", "check", "--json", "--store", url]);
    let output = command.output().await.expect("the program runs");
    let (said, complained) = (&output.stdout, &output.stderr);
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(said),
        String::from_utf8_lossy(complained)
    );
    assert!(output.status.success(), "{said}");
}
