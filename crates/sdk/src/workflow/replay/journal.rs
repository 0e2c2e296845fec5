//! The state of one run in a worker: the recorded calls, the calls that the code has made, and the commands to send.
//!
//! The journal connects the two sides of a replay. [`super::execution::Execution`] writes the outcomes from the history; the
//! futures of [`crate::workflow::WorkflowContext`] make calls and read outcomes. Both lock it for short moments only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use longhaul_protocol::{Payload, Timestamp};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::event::{CallFacts, HistoryEvent};
use super::replay_error::{Divergence, MessageKind, NOTHING, ReplayError};
use crate::definition::Messages;
use crate::workflow::call::{Call, CallKind, Outcome};
use crate::workflow::handler::Handlers;
use crate::workflow::local::{LocalCall, LocalFacts, LocalPhase};
use crate::workflow::scope::{ScopeId, ScopeKind, Scopes};

/// The identity of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunInfo {
    /// The workflow id, chosen by the caller.
    pub workflow_id: String,
    /// The id of this run.
    pub run_id: String,
    /// The workflow type.
    pub workflow_type: String,
    /// The task queue of the run.
    pub task_queue: String,
    /// The namespace of the run.
    pub namespace: String,
}

/// The state of one run, behind a lock.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) info: RunInfo,
    messages: Arc<Messages>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The time of the event that the code reacts to.
    pub(crate) now: Timestamp,
    next_sequence: u64,
    /// Every call in the history that the code has not made yet, by number.
    recorded: BTreeMap<u64, Recorded>,
    calls: BTreeMap<u64, Call>,
    versions: HashMap<String, i32>,
    pub(crate) signals: HashMap<String, VecDeque<Payload>>,
    pub(crate) handlers: Handlers,
    pub(crate) scopes: Scopes,
    pub(crate) cancellation_reason: Option<String>,
    /// The request id of the delivered cancellation and the id of its event. Calls of the cleanup refer to them.
    pub(crate) cleanup: Option<(String, String)>,
    /// The workflow was cancelled while only shielded calls were open: the next unshielded call is cancelled.
    interrupt_next: bool,
    /// Woken after every event: conditions, signals and other waits that read state.
    watchers: Vec<Waker>,
    pub(crate) in_handler: bool,
    pub(crate) problem: Option<ReplayError>,
    pub(crate) history_length: u64,
    pub(crate) continue_as_new_suggested: bool,
    random: SmallRng,
}

#[derive(Debug)]
struct Recorded {
    kind: CallKind,
    position: u64,
    facts: CallFacts,
}

impl Journal {
    pub(crate) fn new(info: RunInfo, messages: Arc<Messages>) -> Arc<Self> {
        // Every worker that replays the run gets the same random numbers.
        let seed = info
            .run_id
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Arc::new(Self {
            info,
            messages,
            state: Mutex::new(State {
                now: Timestamp::default(),
                next_sequence: 1,
                recorded: BTreeMap::new(),
                calls: BTreeMap::new(),
                versions: HashMap::new(),
                signals: HashMap::new(),
                handlers: Handlers::default(),
                scopes: Scopes::new(),
                cancellation_reason: None,
                cleanup: None,
                interrupt_next: false,
                watchers: Vec::new(),
                in_handler: false,
                problem: None,
                history_length: 0,
                continue_as_new_suggested: false,
                random: SmallRng::seed_from_u64(seed),
            }),
        })
    }

    /// Sets whether the server recommends to continue as new.
    pub(crate) fn suggest_continue_as_new(&self, suggested: bool) {
        self.with(|state| state.continue_as_new_suggested = suggested);
    }

    /// Calls `look` with the locked state.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Reports an error if the workflow uses a message that it does not list.
    ///
    /// A list from the attribute is complete. Any other list is complete once it has an entry, because the server then refuses
    /// all other messages. A signal needs no list: it has no handler, and an unlisted one waits until it is read.
    pub(crate) fn check_listed(&self, kind: MessageKind, name: &str) {
        let messages = &self.messages;
        let (listed, must_list) = match kind {
            MessageKind::Signal => (&messages.signals, false),
            MessageKind::Query => (&messages.queries, messages.from_attribute),
            MessageKind::Update => (&messages.updates, messages.from_attribute),
        };
        if !listed.contains(&name) && (must_list || !listed.is_empty()) {
            let name = name.to_owned();
            self.with(|state| state.report(ReplayError::UnlistedMessage { kind, name }));
        }
    }

    /// Fails if the workflow lists a query or update and has set no handler for it.
    pub(crate) fn check_handlers(&self) -> Result<(), ReplayError> {
        let missing = self.with(|state| {
            let handlers = &state.handlers;
            let query = self
                .messages
                .queries
                .iter()
                .find(|name| !handlers.queries.contains_key(**name))
                .map(|name| (MessageKind::Query, *name));
            let update = self
                .messages
                .updates
                .iter()
                .find(|name| !handlers.updates.contains_key(**name))
                .map(|name| (MessageKind::Update, *name));
            query.or(update)
        });
        match missing {
            Some((kind, name)) => Err(ReplayError::MissingHandler {
                kind,
                name: name.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Makes a call: assigns the next number and compares the call with the history. Returns `None` if the scope refuses calls.
    pub(crate) fn make(&self, kind: CallKind, command: Value) -> Option<u64> {
        self.with(|state| {
            if state.scopes.refuses_calls() {
                return None;
            }
            if state.interrupt_next && state.scopes.reaches(Scopes::ROOT, state.scopes.current) {
                state.interrupt_next = false;
                return None;
            }
            Some(state.make(kind, command))
        })
    }

    /// Makes a call that is complete as soon as it is recorded. Returns the recorded facts if the history has the call.
    pub(crate) fn record(
        &self,
        kind: CallKind,
        command: impl FnOnce() -> Value,
    ) -> Option<CallFacts> {
        self.with(|state| {
            let sequence = state.next_sequence;
            let recorded = state.recorded.contains_key(&sequence);
            state.make(kind, if recorded { Value::Null } else { command() });
            if let Some(call) = state.calls.get_mut(&sequence) {
                call.alive = false;
            }
            state
                .recorded
                .get(&sequence)
                .map(|recorded| recorded.facts.clone())
        })
    }

    /// Returns the recorded version of a change, or records the newest one.
    pub(crate) fn version(&self, change: &str, min: i32, max: i32) -> i32 {
        const BEFORE_THE_CHANGE: i32 = -1;
        let known = self.with(|state| {
            if let Some(version) = state.versions.get(change) {
                return Some(*version);
            }
            let marked = state
                .recorded
                .get(&state.next_sequence)
                .is_some_and(|recorded| recorded.kind == CallKind::Version(change.to_owned()));
            // Calls are recorded from here on, without the marker: the run passed this place before the change.
            (!marked && state.is_replaying()).then_some(BEFORE_THE_CHANGE)
        });
        let version = known.unwrap_or_else(|| {
            let recorded = self.record(CallKind::Version(change.to_owned()), || {
                serde_json::json!({
                    "type": "record_version_marker",
                    "change_id": change,
                    "version": max,
                    "min_supported": min,
                    "max_supported": max,
                })
            });
            recorded.and_then(|facts| facts.version).unwrap_or(max)
        });
        self.with(|state| state.versions.insert(change.to_owned(), version));
        version
    }

    /// Takes the outcome of a call. If there is none yet, keeps the waker.
    pub(crate) fn outcome(&self, sequence: u64, waker: &Waker) -> Option<Outcome> {
        self.with(|state| {
            let call = state.calls.get_mut(&sequence)?;
            if let Some(outcome) = call.outcome.take() {
                call.alive = false;
                return Some(outcome);
            }
            call.waker = Some(waker.clone());
            None
        })
    }

    /// Marks a call that the code does not wait for any more.
    pub(crate) fn abandon(&self, sequence: u64) {
        self.with(|state| {
            if let Some(call) = state.calls.get_mut(&sequence) {
                call.alive = false;
                call.waker = None;
            }
        });
    }

    /// Returns the workflow id and run id of a child that has started, or an error if it ended without a start.
    pub(crate) fn child_ids(
        &self,
        sequence: u64,
        waker: &Waker,
    ) -> Option<Result<(String, String), ()>> {
        self.with(|state| {
            let call = state.calls.get_mut(&sequence)?;
            if let Some(ids) = &call.child {
                return Some(Ok(ids.clone()));
            }
            if call.outcome.is_some() {
                return Some(Err(()));
            }
            state.watchers.push(waker.clone());
            None
        })
    }

    /// Wakes the waker after the next event.
    pub(crate) fn watch(&self, waker: &Waker) {
        self.with(|state| state.watchers.push(waker.clone()));
    }

    pub(crate) fn wake_watchers(&self) {
        let watchers = self.with(|state| std::mem::take(&mut state.watchers));
        for watcher in watchers {
            watcher.wake();
        }
    }

    pub(crate) fn random(&self) -> SmallRng {
        self.with(|state| SmallRng::from_rng(&mut state.random))
    }

    pub(crate) fn open_scope(&self, kind: ScopeKind) -> ScopeId {
        self.with(|state| state.scopes.open(kind))
    }

    /// Cancels every open call of a scope.
    pub(crate) fn cancel(&self, scope: ScopeId) {
        let wakers = self.with(|state| {
            state.scopes.cancel(scope);
            let mut wakers: Vec<Waker> = std::mem::take(&mut state.watchers);
            let mut interrupted = false;
            for call in state.calls.values_mut() {
                if call.alive && call.outcome.is_none() && state.scopes.reaches(scope, call.scope) {
                    interrupted = true;
                    call.outcome = Some(Outcome::Interrupted);
                    wakers.extend(call.waker.take());
                }
            }
            if scope == Scopes::ROOT && !interrupted {
                state.interrupt_next = true;
            }
            wakers
        });
        for waker in wakers {
            waker.wake();
        }
    }

    /// Resolves a call with an outcome from the history.
    pub(crate) fn resolve(&self, sequence: u64, outcome: Outcome) {
        let waker = self.with(|state| {
            let call = state.calls.get_mut(&sequence)?;
            // The first outcome counts: a cancelled call stays cancelled.
            if call.outcome.is_none() && call.alive {
                call.outcome = Some(outcome);
            }
            call.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn child_started(&self, facts: CallFacts) {
        self.with(|state| {
            if let (Some(call), Some(instance), Some(run)) = (
                state.calls.get_mut(&facts.sequence),
                facts.child_workflow_instance_id,
                facts.child_workflow_run_id,
            ) {
                call.child = Some((instance, run));
            }
        });
    }

    /// Records the calls that the events open, before any of the events is replayed.
    pub(crate) fn load(&self, events: &[HistoryEvent]) -> Result<(), ReplayError> {
        for event in events {
            let Some((kind, facts)) = CallKind::opened_by(event)? else {
                continue;
            };
            self.with(|state| state.load(kind, event.sequence, facts));
        }
        Ok(())
    }

    /// Returns the commands for the server: new calls, and open condition waits, which are sent with every completion.
    pub(crate) fn commands(&self) -> Vec<Value> {
        self.with(|state| {
            let calls = state.calls.values();
            calls
                .filter(|call| {
                    !call.recorded || matches!(call.kind, CallKind::Condition(_)) && call.is_open()
                })
                .map(|call| call.command.clone())
                .collect()
        })
    }

    /// Returns the commands of the new calls before a number.
    pub(crate) fn unrecorded_before(&self, sequence: u64) -> Vec<Value> {
        self.with(|state| {
            let calls = state.calls.range(..sequence);
            calls
                .filter(|(_, call)| !call.recorded)
                .map(|(_, call)| call.command.clone())
                .collect()
        })
    }

    /// Returns the number of the first new call before `sequence`, and the commands of all new calls and open condition waits
    /// before it.
    pub(crate) fn checkpoint_before(&self, sequence: u64) -> (u64, Vec<Value>) {
        self.with(|state| {
            let before = || state.calls.range(..sequence);
            let start = before()
                .find(|(_, call)| !call.recorded)
                .map_or(sequence, |(first, _)| *first);
            let commands = before()
                .filter(|(_, call)| {
                    !call.recorded || matches!(call.kind, CallKind::Condition(_)) && call.is_open()
                })
                .map(|(_, call)| call.command.clone());
            (start, commands.collect())
        })
    }

    /// Returns whether the code waits for a recorded call that is not a local activity.
    pub(crate) fn waits_beside_local_calls(&self) -> bool {
        self.with(|state| {
            state.calls.values().any(|call| {
                call.is_open() && call.recorded && !matches!(call.kind, CallKind::LocalActivity(_))
            })
        })
    }

    /// Returns the local activities that the code waits for.
    pub(crate) fn open_local_calls(&self) -> Vec<LocalCall> {
        self.with(|state| {
            let open = state.calls.iter().filter(|(_, call)| call.is_open());
            open.filter_map(|(sequence, call)| {
                let CallKind::LocalActivity(activity_type) = &call.kind else {
                    return None;
                };
                Some(LocalCall {
                    sequence: *sequence,
                    activity_type: activity_type.clone(),
                    descriptor: call.command.clone(),
                    phase: call.local.clone(),
                })
            })
            .collect()
        })
    }

    /// Applies an event about an attempt of an activity. Only local activities use the result.
    pub(crate) fn local_progress(&self, event_type: &str, facts: LocalFacts) {
        self.with(|state| {
            if let Some(call) = state.calls.get_mut(&facts.sequence) {
                call.local = if event_type == "ActivityStarted" {
                    LocalPhase::Started
                } else {
                    LocalPhase::Retrying {
                        task_id: facts.retry_task_id,
                    }
                };
            }
        });
    }

    /// Replaces the command of a local activity by one that contains its attempts and outcome.
    pub(crate) fn complete_local(&self, sequence: u64, command: Value) {
        self.with(|state| {
            if let Some(call) = state.calls.get_mut(&sequence) {
                call.command = command;
            }
        });
    }

    /// Returns the call at which a cancellation is delivered: the first open call that is not shielded, otherwise the first open
    /// condition wait.
    pub(crate) fn cancellation_point(&self) -> Option<(u64, CallKind)> {
        self.with(|state| {
            let open = || {
                state
                    .calls
                    .iter()
                    .filter(|(_, call)| call.recorded && call.is_open())
            };
            open()
                .find(|(_, call)| state.scopes.reaches(Scopes::ROOT, call.scope))
                .or_else(|| open().find(|(_, call)| matches!(call.kind, CallKind::Condition(_))))
                .map(|(sequence, call)| (*sequence, call.kind.clone()))
        })
    }

    /// Returns whether the code waits for any call.
    pub(crate) fn waits_for_something(&self) -> bool {
        self.with(|state| state.calls.values().any(Call::is_open))
    }

    /// Fails if the history has a call that the code has not made.
    pub(crate) fn check_complete(&self) -> Result<(), ReplayError> {
        self.with(|state| {
            if let Some(problem) = state.problem.take() {
                return Err(problem);
            }
            match state.recorded.range(state.next_sequence..).next() {
                Some((sequence, recorded)) => {
                    Err(ReplayError::NonDeterministic(Box::new(Divergence {
                        sequence: *sequence,
                        position: Some(recorded.position),
                        code: NOTHING.to_owned(),
                        history: recorded.kind.to_string(),
                    })))
                }
                None => Ok(()),
            }
        })
    }

    /// Drops calls that are recorded and that the code does not wait for any more.
    pub(crate) fn drop_closed(&self) {
        self.with(|state| {
            state
                .calls
                .retain(|_, call| !call.recorded || call.is_open() || call.alive);
            // Calls are compared with the history once.
            state.recorded = state.recorded.split_off(&state.next_sequence);
        });
    }
}

/// Returns whether a local activity was recorded with other retries or timeouts than the code has now. Its attempts use the
/// recorded ones, so this is reported as a difference.
fn other_options(facts: &CallFacts, kind: &CallKind, command: &Value) -> bool {
    let CallKind::LocalActivity(_) = kind else {
        return false;
    };
    let snapshot = facts.activity.as_ref();
    let Some(recorded) = snapshot.and_then(|activity| activity.retry_policy.as_ref()) else {
        return false;
    };
    let policy = &command["retry_policy"];
    let asked = if policy.is_null() {
        serde_json::json!({"max_attempts": 1, "backoff_seconds": [], "non_retryable_error_types": []})
    } else {
        policy.clone()
    };
    let differs = |key: &str, asked: &Value| {
        let recorded = &recorded[key];
        !(recorded == asked || recorded.is_null() && asked.as_array().is_some_and(Vec::is_empty))
    };
    [
        "max_attempts",
        "backoff_seconds",
        "non_retryable_error_types",
    ]
    .iter()
    .any(|key| differs(key, &asked[*key]))
        || [
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            "heartbeat_timeout",
        ]
        .iter()
        .any(|key| differs(key, &command[*key]))
}

impl Call {
    pub(crate) fn is_open(&self) -> bool {
        self.alive && self.outcome.is_none()
    }
}

impl State {
    /// Returns whether the history has calls that the code has not made yet.
    fn is_replaying(&self) -> bool {
        self.recorded.range(self.next_sequence..).next().is_some()
    }

    fn make(&mut self, kind: CallKind, mut command: Value) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if matches!(kind, CallKind::Condition(_)) {
            // Two waits may have the same key; the id tells the server which one is sent again.
            command["condition_wait_occurrence_id"] = format!("wait-{sequence}").into();
        }
        if let (CallKind::LocalActivity(_), Some((request_id, event_id))) = (&kind, &self.cleanup) {
            command["cancellation_cleanup"] = serde_json::json!({
                "request_id": request_id,
                "delivery_history_event_id": event_id,
            });
        }
        if self.in_handler {
            self.report(ReplayError::CallInHandler {
                call: kind.to_string(),
            });
        }
        let found = self.recorded.get(&sequence);
        let recorded = found.is_some();
        match found {
            Some(found) if found.kind != kind => {
                let divergence = Divergence {
                    sequence,
                    position: Some(found.position),
                    code: kind.to_string(),
                    history: found.kind.to_string(),
                };
                self.report(ReplayError::NonDeterministic(Box::new(divergence)));
            }
            Some(found) if other_options(&found.facts, &kind, &command) => {
                let divergence = Divergence {
                    sequence,
                    position: Some(found.position),
                    code: format!("{kind} with other retries or timeouts"),
                    history: found.kind.to_string(),
                };
                self.report(ReplayError::NonDeterministic(Box::new(divergence)));
            }
            None if self.is_replaying() => {
                let divergence = Divergence {
                    sequence,
                    position: None,
                    code: kind.to_string(),
                    history: NOTHING.to_owned(),
                };
                self.report(ReplayError::NonDeterministic(Box::new(divergence)));
            }
            _ => {}
        }
        self.calls.insert(
            sequence,
            Call {
                kind,
                command,
                recorded,
                outcome: None,
                alive: true,
                waker: None,
                scope: self.scopes.current,
                child: None,
                local: LocalPhase::New,
            },
        );
        sequence
    }

    /// Keeps the first problem. Later ones are consequences of it.
    pub(crate) fn report(&mut self, problem: ReplayError) {
        self.problem.get_or_insert(problem);
    }

    fn load(&mut self, kind: CallKind, position: u64, facts: CallFacts) {
        let sequence = facts.sequence;
        if let Some(call) = self.calls.get_mut(&sequence) {
            // This worker made and sent the call earlier; now it is recorded.
            call.recorded = true;
            if call.kind != kind {
                let divergence = Divergence {
                    sequence,
                    position: Some(position),
                    code: call.kind.to_string(),
                    history: kind.to_string(),
                };
                self.report(ReplayError::NonDeterministic(Box::new(divergence)));
            }
        } else if sequence >= self.next_sequence {
            self.recorded.insert(
                sequence,
                Recorded {
                    kind,
                    position,
                    facts,
                },
            );
        }
    }
}
