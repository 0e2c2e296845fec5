//! A Conductor definition that needs no worker.

use anyhow::{Context, Result, bail};
use longhaul_sdk::transport::{HttpTransport, Method, Request, Transport};
use serde_json::{Value, json};

use crate::output::say;

/// The definition of the example.
const DEFINITION: &str = include_str!("invoice.json");

/// Runs the definition and prints its result.
pub(super) async fn run_example(url: &str) -> Result<()> {
    let definition: Value =
        serde_json::from_str(DEFINITION).context("the example is not a definition")?;
    let items = json!([{"price": 40, "count": 2}, {"price": 30, "count": 1}]);
    let body = json!({"name": "invoice", "workflowDef": definition, "input": {"items": items}});
    let path = "/api/workflow/execute/invoice/1?waitForSeconds=30";
    let mut request = Request::new(Method::Post, path);
    request.body = Some(body.to_string().into());
    let transport = HttpTransport::new(url).context("could not connect to the server")?;
    let answer = transport.send(request).await.context("no answer")?;
    let run: Value = serde_json::from_slice(&answer.body).context("the answer is not JSON")?;
    if run["status"] != "COMPLETED" {
        bail!("an example failed: {run}");
    }
    let output = &run["output"];
    say!(
        "definition: an invoice over {}, {} % off",
        output["total"],
        output["percent"]
    );
    Ok(())
}
