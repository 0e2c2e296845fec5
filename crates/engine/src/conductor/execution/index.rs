//! Finds tasks by reference. It is derived from the tasks of a run, kept beside them and never stored.

use std::collections::BTreeMap;

use crate::conductor::execution::state::ExecutionTask;
use crate::run::state::{Part, PartKey};

/// The newest task of each reference: by the reference of the node, then by iteration. Outside of loops the iteration is 0. A loop
/// of thousands of iterations is one name with numbers, which is found faster than as many names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskIndex {
    nodes: BTreeMap<Box<str>, Newest>,
}

/// The newest task of each iteration. Most nodes have one task, which needs no map. `Many` has at least two.
#[derive(Clone, Debug, PartialEq)]
enum Newest {
    One { iteration: u32, seq: u64 },
    Many(BTreeMap<u32, u64>),
}

impl Newest {
    fn add(&mut self, iteration: u32, seq: u64) {
        match self {
            Self::One {
                iteration: known,
                seq: newest,
            } if *known == iteration => *newest = seq.max(*newest),
            Self::One {
                iteration: known,
                seq: newest,
            } => *self = Self::Many(BTreeMap::from([(*known, *newest), (iteration, seq)])),
            Self::Many(all) => {
                let newest = all.entry(iteration).or_insert(seq);
                *newest = seq.max(*newest);
            }
        }
    }

    /// Removes a task if it is the newest of its iteration. Returns whether nothing is left.
    fn remove(&mut self, iteration: u32, seq: u64) -> bool {
        match self {
            Self::One { .. } => self.get(iteration) == Some(seq),
            Self::Many(all) => {
                if all.get(&iteration) == Some(&seq) {
                    all.remove(&iteration);
                }
                let last = all.first_key_value().filter(|_| all.len() == 1);
                if let Some((&iteration, &seq)) = last {
                    *self = Self::One { iteration, seq };
                }
                false
            }
        }
    }

    fn get(&self, iteration: u32) -> Option<u64> {
        match self {
            Self::One {
                iteration: known,
                seq,
            } => (*known == iteration).then_some(*seq),
            Self::Many(all) => all.get(&iteration).copied(),
        }
    }

    fn last(&self) -> Option<u64> {
        match self {
            Self::One { seq, .. } => Some(*seq),
            Self::Many(all) => all.last_key_value().map(|(_, seq)| *seq),
        }
    }
}

impl TaskIndex {
    /// Returns the index of the tasks among these parts.
    pub(crate) fn of(parts: &BTreeMap<PartKey, Part>) -> Self {
        let mut index = Self::default();
        for task in parts.values().filter_map(Part::as_task) {
            index.add(task);
        }
        index
    }

    /// Adds a task, unless a newer one with its reference is known.
    pub fn add(&mut self, task: &ExecutionTask) {
        let name = task.node_reference();
        let iteration = iteration_of(task);
        match self.nodes.get_mut(name) {
            Some(newest) => newest.add(iteration, task.seq),
            None => {
                let seq = task.seq;
                let newest = Newest::One { iteration, seq };
                self.nodes.insert(name.into(), newest);
            }
        }
    }

    /// Removes a task that is deleted.
    pub fn remove(&mut self, task: &ExecutionTask) {
        let name = task.node_reference();
        let newest = self.nodes.get_mut(name);
        if newest.is_some_and(|newest| newest.remove(iteration_of(task), task.seq)) {
            self.nodes.remove(name);
        }
    }

    /// Returns the newest attempt of the task with this reference, iteration included.
    pub fn exact(&self, reference: &str) -> Option<u64> {
        let outside = self.nodes.get(reference).and_then(|newest| newest.get(0));
        let inside = || {
            let (name, iteration) = reference.rsplit_once("__")?;
            let iteration = iteration.parse().ok().filter(|iteration| *iteration > 0)?;
            self.nodes.get(name)?.get(iteration)
        };
        outside.or_else(inside)
    }

    /// Returns the newest task of this node.
    pub fn newest(&self, reference: &str) -> Option<u64> {
        self.nodes.get(reference)?.last()
    }
}

fn iteration_of(task: &ExecutionTask) -> u32 {
    task.looped_by.map_or(0, |_| task.iteration)
}
