//! Queries as their callers see them.

use longhaul_host::{Config, QuestionLimits};
use serde_json::{Value, json};

use crate::support::{Answer, Call, Server, envelope, merge, query_report};

/// A server with worker `w`, which answers queries, and its workflow `wf`. Returns the run id too.
async fn with_query_worker(fields: Value) -> (Server, String) {
    let server = Server::open().await;
    let mut worker = json!({"capabilities": ["query_tasks"]});
    merge(&mut worker, fields);
    server.register("w", worker).await;
    let run_id = server.start("wf").await;
    (server, run_id)
}

fn ask(server: &Server) -> Call<'_> {
    server.post("/workflows/wf/query/status", &json!({}))
}

/// Sends a query, and lets worker `w` report with `verb` and `fields`.
async fn asked(server: &Server, call: Call<'_>, verb: &str, fields: Value) -> Answer {
    let worker = async {
        let task = server.worker("w").query_task().await;
        query_report(server, &task, verb, fields)
            .accepted(200)
            .await;
    };
    tokio::join!(call.send(), worker).0
}

/// Returns everything that a query must not change.
async fn recorded(server: &Server, run_id: &str) -> Value {
    let history = server
        .get(&format!("/workflows/wf/runs/{run_id}/history"))
        .accepted(200)
        .await;
    let described = server.get("/workflows/wf").accepted(200).await;
    json!([history, described])
}

#[tokio::test]
async fn a_worker_answers_and_nothing_is_recorded() {
    let (server, run_id) = with_query_worker(json!({})).await;
    let before = recorded(&server, &run_id).await;
    let result_envelope = envelope(r#"{"open": 3}"#);
    let answer = asked(
        &server,
        ask(&server),
        "complete",
        json!({"result": {"open": 3}, "result_envelope": result_envelope}),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut body = answer.body;
    let block = body["control_plane"].take();
    body.as_object_mut().unwrap().remove("control_plane");
    assert_eq!(
        body,
        json!({
            "workflow_id": "wf",
            "run_id": run_id,
            "workflow_type": "greet",
            "query_name": "status",
            "target_scope": "instance",
            "result": {"open": 3},
            "result_envelope": result_envelope,
            "reason": null,
        })
    );
    assert_eq!(block["operation"], "query");
    assert_eq!(block["operation_name"], "status");
    assert_eq!(block["operation_name_field"], "query_name");
    assert_eq!(
        block["contract"]["required_fields"],
        json!(["workflow_id", "operation_name", "operation_name_field"])
    );
    assert_eq!(
        block["contract"]["success_fields"],
        json!(["result", "result_envelope"])
    );
    assert_eq!(block["result_envelope"], result_envelope);
    assert_eq!(recorded(&server, &run_id).await, before);
}

#[tokio::test]
async fn an_envelope_is_made_from_a_plain_result_and_shown_without_one() {
    let (server, run_id) = with_query_worker(json!({})).await;
    let path = format!("/workflows/wf/runs/{run_id}/query/status");
    let answer = asked(
        &server,
        server.post(&path, &json!({})),
        "complete",
        json!({"result": [1, "two"]}),
    )
    .await;
    assert_eq!(answer.body["result_envelope"], envelope(r#"[1, "two"]"#));
    assert_eq!(answer.body["target_scope"], "run");
    let only_envelope = json!({"result_envelope": envelope("7")});
    let answer = asked(&server, ask(&server), "complete", only_envelope).await;
    assert_eq!(answer.body["result"], 7);
    let answer = asked(&server, ask(&server), "complete", json!({})).await;
    assert_eq!(
        (&answer.body["result"], &answer.body["result_envelope"]),
        (&Value::Null, &envelope("null"))
    );
}

#[tokio::test]
async fn a_workers_failure_becomes_the_callers_reason() {
    let (server, run_id) = with_query_worker(json!({})).await;
    let before = recorded(&server, &run_id).await;
    for (reason, status, shown) in [
        (
            json!("rejected_unknown_query"),
            404,
            "rejected_unknown_query",
        ),
        (json!("query_rejected"), 409, "query_rejected"),
        (json!(null), 409, "query_rejected"),
        (
            json!("query_workflow_state_unavailable"),
            409,
            "query_workflow_state_unavailable",
        ),
        (json!("something_of_ours"), 409, "something_of_ours"),
        (
            json!("invalid_query_arguments"),
            422,
            "invalid_query_arguments",
        ),
    ] {
        let failure = json!({"failure": {
            "message": "It is closed on Mondays.",
            "reason": reason,
            "type": "ClosedError",
            "stack_trace": "…",
            "validation_errors": {"day": ["is Monday"]},
        }});
        let answer = asked(&server, ask(&server), "fail", failure).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body["reason"].as_str()),
            (status, Some(shown)),
            "{}",
            answer.body
        );
        assert_eq!(answer.body["message"], "It is closed on Mondays.");
        assert_eq!(answer.body["failure_type"], "ClosedError");
        assert_eq!(answer.body["validation_errors"]["day"][0], "is Monday");
        let block = &answer.body["control_plane"];
        assert_eq!(
            (
                &block["operation"],
                &block["operation_name"],
                &block["reason"]
            ),
            (&json!("query"), &json!("status"), &json!(shown))
        );
    }
    assert_eq!(recorded(&server, &run_id).await, before);
}

#[tokio::test]
async fn without_a_worker_a_query_is_refused_at_once() {
    let server = Server::open().await;
    server.start("wf").await;
    let refusal = ask(&server).refused(409, "query_worker_unavailable").await;
    assert_eq!(refusal["task_queue"], "default");
    let other_type =
        json!({"supported_workflow_types": ["other"], "capabilities": ["query_tasks"]});
    server.register("elsewhere", other_type).await;
    ask(&server).refused(409, "query_worker_unavailable").await;
    server
        .register(
            "far",
            json!({"task_queue": "far", "capabilities": ["query_tasks"]}),
        )
        .await;
    ask(&server).refused(409, "query_worker_unavailable").await;

    server.register("deaf", json!({})).await;
    ask(&server).refused(409, "query_worker_incompatible").await;
    // A worker that never registered the capability shows that it answers queries by polling for them.
    let polling = async {
        let task = server.worker("deaf").query_task().await;
        query_report(&server, &task, "complete", json!({"result": "heard"}))
            .accepted(200)
            .await;
    };
    let asking = async {
        server.advance(0).await;
        ask(&server).accepted(200).await
    };
    assert_eq!(tokio::join!(polling, asking).1["result"], "heard");
    ask(&server).refused(409, "query_worker_incompatible").await;

    // Silence makes a worker stale, and a stale worker answers nothing.
    server.advance(61).await;
    ask(&server).refused(409, "query_worker_unavailable").await;
}

#[tokio::test]
async fn a_pinned_run_asks_its_own_build_only() {
    let server = Server::open().await;
    let build = |build: &str| json!({"build_id": build, "capabilities": ["query_tasks"]});
    server.register("old", build("b1")).await;
    server
        .start_with(json!({"workflow_id": "wf", "workflow_type": "greet", "compatibility": "b1"}))
        .await;
    server
        .worker_call(http::Method::DELETE, "/registrations/old")
        .accepted(200)
        .await;
    server.register("w", build("b2")).await;
    ask(&server).refused(409, "query_worker_incompatible").await;
    server.register("anything", build("*")).await;
    let worker = async {
        let task = server.worker("anything").query_task().await;
        query_report(&server, &task, "complete", json!({"result": "b1"}))
            .accepted(200)
            .await;
    };
    assert_eq!(
        tokio::join!(ask(&server).accepted(200), worker).0["result"],
        "b1"
    );
}

#[tokio::test]
async fn a_query_times_out_before_and_after_a_worker_leased_it() {
    let (server, run_id) = with_query_worker(json!({})).await;
    let before = recorded(&server, &run_id).await;
    let no_worker_came = async {
        server.advance(0).await;
        server.advance(44).await;
        server.advance(1).await;
    };
    let (refusal, ()) = tokio::join!(
        ask(&server).refused(504, "query_worker_timeout"),
        no_worker_came
    );
    assert_eq!(refusal["timeout_stage"], "not_claimed");
    let no_answer = async {
        server.worker("w").query_task().await;
        server.advance(45).await;
    };
    let (refusal, ()) = tokio::join!(ask(&server).refused(504, "query_worker_timeout"), no_answer);
    assert_eq!(refusal["timeout_stage"], "executing");
    assert_eq!(refusal["control_plane"]["operation"], "query");
    assert_eq!(recorded(&server, &run_id).await, before);
}

#[tokio::test]
async fn closed_runs_answer_queries_however_they_closed() {
    for close in ["complete", "fail", "cancel", "terminate"] {
        let (server, run_id) = with_query_worker(json!({})).await;
        match close {
            "complete" => {
                let command = json!([{"type": "complete_workflow", "result": envelope("1")}]);
                server.worker("w").decide(command).await;
            }
            "fail" => {
                let command = json!([{"type": "fail_workflow", "message": "no"}]);
                server.worker("w").decide(command).await;
            }
            verb => {
                server
                    .post(&format!("/workflows/wf/{verb}"), &json!({}))
                    .accepted(200)
                    .await;
            }
        }
        let before = recorded(&server, &run_id).await;
        let worker = async {
            let task = server.worker("w").query_task().await;
            let events = task["history_events"].as_array().unwrap();
            assert_eq!(json!(events.len()), task["total_history_events"]);
            query_report(
                &server,
                &task,
                "complete",
                json!({"result": task["run_status"]}),
            )
            .accepted(200)
            .await;
        };
        let (answer, ()) = tokio::join!(ask(&server).accepted(200), worker);
        let status = server.get("/workflows/wf").accepted(200).await["status"].clone();
        assert_eq!(answer["result"], status, "{close}");
        assert_eq!(recorded(&server, &run_id).await, before, "{close}");
    }
}

#[tokio::test]
async fn declared_queries_are_checked_before_a_worker_is_asked() {
    let parameter = json!({"name": "day", "position": 0, "required": true, "variadic": false, "type": "string", "allows_null": false});
    let contract = json!({
        "queries": ["status"],
        "query_contracts": [{"name": "status", "parameters": [parameter]}],
    });
    let (server, run_id) =
        with_query_worker(json!({"workflow_command_contracts": {"greet": contract}})).await;
    let before = recorded(&server, &run_id).await;
    let refusal = server
        .post("/workflows/wf/query/other", &json!({}))
        .refused(404, "rejected_unknown_query")
        .await;
    assert_eq!(refusal["declared_queries"], json!(["status"]));
    assert_eq!(refusal["query_name"], "other");
    for input in [json!([]), json!([7]), json!(["mon", "tue"])] {
        let refusal = server
            .post("/workflows/wf/query/status", &json!({"input": input}))
            .refused(422, "invalid_query_arguments")
            .await;
        assert_ne!(refusal["validation_errors"], json!({}));
    }
    let call = server.post("/workflows/wf/query/status", &json!({"input": ["mon"]}));
    let answer = asked(&server, call, "complete", json!({"result": true})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(recorded(&server, &run_id).await, before);
}

#[tokio::test]
async fn missing_targets_and_bad_bodies_are_refused_before_a_worker_is_asked() {
    let (server, _) = with_query_worker(json!({})).await;
    for (path, reason) in [
        ("/workflows/none/query/status", "instance_not_found"),
        ("/workflows/wf/runs/none/query/status", "run_not_found"),
    ] {
        let refusal = server.post(path, &json!({})).refused(404, reason).await;
        assert_eq!(refusal["control_plane"]["operation"], "query");
    }
    server
        .post("/namespaces", &json!({"name": "other"}))
        .accepted(201)
        .await;
    let elsewhere = ask(&server).namespace("other");
    elsewhere.refused(404, "instance_not_found").await;
    for (body, field) in [
        (json!({"input": "x"}), "input"),
        (
            json!({"input": {"codec": "avro", "blob": "?"}}),
            "input.blob",
        ),
        (json!({"payload_codec": "json"}), "payload_codec"),
    ] {
        let call = server.post("/workflows/wf/query/status", &body);
        assert_eq!(call.invalid().await, [field], "{body}");
    }
    for name in ["%20", &"q".repeat(257), "a%07b"] {
        let call = server.post(&format!("/workflows/wf/query/{name}"), &json!({}));
        assert_eq!(call.invalid().await, ["query_name"]);
    }
    let large = json!({"input": [ "x".repeat(2 * 1024 * 1024) ]});
    let call = server.post("/workflows/wf/query/status", &large);
    call.refused(422, "structural_limit_exceeded").await;
    let guarded = Server::guarded().await;
    ask(&guarded).refused(401, "unauthorized").await;
    ask(&guarded).token("w").refused(403, "forbidden").await;
}

#[tokio::test]
async fn a_queue_limits_pending_queries_and_shows_them() {
    let config = Config {
        questions: QuestionLimits {
            pending_max: 2,
            ..QuestionLimits::default()
        },
        ..Config::default()
    };
    let server = Server::configured(|it| *it = config).await;
    server
        .register("w", json!({"capabilities": ["query_tasks"]}))
        .await;
    server.start("wf").await;
    let admission = || async {
        let queue = server.get("/task-queues/default").accepted(200).await;
        queue["admission"]["query_tasks"].clone()
    };
    assert_eq!(
        admission().await,
        json!({
            "status": "accepting",
            "budget_source": "server.query_tasks.max_pending_per_queue",
            "max_pending_per_queue": 2,
            "approximate_pending_count": 0,
            "remaining_pending_capacity": 2,
            "lock_required": false,
            "lock_supported": true,
        })
    );
    let full = async {
        server.advance(0).await;
        let shown = admission().await;
        assert_eq!(
            (&shown["status"], &shown["approximate_pending_count"]),
            (&json!("full"), &json!(2))
        );
        let answer = ask(&server).send().await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.body["reason"], "query_task_queue_full");
        assert_eq!(answer.body["retryable"], true);
        for _ in 0..2 {
            let task = server.worker("w").query_task().await;
            query_report(&server, &task, "complete", json!({"result": 1}))
                .accepted(200)
                .await;
        }
        assert_eq!(admission().await["remaining_pending_capacity"], 2);
    };
    let (first, second, ()) =
        tokio::join!(ask(&server).accepted(200), ask(&server).accepted(200), full);
    assert_eq!(
        (&first["result"], &second["result"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn a_stopping_server_ends_waiting_queries() {
    let (server, _) = with_query_worker(json!({})).await;
    let stopping = async {
        server.advance(0).await;
        server.host.begin_stop();
    };
    let (refusal, ()) = tokio::join!(
        ask(&server).refused(503, "query_task_queue_unavailable"),
        stopping
    );
    assert_eq!(refusal["retryable"], true);
}

#[tokio::test]
async fn a_query_sees_what_was_accepted_before_it() {
    let (server, _) = with_query_worker(json!({})).await;
    server
        .post("/workflows/wf/signal/go", &json!({"input": [1]}))
        .accepted(202)
        .await;
    let worker = async {
        let task = server.worker("w").query_task().await;
        let events = task["history_events"].as_array().unwrap();
        let last = events.last().unwrap()["event_type"].clone();
        query_report(&server, &task, "complete", json!({"result": last}))
            .accepted(200)
            .await;
    };
    let (answer, ()) = tokio::join!(ask(&server).accepted(200), worker);
    assert_eq!(answer["result"], "SignalReceived");
}
