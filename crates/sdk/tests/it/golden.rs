//! Histories of other servers and SDKs, whose calls have the same shape as ours.

use longhaul_sdk::testing::{ReplayFailure, Replayer, check_soundness};
use longhaul_sdk::workflow::join;
use longhaul_sdk::{ActivityCall, Signal, WorkflowContext, WorkflowDefinition, WorkflowResult};
use serde_json::{Value, json};

const PHP: &str = include_str!("../golden/published-php-complete-explicit-backoff.json");
const PARALLEL: &str = include_str!("../golden/server-2.0.0-rc.39-parallel-completion-order.json");
const JSON_CODEC: &str = include_str!("../golden/json-tagged-empty-workflow-start-rejected.json");

/// A PHP workflow of another server: a version marker, an activity, and a result that contains both.
#[test]
fn a_history_of_the_php_sdk_replays_to_its_result() {
    let workflow = WorkflowDefinition::new(
        "corpus.php-zero-full",
        |ctx: WorkflowContext, (): ()| async move {
            let version = ctx.version("frozen-zero", -7, 0);
            let matrix: Value = ctx.activity(ActivityCall::named("MatrixActivity")).await?;
            WorkflowResult::Ok((version, false, Value::Null, 0, false, matrix))
        },
    );
    let replayed = Replayer::new()
        .workflow_definition(workflow)
        .replay(PHP)
        .unwrap();
    assert_eq!(
        (replayed.events, replayed.ending.as_str()),
        (7, "completed")
    );
    assert_eq!(check_soundness(PHP).unwrap(), 7);
}

/// Every result belongs to its call, in any order of completion.
#[test]
fn results_that_came_in_another_order_find_their_calls() {
    let workflow = WorkflowDefinition::new(
        "tests.replay.parallel-result-binding",
        |ctx: WorkflowContext, (): ()| async move {
            let call =
                |name: &'static str| ctx.activity(ActivityCall::<String>::named(name)).start();
            let (first, second) = join!(call("position-first"), call("position-second"));
            WorkflowResult::Ok(json!({"results": [first?, second?]}))
        },
    );
    let replayed = Replayer::new()
        .workflow_definition(workflow)
        .replay(PARALLEL)
        .unwrap();
    let expected = json!({"results": ["first-position", "second-position"]});
    assert_eq!(replayed.ending, format!("returns {expected}"));
}

#[test]
fn histories_of_another_codec_are_refused() {
    const ANY: Signal<()> = Signal::new("any");
    let workflow = WorkflowDefinition::new(
        "golden.signal-wait",
        |ctx: WorkflowContext, (): ()| async move {
            ctx.signals(&ANY).recv().await?;
            WorkflowResult::Ok(())
        },
    );
    let refused = Replayer::new()
        .workflow_definition(workflow)
        .replay(JSON_CODEC)
        .unwrap_err();
    assert!(matches!(refused, ReplayFailure::Replay(_)), "{refused}");
    assert!(refused.to_string().contains("codec `json`"), "{refused}");
}
