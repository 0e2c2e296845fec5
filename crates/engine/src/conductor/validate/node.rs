//! The rules for each type of node.

use longhaul_protocol::conductor::{
    IdempotencyStrategy, NodeList, WorkflowDef, WorkflowTask, read,
};
use serde_json::Value;

use super::task_def::check_inline;
use super::{Check, Rules, Script, is_too_long, workflow_def};
use crate::conductor::definition::Loop;
use crate::conductor::expression::Template;
use crate::conductor::limits::NAME_CHARS_MAX;
use crate::conductor::script_result::Evaluator;
use crate::conductor::wait_time::{WaitTime, WaitTimeError};

/// Checks every node of the tree.
pub(super) fn check_all(check: &mut Check, at: &str, definition: &WorkflowDef, rules: &Rules<'_>) {
    list(check, &format!("{at}tasks"), &definition.tasks, None, rules);
}

/// The recursion is as deep as the nesting of the lists, which the reader of JSON bounds.
fn list(
    check: &mut Check,
    path: &str,
    nodes: &NodeList,
    enclosing_loop: Option<&str>,
    rules: &Rules<'_>,
) {
    for (index, node) in nodes.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut enclosing_loop = enclosing_loop;
        Rule {
            check,
            path: &path,
            node,
            rules,
        }
        .all(enclosing_loop);
        if node.task_type == "DO_WHILE" {
            enclosing_loop = Some(&node.task_reference_name);
        }
        for (name, nodes) in node.lists() {
            list(
                check,
                &format!("{path}.{name}"),
                nodes,
                enclosing_loop,
                rules,
            );
        }
    }
}

/// The checks of one node.
struct Rule<'a, 'b> {
    check: &'a mut Check,
    path: &'a str,
    node: &'a WorkflowTask,
    rules: &'a Rules<'b>,
}

impl Rule<'_, '_> {
    fn all(&mut self, enclosing_loop: Option<&str>) {
        let node = self.node;
        if node.name.trim().is_empty() {
            self.member(
                "name",
                "WorkflowTask name cannot be empty or null",
                node.name.as_str(),
            );
        }
        if is_too_long(&node.name) {
            let message = format!("WorkflowTask name may have at most {NAME_CHARS_MAX} characters");
            self.check.add(format!("{}.name", self.path), message);
        }
        if node.task_reference_name.trim().is_empty() {
            self.member(
                "taskReferenceName",
                "WorkflowTask taskReferenceName name cannot be empty or null",
                node.task_reference_name.as_str(),
            );
        }
        if node.start_delay < 0 {
            self.member("startDelay", "startDelay must be >= 0", node.start_delay);
        }
        if let Some(definition) = &node.task_definition {
            check_inline(
                self.check,
                &format!("{}.taskDefinition.", self.path),
                definition,
            );
        }
        match node.task_type.as_str() {
            "SWITCH" => self.switch(),
            "DECISION" => self.decision(),
            "DO_WHILE" => self.do_while(enclosing_loop),
            "FORK_JOIN" if node.fork_tasks.is_empty() => {
                self.add("forkTasks should have atleast one task");
            }
            "FORK_JOIN_DYNAMIC" => self.dynamic_fork(),
            "DYNAMIC" if is_blank(node.dynamic_task_name_param.as_deref()) => {
                self.required("dynamicTaskNameParam");
            }
            "SUB_WORKFLOW" => self.sub_workflow(),
            "DURABLE_WORKFLOW" => self.code_run(),
            "EVENT" if is_blank(node.sink.as_deref()) => self.required("sink"),
            "HTTP" => self.http(),
            "JSON_JQ_TRANSFORM" => self.jq(),
            "TERMINATE" => self.terminate(),
            "WAIT" => self.wait(),
            _ => {}
        }
    }

    /// Adds a violation of the node as a whole, which names its type and name.
    fn add(&mut self, message: &str) {
        let WorkflowTask {
            task_type, name, ..
        } = self.node;
        self.check.add(
            self.path,
            format!("{message} for taskType: {task_type} taskName: {name}"),
        );
    }

    fn required(&mut self, member: &str) {
        self.add(&format!("{member} field is required"));
    }

    fn member(&mut self, member: &str, message: &str, value: impl Into<Value>) {
        self.check
            .add_value(format!("{}.{member}", self.path), message, value);
    }

    /// Returns whether the node gives an input member.
    fn gives(&self, member: &str) -> bool {
        self.node
            .input_parameters
            .get(member)
            .is_some_and(|value| !value.is_null())
    }

    /// Returns whether the input template of the task definition gives a member.
    fn template_gives(&self, member: &str) -> bool {
        let registered = || self.rules.task_defs?.get(&self.node.name);
        self.node
            .task_definition
            .as_ref()
            .or_else(registered)
            .is_some_and(|definition| definition.input_template.contains_key(member))
    }

    fn script(&mut self, member: &str, source: &str) {
        self.check.found.scripts.push(Script {
            path: format!("{}.{member}", self.path),
            source: source.to_owned(),
        });
    }

    fn switch(&mut self) {
        let node = self.node;
        let evaluator = node.evaluator_type.as_deref();
        if is_blank(evaluator) {
            self.required("evaluatorType");
        }
        match node.expression.as_deref() {
            Some(expression) if !is_blank(Some(expression)) => {
                if evaluator.map(Evaluator::of) == Some(Evaluator::JavaScript) {
                    self.script("expression", expression);
                }
            }
            Some(_) | None => self.required("expression"),
        }
        self.has_cases();
    }

    fn decision(&mut self) {
        let node = self.node;
        match node.case_expression.as_deref() {
            Some(script) if !is_blank(Some(script)) => self.script("caseExpression", script),
            Some(_) | None => {
                if is_blank(node.case_value_param.as_deref()) {
                    self.required("caseValueParam or caseExpression");
                }
            }
        }
        self.has_cases();
    }

    fn has_cases(&mut self) {
        if self.node.decision_cases.is_empty() {
            self.add("decisionCases should have atleast one task");
        }
    }

    fn do_while(&mut self, enclosing_loop: Option<&str>) {
        let node = self.node;
        if is_blank(node.loop_condition.as_deref()) && !Loop::has_items(node) {
            self.required("loopCondition");
        }
        if node.loop_over.is_empty() {
            self.add("loopOver should have atleast one task");
        }
        if let Some(outer) = enclosing_loop {
            self.add(&format!(
                "DO_WHILE cannot be inside of DO_WHILE {outer}, use a SUB_WORKFLOW"
            ));
        }
    }

    fn dynamic_fork(&mut self) {
        let node = self.node;
        let legacy = !is_blank(node.dynamic_fork_join_tasks_param.as_deref());
        let tasks = !is_blank(node.dynamic_fork_tasks_param.as_deref());
        let inputs = !is_blank(node.dynamic_fork_tasks_input_param_name.as_deref());
        if legacy && (tasks || inputs) {
            self.add(
                "dynamicForkJoinTasksParam or the combination of dynamicForkTasksInputParamName and dynamicForkTasksParam can be \
                 used, not both,",
            );
        } else if !(legacy || tasks && inputs || self.gives("forkTaskInputs")) {
            self.required(
                "forkTaskInputs, dynamicForkJoinTasksParam, or both dynamicForkTasksParam and dynamicForkTasksInputParamName",
            );
        }
    }

    fn sub_workflow(&mut self) {
        let Some(params) = &self.node.sub_workflow_param else {
            return self.required("subWorkflowParam");
        };
        if is_blank(Some(&params.name)) {
            self.member(
                "subWorkflowParam.name",
                "SubWorkflowParams name cannot be null or empty",
                params.name.as_str(),
            );
        }
        if let Some(strategy) = &params.idempotency_strategy
            && !strategy.contains("${")
            && let Err(error) = strategy.parse::<IdempotencyStrategy>()
        {
            self.member(
                "subWorkflowParam.idempotencyStrategy",
                &error.to_string(),
                strategy.as_str(),
            );
        }
        let path = format!("{}.subWorkflowParam.workflowDefinition", self.path);
        match &params.workflow_definition {
            None => {}
            Some(Value::String(text)) if Template::parse_text(text).is_one_expression() => {}
            Some(inline @ Value::Object(_)) => match read::<WorkflowDef>(inline.clone()) {
                Ok(inline) => workflow_def(self.check, &format!("{path}."), &inline, self.rules),
                Err(wrong) => {
                    for wrong in wrong {
                        self.check.push(
                            format!("{path}.{}", wrong.path),
                            wrong.message,
                            wrong.invalid_value,
                        );
                    }
                }
            },
            Some(other) => self.check.add_value(
                path,
                "workflowDefinition must be an object or one expression ${…}",
                other.clone(),
            ),
        }
    }

    fn http(&mut self) {
        let given = ["http_request", "uri", "method"]
            .iter()
            .any(|member| self.gives(member));
        if !given && !self.template_gives("http_request") {
            self.required("inputParameters.http_request");
        }
    }

    fn code_run(&mut self) {
        for member in ["workflowType", "taskQueue"] {
            if !self.gives(member) {
                self.required(&format!("inputParameters.{member}"));
            }
        }
    }

    fn jq(&mut self) {
        if !self.gives("queryExpression") && !self.template_gives("queryExpression") {
            self.required("inputParameters.queryExpression");
        }
    }

    fn terminate(&mut self) {
        if self.node.optional {
            self.add("optional cannot be true");
        }
        let status = self.node.input_parameters.get("terminationStatus");
        match status {
            Some(Value::String(status)) if status.contains("${") => {}
            Some(Value::String(status))
                if matches!(status.as_str(), "COMPLETED" | "FAILED" | "TERMINATED") => {}
            None | Some(Value::Null) => self.required("inputParameters.terminationStatus"),
            Some(other) => self.member(
                "inputParameters.terminationStatus",
                "terminationStatus must be one of COMPLETED, FAILED, TERMINATED",
                other.clone(),
            ),
        }
    }

    /// Checks the times that are literals. Expressions are checked when the task is scheduled.
    fn wait(&mut self) {
        let mut input = self.node.input_parameters.clone();
        for value in input.values_mut() {
            if let Value::String(text) = value
                && text.contains("${")
            {
                *value = Value::Null;
            }
        }
        let is_given = |name: &str| {
            let value = self.node.input_parameters.get(name);
            value.is_some_and(|value| {
                !value.is_null() && !is_blank(value.as_str().or(Some("a number")))
            })
        };
        let error = if is_given("duration") && (is_given("until") || is_given("wait_until")) {
            Err(WaitTimeError::Both)
        } else {
            WaitTime::of(&input)
        };
        if let Err(error) = error {
            let path = format!("{}.inputParameters", self.path);
            self.check.add(path, error.to_string());
        }
    }
}

fn is_blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}
