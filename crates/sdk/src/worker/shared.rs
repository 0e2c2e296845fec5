//! The shared state of a running worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::Notify;

use super::api::Api;
use super::cache::Cache;
use super::metrics::Counters;
use super::sessions::Sessions;
use super::wire::Capabilities;
use crate::activity::Extensions;
use crate::definition::{ActivityDefinition, WorkflowDefinition};
use crate::workflow::ReplayError;

/// The shared state of a running worker.
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) queue: String,
    pub(super) build_id: Option<String>,
    pub(super) workflows: HashMap<String, WorkflowDefinition>,
    pub(super) activities: HashMap<String, ActivityDefinition>,
    /// Activities for local calls only.
    pub(super) local_activities: HashMap<String, ActivityDefinition>,
    pub(super) data: Arc<Extensions>,
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    pub(super) running: Running,
    pub(super) sessions: Sessions,
    /// The capabilities of the server at the registration.
    pub(super) capabilities: RwLock<Capabilities>,
}

impl Shared {
    /// Returns the page size of histories that the server recommends.
    pub(super) fn history_page_size(&self) -> Option<u64> {
        self.capabilities.read().default_history_page_size
    }

    /// Fails if a command uses a capability that the server does not advertise. The server would refuse or ignore it.
    pub(super) fn check_capabilities(&self, commands: &[Value]) -> Result<(), ReplayError> {
        let server = self.capabilities.read();
        for command in commands {
            let uses_session = !command["worker_session"].is_null();
            let is_memo = command["type"] == "upsert_memo";
            let missing = [
                (
                    uses_session && !Capabilities::has(&server.worker_sessions),
                    "worker_sessions",
                ),
                (
                    is_memo && !Capabilities::has(&server.workflow_memo_updates),
                    "workflow_memo_updates",
                ),
            ];
            if let Some((_, capability)) = missing.into_iter().find(|(missing, _)| *missing) {
                return Err(ReplayError::MissingCapability { capability });
            }
        }
        Ok(())
    }

    pub(super) fn is_sticky(&self) -> bool {
        self.cache.holds_any() && Capabilities::has(&self.capabilities.read().sticky_execution)
    }
}

/// The number of tasks that the worker is processing.
#[derive(Default)]
pub(super) struct Running {
    tasks: AtomicUsize,
    pub(super) ended: Notify,
}

impl Running {
    pub(super) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }
}

/// Counts one task until it is dropped.
pub(super) struct RunningTask(Arc<Shared>);

impl RunningTask {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.running.tasks.fetch_add(1, Ordering::SeqCst);
        Self(shared.clone())
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.running.tasks.fetch_sub(1, Ordering::SeqCst);
        self.0.running.ended.notify_waiters();
    }
}
