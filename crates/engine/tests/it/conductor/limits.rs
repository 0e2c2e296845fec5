//! Limits of task definitions as tasks carry them, and logs of tasks.

use longhaul_engine::Rejection;
use longhaul_engine::change::LogLine;
use longhaul_engine::command::{AddTaskLog, UpdateExecutionTask};
use longhaul_engine::conductor::execution::command::log::NewLog;
use longhaul_engine::conductor::execution::command::update::{Output, Report, TaskTarget};
use longhaul_engine::conductor::execution::view::{part_for_tasks, unloaded};
use longhaul_engine::queue::StartLimits;
use longhaul_protocol::Timestamp;
use longhaul_protocol::conductor::ResultStatus;
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use super::world::{World, members, simple, with};

fn limited() -> World {
    let again = with(simple("a"), json!({"taskReferenceName": "again"}));
    let mut world = World::with_tasks(json!([simple("a"), again]));
    world.task_def(json!({
        "name": "a", "concurrentExecLimit": 2, "rateLimitPerFrequency": 5, "rateLimitFrequencyInSeconds": 10,
        "retryCount": 1, "retryDelaySeconds": 0,
    }));
    world
}

fn completed(logs: Vec<NewLog>) -> Report {
    Report::Status {
        status: ResultStatus::Completed,
        output: Output::Replace(members(json!({}))),
        reason: None,
        worker_id: Some("w1".to_owned()),
        callback_after_seconds: 0,
        logs,
    }
}

fn line(text: &str, created_at: Option<Timestamp>) -> NewLog {
    NewLog {
        text: text.to_owned(),
        created_at,
    }
}

fn log(world: &World, run: &RunId, reference: &str) -> Vec<String> {
    let task = world.task(run, reference).seq;
    let lines = world.logs.range((run.clone(), task, 0)..);
    lines
        .take_while(|((of, number, _), _)| of == run && *number == task)
        .map(|(_, line)| line.text.clone())
        .collect()
}

#[test]
fn a_task_keeps_the_limits_that_it_was_scheduled_with() {
    let mut world = limited();
    let run = world.start("w", json!({}));
    let limits = Some(StartLimits {
        in_progress: 2,
        starts: 5,
        window_seconds: 10,
    });
    let row = |world: &World, reference: &str| {
        let id = world.task(&run, reference).id.clone();
        world.rows[&id].clone()
    };
    assert_eq!(row(&world, "a").start_limits, limits);
    assert_eq!(row(&world, "a").started_at, None);
    world.task_def(json!({"name": "a"}));
    world.wait_seconds(3);
    world.poll("a", "w1").unwrap();
    let leased = row(&world, "a");
    assert_eq!(
        (leased.start_limits, leased.started_at),
        (limits, Some(world.now))
    );
    let record = world.record(&run, "a");
    assert_eq!(record["rateLimitPerFrequency"], 5);
    assert_eq!(record["rateLimitFrequencyInSeconds"], 10);
    // The next attempt has the same snapshot.
    world.fail(&run, "a", "no");
    let attempt = row(&world, "a");
    assert_eq!((attempt.start_limits, attempt.started_at), (limits, None));
}

#[test]
fn a_report_takes_no_task_with_limits() {
    let mut world = limited();
    let run = world.start("w", json!({}));
    world.poll("a", "w1").unwrap();
    let update = UpdateExecutionTask {
        target: TaskTarget::Reference("a".to_owned()),
        report: completed(Vec::new()),
        takes_next: true,
    };
    let updated = world.act(&run, &update).unwrap();
    assert_eq!((updated.next, updated.task_type.as_str()), (None, "a"));
    assert_eq!(world.trace(&run), "a C, again S");
}

#[test]
fn a_report_takes_only_a_task_that_it_schedules() {
    // The other branch is ready before; it is in the queue, where older tasks of other runs may be too.
    let task = |reference: &str| with(simple("a"), json!({"taskReferenceName": reference}));
    let mut world = World::with_tasks(json!([
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN",
            "forkTasks": [[task("one"), task("two")], [task("other")]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["two", "other"]},
    ]));
    let run = world.start("w", json!({}));
    let update = |reference: &str| UpdateExecutionTask {
        target: TaskTarget::Reference(reference.to_owned()),
        report: completed(Vec::new()),
        takes_next: true,
    };
    let updated = world.act(&run, &update("one")).unwrap();
    let two = world.task(&run, "two").seq;
    assert_eq!(updated.next, Some(two));
    let updated = world.act(&run, &update("two")).unwrap();
    assert_eq!(updated.next, None);
}

#[test]
fn logs_are_written_with_the_report() {
    let mut world = World::with_tasks(json!([simple("a"), simple("b")]));
    let run = world.start("w", json!({}));
    let early = world.now;
    world.wait_seconds(5);
    let mut logs = vec![line("one", Some(early)), line("two", None)];
    logs.extend((3..=12).map(|number| line(&number.to_string(), None)));
    let target = TaskTarget::Reference("a".to_owned());
    world.update(&run, target, completed(logs)).unwrap();
    // The rest of a report with very many lines is dropped.
    let expected = ["one", "two", "3", "4", "5", "6", "7", "8", "9", "10"];
    assert_eq!(log(&world, &run, "a"), expected);
    let times: Vec<Timestamp> = world.logs.values().map(|line| line.created_at).collect();
    assert_eq!(times[..2], [early, world.now]);
    // A report on a task that has ended adds nothing.
    let task = world.task(&run, "a").clone();
    let target = TaskTarget::Id {
        task_id: task.id.clone(),
        seq: task.seq,
    };
    let late = completed(vec![line("late", None)]);
    world.update(&run, target, late).unwrap();
    assert_eq!(log(&world, &run, "a").len(), 10);
}

#[test]
fn a_line_is_added_to_any_task_of_the_run() {
    let mut world = World::with_tasks(json!([simple("a")]));
    let run = world.start("w", json!({}));
    let add = |world: &mut World, text: &str| {
        let task = world.task(&run, "a").clone();
        let command = AddTaskLog {
            task_id: task.id.clone(),
            seq: task.seq,
            log: line(text, None),
        };
        world.act(&run, &command).unwrap();
    };
    add(&mut world, "waiting");
    world.complete(&run, "a", json!({}));
    add(&mut world, "after the end");
    assert_eq!(world.status(&run), "COMPLETED");
    assert_eq!(log(&world, &run, "a"), ["waiting", "after the end"]);
    let events = world.events[&run].len();
    // The newest lines are kept.
    for number in 0..1000 {
        add(&mut world, &number.to_string());
    }
    let kept = log(&world, &run, "a");
    assert_eq!((kept.len(), kept[0].as_str()), (1000, "0"));
    assert_eq!(world.events[&run].len(), events, "a log is no history");
    let unknown = AddTaskLog {
        task_id: "another".into(),
        seq: 1,
        log: line("x", None),
    };
    assert_eq!(
        world.act(&run, &unknown),
        Err(Rejection::TaskNotFound),
        "the number of a task is not enough"
    );
}

#[test]
fn a_record_of_one_task_needs_its_values_only() {
    let mut world = World::with_tasks(json!([
        simple("a"),
        with(
            simple("b"),
            json!({"inputParameters": {"big": "${a.output.big}"}})
        ),
    ]));
    let run = world.start("w", json!({"big": "x".repeat(5000)}));
    world.complete(&run, "a", json!({"big": "y".repeat(5000)}));
    let whole = &world.runs[&run];
    assert_eq!(unloaded(whole, true).len(), 3);
    let (part, values) = part_for_tasks(whole, &[2]);
    assert_eq!(values.len(), 1, "its input");
    assert!(part.task(2).is_some() && part.task(1).is_none());
    let (_, values) = part_for_tasks(whole, &[1]);
    assert_eq!(values.len(), 1, "the output of the other");
}

#[test]
fn a_record_of_an_open_join_needs_the_outputs_of_its_tasks() {
    let mut world = World::with_tasks(json!([
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[simple("a")], [simple("b")]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["a", "b"]},
    ]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"big": "y".repeat(5000)}));
    let join = world.task(&run, "j").seq;
    let (part, values) = part_for_tasks(&world.runs[&run], &[join]);
    assert_eq!(values.len(), 1);
    assert!(part.task(join).is_some());
    let record: Value = world.record(&run, "j");
    assert!(record["outputData"]["a"].is_object());
}

/// Keeps the lines of logs as a store does.
pub(super) fn keep(
    logs: &mut std::collections::BTreeMap<(RunId, u64, u64), LogLine>,
    run_id: &RunId,
    change: Vec<(longhaul_engine::change::LogKey, Option<LogLine>)>,
) {
    for (key, line) in change {
        let place = (run_id.clone(), key.task, key.line);
        match line {
            Some(line) => logs.insert(place, line),
            None => logs.remove(&place),
        };
    }
}
