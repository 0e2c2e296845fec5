//! Checking a script without running it.

use longhaul_system::{Failure, Limit};

use crate::SCRIPTS;

#[tokio::test]
async fn a_correct_script_passes_and_does_not_run() {
    for script in [
        "$.a.b.c",
        "throw 'never'",
        "for (;;);",
        "let a = 1; a",
        "",
        "// only a comment",
        "function f() { return f() } f()",
        "with ($) { a }",
        "'use strict'; let a = 1",
        "let $ = 1",
        "var undefined",
    ] {
        assert_eq!(SCRIPTS.check_syntax(script).await, Ok(()), "{script}");
    }
}

#[tokio::test]
async fn a_wrong_script_has_a_line() {
    for (script, wrong) in [
        ("let a = ;", 1),
        ("a\nb c", 2),
        ("let a; let a;", 1),
        ("\n\n)", 3),
        ("'use strict';\nwith ($) { a }", 2),
        ("// strict\n'use strict';\nwith ($) { a }", 3),
        ("return 1", 1),
    ] {
        match SCRIPTS.check_syntax(script).await {
            Err(Failure::Script { message, line }) => {
                assert!(message.starts_with("SyntaxError"), "{script}: {message}");
                assert_eq!(line, Some(wrong), "{script}: {message}");
            }
            other => panic!("{script}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_wrong_regular_expression_is_found() {
    let result = SCRIPTS.check_syntax("/(/.test($)").await;
    assert!(matches!(result, Err(Failure::Script { .. })), "{result:?}");
}

#[tokio::test]
async fn a_script_that_nests_too_deeply_is_refused() {
    let script = "(".repeat(1_000_000);
    let result = SCRIPTS.check_syntax(&script).await;
    let limit = Limit::Stack(SCRIPTS.limits().stack_bytes);
    assert_eq!(result, Err(Failure::Limit(limit)));
}
