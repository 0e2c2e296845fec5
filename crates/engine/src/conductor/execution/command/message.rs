//! Messages that callers push to a definition run. They wait in its inbox until a PULL_WORKFLOW_MESSAGES task takes them.

use std::sync::Arc;

use longhaul_protocol::conductor::Object;
use longhaul_protocol::history::{EventPayload, ExecutionMessageReceived};
use longhaul_protocol::id::TaskId;

use super::control::{into_step, unlooked};
use crate::conductor::execution::lookup::{LookupResults, Step};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::InboxMessage;
use crate::conductor::execution::value::measured;
use crate::conductor::limits::{INBOX_BYTES_MAX, INBOX_MESSAGE_BYTES_MAX, INBOX_MESSAGES_MAX};
use crate::run::draft::Draft;
use crate::run::state::{Part, PartKey, Run};
use crate::{Command, Decision, Moment, Rejection};

/// The type of the tasks that take messages.
const PULL: &str = "PULL_WORKFLOW_MESSAGES";

/// Puts a message into the inbox of a run, and lets a task that waits for it go on.
#[derive(Clone, Debug)]
pub struct PushMessage {
    pub payload: Object,
}

impl Command for PushMessage {
    /// The id of the message.
    type Reply = String;

    fn decide(&self, run: &Run, moment: Moment<'_>) -> Decision<String> {
        unlooked(self.step(run, moment, &LookupResults::default()))
    }

    fn step(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Step<String> {
        into_step(self.push(run, moment, found))
    }
}

impl PushMessage {
    fn push(&self, run: &Run, moment: Moment<'_>, found: &LookupResults) -> Try<Decision<String>> {
        let mut draft = Draft::of(run, moment);
        if run.core.closed.is_some() {
            let status = run.core.status;
            return Ok(Decision::reject(Rejection::RunNotActive { status }));
        }
        if draft.execution().paused {
            return Ok(Decision::reject(Rejection::RunPaused));
        }
        let (payload, bytes) = measured(self.payload.clone());
        if let Some(refusal) = refusal(&draft, bytes) {
            return Ok(Decision::reject(refusal));
        }
        let id: TaskId = draft.ids.mint_uuid();
        let id = id.to_string();
        draft.append(EventPayload::ExecutionMessageReceived(Box::new(
            ExecutionMessageReceived {
                message_id: id.clone(),
                payload: Arc::clone(&payload),
            },
        )));
        let execution = draft.execution_mut();
        execution.last_message += 1;
        let number = execution.last_message;
        let message = InboxMessage {
            id: id.clone(),
            received_at: moment.now,
            payload,
            bytes: bytes as u64,
        };
        draft.put(PartKey::Inbox(number), Part::Inbox(Box::new(message)));
        let waiting: Vec<u64> = draft
            .open_tasks()
            .filter(|task| task.task_type == PULL)
            .map(|task| task.seq)
            .collect();
        if waiting.is_empty() {
            return Ok(draft.finish(Ok(id)));
        }
        let mut pass = Pass::new(draft, found)?;
        pass.todo.extend(waiting);
        Ok(pass.run()?.finish(Ok(id)))
    }
}

/// Returns why the inbox does not take a message of this length.
fn refusal(draft: &Draft<'_>, bytes: usize) -> Option<Rejection> {
    if bytes > INBOX_MESSAGE_BYTES_MAX {
        return Some(Rejection::ValueTooLarge {
            message: format!(
                "The message has {bytes} bytes, more than {INBOX_MESSAGE_BYTES_MAX} (limit: message to a workflow)"
            ),
        });
    }
    let (mut count, mut sum) = (0, bytes as u64);
    for (_, message) in draft.inbox() {
        count += 1;
        sum += message.bytes;
    }
    let message = if count >= INBOX_MESSAGES_MAX {
        format!(
            "{count} messages wait for the workflow already (limit: {INBOX_MESSAGES_MAX} messages)"
        )
    } else if sum > INBOX_BYTES_MAX {
        format!(
            "The messages that wait for the workflow would have {sum} bytes (limit: {INBOX_BYTES_MAX} bytes)"
        )
    } else {
        return None;
    };
    Some(Rejection::InboxFull { message })
}
