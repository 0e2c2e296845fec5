//! Lists of workflows: search with totals, pages, orders and free text, correlation ids, ids of open runs.

use longhaul_conductor_sdk::client::{Correlated, SearchQuery, TaskPage};
use longhaul_conductor_sdk::definition::{WorkflowDefBuilder, human, noop};
use longhaul_conductor_sdk::model::{
    SearchResult, StartWorkflowRequest, TaskStatus, Workflow, WorkflowStatus, WorkflowSummary,
};
use serde_json::json;

use super::{World, refused, request, unique};
use crate::harness::eventually;

impl World {
    /// Registers a workflow that waits for a person.
    async fn slow(&self) -> String {
        self.define(|workflow| workflow.then(human("step"))).await
    }

    /// Registers a workflow that ends at once.
    async fn quick(&self) -> String {
        self.define(|workflow| workflow.then(noop("step"))).await
    }

    async fn start_correlated(&self, name: &str, correlation_id: &str, priority: i32) -> String {
        let request = StartWorkflowRequest {
            correlation_id: Some(correlation_id.to_owned()),
            priority,
            ..request(name, json!({}))
        };
        self.client.workflows().start(&request).await.unwrap()
    }

    /// Returns the page of a search that has this total. Other servers index a little later.
    pub(super) async fn found(
        &self,
        total: i64,
        query: &SearchQuery,
    ) -> SearchResult<WorkflowSummary> {
        eventually(&format!("{total} results of {query:?}"), || async {
            let found = self.client.workflows().search(query).await.unwrap();
            (found.total_hits == total).then_some(found)
        })
        .await
    }
}

fn ids(found: &SearchResult<WorkflowSummary>) -> Vec<&str> {
    let results = found.results.iter();
    results.map(|summary| &*summary.workflow_id).collect()
}

fn ids_of(workflows: &[Workflow]) -> Vec<&str> {
    let workflows = workflows.iter();
    workflows.map(|workflow| &*workflow.workflow_id).collect()
}

#[tokio::test]
async fn search_by_type_and_status() {
    let world = World::start().await;
    let (slow, quick) = (world.slow().await, world.quick().await);
    let mut open = Vec::new();
    for n in 0..3 {
        open.push(world.start_workflow(&slow, json!({"n": n})).await);
    }
    let done = world.completed(&quick, json!({"customer": "Ümit"})).await;
    let query = format!("workflowType='{slow}' AND status='RUNNING'");
    let found = world.found(3, &SearchQuery::new(query)).await;
    // The newest comes first.
    assert_eq!(ids(&found), [&*open[2], &*open[1], &*open[0]]);
    let query = format!("workflowType IN ({slow},{quick}) AND status IN (COMPLETED)");
    let found = world.found(1, &SearchQuery::new(query)).await;
    let [summary] = &*found.results else {
        panic!("{found:?}")
    };
    assert_eq!(summary.workflow_id, done.workflow_id);
    assert_eq!(summary.workflow_type, quick);
    assert_eq!(summary.status, WorkflowStatus::Completed);
    assert_eq!(summary.input, r#"{"customer":"Ümit"}"#);
    assert!(summary.end_time.as_deref().unwrap().ends_with('Z'));
    let workflows = world.client.workflows();
    workflows.terminate(&open[0], Some("enough")).await.unwrap();
    let query = format!("workflowId=\"{}\" AND status=TERMINATED", open[0]);
    let found = world.found(1, &SearchQuery::new(query)).await;
    let reason = found.results[0].reason_for_incompletion.as_deref();
    assert_eq!(reason, Some("enough"));
    workflows.pause(&open[1]).await.unwrap();
    let query = format!("workflowType={slow} AND status=PAUSED");
    let found = world.found(1, &SearchQuery::new(query)).await;
    assert_eq!(ids(&found), [&*open[1]]);
    let query = format!("workflowType={slow} AND (status=PAUSED OR status=TERMINATED)");
    world.found(2, &SearchQuery::new(query)).await;
}

#[tokio::test]
async fn search_in_pages() {
    let world = World::start().await;
    let name = world.quick().await;
    let mut started = Vec::new();
    for _ in 0..7 {
        started.push(world.start_workflow(&name, json!({})).await);
    }
    let query = SearchQuery::new(format!("workflowType='{name}'"));
    let mut joined = Vec::new();
    for (first, count) in [(0, 3), (3, 3), (6, 1), (9, 0)] {
        let page = world.found(7, &query.clone().page(first, 3)).await;
        assert_eq!(page.results.len(), count);
        joined.extend(ids(&page).into_iter().map(ToOwned::to_owned));
    }
    joined.sort_unstable();
    started.sort_unstable();
    assert_eq!(joined, started);
    let none = world.found(7, &query.page(0, 0)).await;
    assert!(none.results.is_empty());
}

#[tokio::test]
async fn search_in_order() {
    let world = World::start().await;
    let name = world.quick().await;
    let mut started = Vec::new();
    for (correlation, priority) in [("b", 1), ("a", 2), ("b", 3), ("a", 4)] {
        started.push(world.start_correlated(&name, correlation, priority).await);
    }
    for (sort, order) in [
        ("startTime:ASC", [0, 1, 2, 3]),
        ("startTime:DESC", [3, 2, 1, 0]),
        ("priority:ASC", [0, 1, 2, 3]),
        ("correlationId:ASC|priority:DESC", [3, 1, 2, 0]),
    ] {
        let query = SearchQuery::new(format!("workflowType={name}")).sort(sort);
        let found = world.found(4, &query).await;
        assert_eq!(ids(&found), order.map(|n| &*started[n]), "{sort}");
    }
}

#[tokio::test]
async fn search_by_free_text() {
    let world = World::start().await;
    let (name, word) = (world.quick().await, unique("word"));
    let note = format!("before {} after", word.to_uppercase());
    let wanted = world.start_workflow(&name, json!({"note": note})).await;
    let other = json!({"note": "something else"});
    world.start_workflow(&name, other).await;
    let found = world.found(1, &SearchQuery::all().free_text(&word)).await;
    assert_eq!(ids(&found), [&*wanted]);
    let typed = SearchQuery::new(format!("workflowType={name}"));
    world.found(2, &typed.clone().free_text("*")).await;
    world.found(1, &typed.free_text(&word)).await;
    let nowhere = SearchQuery::all().free_text(unique("nowhere"));
    world.found(0, &nowhere).await;
}

#[tokio::test]
async fn wrong_searches_are_refused() {
    let world = World::start().await;
    let workflows = world.client.workflows();
    for (query, part) in [
        (
            SearchQuery::new("workflowTyp='x'"),
            "`workflowTyp` is not a field",
        ),
        (
            SearchQuery::new("status="),
            "Incorrectly formatted query string",
        ),
        (SearchQuery::all().page(0, 5001), "5000"),
    ] {
        let message = refused(400, workflows.search(&query).await);
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn runs_by_correlation_id() {
    let world = World::start().await;
    let (slow, quick) = (world.slow().await, world.quick().await);
    let (one, two) = (unique("c"), unique("c/ä"));
    let first = world.start_correlated(&slow, &one, 0).await;
    let second = world.start_correlated(&slow, &one, 0).await;
    let other = world.start_correlated(&slow, &two, 0).await;
    let done = world.start_correlated(&quick, &one, 0).await;
    world.ended(&done).await;
    let workflows = world.client.workflows();
    let open = Correlated::default();
    let found = workflows
        .correlated(&slow, &[&one, &two, "none"], open)
        .await
        .unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(ids_of(&found[&one]), [&*second, &*first]);
    assert_eq!(ids_of(&found[&two]), [&*other]);
    assert!(found["none"].is_empty());
    let newest = &found[&one][0];
    assert_eq!(newest.correlation_id.as_ref(), Some(&one));
    assert!(newest.tasks.is_empty());
    let found = workflows.correlated(&quick, &[&one], open).await.unwrap();
    assert!(found[&one].is_empty());
    let all = Correlated {
        include_closed: true,
        include_tasks: true,
    };
    let found = workflows.correlated(&quick, &[&one], all).await.unwrap();
    assert_eq!(ids_of(&found[&one]), [&*done]);
    assert_eq!(found[&one][0].tasks.len(), 1);
}

#[tokio::test]
async fn ids_of_open_runs() {
    let world = World::start().await;
    let (workflows, name) = (world.client.workflows(), world.slow().await);
    let second = WorkflowDefBuilder::new(&name).version(2);
    let second = second.then(human("step")).build().unwrap();
    let metadata = world.client.metadata();
    metadata.register_workflow(&second).await.unwrap();
    let first = StartWorkflowRequest {
        version: Some(1),
        ..request(&name, json!({}))
    };
    let older = workflows.start(&first).await.unwrap();
    let newer = world.start_workflow(&name, json!({})).await;
    assert_eq!(workflows.running(&name, 1).await.unwrap(), [&*older]);
    assert_eq!(workflows.running(&name, 2).await.unwrap(), [&*newer]);
    workflows.terminate(&older, None).await.unwrap();
    assert!(workflows.running(&name, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn tasks_in_pages() {
    let world = World::start().await;
    let name = world
        .define(|workflow| {
            let steps = (0..5).map(|n| noop(format!("n{n}"))).collect::<Vec<_>>();
            workflow.then(steps).then(human("h"))
        })
        .await;
    let id = world.start_workflow(&name, json!({})).await;
    let workflows = world.client.workflows();
    let shown = async |page: TaskPage| {
        let found = workflows.tasks(&id, &page).await.unwrap();
        let tasks = found.results.into_iter();
        let references = tasks.map(|task| task.reference_task_name);
        (found.total_hits, references.collect::<Vec<_>>())
    };
    let page = |start, count, statuses| TaskPage {
        start,
        count,
        statuses,
    };
    let middle = shown(page(2, 2, Vec::new())).await;
    assert_eq!(middle, (6, vec!["n2".to_owned(), "n3".to_owned()]));
    let open = shown(page(0, 9, vec![TaskStatus::InProgress])).await;
    assert_eq!(open, (1, vec!["h".to_owned()]));
}
