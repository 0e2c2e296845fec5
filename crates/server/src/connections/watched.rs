//! Records what one connection is doing and since when, and closes it if that takes too long.
//!
//! A connection's task writes its phase; the sweep reads it and may close the connection. Both use one atomic word, so a request that
//! arrives while its connection is closed is either served or not started, never cut in half.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use futures::task::AtomicWaker;
use parking_lot::Mutex;

use super::BYTES_PER_SECOND_MIN;
use super::exchange::Stream;
use super::watch::{Shared, Timeouts};

/// How long a client whose body was not complete has to read its refusal.
pub(super) const REFUSAL_TIMEOUT_MS: u64 = 5_000;

/// How long requests that are being sent may take after the signal to stop.
const STOP_GRACE_MS: u64 = 1_000;

/// A body that is being sent or a response that is not read for this long may be ended to make room for a new connection.
pub(super) const SLOW_MS: u64 = 5_000;

/// How long after its last response an HTTP/2 connection may still have parts of it in its buffers.
const SETTLE_MS: u64 = 1_000;

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
    /// The request is complete. There is no limit on the time until its response. With HTTP/2, there are requests; each has its times.
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
    /// The open requests of an HTTP/2 connection, and whether it is one. It is known from its first request on.
    streams: Mutex<Vec<Arc<Stream>>>,
    is_multiplexed: AtomicBool,
    /// The task that polls the connection, and the one that reads the body of its request.
    task: AtomicWaker,
    reader: AtomicWaker,
}

impl Watched {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let phase = AtomicU64::new(pack(Phase::Fresh, shared.now()));
        Self {
            shared,
            phase,
            received: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            written: AtomicU64::new(0),
            verdict: AtomicU8::new(Verdict::None as u8),
            streams: Mutex::default(),
            is_multiplexed: AtomicBool::new(false),
            task: AtomicWaker::new(),
            reader: AtomicWaker::new(),
        }
    }

    /// Returns the time of the last sweep.
    pub(super) fn now(&self) -> u64 {
        self.shared.now()
    }

    fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.load(Ordering::Relaxed)
    }

    fn phase(&self) -> (Phase, u64) {
        unpack(self.phase.load(Ordering::Acquire))
    }

    /// Enters another phase, unless the connection is closed. Only the connection's own task calls this, and the tasks of its streams
    /// while they hold the lock of `streams`.
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
            // HTTP/2 has frames without a request: a window, a ping. They do not make a connection busy.
            Phase::Idle if self.is_multiplexed() => {}
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

    /// Records that the headers of one of several requests are complete. Returns `None` if the connection is closed and the request
    /// must not start.
    pub(super) fn stream_began(&self, has_body: bool) -> Option<Arc<Stream>> {
        let mut streams = self.streams.lock();
        self.is_multiplexed.store(true, Ordering::Relaxed);
        if !self.enter(Phase::Answering) {
            return None;
        }
        let stream = Arc::new(Stream::new(self.shared.now(), has_body));
        streams.push(Arc::clone(&stream));
        Some(stream)
    }

    /// Records the end of one of several requests.
    pub(super) fn stream_ended(&self, ended: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        streams.retain(|stream| !Arc::ptr_eq(stream, ended));
        if streams.is_empty() {
            self.enter(Phase::Idle);
        }
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

    /// Closes the connection, unless its phase changes at the same time. Returns whether it is closed.
    pub(super) fn close_unless_changed(&self) -> bool {
        self.close(self.phase.load(Ordering::Acquire))
    }

    /// Closes the connection, whatever it is doing.
    pub(super) fn close_anyway(&self) {
        self.phase.store(pack(Phase::Closing, 0), Ordering::Release);
        self.task.wake();
    }

    /// Makes the connection's task ask for its order.
    pub(super) fn wake(&self) {
        self.task.wake();
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
    pub(super) fn sweep(&self, limits: &Timeouts) {
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
            // The last response may be in the buffers. Hyper closes the connection after it.
            Phase::Idle if self.is_multiplexed() && stopping.is_some() => {
                if is_late(grace) {
                    self.close(seen);
                }
            }
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
            Phase::Answering => {
                let streams = self.streams.lock();
                if streams
                    .iter()
                    .any(|stream| stream.sweep(limits, now, grace))
                {
                    self.close(seen);
                }
            }
            Phase::Closing => {}
        }
    }

    /// Returns the order in which connections are closed for a new one: the lowest first. Returns `None` for a busy one.
    pub(super) fn worth(&self, now: u64) -> Option<(u8, u64)> {
        let (phase, since) = self.phase();
        let blocked = self.blocked.load(Ordering::Acquire);
        if blocked != 0 && now >= blocked + SLOW_MS && phase != Phase::Closing {
            return Some((1, blocked));
        }
        match phase {
            Phase::Fresh | Phase::Head => Some((0, since)),
            Phase::Idle if self.is_multiplexed() && now < since + SETTLE_MS => None,
            Phase::Idle if blocked == 0 => Some((0, since)),
            Phase::Answering => Some((1, self.slow_since(now)?)),
            Phase::Body | Phase::Refusing if now >= since + SLOW_MS => Some((1, since)),
            Phase::Idle | Phase::Body | Phase::Refusing | Phase::Closing => None,
        }
    }

    /// Returns since when all requests of an HTTP/2 connection are slow. Returns `None` if one of them is not.
    fn slow_since(&self, now: u64) -> Option<u64> {
        let streams = self.streams.lock();
        let slow: Option<Vec<_>> = streams
            .iter()
            .map(|stream| stream.slow_since(now))
            .collect();
        slow?.into_iter().min()
    }
}

/// Returns the milliseconds that this many bytes take at the slowest rate.
pub(super) fn allowance(bytes: u64) -> u64 {
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
