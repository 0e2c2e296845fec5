//! Code that does not match its history fails with an error that contains both sides, the place and a hint.

use std::time::Duration;

use longhaul_sdk::testing::ReplayFailure;
use longhaul_sdk::workflow::ReplayError;
use longhaul_sdk::{
    ActivityResult, Query, Signal, State, WorkflowCall, WorkflowContext, WorkflowDefinition,
    WorkflowResult, activity,
};

use crate::scenarios;
use crate::stage::{Running, Stage, types, until};

const GO: Signal<()> = Signal::new("go");
const ANY: Query<(), u32> = Query::new("any");

#[activity]
async fn step(number: u32) -> ActivityResult<u32> {
    Ok(number + 1)
}

/// Changes of the code of `flow`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    None,
    OtherCall,
    CallRemoved,
    CallAdded,
    Stuck,
    Panics,
    CallsInHandler,
}

fn flow(change: Change) -> WorkflowDefinition {
    WorkflowDefinition::new("flow", move |ctx: WorkflowContext, (): ()| async move {
        match change {
            Change::OtherCall => {
                ctx.sleep(Duration::ZERO).await?;
            }
            Change::CallRemoved => {}
            _ => {
                ctx.activity(step(1)).await?;
            }
        }
        match change {
            Change::CallAdded => {
                ctx.activity(step(2)).await?;
            }
            Change::Stuck => std::future::pending().await,
            Change::Panics => panic!("lost"),
            _ => {}
        }
        let handler = ctx.clone();
        ctx.on_query(&ANY, &State::new(()), move |(), ()| {
            if change == Change::CallsInHandler {
                return handler.side_effect(|| 1).unwrap_or_default();
            }
            7
        });
        ctx.signals(&GO).recv().await?;
        WorkflowResult::Ok(())
    })
}

async fn changed_code_is_refused_and_the_run_survives(mut stage: Stage) -> Stage {
    stage.replayer = stage.replayer.workflow_definition(flow(Change::None));
    let handle = {
        let worker = stage
            .worker()
            .workflow_definition(flow(Change::None))
            .activity::<step>();
        let worker = Running::start(worker).await;
        let handle = stage.start(WorkflowCall::<()>::named("flow")).await;
        stage.until(&handle, "ConditionWaitOpened", 1).await;
        worker.stop().await;
        handle
    };
    let written = types(&handle).await;
    let export = handle.export().await.unwrap().to_string();
    for (change, expected) in [
        (
            Change::OtherCall,
            "at call 1 the history has activity `step` (event 3), but the code does a timer",
        ),
        (
            Change::CallRemoved,
            "at call 1 the history has activity `step` (event 3), but the code does a wait for `signal:go`",
        ),
        (
            Change::CallAdded,
            "at call 2 the history has a wait for `signal:go` (event 6), but the code does activity `step`",
        ),
        (
            Change::Stuck,
            "at call 2 the history has a wait for `signal:go` (event 6), but the code does nothing",
        ),
        (Change::Panics, "the workflow panicked: lost"),
    ] {
        let replayer = longhaul_sdk::testing::Replayer::new().workflow_definition(flow(change));
        let error = replayer.replay(&export).unwrap_err();
        assert!(matches!(error, ReplayFailure::Replay(_)), "{change:?}");
        assert!(
            error.to_string().starts_with(expected),
            "{change:?}: {error}"
        );

        // A worker with this code reports the same error. The run continues when the code matches again.
        let worker = stage
            .worker()
            .workflow_definition(flow(change))
            .activity::<step>();
        let worker = Running::start(worker).await;
        let refused = handle.query(&ANY, ()).await.unwrap_err();
        assert!(
            refused.to_string().contains(expected),
            "{change:?}: {refused}"
        );
        worker.stop().await;
        assert_eq!(types(&handle).await, written, "{change:?}");
    }
    let worker = stage
        .worker()
        .workflow_definition(flow(Change::CallAdded))
        .activity::<step>();
    let worker = Running::start(worker).await;
    handle.signal(&GO, ()).await.unwrap();
    until("the workflow task fails", || {
        worker.handle.metrics().workflow_tasks_failed > 0
    })
    .await;
    worker.stop().await;
    let described = handle.describe().await.unwrap();
    assert!(
        described.closed_at.is_none(),
        "a broken deployment closes no run"
    );
    stage
}

/// A local activity with these attempts, then a wait.
fn tried(attempts: u32) -> WorkflowDefinition {
    WorkflowDefinition::new("tried", move |ctx: WorkflowContext, (): ()| async move {
        let policy = longhaul_sdk::RetryPolicy::attempts(attempts);
        ctx.local_activity(step(1)).retry(policy).await?;
        ctx.signals(&GO).recv().await?;
        WorkflowResult::Ok(())
    })
}

async fn a_local_activity_keeps_its_kind_and_its_options(stage: Stage) -> Stage {
    let worker = stage
        .worker()
        .workflow_definition(tried(2))
        .activity::<step>();
    let worker = Running::start(worker).await;
    let handle = stage.start(WorkflowCall::<()>::named("tried")).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    worker.stop().await;
    let export = handle.export().await.unwrap().to_string();
    let replay = |definition: WorkflowDefinition| {
        longhaul_sdk::testing::Replayer::new()
            .workflow_definition(definition)
            .replay(&export)
    };
    replay(tried(2)).unwrap();
    let changed = replay(tried(3)).unwrap_err().to_string();
    assert!(
        changed.contains("with other retries or timeouts"),
        "{changed}"
    );
    let remote = WorkflowDefinition::new("tried", |ctx: WorkflowContext, (): ()| async move {
        ctx.activity(step(1)).await?;
        WorkflowResult::Ok(())
    });
    let changed = replay(remote).unwrap_err().to_string();
    let expected = "at call 1 the history has local activity `step` (event 3), but the code does activity `step`";
    assert!(changed.starts_with(expected), "{changed}");
    stage
}

async fn code_that_waits_for_something_else_is_found(stage: Stage) -> Stage {
    let worker = stage
        .worker()
        .workflow_definition(flow(Change::Stuck))
        .activity::<step>();
    let worker = Running::start(worker).await;
    let handle = stage.start(WorkflowCall::<()>::named("flow")).await;
    until("the workflow task fails", || {
        worker.handle.metrics().workflow_tasks_failed > 0
    })
    .await;
    assert_eq!(ReplayError::Stuck.failure_type(), "WorkflowStuck");
    assert!(handle.describe().await.unwrap().closed_at.is_none());
    worker.stop().await;
    stage
}

async fn handlers_make_no_calls(stage: Stage) -> Stage {
    let worker = stage
        .worker()
        .workflow_definition(flow(Change::CallsInHandler))
        .activity::<step>();
    let worker = Running::start(worker).await;
    let handle = stage.start(WorkflowCall::<()>::named("flow")).await;
    stage.until(&handle, "ConditionWaitOpened", 1).await;
    let refused = handle.query(&ANY, ()).await.unwrap_err();
    assert!(refused.to_string().contains("made a call"), "{refused}");
    handle.signal(&GO, ()).await.unwrap();
    handle.result().await.unwrap();
    worker.stop().await;
    stage
}

scenarios!(
    changed_code_is_refused_and_the_run_survives,
    a_local_activity_keeps_its_kind_and_its_options,
    code_that_waits_for_something_else_is_found,
    handlers_make_no_calls,
);
