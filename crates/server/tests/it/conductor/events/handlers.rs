//! Registration of event handlers.

use serde_json::{Value, json};

use super::{handler, publish, records};
use crate::conductor::support::{ask, call, send, tell};
use crate::support::Server;

fn starting(name: &str, event: &str) -> Value {
    handler(name, event, "start_workflow", json!({"name": "other"}))
}

#[tokio::test]
async fn handlers_are_created_replaced_listed_and_deleted() {
    let server = Server::open().await;
    assert_eq!(ask(&server, "GET", "/event").await.json(), json!([]));
    tell(&server, "POST", "/event", &starting("one", "conductor:w:a"))
        .await
        .void();
    // One of the clients sends a list.
    let mut idle = starting("two", "conductor:w:a");
    idle["active"] = json!(false);
    idle["description"] = json!("kept as it came");
    let list = json!([idle, starting("three", "conductor:w:b")]);
    tell(&server, "POST", "/event", &list).await.void();
    let names = |handlers: Value| -> Vec<String> {
        let names = handlers.as_array().unwrap().iter();
        names
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    for path in ["/event", "/event/handler", "/event/handler/"] {
        assert_eq!(
            names(ask(&server, "GET", path).await.json()),
            ["one", "three", "two"]
        );
    }
    let of = |query: &'static str| {
        let server = &server;
        async move {
            names(
                ask(server, "GET", &format!("/event/conductor%3Aw%3Aa{query}"))
                    .await
                    .json(),
            )
        }
    };
    assert_eq!(of("").await, ["one"], "only active ones by default");
    assert_eq!(of("?activeOnly=False").await, ["one", "two"]);
    assert_eq!(
        names(ask(&server, "GET", "/event/none").await.json()),
        Vec::<String>::new()
    );
    let stored = ask(&server, "GET", "/event/handler/two").await.json();
    assert_eq!(stored["description"], "kept as it came");
    idle["event"] = json!("conductor:w:c");
    tell(&server, "PUT", "/event", &idle).await.void();
    assert_eq!(
        ask(&server, "GET", "/event/handler/two").await.json()["event"],
        "conductor:w:c"
    );
    send(call(&server, "DELETE", "/event/two").json(&json!({})))
        .await
        .void();
    ask(&server, "GET", "/event/handler/two")
        .await
        .refused(404, "definition_not_found");
    ask(&server, "DELETE", "/event/two")
        .await
        .refused(404, "definition_not_found");
}

#[tokio::test]
async fn a_handler_is_created_once_and_replaced_only_if_it_exists() {
    let server = Server::open().await;
    tell(&server, "POST", "/event", &starting("one", "e:a"))
        .await
        .void();
    let again = tell(&server, "POST", "/event", &starting("one", "e:b")).await;
    again.refused(409, "definition_already_exists");
    let missing = tell(&server, "PUT", "/event", &starting("two", "e:a")).await;
    missing.refused(404, "definition_not_found");
    // Nothing of a list is stored if one of it is refused.
    let list = json!([starting("fresh", "e:a"), starting("one", "e:a")]);
    tell(&server, "POST", "/event", &list)
        .await
        .refused(409, "definition_already_exists");
    ask(&server, "GET", "/event/handler/fresh")
        .await
        .refused(404, "definition_not_found");
    assert_eq!(
        ask(&server, "GET", "/event/handler/one").await.json()["event"],
        "e:a"
    );
}

#[tokio::test]
async fn a_handler_that_cannot_work_is_refused() {
    let server = Server::open().await;
    let good = starting("h", "e:a");
    let with = |member: &str, value: Value| {
        let mut handler = good.clone();
        handler[member] = value;
        handler
    };
    let action = |action: Value| with("actions", json!([action]));
    let many: Vec<Value> = (0..51).map(|_| good["actions"][0].clone()).collect();
    for (body, place) in [
        (with("name", json!("")), "name"),
        (with("name", json!("x".repeat(300))), "name"),
        (with("event", json!(" ")), "event"),
        (with("evaluatorType", json!("python")), "evaluatorType"),
        (with("evaluatorType", json!("lua")), "evaluatorType"),
        (with("actions", json!([])), "actions"),
        (with("actions", json!(many)), "actions"),
        (action(json!({})), "actions[0]"),
        (action(json!({"action": "start_workflow"})), "actions[0]"),
        (
            action(json!({"action": "start_workflow", "start_workflow": {"version": 1}})),
            "actions[0]",
        ),
        (
            action(json!({"action": "complete_task", "complete_task": {"workflowId": "w"}})),
            "actions[0]",
        ),
        (
            action(json!({"action": "fail_task", "fail_task": {"taskRefName": "w"}})),
            "actions[0]",
        ),
        (
            action(json!({"action": "terminate_workflow", "terminate_workflow": {}})),
            "actions[0]",
        ),
        (
            action(json!({"action": "update_workflow_variables", "update_workflow_variables": {}})),
            "actions[0]",
        ),
        (with("condition", json!("x".repeat(300_000))), ""),
    ] {
        let answer = tell(&server, "POST", "/event", &body).await;
        let refusal = answer.refused(400, "definition_invalid");
        let paths = refusal["validationErrors"].as_array().unwrap().iter();
        let mut paths = paths.map(|error| error["path"].as_str().unwrap());
        assert!(
            paths.any(|path| path == format!("[0].{place}")),
            "{place}: {refusal}"
        );
    }
    for body in [
        json!([]),
        json!({"name": []}),
        action(json!({"action": "sing"})),
    ] {
        let answer = tell(&server, "POST", "/event", &body).await;
        assert_eq!(answer.status, 400, "{body}");
    }
    assert_eq!(ask(&server, "GET", "/event").await.json(), json!([]));
}

#[tokio::test]
async fn a_namespace_has_a_bounded_number_of_handlers() {
    let server = Server::open().await;
    let list: Vec<Value> = (0..1000)
        .map(|n| starting(&format!("h{n}"), "e:a"))
        .collect();
    tell(&server, "POST", "/event", &json!(list)).await.void();
    let more = tell(&server, "POST", "/event", &starting("one more", "e:a")).await;
    more.refused(400, "definition_invalid");
    tell(&server, "PUT", "/event", &starting("h7", "e:b"))
        .await
        .void();
}

#[tokio::test]
async fn handlers_have_tags_and_are_counted() {
    let server = Server::open().await;
    tell(&server, "POST", "/event", &starting("one", "e:a"))
        .await
        .void();
    let tag = json!({"key": "team", "value": "blue", "type": "METADATA"});
    tell(&server, "PUT", "/event/one/tags", &json!([tag]))
        .await
        .void();
    assert_eq!(
        ask(&server, "GET", "/event/one/tags").await.json(),
        json!([tag])
    );
    tell(&server, "DELETE", "/event/one/tags", &json!([tag]))
        .await
        .void();
    assert_eq!(
        ask(&server, "GET", "/event/one/tags").await.json(),
        json!([])
    );
    ask(&server, "GET", "/event/none/tags")
        .await
        .refused(404, "definition_not_found");

    publish(&server, "e:a", "m1", json!({})).await;
    publish(&server, "e:a", "m2", json!({})).await;
    let mut idle = starting("idle", "e:a");
    idle["active"] = json!(false);
    tell(&server, "POST", "/event", &idle).await.void();
    let shown = |name: &str, active: bool, messages: u64| json!({"name": name, "event": "e:a", "active": active, "numberOfActions": 1, "numberOfMessages": messages});
    assert_eq!(
        ask(&server, "GET", "/event/execution").await.json(),
        json!({"totalHits": 1, "results": [shown("one", true, 2)]})
    );
    assert_eq!(
        ask(&server, "GET", "/event/message?from=0").await.json(),
        json!({"totalHits": 2, "results": [shown("idle", false, 0), shown("one", true, 2)]})
    );
    let messages = ask(&server, "GET", "/event/message/e%3Aa").await.json();
    let ids: Vec<&Value> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids.len(), 2, "{messages}");
    assert_eq!(messages[0]["eventExecutions"][0]["name"], "one");
    assert_eq!(records(&server, "one").await.as_array().unwrap().len(), 2);
    let page = ask(&server, "GET", "/event/execution/one?from=1")
        .await
        .json();
    assert_eq!(page.as_array().unwrap().len(), 1);
    ask(&server, "GET", "/event/execution/one?from=-1")
        .await
        .refused(400, "validation_failed");
}

#[tokio::test]
async fn handlers_belong_to_their_namespace() {
    let server = Server::open().await;
    tell(&server, "POST", "/event", &starting("one", "e:a"))
        .await
        .void();
    let other = json!({"name": "other"});
    server.post("/namespaces", &other).bytes().await;
    let listed = ask(&server, "GET", "/event?namespace=other").await;
    assert_eq!(listed.json(), json!([]));
}
