//! Locks by name, kept as long as a caller uses them. They spare callers of this process decisions in vain; among several servers
//! the versions of rows decide.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Names of locks that are kept before unused ones are removed.
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
