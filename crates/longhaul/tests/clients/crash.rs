//! The server killed with SIGKILL while real workers of both SDKs work: nothing may be lost, nothing may happen twice.
//!
//! Workers register once. A Python worker and an idle Rust worker live through an outage by themselves. A Rust worker
//! that was reporting a result when the connection broke ends with a transport error, as published; `supervisor` starts
//! it again, as an operator's would.

mod shapes;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use durable_workflow::metrics::{MetricTags, MetricsRecorder, WORKER_TASKS};
use durable_workflow::{Client, Error, Result, Value, WorkflowDescription, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{Control, PythonWorker, Server, ServerOptions, eventually};
use crate::rust_sdk::fixture::{QUEUE as RUST_QUEUE, RunningWorker, new_worker};
use shapes::Shape;
use supervisor::Supervisor;

const PYTHON_QUEUE: &str = "python";
const WORKFLOWS: u64 = 60;
const KILLS: usize = 10;

/// A workflow starts every so often, so that there is load at every kill.
const START_INTERVAL: Duration = Duration::from_millis(300);

/// How long a task stays with a worker that lost it; bounds the quiet time at the end.
const LEASE_SECONDS: u32 = 5;

/// Everything must be done this long after the last kill.
const LOAD_DEADLINE: Duration = Duration::from_secs(90);

/// Pseudo-random numbers that a printed seed repeats (SplitMix64).
struct Random(u64);

impl Random {
    fn from_environment() -> Self {
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

    fn milliseconds(&mut self, range: std::ops::Range<u64>) -> Duration {
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
    ];
    let rust = ["rust-1", "rust-2"].map(|id| Supervisor::start(client.clone(), id));
    let mut load = JoinSet::new();
    for number in 0..WORKFLOWS {
        let job = Job::new(number, &mut random);
        load.spawn(job.run(client.clone()));
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

/// One workflow of the load: when it starts, when its signals are sent, what must come out.
struct Job {
    number: u64,
    start_after: Duration,
    signal_pauses: Vec<Duration>,
}

impl Job {
    fn new(number: u64, random: &mut Random) -> Self {
        let start_after = START_INTERVAL * u32::try_from(number).expect("a small number");
        let pauses = (0..Shape::of(number).signals()).map(|_| random.milliseconds(0..800));
        Self {
            number,
            start_after,
            signal_pauses: pauses.collect(),
        }
    }

    async fn run(self, client: Client) {
        let (id, shape) = (workflow_id(self.number), Shape::of(self.number));
        let queue = if self.number.is_multiple_of(2) {
            RUST_QUEUE
        } else {
            PYTHON_QUEUE
        };
        sleep(self.start_after).await;
        start(
            &client,
            shape.workflow_type(),
            queue,
            &id,
            json!([self.number]),
        )
        .await;
        for (index, pause) in self.signal_pauses.iter().enumerate() {
            sleep(*pause).await;
            signal(&client, &id, &format!("signal-{index}"), json!([index])).await;
        }
        let closed = wait_until_closed(&client, &id).await;
        assert!(
            closed.is_completed(),
            "{id} ({shape:?}) ended as {:?}: {:?}",
            closed.status,
            closed.failure
        );
        assert_eq!(
            closed.output,
            Some(shape.expected(self.number)),
            "{id} ({shape:?})"
        );
    }
}

fn workflow_id(number: u64) -> String {
    format!("job-{number}")
}

async fn check_history(control: &Control, number: u64) {
    let (id, shape) = (workflow_id(number), Shape::of(number));
    let runs = control.run_ids(&id).await;
    assert_eq!(runs.len(), 1, "{id}");
    let history = control.history(&id, &runs[0]).await;
    history.assert_sound();
    assert_eq!(
        history.count("ActivityCompleted"),
        shape.activities(),
        "{id}: {:?}",
        history.types()
    );
    assert_eq!(
        history.count("SignalReceived"),
        shape.signals(),
        "{id}: {:?}",
        history.types()
    );
}

/// Repeats a call until the server answers it, however often it is down meanwhile.
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

/// Takes a run through its steps with a kill and a restart whenever it rests; the same worker must carry it to its end.
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

/// Counts the tasks a worker has finished, the server's answer included.
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
