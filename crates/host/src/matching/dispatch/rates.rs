//! Matching with rates that other servers share: a task is handed out if this server holds a share of every rate that counts it.

use longhaul_engine::change::TaskRow;
use longhaul_engine::queue::Exchanged;
use longhaul_protocol::Timestamp;
use longhaul_store::QueueKey;
use tokio::sync::futures::Notified;

use super::{Dispatch, State};
use crate::matching::admission::Throttle;
use crate::matching::shares::{RateKey, Scope, ShareRequest};

impl Dispatch {
    /// Begins the exchanges that are due.
    pub(crate) fn begin_exchanges(&self) -> Vec<ShareRequest> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = self.clock.now();
        let mut requests = Vec::new();
        while let Some(key) = state.shares.next_due(now) {
            let on_the_way = state.on_the_way(&key.scope);
            let queues = &state.queues;
            let is_waiting = |queue: &QueueKey| {
                let queue = queues.get(queue);
                queue.is_some_and(|queue| !queue.waiters.is_empty())
            };
            let request = state.shares.begin(&key, on_the_way, is_waiting, now);
            requests.extend(request);
        }
        requests
    }

    /// Returns when the next exchange is due.
    pub(crate) fn next_exchange(&self) -> Option<Timestamp> {
        self.state.lock().shares.due_at()
    }

    /// Begins to give back all shares.
    pub(crate) fn give_back_shares(&self) -> Vec<ShareRequest> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = self.clock.now();
        let mut requests = Vec::new();
        for key in state.shares.open() {
            let on_the_way = state.on_the_way(&key.scope);
            requests.extend(state.shares.give_back(&key, on_the_way, now));
        }
        requests
    }

    /// Hands out what a share allows. Returns the queues whose polls still wait and of which memory has no task.
    pub(crate) fn share_arrived(&self, key: &RateKey, outcome: &Exchanged) -> Vec<QueueKey> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let waiting = state.shares.end(key, outcome, now);
        if !waiting.is_empty()
            && let Scope::TaskDef(namespace, name) = &key.scope
        {
            state.serve_name(&(namespace.clone(), name.clone()), now);
        }
        for queue in &waiting {
            state.pump(queue, now);
        }
        let without_tasks = waiting.into_iter().filter(|queue| {
            let queue = state.queues.get(queue);
            queue.is_some_and(|queue| !queue.waiters.is_empty() && !queue.has_tasks())
        });
        let without_tasks = without_tasks.collect();
        drop(state);
        self.share_ended.notify_waiters();
        without_tasks
    }

    /// Undoes the beginning of an exchange that failed.
    pub(crate) fn share_failed(&self, request: &ShareRequest) {
        let now = self.clock.now();
        self.state.lock().shares.fail(request, now);
        self.share_ended.notify_waiters();
    }

    /// Returns whether polls of the queue wait for a share that may arrive soon.
    pub(crate) fn awaits_share(&self, queue: &QueueKey) -> bool {
        let now = self.clock.now();
        self.state.lock().shares.is_asked_for(queue, now)
    }

    /// Resolves when an exchange has ended since this was called.
    pub(crate) fn share_ended(&self) -> Notified<'_> {
        self.share_ended.notified()
    }
}

impl State {
    /// Checks whether this server holds a share of every rate that counts tasks of the queue.
    pub(super) fn admit_shares(
        &mut self,
        queue: &QueueKey,
        now: Timestamp,
    ) -> Result<(), Throttle> {
        for (cap, key) in self.leases.rates(queue).iter() {
            let on_the_way = self.leases.reserved(&key.scope);
            if !self.shares.is_available(key, on_the_way, now) {
                return Err(Throttle {
                    cap: *cap,
                    room_at: self.shares.room_at(key, now),
                });
            }
        }
        Ok(())
    }

    /// Asks for the shares that tasks of this queue lack: a poll waits for one of them.
    pub(super) fn want_shares(&mut self, queue: &QueueKey, now: Timestamp) {
        if !self.is_shared {
            return;
        }
        for (_, key) in self.leases.rates(queue).iter() {
            let on_the_way = self.leases.reserved(&key.scope);
            if !self.shares.is_available(key, on_the_way, now) {
                self.shares.want(key, queue, now);
            }
        }
    }

    /// Counts a lease that this server granted against the rates.
    pub(super) fn count_in_shares(&mut self, row: &TaskRow, queue: &QueueKey, now: Timestamp) {
        for (_, key) in self.leases.rates(queue).iter() {
            self.shares.count(key, now);
        }
        let starts = row
            .start_limits
            .and_then(|limits| RateKey::of_starts(&row.namespace, &row.type_name, &limits));
        if let Some(key) = starts {
            self.shares.count(&key, now);
        }
    }

    /// Returns how many tasks are on their way to a lease that counts in the scope.
    fn on_the_way(&self, scope: &Scope) -> u64 {
        match scope {
            Scope::TaskDef(namespace, name) => self.starts.on_the_way(namespace, name),
            Scope::Queue(_) | Scope::Namespace(..) | Scope::Group(..) => {
                self.leases.reserved(scope)
            }
        }
    }
}
