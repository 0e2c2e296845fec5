//! One call of a workflow: its kind, its outcome, and the future that waits for it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use longhaul_protocol::Payload;
use serde_json::Value;

use super::local::LocalPhase;
use super::replay::event::{CallFacts, HistoryEvent};
use super::replay::journal::Journal;
use super::replay::replay_error::ReplayError;
use super::scope::ScopeId;
use crate::error::TimeoutKind;

/// The kind of a call. Code and history must agree on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Activity(String),
    LocalActivity(String),
    Timer,
    Child(String),
    Condition(String),
    SideEffect,
    Version(String),
    SearchAttributes,
    Memo,
    /// A call that only other SDKs make.
    Foreign(&'static str),
}

impl CallKind {
    /// Returns the call that an event opens or records, with its facts.
    pub(super) fn opened_by(
        event: &HistoryEvent,
    ) -> Result<Option<(Self, CallFacts)>, ReplayError> {
        let kind: fn(&CallFacts) -> Option<Self> = match event.event_type.as_str() {
            "ActivityScheduled" => |facts| {
                let name = facts.activity_type.clone()?;
                Some(if facts.execution_mode.as_deref() == Some("local") {
                    Self::LocalActivity(name)
                } else {
                    Self::Activity(name)
                })
            },
            "TimerScheduled" => |facts| facts.timer_kind.is_none().then_some(Self::Timer),
            "ChildWorkflowScheduled" => |facts| facts.child_workflow_type.clone().map(Self::Child),
            "ConditionWaitOpened" => |facts| {
                Some(Self::Condition(
                    facts.condition_key.clone().unwrap_or_default(),
                ))
            },
            "SideEffectRecorded" => |_| Some(Self::SideEffect),
            "VersionMarkerRecorded" => |facts| facts.change_id.clone().map(Self::Version),
            "SearchAttributesUpserted" => |_| Some(Self::SearchAttributes),
            "MemoUpserted" => |_| Some(Self::Memo),
            "SignalWaitOpened" => |_| Some(Self::Foreign("a wait for a signal")),
            "ServiceCallScheduled" | "ServiceCallStarted" => {
                |_| Some(Self::Foreign("a service operation"))
            }
            _ => return Ok(None),
        };
        let facts: CallFacts = event.read()?;
        Ok(kind(&facts).map(|kind| (kind, facts)))
    }

    /// Returns the name of the kind in a `deliver-cancellation` request.
    pub(crate) fn wire_name(&self) -> &'static str {
        match self {
            Self::Activity(_) => "activity",
            Self::LocalActivity(_) => "local_activity",
            Self::Timer => "timer",
            Self::Child(_) => "child",
            Self::Condition(_)
            | Self::SideEffect
            | Self::Version(_)
            | Self::SearchAttributes
            | Self::Memo
            | Self::Foreign(_) => "condition",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activity(name) => write!(out, "activity `{name}`"),
            Self::LocalActivity(name) => write!(out, "local activity `{name}`"),
            Self::Timer => write!(out, "a timer"),
            Self::Child(name) => write!(out, "child workflow `{name}`"),
            Self::Condition(key) => write!(out, "a wait for `{key}`"),
            Self::SideEffect => write!(out, "a side effect"),
            Self::Version(change) => write!(out, "version marker `{change}`"),
            Self::SearchAttributes => write!(out, "an upsert of search attributes"),
            Self::Memo => write!(out, "an upsert of the memo"),
            Self::Foreign(what) => write!(out, "{what}"),
        }
    }
}

/// The outcome of a call.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// An activity or child workflow completed.
    Completed(Option<Payload>),
    /// An activity or child workflow failed.
    Failed(Box<CallFacts>, FailedHow),
    /// A timer fired.
    Fired,
    /// A condition wait timed out.
    WaitTimedOut,
    /// The call ended because its scope was cancelled.
    Interrupted,
}

/// The failure of a local activity that is not recorded yet.
#[derive(Debug)]
pub(crate) struct FailedLocal {
    pub(crate) message: String,
    pub(crate) exception_type: Option<String>,
    pub(crate) non_retryable: bool,
    pub(crate) timeout_kind: Option<&'static str>,
    pub(crate) attempt: u64,
}

impl Outcome {
    /// Returns the outcome that a replay will read from the recorded failure of a local activity.
    pub(crate) fn failed_local(failed: FailedLocal) -> Self {
        let timed_out = failed.timeout_kind.map(TimeoutKind::from_name);
        let facts = CallFacts {
            message: Some(failed.message),
            exception_type: failed.exception_type,
            non_retryable: Some(failed.non_retryable),
            attempt_number: Some(failed.attempt),
            failure_category: Some(
                if timed_out.is_some() {
                    "timeout"
                } else {
                    "application"
                }
                .to_owned(),
            ),
            ..CallFacts::default()
        };
        let how = timed_out.map_or(FailedHow::Failed, FailedHow::TimedOut);
        Self::Failed(Box::new(facts), how)
    }
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedHow {
    Failed,
    TimedOut(TimeoutKind),
    Cancelled,
    Terminated,
}

/// A call that was made and may still be open.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    /// Sent when the call is new. Condition waits are sent again while they are open.
    pub(super) command: Value,
    /// Whether the history has the call.
    pub(super) recorded: bool,
    pub(super) outcome: Option<Outcome>,
    /// Whether the code still waits for the call.
    pub(super) alive: bool,
    pub(super) waker: Option<Waker>,
    pub(super) scope: ScopeId,
    /// The workflow id and run id of a started child.
    pub(super) child: Option<(String, String)>,
    /// The progress of a local activity.
    pub(super) local: LocalPhase,
}

/// Waits for a call and converts its outcome.
#[must_use = "a call does nothing until it is awaited or started"]
pub(crate) struct CallFuture<T> {
    journal: Arc<Journal>,
    state: State,
    finish: Box<dyn FnOnce(u64, Outcome) -> T + Send + Sync>,
    result: PhantomData<fn() -> T>,
}

enum State {
    /// Not made yet.
    New(CallKind, Value),
    Made(u64),
    /// Refused by its cancelled scope.
    Refused,
    Done,
}

impl<T> CallFuture<T> {
    pub(crate) fn new(
        journal: Arc<Journal>,
        kind: CallKind,
        command: Value,
        finish: impl FnOnce(u64, Outcome) -> T + Send + Sync + 'static,
    ) -> Self {
        Self {
            journal,
            state: State::New(kind, command),
            finish: Box::new(finish),
            result: PhantomData,
        }
    }

    /// Makes the call now instead of at the first poll.
    pub(crate) fn start(mut self) -> Self {
        self.make();
        self
    }

    pub(crate) fn sequence(&self) -> Option<u64> {
        match self.state {
            State::Made(sequence) => Some(sequence),
            State::New(..) | State::Refused | State::Done => None,
        }
    }

    fn make(&mut self) {
        if let State::New(kind, command) = &mut self.state {
            let kind = std::mem::replace(kind, CallKind::Timer);
            let command = command.take();
            self.state = match self.journal.make(kind, command) {
                Some(sequence) => State::Made(sequence),
                None => State::Refused,
            };
        }
    }

    fn end(&mut self, sequence: u64, outcome: Outcome) -> T {
        self.state = State::Done;
        let finish = std::mem::replace(&mut self.finish, Box::new(|_, _| unreachable_call()));
        finish(sequence, outcome)
    }
}

fn unreachable_call<T>() -> T {
    panic!("a finished call was polled again")
}

impl<T> Future for CallFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<T> {
        self.make();
        match self.state {
            State::Made(sequence) => match self.journal.outcome(sequence, context.waker()) {
                Some(outcome) => Poll::Ready(self.end(sequence, outcome)),
                None => Poll::Pending,
            },
            State::Refused => Poll::Ready(self.end(0, Outcome::Interrupted)),
            State::New(..) | State::Done => unreachable_call(),
        }
    }
}

impl<T> Drop for CallFuture<T> {
    fn drop(&mut self) {
        if let State::Made(sequence) = self.state {
            self.journal.abandon(sequence);
        }
    }
}
