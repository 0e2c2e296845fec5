//! Our own Rust SDK and the published Python SDK on one queue: workflows of each call activities and workflows of the other. Also calls
//! between the families.

mod families;

use longhaul_sdk::testing::Replayer;
use longhaul_sdk::{
    ActivityResult, Client, Failure, Query, Signal, State, Update, ValidatedUpdate, Worker,
    WorkflowCall, WorkflowContext, WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

use crate::harness::{Server, run_python_on};

const STATUS: Query<(), String> = Query::new("status");
const GO: Signal<String> = Signal::new("go");
const ADD: ValidatedUpdate<i64, i64> = Update::validated("add");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    tags: Vec<String>,
}

#[activity]
async fn rust_greet(name: String) -> ActivityResult<String> {
    Ok(format!("Rust greets {name}"))
}

/// The values that Python sends, as Rust types.
#[derive(Debug, Serialize, Deserialize)]
struct Rich {
    text: String,
    number: i32,
    ratio: f32,
    list: (u8, Option<String>, bool),
    bytes: Raw,
}

/// Bytes as bytes; a `Vec<u8>` is a list of numbers to serde.
#[derive(Debug)]
struct Raw(Vec<u8>);

impl Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl serde::de::Visitor<'_> for Reader {
            type Value = Raw;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Raw, E> {
                Ok(Raw(bytes.to_owned()))
            }
        }
        deserializer.deserialize_bytes(Reader)
    }
}

#[activity]
async fn rust_echo(rich: Rich) -> ActivityResult<Rich> {
    Ok(rich)
}

#[activity]
async fn rust_refuse(reason: String) -> ActivityResult<()> {
    Err(Failure::of_type("Refused", reason).non_retryable())
}

#[workflow]
async fn rust_child(_ctx: WorkflowContext, number: i64) -> WorkflowResult<i64> {
    Ok(number * 2)
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    described: Order,
    child: i64,
    total: i64,
    told: String,
    refused: String,
}

#[workflow(signals(GO), queries(STATUS), updates(ADD))]
async fn rust_caller(ctx: WorkflowContext, order: Order) -> WorkflowResult<Answer> {
    let total = State::new(0_i64);
    ctx.on_query(&STATUS, &total, |_, ()| "waiting".to_owned());
    ctx.on_validated_update(
        &ADD,
        &total,
        |_, amount| {
            if *amount < 0 {
                return Err(Failure::new("not negative, please"));
            }
            Ok(())
        },
        |total, amount| {
            *total += amount;
            Ok(*total)
        },
    );
    let told = ctx.signals(&GO).recv().await?;
    let describe = longhaul_sdk::ActivityCall::named("py_describe");
    let described = ctx.activity(describe.argument(order).argument(2)).await?;
    let refuse = longhaul_sdk::ActivityCall::<()>::named("py_refuse");
    let refused = ctx
        .activity(refuse.argument("no thanks"))
        .await
        .unwrap_err();
    let child = ctx
        .child(WorkflowCall::named("py_child").argument(5))
        .await?;
    Ok(Answer {
        described,
        child,
        total: total.get(),
        told,
        refused: refused.message.clone(),
    })
}

#[tokio::test]
async fn python_and_rust_call_each_other() {
    let server = Server::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let worker = Worker::builder(&client, "shared")
        .workflow::<rust_caller>()
        .workflow::<rust_child>()
        .activity::<rust_greet>()
        .activity::<rust_echo>()
        .activity::<rust_refuse>()
        .build();
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    run_python_on("interop.py", &server, "shared").await;
    handle.shut_down();
    running.await.unwrap().unwrap();

    // The history with the events of both replays.
    let replayer = Replayer::new()
        .workflow::<rust_caller>()
        .workflow::<rust_child>();
    let mut replayed = 0;
    let page = client.list().page_size(100).page(None).await.unwrap();
    for found in page.items {
        let history = client.workflow::<Answer>(found.workflow_id.as_str());
        if found.workflow_type.starts_with("rust") {
            let export = history.export().await.unwrap().to_string();
            replayer.replay(&export).unwrap();
            replayed += 1;
        }
    }
    assert_eq!(replayed, 2);
}
