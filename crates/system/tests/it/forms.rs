//! Forms of scripts that definitions use.

use serde_json::json;

use crate::{thrown, value};

#[tokio::test]
async fn the_result_is_the_value_of_the_last_statement() {
    assert_eq!(
        value("(function(){ return $.a + $.b; })()", r#"{"a":1,"b":2}"#).await,
        json!(3)
    );
    assert_eq!(
        value("function f(){ return $.a * 2; } f();", r#"{"a":4}"#).await,
        json!(8)
    );
    assert_eq!(
        value("$.x == 'y' ? 'a' : 'b'", r#"{"x":"y"}"#).await,
        json!("a")
    );
    assert_eq!(
        value("$.x == 'y' ? 'a' : 'b'", r#"{"x":"z"}"#).await,
        json!("b")
    );
    let condition = "if ($.loop['iteration'] < 3) { true; } else { false; }";
    assert_eq!(
        value(condition, r#"{"loop":{"iteration":2}}"#).await,
        json!(true)
    );
    assert_eq!(
        value(condition, r#"{"loop":{"iteration":3}}"#).await,
        json!(false)
    );
    assert_eq!(value("1; 2; 3", "{}").await, json!(3));
    assert_eq!(value("var a = 1;", "{}").await, json!(null));
    assert_eq!(
        value("for (var i = 0; i < 3; i++) { i * 10; }", "{}").await,
        json!(20)
    );
    assert_eq!(
        value(
            "switch ($.k) { case 1: 'one'; break; default: 'other'; }",
            r#"{"k":1}"#
        )
        .await,
        json!("one")
    );
    assert_eq!(value("", "{}").await, json!(null));
    assert_eq!(value("// nothing", "{}").await, json!(null));
}

#[tokio::test]
async fn the_language_is_modern() {
    for (script, expected) in [
        ("[1, 2, 3].map(x => x * 2)", json!([2, 4, 6])),
        ("`${$.name}!`", json!("you!")),
        (
            "({...$, extra: [...'ab']})",
            json!({"name": "you", "extra": ["a", "b"]}),
        ),
        ("$.none?.deeper ?? 'default'", json!("default")),
        ("const {name} = $; name", json!("you")),
        (
            "class A { #x = 4; get x() { return this.#x } } new A().x",
            json!(4),
        ),
        (
            "'2024-05'.match(/(?<year>\\d+)-/).groups.year",
            json!("2024"),
        ),
        (
            "JSON.parse('[1]').concat(JSON.stringify({a: 1}))",
            json!([1, "{\"a\":1}"]),
        ),
        ("[3, 1, 2].toSorted().at(-1)", json!(3)),
        ("Object.fromEntries(new Map([['a', 1]]))", json!({"a": 1})),
        (
            "Object.groupBy([1, 2, 3], x => x % 2 ? 'odd' : 'even')",
            json!({"odd": [1, 3], "even": [2]}),
        ),
        ("let n = null; n ??= 5; n ** 2", json!(25)),
        ("function* g() { yield 1; yield 2 } [...g()]", json!([1, 2])),
        ("1_000_000", json!(1_000_000)),
        ("new Uint8Array([1, 2]).length", json!(2)),
        (
            "typeof Math.random() + typeof Date.now()",
            json!("numbernumber"),
        ),
    ] {
        assert_eq!(
            value(script, r#"{"name":"you"}"#).await,
            expected,
            "{script}"
        );
    }
}

#[tokio::test]
async fn loose_code_is_accepted_as_long_as_it_does_not_ask_for_strictness() {
    assert_eq!(
        value(
            "total = 0; for (i of $.list) total += i; total",
            r#"{"list":[1,2]}"#
        )
        .await,
        json!(3)
    );
    assert_eq!(
        value("(function() { return this === globalThis })()", "{}").await,
        json!(true)
    );
    let (message, _) = thrown("'use strict'; total = 0").await;
    assert!(message.starts_with("ReferenceError"), "{message}");
}

#[tokio::test]
async fn the_input_is_a_copy_that_the_script_may_change() {
    assert_eq!(
        value("$.list.push(3); $.list", r#"{"list":[1]}"#).await,
        json!([1, 3])
    );
    assert_eq!(value("var $ = 5; $", "{}").await, json!(5));
    for input in ["null", "7", "\"text\"", "[1,2]", "true", "1.5"] {
        let expected: serde_json::Value = serde_json::from_str(input).unwrap();
        assert_eq!(value("$", input).await, expected);
    }
}

#[tokio::test]
async fn hidden_names_in_the_input_are_data() {
    let input =
        r#"{"__proto__":{"isAdmin":true},"constructor":1,"toString":"x","a":{"__proto__":null}}"#;
    assert_eq!(value("$.isAdmin === undefined", input).await, json!(true));
    assert_eq!(
        value("Object.keys($).join()", input).await,
        json!("__proto__,constructor,toString,a")
    );
    assert_eq!(
        value("({}).isAdmin === undefined", input).await,
        json!(true)
    );
    let expected: serde_json::Value = serde_json::from_str(input).unwrap();
    assert_eq!(value("$", input).await, expected);
}

#[tokio::test]
async fn promises_are_awaited() {
    assert_eq!(
        value("(async () => { return await $.a + 1; })()", r#"{"a":1}"#).await,
        json!(2)
    );
    assert_eq!(
        value(
            "const out = {}; Promise.resolve(4).then(v => { out.v = v }); out",
            "{}"
        )
        .await,
        json!({"v": 4})
    );
    let (message, _) = thrown("new Promise(() => {})").await;
    assert_eq!(message, "the script returned a promise that never settles");
    let (message, line) = thrown("\nPromise.reject(new TypeError('no'))").await;
    assert_eq!((message.as_str(), line), ("TypeError: no", Some(2)));
}
