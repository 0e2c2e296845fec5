//! Questions about a run that operators and workers ask: what it waits for, how full its history is. Reads only.

use longhaul_protocol::id::TaskId;

use crate::change::StoredReply;
use crate::limits::Limits;
use crate::run::state::{Core, Part, Run, WaitFor};

/// How much of its history budget a run has used (engine.md §2.6). Advice only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryBudget {
    pub events: u64,
    pub bytes: u64,
    pub fan_out: u64,
    pub pressure: &'static str,
    pub dimensions: Vec<&'static str>,
}

pub fn history_budget(core: &Core, limits: &Limits) -> HistoryBudget {
    let used = [
        (
            "event_count",
            core.last_history_sequence,
            limits.budget_soft.events,
            limits.budget_hard.events,
        ),
        (
            "size_bytes",
            core.history_size_bytes,
            limits.budget_soft.bytes,
            limits.budget_hard.bytes,
        ),
        (
            "fan_out",
            core.history_fan_out,
            limits.budget_soft.fan_out,
            limits.budget_hard.fan_out,
        ),
    ];
    let over = |value: u64, threshold: u64| threshold > 0 && value >= threshold;
    let dimensions: Vec<&'static str> = used
        .iter()
        .filter(|(_, value, soft, _)| over(*value, *soft))
        .map(|(name, ..)| *name)
        .collect();
    let pressure = if used.iter().any(|(_, value, _, hard)| over(*value, *hard)) {
        "continue_as_new_recommended"
    } else if dimensions.is_empty() {
        "ok"
    } else {
        "approaching"
    };
    HistoryBudget {
        events: core.last_history_sequence,
        bytes: core.history_size_bytes,
        fan_out: core.history_fan_out,
        pressure,
        dimensions,
    }
}

/// What an open run waits for, as a kind and a sentence.
pub fn waits_for(run: &Run) -> Option<(&'static str, String)> {
    if run.core.closed.is_some() {
        return None;
    }
    if let Some(task) = &run.core.workflow_task {
        let what = match (&task.lease, &task.last_error) {
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
        };
        return Some(("workflow-task", what));
    }
    run.parts.values().find_map(|part| match part {
        Part::Activity(activity) => Some((
            "activity",
            format!(
                "activity {} (attempt {})",
                activity.activity_type, activity.attempt_count
            ),
        )),
        Part::LocalActivity(local) => Some((
            "local_activity",
            match &local.retry_task {
                Some(task) => format!(
                    "local activity {} until its next attempt at {}",
                    local.activity_type, task.available_at
                ),
                None => format!(
                    "local activity {} (attempt {})",
                    local.activity_type, local.attempt_count
                ),
            },
        )),
        Part::Wait(wait) => Some(match &wait.what {
            WaitFor::Condition { key, .. } => (
                "condition",
                format!("condition {}", key.as_deref().unwrap_or("without a key")),
            ),
            WaitFor::Signal { name, .. } => ("signal", format!("signal {name}")),
        }),
        Part::Timer(timer) => Some(("timer", format!("timer until {}", timer.fire_at))),
        Part::Child(child) => Some((
            "child",
            format!(
                "child workflow {} ({})",
                child.workflow_id, child.workflow_type
            ),
        )),
        Part::Update(update) => Some((
            "update",
            format!(
                "update {}",
                update.command.target_name.as_deref().unwrap_or_default()
            ),
        )),
        Part::Arguments(_)
        | Part::Signal(_)
        | Part::Buffered(_)
        | Part::Adopted(_)
        | Part::Outbox(_)
        | Part::Group(_)
        | Part::Member(_)
        | Part::Outcome(_) => None,
    })
}

impl Run {
    /// What ended an earlier claim of a retry task that stands beside the ordinary one.
    pub(crate) fn retry_reply(&self, task_id: &TaskId) -> Option<&StoredReply> {
        if self.core.open.local_activities == 0 {
            return None;
        }
        self.parts
            .values()
            .filter_map(Part::as_local)
            .filter_map(|local| local.retry_task.as_ref())
            .find(|task| task.id == *task_id)
            .and_then(|task| task.last_reply.as_deref())
    }

    /// Whether the task is open in this run; a finished one is known by its row only.
    pub fn has_open_task(&self, task_id: &TaskId, sequence: u64) -> bool {
        self.core
            .workflow_task
            .as_ref()
            .is_some_and(|task| task.id == *task_id)
            || self
                .activity(sequence)
                .is_some_and(|activity| activity.task_id == *task_id)
            || self.local_activity(sequence).is_some_and(|local| {
                local
                    .retry_task
                    .as_ref()
                    .is_some_and(|task| task.id == *task_id)
            })
    }
}
