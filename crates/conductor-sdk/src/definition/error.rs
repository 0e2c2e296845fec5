//! Why a definition cannot be built, and small conversions that fail with such an error.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// What an error is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The workflow with this name.
    Workflow(String),
    /// The node with this reference.
    Node(String),
    /// The task definition with this name.
    TaskDefinition(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workflow(name) => write!(f, "workflow {name:?}"),
            Self::Node(reference) => write!(f, "node {reference:?}"),
            Self::TaskDefinition(name) => write!(f, "task definition {name:?}"),
        }
    }
}

/// A mistake in a definition. `build` returns the first one that it finds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// A workflow or a task definition has an empty name.
    #[error("a workflow or task definition has an empty name")]
    EmptyName,
    /// A node has an empty name.
    #[error("node {reference:?} has an empty name")]
    EmptyTaskName {
        /// The reference of the node.
        reference: String,
    },
    /// A node has an empty reference.
    #[error("a node with the name {name:?} has an empty reference")]
    EmptyReference {
        /// The name of the node.
        name: String,
    },
    /// A workflow has no nodes.
    #[error("workflow {workflow:?} has no tasks")]
    NoTasks {
        /// The name of the workflow.
        workflow: String,
    },
    /// A version is below 1.
    #[error("{at} has the version {version}; versions begin at 1")]
    VersionBelowOne {
        /// The workflow, or the node that starts it.
        at: Place,
        /// The version.
        version: i32,
    },
    /// Two nodes of the workflow have the same reference.
    #[error("the reference {reference:?} is used by more than one node")]
    DuplicateReference {
        /// The reference.
        reference: String,
    },
    /// An expression refers to a node that does not exist.
    #[error("{at}: {member} refers to {reference:?}, which is not a node of the workflow")]
    UnknownReference {
        /// The node, or the workflow for one of its outputs.
        at: Place,
        /// The member that contains the expression, such as `inputParameters.total`.
        member: String,
        /// The reference that does not exist.
        reference: String,
    },
    /// A join waits for a node that does not exist.
    #[error("join {reference:?} waits for {joined:?}, which is not a node of the workflow")]
    UnknownJoin {
        /// The reference of the join.
        reference: String,
        /// The reference that does not exist.
        joined: String,
    },
    /// A fork has no branches.
    #[error("fork {reference:?} has no branches")]
    NoBranches {
        /// The reference of the fork.
        reference: String,
    },
    /// A branch of a fork has no nodes.
    #[error("fork {reference:?} has an empty branch")]
    EmptyBranch {
        /// The reference of the fork.
        reference: String,
    },
    /// The node after a fork is not a join.
    #[error("fork {reference:?} is not followed by a JOIN")]
    NoJoin {
        /// The reference of the fork.
        reference: String,
    },
    /// A switch has no cases.
    #[error("switch {reference:?} has no cases")]
    NoCases {
        /// The reference of the switch.
        reference: String,
    },
    /// A switch has two branches for one case.
    #[error("switch {reference:?} has the case {case:?} twice")]
    DuplicateCase {
        /// The reference of the switch.
        reference: String,
        /// The case.
        case: String,
    },
    /// A loop has no nodes inside.
    #[error("loop {reference:?} has no tasks")]
    EmptyLoop {
        /// The reference of the loop.
        reference: String,
    },
    /// A loop is inside of another loop.
    #[error("loop {reference:?} is inside of loop {outer:?}; put it into a sub-workflow")]
    LoopInLoop {
        /// The reference of the inner loop.
        reference: String,
        /// The reference of the outer loop.
        outer: String,
    },
    /// A TERMINATE node is optional.
    #[error("terminate {reference:?} cannot be optional")]
    OptionalTerminate {
        /// The reference of the node.
        reference: String,
    },
    /// A member that the type of the node needs is empty.
    #[error("node {reference:?} needs the member {member}")]
    Missing {
        /// The reference of the node.
        reference: String,
        /// The name of the member in JSON.
        member: &'static str,
    },
    /// A duration is not a whole number of seconds.
    #[error("{at}: {member} is {duration:?}, which is not a whole number of seconds")]
    NotWholeSeconds {
        /// What has the duration.
        at: Place,
        /// The name of the member in JSON.
        member: &'static str,
        /// The duration.
        duration: Duration,
    },
    /// A duration is not a whole number of milliseconds.
    #[error("{at}: {member} is {duration:?}, which is not a whole number of milliseconds")]
    NotWholeMilliseconds {
        /// What has the duration.
        at: Place,
        /// The name of the member in JSON.
        member: &'static str,
        /// The duration.
        duration: Duration,
    },
    /// A number is larger than its member allows.
    #[error("{at}: {member} is too large")]
    TooLarge {
        /// What has the number.
        at: Place,
        /// The name of the member in JSON.
        member: &'static str,
    },
    /// One time-out must not be longer than another one.
    #[error("task definition {name:?}: {shorter} is longer than {longer}")]
    TimeoutOrder {
        /// The name of the task definition.
        name: String,
        /// The member that must be the shorter one.
        shorter: &'static str,
        /// The member that must be the longer one.
        longer: &'static str,
    },
    /// A value cannot be written as JSON.
    #[error("{at}: {member} cannot be written as JSON: {message}")]
    Value {
        /// What has the value.
        at: Place,
        /// The name of the member.
        member: String,
        /// Why it cannot be written.
        message: String,
    },
}

/// The first error of a builder. Its methods return the builder, so an error waits here for `build`.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstError(Option<DefinitionError>);

impl FirstError {
    /// Returns the value, or keeps the error.
    pub(super) fn keep<T>(&mut self, result: Result<T, DefinitionError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    /// Adds the errors of another builder.
    pub(super) fn absorb(&mut self, other: Self) {
        self.0 = self.0.take().or(other.0);
    }

    /// Returns the error, if there was one.
    pub(super) fn check(self) -> Result<(), DefinitionError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Returns a value as JSON.
pub(super) fn json(
    at: Place,
    member: &str,
    value: impl Serialize,
) -> Result<Value, DefinitionError> {
    serde_json::to_value(value).map_err(|error| DefinitionError::Value {
        at,
        member: member.to_owned(),
        message: error.to_string(),
    })
}

/// Returns a duration in seconds, as the number type of its member.
pub(super) fn seconds<N: TryFrom<u64>>(
    at: Place,
    member: &'static str,
    duration: Duration,
) -> Result<N, DefinitionError> {
    if duration.subsec_nanos() != 0 {
        return Err(DefinitionError::NotWholeSeconds {
            at,
            member,
            duration,
        });
    }
    number(at, member, duration.as_secs())
}

/// Returns a duration in milliseconds, as the number type of its member.
pub(super) fn milliseconds(
    at: Place,
    member: &'static str,
    duration: Duration,
) -> Result<i32, DefinitionError> {
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(DefinitionError::NotWholeMilliseconds {
            at,
            member,
            duration,
        });
    }
    number(at, member, duration.as_millis())
}

/// Returns a number as the number type of its member.
pub(super) fn number<M, N: TryFrom<M>>(
    at: Place,
    member: &'static str,
    number: M,
) -> Result<N, DefinitionError> {
    N::try_from(number).map_err(|_| DefinitionError::TooLarge { at, member })
}

/// Returns a version that is at least 1.
pub(super) fn version(at: Place, version: i32) -> Result<i32, DefinitionError> {
    if version < 1 {
        return Err(DefinitionError::VersionBelowOne { at, version });
    }
    Ok(version)
}
