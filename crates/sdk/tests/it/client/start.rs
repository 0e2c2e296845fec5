//! Starting workflows.

use std::time::Duration;

use longhaul_sdk::WorkflowCall;
use longhaul_sdk::client::{AttributeType, DuplicatePolicy, Error, StartError, Status};
use serde_json::json;

use crate::support::Bench;

fn greet() -> WorkflowCall<String> {
    WorkflowCall::named("greet").argument("Ada").argument(7)
}

#[tokio::test]
async fn every_option_arrives() {
    let bench = Bench::new().await;
    let define =
        |name: &'static str, of: AttributeType| bench.client.define_search_attribute(name, of);
    define("Customer", AttributeType::Keyword).await.unwrap();
    define("Amount", AttributeType::Double).await.unwrap();
    define("Tags", AttributeType::KeywordList).await.unwrap();
    define("Urgent", AttributeType::Bool).await.unwrap();
    define("Count", AttributeType::Int).await.unwrap();
    define("Due", AttributeType::Datetime).await.unwrap();
    let handle = bench
        .client
        .start(greet())
        .id("greeting:1")
        .queue("greetings")
        .business_key("K-1")
        .memo("note", json!({"by": ["hand"]}))
        .memo("count", 3)
        .search_attribute("Customer", "Ada")
        .search_attribute("Amount", 1.5)
        .search_attribute("Tags", vec!["a".to_owned(), "b".to_owned()])
        .search_attribute("Urgent", true)
        .search_attribute("Count", 7)
        .search_attribute("Due", bench.server.now())
        .execution_timeout(Duration::from_millis(7_200_001))
        .run_timeout(Duration::from_secs(60))
        .priority(2)
        .fairness("tenant-1", 10)
        .build_id("b1")
        .await
        .unwrap();
    assert_eq!(handle.id(), "greeting:1");
    let run = handle.describe().await.unwrap();
    assert_eq!(Some(run.run_id.as_str()), handle.run_id());
    assert_eq!(run.workflow_type, "greet");
    assert_eq!(run.status, Status::Pending);
    assert_eq!(run.task_queue, "greetings");
    assert_eq!(run.business_key.as_deref(), Some("K-1"));
    assert_eq!(run.execution_timeout_seconds, Some(7201));
    assert_eq!(run.run_timeout_seconds, Some(60));
    assert_eq!(run.compatibility.as_deref(), Some("b1"));
    assert_eq!(
        json!(run.memo),
        json!({"note": {"by": ["hand"]}, "count": 3})
    );
    assert_eq!(run.search_attributes["Tags"], json!(["a", "b"]));
    assert_eq!(run.search_attributes["Amount"], json!(1.5));
    assert_eq!(
        run.arguments::<(String, u8)>().unwrap(),
        ("Ada".to_owned(), 7)
    );
    assert_eq!(run.output::<String>().unwrap(), None);
    let fairness = &handle.history().all().await.unwrap()[1].payload;
    assert_eq!(fairness["workflow_type"], "greet");
}

#[tokio::test]
async fn an_id_is_used_once() {
    let bench = Bench::new().await;
    let first = bench.client.start(greet()).id("g").await.unwrap();
    let error = bench.client.start(greet()).id("g").await.unwrap_err();
    let StartError::AlreadyStarted {
        workflow_id,
        run_id,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(
        (workflow_id.as_str(), run_id.as_deref()),
        ("g", first.run_id())
    );
    assert_eq!(error.to_string(), "workflow g was already started");

    let use_existing = || {
        bench
            .client
            .start(greet())
            .id("g")
            .on_duplicate(DuplicatePolicy::UseExisting)
    };
    assert_eq!(use_existing().await.unwrap().run_id(), first.run_id());
    first.terminate(None).await.unwrap();
    let error = use_existing().await.unwrap_err();
    assert!(
        matches!(error, StartError::AlreadyStarted { .. }),
        "{error}"
    );

    let unnamed = bench.client.start(greet()).await.unwrap();
    let other = bench.client.start(greet()).await.unwrap();
    assert_ne!(unnamed.id(), other.id());
}

#[tokio::test]
async fn refused_fields_are_named() {
    let bench = Bench::new().await;
    let start = || bench.client.start(greet());
    for (refused, field) in [
        (start().priority(10), "priority"),
        (start().id("a b"), "workflow_id"),
        (start().fairness("k", 1001), "fairness_weight"),
        (start().memo("7", 1), "memo"),
        (start().queue("q".repeat(256)), "task_queue"),
    ] {
        let error = refused.await.unwrap_err();
        let StartError::Client(error) = error else {
            panic!("{error}");
        };
        let refusal = error.refusal().unwrap();
        assert_eq!(
            (refusal.status(), refusal.reason()),
            (422, "validation_failed")
        );
        assert!(
            refusal.validation_errors().any(|(name, _)| name == field),
            "{field}: {refusal}"
        );
        assert!(!error.is_retryable());
    }
    assert!(
        bench
            .client
            .list()
            .page(None)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn arguments_that_cannot_be_encoded_are_not_sent() {
    let bench = Bench::new().await;
    let call = WorkflowCall::<()>::named("greet")
        .argument(1)
        .argument(f64::NAN);
    let error = bench.client.start(call).await.unwrap_err();
    assert!(
        matches!(error, StartError::Client(Error::Payload(_))),
        "{error}"
    );
    let memo = std::collections::BTreeMap::from([(vec![1], 1)]);
    let error = bench
        .client
        .start(greet())
        .memo("m", memo)
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("memo m:"), "{error}");
    assert!(
        bench
            .client
            .list()
            .page(None)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
