//! Counts against the caps on leases and dispatches: leases held, tasks on their way to a lease, dispatches of the last minute; per
//! queue, per namespace and per budget group. The rules are in `engine::queue`; without caps nothing is counted.
//!
//! Kept in memory and restored from stored leases at start. Dispatches of the last minute start at zero again.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::change::TaskKind;
use longhaul_engine::queue::{Admission, Caps, Usage, Withheld};
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use longhaul_store::QueueKey;

use crate::matching::rate::Rate;

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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    Queue(QueueKey),
    Namespace(Namespace, TaskKind),
    Group(Namespace, TaskKind, String),
}

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
    caps: HashMap<QueueKey, Arc<Caps>>,
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

    /// Returns a counter of dispatches alone. Leases are counted elsewhere.
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
        if let Some(caps) = self.caps.get(queue) {
            return Arc::clone(caps);
        }
        let caps = self
            .admission
            .caps(&queue.namespace, &queue.queue, queue.kind);
        let caps = Arc::new(caps);
        if self.caps.len() >= CAPS_MAX {
            self.caps.clear();
        }
        self.caps.insert(queue.clone(), Arc::clone(&caps));
        caps
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
        let mut usage = self.usage(queue, &caps, now);
        if !self.counts_leases {
            (usage.queue_leases, usage.namespace_leases) = (0, 0);
        }
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
        let namespace = || Scope::Namespace(queue.namespace.clone(), queue.kind);
        let (scope, cap) = match withheld {
            Withheld::ActiveLeases | Withheld::NamespaceActiveLeases => return None,
            Withheld::DispatchesPerMinute => {
                (Scope::Queue(queue.clone()), caps.max_dispatches_per_minute?)
            }
            Withheld::NamespaceDispatchesPerMinute => {
                (namespace(), caps.max_dispatches_per_minute_per_namespace?)
            }
            Withheld::BudgetGroupDispatchesPerMinute => (
                group_scope(queue, caps)?,
                caps.max_dispatches_per_minute_per_budget_group?,
            ),
        };
        let count = self.counts.get(&scope)?;
        Some(count.dispatched.room_at(cap, now))
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

fn group_scope(queue: &QueueKey, caps: &Caps) -> Option<Scope> {
    caps.dispatch_budget_group
        .as_ref()
        .map(|group| Scope::Group(queue.namespace.clone(), queue.kind, group.clone()))
}
