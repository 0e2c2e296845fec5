//! Logs of tasks.

use longhaul_host::api::NewLog;
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::TaskExecLog;

use super::answer::Answer;
use super::call::{Call, refused};
use crate::gate::Refusal;

pub(super) async fn add(call: Call) -> Result<Answer, Refusal> {
    let text = String::from_utf8_lossy(call.bytes());
    // One published client sends a JSON text with its quotes, the other one without.
    let text = serde_json::from_str::<String>(&text).unwrap_or_else(|_| text.into_owned());
    let tasks = call.host().execution_tasks();
    let added = tasks
        .add_log(&call.namespace, call.segment("a"), text)
        .await;
    added.map_err(refused)?;
    Ok(Answer::Void)
}

pub(super) async fn list(call: Call) -> Result<Answer, Refusal> {
    let tasks = call.host().execution_tasks();
    let log = tasks.log(&call.namespace, call.segment("a")).await;
    Ok(Answer::json(&log.map_err(refused)?))
}

/// Returns the lines of a report.
pub(super) fn read_logs(logs: &[TaskExecLog]) -> Vec<NewLog> {
    logs.iter()
        .map(|log| NewLog {
            text: log.log.clone(),
            created_at: (log.created_time > 0)
                .then(|| Timestamp::from_micros(log.created_time.saturating_mul(1000))),
        })
        .collect()
}
