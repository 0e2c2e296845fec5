//! Calls of HTTP tasks, against a server of the test's own.

mod addresses;
mod answers;
mod server;

use longhaul_host::TaskEnd;
use longhaul_protocol::conductor::{Object, ResultStatus};
use longhaul_system::{Addresses, HttpCalls};
use serde_json::{Value, json};

fn input(request: Value) -> Object {
    match json!({ "http_request": request }) {
        Value::Object(input) => input,
        _ => unreachable!("it is an object"),
    }
}

/// Makes the call of a task that may call every address.
async fn call(request: Value) -> TaskEnd {
    HttpCalls::new(Addresses::All).call(&input(request)).await
}

/// Returns the response of a call that has completed.
fn completed(end: TaskEnd) -> Value {
    assert_eq!(end.status, ResultStatus::Completed, "{end:?}");
    assert_eq!(end.reason, None);
    end.output["response"].clone()
}

/// Returns the reason and the response of a call that has failed.
fn failed(end: TaskEnd) -> (String, Value) {
    assert_eq!(end.status, ResultStatus::Failed, "{end:?}");
    (end.reason.unwrap(), end.output["response"].clone())
}
