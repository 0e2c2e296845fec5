//! Scenario programs of the Conductor client for JavaScript. Each program can be run alone; see `conductor_js/common.mjs`.

use crate::harness::{Server, run_documented_node, run_node};

#[tokio::test]
async fn the_program_on_the_page_about_conductor_works() {
    let server = Server::start().await;
    let printed = run_documented_node("docs/conductor.md", &server).await;
    assert_eq!(printed, "hello, world\n");
}

#[tokio::test]
async fn calls() {
    run_node("calls.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn operators() {
    run_node("operators.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn workers() {
    run_node("workers.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn builders() {
    run_node("builders.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn limits() {
    run_node("limits.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn lists() {
    run_node("lists.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn retries() {
    run_node("retries.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn starts() {
    run_node("starts.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn signals() {
    run_node("signals.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn events() {
    run_node("events.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn reopening() {
    run_node("reopening.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn compatibility() {
    run_node("compatibility.mjs", &Server::start().await).await;
}

#[tokio::test]
async fn operations() {
    run_node("operations.mjs", &Server::start().await).await;
}
