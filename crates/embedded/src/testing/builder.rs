//! Setting up a test environment.

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

use super::fakes::{self, Answer, Fakes};
use super::skipping::Shared;
use super::{QUEUE, StartError, TestEnvironment};
use crate::Embedded;

/// 2026-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

const DAY: Duration = Duration::from_secs(86_400);

/// Polls that the worker keeps open for each kind of task.
const POLLERS: usize = 2;

/// Longer than any test lets pass: a worker that lives in the test is never lost, and must not seem so when time jumps.
const CENTURY_SECONDS: u64 = 100 * 365 * 86_400;

/// More than hang at the same time.
const ACTIVITIES_MAX: usize = 100_000;

type SetUp = Box<dyn FnOnce(WorkerBuilder) -> WorkerBuilder + Send>;

/// A [`TestEnvironment`] in the making.
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

    /// Runs workflows of a function with `#[workflow]`.
    pub fn workflow<W: Workflow>(self) -> Self {
        self.workflow_definition(W::definition())
    }

    /// Runs workflows of a definition made by hand.
    pub fn workflow_definition(mut self, definition: WorkflowDefinition) -> Self {
        self.workflows.push(definition);
        self
    }

    /// Runs a real activity, of a function with `#[activity]`.
    pub fn activity<A: Activity>(self) -> Self {
        self.activity_definition(A::definition())
    }

    /// Runs a real activity of a definition made by hand.
    pub fn activity_definition(mut self, definition: ActivityDefinition) -> Self {
        let name = definition.name().to_owned();
        self.activities.insert(name, definition);
        self
    }

    /// Runs a real activity, but only when workflows call it as a local one.
    pub fn local_activity<A: Activity>(mut self) -> Self {
        let definition = A::definition();
        let name = definition.name().to_owned();
        self.local_activities.insert(name, definition);
        self
    }

    /// Stands in for an activity, called as a local one or not: a function of a tuple of its arguments.
    pub fn fake<A, R>(
        self,
        name: impl Into<String>,
        answer: impl Fn(A) -> ActivityResult<R> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        self.stand_in(fakes::function(name.into(), answer))
    }

    /// Stands in for an activity with an answer for each attempt, in order; the last is given to all further ones.
    ///
    /// # Panics
    /// There is no answer.
    pub fn fake_answers<R: Serialize>(
        self,
        name: impl Into<String>,
        answers: impl IntoIterator<Item = Answer<R>>,
    ) -> Self {
        let fake = fakes::sequence(name.into(), answers, &self.fakes);
        self.stand_in(fake)
    }

    fn stand_in(mut self, fake: ActivityDefinition) -> Self {
        self.local_activities.remove(fake.name());
        self.activity_definition(fake)
    }

    /// A value for all activities; they read it with [`ActivityContext::data`](longhaul_sdk::ActivityContext::data).
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.set_up.push(Box::new(|worker| worker.data(value)));
        self
    }

    /// Forgets every run between its tasks, so that each task replays the whole history: code that is not deterministic is
    /// found at the first step it takes differently.
    pub fn replay_always(mut self) -> Self {
        self.replay_always = true;
        self
    }

    /// What the clock shows at the beginning; 2026-01-01T00:00:00Z by default.
    pub fn begin(mut self, begin: Timestamp) -> Self {
        self.begin = begin;
        self
    }

    /// Time passes only when the test moves it with [`TestEnvironment::advance`]; waiting for a result then waits for another
    /// task of the test to do so.
    pub fn without_skipping(mut self) -> Self {
        self.skips = false;
        self
    }

    /// How much time a wait for a result may skip before the workflow counts as stuck; ten years by default.
    pub fn longest_wait(mut self, longest: Duration) -> Self {
        self.longest_wait = longest;
        self
    }

    /// How often a wait for a result may move the clock before the workflow counts as going in circles; 10,000 by default.
    pub fn most_jumps(mut self, jumps: u32) -> Self {
        self.most_jumps = jumps;
        self
    }

    /// Starts the server and the worker.
    ///
    /// # Errors
    /// The server cannot be opened, or refuses the worker.
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
        let clock = server.clock.clone().expect("it was opened with one");

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
            // Besides, one poll for queries.
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
