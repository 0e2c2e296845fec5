//! Scenario programs of the Python SDK, one test per file so that they run beside each other.
//!
//! Each program runs its scenarios concurrently on one worker and can be run alone; see `python/common.py`.

use crate::harness::{Server, ServerOptions, run_python};

#[tokio::test]
async fn activities() {
    run_python("activities.py", &Server::start().await).await;
}

#[tokio::test]
async fn activity_timeouts() {
    run_python("activity_timeouts.py", &Server::start().await).await;
}

#[tokio::test]
async fn messages() {
    run_python("messages.py", &Server::start().await).await;
}

#[tokio::test]
async fn updates() {
    run_python("updates.py", &Server::start().await).await;
}

#[tokio::test]
async fn children() {
    run_python("children.py", &Server::start().await).await;
}

#[tokio::test]
async fn selections() {
    run_python("selections.py", &Server::start().await).await;
}

#[tokio::test]
async fn streams() {
    run_python("streams.py", &Server::start().await).await;
}

#[tokio::test]
async fn sticky() {
    run_python("sticky.py", &Server::start().await).await;
}

#[tokio::test]
async fn cancellations() {
    run_python("cancellations.py", &Server::start().await).await;
}

#[tokio::test]
async fn recorded_values() {
    run_python("recorded_values.py", &Server::start().await).await;
}

#[tokio::test]
async fn exports() {
    let options = ServerOptions::new()
        .environment("DW_V2_HISTORY_EXPORT_SIGNING_KEY", "export-secret")
        .environment("DW_V2_HISTORY_EXPORT_SIGNING_KEY_ID", "k1");
    run_python("exports.py", &options.start().await).await;
}

#[tokio::test]
async fn rollouts() {
    run_python("rollouts.py", &Server::start().await).await;
}

#[tokio::test]
async fn lifecycle() {
    run_python("lifecycle.py", &Server::start().await).await;
}

#[tokio::test]
async fn worker_restarts() {
    // A stopping worker abandons its open polls; a task leased to one of them comes back when its lease ends.
    run_python(
        "worker_restarts.py",
        &ServerOptions::new().lease_seconds(3).start().await,
    )
    .await;
}

#[tokio::test]
async fn namespaces() {
    run_python("namespaces.py", &Server::start().await).await;
}

#[tokio::test]
async fn tokens() {
    let options = ServerOptions::new()
        .environment("LONGHAUL_WORKER_TOKEN", "worker-secret")
        .environment("LONGHAUL_OPERATOR_TOKEN", "operator-secret")
        .environment("LONGHAUL_ADMIN_TOKEN", "admin-secret");
    run_python("tokens.py", &options.start().await).await;
}
