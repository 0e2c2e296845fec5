//! PULL_WORKFLOW_MESSAGES, and messages that callers push.

use longhaul_engine::Rejection;
use longhaul_engine::command::{PauseExecution, PushMessage};
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use super::node;
use crate::conductor::world::{World, members, simple};

fn pulling(input: Value) -> World {
    World::with_tasks(json!([
        simple("first"),
        node("PULL_WORKFLOW_MESSAGES", json!({"inputParameters": input})),
        simple("z"),
    ]))
}

fn push(world: &mut World, run: &RunId, payload: Value) -> Result<String, Rejection> {
    let command = PushMessage {
        payload: members(payload),
    };
    let pushed = world.act(run, &command);
    world.settle();
    pushed
}

#[test]
fn messages_wait_for_their_task_in_order() {
    let mut world = pulling(json!({"batchSize": 2}));
    let run = world.start("w", json!({}));
    let ids: Vec<String> = (1..=3)
        .map(|n| push(&mut world, &run, json!({"n": n})).unwrap())
        .collect();
    world.complete(&run, "first", json!({}));
    assert_eq!(world.trace(&run), "first C, pull_workflow_messages C, z S");
    let output = &world.record(&run, "pull_workflow_messages")["outputData"];
    assert_eq!(output["count"], 2);
    let taken: Vec<(&Value, &Value)> = output["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (&message["id"], &message["payload"]))
        .collect();
    assert_eq!(
        taken,
        [
            (&json!(ids[0]), &json!({"n": 1})),
            (&json!(ids[1]), &json!({"n": 2}))
        ]
    );
    assert_eq!(output["messages"][0]["workflowId"], run.as_str());
    assert_eq!(output["messages"][0]["receivedAt"], world.now.as_millis());
    assert_eq!(
        world.runs[&run]
            .parts
            .keys()
            .filter(|key| key.to_string().starts_with("inbox"))
            .count(),
        1
    );
}

#[test]
fn a_task_waits_for_a_message() {
    let mut world = pulling(json!({}));
    let run = world.start("w", json!({}));
    world.complete(&run, "first", json!({}));
    assert_eq!(world.trace(&run), "first C, pull_workflow_messages P");
    push(&mut world, &run, json!({"n": 1})).unwrap();
    assert_eq!(world.trace(&run), "first C, pull_workflow_messages C, z S");
}

#[test]
fn the_oldest_task_gets_the_message() {
    let pull = |name: &str| json!({"name": name, "taskReferenceName": name, "type": "PULL_WORKFLOW_MESSAGES"});
    let mut world = World::with_tasks(json!([
        {"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[pull("p1")], [pull("p2")]]},
        {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["p1", "p2"]},
    ]));
    let run = world.start("w", json!({}));
    push(&mut world, &run, json!({})).unwrap();
    assert_eq!(world.trace(&run), "f C, p1 C, p2 P, j P");
    push(&mut world, &run, json!({})).unwrap();
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_task_that_does_not_wait_completes_without_messages() {
    for blocking in [json!(false), json!("false")] {
        let mut world = pulling(json!({"blocking": blocking, "batchSize": "7"}));
        let run = world.start("w", json!({}));
        world.complete(&run, "first", json!({}));
        assert_eq!(world.trace(&run), "first C, pull_workflow_messages C, z S");
        assert_eq!(
            world.record(&run, "pull_workflow_messages")["outputData"],
            json!({"count": 0, "messages": []})
        );
    }
}

#[test]
fn a_run_that_is_paused_or_has_ended_takes_no_message() {
    let mut world = pulling(json!({}));
    let run = world.start("w", json!({}));
    world.act(&run, &PauseExecution { reason: None }).unwrap();
    assert_eq!(push(&mut world, &run, json!({})), Err(Rejection::RunPaused));
    world.terminate(&run, "enough").unwrap();
    assert!(matches!(
        push(&mut world, &run, json!({})),
        Err(Rejection::RunNotActive { .. })
    ));
}

#[test]
fn an_inbox_is_bounded_in_count_and_bytes() {
    let mut world = pulling(json!({}));
    world.check_every = 500;
    let run = world.start("w", json!({}));
    for n in 0..1000 {
        push(&mut world, &run, json!({"n": n})).unwrap();
    }
    let Err(Rejection::InboxFull { message }) = push(&mut world, &run, json!({})) else {
        panic!("the inbox is full");
    };
    assert_eq!(
        message,
        "1000 messages wait for the workflow already (limit: 1000 messages)"
    );
    world.complete(&run, "first", json!({}));
    push(&mut world, &run, json!({})).unwrap();

    let mut world = pulling(json!({}));
    let run = world.start("w", json!({}));
    let large = json!({"text": "x".repeat(64 * 1024)});
    assert!(matches!(
        push(&mut world, &run, large),
        Err(Rejection::ValueTooLarge { .. })
    ));
    let nearly = json!({"text": "x".repeat(60 * 1024)});
    let taken = (0..1000)
        .take_while(|_| push(&mut world, &run, nearly.clone()).is_ok())
        .count();
    assert_eq!(taken, 8 * 1024 * 1024 / (60 * 1024 + 11));
}
