//! Names that are too long for the index of a store are refused with a reason, alike by servers on SQLite and on PostgreSQL.

use serde_json::{Value, json};

use crate::serve::Server;

/// Returns a text of that many characters that no index can compress.
fn long(characters: usize) -> String {
    let mut state: u64 = 7;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from_u32(0x4e00 + u32::try_from(state >> 51).unwrap()).unwrap()
    };
    (0..characters).map(|_| next()).collect()
}

/// Sends a request. Returns the status and the text of the answer.
async fn send(server: &Server, path: &str, body: &Value) -> (u16, String) {
    let request = reqwest::Client::new().post(format!("{}{path}", server.url));
    let request = request
        .header("X-Durable-Workflow-Protocol-Version", "1.10")
        .header("X-Durable-Workflow-Control-Plane-Version", "2");
    let response = request.json(body).send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.text().await.unwrap())
}

fn flow(name: &str, task: &str) -> Value {
    json!({"name": name, "version": 1, "tasks": [{"name": task, "taskReferenceName": "t", "type": "SIMPLE"}]})
}

/// Returns requests with this text in each member that a store finds rows by.
fn requests(text: &str) -> Vec<(&'static str, Value)> {
    let worker =
        json!({"worker_id": text, "task_queue": "q", "runtime": "rust", "sdk_version": "t/1"});
    let queue =
        json!({"worker_id": "w", "task_queue": text, "runtime": "rust", "sdk_version": "t/1"});
    vec![
        (
            "/api/workflow",
            json!({"name": "flow", "correlationId": text}),
        ),
        (
            "/api/workflow",
            json!({"name": "flow", "idempotencyKey": text}),
        ),
        (
            "/api/workflow",
            json!({"name": "flow", "taskToDomain": {"*": text}}),
        ),
        (
            "/api/workflow",
            json!({"name": text, "workflowDef": flow(text, "t")}),
        ),
        ("/api/metadata/workflow", flow(text, "t")),
        ("/api/metadata/workflow", flow("other", text)),
        ("/api/metadata/taskdefs", json!([{"name": text}])),
        (
            "/api/schema",
            json!([{"name": text, "version": 1, "type": "JSON"}]),
        ),
        (
            "/api/workflows",
            json!({"workflow_type": text, "workflow_id": "a"}),
        ),
        (
            "/api/workflows",
            json!({"workflow_type": "t", "workflow_id": text}),
        ),
        (
            "/api/workflows",
            json!({"workflow_type": "t", "workflow_id": "c", "task_queue": text}),
        ),
        (
            "/api/workflows",
            json!({"workflow_type": "t", "workflow_id": "d", "business_key": text}),
        ),
        (
            "/api/workflows/signalled/signal/go",
            json!({"request_id": text}),
        ),
        ("/api/namespaces", json!({"name": text})),
        ("/api/worker/register", worker),
        ("/api/worker/register", queue),
    ]
}

#[tokio::test]
async fn names_that_are_too_long_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let database = longhaul_test_postgres::shared().database();
    let url = database.url();
    for (data, store) in [("a", &[][..]), ("b", &["--store", url][..])] {
        let server = Server::start(&directory.path().join(data), store);
        check(&server).await;
        server.stop();
    }
}

async fn check(server: &Server) {
    let (status, text) = send(server, "/api/metadata/workflow", &flow("flow", "t")).await;
    assert_eq!(status, 200, "{text}");
    let start = json!({"workflow_type": "t", "workflow_id": "signalled"});
    let (status, text) = send(server, "/api/workflows", &start).await;
    assert_eq!(status, 201, "{text}");
    let refused = long(3000);
    for (path, body) in requests(&refused) {
        let (status, text) = send(server, path, &body).await;
        assert!((400..500).contains(&status), "{path}: {status} {text}");
        // The answer says why and does not repeat the text.
        let has_limit = ["characters", "bytes", "too long"];
        let has_limit = has_limit.iter().any(|word| text.contains(word));
        assert!(has_limit, "{path}: {text}");
        assert!(!text.contains(&refused), "{path}: {text}");
    }
    // What is as long as allowed is stored, whatever its characters are.
    let correlation =
        json!({"name": "flow", "correlationId": long(500), "idempotencyKey": long(255)});
    let longest = long(255);
    for (path, body) in [
        ("/api/workflow", correlation),
        ("/api/metadata/workflow", flow(&longest, &longest)),
        (
            "/api/workflow",
            json!({"name": longest, "taskToDomain": {"*": longest}, "idempotencyKey": longest}),
        ),
        (
            "/api/workflows",
            json!({"workflow_type": longest, "workflow_id": "w", "task_queue": longest, "business_key": longest}),
        ),
    ] {
        let (status, text) = send(server, path, &body).await;
        assert!((200..300).contains(&status), "{path}: {status} {text}");
    }
}
