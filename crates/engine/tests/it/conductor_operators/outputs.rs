//! `cacheConfig`: outputs that later tasks take.

use serde_json::{Value, json};

use crate::conductor::world::{World, simple, with};

fn cached(more: Value) -> World {
    let config = json!({
        "inputParameters": {"user": "${workflow.input.user}", "noise": "${workflow.input.noise}"},
        "cacheConfig": {"key": "${user}-x", "ttlInSecond": 60},
    });
    World::with_tasks(json!([with(with(simple("t"), config), more), simple("z")]))
}

#[test]
fn an_equal_key_takes_the_earlier_output() {
    let mut world = cached(json!({}));
    let first = world.start("w", json!({"user": "ann", "noise": 1}));
    assert_eq!(world.trace(&first), "t S");
    world.complete(&first, "t", json!({"n": 7}));
    let second = world.start("w", json!({"user": "ann", "noise": 2}));
    assert_eq!(world.trace(&second), "t C, z S");
    let record = world.record(&second, "t");
    assert_eq!(record["outputData"], json!({"n": 7}));
    assert_eq!(record["inputData"], json!({"user": "ann", "noise": 2}));
    let other = world.start("w", json!({"user": "bob"}));
    assert_eq!(world.trace(&other), "t S");
    world.wait_seconds(60);
    let late = world.start("w", json!({"user": "ann"}));
    assert_eq!(world.trace(&late), "t S", "the output has expired");
}

#[test]
fn only_small_outputs_of_completed_tasks_are_kept() {
    let mut world = cached(json!({"optional": true, "retryCount": 0}));
    let failed = world.start("w", json!({"user": "ann"}));
    world.fail(&failed, "t", "broken");
    let next = world.start("w", json!({"user": "ann"}));
    assert_eq!(world.trace(&next), "t S");
    world.complete(&next, "t", json!({"text": "x".repeat(40_000)}));
    let next = world.start("w", json!({"user": "ann"}));
    assert_eq!(world.trace(&next), "t S");
}

#[test]
fn a_key_is_per_task_name_and_a_time_of_zero_turns_it_off() {
    let mut world = cached(json!({"cacheConfig": {"key": "${user}", "ttlInSecond": 0}}));
    let first = world.start("w", json!({"user": "ann"}));
    world.complete(&first, "t", json!({"n": 7}));
    let second = world.start("w", json!({"user": "ann"}));
    assert_eq!(world.trace(&second), "t S");

    let node = |name: &str| {
        with(
            simple(name),
            json!({"cacheConfig": {"key": "same", "ttlInSecond": 60}}),
        )
    };
    let mut world = World::with_tasks(json!([node("a"), node("b")]));
    let run = world.start("w", json!({}));
    world.complete(&run, "a", json!({"n": 1}));
    assert_eq!(world.trace(&run), "a C, b S");
}
