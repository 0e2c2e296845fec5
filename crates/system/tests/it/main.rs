//! Scripts through the public calls, with real child processes: this test binary starts itself again.

#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

mod conversion;
mod errors;
mod forms;
mod http;
mod isolation;
mod jq;
mod limits;
mod pool;
mod processes;
mod schemas;
mod syntax;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use longhaul_system::{Failure, Limits, Scripts};
use serde_json::Value;
use serde_json::value::RawValue;

/// The pool of all tests that need no limits of their own. The machine may be busy with other tests, so its clock limit is generous.
static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    Scripts::new(Limits {
        wall: Duration::from_secs(60),
        patience: Duration::from_secs(600),
        ..Limits::default()
    })
});

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Evaluates a script with the shared pool.
async fn evaluate(script: &str, input: &str) -> Result<Value, Failure> {
    SCRIPTS.evaluate(script, &raw(input)).await
}

/// Evaluates a script that must have a result.
async fn value(script: &str, input: &str) -> Value {
    evaluate(script, input)
        .await
        .unwrap_or_else(|failure| panic!("{script}: {failure}"))
}

/// Evaluates a script that must fail with an error of its own, and returns its text and its line.
async fn thrown(script: &str) -> (String, Option<u32>) {
    match evaluate(script, "{}").await {
        Err(Failure::Script { message, line }) => (message, line),
        other => panic!("{script}: {other:?}"),
    }
}

/// Waits until a condition is true, with a deadline for a slow machine.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the state letter of a process, or `None` if it does not exist.
fn process_state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
