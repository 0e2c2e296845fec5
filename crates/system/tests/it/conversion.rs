//! How values of a script become JSON.

use longhaul_system::{Failure, Limit};
use serde_json::json;

use crate::{SCRIPTS, evaluate, thrown, value};

#[tokio::test]
async fn values_become_json() {
    for (script, expected) in [
        ("undefined", json!(null)),
        ("null", json!(null)),
        ("NaN", json!(null)),
        ("-1 / 0", json!(null)),
        ("3.0", json!(3)),
        ("-0", json!(0)),
        ("0.1 + 0.2", json!(0.1 + 0.2)),
        ("-2.5e-7", json!(-2.5e-7)),
        ("2 ** 53", json!(9_007_199_254_740_992_i64)),
        ("-(2 ** 63)", json!(i64::MIN)),
        ("2 ** 63", json!(9_223_372_036_854_775_808_u64 as f64)),
        ("1e300", json!(1e300)),
        ("12n", json!(12)),
        ("-(2n ** 63n)", json!(i64::MIN)),
        ("2n ** 64n - 1n", json!(u64::MAX)),
        ("2n ** 64n", json!("18446744073709551616")),
        ("[1, , undefined, NaN]", json!([1, null, null, null])),
        ("({a: undefined, b: null})", json!({"a": null, "b": null})),
        (
            "({f() {}, s: Symbol('x'), [Symbol('y')]: 1, a: 1})",
            json!({"a": 1}),
        ),
        ("[() => 1, Symbol('x')]", json!([null, null])),
        ("() => 1", json!(null)),
        ("Symbol('x')", json!(null)),
        (
            "new Map([['a', 1], [2, {b: new Map()}]])",
            json!({"a": 1, "2": {"b": {}}}),
        ),
        ("new Set([1, 'a', [2]])", json!([1, "a", [2]])),
        ("new Date(0)", json!("1970-01-01T00:00:00.000Z")),
        ("new Date(NaN)", json!(null)),
        (
            "class P { constructor() { this.x = 1 } y() {} } new P()",
            json!({"x": 1}),
        ),
        (
            "Object.create({inherited: 1}, {own: {value: 2, enumerable: true}, hidden: {value: 3}})",
            json!({"own": 2}),
        ),
        ("({get a() { return 1 + 1 }})", json!({"a": 2})),
        ("new Proxy({a: 1}, {})", json!({"a": 1})),
        ("Object.create(null)", json!({})),
        ("/x/", json!({})),
        ("const s = {x: 1}; [s, s]", json!([{"x": 1}, {"x": 1}])),
        ("({'': 1, '\"': 2})", json!({"": 1, "\"": 2})),
    ] {
        assert_eq!(value(script, "{}").await, expected, "{script}");
    }
}

#[tokio::test]
async fn integral_numbers_are_integers_and_others_are_floats() {
    assert!(value("6 / 2", "{}").await.is_i64());
    assert!(value("2 ** 31", "{}").await.is_i64());
    assert!(value("1.0", "{}").await.is_i64());
    assert!(value("5 / 2", "{}").await.is_f64());
    assert!(value("$", "1.0").await.is_i64());
}

#[tokio::test]
async fn text_of_all_scripts_survives() {
    let text = "naïve 日本語 🦀 \u{0} \" \\ \u{2028}";
    let input = serde_json::to_string(&json!({"t": text, "🦀": 1})).unwrap();
    assert_eq!(value("$", &input).await, json!({"t": text, "🦀": 1}));
    assert_eq!(value("'🦀'.length", "{}").await, json!(2));
    assert_eq!(value("[...'a🦀']", "{}").await, json!(["a", "🦀"]));
    assert_eq!(
        value("'日本' + $.t.slice(0, 2)", &input).await,
        json!("日本na")
    );
}

#[tokio::test]
async fn half_of_a_surrogate_pair_becomes_the_replacement_character() {
    assert_eq!(value("'a\\ud800b'", "{}").await, json!("a\u{fffd}b"));
    assert_eq!(
        value("({'\\udc00': 1})", "{}").await,
        json!({"\u{fffd}": 1})
    );
    assert_eq!(value("$.x.length", r#"{"x":"\ud800"}"#).await, json!(1));
    assert_eq!(value("'🦀'[0]", "{}").await, json!("\u{fffd}"));
    let (message, _) = thrown("throw '\\ud800'").await;
    assert_eq!(message, "\u{fffd}");
}

#[tokio::test]
async fn a_result_that_contains_itself_is_an_error() {
    for script in [
        "const a = {}; a.a = a; a",
        "const a = []; a.push([a]); a",
        "const m = new Map(); m.set('m', m); m",
        "const s = new Set(); s.add(s); s",
    ] {
        assert_eq!(
            thrown(script).await,
            ("the result contains itself".to_owned(), None),
            "{script}"
        );
    }
}

#[tokio::test]
async fn a_deep_result_is_an_error() {
    let nested = |depth: u32| format!("let r = 1; for (let i = 0; i < {depth}; i++) r = [r]; r");
    assert!(evaluate(&nested(100), "{}").await.is_ok());
    let deep = "the result is nested too deeply".to_owned();
    assert_eq!(thrown(&nested(101)).await, (deep.clone(), None));
    assert_eq!(thrown(&nested(100_000)).await, (deep.clone(), None));
    let endless = "function next() { return {get next() { return next() }} } next()";
    assert_eq!(thrown(endless).await, (deep, None));
}

#[tokio::test]
async fn a_large_result_is_refused() {
    let allowed = SCRIPTS.limits().result_bytes;
    let refused = Err(Failure::Limit(Limit::Result(allowed)));
    for script in [
        "'x'.repeat(5e6)",
        "new Array(1e9)",
        "'x'.repeat(3e7)",
        // Shared parts double at each level.
        "let r = ['x']; for (let i = 0; i < 90; i++) r = [r, r]; r",
        "let r = {}; for (let i = 0; i < 90; i++) r = {a: r, b: r}; r",
    ] {
        assert_eq!(evaluate(script, "{}").await, refused, "{script}");
    }
    let fits = format!("'x'.repeat({})", allowed - 2);
    assert_eq!(
        value(&fits, "{}").await.as_str().unwrap().len(),
        allowed - 2
    );
}

#[tokio::test]
async fn a_large_input_is_refused_with_both_sizes() {
    let allowed = SCRIPTS.limits().input_bytes;
    let input = format!("\"{}\"", "x".repeat(allowed));
    let failure = evaluate("1", &input).await.unwrap_err();
    assert_eq!(
        failure,
        Failure::Limit(Limit::Input {
            allowed,
            actual: allowed + 3
        })
    );
    let input = format!("\"{}\"", "\\n".repeat(2 << 20));
    assert_eq!(value("$.length", &input).await, json!(2 << 20));
    let script = format!("'{}'.length", "\u{1}".repeat(2 << 20));
    assert_eq!(value(&script, "{}").await, json!(2 << 20));
}

#[tokio::test]
async fn deep_input_reaches_the_script() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(
        value(
            "let n = 0; for (let v = $; v; v = v[0]) n++; n",
            &deep(1000)
        )
        .await,
        json!(1000)
    );
    let failure = evaluate("1", &deep(1_000_000)).await.unwrap_err();
    assert_eq!(
        failure,
        Failure::Limit(Limit::Stack(SCRIPTS.limits().stack_bytes))
    );
}
