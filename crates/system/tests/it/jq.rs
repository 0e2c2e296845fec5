//! jq programs, in the same processes.

use std::time::Duration;

use longhaul_system::{Failure, Limit, Limits, Scripts};
use serde_json::{Value, json};

use crate::{SCRIPTS, raw};

async fn results(program: &str, input: &str) -> Vec<Value> {
    SCRIPTS
        .evaluate_jq(program, &raw(input))
        .await
        .unwrap_or_else(|failure| panic!("{program}: {failure}"))
}

#[tokio::test]
async fn a_program_returns_all_of_its_results() {
    for (program, input, expected) in [
        (".[]", r#"[1,"a",1.5,null]"#, json!([1, "a", 1.5, null])),
        ("empty", "1", json!([])),
        (
            "{a: .x, b: [.y[] | select(. > 1)]}",
            r#"{"x":"é","y":[1,2,3]}"#,
            json!([{"a": "é", "b": [2, 3]}]),
        ),
        (".a.b", r#"{"a":{}}"#, json!([null])),
        (
            "to_entries | map(.key)",
            r#"{"b":1,"a":2}"#,
            json!([["b", "a"]]),
        ),
        (
            "[.[] | ascii_downcase] | join(\"-\")",
            r#"["A","B"]"#,
            json!(["a-b"]),
        ),
        ("6 / 2", "null", json!([3])),
        (".", "1.0", json!([1])),
        ("nan, infinite", "null", json!([null, f64::MAX])),
        ("1, halt, 2", "null", json!([1])),
        (
            "test(\"^a.c$\"), (todate | type)?",
            "\"abc\"",
            json!([true]),
        ),
        ("def f(x): x * 2; f(.)", "21", json!([42])),
        ("reduce .[] as $n (0; . + $n)", "[1,2,3]", json!([6])),
    ] {
        assert_eq!(
            Value::Array(results(program, input).await),
            expected,
            "{program}"
        );
    }
}

#[tokio::test]
async fn an_error_has_a_message() {
    for (program, part, line) in [
        (".a.b", "index", None),
        ("error(\"no way\")", "no way", None),
        (".a |", "syntax error", Some(1)),
        ("1 |\nmissing(2)", "missing", Some(2)),
        ("halt_error", "code 5", None),
        ("include \"file\"; 1", "", None),
        ("input", "input", Some(1)),
    ] {
        match SCRIPTS.evaluate_jq(program, &raw(r#"{"a":5}"#)).await {
            Err(Failure::Script {
                message,
                line: found,
            }) => {
                assert!(message.contains(part), "{program}: {message}");
                assert_eq!(found, line, "{program}: {message}");
            }
            other => panic!("{program}: {other:?}"),
        }
    }
}

/// Checks that a program reaches a limit, and that the pool works afterwards.
async fn check(cpu: Duration, program: &str, limit: fn(&Limits) -> Limit) {
    let limits = Limits {
        cpu,
        wall: Duration::from_secs(120),
        processes: 1,
        ..Limits::default()
    };
    let pool = Scripts::new(limits.clone());
    let input = raw("1");
    let result = pool.evaluate_jq(program, &input).await;
    assert_eq!(result, Err(Failure::Limit(limit(&limits))), "{program}");
    assert_eq!(pool.evaluate("1 + 1", &input).await, Ok(json!(2)));
    assert_eq!(pool.evaluate_jq(". + 1", &input).await, Ok(vec![json!(2)]));
}

#[tokio::test]
async fn an_endless_program_reaches_the_processor_limit() {
    for program in ["def f: f; f", "last(range(1e12))", "def g: empty, g; g"] {
        check(Duration::from_millis(200), program, |limits| {
            Limit::Cpu(limits.cpu)
        })
        .await;
    }
}

#[tokio::test]
async fn a_program_without_bound_reaches_the_limits_of_memory_stack_and_result() {
    let cpu = Duration::from_secs(30);
    let memory = |limits: &Limits| Limit::Memory(limits.memory_bytes);
    check(cpu, "[limit(1e9; repeat(\"some text\"))]", memory).await;
    check(cpu, "reduce range(100) as $i (\"x\"; . + .)", memory).await;
    check(cpu, "def f: 1 + f; f", |limits| {
        Limit::Stack(limits.stack_bytes)
    })
    .await;
    let result = |limits: &Limits| Limit::Result(limits.result_bytes);
    check(cpu, "\"x\" * 100000 | repeat(.)", result).await;
}

#[tokio::test]
async fn a_deep_result_is_an_error() {
    let program = "reduce range(101) as $i (1; [.])";
    match SCRIPTS.evaluate_jq(program, &raw("1")).await {
        Err(Failure::Script { message, .. }) => {
            assert_eq!(message, "a result is nested too deeply")
        }
        other => panic!("{other:?}"),
    }
}
