//! Search for tasks, for runs by their tasks, and pending tasks of a type.

use serde_json::{Value, json};

use crate::conductor::support::{ask, call, poll, send, start_hello, tell, update_of, with_hello};
use crate::support::Server;

async fn find(server: &Server, route: &str, query: &[(&str, &str)]) -> Value {
    let query: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(query)
        .finish();
    ask(server, "GET", &format!("{route}?{query}")).await.json()
}

fn members(found: &Value, name: &str) -> Vec<Value> {
    let results = found["results"].as_array().expect("results");
    results.iter().map(|result| result[name].clone()).collect()
}

/// Two runs of `hello`: the task of the first is completed, that of the second waits.
async fn with_two(server: &Server) -> [String; 2] {
    with_hello(server).await;
    let first = start_hello(server, json!({"n": 1})).await;
    let task = poll(server, "greet").await;
    server.advance(2).await;
    let update = update_of(&task, "COMPLETED", json!({"result": "hi"}));
    tell(server, "POST", "/tasks", &update).await.text();
    let second = start_hello(server, json!({"n": 2})).await;
    [first, second]
}

#[tokio::test]
async fn tasks_are_found_with_an_exact_total() {
    let server = Server::open().await;
    let [first, second] = with_two(&server).await;
    let found = find(&server, "/tasks/search", &[("query", "taskType='greet'")]).await;
    assert_eq!(found["totalHits"], 2);
    // What began comes before what waits.
    assert_eq!(members(&found, "workflowId"), [json!(first), json!(second)]);
    let summary = &found["results"][0];
    assert_eq!(
        (&summary["status"], &summary["input"], &summary["output"]),
        (
            &json!("COMPLETED"),
            &json!(r#"{"n":1}"#),
            &json!(r#"{"result":"hi"}"#)
        )
    );
    assert_eq!(
        (&summary["taskDefName"], &summary["executionTime"]),
        (&json!("greet"), &json!(2000))
    );
    assert_eq!(summary["workflowType"], "hello");
    let ended = summary["endTime"].as_str().expect("a text");
    assert!(ended.ends_with('Z'), "{ended}");
    assert_eq!(found["results"][1].get("endTime"), None);
    for (query, total) in [
        ("status = COMPLETED", 1),
        ("status IN (SCHEDULED) AND taskDefName = greet", 1),
        ("workflowType = hello AND status = FAILED", 0),
        ("referenceTaskName = greet_ref", 2),
        ("startTime > 0", 1),
    ] {
        let found = find(&server, "/tasks/search", &[("query", query)]).await;
        assert_eq!(found["totalHits"], total, "{query}");
    }
    let one = [
        ("query", "taskType=greet"),
        ("sort", "scheduledTime:DESC"),
        ("size", "1"),
        ("start", "0"),
    ];
    let found = find(&server, "/tasks/search-v2", &one).await;
    assert_eq!(
        (&found["totalHits"], members(&found, "workflowInstanceId")),
        (&json!(2), vec![json!(second)])
    );
    assert_eq!(found["results"][0]["inputData"], json!({"n": 2}));
    let text = find(&server, "/tasks/search", &[("freeText", "GREET_ref")]).await;
    assert_eq!(text["totalHits"], 2);
    let elsewhere = find(
        &server,
        "/tasks/search",
        &[("namespace", "default"), ("freeText", "nothing")],
    )
    .await;
    assert_eq!(elsewhere, json!({"totalHits": 0, "results": []}));
}

#[tokio::test]
async fn a_change_is_found_by_the_next_request() {
    let server = Server::open().await;
    with_two(&server).await;
    let task = poll(&server, "greet").await;
    let by_status = |status: &'static str| {
        let server = &server;
        async move {
            let query = format!("taskType = greet AND status = {status}");
            find(server, "/tasks/search", &[("query", &query)]).await["totalHits"].clone()
        }
    };
    assert_eq!(by_status("IN_PROGRESS").await, 1);
    let update = update_of(&task, "FAILED_WITH_TERMINAL_ERROR", json!({}));
    tell(&server, "POST", "/tasks", &update).await.text();
    assert_eq!(by_status("IN_PROGRESS").await, 0);
    assert_eq!(by_status("FAILED_WITH_TERMINAL_ERROR").await, 1);
}

#[tokio::test]
async fn runs_are_found_by_their_tasks() {
    let server = Server::open().await;
    let [first, second] = with_two(&server).await;
    let by_task = [("query", "taskType = greet")];
    let found = find(&server, "/workflow/search-by-tasks", &by_task).await;
    assert_eq!(
        (&found["totalHits"], members(&found, "workflowId")),
        (&json!(2), vec![json!(first), json!(second)])
    );
    assert_eq!(found["results"][0]["status"], "COMPLETED");
    let waiting = [("query", "status = SCHEDULED")];
    let found = find(&server, "/workflow/search-by-tasks-v2", &waiting).await;
    assert_eq!(
        (&found["totalHits"], members(&found, "workflowId")),
        (&json!(1), vec![json!(second)])
    );
    assert_eq!(found["results"][0]["input"], json!({"n": 2}));
    assert_eq!(found["results"][0]["tasks"], json!([]));
}

#[tokio::test]
async fn a_malformed_search_is_refused_with_the_mistake() {
    let server = Server::open().await;
    for (parameters, word) in [
        ("query=priority%20%3D%201", "priority"),
        ("query=status", "Incorrectly formatted query string"),
        ("query=startTime%20%3D%20soon", "startTime"),
        ("sort=taskId:UP", "sort"),
        ("size=5001", "size"),
        ("start=-1", "start"),
        ("start=100001", "start"),
    ] {
        for route in [
            "/tasks/search",
            "/tasks/search-v2",
            "/workflow/search-by-tasks",
        ] {
            let answer = ask(&server, "GET", &format!("{route}?{parameters}")).await;
            let refusal = answer.refused(400, "validation_failed");
            let message = refusal["message"].as_str().unwrap();
            assert!(message.contains(word), "{parameters}: {message}");
        }
    }
}

#[tokio::test]
async fn pending_tasks_are_listed_and_counted() {
    let server = Server::open().await;
    let [_, second] = with_two(&server).await;
    server.advance(1).await;
    let third = start_hello(&server, json!({"n": 3})).await;
    let pending = ask(&server, "GET", "/admin/task/greet?start=0&count=10")
        .await
        .json();
    let runs: Vec<&Value> = pending
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["workflowInstanceId"])
        .collect();
    assert_eq!(runs, [&json!(second), &json!(third)]);
    let requeued = send(call(&server, "POST", "/tasks/queue/requeue/greet").json(&json!({}))).await;
    assert_eq!(requeued.text(), "2");
    poll(&server, "greet").await;
    assert_eq!(
        ask(&server, "POST", "/tasks/queue/requeue/greet")
            .await
            .text(),
        "1"
    );
    assert_eq!(
        ask(&server, "POST", "/tasks/queue/requeue/none")
            .await
            .text(),
        "0"
    );
    let page = ask(&server, "GET", "/admin/task/greet?start=1&count=1")
        .await
        .json();
    assert_eq!(page.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn there_is_no_place_for_large_values_outside() {
    let server = Server::open().await;
    for route in [
        "/tasks/externalstoragelocation",
        "/workflow/externalstoragelocation",
    ] {
        let path = format!("{route}?path=x&operation=WRITE&payloadType=TASK_INPUT");
        let refusal = ask(&server, "GET", &path)
            .await
            .refused(400, "validation_failed");
        assert!(
            refusal["message"]
                .as_str()
                .unwrap()
                .contains("not configured")
        );
    }
}
