//! A run goes on from one of its tasks. Later tasks are removed, the task is scheduled again under its id, what encloses it goes on
//! in place, and what failed beside it gets another chance.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_protocol::conductor::Object;

use super::{Attempt, Opening};
use crate::conductor::definition::{NodeId, Operator, Owner, Tree};
use crate::conductor::execution::pass::{Pass, Try};
use crate::conductor::execution::state::ExecutionTask;

/// What a caller gives a run that goes on from a task.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) task_input: Option<Object>,
    pub(crate) workflow_input: Option<Object>,
    pub(crate) correlation_id: Option<String>,
}

/// The joins and loops around a task, innermost first. A loop goes on at the iteration of what is inside it.
#[derive(Default)]
struct Enclosing {
    joins: Vec<Arc<ExecutionTask>>,
    loops: Vec<(Arc<ExecutionTask>, u32)>,
}

impl Enclosing {
    fn contains(&self, seq: u64) -> bool {
        self.joins.iter().any(|join| join.seq == seq)
            || self.loops.iter().any(|(looping, _)| looping.seq == seq)
    }
}

impl Pass<'_, '_> {
    /// Returns why a run cannot go on from a task.
    pub(crate) fn cannot_rerun(&self, task: &ExecutionTask) -> Option<&'static str> {
        let Some(place) = self.place_of(task) else {
            return Some("the definition does not have it");
        };
        let branches = matches!(
            place.operator(),
            Operator::Switch(_) | Operator::Decision { .. }
        );
        (branches && task.forked.is_some())
            .then_some("a dynamic fork brought it, and its join waits for the branch that it took")
    }

    /// Opens the run so that it goes on from this task.
    pub(crate) fn rerun_from(&mut self, task: &Arc<ExecutionTask>, given: Given) -> Try<()> {
        let is_join = matches!(
            self.place_of(task).as_ref().map(|place| place.operator()),
            Some(Operator::Join { .. })
        );
        let mut enclosing = self.enclosing(task);
        if is_join {
            enclosing.joins.push(Arc::clone(task));
        }
        let all = self.draft.all_tasks();
        let mut removed = BTreeSet::new();
        for other in &all {
            let is_later = other.seq > task.seq && !self.stays_beside(task, other, is_join);
            let is_again = other.seq == task.seq && !is_join;
            if (is_later || is_again) && !enclosing.contains(other.seq) {
                removed.insert(other.seq);
            }
        }
        let heads = self.heads(task, &all, &removed, &enclosing);
        let is_scheduled = |reference: &str| {
            reference == task.reference || heads.iter().any(|head| head.reference == reference)
        };
        let mut left = self.failed_tasks(&removed);
        left.retain(|left| !is_scheduled(&left.reference) && !enclosing.contains(left.seq));
        let (containers, left): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|task| self.is_container(task));
        removed.extend(left.iter().map(|task| task.seq));
        let lost: Vec<&Arc<ExecutionTask>> = all
            .iter()
            .filter(|task| removed.contains(&task.seq) && task.joined_by.is_some())
            .collect();

        let opening = Opening {
            cause: "rerun",
            removed,
            input: given.workflow_input,
            correlation_id: given.correlation_id,
            ..Opening::default()
        };
        let earlier = self.open_again(opening);
        self.draft.execution_mut().has_dynamic_fork = self.has_dynamic_fork();
        for (looping, iteration) in enclosing.loops.iter().rev() {
            self.reopen_container(looping, *iteration)?;
        }
        for join in enclosing.joins.iter().chain(&containers) {
            self.reopen_container(join, join.iteration)?;
        }
        if !is_join {
            self.schedule_again(task, Attempt::Same, given.task_input, &earlier)?;
        }
        for other in heads.iter().chain(&left) {
            self.schedule_again(other, Attempt::Same, None, &earlier)?;
        }
        for task in lost {
            self.keep_join(task);
        }
        self.resume_flow()?;
        self.recount()
    }

    fn has_dynamic_fork(&self) -> bool {
        let tasks = self.draft.all_tasks();
        tasks.iter().any(|task| task.forked.is_some())
    }

    /// Returns whether a later task stays although the run goes on from this one: it is in a branch that the join waits for, or, for
    /// a sub-workflow, in a branch beside it.
    fn stays_beside(&self, task: &ExecutionTask, other: &ExecutionTask, is_join: bool) -> bool {
        if is_join {
            return self.is_joined(task, other);
        }
        let place = self.place_of(task);
        let is_sub =
            place.is_some_and(|place| matches!(place.operator(), Operator::SubWorkflow(_)));
        is_sub && self.is_parallel(task, other)
    }

    /// Returns whether a task is in a branch of the fork before a join.
    fn is_joined(&self, join: &ExecutionTask, other: &ExecutionTask) -> bool {
        if other.joined_by == Some(join.seq) {
            return true;
        }
        if self.join_of_root(other).is_some_and(|seq| seq == join.seq) {
            return true;
        }
        let (Some(place), Some(beside)) = (self.place_of(join), self.place_of(other)) else {
            return false;
        };
        let node = place.node();
        let before = node.position().checked_sub(1);
        let fork = before.and_then(|position| place.tree().list(node.list()).get(position));
        let same_tree = same_root(join, other);
        let same_iteration = join.looped_by.is_none()
            || (join.looped_by == other.looped_by && join.iteration == other.iteration);
        same_tree
            && same_iteration
            && fork.is_some_and(|fork| place.tree().is_inside(beside.node, *fork))
    }

    /// Returns whether two tasks are in different branches of one fork.
    fn is_parallel(&self, task: &ExecutionTask, other: &ExecutionTask) -> bool {
        let (own, beside) = (self.join_of_root(task), self.join_of_root(other));
        if !same_root(task, other) {
            if own.is_some() && own == beside {
                return true;
            }
            // One of them is in a dynamic fork, which is where its join is.
            let at = |join: Option<u64>| join.and_then(|seq| self.draft.task(seq)).map(Arc::clone);
            return match (at(own), at(beside)) {
                (Some(own), None) => self.is_parallel(&own, other),
                (_, Some(beside)) => self.is_parallel(task, &beside),
                (None, None) => false,
            };
        }
        let (Some(place), Some(beside)) = (self.place_of(task), self.place_of(other)) else {
            return false;
        };
        if task.looped_by != other.looped_by {
            // A body is where its loop is.
            return match (task.looped_by, other.looped_by) {
                (None, Some(seq)) => {
                    let looping = self.draft.task(seq).map(Arc::clone);
                    looping.is_some_and(|looping| self.is_parallel(task, &looping))
                }
                (Some(seq), _) => {
                    let looping = self.draft.task(seq).map(Arc::clone);
                    looping.is_some_and(|looping| self.is_parallel(&looping, other))
                }
                (None, None) => false,
            };
        }
        if task.iteration != other.iteration {
            return false;
        }
        let tree = place.tree();
        let (own, others) = (branches(tree, place.node), branches(tree, beside.node));
        own.iter().any(|(fork, list)| {
            let theirs = others.iter().find(|(other, _)| other == fork);
            theirs.is_some_and(|(_, other)| other != list)
        })
    }

    /// Returns the join of the dynamic fork that brought the tree of a task.
    fn join_of_root(&self, task: &ExecutionTask) -> Option<u64> {
        let root = task.forked.as_ref()?;
        if let Some(join) = task.joined_by {
            return Some(join);
        }
        let name = &root.0.task_reference_name;
        let tasks = self.draft.all_tasks();
        tasks
            .iter()
            .filter(|other| {
                let other = other.forked.as_ref();
                other.is_some_and(|other| other.0.task_reference_name == *name)
            })
            .filter(|other| other.looped_by == task.looped_by || task.looped_by.is_some())
            .find_map(|other| other.joined_by)
    }

    /// Returns the joins and loops around a task.
    fn enclosing(&self, task: &Arc<ExecutionTask>) -> Enclosing {
        let mut found = Enclosing::default();
        let mut current = Some(Arc::clone(task));
        while let Some(task) = current.take() {
            let Some(place) = self.place_of(&task) else {
                break;
            };
            let tree = place.tree();
            let mut node = place.node;
            loop {
                match tree.owner(node) {
                    Owner::TopLevel => break,
                    Owner::Case(switch) => node = switch,
                    Owner::Branch(fork) => {
                        let join = tree.join_of(fork).map(|join| place.at(join).reference());
                        let join = join.and_then(|name| self.draft.task_by_reference(&name));
                        found.joins.extend(join.map(Arc::clone));
                        node = fork;
                    }
                    Owner::Body(_) => {
                        let looping = task.looped_by.and_then(|seq| self.draft.task(seq));
                        if let Some(looping) = looping {
                            found.loops.push((Arc::clone(looping), task.iteration));
                            current = Some(Arc::clone(looping));
                        }
                        break;
                    }
                    Owner::Forked => {
                        let join = self.join_of_root(&task);
                        let join = join.and_then(|seq| self.draft.task(seq)).map(Arc::clone);
                        found.joins.extend(join.clone());
                        current = join;
                        break;
                    }
                }
            }
        }
        found
    }

    /// Returns the first tasks of other branches of a dynamic fork around the task that are removed: the fork is not expanded again.
    fn heads(
        &self,
        task: &ExecutionTask,
        all: &[Arc<ExecutionTask>],
        removed: &BTreeSet<u64>,
        enclosing: &Enclosing,
    ) -> Vec<Arc<ExecutionTask>> {
        let mut heads: Vec<Arc<ExecutionTask>> = Vec::new();
        for lost in all.iter().filter(|lost| removed.contains(&lost.seq)) {
            let join = lost.joined_by.filter(|join| enclosing.contains(*join));
            let (Some(_), Some(root)) = (join, &lost.forked) else {
                continue;
            };
            let name = &root.0.task_reference_name;
            let is_root = |other: &&Arc<ExecutionTask>| {
                other.node_reference() == name
                    && other.looped_by == lost.looped_by
                    && other.iteration == lost.iteration
            };
            let mut roots = all.iter().filter(is_root);
            let stays = roots.clone().any(|root| !removed.contains(&root.seq));
            let Some(first) = roots.next() else { continue };
            let is_known = heads.iter().any(|head| head.reference == first.reference);
            if !stays && !is_known && first.reference != task.reference {
                heads.push(Arc::clone(first));
            }
        }
        heads
    }
}

/// Returns whether both tasks are of the definition, or of one node that a dynamic fork brought.
fn same_root(one: &ExecutionTask, other: &ExecutionTask) -> bool {
    let name = |task: &ExecutionTask| {
        let root = task.forked.as_ref();
        root.map(|root| root.0.task_reference_name.clone())
    };
    name(one) == name(other)
}

/// Returns the forks around a node, each with the branch that the node is in.
fn branches(tree: &Tree, mut node: NodeId) -> Vec<(NodeId, crate::conductor::definition::ListId)> {
    let mut found = Vec::new();
    loop {
        match tree.owner(node) {
            Owner::TopLevel | Owner::Forked => return found,
            Owner::Case(outer) | Owner::Body(outer) => node = outer,
            Owner::Branch(fork) => {
                found.push((fork, tree.node(node).list()));
                node = fork;
            }
        }
    }
}
