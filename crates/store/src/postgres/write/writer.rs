//! One writing connection and its batches. A batch takes two round trips: one locks and reads what its commits are based on, one
//! writes the rows and commits.
//!
//! If the connection breaks during COMMIT, it is not known whether the batch is stored. Each batch therefore writes its number with its
//! rows. After a break it connects again and asks for the number, before it answers. The question also writes the
//! number, so that a broken transaction which the server still works on can no longer commit.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{FutureExt as _, try_join};
use tokio::sync::mpsc;

use super::checks::{self, Known};
use super::rows::Rows;
use super::statements::Batch;
use super::{Commit, Waiting, sql};
use crate::group::Counters;
use crate::postgres::connect::{Connected, Role, connect};
use crate::postgres::error::is_lost;
use crate::postgres::hints::Exchange;
use crate::postgres::options::Options;
use crate::{Error, Hints, Quiet};

/// Commits in one transaction. A larger batch gains almost nothing more and makes the first of its commits wait for the last.
const BATCH_COMMITS_MAX: usize = 512;

/// A batch is closed once it has this many bytes: a few commits with payloads of megabytes must not delay all others.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Between two attempts to find out about a broken COMMIT. The server may be down for long.
const RESOLVE_PAUSE_MIN: Duration = Duration::from_millis(50);
const RESOLVE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Batches that failed as a whole.
static FAILED_BATCHES: Quiet = Quiet::new();

/// One writing connection.
pub(super) struct Writer {
    options: Options,
    counters: Arc<Counters>,
    waiting: Arc<AtomicUsize>,
    exchange: Arc<Exchange>,
    /// Names this writer in `writers`.
    name: String,
    /// The number of the newest batch that is stored.
    batch: i64,
    client: Option<Connected>,
}

/// Why a batch failed as a whole. Nothing of it is stored.
enum Failure {
    /// There is no connection, or it broke.
    Lost(Error),
    /// The server refused a statement.
    Refused(Error),
}

impl Failure {
    fn of(error: tokio_postgres::Error) -> Self {
        if is_lost(&error) {
            Self::Lost(error.into())
        } else {
            Self::Refused(error.into())
        }
    }
}

impl Writer {
    pub(super) fn new(
        options: Options,
        counters: Arc<Counters>,
        waiting: Arc<AtomicUsize>,
        exchange: Arc<Exchange>,
    ) -> Self {
        Self {
            options,
            counters,
            waiting,
            exchange,
            name: format!("{:032x}", rand::random::<u128>()),
            batch: 0,
            client: None,
        }
    }

    /// Returns the name of its row in `writers`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes until the queue is closed.
    pub(super) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Waiting>) {
        while let Some(first) = queue.recv().await {
            let mut bytes = first.commit.size;
            let mut batch = vec![first];
            while batch.len() < BATCH_COMMITS_MAX && bytes < BATCH_BYTES_MAX {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.commit.size;
                batch.push(next);
            }
            let began = Instant::now();
            let results = self.write(&batch).await;
            self.counters.record(&results, began.elapsed());
            self.announce(&batch, &results);
            // Only now: a writer that works on a batch is not free for the next commit.
            self.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
            for (waiting, result) in batch.into_iter().zip(results) {
                // The send fails if the caller stopped waiting; the commit is stored anyway.
                let _ = waiting.answer.send(result.map(drop));
            }
        }
    }

    /// Tells the other servers what is stored now.
    fn announce(&self, batch: &[Waiting], results: &[Result<bool, Error>]) {
        let mut hints = Hints::default();
        for (waiting, result) in batch.iter().zip(results) {
            if result.is_ok() {
                hints.merge(Hints::of(&waiting.commit.changes));
            }
        }
        self.exchange.announce(hints);
    }

    /// Returns one result per commit, whatever happens.
    async fn write(&mut self, batch: &[Waiting]) -> Vec<Result<bool, Error>> {
        let commits: Vec<&Commit> = batch.iter().map(|waiting| &waiting.commit).collect();
        match self.attempt_safely(&commits).await {
            Ok(results) => results,
            Err(Failure::Lost(error)) => vec![Err(error); commits.len()],
            Err(Failure::Refused(error)) if commits.len() <= 1 => vec![Err(error)],
            Err(Failure::Refused(error)) => {
                if let Some(unlogged) = FAILED_BATCHES.occurred() {
                    tracing::warn!(%error, commits = commits.len(), unlogged, "a batch failed; trying its commits one by one");
                }
                self.write_one_by_one(&commits).await
            }
        }
    }

    /// Writes each commit in a transaction of its own, so that only the one at fault fails. A lost connection ends it: the rest would
    /// be lost too.
    async fn write_one_by_one(&mut self, commits: &[&Commit]) -> Vec<Result<bool, Error>> {
        let mut results = Vec::with_capacity(commits.len());
        for commit in commits {
            match self.attempt_safely(&[commit]).await {
                Ok(mut result) => results.append(&mut result),
                Err(Failure::Refused(error)) => results.push(Err(error)),
                Err(Failure::Lost(error)) => {
                    results.resize(commits.len(), Err(error));
                    break;
                }
            }
        }
        results
    }

    /// As [`Self::attempt`]. A panic is a failed batch. Its connection is dropped, which rolls back.
    async fn attempt_safely(
        &mut self,
        commits: &[&Commit],
    ) -> Result<Vec<Result<bool, Error>>, Failure> {
        let attempt = Box::pin(self.attempt(commits));
        let attempt = AssertUnwindSafe(attempt).catch_unwind().await;
        attempt.unwrap_or_else(|_| {
            self.client = None;
            let why = "the writer panicked; see the log".to_owned();
            Err(Failure::Refused(Error::Unavailable(why)))
        })
    }

    /// Writes a batch in one transaction. The inner results are of each commit: stored, or refused alone.
    async fn attempt(&mut self, commits: &[&Commit]) -> Result<Vec<Result<bool, Error>>, Failure> {
        let number = self.batch + 1;
        let (client, mut known) = self.begin(number, commits).await?;
        let mut rows = Rows::default();
        let mut results = Vec::with_capacity(commits.len());
        for commit in commits {
            let checked = known.check(commit);
            if checked.is_ok() {
                rows.add(commit, &known);
                known.apply(commit);
            }
            results.push(checked.map(|()| true));
        }
        if results.iter().all(Result::is_err) {
            let rolled_back = client.batch_execute("ROLLBACK").await;
            self.client = rolled_back.is_ok().then_some(client);
            return Ok(results);
        }
        let began = Instant::now();
        let batch = Batch {
            client: &client,
            rows: &rows,
        };
        // Boxed: it has the futures of all tables.
        match Box::pin(batch.commit()).await {
            Ok(()) => {
                self.batch = number;
                self.client = Some(client);
                self.counters.record_sync(began.elapsed());
                Ok(results)
            }
            Err(error) if is_lost(&error) => {
                drop(client);
                self.resolve(number, results, error.into()).await
            }
            Err(error) => {
                // The transaction had failed, so its COMMIT rolled it back.
                let failure = Failure::Refused(error.into());
                self.roll_back(client, &failure).await;
                Err(failure)
            }
        }
    }

    /// Begins a batch. A connection that ended while it was idle is noticed here; nothing was sent for COMMIT, so another one is tried
    /// once.
    async fn begin(
        &mut self,
        number: i64,
        commits: &[&Commit],
    ) -> Result<(Connected, Known), Failure> {
        let was_open = self.client.is_some();
        let client = self.connected().await.map_err(Failure::Lost)?;
        let failure = match begin(&client, &self.name, number, commits).await {
            Ok(known) => return Ok((client, known)),
            Err(failure) => failure,
        };
        self.roll_back(client, &failure).await;
        if !was_open || matches!(failure, Failure::Refused(_)) {
            return Err(failure);
        }
        let client = self.connected().await.map_err(Failure::Lost)?;
        let known = begin(&client, &self.name, number, commits).await?;
        Ok((client, known))
    }

    /// Ends a transaction that failed. A connection that cannot do that is dropped.
    async fn roll_back(&mut self, client: Connected, failure: &Failure) {
        if matches!(failure, Failure::Refused(_)) && client.batch_execute("ROLLBACK").await.is_ok()
        {
            self.client = Some(client);
        }
    }

    /// Finds out whether a batch is stored whose connection broke. Returns only when it is known.
    async fn resolve(
        &mut self,
        number: i64,
        results: Vec<Result<bool, Error>>,
        error: Error,
    ) -> Result<Vec<Result<bool, Error>>, Failure> {
        let mut pause = RESOLVE_PAUSE_MIN;
        let was_stored = loop {
            match self.take_number(number).await {
                Ok(was_taken) => break was_taken,
                Err(why) => {
                    if let Some(unlogged) = FAILED_BATCHES.occurred() {
                        tracing::warn!(%why, unlogged, "the connection broke during a commit; its outcome is not known yet");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RESOLVE_PAUSE_MAX);
                }
            }
        };
        self.batch = number;
        tracing::info!(
            was_stored,
            commits = results.len(),
            "the outcome of a broken commit is known"
        );
        if was_stored {
            Ok(results)
        } else {
            Err(Failure::Lost(error))
        }
    }

    /// Takes the number of a batch, unless the batch has taken it. Returns whether it has. This waits while the server works on the
    /// broken transaction, which holds the row.
    async fn take_number(&mut self, number: i64) -> Result<bool, Error> {
        let client = self.connected().await?;
        let taken = client.execute(TAKE_NUMBER, &[&self.name, &number]).await?;
        self.client = Some(client);
        Ok(taken == 0)
    }

    /// Takes the connection out of the writer, or opens one.
    async fn connected(&mut self) -> Result<Connected, Error> {
        if let Some(client) = self.client.take()
            && !client.is_closed()
        {
            return Ok(client);
        }
        let client = connect(&self.options, Role::Writer).await?;
        client.execute(REGISTER, &[&self.name, &self.batch]).await?;
        for sql in sql::ALL.into_iter().chain(checks::ALL).chain([FENCE]) {
            client.prepare_ahead(sql).await?;
        }
        Ok(client)
    }
}

/// Begins a transaction, writes the number of the batch, and reads what its commits are based on.
async fn begin(
    client: &Connected,
    writer: &str,
    number: i64,
    commits: &[&Commit],
) -> Result<Known, Failure> {
    let fence = async {
        let statement = client.prepare_cached(FENCE).await?;
        client.execute(&statement, &[&writer, &number]).await
    };
    let began = client.batch_execute("BEGIN");
    let (_, fenced, known) =
        try_join!(began, fence, Known::read(client, commits)).map_err(Failure::of)?;
    if fenced != 1 {
        let why = "the row of this writer is gone".to_owned();
        return Err(Failure::Lost(Error::Unavailable(why)));
    }
    known.map_err(Failure::Refused)
}

const REGISTER: &str =
    "INSERT INTO writers (writer, batch) VALUES ($1, $2) ON CONFLICT (writer) DO NOTHING";

/// Fails by a division by zero if the number of the batch was taken.
const FENCE: &str = "UPDATE writers SET batch = $2::int8 / (CASE WHEN batch = $2::int8 - 1 THEN 1 ELSE 0 END) WHERE writer = $1";

const TAKE_NUMBER: &str =
    "UPDATE writers SET batch = $2::int8 WHERE writer = $1 AND batch = $2::int8 - 1";
