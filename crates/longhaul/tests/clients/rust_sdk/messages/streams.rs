//! Message streams: in order, once, in batches, across continue-as-new.

use durable_workflow::{AvroValue, Error, Value, Worker, json};

use crate::harness::eventually;
use crate::rust_sdk::fixture::{Fixture, result};

/// Registers `reader`: reads as many messages as its first argument says, at most the second's in one run.
fn register_reader(worker: &mut Worker) {
    worker.register_workflow("reader", |context, arguments| async move {
        let (count, per_run) = (
            arguments[0].as_u64().unwrap_or(0),
            arguments[1].as_u64().unwrap_or(1),
        );
        let mut read = arguments[2].as_array().cloned().unwrap_or_default();
        let stream = context.message_stream("orders")?;
        for _ in 0..count.min(per_run) {
            let message = stream.receive_one().await?;
            read.push(json!([message.position, plain(message.arguments)?]));
        }
        if count > per_run {
            return context.continue_as_new(json!([count - per_run, per_run, read]));
        }
        Ok(json!(read))
    });
    worker.register_workflow("batches", |context, arguments| async move {
        let count = arguments[0].as_u64().unwrap_or(0) as usize;
        let (left, right) = (
            context.message_stream("left")?,
            context.message_stream("right")?,
        );
        let mut read = Vec::new();
        while read.len() < count {
            for message in left.receive(100).await? {
                read.push(plain(message.arguments)?);
            }
        }
        let last = right.receive_one().await?;
        Ok(json!([read, plain(last.arguments)?]))
    });
}

/// The first argument of a message.
fn plain(arguments: Vec<AvroValue>) -> durable_workflow::Result<Value> {
    let first = arguments.into_iter().next().expect("one argument");
    first.deserialize()
}

async fn append(fixture: &Fixture, workflow_id: &str, stream: &str, number: u64) -> Value {
    let id = format!("message-{number}");
    let appended = fixture
        .client
        .append_message_stream(workflow_id, stream, &id, json!([number]))
        .await;
    appended.expect("the message is taken")
}

#[tokio::test]
async fn messages_are_read_in_order() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_reader);
    let handle = fixture
        .start_workflow("reader", "reader", json!([5, 5, []]))
        .await;
    for number in 0..5 {
        let appended = append(&fixture, "reader", "orders", number).await;
        assert_eq!(appended["position"], json!(number + 1));
        assert_eq!(appended["duplicate"], json!(false));
    }
    assert_eq!(
        result(&handle).await.unwrap(),
        json!([[1, 0], [2, 1], [3, 2], [4, 3], [5, 4]])
    );
    fixture.closed_history("reader").await;
}

#[tokio::test]
async fn a_repeated_message_is_accepted_once() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_reader);
    let handle = fixture
        .start_workflow("reader", "reader", json!([2, 2, []]))
        .await;
    append(&fixture, "reader", "orders", 1).await;
    let again = append(&fixture, "reader", "orders", 1).await;
    assert_eq!(
        (&again["position"], &again["duplicate"]),
        (&json!(1), &json!(true))
    );
    let other = fixture
        .client
        .append_message_stream("reader", "orders", "message-1", json!(["other"]))
        .await;
    let Err(Error::Http { status, body }) = other else {
        panic!("expected a conflict, got {other:?}");
    };
    assert_eq!(status.as_u16(), 409);
    assert!(body.contains("message_identity_conflict"), "{body}");
    append(&fixture, "reader", "orders", 2).await;
    assert_eq!(result(&handle).await.unwrap(), json!([[1, 1], [2, 2]]));
}

#[tokio::test]
async fn unread_messages_move_to_the_next_run() {
    let fixture = Fixture::start().await;
    let handle = fixture
        .start_workflow("reader", "reader", json!([6, 2, []]))
        .await;
    for number in 0..6 {
        append(&fixture, "reader", "orders", number).await;
    }
    let _worker = fixture.worker(register_reader);
    let described = eventually("the last run completes", || async {
        let described = handle.describe().await.expect("a description");
        (described.status.as_deref() == Some("completed")).then_some(described)
    })
    .await;
    assert_eq!(
        described.output,
        Some(json!([[1, 0], [2, 1], [3, 2], [4, 3], [5, 4], [6, 5]]))
    );
    let runs = fixture.server.control().run_ids("reader").await;
    assert_eq!(runs.len(), 3);
}

#[tokio::test]
async fn streams_are_read_in_batches_in_parallel() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(register_reader);
    let handle = fixture
        .start_workflow("batches", "batches", json!([20]))
        .await;
    append(&fixture, "batches", "right", 99).await;
    for number in 0..20 {
        append(&fixture, "batches", "left", number).await;
    }
    let expected: Vec<u64> = (0..20).collect();
    assert_eq!(result(&handle).await.unwrap(), json!([expected, 99]));
    fixture.closed_history("batches").await;
}
