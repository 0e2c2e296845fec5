//! Scenario programs of the Python SDK. Each file is one test, so that they run in parallel.
//!
//! Each program runs its scenarios concurrently on one worker and can be run alone; see `python/common.py`.

use serde_json::json;

use crate::harness::{
    Control, PythonWorker, Server, ServerOptions, eventually, run_documented, run_python,
};

#[tokio::test]
async fn the_program_on_the_page_about_families_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/families.md", &server).await;
    assert_eq!(
        printed,
        "{'by': 'a definition', 'greeting': 'hello, world'}\n"
    );
}

#[tokio::test]
async fn families() {
    run_python("families.py", &Server::start().await).await;
}

#[tokio::test]
async fn the_program_in_the_readme_works() {
    let server = Server::start().await;
    assert_eq!(run_documented("README.md", &server).await, "hello, world\n");
}

#[tokio::test]
async fn the_program_in_the_tour_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/tour.md", &server).await;
    let expected = "3\n3\n['order-1: charged 30', 'order-1 is on its way']\n";
    assert_eq!(printed, expected);
}

#[tokio::test]
async fn the_program_on_the_page_about_local_activities_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/local-activities.md", &server).await;
    assert_eq!(printed, "80\n");
}

#[tokio::test]
async fn activities() {
    run_python("activities.py", &Server::start().await).await;
}

#[tokio::test]
async fn activity_timeouts() {
    run_python("activity_timeouts.py", &Server::start().await).await;
}

#[tokio::test]
async fn local_activities() {
    run_python("local_activities.py", &Server::start().await).await;
}

#[tokio::test]
async fn prepared_local_activities() {
    // A worker is killed, and its task goes to another one when its lease expires. The lease is long enough to start a process.
    let options = ServerOptions::new().lease_seconds(8);
    run_python("prepared_local_activities.py", &options.start().await).await;
}

#[tokio::test]
async fn messages() {
    run_python("messages.py", &Server::start().await).await;
}

#[tokio::test]
async fn validators() {
    let options = ServerOptions::new()
        .environment("LONGHAUL_UPDATE_VALIDATION_TIMEOUT_SECONDS", "2")
        .environment("LONGHAUL_UPDATE_VALIDATION_LEASE_SECONDS", "1");
    run_python("validators.py", &options.start().await).await;
}

#[tokio::test]
async fn queries() {
    run_python("queries.py", &Server::start().await).await;
}

#[tokio::test]
async fn query_timeouts() {
    let options = ServerOptions::new().environment("LONGHAUL_QUERY_TASK_TIMEOUT_SECONDS", "2");
    run_python("query_timeouts.py", &options.start().await).await;
}

#[tokio::test]
async fn queries_across_a_restart() {
    let mut server = Server::start().await;
    let worker = PythonWorker::start(&server, "restart", "worker-1").await;
    let control = server.control();
    let start = json!({"workflow_id": "w", "workflow_type": "crash.signals", "task_queue": "restart", "input": [0]});
    assert_eq!(control.post("/workflows", &start).await.0, 201);
    for number in [3, 4] {
        let input = json!({"input": [number]});
        assert_eq!(control.post("/workflows/w/signal/go", &input).await.0, 202);
    }
    let answer = |control: Control| async move {
        let (status, body) = control
            .post("/workflows/w/query/received", &json!({}))
            .await;
        (status == 200).then(|| body["result"].clone())
    };
    // The workflow handles its signals in its next task.
    eventually("both signals are taken", || async {
        let received = answer(control.clone()).await;
        (received == Some(json!([3, 4]))).then_some(())
    })
    .await;
    let history = control.get("/workflows/w").await;

    server.kill().await;
    server.restart().await;
    // The worker is still registered, and polls again when it notices the restart.
    let after = eventually("the worker answers again", || answer(control.clone())).await;
    assert_eq!(after, json!([3, 4]));
    assert_eq!(control.get("/workflows/w").await, history);
    worker.stop().await;
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
    // On a busy machine the client gives up an activity whose process does not start within five seconds. It is offered again when
    // its lease ends.
    let options = ServerOptions::new().lease_seconds(20);
    run_python("cancellations.py", &options.start().await).await;
}

#[tokio::test]
async fn recorded_values() {
    run_python("recorded_values.py", &Server::start().await).await;
}

#[tokio::test]
async fn visibility() {
    run_python("visibility.py", &Server::start().await).await;
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
async fn sessions() {
    run_python("sessions.py", &Server::start().await).await;
}

#[tokio::test]
async fn the_program_on_the_page_about_sessions_works() {
    let server = Server::start().await;
    let printed = run_documented("docs/sessions.md", &server).await;
    assert_eq!(printed, "loaded the model once, rendered 3 frames\n");
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
