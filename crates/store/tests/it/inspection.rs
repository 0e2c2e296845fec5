//! Checks of whole stores: a right one has no problem, and every kind of damage is found. Damage is made with SQL.

use std::collections::BTreeSet;
use std::path::Path;

use longhaul_store::inspection::{Finding, ProblemKind, Report, Totals, check};
use longhaul_store::postgres::Options;
use longhaul_store::{Error, StoreAddress};

use crate::decided::{Decided, fill};

/// Checks a store. Returns what was found and counted.
async fn inspect(address: &StoreAddress) -> (Vec<Finding>, Totals) {
    let mut findings = Vec::new();
    let mut report = |report: Report| {
        if let Report::Finding(finding) = report {
            findings.push(finding);
        }
    };
    let totals = check(address, &mut report).await.unwrap();
    assert_eq!(totals.problems, findings.len() as u64);
    (findings, totals)
}

fn kinds(findings: &[Finding]) -> BTreeSet<ProblemKind> {
    findings
        .iter()
        .map(|finding| finding.problem.kind)
        .collect()
}

/// One kind of damage.
struct Damage {
    /// Statements for SQLite and PostgreSQL. `OPEN`, `LEASED`, `COMPLETED`, `CONTINUED`, `PARENT`, `STOPPED` and
    /// `DEFINITION` are ids of runs.
    sqlite: &'static str,
    postgres: &'static str,
    expected: &'static [ProblemKind],
}

/// Returns a damage that one statement makes in both stores.
const fn both(sql: &'static str, expected: &'static [ProblemKind]) -> Damage {
    Damage {
        sqlite: sql,
        postgres: sql,
        expected,
    }
}

const DAMAGES: &[Damage] = {
    use ProblemKind::*;
    &[
        Damage {
            sqlite: "DROP INDEX runs_by_alarm",
            postgres: "DROP INDEX run_alarms_due",
            expected: &[SchemaDiffers],
        },
        Damage {
            sqlite: "ALTER TABLE task_logs RENAME TO logs",
            postgres: "ALTER TABLE task_logs DROP COLUMN created_at",
            expected: &[SchemaDiffers],
        },
        both("DROP TABLE requests", &[SchemaDiffers]),
        Damage {
            sqlite: "UPDATE runs SET state = '{' WHERE run_id = 'OPEN'",
            postgres: "UPDATE run_states SET state = '{' WHERE run_id = 'OPEN'",
            expected: &[UnreadableRow],
        },
        Damage {
            sqlite: "UPDATE runs SET state = CAST(x'ff7b' AS TEXT) WHERE run_id = 'OPEN'",
            postgres: "UPDATE run_specs SET body = 'no' WHERE run_id = 'OPEN'",
            expected: &[UnreadableRow],
        },
        both("UPDATE run_parts SET body = '{\"x\": 1}' WHERE part = 'timer:2'", &[UnreadableRow, OpenCountDiffers]),
        both("UPDATE run_parts SET part = 'wait:9' WHERE part = 'timer:2'", &[PartDiffers, OpenCountDiffers]),
        both("UPDATE events SET payload = '[' WHERE event_type = 'TimerScheduled'", &[UnreadableRow, HistoryDiffers]),
        Damage {
            sqlite: "DELETE FROM run_specs WHERE run_key = (SELECT run_key FROM runs WHERE run_id = 'COMPLETED')",
            postgres: "DELETE FROM run_specs WHERE run_id = 'COMPLETED'",
            expected: &[RowMissing],
        },
        both("DELETE FROM documents WHERE kind = 'snapshot'", &[RowMissing]),
        Damage {
            sqlite: "DELETE FROM runs WHERE run_id = 'COMPLETED'",
            postgres: "DELETE FROM runs WHERE run_id = 'COMPLETED'",
            expected: &[OrphanRow],
        },
        Damage {
            sqlite: "UPDATE requests SET workflow_id = 'another'",
            postgres: "UPDATE requests SET workflow_id = 'another'",
            expected: &[OrphanRow, RequestDiffers],
        },
        Damage {
            sqlite: "UPDATE runs SET version = 0 WHERE run_id = 'OPEN'",
            postgres: "UPDATE run_states SET version = 0 WHERE run_id = 'OPEN'",
            expected: &[VersionWrong],
        },
        both("UPDATE documents SET version = 0 WHERE kind = 'worker'", &[VersionWrong]),
        both("UPDATE runs SET list_status = 'failed', closed_at = 7 WHERE run_id = 'OPEN'", &[ListColumnDiffers]),
        both("UPDATE runs SET correlation_id = 'c-2' WHERE run_id = 'DEFINITION'", &[ListColumnDiffers]),
        both("DELETE FROM run_attributes WHERE name = 'Region'", &[AttributeIndexDiffers]),
        both("UPDATE run_attributes SET list_status = 'failed' WHERE name = 'Tags'", &[AttributeIndexDiffers]),
        Damage {
            sqlite: "UPDATE runs SET alarm = 7 WHERE run_id = 'OPEN'",
            postgres: "DELETE FROM run_alarms WHERE run_id = 'OPEN'",
            expected: &[AlarmDiffers],
        },
        Damage {
            sqlite: "UPDATE runs SET alarm = NULL, state = json_remove(state, '$.alarm') WHERE run_id = 'OPEN'",
            postgres: "DELETE FROM run_alarms WHERE run_id = 'OPEN';
                       UPDATE run_states SET alarm = NULL, state = (state::jsonb - 'alarm')::text WHERE run_id = 'OPEN'",
            expected: &[AlarmLate],
        },
        both("DELETE FROM events WHERE event_type = 'ActivityScheduled'", &[HistoryGap, HistoryDiffers, CallWrong]),
        Damage {
            sqlite: "DELETE FROM events WHERE event_type = 'SignalReceived' AND run_key = (SELECT run_key FROM runs WHERE run_id = 'OPEN')",
            postgres: "DELETE FROM events WHERE event_type = 'SignalReceived' AND run_id = 'OPEN'",
            expected: &[HistoryDiffers, SignalWrong],
        },
        both("UPDATE events SET id = 'same' WHERE event_type IN ('TimerScheduled', 'ActivityStarted')", &[EventIdRepeated]),
        both("UPDATE events SET id = 'same' WHERE event_type = 'WorkflowStarted'", &[EventIdRepeated]),
        both("UPDATE events SET recorded_at = 1 WHERE event_type = 'TimerScheduled'", &[EventTimeStepsBack]),
        both("UPDATE events SET event_type = 'StartRejected' WHERE event_type = 'StartAccepted'", &[StartEventWrong]),
        both("UPDATE events SET event_type = 'WorkflowCompletes' WHERE event_type = 'WorkflowCompleted'", &[TerminalEventWrong]),
        both("UPDATE events SET event_type = 'ExecutionBegan__' WHERE event_type = 'ExecutionStarted'", &[StartEventWrong]),
        both("UPDATE events SET event_type = 'WorkflowFailed', payload = payload || ' ' WHERE event_type = 'ActivityStarted'",
             &[TerminalEventWrong, EventAfterEnd]),
        both("UPDATE events SET event_type = 'ActivityScheduled' WHERE event_type = 'ActivityStarted'", &[CallWrong, HistoryDiffers]),
        Damage {
            sqlite: "UPDATE runs SET state = json_set(state, '$.status', 'completed') WHERE run_id = 'OPEN'",
            postgres: "UPDATE run_states SET state = jsonb_set(state::jsonb, '{status}', '\"completed\"')::text WHERE run_id = 'OPEN'",
            expected: &[StatusDiffers, ListColumnDiffers, AttributeIndexDiffers],
        },
        Damage {
            sqlite: "INSERT INTO run_parts SELECT run_key, 'timer:2', (SELECT body FROM run_parts WHERE part = 'timer:2')
                     FROM runs WHERE run_id = 'COMPLETED'",
            postgres: "INSERT INTO run_parts SELECT 'COMPLETED', 'timer:2', NULL, body FROM run_parts WHERE part = 'timer:2'",
            expected: &[OpenPartOfClosedRun, OpenCountDiffers],
        },
        both("DELETE FROM run_parts WHERE part = 'timer:2'", &[OpenCountDiffers]),
        both("DELETE FROM tasks WHERE status = 'leased' AND kind = 'activity'", &[TaskMissing]),
        Damage {
            sqlite: "UPDATE tasks SET status = 'ready', lease_owner = NULL, body = json_remove(json_set(body, '$.status', 'ready'), '$.lease_owner')
                     WHERE status = 'leased' AND kind = 'activity'",
            postgres: "UPDATE tasks SET status = 'ready', lease_owner = NULL,
                       body = (jsonb_set(body::jsonb, '{status}', '\"ready\"') - 'lease_owner')::text
                       WHERE status = 'leased' AND kind = 'activity'",
            expected: &[TaskDiffers],
        },
        Damage {
            sqlite: "UPDATE tasks SET status = 'ready', body = json_set(body, '$.status', 'ready')
                     WHERE status = 'completed' AND json_extract(body, '$.run_id') = 'COMPLETED'",
            postgres: "UPDATE tasks SET status = 'ready', body = jsonb_set(body::jsonb, '{status}', '\"ready\"')::text
                       WHERE status = 'completed' AND body::jsonb ->> 'run_id' = 'COMPLETED'",
            expected: &[OpenTaskOfClosedRun],
        },
        Damage {
            sqlite: "UPDATE tasks SET status = 'ready', body = json_set(body, '$.status', 'ready')
                     WHERE status = 'completed' AND json_extract(body, '$.run_id') = 'OPEN'",
            postgres: "UPDATE tasks SET status = 'ready', body = jsonb_set(body::jsonb, '{status}', '\"ready\"')::text
                       WHERE status = 'completed' AND body::jsonb ->> 'run_id' = 'OPEN'",
            expected: &[TaskUnknown],
        },
        both("UPDATE tasks SET queue = 'another', priority = 1 WHERE status = 'leased'", &[TaskColumnDiffers]),
        both("UPDATE tasks SET body = '' WHERE status = 'completed'", &[UnreadableRow]),
        Damage {
            sqlite: "UPDATE tasks SET body = json_remove(body, '$.lease_expires_at') WHERE status = 'leased' AND kind = 'workflow'",
            postgres: "UPDATE tasks SET body = (body::jsonb - 'lease_expires_at')::text WHERE status = 'leased' AND kind = 'workflow'",
            expected: &[LeaseIncomplete],
        },
        both("UPDATE commands SET sequence = 77 WHERE sequence = 2", &[CommandDiffers, RequestDiffers]),
        both("UPDATE commands SET body = '{}' WHERE sequence = 2", &[UnreadableRow, RequestDiffers]),
        both("DELETE FROM requests", &[RequestDiffers]),
        both("UPDATE requests SET sequence = 1", &[RequestDiffers]),
        both("UPDATE workflow_keys SET key = 'other'", &[KeyDiffers]),
        both("UPDATE workflow_keys SET workflow_type = 'other'", &[KeyDiffers]),
        both("DELETE FROM workflow_runs WHERE workflow_id = 'chain' AND run_number = 1", &[RunNumberWrong, ChainWrong, SignalWrong]),
        both("INSERT INTO workflow_runs SELECT namespace, 'open', 2, RUN FROM workflow_runs WHERE workflow_id = 'completed'",
             &[OpenRunNotCurrent]),
        Damage {
            sqlite: "UPDATE events SET payload = json_set(payload, '$.parallel_group_path',
                     json('[{\"parallel_group_base_sequence\": 1, \"parallel_group_index\": 0, \"parallel_group_size\": 1}]'))
                     WHERE event_type = 'ActivityStarted'",
            postgres: "UPDATE events SET payload = jsonb_set(payload::jsonb, '{parallel_group_path}',
                       '[{\"parallel_group_base_sequence\": 1, \"parallel_group_index\": 0, \"parallel_group_size\": 1}]')::text
                       WHERE event_type = 'ActivityStarted'",
            expected: &[GroupWrong, HistoryDiffers],
        },
        both("UPDATE events SET event_type = 'SelectionResolved', payload =
              '{\"selection_group_id\": \"g\", \"member_base_sequence\": 1, \"outcome\": \"failed\", \"resolution_event_id\": \"e\"}'
              WHERE event_type = 'ActivityStarted'", &[SelectionWrong, HistoryDiffers]),
        Damage {
            sqlite: "UPDATE commands SET body = json_set(body, '$.outcome', 'update_completed')
                     WHERE run_key = (SELECT run_key FROM runs WHERE run_id = 'STOPPED') AND sequence = 2",
            postgres: "UPDATE commands SET body = jsonb_set(body::jsonb, '{outcome}', '\"update_completed\"')::text
                       WHERE run_id = 'STOPPED' AND sequence = 2",
            expected: &[UpdateWrong],
        },
        both("DELETE FROM events WHERE event_type = 'UpdateCompleted'", &[UpdateWrong, HistoryDiffers]),
        Damage {
            sqlite: "DELETE FROM commands WHERE sequence = 3 AND run_key = (SELECT run_key FROM workflow_runs
                     WHERE workflow_id = 'chain' AND run_number = 2)",
            postgres: "DELETE FROM commands WHERE sequence = 3 AND run_id = (SELECT run_id FROM workflow_runs
                       WHERE workflow_id = 'chain' AND run_number = 2)",
            expected: &[UpdateWrong],
        },
        Damage {
            sqlite: "DELETE FROM commands WHERE sequence = 2 AND run_key = (SELECT run_key FROM runs WHERE run_id = 'CONTINUED')",
            postgres: "DELETE FROM commands WHERE sequence = 2 AND run_id = 'CONTINUED'",
            expected: &[SignalWrong],
        },
        Damage {
            sqlite: "UPDATE runs SET state = json_remove(state, '$.workflow_task') WHERE run_id = 'OPEN'",
            postgres: "UPDATE run_states SET state = (state::jsonb - 'workflow_task')::text WHERE run_id = 'OPEN'",
            expected: &[WakeLost, TaskUnknown],
        },
        Damage {
            sqlite: "UPDATE runs SET state = json_remove(state, '$.workflow_task') WHERE run_id = 'LEASED'",
            postgres: "UPDATE run_states SET state = (state::jsonb - 'workflow_task')::text WHERE run_id = 'LEASED'",
            expected: &[WakeLost, NothingOpen, TaskUnknown],
        },
        Damage {
            sqlite: "UPDATE runs SET state = json_set(state, '$.closed.continued_to', 'another') WHERE run_id = 'CONTINUED'",
            postgres: "UPDATE run_states SET state = jsonb_set(state::jsonb, '{closed,continued_to}', '\"another\"')::text
                       WHERE run_id = 'CONTINUED'",
            expected: &[ChainWrong, SignalWrong],
        },
        Damage {
            sqlite: "UPDATE run_specs SET body = json_set(body, '$.execution_deadline_at', '2030-01-01T00:00:00.000000Z')
                     WHERE run_key = (SELECT run_key FROM runs WHERE run_id = 'CONTINUED')",
            postgres: "UPDATE run_specs SET body = jsonb_set(body::jsonb, '{execution_deadline_at}', '\"2030-01-01T00:00:00.000000Z\"')::text
                       WHERE run_id = 'CONTINUED'",
            expected: &[ChainWrong],
        },
        Damage {
            sqlite: "UPDATE run_specs SET body = json_set(body, '$.parent.call_id', 'another')
                     WHERE json_extract(body, '$.parent.call_id') IS NOT NULL",
            postgres: "UPDATE run_specs SET body = jsonb_set(body::jsonb, '{parent,call_id}', '\"another\"')::text
                       WHERE body::jsonb -> 'parent' IS NOT NULL",
            expected: &[ParentWrong],
        },
        both("DELETE FROM run_parts WHERE part LIKE 'outbox:%'", &[ClosePolicyWrong]),
        both("UPDATE worker_sessions SET status = 'closed', deadline = NULL", &[SessionColumnDiffers]),
        both("UPDATE worker_sessions SET body = 'null'", &[UnreadableRow]),
        both("UPDATE documents SET name = 'another' WHERE kind = 'namespace'", &[DocumentKeyDiffers]),
        both("UPDATE documents SET kind = 'unknown' WHERE kind = 'namespace'", &[DocumentKeyDiffers]),
        both("UPDATE documents SET body = '[]' WHERE kind = 'worker'", &[UnreadableRow]),
    ]
};

/// Returns a statement with the ids of the runs.
fn named(sql: &str, ids: &Decided, run_column: &str) -> String {
    sql.replace("RUN FROM", &format!("{run_column} FROM"))
        .replace("'OPEN'", &format!("'{}'", ids.open))
        .replace("'LEASED'", &format!("'{}'", ids.leased))
        .replace("'COMPLETED'", &format!("'{}'", ids.completed))
        .replace("'CONTINUED'", &format!("'{}'", ids.continued))
        .replace("'PARENT'", &format!("'{}'", ids.parent))
        .replace("'STOPPED'", &format!("'{}'", ids.stopped))
        .replace("'DEFINITION'", &format!("'{}'", ids.definition))
}

fn run_sql(path: &Path, sql: &str) -> usize {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    usize::try_from(connection.total_changes()).unwrap()
}

#[tokio::test]
async fn every_damage_of_a_file_is_found() {
    let (store, directory) = crate::files::temporary();
    let ids = fill(&*store).await;
    drop(store);
    let path = directory.path().join("longhaul.db");
    let (findings, totals) = inspect(&StoreAddress::Sqlite(path.clone())).await;
    assert_eq!(findings, []);
    assert_eq!((totals.runs, totals.sessions), (9, 1));
    assert_eq!(totals.documents, 3);
    for (number, damage) in DAMAGES.iter().enumerate() {
        let damaged = directory.path().join(format!("{number}.db"));
        std::fs::copy(&path, &damaged).unwrap();
        let sql = named(damage.sqlite, &ids, "run_key");
        let changed = run_sql(&damaged, &sql);
        let is_of_schema = damage.expected == [ProblemKind::SchemaDiffers];
        assert!(changed > 0 || is_of_schema, "nothing changes: {sql}");
        let (findings, _) = inspect(&StoreAddress::Sqlite(damaged)).await;
        let expected: BTreeSet<ProblemKind> = damage.expected.iter().copied().collect();
        assert_eq!(kinds(&findings), expected, "{sql}: {findings:#?}");
    }
    // A page in the middle is lost.
    let mut bytes = std::fs::read(&path).unwrap();
    let page = bytes.len() / 4096 / 2 * 4096;
    bytes[page..page + 4096].fill(0);
    let damaged = directory.path().join("page.db");
    std::fs::write(&damaged, bytes).unwrap();
    let (findings, _) = inspect(&StoreAddress::Sqlite(damaged)).await;
    assert!(kinds(&findings).contains(&ProblemKind::FileDamaged));
}

#[tokio::test]
async fn every_damage_of_a_database_is_found() {
    let (store, source) = crate::files::temporary();
    let ids = fill(&*store).await;
    drop(store);
    let file = StoreAddress::Sqlite(source.path().join("longhaul.db"));
    let mut database = longhaul_test_postgres::shared().database();
    for damage in [None].into_iter().chain(DAMAGES.iter().map(Some)) {
        // A copied database is the quickest right one.
        let address = StoreAddress::Postgres(Box::new(Options::parse(database.url()).unwrap()));
        longhaul_store::transfer::copy(&file, &address, |_| {})
            .await
            .unwrap();
        let (sql, expected) = damage.map_or((String::new(), &[][..]), |damage| {
            (named(damage.postgres, &ids, "run_id"), damage.expected)
        });
        if !sql.is_empty() {
            database.sql(&sql);
        }
        let (findings, totals) = inspect(&address).await;
        let found: BTreeSet<ProblemKind> = kinds(&findings);
        assert_eq!(
            found,
            expected.iter().copied().collect(),
            "{sql}: {findings:#?}"
        );
        assert!(totals.runs == 9 || !findings.is_empty());
        if expected == [ProblemKind::SchemaDiffers] {
            database = longhaul_test_postgres::shared().database();
        } else {
            database.sql(&crate::postgres::truncate(&database));
        }
    }
}

#[tokio::test]
async fn a_finding_names_its_run_and_row() {
    let (store, directory) = crate::files::temporary();
    let ids = fill(&*store).await;
    let path = directory.path().join("longhaul.db");
    // Beside the server that has the file open.
    let sql = "UPDATE tasks SET queue = 'another' WHERE status = 'leased' AND kind = 'activity'";
    run_sql(&path, sql);
    let (findings, _) = inspect(&StoreAddress::Sqlite(path)).await;
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].run_id, Some(ids.open.to_string()));
    assert!(findings[0].row.starts_with("task "), "{findings:?}");
    assert!(findings[0].problem.detail.contains("tasks.queue"));
    drop(store);
}

/// The words are documented, because programs use them.
#[test]
fn every_kind_of_problem_is_documented() {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let page = documents.unwrap().join("docs/operating.md");
    let text = std::fs::read_to_string(page).unwrap();
    for kind in ProblemKind::ALL {
        assert!(text.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_checked_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("longhaul.db");
    let mut ignore = |_| {};
    let mut refusal = async |address: &StoreAddress| check(address, &mut ignore).await.unwrap_err();
    let missing = StoreAddress::Sqlite(path.clone());
    let error = refusal(&missing).await;
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(!path.exists());
    std::fs::write(&path, "this is not a database, but some text").unwrap();
    let error = refusal(&missing).await;
    assert!(matches!(error, Error::Damaged(_)), "{error}");
    std::fs::remove_file(&path).unwrap();
    run_sql(&path, "CREATE TABLE other (a TEXT)");
    let error = refusal(&missing).await;
    assert!(error.to_string().contains("earlier release"), "{error}");
    let database = longhaul_test_postgres::shared().database();
    let empty = StoreAddress::Postgres(Box::new(Options::parse(database.url()).unwrap()));
    let error = refusal(&empty).await;
    assert!(error.to_string().contains("no tables"), "{error}");
}
