//! Fakes: functions of the arguments, outcomes in order, failures; also for local activities.

use longhaul_embedded::testing::{FakeOutcome, RunError, TestEnvironment};
use longhaul_sdk::client::ResultError;
use longhaul_sdk::{
    ActivityResult, Failure, RetryPolicy, WorkflowContext, WorkflowResult, workflow,
};

use crate::{DAY, HOUR, Order, delivery, micros, order, ship};

#[tokio::test]
async fn retries_wait_out_their_back_off() {
    let env = TestEnvironment::builder()
        .workflow::<delivery>()
        .fake_outcomes(
            "ship",
            [
                FakeOutcome::Fails(Failure::new("no van")),
                FakeOutcome::Fails(Failure::new("no driver")),
                FakeOutcome::Returns("parcel"),
            ],
        )
        .start()
        .await
        .unwrap();
    assert_eq!(env.run(delivery(order())).await.unwrap(), "parcel");
    let calls = env.calls("ship");
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0].at.micros_until(calls[1].at), micros(HOUR));
    assert_eq!(calls[1].at.micros_until(calls[2].at), micros(DAY));
    assert_eq!(calls[2].info.attempt_number, 3);
    assert_eq!(calls[2].arguments::<Order>(), order());
    env.stop().await;
}

#[tokio::test]
async fn a_failure_of_a_fake_reaches_the_workflow() {
    let env = TestEnvironment::builder()
        .workflow::<delivery>()
        .fake("ship", |(order,): (Order,)| -> ActivityResult<String> {
            assert_eq!(order.count, 2);
            Err(Failure::of_type("NoSuchPlace", order.item).non_retryable())
        })
        .start()
        .await
        .unwrap();
    let error = env.run(delivery(order())).await.unwrap_err();
    let RunError::Result(ResultError::Failed(failure)) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.exception_type.as_deref(), Some("NoSuchPlace"));
    assert_eq!(env.calls("ship").len(), 1);
    env.stop().await;
}

#[workflow]
async fn local(ctx: WorkflowContext) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(3).backoff([HOUR]);
    Ok(ctx.local_activity(ship(order())).retry(retry).await?)
}

#[tokio::test]
async fn local_activities_are_faked_and_retried_too() {
    let env = TestEnvironment::builder()
        .workflow::<local>()
        .fake_outcomes(
            "ship",
            [
                FakeOutcome::Fails(Failure::new("no van")),
                FakeOutcome::Returns("parcel".to_owned()),
            ],
        )
        .start()
        .await
        .unwrap();
    assert_eq!(env.run(local()).await.unwrap(), "parcel");
    let calls = env.calls("ship");
    assert!(calls.iter().all(|call| call.info.local));
    assert_eq!(calls[0].at.micros_until(calls[1].at), micros(HOUR));
    env.stop().await;
}
