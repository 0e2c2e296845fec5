//! Errors of scripts: their text and line.

use longhaul_system::Failure;

use crate::{evaluate, thrown};

#[tokio::test]
async fn an_uncaught_error_has_its_text_and_line() {
    for (script, message, line) in [
        (
            "$.a.b",
            "TypeError: cannot read property 'b' of undefined",
            Some(1),
        ),
        (
            "var a = 1;\n\nmissing + a",
            "ReferenceError: missing is not defined",
            Some(3),
        ),
        (
            "function f() {\n  throw new RangeError('too far');\n}\nf();",
            "RangeError: too far",
            Some(2),
        ),
        ("throw new Error()", "Error", Some(1)),
        (
            "const e = new Error('one');\ne.name = 'Odd';\nthrow e",
            "Odd: one",
            Some(1),
        ),
        (
            "\nJSON.parse('nonsense')",
            "SyntaxError: unexpected token: 'nonsense'",
            Some(2),
        ),
        (
            "\n\n[1].reduce(() => { null.x });\n[].reduce(() => 1)",
            "TypeError: empty array",
            Some(4),
        ),
    ] {
        let found = thrown(script).await;
        assert_eq!(found.1, line, "{script}: {found:?}");
        assert_eq!(found.0, message, "{script}");
    }
}

#[tokio::test]
async fn the_text_for_the_user_names_error_and_line() {
    let failure = evaluate("\n$.a.b", "{}").await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "Error evaluating the script `TypeError: cannot read property 'b' of undefined` at line 2"
    );
    assert!(!failure.is_retriable());
}

#[tokio::test]
async fn anything_can_be_thrown() {
    for (script, message) in [
        ("throw 'plain text'", "plain text"),
        ("throw 42", "42"),
        ("throw null", "null"),
        ("throw undefined", "undefined"),
        ("throw {code: 7}", "{\"code\":7}"),
        ("throw [1]", "[1]"),
        ("throw Symbol('s')", "a thrown symbol"),
        ("throw 5n", "5"),
        ("const o = {}; o.o = o; throw o", "[object Object]"),
        (
            "throw {get x() { throw 1 }, toString() { throw 2 }}",
            "a thrown object",
        ),
        (
            "const e = new Error('m'); Object.defineProperty(e, 'stack', {value: 5}); e.name = {}; throw e",
            "Error: m",
        ),
    ] {
        assert_eq!(thrown(script).await, (message.to_owned(), None), "{script}");
    }
}

#[tokio::test]
async fn an_error_that_hides_its_text_is_named() {
    let script = "const e = new Error('m'); Object.defineProperty(e, 'message', {get() { throw 1 }}); throw e";
    assert_eq!(thrown(script).await, ("Error".to_owned(), Some(1)));
}

#[tokio::test]
async fn a_long_text_is_cut() {
    let (message, _) = thrown("throw new Error('é'.repeat(1e6))").await;
    assert!(message.len() < 3000, "{}", message.len());
}

#[tokio::test]
async fn a_syntax_error_has_its_line() {
    for (script, line) in [
        ("let a = ;", 1),
        ("let a = 1;\n\nlet b = ;", 3),
        ("function f() {\n", 2),
        ("if (true) {\n  return 1;\n}", 2),
        ("import x from 'y'", 1),
    ] {
        let (message, found) = thrown(script).await;
        assert!(message.starts_with("SyntaxError: "), "{message}");
        assert_eq!(found, Some(line), "{script}: {message}");
    }
}

#[tokio::test]
async fn a_script_with_a_zero_byte_is_an_error() {
    let result = evaluate("1\0", "{}").await;
    assert!(matches!(result, Err(Failure::Script { .. })), "{result:?}");
}
