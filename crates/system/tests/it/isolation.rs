//! No evaluation sees another one, or anything of the system.

use longhaul_system::{Limits, Scripts};
use serde_json::json;

use crate::{evaluate, raw, value};

#[tokio::test]
async fn nothing_of_an_evaluation_reaches_the_next_one() {
    // One process, so that the second script runs where the first one ran.
    let scripts = Scripts::new(Limits {
        processes: 1,
        ..Limits::default()
    });
    let input = raw("{}");
    let changes = "
        leaked = 1; var alsoLeaked = 2; let third = 3;
        Object.prototype.polluted = true;
        Array.prototype.map = () => 'replaced';
        Map.prototype.forEach = () => { throw 'replaced' };
        JSON.parse = String.prototype.toWellFormed = null;
        delete globalThis.Map;
        Promise.resolve().then(() => { leakedLater = 1 });
        Symbol.for('shared').description";
    scripts.evaluate(changes, &input).await.unwrap();
    let before = scripts.process_ids();
    let checks = "[typeof leaked, typeof alsoLeaked, typeof third, typeof leakedLater, ({}).polluted === undefined,
        [1].map(x => x + 1), typeof Map, typeof JSON.parse, new Map([['a', '\\ud800']])]";
    let found = scripts.evaluate(checks, &input).await.unwrap();
    assert_eq!(
        found,
        json!(["undefined", "undefined", "undefined", "undefined", true, [2], "function", "function", {"a": "\u{fffd}"}])
    );
    assert_eq!(scripts.process_ids(), before, "both ran in one process");
}

#[tokio::test]
async fn replaced_functions_do_not_change_the_conversion() {
    let script = "Map.prototype.forEach = Set.prototype.forEach = Date.prototype.toISOString = () => { throw 1 };
        String.prototype.toWellFormed = Map.prototype[Symbol.iterator] = null; Array.prototype.push = null;
        [new Map([['a', 1]]), new Set([1]), new Date(0), '\\ud800']";
    let expected = json!([{"a": 1}, [1], "1970-01-01T00:00:00.000Z", "\u{fffd}"]);
    assert_eq!(value(script, "{}").await, expected);
    let fake = "const fake = Object.create(Map.prototype); fake";
    assert!(evaluate(fake, "{}").await.is_err());
}

#[tokio::test]
async fn nothing_of_the_system_is_reachable() {
    for name in [
        "console",
        "print",
        "load",
        "require",
        "process",
        "std",
        "os",
        "bjson",
        "scriptArgs",
        "Worker",
        "setTimeout",
        "fetch",
        "performance",
        "navigator",
        "gc",
        "WebAssembly",
        "Java",
        "Packages",
        "Polyglot",
        "loadScript",
    ] {
        let script = format!("typeof {name}");
        assert_eq!(value(&script, "{}").await, json!("undefined"), "{name}");
    }
    assert!(evaluate("import('std')", "{}").await.is_err());
    assert!(evaluate("import('/etc/passwd')", "{}").await.is_err());
    assert!(
        evaluate(
            "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0)",
            "{}"
        )
        .await
        .is_err()
    );
}

#[tokio::test]
async fn local_time_is_utc_on_every_machine() {
    assert_eq!(
        value("new Date(2024, 0, 1).toISOString()", "{}").await,
        json!("2024-01-01T00:00:00.000Z")
    );
    assert_eq!(
        value("new Date().getTimezoneOffset()", "{}").await,
        json!(0)
    );
}
