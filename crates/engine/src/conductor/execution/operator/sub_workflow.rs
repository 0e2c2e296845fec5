//! SUB_WORKFLOW. The child is created in the transaction of its parent, without a pass of its own; its first pass is a transaction of
//! its own, so a definition that calls itself cannot make one transaction endless.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::{ChildCallId, RunId, TaskId};
use longhaul_protocol::sequence::CommandSeq;
use longhaul_protocol::workflow_command::ParentClosePolicy;
use serde_json::{Value, json};

use crate::conductor::definition::{Operator, Snapshot, SubWorkflow, SubWorkflowVersion};
use crate::conductor::execution::command::start::{NewExecution, create};
use crate::conductor::execution::lookup::Lookup;
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::state::{ExecutionTask, TaskTimeouts, Waiting};
use crate::conductor::execution::value::object;
use crate::conductor::expression::Template;
use crate::conductor::limits::SUB_WORKFLOW_DEPTH_MAX;
use crate::run::draft::Draft;
use crate::run::family::child::Parent;
use crate::run::family::outbox::OutboxBody;

impl Pass<'_, '_> {
    /// Adds a SUB_WORKFLOW task. Its run is started when the pass comes to it, or when its delay is over.
    pub(crate) fn add_sub_workflow(&mut self, place: &Place, id: TaskId, input: Object) -> Try<()> {
        let Operator::SubWorkflow(sub) = place.node().operator().clone() else {
            return Ok(());
        };
        let shown = match self.sub_workflow_input(&sub, input)? {
            Ok(shown) => shown,
            Err(reason) => {
                let status = TaskStatus::FailedWithTerminalError;
                return self.add_failed(place, id, Object::new(), status, reason);
            }
        };
        let node = place.node().task();
        let delay = self.start_delay(place);
        let mut task = self.operator_task(place, id, TaskStatus::Scheduled);
        task.timeouts = TaskTimeouts {
            response: 0,
            ..TaskTimeouts::of(&*self.task_def(node, &task.def_name)?)
        };
        task.callback_after_seconds = i64::try_from(delay).unwrap_or(i64::MAX);
        let begins_at = self.draft.now.plus_seconds(delay);
        self.add_delayed(task, shown, begins_at);
        Ok(())
    }

    /// Adds a task that begins at this time, or in this pass if it has come.
    pub(crate) fn add_delayed(&mut self, mut task: ExecutionTask, input: Object, at: Timestamp) {
        let begins_now = at <= self.draft.now;
        task.waiting = if begins_now {
            Waiting::Nothing
        } else {
            Waiting::Time(at)
        };
        let seq = self.draft.add_task(task, input);
        if begins_now {
            self.todo.push_back(seq);
        }
    }

    /// Returns the input that the task shows: what the node names, resolved.
    pub(crate) fn sub_workflow_input(
        &self,
        sub: &SubWorkflow,
        input: Object,
    ) -> Try<Result<Object, String>> {
        let mut failed = None;
        let mut text = |template: Option<&Template>| -> Try<Value> {
            match template {
                None => Ok(Value::Null),
                Some(template) => Ok(match self.resolve(template)? {
                    Ok(value) => value,
                    Err(reason) => {
                        failed = Some(reason);
                        Value::Null
                    }
                }),
            }
        };
        let version = match &sub.version {
            SubWorkflowVersion::Latest => Value::Null,
            SubWorkflowVersion::Fixed(version) => json!(version),
            SubWorkflowVersion::Expression(template) => text(Some(template))?,
        };
        let definition = match &sub.definition {
            Some(definition) => definition.clone(),
            None => text(sub.definition_template.as_ref())?,
        };
        let has_tasks = |definition: &Value| {
            let tasks = definition.get("tasks").and_then(Value::as_array);
            tasks.is_some_and(|tasks| !tasks.is_empty())
        };
        if sub.definition_template.is_some() && !has_tasks(&definition) {
            let reason = "subWorkflowParam.workflowDefinition does not resolve to a workflow definition with tasks";
            return Ok(Err(reason.to_owned()));
        }
        let shown = object(json!({
            "subWorkflowName": text(Some(&sub.name))?,
            "subWorkflowVersion": version,
            "subWorkflowDefinition": definition,
            "subWorkflowTaskToDomain": text(sub.task_to_domain.as_ref())?,
            "priority": text(sub.priority.as_ref())?,
            "idempotencyKey": text(sub.idempotency_key.as_ref())?,
            "idempotencyStrategy": text(sub.idempotency_strategy.as_ref())?,
            "workflowInput": input,
        }));
        Ok(failed.map_or(Ok(shown), Err))
    }

    /// Starts the run of a SUB_WORKFLOW task, unless it has one.
    pub(crate) fn begin_sub_workflow(&mut self, seq: u64) -> Try<()> {
        let Some(task) = self.draft.task(seq).map(Arc::clone) else {
            return Ok(());
        };
        if task.sub_workflow_id.is_some() {
            return Ok(());
        }
        let input = self.load_object(&task.input)?;
        let snapshot = match self.child_snapshot(&input)? {
            Ok(snapshot) => snapshot,
            Err(reason) => return self.fail_sub_workflow(seq, reason),
        };
        let depth = self.draft.execution().depth + 1;
        if depth > SUB_WORKFLOW_DEPTH_MAX {
            return self.fail_sub_workflow(
                seq,
                format!("Sub-workflows are nested deeper than {SUB_WORKFLOW_DEPTH_MAX} levels (limit: sub-workflow depth)"),
            );
        }
        let mut child_input = match input.get("workflowInput") {
            Some(Value::Object(input)) => input.clone(),
            _ => Object::new(),
        };
        if input
            .get("subWorkflowDefinition")
            .is_some_and(Value::is_object)
        {
            child_input.insert("_systemMetadata".to_owned(), json!({"dynamic": true}));
        }
        let execution = self.draft.execution();
        let domains = match input.get("subWorkflowTaskToDomain") {
            Some(Value::Object(domains)) if !domains.is_empty() => Arc::new(texts(domains)),
            _ => Arc::clone(&execution.task_to_domain),
        };
        let new = NewExecution {
            namespace: self.draft.spec.namespace.clone(),
            snapshot,
            input: child_input,
            correlation_id: execution.correlation_id.clone(),
            priority: input
                .get("priority")
                .and_then(Value::as_u64)
                .map_or(0, |priority| u8::try_from(priority.min(99)).unwrap_or(99)),
            task_to_domain: domains,
            idempotency_key: None,
            key_claim: None,
            created_by: execution.created_by.clone(),
            depth,
            parent: Some(Box::new(Parent {
                workflow_id: self.draft.spec.workflow_id.clone(),
                run_id: self.draft.spec.run_id.clone(),
                sequence: CommandSeq::new(seq),
                call_id: ChildCallId::from(task.id.as_str()),
                retry_policy: None,
                timeout_policy: None,
                attempt: u64::from(task.retry_count) + 1,
                retry: None,
                other_family: false,
            })),
        };
        let run_id: RunId = self.draft.ids.mint_uuid();
        let child = create(
            &new,
            &run_id,
            &mut self.draft.ids,
            self.draft.now,
            self.draft.limits,
        );
        self.draft.created.push(child);
        self.draft.start_task(seq, |task| {
            task.waiting = Waiting::Child(run_id.clone());
            task.sub_workflow_id = Some(run_id.clone());
        });
        let shown = object(json!({"subWorkflowId": run_id}));
        self.draft.update_task(seq, Some(shown), |_| {});
        Ok(())
    }

    fn fail_sub_workflow(&mut self, seq: u64, reason: String) -> Try<()> {
        self.draft
            .end_task(seq, TaskStatus::Failed, Some(reason), None);
        self.todo.push_back(seq);
        Ok(())
    }

    /// Returns the definition of the child, or why there is none.
    fn child_snapshot(&self, input: &Object) -> Try<Result<Arc<Snapshot>, String>> {
        if let Some(definition @ Value::Object(_)) = input.get("subWorkflowDefinition") {
            return self.inline_snapshot(definition);
        }
        let name = input
            .get("subWorkflowName")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let version = match input.get("subWorkflowVersion") {
            Some(Value::Number(version)) => version.as_i64(),
            Some(Value::String(version)) => version.parse().ok(),
            _ => None,
        };
        let version = version
            .filter(|version| *version > 0)
            .and_then(|version| i32::try_from(version).ok());
        self.registered_snapshot(name, version)
    }

    /// Returns a definition that is given as a value, or why it cannot be used.
    pub(super) fn inline_snapshot(&self, definition: &Value) -> Try<Result<Arc<Snapshot>, String>> {
        let text: Arc<str> = definition.to_string().into();
        match self.found.inline.get(&text) {
            Some(Ok(snapshot)) => Ok(Ok(Arc::clone(snapshot))),
            Some(Err(reason)) => Ok(Err(reason.clone())),
            None => Err(vec![Lookup::Inline(text)]),
        }
    }

    /// Returns a registered definition, without a version the newest, or why there is none.
    pub(super) fn registered_snapshot(
        &self,
        name: &str,
        version: Option<i32>,
    ) -> Try<Result<Arc<Snapshot>, String>> {
        let key = (name.to_owned(), version);
        match self.found.definitions.get(&key) {
            Some(Some(snapshot)) => Ok(Ok(Arc::clone(snapshot))),
            Some(None) => Ok(Err(format!(
                "No such workflow defined. name={name}, version={}",
                version.map_or_else(|| "null".to_owned(), |version| version.to_string())
            ))),
            None => Err(vec![Lookup::Definition {
                name: key.0,
                version,
            }]),
        }
    }
}

impl Draft<'_> {
    /// Asks the child of a SUB_WORKFLOW or DURABLE_WORKFLOW task to stop, if it has one.
    pub(crate) fn stop_child_of(&mut self, task: &ExecutionTask, reason: &str) {
        if let Waiting::Child(run_id) = &task.waiting {
            // The run of a definition has one id for both.
            let workflow_id = task.child_workflow_id.clone();
            self.outbox().enqueue(OutboxBody::StopChild {
                workflow_id: workflow_id.unwrap_or_else(|| run_id.as_str().into()),
                run_id: run_id.clone(),
                policy: ParentClosePolicy::Terminate,
                reason: format!("Parent workflow has been terminated with reason: {reason}"),
                recorded: false,
                life: Some(task.child_life),
            });
        }
    }
}

pub(super) fn texts(object: &Object) -> BTreeMap<String, String> {
    object
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}
