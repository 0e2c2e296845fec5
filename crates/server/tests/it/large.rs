//! Large payloads: pages end by bytes, exports come in pieces, and what is too large is refused early.

use serde_json::{Value, json};

use crate::support::Server;

const MEBIBYTE: usize = 1 << 20;

/// Starts a run with this many signals of more than a mebibyte each, and returns its run id.
async fn heavy_run(server: &Server, signals: usize) -> String {
    server.register("w", json!({})).await;
    let run_id = server.start("a").await;
    for number in 0..signals {
        let text = format!("{number}-{}", "x".repeat(MEBIBYTE));
        server
            .post("/workflows/a/signal/go", &json!({"input": [text]}))
            .accepted(202)
            .await;
    }
    run_id
}

fn sequences(events: &Value) -> Vec<u64> {
    let events = events.as_array().expect("a list").iter();
    events
        .map(|event| event["sequence"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test]
async fn pages_for_workers_end_at_four_mebibytes() {
    let server = Server::open().await;
    heavy_run(&server, 7).await;
    let task = server.worker("w").workflow_task().await;
    let mut page = task.clone();
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        pages += 1;
        let events = &page["history_events"];
        assert!(events.to_string().len() < 5 * MEBIBYTE);
        assert!(!sequences(events).is_empty());
        seen.extend(sequences(events));
        let Some(token) = page["next_history_page_token"].as_str() else {
            break;
        };
        let path = format!(
            "/workflow-tasks/{}/history",
            task["task_id"].as_str().unwrap()
        );
        let next = json!({
            "lease_owner": "w",
            "workflow_task_attempt": task["workflow_task_attempt"],
            "next_history_page_token": token,
        });
        page = server.worker_post(&path, &next).accepted(200).await;
    }
    let total = task["total_history_events"].as_u64().unwrap();
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
    assert!(pages >= 3, "{pages}");
}

#[tokio::test]
async fn pages_for_operators_end_at_four_mebibytes() {
    let server = Server::open().await;
    let run_id = heavy_run(&server, 7).await;
    let path = format!("/workflows/a/runs/{run_id}/history?page_size=1000");
    let mut seen = Vec::new();
    let mut next = path.clone();
    loop {
        let page = server.get(&next).accepted(200).await;
        assert!(page["events"].to_string().len() < 5 * MEBIBYTE);
        seen.extend(sequences(&page["events"]));
        let Some(token) = page["next_page_token"].as_str() else {
            break;
        };
        next = format!("{path}&next_page_token={token}");
    }
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
    assert!(seen.len() >= 8, "{}", seen.len());
}

/// The debug view shows the newest events, also if they are large.
#[tokio::test]
async fn the_debug_view_of_a_large_history_shows_the_newest_events() {
    let server = Server::open().await;
    heavy_run(&server, 7).await;
    let view = server.get("/workflows/a/debug").accepted(200).await;
    assert!(view.to_string().len() < 5 * MEBIBYTE);
}

#[tokio::test]
async fn an_export_is_whole_however_many_pages_it_comes_in() {
    let server = Server::open().await;
    let run_id = heavy_run(&server, 5).await;
    let path = format!("/workflows/a/runs/{run_id}/history/export");
    let bundle = server.get(&path).accepted(200).await;
    let count = bundle["summary"]["history_event_count"].as_u64().unwrap();
    let events = &bundle["history_events"];
    assert_eq!(sequences(events), (1..=count).collect::<Vec<_>>());
    assert!(count >= 6, "{count}");
    assert_eq!(bundle["signals"].as_array().unwrap().len(), 5);
    assert_eq!(bundle["integrity"]["checksum"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn arguments_that_are_too_long_are_refused_whatever_they_are_made_of() {
    let server = Server::open().await;
    server.start("a").await;
    for input in [
        json!(["x".repeat(3 * MEBIBYTE)]),
        json!([vec![1; 2 * MEBIBYTE]]),
        json!([vec!["abc"; MEBIBYTE]]),
    ] {
        let refused = server
            .post("/workflows/a/signal/go", &json!({"input": input}))
            .refused(422, "structural_limit_exceeded")
            .await;
        assert_eq!(refused["limit_kind"], "payload_size");
        assert!(refused["current_value"].as_u64() > refused["configured_limit"].as_u64());
    }
}

/// Lists of runs show memos, so their pages are bounded too.
#[tokio::test]
async fn pages_of_runs_with_large_memos_end_early_and_leave_none_out() {
    let server = Server::open().await;
    for number in 0..30 {
        server
            .start_with(json!({
                "workflow_id": format!("w{number}"),
                "workflow_type": "greet",
                "memo": {"text": "x".repeat(180_000)},
            }))
            .await;
    }
    let mut seen = Vec::new();
    let mut next = "/workflows?page_size=200".to_owned();
    let mut pages = 0;
    loop {
        pages += 1;
        let page = server.get(&next).accepted(200).await;
        let rows = page["workflows"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["workflow_id"].to_string()));
        let Some(token) = page["next_page_token"].as_str() else {
            break;
        };
        next = format!("/workflows?page_size=200&next_page_token={token}");
    }
    assert!(pages > 1);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 30);
}
