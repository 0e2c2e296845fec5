//! History pages and waiting for the next event.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Server;

fn sequences(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("a list of events");
    events
        .iter()
        .map(|event| event["sequence"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test]
async fn an_event_has_every_field_and_no_second_name() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let page = server
        .get(&format!("/workflows/w/runs/{run_id}/history"))
        .accepted(200)
        .await;
    assert_eq!(
        (&page["workflow_id"], &page["run_id"]),
        (&json!("w"), &json!(run_id))
    );
    assert_eq!(page["next_page_token"], Value::Null);
    assert_eq!(
        (&page["compatibility"], &page["compatibility_status"]),
        (&Value::Null, &json!("compatible"))
    );
    assert_eq!(sequences(&page), [1, 2]);
    let types: Vec<&str> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["StartAccepted", "WorkflowStarted"]);
    let event = page["events"][1].as_object().unwrap();
    let names: Vec<&String> = event.keys().collect();
    assert_eq!(
        names,
        [
            "event_type",
            "id",
            "payload",
            "principal",
            "sequence",
            "timestamp"
        ]
    );
    assert_eq!(event["timestamp"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(
        event["principal"],
        json!({"type": "server", "id": "anonymous"})
    );
    assert_eq!(event["payload"]["workflow_type"], "greet");
    let block = &page["control_plane"];
    assert_eq!(
        (&block["operation"], &block["workflow_id"], &block["run_id"]),
        (&json!("history"), &json!("w"), &json!(run_id))
    );
    assert_eq!(block["next_page_token"], Value::Null);
}

#[tokio::test]
async fn pages_follow_each_other_by_tokens_of_the_last_sequence() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    for _ in 0..10 {
        server
            .post("/workflows/w/signal/s", &json!({}))
            .accepted(202)
            .await;
    }
    let path = format!("/workflows/w/runs/{run_id}/history");
    let first = server
        .get(&format!("{path}?page_size=5"))
        .accepted(200)
        .await;
    assert_eq!(
        (sequences(&first), &first["next_page_token"]),
        ((1..=5).collect(), &json!("NQ=="))
    );
    assert_eq!(first["control_plane"]["next_page_token"], "NQ==");
    let second = server
        .get(&format!("{path}?page_size=5&next_page_token=NQ=="))
        .accepted(200)
        .await;
    assert_eq!(
        (sequences(&second), &second["next_page_token"]),
        ((6..=10).collect(), &json!("MTA="))
    );
    let third = server
        .get(&format!("{path}?page_size=5&next_page_token=MTA%3D"))
        .accepted(200)
        .await;
    assert_eq!(
        (sequences(&third), &third["next_page_token"]),
        (vec![11, 12], &Value::Null)
    );
    let beyond = server
        .get(&format!("{path}?page_token=OTk="))
        .accepted(200)
        .await;
    assert_eq!(
        (sequences(&beyond), &beyond["next_page_token"]),
        (vec![], &Value::Null)
    );
    let exact = server
        .get(&format!("{path}?page_size=12"))
        .accepted(200)
        .await;
    assert_eq!(exact["next_page_token"], Value::Null);
}

#[tokio::test]
async fn wrong_parameters_and_missing_runs_are_refused() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = format!("/workflows/w/runs/{run_id}/history");
    for (query, field) in [
        ("page_size=0", "page_size"),
        ("page_size=1001", "page_size"),
        ("next_page_token=x", "next_page_token"),
        ("next_page_token=YWJj", "next_page_token"),
        ("next_page_token=LTE=", "next_page_token"),
        ("wait_new_event=maybe", "wait_new_event"),
    ] {
        assert_eq!(
            server.get(&format!("{path}?{query}")).invalid().await,
            [field],
            "{query}"
        );
    }
    server
        .get(&format!("{path}?page_size=1000&wait_new_event=0"))
        .accepted(200)
        .await;
    server
        .get("/workflows/w/runs/none/history")
        .refused(404, "run_not_found")
        .await;
    server
        .get(&format!("/workflows/none/runs/{run_id}/history"))
        .refused(404, "instance_not_found")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_next_event() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = format!("/workflows/w/runs/{run_id}/history?wait_new_event=1&next_page_token=Mg==");
    let began = tokio::time::Instant::now();
    let follow = server.get(&path).accepted(200);
    let signal = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        server
            .post("/workflows/w/signal/s", &json!({}))
            .accepted(202)
            .await
    };
    let (page, _) = tokio::join!(follow, signal);
    assert_eq!(sequences(&page), [3]);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_close_is_not_ended_by_other_events() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = format!("/workflows/w/runs/{run_id}/history?wait_for_close=1&next_page_token=Mg==");
    let began = tokio::time::Instant::now();
    let follow = server.get(&path).accepted(200);
    let others = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        server
            .post("/workflows/w/signal/s", &json!({}))
            .accepted(202)
            .await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        server
            .post("/workflows/w/terminate", &json!({}))
            .accepted(200)
            .await;
    };
    let (page, ()) = tokio::join!(follow, others);
    assert_eq!(sequences(&page), [3, 4, 5], "the signal and the end");
    assert!(began.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_new_event_ends_after_half_a_minute_with_an_empty_page() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path =
        format!("/workflows/w/runs/{run_id}/history?wait_new_event=true&next_page_token=Mg==");
    let began = tokio::time::Instant::now();
    let page = server.get(&path).accepted(200).await;
    assert_eq!(
        (sequences(&page), &page["next_page_token"]),
        (vec![], &Value::Null)
    );
    let waited = began.elapsed();
    assert!(
        waited >= Duration::from_secs(30) && waited < Duration::from_secs(31),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_once_if_there_is_an_event_or_the_run_is_closed() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = format!("/workflows/w/runs/{run_id}/history?wait_new_event=1");
    let began = tokio::time::Instant::now();
    assert_eq!(sequences(&server.get(&path).accepted(200).await), [1, 2]);
    server
        .post("/workflows/w/terminate", &json!({}))
        .accepted(200)
        .await;
    let page = server
        .get(&format!("{path}&next_page_token=NA=="))
        .accepted(200)
        .await;
    assert_eq!(sequences(&page), Vec::<u64>::new());
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_server_stops() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = format!("/workflows/w/runs/{run_id}/history?wait_new_event=1&next_page_token=Mg==");
    let began = tokio::time::Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.host.begin_stop();
    };
    let (page, ()) = tokio::join!(server.get(&path).accepted(200), stop);
    assert_eq!(sequences(&page), Vec::<u64>::new());
    assert!(began.elapsed() < Duration::from_secs(2));
}
