//! What an open run waits for.

use crate::conductor::execution::state::ExecutionTask;
use crate::run::family::child::Child;
use crate::run::local_activity::LocalActivity;
use crate::run::state::{Activity, Part, Run, Timer, Update, Wait, WaitFor, WorkflowTask};

/// One thing that an open run waits for.
#[derive(Clone, Copy, Debug)]
pub enum OpenWait<'a> {
    /// A worker must lease the workflow task, or complete it.
    WorkflowTask(&'a WorkflowTask),
    Activity(&'a Activity),
    LocalActivity(&'a LocalActivity),
    /// A timer, or the timeout of a wait.
    Timer(&'a Timer),
    /// A condition or a signal.
    Wait(&'a Wait),
    Child(&'a Child),
    Update(&'a Update),
    /// A task of a definition run.
    Task(&'a ExecutionTask),
}

/// Returns everything that the run waits for, the workflow task first. Empty for a closed run.
pub fn waits(run: &Run) -> impl Iterator<Item = OpenWait<'_>> {
    let open = run.core.closed.is_none().then_some(run);
    let task = open.and_then(|run| run.core.workflow_task.as_deref());
    let parts = open.into_iter().flat_map(|run| run.parts.values());
    task.map(OpenWait::WorkflowTask)
        .into_iter()
        .chain(parts.filter_map(of_part))
}

fn of_part(part: &Part) -> Option<OpenWait<'_>> {
    match part {
        Part::Activity(activity) => Some(OpenWait::Activity(activity)),
        Part::LocalActivity(local) => Some(OpenWait::LocalActivity(local)),
        Part::Timer(timer) => Some(OpenWait::Timer(timer)),
        Part::Wait(wait) => Some(OpenWait::Wait(wait)),
        Part::Child(child) => Some(OpenWait::Child(child)),
        Part::Update(update) => Some(OpenWait::Update(update)),
        Part::Arguments(_)
        | Part::Signal(_)
        | Part::Buffered(_)
        | Part::Adopted(_)
        | Part::Outbox(_)
        | Part::Group(_)
        | Part::Member(_)
        | Part::Outcome(_)
        | Part::Past(_)
        | Part::Value(_)
        | Part::Inbox(_) => None,
        Part::Task(task) => task.is_open().then_some(OpenWait::Task(task)),
    }
}

/// Returns the first thing that the run waits for.
pub fn first_wait(run: &Run) -> Option<OpenWait<'_>> {
    waits(run).next()
}

impl OpenWait<'_> {
    /// Returns the kind for operators.
    pub fn kind(self) -> &'static str {
        match self {
            Self::WorkflowTask(_) => "workflow-task",
            Self::Activity(_) => "activity",
            Self::LocalActivity(_) => "local_activity",
            Self::Timer(_) => "timer",
            Self::Wait(wait) => match &wait.what {
                WaitFor::Condition { .. } => "condition",
                WaitFor::Signal { .. } => "signal",
            },
            Self::Child(_) => "child",
            Self::Update(_) => "update",
            Self::Task(_) => "task",
        }
    }

    /// Returns a phrase that completes "waits for". `run` is the run that waits.
    pub fn describe(self, run: &Run) -> String {
        match self {
            Self::WorkflowTask(task) => match (&task.lease, &task.last_error) {
                (Some(lease), _) => format!(
                    "worker {} is deciding (attempt {})",
                    lease.owner, task.attempt
                ),
                (None, Some(error)) => format!(
                    "a workflow task failed {} time(s), next try at {}: {error}",
                    task.failures, task.available_at
                ),
                (None, None) => format!(
                    "a workflow task waits for a worker on queue {}",
                    run.spec.task_queue
                ),
            },
            Self::Activity(activity) => format!(
                "activity {} (attempt {})",
                activity.activity_type, activity.attempt_count
            ),
            Self::LocalActivity(local) => match &local.retry_task {
                Some(task) => format!(
                    "local activity {} until its next attempt at {}",
                    local.activity_type, task.available_at
                ),
                None => format!(
                    "local activity {} (attempt {})",
                    local.activity_type, local.attempt_count
                ),
            },
            Self::Wait(wait) => match &wait.what {
                WaitFor::Condition { key, .. } => {
                    format!("condition {}", key.as_deref().unwrap_or("without a key"))
                }
                WaitFor::Signal { name, .. } => format!("signal {name}"),
            },
            Self::Timer(timer) => format!("timer until {}", timer.fire_at),
            Self::Child(child) => format!(
                "child workflow {} ({})",
                child.workflow_id, child.workflow_type
            ),
            Self::Task(task) => task.describe_wait(),
            Self::Update(update) => format!(
                "update {}",
                update.command.target_name.as_deref().unwrap_or_default()
            ),
        }
    }
}
