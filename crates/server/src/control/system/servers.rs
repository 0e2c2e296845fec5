//! `GET /api/system/servers`: the live servers on this store.

use serde_json::json;

use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;

pub(in crate::control) async fn list(call: Call) -> Result<Reply, Refusal> {
    call.parameters.check()?;
    let own = call.host().server_id();
    let servers = call.host().servers().await?;
    let shown = servers.iter().map(|server| {
        json!({
            "server_id": server.server_id,
            "name": server.name,
            "release": server.release,
            "process_id": server.process_id,
            "started_at": server.started_at,
            "seen_at": server.seen_at,
            "workers": server.workers.len(),
            "is_this_server": server.server_id == own,
        })
    });
    Ok(Reply::ok(json!({
        "server_time": call.host().now(),
        "servers": shown.collect::<Vec<_>>(),
    })))
}
