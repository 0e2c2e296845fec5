//! Fakes of activities, and the recorded calls of all activities.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use longhaul_host::clock::{Clock as _, ManualClock};
use longhaul_protocol::Timestamp;
use longhaul_sdk::activity::ActivityInfo;
use longhaul_sdk::payload::{self, Payload};
use longhaul_sdk::{ActivityContext, ActivityDefinition, ActivityResult, Failure};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};

/// The outcome of one attempt of a fake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FakeOutcome<R> {
    /// The attempt returns this value.
    Returns(R),
    /// The attempt fails. The retry policy of the call decides whether there is another attempt.
    Fails(Failure),
    /// The attempt hangs until it times out. Not for local activities.
    Never,
}

/// One attempt of an activity, real or fake.
#[derive(Clone)]
pub struct Call {
    /// The identity of the attempt.
    pub info: ActivityInfo,
    /// The time when the attempt began, by the clock of the environment.
    pub at: Timestamp,
    payload: Payload,
}

impl Call {
    /// Returns the arguments: a tuple, or the only argument.
    ///
    /// # Panics
    /// If the arguments have other types.
    #[must_use]
    pub fn arguments<A: DeserializeOwned>(&self) -> A {
        match payload::from_arguments(&self.payload) {
            Ok(arguments) => arguments,
            Err(error) => panic!(
                "the arguments of `{}` are not a {}: {error}",
                self.info.activity_type,
                std::any::type_name::<A>()
            ),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments = self.payload.display();
        let arguments = arguments.map_or_else(|error| error.to_string(), |json| json.to_string());
        out.debug_struct("Call")
            .field("activity_type", &self.info.activity_type)
            .field("attempt_number", &self.info.attempt_number)
            .field("at", &self.at)
            .field("arguments", &arguments)
            .finish_non_exhaustive()
    }
}

/// The shared state of the activities of one environment.
pub(super) struct Fakes {
    calls: Mutex<HashMap<String, Vec<Call>>>,
    /// The tasks of attempts that hang.
    hanging: Mutex<HashSet<String>>,
    pub(super) changed: Notify,
    /// Set when the environment stops. Hanging attempts then end.
    ending: watch::Sender<bool>,
}

impl Default for Fakes {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            hanging: Mutex::default(),
            changed: Notify::new(),
            ending: watch::Sender::new(false),
        }
    }
}

impl Fakes {
    /// Returns the activity with its calls recorded.
    pub(super) fn record(
        self: &Arc<Self>,
        activity: ActivityDefinition,
        clock: &ManualClock,
    ) -> ActivityDefinition {
        let name = activity.name().to_owned();
        self.calls.lock().entry(name.clone()).or_default();
        let (fakes, clock) = (self.clone(), clock.clone());
        activity.inspect(move |context, arguments| {
            let call = Call {
                info: context.info().clone(),
                at: clock.now(),
                payload: arguments.clone(),
            };
            fakes
                .calls
                .lock()
                .entry(name.clone())
                .or_default()
                .push(call);
        })
    }

    pub(super) fn calls(&self, name: &str) -> Vec<Call> {
        let calls = self.calls.lock();
        calls.get(name).cloned().unwrap_or_else(|| {
            let mut known: Vec<&str> = calls.keys().map(String::as_str).collect();
            known.sort_unstable();
            panic!("the environment has no activity `{name}`; it has {known:?}")
        })
    }

    /// Returns whether there is such an activity, real or fake.
    pub(super) fn has(&self, name: &str) -> bool {
        self.calls.lock().contains_key(name)
    }

    /// Returns the number of hanging attempts, including those that have timed out.
    pub(super) fn hanging(&self) -> usize {
        self.hanging.lock().len()
    }

    pub(super) fn hangs(&self, task_id: &str) -> bool {
        self.hanging.lock().contains(task_id)
    }

    /// Ends all hanging attempts.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
        self.changed.notify_waiters();
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ending.borrow()
    }

    async fn hang(&self, context: &ActivityContext) -> Failure {
        if context.info().local {
            let problem = "FakeOutcome::Never cannot be used for a local activity";
            return Failure::of_type("FakeNotLocal", problem).non_retryable();
        }
        self.hanging.lock().insert(context.info().task_id.clone());
        self.changed.notify_waiters();
        let mut ending = self.ending.subscribe();
        // An error means that the environment was dropped.
        let _ended = ending.wait_for(|ended| *ended).await;
        Failure::new("the test environment was stopped")
    }
}

/// Returns a fake that calls a function with the arguments.
pub(super) fn function<A, R>(
    name: String,
    fake: impl Fn(A) -> ActivityResult<R> + Send + Sync + 'static,
) -> ActivityDefinition
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize,
{
    ActivityDefinition::of_payloads(name, move |_, arguments| {
        let result = payload::from_arguments(&arguments)
            .map_err(Failure::from)
            .and_then(&fake)
            .and_then(|result| Ok(payload::to_payload(&result)?));
        std::future::ready(result)
    })
}

/// Returns a fake with an outcome for each attempt. The last outcome repeats.
pub(super) fn sequence<R: Serialize>(
    name: String,
    outcomes: impl IntoIterator<Item = FakeOutcome<R>>,
    fakes: &Arc<Fakes>,
) -> ActivityDefinition {
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        FakeOutcome::Returns(result) => match payload::to_payload(&result) {
            Ok(result) => FakeOutcome::Returns(result),
            Err(error) => FakeOutcome::Fails(error.into()),
        },
        FakeOutcome::Fails(failure) => FakeOutcome::Fails(failure),
        FakeOutcome::Never => FakeOutcome::Never,
    });
    let outcomes: Vec<FakeOutcome<Payload>> = outcomes.collect();
    assert!(!outcomes.is_empty(), "the fake `{name}` has no outcome");
    let (fakes, given) = (fakes.clone(), Mutex::new(0));
    ActivityDefinition::of_payloads(name, move |context, _| {
        let mut given = given.lock();
        let outcome = outcomes[(*given).min(outcomes.len() - 1)].clone();
        *given += 1;
        let fakes = fakes.clone();
        async move {
            match outcome {
                FakeOutcome::Returns(result) => Ok(result),
                FakeOutcome::Fails(failure) => Err(failure),
                FakeOutcome::Never => Err(fakes.hang(&context).await),
            }
        }
    })
}
