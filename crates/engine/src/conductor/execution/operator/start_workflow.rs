//! START_WORKFLOW. The other run is created in the transaction of this one, without a parent. The task completes with it.

use std::sync::Arc;

use longhaul_protocol::conductor::{
    IdempotencyStrategy, Object, StartWorkflowRequest, TaskStatus, read,
};
use longhaul_protocol::id::{RunId, TaskId};
use serde_json::{Value, json};

use crate::change::KeyClaim;
use crate::conductor::execution::command::start::{NewExecution, create};
use crate::conductor::execution::lookup::{KeyOfWorkflow, KeyOwner, Lookup};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, TaskTimeouts};
use crate::conductor::execution::value::object;
use crate::conductor::limits::{PRIORITY_MAX, SUB_WORKFLOW_DEPTH_MAX};

/// What becomes of a start.
enum Outcome {
    /// This run exists already, and has the key.
    Exists(RunId),
    /// A run begins, and takes the key if there is one.
    Begins(Box<NewExecution>),
}

impl Pass<'_, '_> {
    /// Adds a START_WORKFLOW task. It begins when the pass comes to it, or when its delay is over.
    pub(super) fn add_start_workflow(
        &mut self,
        place: &Place,
        id: TaskId,
        input: Object,
    ) -> Try<()> {
        let node = place.node().task();
        let delay = u64::try_from(node.start_delay).unwrap_or(0);
        let mut task = self.operator_task(place, id, TaskStatus::Scheduled);
        task.timeouts = TaskTimeouts {
            response: 0,
            ..TaskTimeouts::of(&*self.task_def(node, &task.def_name)?)
        };
        task.callback_after_seconds = i64::try_from(delay).unwrap_or(i64::MAX);
        let begins_at = self.draft.now.plus_seconds(delay);
        self.add_delayed(task, input, begins_at);
        Ok(())
    }

    /// Starts the other workflow and ends the task.
    pub(super) fn begin_start_workflow(&mut self, task: &ExecutionTask) -> Try<()> {
        let input = self.load_object(&task.input)?;
        let outcome = match start_request(&input) {
            Ok(request) => self.outcome_of_start(request)?,
            Err(reason) => Err(reason),
        };
        let run_id = match outcome {
            Ok(Outcome::Exists(run_id)) => run_id,
            Ok(Outcome::Begins(new)) => {
                let run_id: RunId = self.draft.ids.mint_uuid();
                let (now, limits) = (self.draft.now, self.draft.limits);
                let created = create(&new, &run_id, &mut self.draft.ids, now, limits);
                self.draft.created.push(created);
                run_id
            }
            Err(reason) => {
                self.draft
                    .end_task(task.seq, TaskStatus::Failed, Some(reason), None);
                self.todo.push_back(task.seq);
                return Ok(());
            }
        };
        self.draft.start_task(task.seq, |_| {});
        let output = object(json!({"workflowId": run_id}));
        self.draft
            .end_task(task.seq, TaskStatus::Completed, None, Some(output));
        self.todo.push_back(task.seq);
        Ok(())
    }

    /// Returns what becomes of a start, or why it is refused.
    fn outcome_of_start(&self, request: StartWorkflowRequest) -> Try<Result<Outcome, String>> {
        let snapshot = match &request.workflow_def {
            Some(definition) => {
                let definition = serde_json::to_value(definition).unwrap_or_default();
                self.inline_snapshot(&definition)?
            }
            None => {
                let version = request.version.filter(|version| *version > 0);
                self.registered_snapshot(&request.name, version)?
            }
        };
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(reason) => return Ok(Err(reason)),
        };
        let execution = self.draft.execution();
        let depth = execution.depth + 1;
        if depth > SUB_WORKFLOW_DEPTH_MAX {
            return Ok(Err(format!(
                "More than {SUB_WORKFLOW_DEPTH_MAX} runs caused each other (limit: sub-workflow depth)"
            )));
        }
        let Some(priority) = u8::try_from(request.priority)
            .ok()
            .filter(|priority| i32::from(*priority) <= PRIORITY_MAX)
        else {
            let given = request.priority;
            return Ok(Err(format!(
                "startWorkflow.priority must be between 0 and {PRIORITY_MAX}, not {given}"
            )));
        };
        let mut key_claim = None;
        if let Some(key) = &request.idempotency_key {
            let name = &snapshot.definition().name;
            let owner = self.key_owner(name, key)?;
            let strategy = request.idempotency_strategy;
            let strategy = strategy.unwrap_or(IdempotencyStrategy::Fail);
            let earlier = match (owner, strategy) {
                (None, _) => None,
                (Some(owner), IdempotencyStrategy::ReturnExisting) => {
                    return Ok(Ok(Outcome::Exists(owner.run_id)));
                }
                (Some(owner), IdempotencyStrategy::FailOnRunning) if !owner.is_open => {
                    Some(owner.run_id)
                }
                (Some(owner), IdempotencyStrategy::Fail | IdempotencyStrategy::FailOnRunning) => {
                    return Ok(Err(format!(
                        "The idempotency key {key} is used by workflow {}",
                        owner.run_id
                    )));
                }
            };
            key_claim = Some(KeyClaim {
                key: key.clone(),
                earlier,
            });
        }
        let correlation_id = request.correlation_id.filter(|id| !id.is_empty());
        let mut input = request.input;
        if request.workflow_def.is_some() {
            input.insert("_systemMetadata".to_owned(), json!({"dynamic": true}));
        }
        Ok(Ok(Outcome::Begins(Box::new(NewExecution {
            namespace: self.draft.spec.namespace.clone(),
            snapshot,
            input,
            correlation_id: correlation_id.or_else(|| execution.correlation_id.clone()),
            priority,
            task_to_domain: if request.task_to_domain.is_empty() {
                Arc::clone(&execution.task_to_domain)
            } else {
                Arc::new(request.task_to_domain)
            },
            idempotency_key: request.idempotency_key,
            key_claim,
            created_by: request.created_by.or_else(|| execution.created_by.clone()),
            depth,
            parent: None,
        }))))
    }

    /// Returns the run that has an idempotency key: a stored one, or one that this decision creates.
    fn key_owner(&self, name: &str, key: &str) -> Try<Option<KeyOwner>> {
        let takes_key = |claim: &KeyClaim| claim.key == key;
        let created = self.draft.created.iter().find(|run| {
            run.spec.workflow_type == name && run.key_claim.as_ref().is_some_and(takes_key)
        });
        if let Some(run) = created {
            return Ok(Some(KeyOwner {
                run_id: run.spec.run_id.clone(),
                is_open: true,
            }));
        }
        let key = KeyOfWorkflow {
            name: name.to_owned(),
            key: key.to_owned(),
        };
        match self.found.key_owners.get(&key) {
            Some(owner) => Ok(owner.clone()),
            None => Err(vec![Lookup::KeyOwner(key)]),
        }
    }
}

/// Reads the request of a task, or returns why there is none. Members that are null count as absent.
fn start_request(input: &Object) -> Result<StartWorkflowRequest, String> {
    let Some(given @ Value::Object(_)) = input.get("startWorkflow") else {
        return Err("Missing 'startWorkflow' in input data.".to_owned());
    };
    let request = read::<StartWorkflowRequest>(given.clone()).map_err(|wrong| {
        let wrong = wrong.first();
        let text = |wrong: &longhaul_protocol::conductor::WrongMember| {
            format!("Invalid 'startWorkflow': {} {}", wrong.path, wrong.message)
        };
        wrong.map_or_else(|| "Invalid 'startWorkflow'.".to_owned(), text)
    })?;
    if request.name.is_empty() {
        return Err("Invalid 'startWorkflow': name is missing.".to_owned());
    }
    Ok(request)
}
