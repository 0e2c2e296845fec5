//! Update validation tasks (worker-protocol §9.6). They come with workflow polls that ask for them; here is what such a task looks
//! like, and its two answers.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use longhaul_host::{LeasedQuestion, QuestionHolder};
use serde_json::{Value, json};

use super::query_tasks::{read_failure, read_holder, with_run};
use super::workflow_tasks::with_duplicate;
use super::{Id, envelope, pass};
use crate::App;

/// What a poll names in `task_kinds` to be given these, and what `task.task_kind` then says.
pub(super) const TASK_KIND: &str = "update_validation";

pub(super) fn task_json(task: &LeasedQuestion) -> String {
    let view = json!({
        "task_id": task.task_id,
        "task_kind": TASK_KIND,
        // The stream contract knows three types; this one comes from workflow polls.
        "task_type": "workflow",
        "update_validation_task_id": task.task_id,
        "update_validation_attempt": task.lease.attempt,
        "update_name": task.name,
        "update_arguments": task.arguments,
    });
    with_run(view, task)
}

pub(super) async fn approve(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id, "update_validation_attempt");
        passed.body.check()?;
        let repeated = app.host().approve_update(&holder)?;
        Ok(accepted(&holder, "approved", repeated))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

pub(super) async fn reject(
    State(app): State<App>,
    Id(task_id): Id,
    request: Request<HttpBody>,
) -> Response {
    let result = async {
        let passed = pass(&app, request).await?;
        let holder = read_holder(&passed, &task_id, "update_validation_attempt");
        let failure = read_failure(&passed.body, "The validator refused the update.");
        passed.body.check()?;
        let repeated = app.host().reject_update(&holder, failure)?;
        Ok(accepted(&holder, "rejected", repeated))
    };
    envelope::respond(&app, StatusCode::OK, result.await)
}

fn accepted(holder: &QuestionHolder, outcome: &str, repeated: bool) -> Value {
    let body = json!({
        "update_validation_task_id": holder.task_id,
        "update_validation_attempt": holder.attempt,
        "outcome": outcome,
        "reason": null,
    });
    with_duplicate(body, repeated)
}
