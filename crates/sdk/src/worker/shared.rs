//! What all parts of a running worker share.

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

/// See the module.
pub(super) struct Shared {
    pub(super) api: Api,
    pub(super) queue: String,
    pub(super) build_id: Option<String>,
    pub(super) workflows: HashMap<String, WorkflowDefinition>,
    pub(super) activities: HashMap<String, ActivityDefinition>,
    /// Activities that only this worker's own workflows call.
    pub(super) local_activities: HashMap<String, ActivityDefinition>,
    pub(super) data: Arc<Extensions>,
    pub(super) cache: Cache,
    pub(super) counters: Counters,
    pub(super) running: Running,
    pub(super) sessions: Sessions,
    /// What the server said it can do when the worker registered.
    pub(super) capabilities: RwLock<Capabilities>,
}

impl Shared {
    /// The server knows best how much history fits into an answer.
    pub(super) fn history_page_size(&self) -> Option<u64> {
        self.capabilities.read().default_history_page_size
    }

    /// Nothing is sent that the server has not announced: it would be refused, or worse, ignored.
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

/// The tasks in hand.
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

/// One task in hand, until it is dropped.
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
