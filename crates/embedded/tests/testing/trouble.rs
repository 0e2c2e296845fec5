//! Workflows that do not end, fail or are not deterministic: the test gets an error and does not hang.

use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_embedded::testing::{FakeOutcome, ReplayError, RunError, TestEnvironment, Why};
use longhaul_sdk::{
    Query, Signal, State, Update, WorkflowCall, WorkflowContext, WorkflowDefinition,
    WorkflowResult, workflow,
};

use crate::{DAY, GO, HOUR, delivery, double, micros, order, sleeper};

fn stuck(error: RunError) -> (Why, String) {
    match error {
        RunError::Stuck(stuck) => (stuck.why, stuck.to_string()),
        other => panic!("{other}"),
    }
}

#[workflow]
async fn waits(ctx: WorkflowContext) -> WorkflowResult<u32> {
    Ok(ctx.signals(&GO).recv().await?)
}

#[tokio::test]
async fn the_error_names_what_a_stuck_workflow_waits_for() {
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
        "workflow `{id}` does not end: no timer, timeout or retry is due. It is {begin}; \
         `{id}` (waits) waits for `signal:go`",
        id = handle.id()
    );
    assert_eq!(text, expected);
    // The workflow can still continue.
    handle.signal(&GO, 7).await.unwrap();
    assert_eq!(handle.result().await.unwrap(), 7);

    // An activity that is neither registered nor faked.
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
async fn workflows_that_never_end_or_take_too_long_are_stuck() {
    let circles = WorkflowDefinition::new("circles", |ctx: WorkflowContext, (): ()| async move {
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
        .fake_outcomes("ship", [FakeOutcome::<String>::Never])
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
    // The activity hangs, and has no timeout.
    let (why, text) = stuck(env.run(delivery(order())).await.unwrap_err());
    assert_eq!(why, Why::TooLong(DAY * 365));
    assert!(
        text.contains("waits for attempt 1 of activity `ship`"),
        "{text}"
    );
    env.stop().await;
}

#[tokio::test]
async fn code_that_fails_is_not_retried_without_end() {
    let broken = WorkflowDefinition::new("broken", |ctx: WorkflowContext, (): ()| async move {
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
    // Depends on a counter that is not recorded.
    let executions = AtomicU32::new(0);
    let unsteady = WorkflowDefinition::new("unsteady", move |ctx: WorkflowContext, (): ()| {
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

const TOTAL: Query<(), u32> = Query::new("total");
const ADD: Update<u32, u32> = Update::new("add");
const OTHER: Signal<u32> = Signal::new("other");

fn handle_total(ctx: &WorkflowContext) {
    ctx.on_query(&TOTAL, &State::new(0), |total, ()| *total);
}

#[workflow(updates(ADD))]
async fn unlisted_query(ctx: WorkflowContext) -> WorkflowResult<()> {
    let total = State::new(0);
    ctx.on_update(&ADD, &total, |total, cents| Ok(*total + cents));
    handle_total(&ctx);
    ctx.sleep(HOUR).await?;
    Ok(())
}

#[workflow]
async fn unlisted_update(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.on_update(&ADD, &State::new(0), |total, cents| Ok(*total + cents));
    ctx.sleep(HOUR).await?;
    Ok(())
}

#[workflow(signals(GO))]
async fn unlisted_signal(ctx: WorkflowContext) -> WorkflowResult<u32> {
    Ok(ctx.signals(&OTHER).recv().await?)
}

#[workflow(queries(TOTAL))]
async fn unhandled_query(ctx: WorkflowContext) -> WorkflowResult<()> {
    ctx.sleep(HOUR).await?;
    // Too late: a query may come during the sleep.
    handle_total(&ctx);
    Ok(())
}

#[workflow(queries(TOTAL), updates(ADD))]
async fn unhandled_update(ctx: WorkflowContext) -> WorkflowResult<()> {
    handle_total(&ctx);
    ctx.sleep(HOUR).await?;
    Ok(())
}

/// Ends before it waits, so that it needs no handlers.
#[workflow(queries(TOTAL), updates(ADD))]
async fn ends_at_once(_ctx: WorkflowContext) -> WorkflowResult<u32> {
    Ok(7)
}

#[tokio::test]
async fn messages_that_are_not_listed_or_not_handled_fail_the_first_task() {
    let env = TestEnvironment::builder()
        .workflow::<unlisted_query>()
        .workflow::<unlisted_update>()
        .workflow::<unlisted_signal>()
        .workflow::<unhandled_query>()
        .workflow::<unhandled_update>()
        .workflow::<ends_at_once>()
        .start()
        .await
        .unwrap();
    assert_eq!(env.run(ends_at_once()).await.unwrap(), 7);
    let begin = env.now();
    for (workflow_type, expected) in [
        (
            "unlisted_query",
            "the workflow uses the query `total` and does not list it; add its constant to `#[workflow(queries(..))]`",
        ),
        (
            "unlisted_update",
            "the workflow uses the update `add` and does not list it; add its constant to `#[workflow(updates(..))]`",
        ),
        (
            "unlisted_signal",
            "the workflow uses the signal `other` and does not list it; add its constant to `#[workflow(signals(..))]`",
        ),
        (
            "unhandled_query",
            "the workflow lists the query `total` in `#[workflow(queries(..))]` and has no handler for it; call \
             `ctx.on_query` before the first `.await`",
        ),
        (
            "unhandled_update",
            "the workflow lists the update `add` in `#[workflow(updates(..))]` and has no handler for it; call \
             `ctx.on_update` or `ctx.on_validated_update` before the first `.await`",
        ),
    ] {
        let call = WorkflowCall::<()>::named(workflow_type);
        let handle = env.start(call).await.unwrap();
        let (why, text) = stuck(handle.result().await.unwrap_err());
        assert_eq!(why, Why::TaskFailed, "{workflow_type}");
        assert!(text.contains(expected), "{workflow_type}: {text}");
        handle.terminate(None).await.unwrap();
    }
    assert_eq!(env.now(), begin);
    // A replay finds the same mistakes.
    assert!(matches!(
        env.replay().await,
        Err(ReplayError::Diverged { .. })
    ));
}
