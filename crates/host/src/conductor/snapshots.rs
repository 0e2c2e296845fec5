//! Snapshots of definitions in memory. All runs of one definition share one copy; a copy that is dropped costs one read.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_engine::conductor::definition::Snapshot;
use longhaul_protocol::Timestamp;
use longhaul_protocol::id::Namespace;
use longhaul_store::{SnapshotRow, Store};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Bytes of definition text kept in memory. A compiled definition takes some times its text.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Snapshots by hash.
#[derive(Default)]
pub(crate) struct Snapshots {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_hash: HashMap<Arc<str>, Entry>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    snapshot: Arc<Snapshot>,
    /// Whether this process knows that the store has it.
    is_stored: bool,
    used: u64,
}

impl Snapshots {
    /// Returns the snapshot with this hash.
    pub(crate) async fn get(&self, store: &dyn Store, hash: &Arc<str>) -> Result<Arc<Snapshot>> {
        if let Some(known) = self.look_up(hash) {
            return Ok(known);
        }
        let row = store
            .get::<SnapshotRow>(&Namespace::from(""), hash)
            .await?
            .ok_or_else(|| {
                tracing::error!(%hash, "the definition of a run is missing in the store");
                Error::Internal
            })?;
        Ok(self.keep(row.0, true))
    }

    /// Returns the snapshot with this hash if it is in memory.
    pub(crate) fn look_up(&self, hash: &str) -> Option<Arc<Snapshot>> {
        let mut known = self.known.lock();
        known.clock += 1;
        let clock = known.clock;
        let entry = known.by_hash.get_mut(hash)?;
        entry.used = clock;
        Some(Arc::clone(&entry.snapshot))
    }

    fn keep(&self, snapshot: Arc<Snapshot>, is_stored: bool) -> Arc<Snapshot> {
        let mut known = self.known.lock();
        known.clock += 1;
        let clock = known.clock;
        if let Some(entry) = known.by_hash.get_mut(snapshot.hash()) {
            entry.used = clock;
            entry.is_stored |= is_stored;
            return Arc::clone(&entry.snapshot);
        }
        let bytes = snapshot.text().get().len();
        while known.bytes + bytes > TEXT_BYTES_MAX && !known.by_hash.is_empty() {
            let oldest = known.by_hash.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(hash, _)| Arc::clone(hash)) else {
                break;
            };
            if let Some(entry) = known.by_hash.remove(&oldest) {
                known.bytes -= entry.snapshot.text().get().len();
            }
        }
        known.bytes += bytes;
        known.by_hash.insert(
            snapshot.hash().into(),
            Entry {
                snapshot: Arc::clone(&snapshot),
                is_stored,
                used: clock,
            },
        );
        snapshot
    }

    /// Stores a snapshot before the first run that names it. Writing the same one twice is harmless.
    pub(crate) async fn store(
        &self,
        store: &dyn Store,
        snapshot: Arc<Snapshot>,
    ) -> Result<Arc<Snapshot>> {
        let known = self
            .known
            .lock()
            .by_hash
            .get(snapshot.hash())
            .map(|entry| (Arc::clone(&entry.snapshot), entry.is_stored));
        if let Some((known, true)) = known {
            return Ok(known);
        }
        // A snapshot never changes, so the time in its version does not matter. If there is one with its hash, it is the same.
        let row = SnapshotRow(Arc::clone(&snapshot));
        store.create(&row, Timestamp::from_micros(1)).await?;
        Ok(self.keep(snapshot, true))
    }
}
