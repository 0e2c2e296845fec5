//! Fakes of the clients that a runner uses, for tests of workers without a server.
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_conductor_sdk::events::EventDispatcher;
//! use longhaul_conductor_sdk::runner::TaskRunner;
//! use longhaul_conductor_sdk::testing::{FakeTasks, FakeUpdate, task};
//! use longhaul_conductor_sdk::worker_task;
//! use serde_json::json;
//!
//! #[worker_task("double")]
//! async fn double(number: i64) -> i64 {
//!     number * 2
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tasks = FakeTasks::returning(vec![vec![task("double", json!({"number": 21}))]]);
//! let mut runner = TaskRunner::new(double::worker(), tasks.clone(), EventDispatcher::silent())?;
//! runner.run_once().await;
//! runner.drain().await;
//! assert_eq!(tasks.results()[0].result.output_data["result"], 42);
//!
//! // Without polls: the result of one task.
//! let result = runner.execute_task(task("double", json!({"number": "4"}))).await;
//! assert_eq!(result.output_data["result"], 8);
//! # Ok(())
//! # }
//! ```
//!
//! The waits of a runner are those of tokio: a test with `#[tokio::test(start_paused = true)]` skips them. To run a whole workflow with
//! its workers and skipped time, use `longhaul_embedded::testing::conductor`.

#[cfg(test)]
pub(crate) mod capture;
mod registry;
mod tasks;

use longhaul_protocol::conductor::Task;
use longhaul_transport::{Refusal, RequestError, Response};
use serde_json::Value;

pub use registry::{FakeMetadata, FakeSchemas};
pub use tasks::{FakeTasks, FakeUpdate, SentPoll, SentResult};

/// Returns a task of this type, as a poll returns it.
///
/// # Panics
/// If the input is not an object.
#[must_use]
pub fn task(task_type: &str, input: Value) -> Task {
    let input_data = match input {
        Value::Object(input) => input,
        other => panic!("the input of a task is an object, not {other}"),
    };
    Task {
        task_type: task_type.to_owned(),
        task_def_name: task_type.to_owned(),
        task_id: format!("task of {task_type}"),
        workflow_instance_id: format!("workflow of {task_type}"),
        reference_task_name: task_type.to_owned(),
        input_data,
        ..Task::default()
    }
}

/// Returns the refusal of a server with this status.
fn refused(status: u16) -> RequestError {
    RequestError::Refused(Refusal::read(&Response {
        status,
        body: "{}".into(),
    }))
}
