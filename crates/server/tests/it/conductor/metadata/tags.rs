//! Tags of definitions, and rate limits of workflows behind both of their doors.

use serde_json::{Value, json};

use crate::conductor::support::{ask, call, send, tell, with_hello};
use crate::support::Server;

fn tag(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "type": "METADATA"})
}

#[tokio::test]
async fn tags_are_added_replaced_and_removed() {
    let server = Server::open().await;
    with_hello(&server).await;
    let task = json!([{"name": "greet"}]);
    tell(&server, "POST", "/metadata/taskdefs", &task)
        .await
        .void();
    for path in ["/metadata/task/greet/tags", "/metadata/workflow/hello/tags"] {
        assert_eq!(ask(&server, "GET", path).await.json(), json!([]));
        // One at a time, as one client sends them, and twice the same.
        tell(&server, "POST", path, &tag("team", "blue"))
            .await
            .void();
        tell(&server, "POST", path, &tag("team", "blue"))
            .await
            .void();
        tell(&server, "POST", path, &tag("team", "red"))
            .await
            .void();
        let stored = ask(&server, "GET", path).await.json();
        assert_eq!(stored, json!([tag("team", "blue"), tag("team", "red")]));
        let other = json!([tag("cost", "high"), tag("team", "red")]);
        tell(&server, "PUT", path, &other).await.void();
        assert_eq!(ask(&server, "GET", path).await.json(), other);
        tell(&server, "DELETE", path, &tag("team", "red"))
            .await
            .void();
        tell(&server, "DELETE", path, &tag("team", "never"))
            .await
            .void();
        let stored = ask(&server, "GET", path).await.json();
        assert_eq!(stored, json!([tag("cost", "high")]));
    }
    let all = ask(&server, "GET", "/metadata/tags").await.json();
    assert_eq!(all, json!([tag("cost", "high")]), "each tag once");
}

#[tokio::test]
async fn tags_need_their_definition_and_are_bounded() {
    let server = Server::open().await;
    with_hello(&server).await;
    for path in ["/metadata/task/none/tags", "/metadata/workflow/none/tags"] {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let body = json!([tag("a", "b")]);
            let answer = tell(&server, method, path, &body).await;
            answer.refused(404, "definition_not_found");
        }
    }
    let path = "/metadata/workflow/hello/tags";
    let many: Vec<Value> = (0..101).map(|n| tag("n", &n.to_string())).collect();
    for body in [json!(many), json!({"key": ""}), tag("k", &"x".repeat(3000))] {
        let answer = tell(&server, "POST", path, &body).await;
        answer.refused(400, "definition_invalid");
    }
    let wrong = json!({"key": "k", "type": "OTHER"});
    tell(&server, "POST", path, &wrong)
        .await
        .refused(400, "validation_failed");
    assert_eq!(ask(&server, "GET", path).await.json(), json!([]));
}

#[tokio::test]
async fn a_rate_limit_is_one_value_behind_two_doors() {
    let server = Server::open().await;
    with_hello(&server).await;
    let (limits, tags) = (
        "/metadata/workflow/hello/rate-limit",
        "/metadata/workflow/hello/tags",
    );
    let limit = |value: i64| json!({"key": "hello", "value": value, "type": "RATE_LIMIT"});
    ask(&server, "GET", limits)
        .await
        .refused(404, "definition_not_found");
    let config = json!({"rateLimitKey": "${workflow.correlationId}", "concurrentExecLimit": 5});
    tell(&server, "PUT", limits, &config).await.void();
    assert_eq!(ask(&server, "GET", limits).await.json(), config);
    assert_eq!(ask(&server, "GET", tags).await.json(), json!([limit(5)]));
    // The Python client deletes the tag with its value and posts another.
    tell(&server, "DELETE", tags, &limit(5)).await.void();
    ask(&server, "GET", limits)
        .await
        .refused(404, "definition_not_found");
    tell(&server, "POST", tags, &limit(7)).await.void();
    let stored = ask(&server, "GET", limits).await.json();
    assert_eq!(stored, json!({"concurrentExecLimit": 7}));
    tell(&server, "POST", tags, &tag("team", "blue"))
        .await
        .void();
    send(call(&server, "DELETE", limits).json(&json!({})))
        .await
        .void();
    assert_eq!(
        ask(&server, "GET", tags).await.json(),
        json!([tag("team", "blue")])
    );
    for wrong in [
        json!({"key": "hello", "value": "many", "type": "RATE_LIMIT"}),
        json!({"key": "other", "value": 5, "type": "RATE_LIMIT"}),
    ] {
        let answer = tell(&server, "POST", tags, &wrong).await;
        answer.refused(400, "definition_invalid");
    }
    ask(&server, "GET", "/metadata/workflow/none/rate-limit")
        .await
        .refused(404, "definition_not_found");
}
