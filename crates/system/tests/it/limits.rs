//! Scripts that never end, or that take too much.

use std::time::Duration;

use longhaul_system::{Failure, Limit, Limits, Scripts};
use serde_json::json;

use crate::raw;

/// Short limits, so that the tests are quick.
fn small() -> Limits {
    Limits {
        cpu: Duration::from_millis(100),
        wall: Duration::from_secs(60),
        processes: 1,
        patience: Duration::from_secs(600),
        ..Limits::default()
    }
}

/// Checks that every script reaches the limit, that the next evaluation works, and whether the process survives.
async fn check(limits: Limits, scripts: &[&str], limit: Limit, stays: bool) {
    let pool = Scripts::new(limits);
    let input = raw("{}");
    for script in scripts {
        assert_eq!(pool.evaluate("1 + 1", &input).await, Ok(json!(2)));
        let before = pool.process_ids();
        let result = pool.evaluate(script, &input).await;
        assert_eq!(result, Err(Failure::Limit(limit)), "{script}");
        assert_eq!(
            pool.evaluate("1 + 1", &input).await,
            Ok(json!(2)),
            "after {script}"
        );
        assert_eq!(pool.process_ids() == before, stays, "{script}");
    }
}

#[tokio::test]
async fn an_endless_script_is_interrupted_and_its_process_stays() {
    let limits = small();
    let limit = Limit::Cpu(limits.cpu);
    let scripts = [
        "for (;;);",
        "for (;;) try { for (;;); } catch (e) { } finally { }",
        "(async () => { for (;;) await 0 })()",
        "function f() { Promise.resolve().then(f) } f()",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        "let a = []; a.length = 4e9; a.indexOf(5)",
        "({get x() { for (;;); }})",
        "throw {toString() { for (;;); }, get x() { for (;;); }}",
        "new Proxy({}, {ownKeys() { for (;;); }})",
        "const e = new Error(); Object.defineProperty(e, 'message', {get() { for (;;); }}); throw e",
    ];
    check(limits, &scripts, limit, true).await;
}

#[tokio::test]
async fn an_endless_native_call_is_killed() {
    let limits = small();
    let limit = Limit::Cpu(limits.cpu);
    let scripts = [
        "new Array(1e9) + ''",
        "Array.prototype.reverse.call({length: 2 ** 53 - 1})",
    ];
    check(limits, &scripts, limit, false).await;
}

#[tokio::test]
async fn the_clock_limit_ends_what_the_processor_limit_does_not() {
    let limits = Limits {
        cpu: Duration::from_secs(600),
        wall: Duration::from_millis(200),
        ..small()
    };
    let limit = Limit::Wall(limits.wall);
    check(limits.clone(), &["for (;;);"], limit, true).await;
    check(limits, &["new Array(1e9) + ''"], limit, false).await;
}

#[tokio::test]
async fn endless_recursion_reaches_the_stack_limit() {
    let limits = small();
    let limit = Limit::Stack(limits.stack_bytes);
    let scripts = [
        "function f() { return f() + 1 } f()",
        "const a = {get a() { return this.a }}; a.a",
        "JSON.stringify((() => { let r = []; for (let i = 0; i < 1e5; i++) r = [r]; return r })())",
        "let o = {toString() { return '' + o }}; '' + o",
        "eval('('.repeat(1e6))",
    ];
    // The last scripts need many objects before they recurse.
    let limits = Limits {
        cpu: Duration::from_secs(10),
        ..limits
    };
    check(limits, &scripts, limit, true).await;
}

#[tokio::test]
async fn a_stack_limit_of_its_own_is_respected() {
    let depth = "let n = 0; function f() { n++; f() } try { f() } catch (e) { } n";
    let mut depths = Vec::new();
    for stack_bytes in [128 << 10, 8 << 20] {
        let pool = Scripts::new(Limits {
            stack_bytes,
            cpu: Duration::from_secs(10),
            ..small()
        });
        depths.push(
            pool.evaluate(depth, &raw("{}"))
                .await
                .unwrap()
                .as_i64()
                .unwrap(),
        );
    }
    assert!(depths[0] > 50 && depths[1] > depths[0] * 20, "{depths:?}");
}

#[tokio::test]
async fn allocation_without_bound_reaches_the_memory_limit() {
    let limits = Limits {
        cpu: Duration::from_secs(10),
        ..small()
    };
    let limit = Limit::Memory(limits.memory_bytes);
    let scripts = [
        "let all = []; for (;;) all.push(new Array(1000).fill(1))",
        "(function() { let all = []; for (;;) all.push({a: all.length}) })()",
        "let s = 'x'; let all = []; for (;;) { all.push(s.repeat(1e6)) }",
        "new ArrayBuffer(1e9)",
        "new SharedArrayBuffer(1e9)",
        "new Uint8Array(1e9)",
        "'x'.repeat(5e8)",
        "let m = new Map(); for (let i = 0;; i++) m.set(i, [i])",
        "let r = []; for (;;) r = [r]",
    ];
    let pool = Scripts::new(limits);
    let input = raw("{}");
    for script in scripts {
        let result = pool.evaluate(script, &input).await;
        assert_eq!(result, Err(Failure::Limit(limit)), "{script}");
        assert_eq!(
            pool.evaluate("1 + 1", &input).await,
            Ok(json!(2)),
            "after {script}"
        );
    }
}

#[tokio::test]
async fn a_process_that_used_much_memory_is_replaced() {
    let pool = Scripts::new(small());
    let input = raw("{}");
    pool.evaluate("1", &input).await.unwrap();
    let before = pool.process_ids();
    let large = "new Uint8Array(50e6).fill(1).length";
    assert_eq!(pool.evaluate(large, &input).await, Ok(json!(50_000_000)));
    assert_eq!(pool.evaluate("1 + 1", &input).await, Ok(json!(2)));
    assert_ne!(pool.process_ids(), before);
}

#[tokio::test]
async fn a_thrown_null_is_no_lack_of_memory() {
    let pool = Scripts::new(small());
    let result = pool.evaluate("throw null", &raw("{}")).await;
    assert!(matches!(result, Err(Failure::Script { .. })), "{result:?}");
}

#[tokio::test]
async fn a_script_may_catch_what_it_can_survive() {
    let pool = Scripts::new(Limits {
        cpu: Duration::from_secs(10),
        ..small()
    });
    let input = raw("{}");
    let script = "let text; try { (function f() { f() })() } catch (e) { text = e.name } text";
    assert_eq!(pool.evaluate(script, &input).await, Ok(json!("RangeError")));
    let script = "try { new ArrayBuffer(1e9) } catch (e) { 'caught' }";
    assert_eq!(pool.evaluate(script, &input).await, Ok(json!("caught")));
}
