//! Queries on workflows, open or closed, for the current run or a named one. Nothing is recorded: a worker replays the history and
//! answers.

use longhaul_protocol::payload;
use serde_json::json;

use super::commands::check_name;
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

pub(in crate::control) async fn query(call: Call) -> Result<Reply, Refusal> {
    let name = call.segment("query_name").to_owned();
    let workflow_id = call.workflow_id();
    let run_id = call.run_id();
    let scope = if run_id.is_some() { "run" } else { "instance" };
    let result = query_named(call, &name, scope).await;
    result.map_err(|refusal| {
        let refusal = refusal
            .with("workflow_id", workflow_id.as_str())
            .with("query_name", name)
            .with("target_scope", scope);
        match &run_id {
            Some(run_id) => refusal.with("run_id", run_id.as_str()),
            None => refusal,
        }
    })
}

async fn query_named(call: Call, name: &str, scope: &str) -> Result<Reply, Refusal> {
    check_name(name, "query_name")?;
    call.check_input()?;
    let body = &call.body;
    let arguments = body.payload(payload::input_list(body.raw("input"), "input"));
    body.check_codec();
    let arguments = body.finish(arguments)?;
    let workflow_id = call.workflow_id();
    let run_id = call.run_id();
    let queried = call
        .host()
        .queries()
        .ask(
            &call.namespace,
            &workflow_id,
            run_id.as_ref(),
            name,
            arguments,
        )
        .await?;
    Ok(Reply::ok(json!({
        "workflow_id": workflow_id,
        "run_id": queried.run_id,
        "workflow_type": queried.workflow_type,
        "query_name": name,
        "target_scope": scope,
        "result": queried.result.shown,
        "result_envelope": queried.result.envelope,
        "reason": null,
    })))
}
