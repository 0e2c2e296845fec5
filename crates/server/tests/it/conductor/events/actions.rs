//! What handlers do with a message, once each.

use serde_json::{Value, json};

use super::{define, handler, publish, records, run_of, runs_of, start};
use crate::conductor::support::{ask, tell};
use crate::support::Server;

fn wait(reference: &str) -> Value {
    json!({"name": reference, "taskReferenceName": reference, "type": "WAIT"})
}

fn event(sink: &str, input: Value) -> Value {
    json!({"name": "e", "taskReferenceName": "e", "type": "EVENT", "sink": sink, "inputParameters": input})
}

async fn with_handler(server: &Server, handler: Value) {
    tell(server, "POST", "/event", &handler).await.void();
}

#[tokio::test]
async fn an_event_task_starts_a_workflow_before_its_caller_is_answered() {
    let server = Server::open().await;
    define(
        &server,
        "sender",
        json!([event(
            "conductor:ready",
            json!({"n": "${workflow.input.n}"})
        )]),
    )
    .await;
    define(&server, "receiver", json!([wait("w")])).await;
    let parameters = json!({"name": "receiver", "version": 1, "correlationId": "c-${n}", "input": {"n": "${n}", "all": "${missing}"}});
    with_handler(
        &server,
        handler("h", "conductor:sender:ready", "start_workflow", parameters),
    )
    .await;
    let sender = start(&server, "sender", json!({"n": 3})).await;
    let sent = run_of(&server, &sender).await;
    assert_eq!(sent["status"], "COMPLETED");
    assert_eq!(sent["output"]["event_produced"], "conductor:sender:ready");
    let received = runs_of(&server, "receiver").await;
    assert_eq!(received.len(), 1, "{received:?}");
    let id = received[0]["workflowId"].as_str().unwrap();
    let run = run_of(&server, id).await;
    let message_id = &sent["tasks"][0]["taskId"];
    assert_eq!(
        (&run["input"], &run["correlationId"]),
        (
            &json!({"n": 3, "all": null, "conductor.event.messageId": message_id,
                "conductor.event.name": "conductor:sender:ready"}),
            &json!("c-3")
        )
    );
    let record = &records(&server, "h").await[0];
    assert_eq!(
        record["id"],
        json!(format!("{}_0", message_id.as_str().unwrap()))
    );
    assert_eq!(
        (&record["status"], &record["action"], &record["output"]),
        (
            &json!("COMPLETED"),
            &json!("start_workflow"),
            &json!({"workflowId": id})
        )
    );
    assert_eq!(record["payload"]["n"], 3);
}

#[tokio::test]
async fn a_message_that_comes_twice_is_applied_once() {
    let server = Server::open().await;
    define(&server, "receiver", json!([wait("w")])).await;
    with_handler(
        &server,
        handler("h", "e:a", "start_workflow", json!({"name": "receiver"})),
    )
    .await;
    for _ in 0..3 {
        publish(&server, "e:a", "m1", json!({})).await;
    }
    assert_eq!(runs_of(&server, "receiver").await.len(), 1);
    let together = (0..8).map(|_| publish(&server, "e:a", "m2", json!({})));
    futures::future::join_all(together).await;
    assert_eq!(runs_of(&server, "receiver").await.len(), 2);
    assert_eq!(records(&server, "h").await.as_array().unwrap().len(), 2);

    // A change that would be made twice if the record did not come with it.
    define(&server, "target", json!([wait("w")])).await;
    let target = start(&server, "target", json!({})).await;
    let parameters =
        json!({"workflowId": "${id}", "variables": {"list": ["${n}"]}, "appendArray": true});
    with_handler(
        &server,
        handler("v", "e:v", "update_workflow_variables", parameters),
    )
    .await;
    let together = (0..16).map(|n| {
        let id = format!("m{}", n % 4);
        let (server, target) = (&server, &target);
        async move { publish(server, "e:v", &id, json!({"id": target, "n": n % 4})).await }
    });
    futures::future::join_all(together).await;
    let run = run_of(&server, &target).await;
    let mut list: Vec<i64> = serde_json::from_value(run["variables"]["list"].clone()).unwrap();
    list.sort_unstable();
    assert_eq!(list, [0, 1, 2, 3]);
}

#[tokio::test]
async fn tasks_are_completed_and_failed_by_reference_or_id() {
    let server = Server::open().await;
    define(&server, "target", json!([wait("w"), wait("x")])).await;
    let by_reference =
        json!({"workflowId": "${id}", "taskRefName": "w", "output": {"from": "${who}"}});
    with_handler(
        &server,
        handler("complete", "e:c", "complete_task", by_reference),
    )
    .await;
    let by_id = json!({"taskId": "${task}", "reasonForIncompletion": "because of ${who}"});
    with_handler(&server, handler("fail", "e:f", "fail_task", by_id)).await;
    let id = start(&server, "target", json!({})).await;
    publish(&server, "e:c", "m1", json!({"id": id, "who": "ann"})).await;
    let run = run_of(&server, &id).await;
    assert_eq!(run["tasks"][0]["status"], "COMPLETED");
    assert_eq!(
        run["tasks"][0]["outputData"],
        json!({"from": "ann", "conductor.event.messageId": "m1", "conductor.event.name": "e:c"})
    );
    publish(
        &server,
        "e:f",
        "m2",
        json!({"task": run["tasks"][1]["taskId"], "who": "bob"}),
    )
    .await;
    let run = run_of(&server, &id).await;
    assert_eq!(
        (&run["status"], &run["tasks"][1]["status"]),
        (&json!("FAILED"), &json!("FAILED"))
    );
    assert_eq!(run["tasks"][1]["reasonForIncompletion"], "because of bob");

    // What cannot be done is recorded with its reason, and the message is done.
    publish(&server, "e:c", "m3", json!({"id": id, "who": "ann"})).await;
    publish(&server, "e:c", "m4", json!({"id": "none"})).await;
    publish(&server, "e:c", "m5", json!({})).await;
    let mut errors: Vec<String> = Vec::new();
    for record in records(&server, "complete").await.as_array().unwrap() {
        if record["status"] == "FAILED" {
            errors.push(record["output"]["error"].as_str().unwrap().to_owned());
        }
    }
    errors.sort();
    assert_eq!(
        errors,
        [
            "No such workflow found by id: none",
            "the message has no workflowId for the action",
            "there is no such task"
        ]
    );
}

#[tokio::test]
async fn runs_are_terminated_and_their_variables_set() {
    let server = Server::open().await;
    define(&server, "target", json!([wait("w")])).await;
    let id = start(&server, "target", json!({})).await;
    let two = json!({"name": "both", "event": "e:a", "active": true, "actions": [
        {"action": "update_workflow_variables", "update_workflow_variables":
            {"workflowId": "${id}", "variables": {"k": "${k}", "list": [1]}}},
        {"action": "terminate_workflow", "terminate_workflow":
            {"workflowId": "${id}", "terminationReason": "asked by ${k}"}},
    ]});
    with_handler(&server, two).await;
    publish(&server, "e:a", "m1", json!({"id": id, "k": "ann"})).await;
    let run = run_of(&server, &id).await;
    assert_eq!(
        (
            &run["status"],
            &run["reasonForIncompletion"],
            &run["variables"]
        ),
        (
            &json!("TERMINATED"),
            &json!("asked by ann"),
            &json!({"k": "ann", "list": [1]})
        )
    );
    publish(&server, "e:a", "m2", json!({"id": id, "k": "bob"})).await;
    let records = records(&server, "both").await;
    let status = |id: &str| {
        let mut records = records.as_array().unwrap().iter();
        records.find(|record| record["id"] == id).unwrap()["status"].clone()
    };
    assert_eq!(
        [
            status("m1_0"),
            status("m1_1"),
            status("m2_0"),
            status("m2_1")
        ],
        [
            json!("COMPLETED"),
            json!("COMPLETED"),
            json!("FAILED"),
            json!("COMPLETED")
        ],
        "a run that was terminated is terminated"
    );
}

#[tokio::test]
async fn a_condition_and_an_inactive_handler_pass_over_messages() {
    let server = Server::open().await;
    define(&server, "receiver", json!([wait("w")])).await;
    let mut one = handler("one", "e:a", "start_workflow", json!({"name": "receiver"}));
    one["evaluatorType"] = json!("value-param");
    one["condition"] = json!("wanted");
    with_handler(&server, one.clone()).await;
    publish(&server, "e:a", "m1", json!({"wanted": false})).await;
    assert_eq!(runs_of(&server, "receiver").await.len(), 0);
    assert_eq!(records(&server, "one").await[0]["status"], "SKIPPED");
    publish(&server, "e:a", "m2", json!({"wanted": true})).await;
    assert_eq!(runs_of(&server, "receiver").await.len(), 1);
    one["active"] = json!(false);
    tell(&server, "PUT", "/event", &one).await.void();
    publish(&server, "e:a", "m3", json!({"wanted": true})).await;
    assert_eq!(runs_of(&server, "receiver").await.len(), 1);
    // This server evaluates no scripts, which is recorded like every failure of a condition.
    one["active"] = json!(true);
    one["evaluatorType"] = json!("javascript");
    tell(&server, "PUT", "/event", &one).await.void();
    publish(&server, "e:a", "m4", json!({"wanted": true})).await;
    let records = records(&server, "one").await;
    let last = records
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["messageId"] == "m4");
    assert_eq!(
        last.unwrap()["output"],
        json!({"error": "this server has no script evaluator"})
    );
}

#[tokio::test]
async fn texts_with_json_are_expanded_if_the_action_asks_for_it() {
    let server = Server::open().await;
    define(&server, "receiver", json!([wait("w")])).await;
    let parameters = json!({"name": "receiver", "input": {"n": "${body.n}"}});
    let mut one = handler("one", "e:a", "start_workflow", parameters);
    one["actions"][0]["expandInlineJSON"] = json!(true);
    with_handler(&server, one).await;
    publish(&server, "e:a", "m1", json!({"body": "{\"n\": 7}"})).await;
    let id = runs_of(&server, "receiver").await[0]["workflowId"].clone();
    assert_eq!(run_of(&server, id.as_str().unwrap()).await["input"]["n"], 7);
}

#[tokio::test]
async fn events_that_cause_each_other_have_an_end() {
    let server = Server::open().await;
    define(&server, "echo", json!([event("conductor", json!({}))])).await;
    with_handler(
        &server,
        handler(
            "h",
            "conductor:echo:e",
            "start_workflow",
            json!({"name": "echo"}),
        ),
    )
    .await;
    start(&server, "echo", json!({})).await;
    let failed = || async {
        let path = "/event/execution/h?size=100";
        let records = ask(&server, "GET", path).await.json();
        let records = records.as_array().unwrap().clone();
        records
            .into_iter()
            .find(|record| record["status"] == "FAILED")
    };
    let mut found = failed().await;
    // A chain that is longer than one answer may take goes on in the background.
    for _ in 0..1000 {
        if found.is_some() {
            break;
        }
        tokio::task::yield_now().await;
        found = failed().await;
    }
    let error = found.expect("the chain ends")["output"]["error"].clone();
    assert_eq!(
        error,
        "more than 100 runs caused each other (limit: sub-workflow depth)"
    );
}

#[tokio::test]
async fn a_message_of_a_caller_needs_an_event_and_is_bounded() {
    let server = Server::open().await;
    let path = "/event/handleIncomingEvent";
    for body in [
        json!({}),
        json!({"event": ""}),
        json!({"event": "e:a", "payload": [1]}),
        json!({"event": "e:a", "payload": "not json"}),
        json!({"event": "e:a", "messageId": "x".repeat(300)}),
        json!({"event": "e:a", "payload": {"text": "x".repeat(300_000)}}),
    ] {
        tell(&server, "POST", path, &body)
            .await
            .refused(400, "validation_failed");
    }
    define(&server, "receiver", json!([wait("w")])).await;
    let parameters = json!({"name": "receiver", "input": {"n": "${n}", "event": "${event}"}});
    with_handler(&server, handler("h", "e:a", "start_workflow", parameters)).await;
    // One of the clients sends texts only; without a payload the whole body is one.
    tell(
        &server,
        "POST",
        path,
        &json!({"event": "e:a", "payload": "{\"n\": 1}"}),
    )
    .await
    .void();
    tell(&server, "POST", path, &json!({"event": "e:a", "n": "2"}))
        .await
        .void();
    let mut inputs = Vec::new();
    for run in runs_of(&server, "receiver").await {
        let run = run_of(&server, run["workflowId"].as_str().unwrap()).await;
        inputs.push(json!([run["input"]["n"], run["input"]["event"]]));
    }
    inputs.sort_by_key(Value::to_string);
    assert_eq!(inputs, [json!(["2", "e:a"]), json!([1, null])]);
}
