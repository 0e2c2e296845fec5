//! Records what each connection is doing and since when, and closes it if that takes too long.
//!
//! A connection's task writes its phase; the sweep reads it and may close the connection. Both use one atomic word, so a request that
//! arrives while its connection is closed is either served or not started, never cut in half.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{BYTES_PER_SECOND_MIN, Limits};

/// How long a client whose body was not complete has to read its refusal.
const REFUSAL_TIMEOUT_MS: u64 = 5_000;

/// How long requests that are being sent may take after the signal to stop.
const STOP_GRACE_MS: u64 = 1_000;

/// A body that is being sent or a response that is not read for this long may be ended to make room for a new connection.
const SLOW_MS: u64 = 5_000;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Nothing was received yet.
    Fresh = 0,
    /// The headers of a request are being received.
    Head = 1,
    /// The body of a request is being received.
    Body = 2,
    /// The request is complete. There is no limit on the time until its response.
    Answering = 3,
    /// The body took too long, and the refusal is being sent.
    Refusing = 4,
    /// Between two requests.
    Idle = 5,
    /// The connection is closed; its task drops it when it runs next.
    Closing = 6,
}

const PHASES: [Phase; 7] = [
    Phase::Fresh,
    Phase::Head,
    Phase::Body,
    Phase::Answering,
    Phase::Refusing,
    Phase::Idle,
    Phase::Closing,
];

const PHASE_BITS: u32 = 3;

fn pack(phase: Phase, since: u64) -> u64 {
    since << PHASE_BITS | phase as u64
}

fn unpack(word: u64) -> (Phase, u64) {
    let phase = usize::try_from(word & ((1 << PHASE_BITS) - 1)).unwrap_or(usize::MAX);
    (
        PHASES.get(phase).copied().unwrap_or(Phase::Closing),
        word >> PHASE_BITS,
    )
}

/// Why a body is not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Verdict {
    None = 0,
    TimedOut = 1,
    Stopping = 2,
}

/// The state of one connection, shared by its task and the sweep.
pub(super) struct Watched {
    shared: Arc<Shared>,
    /// The phase and the moment it began.
    phase: AtomicU64,
    /// Bytes received in this phase.
    received: AtomicU64,
    /// When a write had to wait for the reader, plus one; 0 when nothing waits.
    blocked: AtomicU64,
    /// Bytes that the reader read since then.
    written: AtomicU64,
    verdict: AtomicU8,
    /// The task that polls the connection, and the one that reads the body of its request.
    task: AtomicWaker,
    reader: AtomicWaker,
}

impl Watched {
    fn new(shared: Arc<Shared>) -> Self {
        let phase = AtomicU64::new(pack(Phase::Fresh, shared.now()));
        Self {
            shared,
            phase,
            received: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            written: AtomicU64::new(0),
            verdict: AtomicU8::new(Verdict::None as u8),
            task: AtomicWaker::new(),
            reader: AtomicWaker::new(),
        }
    }

    fn phase(&self) -> (Phase, u64) {
        unpack(self.phase.load(Ordering::Acquire))
    }

    /// Enters another phase, unless the connection is closed. Only the connection's own task calls this.
    fn enter(&self, phase: Phase) -> bool {
        let next = pack(phase, self.shared.now());
        let moved = self
            .phase
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (unpack(word).0 != Phase::Closing).then_some(next)
            });
        moved.is_ok()
    }

    /// Records received bytes.
    pub(super) fn received(&self, bytes: u64) {
        match self.phase().0 {
            Phase::Fresh | Phase::Idle => {
                self.enter(Phase::Head);
            }
            Phase::Body => {
                self.received.fetch_add(bytes, Ordering::Relaxed);
            }
            Phase::Head | Phase::Answering | Phase::Refusing | Phase::Closing => {}
        }
    }

    /// Records that a request's headers are complete. Returns false if the connection is closed and the request must not start.
    pub(super) fn request_began(&self, has_body: bool) -> bool {
        self.received.store(0, Ordering::Relaxed);
        self.verdict.store(Verdict::None as u8, Ordering::Release);
        self.enter(if has_body {
            Phase::Body
        } else {
            Phase::Answering
        })
    }

    /// Records that the body is complete, or that its reader stopped.
    pub(super) fn body_ended(&self) {
        if matches!(self.phase().0, Phase::Body | Phase::Refusing) {
            self.enter(Phase::Answering);
        }
    }

    /// Records that the response is complete or in hyper's buffer.
    pub(super) fn answered(&self) {
        self.enter(Phase::Idle);
    }

    /// Records that a write waits for the reader.
    pub(super) fn write_blocked(&self) {
        if self.blocked.load(Ordering::Relaxed) == 0 {
            self.written.store(0, Ordering::Relaxed);
            self.blocked.store(self.shared.now() + 1, Ordering::Release);
        }
    }

    /// Records sent bytes.
    pub(super) fn wrote(&self, bytes: u64) {
        if self.blocked.load(Ordering::Relaxed) != 0 {
            self.written.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records that everything buffered was sent.
    pub(super) fn flushed(&self) {
        if self.blocked.load(Ordering::Relaxed) != 0 {
            self.blocked.store(0, Ordering::Release);
        }
    }

    /// Returns why the body must not be read any further, if so. `waker` is woken when that changes.
    pub(super) fn verdict(&self, waker: &std::task::Waker) -> Verdict {
        self.reader.register(waker);
        match self.verdict.load(Ordering::Acquire) {
            0 => Verdict::None,
            1 => Verdict::TimedOut,
            _ => Verdict::Stopping,
        }
    }

    /// Returns what the connection's task must do. `waker` is woken when that changes.
    pub(super) fn order(&self, waker: &std::task::Waker) -> Order {
        self.task.register(waker);
        if self.phase().0 == Phase::Closing {
            Order::Close
        } else if self.shared.is_stopping() {
            Order::Finish
        } else {
            Order::GoOn
        }
    }

    /// Closes the connection if its phase is still the one that was read.
    fn close(&self, seen: u64) -> bool {
        let closing = pack(Phase::Closing, 0);
        let closed = self
            .phase
            .compare_exchange(seen, closing, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if closed {
            self.task.wake();
        }
        closed
    }

    /// Stops the reader of the body, if the body is still being received.
    fn refuse(&self, seen: u64, verdict: Verdict) {
        let refusing = pack(Phase::Refusing, self.shared.now());
        if self
            .phase
            .compare_exchange(seen, refusing, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.verdict.store(verdict as u8, Ordering::Release);
            self.reader.wake();
        }
    }

    /// Closes the connection if its phase takes too long.
    fn sweep(&self, limits: &Timeouts) {
        let seen = self.phase.load(Ordering::Acquire);
        let (phase, since) = unpack(seen);
        let now = self.shared.now();
        let is_late = |deadline: u64| now >= deadline;
        let blocked = self.blocked.load(Ordering::Acquire);
        if blocked != 0 && phase != Phase::Closing {
            let written = self.written.load(Ordering::Relaxed);
            if is_late(blocked + limits.write + allowance(written)) {
                self.close(seen);
                return;
            }
        }
        let stopping = self.shared.stopping_since();
        let grace = stopping.map_or(u64::MAX, |since| since + STOP_GRACE_MS);
        match phase {
            // A response in hyper's buffer has as much time as a write.
            Phase::Idle if blocked != 0 => {}
            Phase::Idle | Phase::Fresh if stopping.is_some() => {
                self.close(seen);
            }
            Phase::Fresh | Phase::Head => {
                if is_late((since + limits.header).min(grace)) {
                    self.close(seen);
                }
            }
            Phase::Body => {
                let received = self.received.load(Ordering::Relaxed);
                let deadline = since + limits.body + allowance(received);
                if is_late(deadline) {
                    self.refuse(seen, Verdict::TimedOut);
                } else if is_late(grace) {
                    self.refuse(seen, Verdict::Stopping);
                }
            }
            Phase::Refusing => {
                if is_late(since + REFUSAL_TIMEOUT_MS) {
                    self.close(seen);
                }
            }
            Phase::Idle => {
                if is_late(since + limits.idle) {
                    self.close(seen);
                }
            }
            Phase::Answering | Phase::Closing => {}
        }
    }

    /// Returns the order in which connections are closed for a new one: the lowest first. Returns `None` for a busy one.
    fn worth(&self, now: u64) -> Option<(u8, u64)> {
        let (phase, since) = self.phase();
        let blocked = self.blocked.load(Ordering::Acquire);
        if blocked != 0 && now >= blocked + SLOW_MS && phase != Phase::Closing {
            return Some((1, blocked));
        }
        match phase {
            Phase::Fresh | Phase::Head => Some((0, since)),
            Phase::Idle if blocked == 0 => Some((0, since)),
            Phase::Body | Phase::Refusing if now >= since + SLOW_MS => Some((1, since)),
            Phase::Idle | Phase::Body | Phase::Refusing | Phase::Answering | Phase::Closing => None,
        }
    }
}

/// Returns the milliseconds that this many bytes take at the slowest rate.
fn allowance(bytes: u64) -> u64 {
    bytes.saturating_mul(1000) / BYTES_PER_SECOND_MIN
}

/// What a connection's task must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    GoOn,
    /// Take no request after this one.
    Finish,
    Close,
}

/// The clock of the connections. The sweep sets it, so reading it costs nothing; a few hundred milliseconds do not matter.
struct Shared {
    origin: Instant,
    now: AtomicU64,
    is_stopping: AtomicBool,
    stopping_since: AtomicU64,
}

impl Shared {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn stopping_since(&self) -> Option<u64> {
        self.is_stopping()
            .then(|| self.stopping_since.load(Ordering::Relaxed))
    }
}

/// [`Limits`] in milliseconds.
struct Timeouts {
    header: u64,
    body: u64,
    idle: u64,
    write: u64,
}

/// All connections.
pub(super) struct Watch {
    shared: Arc<Shared>,
    timeouts: Timeouts,
    open: Mutex<Open>,
    emptied: Notify,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Arc<Watched>>,
    next: u64,
}

impl Watch {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 8);
        Arc::new(Self {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                now: AtomicU64::new(0),
                is_stopping: AtomicBool::new(false),
                stopping_since: AtomicU64::new(0),
            }),
            timeouts: Timeouts {
                header: ms(limits.header_timeout),
                body: ms(limits.body_timeout),
                idle: ms(limits.idle_timeout),
                write: ms(limits.write_timeout),
            },
            open: Mutex::default(),
            emptied: Notify::new(),
        })
    }

    /// Watches a new connection until its place is dropped.
    pub(super) fn admit(self: &Arc<Self>) -> Place {
        self.look_at_the_clock();
        let connection = Arc::new(Watched::new(Arc::clone(&self.shared)));
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Arc::clone(&connection));
        Place {
            watch: Arc::clone(self),
            number,
            connection,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.lock().connections.len()
    }

    /// Closes every connection that takes too long.
    pub(super) fn sweep(&self) {
        self.look_at_the_clock();
        for connection in self.open.lock().connections.values() {
            connection.sweep(&self.timeouts);
        }
    }

    /// Closes the connection that is first in that order. Returns false if all of them are busy.
    pub(super) fn make_room(&self) -> bool {
        self.look_at_the_clock();
        let now = self.shared.now();
        let open = self.open.lock();
        let least = open
            .connections
            .values()
            .filter_map(|connection| Some((connection.worth(now)?, connection)))
            .min_by_key(|(worth, _)| *worth);
        least.is_some_and(|(_, connection)| {
            connection.close(connection.phase.load(Ordering::Acquire))
        })
    }

    /// Asks every connection to close after its current request.
    pub(super) fn begin_stop(&self) {
        self.look_at_the_clock();
        self.shared
            .stopping_since
            .store(self.shared.now(), Ordering::Relaxed);
        self.shared.is_stopping.store(true, Ordering::Release);
        for connection in self.open.lock().connections.values() {
            connection.sweep(&self.timeouts);
            connection.task.wake();
        }
    }

    /// Resolves when no connection is open.
    pub(super) async fn is_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Closes every connection, whatever it is doing.
    pub(super) fn close_all(&self) {
        for connection in self.open.lock().connections.values() {
            connection
                .phase
                .store(pack(Phase::Closing, 0), Ordering::Release);
            connection.task.wake();
        }
    }

    fn look_at_the_clock(&self) {
        let elapsed = self.shared.origin.elapsed().as_millis();
        let now = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.shared.now.fetch_max(now, Ordering::Relaxed);
    }
}

/// A connection's place; dropping it releases it.
pub(super) struct Place {
    watch: Arc<Watch>,
    number: u64,
    connection: Arc<Watched>,
}

impl Place {
    pub(super) fn connection(&self) -> &Arc<Watched> {
        &self.connection
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.watch.open.lock();
        open.connections.remove(&self.number);
        if open.connections.is_empty() {
            self.watch.emptied.notify_waiters();
        }
    }
}
