//! Parents and children: a child belongs to one call, the end of the call agrees with the end of the child, and a closing parent
//! follows its close policies, once for each child.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_protocol::id::{RunId, WorkflowId};
use longhaul_protocol::workflow_command::ParentClosePolicy;
use serde_json::Value;

use super::{events, runs_of};
use crate::world::World;

pub(super) fn check(world: &World, runs: &[&Run]) {
    let slots: BTreeSet<_> = runs
        .iter()
        .map(|run| {
            let parent = run.spec.parent.as_ref();
            parent.map(|parent| {
                (
                    parent.run_id.clone(),
                    parent.sequence,
                    parent.call_id.clone(),
                )
            })
        })
        .collect();
    assert_eq!(
        slots.len(),
        1,
        "49: a child has one call, also when it continues or is retried"
    );
    if let Some(Some((parent, sequence, call))) = slots.into_iter().next() {
        let scheduled = events(world, &world.runs[&parent]).filter(|(event, body)| {
            event.event_type == "ChildWorkflowScheduled" && body["sequence"] == sequence.get()
        });
        let calls: Vec<&Value> = scheduled.map(|(_, body)| &body["child_call_id"]).collect();
        assert_eq!(
            calls,
            [call.as_str()],
            "49: the call is in its parent's history"
        );
    }
    for run in runs {
        check_slots(world, run);
        check_messages_are_applied_once(world, run);
        let policies = close_policies(world, run);
        for (child, count) in &policies {
            assert_eq!(*count, 1, "50: {child} gets one message");
        }
    }
}

fn check_slots(world: &World, run: &Run) {
    for (event, body) in events(world, run) {
        let expected: &[&str] = match event.event_type {
            "ChildRunCompleted" => &["completed"],
            "ChildRunFailed" => &["failed", "timed_out"],
            "ChildRunCancelled" => &["cancelled"],
            "ChildRunTerminated" => &["terminated"],
            _ => continue,
        };
        let child = WorkflowId::from(body["child_workflow_instance_id"].as_str().unwrap());
        let child_runs = runs_of(world, &child);
        let named = body["child_workflow_run_id"].as_str().unwrap();
        assert!(
            child_runs
                .iter()
                .any(|child| child.run_id().as_str() == named),
            "17: the event names a run of its child"
        );
        let last = child_runs.last().expect("a child has a run");
        assert_eq!(
            body["child_run_number"], last.spec.run_number,
            "17: the child's last run"
        );
        let closed = last.core.closed.as_ref().expect("17: the child is closed");
        assert!(
            expected.contains(&closed.reason.as_str()),
            "17: the event agrees with the child"
        );
        assert_eq!(body["closed_reason"], closed.reason.as_str(), "17");
    }
}

fn close_policies(world: &World, run: &Run) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (event, body) in events(world, run) {
        if event.event_type.starts_with("ParentClosePolicy") {
            *counts
                .entry(body["child_instance_id"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
    }
    counts
}

/// Checks that a child applies each outbox message once.
fn check_messages_are_applied_once(world: &World, run: &Run) {
    let mut heard = BTreeSet::new();
    for (_, row) in world.commands.values() {
        let Some(id) = row
            .request_id
            .as_deref()
            .filter(|id| id.starts_with(&format!("outbox:{}:", run.run_id())))
        else {
            continue;
        };
        assert!(
            heard.insert(id.to_owned()),
            "24: an outbox message is applied once"
        );
    }
}

/// Returns the children of earlier runs that the run is responsible for, unless it abandons them.
pub(crate) fn adopted(run: &Run) -> Vec<WorkflowId> {
    run.parts
        .values()
        .filter_map(|part| match part {
            Part::Adopted(child) if child.parent_close_policy != ParentClosePolicy::Abandon => {
                Some(child.workflow_id.clone())
            }
            _ => None,
        })
        .collect()
}

/// Returns the children that a run which has just closed must stop: its own open ones by its history, and adopted ones.
pub(crate) fn owed(world: &World, run_id: &RunId, adopted: Vec<WorkflowId>) -> Vec<WorkflowId> {
    let run = &world.runs[run_id];
    let closed = run.core.closed.as_ref().expect("the run is closed");
    if closed.reason.as_str() == "continued" {
        return Vec::new();
    }
    let mut open: BTreeMap<u64, WorkflowId> = BTreeMap::new();
    for (event, body) in events(world, run) {
        let sequence = body["sequence"].as_u64();
        match event.event_type {
            "ChildWorkflowScheduled" if body["parent_close_policy"] != "abandon" => {
                let child = body["child_workflow_instance_id"].as_str().unwrap();
                open.insert(sequence.unwrap(), WorkflowId::from(child));
            }
            "ChildRunCompleted" | "ChildRunFailed" | "ChildRunCancelled" | "ChildRunTerminated" => {
                open.remove(&sequence.unwrap());
            }
            "SelectionOperationCancelled" => {
                let base = body["member_base_sequence"].as_u64().unwrap();
                let size = body["member_size"].as_u64().unwrap();
                open.retain(|sequence, _| !(base..base + size).contains(sequence));
            }
            _ => {}
        }
    }
    open.into_values().chain(adopted).collect()
}

/// Checks the state after every outbox message is delivered: closed parents have informed their children, and an open call has an
/// open child.
pub(crate) fn check_all_delivered(world: &World) {
    for run in world.runs.values() {
        let messages = run
            .parts
            .keys()
            .filter(|key| matches!(key, PartKey::Outbox(_)));
        assert_eq!(messages.count(), 0, "every outbox message is delivered");
        let informed: BTreeSet<String> = close_policies(world, run).into_keys().collect();
        let owed = world.owed.get(run.run_id()).cloned().unwrap_or_default();
        let owed: BTreeSet<String> = owed.iter().map(ToString::to_string).collect();
        assert_eq!(informed, owed, "50: each open child gets one message");
        for part in run.parts.values() {
            let (Part::Child(child) | Part::Adopted(child)) = part else {
                continue;
            };
            let current = &world.runs[&world.instances[&child.workflow_id]];
            assert!(
                current.core.closed.is_none(),
                "T17: an open call has an open child"
            );
            assert_eq!(
                child.run_number, current.spec.run_number,
                "the parent has its newest run"
            );
        }
    }
}
