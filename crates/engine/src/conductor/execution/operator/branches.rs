//! FORK_JOIN_DYNAMIC: the branches come from the input, in one of three styles. Each branch is one node.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus, WorkflowTask, read};
use serde_json::{Value, json};

use super::fork::NO_JOIN;
use crate::conductor::definition::{DynamicFork, Operator};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::value::object;
use crate::conductor::limits::NAME_CHARS_MAX;

/// Branches of one dynamic fork. They are created in one transaction.
pub(crate) const BRANCHES_MAX: usize = 10_000;

/// One branch of a dynamic fork.
struct Branch {
    node: Arc<WorkflowTask>,
    /// Members that are added to the input of the node.
    input: Object,
}

impl Pass<'_, '_> {
    /// Adds a FORK, the branches that its input lists, and the JOIN.
    pub(crate) fn fork_dynamically(&mut self, place: &Place, fork: &DynamicFork) -> Try<()> {
        let Some(join) = place.tree().join_of(place.node) else {
            return self.fail_without_task(NO_JOIN.to_owned());
        };
        let id = self.id_of_task(place);
        let input = match self.input_of(place, &id)? {
            Ok(input) => input,
            Err(reason) => return self.fail_without_task(reason),
        };
        let places = self
            .branches_of(place, fork, &input)
            .and_then(|branches| self.places_of(place, branches));
        let places = match places {
            Ok(places) => places,
            Err(reason) => return self.fail_without_task(reason),
        };
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        self.add_fork(task, shown_input(input, &places));
        self.draft.execution_mut().has_dynamic_fork = true;
        let mut joined = Vec::with_capacity(places.len());
        // What the branches need is looked up at once, and not branch by branch.
        let mut needs = BTreeSet::new();
        for branch in &places {
            let first = self.draft.execution().last_seq + 1;
            match self.schedule(branch) {
                Ok(()) if !self.draft.is_open() && needs.is_empty() => return Ok(()),
                Ok(()) => {}
                Err(more) => needs.extend(more),
            }
            // The JOIN waits for the last task that a branch created; a loop creates the tasks of its body later.
            let is_loop = matches!(branch.node().operator(), Operator::DoWhile(_));
            let last = self.draft.execution().last_seq;
            joined.push(if is_loop { first } else { last });
        }
        if !needs.is_empty() {
            return Err(needs.into_iter().collect());
        }
        let on: Vec<String> = joined
            .iter()
            .filter_map(|seq| self.draft.task(*seq))
            .map(|task| task.reference.clone())
            .collect();
        let join_seq = self.add_join(&place.at(join), &on)?;
        for seq in joined {
            self.draft
                .change_task(seq, |task| task.joined_by = join_seq);
        }
        Ok(())
    }

    /// Returns the branches that the input of a dynamic fork lists, or why it has none.
    fn branches_of(
        &self,
        place: &Place,
        fork: &DynamicFork,
        input: &Object,
    ) -> Result<Vec<Branch>, String> {
        if let Some(Value::Array(inputs)) = input.get("forkTaskInputs") {
            return self.branches_of_inputs(place, input, inputs);
        }
        if let Some(name) = &fork.tasks_param {
            let inputs = fork
                .inputs_param
                .as_deref()
                .and_then(|name| input.get(name));
            return branches_of_nodes(name, input.get(name), inputs);
        }
        match &fork.legacy_param {
            Some(name) => branches_of_legacy(name, input.get(name)),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the places of the branches, or why they cannot run. References must differ from all others in the run.
    fn places_of(&self, place: &Place, branches: Vec<Branch>) -> Result<Vec<Place>, String> {
        let duplicate = |reference: &str| {
            format!(
                "The dynamic fork {} attempted to create a duplicate task reference name: {reference}",
                place.node().reference()
            )
        };
        let mut seen = BTreeSet::new();
        let mut places = Vec::with_capacity(branches.len());
        for branch in branches {
            if branch.node.task_reference_name.is_empty() {
                return Err("A dynamically forked task has no taskReferenceName".to_owned());
            }
            if branch.node.name.chars().count() > NAME_CHARS_MAX {
                return Err(format!(
                    "The name of a dynamically forked task has more than {NAME_CHARS_MAX} characters"
                ));
            }
            let mut at = place
                .forked_at(&branch.node)
                .map_err(|reference| duplicate(&reference))?;
            at.extra = Some(Arc::new(branch.input));
            for node in at.tree().nodes() {
                let reference = node.reference();
                let in_run = self
                    .draft
                    .task_by_reference(&place.reference_of(reference))
                    .is_some();
                let in_definition = self.snapshot.tree().find(reference).is_some();
                if in_run || in_definition || !seen.insert(reference.to_owned()) {
                    return Err(duplicate(reference));
                }
            }
            places.push(at);
        }
        Ok(places)
    }

    /// Returns one branch per element of a list of inputs: the same task, or the same sub-workflow.
    fn branches_of_inputs(
        &self,
        place: &Place,
        input: &Object,
        inputs: &[Value],
    ) -> Result<Vec<Branch>, String> {
        check_count(inputs.len())?;
        let text = |name: &str| {
            input
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let workflow = text("forkTaskWorkflow");
        let task_type = if workflow.is_some() {
            "SUB_WORKFLOW"
        } else {
            text("forkTaskType").unwrap_or("SIMPLE")
        };
        let name = workflow
            .or_else(|| text("forkTaskName"))
            .unwrap_or(task_type);
        if name == "SIMPLE" {
            return Err(
                "forkTaskInputs needs forkTaskName, forkTaskType or forkTaskWorkflow".to_owned(),
            );
        }
        let prefix = if self.draft.execution().has_dynamic_fork {
            format!("_{}_{name}", place.node().reference())
        } else {
            format!("_{name}")
        };
        let version = match input.get("forkTaskWorkflowVersion") {
            Some(Value::String(version)) => version.parse().ok(),
            Some(Value::Number(version)) => version.as_i64(),
            _ => None,
        };
        let optional = place.node().task().optional;
        inputs
            .iter()
            .enumerate()
            .map(|(index, element)| {
                let mut members = match element {
                    Value::Object(members) => members.clone(),
                    other @ (Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)) => object(json!({"input": other})),
                };
                let domains = members.get("taskToDomain").cloned();
                members.insert("__index".to_owned(), json!(index));
                let mut node = json!({
                    "name": name, "taskReferenceName": format!("{prefix}_{index}"), "type": task_type, "optional": optional,
                });
                if workflow.is_some() {
                    node["subWorkflowParam"] = json!({"name": name, "version": version});
                    if let Some(domains) = domains {
                        node["subWorkflowParam"]["taskToDomain"] = domains;
                    }
                }
                Ok(Branch {
                    node: Arc::new(node_of(node)?),
                    input: members,
                })
            })
            .collect()
    }
}

/// Returns the input that the FORK shows: its own, with the references and nodes of its branches.
fn shown_input(mut input: Object, places: &[Place]) -> Object {
    let references: Vec<&str> = places
        .iter()
        .map(|place| place.node().reference())
        .collect();
    let nodes: Vec<Value> = places
        .iter()
        .map(|place| serde_json::to_value(&**place.node().task()).unwrap_or_default())
        .collect();
    input.insert("forkedTasks".to_owned(), json!(references));
    input.insert("forkedTaskDefs".to_owned(), Value::Array(nodes));
    input
}

fn check_count(count: usize) -> Result<(), String> {
    if count > BRANCHES_MAX {
        return Err(format!(
            "The dynamic fork has {count} branches, more than {BRANCHES_MAX} (limit: branches of a fork)"
        ));
    }
    Ok(())
}

fn node_of(value: Value) -> Result<WorkflowTask, String> {
    read::<WorkflowTask>(value).map_err(|wrong| {
        wrong.first().map_or_else(
            || "not a task".to_owned(),
            |wrong| format!("{}: {}", wrong.path, wrong.message),
        )
    })
}

fn branches_of_nodes(
    name: &str,
    nodes: Option<&Value>,
    inputs: Option<&Value>,
) -> Result<Vec<Branch>, String> {
    let inputs = match inputs {
        None | Some(Value::Null) => Object::new(),
        Some(Value::String(text)) if text.is_empty() => Object::new(),
        Some(Value::Object(inputs)) => inputs.clone(),
        Some(other) => {
            return Err(format!(
                "Input to the dynamically forked tasks is not a map -> expecting a map of K,V  but found {other}"
            ));
        }
    };
    let invalid = |why: &str| {
        let shown = nodes.map_or_else(|| "null".to_owned(), ToString::to_string);
        let shown: String = shown.chars().take(500).collect();
        format!(
            "Input '{name}' is invalid. Cannot deserialize a list of Workflow Tasks from '{shown}'{why}"
        )
    };
    let Some(Value::Array(list)) = nodes else {
        return Err(invalid(""));
    };
    check_count(list.len())?;
    list.iter()
        .map(|node| {
            let node = node_of(node.clone()).map_err(|why| invalid(&format!(": {why}")))?;
            let input = inputs
                .get(&node.task_reference_name)
                .cloned()
                .map(object)
                .unwrap_or_default();
            Ok(Branch {
                node: Arc::new(node),
                input,
            })
        })
        .collect()
}

fn branches_of_legacy(name: &str, value: Option<&Value>) -> Result<Vec<Branch>, String> {
    let list = value
        .and_then(|value| value.get("dynamicTasks"))
        .and_then(Value::as_array);
    let Some(list) = list else {
        return Err(format!(
            "Input '{name}' is invalid: it needs a list dynamicTasks"
        ));
    };
    check_count(list.len())?;
    list.iter()
        .map(|task| {
            let text = |key: &str| task.get(key).and_then(Value::as_str).unwrap_or_default();
            let node = json!({
                "name": text("taskName"), "taskReferenceName": text("referenceName"),
                "type": Some(text("type")).filter(|text| !text.is_empty()).unwrap_or("SIMPLE"),
            });
            Ok(Branch {
                node: Arc::new(node_of(node)?),
                input: task.get("input").cloned().map(object).unwrap_or_default(),
            })
        })
        .collect()
}
