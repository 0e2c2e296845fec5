//! Lists, histories and other reads.

use futures::{StreamExt as _, TryStreamExt as _};
use longhaul_sdk::WorkflowCall;
use longhaul_sdk::client::{AttributeType, HistoryEvent, Page, Status, WorkflowSummary};
use longhaul_sdk::{WorkflowContext, WorkflowResult, workflow};

use crate::support::{Bench, QUEUE};

#[workflow]
async fn double(_ctx: WorkflowContext, number: i64) -> WorkflowResult<i64> {
    Ok(number * 2)
}

async fn started(count: usize) -> Bench {
    let bench = Bench::new().await;
    for number in 0..count {
        let workflow_type = if number % 2 == 0 { "even" } else { "odd" };
        let start = bench.client.start(WorkflowCall::<()>::named(workflow_type));
        start.id(format!("w-{number}")).await.expect("a start");
    }
    bench
}

#[tokio::test]
async fn lists_come_in_pages_and_as_a_whole() {
    let bench = started(5).await;
    let list = bench.client.list().page_size(2);
    let Page {
        items,
        next_page_token,
        ..
    } = list.page(None).await.unwrap();
    assert_eq!(items.len(), 2);
    let second = list.page(next_page_token.as_deref()).await.unwrap();
    assert_eq!(second.items.len(), 2);
    let all: Vec<WorkflowSummary> = list.clone().stream().try_collect().await.unwrap();
    let mut ids: Vec<_> = all.iter().map(|run| run.workflow_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["w-0", "w-1", "w-2", "w-3", "w-4"]);
    assert!(all.iter().all(|run| run.status == Status::Pending));
    let odd = list
        .clone()
        .query("WorkflowType = 'odd' AND Status = 'running'");
    assert_eq!(odd.stream().count().await, 2);
    let text = bench.client.list().query("w-3");
    assert_eq!(text.page(None).await.unwrap().items.len(), 1);
    let even = bench.client.list().workflow_type("even").status("running");
    assert_eq!(even.stream().count().await, 3);
    assert_eq!(
        bench
            .client
            .list()
            .status("completed")
            .stream()
            .count()
            .await,
        0
    );
}

#[tokio::test]
async fn a_bad_query_is_refused() {
    let bench = started(1).await;
    for (list, field) in [
        (bench.client.list().query("Flavour = 'sweet'"), "query"),
        (bench.client.list().status("sleepy"), "status"),
        (bench.client.list().page_size(0), "page_size"),
    ] {
        let error = list.page(None).await.unwrap_err();
        let refusal = error.refusal().unwrap();
        assert_eq!(refusal.reason(), "validation_failed");
        assert!(
            refusal.validation_errors().any(|(name, _)| name == field),
            "{refusal}"
        );
        let mut stream = std::pin::pin!(list.stream());
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn a_history_is_read_followed_and_exported() {
    let bench = Bench::new().await;
    let start = bench.client.start(double(21)).queue(QUEUE);
    let handle = start.await.unwrap();
    let types = |events: &[HistoryEvent]| {
        let types: Vec<_> = events
            .iter()
            .map(|event| event.event_type.clone())
            .collect();
        types
    };
    let now = handle.history().all().await.unwrap();
    assert_eq!(types(&now), ["StartAccepted", "WorkflowStarted"]);
    let later = tokio::spawn(handle.history().follow().try_collect::<Vec<_>>());
    bench.work(|worker| worker.workflow::<double>()).await;
    let followed = later.await.unwrap().unwrap();
    assert_eq!(
        types(&followed),
        ["StartAccepted", "WorkflowStarted", "WorkflowCompleted"]
    );
    assert_eq!(
        followed
            .iter()
            .map(|event| event.sequence)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let rest = handle.history().after(2).all().await.unwrap();
    assert_eq!(types(&rest), ["WorkflowCompleted"]);
    assert!(rest[0].closes_run());
    let bundle = handle.export().await.unwrap();
    assert_eq!(bundle["schema"], "durable-workflow.v2.history-export");
    assert_eq!(bundle["history_events"].as_array().unwrap().len(), 3);
    let missing = bench.client.workflow::<()>("missing");
    assert!(missing.history().all().await.unwrap_err().is_not_found());
    assert!(missing.export().await.unwrap_err().is_not_found());
    assert!(missing.runs().await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn search_attributes_are_defined_and_removed() {
    let bench = Bench::new().await;
    let client = &bench.client;
    client
        .define_search_attribute("Customer", AttributeType::Keyword)
        .await
        .unwrap();
    let defined = client.search_attributes().await.unwrap();
    assert_eq!(
        defined.custom_attributes["Customer"],
        AttributeType::Keyword
    );
    assert_eq!(
        defined.system_attributes["StartTime"],
        AttributeType::Datetime
    );
    for (name, reason) in [
        ("Customer", "attribute_already_exists"),
        ("WorkflowId", "name_reserved"),
        ("__x", "validation_failed"),
    ] {
        let error = client
            .define_search_attribute(name, AttributeType::Text)
            .await;
        assert_eq!(
            error.unwrap_err().refusal().unwrap().reason(),
            reason,
            "{name}"
        );
    }
    client.remove_search_attribute("Customer").await.unwrap();
    let error = client
        .remove_search_attribute("Customer")
        .await
        .unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), "attribute_not_found");
}

#[tokio::test]
async fn workers_and_queues_are_shown() {
    let bench =
        Bench::staffed(|worker| worker.workflow::<double>().id("w-1").build_id("b-1")).await;
    let client = &bench.client;
    let start = client.start(WorkflowCall::<()>::named("without a worker"));
    start.queue("lonely").await.unwrap();
    let lonely = client.task_queue("lonely").await.unwrap();
    assert_eq!(lonely.stats.approximate_backlog_count, 1);
    assert_eq!(lonely.stats.workflow_tasks.ready_count, 1);
    assert!(lonely.pollers.is_empty());
    let queues = client.task_queues().await.unwrap();
    assert!(queues.iter().any(|queue| queue.name == "lonely"));
    let staffed = client.task_queue(QUEUE).await.unwrap();
    assert_eq!(staffed.pollers[0].worker_id, "w-1");
    assert_eq!(
        client
            .task_queue("unheard of")
            .await
            .unwrap()
            .stats
            .approximate_backlog_count,
        0
    );

    let worker = client.worker("w-1").await.unwrap();
    assert_eq!(worker.task_queue, QUEUE);
    assert_eq!(worker.supported_workflow_types, ["double"]);
    let of_queue = |queue: &str| client.workers().queue(queue).fetch();
    assert_eq!(of_queue(QUEUE).await.unwrap().len(), 1);
    assert!(of_queue("lonely").await.unwrap().is_empty());
    assert!(client.worker("w-2").await.unwrap_err().is_not_found());
    let error = client.workers().status("sleepy").fetch().await.unwrap_err();
    assert_eq!(error.refusal().unwrap().status(), 422);

    let builds = client.build_ids(QUEUE).await.unwrap();
    assert_eq!(builds[0].build_id.as_deref(), Some("b-1"));
    let promoted = client.promote_build(QUEUE, Some("b-1")).await.unwrap();
    assert!(promoted.new_start_selected);
    let error = client.promote_build(QUEUE, Some("b-2")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().status(), 409);
}

#[tokio::test]
async fn discovery_is_read_once() {
    let bench = Bench::new().await;
    let info = bench.client.info();
    assert_eq!(info.server_id(), "embedded");
    assert_eq!(info.worker_protocol_version(), "1.20");
    assert!(info.offers("signals"));
    assert!(info.offers_workers("cooperative_cancellation"));
    assert!(info.max_payload_bytes().is_some());
    assert_eq!(bench.client.namespace(), "default");
}
