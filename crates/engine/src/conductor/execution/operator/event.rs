//! EVENT: publishes a message. The message is a letter in the outbox of the run, so it is published if and only if the task is.

pub(crate) mod announce;

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::TaskId;
use serde_json::{Value, json};

use crate::conductor::event::{EventMessage, MESSAGE_BYTES_MAX, Sink};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, TaskTimeouts};
use crate::conductor::execution::value::{json_bytes, object};
use crate::conductor::expression::Template;
use crate::run::draft::Draft;
use crate::run::family::outbox::OutboxBody;
use crate::run::state::PartKey;

/// Undelivered events of one run. Delivery takes milliseconds, so only an outage or a run without bounds reaches this.
const EVENTS_WAITING_MAX: usize = 10_000;

impl Pass<'_, '_> {
    /// Adds an EVENT task. It begins when the pass comes to it.
    pub(super) fn add_event(
        &mut self,
        place: &Place,
        id: TaskId,
        mut input: Object,
        sink: &Template,
    ) -> Try<()> {
        let node = place.node().task();
        let shown = self.sink_of(sink)?.unwrap_or_default();
        input.insert("sink".to_owned(), json!(shown));
        input.insert("asyncComplete".to_owned(), json!(node.async_complete));
        let mut task = self.operator_task(place, id, TaskStatus::Scheduled);
        task.timeouts = TaskTimeouts {
            response: 0,
            ..TaskTimeouts::of(&*self.task_def(node, &task.def_name)?)
        };
        self.add_delayed(task, input, self.draft.now);
        Ok(())
    }

    /// Publishes the message of an EVENT task.
    pub(super) fn begin_event(
        &mut self,
        task: &ExecutionTask,
        place: &Place,
        sink: &Template,
    ) -> Try<()> {
        if task.status != TaskStatus::Scheduled {
            return Ok(());
        }
        let input = self.load_object(&task.input)?;
        let published = match self.sink_of(sink)? {
            Ok(sink) => self.publish(task, &sink, input),
            Err(reason) => Err(reason),
        };
        let output = match published {
            Ok(output) => output,
            Err(reason) => {
                self.draft
                    .end_task(task.seq, TaskStatus::Failed, Some(reason), None);
                self.todo.push_back(task.seq);
                return Ok(());
            }
        };
        self.draft.start_task(task.seq, |_| {});
        if place.node().task().async_complete {
            // The receiver of the message ends the task.
            self.draft.update_task(task.seq, Some(output), |_| {});
        } else {
            self.draft
                .end_task(task.seq, TaskStatus::Completed, None, Some(output));
            self.todo.push_back(task.seq);
        }
        Ok(())
    }

    fn sink_of(&self, sink: &Template) -> Try<Result<String, String>> {
        Ok(self.resolve(sink)?.map(|sink| match sink {
            Value::String(sink) => sink,
            Value::Null => String::new(),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        }))
    }

    /// Puts the message into the outbox. Returns it as the output of the task, or why it cannot be published.
    fn publish(
        &mut self,
        task: &ExecutionTask,
        sink: &str,
        mut message: Object,
    ) -> Result<Object, String> {
        let event = match Sink::of(sink) {
            Sink::Conductor(name) => {
                let name = name.unwrap_or_else(|| task.node_reference());
                format!("conductor:{}:{name}", self.draft.spec.workflow_type)
            }
            Sink::Unknown(provider) => {
                return Err(format!(
                    "Error loading queue:{sink}, for task:{}, error: Unknown queue type {provider}",
                    task.id
                ));
            }
        };
        message.extend(self.draft.run_members());
        let depth = self.draft.execution().depth;
        let payload = Arc::new(Value::Object(message.clone()));
        self.draft.publish(EventMessage {
            event: event.clone(),
            message_id: task.id.to_string(),
            payload,
            depth,
        })?;
        message.insert("event_produced".to_owned(), json!(event));
        Ok(message)
    }
}

impl Draft<'_> {
    /// Returns the members of a message that name the run.
    pub(crate) fn run_members(&self) -> Object {
        let execution = self.execution();
        object(json!({
            "workflowInstanceId": self.spec.workflow_id, "workflowType": self.spec.workflow_type,
            "workflowVersion": execution.version, "correlationId": execution.correlation_id,
            "taskToDomain": *execution.task_to_domain,
        }))
    }

    /// Puts an event into the outbox, or returns which limit it is over.
    pub(crate) fn publish(&mut self, message: EventMessage) -> Result<(), String> {
        let bytes = json_bytes(&*message.payload);
        if bytes > MESSAGE_BYTES_MAX {
            return Err(format!(
                "The message has {bytes} bytes, more than {MESSAGE_BYTES_MAX} (limit: event message)"
            ));
        }
        let waiting = self.parts_between(PartKey::Outbox(0), PartKey::Outbox(u64::MAX));
        if waiting.count() >= EVENTS_WAITING_MAX {
            return Err(format!(
                "More than {EVENTS_WAITING_MAX} messages of the workflow wait for delivery (limit: waiting events)"
            ));
        }
        self.outbox().enqueue(OutboxBody::Event(Box::new(message)));
        Ok(())
    }
}
