//! How long a page of runs takes with a hundred thousand runs stored, beside the same with a thousand, for the usual shapes of
//! query and for those that have to look at many rows.
//!
//!     cargo run --release -p longhaul-store --example list_latency [RUNS]
//!
//! Half of the runs are closed; each has a region (one of four), a customer (fifty runs each), a count and two tags.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement: it prints, and stops at the first error"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use longhaul_engine::change::Changes;
use longhaul_engine::run::state::{ClosedReason, Program, Status};
use longhaul_engine::visibility::{Definitions, Type, parse};
use longhaul_protocol::Ids;
use longhaul_store::conformance::fixture::{at, close, spec, start};
use longhaul_store::sqlite::{Options, Sqlite, Sync};
use longhaul_store::{RunFilter, RunStore as _, Store};
use serde_json::json;

const FEW: i64 = 1000;
const REPEATS: usize = 41;

const SHAPES: [&str; 24] = [
    "",
    "Status = running",
    "WorkflowType = order",
    "WorkflowType = order AND Status = completed",
    "WorkflowType = none",
    "WorkflowId = 'order-500'",
    "WorkflowId STARTS_WITH 'order-50'",
    "TaskQueue = orders",
    "TaskQueue = none",
    "Region = eu",
    "Region = none",
    "Region IN (eu, us)",
    "Customer = 'c-3'",
    "Customer = 'c-3' OR Customer = 'c-4'",
    "Region = eu AND Customer = 'c-3'",
    "Region = eu AND Status = running",
    "Region = eu AND Tags = even AND Count > 10",
    "Region = eu AND Tags = none",
    "Count > 500 AND Count <= 510",
    "Count > 0",
    "Tags = even",
    "StartTime > '2026-10-13T03:00:00Z'",
    // Looks at every run: nothing to read along.
    "Region != eu AND Region != us AND Region != ap AND Region != sa",
    "nowhere",
];

fn definitions() -> Definitions {
    [
        ("Region", Type::Keyword),
        ("Customer", Type::Keyword),
        ("Count", Type::Int),
        ("Tags", Type::KeywordList),
    ]
    .into_iter()
    .map(|(name, defined)| (name.to_owned(), defined))
    .collect()
}

fn main() {
    let many = std::env::args()
        .nth(1)
        .map_or(100_000, |runs| runs.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let open = |runs: i64| {
        let store = Sqlite::open_with(Options {
            sync: Sync::Never,
            ..Options::new(directory.path().join(format!("{runs}.db")))
        })
        .unwrap();
        runtime.block_on(fill(&store, runs));
        store
    };
    let stores = [open(FEW), open(many)];
    println!(
        "{:>10} {:>10} {:>7}  a page of 50, median of {REPEATS}",
        FEW, many, "ratio"
    );
    for query in SHAPES {
        let filter = RunFilter {
            namespace: "default".into(),
            program: Some(Program::Code),
            workflow_type: None,
            status: None,
            condition: (!query.is_empty()).then(|| parse(query, &definitions()).unwrap()),
            after: None,
            limit: 51,
        };
        let [few, many] = stores
            .each_ref()
            .map(|store| runtime.block_on(measure(store, &filter)));
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        let shown = if query.is_empty() {
            "everything"
        } else {
            query
        };
        println!("{few:>10.2?} {many:>10.2?} {ratio:>7.1}  {shown}");
    }
}

async fn measure(store: &Sqlite, filter: &RunFilter) -> Duration {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let started = Instant::now();
        store.list_runs(filter).await.unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    times[REPEATS / 2]
}

async fn fill(store: &Sqlite, runs: i64) {
    for chunk in (0..runs).collect::<Vec<_>>().chunks(1000) {
        let mut answers = FuturesUnordered::new();
        for number in chunk {
            let mut spec = spec(&format!("order-{number}"), 1);
            spec.started_at = at(*number);
            spec.run_id = Ids::new(at(*number), number.unsigned_abs().into()).mint();
            let mut change = start(spec);
            let region = ["eu", "us", "ap", "sa"][usize::try_from(number % 4).unwrap()];
            let tags = [region, if number % 2 == 0 { "even" } else { "odd" }];
            let attributes = json!({
                "Region": region, "Customer": format!("c-{}", number / 50), "Count": number, "Tags": tags,
            });
            change.core.search_attributes = Arc::new(attributes.as_object().cloned().unwrap());
            change.core.status = Status::Waiting;
            if number % 4 < 2 {
                close(&mut change, ClosedReason::Completed);
            }
            answers.push(store.commit(Arc::new(Changes {
                run: None,
                created: vec![change],
                ..Changes::default()
            })));
        }
        while let Some(answer) = answers.next().await {
            answer.unwrap();
        }
    }
}
