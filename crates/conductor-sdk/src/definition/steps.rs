//! Lists of nodes that run one after the other.

use std::sync::Arc;

use longhaul_protocol::conductor::NodeList;

use super::error::FirstError;
use super::node::{Kind, Node};

/// A list of nodes that run one after the other: a branch, a case, or the body of a loop. A single [`Node`], an array and a `Vec` of
/// nodes can be used in its place.
#[derive(Clone, Debug, Default)]
#[must_use = "nodes do nothing until they are added to a workflow"]
pub struct Steps {
    pub(super) list: NodeList,
    pub(super) errors: FirstError,
}

impl Steps {
    /// Returns an empty list. As a case of a switch it means that the case does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what follows.
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        let next = next.into();
        self.list.extend(next.list);
        self.errors.absorb(next.errors);
        self
    }
}

impl<K: Kind> From<Node<K>> for Steps {
    fn from(node: Node<K>) -> Self {
        let tasks = node.kind.finish(node.task);
        Self {
            list: tasks.into_iter().map(Arc::new).collect(),
            errors: node.errors,
        }
    }
}

impl<K: Kind> From<Vec<Node<K>>> for Steps {
    fn from(nodes: Vec<Node<K>>) -> Self {
        nodes.into_iter().fold(Self::new(), Self::then)
    }
}

impl<K: Kind, const N: usize> From<[Node<K>; N]> for Steps {
    fn from(nodes: [Node<K>; N]) -> Self {
        nodes.into_iter().fold(Self::new(), Self::then)
    }
}
