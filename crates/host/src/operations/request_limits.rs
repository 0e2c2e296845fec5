//! How many requests a namespace may make: per minute, and at once. Off unless configured. Counted in memory, per server.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::Host;
use crate::error::{Error, Result};
use crate::matching::rate::Rate;

/// A request that is held longer no longer counts: its caller has probably gone.
const SLOT_SECONDS: u64 = 120;

/// The caps; `None` means no limit.
#[derive(Clone, Debug, Default)]
pub struct RequestCaps {
    pub usual: NamespaceCaps,
    /// Limits that no override may exceed.
    pub hard: NamespaceCaps,
    pub overrides: BTreeMap<String, NamespaceCaps>,
}

/// The caps of one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NamespaceCaps {
    pub max_requests_per_minute: Option<u64>,
    pub max_concurrent_requests: Option<u64>,
}

impl RequestCaps {
    fn of(&self, namespace: &Namespace) -> NamespaceCaps {
        let own = self.overrides.get(namespace.as_str()).copied();
        let own = own.unwrap_or_default();
        let pick = |own: Option<u64>, usual: Option<u64>, hard: Option<u64>| {
            own.or(usual).into_iter().chain(hard).min()
        };
        NamespaceCaps {
            max_requests_per_minute: pick(
                own.max_requests_per_minute,
                self.usual.max_requests_per_minute,
                self.hard.max_requests_per_minute,
            ),
            max_concurrent_requests: pick(
                own.max_concurrent_requests,
                self.usual.max_concurrent_requests,
                self.hard.max_concurrent_requests,
            ),
        }
    }
}

#[derive(Default)]
pub(crate) struct Requests {
    namespaces: Mutex<HashMap<Namespace, Counts>>,
}

#[derive(Default)]
struct Counts {
    rate: Rate,
    next: u64,
    /// When each request in flight began.
    held: HashMap<u64, Timestamp>,
}

/// The slot of a request; dropping it frees it.
pub struct RequestSlot {
    requests: Arc<Requests>,
    namespace: Namespace,
    number: u64,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        if let Some(counts) = self.requests.namespaces.lock().get_mut(&self.namespace) {
            counts.held.remove(&self.number);
        }
    }
}

impl Host {
    /// Returns a slot for one more request of the namespace, or `None` if nothing is limited there.
    pub fn admit_request(&self, namespace: &Namespace) -> Result<Option<RequestSlot>> {
        let caps = self.inner.config.request_caps.of(namespace);
        if caps == NamespaceCaps::default() {
            return Ok(None);
        }
        let now = self.now();
        let mut namespaces = self.inner.requests.namespaces.lock();
        let counts = namespaces.entry(namespace.clone()).or_default();
        counts
            .held
            .retain(|_, began| began.plus_seconds(SLOT_SECONDS) > now);
        if let Some(limit) = caps.max_concurrent_requests
            && counts.held.len() as u64 >= limit
        {
            return Err(Error::RequestConcurrencyExhausted {
                namespace: namespace.clone(),
                limit,
            });
        }
        if let Some(limit) = caps.max_requests_per_minute
            && counts.rate.last_minute(now) >= limit
        {
            let wait = now.micros_until(counts.rate.room_at(limit, now));
            return Err(Error::RequestRateExhausted {
                namespace: namespace.clone(),
                limit,
                retry_after_seconds: wait.div_ceil(1_000_000).max(1),
            });
        }
        counts.rate.count(now);
        counts.next += 1;
        let number = counts.next;
        counts.held.insert(number, now);
        Ok(Some(RequestSlot {
            requests: Arc::clone(&self.inner.requests),
            namespace: namespace.clone(),
            number,
        }))
    }
}
