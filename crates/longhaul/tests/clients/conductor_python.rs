//! Scenario programs of the Conductor client for Python. Each program can be run alone; see `conductor/common.py`.

use crate::harness::{Server, run_conductor, run_documented};

#[tokio::test]
async fn the_program_on_the_page_about_conductor_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/conductor.md", &server).await;
    assert_eq!(printed, "hello, world\n");
}

#[tokio::test]
async fn the_program_on_the_page_about_tasks_of_the_server_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/conductor-server-tasks.md", &server).await;
    assert_eq!(printed, "200 serving\n");
}

#[tokio::test]
async fn calls() {
    run_conductor("calls.py", &Server::start().await).await;
}

#[tokio::test]
async fn the_program_on_the_page_about_operations_works() {
    let page = "docs/conductor-operations.md";
    let text = std::fs::read_to_string(format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR")));
    let text = text.expect("the page is there");
    let (_, expected) = text.split_once("It prints:\n\n```\n").expect("the output");
    let (expected, _) = expected.split_once("```").expect("the end of the output");
    let printed = run_documented(page, &Server::start().await).await;
    assert_eq!(printed, expected);
}

#[tokio::test]
async fn limits() {
    run_conductor("limits.py", &Server::start().await).await;
}

#[tokio::test]
async fn operators() {
    run_conductor("operators.py", &Server::start().await).await;
}

#[tokio::test]
async fn workers() {
    run_conductor("workers.py", &Server::start().await).await;
}

#[tokio::test]
async fn starts() {
    run_conductor("starts.py", &Server::start().await).await;
}

#[tokio::test]
async fn lists() {
    run_conductor("lists.py", &Server::start().await).await;
}

#[tokio::test]
async fn builders() {
    run_conductor("builders.py", &Server::start().await).await;
}

#[tokio::test]
async fn processes() {
    run_conductor("processes.py", &Server::start().await).await;
}

#[tokio::test]
async fn retries() {
    run_conductor("retries.py", &Server::start().await).await;
}

#[tokio::test]
async fn signals() {
    run_conductor("signals.py", &Server::start().await).await;
}

#[tokio::test]
async fn events() {
    run_conductor("events.py", &Server::start().await).await;
}

#[tokio::test]
async fn the_examples_on_the_page_about_operators_work() {
    run_conductor("operators_page.py", &Server::start().await).await;
}

#[tokio::test]
async fn reopening() {
    run_conductor("reopening.py", &Server::start().await).await;
}

#[tokio::test]
async fn compatibility() {
    run_conductor("compatibility.py", &Server::start().await).await;
}

#[tokio::test]
async fn operations() {
    run_conductor("operations.py", &Server::start().await).await;
}
