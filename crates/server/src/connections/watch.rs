//! All connections: how many there are, the clock they share, and the sweep that closes those that take too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Limits;
use super::watched::Watched;

/// The clock of the connections. The sweep sets it, so reading it costs nothing; a few hundred milliseconds do not matter.
pub(super) struct Shared {
    origin: Instant,
    now: AtomicU64,
    is_stopping: AtomicBool,
    stopping_since: AtomicU64,
}

impl Shared {
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn stopping_since(&self) -> Option<u64> {
        self.is_stopping()
            .then(|| self.stopping_since.load(Ordering::Relaxed))
    }
}

/// [`Limits`] in milliseconds.
pub(super) struct Timeouts {
    pub(super) header: u64,
    pub(super) body: u64,
    pub(super) idle: u64,
    pub(super) write: u64,
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
        least.is_some_and(|(_, connection)| connection.close_unless_changed())
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
            connection.wake();
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
            connection.close_anyway();
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
