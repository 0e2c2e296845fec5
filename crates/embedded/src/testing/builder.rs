//! The builder of a test environment.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use longhaul_host::Config;
use longhaul_protocol::Timestamp;
use longhaul_sdk::testing::Replayer;
use longhaul_sdk::worker::WorkerBuilder;
use longhaul_sdk::{
    Activity, ActivityDefinition, ActivityResult, Worker, Workflow, WorkflowDefinition,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fakes::{self, FakeOutcome, Fakes};
use super::skipping::Shared;
use super::{QUEUE, StartError, TestEnvironment};
use crate::Embedded;

/// 2026-01-01T00:00:00Z.
pub(super) const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

const DAY: Duration = Duration::from_secs(86_400);

/// The polls that the worker keeps open for each kind of task.
const POLLERS: usize = 2;

/// Longer than any test lets pass. The worker of a test is never lost, so no lease of it may expire when time jumps.
const CENTURY_SECONDS: u64 = 100 * 365 * 86_400;

/// More than the activities that hang at the same time.
const ACTIVITIES_MAX: usize = 100_000;

type SetUp = Box<dyn FnOnce(WorkerBuilder) -> WorkerBuilder + Send>;

/// Builds a [`TestEnvironment`]; see [`TestEnvironment::builder`].
#[must_use = "an environment does nothing until it is started"]
pub struct Builder {
    workflows: Vec<WorkflowDefinition>,
    activities: HashMap<String, ActivityDefinition>,
    local_activities: HashMap<String, ActivityDefinition>,
    fakes: Arc<Fakes>,
    set_up: Vec<SetUp>,
    begin: Timestamp,
    replay_always: bool,
    skips: bool,
    longest_wait: Duration,
    most_jumps: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            workflows: Vec::new(),
            activities: HashMap::new(),
            local_activities: HashMap::new(),
            fakes: Arc::default(),
            set_up: Vec::new(),
            begin: BEGIN,
            replay_always: false,
            skips: true,
            longest_wait: 3650 * DAY,
            most_jumps: 10_000,
        }
    }

    /// Registers a function with `#[workflow]`.
    pub fn workflow<W: Workflow>(self) -> Self {
        self.workflow_definition(W::definition())
    }

    /// Registers a workflow definition.
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.workflows.push(definition);
        self
    }

    /// Registers a real activity: a function with `#[activity]`.
    pub fn activity<A: Activity>(self) -> Self {
        self.activity_definition(A::definition())
    }

    /// Registers a real activity: an activity definition.
    pub fn activity_definition(mut self, definition: ActivityDefinition) -> Self {
        let name = definition.name().to_owned();
        self.activities.insert(name, definition);
        self
    }

    /// Registers a real activity for local calls only.
    pub fn local_activity<A: Activity>(mut self) -> Self {
        let definition = A::definition();
        let name = definition.name().to_owned();
        self.local_activities.insert(name, definition);
        self
    }

    /// Fakes an activity, local or not, with a function of a tuple of its arguments.
    pub fn fake<A, R>(
        self,
        name: impl Into<String>,
        fake: impl Fn(A) -> ActivityResult<R> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        self.replace_by(fakes::function(name.into(), fake))
    }

    /// Fakes an activity with an outcome for each attempt, in order. The last outcome repeats.
    ///
    /// # Panics
    /// If there is no outcome.
    pub fn fake_outcomes<R: Serialize>(
        self,
        name: impl Into<String>,
        outcomes: impl IntoIterator<Item = FakeOutcome<R>>,
    ) -> Self {
        let fake = fakes::sequence(name.into(), outcomes, &self.fakes);
        self.replace_by(fake)
    }

    fn replace_by(mut self, fake: ActivityDefinition) -> Self {
        self.local_activities.remove(fake.name());
        self.activity_definition(fake)
    }

    /// Adds a value for all activities. They read it with [`ActivityContext::data`](longhaul_sdk::ActivityContext::data).
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.set_up.push(Box::new(|worker| worker.data(value)));
        self
    }

    /// Replays the whole history for every workflow task, so that code that is not deterministic fails at its first different
    /// call.
    pub fn replay_always(mut self) -> Self {
        self.replay_always = true;
        self
    }

    /// Sets the start time of the clock. The default is 2026-01-01T00:00:00Z.
    pub fn begin(mut self, begin: Timestamp) -> Self {
        self.begin = begin;
        self
    }

    /// Moves the clock only when the test calls [`TestEnvironment::advance`]. A wait for a result then needs another task of the
    /// test that moves the clock.
    pub fn without_skipping(mut self) -> Self {
        self.skips = false;
        self
    }

    /// Sets how much time a wait for a result may skip before the workflow counts as stuck. The default is ten years.
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// Sets how often a wait for a result may move the clock before the workflow counts as stuck. The default is 10,000.
    pub fn most_jumps(mut self, jumps: u32) -> Self {
        self.most_jumps = jumps;
        self
    }

    /// Starts the server and the worker.
    ///
    /// # Errors
    /// [`StartError::Server`] if the server cannot be opened, [`StartError::Worker`] if it refuses the worker.
    pub async fn start(self) -> Result<TestEnvironment, StartError> {
        let mut config = Config {
            worker_stale_seconds: CENTURY_SECONDS,
            ..Config::default()
        };
        config.limits.activity_lease_seconds = CENTURY_SECONDS;
        config.limits.workflow_task_lease_seconds = CENTURY_SECONDS;
        let server = Embedded::builder()
            .manual_clock(self.begin)
            .config(config)
            .open()
            .await?;
        let clock = server
            .clock
            .clone()
            .expect("the server was opened with a manual clock");

        let client = server.client();
        let has_workflows = !self.workflows.is_empty();
        let has_activities = !self.activities.is_empty();
        let mut replayer = Replayer::new();
        let mut worker = Worker::builder(&client, QUEUE)
            .workflow_pollers(POLLERS)
            .activity_pollers(POLLERS)
            .max_concurrent_activities(ACTIVITIES_MAX)
            .drain_timeout(Duration::ZERO);
        if self.replay_always {
            worker = worker.cached_runs(0);
        }
        for set_up in self.set_up {
            worker = set_up(worker);
        }
        for definition in self.workflows {
            replayer = replayer.workflow_definition(definition.clone());
            worker = worker.workflow_definition(definition);
        }
        for definition in self.activities.into_values() {
            worker = worker.activity_definition(self.fakes.record(definition, &clock));
        }
        for definition in self.local_activities.into_values() {
            worker = worker.local_activity_definition(self.fakes.record(definition, &clock));
        }
        let worker = worker.build();
        let shared = Arc::new(Shared {
            host: server.host.clone(),
            transport: server.transport(),
            clock,
            fakes: self.fakes,
            worker: worker.handle(),
            // One more poll is for queries.
            polls: usize::from(has_workflows) * (POLLERS + 1)
                + usize::from(has_activities) * POLLERS,
            skips: self.skips,
            longest_wait: self.longest_wait,
            most_jumps: self.most_jumps,
        });
        TestEnvironment::begin(server, worker, shared, replayer).await
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder")
            .field("workflows", &self.workflows)
            .field("activities", &self.activities)
            .finish_non_exhaustive()
    }
}
