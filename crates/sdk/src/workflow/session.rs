//! Worker sessions: activities that must run on the same worker.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::activity::ActivityCallBuilder;
use super::replay::journal::Journal;
use crate::definition::ActivityCall;
use crate::duration::timeout_seconds;

/// The id of a session, and what a worker needs to hold it. Durations are rounded up to whole seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSessionOptions {
    pub(crate) session_id: String,
    pub(crate) queue: Option<String>,
    pub(crate) connection: Option<String>,
    pub(crate) requirements: Vec<String>,
    pub(crate) lease: Duration,
    pub(crate) ttl: Duration,
    pub(crate) max_concurrent_activities: u32,
    pub(crate) create_if_missing: bool,
    pub(crate) allow_reacquire_after_failure: bool,
}

impl WorkerSessionOptions {
    /// Creates options for the session with this id, which is unique in the namespace.
    pub fn new(session_id: impl Into<String>) -> Self {
        Self {
            session_id: session_id.into(),
            queue: None,
            connection: None,
            requirements: Vec::new(),
            lease: Duration::from_secs(120),
            ttl: Duration::from_secs(1800),
            max_concurrent_activities: 1,
            create_if_missing: true,
            allow_reacquire_after_failure: true,
        }
    }

    /// Sets the task queue of the workers that may hold the session. The queue of an activity call takes precedence.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the connection. longhaul ignores it; other servers use it.
    #[must_use]
    pub fn connection(mut self, connection: impl Into<String>) -> Self {
        self.connection = Some(connection.into());
        self
    }

    /// Adds a capability that the worker must have, such as `gpu:nvidia-l4`.
    #[must_use]
    pub fn requires(mut self, capability: impl Into<String>) -> Self {
        let capability = capability.into();
        if !self.requirements.contains(&capability) {
            self.requirements.push(capability);
        }
        self
    }

    /// Sets how long the worker keeps the session without renewing it. The default is 120 seconds.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the longest lifetime of the session. The default is 1800 seconds.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how many activities may run in the session at once. The default is 1.
    #[must_use]
    pub fn max_concurrent_activities(mut self, count: u32) -> Self {
        self.max_concurrent_activities = count;
        self
    }

    /// Sets whether the first activity opens the session. If not, a worker must open it. The default is true.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Sets whether another worker may take the session over when its worker is lost. The default is true.
    #[must_use]
    pub fn allow_reacquire_after_failure(mut self, allow: bool) -> Self {
        self.allow_reacquire_after_failure = allow;
        self
    }

    /// Returns the id of the session.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    pub(crate) fn to_wire(&self) -> Value {
        let mut wire = json!({
            "session_id": self.session_id,
            "requirements": self.requirements,
            "lease_seconds": timeout_seconds(self.lease),
            "ttl_seconds": timeout_seconds(self.ttl),
            "max_concurrent_activities": self.max_concurrent_activities,
            "create_if_missing": self.create_if_missing,
            "allow_reacquire_after_failure": self.allow_reacquire_after_failure,
        });
        for (key, value) in [("queue", &self.queue), ("connection", &self.connection)] {
            if let Some(value) = value {
                wire[key] = json!(value);
            }
        }
        wire
    }
}

/// A session in workflow code; see [`WorkflowContext::session`](super::WorkflowContext::session).
#[derive(Clone, Debug)]
pub struct Session {
    pub(super) journal: Arc<Journal>,
    pub(super) options: WorkerSessionOptions,
}

impl Session {
    /// Calls an activity on the worker that holds the session.
    pub fn activity<R: DeserializeOwned + 'static>(
        &self,
        call: ActivityCall<R>,
    ) -> ActivityCallBuilder<R> {
        ActivityCallBuilder::new(self.journal.clone(), call).in_session(&self.options)
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        &self.options.session_id
    }
}
