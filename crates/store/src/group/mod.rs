//! Group commit: one writer thread, many waiting writes, one transaction and one sync for all that wait.
//!
//! There is no timer. A batch is all writes that wait when the previous one is durable, so an idle store adds no latency and a busy
//! one shares each sync among many. Writes are applied in the order of the calls to [`Group::enqueue`]. The [`Sink`] defines the
//! meaning of a batch; this module owns the order, the results, and the handling of failed batches.
//!
//! The writer survives every panic: a turn that panics loses its results, which its callers see as a failure, and the next turn
//! continues. [`Counters::state`] returns whether writes work now.

pub(crate) mod trial;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::{Error, Quiet};

/// Writes in one transaction. A sync costs as much as some dozens of writes, so a larger batch gains almost nothing more
/// and makes the first of its writes wait for the last.
const BATCH_WRITES_MAX: usize = 1024;

/// A batch is closed once it holds this much: a few writes with payloads of megabytes must not make one transaction that delays all
/// other writes.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// Writes that may wait. Far above what request limits allow; beyond it the disk has stopped, and memory would be exhausted next.
const WAITING_MAX: u64 = 100_000;

/// The destination of batches.
pub(crate) trait Sink: Send + 'static {
    /// One all-or-nothing write.
    type Write: Send + 'static;

    /// Writes a batch in one durable transaction. The inner results belong to each write: whether it changed something, or why it
    /// alone was refused. The outer error means that nothing at all was written; the writes are then tried again one by one.
    fn write(&mut self, batch: &[Self::Write]) -> Result<Vec<Result<bool, Error>>, Error>;

    /// Returns about how many bytes the write holds.
    fn size(write: &Self::Write) -> usize;
}

/// The handle of the writer thread. Dropping it writes everything that still waits, then ends the thread.
pub(crate) struct Group<S: Sink> {
    /// `None` only while being dropped.
    sender: Option<mpsc::Sender<Waiting<S::Write>>>,
    writer: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

struct Waiting<W> {
    write: W,
    answer: oneshot::Sender<Answered<W>>,
}

/// The write is returned with its result, so that its caller frees it: that takes a tenth of the writer's time otherwise.
struct Answered<W> {
    result: Result<bool, Error>,
    _write: W,
}

impl<S: Sink> Group<S> {
    pub(crate) fn start(sink: S, counters: Arc<Counters>) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&counters);
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(sink, &receiver, &shared))
            .map_err(|error| {
                Error::Unavailable(format!("cannot start the writer thread: {error}"))
            })?;
        Ok(Self {
            sender: Some(sender),
            writer: Some(writer),
            counters,
        })
    }

    /// Adds the write to the order now; the future only waits for the result, and dropping it does not undo the write.
    pub(crate) fn enqueue(
        &self,
        write: S::Write,
    ) -> impl Future<Output = Result<bool, Error>> + Send + use<S> {
        let answered = self.send(write);
        async move {
            match answered?.await {
                Ok(answered) => answered.result,
                Err(_) => Err(Error::Unavailable(
                    "the writer lost the result; it is unknown whether the write is stored"
                        .to_owned(),
                )),
            }
        }
    }

    fn send(&self, write: S::Write) -> Result<oneshot::Receiver<Answered<S::Write>>, Error> {
        if self.counters.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return Err(Error::Unavailable(format!(
                "{WAITING_MAX} writes are waiting for the disk"
            )));
        }
        let (answer, answered) = oneshot::channel();
        self.counters.waiting.fetch_add(1, Ordering::Relaxed);
        // If the writer has ended, the send fails and drops `answer`, which the receiver reports.
        if let Some(sender) = &self.sender
            && sender.send(Waiting { write, answer }).is_err()
        {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(answered)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}

impl<S: Sink> Drop for Group<S> {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

fn run<S: Sink>(mut sink: S, receiver: &mpsc::Receiver<Waiting<S::Write>>, counters: &Counters) {
    while let Ok(first) = receiver.recv() {
        // A panic outside the sink drops the results of this turn, and nothing else.
        let turn = AssertUnwindSafe(|| write_waiting(&mut sink, first, receiver, counters));
        if catch_unwind(turn).is_err() {
            counters.failing.store(true, Ordering::Relaxed);
            // Even this may panic, inside the logger.
            let _ = catch_unwind(|| {
                tracing::error!(
                    "the writer panicked outside a transaction; its callers do not know what was stored"
                );
            });
        }
    }
}

/// Writes the waiting writes, up to a batch, beginning with `first`.
fn write_waiting<S: Sink>(
    sink: &mut S,
    first: Waiting<S::Write>,
    receiver: &mpsc::Receiver<Waiting<S::Write>>,
    counters: &Counters,
) {
    let mut writes = Vec::new();
    let mut answers = Vec::new();
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(waiting) = next {
        counters.waiting.fetch_sub(1, Ordering::Relaxed);
        bytes += S::size(&waiting.write);
        writes.push(waiting.write);
        answers.push(waiting.answer);
        let full = writes.len() >= BATCH_WRITES_MAX || bytes >= BATCH_BYTES_MAX;
        next = if full { None } else { receiver.try_recv().ok() };
    }

    let started = Instant::now();
    let results = write_batch(sink, &writes);
    counters.record(&results, started.elapsed());
    for ((answer, result), write) in answers.into_iter().zip(results).zip(writes) {
        // The send fails if the caller stopped waiting; the write is stored anyway.
        let _ = answer.send(Answered {
            result,
            _write: write,
        });
    }
}

/// Batches that failed as a whole.
static FAILED_BATCHES: Quiet = Quiet::new();

/// Invariant: one result per write, whatever happens in the sink.
fn write_batch<S: Sink>(sink: &mut S, writes: &[S::Write]) -> Vec<Result<bool, Error>> {
    match attempt(sink, writes) {
        Ok(results) => results,
        Err(error) if writes.len() <= 1 => vec![Err(error)],
        Err(error) => {
            if let Some(unlogged) = FAILED_BATCHES.occurred() {
                tracing::warn!(%error, writes = writes.len(), unlogged, "a batch failed; trying its writes one by one");
            }
            writes
                .iter()
                .map(|write| {
                    attempt(sink, std::slice::from_ref(write))
                        .and_then(|mut results| results.remove(0))
                })
                .collect()
        }
    }
}

/// Writes a batch and turns a panic into a failed batch: the transaction of the sink was rolled back while unwinding, so the writer
/// can continue, and only the write that panics again when alone stays without a result.
fn attempt<S: Sink>(sink: &mut S, writes: &[S::Write]) -> Result<Vec<Result<bool, Error>>, Error> {
    let results = match catch_unwind(AssertUnwindSafe(|| sink.write(writes))) {
        Ok(results) => results?,
        Err(_) => {
            return Err(Error::Unavailable(
                "the writer panicked; see the log".to_owned(),
            ));
        }
    };
    if results.len() != writes.len() {
        return Err(Error::Unavailable(
            "the writer returned a wrong number of results".to_owned(),
        ));
    }
    Ok(results)
}

/// The counters of the writer. Plain atomics: read by metrics, never by decisions.
#[derive(Default)]
pub(crate) struct Counters {
    waiting: AtomicU64,
    writes: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    batches: AtomicU64,
    batch_last: AtomicU64,
    batch_nanos: AtomicU64,
    sync_nanos: AtomicU64,
    syncs: AtomicU64,
    /// Whether the newest write that was not refused failed.
    failing: AtomicBool,
}

/// Whether writes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether the newest write failed, for a reason other than a conflict.
    pub(crate) is_failing: bool,
    /// Writes that are durable since the store was opened.
    pub(crate) writes: u64,
}

impl Counters {
    /// Returns the state of the writer, judged by its newest write.
    pub(crate) fn state(&self) -> State {
        State {
            is_failing: self.failing.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Counts a transaction that was made durable, and the duration of its COMMIT.
    pub(crate) fn record_sync(&self, took: Duration) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    /// Counts a batch by the results of its writes.
    pub(crate) fn record(&self, results: &[Result<bool, Error>], took: Duration) {
        let refused = results
            .iter()
            .filter(|result| matches!(result, Err(Error::Conflict)))
            .count();
        let written = results.iter().filter(|result| result.is_ok()).count();
        let failed = results.len() - refused - written;
        if results.iter().any(is_outage) {
            self.failing.store(true, Ordering::Relaxed);
        } else if written > 0 {
            self.failing.store(false, Ordering::Relaxed);
        }
        self.writes.fetch_add(written as u64, Ordering::Relaxed);
        self.refused.fetch_add(refused as u64, Ordering::Relaxed);
        self.failed.fetch_add(failed as u64, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.batch_last
            .store(results.len() as u64, Ordering::Relaxed);
        self.batch_nanos.fetch_add(nanos(took), Ordering::Relaxed);
    }

    /// Returns the counters at this time.
    pub(crate) fn snapshot(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            waiting: read(&self.waiting),
            writes: read(&self.writes),
            refused: read(&self.refused),
            failed: read(&self.failed),
            batches: read(&self.batches),
            batch_last: read(&self.batch_last),
            batch_nanos: read(&self.batch_nanos),
            syncs: read(&self.syncs),
            sync_nanos: read(&self.sync_nanos),
            remote: None,
        }
    }
}

/// Returns whether the disk is at fault, not the write.
fn is_outage(result: &Result<bool, Error>) -> bool {
    matches!(result, Err(Error::Unavailable(_) | Error::Damaged(_)))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The counters of the writer at one time, all but `waiting` and `batch_last` since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Writes that wait for the writer now.
    pub waiting: u64,
    /// Commits and other writes that are durable.
    pub writes: u64,
    /// Writes refused because another came first.
    pub refused: u64,
    /// Writes that failed for any other reason.
    pub failed: u64,
    /// Batches taken; their mean size is the sum of the three above divided by this.
    pub batches: u64,
    /// Size of the newest batch.
    pub batch_last: u64,
    /// Time from taking a batch until all of it was durable.
    pub batch_nanos: u64,
    /// Transactions made durable; more than `batches` only when one had to be split, fewer when all of one was refused.
    pub syncs: u64,
    /// The part of `batch_nanos` spent in COMMIT, in which the disk syncs.
    pub sync_nanos: u64,
    /// `None` if the store is in this process.
    pub remote: Option<RemoteStats>,
}

/// What a store sent to its database, and its connections for reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Statements since the store was opened, BEGIN and COMMIT included.
    pub statements: u64,
    /// Open connections now.
    pub connections: u64,
    /// Those that no reader uses.
    pub connections_idle: u64,
    /// Readers that wait for a connection now.
    pub readers_waiting: u64,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn wait<T>(answer: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(answer)
    }

    /// Keeps its writes; `sick` fails every batch it is in, `panics` panics, `refused` is refused alone. `unmeasurable` panics
    /// before it reaches the sink.
    struct Pages {
        written: Arc<Mutex<Vec<Vec<&'static str>>>>,
        /// Held by the test while writes accumulate.
        gate: Arc<Mutex<()>>,
    }

    impl Sink for Pages {
        type Write = &'static str;

        fn write(&mut self, batch: &[&'static str]) -> Result<Vec<Result<bool, Error>>, Error> {
            drop(self.gate.lock());
            assert!(!batch.contains(&"panics"), "the test makes it panic");
            if batch.contains(&"sick") {
                return Err(Error::Unavailable("sick".to_owned()));
            }
            let (refused, written): (Vec<_>, Vec<_>) =
                batch.iter().partition(|write| **write == "refused");
            assert!(refused.len() + written.len() == batch.len());
            self.written.lock().unwrap().push(written);
            Ok(batch
                .iter()
                .map(|write| {
                    if *write == "refused" {
                        Err(Error::Conflict)
                    } else {
                        Ok(true)
                    }
                })
                .collect())
        }

        fn size(write: &&'static str) -> usize {
            assert!(*write != "unmeasurable", "the test makes it panic");
            write.len()
        }
    }

    /// Checks the writes that accumulate behind the first one: their batches and their results.
    fn check(piled: &[&'static str], batches: &[&[&str]], answers: &[&str]) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::new(Mutex::new(()));
        let sink = Pages {
            written: Arc::clone(&written),
            gate: Arc::clone(&gate),
        };
        let group = Group::start(sink, Arc::default()).unwrap();
        let closed = gate.lock().unwrap();
        let first = group.enqueue("first");
        while group.stats().waiting > 0 {
            thread::yield_now();
        }
        let waiting: Vec<_> = piled.iter().map(|write| group.enqueue(write)).collect();
        drop(closed);
        assert!(wait(first).unwrap());
        let words: Vec<_> = waiting
            .into_iter()
            .map(|answer| match wait(answer) {
                Ok(_) => "done",
                Err(Error::Conflict) => "conflict",
                Err(Error::Unavailable(_)) => "unavailable",
                Err(_) => "other",
            })
            .collect();
        assert_eq!(words, answers);
        assert_eq!(written.lock().unwrap()[1..], *batches);
    }

    #[test]
    fn waiting_writes_are_one_batch_in_the_order_of_the_calls() {
        check(
            &["a", "b", "c"],
            &[&["a", "b", "c"]],
            &["done", "done", "done"],
        );
    }

    #[test]
    fn a_refused_write_fails_alone() {
        check(
            &["a", "refused", "c"],
            &[&["a", "c"]],
            &["done", "conflict", "done"],
        );
    }

    #[test]
    fn a_poisoned_write_does_not_fail_the_others() {
        check(
            &["a", "sick", "c"],
            &[&["a"], &["c"]],
            &["done", "unavailable", "done"],
        );
    }

    #[test]
    fn a_panic_is_reported_and_the_writer_continues() {
        check(
            &["a", "panics", "c"],
            &[&["a"], &["c"]],
            &["done", "unavailable", "done"],
        );
    }

    #[test]
    fn the_writer_survives_a_panic_outside_the_sink() {
        let sink = Pages {
            written: Arc::default(),
            gate: Arc::default(),
        };
        let counters = Arc::<Counters>::default();
        let group = Group::start(sink, Arc::clone(&counters)).unwrap();
        let lost = wait(group.enqueue("unmeasurable"));
        assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
        // The panic is counted after its results are dropped, before the next turn.
        assert!(wait(group.enqueue("a")).unwrap());
        assert!(!counters.state().is_failing);
        assert_eq!(group.stats().waiting, 0);
    }

    #[test]
    fn the_newest_write_shows_whether_writes_work() {
        let sink = Pages {
            written: Arc::default(),
            gate: Arc::default(),
        };
        let counters = Arc::<Counters>::default();
        let group = Group::start(sink, Arc::clone(&counters)).unwrap();
        for (write, is_failing) in [
            ("a", false),
            ("sick", true),
            ("refused", true),
            ("b", false),
            ("refused", false),
        ] {
            let _ = wait(group.enqueue(write));
            assert_eq!(counters.state().is_failing, is_failing, "{write}");
        }
    }

    #[test]
    fn dropping_the_group_writes_what_still_waits() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Pages {
            written: Arc::clone(&written),
            gate: Arc::default(),
        };
        let group = Group::start(sink, Arc::default()).unwrap();
        let answers: Vec<_> = ["a", "b"].map(|write| group.enqueue(write)).into();
        drop(group);
        assert_eq!(written.lock().unwrap().concat(), ["a", "b"]);
        for answer in answers {
            assert!(wait(answer).unwrap());
        }
    }

    #[test]
    fn counters_distinguish_writes_refusals_and_failures() {
        let sink = Pages {
            written: Arc::default(),
            gate: Arc::default(),
        };
        let group = Group::start(sink, Arc::default()).unwrap();
        for write in ["a", "refused", "sick"] {
            let _ = wait(group.enqueue(write));
        }
        let stats = group.stats();
        assert_eq!(
            (stats.writes, stats.refused, stats.failed, stats.batches),
            (1, 1, 1, 3)
        );
        assert_eq!((stats.waiting, stats.batch_last), (0, 1));
    }
}
