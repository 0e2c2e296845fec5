//! Many evaluations at once.

use std::time::Duration;

use futures::future::join_all;
use longhaul_system::{Failure, Limits, Scripts};
use serde_json::json;

use crate::{process_state, raw, wait_until};

fn patient(processes: usize) -> Limits {
    Limits {
        wall: Duration::from_secs(60),
        patience: Duration::from_secs(600),
        processes,
        ..Limits::default()
    }
}

#[tokio::test]
async fn many_evaluations_share_two_processes() {
    let scripts = Scripts::new(patient(2));
    let one = |number: u32| {
        let scripts = scripts.clone();
        async move {
            let input = raw(&format!("{{\"n\":{number}}}"));
            scripts.evaluate("$.n * 2", &input).await
        }
    };
    let results = join_all((0..200).map(one)).await;
    for (number, result) in results.into_iter().enumerate() {
        assert_eq!(result, Ok(json!(number * 2)));
    }
    assert_eq!(scripts.process_ids().len(), 2);
}

#[tokio::test]
async fn nothing_starts_before_the_first_use() {
    let scripts = Scripts::new(patient(2));
    assert!(scripts.process_ids().is_empty());
    scripts.evaluate("1", &raw("{}")).await.unwrap();
    assert_eq!(
        scripts.process_ids().len(),
        1,
        "one evaluation needs one process"
    );
}

#[tokio::test]
async fn a_full_queue_is_busy() {
    let scripts = Scripts::new(Limits {
        waiting: 1,
        cpu: Duration::from_millis(300),
        ..patient(1)
    });
    let input = raw("{}");
    let one = || scripts.evaluate("for (;;);", &input);
    let results = join_all([one(), one(), one(), one()]).await;
    let busy = results
        .iter()
        .filter(|result| **result == Err(Failure::Busy));
    assert_eq!(busy.count(), 2, "one runs, one waits: {results:?}");
    assert!(Failure::Busy.is_retriable());
    assert_eq!(scripts.evaluate("1", &input).await, Ok(json!(1)));
}

#[tokio::test]
async fn waiting_evaluations_are_bounded_in_bytes() {
    let scripts = Scripts::new(Limits {
        input_bytes: 1 << 20,
        cpu: Duration::from_millis(300),
        ..patient(1)
    });
    let input = raw(&format!("\"{}\"", "x".repeat(1_000_000)));
    let results = join_all((0..20).map(|_| scripts.evaluate("for (;;);", &input))).await;
    let busy = results
        .iter()
        .filter(|result| **result == Err(Failure::Busy));
    assert!(
        (10..=13).contains(&busy.count()),
        "eight wait, and one may run already"
    );
}

#[tokio::test]
async fn an_evaluation_that_waits_too_long_is_busy() {
    let scripts = Scripts::new(Limits {
        // The first script runs for longer than the second one waits.
        cpu: Duration::from_secs(2),
        patience: Duration::from_secs(1),
        ..patient(1)
    });
    let input = raw("{}");
    let (first, second) = tokio::join!(
        scripts.evaluate("for (;;);", &input),
        scripts.evaluate("1", &input)
    );
    assert!(matches!(first, Err(Failure::Limit(_))), "{first:?}");
    assert_eq!(second, Err(Failure::Busy));
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_harm_the_pool() {
    let scripts = Scripts::new(Limits {
        cpu: Duration::from_millis(200),
        waiting: 3,
        ..patient(1)
    });
    let input = raw("{}");
    for _ in 0..20 {
        // The future is dropped after its first poll: its job is in the queue or runs.
        let evaluation = scripts.evaluate("for (;;);", &input);
        assert!(
            futures::FutureExt::now_or_never(evaluation)
                .is_none_or(|result| result == Err(Failure::Busy))
        );
    }
    assert_eq!(scripts.evaluate("1 + 1", &input).await, Ok(json!(2)));
    assert_eq!(scripts.process_ids().len(), 1);
}

#[test]
fn the_pool_works_across_async_runtimes() {
    let scripts = Scripts::new(patient(1));
    let input = raw("{}");
    for number in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let result = runtime.block_on(scripts.evaluate(&number.to_string(), &input));
        assert_eq!(result, Ok(json!(number)));
    }
    assert_eq!(scripts.process_ids().len(), 1);
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_processes() {
    let scripts = Scripts::new(patient(2));
    let input = raw("{}");
    let (one, two) = tokio::join!(scripts.evaluate("1", &input), scripts.evaluate("2", &input));
    assert!(one.is_ok() && two.is_ok());
    let ids = scripts.process_ids();
    let clone = scripts.clone();
    drop(scripts);
    assert_eq!(clone.evaluate("3", &input).await, Ok(json!(3)));
    assert!(ids.iter().all(|id| process_state(*id).is_some()));
    drop(clone);
    for id in ids {
        // A dead process that was not reaped would still have a state.
        wait_until("the process is gone and reaped", || {
            process_state(id).is_none()
        });
    }
}

#[tokio::test]
async fn the_memory_of_the_parent_stays_bounded() {
    let scripts = Scripts::new(patient(2));
    let input = raw(&format!("\"{}\"", "x".repeat(100_000)));
    let round = async || {
        let results = join_all((0..50).map(|_| scripts.evaluate("$ + $", &input))).await;
        assert!(results.iter().all(|result| result.is_ok()));
    };
    round().await;
    let before = resident_kilobytes();
    for _ in 0..30 {
        round().await;
    }
    let grown = resident_kilobytes().saturating_sub(before);
    // 300 MB of results went through; other tests of this binary run meanwhile.
    assert!(grown < 150_000, "grown by {grown} KB");
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
