//! Scheduling of a node: the tasks that it becomes. Tasks for workers are here, the operators have files of their own.

pub(crate) mod reuse;

use longhaul_protocol::conductor::{Object, TaskStatus};
use longhaul_protocol::id::TaskId;
use serde_json::Value;

use crate::conductor::Budget;
use crate::conductor::definition::schemas::enforces_schemas;
use crate::conductor::definition::{Operator, kind};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::roots::RunRoots;
use crate::conductor::execution::state::{
    ExecutionTask, ForkedNode, Stored, TaskTimeouts, Waiting,
};
use crate::conductor::expression::Unresolved;
use crate::conductor::input::workflow_input;
use crate::conductor::limits::NAME_CHARS_MAX;
use crate::queue::StartLimits;
use reuse::reuse_of;

/// Tasks of one run, attempts included. Their records stay readable, so they are kept as long as the run.
pub(crate) const TASKS_PER_RUN_MAX: u64 = 50_000;

impl Pass<'_, '_> {
    /// Schedules a node, unless it has a task in this iteration already.
    pub(crate) fn schedule(&mut self, place: &Place) -> Try<()> {
        let known = self.draft.task_by_reference(&place.reference());
        if let Some(task) = known.filter(|_| self.again_at(place).is_none()) {
            let same_node = task.node_reference() == place.node().reference();
            if same_node && task.looped_by == place.looped_by {
                let seq = task.seq;
                if task.is_skipped() && self.draft.unfiled_task(seq).is_some() {
                    // The flow has reached a task that is passed over.
                    self.todo.push_back(seq);
                }
                return Ok(());
            }
            // A node `t__2` and the second iteration of a node `t` have the same reference.
            return self.fail_without_task(format!(
                "Two tasks would have the reference {}: rename {} or {}",
                place.reference(),
                task.node_reference().to_owned(),
                place.node().reference()
            ));
        }
        if self.draft.execution().task_count() >= TASKS_PER_RUN_MAX {
            return self.fail_without_task(format!(
                "The workflow has more than {TASKS_PER_RUN_MAX} tasks (limit: tasks per workflow)"
            ));
        }
        let operator = place.node().operator();
        if let Operator::ForkJoin { branches } = operator {
            return self.fork(place, branches);
        } else if let Operator::ForkJoinDynamic(fork) = operator {
            return self.fork_dynamically(place, fork);
        } else if let Operator::DoWhile(_) = operator {
            return self.begin_loop(place);
        } else if let Operator::ExclusiveJoin { .. } = operator {
            return self.add_exclusive_join(place);
        } else if let Operator::Join { join_on } = operator {
            let on: Vec<String> = join_on
                .iter()
                .map(|bare| place.reference_of(bare))
                .collect();
            return self.add_join(place, &on).map(drop);
        }
        let id = self.id_of_task(place);
        let input = match self.input_of(place, &id)? {
            Ok(input) => input,
            Err(reason) => return self.add_unresolved(place, id, reason),
        };
        match operator {
            Operator::Dynamic { name_param } => self.add_dynamic(place, id, input, name_param),
            Operator::Switch(switch) => self.add_switch(place, id, input, switch),
            Operator::Decision { .. } => self.add_decision(place, id, &input),
            Operator::SubWorkflow(_) => self.add_sub_workflow(place, id, input),
            Operator::DurableWorkflow => self.add_code_run(place, id, input),
            Operator::Terminate
            | Operator::SetVariable
            | Operator::Wait
            | Operator::Human
            | Operator::Yield
            | Operator::Noop
            | Operator::Inline
            | Operator::Lambda
            | Operator::JsonJqTransform
            | Operator::PullWorkflowMessages => self.add_direct(place, id, input),
            Operator::StartWorkflow => self.add_start_workflow(place, id, input),
            Operator::Event { sink } => self.add_event(place, id, input, sink),
            Operator::Simple | Operator::UserDefined | Operator::Http => {
                let node = place.node();
                let (task_type, name) =
                    (node.task_type_shown().to_owned(), node.task().name.clone());
                self.add_queued(place, id, input, task_type, name)
            }
            Operator::ForkJoin { .. }
            | Operator::ForkJoinDynamic(_)
            | Operator::Join { .. }
            | Operator::ExclusiveJoin { .. }
            | Operator::DoWhile(_) => Ok(()),
        }
    }

    /// Returns the input of a task of this node, or why its expressions have no value.
    pub(crate) fn input_of(&self, place: &Place, id: &TaskId) -> Try<Result<Object, String>> {
        let mut budget = Budget::default();
        let roots = RunRoots::of(self, Some(id));
        match place.node().input().resolve(&roots, &mut budget) {
            Ok(mut input) => {
                if let Some(extra) = &place.extra {
                    input.extend(Object::clone(extra));
                }
                Ok(Ok(match self.again_at(place) {
                    Some(again) => again.input(input),
                    None => input,
                }))
            }
            Err(Unresolved::Unloaded(values)) => Err(roots.lookups(values)),
            Err(Unresolved::Limit(limit)) => Ok(Err(limit.to_string())),
        }
    }

    /// Returns a task of this node that has no number and no input yet.
    pub(crate) fn operator_task(
        &self,
        place: &Place,
        id: TaskId,
        status: TaskStatus,
    ) -> ExecutionTask {
        let node = place.node();
        let named = place.named.map(|(name, _)| *name);
        let now = self.draft.now;
        let again = self.again_at(place);
        ExecutionTask {
            id,
            seq: 0,
            reference: place.reference(),
            task_type: named.unwrap_or_else(|| node.task_type_shown()).to_owned(),
            def_name: named
                .unwrap_or_else(|| node.task_def_name_shown())
                .to_owned(),
            status,
            iteration: place.iteration,
            looped_by: place.looped_by,
            joined_by: None,
            forked: place.forked().map(ForkedNode),
            retry_count: again.map_or(0, |again| again.retry_count),
            poll_count: 0,
            retried_task_id: again.and_then(|again| again.retried_task_id.clone()),
            retried: false,
            scheduled_at: now,
            first_scheduled_at: now,
            started_at: (status != TaskStatus::Scheduled).then_some(now),
            ended_at: None,
            updated_at: now,
            start_delay_seconds: 0,
            callback_after_seconds: 0,
            domain: None,
            worker_id: None,
            reason: None,
            sub_workflow_id: None,
            child_life: 0,
            child_workflow_id: None,
            timeouts: TaskTimeouts::default(),
            start_limits: None,
            has_schemas: false,
            announces: !node.task().on_state_change.is_empty(),
            reuse: None,
            delivered_at: None,
            log_lines: 0,
            waiting: Waiting::Nothing,
            input: Stored::default(),
            output: Stored::default(),
        }
    }

    /// Adds a task that ends at once, and lets the pass go on after it.
    pub(crate) fn add_ended(
        &mut self,
        task: ExecutionTask,
        input: Object,
        status: TaskStatus,
        reason: Option<String>,
        output: Option<Object>,
    ) -> u64 {
        let seq = self.draft.add_task(task, input);
        self.draft.end_task(seq, status, reason, output);
        self.todo.push_back(seq);
        seq
    }

    /// Adds a task that failed before it began.
    pub(crate) fn add_failed(
        &mut self,
        place: &Place,
        id: TaskId,
        input: Object,
        status: TaskStatus,
        reason: String,
    ) -> Try<()> {
        let task = self.operator_task(place, id, TaskStatus::InProgress);
        self.add_ended(task, input, status, Some(reason), None);
        Ok(())
    }

    fn add_unresolved(&mut self, place: &Place, id: TaskId, reason: String) -> Try<()> {
        let status = TaskStatus::FailedWithTerminalError;
        self.add_failed(place, id, Object::new(), status, reason)
    }

    /// Adds a task for workers.
    fn add_queued(
        &mut self,
        place: &Place,
        id: TaskId,
        input: Object,
        task_type: String,
        name: String,
    ) -> Try<()> {
        let node = place.node().task();
        let definition = self.task_def(node, &name)?;
        let mut input = if node.task_definition.is_some() {
            input
        } else {
            workflow_input(input, &definition.input_template)
        };
        note_async_complete(place, &mut input);
        let delay = self.start_delay(place);
        let visible_at = self.draft.now.plus_seconds(delay);
        let mut task = self.operator_task(place, id, TaskStatus::Scheduled);
        task.domain = self.domain_of(place, &task_type);
        task.timeouts = TaskTimeouts::of(&definition);
        task.start_limits = StartLimits::of(&definition);
        task.has_schemas = enforces_schemas(&definition);
        if kind::is_worker_task(&node.task_type) {
            task.def_name = name;
        }
        task.task_type = task_type;
        task.start_delay_seconds = delay.try_into().unwrap_or(i64::MAX);
        task.callback_after_seconds = task.start_delay_seconds;
        if let Some(reuse) = reuse_of(node, &input) {
            if let Some(output) = self.earlier_output(&task.def_name, &reuse.key)? {
                self.add_ended(task, input, TaskStatus::Completed, None, Some(output));
                return Ok(());
            }
            task.reuse = Some(Box::new(reuse));
        }
        if task.has_schemas {
            self.add_delayed(task, input, visible_at);
            return Ok(());
        }
        task.waiting = Waiting::Queued {
            visible_at,
            offered: delay == 0,
        };
        self.draft.add_task(task, input);
        Ok(())
    }

    fn add_dynamic(
        &mut self,
        place: &Place,
        id: TaskId,
        input: Object,
        name_param: &str,
    ) -> Try<()> {
        let name = input.get(name_param).and_then(Value::as_str);
        match name.filter(|name| !name.is_empty()).map(str::to_owned) {
            Some(name) if name.chars().count() > NAME_CHARS_MAX => self.fail_without_task(format!(
                "The name of a dynamic task has more than {NAME_CHARS_MAX} characters. Parameter= {name_param}"
            )),
            Some(name) => {
                let place = place.clone().named(&name);
                match place.named {
                    Some((_, Operator::StartWorkflow)) => self.add_start_workflow(&place, id, input),
                    Some((_, operator)) if !matches!(operator, Operator::Http) => {
                        self.add_direct(&place, id, input)
                    }
                    Some(_) | None => self.add_queued(&place, id, input, name.clone(), name),
                }
            }
            None => self.fail_without_task(format!(
                "Cannot map a dynamic task based on the parameter and input. Parameter= {name_param}, input= {}",
                Value::Object(input)
            )),
        }
    }

    /// Returns the domain whose queue a task of this type goes to: the first in its list that a worker polled a moment ago, else
    /// the last one.
    pub(crate) fn domain_of(&self, place: &Place, task_type: &str) -> Option<String> {
        if place.named.is_some() || !kind::is_worker_task(&place.node().task().task_type) {
            return None;
        }
        let domains = &self.draft.execution().task_to_domain;
        let list = domains.get(task_type).or_else(|| domains.get("*"))?;
        let mut names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let is_polled = |domain: &&str| {
            *domain != "NO_DOMAIN"
                && (self.found.polled.iter()).any(|queue| *queue == format!("{domain}:{task_type}"))
        };
        let chosen = names
            .clone()
            .find(is_polled)
            .or_else(|| names.next_back())?;
        (chosen != "NO_DOMAIN").then(|| chosen.to_owned())
    }
}

/// Notes in the input of an HTTP task whether it waits for an update after the call. The server that makes the call reads it there.
pub(crate) fn note_async_complete(place: &Place, input: &mut Object) {
    if let Operator::Http = place.operator() {
        let waits = place.node().task().async_complete;
        input.insert("asyncComplete".to_owned(), Value::Bool(waits));
    }
}
