//! Searches for tasks of definition runs.

use longhaul_engine::RunChange;
use longhaul_engine::change::{TaskFacts, TaskKind, TaskRow, TaskStatus as RowStatus};
use longhaul_engine::run::state::{Part, PartKey, Run};
use longhaul_engine::visibility::execution::{free_text, parse_task_search, parse_task_sort};
use longhaul_protocol::conductor::TaskStatus;
use longhaul_protocol::id::RunId;
use serde_json::json;

use super::definition_run;
use crate::conformance::fixture::{advance, at, commit, create, load, namespace, next, part, task};
use crate::{Store, TaskPage, TaskResults, TaskSearch};

/// Returns the row of a task of a definition run.
fn found(change: &RunChange, number: u64, name: &str, status: TaskStatus) -> TaskRow {
    let id = format!("{}-{number}", change.spec.run_id);
    let execution = change.core.execution.as_ref().unwrap();
    let is_script = name == "INLINE";
    let started = (status != TaskStatus::Scheduled).then(|| at(10 * number.cast_signed()));
    TaskRow {
        kind: TaskKind::Execution,
        queue: name.into(),
        type_name: name.to_owned(),
        sequence: number.into(),
        found_by: Some(Box::new(TaskFacts {
            task_type: name.to_owned(),
            def_name: if is_script {
                "script".to_owned()
            } else {
                name.to_owned()
            },
            reference: format!("ref_{number}"),
            status,
            workflow_type: change.spec.workflow_type.clone(),
            correlation_id: execution.correlation_id.clone(),
            domain: is_script.then(|| "blue".to_owned()),
            scheduled_at: at(number.cast_signed()),
            started_at: started,
            ended_at: started.filter(|_| status.is_terminal()),
            updated_at: at(20 * number.cast_signed()),
        })),
        ..task(change, &id, RowStatus::Completed)
    }
}

/// Returns the record of a task, as the run keeps it.
fn record(row: &TaskRow) -> (PartKey, Option<Part>) {
    let facts = row.found_by.as_ref().unwrap();
    let mut record = serde_json::to_value(facts).unwrap();
    for (name, value) in [
        ("id", json!(row.task_id)),
        ("seq", json!(row.sequence)),
        ("first_scheduled_at", json!(facts.scheduled_at)),
        ("input", json!({"inline": {}})),
    ] {
        record[name] = value;
    }
    let number = row.sequence.get();
    if facts.status.is_terminal() {
        (PartKey::Past(number), Some(part(json!({"past": record}))))
    } else {
        (PartKey::Task(number), Some(part(json!({"task": record}))))
    }
}

/// Three definition runs with tasks, and a run of code with one that no search shows.
pub async fn fill(store: &dyn Store) {
    let code = create(store, "code").await;
    let mut change = next(&code);
    change.tasks = vec![task(&change, "code-task", RowStatus::Completed)];
    advance(store, &code, change).await;
    for (run, kind, correlation, tasks) in [
        (
            "a",
            "flow",
            json!("c-1"),
            vec![
                ("greet", TaskStatus::Completed),
                ("INLINE", TaskStatus::Failed),
            ],
        ),
        (
            "b",
            "flow",
            json!("c-2"),
            vec![("greet", TaskStatus::Scheduled)],
        ),
        (
            "c",
            "other",
            json!(null),
            vec![
                ("greet", TaskStatus::Completed),
                ("GREET", TaskStatus::InProgress),
                ("charge", TaskStatus::Failed),
            ],
        ),
    ] {
        let state = json!({"type": kind, "correlation_id": correlation});
        let mut change = definition_run(run, 1, state);
        change.tasks = (1..)
            .zip(tasks)
            .map(|(number, (name, status))| found(&change, number, name, status))
            .collect();
        change.parts.extend(change.tasks.iter().map(record));
        commit(store, change).await.unwrap();
    }
}

/// Returns a search for tasks.
pub fn search(query: &str, sort: &str) -> TaskSearch {
    let condition = match query.strip_prefix("text:") {
        Some(text) => free_text(text).unwrap(),
        None if query.is_empty() => None,
        None => Some(parse_task_search(query).unwrap_or_else(|error| panic!("{query}: {error}"))),
    };
    let order = if sort.is_empty() {
        Default::default()
    } else {
        parse_task_sort(sort).unwrap()
    };
    TaskSearch {
        namespace: namespace("default"),
        condition,
        order,
        offset: 0,
        limit: 100,
        results: TaskResults::Tasks,
    }
}

fn shown(page: &TaskPage) -> Vec<String> {
    let found = page.found.iter();
    found
        .map(|(run, number)| format!("{run}-{number}"))
        .collect()
}

async fn check(store: &dyn Store, query: &str, sort: &str, expected: &str) {
    let page = store.search_tasks(&search(query, sort)).await.unwrap();
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(shown(&page), expected, "{query} {sort}");
    assert_eq!(page.total, expected.len() as u64, "{query} {sort}");
}

pub async fn tasks_are_found_and_counted(store: &dyn Store) {
    fill(store).await;
    for (query, expected) in [
        ("", "c-3 c-2 a-2 c-1 a-1 b-1"),
        ("taskId = 'a-2'", "a-2"),
        ("taskType = greet", "c-1 a-1 b-1"),
        ("taskType IN (greet, 'charge')", "c-3 c-1 a-1 b-1"),
        ("taskType = 'G*'", "c-2 c-1 a-1 b-1"),
        ("taskType != greet", "c-3 c-2 a-2"),
        ("taskDefName = greet", "c-1 a-1 b-1"),
        ("taskDefName = script", "a-2"),
        (
            "taskDefName IN (script, greet) AND status = COMPLETED",
            "c-1 a-1",
        ),
        ("taskDefName = INLINE", ""),
        ("referenceTaskName = ref_2", "c-2 a-2"),
        ("workflowId = 'c'", "c-3 c-2 c-1"),
        ("workflowType = flow", "a-2 a-1 b-1"),
        ("workflowType = flow AND status = FAILED", "a-2"),
        ("correlationId = 'c-1'", "a-2 a-1"),
        ("correlationId IS null", "c-3 c-2 c-1"),
        ("correlationId STARTS_WITH 'c'", "a-2 a-1 b-1"),
        ("domain = blue", "a-2"),
        ("status IN (FAILED, SCHEDULED)", "c-3 a-2 b-1"),
        ("status = NONE", ""),
        ("startTime IS null", "b-1"),
        ("endTime IS not null AND workflowId = 'c'", "c-3 c-1"),
        ("workflowId = 'a' OR status = IN_PROGRESS", "c-2 a-2 a-1"),
        ("text:CHARGE", "c-3"),
        ("text:blue", "a-2"),
        ("text:nothing", ""),
    ] {
        check(store, query, "", expected).await;
    }
    let seconds = |second: i64| at(second).as_millis();
    let query = format!(
        "scheduledTime > {} AND updateTime <= {}",
        seconds(1),
        seconds(40)
    );
    check(store, &query, "", "c-2 a-2").await;
    let query = format!("startTime BETWEEN {} AND {}", seconds(20), seconds(30));
    check(store, &query, "", "c-3 c-2 a-2").await;
    let elsewhere = TaskSearch {
        namespace: namespace("elsewhere"),
        ..search("", "")
    };
    let page = store.search_tasks(&elsewhere).await.unwrap();
    assert_eq!(page, TaskPage::default());
}

pub async fn tasks_are_sorted_and_paged(store: &dyn Store) {
    fill(store).await;
    for (sort, expected) in [
        ("startTime:DESC", "c-3 c-2 a-2 c-1 a-1 b-1"),
        ("startTime:ASC", "b-1 c-1 a-1 c-2 a-2 c-3"),
        ("taskType:ASC|taskId:DESC", "c-2 a-2 c-3 c-1 b-1 a-1"),
        (
            "domain:DESC|workflowId:ASC|taskId:ASC",
            "a-2 a-1 b-1 c-1 c-2 c-3",
        ),
        ("unknown:ASC|taskId:ASC", "a-1 a-2 b-1 c-1 c-2 c-3"),
    ] {
        check(store, "", sort, expected).await;
        let all: Vec<&str> = expected.split_whitespace().collect();
        for (offset, limit) in [(0, 2), (2, 3), (5, 10), (6, 1), (0, 0)] {
            let page = TaskSearch {
                offset,
                limit,
                ..search("", sort)
            };
            let page = store.search_tasks(&page).await.unwrap();
            let expected: Vec<&str> = all.iter().copied().skip(offset).take(limit).collect();
            assert_eq!(
                (shown(&page), page.total),
                (own(&expected), 6),
                "{sort} {offset}"
            );
        }
    }
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

pub async fn runs_are_found_by_their_tasks(store: &dyn Store) {
    fill(store).await;
    for (query, expected) in [
        ("", "c a b"),
        ("taskType = greet", "c a b"),
        ("taskDefName IN (script, greet)", "a c b"),
        ("status = FAILED", "c a"),
        ("workflowType = other", "c"),
        ("taskType = none", ""),
    ] {
        let search = TaskSearch {
            results: TaskResults::Runs,
            ..search(query, "taskId:ASC")
        };
        let page = store.search_tasks(&search).await.unwrap();
        let runs: Vec<&str> = page.found.iter().map(|(run, _)| run.as_str()).collect();
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(
            (runs, page.total),
            (expected.clone(), expected.len() as u64),
            "{query}"
        );
        let second = TaskSearch {
            offset: 1,
            limit: 1,
            ..search
        };
        let page = store.search_tasks(&second).await.unwrap();
        assert_eq!(
            page.found.len(),
            expected.len().saturating_sub(1).min(1),
            "{query}"
        );
    }
}

pub async fn a_changed_task_is_found_as_it_is(store: &dyn Store) {
    fill(store).await;
    let run: Run = load(store, &RunId::from("b")).await.unwrap();
    let mut change = next(&run);
    change.tasks = vec![found(&change, 1, "greet", TaskStatus::Completed)];
    advance(store, &run, change).await;
    check(store, "workflowId = b AND status = COMPLETED", "", "b-1").await;
    check(store, "status = SCHEDULED", "", "").await;
    check(store, "taskType = greet", "", "c-1 b-1 a-1").await;
}
