//! The parts of a run's state that lists show. The rest of the text is skipped.

use longhaul_engine::conductor::execution::state::Execution;
use longhaul_engine::run::state::{Closed, Program, Status};
use longhaul_protocol::Payload;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// What a list of runs shows of the state.
#[derive(Deserialize)]
pub(crate) struct ShownRun {
    pub(crate) status: Status,
    /// Only definition runs have it.
    #[serde(default)]
    execution: Option<IgnoredAny>,
    #[serde(default)]
    pub(crate) closed: Option<Closed>,
    #[serde(default)]
    pub(crate) search_attributes: Map<String, Value>,
    #[serde(default)]
    pub(crate) memo: Option<Payload>,
}

impl ShownRun {
    pub(crate) fn program(&self) -> Program {
        match self.execution {
            Some(_) => Program::Definition,
            None => Program::Code,
        }
    }
}

/// What a search for definition runs shows of the state.
#[derive(Deserialize)]
pub(crate) struct ShownExecution {
    #[serde(default)]
    pub(crate) closed: Option<Closed>,
    pub(crate) execution: Box<Execution>,
}
