//! `onStateChange`: events that a definition publishes when the status of a task changes. A change is noted where it is recorded, and
//! published by the pass, which can resolve expressions.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use serde_json::{Value, json};

use crate::conductor::event::{EventMessage, Sink};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::ExecutionTask;
use crate::conductor::execution::value::object;
use crate::conductor::expression::Template;
use crate::run::draft::Draft;

/// Events of one change of a task. A definition lists one or two.
const EVENTS_MAX: usize = 20;

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    Scheduled,
    Started,
    Succeeded,
    Failed,
    Cancelled,
}

impl Transition {
    /// Returns what a final status is.
    pub(crate) fn of_end(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Completed | TaskStatus::CompletedWithErrors | TaskStatus::Skipped => {
                Self::Succeeded
            }
            TaskStatus::Canceled => Self::Cancelled,
            TaskStatus::Failed
            | TaskStatus::FailedWithTerminalError
            | TaskStatus::TimedOut
            | TaskStatus::Scheduled
            | TaskStatus::InProgress => Self::Failed,
        }
    }

    /// Returns the word in a definition.
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "onScheduled",
            Self::Started => "onStart",
            Self::Succeeded => "onSuccess",
            Self::Failed => "onFailed",
            Self::Cancelled => "onCancelled",
        }
    }
}

/// A change that is not published yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateChange {
    seq: u64,
    transition: Transition,
}

impl Draft<'_> {
    /// Notes a change of a task whose node publishes it.
    pub(crate) fn announce(&mut self, seq: u64, transition: Transition) {
        self.state_changes.push(StateChange { seq, transition });
    }
}

impl Pass<'_, '_> {
    /// Publishes the changes that were noted, in their order.
    pub(crate) fn publish_state_changes(&mut self) -> Try<()> {
        for StateChange { seq, transition } in std::mem::take(&mut self.draft.state_changes) {
            let Some(task) = self.draft.task(seq).map(Arc::clone) else {
                continue;
            };
            let Some(place) = self.place_of(&task) else {
                continue;
            };
            let listed = events_on(&place.node().task().on_state_change, transition);
            for (index, (event, payload)) in listed.into_iter().enumerate() {
                self.publish_change(&task, transition, index, &event, payload.as_ref())?;
            }
        }
        Ok(())
    }

    fn publish_change(
        &mut self,
        task: &ExecutionTask,
        transition: Transition,
        index: usize,
        event: &str,
        payload: Option<&Value>,
    ) -> Try<()> {
        let name = match Sink::of(event) {
            Sink::Conductor(name) => name.unwrap_or_else(|| task.node_reference()),
            Sink::Unknown(_) => event,
        };
        let event = format!("conductor:{}:{name}", self.draft.spec.workflow_type);
        let members = match payload {
            None => Object::new(),
            Some(payload) => match self.resolve(&Template::parse(payload))? {
                Ok(Value::Object(members)) => members,
                Ok(other) => object(json!({"payload": other})),
                Err(reason) => object(json!({"error": reason})),
            },
        };
        let about = object(json!({
            "taskId": task.id, "referenceTaskName": task.reference, "status": task.status.as_str(),
            "stateChange": transition.as_str(),
        }));
        let with_names = |draft: &Draft<'_>, members: Object| {
            let mut all = draft.run_members();
            all.extend(about.clone());
            all.extend(members);
            Arc::new(Value::Object(all))
        };
        let whole = EventMessage {
            event,
            message_id: format!("{}:{}:{index}", task.id, transition.as_str()),
            payload: with_names(&self.draft, members),
            depth: self.draft.execution().depth,
        };
        if let Err(reason) = self.draft.publish(whole.clone()) {
            // The change itself is published even if its payload is over a limit.
            let error = object(json!({"error": reason}));
            let short = EventMessage {
                payload: with_names(&self.draft, error),
                ..whole
            };
            let _ = self.draft.publish(short);
        }
        Ok(())
    }
}

/// Returns the events that a node lists for a change: their names and payloads. A key lists several changes, separated by commas.
fn events_on(listed: &Object, transition: Transition) -> Vec<(String, Option<Value>)> {
    let is_for = |key: &str| {
        key.split(',')
            .any(|word| word.trim() == transition.as_str())
    };
    let lists = listed.iter().filter(|(key, _)| is_for(key));
    let events = lists.filter_map(|(_, list)| list.as_array()).flatten();
    events
        .filter_map(|event| {
            let name = event.get("type")?.as_str()?.to_owned();
            Some((name, event.get("payload").cloned()))
        })
        .filter(|(name, _)| !name.is_empty())
        .take(EVENTS_MAX)
        .collect()
}
