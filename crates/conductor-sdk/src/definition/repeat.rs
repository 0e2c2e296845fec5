//! Loops: DO_WHILE by condition, by count, and over a list.

use serde::Serialize;
use serde_json::Value;

use super::error;
use super::node::{Node, sealed};
use super::steps::Steps;

/// The kind of a loop.
#[derive(Clone, Debug)]
pub struct Loop;

impl sealed::Finish for Loop {}

/// Returns a loop that runs its body, and repeats it while a condition is true. The condition is JavaScript: `$.<reference>` is the
/// output of the loop or of a node in the body, and other members of `$` are the inputs of the loop.
pub fn do_while(
    reference: impl Into<String>,
    condition: impl Into<String>,
    body: impl Into<Steps>,
) -> Node<Loop> {
    let mut node = Node::operator("DO_WHILE", reference, Loop);
    node.task.loop_condition = Some(condition.into());
    node.task.loop_over = node.take(body);
    node
}

/// Returns a loop that runs its body `count` times: a number, or an expression for one. The body runs at least once.
pub fn do_times(
    reference: impl Into<String>,
    count: impl Serialize,
    body: impl Into<Steps>,
) -> Node<Loop> {
    let reference = reference.into();
    // The reference is quoted, because it need not be a name of JavaScript.
    let member = Value::from(reference.as_str());
    let condition =
        format!("if ( $[{member}]['iteration'] < $.value ) {{ true; }} else {{ false; }}");
    do_while(reference, condition, body).input("value", count)
}

/// Returns a loop that runs its body once for each item of a list: an expression, or a list of values. The body reads the item with
/// [`loop_item`](super::loop_item). An empty list runs nothing.
pub fn for_each(
    reference: impl Into<String>,
    items: impl Serialize,
    body: impl Into<Steps>,
) -> Node<Loop> {
    // Other servers demand the condition. An empty one is none.
    let mut node = do_while(reference, "", body);
    let items = error::json(node.place(), "items", items);
    node.task.items = node.errors.keep(items);
    node
}

impl Node<Loop> {
    /// Keeps the outputs of the last `count` iterations only. The default is to keep all.
    pub fn keep_last(self, count: u32) -> Self {
        self.input("keepLastN", count)
    }
}
