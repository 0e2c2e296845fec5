//! Values that a run records: side effects, versions, memo, search attributes; continue-as-new and a long history.

use std::sync::{Arc, Mutex};

use durable_workflow::{SearchAttributeUpdate, Uuid, Worker, json};

use crate::rust_sdk::fixture::{Fixture, result};

#[tokio::test]
async fn a_side_effect_keeps_its_value_in_another_worker() {
    let fixture = Fixture::start().await;
    let observed = Arc::new(Mutex::new(Vec::new()));
    let register = |worker: &mut Worker| {
        let observed = Arc::clone(&observed);
        worker.register_workflow("ticket", move |context, _| {
            let observed = Arc::clone(&observed);
            async move {
                let ticket = context.uuid_v4()?;
                observed.lock().unwrap().push(ticket);
                context.wait_signal("show").await?;
                Ok(json!(ticket.to_string()))
            }
        });
    };
    let first = fixture.worker_with_id("first", register);
    let handle = fixture.start_workflow("ticket", "ticket", json!([])).await;
    fixture
        .wait_for_events("ticket", "SignalWaitOpened", 1)
        .await;
    first.stop().await;

    let _second = fixture.worker_with_id("second", register);
    fixture.signal("ticket", "show", json!([])).await;

    let shown = result(&handle).await.unwrap();
    let observed: Vec<Uuid> = observed.lock().unwrap().clone();
    assert!(observed.len() >= 2, "both workers ran the code");
    assert!(
        observed.iter().all(|ticket| shown == ticket.to_string()),
        "{shown} against {observed:?}"
    );
    assert_eq!(
        fixture
            .closed_history("ticket")
            .await
            .count("SideEffectRecorded"),
        1
    );
}

/// Registers `deploy` as one deployment has it; `newest` is the highest version of its code.
fn register_deploy(worker: &mut Worker, newest: i32) {
    worker.register_workflow("deploy", move |context, _| async move {
        let version = context.get_version("layout", 1, newest)?;
        context.wait_signal("finish").await?;
        Ok(json!([version, context.get_version("layout", 1, newest)?]))
    });
}

#[tokio::test]
async fn a_run_keeps_its_version_when_newer_code_is_deployed() {
    let fixture = Fixture::start().await;
    let old = fixture.worker_with_id("old", |worker| register_deploy(worker, 1));
    let handle = fixture.start_workflow("deploy", "before", json!([])).await;
    fixture
        .wait_for_events("before", "SignalWaitOpened", 1)
        .await;
    old.stop().await;

    let _new = fixture.worker_with_id("new", |worker| register_deploy(worker, 2));
    let later = fixture.start_workflow("deploy", "after", json!([])).await;
    fixture.signal("before", "finish", json!([])).await;
    fixture.signal("after", "finish", json!([])).await;

    assert_eq!(result(&handle).await.unwrap(), json!([1, 1]));
    assert_eq!(result(&later).await.unwrap(), json!([2, 2]));
    let history = fixture.closed_history("before").await;
    let marker = history.payloads("VersionMarkerRecorded")[0];
    assert_eq!(
        (&marker["change_id"], &marker["version"]),
        (&json!("layout"), &json!(1))
    );
}

#[tokio::test]
async fn a_run_from_before_a_patch_stays_unpatched() {
    let fixture = Fixture::start().await;
    let before = fixture.worker_with_id("before", |worker| {
        worker.register_workflow("patched", |context, _| async move {
            context.wait_signal("finish").await?;
            Ok(json!("old code"))
        });
    });
    let handle = fixture
        .start_workflow("patched", "started-before", json!([]))
        .await;
    fixture
        .wait_for_events("started-before", "SignalWaitOpened", 1)
        .await;
    before.stop().await;

    let _after = fixture.worker_with_id("after", |worker| {
        worker.register_workflow("patched", |context, _| async move {
            let patched = context.patched("faster")?;
            context.wait_signal("finish").await?;
            Ok(json!({"patched": patched}))
        });
    });
    let later = fixture
        .start_workflow("patched", "started-after", json!([]))
        .await;
    for id in ["started-before", "started-after"] {
        fixture.signal(id, "finish", json!([])).await;
    }

    assert_eq!(result(&handle).await.unwrap(), json!({"patched": false}));
    assert_eq!(result(&later).await.unwrap(), json!({"patched": true}));
}

#[tokio::test]
async fn continue_as_new_five_times() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("countdown", |context, arguments| async move {
            let left = arguments[0].as_u64().unwrap();
            match left {
                0 => Ok(json!("lift-off")),
                _ => context.continue_as_new(json!([left - 1])),
            }
        });
    });

    assert_eq!(
        fixture.run("countdown", json!([5])).await,
        json!("lift-off")
    );

    let control = fixture.server.control();
    let runs = control.run_ids("countdown").await;
    assert_eq!(runs.len(), 6);
    for (index, run) in runs.iter().enumerate() {
        let history = control.history("countdown", run).await;
        history.assert_sound();
        let next = history.payloads("WorkflowContinuedAsNew");
        match runs.get(index + 1) {
            Some(next_run) => assert_eq!(next[0]["continued_to_run_id"], **next_run),
            None => assert!(next.is_empty(), "the last run completes"),
        }
    }
}

#[tokio::test]
async fn memo_entries_merge_and_null_deletes() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("memo", |context, _| async move {
            context.upsert_memo(
                json!({"stage": "one", "count": 1, "nested": {"list": [1, "two", null]}}),
            )?;
            context.wait_signal("next").await?;
            context.upsert_memo(json!({"stage": "two", "count": null}))?;
            Ok(json!(null))
        });
    });
    let handle = fixture.start_workflow("memo", "memo", json!([])).await;
    fixture.wait_for_events("memo", "SignalWaitOpened", 1).await;
    let nested = json!({"list": [1, "two", null]});
    let described = fixture.describe("memo").await;
    assert_eq!(
        described.raw["memo"],
        json!({"stage": "one", "count": 1, "nested": nested})
    );

    fixture.signal("memo", "next", json!([])).await;
    result(&handle).await.unwrap();

    assert_eq!(
        fixture.describe("memo").await.raw["memo"],
        json!({"stage": "two", "nested": nested})
    );
    assert_eq!(
        fixture.closed_history("memo").await.count("MemoUpserted"),
        2
    );
}

#[tokio::test]
async fn search_attributes_merge_and_show_in_describe() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_workflow("attributes", |context, _| async move {
            let attributes = SearchAttributeUpdate::new()
                .keyword("Stage", "packing")?
                .int("Items", 3)?
                .float("Weight", 1.5)?
                .bool("Fragile", true)?
                .keyword_list("Tags", ["blue", "round"])?;
            context.upsert_search_attributes(attributes)?;
            context.wait_signal("next").await?;
            context.upsert_search_attributes(
                SearchAttributeUpdate::new()
                    .keyword("Stage", "sent")?
                    .delete("Items")?,
            )?;
            Ok(json!(null))
        });
    });
    let handle = fixture
        .start_workflow("attributes", "attributes", json!([]))
        .await;
    fixture
        .wait_for_events("attributes", "SignalWaitOpened", 1)
        .await;
    let packing = json!({
        "Stage": "packing", "Items": 3, "Weight": 1.5, "Fragile": true, "Tags": ["blue", "round"]
    });
    assert_eq!(
        fixture.describe("attributes").await.raw["search_attributes"],
        packing
    );

    fixture.signal("attributes", "next", json!([])).await;
    result(&handle).await.unwrap();

    let sent = json!({"Stage": "sent", "Weight": 1.5, "Fragile": true, "Tags": ["blue", "round"]});
    assert_eq!(
        fixture.describe("attributes").await.raw["search_attributes"],
        sent
    );
}

#[tokio::test]
async fn a_history_of_three_pages_is_replayed() {
    const SIDE_EFFECTS: u64 = 1200;
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity("total", |_, arguments| async move {
            let numbers = arguments[0].as_array().unwrap();
            Ok(json!(
                numbers
                    .iter()
                    .filter_map(serde_json::Value::as_u64)
                    .sum::<u64>()
            ))
        });
        worker.register_workflow("long", |context, _| async move {
            // The worker reads 500 events at a time, so the task after the activity takes three pages.
            let mut numbers = Vec::new();
            for number in 0..SIDE_EFFECTS {
                numbers.push(context.side_effect(|| number)?);
            }
            let total = context.activity("total", json!([numbers])).await?;
            Ok(json!([total, numbers.last()]))
        });
    });

    let expected = SIDE_EFFECTS * (SIDE_EFFECTS - 1) / 2;
    assert_eq!(
        fixture.run("long", json!([])).await,
        json!([expected, SIDE_EFFECTS - 1])
    );

    let history = fixture.closed_history("long").await;
    assert_eq!(history.len(), 6 + SIDE_EFFECTS as usize);
}
