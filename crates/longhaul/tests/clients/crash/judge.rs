//! Checks of a workflow and its children on the control plane: nothing is lost, nothing happens twice, and the histories of parents
//! and children agree.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use crate::harness::{Control, History, eventually};

const CHILD_ENDS: [(&str, &str); 4] = [
    ("ChildRunCompleted", "completed"),
    ("ChildRunFailed", "failed"),
    ("ChildRunCancelled", "cancelled"),
    ("ChildRunTerminated", "terminated"),
];

/// The histories of all runs of a closed workflow, oldest first, after they and those of its children were judged.
pub(super) fn family<'a>(
    control: &'a Control,
    id: &'a str,
) -> Pin<Box<dyn Future<Output = Vec<History>> + Send + 'a>> {
    Box::pin(async move {
        let mut runs = Vec::new();
        let mut children = Vec::new();
        for run_id in control.run_ids(id).await {
            let history = final_history(control, id, &run_id).await;
            history.assert_sound();
            children.extend(slots(&history));
            runs.push(history);
        }
        messages_are_taken_once(id, &runs);
        updates_end_once(id, &runs);
        streams_are_read_in_order(id, &runs);
        for slot in children {
            judge_child(control, id, &slot).await;
        }
        runs
    })
}

/// Returns the history of a run after its close policy was applied, which happens shortly after its end.
async fn final_history(control: &Control, id: &str, run_id: &str) -> History {
    eventually(&format!("{id} has informed its children"), || async {
        let history = control.history(id, run_id).await;
        let owed = slots(&history).iter().filter(|slot| slot.is_owed()).count();
        let done =
            history.count("ParentClosePolicyApplied") + history.count("ParentClosePolicyFailed");
        let continued = history.count("WorkflowContinuedAsNew") > 0;
        (continued || done >= owed).then_some(history)
    })
    .await
}

/// Checks that each local activity ran one attempt after another and ended once.
pub(super) fn local_activities_are_in_order(history: &History) {
    let mut stages: BTreeMap<u64, (&str, u64)> = BTreeMap::new();
    for event in history.events() {
        let payload = &event["payload"];
        let name = event["event_type"].as_str().unwrap_or_default();
        let Some(sequence) = payload["sequence"]
            .as_u64()
            .filter(|_| name.starts_with("Activity"))
        else {
            continue;
        };
        assert_eq!(payload["execution_mode"], "local", "{event}");
        assert_eq!(payload["local_activity"], true, "{event}");
        let (stage, attempts) = stages.entry(sequence).or_insert(("none", 0));
        let (before, after) = match name {
            "ActivityScheduled" => ("none", "pending"),
            "ActivityStarted" => {
                *attempts += 1;
                assert_eq!(payload["attempt_number"], *attempts, "{event}");
                ("pending", "running")
            }
            "ActivityHeartbeatRecorded" => ("running", "running"),
            "ActivityRetryScheduled" => ("running", "pending"),
            _ => ("running", "over"),
        };
        assert_eq!(*stage, before, "{event}");
        *stage = after;
    }
    assert!(stages.values().all(|(stage, _)| *stage == "over"));
}

/// A call of a child workflow.
struct Slot {
    child: String,
    policy: String,
    started: Vec<u64>,
    /// Type of the event that ended it, and the number of the run that did.
    ends: Vec<(&'static str, u64)>,
}

impl Slot {
    /// Whether the close of the parent must be applied to it.
    fn is_owed(&self) -> bool {
        self.ends.is_empty() && self.policy != "abandon"
    }
}

fn slots(history: &History) -> Vec<Slot> {
    let mut slots: BTreeMap<u64, Slot> = BTreeMap::new();
    for event in history.events() {
        let payload = &event["payload"];
        let (Some(name), Some(sequence)) =
            (event["event_type"].as_str(), payload["sequence"].as_u64())
        else {
            continue;
        };
        let run_number = payload["child_run_number"].as_u64().unwrap_or_default();
        if name == "ChildWorkflowScheduled" {
            let slot = Slot {
                child: text(&payload["child_workflow_instance_id"]),
                policy: text(&payload["parent_close_policy"]),
                started: Vec::new(),
                ends: Vec::new(),
            };
            assert!(
                slots.insert(sequence, slot).is_none(),
                "a child is called once"
            );
        } else if name == "ChildRunStarted" {
            let slot = slots.get_mut(&sequence).expect("a call before its run");
            slot.started.push(run_number);
        } else if let Some((_, status)) = CHILD_ENDS.iter().find(|(end, _)| *end == name) {
            let slot = slots.get_mut(&sequence).expect("a call before its end");
            slot.ends.push((status, run_number));
        }
    }
    slots.into_values().collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Checks that the runs of a child are sound and that its end equals the record in its parent.
async fn judge_child(control: &Control, parent: &str, slot: &Slot) {
    let child = &slot.child;
    let runs = eventually(&format!("{child} of {parent} is closed"), || async {
        let (_, described) = control.get(&format!("/workflows/{child}")).await;
        let open = ["pending", "running", "waiting"].contains(&described["status"].as_str()?);
        (!open || !slot.is_owed()).then_some(described)
    })
    .await;
    let histories = family(control, child).await;
    assert!(
        slot.started.is_sorted_by(|one, next| one < next),
        "{child} of {parent}: {:?}",
        slot.started
    );
    assert!(
        slot.ends.len() <= 1,
        "{child} of {parent} ended twice: {:?}",
        slot.ends
    );
    if let Some((status, run_number)) = slot.ends.first() {
        assert_eq!(
            *run_number as usize,
            histories.len(),
            "{child} of {parent}: its last run"
        );
        assert_eq!(runs["status"], *status, "{child} of {parent}");
    }
    if slot.is_owed() {
        assert_eq!(
            runs["status"], "terminated",
            "{child} of {parent}: as its close policy says"
        );
    }
}

/// Checks that each signal was received once, over all runs.
fn messages_are_taken_once(id: &str, runs: &[History]) {
    let mut seen = BTreeSet::new();
    for signal in runs
        .iter()
        .flat_map(|history| history.payloads("SignalReceived"))
    {
        let of_stream = signal["signal_name"] == "__durable_workflow_message_stream";
        let fresh = seen.insert(text(&signal["workflow_command_id"]));
        assert!(fresh || of_stream, "{id}: a signal came twice: {signal}");
    }
}

/// Checks that every accepted update ends once, and is applied if and only if it did not fail.
fn updates_end_once(id: &str, runs: &[History]) {
    let ids = |event_type: &str| -> Vec<String> {
        let all = runs.iter().flat_map(|history| history.payloads(event_type));
        all.map(|payload| text(&payload["update_id"])).collect()
    };
    let accepted: BTreeSet<String> = ids("UpdateAccepted").into_iter().collect();
    let completed = ids("UpdateCompleted");
    let once: BTreeSet<String> = completed.iter().cloned().collect();
    assert_eq!(
        completed.len(),
        once.len(),
        "{id}: an update ended twice: {completed:?}"
    );
    assert_eq!(accepted, once, "{id}: every update ends");
    let applied = ids("UpdateApplied");
    assert_eq!(
        applied.len(),
        applied.iter().collect::<BTreeSet<_>>().len(),
        "{id}: an update was applied twice: {applied:?}"
    );
}

/// Checks that cursors move forward without gaps, over all runs.
fn streams_are_read_in_order(id: &str, runs: &[History]) {
    let mut cursors: BTreeMap<String, u64> = BTreeMap::new();
    for moved in runs
        .iter()
        .flat_map(|history| history.payloads("MessageCursorAdvanced"))
    {
        let cursor = cursors.entry(text(&moved["stream_key"])).or_default();
        assert_eq!(moved["previous_position"], *cursor, "{id}: {moved}");
        let position = moved["new_position"].as_u64().unwrap_or_default();
        assert!(position > *cursor, "{id}: a stream was read twice: {moved}");
        *cursor = position;
    }
}
