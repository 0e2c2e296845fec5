//! The registration of a worker: before it polls, and again when the server does not know it any more. Sends worker heartbeats.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::shared::Shared;
use super::wire::Capabilities;
use crate::connection::Connection;
use crate::definition::WorkflowDefinition;
use crate::transport::{Plane, RequestError};

/// The pause between worker heartbeats if the server does not name one.
pub(super) const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

/// The registered properties of a worker.
pub(super) struct Registration {
    /// The capabilities of the machine.
    pub(super) tags: Vec<String>,
    pub(super) max_workflow_tasks: usize,
    pub(super) max_activities: usize,
    pub(super) max_sessions: usize,
    pub(super) interval: Mutex<Duration>,
}

impl Registration {
    /// Reads the capabilities of the server, then registers the worker.
    pub(super) async fn register(&self, shared: &Shared) -> Result<(), RequestError> {
        let capabilities = fetch_capabilities(&shared.api.connection).await?;
        *shared.capabilities.write() = capabilities;
        let registered = shared.api.register(&self.body(shared)).await?;
        shared.counters.registrations.add();
        if let Some(seconds) = registered.heartbeat_interval_seconds {
            *self.interval.lock() = Duration::from_secs(seconds.max(1));
        }
        if registered
            .server_capabilities
            .default_history_page_size
            .is_some()
        {
            *shared.capabilities.write() = registered.server_capabilities;
        }
        Ok(())
    }

    /// Returns whether the worker takes update validation tasks.
    pub(super) fn validates(&self, shared: &Shared) -> bool {
        shared.capabilities.read().update_validation_tasks
            && shared
                .workflows
                .values()
                .any(|workflow| !workflow.messages.validators.is_empty())
    }

    fn body(&self, shared: &Shared) -> Value {
        let workflows: BTreeMap<&str, Value> = shared
            .workflows
            .values()
            .map(|workflow| (workflow.name(), contract(workflow)))
            .collect();
        let mut activities: Vec<&str> = shared.activities.keys().map(String::as_str).collect();
        activities.sort_unstable();
        let mut body = json!({
            "worker_id": shared.api.worker_id,
            "task_queue": shared.queue,
            "runtime": "longhaul",
            "sdk_version": concat!("longhaul-sdk/", env!("CARGO_PKG_VERSION")),
            "supported_workflow_types": workflows.keys().collect::<Vec<_>>(),
            "supported_activity_types": activities,
            "workflow_command_contracts": workflows,
            "capabilities": self.capabilities(shared),
            "max_concurrent_workflow_tasks": self.max_workflow_tasks,
            "max_concurrent_activity_tasks": self.max_activities,
            "max_concurrent_worker_sessions": self.max_sessions,
        });
        if let Some(build_id) = &shared.build_id {
            body["build_id"] = json!(build_id);
        }
        body
    }

    fn capabilities(&self, shared: &Shared) -> Vec<String> {
        let server = shared.capabilities.read();
        let offered = [
            ("memo_upserts", true),
            ("typed_search_attributes", true),
            ("condition_wait_occurrence_identity", true),
            ("workflow_updates", true),
            ("query_tasks", server.query_tasks),
            ("update_validation_tasks", self.validates(shared)),
            (
                "local_activities",
                Capabilities::has(&server.local_activities),
            ),
            ("durable_local_activities", server.durable_local_activities),
            (
                "worker_sessions",
                Capabilities::has(&server.worker_sessions),
            ),
            (
                "sticky_execution",
                Capabilities::has(&server.sticky_execution),
            ),
            (
                "cooperative_cancellation",
                Capabilities::has(&server.cooperative_cancellation),
            ),
        ];
        let offered = offered.into_iter().filter(|(_, offered)| *offered);
        let names = offered.map(|(name, _)| name.to_owned());
        names.chain(self.tags.iter().cloned()).collect()
    }

    /// Sends worker heartbeats at the interval of the server.
    pub(super) async fn stay_registered(self: Arc<Self>, shared: Arc<Shared>) {
        loop {
            let interval = *self.interval.lock();
            tokio::time::sleep(interval).await;
            let body = json!({"worker_id": shared.api.worker_id});
            let Err(error) = shared.api.heartbeat(&body).await else {
                continue;
            };
            let unregistered = error
                .refusal()
                .is_some_and(|refusal| refusal.reason() == "worker_not_registered");
            let result = if unregistered {
                self.register(&shared).await
            } else {
                Err(error)
            };
            if let Err(error) = result {
                tracing::warn!(%error, "worker heartbeat failed");
            }
        }
    }
}

/// Fetches the capabilities of the server.
async fn fetch_capabilities(connection: &Connection) -> Result<Capabilities, RequestError> {
    let info: Value = connection
        .get(Plane::Control, &["cluster", "info"])
        .send()
        .await?;
    serde_json::from_value(info["worker_protocol"]["server_capabilities"].clone())
        .map_err(|error| RequestError::Malformed(error.to_string()))
}

/// Returns the messages that a workflow lists, so that the server can refuse others. The handlers check the arguments.
fn contract(workflow: &WorkflowDefinition) -> Value {
    let contracts = |names: &[&'static str]| -> Vec<Value> {
        let any = json!([{
            "name": "arguments", "position": 0, "required": false, "variadic": true,
            "default_available": false, "default": null, "type": null, "allows_null": true,
        }]);
        names
            .iter()
            .map(|name| json!({"name": name, "parameters": any}))
            .collect()
    };
    let messages = &workflow.messages;
    json!({
        "queries": messages.queries,
        "query_contracts": contracts(&messages.queries),
        "signals": messages.signals,
        "signal_contracts": contracts(&messages.signals),
        "updates": messages.updates,
        "update_contracts": contracts(&messages.updates),
        "update_validators": messages.validators,
    })
}
