//! What a task shows of its call.

use std::sync::Arc;

use longhaul_system::{Addresses, HttpCalls};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::server::{Does, Server, answer};
use super::{call, completed, failed, input};

#[tokio::test]
async fn a_call_sends_what_the_task_says_and_shows_the_answer() {
    let server = Server::start(|_| {
        answer(
            "200 Fine",
            &["Content-Type: application/json", "X-Many: a", "X-Many: b"],
            r#"{"n": 17}"#,
        )
    })
    .await;
    let end = call(json!({
        "uri": server.url("/path?q=1"), "method": "POST", "body": {"a": [1, null]},
        "headers": {"X-Many": ["1", "2"], "X-One": 3}, "accept": "text/plain",
    }))
    .await;
    assert_eq!(
        completed(end),
        json!({
            "statusCode": 200, "reasonPhrase": "Fine", "body": {"n": 17},
            "headers": {"Content-Type": ["application/json"], "Content-Length": ["9"], "X-Many": ["a", "b"]},
        })
    );
    let received = server.only();
    assert_eq!(
        (&*received.method, &*received.target),
        ("POST", "/path?q=1")
    );
    assert_eq!(received.body, r#"{"a":[1,null]}"#);
    assert_eq!(received.values("x-many"), ["1", "2"]);
    assert_eq!(received.values("x-one"), ["3"]);
    assert_eq!(received.values("accept"), ["text/plain"]);
    assert_eq!(received.values("content-type"), ["application/json"]);
    assert_eq!(received.values("host"), [server.address.to_string()]);
}

#[tokio::test]
async fn every_method_is_sent() {
    let server = Server::start(|request| match &*request.method {
        "HEAD" => Does::Sends(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_vec()),
        _ => answer("200 OK", &[], "text"),
    })
    .await;
    let methods = [
        "GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE",
    ];
    for method in methods {
        let response = completed(call(json!({"uri": server.url("/"), "method": method})).await);
        let body = if method == "HEAD" {
            Value::Null
        } else {
            json!("text")
        };
        assert_eq!(response["body"], body, "{method}");
    }
    let received: Vec<String> = (server.received.lock().iter())
        .map(|request| request.method.clone())
        .collect();
    assert_eq!(received, methods);
}

#[tokio::test]
async fn a_failure_has_its_answer_too() {
    let server = Server::start(|request| match &*request.target {
        "/text" => answer("404 Not Found", &[], "plain words"),
        "/json" => answer("500 Oh", &["Content-Type: application/json"], r#"{"e": 1}"#),
        _ => answer("503 Service Unavailable", &[], ""),
    })
    .await;
    let get = |path: &str| json!({"uri": server.url(path), "method": "GET"});
    let (reason, response) = failed(call(get("/text")).await);
    assert_eq!(reason, "plain words");
    assert_eq!(
        (&response["statusCode"], &response["body"]),
        (&json!(404), &json!("plain words"))
    );
    let (reason, response) = failed(call(get("/json")).await);
    assert_eq!(reason, r#"{"e":1}"#);
    assert_eq!(
        (&response["reasonPhrase"], &response["body"]),
        (&json!("Oh"), &json!({"e": 1}))
    );
    let (reason, response) = failed(call(get("/empty")).await);
    assert_eq!(reason, "503 Service Unavailable");
    assert_eq!(response["body"], Value::Null);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_after_the_time_out() {
    let server = Server::start(|request| match &*request.target {
        "/head" => Does::SendsAndWaits(Vec::new()),
        _ => Does::SendsAndWaits(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec()),
    })
    .await;
    for path in ["/head", "/body"] {
        let request = json!({"uri": server.url(path), "method": "GET", "readTimeOut": 50});
        let (reason, response) = failed(call(request).await);
        assert_eq!(reason, "No answer within 50 ms");
        assert_eq!(
            response,
            json!({"statusCode": 0, "reasonPhrase": reason, "headers": {}, "body": null})
        );
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_a_failure() {
    let server = Server::start(|request| match &*request.target {
        "/none" => Does::Sends(Vec::new()),
        "/noise" => Does::Sends(b"SSH-2.0-none\r\n".to_vec()),
        _ => Does::Sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec()),
    })
    .await;
    for path in ["/none", "/noise", "/half"] {
        let (reason, _) = failed(call(json!({"uri": server.url(path), "method": "GET"})).await);
        assert!(reason.starts_with("The connection failed: "), "{reason}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let uri = format!("http://{address}/?key=secret");
    let (reason, _) = failed(call(json!({"uri": uri, "method": "GET"})).await);
    let prefix = format!("No connection to {address}: ");
    assert!(reason.starts_with(&prefix), "{reason}");
    assert!(!reason.contains("secret"));
}

#[tokio::test]
async fn an_answer_is_bounded() {
    let endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let server = Server::start(move |request| match &*request.target {
        "/head" => Does::SendsWithoutEnd(b"HTTP/1.1 200 OK\r\nX-Header: ".to_vec()),
        "/exact" => answer("200 OK", &[], &"x".repeat(1000)),
        "/over" => answer("200 OK", &[], &"x".repeat(1001)),
        _ => {
            let mut bytes = endless.clone();
            bytes.extend(b"400\r\n".iter().chain(&[b'x'; 1024]).chain(b"\r\n"));
            Does::SendsWithoutEnd(bytes)
        }
    })
    .await;
    let calls = HttpCalls::new(Addresses::All).with_answer_bytes_max(1000);
    let get = |path: &str| input(json!({"uri": server.url(path), "method": "GET"}));
    let response = completed(calls.call(&get("/exact")).await);
    assert_eq!(response["body"].as_str().unwrap().len(), 1000);
    for path in ["/over", "/endless"] {
        let (reason, _) = failed(calls.call(&get(path)).await);
        assert_eq!(
            reason,
            "The answer has more than 1000 bytes (limit: HTTP answer)"
        );
    }
    let (reason, _) = failed(calls.call(&get("/head")).await);
    assert!(reason.starts_with("The connection failed: "), "{reason}");
}

#[tokio::test]
async fn many_calls_are_independent() {
    let server = Server::start(|request| match &*request.target {
        "/slow" => Does::SendsAndWaits(Vec::new()),
        target => answer("200 OK", &[], target),
    })
    .await;
    let calls = Arc::new(HttpCalls::new(Addresses::All));
    let slow = input(json!({"uri": server.url("/slow"), "method": "GET", "readTimeOut": 600_000}));
    let hanging = {
        let calls = Arc::clone(&calls);
        tokio::spawn(async move { calls.call(&slow).await })
    };
    let quick = (0..50).map(|number| {
        let request = json!({"uri": server.url(&format!("/{number}")), "method": "GET"});
        let calls = Arc::clone(&calls);
        async move { (number, completed(calls.call(&input(request)).await)) }
    });
    for (number, response) in futures::future::join_all(quick).await {
        assert_eq!(response["body"], json!(format!("/{number}")));
    }
    assert!(!hanging.is_finished());
    hanging.abort();
}
