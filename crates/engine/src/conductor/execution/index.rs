//! Finds tasks by reference. It is derived from the tasks of a run, kept beside them and never stored.

use std::collections::BTreeMap;

use crate::conductor::execution::state::ExecutionTask;

/// The newest task of each reference: by the reference of the node, then by iteration. Outside of loops the iteration is 0. A loop
/// of thousands of iterations is one name with numbers, which is found faster than as many names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskIndex {
    nodes: BTreeMap<Box<str>, BTreeMap<u32, u64>>,
}

impl TaskIndex {
    /// Adds a task, unless a newer one with its reference is known.
    pub fn add(&mut self, task: &ExecutionTask) {
        let name = task.node_reference();
        let iteration = iteration_of(task);
        match self.nodes.get_mut(name) {
            Some(iterations) => {
                let seq = iterations.entry(iteration).or_insert(task.seq);
                *seq = task.seq.max(*seq);
            }
            None => {
                let iterations = BTreeMap::from([(iteration, task.seq)]);
                self.nodes.insert(name.into(), iterations);
            }
        }
    }

    /// Removes a task that is deleted.
    pub fn remove(&mut self, task: &ExecutionTask) {
        let name = task.node_reference();
        let Some(iterations) = self.nodes.get_mut(name) else {
            return;
        };
        let iteration = iteration_of(task);
        if iterations.get(&iteration) == Some(&task.seq) {
            iterations.remove(&iteration);
        }
        if iterations.is_empty() {
            self.nodes.remove(name);
        }
    }

    /// Returns the newest attempt of the task with this reference, iteration included.
    pub fn exact(&self, reference: &str) -> Option<u64> {
        let outside = self.nodes.get(reference).and_then(|seqs| seqs.get(&0));
        let inside = || {
            let (name, iteration) = reference.rsplit_once("__")?;
            let iteration = iteration.parse().ok().filter(|iteration| *iteration > 0)?;
            self.nodes.get(name)?.get(&iteration)
        };
        outside.or_else(inside).copied()
    }

    /// Returns the newest task of this node.
    pub fn newest(&self, reference: &str) -> Option<u64> {
        let (_, seq) = self.nodes.get(reference)?.last_key_value()?;
        Some(*seq)
    }
}

fn iteration_of(task: &ExecutionTask) -> u32 {
    task.looped_by.map_or(0, |_| task.iteration)
}
