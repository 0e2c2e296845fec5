//! Sizes of queues, and who polled them last.

use std::collections::BTreeMap;

use longhaul_protocol::conductor::PollData;
use serde_json::{Value, json};

use super::answer::Answer;
use super::call::{Call, bad_request, refused};
use crate::gate::Refusal;

async fn all_sizes(call: &Call) -> Result<BTreeMap<String, u64>, Refusal> {
    let tasks = call.host().execution_tasks();
    tasks.queue_sizes(&call.namespace).await.map_err(refused)
}

/// Returns the sizes of the named queues, or of all.
pub(super) async fn sizes(call: Call) -> Result<Answer, Refusal> {
    let all = all_sizes(&call).await?;
    let names = call.texts("taskType");
    if names.is_empty() {
        return Ok(Answer::json(&all));
    }
    let size = |name: &str| (name.to_owned(), all.get(name).copied().unwrap_or(0));
    let named: BTreeMap<String, u64> = names.into_iter().map(size).collect();
    Ok(Answer::json(&named))
}

/// Returns the size of one queue, by the parts of its name.
pub(super) async fn size(call: Call) -> Result<Answer, Refusal> {
    let Some(task_type) = call.text("taskType") else {
        return Err(bad_request("taskType is required".to_owned()));
    };
    let mut name = String::new();
    if let Some(domain) = call.text("domain") {
        name = format!("{domain}:");
    }
    name.push_str(task_type);
    if let Some(namespace) = call.text("executionNamespace") {
        name = format!("{name}@{namespace}");
    }
    if let Some(group) = call.text("isolationGroupId") {
        name = format!("{name}-{group}");
    }
    let size = all_sizes(&call).await?.get(&name).copied();
    Ok(Answer::json(&size.unwrap_or(0)))
}

/// Returns the sizes of all queues.
pub(super) async fn all(call: Call) -> Result<Answer, Refusal> {
    Ok(Answer::json(&all_sizes(&call).await?))
}

/// Returns the sizes of all queues by shard. A queue has one shard, and a task that a worker gets leaves it at once.
pub(super) async fn all_verbose(call: Call) -> Result<Answer, Refusal> {
    let shards = |size: u64| json!({"a": {"size": size, "uacked": 0}});
    let all = all_sizes(&call).await?.into_iter();
    let verbose: BTreeMap<String, Value> = all.map(|(name, size)| (name, shards(size))).collect();
    Ok(Answer::json(&verbose))
}

/// Returns the newest poll of each domain of a task type.
pub(super) async fn poll_data(call: Call) -> Result<Answer, Refusal> {
    let Some(task_type) = call.text("taskType") else {
        return Err(bad_request("taskType is required".to_owned()));
    };
    Ok(shown_polls(&call, Some(task_type)))
}

/// Returns the newest poll of every queue.
pub(super) async fn all_poll_data(call: Call) -> Result<Answer, Refusal> {
    Ok(shown_polls(&call, None))
}

fn shown_polls(call: &Call, task_type: Option<&str>) -> Answer {
    let tasks = call.host().execution_tasks();
    let shown: Vec<PollData> = tasks
        .last_polls(&call.namespace, task_type)
        .into_iter()
        .map(|poll| PollData {
            queue_name: poll.task_type,
            domain: poll.domain,
            worker_id: poll.worker_id,
            last_poll_time: i64::try_from(poll.at.as_millis()).unwrap_or(i64::MAX),
        })
        .collect();
    Answer::json(&shown)
}
