//! Namespaces.

use http::Method;
use serde_json::{Value, json};

use crate::support::Server;

async fn put(server: &Server, name: &str, body: Value) -> Value {
    server
        .call(Method::PUT, &format!("/namespaces/{name}"))
        .json(&body)
        .accepted(200)
        .await
}

#[tokio::test]
async fn a_namespace_is_created_shown_and_changed() {
    let server = Server::open().await;
    let body = json!({"name": "Billing", "description": "Billing workflows", "retention_days": 90});
    let created = server.post("/namespaces", &body).accepted(201).await;
    let mut expected = json!({
        "name": "billing",
        "description": "Billing workflows",
        "retention_mode": "bounded",
        "retention_days": 90,
        "status": "active",
        "external_payload_storage": null,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "updated_at": "2026-01-01T00:00:00.000000Z",
    });
    assert_eq!(created, expected);
    assert_eq!(
        server.get("/namespaces/BILLING").accepted(200).await,
        expected
    );
    server.clock.advance_seconds(5);
    let changed = put(
        &server,
        "billing",
        json!({"description": "More", "retention_days": 120}),
    )
    .await;
    expected["description"] = json!("More");
    expected["retention_days"] = json!(120);
    expected["updated_at"] = json!("2026-01-01T00:00:05.000000Z");
    assert_eq!(changed, expected);
    let all = server.get("/namespaces").accepted(200).await;
    let names: Vec<&str> = all["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["billing", "default"]);
    assert_eq!(all["namespaces"][0], expected);
}

#[tokio::test]
async fn fields_that_a_change_does_not_name_stay() {
    let server = Server::open().await;
    server
        .post(
            "/namespaces",
            &json!({"name": "n", "description": "d", "retention_days": 7}),
        )
        .accepted(201)
        .await;
    let same = put(&server, "n", json!({})).await;
    assert_eq!(
        (&same["description"], &same["retention_days"]),
        (&json!("d"), &json!(7))
    );
    let forever = put(&server, "n", json!({"retention_mode": "forever"})).await;
    assert_eq!(
        (&forever["retention_mode"], &forever["retention_days"]),
        (&json!("forever"), &Value::Null)
    );
    let bounded = put(
        &server,
        "n",
        json!({"retention_mode": "bounded", "description": ""}),
    )
    .await;
    assert_eq!(
        (&bounded["retention_mode"], &bounded["retention_days"]),
        (&json!("bounded"), &json!(30))
    );
    assert_eq!(
        bounded["description"],
        Value::Null,
        "an empty text takes the description away"
    );
}

#[tokio::test]
async fn the_defaults_are_thirty_days_and_no_description() {
    let server = Server::open().await;
    let created = server
        .post("/namespaces", &json!({"name": "n"}))
        .accepted(201)
        .await;
    assert_eq!(
        (&created["retention_days"], &created["description"]),
        (&json!(30), &Value::Null)
    );
    let forever = server
        .post(
            "/namespaces",
            &json!({"name": "f", "retention_mode": "forever"}),
        )
        .accepted(201)
        .await;
    assert_eq!(
        (&forever["retention_mode"], &forever["retention_days"]),
        (&json!("forever"), &Value::Null)
    );
}

#[tokio::test]
async fn names_and_numbers_outside_the_rules_are_refused() {
    let server = Server::open().await;
    for name in [
        "",
        " ",
        "a b",
        "a/b",
        "..",
        ".",
        "ä",
        "a\u{0}",
        &"x".repeat(129),
    ] {
        assert_eq!(
            server
                .post("/namespaces", &json!({"name": name}))
                .invalid()
                .await,
            ["name"],
            "{name}"
        );
    }
    assert_eq!(
        server.post("/namespaces", &json!({})).invalid().await,
        ["name"]
    );
    for (fields, field) in [
        (json!({"retention_days": 0}), "retention_days"),
        (json!({"retention_days": 366}), "retention_days"),
        (json!({"retention_days": "30"}), "retention_days"),
        (json!({"retention_mode": "never"}), "retention_mode"),
        (
            json!({"retention_mode": "forever", "retention_days": 3}),
            "retention_days",
        ),
        (json!({"description": "x".repeat(1001)}), "description"),
    ] {
        let mut body = json!({"name": "n"});
        crate::support::merge(&mut body, fields.clone());
        assert_eq!(
            server.post("/namespaces", &body).invalid().await,
            [field],
            "{fields}"
        );
        assert_eq!(
            server
                .call(Method::PUT, "/namespaces/default")
                .json(&fields)
                .invalid()
                .await,
            [field],
            "{fields}"
        );
    }
    server
        .get("/namespaces/n")
        .refused(404, "namespace_not_found")
        .await;
}

#[tokio::test]
async fn a_taken_name_is_a_conflict_whatever_its_case() {
    let server = Server::open().await;
    server
        .post("/namespaces", &json!({"name": "n"}))
        .accepted(201)
        .await;
    let body = server
        .post("/namespaces", &json!({"name": "N"}))
        .refused(409, "namespace_already_exists")
        .await;
    assert_eq!(body["namespace"], "n");
    server
        .post("/namespaces", &json!({"name": "default"}))
        .refused(409, "namespace_already_exists")
        .await;
}

#[tokio::test]
async fn the_path_names_the_target_and_the_header_does_not_matter() {
    let server = Server::open().await;
    let body = server
        .get("/namespaces/none")
        .refused(404, "namespace_not_found")
        .await;
    assert_eq!(body["namespace"], "none");
    server
        .call(Method::PUT, "/namespaces/none")
        .json(&json!({}))
        .refused(404, "namespace_not_found")
        .await;
    server
        .get("/namespaces/default")
        .namespace("none")
        .accepted(200)
        .await;
    server
        .get("/namespaces")
        .namespace("none")
        .accepted(200)
        .await;
}

#[tokio::test]
async fn reading_is_for_operators_and_changing_for_administrators() {
    let server = Server::guarded().await;
    server.get("/namespaces").token("o").accepted(200).await;
    server
        .post("/namespaces", &json!({"name": "n"}))
        .token("o")
        .refused(403, "forbidden")
        .await;
    server
        .post("/namespaces", &json!({"name": "n"}))
        .token("a")
        .accepted(201)
        .await;
    server
        .call(Method::PUT, "/namespaces/n")
        .json(&json!({}))
        .token("o")
        .refused(403, "forbidden")
        .await;
    server
        .call(Method::PUT, "/namespaces/n")
        .json(&json!({}))
        .token("a")
        .accepted(200)
        .await;
}
