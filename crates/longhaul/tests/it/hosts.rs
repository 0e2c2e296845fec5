//! Host names, web pages and credentials that the built binary accepts.

use serde_json::Value;

use crate::binary::longhaul;
use crate::serve::{Server, refused};

async fn send(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    (
        status,
        body["reason"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test]
async fn a_loopback_server_without_credentials_accepts_only_its_own_names() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--allowed-host", "build.example"]);
    let client = reqwest::Client::new();
    let asked = |host: &'static str| {
        client
            .get(format!("{}/api/health", server.url))
            .header("Host", host)
    };
    assert_eq!(send(asked("localhost:1")).await.0, 200);
    assert_eq!(send(asked("build.example")).await.0, 200);
    assert_eq!(
        send(asked("evil.example")).await,
        (421, "host_not_allowed".to_owned())
    );
    let page = client
        .post(format!("{}/api/workflows", server.url))
        .header("Origin", "http://evil.example");
    assert_eq!(send(page).await, (403, "origin_not_allowed".to_owned()));
}

#[tokio::test]
async fn any_name_is_accepted_with_credentials_or_insecure() {
    for flags in [
        vec!["--token", "t"],
        vec!["--insecure", "--listen", "0.0.0.0:0"],
    ] {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path(), &flags);
        let url = server.url.replace("0.0.0.0", "127.0.0.1");
        let asked = reqwest::Client::new()
            .get(format!("{url}/api/health"))
            .header("Host", "longhaul.example");
        assert_eq!(send(asked).await.0, 200, "{flags:?}");
    }
}

#[tokio::test]
async fn metrics_need_an_operator_token_if_tokens_are_set() {
    let data = tempfile::tempdir().unwrap();
    let tokens = [
        "--worker-token",
        "w",
        "--operator-token",
        "o",
        "--admin-token",
        "a",
    ];
    let server = Server::start(data.path(), &tokens);
    let client = reqwest::Client::new();
    let asked = |token: Option<&str>| {
        let request = client.get(format!("{}/metrics", server.url));
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    };
    assert_eq!(send(asked(None)).await, (401, "unauthorized".to_owned()));
    assert_eq!(send(asked(Some("x"))).await.0, 401);
    assert_eq!(send(asked(Some("w"))).await, (403, "forbidden".to_owned()));
    assert_eq!(send(asked(Some("o"))).await.0, 200);
    assert_eq!(send(asked(Some("a"))).await.0, 200);
}

#[test]
fn tokens_that_cannot_work_are_refused() {
    for (flags, words) in [
        (vec!["--token", "two words"], "--token has a space"),
        (
            vec!["--worker-token", "t", "--operator-token", "t"],
            "--worker-token and --operator-token are the same token",
        ),
    ] {
        let data = tempfile::tempdir().unwrap();
        let output = longhaul()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .args(&flags)
            .output()
            .unwrap();
        let said = refused(&output);
        assert!(said.contains(words), "{said}");
    }
}
