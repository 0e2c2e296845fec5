//! SWITCH and DECISION: one of several branches, by the result of an expression. The branch continues the flow.

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::TaskId;
use serde_json::{Value, json};

use crate::conductor::definition::{ListId, NodeId, Operator, Switch};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::ExecutionTask;
use crate::conductor::execution::value::object;
use crate::conductor::script_result::{Evaluator, case_text, value_param};

/// The result of an expression.
pub(super) enum Evaluated {
    Value(Value),
    Failed { reason: String, is_retriable: bool },
    NoEvaluator(String),
}

impl Pass<'_, '_> {
    /// Adds a SWITCH and the first task of the branch that it selects.
    pub(super) fn add_switch(
        &mut self,
        place: &Place,
        id: TaskId,
        input: Object,
        switch: &Switch,
    ) -> Try<()> {
        let result = match self.evaluate(&switch.evaluator, &switch.expression, &input)? {
            Evaluated::Value(result) => result,
            Evaluated::Failed { reason, .. } => {
                return self.add_failed(place, id, input, TaskStatus::Failed, reason);
            }
            Evaluated::NoEvaluator(reason) => return self.fail_without_task(reason),
        };
        let case = case_text(&result);
        let output = object(json!({"evaluationResult": [case], "selectedCase": case}));
        self.add_branching(place, id, input, case, output)
    }

    /// Adds a DECISION and the first task of the branch that it selects.
    pub(super) fn add_decision(&mut self, place: &Place, id: TaskId, input: &Object) -> Try<()> {
        let Operator::Decision {
            case_value_param,
            case_expression,
            ..
        } = place.node().operator()
        else {
            return Ok(());
        };
        let result = match (case_expression, case_value_param) {
            (Some(script), _) => match self.script(script, input)? {
                Ok(result) => result,
                Err(failure) => return self.fail_without_task(failure.message),
            },
            (None, Some(name)) => value_param(name, input).clone(),
            (None, None) => Value::Null,
        };
        let case = case_text(&result);
        let output = object(json!({"caseOutput": [case]}));
        self.add_branching(place, id, Object::new(), case, output)
    }

    fn add_branching(
        &mut self,
        place: &Place,
        id: TaskId,
        mut input: Object,
        case: String,
        output: Object,
    ) -> Try<()> {
        let branch = branch_of(place, &case);
        let first = branch.and_then(|branch| place.tree().list(branch).first().copied());
        input.insert("case".to_owned(), Value::String(case));
        if first.is_some() {
            input.insert("hasChildren".to_owned(), json!("true"));
        }
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        self.add_ended(task, input, TaskStatus::Completed, None, Some(output));
        match first {
            Some(first) => self.schedule(&place.at(first)),
            None => Ok(()),
        }
    }

    /// Returns the first node of the branch that a SWITCH or DECISION took. `None` if it took none, and for other tasks.
    pub(crate) fn branch_taken(&self, task: &ExecutionTask, place: &Place) -> Try<Option<NodeId>> {
        let is_branching = matches!(
            place.node().operator(),
            Operator::Switch(_) | Operator::Decision { .. }
        );
        if !is_branching || task.status != TaskStatus::Completed {
            return Ok(None);
        }
        let output = self.load(&task.output)?;
        let case = output
            .get("selectedCase")
            .or_else(|| output.get("caseOutput")?.get(0))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let branch = branch_of(place, case);
        Ok(branch.and_then(|branch| place.tree().list(branch).first().copied()))
    }

    /// Evaluates the expression of a SWITCH or an INLINE task.
    pub(super) fn evaluate(
        &mut self,
        evaluator: &Evaluator,
        expression: &str,
        input: &Object,
    ) -> Try<Evaluated> {
        Ok(match evaluator {
            Evaluator::ValueParam => Evaluated::Value(value_param(expression, input).clone()),
            Evaluator::JavaScript => match self.script(expression, input)? {
                Ok(value) => Evaluated::Value(value),
                Err(failure) => Evaluated::Failed {
                    reason: failure.message,
                    is_retriable: failure.is_retriable,
                },
            },
            Evaluator::Python => {
                Evaluated::NoEvaluator("No evaluator registered for type: python".to_owned())
            }
            Evaluator::Unknown(name) => {
                Evaluated::NoEvaluator(format!("No evaluator registered for type: {name}"))
            }
        })
    }
}

/// Returns the branch of a case: for a SWITCH an empty list counts, for a DECISION it is as if the case were missing.
fn branch_of(place: &Place, case: &str) -> Option<ListId> {
    let operator = place.node().operator();
    if let Operator::Switch(switch) = operator {
        let listed = switch.cases.get(case).copied();
        return Some(listed.unwrap_or(switch.default));
    }
    let Operator::Decision { cases, default, .. } = operator else {
        return None;
    };
    let listed = cases.get(case).copied();
    let listed = listed.filter(|list| !place.tree().list(*list).is_empty());
    Some(listed.unwrap_or(*default))
}
