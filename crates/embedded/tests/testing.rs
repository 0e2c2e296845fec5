//! The test environment: time that jumps over every wait and over nothing else, fakes, and errors instead of hangs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_embedded::testing::{Answer, ReplayError, RunError, TestEnvironment, Why};
use longhaul_sdk::client::ResultError;
use longhaul_sdk::workflow::join;
use longhaul_sdk::{
    ActivityCall, ActivityResult, Context, Failure, FailureKind, Query, RetryPolicy, Signal,
    TimeoutKind, WorkflowCall, WorkflowDefinition, WorkflowResult, activity, workflow,
};
use serde::{Deserialize, Serialize};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const GO: Signal<u32> = Signal::new("go");
const ROUND: Query<(), u32> = Query::new("round");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

fn order() -> Order {
    Order {
        item: "pen".to_owned(),
        count: 2,
    }
}

/// An activity of another program.
fn ship(order: Order) -> ActivityCall<String> {
    ActivityCall::named("ship").argument(order)
}

#[activity]
async fn double(number: u32) -> ActivityResult<u32> {
    Ok(number * 2)
}

#[workflow]
async fn sleeper(ctx: Context, days: u32) -> WorkflowResult<u32> {
    ctx.sleep(DAY * days).await?;
    Ok(ctx.activity(double(days)).await?)
}

#[tokio::test]
async fn a_month_passes_at_once_and_exactly() {
    let env = TestEnvironment::builder()
        .workflow::<sleeper>()
        .activity::<double>()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    assert_eq!(env.run(sleeper(30)).await.unwrap(), 60);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 30));
    assert_eq!(env.calls("double")[0].at, env.now());
    assert_eq!(env.calls("double")[0].arguments::<(u32,)>(), (30,));
    assert_eq!(env.replay().await.unwrap(), 1);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runs_share_the_time() {
    let env = TestEnvironment::builder()
        .workflow::<sleeper>()
        .activity::<double>()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let long = env.start(sleeper(9)).await.unwrap();
    let short = env.start(sleeper(3)).await.unwrap();
    let (long, short) = tokio::join!(long.result(), short.result());
    assert_eq!((long.unwrap(), short.unwrap()), (18, 6));
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 9));
    env.stop().await;
}

#[workflow]
async fn delivery(ctx: Context, order: Order) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(3).backoff([HOUR, DAY]);
    Ok(ctx.activity(ship(order)).retry(retry).await?)
}

#[tokio::test]
async fn retries_wait_out_their_back_off() {
    let env = TestEnvironment::builder()
        .workflow::<delivery>()
        .fake_answers(
            "ship",
            [
                Answer::Fails(Failure::new("no van")),
                Answer::Fails(Failure::new("no driver")),
                Answer::Returns("parcel"),
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
async fn impatient(ctx: Context) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(2).backoff([SECOND]);
    let slow = ctx
        .activity(ship(order()))
        .start_to_close(HOUR * 5)
        .retry(retry);
    let error = slow.await.unwrap_err();
    assert_eq!(error.kind, FailureKind::TimedOut(TimeoutKind::StartToClose));
    let silent = ctx
        .activity(ship(order()))
        .start_to_close(DAY)
        .heartbeat(SECOND * 30);
    let error = silent.await.unwrap_err();
    assert_eq!(error.kind, FailureKind::TimedOut(TimeoutKind::Heartbeat));
    let nobody = ActivityCall::<()>::named("nobody");
    let error = ctx
        .activity(nobody)
        .schedule_to_start(DAY * 2)
        .await
        .unwrap_err();
    assert_eq!(
        error.kind,
        FailureKind::TimedOut(TimeoutKind::ScheduleToStart)
    );
    Ok("gave up".to_owned())
}

#[tokio::test]
async fn timeouts_of_activities_pass_in_virtual_time() {
    let env = TestEnvironment::builder()
        .workflow::<impatient>()
        .fake_answers("ship", [Answer::<()>::Never])
        .start()
        .await
        .unwrap();
    let begin = env.now();
    assert_eq!(env.run(impatient()).await.unwrap(), "gave up");
    let passed = HOUR * 10 + SECOND + SECOND * 30 + DAY * 2;
    assert_eq!(begin.micros_until(env.now()), micros(passed));
    assert_eq!(env.calls("ship").len(), 3);
    env.stop().await;
}

#[workflow(signals(GO), queries(ROUND))]
async fn rounds(ctx: Context) -> WorkflowResult<Vec<u32>> {
    let heard = ctx.state(Vec::new());
    ctx.on_query(&ROUND, {
        let heard = heard.clone();
        move |()| heard.with(|heard: &Vec<u32>| u32::try_from(heard.len()).unwrap_or(u32::MAX))
    });
    let signals = ctx.signals(&GO);
    while let Some(number) = signals.recv_timeout(HOUR * 2).await? {
        let doubled = ctx.activity(double(number)).await?;
        heard.update(|heard| heard.push(doubled));
    }
    Ok(heard.get())
}

#[tokio::test]
async fn signals_come_when_the_test_sends_them() {
    for replay_always in [false, true] {
        let mut builder = TestEnvironment::builder()
            .workflow::<rounds>()
            .activity::<double>();
        if replay_always {
            builder = builder.replay_always();
        }
        let env = builder.start().await.unwrap();
        let begin = env.now();
        let handle = env.start(rounds()).await.unwrap();
        for round in 1..=3 {
            env.advance(HOUR).await;
            handle.signal(&GO, round).await.unwrap();
            env.settle().await;
            // The worker is there also after time has jumped.
            assert_eq!(handle.query(&ROUND, ()).await.unwrap(), round);
        }
        assert_eq!(handle.result().await.unwrap(), [2, 4, 6]);
        assert_eq!(begin.micros_until(env.now()), micros(HOUR * 5));
        env.stop().await;
    }
}

#[tokio::test]
async fn advancing_stops_at_every_moment_on_the_way() {
    let env = TestEnvironment::builder()
        .workflow::<sleeper>()
        .activity::<double>()
        .without_skipping()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let first = env.start(sleeper(1)).await.unwrap();
    let second = env.start(sleeper(2)).await.unwrap();
    env.advance(DAY * 3).await;
    let calls = env.calls("double");
    assert_eq!(begin.micros_until(calls[0].at), micros(DAY));
    assert_eq!(begin.micros_until(calls[1].at), micros(DAY * 2));
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 3));
    assert_eq!(first.result().await.unwrap(), 2);
    assert_eq!(second.result().await.unwrap(), 4);
    env.stop().await;
}

#[workflow]
async fn local(ctx: Context) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(3).backoff([HOUR]);
    Ok(ctx.local_activity(ship(order())).retry(retry).await?)
}

#[tokio::test]
async fn local_activities_are_faked_and_retried_too() {
    let env = TestEnvironment::builder()
        .workflow::<local>()
        .fake_answers(
            "ship",
            [
                Answer::Fails(Failure::new("no van")),
                Answer::Returns("parcel".to_owned()),
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

#[workflow]
async fn chain(ctx: Context, left: u32) -> WorkflowResult<u32> {
    ctx.sleep(DAY).await?;
    let number = ctx.activity(double(left)).await?;
    if left > 0 {
        return ctx.continue_as_new(chain(left - 1));
    }
    Ok(number)
}

#[workflow]
async fn parent(ctx: Context) -> WorkflowResult<u32> {
    let (first, second) = join!(ctx.child(chain(2)).start(), ctx.child(sleeper(5)).start());
    Ok(first? + second?)
}

#[tokio::test]
async fn chains_of_runs_and_children_are_followed() {
    let env = TestEnvironment::builder()
        .workflow::<chain>()
        .workflow::<sleeper>()
        .workflow::<parent>()
        .activity::<double>()
        .replay_always()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    assert_eq!(env.run(chain(3)).await.unwrap(), 0);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 4));
    assert_eq!(env.run(parent()).await.unwrap(), 10);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 9));
    assert_eq!(env.replay().await.unwrap(), 4 + 1 + 3 + 1);
    env.stop().await;
}

fn stuck(error: RunError) -> (Why, String) {
    match error {
        RunError::Stuck(stuck) => (stuck.why, stuck.to_string()),
        other => panic!("{other}"),
    }
}

#[workflow]
async fn waits(ctx: Context) -> WorkflowResult<u32> {
    Ok(ctx.signals(&GO).recv().await?)
}

#[tokio::test]
async fn a_workflow_that_waits_for_nobody_is_told_of() {
    let env = TestEnvironment::builder()
        .workflow::<waits>()
        .workflow::<delivery>()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let handle = env.start(waits()).await.unwrap();
    let (why, text) = stuck(handle.result().await.unwrap_err());
    assert_eq!(why, Why::NothingDue);
    let expected = format!(
        "workflow `{id}` does not end: nothing happens by itself any more. It is {begin}; \
         `{id}` (waits) waits for `signal:go`",
        id = handle.id()
    );
    assert_eq!(text, expected);
    // It can still be helped.
    handle.signal(&GO, 7).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 7);

    // An activity that nobody fakes.
    let (why, text) = stuck(env.run(delivery(order())).await.unwrap_err());
    assert_eq!(why, Why::NothingDue);
    assert!(
        text.ends_with("waits for activity `ship`, which the environment neither has nor fakes"),
        "{text}"
    );
    assert_eq!(env.now(), begin);
    env.stop().await;
}

#[tokio::test]
async fn what_never_ends_or_takes_too_long_is_given_up() {
    let circles = WorkflowDefinition::new("circles", |ctx: Context, (): ()| async move {
        loop {
            ctx.sleep(HOUR).await?;
        }
        #[expect(unreachable_code, reason = "gives the loop a type")]
        WorkflowResult::Ok(())
    });
    let env = TestEnvironment::builder()
        .workflow_definition(circles)
        .workflow::<sleeper>()
        .workflow::<delivery>()
        .fake_answers("ship", [Answer::<String>::Never])
        .most_jumps(20)
        .longest_wait(DAY * 365)
        .start()
        .await
        .unwrap();
    let call = WorkflowCall::<()>::named("circles");
    let endless = env.start(call).await.unwrap();
    let (why, text) = stuck(endless.result().await.unwrap_err());
    assert_eq!(why, Why::TooManyJumps(20));
    assert!(
        text.contains("waits for a timer until 2026-01-01T21"),
        "{text}"
    );
    endless.terminate(None).await.unwrap();
    let long = env.start(sleeper(366)).await.unwrap();
    let (why, _) = stuck(long.result().await.unwrap_err());
    assert_eq!(why, Why::TooLong(DAY * 365));
    long.terminate(None).await.unwrap();
    // Hangs, and no timeout ends it.
    let (why, text) = stuck(env.run(delivery(order())).await.unwrap_err());
    assert_eq!(why, Why::TooLong(DAY * 365));
    assert!(
        text.contains("waits for attempt 1 of activity `ship`"),
        "{text}"
    );
    env.stop().await;
}

#[tokio::test]
async fn code_that_fails_is_not_tried_for_ever() {
    let broken = WorkflowDefinition::new("broken", |ctx: Context, (): ()| async move {
        ctx.sleep(HOUR).await?;
        assert!(ctx.history_length() == 0, "out of cheese");
        WorkflowResult::Ok(())
    });
    let env = TestEnvironment::builder()
        .workflow_definition(broken)
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let call = WorkflowCall::<()>::named("broken");
    let (why, text) = stuck(env.run(call).await.unwrap_err());
    assert_eq!(why, Why::TaskFailed);
    assert!(text.contains("out of cheese"), "{text}");
    assert_eq!(begin.micros_until(env.now()), micros(HOUR));
    env.stop().await;
}

#[tokio::test]
async fn runs_that_do_not_replay_are_found() {
    // Counts its executions outside of what is recorded.
    let executions = AtomicU32::new(0);
    let unsteady = WorkflowDefinition::new("unsteady", move |ctx: Context, (): ()| {
        let execution = executions.fetch_add(1, Ordering::Relaxed);
        async move {
            if execution > 0 {
                ctx.activity(double(1)).await?;
            }
            ctx.sleep(HOUR).await?;
            WorkflowResult::Ok(())
        }
    });
    let env = TestEnvironment::builder()
        .workflow_definition(unsteady.clone())
        .activity::<double>()
        .start()
        .await
        .unwrap();
    let call = || WorkflowCall::<()>::named("unsteady");
    env.run(call()).await.unwrap();
    let error = env.replay().await.unwrap_err();
    assert!(matches!(error, ReplayError::Diverged { .. }));
    let expected = "(unsteady) is not deterministic: at call 1 the history has a timer";
    assert!(error.to_string().contains(expected), "{error}");
    let stopped = tokio::spawn(env.stop()).await.unwrap_err();
    let panic = stopped.into_panic();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains(expected), "{text}");
}

#[tokio::test]
async fn an_activity_that_runs_holds_the_time() {
    let (release, released) = tokio::sync::watch::channel(false);
    let slow = longhaul_sdk::ActivityDefinition::new("double", move |_, (number,): (u32,)| {
        let mut released = released.clone();
        async move {
            released.wait_for(|released| *released).await?;
            Ok(number * 2)
        }
    });
    let env = TestEnvironment::builder()
        .workflow::<sleeper>()
        .workflow::<rounds>()
        .activity_definition(slow)
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let handle = env.start(sleeper(0)).await.unwrap();
    let other = env.start(sleeper(2)).await.unwrap();
    let result = other.result();
    tokio::pin!(result);
    while env.calls("double").is_empty() {
        tokio::select! {
            biased;
            _ = &mut result => panic!("the activity still runs"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(env.now(), begin);
    // Time that is moved by hand passes nevertheless.
    env.advance_at_once(HOUR);
    release.send_replace(true);
    assert_eq!(result.await.unwrap(), 4);
    assert_eq!(handle.result().await.unwrap(), 0);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 2));
    env.stop().await;
}

#[tokio::test]
async fn a_stopped_environment_answers_its_handles() {
    let env = TestEnvironment::builder()
        .workflow::<waits>()
        .fake("ship", |(): ()| Ok(()))
        .start()
        .await
        .unwrap();
    let handle = env.start(waits()).await.unwrap();
    let unknown = std::panic::AssertUnwindSafe(|| env.calls("sihp"));
    let panic = std::panic::catch_unwind(unknown).unwrap_err();
    assert_eq!(
        panic.downcast_ref::<String>().unwrap(),
        "the environment has no activity `sihp`; it has [\"ship\"]"
    );
    env.stop().await;
    let error = handle.result().await.unwrap_err();
    assert!(matches!(error, RunError::Stopped), "{error}");
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}
