//! No wake is lost: everything that the workflow must look at has a task or waits for one, and everything due has an alarm.

use longhaul_engine::Moment;
use longhaul_engine::change::{TaskKind, TaskStatus};
use longhaul_engine::run::health::stuck;
use longhaul_engine::run::state::{Part, PartKey, Run, TimerKind};
use longhaul_protocol::Timestamp;

use super::events;
use crate::world::World;

pub(super) fn check(world: &World, run: &Run) {
    check_alarm(world, run);
    check_audit(world, run);
    if run.core.closed.is_some() {
        return;
    }
    let task = run.core.workflow_task.as_ref();
    let leased = task.is_some_and(|task| task.lease.is_some());
    let update_turn = task.is_some_and(|task| task.resume.workflow_update_id.is_some());
    assert!(
        run.core.next_wake.is_none() || leased || update_turn,
        "25: a wake waits only behind a lease or an update's turn"
    );
    let waiting = task.is_some()
        || run.core.cancellation.is_some()
        || run.parts.keys().any(|key| {
            matches!(
                key,
                PartKey::Activity(_)
                    | PartKey::LocalActivity(_)
                    | PartKey::Timer(_)
                    | PartKey::Wait(_)
                    | PartKey::Child(_)
                    | PartKey::Update(_)
                    | PartKey::Outbox(_)
            )
        });
    // A worker that has seen everything and sends no commands leaves the run to signals and operators. Updates that were handled
    // since do not change that.
    let asked_for_nothing = events(world, run)
        .filter(|(event, _)| event.sequence > run.core.handled_sequence)
        .all(|(event, _)| event.event_type.starts_with("Update"));
    assert!(
        waiting || asked_for_nothing,
        "28: an open run waits for something"
    );
    if task.is_none() {
        let update = run
            .parts
            .keys()
            .any(|key| matches!(key, PartKey::Update(_)));
        assert!(!update, "25: a pending update has its turn");
        check_delivery_goes_on(run);
    }
    check_no_lost_wake(world, run, update_turn);
}

/// Checks that the audit does not change a run whose alarm is not overdue: it would find nothing but a bug.
fn check_audit(world: &World, run: &Run) {
    let moment = Moment {
        now: world.now,
        entropy: 0,
        limits: &world.limits,
    };
    if run.core.alarm.is_none_or(|alarm| alarm > world.now) {
        assert_eq!(
            stuck(run, moment),
            None,
            "55: the audit does not change a healthy run"
        );
    }
}

/// Checks that a cancellation that has not reached the code waits only for work that was asked to stop.
fn check_delivery_goes_on(run: &Run) {
    let undelivered = run.core.cancellation.as_ref();
    if undelivered.is_none_or(|asked| asked.delivered.is_some()) {
        return;
    }
    let stopping = run.parts.values().any(|part| match part {
        Part::Activity(activity) => {
            let attempt = activity.attempt.as_ref();
            activity.stop_requested
                && attempt.is_some_and(|attempt| attempt.lease_expires_at.is_some())
        }
        Part::Child(child) => child.stop_requested,
        _ => false,
    });
    assert!(stopping, "56: an undelivered cancellation has a task");
}

/// Checks that a resolution that no completed task has observed has a task, or waits behind the lease.
fn check_no_lost_wake(world: &World, run: &Run, update_turn: bool) {
    let task = run.core.workflow_task.as_ref();
    let lease = task.and_then(|task| task.lease.as_ref());
    if task.is_some() && lease.is_none() && !update_turn {
        return;
    }
    // A plain lease covers everything it observed; the turn of an update covers nothing.
    let observed = match lease {
        Some(lease) if !update_turn => lease.observed_sequence,
        _ => run.core.handled_sequence,
    };
    // A failed group ignores signals until all members have ended.
    let mute = run
        .parts
        .values()
        .any(|part| matches!(part, Part::Group(group) if group.failed && group.unresolved > 0));
    // An undelivered request makes the worker return without a decision until its work has stopped; everything it saw then counts
    // as seen.
    if run.core.cancellation.is_some() {
        return;
    }
    let unseen = events(world, run)
        .filter(|(event, _)| event.sequence > observed)
        .find(|(event, body)| {
            let grouped = body.get("parallel_group_path").is_some();
            let internal_cause = event.workflow_task_id.is_some();
            let wakes = match event.event_type {
                "ActivityCompleted" | "ActivityFailed" | "ActivityTimedOut" | "TimerFired"
                | "ChildRunCompleted" | "ChildRunFailed" | "ChildRunCancelled"
                | "ChildRunTerminated" => !grouped,
                "SignalReceived" => !mute,
                "SelectionResolved" | "WorkflowStarted" => true,
                _ => false,
            };
            wakes && !internal_cause
        });
    if let Some((event, _)) = unseen {
        assert!(
            run.core.next_wake.is_some(),
            "25: {} at {} waits for a task",
            event.event_type,
            event.sequence
        );
    }
}

/// Checks that the alarm is never later than the first due time.
fn check_alarm(world: &World, run: &Run) {
    let mut due: Vec<Timestamp> = Vec::new();
    for part in run.parts.values() {
        if let Part::Outbox(message) = part {
            due.push(message.retry_at);
        }
    }
    if run.core.closed.is_some() {
        assert_eq!(
            run.core.alarm,
            due.into_iter().min(),
            "30: a closed run has only outbox messages to send"
        );
        return;
    }
    due.extend(
        [run.spec.run_deadline_at, run.spec.execution_deadline_at]
            .into_iter()
            .flatten(),
    );
    let cancellation = run.core.cancellation.as_ref();
    due.extend(cancellation.map(|asked| asked.cleanup_deadline_at));
    let task = run.core.workflow_task.as_ref();
    let lease = task.and_then(|task| task.lease.as_ref());
    due.extend(lease.map(|lease| lease.expires_at));
    if lease.is_none() {
        due.extend(
            task.filter(|task| task.offered)
                .and_then(|task| task.held.as_ref())
                .map(|held| held.until),
        );
    }
    for part in run.parts.values() {
        match part {
            Part::Activity(activity) => {
                due.extend(activity.schedule_to_close_deadline_at);
                match &activity.attempt {
                    Some(attempt) => due.extend(
                        [
                            attempt.lease_expires_at,
                            attempt.close_deadline_at,
                            attempt.heartbeat_deadline_at,
                        ]
                        .into_iter()
                        .flatten(),
                    ),
                    None => due.extend(activity.schedule_deadline_at),
                }
            }
            Part::LocalActivity(local) => {
                due.extend(local.schedule_to_close_deadline_at);
                if let Some(attempt) = &local.attempt {
                    due.extend(attempt.close_deadline_at);
                    due.extend(attempt.heartbeat_deadline_at);
                }
            }
            Part::Timer(timer) if timer.kind == TimerKind::Plain || lease.is_none() => {
                due.push(timer.fire_at)
            }
            _ => {}
        }
    }
    let later = world
        .tasks
        .values()
        .filter(|row| row.run_id == *run.run_id() && row.status == TaskStatus::Scheduled)
        // A retry of a local activity waits for the end of a lease.
        .filter(|row| lease.is_none() || row.kind != TaskKind::Workflow);
    due.extend(later.map(|row| row.available_at));
    if let Some(first) = due.into_iter().min() {
        assert!(
            run.core.alarm.is_some_and(|alarm| alarm <= first),
            "30: the alarm {:?} is not later than {first}",
            run.core.alarm
        );
    }
}
