//! Setting up a worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::cache::Cache;
use super::registration::Registration;
use super::sessions::Sessions;
use super::shared::{Running, Shared};
use super::wire::Capabilities;
use super::{Limits, Worker, WorkerHandle};
use crate::activity::Extensions;
use crate::connection::Connection;
use crate::definition::{Activity, ActivityDefinition, Workflow, WorkflowDefinition};

/// A worker in the making; see [`Worker::builder`].
#[must_use = "a worker does nothing until it is built and run"]
pub struct WorkerBuilder {
    connection: Connection,
    queue: String,
    worker_id: String,
    build_id: Option<String>,
    workflows: HashMap<String, WorkflowDefinition>,
    activities: HashMap<String, ActivityDefinition>,
    local_activities: HashMap<String, ActivityDefinition>,
    data: Extensions,
    tags: Vec<String>,
    max_sessions: usize,
    cached_runs: usize,
    limits: Limits,
}

impl WorkerBuilder {
    pub(crate) fn new(connection: Connection, queue: String) -> Self {
        Self {
            connection,
            queue,
            worker_id: format!(
                "longhaul-{}-{:08x}",
                std::process::id(),
                rand::random::<u32>()
            ),
            build_id: None,
            workflows: HashMap::new(),
            activities: HashMap::new(),
            local_activities: HashMap::new(),
            data: Extensions::default(),
            tags: Vec::new(),
            max_sessions: 10,
            cached_runs: 1000,
            limits: Limits {
                workflow_tasks: 50,
                activities: 100,
                workflow_pollers: 4,
                activity_pollers: 4,
                poll: Duration::from_secs(30),
                drain: Duration::from_secs(30),
            },
        }
    }

    /// Runs workflows of a function with `#[workflow]`.
    pub fn workflow<W: Workflow>(self) -> Self {
        self.workflow_definition(W::definition())
    }

    /// Runs workflows of a definition made by hand.
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.workflows
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Runs activities of a function with `#[activity]`.
    pub fn activity<A: Activity>(self) -> Self {
        self.activity_definition(A::definition())
    }

    /// Runs activities of a definition made by hand.
    pub fn activity_definition(mut self, definition: ActivityDefinition) -> Self {
        self.activities
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Runs an activity for this worker's own workflows only, when they call it as a local one: the worker does not poll for it.
    pub fn local_activity<A: Activity>(self) -> Self {
        self.local_activity_definition(A::definition())
    }

    /// As [`local_activity`](Self::local_activity), for a definition made by hand.
    pub fn local_activity_definition(mut self, definition: ActivityDefinition) -> Self {
        self.local_activities
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// A value for all activities, such as a pool of connections; they read it with
    /// [`ActivityContext::data`](crate::ActivityContext::data).
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// The id to register under; made up by default.
    pub fn id(mut self, worker_id: impl Into<String>) -> Self {
        self.worker_id = worker_id.into();
        self
    }

    /// The build of the code in it: runs that began on another one do not come here.
    pub fn build_id(mut self, build_id: impl Into<String>) -> Self {
        self.build_id = Some(build_id.into());
        self
    }

    /// Something its machine has, such as `gpu:nvidia-l4`, for sessions that require it.
    pub fn capability(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// How many sessions it may hold at once; 10 by default.
    pub fn max_concurrent_worker_sessions(mut self, count: usize) -> Self {
        self.max_sessions = count;
        self
    }

    /// How many workflow tasks it answers at once; 50 by default.
    pub fn max_concurrent_workflow_tasks(mut self, count: usize) -> Self {
        self.limits.workflow_tasks = count.max(1);
        self
    }

    /// How many activities it runs at once; 100 by default.
    pub fn max_concurrent_activities(mut self, count: usize) -> Self {
        self.limits.activities = count.max(1);
        self
    }

    /// How many polls for workflow tasks it keeps open; 4 by default.
    pub fn workflow_pollers(mut self, count: usize) -> Self {
        self.limits.workflow_pollers = count.max(1);
        self
    }

    /// How many polls for activities it keeps open; 4 by default.
    pub fn activity_pollers(mut self, count: usize) -> Self {
        self.limits.activity_pollers = count.max(1);
        self
    }

    /// How many runs it keeps in memory between their tasks; 1000 by default, 0 for none.
    pub fn cached_runs(mut self, count: usize) -> Self {
        self.cached_runs = count;
        self
    }

    /// How long the server may hold a poll, between 1 and 60 seconds; 30 by default.
    pub fn poll_timeout(mut self, timeout: Duration) -> Self {
        self.limits.poll = timeout.clamp(Duration::from_secs(1), Duration::from_secs(60));
        self
    }

    /// How long a worker that ends waits for its running tasks; 30 seconds by default.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.limits.drain = timeout;
        self
    }

    /// The worker, ready to run.
    pub fn build(self) -> Worker {
        let registration = Registration {
            tags: self.tags,
            max_workflow_tasks: self.limits.workflow_tasks,
            max_activities: self.limits.activities,
            max_sessions: self.max_sessions,
            interval: Mutex::new(super::registration::DEFAULT_INTERVAL),
        };
        let shared = Arc::new(Shared {
            api: Api {
                connection: self.connection,
                worker_id: self.worker_id,
            },
            queue: self.queue,
            build_id: self.build_id,
            workflows: self.workflows,
            activities: self.activities,
            local_activities: self.local_activities,
            data: Arc::new(self.data),
            cache: Cache::new(self.cached_runs),
            counters: super::metrics::Counters::default(),
            running: Running::default(),
            sessions: Sessions::default(),
            capabilities: RwLock::new(Capabilities::default()),
        });
        Worker {
            handle: WorkerHandle {
                shared: shared.clone(),
                stop: CancellationToken::new(),
                drained: CancellationToken::new(),
            },
            shared,
            registration: Arc::new(registration),
            limits: self.limits,
        }
    }
}
