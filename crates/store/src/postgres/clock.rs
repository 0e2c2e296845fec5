//! The clock of the database. The store reads it and decides nothing with it: moments in rows come from the servers.

use std::time::{Duration, Instant};

use longhaul_protocol::Timestamp;
use tokio::sync::Mutex;

use super::pool::Pool;
use crate::{ClockReading, Error};

/// How long a reading is used. Callers within this time share it: probes of several balancers cost one query.
const INTERVAL: Duration = Duration::from_secs(5);

/// A query takes milliseconds. After this, the reading would not be exact enough for anything.
const TIMEOUT: Duration = Duration::from_secs(3);

const SQL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// The newest reading. Locked during a query, so that there is one at a time.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    newest: Mutex<Newest>,
}

#[derive(Debug, Default)]
struct Newest {
    asked_at: Option<Instant>,
    reading: Option<ClockReading>,
}

impl DatabaseClock {
    /// Returns the newest reading, after a query if it is not recent. If the query fails, an earlier reading is returned: what it
    /// shows about the clock is still true.
    pub(super) async fn read(&self, pool: &Pool) -> Option<ClockReading> {
        let mut newest = self.newest.lock().await;
        if newest.asked_at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            newest.asked_at = Some(Instant::now());
            match tokio::time::timeout(TIMEOUT, query(pool)).await {
                Ok(Ok(reading)) => newest.reading = Some(reading),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the clock of the database cannot be read");
                }
                Err(_) => tracing::debug!("the clock of the database was not read in time"),
            }
        }
        newest.reading
    }
}

async fn query(pool: &Pool) -> Result<ClockReading, Error> {
    let client = pool.get().await?;
    // Getting a connection and preparing take time of their own. Only the round trip of the query counts.
    let statement = client.prepare_cached(SQL).await?;
    let sent = Instant::now();
    let row = client.query_one(&statement, &[]).await?;
    let half = sent.elapsed() / 2;
    Ok(ClockReading {
        time: Timestamp::from_micros(row.try_get(0)?),
        at: sent + half,
        error: half,
    })
}
