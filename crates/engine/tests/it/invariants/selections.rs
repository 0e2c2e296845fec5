//! Selections: the first member that ends is chosen, once, by the event right before the choice.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_engine::run::state::Run;
use longhaul_protocol::history::Event;

use super::events;
use crate::world::World;

#[derive(Default)]
struct Selection {
    /// Calls of each member that are still open, recorded or not, by the first call of the member.
    members: BTreeMap<u64, BTreeSet<u64>>,
    settled: BTreeSet<u64>,
    resolved: bool,
}

pub(super) fn check(world: &World, run: &Run) {
    let mut selections: BTreeMap<String, Selection> = BTreeMap::new();
    // The choice that the newest event requires.
    let mut demanded: Option<(String, u64, bool, &Event)> = None;
    for (event, body) in events(world, run) {
        if event.event_type == "SelectionResolved" {
            let (id, member, failed, deciding) =
                demanded.take().expect("21: an event decided the selection");
            assert_eq!(
                body["selection_group_id"],
                id.as_str(),
                "21: the choice belongs to its group"
            );
            assert_eq!(
                body["member_base_sequence"], member,
                "21: the first member that ended is chosen"
            );
            assert_eq!(
                body["outcome"],
                if failed { "failed" } else { "completed" },
                "21"
            );
            assert_eq!(
                body["resolution_event_id"],
                deciding.id.as_str(),
                "21: the choice names that event"
            );
            assert_eq!(body["resolution_event_type"], deciding.event_type, "21");
            let selection = selections.get_mut(&id).expect("21: the selection is open");
            assert!(
                !std::mem::replace(&mut selection.resolved, true),
                "21: a selection is decided once"
            );
            continue;
        }
        // The timeout of a condition ends between the two.
        if demanded.is_some() && event.event_type == "TimerCancelled" {
            continue;
        }
        if let Some((id, ..)) = demanded.take() {
            panic!(
                "21: {id} is decided by the event before {}",
                event.event_type
            );
        }
        if event.event_type == "SelectionOperationCancelled" {
            let id = body["selection_group_id"].as_str().unwrap();
            let member = body["member_base_sequence"].as_u64().unwrap();
            let selection = selections.get_mut(id).expect("21: the selection is open");
            assert!(
                selection.settled.insert(member),
                "21: a member is cancelled once, and not after its end"
            );
            continue;
        }
        let Some(level) = body.pointer("/parallel_group_path/0") else {
            continue;
        };
        if level["parallel_group_mode"] != "select" {
            continue;
        }
        let id = level["parallel_group_id"].as_str().unwrap().to_owned();
        let member = level["selection_member_base_sequence"].as_u64().unwrap();
        let sequence = body["sequence"].as_u64().unwrap();
        let selection = selections.entry(id.clone()).or_default();
        let size = level["selection_member_size"].as_u64().unwrap();
        let calls = selection
            .members
            .entry(member)
            .or_insert_with(|| (member..member + size).collect());
        let Some(failed) = ends(event.event_type) else {
            continue;
        };
        // An activity that a cancellation interrupts ends no member; one that stopped by itself does.
        if event.event_type == "ActivityCancelled" && !next_is_choice(world, run, event) {
            continue;
        }
        calls.remove(&sequence);
        if (failed || calls.is_empty()) && selection.settled.insert(member) && !selection.resolved {
            demanded = Some((id, member, failed, event));
        }
    }
    assert!(
        demanded.is_none(),
        "21: the choice is recorded with its event"
    );
}

fn next_is_choice(world: &World, run: &Run, event: &Event) -> bool {
    let place = usize::try_from(event.sequence.get()).unwrap();
    world.histories[run.run_id()]
        .get(place)
        .is_some_and(|next| next.event_type == "SelectionResolved")
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
