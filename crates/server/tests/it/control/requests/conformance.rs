//! Behaviour that clients of every control plane rely on and that no single resource owns: isolation of namespaces, order of signals,
//! closed runs, declared operations, pinned builds, versions and principals. Rules that one resource owns are tested in its file.

use std::sync::Arc;

use http::Method;
use longhaul_host::Config;
use longhaul_server::Options;
use longhaul_server::auth::Auth;
use longhaul_store::memory::Memory;
use serde_json::{Value, json};

use crate::support::{Server, envelope, merge, texts};

const TIMER: &str = r#"[{"type": "start_timer", "delay_seconds": 900}]"#;

fn timer() -> Value {
    serde_json::from_str(TIMER).expect("JSON")
}

/// Worker `w` of a workflow that declares a signal, a query and an update with one number, and `wf` that waits.
async fn declared() -> Server {
    let server = Server::open().await;
    let amount = json!({"name": "amount", "position": 0, "required": true, "variadic": false, "type": "int", "allows_null": false});
    let contract = json!({
        "signals": ["go"], "queries": ["status"], "updates": ["deposit"],
        "update_contracts": [{"name": "deposit", "parameters": [amount]}],
    });
    let fields =
        json!({"capabilities": ["query_tasks"], "workflow_command_contracts": {"greet": contract}});
    server.register("w", fields).await;
    server.start("wf").await;
    server.worker("w").decide(timer()).await;
    server
}

async fn run(server: &Server) -> Value {
    server.get("/workflows/wf").accepted(200).await
}

async fn events(server: &Server) -> Vec<Value> {
    let run = run(server).await;
    server
        .history("wf", run["run_id"].as_str().expect("an id"))
        .await
}

#[tokio::test]
async fn workflows_of_another_namespace_look_missing() {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let attribute = json!({"name": "Region", "type": "keyword"});
    server
        .post("/search-attributes", &attribute)
        .accepted(201)
        .await;
    let run_id = server.start("wf").await;
    for (method, there, missing) in [
        (
            Method::GET,
            "/workflows/wf".to_owned(),
            "/workflows/zz".to_owned(),
        ),
        (
            Method::GET,
            format!("/workflows/wf/runs/{run_id}/history"),
            format!("/workflows/zz/runs/{run_id}/history"),
        ),
        (
            Method::GET,
            format!("/workflows/wf/runs/{run_id}/history/export"),
            format!("/workflows/zz/runs/{run_id}/history/export"),
        ),
        (
            Method::GET,
            "/workflows/wf/debug".to_owned(),
            "/workflows/zz/debug".to_owned(),
        ),
        (
            Method::POST,
            "/workflows/wf/update/deposit".to_owned(),
            "/workflows/zz/update/deposit".to_owned(),
        ),
        (
            Method::POST,
            "/workflows/wf/query/status".to_owned(),
            "/workflows/zz/query/status".to_owned(),
        ),
        (
            Method::POST,
            "/workflows/wf/request-cancellation".to_owned(),
            "/workflows/zz/request-cancellation".to_owned(),
        ),
        (
            Method::POST,
            "/workflows/wf/repair".to_owned(),
            "/workflows/zz/repair".to_owned(),
        ),
        (
            Method::GET,
            "/workflows/wf/message-streams".to_owned(),
            "/workflows/zz/message-streams".to_owned(),
        ),
        (
            Method::DELETE,
            "/search-attributes/Region".to_owned(),
            "/search-attributes/Missing".to_owned(),
        ),
    ] {
        let there = server
            .call(method.clone(), &there)
            .namespace("other")
            .send()
            .await;
        let missing = server
            .call(method, &missing)
            .namespace("other")
            .send()
            .await;
        assert_eq!(there.status, missing.status, "{}", there.body);
        assert_eq!(there.status, 404, "{}", there.body);
        let same = |body: &Value| {
            body.to_string()
                .replace("zz", "wf")
                .replace("Missing", "Region")
        };
        assert_eq!(same(&there.body), same(&missing.body));
    }
}

#[tokio::test]
async fn queues_of_one_name_are_separate_in_each_namespace() {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    server.register("w", json!({})).await;
    let body = json!({"workflow_id": "there", "workflow_type": "greet"});
    server
        .post("/workflows", &body)
        .namespace("other")
        .accepted(201)
        .await;
    assert_eq!(
        server
            .worker("w")
            .poll("workflow", json!({}))
            .send()
            .await
            .body["poll_status"],
        "empty"
    );
    server.start("here").await;
    assert_eq!(
        server
            .worker("w")
            .poll("workflow", json!({}))
            .send()
            .await
            .body["task"]["workflow_id"],
        "here"
    );
}

#[tokio::test]
async fn signals_apply_once_in_the_order_of_acceptance() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    server.start("wf").await;
    let mut accepted = Vec::new();
    for number in 0..5 {
        let call = server.post("/workflows/wf/signal/go", &json!({"input": [number]}));
        accepted.push(call.accepted(202).await["command_id"].clone());
    }
    let wait = json!([{"type": "open_signal_wait", "signal_name": "go"}]);
    for _ in 0..5 {
        server.worker("w").decide(wait.clone()).await;
    }
    server.worker("w").decide(timer()).await;
    let events = events(&server).await;
    for kind in ["SignalReceived", "SignalApplied"] {
        let ids: Vec<Value> = events
            .iter()
            .filter(|event| event["event_type"] == kind)
            .map(|event| event["payload"]["workflow_command_id"].clone())
            .collect();
        assert_eq!(ids, accepted, "{kind}");
    }
}

#[tokio::test]
async fn closed_runs_refuse_messages_for_one_reason_and_answer_queries() {
    for close in ["complete", "fail", "cancel", "terminate"] {
        let server = Server::open().await;
        server
            .register("w", json!({"capabilities": ["query_tasks"]}))
            .await;
        server.start("wf").await;
        match close {
            "complete" => {
                server
                    .worker("w")
                    .decide(json!([{"type": "complete_workflow"}]))
                    .await
            }
            "fail" => {
                server
                    .worker("w")
                    .decide(json!([{"type": "fail_workflow", "message": "no"}]))
                    .await
            }
            verb => drop(
                server
                    .post(&format!("/workflows/wf/{verb}"), &json!({}))
                    .accepted(200)
                    .await,
            ),
        }
        let before = events(&server).await;
        for verb in ["signal/go", "update/deposit"] {
            let call = server.post(&format!("/workflows/wf/{verb}"), &json!({}));
            call.refused(409, "run_not_active").await;
        }
        assert_eq!(events(&server).await, before);
        let worker = async {
            let body = json!({"worker_id": "w", "task_queue": "default", "timeout_seconds": 30});
            let task = server
                .worker_post("/query-tasks/poll", &body)
                .accepted(200)
                .await["task"]
                .clone();
            let path = format!(
                "/query-tasks/{}/complete",
                task["query_task_id"].as_str().expect("an id")
            );
            let body = json!({"lease_owner": "w", "query_task_attempt": 1, "result": 7, "result_envelope": envelope("7")});
            server.worker_post(&path, &body).accepted(200).await;
        };
        let call = server.post("/workflows/wf/query/status", &json!({}));
        let (answer, ()) = tokio::join!(call.accepted(200), worker);
        assert_eq!(answer["result"], 7, "{close}");
    }
}

/// A caller that repeats its mistake must not use up the events of the run.
#[tokio::test]
async fn history_records_the_first_refused_updates_only() {
    let server = declared().await;
    for _ in 0..120 {
        server
            .post("/workflows/wf/update/other", &json!({}))
            .refused(404, "unknown_update")
            .await;
        server
            .post("/workflows/wf/update/deposit", &json!({"input": ["much"]}))
            .refused(422, "invalid_update_arguments")
            .await;
    }
    let events = events(&server).await;
    let refused: Vec<&Value> = events
        .iter()
        .filter(|event| event["event_type"] == "UpdateRejected")
        .collect();
    assert_eq!(refused.len(), 100);
    assert!(
        refused
            .iter()
            .all(
                |event| event["payload"]["rejection_reason"] == "invalid_update_arguments"
                    && event["payload"].get("arguments").is_none()
            )
    );
}

#[tokio::test]
async fn unknown_and_malformed_operations_do_not_disturb_a_run() {
    let server = declared().await;
    let before = run(&server).await["status"].clone();
    let call = |path: &str, body: Value| server.post(&format!("/workflows/wf/{path}"), &body);
    call("signal/other", json!({}))
        .refused(404, "unknown_signal")
        .await;
    call("query/other", json!({}))
        .refused(404, "rejected_unknown_query")
        .await;
    call("update/other", json!({}))
        .refused(404, "unknown_update")
        .await;
    call("update/deposit", json!({"input": ["much"]}))
        .refused(422, "invalid_update_arguments")
        .await;
    call(
        "signal/go",
        json!({"input": {"codec": "avro", "blob": "?"}}),
    )
    .invalid()
    .await;
    call("signal/%00", json!({})).invalid().await;
    let odd = server
        .call(Method::POST, "/workflows/wf/signal/go")
        .raw("{")
        .header("content-type", "application/json");
    assert_eq!(odd.send().await.status, 400);
    assert_eq!(run(&server).await["status"], before);
    call("signal/go", json!({})).accepted(202).await;
    let update = call("update/deposit", json!({"input": [5]}))
        .accepted(202)
        .await;
    // The signal came first.
    server.worker("w").decide(timer()).await;
    server
        .worker("w")
        .decide(json!([{"type": "complete_update", "update_id": update["update_id"]}]))
        .await;
    assert_eq!(run(&server).await["status_bucket"], "running");
}

#[tokio::test]
async fn declared_updates_and_their_arguments_are_visible() {
    let server = declared().await;
    let events = events(&server).await;
    let started = events
        .iter()
        .find(|event| event["event_type"] == "WorkflowStarted")
        .expect("a start");
    assert_eq!(started["payload"]["declared_updates"], json!(["deposit"]));
    let contract = &started["payload"]["declared_update_contracts"][0];
    assert_eq!(
        (&contract["name"], &contract["parameters"][0]["name"]),
        (&json!("deposit"), &json!("amount"))
    );
}

#[tokio::test]
async fn a_described_run_separates_open_completed_failed_and_refused_updates() {
    let server = declared().await;
    let send = |name: &str| {
        server.post(
            &format!("/workflows/wf/update/{name}"),
            &json!({"input": [1]}),
        )
    };
    let done = send("deposit").accepted(202).await;
    server
        .worker("w")
        .decide(json!([{"type": "complete_update", "update_id": done["update_id"]}]))
        .await;
    let failed = send("deposit").accepted(202).await;
    server
        .worker("w")
        .decide(json!([{"type": "fail_update", "update_id": failed["update_id"], "message": "no"}]))
        .await;
    send("other").refused(404, "unknown_update").await;
    send("deposit").accepted(202).await;
    let run = run(&server).await;
    assert_eq!(
        texts(&run["updates"], "status"),
        ["completed", "failed", "rejected", "accepted"]
    );
    assert_eq!(run["updates"][2]["rejection_reason"], "unknown_update");
    assert_eq!(
        (
            &run["updates"][3]["closed_at"],
            &run["updates"][3]["applied_at"]
        ),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn refused_updates_have_a_principal_like_accepted_ones() {
    let server = Server::guarded().await;
    let worker = json!({
        "worker_id": "w", "task_queue": "default", "runtime": "python", "supported_workflow_types": ["greet"],
        "workflow_command_contracts": {"greet": {"updates": ["deposit"], "signals": [], "queries": []}},
    });
    server
        .worker_post("/register", &worker)
        .token("w")
        .accepted(201)
        .await;
    let start = json!({"workflow_id": "wf", "workflow_type": "greet"});
    server
        .post("/workflows", &start)
        .token("a")
        .accepted(201)
        .await;
    let send = |name: &str| {
        server
            .post(
                &format!("/workflows/wf/update/{name}"),
                &json!({"principal": "x"}),
            )
            .token("o")
    };
    let accepted = send("deposit").accepted(202).await;
    let refused = send("other").refused(404, "unknown_update").await;
    let principal = json!({"type": "auth:token", "id": "role:operator"});
    assert_eq!(
        (&accepted["principal"], &refused["principal"]),
        (&principal, &principal)
    );
    let run = server.get("/workflows/wf").token("o").accepted(200).await;
    let updates = run["updates"].as_array().expect("updates");
    assert_eq!(updates.len(), 2);
    for update in updates {
        assert_eq!(update["principal"], principal);
    }
    let path = format!(
        "/workflows/wf/runs/{}/history",
        run["run_id"].as_str().expect("an id")
    );
    let history = server.get(&path).token("o").accepted(200).await;
    let mut found = 0;
    for event in history["events"].as_array().expect("events") {
        if event["event_type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("Update"))
        {
            assert_eq!(event["principal"], principal, "{event}");
            found += 1;
        }
    }
    assert_eq!(found, 1, "history holds accepted updates only");
}

#[tokio::test]
async fn a_pinned_build_is_shown_everywhere_and_never_changes() {
    let server = Server::open().await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.register("b1", json!({"build_id": "b"})).await;
    let promote = |build: &str| {
        server.post(
            "/task-queues/default/build-ids/promote",
            &json!({"build_id": build}),
        )
    };
    promote("a").accepted(200).await;
    let run_id = server.start("wf").await;
    promote("b").accepted(200).await;
    server
        .post(
            "/task-queues/default/build-ids/drain",
            &json!({"build_id": "b"}),
        )
        .accepted(200)
        .await;
    let shown = run(&server).await;
    let export = server
        .get(&format!("/workflows/wf/runs/{run_id}/history/export"))
        .accepted(200)
        .await;
    let started = events(&server).await[1]["payload"].clone();
    assert_eq!(
        (&shown["compatibility"], &started["compatibility"]),
        (&json!("a"), &json!("a"))
    );
    assert!(
        export.to_string().contains(r#""compatibility":"a""#),
        "{export}"
    );
    assert!(
        !export.to_string().contains(r#""compatibility":"b""#),
        "{export}"
    );
    // A run that continues keeps it.
    server
        .worker("a1")
        .decide(json!([{"type": "continue_as_new"}]))
        .await;
    let next = run(&server).await;
    assert_ne!(next["run_id"], json!(run_id));
    assert_eq!(next["compatibility"], "a");
}

#[tokio::test]
async fn drain_and_resume_take_effect_at_once() {
    let server = Server::open().await;
    server.register("a1", json!({"build_id": "a"})).await;
    server.start("wf").await;
    let change = |action: &str| {
        server.post(
            &format!("/task-queues/default/build-ids/{action}"),
            &json!({"build_id": "a"}),
        )
    };
    let first = change("drain").accepted(200).await;
    assert_eq!(change("drain").accepted(200).await, first);
    for _ in 0..2 {
        assert_eq!(
            server
                .worker("a1")
                .poll("workflow", json!({}))
                .send()
                .await
                .body["poll_status"],
            "draining"
        );
    }
    let first = change("resume").accepted(200).await;
    assert_eq!(change("resume").accepted(200).await, first);
    assert_eq!(
        server
            .worker("a1")
            .poll("workflow", json!({}))
            .send()
            .await
            .body["task"]["workflow_id"],
        "wf"
    );
}

#[tokio::test]
async fn one_build_with_two_fingerprints_is_shown_as_a_conflict() {
    let server = Server::open().await;
    for (worker, code) in [("a1", "sha256:1"), ("a2", "sha256:2")] {
        let fields = json!({"build_id": "a", "workflow_definition_fingerprints": {"greet": code}});
        server.register(worker, fields).await;
    }
    let list = server
        .get("/task-queues/default/build-ids")
        .accepted(200)
        .await;
    let conflicts = list["build_ids"][0]["workflow_definition_fingerprint_conflicts"].to_string();
    assert!(conflicts.contains("greet"), "{list}");
}

#[tokio::test]
async fn another_version_is_refused_first_and_both_versions_are_named() {
    let server = Server::open().await;
    let body = json!({"workflow_id": "wf", "workflow_type": "greet"});
    let refusal = server
        .post("/workflows", &body)
        .version(Some("1"))
        .send()
        .await;
    assert_eq!(refusal.status, 400);
    assert_eq!(
        (
            &refusal.body["supported_version"],
            &refusal.body["requested_version"]
        ),
        (&json!("2"), &json!("1"))
    );
    server
        .get("/workflows/wf")
        .refused(404, "instance_not_found")
        .await;
    let mut worker = json!({"worker_id": "w", "task_queue": "default", "runtime": "python"});
    merge(&mut worker, json!({"supported_workflow_types": ["greet"]}));
    let refusal = server
        .worker_post("/register", &worker)
        .protocol(Some("2.0"))
        .refused(400, "unsupported_protocol_version")
        .await;
    assert_eq!(
        (&refusal["supported_version"], &refusal["requested_version"]),
        (&json!("1.20"), &json!("2.0"))
    );
    server
        .get("/workers/w")
        .refused(404, "worker_not_found")
        .await;
}

#[tokio::test]
async fn a_new_credential_keeps_the_principal() {
    let store = Arc::new(Memory::new());
    let mut seen = Vec::new();
    for (workflow, token) in [("one", "sesame-1"), ("two", "sesame-2")] {
        let auth = Auth::with_tokens(None, None, Some(token.to_owned()), None);
        let server = Server::on(store.clone(), Config::default(), auth, Options::default()).await;
        let start = json!({"workflow_id": workflow, "workflow_type": "greet"});
        server
            .post("/workflows", &start)
            .token(token)
            .accepted(201)
            .await;
        let run = server
            .get(&format!("/workflows/{workflow}"))
            .token(token)
            .accepted(200)
            .await;
        seen.push(run["commands"][0]["principal"].clone());
        assert!(!run.to_string().contains(token), "{run}");
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0]["id"], "role:operator");
}
