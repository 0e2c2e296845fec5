//! Random commits, some of them deliberately wrong, on the model and on SQLite: the same ones succeed, and afterwards every read
//! returns the same. SQLite gets them without waiting for results, so that they share batches. PostgreSQL gets them both ways; if it
//! does not wait, only commits of one run keep their order, so they are all of one run.

use std::sync::Arc;

use longhaul_engine::change::{
    Changes, InstanceChange, LogKey, LogLine, RunChange, TaskKind, TaskRow, TaskStatus,
};
use longhaul_engine::run::state::{ClosedReason, PartKey, Run, Status};
use longhaul_store::conformance::compare::{Universe, assert_same};
use longhaul_store::conformance::fixture::{
    at, close, command, next, push_event, spec, start, task, timer,
};
use longhaul_store::conformance::registry::worker;
use longhaul_store::memory::Memory;
use longhaul_store::{
    DocumentChange, DocumentKey, Error, NamespaceRow, Record, Registry as _, RunStore as _, Store,
    WorkerRow, document,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const NAMESPACES: [&str; 2] = ["default", "elsewhere"];
const WORKFLOWS: [&str; 3] = ["u", "v", "w"];
const TYPES: [&str; 2] = ["order", "refund"];
const QUEUES: [&str; 2] = ["orders", "refunds"];
const WORKERS: [&str; 2] = ["worker-1", "worker-2"];
const REQUESTS: [&str; 3] = ["r1", "r2", "r3"];
const RUNS_PER_WORKFLOW: u64 = 3;
const TASKS: usize = 8;
const ALARM_SECONDS: i64 = 6;

#[derive(Clone, Debug)]
enum Op {
    Start {
        which: Which,
        workflow_type: &'static str,
        seconds: i64,
        rows: Rows,
    },
    Step {
        which: Which,
        version: Version,
        rows: Rows,
    },
    Continue {
        which: Which,
        version: Version,
        rows: Rows,
    },
    CreateNamespace(&'static str),
    UpdateNamespace(&'static str, u32),
    PutWorker {
        namespace: &'static str,
        worker: &'static str,
        heartbeat: i64,
    },
    DeleteWorker {
        namespace: &'static str,
        worker: &'static str,
    },
    /// Wait for all results so far.
    Settle,
}

#[derive(Clone, Debug)]
struct Which {
    namespace: &'static str,
    workflow: &'static str,
    number: u64,
}

/// The version that the change is based on.
#[derive(Clone, Copy, Debug)]
enum Version {
    Right,
    Wrong(u64),
    New,
}

#[derive(Clone, Debug)]
struct Rows {
    events: usize,
    /// The number of the first event is already used.
    repeats_event: bool,
    status: Status,
    close: Option<ClosedReason>,
    alarm: Option<i64>,
    parts: Vec<(u64, Option<u64>)>,
    tasks: Vec<(
        usize,
        TaskStatus,
        TaskKind,
        &'static str,
        u8,
        i64,
        &'static str,
    )>,
    commands: Vec<(u64, Option<&'static str>)>,
    deleted: Vec<u64>,
}

fn which() -> impl Strategy<Value = Which> {
    (
        select(&NAMESPACES[..]),
        select(&WORKFLOWS[..]),
        1..=RUNS_PER_WORKFLOW,
    )
        .prop_map(|(namespace, workflow, number)| Which {
            namespace,
            workflow,
            number,
        })
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![12 => Just(Version::Right), 2 => (0..6_u64).prop_map(Version::Wrong), 1 => Just(Version::New)]
}

fn rows() -> impl Strategy<Value = Rows> {
    use TaskStatus::{Cancelled, Completed, Failed, Leased, Ready, Scheduled};
    let statuses = select(&[Status::Pending, Status::Running, Status::Waiting][..]);
    let reasons = select(
        &[
            ClosedReason::Completed,
            ClosedReason::Continued,
            ClosedReason::Failed,
            ClosedReason::TimedOut,
            ClosedReason::Cancelled,
            ClosedReason::Terminated,
        ][..],
    );
    let tasks = (
        0..TASKS,
        select(
            &[
                Scheduled, Ready, Ready, Leased, Leased, Completed, Failed, Cancelled,
            ][..],
        ),
        select(&[TaskKind::Workflow, TaskKind::Activity][..]),
        select(&QUEUES[..]),
        0..3_u8,
        0..3_i64,
        select(&WORKERS[..]),
    );
    (
        0..4_usize,
        prop::bool::weighted(0.03),
        statuses,
        prop::option::weighted(0.2, reasons),
        prop::option::of(0..ALARM_SECONDS),
        prop::collection::vec((0..4_u64, prop::option::of(0..9_u64)), 0..4),
        prop::collection::vec(tasks, 0..4),
        prop::collection::vec(
            (1..5_u64, prop::option::weighted(0.5, select(&REQUESTS[..]))),
            0..2,
        ),
        prop::collection::vec(1..5_u64, 0..2),
    )
        .prop_map(
            |(events, repeats_event, status, close, alarm, parts, tasks, commands, deleted)| Rows {
                events,
                repeats_event,
                status,
                close,
                alarm,
                parts,
                tasks,
                commands,
                deleted,
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let registry = (select(&NAMESPACES[..]), select(&WORKERS[..]));
    prop_oneof![
        6 => (which(), select(&TYPES[..]), 0..3_i64, rows())
            .prop_map(|(which, workflow_type, seconds, rows)| Op::Start { which, workflow_type, seconds, rows }),
        20 => (which(), version(), rows()).prop_map(|(which, version, rows)| Op::Step { which, version, rows }),
        4 => (which(), version(), rows()).prop_map(|(which, version, rows)| Op::Continue { which, version, rows }),
        1 => select(&NAMESPACES[..]).prop_map(Op::CreateNamespace),
        1 => (select(&NAMESPACES[..]), 0..99_u32).prop_map(|(name, days)| Op::UpdateNamespace(name, days)),
        1 => (registry.clone(), 0..9_i64)
            .prop_map(|((namespace, worker), heartbeat)| Op::PutWorker { namespace, worker, heartbeat }),
        1 => registry.prop_map(|(namespace, worker)| Op::DeleteWorker { namespace, worker }),
        3 => Just(Op::Settle),
    ]
}

fn run_id(which: &Which) -> String {
    format!(
        "run-{}-{}-{}",
        which.namespace, which.workflow, which.number
    )
}

fn begin(which: &Which, workflow_type: &str, seconds: i64) -> RunChange {
    let mut spec = spec(which.workflow, which.number);
    spec.namespace = which.namespace.into();
    spec.run_id = run_id(which).into();
    spec.workflow_type = workflow_type.to_owned();
    spec.started_at = at(seconds);
    start(spec)
}

fn fill(change: &mut RunChange, rows: &Rows) {
    change.core.status = rows.status;
    change.core.alarm = rows.alarm.map(at);
    if rows.repeats_event && change.base_version.is_some() {
        let last = change.core.last_history_sequence.get();
        change.core.last_history_sequence = (last - 1).into();
        push_event(change, "Again");
    }
    (0..rows.events).for_each(|_| push_event(change, "Step"));
    if let Some(reason) = rows.close {
        close(change, reason);
    }
    change.parts = rows
        .parts
        .iter()
        .map(|(number, delay)| {
            delay.map_or((PartKey::Timer((*number).into()), None), |delay| {
                timer(*number, delay)
            })
        })
        .collect();
    change.tasks = rows
        .tasks
        .iter()
        .map(
            |(number, status, kind, queue, priority, available_at, owner)| {
                let mut row = task(change, &format!("task-{number}"), *status);
                row.lease_owner = row.lease_owner.map(|_| (*owner).into());
                TaskRow {
                    kind: *kind,
                    queue: (*queue).into(),
                    priority: *priority,
                    available_at: at(*available_at),
                    ..row
                }
            },
        )
        .collect();
    change.deleted_commands = rows.deleted.iter().map(|number| (*number).into()).collect();
    change.commands = rows
        .commands
        .iter()
        .map(|(sequence, request)| command(*sequence, *request))
        .collect();
    let key = |line: u64| LogKey { task: 1, line };
    let line = |number: u64| LogLine {
        created_at: at(number.cast_signed()),
        text: format!("line {number}"),
    };
    let written = change.commands.iter().map(|command| command.sequence.get());
    let deleted = change.deleted_commands.iter().map(|number| number.get());
    change.logs = deleted
        .map(|number| (key(number), None))
        .chain(written.map(|number| (key(number), Some(line(number)))))
        .collect();
}

fn step(run: &Run, version: Version, rows: &Rows) -> RunChange {
    let mut change = next(run);
    fill(&mut change, rows);
    match version {
        Version::Right => {}
        Version::Wrong(version) => change.base_version = Some(version),
        Version::New => {
            change.base_version = None;
            change.instance = Some(InstanceChange::Create);
        }
    }
    change
}

/// Returns the changes to commit, or `None` if there is no run to change.
async fn changes(model: &Memory, op: &Op) -> Option<Changes> {
    match op {
        Op::Start {
            which,
            workflow_type,
            seconds,
            rows,
        } => {
            let mut change = begin(which, workflow_type, *seconds);
            fill(&mut change, rows);
            Some(Changes {
                run: None,
                created: vec![change],
                ..Changes::default()
            })
        }
        Op::Step {
            which,
            version,
            rows,
        } => {
            let run = model.run(&run_id(which).into()).await.unwrap()?;
            Some(Changes {
                run: Some(Box::new(step(&run, *version, rows))),
                created: Vec::new(),
                ..Changes::default()
            })
        }
        Op::Continue {
            which,
            version,
            rows,
        } => {
            let run = model.run(&run_id(which).into()).await.unwrap()?;
            let mut change = step(&run, *version, rows);
            if rows.close.is_none() {
                close(&mut change, ClosedReason::Continued);
            }
            let onward = Which {
                number: which.number + 1,
                ..which.clone()
            };
            Some(Changes {
                run: Some(Box::new(change)),
                created: vec![begin(&onward, "order", 1)],
                ..Changes::default()
            })
        }
        Op::CreateNamespace(name) => {
            let row = namespace(name, None);
            let change = DocumentChange::create(document::key_of(&row), text(&row), at(0));
            Some(Changes::of_documents(vec![change]))
        }
        Op::UpdateNamespace(name, days) => {
            let row = namespace(name, Some(*days));
            let key = document::key_of(&row);
            let base = version_of(model, &key).await.unwrap_or(7);
            let change = DocumentChange::replace(key, base, text(&row));
            Some(Changes::of_documents(vec![change]))
        }
        Op::PutWorker {
            namespace,
            worker: worker_id,
            heartbeat,
        } => {
            let mut row = worker(namespace, worker_id);
            row.last_heartbeat_at = at(*heartbeat);
            let key = document::key_of(&row);
            let change = match version_of(model, &key).await {
                Some(base) => DocumentChange::replace(key, base, text(&row)),
                None => DocumentChange::create(key, text(&row), at(*heartbeat)),
            };
            Some(Changes::of_documents(vec![change]))
        }
        Op::DeleteWorker { namespace, worker } => {
            let key = document::key::<WorkerRow>(namespace, worker, "");
            let base = version_of(model, &key).await.unwrap_or(7);
            let change = DocumentChange::delete(key, base);
            Some(Changes::of_documents(vec![change]))
        }
        Op::Settle => None,
    }
}

fn namespace(name: &str, days: Option<u32>) -> NamespaceRow {
    NamespaceRow {
        name: name.into(),
        description: None,
        retention_days: days,
        created_at: at(0),
        updated_at: at(0),
    }
}

fn text<R: Record>(record: &R) -> String {
    serde_json::to_string(record).unwrap()
}

async fn version_of(model: &Memory, key: &DocumentKey) -> Option<u64> {
    let stored = model.document(key).await.unwrap();
    stored.map(|document| document.version)
}

fn outcome(result: Result<(), Error>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(Error::Conflict) => "conflict",
        Err(Error::Corrupt(_)) => "corrupt",
        Err(
            Error::CapReached(_)
            | Error::Unavailable(_)
            | Error::Damaged(_)
            | Error::NewerSchema(_)
            | Error::Settings(_),
        ) => "failed",
    }
}

/// Commits random changes to a store, some of which are refused. They are always the same ones.
pub(crate) async fn write_some(store: &dyn Store) {
    let mut runner = TestRunner::deterministic();
    let ops = prop::collection::vec(op(), 200);
    let ops = ops.new_tree(&mut runner).unwrap().current();
    check(&ops, &Memory::new(), store, Pace::OneByOne).await;
}

pub(crate) fn universe() -> Universe {
    let mut run_ids = Vec::new();
    for namespace in NAMESPACES {
        for workflow in WORKFLOWS {
            run_ids.extend((1..=RUNS_PER_WORKFLOW + 1).map(|number| {
                run_id(&Which {
                    namespace,
                    workflow,
                    number,
                })
                .into()
            }));
        }
    }
    Universe {
        namespaces: NAMESPACES.map(Into::into).into(),
        workflow_ids: WORKFLOWS.map(Into::into).into(),
        workflow_types: TYPES.map(Into::into).into(),
        run_ids,
        task_ids: (0..TASKS)
            .map(|number| format!("task-{number}").into())
            .collect(),
        queues: QUEUES.map(Into::into).into(),
        workers: WORKERS.map(Into::into).into(),
        request_ids: REQUESTS.map(Into::into).into(),
        alarm_seconds: (-1..=ALARM_SECONDS).collect(),
    }
}

/// Whether a store gets a commit before the one before it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Together,
    OneByOne,
}

async fn check(ops: &[Op], model: &Memory, store: &dyn Store, pace: Pace) {
    let mut waiting = Vec::new();
    for op in ops {
        let changes = changes(model, op).await.map(Arc::new);
        if let Some(changes) = changes {
            let expected = outcome(model.commit(Arc::clone(&changes)).await);
            // It takes its place when it is called.
            waiting.push((op, expected, store.commit(changes)));
        }
        if pace == Pace::OneByOne || matches!(op, Op::Settle) {
            for (op, expected, answer) in waiting.drain(..) {
                assert_eq!(outcome(answer.await), expected, "{op:?}");
            }
        }
    }
    for (op, expected, answer) in waiting {
        assert_eq!(outcome(answer.await), expected, "{op:?}");
    }
    assert_same(model, store, &universe()).await;
}

/// Takes a few seconds; `PROPTEST_CASES` sets more cases.
fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() {
        asked.cases
    } else {
        96
    };
    ProptestConfig { cases, ..asked }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn sqlite_behaves_like_the_model(ops in prop::collection::vec(op(), 1..80)) {
        let (sqlite, _directory) = crate::files::temporary();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(&ops, &Memory::new(), &*sqlite, Pace::Together));
    }
}

/// Returns the ops on the runs of one workflow, which keep their order in every store.
fn of_one_workflow(ops: &[Op]) -> Vec<Op> {
    let is_one = |which: &Which| which.namespace == NAMESPACES[0] && which.workflow == WORKFLOWS[0];
    let ops = ops.iter().filter(|op| match op {
        Op::Start { which, .. } | Op::Step { which, .. } => is_one(which) && which.number == 1,
        Op::Continue { .. } => false,
        Op::CreateNamespace(name) | Op::UpdateNamespace(name, _) => *name == NAMESPACES[0],
        Op::PutWorker { .. } | Op::DeleteWorker { .. } => true,
        Op::Settle => true,
    });
    ops.cloned().collect()
}

#[test]
fn postgres_behaves_like_the_model() {
    let ops = prop::collection::vec(op(), 1..80);
    crate::postgres::check_random(config().cases / 8, &ops, async |store, clear, ops| {
        for pace in [Pace::OneByOne, Pace::Together] {
            let ops = match pace {
                Pace::OneByOne => ops.clone(),
                Pace::Together => of_one_workflow(&ops),
            };
            clear();
            check(&ops, &Memory::new(), store, pace).await;
        }
    });
}
