//! Scenario programs of the Conductor client for Python. Each program can be run alone; see `conductor/common.py`.

use crate::harness::{Server, run_conductor, run_documented};

#[tokio::test]
async fn the_program_on_the_page_about_conductor_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/conductor.md", &server).await;
    assert_eq!(printed, "hello, world\n");
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
async fn events() {
    run_conductor("events.py", &Server::start().await).await;
}

#[tokio::test]
async fn the_examples_on_the_page_about_operators_work() {
    run_conductor("operators_page.py", &Server::start().await).await;
}

#[tokio::test]
async fn compatibility() {
    run_conductor("compatibility.py", &Server::start().await).await;
}
