//! Counts the requests in flight, so that a test can detect when the server is idle.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Counts the requests in flight.
#[derive(Default)]
pub(crate) struct Traffic {
    counts: Mutex<Counts>,
    ended: Notify,
}

/// The counts at one point. Two equal values mean that no request began or ended in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    begun: u64,
    /// Polls of workers.
    pub(crate) polls: usize,
    /// Requests that wait for a run: for its next event, or for its end. They do not act when time passes.
    watches: usize,
    /// All other requests.
    pub(crate) others: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Poll,
    Watch,
    Other,
}

impl Kind {
    fn of(path: &str) -> Self {
        if path.starts_with("/api/worker/") && path.ends_with("/poll") {
            Self::Poll
        } else if path.contains("/history?") && path.contains("wait_new_event=1")
            || path.starts_with("/api/workflow/execute/")
        {
            Self::Watch
        } else {
            Self::Other
        }
    }
}

impl Counts {
    /// The counts after further requests that have begun and ended.
    pub(crate) fn after_requests(self, count: u64) -> Self {
        Self {
            begun: self.begun + count,
            ..self
        }
    }

    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Poll => &mut self.polls,
            Kind::Watch => &mut self.watches,
            Kind::Other => &mut self.others,
        }
    }
}

impl Traffic {
    /// Counts a request until the returned value is dropped.
    pub(crate) fn begin(&self, path: &str) -> InFlight<'_> {
        let kind = Kind::of(path);
        let mut counts = self.counts.lock();
        counts.begun += 1;
        *counts.of(kind) += 1;
        InFlight {
            traffic: self,
            kind,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock()
    }

    /// Calls `act` if no request began or ended since `before`. Returns whether it did.
    pub(crate) fn if_still(&self, before: Counts, act: impl FnOnce()) -> bool {
        // New requests wait for the lock.
        let counts = self.counts.lock();
        let is_still = *counts == before;
        if is_still {
            act();
        }
        is_still
    }

    /// Returns a future that completes when a request ends.
    pub(crate) fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }
}

/// A request in flight.
pub(crate) struct InFlight<'a> {
    traffic: &'a Traffic,
    kind: Kind,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        *self.traffic.counts.lock().of(self.kind) -= 1;
        self.traffic.ended.notify_waiters();
    }
}
