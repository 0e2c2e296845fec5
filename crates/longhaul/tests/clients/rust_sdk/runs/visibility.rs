//! Queries find the attributes that a Rust workflow sets. The SDK has no list call, so the tests use plain HTTP.

use durable_workflow::{SearchAttributeUpdate, json};

use crate::rust_sdk::fixture::{Fixture, result};

/// Ids of the runs that a query finds.
async fn found(fixture: &Fixture, query: &str) -> Vec<String> {
    let query = query
        .replace('=', "%3D")
        .replace(' ', "%20")
        .replace('>', "%3E");
    let (status, page) = fixture
        .server
        .control()
        .get(&format!("/workflows?query={query}"))
        .await;
    assert_eq!(status, 200, "{page}");
    let rows = page["workflows"].as_array().expect("a list of workflows");
    rows.iter()
        .map(|row| row["workflow_id"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn typed_attributes_are_held_to_definitions_and_found() {
    let fixture = Fixture::start().await;
    for (name, word) in [
        ("Stage", "keyword"),
        ("Note", "text"),
        ("Items", "int"),
        ("Weight", "double"),
        ("Fragile", "bool"),
        ("Due", "datetime"),
        ("Tags", "keyword_list"),
    ] {
        let body = json!({"name": name, "type": word});
        let (status, answer) = fixture
            .server
            .control()
            .post("/search-attributes", &body)
            .await;
        assert_eq!(status, 201, "{answer}");
    }
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("order", |context, _| async move {
            let attributes = SearchAttributeUpdate::new()
                .keyword("Stage", "packing")?
                .string("Note", "handle with care")?
                .int("Items", 3)?
                .float("Weight", 2.0)?
                .bool("Fragile", true)?
                .datetime("Due", "2026-01-01T00:00:00+05:30")?
                .keyword_list("Tags", ["blue", "round"])?
                .keyword("NobodyDefinedThis", "x")?;
            context.upsert_search_attributes(attributes)?;
            context.wait_signal("next").await?;
            let attributes = SearchAttributeUpdate::new()
                .keyword("Stage", "sent")?
                .delete("Items")?;
            context.upsert_search_attributes(attributes)?;
            Ok(json!(null))
        });
    });
    let handle = fixture.start_workflow("order", "order-7", json!([])).await;
    fixture
        .wait_for_events("order-7", "SignalWaitOpened", 1)
        .await;
    for query in [
        "Stage = packing",
        "Items > 2 AND Weight = 2 AND Fragile",
        "Due = '2025-12-31T18:30:00Z'",
        "Tags = round AND Note STARTS_WITH 'handle'",
    ] {
        assert_eq!(found(&fixture, query).await, ["order-7"], "{query}");
    }
    fixture.signal("order-7", "next", json!([])).await;
    result(&handle).await.unwrap();
    assert_eq!(
        found(&fixture, "Stage = sent AND Status = completed").await,
        ["order-7"]
    );
    assert_eq!(
        found(&fixture, "Stage = packing OR Items > 0").await,
        [""; 0]
    );
}
