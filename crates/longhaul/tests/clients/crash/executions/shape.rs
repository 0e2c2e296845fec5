//! The definitions of the load.

use serde_json::{Value, json};

/// Branches of the dynamic fork, and iterations of the loop.
pub(super) const BRANCHES: usize = 6;
const ITERATIONS: usize = 4;

/// The definitions of the load. Each returns the sum of what its tasks returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Sequence,
    Fork,
    DynamicFork,
    Loop,
    Child,
    Wait,
    Switch,
    /// The first attempt of its task fails.
    Retry,
}

impl Shape {
    pub(crate) const ALL: [Self; 8] = [
        Self::Sequence,
        Self::Fork,
        Self::DynamicFork,
        Self::Loop,
        Self::Child,
        Self::Wait,
        Self::Switch,
        Self::Retry,
    ];

    pub(crate) fn name(self) -> String {
        format!("crash_{self:?}")
    }

    /// How many tasks of workers complete in a run, without those of its children.
    pub(super) fn completions(self) -> usize {
        match self {
            Self::Sequence => 4,
            Self::Fork => 4,
            Self::DynamicFork => BRANCHES,
            Self::Loop => ITERATIONS,
            Self::Child | Self::Retry => 1,
            Self::Wait => 2,
            Self::Switch => 1,
        }
    }

    pub(super) fn definition(self) -> Value {
        let tasks = match self {
            Self::Sequence => json!([work("a"), work("b"), work("c"), work("d")]),
            Self::Fork => json!([
                {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN",
                 "forkTasks": [[work("a"), work("b")], [work("c")], [work("d")]]},
                {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["b", "c", "d"]},
            ]),
            Self::DynamicFork => json!([
                {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN_DYNAMIC", "dynamicForkTasksParam": "branches",
                 "dynamicForkTasksInputParamName": "inputs",
                 "inputParameters": {"branches": "${workflow.input.branches}", "inputs": {}}},
                {"name": "j", "taskReferenceName": "j", "type": "JOIN"},
            ]),
            Self::Loop => json!([
                {"name": "l", "taskReferenceName": "l", "type": "DO_WHILE", "loopOver": [work("a")],
                 "loopCondition": format!("$.l['iteration'] < {ITERATIONS}"),
                 "inputParameters": {"l": "${l.output}"}},
            ]),
            Self::Child => json!([
                {"name": "s", "taskReferenceName": "s", "type": "SUB_WORKFLOW",
                 "subWorkflowParam": {"name": Self::Sequence.name(), "version": 1}},
                work("z"),
            ]),
            Self::Wait => json!([
                work("a"),
                {"name": "w", "taskReferenceName": "w", "type": "WAIT", "inputParameters": {"duration": "1s"}},
                work("b"),
            ]),
            Self::Switch => json!([
                {"name": "v", "taskReferenceName": "v", "type": "SET_VARIABLE", "inputParameters": {"x": "${workflow.input.n}"}},
                {"name": "i", "taskReferenceName": "i", "type": "INLINE",
                 "inputParameters": {"evaluatorType": "javascript", "expression": "$.x % 2 == 0 ? 'even' : 'odd'", "x": "${workflow.variables.x}"}},
                {"name": "c", "taskReferenceName": "c", "type": "SWITCH", "evaluatorType": "value-param", "expression": "case",
                 "inputParameters": {"case": "${i.output.result}"},
                 "decisionCases": {"even": [work("a")], "odd": [work("b")]}},
            ]),
            Self::Retry => {
                json!([{"name": "crash_fails_once", "taskReferenceName": "a", "type": "SIMPLE"}])
            }
        };
        json!({"name": self.name(), "version": 1, "tasks": tasks})
    }
}

pub(super) fn work(reference: &str) -> Value {
    json!({"name": "crash_work", "taskReferenceName": reference, "type": "SIMPLE"})
}
