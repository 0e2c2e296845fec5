//! The shares of rates that this server holds, if other servers use the same store, and the queues whose polls wait for more. The
//! arithmetic is in `engine::queue`; `cluster/rates.rs` exchanges shares with the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use longhaul_engine::change::TaskKind;
use longhaul_engine::queue::{Exchanged, RateLimit, Settlement, Share, StartLimits, Wish};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use longhaul_store::QueueKey;

use crate::sweeps::alarms::NextCheck;

/// The window of dispatches.
const MINUTE_SECONDS: u32 = 60;

/// After a failed exchange, the next one waits this long, to spare the store.
const PAUSE_AFTER_FAILURE_SECONDS: u64 = 1;

/// What a cap or a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    Queue(QueueKey),
    Namespace(Namespace, TaskKind),
    /// A budget group.
    Group(Namespace, TaskKind, String),
    /// A task definition by its name.
    TaskDef(Namespace, String),
}

/// A limited rate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RateKey {
    pub(crate) scope: Scope,
    pub(crate) limit: RateLimit,
}

impl RateKey {
    /// Returns the rate of dispatches in a scope.
    pub(crate) fn of_dispatches(scope: Scope, max: u64) -> Self {
        let limit = RateLimit {
            max,
            window_seconds: MINUTE_SECONDS,
        };
        Self { scope, limit }
    }

    /// Returns the rate at which tasks of a definition may start, if it is limited.
    pub(crate) fn of_starts(
        namespace: &Namespace,
        name: &str,
        limits: &StartLimits,
    ) -> Option<Self> {
        limits.has_rate().then(|| Self {
            scope: Scope::TaskDef(namespace.clone(), name.to_owned()),
            limit: RateLimit {
                max: limits.starts.into(),
                window_seconds: limits.window_seconds,
            },
        })
    }
}

/// An exchange with the record of a rate.
#[derive(Debug)]
pub(crate) struct ShareRequest {
    pub(crate) key: RateKey,
    pub(crate) settlement: Settlement,
}

/// The shares of this server.
pub(crate) struct ShareTable {
    shares: HashMap<RateKey, Entry>,
    /// When something is to be done about a share.
    due: BTreeSet<(Timestamp, RateKey)>,
    /// How many shares each queue waits for.
    waiting: HashMap<QueueKey, usize>,
    check: Arc<NextCheck>,
}

#[derive(Default)]
struct Entry {
    share: Share,
    /// Queues whose polls wait for more.
    waiting: BTreeSet<QueueKey>,
    is_exchanging: bool,
    /// Nothing is free before this.
    room_at: Timestamp,
    /// When it was last granted or used.
    active_at: Timestamp,
    due_at: Option<Timestamp>,
}

impl Entry {
    /// Returns when it is looked at next, if nothing happens before.
    fn next_due(&self, key: &RateKey, now: Timestamp) -> Timestamp {
        if !self.waiting.is_empty() {
            return self.room_at.max(now);
        }
        let idle_at = self.active_at.plus_millis(key.limit.pause_millis());
        if self.share.is_open() {
            idle_at
        } else {
            // Then the record may be deleted.
            idle_at.plus_seconds(u64::from(key.limit.window_seconds) + 1)
        }
    }
}

impl ShareTable {
    pub(crate) fn new(check: Arc<NextCheck>) -> Self {
        Self {
            shares: HashMap::new(),
            due: BTreeSet::new(),
            waiting: HashMap::new(),
            check,
        }
    }

    /// Returns whether one more use may begin.
    pub(crate) fn is_available(&self, key: &RateKey, on_the_way: u64, now: Timestamp) -> bool {
        let entry = self.shares.get(key);
        entry.is_some_and(|entry| entry.share.available(on_the_way, now) > 0)
    }

    /// Returns when something may be free, if nothing is now.
    pub(crate) fn room_at(&self, key: &RateKey, now: Timestamp) -> Option<Timestamp> {
        let at = self.shares.get(key)?.room_at;
        (at > now).then_some(at)
    }

    /// Asks for more of a rate, because polls of this queue wait for it.
    pub(crate) fn want(&mut self, key: &RateKey, queue: &QueueKey, now: Timestamp) {
        let entry = self.shares.entry(key.clone()).or_default();
        if entry.waiting.insert(queue.clone()) {
            *self.waiting.entry(queue.clone()).or_default() += 1;
        }
        let at = entry.room_at.max(now);
        self.set_due(key, at);
    }

    /// Returns whether the answer to a request for a share of this queue is on its way.
    pub(crate) fn is_asked_for(&self, queue: &QueueKey, now: Timestamp) -> bool {
        self.waiting.contains_key(queue)
            && self.shares.values().any(|entry| {
                entry.waiting.contains(queue) && (entry.is_exchanging || entry.room_at <= now)
            })
    }

    /// Counts one use.
    pub(crate) fn count(&mut self, key: &RateKey, now: Timestamp) {
        let entry = self.shares.entry(key.clone()).or_default();
        entry.share.count(key.limit, now);
        entry.active_at = now;
        let at = entry.next_due(key, now);
        self.set_due(key, at);
    }

    /// Removes and returns a rate about which something is to be done.
    pub(crate) fn next_due(&mut self, now: Timestamp) -> Option<RateKey> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        if let Some(entry) = self.shares.get_mut(&key) {
            entry.due_at = None;
        }
        Some(key)
    }

    /// Returns when something is to be done next.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the rates of which something is held or used.
    pub(crate) fn open(&self) -> Vec<RateKey> {
        let open = self.shares.iter();
        let open = open.filter(|(_, entry)| entry.share.is_open() && !entry.is_exchanging);
        open.map(|(key, _)| key.clone()).collect()
    }

    /// Begins an exchange if there is a reason for one. `is_waiting` returns whether a poll of the queue still waits.
    pub(crate) fn begin(
        &mut self,
        key: &RateKey,
        on_the_way: u64,
        is_waiting: impl Fn(&QueueKey) -> bool,
        now: Timestamp,
    ) -> Option<ShareRequest> {
        let entry = self.shares.get_mut(key)?;
        if entry.is_exchanging {
            return None;
        }
        let gone: Vec<QueueKey> = entry.waiting.iter().cloned().collect();
        for queue in gone.iter().filter(|queue| !is_waiting(queue)) {
            entry.waiting.remove(queue);
            forget_waiting(&mut self.waiting, queue);
        }
        let at = entry.next_due(key, now);
        if at > now {
            self.set_due(key, at);
            return None;
        }
        let wish = if entry.waiting.is_empty() {
            Wish::GiveBack
        } else {
            Wish::More
        };
        entry.is_exchanging = true;
        Some(ShareRequest {
            settlement: entry.share.begin(wish, on_the_way, now),
            key: key.clone(),
        })
    }

    /// Begins to give back a share, even if polls wait for it: this server stops.
    pub(crate) fn give_back(
        &mut self,
        key: &RateKey,
        on_the_way: u64,
        now: Timestamp,
    ) -> Option<ShareRequest> {
        let entry = self.shares.get_mut(key)?;
        Some(ShareRequest {
            settlement: entry.share.begin(Wish::GiveBack, on_the_way, now),
            key: key.clone(),
        })
    }

    /// Applies the outcome of an exchange. Returns the queues that waited for what was granted.
    pub(crate) fn end(
        &mut self,
        key: &RateKey,
        outcome: &Exchanged,
        now: Timestamp,
    ) -> BTreeSet<QueueKey> {
        let Some(entry) = self.shares.get_mut(key) else {
            return BTreeSet::new();
        };
        entry.is_exchanging = false;
        entry.share.end(outcome);
        if outcome.granted > 0 {
            (entry.active_at, entry.room_at) = (now, now);
            let waiting = std::mem::take(&mut entry.waiting);
            for queue in &waiting {
                forget_waiting(&mut self.waiting, queue);
            }
            let at = now.plus_millis(key.limit.pause_millis());
            self.set_due(key, at);
            return waiting;
        }
        entry.room_at = outcome.room_at.max(now);
        if entry.share.is_open() {
            entry.active_at = now;
        }
        if entry.waiting.is_empty() && !entry.share.is_open() && entry.next_due(key, now) <= now {
            self.shares.remove(key);
        } else {
            let at = entry.next_due(key, now);
            self.set_due(key, at);
        }
        BTreeSet::new()
    }

    /// Undoes the beginning of an exchange that failed.
    pub(crate) fn fail(&mut self, request: &ShareRequest, now: Timestamp) {
        if let Some(entry) = self.shares.get_mut(&request.key) {
            entry.is_exchanging = false;
            entry.share.fail(&request.settlement);
            entry.room_at = now.plus_seconds(PAUSE_AFTER_FAILURE_SECONDS);
            let at = entry.next_due(&request.key, now).max(entry.room_at);
            self.set_due(&request.key, at);
        }
    }

    /// Sets when something is to be done about a share, unless it is earlier already.
    fn set_due(&mut self, key: &RateKey, at: Timestamp) {
        let Some(entry) = self.shares.get_mut(key) else {
            return;
        };
        if entry.is_exchanging {
            // The outcome sets it again.
            return;
        }
        match entry.due_at {
            Some(known) if known <= at => return,
            Some(known) => {
                self.due.remove(&(known, key.clone()));
            }
            None => {}
        }
        entry.due_at = Some(at);
        self.due.insert((at, key.clone()));
        self.check.set_no_later_than(at);
    }
}

fn forget_waiting(waiting: &mut HashMap<QueueKey, usize>, queue: &QueueKey) {
    if let Some(count) = waiting.get_mut(queue) {
        *count -= 1;
        if *count == 0 {
            waiting.remove(queue);
        }
    }
}
