//! Worker sessions: activities that must run on the same worker, one after the other (worker-sessions.md).

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::activity::CallActivity;
use super::journal::Journal;
use crate::definition::ActivityCall;
use crate::duration::timeout_seconds;

/// Which session, and what a worker must offer to hold it.
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
    /// A session by its id, unique in the namespace.
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

    /// The queue of the workers that may hold it; an activity's own queue goes before.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Carried for other servers; without effect here.
    #[must_use]
    pub fn connection(mut self, connection: impl Into<String>) -> Self {
        self.connection = Some(connection.into());
        self
    }

    /// A capability its worker must have registered, such as `gpu:nvidia-l4`.
    #[must_use]
    pub fn requires(mut self, capability: impl Into<String>) -> Self {
        let capability = capability.into();
        if !self.requirements.contains(&capability) {
            self.requirements.push(capability);
        }
        self
    }

    /// How long a silent worker keeps it. Whole seconds.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long it may live at all. Whole seconds.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How many of its activities may run at once.
    #[must_use]
    pub fn max_concurrent_activities(mut self, count: u32) -> Self {
        self.max_concurrent_activities = count;
        self
    }

    /// Whether the first activity opens it; otherwise a worker must.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Whether another worker may take it over when its holder is lost.
    #[must_use]
    pub fn allow_reacquire_after_failure(mut self, allow: bool) -> Self {
        self.allow_reacquire_after_failure = allow;
        self
    }

    /// Its id.
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

/// A session as workflow code uses it.
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
    ) -> CallActivity<R> {
        CallActivity::new(self.journal.clone(), call).in_session(&self.options)
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.options.session_id
    }
}
