//! Folds the selections of a history: the first member that ends is chosen, once, by the event right before the choice.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::calls::{CallKeys, levels, number_of};
use super::history::RecordedEvent;
use super::{ProblemKind, Problems};

/// What a history has shown of its selections so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Selections {
    open: BTreeMap<String, Selection>,
    /// The choice that the newest event requires.
    demanded: Option<Choice>,
    /// A member that an activity ended by being cancelled, if the next event is a choice. Else it was interrupted and ends nothing.
    maybe: Option<(Choice, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Selection {
    /// The open calls of each member, by its first call.
    members: BTreeMap<u64, BTreeSet<u64>>,
    settled: BTreeSet<u64>,
    resolved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    group: String,
    member: u64,
    failed: bool,
    event_id: String,
}

#[derive(Deserialize)]
struct Resolved {
    selection_group_id: String,
    member_base_sequence: u64,
    outcome: String,
    resolution_event_id: String,
}

#[derive(Deserialize)]
struct Cancelled {
    selection_group_id: String,
    member_base_sequence: u64,
}

/// The calls of one member are counted one by one, so a wrong size must not be followed without end.
const MEMBER_CALLS_MAX: u64 = 100_000;

impl Selections {
    pub(super) fn add(
        &mut self,
        event: &RecordedEvent<'_>,
        keys: &CallKeys,
        problems: &mut Problems,
    ) {
        let wrong = |problems: &mut Problems, what: &str| {
            let detail = format!("event {}, {}, {what}", event.sequence, event.event_type);
            problems.found(ProblemKind::SelectionWrong, detail);
        };
        let maybe = self.maybe.take();
        if event.event_type == "SelectionResolved" {
            if let Some((choice, call)) = maybe {
                self.end_call(choice, call);
            }
            let Some(resolved) = problems.parse::<Resolved>(event) else {
                self.demanded = None;
                return;
            };
            let choice = Choice {
                group: resolved.selection_group_id,
                member: resolved.member_base_sequence,
                failed: resolved.outcome == "failed",
                event_id: resolved.resolution_event_id,
            };
            if self.demanded.take().as_ref() != Some(&choice) {
                wrong(problems, "is not the choice that the event before it made");
            }
            let selection = self.open.entry(choice.group).or_default();
            if std::mem::replace(&mut selection.resolved, true) {
                wrong(problems, "decides a selection again");
            }
            return;
        }
        // The timeout of a condition ends between the two.
        if self.demanded.is_some() && event.event_type == "TimerCancelled" {
            return;
        }
        if self.demanded.take().is_some() {
            wrong(problems, "follows the end of a member that was not chosen");
        }
        if event.event_type == "SelectionOperationCancelled" {
            if let Some(cancelled) = problems.parse::<Cancelled>(event) {
                let selection = self.open.entry(cancelled.selection_group_id).or_default();
                if !selection.settled.insert(cancelled.member_base_sequence) {
                    wrong(problems, "cancels a member that has ended");
                }
            }
            return;
        }
        self.follow(event, keys);
    }

    /// Follows the calls of members.
    fn follow(&mut self, event: &RecordedEvent<'_>, keys: &CallKeys) {
        let outermost = levels(keys.parallel_group_path.as_ref()).next();
        let level = outermost.filter(|level| {
            level.get("parallel_group_mode").and_then(Value::as_str) == Some("select")
        });
        let (Some(level), Some(call)) = (level, keys.sequence) else {
            return;
        };
        let group = level.get("parallel_group_id").and_then(Value::as_str);
        let member = number_of(level, "selection_member_base_sequence");
        let size = number_of(level, "selection_member_size");
        let (Some(group), Some(member), Some(size)) = (group, member, size) else {
            return;
        };
        let selection = self.open.entry(group.to_owned()).or_default();
        selection.members.entry(member).or_insert_with(|| {
            let end = member.saturating_add(size.min(MEMBER_CALLS_MAX));
            (member..end).collect()
        });
        let Some(failed) = ends(event.event_type) else {
            return;
        };
        let choice = Choice {
            group: group.to_owned(),
            member,
            failed,
            event_id: event.id.to_owned(),
        };
        if event.event_type == "ActivityCancelled" {
            self.maybe = Some((choice, call));
        } else {
            self.end_call(choice, call);
        }
    }

    fn end_call(&mut self, choice: Choice, call: u64) {
        let selection = self.open.entry(choice.group.clone()).or_default();
        let calls = selection.members.entry(choice.member).or_default();
        calls.remove(&call);
        if (choice.failed || calls.is_empty())
            && selection.settled.insert(choice.member)
            && !selection.resolved
        {
            self.demanded = Some(choice);
        }
    }

    /// The choice is recorded with the event that made it.
    pub(super) fn finish(&self, problems: &mut Problems) {
        if let Some(choice) = &self.demanded {
            let detail = format!("the choice of {} is not recorded", choice.group);
            problems.found(ProblemKind::SelectionWrong, detail);
        }
    }
}

/// Returns whether the event ends its call, and whether as a failure.
fn ends(event_type: &str) -> Option<bool> {
    match event_type {
        "ActivityCompleted"
        | "TimerFired"
        | "ChildRunCompleted"
        | "SignalApplied"
        | "ConditionWaitSatisfied" => Some(false),
        "ActivityFailed" | "ActivityTimedOut" | "ActivityCancelled" | "ChildRunFailed"
        | "ChildRunCancelled" | "ChildRunTerminated" => Some(true),
        _ => None,
    }
}
