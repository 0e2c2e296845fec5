//! The state of one run in a worker: what its history says, what its code has called, and what is still to be sent.
//!
//! The journal is the meeting point of the two sides of a replay. [`super::execution::Execution`] writes what the history
//! resolves; the futures of [`super::WorkflowContext`] make calls and read outcomes. Both hold it for moments only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use longhaul_protocol::{Payload, Timestamp};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::call::{Call, CallKind, Outcome};
use super::event::{CallFacts, HistoryEvent};
use super::handler::Handlers;
use super::local::{LocalCall, LocalFacts, LocalPhase};
use super::replay_error::{Divergence, NOTHING, ReplayError};
use super::scope::{ScopeId, Scopes};

/// Who a run is.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// The id its caller chose.
    pub workflow_id: String,
    /// The id of this run of it.
    pub run_id: String,
    /// The workflow type.
    pub workflow_type: String,
    /// The queue its tasks are on.
    pub task_queue: String,
    /// Its namespace.
    pub namespace: String,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) info: RunInfo,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// When the event was recorded that the code reacts to.
    pub(super) now: Timestamp,
    next_sequence: u64,
    /// Every call the history holds, by number, with the position of its event.
    recorded: BTreeMap<u64, Recorded>,
    calls: BTreeMap<u64, Call>,
    versions: HashMap<String, i32>,
    pub(super) signals: HashMap<String, VecDeque<Payload>>,
    pub(super) handlers: Handlers,
    pub(super) scopes: Scopes,
    pub(super) cancellation_reason: Option<String>,
    /// The delivered cancellation, by its request and the event that recorded it: what cleanup refers to.
    pub(super) cleanup: Option<(String, String)>,
    /// The workflow was cancelled while only shielded calls were open: the next unshielded one is given up.
    interrupt_next: bool,
    /// Woken after every event: conditions, signals, everything that looks at state.
    watchers: Vec<Waker>,
    pub(super) in_handler: bool,
    pub(super) problem: Option<ReplayError>,
    pub(super) history_length: u64,
    pub(super) continue_as_new_suggested: bool,
    random: SmallRng,
}

#[derive(Debug)]
struct Recorded {
    kind: CallKind,
    position: u64,
    facts: CallFacts,
}

impl Journal {
    pub(crate) fn new(info: RunInfo) -> Arc<Self> {
        // Every worker that replays the run draws the same numbers.
        let seed = info
            .run_id
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Arc::new(Self {
            info,
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

    /// What the server thinks of the length of the history.
    pub(crate) fn suggest_continue_as_new(&self, suggested: bool) {
        self.with(|state| state.continue_as_new_suggested = suggested);
    }

    /// A short look at the state.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Makes a call: takes the next number, and compares with the history. `None` if the scope refuses calls.
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

    /// Makes a call that is done as soon as it is recorded. What the history recorded for it, if it has it.
    pub(super) fn record(
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

    /// The version that the history has for a change, or that new code takes.
    pub(super) fn version(&self, change: &str, min: i32, max: i32) -> i32 {
        const BEFORE_THE_CHANGE: i32 = -1;
        let known = self.with(|state| {
            if let Some(version) = state.versions.get(change) {
                return Some(*version);
            }
            let marked = state
                .recorded
                .get(&state.next_sequence)
                .is_some_and(|recorded| recorded.kind == CallKind::Version(change.to_owned()));
            // Code that runs where calls were recorded without the marker is from before the change.
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

    /// What became of a call; remembers who waits for it.
    pub(super) fn outcome(&self, sequence: u64, waker: &Waker) -> Option<Outcome> {
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

    /// The code does not wait for the call any more.
    pub(super) fn give_up(&self, sequence: u64) {
        self.with(|state| {
            if let Some(call) = state.calls.get_mut(&sequence) {
                call.alive = false;
                call.waker = None;
            }
        });
    }

    /// The ids of a child that has begun.
    pub(super) fn child_ids(
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

    /// Looks again after the next event.
    pub(super) fn watch(&self, waker: &Waker) {
        self.with(|state| state.watchers.push(waker.clone()));
    }

    pub(super) fn wake_watchers(&self) {
        let watchers = self.with(|state| std::mem::take(&mut state.watchers));
        for watcher in watchers {
            watcher.wake();
        }
    }

    pub(super) fn random(&self) -> SmallRng {
        self.with(|state| SmallRng::from_rng(&mut state.random))
    }

    pub(super) fn open_scope(&self, shielded: bool) -> ScopeId {
        self.with(|state| state.scopes.open(shielded))
    }

    /// Gives up every open call of a scope.
    pub(super) fn cancel(&self, scope: ScopeId) {
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

    /// An event of the history resolved a call.
    pub(super) fn resolve(&self, sequence: u64, outcome: Outcome) {
        let waker = self.with(|state| {
            let call = state.calls.get_mut(&sequence)?;
            // The first outcome counts: what a cancellation gave up stays given up.
            if call.outcome.is_none() && call.alive {
                call.outcome = Some(outcome);
            }
            call.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn child_started(&self, facts: CallFacts) {
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

    /// Takes note of the calls that events of the history open, before any of them is replayed.
    pub(super) fn load(&self, events: &[HistoryEvent]) -> Result<(), ReplayError> {
        for event in events {
            let Some((kind, facts)) = CallKind::opened_by(event)? else {
                continue;
            };
            self.with(|state| state.load(kind, event.sequence, facts));
        }
        Ok(())
    }

    /// What the server must hear: new calls, in order, and beside them the open waits it must hear of again.
    pub(super) fn commands(&self) -> Vec<Value> {
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

    /// New calls by number, up to the first before which nothing may be sent.
    pub(crate) fn unrecorded_before(&self, sequence: u64) -> Vec<Value> {
        self.with(|state| {
            let calls = state.calls.range(..sequence);
            calls
                .filter(|(_, call)| !call.recorded)
                .map(|(_, call)| call.command.clone())
                .collect()
        })
    }

    /// The new calls before a number, and the number of the first of them; beside them the open waits that the server must hear of
    /// again. Empty if there is nothing of either.
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

    /// Whether the code waits for anything that is not a local activity and that the history can resolve.
    pub(crate) fn waits_beside_local_calls(&self) -> bool {
        self.with(|state| {
            state.calls.values().any(|call| {
                call.is_open() && call.recorded && !matches!(call.kind, CallKind::LocalActivity(_))
            })
        })
    }

    /// Local activities that the code waits for.
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

    /// An event about the attempts of an activity; only those of local ones matter here.
    pub(super) fn local_progress(&self, event_type: &str, facts: LocalFacts) {
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

    /// The command that tells the whole story of a local activity.
    pub(super) fn settle_local(&self, sequence: u64, command: Value) {
        self.with(|state| {
            if let Some(call) = state.calls.get_mut(&sequence) {
                call.command = command;
            }
        });
    }

    /// The call at which a cancellation reaches the code: the first that is open and not shielded, else the first open one.
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

    /// Whether anything that the server knows or will know of can wake the code.
    pub(super) fn waits_for_something(&self) -> bool {
        self.with(|state| state.calls.values().any(Call::is_open))
    }

    /// What the history holds beyond what the code has called.
    pub(super) fn check_complete(&self) -> Result<(), ReplayError> {
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

    /// Forgets calls that nobody can ask about any more.
    pub(super) fn forget_closed(&self) {
        self.with(|state| {
            state
                .calls
                .retain(|_, call| !call.recorded || call.is_open() || call.alive);
            // What was compared once is not compared again.
            state.recorded = state.recorded.split_off(&state.next_sequence);
        });
    }
}

/// Whether a local activity was recorded with other retries or timeouts than the code asks for now. Its attempts go by the recorded ones, so
/// the author must hear of it.
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
    pub(super) fn is_open(&self) -> bool {
        self.alive && self.outcome.is_none()
    }
}

impl State {
    /// Calls are recorded from here on: the code has been here before.
    fn is_replaying(&self) -> bool {
        self.recorded.range(self.next_sequence..).next().is_some()
    }

    fn make(&mut self, kind: CallKind, mut command: Value) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        if matches!(kind, CallKind::Condition(_)) {
            // Two waits may look alike; the server must know which of them is repeated.
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

    /// The first problem is the one to tell: what follows is its consequence.
    pub(super) fn report(&mut self, problem: ReplayError) {
        self.problem.get_or_insert(problem);
    }

    fn load(&mut self, kind: CallKind, position: u64, facts: CallFacts) {
        let sequence = facts.sequence;
        if let Some(call) = self.calls.get_mut(&sequence) {
            // Made and sent by this worker earlier: here is the receipt.
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
