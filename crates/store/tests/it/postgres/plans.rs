//! What statements read in a database with 100,000 runs. PostgreSQL counts the rows that its scans return, so a statement that has lost
//! its index is noticed, whatever its plan is. Each operation is repeated until its prepared statements have their generic plans.

use std::sync::Arc;

use longhaul_engine::Changes;
use longhaul_engine::change::{TaskKind, TaskStatus};
use longhaul_engine::queue::PollFilter;
use longhaul_engine::run::state::Program;
use longhaul_protocol::id::{RunId, WorkflowId};
use longhaul_protocol::sequence::HistorySeq;
use longhaul_store::conformance::executions::{definition_run, search};
use longhaul_store::conformance::fixture::{
    at, command, commit, namespace, next, push_event, spec, start, task, timer,
};
use longhaul_store::conformance::lists::all_runs;
use longhaul_store::conformance::visibility::{create, filter_by};
use longhaul_store::postgres::Postgres;
use longhaul_store::{
    CommandKey, DueLimits, LeaseFilter, Look, Page, PollId, QueueKey, RunFilter, RunStore as _,
    SessionFilter, SessionStore as _, Shared as _, StatusFilter, Store as _, TaskPlace,
    TaskStore as _, Wanted,
};
use longhaul_test_postgres::Database;
use serde_json::json;

use super::{open, temporary};

const RUNS: usize = 100_000;

/// PostgreSQL considers a generic plan after five custom ones.
const REPEATS: u64 = 8;

/// Rows that one operation may read, of tables and indexes. A page has 100 runs, and some are joined with two more tables. The smallest
/// table that a statement without its index reads has 10,000 rows.
const ROWS_MAX: u64 = 3_000;

/// Copies the rows of three runs (of code, of a definition, with attributes) until there are enough, and gives them work of all kinds.
const FILL: &str = "
    CREATE TEMP TABLE copies AS SELECT n, 'x-' || n AS id, 'run-x-' || n || '-1' AS run_id FROM generate_series(1, 100000) n;
    INSERT INTO runs SELECT c.run_id, r.namespace, c.id, 1, 'type-' || c.n % 100, 'queue-' || c.n % 50, 'key-' || c.n, NULL,
        r.started_at + c.n * 1000, CASE WHEN c.n % 10 = 0 THEN 'running' ELSE 'completed' END,
        CASE WHEN c.n % 10 > 0 THEN r.started_at + c.n * 2000 END, NULL, NULL
        FROM copies c, runs r WHERE r.run_id = 'run-code-1';
    INSERT INTO runs SELECT 'd-' || c.n, r.namespace, 'd-' || c.n, 1, 'flow-' || c.n % 100, '', NULL, NULL,
        r.started_at + c.n * 1000, CASE WHEN c.n % 10 = 0 THEN 'RUNNING' ELSE 'COMPLETED' END,
        CASE WHEN c.n % 10 > 0 THEN r.started_at + c.n * 2000 END, 'order-' || c.n % 20000, NULL
        FROM copies c, runs r WHERE r.run_id = 'definition';
    INSERT INTO run_states (run_id, version, list_status, closed_at, alarm, status, state, parts_version, parts_since)
        SELECT c.run_id, s.version, 'running', NULL, NULL, s.status, s.state, s.version, 1
        FROM copies c, run_states s WHERE s.run_id = 'run-code-1';
    INSERT INTO run_states SELECT 'd-' || c.n, s.version, s.list_status, s.closed_at, s.alarm, s.status, s.updated_at, s.definition,
        s.priority, s.created_by, s.idempotency_key, s.classifier, s.reason, s.failed_references, s.state, s.version, 1
        FROM copies c, run_states s WHERE s.run_id = 'definition';
    INSERT INTO run_specs SELECT c.run_id, s.body FROM copies c, run_specs s WHERE s.run_id = 'run-code-1';
    INSERT INTO workflow_runs SELECT 'default', c.id, 1, c.run_id FROM copies c;
    INSERT INTO run_parts (run_id, part, body, version)
        SELECT c.run_id, p.part, p.body, p.version FROM copies c, run_parts p WHERE p.run_id = 'run-code-1';
    INSERT INTO events SELECT c.run_id, e.sequence, c.run_id || e.id, e.event_type, e.recorded_at, NULL, NULL, NULL, e.payload
        FROM copies c, events e WHERE e.run_id = 'run-code-1';
    INSERT INTO commands SELECT c.run_id, k.sequence, k.body FROM copies c, commands k WHERE k.run_id = 'run-code-1';
    INSERT INTO requests SELECT 'default', c.id, 'request', c.run_id, 1 FROM copies c;
    INSERT INTO workflow_keys SELECT 'default', 'flow', 'key-' || c.n, c.run_id FROM copies c;
    INSERT INTO run_attributes SELECT c.run_id, a.name, a.kind, a.value || c.n % 1000, a.namespace, 'running', a.started_at + c.n * 1000
        FROM copies c, run_attributes a WHERE a.run_id = 'attributes' AND a.name = 'Region';
    INSERT INTO run_alarms SELECT c.run_id, 4000000000000000 + c.n FROM copies c WHERE c.n % 2 = 0;
    INSERT INTO run_alarms SELECT c.run_id, c.n FROM copies c WHERE c.n < 50 AND c.n % 2 = 1;
    INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, lease_owner, session_id, body, type_name, fairness_key)
        SELECT 'task-' || c.n, CASE WHEN c.n % 10 = 0 THEN 'ready' WHEN c.n % 10 = 1 THEN 'leased' ELSE 'completed' END,
        t.namespace, t.kind, 'queue-' || c.n % 20, t.priority, t.available_at + c.n, CASE WHEN c.n % 10 = 1 THEN 'worker-' || c.n % 5000 END,
        CASE WHEN c.n % 500 = 0 THEN 'session-' || c.n END,
        replace(t.body, '\"task_id\":\"task\"', '\"task_id\":\"task-' || c.n || '\"'), 'charge', CASE WHEN c.n % 3 = 0 THEN 'class-' || c.n % 30 END
        FROM copies c, tasks t WHERE t.task_id = 'task';
    INSERT INTO task_logs SELECT c.run_id, 1, 1, 0, '\"text\"' FROM copies c;
    ANALYZE";

/// Counts what one operation reads.
struct Counted<'d> {
    database: Database<'d>,
    problems: Vec<String>,
}

impl Counted<'_> {
    async fn filled() -> Counted<'static> {
        let (store, database) = temporary().await;
        let mut change = start(spec("code", 1));
        for _ in 0..3 {
            push_event(&mut change, "Step");
        }
        change.commands.push(command(1, Some("request")));
        change.parts.push(timer(1, 60));
        change
            .tasks
            .push(task(&change, "task", TaskStatus::Completed));
        commit(&*store, change).await.unwrap();
        commit(&*store, definition_run("definition", 1, json!({})))
            .await
            .unwrap();
        create(&*store, "attributes", 1, json!({"Region": "eu"})).await;
        drop(store);
        database.sql(FILL);
        Counted {
            database,
            problems: Vec::new(),
        }
    }

    /// Returns how many rows scans returned so far.
    fn rows_read(&self) -> u64 {
        let sum = "SELECT coalesce((SELECT sum(seq_tup_read) FROM pg_stat_user_tables), 0)
                        + coalesce((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes), 0)";
        self.database.sql(sum).trim().parse().unwrap()
    }

    /// Ends the sessions of the store. PostgreSQL adds up what a session read at its end at the latest.
    fn end_sessions(&self) {
        let others =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                      AND backend_type = 'client backend'";
        self.database.terminate_backends();
        while self.database.sql(others).trim() != "0" {}
    }

    async fn check(&mut self, name: &str, operation: impl AsyncFn(&Postgres)) {
        self.check_up_to(name, ROWS_MAX, operation).await;
    }

    async fn check_up_to(&mut self, name: &str, most: u64, operation: impl AsyncFn(&Postgres)) {
        let before = self.rows_read();
        let store = open(&self.database).await;
        for _ in 0..REPEATS {
            operation(&store).await;
        }
        drop(store);
        self.end_sessions();
        let each = (self.rows_read() - before) / REPEATS;
        if each > most {
            self.problems.push(format!("{name}: {each} rows"));
        }
    }
}

fn queue() -> QueueKey {
    QueueKey {
        namespace: namespace("default"),
        kind: TaskKind::Activity,
        queue: "queue-0".into(),
    }
}

fn run_id() -> RunId {
    "run-x-5000-1".into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_reads_many_of_100_000_runs() {
    let mut counted = Counted::filled().await;
    read_runs(&mut counted).await;
    list_runs(&mut counted).await;
    find_work(&mut counted).await;
    write(&mut counted).await;
    // The counters do count.
    let (found, all) = (counted.problems.len(), "a count of everything");
    counted
        .check(all, async |store| {
            let page = store.search_executions(&search("", "")).await.unwrap();
            assert!(page.total > RUNS as u64);
        })
        .await;
    assert_eq!(counted.problems.len(), found + 1, "{:?}", counted.problems);
    counted.problems.pop();
    assert!(counted.problems.is_empty(), "{:#?}", counted.problems);
}

async fn read_runs(counted: &mut Counted<'_>) {
    let default = namespace("default");
    counted
        .check("run", async |store| {
            let run = store.run(&run_id()).await.unwrap().unwrap();
            assert_eq!(run.parts.len(), 1);
        })
        .await;
    counted
        .check("instance", async |store| {
            let id = WorkflowId::from("x-5000");
            store.instance(&default, &id).await.unwrap().unwrap();
        })
        .await;
    counted
        .check("run by key", async |store| {
            let found = store.run_by_key(&default, "flow", "key-5000").await;
            assert_eq!(found.unwrap(), Some(run_id()));
        })
        .await;
    counted
        .check("history", async |store| {
            let id = run_id();
            let page = store.history(&id, HistorySeq::ZERO, HistorySeq::MAX, Page::of(100));
            assert_eq!(page.await.unwrap().len(), 4);
        })
        .await;
    counted
        .check("commands", async |store| {
            let page = store.commands(&run_id(), None, 10).await.unwrap();
            assert_eq!(page.total, 1);
        })
        .await;
    counted
        .check("command by request", async |store| {
            let id = WorkflowId::from("x-5000");
            let key = CommandKey::Request(&default, &id, "request");
            store.command(key).await.unwrap().unwrap();
        })
        .await;
    counted
        .check("task log", async |store| {
            assert_eq!(store.task_log(&run_id(), 1).await.unwrap().len(), 1);
        })
        .await;
}

async fn list_runs(counted: &mut Counted<'_>) {
    let of = |change: &dyn Fn(&mut RunFilter)| {
        let mut filter = all_runs();
        change(&mut filter);
        filter
    };
    for (name, filter) in [
        ("all", all_runs()),
        ("both programs", of(&|filter| filter.program = None)),
        (
            "definitions",
            of(&|filter| filter.program = Some(Program::Definition)),
        ),
        (
            "running",
            of(&|filter| filter.status = Some(StatusFilter::Running)),
        ),
        (
            "of a type",
            of(&|filter| filter.workflow_type = Some("type-7".to_owned())),
        ),
        (
            "completed of a type",
            of(&|filter| {
                filter.workflow_type = Some("type-7".to_owned());
                filter.status = Some(StatusFilter::Completed);
            }),
        ),
        (
            "a later page",
            of(&|filter| filter.after = Some((at(50), "run-x-50000-1".into()))),
        ),
        ("by an attribute", filter_by("Region = 'eu70'")),
        (
            "by an attribute and the status",
            filter_by("Region = 'eu70' AND Status = 'pending'"),
        ),
    ] {
        counted
            .check(&format!("list, {name}"), async |store| {
                let runs = store.list_runs(&filter).await.unwrap();
                assert!(!runs.is_empty(), "{name}");
            })
            .await;
    }
    // The total of a search is exact, so it reads all that match.
    for (query, most) in [
        ("correlationId = 'order-77'", ROWS_MAX),
        ("workflowType = 'flow-7' AND status = 'RUNNING'", ROWS_MAX),
        // PostgreSQL reads runs by their start until the page is full: one of 200 is of this type.
        ("workflowType = 'flow-7'", 40_000),
        ("workflowId = 'd-777'", ROWS_MAX),
    ] {
        counted
            .check_up_to(&format!("search, {query}"), most, async |store| {
                store.search_executions(&search(query, "")).await.unwrap();
            })
            .await;
    }
}

async fn find_work(counted: &mut Counted<'_>) {
    let default = namespace("default");
    counted
        .check("due", async |store| {
            let due = store.due(at(0), DueLimits::runs(10)).await.unwrap();
            assert_eq!(due.runs.len(), 10);
            assert!(due.next.is_some());
        })
        .await;
    counted
        .check("taking what is due", async |store| {
            store
                .take_due(at(0), DueLimits::runs(10), at(1))
                .await
                .unwrap();
        })
        .await;
    counted
        .check("task", async |store| {
            store.task(&"task-5000".into()).await.unwrap().unwrap();
        })
        .await;
    counted
        .check("ready tasks", async |store| {
            let ready = store.ready_tasks(&queue(), TaskPlace::Anywhere, 100).await;
            assert_eq!(ready.unwrap().len(), 100);
        })
        .await;
    counted
        .check("queues with ready tasks", async |store| {
            assert_eq!(store.ready_queues().await.unwrap().len(), 2);
        })
        .await;
    counted
        .check("leases of a worker", async |store| {
            let filter = LeaseFilter {
                namespace: Some(default.clone()),
                owner: Some("worker-1".into()),
                queue: Some("queue-1".into()),
                kind: Some(TaskKind::Activity),
                session: None,
            };
            let leased = store.leased_tasks(&filter, 100).await.unwrap();
            assert_eq!(leased.len(), 20);
        })
        .await;
    counted
        .check("a look", async |store| {
            let look = Look {
                now: at(10),
                reserved_until: at(10),
                queues: vec![Wanted {
                    queue: queue(),
                    polls: vec![(PollFilter::any("w".into()), 10)],
                }],
                polls: vec![PollId {
                    queue: queue(),
                    worker_id: "w".into(),
                    request_id: "r".to_owned(),
                }],
                runs: vec![(run_id(), 1)],
                ..Look::default()
            };
            let found = store.look(&look).await.unwrap();
            assert_eq!(found.tasks.len(), 10);
        })
        .await;
    counted
        .check("sessions", async |store| {
            let filter = SessionFilter {
                namespace: default.clone(),
                status: None,
                queue: None,
                owner: None,
                after: None,
                limit: 100,
            };
            store.list_sessions(&filter).await.unwrap();
            store.prune_sessions(&default, at(0)).await.unwrap();
        })
        .await;
}

async fn write(counted: &mut Counted<'_>) {
    counted
        .check("a commit of a stored run", async |store| {
            let mut run = store.run(&run_id()).await.unwrap().unwrap();
            // The copies have the specification of the first run.
            let mut spec = spec("x-5000", 1);
            spec.run_id = run_id();
            run.spec = Arc::new(spec);
            let mut change = next(&run);
            push_event(&mut change, "Step");
            let changes = Changes {
                run: Some(Box::new(change)),
                ..Changes::default()
            };
            store.commit(Arc::new(changes)).await.unwrap();
        })
        .await;
    let number = std::sync::atomic::AtomicU64::new(0);
    counted
        .check("a commit of a new run", async |store| {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let change = start(spec(&format!("new-{number}"), 1));
            commit(store, change).await.unwrap();
        })
        .await;
}
