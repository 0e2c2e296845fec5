//! Redirects, and the addresses that a call may have.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_host::TaskEnd;
use longhaul_system::{Addresses, HttpCalls, Resolve};
use serde_json::{Value, json};

use super::server::{Server, answer};
use super::{call, completed, failed, input};

/// Answers with one address after the other, and counts.
struct Resolver {
    answers: Vec<IpAddr>,
    asked: AtomicUsize,
}

impl Resolver {
    fn new(answers: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            answers: answers.iter().map(|text| text.parse().unwrap()).collect(),
            asked: AtomicUsize::new(0),
        })
    }
}

impl Resolve for Resolver {
    fn resolve<'a>(&'a self, _name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers[asked.min(self.answers.len() - 1)];
        std::future::ready(Ok(vec![answer])).boxed()
    }
}

async fn public_call(uri: &str) -> TaskEnd {
    let calls = HttpCalls::new(Addresses::Public);
    let request = json!({"uri": uri, "method": "GET", "connectionTimeOut": 1000});
    calls.call(&input(request)).await
}

#[tokio::test]
async fn redirects_are_followed_up_to_a_bound() {
    let server = Server::start(|request| match &*request.target {
        "/0" => answer(
            "200 OK",
            &[],
            &format!("{} {}", request.method, request.body),
        ),
        "/loop" => answer("302 Found", &["Location: /loop"], ""),
        "/nowhere" => answer("302 Found", &[], "no place"),
        "/file" => answer("302 Found", &["Location: file:///etc/passwd"], ""),
        target => {
            let left: usize = target[1..].parse().unwrap();
            let status = if left == 1 {
                "303 See Other"
            } else {
                "307 Temporary"
            };
            answer(status, &[&format!("Location: /{}", left - 1)], "")
        }
    })
    .await;
    let post = |path: &str| json!({"uri": server.url(path), "method": "POST", "body": "b"});
    let response = completed(call(post("/5")).await);
    assert_eq!(response["body"], json!("GET "));
    let methods: Vec<String> = (server.received.lock().iter())
        .map(|request| format!("{} {}", request.method, request.body))
        .collect();
    assert_eq!(
        methods,
        ["POST b", "POST b", "POST b", "POST b", "POST b", "GET "]
    );
    let (reason, _) = failed(call(post("/6")).await);
    assert_eq!(reason, "The call had more than 5 redirects");
    let (reason, _) = failed(call(post("/loop")).await);
    assert_eq!(reason, "The call had more than 5 redirects");
    let (reason, response) = failed(call(post("/nowhere")).await);
    assert_eq!(
        (&*reason, &response["statusCode"]),
        ("no place", &json!(302))
    );
    let (reason, _) = failed(call(post("/file")).await);
    assert!(reason.contains("scheme file is not supported"), "{reason}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_in_every_form() {
    let server = Server::start(|_| answer("200 OK", &[], "reached")).await;
    let port = server.address.port();
    let hosts = [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "017700000001",
        "localhost",
        "LOCALHOST",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.100.100.200",
        "[fe80::1]",
    ];
    for host in hosts {
        let (reason, _) = failed(public_call(&format!("http://{host}:{port}/")).await);
        assert!(
            reason.contains("is not public (limit: deny private)"),
            "{host}: {reason}"
        );
    }
    assert!(server.received.lock().is_empty());
    let uri = format!("http://2130706433:{port}/");
    let response = completed(call(json!({"uri": uri, "method": "GET"})).await);
    assert_eq!(response["body"], json!("reached"));
}

#[tokio::test]
async fn a_name_is_resolved_once_for_each_connection() {
    let server = Server::start(|_| answer("200 OK", &[], "reached")).await;
    let uri = format!("http://rebinding.example:{}/", server.address.port());
    let request = input(json!({"uri": uri, "method": "GET", "connectionTimeOut": 50}));
    // The first answer is public, but nothing is there. The second would be this machine.
    let resolver = Resolver::new(&["192.0.1.1", "127.0.0.1"]);
    let calls = HttpCalls::new(Addresses::Public).with_resolver(resolver.clone());
    let (reason, _) = failed(calls.call(&request).await);
    assert!(
        reason.starts_with("No connection to rebinding.example:"),
        "{reason}"
    );
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
    let (reason, _) = failed(calls.call(&request).await);
    assert!(reason.contains("is not public"), "{reason}");
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 2);
    assert!(server.received.lock().is_empty());
    // A name that leads to this machine works where it may.
    let calls = HttpCalls::new(Addresses::All).with_resolver(resolver);
    assert_eq!(
        completed(calls.call(&request).await)["body"],
        json!("reached")
    );
    assert_eq!(
        server.only().values("host"),
        [format!("rebinding.example:{}", server.address.port())]
    );
}

#[tokio::test]
async fn the_target_of_a_redirect_is_checked_and_gets_no_headers_of_the_task() {
    let target = Server::start(|_| answer("200 OK", &[], "reached")).await;
    let place = format!("Location: {}", target.url("/there"));
    let first = Server::start(move |_| answer("302 Found", &[&place], "")).await;
    let request = json!({
        "uri": first.url("/"), "method": "GET", "headers": {"Authorization": "Bearer t", "X-Key": "k"}
    });
    let response: Value = completed(call(request).await);
    assert_eq!(response["body"], json!("reached"));
    assert_eq!(first.only().values("x-key"), ["k"]);
    let received = target.only();
    assert!(received.values("x-key").is_empty());
    assert!(received.values("authorization").is_empty());
    assert_eq!(received.values("accept"), ["application/json"]);
}
