//! The requests of a worker, field by field.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use longhaul_embedded::Embedded;
use longhaul_sdk::transport::Response;
use longhaul_sdk::{
    ActivityContext, ActivityResult, Client, LocalActivityOptions, RetryPolicy, Signal, Worker,
    WorkerSessionOptions, WorkflowContext, WorkflowResult, activity, workflow,
};
use serde_json::json;
use tokio::sync::Notify;

use crate::recording::{Recording, Tape};
use crate::stage::{QUEUE, Running, until};

const GO: Signal<()> = Signal::new("go");

#[activity]
async fn render(frame: u32) -> ActivityResult<u32> {
    Ok(frame)
}

#[workflow]
async fn all_session_options(ctx: WorkflowContext) -> WorkflowResult<u32> {
    let options = WorkerSessionOptions::new("gpu-render")
        .queue("elsewhere")
        .connection("redis")
        .requires("gpu:nvidia-l4")
        .requires("gpu:nvidia-l4")
        .lease(Duration::from_secs(120))
        .ttl(Duration::from_secs(1800))
        .max_concurrent_activities(2)
        .create_if_missing(true)
        .allow_reacquire_after_failure(true);
    // The queue of the call takes precedence over that of the session.
    let by_context = ctx
        .session(options.clone())
        .activity(render(1))
        .queue(QUEUE)
        .await?;
    let by_call = ctx
        .activity(render(2))
        .in_session(&options)
        .queue(QUEUE)
        .await?;
    Ok(by_context + by_call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_sent_with_every_option_and_closed_before_the_worker_ends() {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, tape) = Recording::new(server.transport());
    let client = Client::over(transport).connect().await.unwrap();
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<all_session_options>()
        .activity::<render>()
        .capability("gpu:nvidia-l4");
    let worker = Running::start(worker).await;
    let run = client
        .start(all_session_options())
        .queue(QUEUE)
        .await
        .unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    worker.stop().await;
    let commands = tape.commands("schedule_activity");
    assert_eq!(commands.len(), 2);
    for command in &commands {
        assert_eq!(command["queue"], QUEUE);
        assert_eq!(
            command["worker_session"],
            json!({
                "session_id": "gpu-render", "queue": "elsewhere", "connection": "redis",
                "requirements": ["gpu:nvidia-l4"], "lease_seconds": 120, "ttl_seconds": 1800,
                "max_concurrent_activities": 2, "create_if_missing": true,
                "allow_reacquire_after_failure": true,
            })
        );
    }
    // The worker finishes its tasks, closes its sessions, then deregisters.
    let deletes: Vec<(&str, String)> = tape
        .all()
        .iter()
        .filter(|sent| sent.method == "DELETE")
        .map(|sent| (sent.method, sent.path.clone()))
        .collect();
    assert_eq!(deletes[0].1, "/api/worker/sessions/gpu-render");
    assert!(
        deletes[1].1.starts_with("/api/worker/registrations/"),
        "{deletes:?}"
    );
    server.stop().await;
}

#[workflow]
async fn leaf(_ctx: WorkflowContext) -> WorkflowResult<()> {
    Ok(())
}

/// Every option that is a duration, none of them a whole number of seconds.
#[workflow]
async fn fractions(ctx: WorkflowContext) -> WorkflowResult<()> {
    let a_little = Duration::from_millis(1);
    let retry = || RetryPolicy::attempts(3).backoff([a_little, Duration::from_millis(1500)]);
    ctx.sleep(a_little).await?;
    ctx.wait_until(|| false).timeout(a_little).await?;
    ctx.activity(render(1))
        .retry(retry())
        .start_to_close(Duration::from_millis(2500))
        .schedule_to_start(Duration::from_millis(30_001))
        .schedule_to_close(Duration::from_millis(40_999))
        .heartbeat(Duration::ZERO)
        .in_session(
            &WorkerSessionOptions::new("s")
                .lease(Duration::from_millis(60_100))
                .ttl(Duration::from_millis(99_900)),
        )
        .await?;
    ctx.local_activity(render(2))
        .retry(retry())
        .heartbeat(Duration::from_millis(2100))
        .start_to_close(Duration::from_millis(2900))
        .schedule_to_close(Duration::from_millis(3100))
        .await?;
    ctx.child(leaf())
        .retry(retry())
        .run_timeout(Duration::from_millis(5001))
        .execution_timeout(Duration::from_millis(6999))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durations_are_rounded_up_to_whole_seconds_and_never_refused() {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, tape) = Recording::new(server.transport());
    let client = Client::over(transport).connect().await.unwrap();
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<fractions>()
        .workflow::<leaf>()
        .activity::<render>()
        .poll_timeout(Duration::from_millis(1200));
    let worker = Running::start(worker).await;
    let run = client
        .start(fractions())
        .queue(QUEUE)
        .run_timeout(Duration::from_millis(100_001))
        .execution_timeout(Duration::from_millis(200_999));
    run.await.unwrap().result().await.unwrap();
    worker.stop().await;

    let only = |kind: &str| {
        let commands = tape.commands(kind);
        assert_eq!(commands.len(), 1, "{kind}: {commands:?}");
        commands[0].clone()
    };
    let backoff = json!([1, 2]);
    assert_eq!(only("start_timer")["delay_seconds"], 1);
    assert_eq!(only("open_condition_wait")["timeout_seconds"], 1);
    let activity = only("schedule_activity");
    assert_eq!(activity["retry_policy"]["backoff_seconds"], backoff);
    assert_eq!(activity["start_to_close_timeout"], 3);
    assert_eq!(activity["schedule_to_start_timeout"], 31);
    assert_eq!(activity["schedule_to_close_timeout"], 41);
    assert_eq!(activity["heartbeat_timeout"], 1);
    assert_eq!(activity["worker_session"]["lease_seconds"], 61);
    assert_eq!(activity["worker_session"]["ttl_seconds"], 100);
    let local = &tape.to("/local-activities/prepare")[0].body["descriptor"];
    assert_eq!(local["retry_policy"]["backoff_seconds"], backoff);
    assert_eq!(local["heartbeat_timeout"], 3);
    assert_eq!(local["start_to_close_timeout"], 3);
    assert_eq!(local["schedule_to_close_timeout"], 4);
    let child = only("start_child_workflow");
    assert_eq!(child["retry_policy"]["backoff_seconds"], backoff);
    assert_eq!(child["run_timeout_seconds"], 6);
    assert_eq!(child["execution_timeout_seconds"], 7);
    let start = &tape.to("/api/workflows")[0].body;
    assert_eq!(start["run_timeout_seconds"], 101);
    assert_eq!(start["execution_timeout_seconds"], 201);
    let polls = tape.to("/workflow-tasks/poll");
    assert_eq!(polls[0].body["timeout_seconds"], 2);
    server.stop().await;
}

#[derive(Default)]
struct Steps {
    calls: AtomicU32,
    began: Notify,
    open: Notify,
}

#[activity]
async fn step(ctx: ActivityContext) -> ActivityResult<u32> {
    let steps = ctx.data::<Arc<Steps>>();
    ctx.heartbeat().await?;
    ctx.heartbeat().await?;
    Ok(steps.calls.fetch_add(1, Ordering::Relaxed))
}

#[workflow]
async fn all_local_options(ctx: WorkflowContext) -> WorkflowResult<u32> {
    let options = LocalActivityOptions::new()
        .retry(
            RetryPolicy::attempts(3)
                .backoff([Duration::from_secs(1), Duration::from_secs(5)])
                .give_up_on("Lost"),
        )
        .start_to_close(Duration::from_secs(10))
        .schedule_to_close(Duration::from_secs(60))
        .heartbeat(Duration::from_secs(5));
    let first = ctx.local_activity(step()).with_options(options).await?;
    ctx.signals(&GO).recv().await?;
    Ok(first)
}

/// Returns a server with recorded requests, and a worker for the local activities of this module.
async fn local_stage(
    change: impl FnOnce(Recording) -> Recording,
) -> (Embedded, Client, Tape, Arc<Steps>, Running) {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, tape) = Recording::new(server.transport());
    let client = Client::over(change(transport)).connect().await.unwrap();
    let steps = Arc::new(Steps::default());
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<all_local_options>()
        .workflow::<waits_inside>()
        .local_activity::<step>()
        .local_activity::<gated>()
        .data(steps.clone());
    let worker = Running::start(worker).await;
    (server, client, tape, steps, worker)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_activity_is_described_exactly_and_never_polled_for() {
    let (server, client, tape, steps, worker) = local_stage(|recording| recording).await;
    let run = client
        .start(all_local_options())
        .queue(QUEUE)
        .await
        .unwrap();
    run.signal(&GO, ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 0);
    assert_eq!(steps.calls.load(Ordering::Relaxed), 1);
    worker.stop().await;
    let prepared = tape.to("/local-activities/prepare");
    assert_eq!(prepared.len(), 1);
    let mut descriptor = prepared[0].body["descriptor"].clone();
    descriptor["arguments"].take();
    assert_eq!(
        descriptor,
        json!({
            "type": "record_local_activity", "activity_type": "step", "execution_mode": "local",
            "arguments": null,
            "retry_policy": {
                "max_attempts": 3, "backoff_seconds": [1, 5], "non_retryable_error_types": ["Lost"],
            },
            "start_to_close_timeout": 10, "schedule_to_close_timeout": 60, "heartbeat_timeout": 5,
        }),
        "neither queue nor connection nor session nor schedule_to_start"
    );
    assert!(tape.to("/activity-tasks/poll").is_empty());
    assert!(
        tape.to("/history").is_empty(),
        "new events come with the responses"
    );
    // `prepare` renews the lease before the attempt; then every heartbeat renews it.
    assert_eq!(tape.to("/heartbeat").len(), 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_lease_ends_the_attempt_without_a_report() {
    for broken in [Broken::Refused, Broken::Malformed] {
        let (server, client, tape, steps, worker) = local_stage(|recording| {
            recording.changing(move |sent, response| {
                let beats =
                    sent.path.contains("/local-activities/") && sent.path.ends_with("/heartbeat");
                if beats { broken.response() } else { response }
            })
        })
        .await;
        let run = client
            .start(all_local_options())
            .queue(QUEUE)
            .await
            .unwrap();
        let lost = worker.handle.clone();
        until("the lease is lost", || lost.metrics().leases_lost > 0).await;
        worker.stop().await;
        assert_eq!(
            steps.calls.load(Ordering::Relaxed),
            0,
            "the function stopped"
        );
        for verb in ["/complete", "/fail", "/outcome"] {
            assert!(tape.to(verb).is_empty(), "{verb}: {:?}", tape.to(verb));
        }
        drop(run);
        server.stop().await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Broken {
    Refused,
    Malformed,
}

impl Broken {
    fn response(self) -> Response {
        match self {
            Self::Refused => Response {
                status: 409,
                body: json!({"reason": "stale_activity_attempt", "message": "no"})
                    .to_string()
                    .into_bytes()
                    .into(),
            },
            Self::Malformed => Response {
                status: 200,
                body: b"{\"half\": ".to_vec().into(),
            },
        }
    }
}

#[activity]
async fn gated(ctx: ActivityContext) -> ActivityResult<u32> {
    let steps = ctx.data::<Arc<Steps>>();
    steps.began.notify_one();
    steps.open.notified().await;
    Ok(steps.calls.fetch_add(1, Ordering::Relaxed))
}

#[workflow]
async fn waits_inside(ctx: WorkflowContext) -> WorkflowResult<u32> {
    Ok(ctx.local_activity(gated()).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_worker_finishes_its_local_activity() {
    let (server, client, tape, steps, worker) = local_stage(|recording| recording).await;
    let run = client.start(waits_inside()).queue(QUEUE).await.unwrap();
    steps.began.notified().await;
    worker.handle.shut_down();
    let polls = tape.to("/workflow-tasks/poll").len();
    steps.open.notify_one();
    worker.ended().await;
    assert_eq!(run.result().await.unwrap(), 0);
    // Each poller polls at most once more, in case a task was on its way.
    assert!(tape.to("/workflow-tasks/poll").len() <= polls + 4);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_result_of_a_cancelled_run_is_not_recorded() {
    let (server, client, tape, steps, worker) = local_stage(|recording| recording).await;
    let run = client.start(waits_inside()).queue(QUEUE).await.unwrap();
    steps.began.notified().await;
    run.cancel(None).await.unwrap();
    // The function is not stopped: it returns, and the server refuses its result.
    steps.open.notify_one();
    until("the outcome is refused", || !tape.to("/outcome").is_empty()).await;
    let stopped = worker.handle.clone();
    worker.stop().await;
    assert_eq!(stopped.metrics().runs_cancelled, 1);
    assert_eq!(steps.calls.load(Ordering::Relaxed), 1);
    let events = crate::stage::types(&run).await;
    let count = |event: &str| events.iter().filter(|found| *found == event).count();
    assert_eq!(
        (count("ActivityCancelled"), count("ActivityCompleted")),
        (1, 0)
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_capabilities_are_not_sent() {
    let server = Embedded::in_memory().await.unwrap();
    let (transport, tape) = Recording::new(server.transport());
    let transport = transport.replacing("\"worker_sessions\":", "\"unheard_of\":");
    let client = Client::over(transport).connect().await.unwrap();
    let worker = Worker::builder(&client, QUEUE)
        .workflow::<all_session_options>()
        .activity::<render>();
    let worker = Running::start(worker).await;
    client
        .start(all_session_options())
        .queue(QUEUE)
        .await
        .unwrap();
    let handle = worker.handle.clone();
    until("the workflow task fails", || {
        handle.metrics().workflow_tasks_failed > 0
    })
    .await;
    worker.stop().await;
    assert!(tape.commands("schedule_activity").is_empty());
    let failures = tape.to("/fail");
    assert_eq!(failures[0].body["failure"]["type"], "MissingCapability");
    let message = failures[0].body["failure"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(message.contains("`worker_sessions`"), "{message}");
    server.stop().await;
}
