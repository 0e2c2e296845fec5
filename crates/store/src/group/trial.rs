//! Checks whether the store can write, with as few writes as possible. Real writes show it as long as there are any; a trial write
//! is made if there were none for a while, and from time to time while writes fail.

use std::time::{Duration, Instant};

use longhaul_protocol::Timestamp;
use tokio::sync::Mutex;

use crate::Error;
use crate::group::Counters;

/// What is known of a store that can write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Writable {
    /// The clock of the database. `None` if it is the clock of this machine, or if it could not be read yet.
    pub clock: Option<ClockReading>,
}

/// What the clock of a database showed.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    pub time: Timestamp,
    /// When it showed that time: in the middle of the round trip.
    pub at: Instant,
    /// How much earlier or later that may have been: half of the round trip.
    pub error: Duration,
}

impl ClockReading {
    /// Returns what the clock shows now.
    pub fn present_time(&self) -> Timestamp {
        let passed = i64::try_from(self.at.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.time.as_micros().saturating_add(passed))
    }
}

/// How long a result is valid while writes work. Each prober checks readiness every few seconds; all of them together cost one page
/// in this time.
const WORKING_INTERVAL: Duration = Duration::from_secs(5);

/// The same while writes fail. Shorter, so that a disk with room again is noticed soon.
const FAILING_INTERVAL: Duration = Duration::from_secs(1);

/// A write takes milliseconds. A slower disk must not get more work.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The newest result. Locked during a trial, so that there is one at a time.
#[derive(Default)]
pub(crate) struct Trials {
    newest: Mutex<Option<Answer>>,
}

struct Answer {
    at: Instant,
    /// Durable writes at that time.
    writes: u64,
    result: Result<(), Error>,
}

impl Trials {
    /// Returns whether writes work now. `trial` makes a write that changes nothing.
    pub(crate) async fn check(
        &self,
        counters: &Counters,
        trial: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let mut newest = self.newest.lock().await;
        let state = counters.state();
        let interval = if state.is_failing {
            FAILING_INTERVAL
        } else {
            WORKING_INTERVAL
        };
        if let Some(answer) = &*newest {
            if answer.at.elapsed() < interval {
                return match &answer.result {
                    // A write has failed or worked since.
                    Ok(()) if state.is_failing => Err(late("the newest write failed")),
                    Err(_) if !state.is_failing => Ok(()),
                    result => result.clone(),
                };
            }
            if !state.is_failing && state.writes > answer.writes {
                *newest = Some(Answer {
                    at: Instant::now(),
                    writes: state.writes,
                    result: Ok(()),
                });
                return Ok(());
            }
        }
        // Recorded before the trial: a trial whose caller stops waiting counts too.
        *newest = Some(Answer {
            at: Instant::now(),
            writes: state.writes,
            result: Err(late("a trial write was not finished")),
        });
        let result = tokio::time::timeout(TIMEOUT, trial)
            .await
            .unwrap_or_else(|_| Err(late("a trial write took too long")));
        *newest = Some(Answer {
            at: Instant::now(),
            writes: counters.state().writes,
            result: result.clone(),
        });
        result
    }
}

fn late(why: &str) -> Error {
    Error::Unavailable(why.to_owned())
}
