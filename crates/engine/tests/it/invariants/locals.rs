//! Local activities: no activity task, one retry task at most, and events in a legal order.

use std::collections::BTreeMap;

use longhaul_engine::change::{TaskKind, TaskStatus};
use longhaul_engine::run::state::{Part, Run};
use serde_json::Value;

use super::events;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Pending,
    Running,
    Over,
}

pub(super) fn check(world: &World, run: &Run) {
    check_order(world, run);
    let locals: Vec<_> = run
        .parts
        .values()
        .filter_map(|part| match part {
            Part::LocalActivity(local) => Some(local),
            _ => None,
        })
        .collect();
    if run.core.closed.is_some() {
        return;
    }
    assert_eq!(
        run.core.open.local_activities,
        locals.len() as u64,
        "open local activities are counted"
    );
    let slot = run.core.workflow_task.as_ref();
    let leased = slot.is_some_and(|task| task.lease.is_some());
    for local in locals {
        let of_call = |row: &&longhaul_engine::change::TaskRow| {
            row.run_id == *run.run_id() && row.sequence == local.sequence && row.status.is_open()
        };
        let rows: Vec<_> = world.tasks.values().filter(of_call).collect();
        assert!(
            rows.iter().all(|row| row.kind == TaskKind::Workflow),
            "22: a local activity has no activity task"
        );
        let waiting = local.retry_task.as_ref();
        assert_eq!(
            rows.len(),
            usize::from(waiting.is_some()),
            "22: one retry task beside the ordinary one"
        );
        for row in rows {
            assert!(
                row.required_capability.is_some(),
                "only capable workers get a retry"
            );
            assert!(
                row.status != TaskStatus::Ready || !leased,
                "4.1: a retry is on offer only while no workflow task is leased"
            );
        }
        assert!(
            local.attempt.is_none() || waiting.is_none(),
            "an attempt runs or waits for the next"
        );
        assert!(
            local.attempt.is_none() || slot.is_some() || waiting.is_some(),
            "28: an unfinished attempt has a workflow task"
        );
        assert!(
            slot.is_some() || waiting.is_some(),
            "28: an open local activity has a task"
        );
        if let Some(task) = slot.filter(|task| task.lease.is_none()) {
            let row = &world.tasks[&task.id];
            assert!(
                row.required_capability.is_some(),
                "53: only capable workers get a run with an unfinished local activity"
            );
        }
    }
}

fn check_order(world: &World, run: &Run) {
    let mut stages: BTreeMap<u64, (Stage, u64)> = BTreeMap::new();
    for (event, body) in events(world, run) {
        let is_activity = event.event_type.starts_with("Activity");
        let marked = body.get("execution_mode").and_then(Value::as_str) == Some("local");
        let Some(sequence) = body["sequence"].as_u64().filter(|_| is_activity) else {
            continue;
        };
        if event.event_type == "ActivityScheduled" {
            assert_eq!(
                body["activity"]["local_activity"], marked,
                "54: the marker agrees"
            );
            if marked {
                stages.insert(sequence, (Stage::Pending, 0));
            }
            continue;
        }
        let Some((stage, attempts)) = stages.get_mut(&sequence) else {
            assert!(!marked, "54: a remote call has no marker");
            continue;
        };
        assert!(marked, "54: every event of a local call has the marker");
        assert_ne!(*stage, Stage::Over, "14: nothing after the end");
        match event.event_type {
            "ActivityStarted" => {
                assert_eq!(*stage, Stage::Pending, "5.3: one attempt at a time");
                *attempts += 1;
                assert_eq!(
                    body["attempt_number"], *attempts,
                    "36: attempts are numbered"
                );
                *stage = Stage::Running;
            }
            "ActivityHeartbeatRecorded" => assert_eq!(*stage, Stage::Running),
            "ActivityRetryScheduled" => {
                assert_eq!(*stage, Stage::Running, "5.3: a retry follows an attempt");
                *stage = Stage::Pending;
            }
            "ActivityCompleted" | "ActivityFailed" => {
                assert_eq!(*stage, Stage::Running, "5.3: an attempt ends the call");
                *stage = Stage::Over;
            }
            _ => *stage = Stage::Over,
        }
    }
}
