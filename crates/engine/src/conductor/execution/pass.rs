//! The pass: what a definition run does next. It is a pure function of the run, its snapshot, the time and what was looked up.
//!
//! A pass works through a list of tasks. For a task that ended it decides about a retry, counts it in the join and the loop that
//! wait for it, and schedules what follows. An open task in the list begins: a script is evaluated, a sub-workflow is started. A
//! pass is bounded: after some new tasks, scripts and children the rest stays in the backlog of the run, and the next transaction
//! goes on. Deciding again after that changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use longhaul_protocol::conductor::{Object, TaskDef, TaskStatus, WorkflowTask};
use serde_json::Value;

use crate::conductor::Budget;
use crate::conductor::definition::{
    Node, NodeId, Operator, Snapshot, Tree, bare_reference, effective_task_def, reference_in_loop,
};
use crate::conductor::execution::command::start::begin_called;
use crate::conductor::execution::end::reopen::Again;
use crate::conductor::execution::lookup::{Lookup, LookupResults, Script, ScriptFailure};
use crate::conductor::execution::retry::total_exceeded;
use crate::conductor::execution::roots::RunRoots;
use crate::conductor::execution::state::ExecutionTask;
use crate::conductor::expression::{Template, Unresolved};
use crate::run::draft::Draft;

/// New tasks after which a pass leaves the rest to the next transaction. One fork is never split.
const TASKS_PER_PASS: u64 = 500;

/// Scripts and jq programs of one pass, and comparisons with schemas. A decision begins again after each, so their number is small.
const SCRIPTS_PER_PASS: usize = 20;

/// Sub-workflows that one pass starts. Each is a run of its own in the same transaction.
const CHILDREN_PER_PASS: usize = 100;

/// What a step of the pass returns: a value, or what must be looked up first.
pub(crate) type Try<T> = Result<T, Vec<Lookup>>;

/// One pass over a run.
pub(crate) struct Pass<'p, 'd> {
    pub(crate) draft: Draft<'d>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) found: &'p LookupResults,
    /// Tasks to work on: they ended and are not processed yet, or they begin now.
    pub(crate) todo: VecDeque<u64>,
    first_new: u64,
    /// Scripts and comparisons with schemas so far.
    pub(super) scripts: usize,
    /// A task that is scheduled although its reference has one.
    pub(super) again: Option<Again>,
}

/// A node of the definition, or of a dynamic fork, with the place of its task in the run.
#[derive(Clone)]
pub(crate) struct Place {
    tree: PlaceTree,
    pub(crate) node: NodeId,
    /// The iteration of the enclosing loop; 0 outside of loops.
    pub(crate) iteration: u32,
    /// The DO_WHILE task of that iteration.
    pub(crate) looped_by: Option<u64>,
    /// Members that a dynamic fork adds to the input of this node.
    pub(crate) extra: Option<Arc<Object>>,
    /// The operator that the input of a DYNAMIC node names, if it needs no worker.
    pub(crate) named: Option<&'static (&'static str, Operator)>,
}

/// The operators that the input of a DYNAMIC node can name. The server runs them, or makes the call.
static NAMED_OPERATORS: [(&str, Operator); 12] = [
    ("HTTP", Operator::Http),
    ("HUMAN", Operator::Human),
    ("INLINE", Operator::Inline),
    ("LAMBDA", Operator::Lambda),
    ("JSON_JQ_TRANSFORM", Operator::JsonJqTransform),
    ("NOOP", Operator::Noop),
    ("PULL_WORKFLOW_MESSAGES", Operator::PullWorkflowMessages),
    ("SET_VARIABLE", Operator::SetVariable),
    ("START_WORKFLOW", Operator::StartWorkflow),
    ("TERMINATE", Operator::Terminate),
    ("WAIT", Operator::Wait),
    ("YIELD", Operator::Yield),
];

#[derive(Clone)]
enum PlaceTree {
    Snapshot(Arc<Snapshot>),
    Forked {
        tree: Arc<Tree>,
        root: Arc<WorkflowTask>,
    },
}

impl Place {
    pub(crate) fn tree(&self) -> &Tree {
        match &self.tree {
            PlaceTree::Snapshot(snapshot) => snapshot.tree(),
            PlaceTree::Forked { tree, .. } => tree,
        }
    }

    pub(crate) fn node(&self) -> &Node {
        self.tree().node(self.node)
    }

    /// Returns what the task here does: the operator of the node, or the one that the input of a DYNAMIC node names.
    pub(crate) fn operator(&self) -> &Operator {
        match self.named {
            Some((_, operator)) => operator,
            None => self.node().operator(),
        }
    }

    /// Returns the place with the operator that the input of a DYNAMIC node names.
    pub(crate) fn named(mut self, task_type: &str) -> Self {
        if let Operator::Dynamic { .. } = self.node().operator() {
            let mut operators = NAMED_OPERATORS.iter();
            self.named = operators.find(|(name, _)| *name == task_type);
        }
        self
    }

    /// Returns the outermost node that a dynamic fork brought.
    pub(crate) fn forked(&self) -> Option<Arc<WorkflowTask>> {
        match &self.tree {
            PlaceTree::Snapshot(_) => None,
            PlaceTree::Forked { root, .. } => Some(Arc::clone(root)),
        }
    }

    /// Returns another node of the same tree and iteration.
    pub(crate) fn at(&self, node: NodeId) -> Self {
        Self {
            node,
            extra: None,
            named: None,
            ..self.clone()
        }
    }

    /// Returns the place of a node that a dynamic fork brought, or the reference that is twice in it.
    pub(crate) fn forked_at(&self, root: &Arc<WorkflowTask>) -> Result<Self, String> {
        let tree = Tree::forked(&vec![Arc::clone(root)])?;
        let node = tree.find(&root.task_reference_name).map(Node::id);
        let node = node.ok_or_else(|| root.task_reference_name.clone())?;
        Ok(Self {
            tree: PlaceTree::Forked {
                tree: Arc::new(tree),
                root: Arc::clone(root),
            },
            node,
            iteration: self.iteration,
            looped_by: self.looped_by,
            extra: None,
            named: None,
        })
    }

    /// Returns the reference of the task of a node here.
    pub(crate) fn reference_of(&self, bare: &str) -> String {
        match self.iteration {
            0 => bare.to_owned(),
            iteration => reference_in_loop(bare, iteration),
        }
    }

    /// Returns the reference of a node, from that of its task here.
    pub(crate) fn bare<'r>(&self, reference: &'r str) -> &'r str {
        bare_reference(reference, self.iteration)
    }

    /// Returns the reference of the task of this node.
    pub(crate) fn reference(&self) -> String {
        self.reference_of(self.node().reference())
    }
}

impl<'p, 'd> Pass<'p, 'd> {
    /// Begins a pass over the run of a draft. It goes on with the backlog of the last one.
    pub(crate) fn new(mut draft: Draft<'d>, found: &'p LookupResults) -> Try<Self> {
        let mut problem = None;
        let snapshot = match draft.execution().called.clone() {
            Some(called) => {
                let begun = begin_called(&mut draft, &called, found)?;
                problem = begun.1;
                begun.0
            }
            None => {
                let hash = Arc::clone(&draft.execution().snapshot);
                match found.snapshots.get(&hash) {
                    Some(snapshot) => Arc::clone(snapshot),
                    None => return Err(vec![Lookup::Snapshot(hash)]),
                }
            }
        };
        let todo = std::mem::take(
            &mut draft
                .core
                .execution
                .as_deref_mut()
                .expect("a definition run")
                .backlog,
        );
        let mut pass = Self {
            first_new: draft.execution().last_seq,
            draft,
            snapshot,
            found,
            todo: todo.into(),
            scripts: 0,
            again: None,
        };
        if let Some(problem) = problem {
            pass.draft.execution_mut().is_new = false;
            pass.fail_without_task(problem)?;
        }
        Ok(pass)
    }

    /// Goes on until nothing is left to decide, the run ends or is paused, or the bound is reached.
    pub(crate) fn run(mut self) -> Try<Draft<'d>> {
        if self.draft.is_open() && self.draft.execution().is_new && !self.draft.execution().paused {
            self.draft.execution_mut().is_new = false;
            self.check_own_input()?;
            if self.draft.is_open()
                && let Some(first) = self.snapshot.tree().first()
            {
                let place = self.top_level(first);
                self.schedule(&place)?;
            }
        }
        while self.draft.is_open() && !self.draft.execution().paused {
            if self.todo.is_empty() {
                if self.draft.execution().open_tasks == 0 {
                    self.complete()?;
                }
                break;
            }
            if self.is_spent() {
                break;
            }
            if let Some(seq) = self.todo.pop_front() {
                self.process(seq)?;
            }
        }
        self.publish_state_changes()?;
        if self.draft.is_open() {
            let backlog = self.todo.into();
            if self.draft.execution().backlog != backlog {
                self.draft.execution_mut().backlog = backlog;
            }
        }
        Ok(self.draft)
    }

    /// Returns whether the rest is for the next transaction.
    fn is_spent(&self) -> bool {
        self.draft.execution().last_seq - self.first_new >= TASKS_PER_PASS
            || self.scripts >= SCRIPTS_PER_PASS
            || self.draft.created.len() >= CHILDREN_PER_PASS
    }

    /// Returns the place of a node of the definition outside of loops.
    pub(crate) fn top_level(&self, node: NodeId) -> Place {
        Place {
            tree: PlaceTree::Snapshot(Arc::clone(&self.snapshot)),
            node,
            iteration: 0,
            looped_by: None,
            extra: None,
            named: None,
        }
    }

    /// Returns the place of a task. `None` if a definition does not have it, which cannot happen to a task that a pass created.
    pub(crate) fn place_of(&self, task: &ExecutionTask) -> Option<Place> {
        let outside = Place {
            tree: PlaceTree::Snapshot(Arc::clone(&self.snapshot)),
            node: self.snapshot.tree().first()?,
            iteration: task.looped_by.map_or(0, |_| task.iteration),
            looped_by: task.looped_by,
            extra: None,
            named: None,
        };
        let place = match &task.forked {
            Some(root) => outside.forked_at(&root.0).ok()?,
            None => outside,
        };
        let node = place.tree().find(task.node_reference())?.id();
        Some(place.at(node).named(&task.task_type))
    }

    /// Works on a task of the list: begins it, or processes its end. A task that is filed was processed before.
    fn process(&mut self, seq: u64) -> Try<()> {
        let Some(task) = self.draft.unfiled_task(seq).map(Arc::clone) else {
            return Ok(());
        };
        let Some(place) = self.place_of(&task) else {
            let reason = format!("The definition has no task {}", task.reference);
            return self.fail_without_task(reason);
        };
        if task.is_open() {
            return self.begin(&task, &place);
        }
        if !task.status.is_successful() {
            if self.retry(&task, &place)? {
                self.draft.file_task(seq);
                return Ok(());
            }
            let node = place.node().task();
            if let Some(reason) = total_exceeded(&task, self.draft.now) {
                return self.fail_by(&task, Some(reason));
            } else if node.optional {
                let reason = task.reason.clone();
                self.draft
                    .end_task(seq, TaskStatus::CompletedWithErrors, reason, None);
            } else if node.permissive {
                self.draft.execution_mut().permitted_failures.push(seq);
            } else {
                return self.fail_by(&task, None);
            }
        }
        self.draft.file_task(seq);
        if let Operator::Terminate = place.operator()
            && task.status == TaskStatus::Completed
        {
            return self.terminate_by(&task);
        }
        self.count_for_joins(&task, &place)?;
        self.look_for_exclusive_joins()?;
        if !self.draft.is_open() {
            return Ok(());
        }
        self.go_on_after(&task, &place)?;
        let left = self.draft.count_in_loop(&task, -1);
        if let Some(loop_seq) = task.looped_by.filter(|_| left == Some(0)) {
            self.end_iteration(loop_seq)?;
        }
        Ok(())
    }

    /// Schedules what follows a task in the tree.
    fn go_on_after(&mut self, task: &ExecutionTask, place: &Place) -> Try<()> {
        match self.next_after(task, place)? {
            Some(next) => self.schedule(&next),
            None => Ok(()),
        }
    }

    /// Returns what follows a task that has ended.
    pub(super) fn next_after(&self, task: &ExecutionTask, place: &Place) -> Try<Option<Place>> {
        // The branch of a SWITCH continues the flow.
        if let Some(first) = self.branch_taken(task, place)? {
            return Ok(Some(place.at(first)));
        }
        let next = place.tree().successor(place.node);
        // A loop counts its body and decides about the next iteration itself.
        let next = next.filter(|next| Some(*next) != place.node().enclosing_loop());
        Ok(next.map(|next| place.at(next)))
    }

    /// Resolves a template. A value that is not in memory must be looked up; a limit is a failure of the task.
    pub(crate) fn resolve(&self, template: &Template) -> Try<Result<Value, String>> {
        let mut budget = Budget::default();
        let roots = RunRoots::of(self, None);
        match template.resolve(&roots, &mut budget) {
            Ok(value) => Ok(Ok(value)),
            Err(Unresolved::Unloaded(values)) => Err(roots.lookups(values)),
            Err(Unresolved::Limit(limit)) => Ok(Err(limit.to_string())),
        }
    }

    /// Returns the result of a script.
    pub(crate) fn script(
        &mut self,
        source: &str,
        input: &Object,
    ) -> Try<Result<Value, ScriptFailure>> {
        self.scripts += 1;
        let script = Script {
            source: source.into(),
            input: Value::Object(input.clone()).to_string().into(),
        };
        match self.found.scripts.get(&script) {
            Some(result) => Ok(result.clone()),
            None => Err(vec![Lookup::Script(script)]),
        }
    }

    /// Returns the results of a jq program.
    pub(crate) fn jq(
        &mut self,
        program: &str,
        input: &Object,
    ) -> Try<Result<Vec<Value>, ScriptFailure>> {
        self.scripts += 1;
        let program = Script {
            source: program.into(),
            input: Value::Object(input.clone()).to_string().into(),
        };
        match self.found.jq.get(&program) {
            Some(results) => Ok(results.clone()),
            None => Err(vec![Lookup::Jq(program)]),
        }
    }

    /// Returns the definition of a task: that of its node, or the registered one for tasks of dynamic nodes, as it is now.
    pub(crate) fn task_def(&self, node: &WorkflowTask, name: &str) -> Try<Arc<TaskDef>> {
        if let Some(own) = &node.task_definition {
            return Ok(Arc::clone(own));
        }
        let Some(registered) = self.found.task_defs.get(name) else {
            return Err(vec![Lookup::TaskDef(name.to_owned())]);
        };
        let resolved = WorkflowTask {
            name: name.to_owned(),
            task_type: if node.task_type == "DYNAMIC" {
                "SIMPLE".to_owned()
            } else {
                node.task_type.clone()
            },
            ..WorkflowTask::default()
        };
        Ok(Arc::new(effective_task_def(
            &resolved,
            registered.as_deref(),
        )))
    }
}
