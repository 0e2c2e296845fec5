//! Signal, cancel and terminate.

use serde_json::{Value, json};

use crate::support::{Server, envelope};

/// Names that must not be at the top level of a command's reply.
const CONFUSING: [&str; 5] = [
    "status",
    "accepted",
    "success",
    "workflow_instance_id",
    "workflow_command_id",
];

fn without_block(mut body: Value) -> Value {
    for name in CONFUSING {
        assert_eq!(body.get(name), None, "{body}");
    }
    body.as_object_mut()
        .expect("an object")
        .remove("control_plane")
        .expect("every workflow operation has its block");
    body
}

#[tokio::test]
async fn a_signal_is_received_and_answered_in_full() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let body = server
        .post(
            "/workflows/w/signal/approve",
            &json!({"input": [1], "request_id": "r1"}),
        )
        .accepted(202)
        .await;
    let block = body["control_plane"].clone();
    let body = without_block(body);
    let expected = json!({
        "workflow_id": "w",
        "run_id": run_id,
        "requested_run_id": null,
        "resolved_run_id": run_id,
        "target_scope": "instance",
        "workflow_type": "greet",
        "command_id": body["command_id"],
        "command_sequence": 2,
        "command_status": "accepted",
        "command_source": "control_plane",
        "outcome": "signal_received",
        "reason": null,
        "rejection_reason": null,
        "validation_errors": {},
        "signal_name": "approve",
        "request_id": "r1",
        "retained": false,
        "intent_verified": true,
    });
    assert_eq!(body, expected);
    assert_eq!(body["command_id"].as_str().unwrap().len(), 26);
    assert_eq!(
        (&block["operation"], &block["operation_name"]),
        (&json!("signal"), &json!("approve"))
    );
    assert_eq!(
        (&block["outcome"], &block["command_id"]),
        (&json!("signal_received"), &body["command_id"])
    );
}

#[tokio::test]
async fn a_signal_to_a_named_run_shows_the_run_scope() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let body = server
        .post(
            &format!("/workflows/w/runs/{run_id}/signal/approve"),
            &json!({}),
        )
        .accepted(202)
        .await;
    assert_eq!(
        (&body["target_scope"], &body["requested_run_id"]),
        (&json!("run"), &json!(run_id))
    );
    assert_eq!(body["request_id"], Value::Null);
}

#[tokio::test]
async fn a_body_is_optional() {
    let server = Server::open().await;
    server.start("w").await;
    server
        .call(http::Method::POST, "/workflows/w/signal/go")
        .accepted(202)
        .await;
    server
        .call(http::Method::POST, "/workflows/w/cancel")
        .accepted(200)
        .await;
}

#[tokio::test]
async fn signals_are_in_history_and_among_the_commands_in_the_order_they_were_accepted() {
    let server = Server::guarded().await;
    let start = json!({"workflow_id": "w", "workflow_type": "greet"});
    let run_id = server
        .post("/workflows", &start)
        .token("a")
        .accepted(201)
        .await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for (index, input) in [json!(["a"]), envelope(r#"["b"]"#), json!({}), json!(null)]
        .into_iter()
        .enumerate()
    {
        let body = json!({"input": input, "principal": {"id": "spoofed"}, "actor": "spoofed"});
        let call = server
            .post(&format!("/workflows/w/signal/s{index}"), &body)
            .token("o")
            .header("x-workflow-caller-type", "spoofed");
        assert_eq!(call.accepted(202).await["command_sequence"], index + 2);
    }
    let page = server
        .get(&format!("/workflows/w/runs/{run_id}/history"))
        .token("o")
        .accepted(200)
        .await;
    let events = page["events"].as_array().unwrap();
    let signals: Vec<&Value> = events
        .iter()
        .filter(|event| event["event_type"] == "SignalReceived")
        .collect();
    let names: Vec<&str> = signals
        .iter()
        .map(|event| event["payload"]["signal_name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["s0", "s1", "s2", "s3"]);
    let operator = json!({"type": "auth:token", "id": "role:operator"});
    assert!(
        signals.iter().all(|event| event["principal"] == operator),
        "{signals:?}"
    );
    let described = server.get("/workflows/w").token("o").accepted(200).await;
    let commands = described["commands"].as_array().unwrap();
    assert_eq!(
        commands[0]["principal"],
        json!({"type": "auth:token", "id": "role:admin"})
    );
    assert_eq!(commands[1]["principal"], operator);
    assert_eq!(
        (
            &commands[4]["type"],
            &commands[4]["target_name"],
            &commands[4]["sequence"]
        ),
        (&json!("signal"), &json!("s3"), &json!(5))
    );
}

#[tokio::test]
async fn the_same_request_id_is_the_same_signal() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let send = |name: &'static str, body: Value| {
        let server = &server;
        async move {
            server
                .post(&format!("/workflows/w/signal/{name}"), &body)
                .send()
                .await
        }
    };
    let first = send("s", json!({"input": [1], "request_id": "r"}))
        .await
        .body;
    let again = send("s", json!({"input": envelope("[1]"), "request_id": "r"})).await;
    assert_eq!(again.status, 202, "the first status again");
    assert_eq!(again.body["retained"], true);
    assert_eq!(again.body["intent_verified"], true);
    assert_eq!(again.body["request_id"], "r");
    for field in ["command_id", "command_sequence", "run_id", "outcome"] {
        assert_eq!(again.body[field], first[field], "{field}");
    }
    for (call, conflict) in [
        (
            send("other", json!({"input": [1], "request_id": "r"})).await,
            json!(["name"]),
        ),
        (
            send("s", json!({"input": [2], "request_id": "r"})).await,
            json!(["arguments"]),
        ),
        (
            server
                .post(
                    &format!("/workflows/w/runs/{run_id}/signal/s"),
                    &json!({"input": [1], "request_id": "r"}),
                )
                .send()
                .await,
            json!(["target"]),
        ),
    ] {
        assert_eq!(
            (call.status.as_u16(), call.text("reason").as_str()),
            (409, "request_id_conflict")
        );
        assert_eq!(call.body["conflict"], conflict);
        assert_eq!(call.body["request_id"], "r");
        assert_eq!(call.body["retained_command_id"], first["command_id"]);
        assert_eq!(call.body["retained_command_type"], "signal");
        assert_eq!(call.body["retained_outcome"], "signal_received");
    }
    let described = server.get("/workflows/w").accepted(200).await;
    assert_eq!(
        described["commands"].as_array().unwrap().len(),
        2,
        "one start, one signal"
    );
}

#[tokio::test]
async fn a_preview_records_nothing() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let path = "/workflows/w/signal/s";
    let body = server
        .post(
            path,
            &json!({"dry_run": true, "input": [1], "request_id": "r"}),
        )
        .accepted(200)
        .await;
    assert_eq!(
        (&body["outcome"], &body["command_status"]),
        (&json!("signal_preview"), &json!("preview"))
    );
    assert_eq!(
        body["preview"],
        json!({"input_present": true, "request_id_present": true, "would_record_signal": true})
    );
    assert_eq!(body["run_id"], run_id);
    without_block(body);
    let body = server
        .post(path, &json!({"dry_run": true}))
        .accepted(200)
        .await;
    assert_eq!(
        body["preview"],
        json!({"input_present": false, "request_id_present": false, "would_record_signal": true})
    );
    let described = server.get("/workflows/w").accepted(200).await;
    assert_eq!(described["commands"].as_array().unwrap().len(), 1);
    server
        .post("/workflows/w/cancel", &json!({}))
        .accepted(200)
        .await;
    let body = server
        .post(path, &json!({"dry_run": true}))
        .accepted(200)
        .await;
    assert_eq!(body["preview"]["would_record_signal"], false);
    server
        .post("/workflows/none/signal/s", &json!({"dry_run": true}))
        .refused(404, "instance_not_found")
        .await;
}

#[tokio::test]
async fn names_and_fields_of_commands_have_rules() {
    let server = Server::open().await;
    server.start("w").await;
    let long = "x".repeat(257);
    for name in ["%20", "%0a", "a%00b", &long] {
        assert_eq!(
            server
                .post(&format!("/workflows/w/signal/{name}"), &json!({}))
                .invalid()
                .await,
            ["signal_name"],
            "{name}"
        );
    }
    let reserved = "/workflows/w/signal/__durable_workflow_message_stream";
    let body = server
        .post(reserved, &json!({}))
        .refused(422, "runtime_reserved_signal")
        .await;
    assert_eq!(body["signal_name"], "__durable_workflow_message_stream");
    for (fields, field) in [
        (json!({"input": 7}), "input"),
        (
            json!({"input": {"codec": "avro", "blob": "x"}}),
            "input.blob",
        ),
        (json!({"request_id": ""}), "request_id"),
        (json!({"request_id": "x".repeat(256)}), "request_id"),
        (json!({"dry_run": "yes"}), "dry_run"),
        (json!({"payload_codec": "json"}), "payload_codec"),
    ] {
        assert_eq!(
            server
                .post("/workflows/w/signal/s", &fields)
                .invalid()
                .await,
            [field],
            "{fields}"
        );
    }
    for (fields, field) in [
        (json!({"reason": "x".repeat(1001)}), "reason"),
        (json!({"reason": 7}), "reason"),
        (json!({"request_id": "x".repeat(256)}), "request_id"),
    ] {
        assert_eq!(
            server.post("/workflows/w/cancel", &fields).invalid().await,
            [field],
            "{fields}"
        );
        assert_eq!(
            server
                .post("/workflows/w/terminate", &fields)
                .invalid()
                .await,
            [field],
            "{fields}"
        );
    }
    server
        .post(
            "/workflows/w/signal/s",
            &json!({"request_id": "ä".repeat(255)}),
        )
        .accepted(202)
        .await;
    server
        .post(
            &format!("/workflows/w/signal/{}", "x".repeat(256)),
            &json!({}),
        )
        .accepted(202)
        .await;
}

#[tokio::test]
async fn a_declared_signal_refuses_arguments_that_cannot_fit() {
    let server = Server::open().await;
    let who = json!({"name": "who", "position": 0, "required": true, "variadic": false, "type": "string", "allows_null": false});
    let contract = json!({"signals": ["approve"], "signal_contracts": [{"name": "approve", "parameters": [who]}]});
    server
        .register(
            "w",
            json!({"workflow_command_contracts": {"greet": contract}}),
        )
        .await;
    server.start("w").await;
    for input in [json!([]), json!([7]), json!(["alice", "bob"])] {
        let body = server
            .post("/workflows/w/signal/approve", &json!({"input": input}))
            .refused(422, "invalid_signal_arguments")
            .await;
        assert_eq!(body["outcome"], "rejected_invalid_arguments");
        assert_eq!(body["command_status"], "rejected");
        let named: Vec<&String> = body["validation_errors"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(named.len(), 1, "{body}");
    }
    server
        .post("/workflows/w/signal/approve", &json!({"input": ["alice"]}))
        .accepted(202)
        .await;
}

#[tokio::test]
async fn a_declared_workflow_refuses_other_signals() {
    let server = Server::open().await;
    let contracts = json!({"greet": {"queries": [], "signals": ["approve"], "updates": []}});
    server
        .register("w", json!({"workflow_command_contracts": contracts}))
        .await;
    server.start("w").await;
    server
        .post("/workflows/w/signal/approve", &json!({}))
        .accepted(202)
        .await;
    let body = server
        .post("/workflows/w/signal/other", &json!({}))
        .refused(404, "unknown_signal")
        .await;
    assert_eq!(body["declared_signals"], json!(["approve"]));
    assert_eq!(body["outcome"], "rejected_unknown_signal");
    assert_eq!(
        (&body["command_status"], &body["rejection_reason"]),
        (&json!("rejected"), &json!("unknown_signal"))
    );
    assert!(body["command_contract_source"].is_string());
    assert_eq!(
        body["control_plane"]["declared_signals"],
        json!(["approve"])
    );
    without_block(body);
    let preview = server
        .post("/workflows/w/signal/other", &json!({"dry_run": true}))
        .accepted(200)
        .await;
    assert_eq!(preview["preview"]["would_record_signal"], false);
}

#[tokio::test]
async fn cancel_and_terminate_close_the_run_at_once() {
    let server = Server::open().await;
    for (verb, outcome, event) in [
        ("cancel", "cancelled", "WorkflowCancelled"),
        ("terminate", "terminated", "WorkflowTerminated"),
    ] {
        let run_id = server.start(verb).await;
        let body = server
            .post(
                &format!("/workflows/{verb}/{verb}"),
                &json!({"reason": "enough", "request_id": "r"}),
            )
            .accepted(200)
            .await;
        let command_id = body["command_id"].clone();
        assert_eq!(body["control_plane"]["operation"], verb);
        let expected = json!({
            "workflow_id": verb,
            "run_id": run_id,
            "requested_run_id": null,
            "resolved_run_id": run_id,
            "target_scope": "instance",
            "workflow_type": "greet",
            "command_id": command_id,
            "command_sequence": 2,
            "command_status": "accepted",
            "command_source": "control_plane",
            "outcome": outcome,
            "reason": null,
            "rejection_reason": null,
            "validation_errors": {},
            "request_id": "r",
            "retained": false,
            "intent_verified": true,
        });
        assert_eq!(without_block(body), expected);
        let history = server
            .get(&format!("/workflows/{verb}/runs/{run_id}/history"))
            .accepted(200)
            .await;
        let last = history["events"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["event_type"], &last["payload"]["reason"]),
            (&json!(event), &json!("enough"))
        );
        let again = server
            .post(
                &format!("/workflows/{verb}/{verb}"),
                &json!({"reason": "enough", "request_id": "r"}),
            )
            .accepted(200)
            .await;
        assert_eq!(
            (&again["retained"], &again["command_id"]),
            (&json!(true), &command_id)
        );
    }
}

#[tokio::test]
async fn a_closed_run_refuses_commands_and_remembers_them() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    server
        .post("/workflows/w/terminate", &json!({}))
        .accepted(200)
        .await;
    let events = server
        .get(&format!("/workflows/w/runs/{run_id}/history"))
        .accepted(200)
        .await["events"]
        .clone();
    for path in [
        "/workflows/w/signal/s",
        "/workflows/w/cancel",
        "/workflows/w/terminate",
    ] {
        let body = server
            .post(path, &json!({}))
            .refused(409, "run_not_active")
            .await;
        assert_eq!(
            (&body["run_status"], &body["is_terminal"]),
            (&json!("terminated"), &json!(true))
        );
        assert_eq!(
            (&body["outcome"], &body["command_status"]),
            (&json!("rejected_not_active"), &json!("rejected"))
        );
        assert_eq!(body["reason"], body["rejection_reason"]);
        assert_eq!(body["validation_errors"], json!({}));
        without_block(body);
    }
    let described = server.get("/workflows/w").accepted(200).await;
    let refused: Vec<&Value> = described["commands"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|command| command["status"] == "rejected")
        .collect();
    assert_eq!(refused.len(), 3);
    assert!(
        refused
            .iter()
            .all(|command| command["rejected_at"].is_string() && command["accepted_at"].is_null())
    );
    let after = server
        .get(&format!("/workflows/w/runs/{run_id}/history"))
        .accepted(200)
        .await["events"]
        .clone();
    assert_eq!(events, after, "a refusal adds no history to a closed run");
}

#[tokio::test]
async fn a_run_that_is_not_current_refuses_commands() {
    let server = Server::open().await;
    server.register("w", json!({})).await;
    let first = server.start("w").await;
    server
        .worker("w")
        .decide(json!([{"type": "continue_as_new"}]))
        .await;
    for verb in ["signal/s", "cancel", "terminate"] {
        let path = format!("/workflows/w/runs/{first}/{verb}");
        let body = server
            .post(&path, &json!({}))
            .refused(409, "historical_run_command_rejected")
            .await;
        assert_eq!(
            (&body["outcome"], &body["target_scope"]),
            (&json!("rejected_not_current"), &json!("run"))
        );
        assert_eq!(body["run_id"], first);
        without_block(body);
    }
    let body = server
        .post("/workflows/w/signal/s", &json!({}))
        .accepted(202)
        .await;
    assert_ne!(
        body["run_id"],
        json!(first),
        "without a run id the current run takes it"
    );
}

#[tokio::test]
async fn commands_on_missing_targets_name_them() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    server.start("other").await;
    for verb in ["signal/s", "cancel", "terminate"] {
        let body = server
            .post(&format!("/workflows/none/{verb}"), &json!({}))
            .refused(404, "instance_not_found")
            .await;
        assert_eq!(body["workflow_id"], "none");
        let body = server
            .post(&format!("/workflows/w/runs/none/{verb}"), &json!({}))
            .refused(404, "run_not_found")
            .await;
        assert_eq!(
            (&body["workflow_id"], &body["run_id"]),
            (&json!("w"), &json!("none"))
        );
        server
            .post(
                &format!("/workflows/other/runs/{run_id}/{verb}"),
                &json!({}),
            )
            .refused(404, "run_not_found")
            .await;
    }
}

#[tokio::test]
async fn a_signal_over_the_payload_limit_is_refused_and_not_recorded() {
    let server = Server::open().await;
    server.start("w").await;
    let body = json!({"input": ["x".repeat(2 * 1024 * 1024)]});
    let body = server
        .post("/workflows/w/signal/s", &body)
        .refused(422, "structural_limit_exceeded")
        .await;
    assert_eq!(
        (&body["limit_kind"], &body["command_status"]),
        (&json!("payload_size"), &json!("rejected"))
    );
    assert_eq!(
        server.get("/workflows/w").accepted(200).await["commands"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn cooperative_cancellation_is_refused_without_a_capable_worker() {
    let server = Server::open().await;
    server.start("w").await;
    server
        .post("/workflows/w/request-cancellation", &json!({}))
        .refused(409, "cooperative_cancellation_not_supported")
        .await;
    server
        .post("/workflows/unknown/request-cancellation", &json!({}))
        .refused(404, "instance_not_found")
        .await;
}

/// Returns the number of events of a run.
async fn event_count(server: &Server, run_id: &str) -> usize {
    let path = format!("/workflows/w/runs/{run_id}/history?page_size=500");
    let history = server.get(&path).accepted(200).await;
    history["events"].as_array().expect("a list").len()
}

#[tokio::test]
async fn requests_that_change_nothing_write_no_event_and_few_rows() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let events = event_count(&server, &run_id).await;
    let start = |policy: &str| json!({"workflow_id": "w", "workflow_type": "greet", "duplicate_policy": policy});
    for _ in 0..40 {
        server
            .post("/workflows", &start("use-existing"))
            .accepted(200)
            .await;
        server
            .post("/workflows", &start("fail"))
            .refused(409, "instance_already_started")
            .await;
        server
            .post("/workflows/w/repair", &json!({}))
            .accepted(200)
            .await;
    }
    assert_eq!(event_count(&server, &run_id).await, events);
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["command_count"], 51, "the start, and the newest 50");
}

#[tokio::test]
async fn a_description_shows_the_newest_commands_and_a_list_all_of_them() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    for number in 0..60 {
        let signal = json!({"input": [number]});
        server
            .post("/workflows/w/signal/s", &signal)
            .accepted(202)
            .await;
    }
    let sequences = |body: &Value| -> Vec<u64> {
        let rows = body["commands"].as_array().expect("a list").iter();
        rows.map(|row| row["sequence"].as_u64().expect("a number"))
            .collect()
    };
    let shown = server.get("/workflows/w").accepted(200).await;
    assert_eq!(shown["command_count"], 61);
    assert_eq!(sequences(&shown), (12..=61).collect::<Vec<u64>>());
    for path in [
        "/workflows/w/commands".to_owned(),
        format!("/workflows/w/runs/{run_id}/commands"),
    ] {
        let mut listed = Vec::new();
        let mut query = "?page_size=25".to_owned();
        loop {
            let page = server.get(&format!("{path}{query}")).accepted(200).await;
            assert_eq!(
                (&page["command_count"], &page["run_id"]),
                (&json!(61), &json!(run_id))
            );
            listed.extend(sequences(&page));
            let Some(token) = page["next_page_token"].as_str() else {
                break;
            };
            query = format!("?page_size=25&next_page_token={token}");
        }
        assert_eq!(listed, (1..=61).rev().collect::<Vec<u64>>());
    }
    // What the description left out is the next page of the list.
    let token = shown["commands_next_page_token"].as_str().expect("a token");
    let rest = server
        .get(&format!("/workflows/w/commands?next_page_token={token}"))
        .accepted(200)
        .await;
    assert_eq!(sequences(&rest), (1..=11).rev().collect::<Vec<u64>>());
    for query in ["page_size=0", "page_size=201", "next_page_token=x"] {
        let call = server.get(&format!("/workflows/w/commands?{query}"));
        assert_eq!(call.invalid().await.len(), 1, "{query}");
    }
    server
        .get("/workflows/none/commands")
        .refused(404, "instance_not_found")
        .await;
}
