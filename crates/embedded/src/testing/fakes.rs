//! Stand-ins for activities, and what every activity was called with.

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

/// What a fake does with one attempt.
#[derive(Clone, Debug)]
pub enum Answer<R> {
    /// It returns this.
    Returns(R),
    /// It fails; whether it is tried again is up to the caller's retry policy.
    Fails(Failure),
    /// It hangs: time passes until a timeout of the activity ends the attempt. Not for local activities.
    Never,
}

/// One attempt of an activity, real or fake.
#[derive(Clone)]
pub struct Call {
    /// Which attempt of what it was.
    pub info: ActivityInfo,
    /// When it began, by the clock of the environment.
    pub at: Timestamp,
    payload: Payload,
}

impl Call {
    /// What it was called with: a tuple of all arguments, or the only one.
    ///
    /// # Panics
    /// The arguments are of other types.
    #[must_use]
    pub fn arguments<A: DeserializeOwned>(&self) -> A {
        match payload::from_arguments(&self.payload) {
            Ok(arguments) => arguments,
            Err(error) => panic!(
                "`{}` was not called with {}: {error}",
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

/// What the activities of one environment share.
pub(super) struct Fakes {
    calls: Mutex<HashMap<String, Vec<Call>>>,
    /// Tasks whose attempt hangs on purpose.
    hanging: Mutex<HashSet<String>>,
    pub(super) changed: Notify,
    /// The environment stops: whatever hangs ends.
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
    /// The activity, with its calls written down here.
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

    /// Whether there is such an activity, real or fake.
    pub(super) fn has(&self, name: &str) -> bool {
        self.calls.lock().contains_key(name)
    }

    /// How many attempts hang, also those that nobody waits for any more.
    pub(super) fn hanging(&self) -> usize {
        self.hanging.lock().len()
    }

    pub(super) fn hangs(&self, task_id: &str) -> bool {
        self.hanging.lock().contains(task_id)
    }

    /// Ends what hangs. From here on nothing is waited for.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
        self.changed.notify_waiters();
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ending.borrow()
    }

    async fn hang(&self, context: &ActivityContext) -> Failure {
        if context.info().local {
            let problem = "a fake that never answers cannot stand in for a local activity";
            return Failure::of_type("FakeNotLocal", problem).non_retryable();
        }
        self.hanging.lock().insert(context.info().task_id.clone());
        self.changed.notify_waiters();
        let mut ending = self.ending.subscribe();
        // An error means that nobody can end it any more, which is an end too.
        let _ended = ending.wait_for(|ended| *ended).await;
        Failure::new("the test environment was stopped")
    }
}

/// A fake that is a function of the arguments.
pub(super) fn function<A, R>(
    name: String,
    answer: impl Fn(A) -> ActivityResult<R> + Send + Sync + 'static,
) -> ActivityDefinition
where
    A: DeserializeOwned + Send + 'static,
    R: Serialize,
{
    ActivityDefinition::of_payloads(name, move |_, arguments| {
        let result = payload::from_arguments(&arguments)
            .map_err(Failure::from)
            .and_then(&answer)
            .and_then(|result| Ok(payload::to_payload(&result)?));
        std::future::ready(result)
    })
}

/// A fake with an answer for each attempt; the last is for all further ones.
pub(super) fn sequence<R: Serialize>(
    name: String,
    answers: impl IntoIterator<Item = Answer<R>>,
    fakes: &Arc<Fakes>,
) -> ActivityDefinition {
    let answers = answers.into_iter().map(|answer| match answer {
        Answer::Returns(result) => match payload::to_payload(&result) {
            Ok(result) => Answer::Returns(result),
            Err(error) => Answer::Fails(error.into()),
        },
        Answer::Fails(failure) => Answer::Fails(failure),
        Answer::Never => Answer::Never,
    });
    let answers: Vec<Answer<Payload>> = answers.collect();
    assert!(!answers.is_empty(), "the fake `{name}` has no answer");
    let (fakes, given) = (fakes.clone(), Mutex::new(0));
    ActivityDefinition::of_payloads(name, move |context, _| {
        let mut given = given.lock();
        let answer = answers[(*given).min(answers.len() - 1)].clone();
        *given += 1;
        let fakes = fakes.clone();
        async move {
            match answer {
                Answer::Returns(result) => Ok(result),
                Answer::Fails(failure) => Err(failure),
                Answer::Never => Err(fakes.hang(&context).await),
            }
        }
    })
}
