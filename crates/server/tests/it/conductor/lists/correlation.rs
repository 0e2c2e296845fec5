//! Definition runs by correlation id.

use http::Method;
use serde_json::{Value, json};

use super::search::{Got, definitions, get, send, start};
use crate::support::Server;

async fn post(server: &Server, path: &str, body: &Value) -> Got {
    send(server, Method::POST, path, body).await
}

/// Returns the ids of a list of workflows.
fn ids(list: &Value) -> Vec<&str> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|run| run["workflowId"].as_str().expect("an id"))
        .collect()
}

/// Two open runs and a completed one with the id `c-1`, and an open one with `c-2`.
async fn filled() -> (Server, [String; 4]) {
    let server = Server::open().await;
    definitions(&server).await;
    let mut started = Vec::new();
    for (name, version, id) in [
        ("slow", 1, "c-1"),
        ("slow", 2, "c-1"),
        ("quick", 1, "c-1"),
        ("slow", 1, "c-2"),
    ] {
        let request =
            json!({"name": name, "version": version, "correlationId": id, "input": {"n": id}});
        started.push(start(&server, &request).await);
        server.advance(1).await;
    }
    (server, started.try_into().expect("four runs"))
}

#[tokio::test]
async fn runs_are_found_by_name_and_correlation_id() {
    let (server, [first, second, done, other]) = filled().await;
    for (path, expected) in [
        ("slow/correlated/c-1", vec![&second, &first]),
        ("slow/correlated/c-2", vec![&other]),
        ("quick/correlated/c-1", vec![]),
        ("quick/correlated/c-1?includeClosed=true", vec![&done]),
        (
            "quick/correlated/c-1?includeClosed=True&includeTasks=None",
            vec![&done],
        ),
        ("slow/correlated/none?includeClosed=true", vec![]),
        ("unknown/correlated/c-1", vec![]),
    ] {
        let got = get(&server, &format!("/workflow/{path}")).await.json();
        assert_eq!(ids(&got), expected, "{path}");
    }
    // Each is the whole record, with its tasks if they are asked for.
    for include in ["false", "true"] {
        let path = format!("/workflow/slow/correlated/c-2?includeTasks={include}");
        let listed = get(&server, &path).await.json();
        let one = get(
            &server,
            &format!("/workflow/{other}?includeTasks={include}"),
        )
        .await
        .json();
        assert_eq!(listed, json!([one]));
        let tasks = one["tasks"].as_array().map(Vec::len);
        assert_eq!(tasks, Some(usize::from(include == "true")));
    }
    // Only running ones count as open here.
    let paused = send(
        &server,
        Method::PUT,
        &format!("/workflow/{other}/pause"),
        &Value::Null,
    )
    .await;
    assert_eq!(paused.status, 200);
    assert_eq!(
        get(&server, "/workflow/slow/correlated/c-2").await.json(),
        json!([])
    );
}

#[tokio::test]
async fn every_correlation_id_that_is_asked_for_is_in_the_answer() {
    let (server, [first, second, done, other]) = filled().await;
    let asked = json!(["c-1", "c-2", "none", "c-1"]);
    let got = post(&server, "/workflow/slow/correlated", &asked)
        .await
        .json();
    assert_eq!(got.as_object().map(serde_json::Map::len), Some(3));
    assert_eq!(ids(&got["c-1"]), [second.as_str(), first.as_str()]);
    assert_eq!(ids(&got["c-2"]), [other.as_str()]);
    assert_eq!(got["none"], json!([]));
    let got = post(
        &server,
        "/workflow/quick/correlated?includeClosed=true&includeTasks=true",
        &asked,
    )
    .await
    .json();
    assert_eq!(ids(&got["c-1"]), [done.as_str()]);
    assert_eq!(got["c-1"][0]["tasks"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        post(&server, "/workflow/slow/correlated", &json!([]))
            .await
            .json(),
        json!({})
    );

    let body = json!({"correlationIds": ["c-1", "c-2"], "workflowNames": ["slow", "quick"]});
    let got = post(&server, "/workflow/correlated/batch", &body)
        .await
        .json();
    assert_eq!(ids(&got["c-1"]), [second.as_str(), first.as_str()]);
    let got = post(
        &server,
        "/workflow/correlated/batch?includeClosed=true",
        &body,
    )
    .await
    .json();
    assert_eq!(
        ids(&got["c-1"]),
        [done.as_str(), second.as_str(), first.as_str()]
    );
    assert_eq!(ids(&got["c-2"]), [other.as_str()]);
    let body = json!({"correlationIds": ["c-1"], "workflowNames": null});
    assert_eq!(
        post(&server, "/workflow/correlated/batch", &body)
            .await
            .json(),
        json!({"c-1": []})
    );
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let server = Server::open().await;
    let many = json!(vec!["c"; 1001]);
    for (path, body, message) in [
        ("slow/correlated", json!("c-1"), "Validation failed"),
        ("slow/correlated", json!([["c"]]), "Validation failed"),
        ("slow/correlated", Value::Null, "The body is not JSON"),
        (
            "slow/correlated",
            many.clone(),
            "correlationIds: at most 1000 can be named",
        ),
        (
            "slow/correlated?includeClosed=maybe",
            json!([]),
            "includeClosed must be true or false",
        ),
        ("correlated/batch", json!([]), "Validation failed"),
        (
            "correlated/batch",
            json!({"correlationIds": 7}),
            "Validation failed",
        ),
        (
            "correlated/batch",
            json!({"workflowNames": many}),
            "workflowNames: at most 1000 can be named",
        ),
    ] {
        let got = post(&server, &format!("/workflow/{path}"), &body).await;
        assert!(got.bad_request().contains(message), "{path}: {}", got.body);
    }
}
