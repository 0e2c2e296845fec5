//! The rows in `writers` of servers that ended. Each server says once an hour that its own are in use, and removes those that no
//! server used for a week.
//!
//! A row shows whether a broken COMMIT was stored, so it must outlive the question. A server that does not know yet asks again until
//! it gets an answer; one that could not reach its database for a week would be answered wrong. A server that is only idle notices
//! that its row is gone, and writes it again with its next batch.

use std::sync::atomic::{AtomicI64, Ordering};

use longhaul_protocol::Timestamp;

use crate::Error;
use crate::postgres::connect::Connected;
use crate::postgres::read::query;

/// Between two sweeps of one server.
const SWEEP_SECONDS: u64 = 60 * 60;

/// How long a row stays after its server was last seen.
const KEPT_SECONDS: u64 = 7 * 24 * 60 * 60;

/// The writers of this server.
#[derive(Debug)]
pub(in crate::postgres) struct Registered {
    names: Vec<String>,
    /// When the next sweep is due, in microseconds.
    due_at: AtomicI64,
}

impl Registered {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            names,
            due_at: AtomicI64::new(i64::MIN),
        }
    }

    /// Returns whether it is time for [`Self::sweep`], once for each time.
    pub(in crate::postgres) fn is_due(&self, now: Timestamp) -> bool {
        let next = now.plus_seconds(SWEEP_SECONDS).as_micros();
        let due_at = self.due_at.load(Ordering::Relaxed);
        due_at <= now.as_micros()
            && self
                .due_at
                .compare_exchange(due_at, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Marks the rows of this server and removes old ones. It waits for no lock: a row that is in use is not old.
    pub(in crate::postgres) async fn sweep(
        &self,
        client: &Connected,
        now: Timestamp,
    ) -> Result<(), Error> {
        let now = now.as_micros();
        query(client, MARK, &[&now, &self.names]).await?;
        let kept = Timestamp::from_micros(0).plus_seconds(KEPT_SECONDS);
        let before = now.saturating_sub(kept.as_micros());
        query(client, REMOVE, &[&before]).await?;
        Ok(())
    }
}

const MARK: &str = "UPDATE writers SET seen_at = $1 WHERE writer IN (
     SELECT writer FROM writers WHERE writer = ANY($2::text[]) OR seen_at IS NULL FOR UPDATE SKIP LOCKED)";

const REMOVE: &str = "DELETE FROM writers WHERE writer IN (
     SELECT writer FROM writers WHERE seen_at < $1 FOR UPDATE SKIP LOCKED)";
