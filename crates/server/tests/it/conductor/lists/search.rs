//! Searches for definition runs, and the ids of the open runs of a definition.

use axum::body::{Body, to_bytes};
use http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::Server;

/// The answer to a request of a Conductor client.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) status: u16,
    pub(super) kind: Option<String>,
    pub(super) body: String,
}

impl Got {
    /// Returns the body of a success.
    pub(super) fn json(&self) -> Value {
        assert_eq!(
            (self.status, self.kind.as_deref()),
            (200, Some("application/json")),
            "{}",
            self.body
        );
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Checks that the request was refused with 400. Returns the message.
    pub(super) fn bad_request(&self) -> String {
        assert_eq!(
            (self.status, self.kind.as_deref()),
            (400, Some("application/json")),
            "{}",
            self.body
        );
        let body: Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(body["status"], 400, "{body}");
        assert_eq!(body["reason"], "validation_failed", "{body}");
        assert_eq!(body["retryable"], false, "{body}");
        body["message"].as_str().expect("a message").to_owned()
    }
}

/// Sends a request. `path` begins after `/api`.
pub(super) async fn send(server: &Server, method: Method, path: &str, body: &Value) -> Got {
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    let request = Request::builder()
        .method(method)
        .uri(format!("/api{path}"))
        .body(body)
        .expect("a request");
    let response = server.router.clone().oneshot(request).await;
    let (parts, body) = response.expect("the router always answers").into_parts();
    let bytes = to_bytes(body, usize::MAX).await.expect("a body in memory");
    let kind = parts.headers.get("content-type");
    Got {
        status: parts.status.as_u16(),
        kind: kind.map(|kind| kind.to_str().expect("text").to_owned()),
        body: String::from_utf8(bytes.to_vec()).expect("text"),
    }
}

pub(super) async fn get(server: &Server, path: &str) -> Got {
    send(server, Method::GET, path, &Value::Null).await
}

/// Registers a definition with these tasks.
pub(super) async fn register(server: &Server, definition: &Value) {
    let put = send(
        server,
        Method::PUT,
        "/metadata/workflow",
        &json!([definition]),
    )
    .await;
    assert_eq!(put.status, 200, "{}", put.body);
}

/// Registers a definition that completes at once, and one that waits for a person.
pub(super) async fn definitions(server: &Server) {
    let noop = json!({"name": "nothing", "taskReferenceName": "nothing", "type": "NOOP"});
    register(
        server,
        &json!({"name": "quick", "version": 1, "tasks": [noop], "outputParameters": {"g": "hi ${workflow.input.n}"}}),
    )
    .await;
    let human = json!({"name": "approve", "taskReferenceName": "approve", "type": "HUMAN"});
    for version in [1, 2] {
        register(
            server,
            &json!({"name": "slow", "version": version, "tasks": [human.clone()]}),
        )
        .await;
    }
}

/// Starts a run and returns its id.
pub(super) async fn start(server: &Server, request: &Value) -> String {
    let started = send(server, Method::POST, "/workflow", request).await;
    assert_eq!(
        (started.status, started.kind.as_deref()),
        (200, Some("text/plain;charset=UTF-8")),
        "{}",
        started.body
    );
    started.body
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns the ids of the results of a query, and their total.
async fn found(server: &Server, query: &str, rest: &str) -> (Vec<String>, i64) {
    let path = format!("/workflow/search?query={}{rest}", encoded(query));
    let page = get(server, &path).await.json();
    let results = page["results"].as_array().expect("results");
    let ids = results
        .iter()
        .map(|run| run["workflowId"].as_str().expect("an id").to_owned());
    (ids.collect(), page["totalHits"].as_i64().expect("a total"))
}

#[tokio::test]
async fn a_search_shows_the_summary_of_a_run() {
    let server = Server::open().await;
    definitions(&server).await;
    let request = json!({"name": "quick", "version": 1, "correlationId": "c-1", "priority": 5, "input": {"n": "x", "none": null}});
    let id = start(&server, &request).await;
    let path = format!("/workflow/search?query=workflowId%3D%22{id}%22&freeText=*&start=0&size=10");
    let now = "2026-01-01T00:00:00.000Z";
    assert_eq!(
        get(&server, &path).await.json(),
        json!({"totalHits": 1, "results": [{
            "workflowType": "quick",
            "version": 1,
            "workflowId": id,
            "correlationId": "c-1",
            "startTime": now,
            "updateTime": now,
            "endTime": now,
            "status": "COMPLETED",
            "input": "{\"n\":\"x\",\"none\":null}",
            "output": "{\"g\":\"hi x\"}",
            "executionTime": 0,
            "failedReferenceTaskNames": "",
            "priority": 5,
            "failedTaskNames": [],
            "taskToDomain": {},
            "parentWorkflowId": "",
            "classifier": "workflow",
            "inputSize": 21,
            "outputSize": 12,
        }]})
    );
}

#[tokio::test]
async fn a_search_shows_the_end_and_the_whole_of_large_values() {
    let server = Server::open().await;
    definitions(&server).await;
    let big = "é".repeat(3000);
    let id = start(&server, &json!({"name": "slow", "input": {"big": big}})).await;
    server.advance(3).await;
    let stopped = send(
        &server,
        Method::DELETE,
        &format!("/workflow/{id}?reason=enough"),
        &Value::Null,
    )
    .await;
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    let page = get(&server, "/workflow/search?query=status%3DTERMINATED")
        .await
        .json();
    let run = &page["results"][0];
    let input = json!({"big": big}).to_string();
    assert_eq!(run["input"], input);
    assert_eq!(run["inputSize"], input.len());
    assert_eq!(run["reasonForIncompletion"], "enough");
    assert_eq!(run["executionTime"], 3000);
    assert_eq!(run["endTime"], "2026-01-01T00:00:03.000Z");
}

#[tokio::test]
async fn queries_sort_orders_pages_and_totals() {
    let server = Server::open().await;
    definitions(&server).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let name = if number % 2 == 0 { "quick" } else { "slow" };
        let request = json!({"name": name, "version": 1, "correlationId": format!("c-{number}"), "priority": number % 3,
            "input": {"Customer": format!("Ann-{number}")}});
        ids.push(start(&server, &request).await);
        server.advance(1).await;
    }
    let pick = |places: &[usize]| {
        places
            .iter()
            .map(|place| ids[*place].clone())
            .collect::<Vec<_>>()
    };
    for (query, rest, expected, total) in [
        ("", "", &[4, 3, 2, 1, 0][..], 5),
        (
            "workflowType='quick' AND status='COMPLETED'",
            "",
            &[4, 2, 0],
            3,
        ),
        (
            "workflowType IN (slow) AND status IN (RUNNING)",
            "",
            &[3, 1],
            2,
        ),
        ("correlationId='c-2' AND workflowType='quick'", "", &[2], 1),
        (
            "startTime>=1767225602000 AND startTime<=1767225603000",
            "",
            &[3, 2],
            2,
        ),
        (
            "startTime > 1767225603000 OR status=RUNNING",
            "",
            &[4, 3, 1],
            3,
        ),
        ("correlationId = 'C-*'", "&size=2", &[4, 3], 5),
        ("correlationId = 'C-*'", "&size=2&start=2", &[2, 1], 5),
        ("correlationId = 'C-*'", "&size=2&start=4", &[0], 5),
        ("correlationId = 'C-*'", "&size=2&start=6", &[], 5),
        ("", "&size=0", &[], 5),
        ("", "&sort=startTime:ASC", &[0, 1, 2, 3, 4], 5),
        (
            "",
            "&sort=priority:DESC%7CstartTime:ASC",
            &[2, 1, 4, 0, 3],
            5,
        ),
        ("", "&sort=colour:ASC", &[4, 3, 2, 1, 0], 5),
        ("", "&freeText=ANN-3", &[3], 1),
        ("status = COMPLETED", "&freeText=ann-3", &[], 0),
        ("", "&freeText=*", &[4, 3, 2, 1, 0], 5),
        // What clients send for parameters that they do not set.
        (
            "",
            "&queryId=&sort=&freeText=None&skipCache=false&size=None",
            &[4, 3, 2, 1, 0],
            5,
        ),
        ("None", "", &[4, 3, 2, 1, 0], 5),
    ] {
        assert_eq!(
            found(&server, query, rest).await,
            (pick(expected), total),
            "{query} {rest}"
        );
    }
    let pause = send(
        &server,
        Method::PUT,
        &format!("/workflow/{}/pause", ids[1]),
        &Value::Null,
    )
    .await;
    assert_eq!(pause.status, 200, "{}", pause.body);
    assert_eq!(found(&server, "status=PAUSED", "").await, (pick(&[1]), 1));
    assert_eq!(found(&server, "status=RUNNING", "").await, (pick(&[3]), 1));
}

#[tokio::test]
async fn a_wrong_search_is_refused_and_names_its_mistake() {
    let server = Server::open().await;
    let long = format!("query={}", "x".repeat(17 << 10));
    for (parameters, message) in [
        (
            "query=workflowTyp%3D%27x%27",
            "Incorrectly formatted query string: `workflowTyp` is not a field",
        ),
        (
            "query=status%3D",
            "Incorrectly formatted query string: the query ends where a value should be (at character 8)",
        ),
        (
            "query=status%3DDONE",
            "a status is one of RUNNING, PAUSED, COMPLETED, FAILED, TIMED_OUT, TERMINATED",
        ),
        ("query=%28%28", "Incorrectly formatted query string"),
        (&long, "at most 16384 bytes"),
        ("size=5001", "size must be from 0 to 5000"),
        ("size=-1", "size must be from 0 to 5000"),
        ("start=-1", "start must be from 0 to 100000"),
        ("start=100001", "start must be from 0 to 100000"),
        ("start=x", "start must be a whole number"),
        (
            "sort=startTime:UP",
            "sort: a sort order is field:ASC or field:DESC",
        ),
        ("topLevelOnly=perhaps", "topLevelOnly must be true or false"),
    ] {
        for route in ["search", "search-v2"] {
            let got = get(&server, &format!("/workflow/{route}?{parameters}")).await;
            assert!(
                got.bad_request().contains(message),
                "{parameters:.40}: {}",
                got.body
            );
        }
    }
    assert_eq!(
        get(&server, "/workflow/search?size=5000&start=100000")
            .await
            .json(),
        json!({"totalHits": 0, "results": []})
    );
}

#[tokio::test]
async fn whole_workflows_are_found_without_their_tasks() {
    let server = Server::open().await;
    definitions(&server).await;
    let id = start(&server, &json!({"name": "quick", "input": {"n": 1}})).await;
    start(&server, &json!({"name": "slow"})).await;
    let page = get(&server, "/workflow/search-v2?query=workflowType%3Dquick")
        .await
        .json();
    assert_eq!(page["totalHits"], 1);
    let expected = get(&server, &format!("/workflow/{id}?includeTasks=false"))
        .await
        .json();
    assert_eq!(page["results"], json!([expected]));
    assert_eq!(page["results"][0]["tasks"], json!([]));
}

#[tokio::test]
async fn parents_and_classifiers_narrow_a_search() {
    let server = Server::open().await;
    definitions(&server).await;
    let sub = json!({"name": "child", "taskReferenceName": "child", "type": "SUB_WORKFLOW",
        "subWorkflowParam": {"name": "quick", "version": 1}});
    register(
        &server,
        &json!({"name": "parent", "version": 1, "tasks": [sub], "metadata": {"classifier": "agent"}}),
    )
    .await;
    let parent = start(&server, &json!({"name": "parent", "correlationId": "c"})).await;
    server.idle().await;
    let (children, _) = found(&server, &format!("parentWorkflowId={parent}"), "").await;
    assert_eq!(children.len(), 1);
    assert_eq!(found(&server, "correlationId=c", "").await.1, 2);
    let top = (vec![parent.clone()], 1);
    assert_eq!(found(&server, "", "&topLevelOnly=true").await, top);
    assert_eq!(found(&server, "parentWorkflowId=\"\"", "").await, top);
    assert_eq!(found(&server, "", "&classifier=agent,other").await, top);
    assert_eq!(
        found(&server, "", "&classifier=workflow").await,
        (children, 1)
    );
    assert_eq!(found(&server, "", "&classifier=none").await.1, 0);
    let page = get(&server, "/workflow/search?classifier=agent")
        .await
        .json();
    assert_eq!(page["results"][0]["classifier"], "agent");
}

#[tokio::test]
async fn the_ids_of_open_runs_are_listed_by_version() {
    let server = Server::open().await;
    definitions(&server).await;
    let first = start(&server, &json!({"name": "slow", "version": 1})).await;
    let second = start(&server, &json!({"name": "slow", "version": 2})).await;
    server.advance(10).await;
    let third = start(&server, &json!({"name": "slow", "version": 1})).await;
    let ended = start(&server, &json!({"name": "quick"})).await;
    let paused = send(
        &server,
        Method::PUT,
        &format!("/workflow/{third}/pause"),
        &Value::Null,
    )
    .await;
    assert_eq!(paused.status, 200);
    for (path, expected) in [
        // Version 1 is the default, and a paused run is open.
        ("slow", json!([third, first])),
        ("slow?version=2", json!([second])),
        ("slow?version=3", json!([])),
        ("quick", json!([])),
        ("unknown", json!([])),
        // Everything that began in a time, open or not.
        (
            "quick?startTime=1767225610000&endTime=1767225610000",
            json!([ended]),
        ),
        (
            "slow?startTime=1767225600000&endTime=1767225609999",
            json!([first]),
        ),
        (
            "slow?version=2&startTime=1767225600000&endTime=1767225609999",
            json!([second]),
        ),
        // One time alone has no effect.
        ("slow?startTime=1767225610001", json!([third, first])),
    ] {
        let got = get(&server, &format!("/workflow/running/{path}")).await;
        assert_eq!(got.json(), expected, "{path}");
    }
    let got = get(&server, "/workflow/running/slow?startTime=soon&endTime=1").await;
    assert!(
        got.bad_request()
            .contains("startTime must be a whole number")
    );
}

#[tokio::test]
async fn each_program_and_namespace_lists_its_own_runs() {
    let server = Server::open().await;
    definitions(&server).await;
    let id = start(&server, &json!({"name": "slow", "correlationId": "c"})).await;
    server.start("code").await;
    assert_eq!(found(&server, "", "").await, (vec![id.clone()], 1));
    let listed = server.get("/workflows").accepted(200).await;
    assert_eq!(
        crate::support::texts(&listed["workflows"], "workflow_id"),
        ["code"]
    );
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    for (path, expected) in [
        (
            "search?namespace=other",
            json!({"totalHits": 0, "results": []}),
        ),
        ("running/slow?namespace=other", json!([])),
        ("slow/correlated/c?namespace=other", json!([])),
    ] {
        let got = get(&server, &format!("/workflow/{path}")).await;
        assert_eq!(got.json(), expected, "{path}");
    }
}
