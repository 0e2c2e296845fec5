//! EVENT and `onStateChange`: messages in the outbox of their run.

use serde_json::{Value, json};

use super::node;
use crate::conductor::world::{World, simple, with};

fn publishing(sink: &str, more: Value) -> World {
    World::with_tasks(json!([
        with(
            node(
                "EVENT",
                json!({"sink": sink, "inputParameters": {"n": "${workflow.input.n}"}})
            ),
            more
        ),
        simple("z"),
    ]))
}

#[test]
fn an_event_is_published_with_its_task() {
    for (sink, event) in [
        ("conductor", "conductor:w:event"),
        ("conductor:ready", "conductor:w:ready"),
        ("conductor:${workflow.input.n}", "conductor:w:3"),
    ] {
        let mut world = publishing(sink, json!({}));
        let mut new = world.new_execution("w", json!({"n": 3}));
        new.correlation_id = Some("c1".to_owned());
        let run = world.create(&new);
        world.settle();
        assert_eq!(world.trace(&run), "event C, z S");
        let record = world.record(&run, "event");
        let shown = sink.replace("${workflow.input.n}", "3");
        assert_eq!(
            record["inputData"],
            json!({"sink": shown, "asyncComplete": false, "n": 3})
        );
        let message = json!({
            "sink": shown, "asyncComplete": false, "n": 3, "workflowInstanceId": run.as_str(), "workflowType": "w",
            "workflowVersion": 1, "correlationId": "c1", "taskToDomain": {},
        });
        assert_eq!(
            record["outputData"],
            with(message.clone(), json!({"event_produced": event}))
        );
        let [published] = &world.published[..] else {
            panic!("one message: {:?}", world.published);
        };
        assert_eq!(
            (published.event.as_str(), &*published.payload),
            (event, &message)
        );
        assert_eq!(json!(published.message_id), record["taskId"]);
    }
}

#[test]
fn an_asynchronous_event_waits_for_an_update() {
    let mut world = publishing("conductor:x", json!({"asyncComplete": true}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "event P");
    assert_eq!(world.published.len(), 1);
    assert_eq!(
        world.record(&run, "event")["outputData"]["event_produced"],
        "conductor:w:x"
    );
    world.complete(&run, "event", json!({"done": true}));
    assert_eq!(world.trace(&run), "event C, z S");
    assert_eq!(world.published.len(), 1);
}

#[test]
fn other_providers_are_unknown() {
    for (sink, provider) in [("kafka:topic", "kafka"), ("sqs", "sqs")] {
        let mut world = publishing(sink, json!({}));
        let run = world.start("w", json!({}));
        assert_eq!(world.trace(&run), "event F");
        let task = world.task(&run, "event");
        assert_eq!(
            task.reason,
            Some(format!(
                "Error loading queue:{sink}, for task:{}, error: Unknown queue type {provider}",
                task.id
            ))
        );
        assert!(world.published.is_empty());
    }
}

#[test]
fn a_message_over_the_limit_fails_the_task() {
    let mut world = publishing("conductor", json!({}));
    let run = world.start("w", json!({"n": "x".repeat(256 * 1024)}));
    assert_eq!(world.trace(&run), "event F");
    assert!(
        world
            .task(&run, "event")
            .reason
            .as_ref()
            .unwrap()
            .contains("(limit: event message)")
    );
    assert!(world.published.is_empty());
}

/// Returns the names after the workflow of what was published, with a member of each payload.
fn published(world: &World, member: &str) -> Vec<(String, Value)> {
    let messages = world.published.iter();
    messages
        .map(|message| {
            let name = message.event.strip_prefix("conductor:w:").unwrap();
            (name.to_owned(), message.payload[member].clone())
        })
        .collect()
}

#[test]
fn changes_of_a_task_are_published() {
    let listed = json!({
        "onScheduled,onStart": [{"type": "moved", "payload": {"n": "${workflow.input.n}"}}],
        "onSuccess": [{"type": "done"}, {"type": "conductor:twice", "payload": {"out": "${t.output.k}"}}],
        "onFailed": [{"type": "failed", "payload": {"why": "${t.reasonForIncompletion}"}}],
        "onCancelled": [{"type": "cancelled"}],
    });
    let mut world = World::with_tasks(json!([with(
        simple("t"),
        json!({"retryCount": 1, "onStateChange": listed})
    )]));
    world.task_def(json!({"name": "t", "retryCount": 1, "retryDelaySeconds": 0}));
    let run = world.start("w", json!({"n": 3}));
    assert_eq!(world.poll("t", "w1").unwrap().0, run);
    world.settle();
    assert_eq!(
        published(&world, "n"),
        [
            ("moved".to_owned(), json!(3)),
            ("moved".to_owned(), json!(3))
        ]
    );
    assert_eq!(published(&world, "stateChange")[1].1, "onStart");
    world.published.clear();
    world.fail(&run, "t", "once");
    assert_eq!(
        published(&world, "why"),
        [
            ("failed".to_owned(), json!("once")),
            ("moved".to_owned(), Value::Null)
        ]
    );
    world.published.clear();
    world.complete(&run, "t", json!({"k": 5}));
    assert_eq!(
        published(&world, "out"),
        [
            ("done".to_owned(), Value::Null),
            ("twice".to_owned(), json!(5))
        ]
    );
    assert_eq!(world.status(&run), "COMPLETED");

    let run = world.start("w", json!({}));
    world.published.clear();
    world.terminate(&run, "enough").unwrap();
    assert_eq!(
        published(&world, "status"),
        [("cancelled".to_owned(), json!("CANCELED"))]
    );
    let ids: std::collections::BTreeSet<&String> =
        world.published.iter().map(|one| &one.message_id).collect();
    assert_eq!(ids.len(), world.published.len());
}
