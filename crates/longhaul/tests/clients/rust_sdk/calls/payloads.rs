//! Values must come back as they went in, through input, activity argument, activity result, signal and output.

use std::collections::BTreeMap;

use durable_workflow::{AvroValue, json};

use crate::rust_sdk::fixture::{Fixture, QUEUE, result_options};

/// Sends a value through a workflow and an activity, and beside it as a signal; all must come out equal.
async fn check_round_trip(value: AvroValue) {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_activity_avro_value(
            "echo",
            |_, arguments| async move { Ok(first(arguments)) },
        );
        worker.register_workflow_avro_value("round-trip", |context, arguments| async move {
            let echoed = context.activity_avro_value("echo", arguments).await?;
            let signalled = AvroValue::Array(context.wait_signal_avro_value("value").await?);
            let same = AvroValue::Boolean(first(signalled) == echoed);
            Ok(AvroValue::Array(vec![echoed, same]))
        });
    });
    let input = AvroValue::Array(vec![value.clone()]);
    let handle = fixture
        .client
        .start_workflow("round-trip", QUEUE, "round-trip", input.clone())
        .await
        .unwrap();
    fixture
        .client
        .signal_workflow("round-trip", "value", input)
        .await
        .unwrap();

    let output = handle.result_avro_value(result_options()).await.unwrap();

    let expected = AvroValue::Array(vec![value, AvroValue::Boolean(true)]);
    assert!(output == expected, "the value changed on its way");
    fixture.closed_history("round-trip").await;
}

fn first(arguments: AvroValue) -> AvroValue {
    match arguments {
        AvroValue::Array(values) => values.into_iter().next().expect("one argument"),
        other => panic!("not a list of arguments: {other:?}"),
    }
}

#[tokio::test]
async fn unicode() {
    check_round_trip(AvroValue::String(
        "żółć 漢字 עברית 🚀👩‍👩‍👧 \u{0}\u{1}\"\\\n\u{2028}\u{10ffff}".to_owned(),
    ))
    .await;
}

#[tokio::test]
async fn bytes() {
    check_round_trip(AvroValue::Bytes((0..=255).collect())).await;
}

#[tokio::test]
async fn every_kind_of_value() {
    let entries = [
        ("null", AvroValue::Null),
        ("yes", AvroValue::Boolean(true)),
        ("smallest", AvroValue::Long(i64::MIN)),
        ("largest", AvroValue::Long(i64::MAX)),
        ("negative zero", AvroValue::Double(-0.0)),
        ("fraction", AvroValue::Double(0.1)),
        ("empty", AvroValue::Map(BTreeMap::new())),
        (
            "ключ",
            AvroValue::Array(vec![
                AvroValue::Array(Vec::new()),
                AvroValue::String(String::new()),
            ]),
        ),
    ];
    let map = entries.map(|(key, value)| (key.to_owned(), value));
    check_round_trip(AvroValue::Map(map.into())).await;
}

#[tokio::test]
async fn a_megabyte() {
    check_round_trip(AvroValue::String("0123456789".repeat(100_000))).await;
}

#[tokio::test]
async fn no_arguments_and_no_result() {
    let fixture = Fixture::start().await;
    let _worker = fixture.worker(|worker| {
        worker.register_typed_activity("nothing", |_, (): ()| async { Ok(()) });
        worker.register_typed_workflow("nothing", |context, (): ()| async move {
            context.activity_typed::<_, ()>("nothing", ()).await
        });
    });

    assert_eq!(fixture.run("nothing", json!([])).await, json!(null));
}
