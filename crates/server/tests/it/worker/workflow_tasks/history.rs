//! Reading the history of a leased task in pages, plain and compressed.

use longhaul_protocol::describe::restore_history;
use serde_json::{Value, json};

use crate::support::{Server, complete, decided, envelope, leased, report, signal, staffed};

/// Returns a leased task of a run with `count` events.
async fn task_with_events(server: &Server, count: usize) -> Value {
    grown(server, count).await;
    let task = server.worker("w").workflow_task().await;
    assert_eq!(task["total_history_events"], count);
    task
}

/// Workflow `wf` with `count` events and a ready task: two of the start, one per recorded value.
async fn grown(server: &Server, count: usize) {
    let value = json!({"type": "record_side_effect", "result": envelope("1")});
    decided(server, json!(vec![value; count - 2])).await;
}

fn sequences(events: &Value) -> Vec<u64> {
    let events = events.as_array().expect("a list of events");
    events
        .iter()
        .map(|event| event["sequence"].as_u64().expect("a number"))
        .collect()
}

/// Reads all events: the poll's page first, then page after page.
async fn read_all(server: &Server, task: &Value, first_token: &Value, fields: Value) -> Vec<u64> {
    let mut read = Vec::new();
    let mut token = first_token.clone();
    while !token.is_null() {
        let mut body = fields.clone();
        body["next_history_page_token"] = token.clone();
        let page = report(server, task, "history", body).accepted(200).await;
        assert_eq!(page["has_more"], !page["next_history_page_token"].is_null());
        assert_ne!(page["next_history_page_token"], token);
        read.extend(sequences(&page["history_events"]));
        token = page["next_history_page_token"].clone();
    }
    read
}

#[tokio::test]
async fn a_long_history_comes_in_pages_of_five_hundred() {
    let server = staffed().await;
    let task = task_with_events(&server, 1200).await;
    assert_eq!(
        sequences(&task["history_events"]),
        (1..=500).collect::<Vec<_>>()
    );
    assert_eq!(task["next_history_page_token"], "NTAw");
    assert_eq!(task["last_history_sequence"], 1200);

    let page = |fields: Value| report(&server, &task, "history", fields).send();
    let second = page(json!({"next_history_page_token": "NTAw"})).await;
    let mut bare = second.bare();
    let events = bare
        .as_object_mut()
        .and_then(|page| page.remove("history_events"))
        .expect("events");
    assert_eq!(sequences(&events), (501..=1000).collect::<Vec<_>>());
    assert_eq!(
        bare,
        json!({
            "task_id": task["task_id"],
            "workflow_task_attempt": 1,
            "total_history_events": 1200,
            "next_history_page_token": "MTAwMA==",
            "has_more": true,
            "next_after_sequence": 1000,
        })
    );
    let third = page(json!({"next_history_page_token": "MTAwMA=="}))
        .await
        .body;
    assert_eq!(
        sequences(&third["history_events"]),
        (1001..=1200).collect::<Vec<_>>()
    );
    assert!(
        third
            .as_object()
            .expect("a page")
            .contains_key("next_history_page_token")
    );
    assert_eq!(third["next_history_page_token"], Value::Null);
    assert_eq!(
        (&third["has_more"], &third["next_after_sequence"]),
        (&json!(false), &Value::Null)
    );
}

#[tokio::test]
async fn pages_of_any_size_have_no_gap_and_no_overlap() {
    let server = staffed().await;
    let task = task_with_events(&server, 23).await;
    let everything: Vec<u64> = (1..=23).collect();
    for size in [1, 2, 7, 22, 23, 24, 1000] {
        let read = read_all(
            &server,
            &task,
            &json!("MA=="),
            json!({"history_page_size": size}),
        )
        .await;
        assert_eq!(read, everything, "pages of {size}");
    }
}

#[tokio::test]
async fn the_token_of_the_first_page_is_fixed() {
    let server = staffed().await;
    let task = task_with_events(&server, 5).await;
    assert_eq!(task["next_history_page_token"], Value::Null);
    let page = report(
        &server,
        &task,
        "history",
        json!({"next_history_page_token": "MA=="}),
    )
    .accepted(200)
    .await;
    assert_eq!(page["history_events"], task["history_events"]);
}

#[tokio::test]
async fn the_first_page_is_as_long_as_the_poll_asks() {
    let server = staffed().await;
    grown(&server, 6).await;
    let answer = server
        .worker("w")
        .poll("workflow", json!({"history_page_size": 2}))
        .send()
        .await;
    let task = leased(answer);
    assert_eq!(sequences(&task["history_events"]), [1, 2]);
    assert_eq!(task["next_history_page_token"], "Mg==");
    let rest = read_all(
        &server,
        &task,
        &task["next_history_page_token"],
        json!({"history_page_size": 3}),
    )
    .await;
    assert_eq!(rest, [3, 4, 5, 6]);
}

#[tokio::test]
async fn other_names_of_the_cursor_mean_the_same() {
    let server = staffed().await;
    let task = task_with_events(&server, 8).await;
    for fields in [
        json!({"next_history_page_token": "Mw==", "history_page_size": 2}),
        json!({"page_token": "Mw==", "page_size": 2}),
        json!({"after_sequence": 3, "history_page_size": 2}),
    ] {
        let page = report(&server, &task, "history", fields)
            .accepted(200)
            .await;
        assert_eq!(sequences(&page["history_events"]), [4, 5]);
        assert_eq!(page["next_after_sequence"], 5);
    }
    let from_start = report(&server, &task, "history", json!({"after_sequence": 0}))
        .accepted(200)
        .await;
    assert_eq!(sequences(&from_start["history_events"]).len(), 8);
}

#[tokio::test]
async fn a_page_after_the_end_is_empty() {
    let server = staffed().await;
    let task = task_with_events(&server, 4).await;
    for after in [4_u64, 5, 1_000_000, u64::MAX] {
        let token = crate::support::base64(after.to_string().as_bytes());
        let page = report(
            &server,
            &task,
            "history",
            json!({"next_history_page_token": token}),
        )
        .accepted(200)
        .await;
        assert_eq!(
            (&page["history_events"], &page["has_more"]),
            (&json!([]), &json!(false)),
            "{after}"
        );
    }
}

#[tokio::test]
async fn an_invalid_token_is_refused() {
    let server = staffed().await;
    let task = task_with_events(&server, 4).await;
    for token in [
        "nonsense!",
        "YWJj",
        "LTE=",
        "MS41",
        "MA",
        "Kw==",
        "IDE=",
        "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
    ] {
        report(
            &server,
            &task,
            "history",
            json!({"next_history_page_token": token}),
        )
        .refused(400, "invalid_page_token")
        .await;
    }
    let missing = report(&server, &task, "history", json!({})).invalid().await;
    assert_eq!(missing, ["next_history_page_token"]);
    for size in [0, 1001] {
        let fields = json!({"next_history_page_token": "MA==", "history_page_size": size});
        assert_eq!(
            report(&server, &task, "history", fields).invalid().await,
            ["history_page_size"]
        );
    }
}

#[tokio::test]
async fn the_pages_of_a_lease_end_where_the_lease_began() {
    let server = staffed().await;
    server.start("wf").await;
    let first = server.worker("w").workflow_task().await;
    let commands = json!([{"type": "schedule_activity", "activity_type": "say"}, {"type": "open_condition_wait"}]);
    complete(&server, &first, commands).accepted(200).await;
    let activity = server.worker("w").activity_task().await;
    signal(&server, "go", json!([])).await;
    let task = server.worker("w").workflow_task().await;
    let seen = task["total_history_events"].clone();
    // The result is appended at once, the signal waits for the end of the task: neither is in the pages of this lease.
    crate::support::activity_report(&server, &activity, "complete", json!({}))
        .accepted(200)
        .await;
    signal(&server, "go", json!([])).await;
    let page = report(
        &server,
        &task,
        "history",
        json!({"next_history_page_token": "MA=="}),
    )
    .accepted(200)
    .await;
    assert_eq!(page["history_events"], task["history_events"]);
    assert_eq!(page["total_history_events"], seen);
    complete(&server, &task, json!([{"type": "open_condition_wait"}]))
        .accepted(200)
        .await;
    let next = server.worker("w").workflow_task().await;
    let more = next["total_history_events"].as_u64();
    assert!(more > seen.as_u64(), "{more:?} after {seen}");
}

/// Returns the plain and the compressed page of a run with `count` events.
async fn both_forms(count: usize, accept: &str) -> (Value, Value) {
    let server = staffed().await;
    grown(&server, count).await;
    let answer = server
        .worker("w")
        .poll("workflow", json!({"accept_history_encoding": accept}))
        .send()
        .await;
    let polled = leased(answer);
    let from_start = json!({"next_history_page_token": "MA==", "accept_history_encoding": accept});
    let page = report(&server, &polled, "history", from_start)
        .accepted(200)
        .await;
    for field in [
        "history_events",
        "history_events_compressed",
        "history_events_encoding",
    ] {
        assert_eq!(
            page.get(field),
            polled.get(field),
            "the poll and the page agree on {field}"
        );
    }
    let plain = report(
        &server,
        &polled,
        "history",
        json!({"next_history_page_token": "MA=="}),
    )
    .accepted(200)
    .await;
    (plain, polled)
}

fn restored(page: &Value) -> Value {
    let text = |field: &str| page[field].as_str().expect("a text").to_owned();
    let bytes = restore_history(
        &text("history_events_encoding"),
        &text("history_events_compressed"),
    );
    serde_json::from_slice(&bytes.expect("an undamaged page")).expect("JSON")
}

#[tokio::test]
async fn a_page_of_fifty_events_or_more_is_compressed_when_asked() {
    for (accept, encoding) in [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("deflate, gzip", "gzip"),
        ("br, deflate", "deflate"),
        (" gzip ", "gzip"),
    ] {
        for count in [50, 51] {
            let (plain, compressed) = both_forms(count, accept).await;
            assert_eq!(compressed["history_events"], json!([]), "{accept}");
            assert_eq!(compressed["history_events_encoding"], encoding, "{accept}");
            assert_eq!(restored(&compressed), plain["history_events"], "{accept}");
            assert_eq!(compressed["total_history_events"], count);
        }
    }
}

#[tokio::test]
async fn a_shorter_page_or_an_unknown_encoding_stays_plain() {
    for (count, accept) in [(49, "gzip"), (49, "deflate"), (60, "br"), (60, "identity")] {
        let (plain, asked) = both_forms(count, accept).await;
        assert_eq!(
            asked["history_events"], plain["history_events"],
            "{count} {accept}"
        );
        assert_eq!(
            plain["history_events"].as_array().map(Vec::len),
            Some(count)
        );
        for absent in ["history_events_compressed", "history_events_encoding"] {
            assert_eq!(asked.get(absent), None, "{count} {accept}");
            assert_eq!(plain.get(absent), None, "not asked for");
        }
    }
}

#[tokio::test]
async fn a_long_history_is_read_compressed_page_by_page() {
    let server = staffed().await;
    let task = task_with_events(&server, 1200).await;
    let mut read = Vec::new();
    let mut token = json!("MA==");
    while !token.is_null() {
        let fields = json!({"next_history_page_token": token, "accept_history_encoding": "gzip"});
        let page = report(&server, &task, "history", fields)
            .accepted(200)
            .await;
        read.extend(sequences(&restored(&page)));
        token = page["next_history_page_token"].clone();
    }
    assert_eq!(read, (1..=1200).collect::<Vec<_>>());
}
