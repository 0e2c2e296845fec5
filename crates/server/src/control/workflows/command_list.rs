//! `GET /api/workflows/{w}/commands` and `…/runs/{r}/commands`: the commands that clients sent to one run, newest first. Accepted
//! commands are kept with the run; of refused ones and of those without an effect only the newest are.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longhaul_host::CommandPage;
use longhaul_protocol::sequence::RequestSeq;
use serde_json::{Value, json};

use super::describe::command;
use super::{PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX};
use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

pub(in crate::control) async fn commands(call: Call) -> Result<Reply, Refusal> {
    let before = call.parameters.page_token(read_token);
    let page_size = call.parameters.page_size(PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX);
    call.parameters.check()?;
    let run_id = call.run_id();
    let (run, _) = call
        .host()
        .workflows()
        .run(&call.namespace, &call.workflow_id(), run_id.as_ref())
        .await?;
    let page = call
        .host()
        .workflows()
        .commands(run.run_id(), before.map(RequestSeq::new), page_size)
        .await?;
    let rows: Vec<Value> = page.commands.iter().map(|row| command(row, &run)).collect();
    Ok(Reply::ok(json!({
        "workflow_id": run.spec.workflow_id,
        "run_id": run.spec.run_id,
        "command_count": page.total,
        "commands": rows,
        "next_page_token": next_page_token(&page),
    })))
}

/// Returns a page token: the number of the page's last command. New commands have higher numbers and do not shift the next page.
pub(super) fn next_page_token(page: &CommandPage) -> Option<String> {
    let last = page.commands.last().filter(|_| page.has_more)?;
    Some(URL_SAFE_NO_PAD.encode(format!("before.{}", last.sequence)))
}

fn read_token(token: &str) -> Option<u64> {
    let place = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    place.strip_prefix("before.")?.parse().ok()
}
