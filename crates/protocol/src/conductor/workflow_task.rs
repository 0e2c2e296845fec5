//! The nodes of a workflow definition, as clients write and read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::member::{Member, Reader, integer};
use super::{IdempotencyStrategy, JoinMode, Object, TaskDef};

/// An ordered list of nodes. Nodes are shared, because a run, its task records and the compiled definition all refer to them.
pub type NodeList = Vec<Arc<WorkflowTask>>;

model! {
    /// One node of a workflow definition: a task or an operator with the lists of nodes inside it.
    pub struct WorkflowTask [other] => prepare {
        "name" name: String;
        "taskReferenceName" task_reference_name: String;
        "description" description: Option<String>;
        "inputParameters" input_parameters: Object;
        /// The operator, or any other text for a type that workers poll. Also read from `workflowTaskType`.
        "type" task_type: String = "SIMPLE".to_owned();
        /// DYNAMIC: the input member with the name of the task.
        "dynamicTaskNameParam" dynamic_task_name_param: Option<String>;
        /// DECISION: the input member with the case.
        "caseValueParam" case_value_param: Option<String>;
        /// DECISION: a script that returns the case.
        "caseExpression" case_expression: Option<String>;
        "scriptExpression" script_expression: Option<String>;
        /// SWITCH and DECISION: the branches by case.
        "decisionCases" decision_cases: BTreeMap<String, NodeList>;
        "dynamicForkJoinTasksParam" dynamic_fork_join_tasks_param: Option<String>;
        "dynamicForkTasksParam" dynamic_fork_tasks_param: Option<String>;
        "dynamicForkTasksInputParamName" dynamic_fork_tasks_input_param_name: Option<String>;
        "defaultCase" default_case: NodeList;
        /// FORK_JOIN: the branches.
        "forkTasks" fork_tasks: Vec<NodeList>;
        /// Seconds until a queued task becomes visible for the first time.
        "startDelay" start_delay: i32;
        "subWorkflowParam" sub_workflow_param: Option<SubWorkflowParams>;
        /// JOIN and EXCLUSIVE_JOIN: the references to wait for.
        "joinOn" join_on: Vec<String>;
        "joinStatus" join_status: Option<String>;
        "joinMode" join_mode: Option<JoinMode>;
        /// EVENT: where the message goes.
        "sink" sink: Option<String>;
        /// A failure of the task does not fail the workflow.
        "optional" optional: bool;
        /// A definition for this node only.
        "taskDefinition" task_definition: Option<Arc<TaskDef>>;
        "rateLimited" rate_limited: Option<bool>;
        "defaultExclusiveJoinTask" default_exclusive_join_task: Vec<String>;
        "asyncComplete" async_complete: bool;
        /// DO_WHILE: a script that decides about another iteration.
        "loopCondition" loop_condition: Option<String>;
        /// DO_WHILE: the body.
        "loopOver" loop_over: NodeList;
        /// DO_WHILE: an expression for the list to iterate over.
        "items" items: Option<Value>;
        /// Replaces the count of the task definition.
        "retryCount" retry_count: Option<i32>;
        "evaluatorType" evaluator_type: Option<String>;
        "expression" expression: Option<String>;
        /// Stored without effect.
        "onStateChange" on_state_change: Object;
        "cacheConfig" cache_config: Option<CacheConfig>;
        /// A failure of the task fails the workflow only when the workflow would complete.
        "permissive" permissive: bool;
        "metadata" metadata: Object;
    }
}

/// Counts the node, reads the older name of `type`, and gives an inline task definition the name of the node.
fn prepare(node: &mut Object, reader: &mut Reader) -> Option<()> {
    if !reader.count_node() {
        return None;
    }
    let older = node
        .remove("workflowTaskType")
        .filter(|value| !value.is_null());
    if let Some(older) = older
        && node.get("type").is_none_or(Value::is_null)
    {
        node.insert("type".to_owned(), older);
    }
    let name = node.get("name").cloned().unwrap_or_default();
    if let Some(Value::Object(definition)) = node.get_mut("taskDefinition")
        && definition.get("name").is_none_or(Value::is_null)
    {
        definition.insert("name".to_owned(), name);
    }
    Some(())
}

impl WorkflowTask {
    /// Returns the lists of nodes inside this node, with the path of each one below the node.
    pub fn lists(&self) -> impl Iterator<Item = (String, &NodeList)> {
        let cases = self
            .decision_cases
            .iter()
            .map(|(case, list)| (format!("decisionCases.{case}"), list));
        let default = std::iter::once(("defaultCase".to_owned(), &self.default_case));
        let branches = self
            .fork_tasks
            .iter()
            .enumerate()
            .map(|(index, list)| (format!("forkTasks[{index}]"), list));
        let body = std::iter::once(("loopOver".to_owned(), &self.loop_over));
        cases.chain(default).chain(branches).chain(body)
    }
}

model! {
    /// The workflow that a SUB_WORKFLOW node starts.
    pub struct SubWorkflowParams [other] {
        "name" name: String;
        /// A number, or an expression for one. Absent or 0 is the latest version.
        "version" version: Option<NumberOrText>;
        "taskToDomain" task_to_domain: Option<Object>;
        /// A definition to run instead of a registered one, or one expression that gives it.
        "workflowDefinition" workflow_definition: Option<Value>;
        "idempotencyKey" idempotency_key: Option<String>;
        /// A word of [`IdempotencyStrategy`], or an expression for one.
        "idempotencyStrategy" idempotency_strategy: Option<String>;
        /// A number, or an expression for one.
        "priority" priority: Option<NumberOrText>;
    }
}

impl SubWorkflowParams {
    /// Returns the version if it is a number above zero.
    pub fn fixed_version(&self) -> Option<i32> {
        match self.version {
            Some(NumberOrText::Number(version)) => {
                i32::try_from(version).ok().filter(|version| *version > 0)
            }
            Some(NumberOrText::Text(_)) | None => None,
        }
    }

    /// Returns the idempotency strategy if it is a word and not an expression.
    pub fn fixed_strategy(&self) -> Option<IdempotencyStrategy> {
        self.idempotency_strategy.as_deref()?.parse().ok()
    }
}

model! {
    /// When the output of an earlier task is used again.
    pub struct CacheConfig [other] {
        "key" key: Option<String>;
        "ttlInSecond" ttl_in_second: Option<i64>;
    }
}

/// A member that is a number, or text with an expression for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberOrText {
    /// A number.
    Number(i64),
    /// Text that is not a number.
    Text(String),
}

impl Member for NumberOrText {
    fn read(value: Value, reader: &mut Reader) -> Option<Self> {
        match (integer(&value), value) {
            (Some(number), _) => Some(Self::Number(number)),
            (None, Value::String(text)) => Some(Self::Text(text)),
            (None, other) => {
                reader.wrong("must be an integer or an expression", Some(&other));
                None
            }
        }
    }
}

impl Serialize for NumberOrText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}
