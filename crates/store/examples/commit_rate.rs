//! How many transitions a second a store takes, by the number of commits that wait at a time and of runs already stored, beside
//! what one sync of the same disk costs.
//!
//!     cargo run --release -p longhaul-store --example commit_rate [DIRECTORY]
//!     cargo run --release -p longhaul-store --example commit_rate postgres://HOST/DATABASE
//!
//! With an address, the store is a new database beside that one, dropped afterwards, with few stored runs only. KiB written are those of
//! this process.
//!
//! A transition is what completing an activity costs: one run row, two events, one task, one part. "spread" is the number
//! of runs that transitions go to in turn: about twice as many as wait on a busy server, all that are stored in the worst
//! case. A run gets eight transitions, then the next runs have their turn, so that histories stay as short as most are.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement: it prints, and stops at the first error"
)]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use longhaul_engine::change::{Changes, RunChange, TaskStatus};
use longhaul_engine::run::state::Run;
use longhaul_protocol::Ids;
use longhaul_protocol::id::TaskId;
use longhaul_store::conformance::fixture::{at, next, part, push_event, spec, start, task};
use longhaul_store::postgres::{Options, Postgres, Scratch};
use longhaul_store::sqlite::Sqlite;
use longhaul_store::{Page, Stats, Store};
use serde_json::json;

const STORED: [usize; 2] = [1_000, 100_000];
const WAITING: [usize; 4] = [1, 16, 128, 1_000];
const SPREADS: [usize; 3] = [256, 1_000, 100_000];
const MEASURE: Duration = Duration::from_secs(4);
const READS: usize = 2_000;
const WARM_UP: Duration = Duration::from_secs(1);

fn main() {
    let place = std::env::args().nth(1);
    let address = place
        .as_deref()
        .filter(|place| place.starts_with("postgres"));
    let directory = place
        .as_ref()
        .filter(|_| address.is_none())
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    println!(
        "one fdatasync of a 4 KiB append: {:?} (median of 200)\n",
        sync_time(directory.path())
    );
    println!(
        "  stored  spread  waiting  transitions/s   batch  µs in SQL  KiB written    commit       p50       p99"
    );
    if let Some(address) = address {
        runtime.block_on(measure_postgres(address));
        return;
    }
    for stored in STORED {
        let path = directory.path().join(format!("{stored}.db"));
        let store = Sqlite::open(&path).unwrap();
        runtime.block_on(measure(&store, stored));
        let bytes = std::fs::metadata(&path).unwrap().len();
        println!("{stored:>8} runs in {} MB", bytes >> 20);
    }
}

async fn measure_postgres(address: &str) {
    let options = Options::parse(address).unwrap();
    let database = Scratch::create(&options).await.unwrap();
    let store = Postgres::open(database.options()).await.unwrap();
    measure(&store, STORED[0]).await;
    drop(store);
    database.drop_database().await.unwrap();
}

async fn measure(store: &impl Store, stored: usize) {
    let mut runs = fill(store, stored).await;
    for spread in SPREADS.into_iter().filter(|spread| *spread <= stored) {
        let mut turns = Turns {
            next: 0,
            spread,
            stored,
        };
        for waiting in WAITING {
            work(store, &mut runs, &mut turns, waiting, WARM_UP).await;
            let measured = work(store, &mut runs, &mut turns, waiting, MEASURE).await;
            measured.print(stored, spread, waiting);
        }
    }
    read(store, &runs).await;
}

fn sync_time(directory: &Path) -> Duration {
    let mut file = File::create(directory.join("sync")).unwrap();
    let mut times: Vec<_> = (0..200)
        .map(|_| {
            file.write_all(&[7; 4096]).unwrap();
            let started = Instant::now();
            file.sync_data().unwrap();
            started.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// Ids as the engine mints them: time-ordered, all of 26 characters.
fn ids(number: usize) -> Ids {
    Ids::new(
        at(i64::try_from(number).unwrap()),
        (number as u128) << 40 | 0x00ab_cdef,
    )
}

async fn fill(store: &impl Store, stored: usize) -> Vec<Run> {
    let mut runs = Vec::with_capacity(stored);
    for chunk in (0..stored).collect::<Vec<_>>().chunks(1_000) {
        let mut answers = FuturesUnordered::new();
        for number in chunk {
            let mut spec = spec(&format!("order-{number:08}"), 1);
            spec.run_id = ids(*number).mint();
            spec.started_at = at(i64::try_from(*number).unwrap());
            let mut change = start(spec);
            dress(&mut change, 0, *number);
            runs.push(change.apply(None));
            answers.push(store.commit(Arc::new(Changes {
                run: None,
                created: vec![change],
                ..Changes::default()
            })));
        }
        while let Some(answer) = answers.next().await {
            answer.unwrap();
        }
    }
    runs
}

/// Rows of realistic size: an event of half a kibibyte, a core with a leased workflow task, an activity with an attempt.
fn dress(change: &mut RunChange, step: u64, minted: usize) {
    let mut ids = ids(minted);
    let blob = "wwHioz3/VYAiNwwA".repeat(12);
    for event in &mut change.events {
        event.id = ids.mint();
        event.workflow_task_id = Some(ids.mint());
        event.payload = format!(
            r#"{{"activity_execution_id":"01j9zzzzzzzzzzzzzzzzzzzzzz","activity_type":"charge","activity_class":"charge","sequence":{step},"activity_attempt_id":"01j9zzzzzzzzzzzzzzzzzzzzzz","attempt_number":1,"result":{{"codec":"avro","blob":"{blob}"}},"payload_codec":"avro"}}"#
        );
    }
    let status = [TaskStatus::Ready, TaskStatus::Leased, TaskStatus::Completed]
        [usize::try_from(step % 3).unwrap()];
    // Made when it becomes ready, and kept until it is done.
    let task_id: TaskId = match &change.core.workflow_task {
        Some(task) if status != TaskStatus::Ready => task.id.clone(),
        _ => ids.mint(),
    };
    change.core.workflow_task = Some(
        serde_json::from_value(json!({
            "id": task_id, "available_at": at(0), "attempt": 1, "offered": true,
            "lease": {"owner": "python-worker-4711", "leased_at": at(0), "expires_at": at(60), "observed_sequence": step, "poll_request_id": task_id},
            "resume": {"resume_source_kind": "activity_execution", "resume_source_id": task_id, "activity_type": "charge",
                "workflow_wait_kind": "activity", "activity_execution_id": task_id},
        }))
        .unwrap(),
    );
    let activity = json!({"activity": {
        "sequence": step % 3, "execution_id": task_id, "activity_type": "charge", "queue": "orders", "scheduled_at": at(0),
        "task_id": task_id, "available_at": at(1), "offered": true, "attempt_count": 1,
        "attempt": {"id": task_id, "number": 1, "owner": "python-worker-4711", "started_at": at(2), "lease_expires_at": at(60),
            "poll_request_id": task_id},
    }});
    let key = longhaul_engine::run::state::PartKey::Activity((step % 3).into());
    // Two open, then one done: parts come and go.
    change.parts = vec![(key, (step % 4 != 3).then(|| part(activity)))];
    let mut row = task(change, task_id.as_str(), status);
    row.poll_request_id = Some(task_id.to_string());
    change.tasks = vec![row];
    // A run's alarm moves with its leases, not with every transition.
    change.core.alarm = Some(at(60 + i64::try_from(step / 3).unwrap()));
}

/// What reads by key cost without writes beside them.
async fn read(store: &impl Store, runs: &[Run]) {
    let place = |turn: usize| turn * Turns::STRIDE % runs.len();
    let started = Instant::now();
    for turn in 0..READS {
        assert!(
            store
                .run(runs[place(turn)].run_id())
                .await
                .unwrap()
                .is_some()
        );
    }
    let run = started.elapsed() / READS as u32;
    let (started, mut events) = (Instant::now(), 0);
    for turn in 0..READS {
        events += store
            .history(
                runs[place(turn)].run_id(),
                0.into(),
                20.into(),
                Page::of(20),
            )
            .await
            .unwrap()
            .len();
    }
    let history = started.elapsed() / READS as u32;
    println!(
        "{:>8} reads: a run {run:.1?}, a page of {:.1} events {history:.1?}",
        runs.len(),
        events as f64 / READS as f64
    );
}

struct Measured {
    transitions: usize,
    /// Handed to the system by the whole process; 0 where it does not say.
    bytes: u64,
    took: Duration,
    before: Stats,
    after: Stats,
    latencies: Vec<Duration>,
}

/// Which run is next.
struct Turns {
    next: usize,
    spread: usize,
    stored: usize,
}

impl Turns {
    const TRANSITIONS_EACH: usize = 8;
    /// Coprime to the spreads: visits all runs of a window in an order without neighbours.
    const STRIDE: usize = 7_919;

    fn take(&mut self) -> usize {
        let window = self.next / (self.spread * Self::TRANSITIONS_EACH);
        let place = self.next * Self::STRIDE % self.spread;
        self.next += 1;
        (window * self.spread + place) % self.stored
    }
}

/// Keeps `waiting` commits in flight for as long as `time`.
async fn work(
    store: &impl Store,
    runs: &mut [Run],
    turns: &mut Turns,
    waiting: usize,
    time: Duration,
) -> Measured {
    let (before, bytes, started) = (store.stats(), bytes_written(), Instant::now());
    let mut answers = FuturesUnordered::new();
    let mut latencies = Vec::new();
    let mut minted = usize::try_from(before.writes).unwrap();
    loop {
        let filling = started.elapsed() < time;
        while filling && answers.len() < waiting {
            let run = &mut runs[turns.take()];
            let mut change = next(run);
            push_event(&mut change, "ActivityStarted");
            push_event(&mut change, "ActivityCompleted");
            minted += 1;
            dress(&mut change, run.version, minted);
            *run = change.apply(Some(run.clone()));
            let called = Instant::now();
            let answer = store.commit(Arc::new(Changes {
                run: Some(Box::new(change)),
                created: Vec::new(),
                ..Changes::default()
            }));
            answers.push(async move {
                answer.await.unwrap();
                called.elapsed()
            });
        }
        let Some(latency) = answers.next().await else {
            break;
        };
        latencies.push(latency);
    }
    Measured {
        transitions: latencies.len(),
        bytes: bytes_written() - bytes,
        took: started.elapsed(),
        before,
        after: store.stats(),
        latencies,
    }
}

fn bytes_written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines()
        .find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
        .unwrap_or(0)
}

impl Measured {
    fn print(mut self, stored: usize, spread: usize, waiting: usize) {
        self.latencies.sort();
        let percentile = |of: usize| self.latencies[(self.latencies.len() - 1) * of / 100];
        let batches = self.after.batches - self.before.batches;
        let (batch_nanos, sync_nanos) = (
            self.after.batch_nanos - self.before.batch_nanos,
            self.after.sync_nanos - self.before.sync_nanos,
        );
        let transitions = self.transitions as f64;
        println!(
            "{stored:>8} {spread:>7} {waiting:>8} {:>14.0} {:>7.1} {:>10.1} {:>12.1} {:>9.2?} {:>9.2?} {:>9.2?}",
            transitions / self.took.as_secs_f64(),
            transitions / batches as f64,
            (batch_nanos - sync_nanos) as f64 / 1e3 / transitions,
            self.bytes as f64 / 1024.0 / transitions,
            Duration::from_nanos(sync_nanos / batches.max(1)),
            percentile(50),
            percentile(99),
        );
    }
}
