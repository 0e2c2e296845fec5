//! A whole definition with every operator.

use std::time::Duration;

use longhaul_engine::conductor::validate::{Rules, check_workflow_def};
use longhaul_protocol::conductor::{WorkflowDef, parse};

use super::*;

/// Returns a definition with every operator, and operators inside each other.
fn everything() -> WorkflowDef {
    let child = WorkflowDefBuilder::new("child")
        .then(do_times("again", workflow_input("count"), task("work")))
        .build()
        .unwrap();
    let body = task("pack")
        .input("item", loop_item("each"))
        .input("round", loop_iteration("each"))
        .then(
            fork("both")
                .branch(switch("by_size", output_of("pack", "size")).case("big", wait("crane")))
                .branch(sub_workflow_inline("nested", child).input("count", 2)),
        );
    let prepare = inline("prepare", "({n: $.n, text: `${$.n}`})").input("n", workflow_input("n"));
    let prepared = prepare.output("result");
    let call = http("call", "GET", "https://example.com")
        .header("X-Run", workflow_member("workflowId"))
        .retry_count(2);
    WorkflowDefBuilder::new("everything")
        .version(3)
        .description("text")
        .owner_email("a@b.c")
        .timeout(
            Duration::from_secs(600),
            WorkflowTimeoutPolicy::TimeOutWorkflow,
        )
        .failure_workflow("cleanup")
        .failure_workflow_version(2)
        .restartable(false)
        .input_parameters(["n", "items"])
        .input_template("n", 1)
        .variable("total", 0)
        .then(prepare)
        .then(set_variable("keep").input("total", prepared))
        .then(for_each("each", workflow_input("items"), body).keep_last(5))
        .then(
            switch_script("decide", "$.n > 1 ? 'many' : 'one'")
                .input("n", variable("total"))
                .case("many", do_while("poll", "$.look.more", task("look")))
                .case("one", Steps::new())
                .default_case(
                    wait_for("soon", Duration::from_secs(5))
                        .then(terminate("stop", TerminationStatus::Completed).reason("done")),
                ),
        )
        .then(dynamic("any", workflow_input("task")).start_delay(Duration::from_secs(1)))
        .then(dynamic_fork(
            "many",
            workflow_input("tasks"),
            workflow_input("inputs"),
        ))
        .then(fork_each("list", "work", workflow_input("items")))
        .then(
            fork("calls")
                .branch(call)
                .branch(jq("shape", ".n").input("n", 1))
                .branch(
                    sub_workflow("other", "other")
                        .version(1)
                        .then(start_workflow("more", "more").input("x", output_of("other", ""))),
                ),
        )
        .then(event("tell", "conductor:done").async_complete())
        .then(wait_until("later", "2030-01-01 10:00 Europe/Berlin"))
        .then(human("ask").optional())
        .then(noop("nothing"))
        .then(raw("MY_TYPE", "mine", "mine").input("x", output_of("calls_join", "call.response")))
        .output("shape", output_of("shape", "result"))
        .output(
            "text",
            format!("{} of {}", variable("total"), workflow_input("n")),
        )
        .build()
        .unwrap()
}

#[test]
fn a_whole_definition_is_read_back() {
    let definition = everything();
    let text = serde_json::to_vec(&definition).unwrap();
    let read: WorkflowDef = parse(&text).unwrap();
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        serde_json::to_value(&definition).unwrap()
    );
    assert_eq!(read.version, 3);
    assert_eq!(read.schema_version, 2);
    assert_eq!(read.timeout_seconds, 600);
    assert_eq!(read.failure_workflow(), Some("cleanup"));
    assert_eq!(read.failure_workflow_version, Some(2));
    assert!(!read.restartable);
    assert_eq!(read.input_parameters, ["n", "items"]);
    assert_eq!(json!(read.input_template), json!({"n": 1}));
    assert_eq!(json!(read.variables), json!({"total": 0}));
    assert_eq!(
        json!(read.output_parameters),
        json!({"shape": "${shape.output.result}", "text": "${workflow.variables.total} of ${workflow.input.n}"})
    );
}

#[test]
fn the_server_accepts_a_whole_definition() {
    let rules = Rules {
        plain_names: true,
        owner_email: false,
        ..Rules::default()
    };
    assert_eq!(check_workflow_def(&everything(), &rules).violations, []);
}
