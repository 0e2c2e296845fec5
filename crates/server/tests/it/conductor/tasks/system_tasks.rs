//! Tasks that the server runs itself, with a runner whose calls the test ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use longhaul_host::{RunTask, SYSTEM_TASKS_MAX, SystemTasks, TaskEnd};
use longhaul_protocol::conductor::{Object, ResultStatus};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::conductor::support::{ask, tell};
use crate::support::Server;

/// Longest wait for something that the host does by itself.
const DEADLINE: Duration = Duration::from_secs(30);

/// A call under way.
struct Call {
    input: Object,
    end: oneshot::Sender<TaskEnd>,
}

impl Call {
    fn end(self, status: ResultStatus, output: Value) {
        let end = TaskEnd {
            status,
            reason: None,
            output: output.as_object().expect("members").clone(),
        };
        // The host may have given the call up.
        let _ = self.end.send(end);
    }
}

/// Hands every call to the test.
struct Runner(mpsc::UnboundedSender<Call>);

impl RunTask for Runner {
    fn run<'a>(&'a self, input: &'a Object) -> BoxFuture<'a, TaskEnd> {
        let (end, ended) = oneshot::channel();
        let input = input.clone();
        let _ = self.0.send(Call { input, end });
        async move {
            match ended.await {
                Ok(end) => end,
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// A server that runs HTTP tasks, with a workflow `w` of one of them, and the calls that it makes.
async fn serving(node: Value) -> (Server, mpsc::UnboundedReceiver<Call>) {
    let (calls, made) = mpsc::unbounded_channel();
    let runner = Arc::new(Runner(calls));
    let server = Server::configured(|config| {
        config.system_tasks = SystemTasks::default().with("HTTP", runner);
        config.server_name = Some("server-1".to_owned());
    })
    .await;
    let mut task = json!({"name": "call", "taskReferenceName": "h", "type": "HTTP",
        "inputParameters": {"uri": "http://a.example", "n": "${workflow.input.n}"}});
    for (member, value) in node.as_object().expect("members") {
        task[member] = value.clone();
    }
    let definition = json!({"name": "w", "tasks": [task]});
    tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    (server, made)
}

async fn start(server: &Server, n: usize) -> String {
    let start = json!({"name": "w", "input": {"n": n}});
    tell(server, "POST", "/workflow", &start).await.text()
}

async fn next(made: &mut mpsc::UnboundedReceiver<Call>) -> Call {
    let call = tokio::time::timeout(DEADLINE, made.recv()).await;
    call.expect("a call in time").expect("a call")
}

/// Reads a run until it has a state.
async fn run_when(server: &Server, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + DEADLINE;
    loop {
        let run = ask(server, "GET", &format!("/workflow/{id}")).await.json();
        if is_so(&run) {
            return run;
        }
        assert!(Instant::now() < until, "not in time: {run}");
        tokio::task::yield_now().await;
    }
}

async fn ended(server: &Server, id: &str) -> Value {
    run_when(server, id, |run| run["status"] != "RUNNING").await
}

fn is_taken(run: &Value) -> bool {
    run["tasks"][0]["status"] == "IN_PROGRESS"
}

#[tokio::test]
async fn a_task_of_the_server_runs_without_a_worker() {
    let (server, mut made) = serving(json!({})).await;
    let id = start(&server, 7).await;
    let call = next(&mut made).await;
    assert_eq!(
        (&call.input["n"], &call.input["asyncComplete"]),
        (&json!(7), &json!(false))
    );
    let run = run_when(&server, &id, is_taken).await;
    assert_eq!(run["tasks"][0]["workerId"], "server-1");
    assert!(
        server.host.idle().await.unwrap().is_none(),
        "a call is work"
    );
    call.end(
        ResultStatus::Completed,
        json!({"response": {"statusCode": 200}}),
    );
    let run = ended(&server, &id).await;
    assert_eq!(run["status"], "COMPLETED");
    assert_eq!(run["output"], json!({"response": {"statusCode": 200}}));
    server.idle().await;
    let idle = server.host.idle().await.unwrap().expect("nothing to do");
    assert_eq!(
        idle.polls_waiting, 0,
        "the polls of the server do not count"
    );
}

#[tokio::test]
async fn workers_do_not_get_tasks_of_the_server() {
    let (server, mut made) = serving(json!({})).await;
    let id = start(&server, 1).await;
    let path = "/tasks/poll/batch/HTTP?workerid=w&count=5&timeout=1";
    assert_eq!(ask(&server, "GET", path).await.json(), json!([]));
    next(&mut made)
        .await
        .end(ResultStatus::Completed, json!({}));
    assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_is_followed_by_another_call() {
    let (server, mut made) = serving(json!({})).await;
    let id = start(&server, 1).await;
    let first = next(&mut made).await;
    // Far beyond the lease, before the server has renewed it: as if it had been cut off.
    server.clock.advance_seconds(1000);
    let second = next(&mut made).await;
    first.end(ResultStatus::Completed, json!({"call": 1}));
    second.end(ResultStatus::Completed, json!({"call": 2}));
    let run = ended(&server, &id).await;
    assert_eq!(run["output"], json!({"call": 2}), "only one has the task");
    assert_eq!(run["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(run["tasks"][0]["pollCount"], 2);
}

#[tokio::test]
async fn an_update_from_outside_ends_a_call_under_way() {
    let (server, mut made) = serving(json!({})).await;
    let id = start(&server, 1).await;
    let call = next(&mut made).await;
    let path = format!("/tasks/{id}/h/COMPLETED");
    tell(&server, "POST", &path, &json!({"by": "hand"}))
        .await
        .text();
    call.end(ResultStatus::Failed, json!({"by": "the call"}));
    let run = ended(&server, &id).await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("COMPLETED"), &json!({"by": "hand"}))
    );
    server.idle().await;
    let run = ended(&server, &id).await;
    assert_eq!(run["output"], json!({"by": "hand"}));
}

#[tokio::test]
async fn a_call_is_given_up_when_its_run_is_terminated() {
    let (server, mut made) = serving(json!({})).await;
    let id = start(&server, 1).await;
    let call = next(&mut made).await;
    ask(&server, "DELETE", &format!("/workflow/{id}?reason=enough")).await;
    assert_eq!(ended(&server, &id).await["status"], "TERMINATED");
    // The next renewal shows it.
    server.clock.advance_seconds(7);
    let mut end = call.end;
    tokio::time::timeout(DEADLINE, end.closed())
        .await
        .expect("the call is dropped");
    server.idle().await;
}

#[tokio::test]
async fn the_end_of_a_call_waits_while_its_run_is_paused() {
    let (server, mut made) = serving(json!({"asyncComplete": true})).await;
    let id = start(&server, 1).await;
    let call = next(&mut made).await;
    ask(&server, "PUT", &format!("/workflow/{id}/pause"))
        .await
        .void();
    call.end(ResultStatus::Completed, json!({"accepted": true}));
    let accepted = |run: &Value| run["tasks"][0]["outputData"]["accepted"] == true;
    let run = run_when(&server, &id, accepted).await;
    assert_eq!(
        (&run["status"], &run["tasks"][0]["status"]),
        (&json!("PAUSED"), &json!("IN_PROGRESS"))
    );
    let path = format!("/tasks/{id}/h/COMPLETED");
    tell(&server, "POST", &path, &json!({"done": true}))
        .await
        .text();
    let run = run_when(&server, &id, |run| run["tasks"][0]["status"] == "COMPLETED").await;
    assert_eq!(run["status"], "PAUSED");
    ask(&server, "PUT", &format!("/workflow/{id}/resume"))
        .await
        .void();
    assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
}

#[tokio::test]
async fn calls_at_the_same_time_are_bounded() {
    let (server, mut made) = serving(json!({})).await;
    let mut ids = Vec::new();
    for n in 0..SYSTEM_TASKS_MAX + 20 {
        ids.push(start(&server, n).await);
    }
    let mut under_way = Vec::new();
    for _ in 0..SYSTEM_TASKS_MAX {
        under_way.push(next(&mut made).await);
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(made.try_recv().is_err(), "no call beyond the bound");
    for call in under_way {
        call.end(ResultStatus::Completed, json!({}));
    }
    for _ in 0..20 {
        next(&mut made)
            .await
            .end(ResultStatus::Completed, json!({}));
    }
    for id in ids {
        assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
    }
}

#[tokio::test]
async fn limits_of_the_task_definition_apply() {
    let (server, mut made) = serving(json!({})).await;
    let definition = json!([{"name": "call", "concurrentExecLimit": 2, "retryCount": 1, "retryDelaySeconds": 0}]);
    tell(&server, "POST", "/metadata/taskdefs", &definition)
        .await
        .void();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(start(&server, n).await);
    }
    let (one, two) = (next(&mut made).await, next(&mut made).await);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(made.try_recv().is_err(), "two at a time");
    one.end(ResultStatus::Failed, json!({}));
    two.end(ResultStatus::Completed, json!({}));
    for _ in 0..4 {
        next(&mut made)
            .await
            .end(ResultStatus::Completed, json!({}));
    }
    for id in ids {
        assert_eq!(ended(&server, &id).await["status"], "COMPLETED");
    }
}

#[tokio::test]
async fn every_namespace_is_served_also_new_ones() {
    let (server, mut made) = serving(json!({})).await;
    let namespace = json!({"name": "later"});
    let created = server.post("/namespaces", &namespace).send().await;
    assert_eq!(created.status, 201, "{}", created.body);
    let inside = |method: &str, path: &str| {
        crate::conductor::support::call(&server, method, path).header("x-namespace", "later")
    };
    let definition = json!({"name": "w", "tasks": [{"name": "c", "taskReferenceName": "h", "type": "HTTP",
        "inputParameters": {"uri": "x", "n": "later"}}]});
    crate::conductor::support::send(inside("POST", "/metadata/workflow").json(&definition))
        .await
        .void();
    crate::conductor::support::send(inside("POST", "/workflow").json(&json!({"name": "w"})))
        .await
        .text();
    assert_eq!(next(&mut made).await.input["n"], "later");
}

#[tokio::test]
async fn a_type_that_is_off_is_refused_at_registration_and_at_start() {
    let server = Server::configured(|config| {
        config.system_tasks = SystemTasks::default().without("HTTP", "HTTP tasks are off here");
    })
    .await;
    let node = json!({"name": "c", "taskReferenceName": "h", "type": "HTTP", "inputParameters": {"uri": "x"}});
    let fork =
        json!({"name": "f", "taskReferenceName": "f", "type": "FORK_JOIN", "forkTasks": [[node]]});
    let definition = json!({"name": "w", "tasks": [fork, {"name": "j", "taskReferenceName": "j", "type": "JOIN", "joinOn": ["h"]}]});
    let body = tell(&server, "POST", "/metadata/workflow", &definition)
        .await
        .refused(400, "definition_invalid");
    let error = &body["validationErrors"][0];
    assert_eq!(error["message"], "HTTP tasks are off here", "{body}");
    assert!(
        error["path"]
            .as_str()
            .unwrap()
            .ends_with("tasks[0].forkTasks[0][0].type"),
        "{body}"
    );
    let start = json!({"name": "w", "workflowDef": definition});
    tell(&server, "POST", "/workflow", &start)
        .await
        .refused(400, "definition_invalid");
    // A definition that was registered while the type was on.
    let store = std::sync::Arc::new(longhaul_store::memory::Memory::new());
    let before = Server::on_store(store.clone()).await;
    tell(&before, "POST", "/metadata/workflow", &definition)
        .await
        .void();
    before.host.stop().await;
    let config = longhaul_host::Config {
        system_tasks: SystemTasks::default().without("HTTP", "HTTP tasks are off here"),
        ..Default::default()
    };
    let auth = longhaul_server::auth::Auth::open();
    let after = Server::on(store, config, auth, longhaul_server::Options::default()).await;
    let body = tell(&after, "POST", "/workflow", &json!({"name": "w"}))
        .await
        .refused(400, "task_type_off");
    assert_eq!(body["message"], "HTTP tasks are off here");
}
