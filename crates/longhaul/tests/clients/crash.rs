//! Kills the server with SIGKILL while workers of both SDKs run: nothing may be lost, and nothing may happen twice.
//!
//! Workers register once. A Python worker and an idle Rust worker survive an outage. A Rust worker that was reporting a result when
//! the connection broke ends with a transport error; this is its published behaviour. `supervisor` starts it again, as the
//! supervisor of an operator would.

mod events;
pub(crate) mod executions;
mod judge;
mod reopening;
mod shapes;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use durable_workflow::metrics::{MetricTags, MetricsRecorder, WORKER_TASKS};
use durable_workflow::{
    Client, CooperativeCancellationOptions, Error, Result, Value, WorkflowCommandOptions,
    WorkflowDescription, json,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{Control, History, PythonWorker, Server, ServerOptions, eventually};
use crate::rust_sdk::fixture::{QUEUE as RUST_QUEUE, RunningWorker, new_worker};
use shapes::Shape;
use supervisor::Supervisor;

const PYTHON_QUEUE: &str = "python";

/// The queue of a worker that supports cooperative cancellation.
const ASKED_QUEUE: &str = "asked";
const WORKFLOWS: u64 = 72;
const KILLS: usize = 10;

/// The pause between two starts, short enough that there is load at every kill.
const START_INTERVAL: Duration = Duration::from_millis(300);

/// The lease of tasks. It limits the quiet time at the end.
const LEASE_SECONDS: u32 = 5;

/// Everything must be done this long after the last kill.
const LOAD_DEADLINE: Duration = Duration::from_secs(90);

/// Pseudo-random numbers that a printed seed repeats (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_environment() -> Self {
        let chosen = std::env::var("LONGHAUL_CRASH_SEED")
            .ok()
            .map(|seed| seed.parse().expect("a number"));
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock after 1970");
        let seed = chosen.unwrap_or_else(|| u64::from(now.subsec_nanos()) ^ now.as_secs());
        eprintln!("LONGHAUL_CRASH_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("a small number")
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end + 1));
        }
    }

    pub(crate) fn milliseconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.next() % (range.end - range.start))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_server_is_killed_under_load() {
    let mut random = Random::from_environment();
    let mut server = ServerOptions::new()
        .lease_seconds(LEASE_SECONDS)
        .start()
        .await;
    let client = Client::new(server.url()).unwrap();
    let python = [
        PythonWorker::start(&server, PYTHON_QUEUE, "python-1").await,
        PythonWorker::start(&server, PYTHON_QUEUE, "python-2").await,
        PythonWorker::start(&server, ASKED_QUEUE, "python-asked").await,
    ];
    let rust = ["rust-1", "rust-2"].map(|id| Supervisor::start(client.clone(), id));
    let mut load = JoinSet::new();
    for number in 0..WORKFLOWS {
        let job = Job::new(number, &mut random);
        load.spawn(job.run(client.clone(), server.control()));
    }

    for _ in 0..KILLS {
        sleep(random.milliseconds(200..2500)).await;
        server.kill().await;
        sleep(random.milliseconds(0..300)).await;
        server.restart().await;
    }
    let everything = async {
        while let Some(ended) = load.join_next().await {
            ended.expect("a workflow of the load");
        }
    };
    timeout(LOAD_DEADLINE, everything)
        .await
        .expect("all workflows complete after the last kill");

    for number in 0..WORKFLOWS {
        check_history(&server.control(), number).await;
    }
    for worker in python {
        worker.stop().await;
    }
    for supervisor in rust {
        supervisor.stop().await;
    }
}

/// One workflow of the load: when it starts, when its messages are sent, and its expected result.
struct Job {
    number: u64,
    start_after: Duration,
    pauses: Vec<Duration>,
}

impl Job {
    fn new(number: u64, random: &mut Random) -> Self {
        let start_after = START_INTERVAL * u32::try_from(number).expect("a small number");
        let pauses = (0..Shape::of(number).messages()).map(|_| random.milliseconds(0..800));
        Self {
            number,
            start_after,
            pauses: pauses.collect(),
        }
    }

    async fn run(self, client: Client, control: Control) {
        let (id, shape) = (workflow_id(self.number), Shape::of(self.number));
        let queue = match shape {
            Shape::Asked | Shape::Prepared => ASKED_QUEUE,
            _ if self.number.is_multiple_of(2) => RUST_QUEUE,
            _ => PYTHON_QUEUE,
        };
        sleep(self.start_after).await;
        let input = json!([self.number]);
        start(&client, shape.workflow_type(), queue, &id, input).await;
        for (index, pause) in self.pauses.iter().enumerate() {
            sleep(*pause).await;
            match shape {
                Shape::Updates => update(&client, &id, index).await,
                Shape::Stream => append(&client, &id, index).await,
                Shape::Cancelled => {
                    wait_until_asleep(&control, &id).await;
                    cancel(&client, &id).await;
                }
                Shape::Asked => {
                    wait_until_asleep(&control, &id).await;
                    ask_to_end(&client, &id).await;
                }
                _ => signal(&client, &id, &format!("signal-{index}"), json!([index])).await,
            }
        }
        let closed = wait_until_closed(&client, &id).await;
        assert_eq!(
            closed.status.as_deref(),
            Some(shape.status()),
            "{id} ({shape:?}): {:?}",
            closed.failure
        );
        if let Some(expected) = shape.expected(self.number) {
            assert_eq!(closed.output, Some(expected), "{id} ({shape:?})");
        }
    }
}

fn workflow_id(number: u64) -> String {
    format!("job-{number}")
}

async fn check_history(control: &Control, number: u64) {
    let (id, shape) = (workflow_id(number), Shape::of(number));
    let runs = judge::family(control, &id).await;
    assert_eq!(runs.len(), shape.runs(), "{id}");
    let count =
        |event_type: &str| -> usize { runs.iter().map(|history| history.count(event_type)).sum() };
    let types: Vec<_> = runs.iter().map(History::types).collect();
    assert_eq!(
        count("ActivityCompleted"),
        shape.activities(),
        "{id}: {types:?}"
    );
    if matches!(shape, Shape::Local | Shape::Prepared) {
        runs.iter().for_each(judge::local_activities_are_in_order);
    }
    let expected: &[(&str, usize)] = match shape {
        Shape::Signals => &[("SignalReceived", shape.signals())],
        Shape::Updates => &[("UpdateApplied", 3), ("UpdateCompleted", 3)],
        Shape::Children => &[
            ("ChildWorkflowScheduled", 4),
            ("ChildRunCompleted", 2),
            ("ChildRunFailed", 1),
            ("ParentClosePolicyApplied", 1),
            ("SelectionResolved", 1),
        ],
        Shape::Selection => &[
            ("SelectionResolved", 1),
            ("SelectionOperationCancelled", 1),
            ("TimerCancelled", 1),
        ],
        Shape::Cancelled => &[("CancelRequested", 1), ("TimerCancelled", 1)],
        Shape::Asked => &[
            ("CooperativeCancellationRequested", 1),
            ("CooperativeCancellationDelivered", 1),
            ("TimerCancelled", 1),
            ("TimerFired", 1),
        ],
        Shape::Sequential
        | Shape::Parallel
        | Shape::Timer
        | Shape::Stream
        | Shape::Local
        | Shape::Prepared => &[],
    };
    for (event_type, times) in expected {
        assert_eq!(count(event_type), *times, "{id} {event_type}: {types:?}");
    }
}

/// Repeats a call until the server answers, however often it is down.
async fn insist<T, F>(mut call: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + LOAD_DEADLINE;
    loop {
        match call().await {
            Err(error) if supervisor::is_outage(&error) && Instant::now() < deadline => {}
            answered => return answered,
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn start(client: &Client, workflow_type: &str, queue: &str, id: &str, input: Value) {
    match insist(|| client.start_workflow(workflow_type, queue, id, input.clone())).await {
        Ok(_) => {}
        // An earlier try was recorded, only its answer was lost.
        Err(Error::Http { status, body })
            if status == 409 && body.contains("instance_already_started") => {}
        Err(error) => panic!("cannot start {id}: {error:?}"),
    }
}

async fn signal(client: &Client, id: &str, request_id: &str, input: Value) {
    let sent =
        insist(|| client.signal_workflow_with_request_id(id, "go", input.clone(), request_id))
            .await;
    sent.expect("the signal is accepted, once");
}

/// Sends an update, with the same request id until it is answered.
async fn update(client: &Client, id: &str, number: usize) {
    let request_id = format!("update-{number}");
    loop {
        let answer =
            insist(|| client.update_workflow(id, "add", json!([number]), Some(&request_id))).await;
        let answer = answer.expect("the update is accepted, once");
        // Without an answer of the handler, the server returns the state of the update.
        if answer.is_number() {
            assert_eq!(answer, json!(number * 2), "{id} {request_id}");
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn append(client: &Client, id: &str, number: usize) {
    let message_id = format!("message-{number}");
    let sent =
        insist(|| client.append_message_stream(id, "orders", &message_id, json!([number]))).await;
    let sent = sent.expect("the message is accepted, once");
    assert_eq!(sent["position"], json!(number + 1), "{id}");
}

async fn cancel(client: &Client, id: &str) {
    let options = WorkflowCommandOptions {
        reason: Some("no longer wanted".to_owned()),
        request_id: Some("cancel".to_owned()),
    };
    let cancelled = insist(|| client.cancel_workflow(id, options.clone())).await;
    cancelled.expect("the workflow is cancelled, once");
}

async fn ask_to_end(client: &Client, id: &str) {
    let deadline = Instant::now() + LOAD_DEADLINE;
    loop {
        let options = CooperativeCancellationOptions {
            reason: Some("maintenance".to_owned()),
            cleanup_timeout_seconds: Some(3600),
        };
        match insist(|| client.request_workflow_cancellation(id, options.clone())).await {
            Ok(_) => return,
            // The server has just restarted and has no heartbeat of the worker yet.
            Err(Error::Http { body, .. })
                if body.contains("not_supported") && Instant::now() < deadline => {}
            // An earlier try was recorded, only its answer was lost.
            Err(Error::Http { body, .. }) if body.contains("run_not_active") => return,
            Err(error) => panic!("cannot ask {id} to end: {error:?}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the run's first timer is in its history.
async fn wait_until_asleep(control: &Control, id: &str) {
    let deadline = Instant::now() + LOAD_DEADLINE;
    while control.try_count(id, "TimerScheduled").await == 0 {
        assert!(Instant::now() < deadline, "{id} does not fall asleep");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn wait_until_closed(client: &Client, id: &str) -> WorkflowDescription {
    loop {
        let description = insist(|| client.describe_workflow(id))
            .await
            .expect("a description");
        if description.is_terminal() {
            return description;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Drives a run through its steps, with a kill and a restart at every wait. The same worker must finish the run.
///
/// `resting` names the event that appears when the run waits for a signal; `settle` waits until the worker's n-th task
/// is reported and answered, so that no report is cut off.
async fn check_restart_between_steps<F>(
    server: &mut Server,
    queue: &str,
    resting: &str,
    settle: impl Fn(usize) -> F,
) where
    F: Future<Output = ()>,
{
    const TASKS_PER_STEP: usize = 3;
    let client = Client::new(server.url()).unwrap();
    start(&client, "crash.steps", queue, "steps", json!([])).await;
    for step in 0..=shapes::STEPS {
        // The last rest is the timer's.
        let (event, count) = if step < shapes::STEPS {
            (resting, step + 1)
        } else {
            ("TimerScheduled", 1)
        };
        wait_for_event(server, event, count).await;
        settle(1 + step * TASKS_PER_STEP).await;
        server.kill().await;
        server.restart().await;
        if step < shapes::STEPS {
            signal(&client, "steps", &format!("step-{step}"), json!([step])).await;
        }
    }
    let closed = wait_until_closed(&client, "steps").await;
    assert_eq!(
        closed.output,
        Some(json!((0..shapes::STEPS).sum::<usize>())),
        "{:?}",
        closed.status
    );
    let control = server.control();
    let history = control
        .history("steps", &control.run_ids("steps").await[0])
        .await;
    history.assert_sound();
    assert_eq!(
        history.count("ActivityStarted"),
        shapes::STEPS,
        "no activity ran twice: {:?}",
        history.types()
    );
    assert_eq!(history.count("TimerFired"), 1);
}

async fn wait_for_event(server: &Server, event_type: &str, count: usize) {
    let control = server.control();
    eventually(&format!("{count} × {event_type}"), || async {
        let run = control.run_ids("steps").await.remove(0);
        (control.history("steps", &run).await.count(event_type) >= count).then_some(())
    })
    .await;
}

/// Counts the tasks that a worker has finished and the server has confirmed.
#[derive(Default)]
struct SettledTasks(AtomicUsize);

impl MetricsRecorder for SettledTasks {
    fn increment(&self, name: &str, _: u64, _: &MetricTags) {
        if name == WORKER_TASKS {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn record(&self, _: &str, _: f64, _: &MetricTags) {}
}

#[tokio::test]
async fn a_rust_worker_continues_after_a_restart_between_any_two_steps() {
    let mut server = Server::start().await;
    let settled = Arc::new(SettledTasks::default());
    let recorder: Arc<dyn MetricsRecorder> = settled.clone();
    let mut worker =
        new_worker(Client::new(server.url()).unwrap(), "rust-1").metrics_recorder(recorder);
    shapes::register(&mut worker);
    let worker = RunningWorker::start(worker);

    check_restart_between_steps(&mut server, RUST_QUEUE, "SignalWaitOpened", |tasks| {
        let settled = Arc::clone(&settled);
        async move {
            let what = format!("{tasks} tasks settled");
            eventually(&what, || async {
                (settled.0.load(Ordering::SeqCst) >= tasks).then_some(())
            })
            .await;
        }
    })
    .await;

    worker.stop().await;
}

#[tokio::test]
async fn a_python_worker_continues_after_a_restart_between_any_two_steps() {
    let mut server = Server::start().await;
    let worker = PythonWorker::start(&server, PYTHON_QUEUE, "python-1").await;

    // A Python worker repeats a report whose answer was lost, so there is nothing to wait for.
    check_restart_between_steps(
        &mut server,
        PYTHON_QUEUE,
        "ConditionWaitOpened",
        |_| async {},
    )
    .await;

    worker.stop().await;
}
