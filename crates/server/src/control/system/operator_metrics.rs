//! `GET /api/system/operator-metrics`: counts of a namespace's activities and worker sessions.

use longhaul_host::ActivityCounts;
use serde_json::{Value, json};

use crate::control::Call;
use crate::control::envelope::Reply;
use crate::gate::Refusal;
use crate::views::worker_session;

pub(in crate::control) async fn read(call: Call) -> Result<Reply, Refusal> {
    call.parameters.check()?;
    let counts = call.host().activity_tasks().counts(&call.namespace).await?;
    let sessions = call.host().sessions().count(&call.namespace).await?;
    Ok(Reply::ok(json!({
        "namespace": call.namespace,
        "operator_metrics": {
            "generated_at": call.host().now(),
            "activities": activities(&counts),
            "worker_sessions": worker_session::counts(&sessions),
        },
    })))
}

/// Renders the activity counts. `queued` activities are all that are not local. Open activities are read now; attempts and failures
/// are counted since the server started.
fn activities(counts: &ActivityCounts) -> Value {
    let ActivityCounts { queued, local, .. } = counts;
    let (of_queues, of_workers) = (&counts.queued_totals, &counts.local_totals);
    json!({
        "open": queued.open() + local.open(),
        "pending": queued.pending + local.pending,
        "running": queued.running + local.running,
        "local": of_workers.scheduled,
        "local_open": local.open(),
        "local_pending": local.pending,
        "local_running": local.running,
        "local_attempts": of_workers.attempts,
        "local_failed_attempts": of_workers.failed_attempts,
        "queued_open": queued.open(),
        "queued_pending": queued.pending,
        "queued_running": queued.running,
        "queued_failed_attempts": of_queues.failed_attempts,
        "retrying": counts.retrying,
        "timeout_overdue": counts.timeout_overdue,
        "failed_attempts": of_queues.failed_attempts + of_workers.failed_attempts,
        "max_attempt_count": counts.max_attempt_count,
        "is_complete": counts.is_whole,
    })
}
