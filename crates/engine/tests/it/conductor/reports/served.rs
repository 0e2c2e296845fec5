//! Tasks that a server runs itself, such as HTTP calls: leases that are renewed, lost and ended by others.

use longhaul_engine::Rejection;
use longhaul_engine::command::RenewExecutionTask;
use longhaul_engine::conductor::execution::command::claim::HeldTask;
use longhaul_engine::conductor::execution::command::update::{Report, TaskTarget};
use longhaul_protocol::conductor::ResultStatus;
use longhaul_protocol::id::RunId;
use serde_json::{Value, json};

use crate::conductor::world::{SERVED_SECONDS, World, members, report, simple, with};

fn http(more: Value) -> Value {
    let node = json!({"name": "call", "taskReferenceName": "h", "type": "HTTP",
        "inputParameters": {"http_request": {"uri": "http://a.example", "method": "GET"}}});
    with(node, more)
}

fn world(more: Value) -> (World, RunId) {
    let mut world = World::with_tasks(json!([http(more), simple("z")]));
    let run = world.start("w", json!({}));
    (world, run)
}

/// Lets a server take the task. Returns what it holds.
fn held(world: &mut World, run: &RunId, server: &str) -> HeldTask {
    let (_, seq) = world.poll("HTTP", server).expect("the task is ready");
    let task = world.runs[run].task(seq).unwrap();
    HeldTask {
        task_id: task.id.clone(),
        seq,
        poll_count: task.poll_count,
    }
}

fn renew(world: &mut World, run: &RunId, held: &HeldTask) -> bool {
    let command = RenewExecutionTask {
        held: held.clone(),
        seconds: SERVED_SECONDS,
    };
    world.act(run, &command).unwrap()
}

fn end(world: &mut World, run: &RunId, held: &HeldTask, status: ResultStatus) -> bool {
    let report = report(status, json!({"response": {"statusCode": 200}}), None);
    match world.update(run, TaskTarget::Held(held.clone()), report) {
        Ok(_) => true,
        Err(Rejection::TaskNotFound) => false,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_server_takes_and_completes_a_task() {
    let (mut world, run) = world(json!({}));
    let record = world.record(&run, "h");
    assert_eq!(record["status"], "SCHEDULED");
    assert_eq!(record["inputData"]["asyncComplete"], json!(false));
    let held = held(&mut world, &run, "server-1");
    let record = world.record(&run, "h");
    assert_eq!(
        (&record["status"], &record["workerId"], &record["pollCount"]),
        (&json!("IN_PROGRESS"), &json!("server-1"), &json!(1))
    );
    assert!(end(&mut world, &run, &held, ResultStatus::Completed));
    assert_eq!(world.trace(&run), "h C, z S");
    assert!(!end(&mut world, &run, &held, ResultStatus::Failed));
    assert!(!renew(&mut world, &run, &held));
}

#[test]
fn a_lease_that_ends_puts_the_same_attempt_back_into_its_queue() {
    let (mut world, run) = world(json!({}));
    let first = held(&mut world, &run, "server-1");
    world.wait_seconds(SERVED_SECONDS - 1);
    assert_eq!(world.poll("HTTP", "server-2"), None);
    assert!(renew(&mut world, &run, &first));
    world.wait_seconds(SERVED_SECONDS - 1);
    assert_eq!(world.trace(&run), "h P");
    world.wait_seconds(1);
    assert_eq!(world.trace(&run), "h S");
    assert!(!renew(&mut world, &run, &first), "the lease is over");
    assert!(!end(&mut world, &run, &first, ResultStatus::Completed));
    let second = held(&mut world, &run, "server-2");
    assert_eq!((second.seq, second.poll_count), (first.seq, 2));
    assert!(
        !end(&mut world, &run, &first, ResultStatus::Completed),
        "another server has it"
    );
    assert!(!renew(&mut world, &run, &first));
    assert!(end(&mut world, &run, &second, ResultStatus::Completed));
    assert_eq!(world.trace(&run), "h C, z S");
}

#[test]
fn a_task_waits_for_an_update_if_its_node_says_so() {
    let own = json!({"asyncComplete": false, "http_request": {"uri": "http://a.example", "method": "GET"}});
    let (mut world, run) = world(json!({"asyncComplete": true, "inputParameters": own}));
    assert_eq!(
        world.record(&run, "h")["inputData"]["asyncComplete"],
        json!(true),
        "the node decides, not its input"
    );
    let held = held(&mut world, &run, "server-1");
    let output = members(json!({"response": {"statusCode": 202}}));
    let awaits = Report::AwaitsUpdate { output };
    world
        .update(&run, TaskTarget::Held(held.clone()), awaits)
        .unwrap();
    world.wait_seconds(100_000);
    assert_eq!(world.trace(&run), "h P");
    assert!(!renew(&mut world, &run, &held));
    assert_eq!(
        world.record(&run, "h")["outputData"]["response"]["statusCode"],
        json!(202)
    );
    world.complete(&run, "h", json!({"from": "outside"}));
    assert_eq!(world.trace(&run), "h C, z S");
}

#[test]
fn an_output_over_the_limit_fails_a_task_that_would_wait() {
    let (mut world, run) = world(json!({"asyncComplete": true}));
    let held = held(&mut world, &run, "server-1");
    let output = members(json!({"response": "x".repeat(11 << 20)}));
    let awaits = Report::AwaitsUpdate { output };
    world.update(&run, TaskTarget::Held(held), awaits).unwrap();
    assert_eq!(world.trace(&run), "h Z");
    assert!(world.reason(&run).contains("(limit: task output)"));
}

#[test]
fn changes_from_outside_win_over_a_call_under_way() {
    // Completed, failed, put back into its queue, and the whole run terminated.
    let (mut completed, run) = world(json!({}));
    let call = held(&mut completed, &run, "server-1");
    completed.complete(&run, "h", json!({"by": "hand"}));
    assert!(!end(&mut completed, &run, &call, ResultStatus::Failed));
    assert_eq!(completed.trace(&run), "h C, z S");

    let (mut queued, run) = world(json!({}));
    let call = held(&mut queued, &run, "server-1");
    queued
        .report(&run, "h", ResultStatus::InProgress, json!({}), None)
        .unwrap();
    assert!(!end(&mut queued, &run, &call, ResultStatus::Completed));
    let again = held(&mut queued, &run, "server-1");
    assert!(!end(&mut queued, &run, &call, ResultStatus::Completed));
    assert!(end(&mut queued, &run, &again, ResultStatus::Completed));

    let (mut terminated, run) = world(json!({}));
    let call = held(&mut terminated, &run, "server-1");
    terminated.terminate(&run, "enough").unwrap();
    assert!(!end(&mut terminated, &run, &call, ResultStatus::Completed));
    assert!(!renew(&mut terminated, &run, &call));
    assert_eq!(terminated.trace(&run), "h X");
}

#[test]
fn a_task_is_tried_again_by_its_definition_and_times_out() {
    let mut world = World::with_tasks(json!([http(json!({})), simple("z")]));
    world.task_def(json!({"name": "call", "retryCount": 1, "retryDelaySeconds": 5, "responseTimeoutSeconds": 30}));
    let run = world.start("w", json!({}));
    let first = held(&mut world, &run, "server-1");
    assert!(end(&mut world, &run, &first, ResultStatus::Failed));
    assert_eq!(world.poll("HTTP", "server-1"), None);
    world.wait_seconds(5);
    let second = held(&mut world, &run, "server-1");
    let input = &world.record(&run, "h")["inputData"];
    assert_eq!(input["asyncComplete"], json!(false));
    // A server that renews for longer than the response may take loses the task.
    for _ in 0..2 {
        world.wait_seconds(10);
        assert!(renew(&mut world, &run, &second));
    }
    world.wait_seconds(10);
    assert!(!renew(&mut world, &run, &second));
    assert_eq!(world.trace(&run), "h Fr, h T");
    assert_eq!(world.status(&run), "TIMED_OUT");
}

#[test]
fn a_dynamic_task_may_be_one_of_the_server() {
    let node = json!({"name": "d", "taskReferenceName": "h", "type": "DYNAMIC", "dynamicTaskNameParam": "which",
        "asyncComplete": true, "inputParameters": {"which": "HTTP", "uri": "http://a.example"}});
    let mut world = World::with_tasks(json!([node]));
    let mut new = world.new_execution("w", json!({}));
    new.task_to_domain = std::sync::Arc::new([("*".to_owned(), "d".to_owned())].into());
    let run = world.create(&new);
    let held = held(&mut world, &run, "server-1");
    let record = world.record(&run, "h");
    assert_eq!(record["taskType"], "HTTP");
    assert_eq!(record["inputData"]["asyncComplete"], json!(true));
    assert!(end(&mut world, &run, &held, ResultStatus::Completed));
    assert_eq!(world.status(&run), "COMPLETED");
}

#[test]
fn a_jq_program_sees_the_whole_input() {
    let jq = |reference: &str, program: &str| {
        json!({"name": "jq", "taskReferenceName": reference, "type": "JSON_JQ_TRANSFORM",
            "inputParameters": {"queryExpression": program, "xs": "${workflow.input.xs}"}})
    };
    let mut world = World::with_tasks(json!([jq("a", ".xs"), jq("b", "empty"), simple("z")]));
    let run = world.start("w", json!({"xs": [1, 2]}));
    assert_eq!(world.trace(&run), "a C, b C, z S");
    let record = world.record(&run, "a");
    assert_eq!(
        record["outputData"],
        json!({"result": [1, 2], "resultList": [[1, 2], "second"]})
    );
    assert_eq!(record["taskType"], "JSON_JQ_TRANSFORM");
    assert_eq!(
        world.record(&run, "b")["outputData"],
        json!({"result": null, "resultList": []})
    );
}

#[test]
fn a_jq_program_that_fails_is_tried_again_by_its_definition() {
    let node = json!({"name": "jq", "taskReferenceName": "a", "type": "JSON_JQ_TRANSFORM", "inputParameters": {}});
    let mut world = World::with_tasks(json!([node, simple("z")]));
    world.task_def(json!({"name": "jq", "retryCount": 1, "retryDelaySeconds": 3, "inputTemplate": {"queryExpression": "1 | .a"}}));
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "a Fr, a S");
    world.wait_seconds(3);
    assert_eq!(world.trace(&run), "a Fr, a F");
    let record = world.record(&run, "a");
    assert_eq!(
        record["outputData"],
        json!({"error": "Cannot index number"})
    );
    assert_eq!(record["reasonForIncompletion"], "Cannot index number");
    let mut world = World::with_tasks(
        json!([{"name": "jq", "taskReferenceName": "a", "type": "JSON_JQ_TRANSFORM", "optional": true,
        "inputParameters": {"queryExpression": 7}}, simple("z")]),
    );
    let run = world.start("w", json!({}));
    assert_eq!(world.trace(&run), "a E, z S");
    let reason = world.record(&run, "a")["reasonForIncompletion"].clone();
    assert_eq!(
        reason,
        "Missing 'queryExpression' in JSON_JQ_TRANSFORM task."
    );
}

#[test]
fn values_of_the_environment_are_stored_and_secrets_are_not() {
    let inputs = json!({"region": "${workflow.env.REGION}", "port": "${workflow.env.DB.port}", "home": "at ${HOME}",
        "none": "${workflow.env.NONE}", "key": "Bearer ${workflow.secrets.KEY}"});
    let mut world = World::with_tasks(json!([with(
        simple("a"),
        json!({"inputParameters": inputs})
    )]));
    let map = |pairs: &[(&str, &str)]| {
        let owned = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        std::sync::Arc::new(owned.collect())
    };
    world.environment.of_workflows = map(&[("REGION", "north"), ("DB", r#"{"port": 1}"#)]);
    world.environment.named = map(&[("HOME", "/home")]);
    let run = world.start("w", json!({}));
    assert_eq!(
        world.record(&run, "a")["inputData"],
        json!({"region": "north", "port": 1, "home": "at /home", "none": null, "key": "Bearer ${workflow.secrets.KEY}"})
    );
}
