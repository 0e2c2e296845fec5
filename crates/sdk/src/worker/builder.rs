//! The builder of a worker.

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

/// Builds a worker; see [`Worker::builder`].
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

    /// Registers a function with `#[workflow]`.
    pub fn workflow<W: Workflow>(self) -> Self {
        self.workflow_definition(W::definition())
    }

    /// Registers a workflow definition.
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.workflows
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Registers a function with `#[activity]`.
    pub fn activity<A: Activity>(self) -> Self {
        self.activity_definition(A::definition())
    }

    /// Registers an activity definition.
    pub fn activity_definition(mut self, definition: ActivityDefinition) -> Self {
        self.activities
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Registers a function with `#[activity]` for local calls only: workflows on this worker can call it as a local activity,
    /// and the worker does not poll for it.
    pub fn local_activity<A: Activity>(self) -> Self {
        self.local_activity_definition(A::definition())
    }

    /// Registers an activity definition for local calls only.
    pub fn local_activity_definition(mut self, definition: ActivityDefinition) -> Self {
        self.local_activities
            .insert(definition.name().to_owned(), definition);
        self
    }

    /// Adds a value for all activities, such as a connection pool. Activities read it with
    /// [`ActivityContext::data`](crate::ActivityContext::data).
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Sets the worker id. By default it is generated.
    pub fn id(mut self, worker_id: impl Into<String>) -> Self {
        self.worker_id = worker_id.into();
        self
    }

    /// Sets the build id of the code. Runs that are pinned to another build are not dispatched to this worker.
    pub fn build_id(mut self, build_id: impl Into<String>) -> Self {
        self.build_id = Some(build_id.into());
        self
    }

    /// Adds a capability of the machine, such as `gpu:nvidia-l4`, for sessions that require it.
    pub fn capability(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets how many sessions the worker may hold at once. The default is 10.
    pub fn max_concurrent_worker_sessions(mut self, count: usize) -> Self {
        self.max_sessions = count;
        self
    }

    /// Sets how many workflow tasks the worker processes at once. The default is 50.
    pub fn max_concurrent_workflow_tasks(mut self, count: usize) -> Self {
        self.limits.workflow_tasks = count.max(1);
        self
    }

    /// Sets how many activities the worker runs at once. The default is 100.
    pub fn max_concurrent_activities(mut self, count: usize) -> Self {
        self.limits.activities = count.max(1);
        self
    }

    /// Sets how many polls for workflow tasks the worker keeps open. The default is 4.
    pub fn workflow_pollers(mut self, count: usize) -> Self {
        self.limits.workflow_pollers = count.max(1);
        self
    }

    /// Sets how many polls for activities the worker keeps open. The default is 4.
    pub fn activity_pollers(mut self, count: usize) -> Self {
        self.limits.activity_pollers = count.max(1);
        self
    }

    /// Sets how many runs the worker keeps in memory between their tasks. The default is 1000.
    pub fn cached_runs(mut self, count: usize) -> Self {
        self.cached_runs = count;
        self
    }

    /// Sets how long the server may hold a poll: 1 to 60 seconds, rounded up to whole seconds. The default is 30 seconds.
    pub fn poll_timeout(mut self, timeout: Duration) -> Self {
        self.limits.poll = timeout.clamp(Duration::from_secs(1), Duration::from_secs(60));
        self
    }

    /// Sets how long a worker that is asked to stop waits for its tasks. The default is 30 seconds.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.limits.drain = timeout;
        self
    }

    /// Builds the worker.
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
