//! The clock jumps when all other work is done, and exactly to the next due time.

use std::sync::Arc;

use longhaul_embedded::testing::{FakeOutcome, TestEnvironment};
use longhaul_sdk::workflow::join;
use longhaul_sdk::{
    ActivityCall, FailureKind, Query, RetryPolicy, State, TimeoutKind, WorkflowContext,
    WorkflowResult, workflow,
};
use tokio::sync::Notify;

use crate::{DAY, GO, HOUR, SECOND, double, micros, order, ship, sleeper};

const ROUND: Query<(), u32> = Query::new("round");

#[tokio::test]
async fn a_month_passes_immediately_and_exactly() {
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
async fn impatient(ctx: WorkflowContext) -> WorkflowResult<String> {
    let retry = RetryPolicy::attempts(2).backoff([SECOND]);
    let slow = ctx
        .activity(ship(order()))
        .start_to_close(HOUR * 5)
        .retry(retry);
    let error = slow.await.expect_err("it hangs");
    assert_eq!(error.kind, FailureKind::TimedOut(TimeoutKind::StartToClose));
    let silent = ctx
        .activity(ship(order()))
        .start_to_close(DAY)
        .heartbeat(SECOND * 30);
    let error = silent.await.expect_err("it is silent");
    assert_eq!(error.kind, FailureKind::TimedOut(TimeoutKind::Heartbeat));
    let unknown = ActivityCall::<()>::named("unknown");
    let error = ctx
        .activity(unknown)
        .schedule_to_start(DAY * 2)
        .await
        .expect_err("no worker takes it");
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
        .fake_outcomes("ship", [FakeOutcome::<()>::Never])
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
async fn rounds(ctx: WorkflowContext) -> WorkflowResult<Vec<u32>> {
    let heard = State::new(Vec::new());
    ctx.on_query(&ROUND, &heard, |heard: &Vec<u32>, ()| {
        u32::try_from(heard.len()).unwrap_or(u32::MAX)
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
            // The worker still answers after the clock has jumped.
            assert_eq!(handle.query(&ROUND, ()).await.unwrap(), round);
        }
        assert_eq!(handle.result().await.unwrap(), [2, 4, 6]);
        assert_eq!(begin.micros_until(env.now()), micros(HOUR * 5));
        env.stop().await;
    }
}

#[tokio::test]
async fn advancing_stops_at_every_due_time() {
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
async fn chain(ctx: WorkflowContext, left: u32) -> WorkflowResult<u32> {
    ctx.sleep(DAY).await?;
    let number = ctx.activity(double(left)).await?;
    if left > 0 {
        return ctx.continue_as_new(chain(left - 1));
    }
    Ok(number)
}

#[workflow]
async fn parent(ctx: WorkflowContext) -> WorkflowResult<u32> {
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

#[tokio::test]
async fn time_does_not_jump_while_an_activity_runs() {
    let (release, released) = tokio::sync::watch::channel(false);
    let began = Arc::new(Notify::new());
    let slow = longhaul_sdk::ActivityDefinition::new("double", {
        let began = began.clone();
        move |_, (number,): (u32,)| {
            let mut released = released.clone();
            began.notify_one();
            async move {
                released.wait_for(|released| *released).await?;
                Ok(number * 2)
            }
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
    let other = env.start(sleeper(2)).await.unwrap();
    env.settle().await;
    let handle = env.start(sleeper(0)).await.unwrap();
    let result = other.result();
    tokio::pin!(result);
    tokio::select! {
        biased;
        _ = &mut result => panic!("the activity still runs"),
        () = began.notified() => {}
    }
    assert_eq!(env.now(), begin);
    // The test can move the clock nevertheless.
    env.advance_at_once(HOUR);
    release.send_replace(true);
    assert_eq!(result.await.unwrap(), 4);
    assert_eq!(handle.result().await.unwrap(), 0);
    assert_eq!(begin.micros_until(env.now()), micros(DAY * 2));
    env.stop().await;
}

/// Several kinds of work between two sleeps.
#[workflow]
async fn busy(ctx: WorkflowContext, number: u32) -> WorkflowResult<u32> {
    let mut sum = 0;
    for round in 1..=4 {
        ctx.sleep(SECOND * number * round).await?;
        let (queued, local) = join!(
            ctx.activity(double(number)).start(),
            ctx.local_activity(double(number)).start(),
        );
        sum += queued? + local?;
        sum += ctx.activity(double(number)).await?;
    }
    Ok(sum)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn time_never_jumps_over_work_that_could_be_done() {
    let env = TestEnvironment::builder()
        .workflow::<busy>()
        .activity::<double>()
        .start()
        .await
        .unwrap();
    let begin = env.now();
    let mut handles = Vec::new();
    for number in 1..=30 {
        handles.push(env.start(busy(number)).await.unwrap());
    }
    let results = futures::future::join_all(handles.iter().map(|handle| handle.result())).await;
    for (number, result) in (1..).zip(results) {
        assert_eq!(result.unwrap(), number * 2 * 12);
    }
    // If the clock had jumped during any work, the next step of that work would be late.
    let calls = env.calls("double");
    assert_eq!(calls.len(), 30 * 12);
    for call in calls {
        let after = begin.micros_until(call.at);
        let number = u64::from(call.arguments::<u32>());
        let moments = [1, 3, 6, 10].map(|rounds| rounds * number * 1_000_000);
        assert!(moments.contains(&after), "{after} {call:?}");
    }
    env.stop().await;
}
