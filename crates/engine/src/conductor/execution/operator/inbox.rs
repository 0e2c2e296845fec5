//! PULL_WORKFLOW_MESSAGES, and the inbox of a run: messages that callers pushed and that no task has taken.

use longhaul_protocol::conductor::{Object, TaskStatus};
use serde_json::{Value, json};

use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::{ExecutionTask, InboxMessage};
use crate::conductor::execution::value::object;
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey};

/// Messages that one task takes at most.
const BATCH_MAX: usize = 100;

impl Pass<'_, '_> {
    /// Takes messages for a PULL_WORKFLOW_MESSAGES task and ends it. It goes on waiting if there are none and it may.
    pub(super) fn begin_pull(&mut self, task: &ExecutionTask) -> Try<()> {
        let input = self.load_object(&task.input)?;
        let size = batch_size(&input);
        let waits = match input.get("blocking") {
            Some(Value::Bool(blocking)) => *blocking,
            Some(Value::String(text)) => !text.eq_ignore_ascii_case("false"),
            _ => true,
        };
        let taken: Vec<(PartKey, InboxMessage)> = self
            .draft
            .inbox()
            .take(size)
            .map(|(key, message)| (*key, message.clone()))
            .collect();
        if task.status == TaskStatus::Scheduled {
            self.draft.start_task(task.seq, |_| {});
        }
        if taken.is_empty() && waits {
            return Ok(());
        }
        let workflow_id = &self.draft.spec.workflow_id;
        let messages: Vec<Value> = taken
            .iter()
            .map(|(_, message)| {
                json!({
                    "id": message.id, "workflowId": workflow_id, "payload": message.payload,
                    "receivedAt": message.received_at.as_millis(),
                })
            })
            .collect();
        for (key, _) in &taken {
            self.draft.remove(*key);
        }
        let output = object(json!({"count": messages.len(), "messages": messages}));
        self.draft
            .end_task(task.seq, TaskStatus::Completed, None, Some(output));
        self.todo.push_back(task.seq);
        Ok(())
    }
}

/// Returns how many messages a task takes.
fn batch_size(input: &Object) -> usize {
    let size = match input.get("batchSize") {
        Some(Value::Number(size)) => size.as_f64().map(|size| size as i64),
        Some(Value::String(size)) => size.trim().parse().ok(),
        _ => None,
    };
    usize::try_from(size.unwrap_or(1))
        .unwrap_or(1)
        .clamp(1, BATCH_MAX)
}

impl Draft<'_> {
    /// Returns the messages that wait, oldest first.
    pub(crate) fn inbox(&self) -> impl Iterator<Item = (&PartKey, &InboxMessage)> {
        self.parts_between(PartKey::Inbox(0), PartKey::Inbox(u64::MAX))
            .filter_map(|(key, part)| {
                if let Part::Inbox(message) = part {
                    Some((key, &**message))
                } else {
                    None
                }
            })
    }
}
