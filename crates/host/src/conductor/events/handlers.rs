//! Registered event handlers. They are kept in memory with the definitions.

use std::sync::Arc;

use longhaul_engine::conductor::event::{ACTIONS_MAX, HANDLER_BYTES_MAX, HANDLERS_MAX};
use longhaul_engine::conductor::limits::NAME_CHARS_MAX;
use longhaul_engine::conductor::script_result::Evaluator;
use longhaul_engine::conductor::validate::Violation;
use longhaul_protocol::conductor::{EventActionType, EventHandler, Object};
use longhaul_protocol::id::Namespace;
use longhaul_store::{EventHandlerRow, document};
use serde_json::Value;

use super::evaluator_name;
use crate::Host;
use crate::conductor::definitions::Existing;
use crate::conductor::refusal::ConductorRefusal;
use crate::error::{Error, Result};
use crate::views::Events;

impl Events<'_> {
    /// Registers handlers: all of them, or none. With [`Existing::Refuse`] their names must be new, otherwise they must exist.
    pub async fn put_handlers(
        self,
        namespace: &Namespace,
        handlers: Vec<EventHandler>,
        existing: Existing,
    ) -> Result<()> {
        let violations = self.check(&handlers).await;
        if !violations.is_empty() {
            return Err(ConductorRefusal::InvalidDefinition(violations).into());
        }
        let namespace = namespace.clone();
        let write = |host: Host| async move {
            let write = host.events().write_handlers(&namespace, handlers, existing);
            write.await
        };
        self.host.to_the_end(write).await
    }

    async fn write_handlers(
        self,
        namespace: &Namespace,
        handlers: Vec<EventHandler>,
        existing: Existing,
    ) -> Result<()> {
        let mut change = self.host.definitions().change(namespace).await?;
        let known = &change.after.handlers;
        let new = handlers.iter().filter(|new| !known.contains_key(&new.name));
        if known.len() + new.count() > HANDLERS_MAX {
            let message = format!("a namespace has at most {HANDLERS_MAX} event handlers");
            return Err(ConductorRefusal::InvalidDefinition(vec![whole(message)]).into());
        }
        change.begin_writing();
        let key = |handler: &EventHandler| {
            document::key::<EventHandlerRow>(namespace.as_str(), &handler.name, "")
        };
        let write = |place: usize, earlier: Option<EventHandlerRow>| {
            let handler = &handlers[place];
            let is_first = !handlers[..place]
                .iter()
                .any(|other| other.name == handler.name);
            let name = || handler.name.clone();
            match (&earlier, existing) {
                (Some(_), Existing::Refuse) if is_first => {
                    return Err(Error::from(ConductorRefusal::EventHandlerExists(name())));
                }
                (None, Existing::Replace) => {
                    return Err(ConductorRefusal::NoSuchEventHandler(name()).into());
                }
                _ => {}
            }
            Ok(Some(EventHandlerRow {
                namespace: namespace.clone(),
                handler: Arc::new(handler.clone()),
            }))
        };
        let keys = handlers.iter().map(key).collect();
        let store = &self.host.inner.store;
        let stored = store.change_all(keys, self.host.now(), write).await?;
        for row in stored.into_values().flatten() {
            let name = row.handler.name.clone();
            change.after.handlers.insert(name, row.handler);
        }
        change.finish(&**store, self.host.now()).await
    }

    /// Returns every handler, in the order of their names.
    pub async fn handlers(self, namespace: &Namespace) -> Result<Vec<Arc<EventHandler>>> {
        let all = self.host.definitions().all(namespace).await?;
        Ok(all.handlers.values().map(Arc::clone).collect())
    }

    /// Returns a handler.
    pub async fn handler(self, namespace: &Namespace, name: &str) -> Result<Arc<EventHandler>> {
        let all = self.host.definitions().all(namespace).await?;
        let found = all.handlers.get(name).map(Arc::clone);
        found.ok_or_else(|| ConductorRefusal::NoSuchEventHandler(name.to_owned()).into())
    }

    /// Removes a handler.
    pub async fn delete_handler(self, namespace: &Namespace, name: &str) -> Result<()> {
        self.handler(namespace, name).await?;
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let delete = |host: Host| async move {
            let mut change = host.definitions().change(&namespace).await?;
            change.begin_writing();
            let key = document::key::<EventHandlerRow>(namespace.as_str(), &name, "");
            let store = &host.inner.store;
            let removed = store.delete::<EventHandlerRow>(key, host.now()).await?;
            change.after.handlers.remove(&name);
            change.finish(&**store, host.now()).await?;
            if removed {
                Ok(())
            } else {
                Err(ConductorRefusal::NoSuchEventHandler(name).into())
            }
        };
        self.host.to_the_end(delete).await
    }

    /// Returns what is wrong with handlers.
    async fn check(self, handlers: &[EventHandler]) -> Vec<Violation> {
        if handlers.is_empty() {
            return vec![whole("the list of event handlers is empty".to_owned())];
        }
        let mut violations = Vec::new();
        for (index, handler) in handlers.iter().enumerate() {
            let mut own = check_handler(handler);
            let condition = handler.condition.as_deref().unwrap_or_default();
            if Evaluator::of(evaluator_name(handler)) == Evaluator::JavaScript
                && !condition.trim().is_empty()
            {
                let evaluator = &self.host.inner.executor.finder.evaluator;
                if let Err(message) = evaluator.0.check_syntax(condition).await {
                    own.push(wrong("condition", message, Some(condition)));
                }
            }
            for violation in own {
                let path = format!("[{index}].{}", violation.path);
                violations.push(Violation { path, ..violation });
            }
        }
        violations
    }
}

fn whole(message: String) -> Violation {
    wrong("", message, None)
}

fn wrong(path: &str, message: String, value: Option<&str>) -> Violation {
    Violation {
        path: path.to_owned(),
        message,
        invalid_value: value.map(str::to_owned),
    }
}

fn check_handler(handler: &EventHandler) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in [("name", &handler.name), ("event", &handler.event)] {
        let length = text.chars().count();
        if text.trim().is_empty() || length > NAME_CHARS_MAX {
            let message = format!("must have 1 to {NAME_CHARS_MAX} characters");
            violations.push(wrong(path, message, Some(text)));
        }
    }
    match Evaluator::of(evaluator_name(handler)) {
        Evaluator::ValueParam | Evaluator::JavaScript => {}
        Evaluator::Python | Evaluator::Unknown(_) => {
            let name = evaluator_name(handler);
            let message = "must be javascript, graaljs or value-param".to_owned();
            violations.push(wrong("evaluatorType", message, Some(name)));
        }
    }
    if handler.actions.is_empty() || handler.actions.len() > ACTIONS_MAX {
        let message = format!("must have 1 to {ACTIONS_MAX} actions");
        violations.push(wrong("actions", message, None));
    }
    for (index, action) in handler.actions.iter().enumerate() {
        let path = format!("actions[{index}]");
        let Some(action_type) = action.action else {
            violations.push(wrong(&path, "needs the member action".to_owned(), None));
            continue;
        };
        let Some(parameters) = action.parameters() else {
            let message = format!("needs the member {action_type}");
            violations.push(wrong(&path, message, None));
            continue;
        };
        violations
            .extend(missing(action_type, parameters).map(|message| wrong(&path, message, None)));
    }
    let bytes = serde_json::to_string(handler).map_or(0, |text| text.len());
    if bytes > HANDLER_BYTES_MAX {
        violations.push(whole(format!(
            "the handler has {bytes} bytes, more than {HANDLER_BYTES_MAX}"
        )));
    }
    violations
}

/// Returns what an action lacks.
fn missing(action: EventActionType, parameters: &Object) -> Option<String> {
    let has = |name: &str| match parameters.get(name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Null) | None => false,
        Some(_) => true,
    };
    match action {
        EventActionType::StartWorkflow => {
            (!has("name")).then(|| "start_workflow needs a name".to_owned())
        }
        EventActionType::CompleteTask | EventActionType::FailTask => {
            let is_named = has("taskId") || (has("workflowId") && has("taskRefName"));
            (!is_named).then(|| format!("{action} needs taskId, or workflowId and taskRefName"))
        }
        EventActionType::TerminateWorkflow | EventActionType::UpdateWorkflowVariables => {
            (!has("workflowId")).then(|| format!("{action} needs workflowId"))
        }
    }
}
