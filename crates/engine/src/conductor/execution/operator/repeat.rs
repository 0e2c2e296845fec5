//! DO_WHILE. A loop counts the tasks of its present iteration that are not processed; when none is left it decides about another
//! iteration.

use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskStatus};
use serde_json::{Value, json};

use crate::conductor::Budget;
use crate::conductor::definition::{Loop, Operator};
use crate::conductor::execution::lookup::Lookup;
use crate::conductor::execution::operator::loop_output::{
    NoOutput, body_tasks, is_counter, loop_output,
};
use crate::conductor::execution::pass::{Pass, Place, Try};
use crate::conductor::execution::roots::RunRoots;
use crate::conductor::execution::state::{ExecutionTask, Waiting};
use crate::conductor::execution::value::object;
use crate::conductor::expression::Unresolved;
use crate::conductor::script_result::is_true;
use crate::run::state::PartKey;

impl Pass<'_, '_> {
    /// Adds a DO_WHILE and begins its first iteration.
    pub(crate) fn begin_loop(&mut self, place: &Place) -> Try<()> {
        if place.iteration > 0 {
            return self.fail_without_task(format!(
                "The loop {} is inside of another loop; use a sub-workflow",
                place.node().reference()
            ));
        }
        let id = self.id_of_task(place);
        let terminal = TaskStatus::FailedWithTerminalError;
        let input = match self.input_of(place, &id)? {
            Ok(input) => input,
            Err(reason) => return self.add_failed(place, id, Object::new(), terminal, reason),
        };
        let Operator::DoWhile(looping) = place.node().operator() else {
            return Ok(());
        };
        // Definitions are checked when they are registered; a node that a dynamic fork brought is not.
        if place.tree().list(looping.body).is_empty() {
            let reason = "The loop has no tasks in loopOver".to_owned();
            return self.add_failed(place, id, input, terminal, reason);
        }
        let item = match self.item_of(place, 0)? {
            Ok(item) => item,
            Err(reason) => return self.add_failed(place, id, input, terminal, reason),
        };
        let mut task = self.operator_task(place, id, TaskStatus::InProgress);
        if let Some(None) = item {
            let output = object(json!({"iteration": 0}));
            self.add_ended(task, input, TaskStatus::Completed, None, Some(output));
            return Ok(());
        }
        task.iteration = 1;
        task.waiting = Waiting::Iteration(0);
        let seq = self.draft.add_task(task, input);
        self.begin_iteration(seq, place, 1, item.flatten())
    }

    /// Begins an iteration: sets the counter and schedules the first task of the body.
    fn begin_iteration(
        &mut self,
        seq: u64,
        place: &Place,
        iteration: u32,
        item: Option<Value>,
    ) -> Try<()> {
        let mut output = object(json!({"iteration": iteration}));
        if let Some(item) = item {
            output.insert("loopIndex".to_owned(), json!(iteration - 1));
            output.insert("loopItem".to_owned(), item);
        }
        self.draft.update_task(seq, Some(output), |task| {
            task.iteration = iteration;
            task.waiting = Waiting::Iteration(0);
        });
        let Operator::DoWhile(looping) = place.node().operator() else {
            return Ok(());
        };
        let Some(first) = place.tree().list(looping.body).first().copied() else {
            return Ok(());
        };
        let mut body = place.at(first);
        body.iteration = iteration;
        body.looped_by = Some(seq);
        self.schedule(&body)
    }

    /// Ends an iteration whose tasks are all processed: begins the next one, or ends the loop.
    pub(crate) fn end_iteration(&mut self, seq: u64) -> Try<()> {
        let Some(task) = self.draft.task(seq).map(Arc::clone) else {
            return Ok(());
        };
        if !task.is_open() || !self.draft.is_open() {
            return Ok(());
        }
        let Some(place) = self.place_of(&task) else {
            return Ok(());
        };
        let Operator::DoWhile(looping) = place.node().operator().clone() else {
            return Ok(());
        };
        if let Some(failed) = self.failed_in_iteration(&task) {
            let reason = failed.reason.clone();
            return self.end_loop(&task, TaskStatus::Failed, reason);
        }
        let item = match self.item_of(&place, task.iteration as usize)? {
            Ok(item) => item,
            Err(reason) => {
                let status = TaskStatus::FailedWithTerminalError;
                return self.end_loop(&task, status, Some(reason));
            }
        };
        let goes_on = item.as_ref().is_none_or(Option::is_some)
            && match &looping.condition {
                Some(condition) => match self.condition(condition, &task, &place)? {
                    Ok(goes_on) => goes_on,
                    Err(reason) => {
                        let status = TaskStatus::FailedWithTerminalError;
                        return self.end_loop(&task, status, Some(reason));
                    }
                },
                None => item.is_some(),
            };
        if !goes_on {
            return self.end_loop(&task, TaskStatus::Completed, None);
        }
        let next = task.iteration + 1;
        self.drop_old_iterations(&task, next)?;
        self.begin_iteration(seq, &place, next, item.flatten())
    }

    /// Returns a permissive task of the present iteration that failed.
    fn failed_in_iteration(&self, task: &ExecutionTask) -> Option<Arc<ExecutionTask>> {
        let failures = &self.draft.execution().permitted_failures;
        failures
            .iter()
            .filter_map(|seq| self.draft.task(*seq))
            .find(|failed| failed.looped_by == Some(task.seq) && failed.iteration == task.iteration)
            .map(Arc::clone)
    }

    /// Ends the loop with its whole output. An output over the limit fails it.
    fn end_loop(
        &mut self,
        task: &ExecutionTask,
        status: TaskStatus,
        reason: Option<String>,
    ) -> Try<()> {
        let (status, reason, output) = match self.loop_output(task)? {
            Ok(output) => (status, reason, Some(output)),
            Err(too_large) => (TaskStatus::FailedWithTerminalError, Some(too_large), None),
        };
        self.draft.end_task(task.seq, status, reason, output);
        self.todo.push_back(task.seq);
        Ok(())
    }

    /// Returns the output of an open loop, or why it cannot have one.
    fn loop_output(&self, task: &ExecutionTask) -> Try<Result<Object, String>> {
        let load = |stored: &_| self.draft.value(stored, self.found).map(Arc::clone);
        match loop_output(task, body_tasks(&self.draft, task.seq), load) {
            Ok(output) => Ok(Ok(output)),
            Err(NoOutput::TooLarge(reason)) => Ok(Err(reason)),
            Err(NoOutput::Unloaded(missing)) => {
                Err(missing.into_iter().map(Lookup::Value).collect())
            }
        }
    }

    /// Returns an element of the list that a loop goes through, which is `None` after its end. A loop by condition only has no list.
    pub(crate) fn item_of(
        &self,
        place: &Place,
        index: usize,
    ) -> Try<Result<Option<Option<Value>>, String>> {
        let Operator::DoWhile(Loop {
            items: Some(items), ..
        }) = place.node().operator()
        else {
            return Ok(Ok(None));
        };
        let roots = RunRoots::of(self, None);
        match items.element(index, &roots, &mut Budget::default()) {
            Ok(item) => Ok(Ok(Some(item))),
            Err(Unresolved::Unloaded(values)) => Err(roots.lookups(values)),
            Err(Unresolved::Limit(limit)) => Ok(Err(limit.to_string())),
        }
    }

    /// Evaluates the condition of a loop.
    fn condition(
        &mut self,
        condition: &str,
        task: &ExecutionTask,
        place: &Place,
    ) -> Try<Result<bool, String>> {
        let failed = |message: &str| {
            format!("Unable to evaluate condition {condition}, exception {message}")
        };
        let mut input = match self.input_of(place, &task.id)? {
            Ok(input) => input,
            Err(reason) => return Ok(Err(failed(&reason))),
        };
        let reference = place.node().reference();
        let own = if reads_only_counter(condition, reference) {
            self.load_object(&task.output)?
        } else {
            match self.loop_output(task)? {
                Ok(output) => output,
                Err(reason) => return Ok(Err(failed(&reason))),
            }
        };
        for name in ["loopIndex", "loopItem"] {
            if let Some(value) = own.get(name) {
                input.insert(name.to_owned(), value.clone());
            }
        }
        let mut missing = Vec::new();
        for node in place.tree().contents(place.node) {
            let bare = place.tree().node(node).reference();
            // Most conditions read the counter only; outputs that the script does not name are left out.
            if !condition.contains(bare) {
                continue;
            }
            if let Some(task) = self.draft.newest_task(bare) {
                match self.load(&task.output) {
                    Ok(output) => {
                        input.insert(bare.to_owned(), Value::clone(&output));
                    }
                    Err(lookups) => missing.extend(lookups),
                }
            }
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        input.insert(reference.to_owned(), Value::Object(own));
        Ok(match self.script(condition, &input)? {
            Ok(result) => Ok(is_true(&result)),
            Err(failure) => Err(failed(&failure.message)),
        })
    }

    /// Removes the records of iterations that the loop need not keep.
    fn drop_old_iterations(&mut self, task: &ExecutionTask, next: u32) -> Try<()> {
        let input = self.load(&task.input)?;
        let keep = match input.get("keepLastN").and_then(Value::as_u64) {
            Some(keep) if keep >= 1 => keep,
            _ => return Ok(()),
        };
        let Some(last) = u64::from(next).checked_sub(keep).filter(|last| *last >= 1) else {
            return Ok(());
        };
        let old: Vec<u64> = body_tasks(&self.draft, task.seq)
            .filter(|old| u64::from(old.iteration) <= last)
            .map(|old| old.seq)
            .collect();
        for seq in old {
            self.draft.remove(PartKey::Past(seq));
        }
        Ok(())
    }
}

/// Returns whether a script reads nothing of the loop but its counter and item.
fn reads_only_counter(script: &str, reference: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    script.match_indices(reference).all(|(at, _)| {
        let rest = &script[at + reference.len()..];
        if script[..at].ends_with(is_word) || rest.starts_with(is_word) {
            // It is part of another name.
            return true;
        }
        let member = rest.trim_start_matches(['.', '[', '\'', '"', ' ']);
        let end = member.find(|letter| !is_word(letter));
        is_counter(&member[..end.unwrap_or(member.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_reads_the_counter_needs_no_outputs() {
        for script in [
            "$.loop['iteration'] < 3",
            "if ( $.loop.iteration < $.value ) { true; } else { false; }",
            "$.loop.loopItem != 'x' && $.loop[\"loopIndex\"] < 9",
            "true",
        ] {
            assert!(reads_only_counter(script, "loop"), "{script}");
        }
        for script in [
            "$.loop['1']['t'].x < 3",
            "$.loop.iterations",
            "f($.loop)",
            "$.loop.iteration < 2 || $.loop[$.loop.iteration]",
        ] {
            assert!(!reads_only_counter(script, "loop"), "{script}");
        }
    }
}
