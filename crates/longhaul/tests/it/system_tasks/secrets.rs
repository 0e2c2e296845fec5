//! Values and secrets of the environment: workers and calls get them, and nothing keeps a secret.

use std::path::Path;

use serde_json::{Value, json};

use super::Api;
use super::service::Service;
use crate::binary::longhaul;
use crate::serve::Server;

/// Secrets that occur nowhere by chance.
const KEY: &str = "s3cr3t-key-71ab";
const PASSWORD: &str = "pa55-word-\"93cd\"/ö";

fn start(data: &Path) -> Server {
    let mut command = longhaul();
    command
        .env("CONDUCTOR_ENV_REGION", "north")
        .env("CONDUCTOR_SECRET_KEY", KEY)
        .env(
            "CONDUCTOR_SECRET_DB",
            json!({"user": "u", "password": PASSWORD}).to_string(),
        )
        .env("PLAIN_VALUE", "allowed")
        .env("OTHER_VALUE", "hidden");
    let arguments = ["--conductor-env-allow", "PLAIN_VALUE", "--log", "debug"];
    Server::start_command(command, data, &arguments)
}

/// Returns the forms in which a secret could be written.
fn forms() -> Vec<String> {
    let json = Value::from(PASSWORD).to_string();
    vec![
        KEY.to_owned(),
        PASSWORD.to_owned(),
        json[1..json.len() - 1].to_owned(),
        "pa55-word".to_owned(),
    ]
}

fn assert_no_secret(where_: &str, bytes: &[u8]) {
    for form in forms() {
        let found = bytes
            .windows(form.len())
            .any(|window| window == form.as_bytes());
        assert!(!found, "{where_} contains {form}");
    }
}

#[tokio::test]
async fn secrets_reach_workers_and_calls_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let mut service = Service::start().await;
    let server = start(data.path());
    let api = Api::of(&server);
    let task_def =
        json!([{"name": "work", "runtimeMetadata": ["KEY", "REGION", "NONE"], "retryCount": 0}]);
    api.ok("POST", "/metadata/taskdefs", Some(&task_def)).await;
    let inputs = json!({"key": "Bearer ${workflow.secrets.KEY}", "password": "${workflow.secrets.DB.password}",
        "none": "${workflow.secrets.NONE}", "region": "${workflow.env.REGION}", "plain": "${PLAIN_VALUE}", "other": "${workflow.env.OTHER_VALUE}"});
    let call = json!({"uri": service.url("/x?key=${workflow.secrets.KEY}"), "method": "POST", "readTimeOut": 600_000,
        "headers": {"X-Key": "${workflow.secrets.KEY}"}, "body": {"password": "${workflow.secrets.DB.password}"}});
    let bad = json!({"uri": "http://127.0.0.1:1/${workflow.secrets.KEY}", "method": "GET", "headers": {"X-Key": "${workflow.secrets.KEY}\n"}});
    let http = |reference: &str, request: Value, optional: bool| {
        json!({"name": reference, "taskReferenceName": reference, "type": "HTTP", "optional": optional,
            "inputParameters": {"http_request": request}})
    };
    let work = |reference: &str| json!({"name": "work", "taskReferenceName": reference, "inputParameters": inputs});
    let tasks = json!([
        work("a"), work("b"), work("c"),
        {"name": "dynamic", "taskReferenceName": "d", "type": "DYNAMIC", "dynamicTaskNameParam": "name",
            "inputParameters": {"name": "work", "key": "${workflow.secrets.KEY}"}},
        http("echo", call.clone(), false), http("refused", call, true), http("bad", bad, true),
        {"name": "script", "taskReferenceName": "script", "type": "INLINE",
            "inputParameters": {"expression": "$.key + '!'", "key": "${workflow.secrets.KEY}"}},
    ]);
    api.define("w", tasks).await;
    let id = api.start("w", json!({})).await;
    let revealed = json!({"key": format!("Bearer {KEY}"), "password": PASSWORD, "none": null, "region": "north", "plain": "allowed", "other": null});
    let metadata = json!({"KEY": KEY, "REGION": "north"});

    // A batch, a single poll, and the task that comes with a report.
    let batch = api
        .ok("GET", "/tasks/poll/batch/work?count=1&timeout=5000", None)
        .await;
    let a: Value = serde_json::from_str::<Vec<Value>>(&batch)
        .unwrap()
        .remove(0);
    assert_eq!(
        (&a["inputData"], &a["runtimeMetadata"]),
        (&revealed, &metadata)
    );
    let done = |task: &Value| json!({"taskId": task["taskId"], "workflowInstanceId": id, "workerId": "w", "status": "COMPLETED", "outputData": {"ok": true}});
    api.ok("POST", "/tasks", Some(&done(&a))).await;
    let single = api.ok("GET", "/tasks/poll/work", None).await;
    let b: Value = serde_json::from_str(&single).unwrap();
    assert_eq!(
        (&b["inputData"], &b["runtimeMetadata"]),
        (&revealed, &metadata)
    );
    let next = api.ok("POST", "/tasks/update-v2", Some(&done(&b))).await;
    let c: Value = serde_json::from_str(&next).unwrap();
    assert_eq!(
        (&c["inputData"], &c["runtimeMetadata"]),
        (&revealed, &metadata)
    );
    let next = api.ok("POST", "/tasks/update-v2", Some(&done(&c))).await;
    let d: Value = serde_json::from_str(&next).unwrap();
    assert_eq!(
        (&d["inputData"]["key"], &d["runtimeMetadata"]),
        (&json!(KEY), &metadata)
    );
    api.ok("POST", "/tasks", Some(&done(&d))).await;

    // The service sends back everything that it got.
    for status in [200, 403] {
        let asked = service.next().await;
        assert_eq!(asked.path, format!("/x?key={KEY}"));
        assert_eq!(asked.key, KEY);
        assert_eq!(asked.body, json!({"password": PASSWORD}).to_string());
        let echo = json!({"path": asked.path, "key": asked.key, "body": asked.body, "again": "${workflow.secrets.DB}"});
        asked.answer(status, echo);
    }
    let run = api.ended(&id).await;
    assert_eq!(run["status"], "COMPLETED", "{run}");
    let stored = &run["tasks"][0]["inputData"];
    assert_eq!(
        (&stored["key"], &stored["region"]),
        (&json!("Bearer ${workflow.secrets.KEY}"), &json!("north"))
    );
    assert_eq!(run["tasks"][0]["runtimeMetadata"], Value::Null);
    let body = &run["tasks"][4]["outputData"]["response"]["body"];
    assert_eq!(
        body,
        &json!({"path": "/x?key=***", "key": "***", "body": "{\"password\":\"***\"}", "again": "***{workflow.secrets.DB}"})
    );
    assert_eq!(
        run["output"]["result"], "${workflow.secrets.KEY}!",
        "scripts see the expression"
    );

    for path in [
        format!("/workflow/{id}"),
        format!("/tasks/{}", a["taskId"].as_str().unwrap()),
        "/workflow/search?size=10".to_owned(),
        "/metadata/workflow".to_owned(),
        "/metadata/taskdefs".to_owned(),
        "/tasks/queue/polldata/all".to_owned(),
    ] {
        assert_no_secret(&path, api.ok("GET", &path, None).await.as_bytes());
    }
    let metrics = reqwest::get(format!("{}/metrics", server.url))
        .await
        .unwrap();
    assert_no_secret("/metrics", &metrics.bytes().await.unwrap());
    let log = server.stop();
    assert!(log.contains("stopped"), "the log is complete");
    assert_no_secret("the log", log.as_bytes());
    for file in data.path().read_dir().unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            assert_no_secret(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}
