//! Query tasks as workers see them.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Call, Server, envelope, expect_no_task, merge, query_report};
use crate::worker::polling::polls::expect_message;

async fn with_two_query_workers() -> (Server, String) {
    let server = Server::open().await;
    let capabilities = json!({"capabilities": ["query_tasks"]});
    server.register("w", capabilities.clone()).await;
    server.register("v", capabilities).await;
    let run_id = server.start("wf").await;
    (server, run_id)
}

fn ask(server: &Server) -> Call<'_> {
    let body = json!({"input": envelope(r#"["mon"]"#)});
    server.post("/workflows/wf/query/status", &body)
}

async fn take(server: &Server, fields: Value) -> Value {
    let mut patient = json!({"timeout_seconds": 30});
    merge(&mut patient, fields);
    let answer = server
        .worker("w")
        .poll("query", patient)
        .accepted(200)
        .await;
    assert_eq!(answer["poll_status"], "leased", "{answer}");
    answer
}

fn status<'a>(server: &'a Server, task: &Value, owner: &str, attempt: &str) -> Call<'a> {
    let id = task["query_task_id"].as_str().expect("an id");
    let path = format!("/query-tasks/{id}/status?lease_owner={owner}&query_task_attempt={attempt}");
    server.worker_call(Method::GET, &path)
}

/// Sends a query, and runs `worker` with the leased task while the caller waits.
async fn asked<F, A>(server: &Server, worker: F) -> Answer
where
    F: FnOnce(Value) -> A,
    A: Future<Output = ()>,
{
    let working = async {
        let answer = take(server, json!({})).await;
        worker(answer["task"].clone()).await;
    };
    tokio::join!(ask(server).send(), working).0
}

#[tokio::test]
async fn the_leased_task_has_everything_to_answer_it() {
    let (server, run_id) = with_two_query_workers().await;
    let working = async {
        let answer = take(&server, json!({"poll_request_id": "p1"})).await;
        expect_message("TaskLeased", &answer);
        let lease = json!({"leased_at": "2026-01-01T00:00:00.000000Z", "lease_expires_at": "2026-01-01T00:00:45.000000Z"});
        assert_eq!(answer["lease"], lease);
        let mut task = answer["task"].clone();
        let id = task["query_task_id"].clone();
        assert!(id.as_str().is_some_and(|id| !id.is_empty()));
        let events = task["history_events"].take();
        assert_eq!(events[0]["event_type"], "StartAccepted");
        assert_eq!(events[1]["event_type"], "WorkflowStarted");
        let count = events.as_array().unwrap().len();
        let shown = task.as_object_mut().unwrap();
        shown.remove("history_events");
        assert_eq!(
            task,
            json!({
                "query_task_id": id,
                "task_id": id,
                "task_type": "query",
                "query_task_attempt": 1,
                "query_name": "status",
                "query_arguments": envelope(r#"["mon"]"#),
                "query_admitted_at": "2026-01-01T00:00:00.000000Z",
                "query_deadline_at": "2026-01-01T00:00:45.000000Z",
                "server_time": "2026-01-01T00:00:00.000000Z",
                "lease_owner": "w",
                "lease_expires_at": "2026-01-01T00:00:45.000000Z",
                "namespace": "default",
                "task_queue": "default",
                "workflow_id": "wf",
                "run_id": run_id,
                "workflow_type": "greet",
                "compatibility": null,
                "payload_codec": "avro",
                "workflow_arguments": envelope("[]"),
                "run_status": "pending",
                "last_history_sequence": count,
                "total_history_events": count,
                "history_export": null,
            })
        );
        // The same poll again is given the same task; another poll is given nothing.
        let again = take(&server, json!({"poll_request_id": "p1"})).await;
        assert_eq!(again["task"]["query_task_id"], id);
        assert_eq!(again["task"]["query_task_attempt"], 1);
        expect_no_task(&server, "query").await;
        let body = query_report(&server, &again["task"], "complete", json!({"result": 1}))
            .send()
            .await;
        assert_eq!(
            body.bare(),
            json!({"query_task_id": id, "query_task_attempt": 1, "outcome": "completed", "reason": null})
        );
    };
    let (answer, ()) = tokio::join!(ask(&server).accepted(200), working);
    assert_eq!(answer["result"], 1);
}

#[tokio::test]
async fn the_whole_history_comes_in_one_piece() {
    let (server, run_id) = with_two_query_workers().await;
    let markers: Vec<Value> = (0..700)
        .map(|_| json!({"type": "record_side_effect", "result": envelope("1")}))
        .collect();
    server.worker("w").decide(json!(markers)).await;
    asked(&server, |task| {
        let server = &server;
        let run_id = &run_id;
        async move {
            let events = task["history_events"].as_array().unwrap();
            assert!(events.len() > 700);
            assert!(
                events
                    .iter()
                    .zip(1..)
                    .all(|(event, sequence)| event["sequence"] == json!(sequence))
            );
            let path = format!("/workflows/wf/runs/{run_id}/history?page_size=1000");
            let page = server.get(&path).accepted(200).await;
            assert_eq!(page["events"].as_array().unwrap().len(), events.len());
            query_report(server, &task, "complete", json!({"result": 1}))
                .accepted(200)
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_report_needs_the_lease_it_was_given() {
    let (server, _) = with_two_query_workers().await;
    let answer = asked(&server, |task| {
        let server = &server;
        async move {
            for verb in ["complete", "fail"] {
                let body = |fields: Value| {
                    let mut body = json!({"result": 1, "failure": {"message": "no"}});
                    merge(&mut body, fields);
                    body
                };
                let other = body(json!({"lease_owner": "v"}));
                query_report(server, &task, verb, other)
                    .refused(409, "lease_owner_mismatch")
                    .await;
                let stale = body(json!({"query_task_attempt": 2}));
                let refusal = query_report(server, &task, verb, stale)
                    .refused(409, "query_task_attempt_mismatch")
                    .await;
                assert_eq!(refusal["current_attempt"], 1);
                let mut unknown = task.clone();
                unknown["query_task_id"] = json!("none");
                query_report(server, &unknown, verb, body(json!({})))
                    .refused(404, "query_task_not_found")
                    .await;
                let elsewhere =
                    query_report(server, &task, verb, body(json!({}))).namespace("other");
                elsewhere.refused(404, "namespace_not_found").await;
            }
            query_report(server, &task, "complete", json!({"result": "yes"}))
                .accepted(200)
                .await;
        }
    })
    .await;
    assert_eq!(answer.body["result"], "yes");
}

#[tokio::test]
async fn an_accepted_report_may_be_repeated_and_nothing_else() {
    let (server, _) = with_two_query_workers().await;
    for (verb, other, status) in [("complete", "fail", 200), ("fail", "complete", 409)] {
        let fields = json!({"result": 1, "failure": {"message": "no"}});
        let answer = asked(&server, |task| {
            let (server, fields) = (&server, &fields);
            async move {
                let first = query_report(server, &task, verb, fields.clone())
                    .accepted(200)
                    .await;
                assert_eq!(first.get("duplicate"), None);
                let mut again = query_report(server, &task, verb, fields.clone())
                    .accepted(200)
                    .await;
                assert_eq!(again["duplicate"], true);
                again.as_object_mut().unwrap().remove("duplicate");
                assert_eq!(again, first);
                query_report(server, &task, other, fields.clone())
                    .refused(409, "query_task_not_leased")
                    .await;
                let mut stranger = fields.clone();
                stranger["lease_owner"] = json!("v");
                query_report(server, &task, verb, stranger)
                    .refused(409, "lease_owner_mismatch")
                    .await;
                // After three minutes it is forgotten.
                server.advance(180).await;
                query_report(server, &task, verb, fields.clone())
                    .refused(404, "query_task_not_found")
                    .await;
                server
                    .worker_post("/heartbeat", &json!({"worker_id": "w"}))
                    .accepted(200)
                    .await;
            }
        })
        .await;
        assert_eq!(answer.status.as_u16(), status);
    }
}

#[tokio::test]
async fn no_task_or_report_is_accepted_after_the_caller_stopped_waiting() {
    let (server, _) = with_two_query_workers().await;
    let silent = async {
        server.advance(0).await;
        server.advance(45).await;
    };
    tokio::join!(ask(&server).refused(504, "query_worker_timeout"), silent);
    expect_no_task(&server, "query").await;

    let late = async {
        let task = take(&server, json!({"poll_request_id": "p"})).await["task"].clone();
        server.advance(45).await;
        task
    };
    let (_, task) = tokio::join!(ask(&server).refused(504, "query_worker_timeout"), late);
    for verb in ["complete", "fail"] {
        let fields = json!({"result": 1, "failure": {"message": "no"}});
        query_report(&server, &task, verb, fields)
            .refused(409, "query_task_timed_out")
            .await;
    }
    let call = status(&server, &task, "w", "1");
    call.refused(409, "query_task_timed_out").await;
    // Nor is it given to a repeat of the poll that had it.
    let again = server
        .worker("w")
        .poll("query", json!({"poll_request_id": "p"}))
        .accepted(200)
        .await;
    assert_eq!(again["poll_status"], "empty");

    // A caller that hangs up has given up as well.
    {
        let asking = ask(&server).send();
        tokio::pin!(asking);
        let hang_up = async {
            for _ in 0..20 {
                server.advance(0).await;
            }
        };
        tokio::select! {
            biased;
            answer = &mut asking => panic!("answered: {}", answer.body),
            () = hang_up => {}
        }
    }
    expect_no_task(&server, "query").await;
}

#[tokio::test]
async fn a_query_whose_worker_leaves_goes_to_the_next() {
    let (server, _) = with_two_query_workers().await;
    let working = async {
        let first = take(&server, json!({})).await["task"].clone();
        server
            .worker_call(Method::DELETE, "/registrations/w")
            .accepted(200)
            .await;
        let second = server
            .worker("v")
            .poll("query", json!({}))
            .accepted(200)
            .await["task"]
            .clone();
        assert_eq!(second["query_task_id"], first["query_task_id"]);
        assert_eq!(second["query_task_attempt"], 2);
        query_report(&server, &first, "complete", json!({"result": "first"}))
            .refused(409, "lease_owner_mismatch")
            .await;
        query_report(&server, &second, "complete", json!({"result": "second"}))
            .accepted(200)
            .await;
    };
    let (answer, ()) = tokio::join!(ask(&server).accepted(200), working);
    assert_eq!(answer["result"], "second");
}

#[tokio::test]
async fn the_status_shows_whether_to_continue_and_renews_nothing() {
    let (server, _) = with_two_query_workers().await;
    asked(&server, |task| {
        let server = &server;
        async move {
            server.advance(10).await;
            let going = status(server, &task, "w", "1").send().await;
            assert_eq!(
                going.bare(),
                json!({
                    "query_task_id": task["query_task_id"],
                    "query_task_attempt": 1,
                    "lease_owner": "w",
                    "query_task_status": "leased",
                    "can_continue": true,
                    "reason": null,
                    "server_time": "2026-01-01T00:00:10.000000Z",
                    "lease_expires_at": task["lease_expires_at"],
                    "query_admitted_at": task["query_admitted_at"],
                    "query_deadline_at": task["query_deadline_at"],
                })
            );
            status(server, &task, "v", "1")
                .refused(409, "lease_owner_mismatch")
                .await;
            status(server, &task, "w", "2")
                .refused(409, "query_task_attempt_mismatch")
                .await;
            assert_eq!(
                status(server, &task, "", "0").invalid().await,
                ["lease_owner", "query_task_attempt"]
            );
            let unknown = json!({"query_task_id": "none"});
            status(server, &unknown, "w", "1")
                .refused(404, "query_task_not_found")
                .await;
            query_report(server, &task, "complete", json!({"result": 1}))
                .accepted(200)
                .await;
            let over = status(server, &task, "w", "1").accepted(200).await;
            assert_eq!(
                (
                    &over["can_continue"],
                    &over["query_task_status"],
                    &over["reason"]
                ),
                (
                    &json!(false),
                    &json!("completed"),
                    &json!("query_task_not_leased")
                )
            );
        }
    })
    .await;
}

#[tokio::test]
async fn query_polls_and_reports_are_checked_like_the_others() {
    let (server, _) = with_two_query_workers().await;
    server
        .worker("stranger")
        .poll("query", json!({}))
        .refused(412, "worker_not_registered")
        .await;
    server
        .worker("w")
        .poll("query", json!({"task_queue": "far"}))
        .refused(409, "task_queue_mismatch")
        .await;
    server
        .worker("w")
        .poll("query", json!({"build_id": "b"}))
        .refused(409, "build_id_mismatch")
        .await;
    assert_eq!(
        server
            .worker("w")
            .poll("query", json!({"task_queue": 7}))
            .invalid()
            .await,
        ["task_queue"]
    );
    let idle = server
        .worker("w")
        .poll("query", json!({}))
        .accepted(200)
        .await;
    expect_message("PollTerminal", &idle);
    let task = json!({"query_task_id": "t"});
    let call = query_report(
        &server,
        &task,
        "complete",
        json!({"result_envelope": {"codec": "avro", "blob": "?"}}),
    );
    assert_eq!(
        call.invalid().await,
        ["lease_owner", "query_task_attempt", "result_envelope.blob"]
    );
    assert_eq!(
        query_report(&server, &task, "fail", json!({}))
            .invalid()
            .await,
        ["failure", "lease_owner", "query_task_attempt"]
    );
    let failure = json!({"failure": {"message": 7, "reason": "", "validation_errors": []}, "lease_owner": "w", "query_task_attempt": 1});
    assert_eq!(
        query_report(&server, &task, "fail", failure)
            .invalid()
            .await,
        [
            "failure.message",
            "failure.reason",
            "failure.validation_errors"
        ]
    );
}

#[tokio::test]
async fn queries_and_workflow_tasks_do_not_wait_for_each_other() {
    let (server, _) = with_two_query_workers().await;
    let task = server.worker("w").workflow_task().await;
    let answer = asked(&server, |query| {
        let server = &server;
        async move {
            assert_eq!(query["run_status"], "running");
            query_report(server, &query, "complete", json!({"result": 1}))
                .accepted(200)
                .await;
        }
    })
    .await;
    assert_eq!(answer.status, 200);
    crate::support::complete(&server, &task, json!([{"type": "complete_workflow"}]))
        .accepted(200)
        .await;
}
