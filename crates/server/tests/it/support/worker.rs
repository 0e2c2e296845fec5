//! Workers that act on a server: they poll, report and read history.

use http::StatusCode;
use serde_json::{Value, json};

use super::assert::merge;
use super::server::{Answer, Call, Server};

/// A registered worker of the queue `default`: it polls for tasks.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    server: &'a Server,
    id: &'a str,
}

impl Server {
    /// Acts as a worker that is registered.
    pub(crate) fn worker<'a>(&'a self, id: &'a str) -> Worker<'a> {
        Worker { server: self, id }
    }
}

impl<'a> Worker<'a> {
    /// One poll that does not wait, of `workflow`, `activity` or `query` tasks.
    pub(crate) fn poll(self, kind: &str, fields: Value) -> Call<'a> {
        let mut body = json!({"worker_id": self.id, "task_queue": "default", "timeout_seconds": 0});
        merge(&mut body, fields);
        self.server
            .worker_post(&format!("/{kind}-tasks/poll"), &body)
    }

    /// Leases the next workflow task, which must exist.
    pub(crate) async fn workflow_task(self) -> Value {
        leased(self.poll("workflow", json!({})).send().await)
    }

    /// Leases the next activity task, which must exist.
    pub(crate) async fn activity_task(self) -> Value {
        leased(self.poll("activity", json!({})).send().await)
    }

    /// Waits for the next query task.
    pub(crate) async fn query_task(self) -> Value {
        leased(
            self.poll("query", json!({"timeout_seconds": 30}))
                .send()
                .await,
        )
    }

    /// Waits for the next task as a worker with validators does.
    pub(crate) async fn validation_task(self) -> Value {
        let fields =
            json!({"timeout_seconds": 30, "task_kinds": ["workflow", "update_validation"]});
        leased(self.poll("workflow", fields).send().await)
    }

    /// Leases the next workflow task and completes it with `commands`.
    pub(crate) async fn decide(self, commands: Value) {
        let task = self.workflow_task().await;
        complete(self.server, &task, commands).accepted(200).await;
    }
}

/// A server with worker `w` for every type of the queue `default`.
pub(crate) async fn staffed() -> Server {
    Server::staffed([("w", every_type())]).await
}

/// A server whose worker `w` holds the first task of workflow `wf`.
pub(crate) async fn leased_task() -> (Server, Value) {
    let server = staffed().await;
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    (server, task)
}

/// What a worker registers that takes tasks of every type.
pub(crate) fn every_type() -> Value {
    json!({"supported_workflow_types": [], "supported_activity_types": []})
}

pub(crate) fn leased(answer: Answer) -> Value {
    assert_eq!(answer.body["poll_status"], "leased", "{}", answer.body);
    answer.body["task"].clone()
}

/// Checks that no task of this kind is ready for worker `w`.
pub(crate) async fn expect_no_task(server: &Server, kind: &str) {
    let answer = server.worker("w").poll(kind, json!({})).accepted(200).await;
    assert_eq!(answer["poll_status"], "empty", "{answer}");
}

/// A call on a leased workflow task with its own lease; `fields` are added or replace.
pub(crate) fn report<'a>(server: &'a Server, task: &Value, verb: &str, fields: Value) -> Call<'a> {
    let mut body = json!({
        "lease_owner": task["lease_owner"],
        "workflow_task_attempt": task["workflow_task_attempt"],
    });
    merge(&mut body, fields);
    server.worker_post(&format!("/workflow-tasks/{}/{verb}", id(task)), &body)
}

pub(crate) fn complete<'a>(server: &'a Server, task: &Value, commands: Value) -> Call<'a> {
    report(server, task, "complete", json!({"commands": commands}))
}

pub(crate) fn fail<'a>(server: &'a Server, task: &Value, failure: Value) -> Call<'a> {
    report(server, task, "fail", json!({"failure": failure}))
}

/// A call on a leased activity task.
pub(crate) fn activity_report<'a>(
    server: &'a Server,
    task: &Value,
    verb: &str,
    fields: Value,
) -> Call<'a> {
    let mut body = json!({
        "activity_attempt_id": task["activity_attempt_id"],
        "lease_owner": task["lease_owner"],
    });
    merge(&mut body, fields);
    server.worker_post(&format!("/activity-tasks/{}/{verb}", id(task)), &body)
}

/// A call on a leased query task.
pub(crate) fn query_report<'a>(
    server: &'a Server,
    task: &Value,
    verb: &str,
    fields: Value,
) -> Call<'a> {
    let mut body = json!({
        "lease_owner": task["lease_owner"],
        "query_task_attempt": task["query_task_attempt"],
    });
    merge(&mut body, fields);
    let id = task["query_task_id"].as_str().expect("a query task id");
    server.worker_post(&format!("/query-tasks/{id}/{verb}"), &body)
}

/// A call on a leased validation of an update.
pub(crate) fn validation_report<'a>(
    server: &'a Server,
    task: &Value,
    verb: &str,
    fields: Value,
) -> Call<'a> {
    let mut body = json!({
        "lease_owner": task["lease_owner"],
        "update_validation_attempt": task["update_validation_attempt"],
    });
    merge(&mut body, fields);
    let id = task["update_validation_task_id"].as_str().expect("an id");
    server.worker_post(&format!("/update-validation-tasks/{id}/{verb}"), &body)
}

pub(crate) fn id(task: &Value) -> &str {
    task["task_id"].as_str().expect("a task id")
}

/// Starts workflow `wf` and completes its first task.
pub(crate) async fn decided(server: &Server, commands: Value) -> Value {
    server.start("wf").await;
    let task = server.worker("w").workflow_task().await;
    complete(server, &task, commands).accepted(200).await;
    task
}

/// Starts workflow `wf` with one activity, and leases its task; `fields` are added to the command.
pub(crate) async fn running_activity(server: &Server, fields: Value) -> Value {
    let mut command = json!({"type": "schedule_activity", "activity_type": "say"});
    merge(&mut command, fields);
    decided(server, json!([command])).await;
    server.worker("w").activity_task().await
}

/// Returns the whole history of a task's run.
pub(crate) async fn history(server: &Server, task: &Value) -> Vec<Value> {
    let run = task["run_id"].as_str().expect("a run id");
    let workflow = task["workflow_id"].as_str().expect("a workflow id");
    server.history(workflow, run).await
}

pub(crate) async fn signal(server: &Server, name: &str, input: Value) -> Value {
    let answer = server
        .post(
            &format!("/workflows/wf/signal/{name}"),
            &json!({"input": input}),
        )
        .send()
        .await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.body);
    answer.body
}

/// Closes workflow `wf` by `cancel` or `terminate`.
pub(crate) async fn stop(server: &Server, verb: &str) {
    let path = format!("/workflows/wf/{verb}");
    let answer = server
        .post(&path, &json!({"reason": "enough"}))
        .send()
        .await;
    assert!(answer.status.is_success(), "{}", answer.body);
}
