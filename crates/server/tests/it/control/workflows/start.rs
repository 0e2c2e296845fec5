//! `POST /api/workflows`.

use serde_json::{Value, json};

use crate::support::{Server, envelope, merge};

/// A start of type `greet` with other fields.
fn greet(fields: Value) -> Value {
    let mut body = json!({"workflow_type": "greet"});
    merge(&mut body, fields);
    body
}

#[tokio::test]
async fn a_new_workflow_is_created_and_described_in_full() {
    let server = Server::open().await;
    let body = greet(json!({"workflow_id": "order-7", "business_key": "key-7"}));
    let answer = server.post("/workflows", &body).accepted(201).await;
    let run_id = answer["run_id"].as_str().unwrap();
    assert_eq!(run_id.len(), 26);
    let mut expected = json!({
        "workflow_id": "order-7",
        "run_id": run_id,
        "workflow_type": "greet",
        "namespace": "default",
        "status": "pending",
        "business_key": "key-7",
        "payload_codec": "avro",
        "outcome": "started_new",
        "command_status": "accepted",
        "command_source": "control_plane",
        "reason": null,
        "rejection_reason": null,
        "message": null,
    });
    expected["control_plane"] = json!({
        "schema": "durable-workflow.v2.control-plane-response",
        "version": 1,
        "operation": "start",
        "workflow_id": "order-7",
        "run_id": run_id,
        "workflow_type": "greet",
        "namespace": "default",
        "business_key": "key-7",
        "status": "pending",
        "outcome": "started_new",
        "command_status": "accepted",
        "command_source": "control_plane",
        "reason": null,
        "rejection_reason": null,
        "message": null,
        "contract": {
            "schema": "durable-workflow.v2.control-plane-response.contract",
            "version": 1,
            "legacy_field_policy": "reject_non_canonical",
            "legacy_fields": {"query": "query_name", "signal": "signal_name", "update": "update_name", "wait_policy": "wait_for"},
            "required_fields": [],
            "success_fields": ["workflow_id", "outcome"],
        },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn without_an_id_the_server_creates_one() {
    let server = Server::open().await;
    let first = server
        .post("/workflows", &greet(json!({})))
        .accepted(201)
        .await;
    let second = server
        .post("/workflows", &greet(json!({"workflow_id": null})))
        .accepted(201)
        .await;
    for answer in [&first, &second] {
        let id = answer["workflow_id"].as_str().unwrap();
        assert!(
            id.len() == 26
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
            "{id}"
        );
        assert_eq!(
            answer["control_plane"]["workflow_id"],
            answer["workflow_id"]
        );
    }
    assert_ne!(first["workflow_id"], second["workflow_id"]);
}

#[tokio::test]
async fn every_form_of_the_input_means_the_same() {
    let server = Server::open().await;
    let arguments = r#"[{"order_id":42,"ratio":7.0},"x",null]"#;
    for (input, expected) in [
        (None, "[]"),
        (Some(json!(null)), "[]"),
        (Some(json!([])), "[]"),
        (Some(json!({})), "[]"),
        (Some(serde_json::from_str(arguments).unwrap()), arguments),
        (Some(envelope(arguments)), arguments),
        (Some(envelope("[]")), "[]"),
    ] {
        let mut body = greet(json!({}));
        if let Some(input) = input {
            body["input"] = input;
        }
        let started = server.post("/workflows", &body).accepted(201).await;
        let path = format!("/workflows/{}", started["workflow_id"].as_str().unwrap());
        let described = server.get(&path).accepted(200).await;
        assert_eq!(
            described["input"],
            serde_json::from_str::<Value>(expected).unwrap()
        );
        assert_eq!(described["input_envelope"], envelope(expected));
    }
}

#[tokio::test]
async fn a_wrong_input_is_refused_at_the_part_that_is_wrong() {
    let server = Server::open().await;
    for (input, field) in [
        (json!("text"), "input"),
        (json!(7), "input"),
        (json!(true), "input"),
        (json!({"a": 1}), "input"),
        (json!({"codec": "json", "blob": "e30="}), "input.codec"),
        (json!({"codec": "avro"}), "input.blob"),
        (
            json!({"codec": "avro", "blob": "not base64!"}),
            "input.blob",
        ),
        (json!({"codec": "avro", "blob": "e30="}), "input.blob"),
        (envelope(r#"{"a":1}"#), "input.blob"),
        (envelope("null"), "input.blob"),
    ] {
        assert_eq!(
            server
                .post("/workflows", &greet(json!({"input": input})))
                .invalid()
                .await,
            [field],
            "{input}"
        );
    }
    let overflow = r#"{"workflow_type":"greet","input":[99999999999999999999]}"#;
    let call = server
        .call(http::Method::POST, "/workflows")
        .raw(overflow)
        .header("content-type", "application/json");
    assert_eq!(call.invalid().await, ["input"]);
    assert_eq!(
        server
            .post("/workflows", &greet(json!({"payload_codec": "json"})))
            .invalid()
            .await,
        ["payload_codec"]
    );
    server
        .post("/workflows", &greet(json!({"payload_codec": "avro"})))
        .accepted(201)
        .await;
}

#[tokio::test]
async fn a_payload_over_the_limit_is_a_structural_breach() {
    let server = Server::open().await;
    let body = greet(json!({"input": ["x".repeat(2 * 1024 * 1024)]}));
    let refusal = server
        .post("/workflows", &body)
        .refused(422, "structural_limit_exceeded")
        .await;
    assert_eq!(refusal["limit_kind"], "payload_size");
    assert_eq!(refusal["configured_limit"], 2_097_152);
    assert!(refusal["current_value"].as_u64().unwrap() > 2_097_152);
}

#[tokio::test]
async fn every_field_has_its_rule() {
    let server = Server::open().await;
    let long = |length: usize| "x".repeat(length);
    for (fields, field) in [
        (json!({"workflow_type": ""}), "workflow_type"),
        (json!({"workflow_type": long(256)}), "workflow_type"),
        (json!({"workflow_type": 7}), "workflow_type"),
        (json!({"workflow_id": ""}), "workflow_id"),
        (json!({"workflow_id": long(129)}), "workflow_id"),
        (json!({"workflow_id": "a b"}), "workflow_id"),
        (json!({"workflow_id": "a/b"}), "workflow_id"),
        (json!({"workflow_id": "ä"}), "workflow_id"),
        (json!({"task_queue": long(256)}), "task_queue"),
        (json!({"business_key": long(256)}), "business_key"),
        (json!({"business_key": 7}), "business_key"),
        (
            json!({"duplicate_policy": "use_existing"}),
            "duplicate_policy",
        ),
        (json!({"duplicate_policy": "allow"}), "duplicate_policy"),
        (
            json!({"execution_timeout_seconds": 0}),
            "execution_timeout_seconds",
        ),
        (json!({"run_timeout_seconds": -1}), "run_timeout_seconds"),
        (json!({"run_timeout_seconds": 1.5}), "run_timeout_seconds"),
        (json!({"run_timeout_seconds": "60"}), "run_timeout_seconds"),
        (json!({"priority": 10}), "priority"),
        (json!({"priority": -1}), "priority"),
        (json!({"fairness_key": long(65)}), "fairness_key"),
        (json!({"fairness_key": "a b"}), "fairness_key"),
        (json!({"fairness_weight": 0}), "fairness_weight"),
        (json!({"fairness_weight": 1001}), "fairness_weight"),
        (json!({"build_id": long(256)}), "build_id"),
        (json!({"memo": []}), "memo"),
        (json!({"memo": "text"}), "memo"),
        (json!({"memo": {"a b": 1}}), "memo"),
        (json!({"memo": {"12": 1}}), "memo"),
        (json!({"memo": {"": 1}}), "memo"),
        (json!({"memo": {(long(65)): 1}}), "memo"),
        (json!({"memo": {"a": long(262_144)}}), "memo"),
        (json!({"search_attributes": []}), "search_attributes"),
        (json!({"search_attributes": {"a": {}}}), "search_attributes"),
        (
            json!({"search_attributes": {"a": [1]}}),
            "search_attributes",
        ),
        (json!({"search_attributes": {"": 1}}), "search_attributes"),
        (
            json!({"workflow_execution_timeout": 1}),
            "workflow_execution_timeout",
        ),
        (json!({"workflow_run_timeout": 1}), "workflow_run_timeout"),
        (json!({"workflow_task_timeout": 1}), "workflow_task_timeout"),
        (json!({"retry_policy": {}}), "retry_policy"),
        (json!({"idempotency_key": "k"}), "idempotency_key"),
        (json!({"request_id": "r"}), "request_id"),
    ] {
        assert_eq!(
            server
                .post("/workflows", &greet(fields.clone()))
                .invalid()
                .await,
            [field],
            "{fields}"
        );
    }
    assert_eq!(
        server.post("/workflows", &json!({})).invalid().await,
        ["workflow_type"]
    );
    let wrong_twice = greet(json!({"priority": 10, "workflow_id": "a b"}));
    assert_eq!(
        server.post("/workflows", &wrong_twice).invalid().await,
        ["priority", "workflow_id"]
    );
    let nothing = server.get("/workflows").accepted(200).await;
    assert_eq!(
        nothing["workflows"],
        json!([]),
        "a refused start leaves nothing behind"
    );
}

#[tokio::test]
async fn search_attributes_over_a_limit_are_refused() {
    let server = Server::open().await;
    let many: serde_json::Map<String, Value> = (0..101)
        .map(|index| (format!("a{index}"), json!(1)))
        .collect();
    for attributes in [
        json!(many),
        json!({"a": "x".repeat(2049)}),
        json!({("k".repeat(129)): 1}),
    ] {
        let body = greet(json!({"search_attributes": attributes}));
        let refusal = server
            .post("/workflows", &body)
            .refused(422, "structural_limit_exceeded")
            .await;
        assert_eq!(refusal["limit_kind"], "search_attribute_size");
    }
}

#[tokio::test]
async fn the_fields_of_a_start_are_shown_again() {
    let server = Server::open().await;
    let attributes =
        json!({"CustomerId": "c", "Tier": 2, "Ratio": 0.1, "Vip": true, "Tags": ["b", "a"]});
    let mut sent = attributes.clone();
    sent["Gone"] = Value::Null;
    let body = greet(json!({
        "workflow_id": "w",
        "task_queue": "orders",
        "memo": {"source": "test", "nested": {"codec": "avro", "n": 1.0}},
        "search_attributes": sent,
        "run_timeout_seconds": 60,
        "execution_timeout_seconds": 3600,
        "build_id": "b1",
        "compatibility": "b2",
        "observability_context": {"anything": true},
        "an_unknown_field": 1,
        "retry_policy": null,
    }));
    server.post("/workflows", &body).accepted(201).await;
    let described = server.get("/workflows/w").accepted(200).await;
    assert_eq!(described["task_queue"], "orders");
    assert_eq!(
        described["memo"],
        json!({"source": "test", "nested": {"codec": "avro", "n": 1}})
    );
    assert_eq!(described["search_attributes"], attributes);
    assert_eq!(described["run_timeout_seconds"], 60);
    assert_eq!(described["execution_timeout_seconds"], 3600);
    assert_eq!(described["run_deadline_at"], "2026-01-01T00:01:00.000000Z");
    assert_eq!(
        described["execution_deadline_at"],
        "2026-01-01T01:00:00.000000Z"
    );
    assert_eq!(described["compatibility"], "b1", "build_id wins");
}

#[tokio::test]
async fn an_id_in_use_is_refused_with_its_run() {
    let server = Server::open().await;
    let run_id = server.start("w").await;
    let body = greet(json!({"workflow_id": "w"}));
    let refusal = server
        .post("/workflows", &body)
        .refused(409, "instance_already_started")
        .await;
    assert_eq!(refusal["outcome"], "rejected_duplicate");
    assert_eq!(refusal["command_status"], "rejected");
    assert_eq!(
        (&refusal["workflow_id"], &refusal["run_id"]),
        (&json!("w"), &json!(run_id))
    );
    assert_eq!(refusal["control_plane"]["operation"], "start");
    assert_eq!(refusal["control_plane"]["workflow_id"], "w");
    assert_eq!(refusal["rejection_reason"], "instance_already_started");
}

#[tokio::test]
async fn use_existing_answers_with_the_open_run_and_refuses_a_closed_one() {
    let server = Server::open().await;
    let body = greet(
        json!({"workflow_id": "w", "duplicate_policy": "use-existing", "business_key": "other"}),
    );
    let first = server.post("/workflows", &body).accepted(201).await;
    let again = server.post("/workflows", &body).accepted(200).await;
    assert_eq!(again["run_id"], first["run_id"]);
    assert_eq!(again["outcome"], "returned_existing_active");
    assert_eq!(again["command_status"], "accepted");
    server
        .post("/workflows/w/terminate", &json!({}))
        .accepted(200)
        .await;
    let refusal = server
        .post("/workflows", &body)
        .refused(409, "instance_already_started")
        .await;
    assert_eq!(refusal["run_id"], first["run_id"]);
}

#[tokio::test]
async fn an_id_of_another_type_is_a_wrong_type() {
    let server = Server::open().await;
    server.start("w").await;
    for policy in ["fail", "use-existing"] {
        let body =
            json!({"workflow_id": "w", "workflow_type": "other", "duplicate_policy": policy});
        assert_eq!(
            server.post("/workflows", &body).invalid().await,
            ["workflow_type"]
        );
    }
}

#[tokio::test]
async fn many_starts_of_one_id_at_once_make_one_run() {
    let server = Server::open().await;
    let body = greet(json!({"workflow_id": "w", "duplicate_policy": "use-existing"}));
    let answers =
        futures::future::join_all((0..20).map(|_| server.post("/workflows", &body).send())).await;
    let created = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(
        (
            created,
            answers.iter().filter(|answer| answer.status == 200).count()
        ),
        (1, 19)
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.body["run_id"] == answers[0].body["run_id"])
    );
}
