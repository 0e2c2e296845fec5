//! Rules between runs: the runs of a workflow, and a parent with its children.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::history::RecordedEvent;
use super::messages::Messages;
use super::{Problem, ProblemKind, Problems};
use crate::change::CommandRow;
use crate::run::family::outbox::OutboxBody;
use crate::run::state::{ClosedReason, Core, Part, Run, Spec};

/// What a history has shown of its children so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    /// Open children that are not left alone when the run closes, by call.
    open: BTreeMap<u64, String>,
    /// How often a close policy was followed, by child.
    informed: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Scheduled {
    sequence: u64,
    child_workflow_instance_id: String,
    #[serde(default)]
    parent_close_policy: Option<String>,
}

#[derive(Deserialize)]
struct Ended {
    sequence: u64,
}

#[derive(Deserialize)]
struct GivenUp {
    member_base_sequence: u64,
    member_size: u64,
}

#[derive(Deserialize)]
struct Informed {
    child_instance_id: String,
}

impl Children {
    pub(super) fn add(&mut self, event: &RecordedEvent<'_>, problems: &mut Problems) {
        match event.event_type {
            "ChildWorkflowScheduled" => {
                let scheduled = problems.parse::<Scheduled>(event);
                let is_owed = |scheduled: &Scheduled| {
                    scheduled.parent_close_policy.as_deref() != Some("abandon")
                };
                self.open.extend(
                    scheduled
                        .filter(is_owed)
                        .map(|child| (child.sequence, child.child_workflow_instance_id)),
                );
            }
            "ChildRunCompleted" | "ChildRunFailed" | "ChildRunCancelled" | "ChildRunTerminated" => {
                if let Some(ended) = problems.parse::<Ended>(event) {
                    self.open.remove(&ended.sequence);
                }
            }
            "SelectionOperationCancelled" => {
                if let Some(given_up) = problems.parse::<GivenUp>(event) {
                    let base = given_up.member_base_sequence;
                    let end = base.saturating_add(given_up.member_size);
                    self.open.retain(|call, _| !(base..end).contains(call));
                }
            }
            "ParentClosePolicyApplied" | "ParentClosePolicyFailed" => {
                if let Some(informed) = problems.parse::<Informed>(event) {
                    *self.informed.entry(informed.child_instance_id).or_default() += 1;
                }
            }
            _ => {}
        }
    }

    /// A closed run informed each open child once, or has the message for it.
    pub(super) fn finish(&self, run: &Run, problems: &mut Problems) {
        let reason = run.core.closed.as_ref().map(|closed| closed.reason);
        let owes = reason.is_some_and(|reason| reason != ClosedReason::Continued);
        let mut waiting = BTreeSet::new();
        for message in run.parts.values().filter_map(Part::as_outbox_message) {
            if let OutboxBody::StopChild { workflow_id, .. }
            | OutboxBody::RequestCancellation { workflow_id, .. } = &message.body
            {
                waiting.insert(workflow_id.as_str());
            }
        }
        let twice = self.informed.iter().find(|(_, count)| **count > 1);
        let open = self.open.values();
        let missed = open.clone().find(|child| {
            owes && !self.informed.contains_key(*child) && !waiting.contains(child.as_str())
        });
        let early = self.informed.keys().next().filter(|_| !owes);
        let child = twice.map(|(child, _)| child).or(missed).or(early);
        if let Some(child) = child {
            let detail = format!("the close policy of child {child} was not followed once");
            problems.found(ProblemKind::ClosePolicyWrong, detail);
        }
    }
}

/// The run before another one of the same workflow, as far as the next one depends on it.
#[derive(Clone, Debug)]
pub struct Before {
    pub spec: Spec,
    pub core: Core,
    pub commands: Vec<CommandRow>,
    pub messages: Messages,
}

impl Before {
    /// Returns a run from its rows. `events` are those that [`Messages::EVENTS`] names.
    pub fn new<'a>(
        spec: Spec,
        core: Core,
        commands: Vec<CommandRow>,
        events: impl Iterator<Item = RecordedEvent<'a>>,
    ) -> Self {
        let mut messages = Messages::default();
        // What is wrong with an event is a problem of its own run.
        let mut ignored = Problems::default();
        for event in events {
            messages.add(&event, &mut ignored);
        }
        Self {
            spec,
            core,
            commands,
            messages,
        }
    }

    pub(super) fn continues_as(&self, run: &Run) -> bool {
        let closed = self.core.closed.as_ref();
        closed.and_then(|closed| closed.continued_to.as_ref()) == Some(&run.spec.run_id)
    }

    pub(super) fn was_continued(&self) -> bool {
        let closed = self.core.closed.as_ref();
        closed.is_some_and(|closed| closed.reason == ClosedReason::Continued)
    }

    pub(super) fn received(&self) -> impl Iterator<Item = &str> {
        self.messages.received()
    }
}

/// Returns what is wrong between a run and the one before it. `has_next` is whether a newer run of the workflow is stored.
pub fn check_chain(run: &Run, before: Option<&Before>, has_next: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut wrong = |kind, detail: &str| problems.push(Problem::new(kind, detail));
    let closed = run.core.closed.as_ref();
    if closed.is_some_and(|closed| closed.continued_to.is_some()) && !has_next {
        wrong(
            ProblemKind::ChainWrong,
            "the run that continues it is not stored",
        );
    }
    let Some(before) = before else {
        if run.spec.continued_from.is_some() {
            wrong(
                ProblemKind::ChainWrong,
                "the run that it continues is not stored",
            );
        }
        return problems;
    };
    let continues = before.continues_as(run);
    let closed = before.core.closed.as_ref();
    let successor = closed.and_then(|closed| closed.continued_to.as_ref());
    if successor.is_some() && !continues {
        wrong(
            ProblemKind::ChainWrong,
            "the run before it is continued by another one",
        );
    }
    let from = run.spec.continued_from.as_ref();
    if from.is_some_and(|from| *from != before.spec.run_id || !continues) {
        wrong(
            ProblemKind::ChainWrong,
            "the run before it is not the one that it continues",
        );
    }
    if !continues {
        return problems;
    }
    if before.spec.execution_deadline_at != run.spec.execution_deadline_at {
        wrong(
            ProblemKind::ChainWrong,
            "its execution deadline is not that of the run before it",
        );
    }
    let call = |spec: &Spec| {
        let parent = spec.parent.as_deref()?;
        Some((
            parent.run_id.clone(),
            parent.sequence,
            parent.call_id.clone(),
        ))
    };
    if call(&before.spec) != call(&run.spec) {
        wrong(
            ProblemKind::ParentWrong,
            "it belongs to another call than the run before it",
        );
    }
    problems
}

/// A call of a child in the history of its parent.
#[derive(Clone, Debug, Deserialize)]
pub struct ChildCall {
    sequence: u64,
    child_call_id: String,
    child_workflow_instance_id: String,
}

impl ChildCall {
    /// Returns the call of a `ChildWorkflowScheduled` event, if its payload can be read.
    pub fn read(payload: &str) -> Option<Self> {
        serde_json::from_str(payload).ok()
    }
}

/// Returns what is wrong between a child and the calls of its parent.
pub fn check_parent(run: &Run, calls: &[ChildCall]) -> Option<Problem> {
    let parent = run.spec.parent.as_deref()?;
    if parent.other_family {
        // The call of a definition is a task, which its history has in other events.
        return None;
    }
    let is_known = calls.iter().any(|call| {
        call.sequence == parent.sequence.get()
            && call.child_call_id == parent.call_id.as_str()
            && call.child_workflow_instance_id == run.spec.workflow_id.as_str()
    });
    (!is_known).then(|| {
        let detail = format!(
            "the history of its parent {} has no call {} for it",
            parent.run_id, parent.sequence
        );
        Problem::new(ProblemKind::ParentWrong, detail)
    })
}
