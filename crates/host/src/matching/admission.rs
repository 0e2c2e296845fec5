//! Counts against the caps on leases and dispatches: leases held, tasks on their way to a lease, dispatches of the last minute; per
//! queue, per namespace and per budget group. The rules are in `engine::queue`; without caps nothing is counted.
//!
//! Kept in memory and restored from stored leases at start. Dispatches of the last minute start at zero again. With other servers on the
//! store, commits count leases, and shares bound dispatches (`shares.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::queue::{Admission, Caps, Usage, Withheld};
use longhaul_protocol::Timestamp;
use longhaul_store::QueueKey;

use crate::matching::rate::Rate;
use crate::matching::shares::{RateKey, Scope};

/// Why a poll gets nothing although there is work, and when to poll again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    pub cap: Withheld,
    /// When the window of a rate moves on; a cap on leases has no such time.
    pub room_at: Option<Timestamp>,
}

/// Queues whose caps are cached; others are computed from the settings.
const CAPS_MAX: usize = 10_000;

/// Empty counters are removed after this many dispatches, or as many as there are counters.
const TIDY_AFTER_DISPATCHES: usize = 1024;

/// The rates that count the tasks of a queue, each with its setting.
type Rates = Arc<[(Withheld, RateKey)]>;

#[derive(Default)]
struct Count {
    leases: u64,
    /// Handed to a poll and not leased yet.
    reserved: u64,
    dispatched: Rate,
}

pub(crate) struct AdmissionCounter {
    admission: Admission,
    is_unlimited: bool,
    counts_leases: bool,
    caps: HashMap<QueueKey, (Arc<Caps>, Rates)>,
    counts: HashMap<Scope, Count>,
    /// Dispatches since empty counters were last removed.
    dispatches: usize,
}

impl Count {
    fn is_nothing(&self, now: Timestamp) -> bool {
        self.leases == 0 && self.reserved == 0 && self.dispatched.last_minute(now) == 0
    }
}

impl AdmissionCounter {
    pub(crate) fn new(admission: Admission) -> Self {
        Self {
            is_unlimited: admission.is_unlimited(),
            counts_leases: true,
            admission,
            caps: HashMap::new(),
            counts: HashMap::new(),
            dispatches: 0,
        }
    }

    /// Returns a counter without leases, which are counted elsewhere.
    pub(crate) fn of_rates(admission: Admission) -> Self {
        Self {
            counts_leases: false,
            ..Self::new(admission)
        }
    }

    pub(crate) fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Returns the caps that apply to a queue.
    pub(crate) fn caps(&mut self, queue: &QueueKey) -> Arc<Caps> {
        self.limits(queue).0
    }

    /// Returns the limited rates of a queue.
    pub(crate) fn rates(&mut self, queue: &QueueKey) -> Rates {
        if self.is_unlimited {
            return Rates::default();
        }
        self.limits(queue).1
    }

    fn limits(&mut self, queue: &QueueKey) -> (Arc<Caps>, Rates) {
        if let Some(limits) = self.caps.get(queue) {
            return limits.clone();
        }
        let caps = self
            .admission
            .caps(&queue.namespace, &queue.queue, queue.kind);
        let rates = rates_of(queue, &caps);
        let limits = (Arc::new(caps), rates);
        if self.caps.len() >= CAPS_MAX {
            self.caps.clear();
        }
        self.caps.insert(queue.clone(), limits.clone());
        limits
    }

    /// Returns how many tasks are on their way to a lease that counts in the scope.
    pub(crate) fn reserved(&self, scope: &Scope) -> u64 {
        self.counts.get(scope).map_or(0, |count| count.reserved)
    }

    /// Returns what counts against them now.
    pub(crate) fn usage(&self, queue: &QueueKey, caps: &Caps, now: Timestamp) -> Usage {
        let of = |scope: &Scope| {
            self.counts.get(scope).map_or((0, 0), |count| {
                (
                    count.leases + count.reserved,
                    count.dispatched.last_minute(now) + count.reserved,
                )
            })
        };
        let (queue_leases, queue_dispatches) = of(&Scope::Queue(queue.clone()));
        let (namespace_leases, namespace_dispatches) =
            of(&Scope::Namespace(queue.namespace.clone(), queue.kind));
        let group = group_scope(queue, caps);
        Usage {
            queue_leases,
            namespace_leases,
            queue_dispatches,
            namespace_dispatches,
            group_dispatches: group.map_or(0, |scope| of(&scope).1),
        }
    }

    /// Checks whether one more task of the queue may be leased.
    pub(crate) fn admit(&mut self, queue: &QueueKey, now: Timestamp) -> Result<(), Throttle> {
        if self.is_unlimited {
            return Ok(());
        }
        let caps = self.caps(queue);
        let usage = self.usage(queue, &caps, now);
        caps.admit(&usage).map_err(|cap| Throttle {
            cap,
            room_at: self.room_at(queue, &caps, cap, now),
        })
    }

    fn room_at(
        &self,
        queue: &QueueKey,
        caps: &Caps,
        withheld: Withheld,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let rates = rates_of(queue, caps);
        let (_, RateKey { scope, limit }) = rates.iter().find(|(cap, _)| *cap == withheld)?;
        let count = self.counts.get(scope)?;
        Some(count.dispatched.room_at(limit.max, now))
    }

    /// Counts a task on its way to a lease.
    pub(crate) fn reserve(&mut self, queue: &QueueKey) {
        self.each(queue, |count| count.reserved += 1);
    }

    /// Ends the count of a task that was leased, or could not be.
    pub(crate) fn end_reservation(&mut self, queue: &QueueKey) {
        self.each(queue, |count| {
            count.reserved = count.reserved.saturating_sub(1)
        });
    }

    /// Counts a granted lease.
    pub(crate) fn lease(&mut self, queue: &QueueKey) {
        if !self.counts_leases {
            // Another server may end it.
            return;
        }
        self.each(queue, |count| count.leases += 1);
    }

    /// Counts an ended lease.
    pub(crate) fn release(&mut self, queue: &QueueKey) {
        self.each(queue, |count| count.leases = count.leases.saturating_sub(1));
    }

    /// Counts a dispatched task.
    pub(crate) fn dispatch(&mut self, queue: &QueueKey, now: Timestamp) {
        self.dispatches += 1;
        if self.dispatches > self.counts.len().max(TIDY_AFTER_DISPATCHES) {
            self.dispatches = 0;
            self.counts.retain(|_, count| !count.is_nothing(now));
        }
        self.each(queue, |count| count.dispatched.count(now));
    }

    fn each(&mut self, queue: &QueueKey, change: impl Fn(&mut Count)) {
        if self.is_unlimited {
            return;
        }
        let caps = self.caps(queue);
        let scopes = [
            Some(Scope::Queue(queue.clone())),
            Some(Scope::Namespace(queue.namespace.clone(), queue.kind)),
            group_scope(queue, &caps),
        ];
        for scope in scopes.into_iter().flatten() {
            change(self.counts.entry(scope).or_default());
        }
    }
}

fn rates_of(queue: &QueueKey, caps: &Caps) -> Rates {
    let rates = [
        (
            Withheld::DispatchesPerMinute,
            caps.max_dispatches_per_minute,
            Some(Scope::Queue(queue.clone())),
        ),
        (
            Withheld::NamespaceDispatchesPerMinute,
            caps.max_dispatches_per_minute_per_namespace,
            Some(Scope::Namespace(queue.namespace.clone(), queue.kind)),
        ),
        (
            Withheld::BudgetGroupDispatchesPerMinute,
            caps.max_dispatches_per_minute_per_budget_group,
            group_scope(queue, caps),
        ),
    ];
    let rates = rates.into_iter().filter_map(|(withheld, max, scope)| {
        let key = RateKey::of_dispatches(scope?, max?);
        Some((withheld, key))
    });
    rates.collect()
}

fn group_scope(queue: &QueueKey, caps: &Caps) -> Option<Scope> {
    caps.dispatch_budget_group
        .as_ref()
        .map(|group| Scope::Group(queue.namespace.clone(), queue.kind, group.clone()))
}
