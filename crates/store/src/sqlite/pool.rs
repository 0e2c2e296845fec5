//! Connections that only read. Any number of them read beside the writer without waiting for it.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::lock::Lock;
use super::open;
use crate::Error;

/// Connections kept for the next read. Reads in progress are bounded by the runtime's threads and [`LONG_READS_MAX`], so this only
/// decides how many stay open.
const IDLE_MAX: usize = 16;

/// Long reads at a time. They are bound by processor and disk; more would only slow each other and the writer down.
const LONG_READS_MAX: usize = 4;

pub(super) struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    long_reads: Arc<Semaphore>,
    /// Last, because fields are dropped in order: connections close before the lock is released.
    _lock: Arc<Lock>,
}

impl Pool {
    pub(super) fn new(path: PathBuf, lock: Arc<Lock>) -> Self {
        Self {
            path,
            idle: Mutex::new(Vec::new()),
            long_reads: Arc::new(Semaphore::new(LONG_READS_MAX)),
            _lock: lock,
        }
    }

    /// Reads at once, on the caller's thread. For reads of a few rows by key: they take microseconds from the page cache, far less
    /// than a handover to another thread and back.
    pub(super) fn point<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> BoxFuture<'a, Result<T, Error>> {
        future::ready(self.read(read)).boxed()
    }

    /// Reads on a thread that may block. For reads whose length depends on the amount of stored data.
    pub(super) fn long<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let pool = Arc::clone(self);
        async move {
            let _turn = pool.long_reads.acquire().await;
            let Ok(runtime) = Handle::try_current() else {
                return pool.read(read);
            };
            let reader = Arc::clone(&pool);
            runtime
                .spawn_blocking(move || reader.read(read))
                .await
                .unwrap_or_else(|error| {
                    Err(Error::Unavailable(format!("a read was lost: {error}")))
                })
        }
        .boxed()
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        // Not held while reading: the lock is for the stack only.
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::reader(&self.path)?,
        };
        let result = read(&connection);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        result
    }
}
