//! Locks by name, for as long as somebody wants them. They keep callers of this process from deciding in vain; what is true
//! among several servers is decided by the versions of rows.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Names of locks that are remembered before those that nobody holds are cleared out.
const IDLE_MAX: usize = 1024;

pub(crate) struct Locks<K> {
    named: Mutex<HashMap<K, Arc<AsyncMutex<()>>>>,
}

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self {
            named: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash> Locks<K> {
    pub(crate) async fn lock(&self, name: &K) -> OwnedMutexGuard<()> {
        let lock = {
            let mut named = self.named.lock();
            if named.len() >= IDLE_MAX && !named.contains_key(name) {
                named.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(named.entry(name.clone()).or_default())
        };
        lock.lock_owned().await
    }
}
