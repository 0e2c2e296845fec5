//! The nodes of a definition with their places: what follows what, and what is inside what.
//!
//! Nodes are numbered in the order of the text, containers before their contents, so the contents of a container are a range.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use longhaul_protocol::conductor::{NodeList, WorkflowTask};
use serde_json::value::RawValue;

use super::kind;
use super::operator::{Lists, Operator};
use crate::conductor::input::InputTemplate;

/// A node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

/// A list of nodes of a tree: the top level, a branch or a loop body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListId(u32);

impl ListId {
    /// The list that is always empty. Containers without a default branch refer to it.
    pub const EMPTY: Self = Self(0);
}

/// What a list of nodes is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The list of the definition itself.
    TopLevel,
    /// A branch of a SWITCH or DECISION.
    Case(NodeId),
    /// A branch of a FORK_JOIN.
    Branch(NodeId),
    /// The body of a DO_WHILE.
    Body(NodeId),
    /// A node that a dynamic fork brought. Nothing follows it in the tree.
    Forked,
}

#[derive(Clone, Debug)]
struct List {
    nodes: Vec<NodeId>,
    owner: Owner,
}

/// A node with its place.
#[derive(Clone, Debug)]
pub struct Node {
    id: NodeId,
    task: Arc<WorkflowTask>,
    operator: Operator,
    input: InputTemplate,
    list: ListId,
    position: usize,
    enclosing_loop: Option<NodeId>,
    /// The first number after the contents of this node.
    end: u32,
    json: OnceLock<Arc<RawValue>>,
    definition_json: OnceLock<Option<Arc<RawValue>>>,
}

impl Node {
    /// Returns the number of the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the reference of the node, without an iteration.
    pub fn reference(&self) -> &str {
        &self.task.task_reference_name
    }

    /// Returns the node as clients see it, with its task definition.
    pub fn task(&self) -> &Arc<WorkflowTask> {
        &self.task
    }

    /// Returns what the node does.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Returns the template of the input.
    pub fn input(&self) -> &InputTemplate {
        &self.input
    }

    /// Returns the list that the node is in.
    pub fn list(&self) -> ListId {
        self.list
    }

    /// Returns the place of the node in its list, from 0.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the loop whose body the node is in, directly or inside other nodes.
    pub fn enclosing_loop(&self) -> Option<NodeId> {
        self.enclosing_loop
    }

    /// Returns the `taskType` of the task of this node. A DYNAMIC node has its own when it is scheduled.
    pub fn task_type_shown(&self) -> &str {
        kind::task_type_shown(&self.task.task_type, &self.task.name)
    }

    /// Returns the `taskDefName` of the task of this node.
    pub fn task_def_name_shown(&self) -> &str {
        kind::task_def_name_shown(&self.task.task_type, &self.task.name)
    }

    /// Returns the JSON of the node with its task definition. It is rendered once.
    pub fn json(&self) -> Arc<RawValue> {
        Arc::clone(self.json.get_or_init(|| {
            let text = serde_json::value::to_raw_value(&*self.task)
                .expect("a node has only text keys, so it can be written as JSON");
            Arc::from(text)
        }))
    }

    /// Returns the JSON of the task definition of the node. It is rendered once.
    pub fn definition_json(&self) -> Option<Arc<RawValue>> {
        let rendered = self.definition_json.get_or_init(|| {
            let definition = self.task.task_definition.as_deref()?;
            let text = serde_json::value::to_raw_value(definition).ok()?;
            Some(Arc::from(text))
        });
        rendered.clone()
    }
}

/// The indexed nodes of a definition, or of the list of a dynamic fork.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    lists: Vec<List>,
    index: BTreeMap<String, NodeId>,
    /// The JOINs that wait for each reference.
    joins: BTreeMap<String, Vec<NodeId>>,
    top: ListId,
}

/// The same reference is used twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("taskReferenceName {0} is used more than once")]
pub(super) struct DuplicateReference(pub(super) String);

impl Tree {
    pub(super) fn new(tasks: &NodeList) -> Result<Self, DuplicateReference> {
        let mut tree = Self::empty();
        tree.top = tree.add_list(tasks, Owner::TopLevel, None)?;
        Ok(tree)
    }

    /// Indexes the nodes that a dynamic fork brought. Each is a branch of its own. Returns the reference that is used twice, if any.
    pub fn forked(tasks: &NodeList) -> Result<Self, String> {
        let mut tree = Self::empty();
        for task in tasks {
            tree.add_list(std::slice::from_ref(task), Owner::Forked, None)
                .map_err(|DuplicateReference(reference)| reference)?;
        }
        Ok(tree)
    }

    fn empty() -> Self {
        Self {
            nodes: Vec::new(),
            lists: vec![List {
                nodes: Vec::new(),
                owner: Owner::TopLevel,
            }],
            index: BTreeMap::new(),
            joins: BTreeMap::new(),
            top: ListId::EMPTY,
        }
    }

    /// The recursion is as deep as the nesting of the lists, which the reader of JSON bounds.
    fn add_list(
        &mut self,
        tasks: &[Arc<WorkflowTask>],
        owner: Owner,
        enclosing_loop: Option<NodeId>,
    ) -> Result<ListId, DuplicateReference> {
        let list = ListId(number(self.lists.len()));
        self.lists.push(List {
            nodes: Vec::with_capacity(tasks.len()),
            owner,
        });
        for (position, task) in tasks.iter().enumerate() {
            let id = NodeId(number(self.nodes.len()));
            let reference = task.task_reference_name.clone();
            if self.index.insert(reference.clone(), id).is_some() {
                return Err(DuplicateReference(reference));
            }
            self.lists[list.0 as usize].nodes.push(id);
            self.nodes.push(Node {
                id,
                task: Arc::clone(task),
                operator: Operator::Noop,
                input: InputTemplate::new(task, task.task_definition.as_deref()),
                list,
                position,
                enclosing_loop,
                end: 0,
                json: OnceLock::new(),
                definition_json: OnceLock::new(),
            });
            let lists = self.add_contents(id, task, enclosing_loop)?;
            let end = number(self.nodes.len());
            let node = &mut self.nodes[id.0 as usize];
            node.operator = Operator::of(task, lists);
            if let Operator::Join { join_on } = &node.operator {
                for reference in join_on {
                    let joins = self.joins.entry(reference.clone()).or_default();
                    if joins.last() != Some(&id) {
                        joins.push(id);
                    }
                }
            }
            let node = &mut self.nodes[id.0 as usize];
            node.end = end;
        }
        Ok(list)
    }

    /// Adds the lists inside a node. Lists that the type of the node does not use are left out.
    fn add_contents(
        &mut self,
        id: NodeId,
        task: &WorkflowTask,
        enclosing_loop: Option<NodeId>,
    ) -> Result<Lists, DuplicateReference> {
        let mut lists = Lists {
            cases: BTreeMap::new(),
            default: ListId::EMPTY,
            branches: Vec::new(),
            body: ListId::EMPTY,
        };
        match task.task_type.as_str() {
            "SWITCH" | "DECISION" => {
                for (case, tasks) in &task.decision_cases {
                    let list = self.add_list(tasks, Owner::Case(id), enclosing_loop)?;
                    lists.cases.insert(case.clone(), list);
                }
                lists.default =
                    self.add_list(&task.default_case, Owner::Case(id), enclosing_loop)?;
            }
            "FORK_JOIN" => {
                for tasks in &task.fork_tasks {
                    let list = self.add_list(tasks, Owner::Branch(id), enclosing_loop)?;
                    lists.branches.push(list);
                }
            }
            "DO_WHILE" => {
                lists.body = self.add_list(&task.loop_over, Owner::Body(id), Some(id))?;
            }
            _ => {}
        }
        Ok(lists)
    }

    /// Returns a node of this tree.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Returns all nodes, containers before their contents.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// Returns the node with a reference, which has no iteration.
    pub fn find(&self, reference: &str) -> Option<&Node> {
        self.index.get(reference).map(|id| self.node(*id))
    }

    /// Returns the JOINs that name a reference.
    pub fn joins_on(&self, reference: &str) -> &[NodeId] {
        self.joins.get(reference).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes of a list in order.
    pub fn list(&self, id: ListId) -> &[NodeId] {
        &self.lists[id.0 as usize].nodes
    }

    /// Returns what the list of a node is part of.
    pub fn owner(&self, id: NodeId) -> Owner {
        self.lists[self.node(id).list.0 as usize].owner
    }

    /// Returns the nodes of the top level.
    pub fn top_level(&self) -> &[NodeId] {
        self.list(self.top)
    }

    /// Returns the node that a run begins with.
    pub fn first(&self) -> Option<NodeId> {
        self.top_level().first().copied()
    }

    /// Returns the next node in the same list.
    pub fn sibling(&self, id: NodeId) -> Option<NodeId> {
        let node = self.node(id);
        self.list(node.list).get(node.position + 1).copied()
    }

    /// Returns the JOIN directly after a fork. A fork without one cannot run.
    pub fn join_of(&self, fork: NodeId) -> Option<NodeId> {
        self.sibling(fork)
            .filter(|next| matches!(self.node(*next).operator, Operator::Join { .. }))
    }

    /// Returns the node that follows another: the next one in its list; after a branch of a SWITCH, what follows the SWITCH; after
    /// a branch of a fork, its JOIN; after a loop body, the loop itself. Nothing follows a TERMINATE or the last node.
    pub fn successor(&self, id: NodeId) -> Option<NodeId> {
        let mut id = id;
        if matches!(self.node(id).operator, Operator::Terminate) {
            return None;
        }
        loop {
            if let Some(next) = self.sibling(id).filter(|_| self.owner(id) != Owner::Forked) {
                return Some(next);
            }
            match self.owner(id) {
                Owner::TopLevel | Owner::Forked => return None,
                Owner::Case(switch) => id = switch,
                Owner::Branch(fork) => return self.join_of(fork),
                Owner::Body(looping) => return Some(looping),
            }
        }
    }

    /// Returns whether a node is in the body of a loop and in no other container inside it.
    pub fn is_directly_in(&self, id: NodeId, looping: NodeId) -> bool {
        self.owner(id) == Owner::Body(looping)
    }

    /// Returns everything inside a node, at any depth, in the order of the text.
    pub fn contents(&self, id: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let range: Range<u32> = id.0 + 1..self.node(id).end;
        range.map(NodeId)
    }

    /// Returns whether a node is inside another, at any depth.
    pub fn is_inside(&self, id: NodeId, container: NodeId) -> bool {
        (container.0 + 1..self.node(container).end).contains(&id.0)
    }
}

/// The reader of definitions bounds their size far below this.
fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a definition has at most some thousand nodes")
}

/// Returns the reference of a task in an iteration of a loop.
pub fn reference_in_loop(reference: &str, iteration: u32) -> String {
    format!("{reference}__{iteration}")
}

/// Returns the reference of a task without the iteration that it ran in. Only the end `__` with this iteration is removed, because
/// references may contain `__` themselves. Outside of loops the iteration is 0.
pub fn bare_reference(reference: &str, iteration: u32) -> &str {
    if iteration == 0 {
        return reference;
    }
    reference
        .strip_suffix(&iteration.to_string())
        .and_then(|start| start.strip_suffix("__"))
        .unwrap_or(reference)
}
